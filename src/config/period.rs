//! Durations as users write them: `"250ms"`, `"30s"`, `"5m"`, `"2h"`, `"7d"`.

use std::time::Duration;

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const HOUR: Duration = Duration::from_secs(3600);
pub(super) const DAY: Duration = Duration::from_secs(24 * 3600);

/// The units in milliseconds, largest first.
const UNITS: &[(&str, u64)] =
    &[("d", 24 * 3_600_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Reads a number with its unit. A number without one is rejected, since nobody remembers which unit it would have.
pub(super) fn parse(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit.trim_start())?;
    Some(Duration::from_millis(number.parse::<u64>().ok()?.checked_mul(*factor)?))
}

/// The shortest text that [`parse`] reads as this duration, in whole milliseconds.
pub(super) fn show(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let whole = UNITS.iter().find(|(_, factor)| millis != 0 && millis.is_multiple_of(*factor));
    let (name, factor) = whole.unwrap_or(&("s", 1_000));
    format!("{}{name}", millis / factor)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_need_a_number_and_a_unit() {
        let cases: &[(&str, Option<u64>)] = &[
            ("250ms", Some(250)),
            ("30s", Some(30_000)),
            ("5 m", Some(300_000)),
            ("2h", Some(7_200_000)),
            ("7d", Some(604_800_000)),
            ("0s", Some(0)),
            ("30", None),
            ("s", None),
            ("", None),
            ("1.5s", None),
            ("-1s", None),
            ("5M", None),
            ("1h30m", None),
            ("5 minutes", None),
            ("99999999999999999999s", None),
            ("18446744073709551615d", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), expected.map(Duration::from_millis), "{text}");
        }
    }

    proptest! {
        #[test]
        fn shown_durations_round_trip(millis in any::<u64>()) {
            let duration = Duration::from_millis(millis);
            prop_assert_eq!(parse(&show(duration)), Some(duration));
        }

        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = parse(&text);
        }
    }
}
