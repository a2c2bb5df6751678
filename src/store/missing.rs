//! How many records are missing from the ledger, and when their requests were received.
//!
//! A record that cannot be queued, or for which there is no room in memory while the store cannot be written, is
//! dropped. Dropped records are counted here, and the count is stored as soon as the writer can write again. So whoever
//! sums up the ledger can say what is missing from the sums.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, named_params, params};

use super::{Batch, LedgerFilter, StoreError};

/// The most gaps that are kept apart; records dropped after that are added to the last one.
const MAX_GAPS: usize = 64;
/// Records dropped within this many milliseconds of the first one are one gap.
const GAP_MS: i64 = 1_000;

/// Records that were dropped in succession.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Gap {
    /// When the first of their requests was received, in milliseconds since 1970.
    at_ms: i64,
    records: u64,
}

/// The dropped records.
#[derive(Debug, Default)]
pub(super) struct Missing {
    /// Their number since the process began.
    records: AtomicU64,
    /// Those whose number is not stored yet.
    gaps: Mutex<Vec<Gap>>,
}

impl Missing {
    /// Adds the records of a dropped batch.
    pub(super) fn add(&self, batch: &Batch) {
        self.add_records(batch.ledger.len() as u64, batch.at_ms);
    }

    /// Adds records that were dropped before they were in a batch.
    pub(super) fn add_records(&self, records: u64, at_ms: i64) {
        if records > 0 {
            self.records.fetch_add(records, Ordering::Relaxed);
            self.add_gap(Gap { at_ms, records });
        }
    }

    /// The number of records dropped since the process began.
    pub(super) fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    /// The number of dropped records whose number is not stored.
    pub(super) fn unstored(&self) -> u64 {
        self.lock().iter().map(|gap| gap.records).sum()
    }

    /// Stores the number of dropped records. If that fails, it is kept for later.
    pub(super) fn write(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        let gaps = std::mem::take(&mut *self.lock());
        if gaps.is_empty() {
            return Ok(());
        }
        let written = put(connection, &gaps);
        if written.is_err() {
            for gap in gaps {
                self.add_gap(gap);
            }
        }
        written
    }

    fn add_gap(&self, gap: Gap) {
        let mut gaps = self.lock();
        let is_full = gaps.len() >= MAX_GAPS;
        match gaps.last_mut() {
            Some(last) if is_full || gap.at_ms.abs_diff(last.at_ms) < GAP_MS.unsigned_abs() => {
                last.records += gap.records;
            }
            _ => gaps.push(gap),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Gap>> {
        // No code that may panic runs under the lock.
        self.gaps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn put(connection: &mut Connection, gaps: &[Gap]) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    for gap in gaps {
        transaction
            .prepare_cached("INSERT INTO missing (at_ms, records) VALUES (?1, ?2)")?
            .execute(params![gap.at_ms, i64::try_from(gap.records).unwrap_or(i64::MAX)])?;
    }
    transaction.commit()
}

/// The number of missing records in the time that the filter gives.
pub(super) fn count(connection: &Connection, filter: LedgerFilter) -> Result<u64, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT coalesce(sum(records), 0) FROM missing WHERE at_ms >= :since AND at_ms < :until",
    )?;
    let named = named_params! {
        ":since": filter.since_ms.unwrap_or(i64::MIN),
        ":until": filter.until_ms.unwrap_or(i64::MAX),
    };
    let records: i64 = statement.query_row(named, |row| row.get(0))?;
    u64::try_from(records).map_err(|_| StoreError::Damaged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::LedgerRow;

    #[test]
    fn records_dropped_close_in_time_are_one_gap() {
        let missing = Missing::default();
        for (at_ms, records) in [(1_000, 1), (1_999, 2), (2_000, 1), (9_000, 0), (5_000, 1)] {
            missing.add(&Batch { ledger: vec![LedgerRow::default(); records], at_ms, ..Batch::default() });
        }
        let gap = |at_ms, records| Gap { at_ms, records };
        assert_eq!(*missing.lock(), [gap(1_000, 3), gap(2_000, 1), gap(5_000, 1)]);
        assert_eq!(missing.records(), 5);
        let later = (0..).map(|at| gap(at * GAP_MS, 1)).take(2 * MAX_GAPS);
        later.for_each(|gap| missing.add_gap(gap));
        assert_eq!(missing.lock().len(), MAX_GAPS);
        assert_eq!(missing.lock().iter().map(|gap| gap.records).sum::<u64>(), 5 + 2 * MAX_GAPS as u64);
    }
}
