//! Records that wait in memory until the store can be written again.

use std::path::Path;
use std::time::{Duration, Instant};

use super::LedgerRow;
use super::logs::Logs;

/// The most records that are tried together. On a disk that is nearly full, the note of them takes the space that the
/// database needs.
const MAX_TRIED: usize = 16;
/// How much of a disk is left to decisions, in bytes: these are stored while records still wait.
const RESERVE: u64 = 8 << 20;
/// How long after a failure the records are tried again.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Records that could not be stored while others had locked the store or the disk was full, oldest first. Newer ones
/// are stored after them, since a record may be completed by a later one of the same id.
pub(super) struct Backlog {
    rows: Vec<LedgerRow>,
    /// The most rows.
    room: usize,
    /// When they are tried again; `None`: at once.
    retry_at: Option<Instant>,
}

impl Backlog {
    pub(super) fn of(room: usize) -> Self {
        Self { rows: Vec::new(), room, retry_at: None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are records and it is time to try them, on the disk of the database if that is given.
    pub(super) fn is_due(&mut self, database: Option<&Path>, now: Instant) -> bool {
        if self.is_empty() || self.retry_at.is_some_and(|at| at > now) {
            return false;
        }
        let has_room = !database.is_some_and(is_nearly_full);
        if !has_room {
            self.defer(now);
        }
        has_room
    }

    /// Records that the store could not be written.
    pub(super) fn defer(&mut self, now: Instant) {
        self.retry_at = Some(now + RETRY_AFTER);
    }

    /// Lets the records be tried at once.
    pub(super) fn retry_now(&mut self) {
        self.retry_at = None;
    }

    /// Adds records as long as there is room. Returns the others.
    pub(super) fn add(&mut self, mut rows: Vec<LedgerRow>) -> Vec<LedgerRow> {
        let left = rows.split_off(rows.len().min(self.room.saturating_sub(self.rows.len())));
        self.rows.append(&mut rows);
        left
    }

    /// Takes all records out.
    pub(super) fn take_all(&mut self) -> Vec<LedgerRow> {
        std::mem::take(&mut self.rows)
    }

    /// Takes all records out: the oldest, to be tried together, and the others; `None` if there are none.
    pub(super) fn split(&mut self) -> Option<(Vec<LedgerRow>, Vec<LedgerRow>)> {
        let others = self.rows.split_off(self.rows.len().min(MAX_TRIED));
        Some((self.take_all(), others)).filter(|(first, _)| !first.is_empty())
    }

    /// Puts records back before those that are newer. What could not be logged is stored once more, which changes
    /// nothing, and then logged. Meanwhile it stays noted, since nothing else says that its log lacks it; but the note
    /// is crossed out if the store fails before that.
    pub(super) fn put_before(&mut self, rows: Vec<LedgerRow>) {
        self.rows.splice(0..0, rows);
    }

    /// Puts records back after those that are older.
    pub(super) fn put_behind(&mut self, mut rows: Vec<LedgerRow>) {
        self.rows.append(&mut rows);
    }
}

/// Whether the disk of a file has so little room that records wait for more. Some file systems do not tell.
fn is_nearly_full(path: &Path) -> bool {
    rustix::fs::statvfs(path)
        .is_ok_and(|disk| disk.f_blocks > 0 && disk.f_bavail.saturating_mul(disk.f_frsize) < RESERVE)
}

/// Appends the last records to the logs of their conversations. Returns how many.
pub(super) fn log_last(logs: &mut Logs, rows: &[LedgerRow]) -> usize {
    let mut logged = 0;
    for rows in rows.chunk_by(|one, next| one.conversation == next.conversation) {
        let lines: Vec<&str> = rows.iter().map(|row| &*row.line).collect();
        match logs.append(&rows[0].conversation, &lines) {
            Ok(()) => logged += rows.len(),
            Err(cut) => {
                let (error, conversation, dir) = (&cut.error, &rows[0].conversation, logs.dir().display());
                tracing::warn!(%error, conversation, %dir, "records could not be logged there");
                logged += cut.whole;
            }
        }
    }
    logged
}

/// Logs what becomes of the last records, which could not be stored; `is_noted` if the next start stores them.
pub(super) fn tell_of_last(records: usize, logged: usize, is_noted: bool) {
    if is_noted {
        tracing::warn!(
            records,
            "the store cannot be written: the last records are in the logs of their conversations as far as these can be \
             written, and the next start stores them"
        );
    } else if logged == records {
        tracing::warn!(
            logged,
            "the store cannot be written: the last records are only in the logs of their conversations"
        );
    } else {
        tracing::error!(
            records,
            logged,
            "neither the store nor all logs of conversations can be written: the last records are lost, except for those \
             that were logged"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_that_do_not_tell_their_room_are_not_full() {
        assert!(!is_nearly_full(Path::new("/proc/self/status")));
        assert!(!is_nearly_full(Path::new("/no/such/file")));
    }

    #[test]
    fn records_beyond_the_room_are_returned_and_the_oldest_are_tried_first() {
        let row = |id: usize| LedgerRow { id: id.to_string(), ..LedgerRow::default() };
        let ids = |rows: &[LedgerRow]| rows.iter().map(|row| row.id.parse().unwrap()).collect::<Vec<usize>>();
        let mut backlog = Backlog::of(MAX_TRIED + 2);
        assert_eq!(ids(&backlog.add((0..MAX_TRIED + 3).map(row).collect())), [MAX_TRIED + 2]);
        let (first, others) = backlog.split().unwrap();
        assert_eq!((ids(&first), ids(&others)), ((0..MAX_TRIED).collect(), vec![MAX_TRIED, MAX_TRIED + 1]));
        backlog.put_behind(others);
        backlog.put_before(first);
        assert_eq!(ids(&backlog.rows), (0..MAX_TRIED + 2).collect::<Vec<_>>());
        assert!(Backlog::of(1).split().is_none());
    }
}
