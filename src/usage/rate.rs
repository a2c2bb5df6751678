//! Prices per token and the factors on them.
//!
//! A rate is a whole number of pico-dollars per token, a factor a whole number of thousandths; neither is
//! ever rounded.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::decimal::{self, AmountError};

/// A price per token in pico-dollars; numerically the same as micro-dollars per million tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rate(u64);

/// The highest rate that is accepted: a million dollars per million tokens. A higher one is a typing error.
const MAX_RATE: u64 = 1_000_000_000_000;

impl Rate {
    /// Decimal places of a dollar per million tokens.
    pub const PLACES: usize = 6;

    /// A rate of `picodollars` per token.
    pub const fn from_picodollars(picodollars: u64) -> Self {
        Self(picodollars)
    }

    /// Reads US dollars per million tokens (`3`, `0.003625`), the way providers list prices.
    ///
    /// # Errors
    /// Every [`AmountError`]: rates are exact, never rounded.
    pub fn from_usd_per_million_str(text: &str) -> Result<Self, AmountError> {
        let scaled = decimal::parse(text, Self::PLACES.cast_signed())?;
        if !scaled.exact {
            return Err(AmountError::TooFine);
        }
        match u64::try_from(scaled.value) {
            Ok(rate) if rate <= MAX_RATE => Ok(Self(rate)),
            _ if scaled.value < 0 => Err(AmountError::Negative),
            _ => Err(AmountError::TooLarge),
        }
    }

    /// The rate in pico-dollars per token.
    pub const fn picodollars(self) -> u64 {
        self.0
    }
}

/// US dollars per million tokens, exact (`0.003625`).
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&decimal::format(u128::from(self.0), Self::PLACES, 0))
    }
}

/// A factor on a rate in thousandths: 1100 is 1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Factor(u32);

impl Factor {
    /// No change.
    pub const ONE: Self = Self(1000);

    /// A factor of `thousandths`.
    pub const fn from_thousandths(thousandths: u32) -> Self {
        Self(thousandths)
    }

    /// The factor in thousandths.
    pub const fn thousandths(self) -> u32 {
        self.0
    }
}

/// The factor, exact (`1.1`).
impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&decimal::format(u128::from(self.0), 3, 0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn list_prices_are_parsed_or_refused() {
        for (text, expected) in [
            ("3", Ok(3_000_000)),
            ("0.003625", Ok(3625)),
            ("1e-6", Ok(1)),
            ("0", Ok(0)),
            ("1000000", Ok(MAX_RATE)),
            ("1000000.000001", Err(AmountError::TooLarge)),
            ("1e30", Err(AmountError::TooLarge)),
            ("-1", Err(AmountError::Negative)),
            ("0.0000001", Err(AmountError::TooFine)),
            ("three", Err(AmountError::NotANumber)),
        ] {
            assert_eq!(Rate::from_usd_per_million_str(text).map(Rate::picodollars), expected, "{text}");
        }
    }

    #[test]
    fn factors_are_shown_exactly() {
        for (thousandths, expected) in [(1000, "1"), (1100, "1.1"), (1375, "1.375"), (0, "0"), (6000, "6")] {
            assert_eq!(Factor::from_thousandths(thousandths).to_string(), expected);
        }
    }

    proptest! {
        #[test]
        fn listed_rates_round_trip(picodollars in 0..=MAX_RATE) {
            let rate = Rate::from_picodollars(picodollars);
            prop_assert_eq!(Rate::from_usd_per_million_str(&rate.to_string()), Ok(rate));
        }
    }
}
