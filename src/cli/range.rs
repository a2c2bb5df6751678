//! The options for a period.

use clap::Args;
use jiff::tz::TimeZone;

use super::Failure;
use crate::ledger::when::{self, NoRange};
use crate::store::LedgerFilter;

/// Which requests are looked at, and whose days count.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct Range {
    /// Only requests from this time on: a date (2026-11-21), a time (2026-11-21T10:00), or how long ago (12h, 7d, 2w)
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Only requests up to this time, given in the same way; a date means the end of that day
    #[arg(long, value_name = "WHEN")]
    until: Option<String>,
}

impl Range {
    /// The filter for the period.
    pub(super) fn filter(&self, zone: &TimeZone) -> Result<LedgerFilter, Failure> {
        let (since, until) = (self.since.as_deref(), self.until.as_deref());
        let wrong =
            |option, text: Option<&str>| format!("`{option} {}`: {}", text.unwrap_or(""), when::EXPECTED);
        when::filter(since, until, zone).map_err(|no_range| {
            Failure::Usage(match no_range {
                NoRange::Since => wrong("--since", since),
                NoRange::Until => wrong("--until", until),
                NoRange::Reversed => "`--since` is later than `--until`".to_owned(),
            })
        })
    }
}
