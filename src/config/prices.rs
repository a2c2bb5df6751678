//! `[prices.model."PATTERN"]`: prices that the catalogue lacks, or has wrong.
//!
//! Money is exact: a price is parsed from decimal text into an integer, never through a float.

use glob::Pattern;
use toml::de::DeValue;

use super::section::Section;
use super::value::{Fault, bad_pattern, names_nothing, number};
use crate::usage::{AmountError, Catalogue, Rate, Stated};

/// Prices for the models whose names match a pattern, overriding the catalogue's.
#[derive(Debug, Clone)]
pub struct PriceOverride {
    /// The pattern as written, which is valid.
    pub pattern: String,
    /// The prices that are given; the others are the catalogue's.
    pub stated: Stated,
}

/// The maximum, a hundred thousand dollars per million tokens: more is a mistake in the unit.
const MAX_RATE: Rate = Rate::from_picodollars(100_000_000_000);

pub(super) fn read(section: &mut Section<'_, '_>) -> Vec<PriceOverride> {
    let mut seen = Vec::new();
    let own = section.entries("model", "GLOB", |pattern, section| {
        check_distinct(pattern, section, &mut seen);
        entry(pattern, section)
    });
    own.into_iter().flatten().collect()
}

/// Reports an entry whose pattern differs only in case from an earlier one, since both match the same models. `seen`
/// are the earlier patterns.
fn check_distinct(pattern: &str, section: &mut Section<'_, '_>, seen: &mut Vec<String>) {
    // A range in brackets may mean something else in another case.
    let is_same = |first: &&String| first.eq_ignore_ascii_case(pattern) && !pattern.contains('[');
    match seen.iter().find(is_same) {
        Some(first) => {
            let message = format!("never applies: {first:?} comes before it, and case does not matter");
            section.problem_here(message);
        }
        None => seen.push(pattern.to_owned()),
    }
}

fn entry(pattern: &str, section: &mut Section<'_, '_>) -> Option<PriceOverride> {
    if let Some(reason) = names_nothing(pattern) {
        section.problem_here(format!("matches nothing: {reason}"));
    }
    let compiled = Pattern::new(pattern);
    if let Err(error) = &compiled {
        section.problem_here(bad_pattern(pattern, error));
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
            section.require(
                key,
                "missing; the catalogue has no prices of this model, so `input` and `output` are needed",
            );
        }
    }
    compiled.ok()?;
    Some(PriceOverride { pattern: pattern.to_owned(), stated })
}

fn dollars(value: &DeValue<'_>) -> Result<Rate, Fault> {
    let text = number(value).or_else(|| value.as_str()).ok_or(Fault::UNEXPECTED)?;
    let text = text.strip_prefix('+').unwrap_or(text);
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return Err(Fault::hint("write it as a plain decimal number, such as 3.75"));
    }
    let dear = || Fault::Message(format!("expected at most {MAX_RATE} US dollars for a million tokens"));
    let rate = Rate::from_usd_per_million_str(text).map_err(|error| match error {
        AmountError::TooFine => {
            let places = fraction.trim_end_matches('0').len();
            Fault::Message(format!("expected at most {} decimal places, got {places}", Rate::PLACES))
        }
        _ => dear(),
    })?;
    if rate > MAX_RATE { Err(dear()) } else { Ok(rate) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_parsed_exactly_or_refused() {
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
