//! Times as users write and read them.
//!
//! Days are those of the machine's time zone, unless UTC is asked for.

use jiff::civil::{DateTime, Time};
use jiff::fmt::temporal::Pieces;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, Zoned};

use crate::store::LedgerFilter;

/// The forms in which a time can be given, as a hint.
pub const EXPECTED: &str =
    "expected a date such as 2026-11-21, a time such as 2026-11-21T10:00, or how long ago, such as 7d";

/// Why two texts do not give a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRange {
    /// The start is not a time.
    Since,
    /// The end is not a time.
    Until,
    /// The start is later than the end.
    Reversed,
}

/// Which end of its day a date denotes.
#[derive(Debug, Clone, Copy)]
enum Edge {
    Start,
    End,
}

/// A filter for the rows of a period, whose ends are each given as a date, a time, or an age. A date covers its whole
/// day.
///
/// # Errors
/// [`NoRange`]; for a text that is not a time, [`EXPECTED`] describes what is.
pub fn filter(since: Option<&str>, until: Option<&str>, zone: &TimeZone) -> Result<LedgerFilter, NoRange> {
    let now = Zoned::now().with_time_zone(zone.clone());
    let read =
        |text: Option<&str>, edge, wrong| text.map(|text| instant(text, &now, edge).ok_or(wrong)).transpose();
    let since_ms = read(since, Edge::Start, NoRange::Since)?;
    let until_ms = read(until, Edge::End, NoRange::Until)?;
    if since_ms.zip(until_ms).is_some_and(|(since, until)| since > until) {
        return Err(NoRange::Reversed);
    }
    Ok(LedgerFilter { since_ms, until_ms })
}

/// The time zone for days: UTC if `utc` is set, otherwise the machine's.
pub fn zone(utc: bool) -> TimeZone {
    if utc { TimeZone::UTC } else { TimeZone::system() }
}

/// The name of a time zone. If the machine's is unknown, as with a `TZ` that names none, days are those of UTC.
pub fn zone_name(zone: &TimeZone) -> &str {
    if zone.is_unknown() { "UTC" } else { zone.iana_name().unwrap_or("the local time zone") }
}

/// The day of a time: `2026-11-21`.
pub fn day(at_ms: i64, zone: &TimeZone) -> String {
    zoned(at_ms, zone).map_or_else(String::new, |at| at.date().to_string())
}

/// A time to the minute: `2026-11-21 10:02`.
pub fn minute(at_ms: i64, zone: &TimeZone) -> String {
    zoned(at_ms, zone).map_or_else(String::new, |at| at.strftime("%Y-%m-%d %H:%M").to_string())
}

/// A time of day to the second: `10:02:03`.
pub fn second(at_ms: i64, zone: &TimeZone) -> String {
    zoned(at_ms, zone).map_or_else(String::new, |at| at.strftime("%H:%M:%S").to_string())
}

/// A time in RFC 3339, in UTC.
pub fn rfc3339(at_ms: i64) -> String {
    Timestamp::from_millisecond(at_ms).map(|at| format!("{at:.3}")).unwrap_or_default()
}

fn zoned(at_ms: i64, zone: &TimeZone) -> Option<Zoned> {
    Some(Timestamp::from_millisecond(at_ms).ok()?.to_zoned(zone.clone()))
}

fn instant(text: &str, now: &Zoned, edge: Edge) -> Option<i64> {
    // `Date` would also be parsed from a text with a time of day, and that dropped silently.
    let date = Pieces::parse(text).ok().filter(|pieces| pieces.time().is_none());
    let at = if let Some(day) = date.map(|pieces| pieces.date()) {
        let midnight = match edge {
            Edge::Start => day.to_datetime(Time::midnight()),
            Edge::End => day.tomorrow().map_or(DateTime::MAX, |next| next.to_datetime(Time::midnight())),
        };
        timestamp(midnight, now.time_zone())
    } else if let Ok(at) = text.parse::<Timestamp>() {
        at
    } else if let Ok(at) = text.parse::<DateTime>() {
        timestamp(at, now.time_zone())
    } else {
        let ago: Span = text.parse().ok()?;
        if !ago.is_positive() {
            return None;
        }
        now.checked_sub(ago).ok()?.timestamp()
    };
    Some(at.as_millisecond())
}

