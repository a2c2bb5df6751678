//! Figures for human readers.

use crate::usage::Money;

const DOLLAR: i128 = 1_000_000_000_000;

/// A count with thousands separators: `48,213`.
pub fn count(figure: u64) -> String {
    separated(&figure.to_string())
}

/// A figure as it is shown; `–` if it is unknown.
pub fn or_unknown(figure: Option<String>) -> String {
    figure.unwrap_or_else(|| "–".to_owned())
}

/// `1 request`, `2 requests`.
pub fn counted(figure: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(figure), if figure == 1 { one } else { many })
}

/// A part as a percentage of the whole, with one decimal place: `73.4 %`; `–` if the whole is not positive.
pub fn percent(part: i128, whole: i128) -> String {
    if whole <= 0 {
        return or_unknown(None);
    }
    let tenths = part.saturating_mul(2000).saturating_add(whole).div_euclid(whole.saturating_mul(2));
    let sign = if tenths < 0 { "-" } else { "" };
    format!("{sign}{}.{} %", tenths.unsigned_abs() / 10, tenths.unsigned_abs() % 10)
}

/// An amount with `places` decimal places: `$12,345.68`.
pub fn dollars(amount: Money, places: usize) -> String {
    let text = format!("{amount:.places$}");
    let (sign, digits) = text.split_once('$').unwrap_or(("", &text));
    let (whole, fraction) =
        digits.split_once('.').map_or((digits, None), |(whole, rest)| (whole, Some(rest)));
    let whole = separated(whole);
    match fraction {
        Some(fraction) => format!("{sign}${whole}.{fraction}"),
        None => format!("{sign}${whole}"),
    }
}

/// The number of decimal places for a column of amounts, so that the smallest has two significant digits: 2, 4 or 6.
pub fn places(amounts: impl Iterator<Item = Money>) -> usize {
    let least =
        amounts.map(|amount| amount.picodollars().saturating_abs()).filter(|amount| *amount > 0).min();
    match least {
        Some(amount) if amount < DOLLAR / 1_000 => 6,
        Some(amount) if amount < DOLLAR / 10 => 4,
        _ => 2,
    }
}

/// Ascending numbers, each run of consecutive ones as its first and its last number: `2`, `7-9`.
pub fn runs<'n>(numbers: impl IntoIterator<Item = &'n usize>, to: &str) -> Vec<String> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let show = |(first, last): (usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}{to}{last}") }
    };
    runs.into_iter().map(show).collect()
}

fn separated(digits: &str) -> String {
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped_by_thousands_with_singular_or_plural() {
        for (figure, expected) in
            [(0, "0"), (999, "999"), (1000, "1,000"), (u64::MAX, "18,446,744,073,709,551,615")]
        {
            assert_eq!(count(figure), expected);
        }
        assert_eq!(counted(1, "request", "requests"), "1 request");
        assert_eq!(counted(1200, "request", "requests"), "1,200 requests");
    }

    #[test]
    fn consecutive_numbers_are_a_run() {
        for (numbers, expected) in
            [(&[][..], ""), (&[2], "2"), (&[2, 7, 8, 9], "2, 7-9"), (&[1, 3, 5], "1, 3, 5"), (&[1, 2], "1-2")]
        {
            assert_eq!(runs(numbers, "-").join(", "), expected);
        }
    }

    #[test]
    fn percentages_have_one_decimal() {
        for (part, whole, expected) in [
            (0, 0, "–"),
            (1, 3, "33.3 %"),
            (2, 3, "66.7 %"),
            (-1, 8, "-12.5 %"),
            (-1, 3, "-33.3 %"),
            (5, 5, "100.0 %"),
        ] {
            assert_eq!(percent(part, whole), expected, "{part} of {whole}");
        }
    }

    #[test]
    fn amounts_have_the_decimal_places_of_their_column() {
        for (amounts, expected) in [
            (&["0"][..], &["$0.00"][..]),
            (&["12345.678", "0.5"], &["$12,345.68", "$0.50"]),
            (&["-1234.5", "0.0231"], &["-$1,234.5000", "$0.0231"]),
            (&["0.000123", "0", "3"], &["$0.000123", "$0.000000", "$3.000000"]),
        ] {
            let amounts: Vec<Money> =
                amounts.iter().map(|amount| Money::from_usd_str(amount).unwrap()).collect();
            let places = places(amounts.iter().copied());
            let shown: Vec<String> = amounts.iter().map(|amount| dollars(*amount, places)).collect();
            assert_eq!(shown, expected);
        }
    }
}
