//! Whether a database can be read: one that is damaged here and there opens like any other, and answers some of what it
//! is asked.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, ffi};

use super::StoreError;

/// How long a start looks for damage at most. Some 100 MB are looked through in that time, if the system has them at hand.
const LOOK: Duration = Duration::from_millis(40);

/// What became of the reads of a database.
#[derive(Debug)]
pub(super) struct Health {
    path: PathBuf,
    /// Reads that failed.
    failed: AtomicU64,
    /// That it is damaged was told.
    is_told: AtomicBool,
}

impl Health {
    pub(super) fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), failed: AtomicU64::new(0), is_told: AtomicBool::new(false) }
    }

    /// Reads that failed since the process began.
    pub(super) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Takes note of how a read went. The log tells of every doubling.
    pub(super) fn note<T>(&self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(error) = &answer {
            let failed = self.failed.fetch_add(1, Ordering::Relaxed) + 1;
            if !self.heed(error) && failed.is_power_of_two() {
                tracing::warn!(%error, failed, "the store could not be read: a request may leave as it came");
            }
        }
        answer
    }

    /// Whether an error is one of a damaged file. The first is told, with what to do: whatever is decided about
    /// conversations from now on may be lost.
    pub(super) fn heed(&self, error: &StoreError) -> bool {
        let is_damaged = matches!(error, StoreError::Database(error) if is_damage(error));
        if is_damaged && !self.is_told.swap(true, Ordering::Relaxed) {
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

/// Whether an error says that the file is damaged, or something else than a database.
pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt))
}

/// Looks for damage, for a moment: what is not found in that time is met with later.
///
/// # Errors
/// When there is damage. What keeps it from looking is none.
pub(super) fn look(connection: &Connection) -> rusqlite::Result<()> {
    let handle = connection.get_interrupt_handle();
    let (looked, over) = mpsc::channel::<()>();
    let found = thread::scope(|scope| {
        let clock = move || {
            if over.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                handle.interrupt();
            }
        };
        // Without a clock it might take minutes.
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