/// The time of a date and a time of day in a zone; the first or the last that there is, if it lies beyond these.
fn timestamp(at: DateTime, zone: &TimeZone) -> Timestamp {
    let beyond = if at.year() > 0 { Timestamp::MAX } else { Timestamp::MIN };
    at.to_zoned(zone.clone()).map_or(beyond, |at| at.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A time in Central Europe, independent of the machine's time zone data.
    fn now() -> Zoned {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        "2026-11-21T11:30:00Z".parse::<Timestamp>().unwrap().to_zoned(zone)
    }

    #[test]
    fn times_and_periods_are_parsed_in_a_zone() {
        let here = now();
        let utc = here.with_time_zone(TimeZone::UTC);
        for (text, now, edge, expected) in [
            ("2026-11-20", &utc, Edge::Start, Some("2026-11-20T00:00:00.000Z")),
            ("2026-11-20", &utc, Edge::End, Some("2026-11-21T00:00:00.000Z")),
            ("2026-11-20", &here, Edge::Start, Some("2026-11-19T23:00:00.000Z")),
            ("2026-10-25", &here, Edge::End, Some("2026-10-25T23:00:00.000Z")),
            ("20261120", &here, Edge::Start, Some("2026-11-19T23:00:00.000Z")),
            ("20261025", &here, Edge::End, Some("2026-10-25T23:00:00.000Z")),
            ("+002026-10-25", &here, Edge::End, Some("2026-10-25T23:00:00.000Z")),
            ("20261120T1000", &here, Edge::End, Some("2026-11-20T09:00:00.000Z")),
            ("2026-11-20T10:00", &here, Edge::End, Some("2026-11-20T09:00:00.000Z")),
            ("2026-11-20 10:00", &utc, Edge::Start, Some("2026-11-20T10:00:00.000Z")),
            ("2026-11-20T10:00:00Z", &here, Edge::Start, Some("2026-11-20T10:00:00.000Z")),
            ("2026-11-20T10:00:00+02:00", &utc, Edge::End, Some("2026-11-20T08:00:00.000Z")),
            ("7d", &here, Edge::Start, Some("2026-11-14T11:30:00.000Z")),
            ("90m", &here, Edge::End, Some("2026-11-21T10:00:00.000Z")),
            ("2w", &utc, Edge::Start, Some("2026-11-07T11:30:00.000Z")),
            ("", &utc, Edge::Start, None),
            ("0d", &utc, Edge::Start, None),
            ("-7d", &utc, Edge::Start, None),
            ("7", &utc, Edge::Start, None),
            ("yesterday", &utc, Edge::Start, None),
            ("2026-13-01", &utc, Edge::Start, None),
            ("9999999999d", &utc, Edge::Start, None),
        ] {
            let got = instant(text, now, edge).map(rfc3339);
            assert_eq!(got.as_deref(), expected, "{text} {edge:?} {now}");
        }
    }

    #[test]
    fn times_beyond_the_last_or_the_first_are_these() {
        let [first, last] = [Timestamp::MIN, Timestamp::MAX].map(Timestamp::as_millisecond);
        for (text, edge, expected) in [
            ("9999-12-31", Edge::Start, last),
            ("9999-12-31", Edge::End, last),
            ("9999-12-31T23:59", Edge::End, last),
            ("-009999-01-01", Edge::Start, first),
        ] {
            assert_eq!(instant(text, &now(), edge), Some(expected), "{text} {edge:?}");
        }
    }

    #[test]
    fn time_zones_are_named_utc_or_local() {
        for (zone, expected) in [
            (TimeZone::UTC, "UTC"),
            (TimeZone::unknown(), "UTC"),
            (now().time_zone().clone(), "the local time zone"),
        ] {
            assert_eq!(zone_name(&zone), expected);
        }
    }

    #[test]
    fn times_are_shown_in_a_zone() {
        let here = now().time_zone().clone();
        let at_ms = instant("2026-11-20T23:30:00Z", &now(), Edge::Start).unwrap();
        assert_eq!(
            (day(at_ms, &TimeZone::UTC), day(at_ms, &here)),
            ("2026-11-20".into(), "2026-11-21".into())
        );
        assert_eq!(minute(at_ms, &here), "2026-11-21 00:30");
        assert_eq!(day(i64::MAX, &here), "");
    }
}
