//! What the records of this process come to: the sums that the metrics show.
//!
//! Off the request's path: a record is counted where it is handed to the store, whether that takes it or not.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::ledger::{Record, Totals};

/// The counts of a process.
#[derive(Debug, Default)]
pub(super) struct Tally {
    sums: Mutex<Sums>,
    lost: AtomicU64,
}

/// What was counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) totals: Totals,
    /// Events that were sent, by reason.
    pub(super) events: BTreeMap<String, u64>,
    /// Prompts by the zone of the window that they were sent in, where that is known.
    pub(super) zones: BTreeMap<String, u64>,
    /// Prompts that grew much faster than was usual.
    pub(super) spikes: u64,
    /// Requests whose turn ends in the same call again and again, by how the results compare.
    pub(super) doom_loops: BTreeMap<&'static str, u64>,
    /// Requests whose instructions were other than those of their thread before.
    pub(super) volatile: u64,
}

impl Tally {
    /// Counts a record.
    pub(super) fn book(&self, record: &Record) {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner).add(record);
    }

    /// Whether something was stored: if not, it is lost. The log tells of every doubling: whatever fills the queue has
    /// better use for the time that a line for each would take.
    pub(super) fn stored(&self, stored: bool) {
        if !stored {
            let dropped = self.lost.fetch_add(1, Ordering::Relaxed) + 1;
            if dropped.is_power_of_two() {
                tracing::warn!(dropped, "the store's queue is full: records are dropped");
            }
        }
    }

    /// Batches that the store had no room for.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    pub(super) fn sums(&self) -> Sums {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Sums {
    fn add(&mut self, record: &Record) {
        self.totals.add(record);
        if let Some(found) = &record.doom_loop {
            *self.doom_loops.entry(found.results()).or_default() += 1;
        }
        self.volatile += u64::from(record.prompt.is_some_and(|prompt| prompt.volatile_at.is_some()));
        if let Some(event) = record.edits.event.as_ref().filter(|_| record.edits.were_sent()) {
            *self.events.entry(event.reason.to_string()).or_default() += 1;
        }
        if let Some(window) = &record.window {
            self.spikes += u64::from(window.spike);
            if let Some(zone) = &window.zone_sent {
                *self.zones.entry(zone.to_string()).or_default() += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Edits, Event, Window};

    #[test]
    fn events_and_zones_are_those_of_what_was_sent() {
        let tally = Tally::default();
        for (state, original_resent, zone_sent, spike) in [
            ("edited", false, Some("orange"), true),
            ("edited", false, Some("green"), false),
            ("edited", true, Some("green"), false),
            ("observed", false, None, false),
        ] {
            let event = Some(Event { reason: "window".into(), ..Event::default() });
            let edits = Edits { state: state.into(), original_resent, event, ..Edits::default() };
            let window = Window { zone_sent: zone_sent.map(Into::into), spike, ..Window::default() };
            tally.book(&Record { edits, window: Some(window), ..Record::default() });
        }
        tally.stored(true);
        tally.stored(false);
        let sums = tally.sums();
        let counts = |counts: &[(&str, u64)]| -> BTreeMap<String, u64> {
            counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
        };
        assert_eq!((sums.events, sums.spikes, tally.lost()), (counts(&[("window", 2)]), 1, 1));
        assert_eq!(sums.zones, counts(&[("green", 2), ("orange", 1)]));
        assert_eq!((sums.totals.requests, sums.totals.edited), (4, 2));
    }
}
