//! `[prices.model."PATTERN"]`: prices that the catalogue does not have, or has wrong.
//!
//! Money is exact: a price is read as decimal text into an integer, never through a float.

use glob::Pattern;
use toml::de::DeValue;

use super::section::Section;
use super::value::{Fault, bad_pattern};
use crate::usage::{Catalogue, Rate, Stated};

/// Prices of the models whose names match a pattern, in place of the catalogue's.
#[derive(Debug, Clone)]
pub struct PriceOverride {
    pattern: String,
    /// What is stated; what is left out is the catalogue's.
    pub stated: Stated,
}

/// Decimal places of "dollars for a million tokens" that a [`Rate`] can hold.
const PLACES: usize = 6;
/// Dearer than this for a million tokens is a slip of the unit.
const DEAREST: u64 = 100_000;

impl PriceOverride {
    /// The pattern as it was written.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }
}

pub(super) fn read(section: &mut Section<'_, '_>) -> Vec<PriceOverride> {
    section.entries("model", "GLOB", entry).into_iter().flatten().collect()
}

fn entry(pattern: &str, section: &mut Section<'_, '_>) -> Option<PriceOverride> {
    let compiled = Pattern::new(pattern);
    if let Err(error) = &compiled {
        section.problem_here(bad_pattern(pattern, error), None);
    }
    let mut price = |key| {
        section.parse(key, || "a price in US dollars for a million tokens".into(), |value, _| dollars(value))
    };
    let stated = Stated {
        input: price("input"),
        output: price("output"),
        cache_read: price("cache_read"),
        cache_write_5m: price("cache_write_5m"),
        cache_write_1h: price("cache_write_1h"),
        ..Stated::default()
    };
    if !Catalogue::lists(pattern) {
        for key in ["input", "output"] {
            section
                .require(key, "prices of a model that the catalogue does not have need `input` and `output`");
        }
    }
    compiled.ok()?;
    Some(PriceOverride { pattern: pattern.to_owned(), stated })
}

fn dollars(value: &DeValue<'_>) -> Result<Rate, Fault> {
    let text = match value {
        DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
        DeValue::Float(number) => number.as_str(),
        DeValue::String(text) => text.as_ref(),
        _ => return Err(Fault::UNEXPECTED),
    };
    let text = text.strip_prefix('+').unwrap_or(text);
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return Err(Fault::hint("write it as a plain decimal number, such as 3.75"));
    }
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > PLACES {
        return Err(Fault::Said(format!("expected at most {PLACES} decimal places, got {}", fraction.len())));
    }
    let dear = || Fault::Said(format!("expected at most {DEAREST} US dollars for a million tokens"));
    let whole = whole.parse::<u64>().ok().filter(|dollars| *dollars <= DEAREST).ok_or_else(dear)?;
    let fraction = format!("{fraction:0<PLACES$}").parse::<u64>().map_err(|_| dear())?;
    Ok(Rate::from_picodollars(whole * 10_u64.pow(PLACES as u32) + fraction))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_prices() {
        let cases: &[(&str, Option<u64>)] = &[
            ("3", Some(3_000_000)),
            ("3.75", Some(3_750_000)),
            ("0.1", Some(100_000)),
            ("0.000001", Some(1)),
            ("0.30000000", Some(300_000)),
            ("'0.1'", Some(100_000)),
            ("+1.5", Some(1_500_000)),
            ("1_000.5", Some(1_000_500_000)),
            ("0", Some(0)),
            ("100000", Some(100_000_000_000)),
            ("100001", None),
            ("0.0000001", None),
            ("-1", None),
            ("1e-3", None),
            ("inf", None),
            ("nan", None),
            ("0x10", None),
            ("'free'", None),
            ("''", None),
            ("'.5'", None),
            ("true", None),
            ("99999999999999999999999", None),
        ];
        for (text, expected) in cases {
            let value = DeValue::parse(text).expect("a TOML value").into_inner();
            assert_eq!(dollars(&value).ok(), expected.map(Rate::from_picodollars), "{text}");
        }
    }
}
