//! Exact products of rates and factors.
//!
//! A price per token stays a fraction until it is multiplied by tokens; only then is it rounded, once, half
//! up to the pico-dollar. Absurd figures saturate.

use super::money::Money;
use super::rate::{Factor, Rate};

/// An exact price per token: a fraction of pico-dollars.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fraction {
    numerator: u128,
    denominator: u128,
}

impl From<Rate> for Fraction {
    fn from(rate: Rate) -> Self {
        Self { numerator: u128::from(rate.picodollars()), denominator: 1 }
    }
}

impl Fraction {
    /// Times `to / from`; unchanged when `from` is zero, as then no ratio is known.
    pub(super) fn scaled(self, from: Rate, to: Rate) -> Self {
        if from.picodollars() == 0 {
            return self;
        }
        self.by(u128::from(to.picodollars()), u128::from(from.picodollars()))
    }

    /// Times a factor.
    pub(super) fn times(self, factor: Factor) -> Self {
        self.by(u128::from(factor.thousandths()), 1000)
    }

    /// What `tokens` cost, rounded half up to the pico-dollar.
    pub(super) fn of(self, tokens: u64) -> Money {
        let whole = match self.numerator.checked_mul(u128::from(tokens)) {
            Some(product) => product / self.denominator + u128::from(self.rounds_up(product)),
            None => (self.numerator / self.denominator).saturating_mul(u128::from(tokens)),
        };
        Money::from_picodollars(i128::try_from(whole).unwrap_or(i128::MAX))
    }

    fn rounds_up(self, product: u128) -> bool {
        product % self.denominator >= self.denominator.div_ceil(2)
    }

    fn by(self, numerator: u128, denominator: u128) -> Self {
        if numerator == denominator {
            return self;
        }
        let numerator = self.numerator.saturating_mul(numerator);
        let denominator = self.denominator.saturating_mul(denominator);
        let divisor = gcd(numerator, denominator);
        Self { numerator: numerator / divisor, denominator: denominator / divisor }
    }
}

/// The greatest common divisor; `b` is never zero here, so neither is the result.
fn gcd(a: u128, b: u128) -> u128 {
    if a == 0 { b } else { gcd(b % a, a) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fractions_round_once_and_half_up() {
        let rate = |picodollars| Fraction::from(Rate::from_picodollars(picodollars));
        let us = Factor::from_thousandths(1100);
        for (fraction, tokens, expected) in [
            (rate(3), 1000, 3000),
            (rate(5).times(us), 1, 6),
            (rate(4).times(us), 1, 4),
            (rate(5).times(us), 2, 11),
            (rate(10).scaled(Rate::from_picodollars(3), Rate::from_picodollars(1)), 3, 10),
            (rate(10).scaled(Rate::from_picodollars(0), Rate::from_picodollars(7)), 1, 10),
            (rate(0).times(us), u64::MAX, 0),
        ] {
            assert_eq!(fraction.of(tokens).picodollars(), expected);
        }
    }

    proptest! {
        #[test]
        fn absurd_figures_saturate(rates in any::<[u64; 5]>(), factor in any::<u32>(), tokens in any::<u64>()) {
            let [base, a, b, c, d] = rates.map(Rate::from_picodollars);
            let cost = Fraction::from(base).scaled(a, b).scaled(c, d).times(Factor::from_thousandths(factor));
            prop_assert!(cost.of(tokens) >= Money::ZERO);
        }
    }
}
