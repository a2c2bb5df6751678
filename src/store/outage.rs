//! Logs failures that recur, as while a disk is full: the first one and every doubling of their number, and then once
//! that they are over.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// An operation works again if it succeeds and has not failed for this long. A success alone says little: on a disk
/// that is nearly full, some writes always succeed.
const QUIET: Duration = Duration::from_secs(10);

/// An operation that may fail.
#[derive(Debug)]
pub struct Outage {
    /// The message for a failure.
    fails: &'static str,
    /// The message for the end of the failures.
    works: &'static str,
    /// The number of failures since it last worked.
    failed: u64,
    last_failure: Option<Instant>,
}

impl Outage {
    /// An operation that works, with the messages that are logged when it fails and when it works again.
    pub fn new(fails: &'static str, works: &'static str) -> Self {
        Self { fails, works, failed: 0, last_failure: None }
    }

    /// Records a failure.
    pub fn begin(&mut self, error: &dyn Display, now: Instant) {
        self.failed += 1;
        self.last_failure = Some(now);
        if self.failed == 1 {
            tracing::warn!(%error, "{}", self.fails);
        } else if self.failed.is_power_of_two() {
            tracing::warn!(%error, times = self.failed, "{}", self.fails);
        }
    }

    /// Records a success, which ends the outage if the last failure was long enough ago.
    pub fn end(&mut self, now: Instant) {
        if self.last_failure.is_some_and(|last| now.saturating_duration_since(last) >= QUIET) {
            tracing::info!(failed = self.failed, "{}", self.works);
            (self.failed, self.last_failure) = (0, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;
    use crate::store::tests::logged;

    /// What is logged for failures (`!`) and successes (`.`), each this many seconds after the previous one.
    fn told(what: &[(char, u64)]) -> Vec<String> {
        let log = logged(Level::INFO, || {
            let (mut outage, mut now) = (Outage::new("fails", "works"), Instant::now());
            for (kind, seconds) in what {
                now += Duration::from_secs(*seconds);
                if *kind == '!' { outage.begin(&"full", now) } else { outage.end(now) }
            }
        });
        let told = |line: &str| line.split_once("outage: ").map_or("", |(_, told)| told).to_owned();
        log.lines().map(told).collect()
    }

    #[test]
    fn failures_are_logged_at_every_doubling_and_their_end_once() {
        let many = |kind, seconds, times| vec![(kind, seconds); times];
        for (what, expected) in [
            (many('.', 60, 3), &[][..]),
            (many('!', 0, 1), &["fails error=full"]),
            (
                many('!', 60, 9),
                &[
                    "fails error=full",
                    "fails error=full times=2",
                    "fails error=full times=4",
                    "fails error=full times=8",
                ],
            ),
            (
                // An operation that succeeds now and then is not over its failures.
                [('!', 0), ('.', 9)].repeat(3),
                &["fails error=full", "fails error=full times=2"],
            ),
            (
                vec![('!', 0), ('.', 5), ('.', 5), ('.', 50), ('!', 0)],
                &["fails error=full", "works failed=1", "fails error=full"],
            ),
        ] {
            assert_eq!(told(&what), expected, "{what:?}");
        }
    }
}
