//! Figures as people read them.

use crate::usage::Money;

const DOLLAR: i128 = 1_000_000_000_000;

/// A count with separators: `48,213`.
pub(super) fn count(figure: u64) -> String {
    separated(&figure.to_string())
}

/// `1 request`, `2 requests`.
pub(super) fn counted(figure: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(figure), if figure == 1 { one } else { many })
}

/// An amount with that many decimal places: `$12,345.68`.
pub(super) fn dollars(amount: Money, places: usize) -> String {
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

/// How many decimal places a column of amounts needs, so that the least of them has two digits that say
/// something: cents, four places, or six.
pub(super) fn places(amounts: impl Iterator<Item = Money>) -> usize {
    let least =
        amounts.map(|amount| amount.picodollars().saturating_abs()).filter(|amount| *amount > 0).min();
    match least {
        Some(amount) if amount < DOLLAR / 1_000 => 6,
        Some(amount) if amount < DOLLAR / 10 => 4,
        _ => 2,
    }
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
    fn counts() {
        for (figure, expected) in
            [(0, "0"), (999, "999"), (1000, "1,000"), (u64::MAX, "18,446,744,073,709,551,615")]
        {
            assert_eq!(count(figure), expected);
        }
        assert_eq!(counted(1, "request", "requests"), "1 request");
        assert_eq!(counted(1200, "request", "requests"), "1,200 requests");
    }

    #[test]
    fn amounts_have_the_places_that_their_column_needs() {
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
