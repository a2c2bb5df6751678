//! Times as people write and read them.
//!
//! Days are those of the machine's time zone, unless UTC is asked for.

use clap::Args;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, Zoned};

use super::Failure;
use crate::store::LedgerFilter;

/// Which requests are looked at, and whose days count.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct Range {
    /// Only requests from then on: a date (2026-11-21), a time (2026-11-21T10:00), or how long ago (12h, 7d, 2w)
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Only requests up to then, in the same words; a date means the end of that day
    #[arg(long, value_name = "WHEN")]
    until: Option<String>,
}

/// Which edge of a day a date means.
#[derive(Debug, Clone, Copy)]
enum Edge {
    Start,
    End,
}

impl Range {
    /// The filter for it.
    pub(super) fn filter(&self, zone: &TimeZone) -> Result<LedgerFilter, Failure> {
        let now = Zoned::now().with_time_zone(zone.clone());
        let read = |option: &str, text: &Option<String>, edge| {
            let Some(text) = text else { return Ok(None) };
            let wrong = || {
                Failure::Usage(format!(
                    "`{option} {text}`: expected a date such as 2026-11-21, a time such as 2026-11-21T10:00, or \
                     how long ago, such as 7d"
                ))
            };
            instant(text, &now, edge).map(Some).ok_or_else(wrong)
        };
        let since_ms = read("--since", &self.since, Edge::Start)?;
        let until_ms = read("--until", &self.until, Edge::End)?;
        if since_ms.zip(until_ms).is_some_and(|(since, until)| since > until) {
            return Err(Failure::Usage("`--since` is later than `--until`".to_owned()));
        }
        Ok(LedgerFilter { since_ms, until_ms })
    }
}

/// The time zone that days are counted in.
pub(super) fn zone(utc: bool) -> TimeZone {
    if utc { TimeZone::UTC } else { TimeZone::system() }
}

/// What the zone is called.
pub(super) fn zone_name(zone: &TimeZone) -> &str {
    zone.iana_name().unwrap_or("the local time zone")
}

/// The day that a time falls on: `2026-11-21`.
pub(super) fn day(at_ms: i64, zone: &TimeZone) -> String {
    zoned(at_ms, zone).map_or_else(String::new, |at| at.date().to_string())
}

/// A time to the minute: `2026-11-21 10:02`.
pub(super) fn minute(at_ms: i64, zone: &TimeZone) -> String {
    zoned(at_ms, zone).map_or_else(String::new, |at| at.strftime("%Y-%m-%d %H:%M").to_string())
}

/// A time of day to the second: `10:02:03`.
pub(super) fn second(at_ms: i64, zone: &TimeZone) -> String {
    zoned(at_ms, zone).map_or_else(String::new, |at| at.strftime("%H:%M:%S").to_string())
}

/// A time as RFC 3339, in UTC.
pub(super) fn rfc3339(at_ms: i64) -> String {
    Timestamp::from_millisecond(at_ms).map(|at| format!("{at:.3}")).unwrap_or_default()
}

fn zoned(at_ms: i64, zone: &TimeZone) -> Option<Zoned> {
    Some(Timestamp::from_millisecond(at_ms).ok()?.to_zoned(zone.clone()))
}

fn instant(text: &str, now: &Zoned, edge: Edge) -> Option<i64> {
    // A time of day or an offset must not be taken for a date: what reads as one would be cut short silently.
    let is_date = text.len() == "2026-11-21".len() && text.parse::<Date>().is_ok();
    let at = if is_date {
        let day: Date = text.parse().ok()?;
        let day = match edge {
            Edge::Start => day,
            Edge::End => day.tomorrow().ok()?,
        };
        day.to_zoned(now.time_zone().clone()).ok()?.timestamp()
    } else if let Ok(at) = text.parse::<Timestamp>() {
        at
    } else if let Ok(at) = text.parse::<DateTime>() {
        at.to_zoned(now.time_zone().clone()).ok()?.timestamp()
    } else {
        let ago: Span = text.parse().ok()?;
        if !ago.is_positive() {
            return None;
        }
        now.checked_sub(ago).ok()?.timestamp()
    };
    Some(at.as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Central Europe, whether the machine knows of it or not.
    fn now() -> Zoned {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        "2026-11-21T11:30:00Z".parse::<Timestamp>().unwrap().to_zoned(zone)
    }

    #[test]
    fn times_are_read() {
        let here = now();
        let utc = here.with_time_zone(TimeZone::UTC);
        for (text, now, edge, expected) in [
            ("2026-11-20", &utc, Edge::Start, Some("2026-11-20T00:00:00.000Z")),
            ("2026-11-20", &utc, Edge::End, Some("2026-11-21T00:00:00.000Z")),
            ("2026-11-20", &here, Edge::Start, Some("2026-11-19T23:00:00.000Z")),
            ("2026-10-25", &here, Edge::End, Some("2026-10-25T23:00:00.000Z")),
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
