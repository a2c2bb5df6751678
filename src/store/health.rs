//! Notices that a database is damaged: one that is partly damaged opens like any other, and answers some queries.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, ffi};

use super::StoreError;

/// How long a start looks for damage at most. Some 100 MB are checked in that time if they are in the system's cache.
const LOOK_TIMEOUT: Duration = Duration::from_millis(40);

/// The results of reading a database.
#[derive(Debug)]
pub(super) struct Health {
    path: PathBuf,
    /// The number of failed reads.
    failed: AtomicU64,
    /// Whether damage was logged.
    is_logged: AtomicBool,
}

impl Health {
    pub(super) fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), failed: AtomicU64::new(0), is_logged: AtomicBool::new(false) }
    }

    /// The number of failed reads since the process began.
    pub(super) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Records the result of a read. Failures are logged at every doubling of their number.
    pub(super) fn note<T>(&self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(error) = &answer {
            let failed = self.failed.fetch_add(1, Ordering::Relaxed) + 1;
            if !self.note_damage(error) && failed.is_power_of_two() {
                tracing::warn!(%error, failed, "the store could not be read: a request may leave as it came");
            }
        }
        answer
    }

    /// Returns whether an error means that the file is damaged. Logs the first one, with what to do: whatever is
    /// decided about conversations from now on may be lost.
    pub(super) fn note_damage(&self, error: &StoreError) -> bool {
        let is_damaged = matches!(error, StoreError::Database(error) if is_damage(error));
        if is_damaged && !self.is_logged.swap(true, Ordering::Relaxed) {
            tracing::error!(
                "the database {} is damaged ({error}): requests that need what cannot be read leave as they came, and not \
                 all is booked; hint: stop the gateway, move the file away, with the `-wal` and the `-shm` beside it if \
                 they are there, and start it again: a new one is made",
                self.path.display()
            );
        }
        is_damaged
    }
}

/// Whether an error says that the file is damaged, or is not a database.
pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt))
}

/// Looks for damage for at most [`LOOK_TIMEOUT`]. Damage that is not found in that time will be met later.
///
/// # Errors
/// Returns an error if there is damage, but not if looking for it is impossible.
pub(super) fn look_for_damage(connection: &Connection) -> rusqlite::Result<()> {
    let handle = connection.get_interrupt_handle();
    let (looked, over) = mpsc::channel::<()>();
    let found = thread::scope(|scope| {
        let clock = move || {
            if over.recv_timeout(LOOK_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
                handle.interrupt();
            }
        };
        // Without a clock, the check might take minutes.
        thread::Builder::new().name("plimsoll-look".into()).spawn_scoped(scope, clock).ok()?;
        let found = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
        drop(looked);
        Some(found)
    });
    match found {
        Some(Ok(said)) if said != "ok" => {
            let said = "database disk image is malformed".to_owned();
            Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CORRUPT), Some(said)))
        }
        Some(Err(error)) if is_damage(&error) => Err(error),
        _ => Ok(()),
    }
}
