//! Sums of money, exact to the pico-dollar (10⁻¹² USD).
//!
//! Every price in the catalogue is a whole number of pico-dollars per token, so costs add up exactly. Sums
//! saturate instead of overflowing; nothing here ever goes through a float.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Neg, Sub};

use serde::{Deserialize, Serialize};

use super::decimal::{self, AmountError};

/// An amount in pico-dollars; negative amounts are credits or losses.
///
/// Serialised as the integer number of pico-dollars. `Display` is for people (see there); [`Money::usd`] is
/// exact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Money(i128);

/// Decimal places of a dollar in a [`Money`].
const PLACES: usize = 12;
/// A dollar in pico-dollars.
const DOLLAR: i128 = 10_i128.pow(PLACES as u32);

impl Money {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// An amount of `picodollars`.
    pub const fn from_picodollars(picodollars: i128) -> Self {
        Self(picodollars)
    }

    /// An amount of whole US dollars.
    pub const fn from_usd(dollars: u32) -> Self {
        Self(dollars as i128 * DOLLAR)
    }

    /// Reads a decimal number of US dollars (`0.000123`, `1e-06`). What is finer than a pico-dollar is
    /// rounded, half away from zero: providers print binary fractions such as `0.00014850000000000003`.
    ///
    /// # Errors
    /// [`AmountError::NotANumber`] and [`AmountError::TooLarge`].
    pub fn from_usd_str(text: &str) -> Result<Self, AmountError> {
        decimal::parse(text, PLACES.cast_signed()).map(|scaled| Self(scaled.value))
    }

    /// The amount in pico-dollars.
    pub const fn picodollars(self) -> i128 {
        self.0
    }

    /// The amount in US dollars as an exact decimal number without trailing zeros (`0.2237853`, `-3`): a
    /// valid JSON number.
    pub fn usd(self) -> String {
        let digits = decimal::format(self.0.unsigned_abs(), PLACES, 0);
        if self.0 < 0 { format!("-{digits}") } else { digits }
    }

    /// How many decimal places people need to see: cents from a dollar on, else four significant digits, at
    /// most six places.
    fn display_places(self) -> usize {
        const ONE: u128 = DOLLAR.unsigned_abs();
        match self.0.unsigned_abs() {
            ONE.. => 2,
            abs if abs >= ONE / 10 => 4,
            abs if abs >= ONE / 100 => 5,
            _ => 6,
        }
    }
}

/// `$12.50`, `$0.0231`, `-$0.01`: at least cents, at most six decimal places, rounded half away from zero. A
/// precision asks for that many places (`{:.6}`); width and alignment work as for numbers.
impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (places, min_places) = match f.precision() {
            Some(places) => (places.min(PLACES), places.min(PLACES)),
            None => (self.display_places(), 2),
        };
        let unit = 10_u128.pow((PLACES - places) as u32);
        let rounded = self.0.unsigned_abs() / unit + u128::from(self.0.unsigned_abs() % unit * 2 >= unit);
        let text = format!("${}", decimal::format(rounded, places, min_places));
        f.pad_integral(self.0 >= 0 || rounded == 0, "", &text)
    }
}

impl Add for Money {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Money {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Money {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Neg for Money {
    type Output = Self;

    fn neg(self) -> Self {
        Self(self.0.saturating_neg())
    }
}

impl Sum for Money {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Add::add)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn usd(text: &str) -> Money {
        Money::from_usd_str(text).unwrap()
    }

    #[test]
    fn amounts_are_rounded_for_display() {
        for (amount, expected) in [
            ("0", "$0.00"),
            ("0.01", "$0.01"),
            ("-0.01", "-$0.01"),
            ("0.0231", "$0.0231"),
            ("0.2237853", "$0.2238"),
            ("0.0435", "$0.0435"),
            ("0.0123456", "$0.01235"),
            ("0.000123", "$0.000123"),
            ("0.0000004", "$0.00"),
            ("-0.0000004", "$0.00"),
            ("0.0000005", "$0.000001"),
            ("0.5", "$0.50"),
            ("0.99995", "$1.00"),
            ("1", "$1.00"),
            ("1.005", "$1.01"),
            ("-12345.678", "-$12345.68"),
        ] {
            assert_eq!(usd(amount).to_string(), expected, "{amount}");
        }
    }

    #[test]
    fn display_takes_precision_and_width() {
        let amount = usd("-0.2237853");
        assert_eq!(format!("{amount:.6}"), "-$0.223785");
        assert_eq!(format!("{amount:.0}"), "$0");
        assert_eq!(format!("{amount:.99}"), "-$0.223785300000");
        assert_eq!(format!("[{amount:>10}] [{amount:<10}]"), "[  -$0.2238] [-$0.2238  ]");
    }

    #[test]
    fn usd_texts_are_exact() {
        for text in ["0", "0.2237853", "-3", "0.000000000001", "1200.5"] {
            assert_eq!(usd(text).usd(), text);
        }
    }

    #[test]
    fn arithmetic_saturates() {
        let most = Money::from_picodollars(i128::MAX);
        let least = Money::from_picodollars(i128::MIN);
        assert_eq!(most + most, most);
        assert_eq!(least - most, least);
        assert_eq!(-least, most);
        assert_eq!([usd("1.10"), usd("2.20"), -usd("0.30")].into_iter().sum::<Money>(), usd("3"));
        assert!(!least.to_string().is_empty() && !least.usd().is_empty());
    }

    #[test]
    fn amounts_are_serialised_as_picodollars() {
        let amount = usd("-0.2237853");
        assert_eq!(serde_json::to_string(&amount).unwrap(), "-223785300000");
        assert_eq!(serde_json::from_str::<Money>("-223785300000").unwrap(), amount);
    }

    proptest! {
        #[test]
        fn usd_texts_round_trip(picodollars in any::<i128>()) {
            let amount = Money::from_picodollars(picodollars / 10);
            prop_assert_eq!(Money::from_usd_str(&amount.usd()), Ok(amount));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}", amount in any::<i128>(), places in 0..20_usize) {
            let _ = Money::from_usd_str(&text);
            let amount = Money::from_picodollars(amount);
            let shown = format!("{amount} {amount:.places$}");
            prop_assert!(shown.contains('$'));
        }
    }
}
