//! Exact reading and writing of decimal numbers.
//!
//! Amounts arrive as JSON or TOML text; they become integers of a fixed scale without passing through binary
//! fractions. Never a float in between, never a panic, whatever the text.

use std::iter;

use thiserror::Error;

/// Why a text is no amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum AmountError {
    /// Not a decimal number.
    #[error("not a decimal number")]
    NotANumber,
    /// A rate below zero.
    #[error("must not be negative")]
    Negative,
    /// More than can be represented.
    #[error("too large")]
    TooLarge,
    /// More decimal places than a rate has.
    #[error("finer than a millionth of a dollar per million tokens")]
    TooFine,
}

/// A decimal number, scaled to an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scaled {
    /// The value times ten to the scale, rounded half away from zero.
    pub(super) value: i128,
    /// Whether nothing was lost by rounding.
    pub(super) exact: bool,
}

/// Digits that fit an `i128` whatever they are.
const MAX_DIGITS: isize = 38;

/// Reads `text` (`-12.5`, `1e-06`) and multiplies it by ten to the `scale`.
pub(super) fn parse(text: &str, scale: isize) -> Result<Scaled, AmountError> {
    let (negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, parse_exponent(exponent)?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() + fraction.len() == 0 || !all_digits(whole) || !all_digits(fraction) {
        return Err(AmountError::NotANumber);
    }
    let digits = || whole.bytes().chain(fraction.bytes()).map(|byte| i128::from(byte - b'0'));
    let leading_zeros = digits().take_while(|&digit| digit == 0).count();
    if leading_zeros == whole.len() + fraction.len() {
        return Ok(Scaled { value: 0, exact: true });
    }

    // How many of the significant digits precede the scaled decimal point.
    let kept = whole.len().cast_signed() - leading_zeros.cast_signed() + exponent + scale;
    if kept > MAX_DIGITS {
        return Err(AmountError::TooLarge);
    }
    let mut significant = digits().skip(leading_zeros);
    let mut value: i128 = 0;
    for _ in 0..kept {
        value = value * 10 + significant.next().unwrap_or(0);
    }
    let (first_dropped, exact) = match kept {
        0.. => (significant.next().unwrap_or(0), significant.all(|digit| digit == 0)),
        _ => (0, false),
    };
    value += i128::from(first_dropped >= 5);
    Ok(Scaled { value: if negative { -value } else { value }, exact: exact && first_dropped == 0 })
}

/// Exponents beyond what any amount needs are clamped: the digits decide, not the size of the number.
fn parse_exponent(text: &str) -> Result<isize, AmountError> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(AmountError::NotANumber);
    }
    let size = digits.parse().unwrap_or(isize::MAX).min(1_000_000_000);
    Ok(if text.starts_with('-') { -size } else { size })
}

/// Writes `value` over ten to the `scale` exactly, without trailing zeros beyond `min_places`.
pub(super) fn format(value: u128, scale: usize, min_places: usize) -> String {
    let mut written = itoa::Buffer::new();
    let written = written.format(value);
    // The point may still have to be put in.
    let mut digits = String::with_capacity(written.len().max(scale + 1) + 1);
    digits.extend(iter::repeat_n('0', (scale + 1).saturating_sub(written.len())));
    digits.push_str(written);
    let point = digits.len() - scale;
    let places = digits[point..].trim_end_matches('0').len().max(min_places);
    digits.truncate(point + places);
    if places > 0 {
        digits.insert(point, '.');
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, scale: isize, expected: Result<(i128, bool), AmountError>) {
        assert_eq!(parse(text, scale).map(|scaled| (scaled.value, scaled.exact)), expected, "{text:?}");
    }

    #[test]
    fn decimals_are_parsed_and_rounded() {
        for (text, scale, expected) in [
            ("0", 12, Ok((0, true))),
            ("0.000123", 12, Ok((123_000_000, true))),
            ("1e-06", 12, Ok((1_000_000, true))),
            ("1E+2", 0, Ok((100, true))),
            ("-12.5", 1, Ok((-125, true))),
            ("+.5", 1, Ok((5, true))),
            ("5.", 0, Ok((5, true))),
            ("007", 0, Ok((7, true))),
            // Half goes away from zero; less than half goes.
            ("0.5", 0, Ok((1, false))),
            ("-0.5", 0, Ok((-1, false))),
            ("0.49", 0, Ok((0, false))),
            ("0.05", 0, Ok((0, false))),
            ("9.5", 0, Ok((10, false))),
            ("0.00014850000000000003", 12, Ok((148_500_000, false))),
            ("1e-999999999999999999999", 12, Ok((0, false))),
            ("0e999999999999999999999", 12, Ok((0, true))),
            ("1e40", 0, Err(AmountError::TooLarge)),
            ("1e999999999999999999999", 0, Err(AmountError::TooLarge)),
            ("", 0, Err(AmountError::NotANumber)),
            (".", 0, Err(AmountError::NotANumber)),
            ("-", 0, Err(AmountError::NotANumber)),
            ("--1", 0, Err(AmountError::NotANumber)),
            ("1.2.3", 0, Err(AmountError::NotANumber)),
            ("1e", 0, Err(AmountError::NotANumber)),
            ("1e1.5", 0, Err(AmountError::NotANumber)),
            (" 1", 0, Err(AmountError::NotANumber)),
            ("$1", 0, Err(AmountError::NotANumber)),
            ("NaN", 0, Err(AmountError::NotANumber)),
            ("inf", 0, Err(AmountError::NotANumber)),
            ("１", 0, Err(AmountError::NotANumber)),
        ] {
            check(text, scale, expected);
        }
    }

    #[test]
    fn thirty_eight_digits_fit() {
        let most = "9".repeat(38);
        check(&most, 0, Ok((most.parse().unwrap(), true)));
        check(&format!("{most}9"), 0, Err(AmountError::TooLarge));
        check(&format!("{most}.9"), 0, Ok((10_i128.pow(38), false)));
    }

    #[test]
    fn decimals_are_written_exactly() {
        for (value, scale, places, expected) in [
            (0, 12, 0, "0"),
            (0, 12, 2, "0.00"),
            (223_785_300_000, 12, 0, "0.2237853"),
            (1_500_000_000_000, 12, 2, "1.50"),
            (1, 12, 0, "0.000000000001"),
            (3625, 6, 0, "0.003625"),
            (7_000_000, 6, 0, "7"),
            (12_340_000, 6, 1, "12.34"),
            (12, 0, 0, "12"),
        ] {
            assert_eq!(format(value, scale, places), expected);
        }
    }
}
