//! `[budget]`: spending limits for conversations and days.

use toml::de::DeValue;

use crate::usage::Money;

use super::section::Section;
use super::value::{Fault, Word, number};

/// The spending limits, and what happens beyond them.
#[derive(Debug, Clone, PartialEq)]
pub struct Budget {
    /// The limits of one conversation.
    pub conversation: Limits,
    /// The limits of all requests of a day.
    pub day: Limits,
    /// The share of a limit from which it counts as nearly reached.
    pub near: f64,
    /// What happens to requests beyond a limit.
    pub on_exceeded: OnExceeded,
}

/// Spending limits; `None` for no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// The cost.
    pub usd: Option<Money>,
    /// Tokens of prompts and answers, cached or not.
    pub tokens: Option<u64>,
}

/// What happens to requests beyond a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnExceeded {
    /// They are sent; that is recorded and logged.
    Record,
    /// They are answered with an error.
    Refuse,
}

impl Default for Budget {
    fn default() -> Self {
        let any = Limits::default();
        Self { conversation: any, day: any, near: 0.9, on_exceeded: OnExceeded::Record }
    }
}

impl Word for OnExceeded {
    const WORDS: &'static [(&'static str, Self)] = &[("record", Self::Record), ("refuse", Self::Refuse)];
}

/// More tokens than anyone could use.
const MAX_TOKENS: u64 = 1_000_000_000_000_000;
/// More dollars than anyone could spend.
const MAX_DOLLARS: i128 = 1_000_000_000;
/// Pico-dollars in a dollar.
const PICO: i128 = 1_000_000_000_000;

pub(super) fn read(section: &mut Section<'_, '_>) -> Budget {
    let default = Budget::default();
    Budget {
        conversation: Limits {
            usd: money(section, "conversation_usd"),
            tokens: section.optional_within("conversation_tokens", 1..=MAX_TOKENS),
        },
        day: Limits {
            usd: money(section, "day_usd"),
            tokens: section.optional_within("day_tokens", 1..=MAX_TOKENS),
        },
        near: section.within("near", 0.01..=1.0, default.near),
        on_exceeded: section.value("on_exceeded", default.on_exceeded),
    }
}

fn money(section: &mut Section<'_, '_>, key: &'static str) -> Option<Money> {
    section.parse(key, || "a number of US dollars, such as 5.00".into(), |value, _| dollars(value))
}

fn dollars(value: &DeValue<'_>) -> Result<Money, Fault> {
    let text = number(value).ok_or(Fault::UNEXPECTED)?;
    let amount = Money::from_usd_str(text).map_err(|_| Fault::UNEXPECTED)?;
    if (1..=MAX_DOLLARS * PICO).contains(&amount.picodollars()) {
        Ok(amount)
    } else {
        Err(Fault::Message(format!("expected more than 0 and at most {MAX_DOLLARS} US dollars")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollar_amounts_are_positive_and_bounded() {
        for (text, expected) in [
            ("5", Some(5_000_000_000_000)),
            ("5.25", Some(5_250_000_000_000)),
            ("0.000001", Some(1_000_000)),
            ("1000000000", Some(MAX_DOLLARS * PICO)),
            ("1000000001", None),
            ("0", None),
            ("-1", None),
            ("nan", None),
            ("'5'", None),
            ("0x5", None),
        ] {
            let value = DeValue::parse(text).unwrap().into_inner();
            assert_eq!(dollars(&value).ok(), expected.map(Money::from_picodollars), "{text}");
        }
    }
}
