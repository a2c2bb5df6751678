//! What outlives a process: histories, decisions, full texts, the ledger's rows.
//!
//! Reads are answered on the spot by the calling thread; writes go through one writer thread, which groups
//! them into transactions. A decision is committed before the request that made it leaves. Bodies are stored only
//! where the configuration says so, credentials never. Above it stand memories that are bounded and lost with the
//! process ([`Recent`]).

pub mod bodies;
mod checkpoints;
mod file_identity;
mod health;
mod idle;
mod lacking;
pub mod ledger;
pub mod logs;
mod missing;
mod outage;
pub mod outputs;
mod overlay;
mod promise;
pub mod queue;
mod reader;
mod recent;
pub mod row;
mod schema;
mod spare;
mod splices;
pub mod sqlite;
pub mod summaries;
mod sweep;
mod unlogged;
mod uses;
mod windows;
mod withdrawal;
mod writer;

use std::io::ErrorKind;
use std::ops::Range;

use rusqlite::{ErrorCode, ffi};

use crate::conversation::{Chain, Digest};
use crate::planner::PartKey;

pub use bodies::Bodies;
pub use checkpoints::Checkpoints;
pub use ledger::{Books, LedgerEntry, LedgerFilter, Order, Sought};
pub use outage::Outage;
pub use outputs::Outputs;
pub use overlay::Overlay;
pub use promise::Stored;
pub use recent::Recent;
pub use row::{
    Batch, Boundary, LedgerRow, Spent, StoredDecision, StoredLacking, StoredSplice, StoredWindow, Thread,
    Used,
};
pub use sqlite::Sqlite;
pub use summaries::Summary;
pub use windows::BELIEVED as WINDOW_BELIEVED;

/// The store, whatever keeps it.
pub trait Store: Send + Sync {
    /// The threads that sent the first of these histories that any thread has sent.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be read.
    fn boundaries(&self, chains: &[Chain]) -> Result<Vec<Boundary>, StoreError>;

    /// The decisions about the messages that these histories end with.
    ///
    /// # Errors
    /// [`StoreError`] when they cannot be read.
    fn decisions(&self, chains: &[Chain]) -> Result<Vec<StoredDecision>, StoreError>;

    /// The splices of which one of these histories is exactly what they replace, whether they hold or not. One that is
    /// damaged is none.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be read.
    fn splices(&self, chains: &[Chain]) -> Result<Vec<StoredSplice>, StoreError>;

    /// The newest decision of a principal about each of these results, whatever its history. One that is damaged is
    /// none.
    ///
    /// # Errors
    /// [`StoreError`] when they cannot be read.
    fn known_decisions(
        &self,
        root: Chain,
        keys: &[PartKey],
    ) -> Result<Vec<Option<StoredDecision>>, StoreError>;

    /// A thread.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be read.
    fn thread(&self, id: &str) -> Result<Option<Thread>, StoreError>;

    /// The newest thread of a session.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be read.
    fn session(&self, session: &str) -> Result<Option<Thread>, StoreError>;

    /// The newest summary of a thread, whether it is in use or not.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be read.
    fn summary(&self, thread: &str) -> Result<Option<Summary>, StoreError>;

    /// The summaries of a conversation's threads, whether they are in use or not: the newest first, and no more than some.
    ///
    /// # Errors
    /// [`StoreError`] when they cannot be read.
    fn summaries(&self, conversation: &str) -> Result<Vec<Summary>, StoreError>;

    /// The windows that providers have told of and that are believed now, in milliseconds since 1970; what was told last is at
    /// the end.
    ///
    /// # Errors
    /// [`StoreError`] when they cannot be read.
    fn windows(&self, now_ms: i64) -> Result<Vec<StoredWindow>, StoreError>;

    /// What is missing from a history that a provider holds, as far as it is known now, in milliseconds since 1970.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be read.
    fn lacking(&self, history: Digest, now_ms: i64) -> Result<Option<StoredLacking>, StoreError>;

    /// What the requests of a conversation, or all, have used up that came then, in milliseconds since 1970.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be read.
    fn spent(&self, conversation: Option<&str>, within_ms: Range<i64>) -> Result<Spent, StoreError>;

    /// The record of a conversation, of its newest, that tells of the answer with this id, and when its request came, in
    /// milliseconds since 1970.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be read.
    fn record(&self, conversation: &str, answer: &str) -> Result<Option<(String, i64)>, StoreError>;

    /// Saves and commits a batch; done when it is safe against the death of the process. Dropping the promise
    /// withdraws the batch: none of its decisions and splices holds then, whatever had been begun.
    fn commit(&self, batch: Batch) -> Stored;

    /// Queues a batch that nobody waits for; `false` when the queue is full and it was dropped.
    #[must_use]
    fn later(&self, batch: Batch) -> bool;

    /// A record is lost that never came here, of a request that came then.
    fn lose(&self, _at_ms: i64) {}

    /// Records that were dropped since the process began: the queue was full, the store failed, or they never came here.
    fn lost(&self) -> u64 {
        0
    }

    /// Reads that failed since the process began.
    fn unread(&self) -> u64 {
        0
    }
}

/// The store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database.
    #[error("database: {0}")]
    Database(#[from] rusqlite::Error),
    /// A file.
    #[error("{0}")]
    File(#[from] std::io::Error),
    /// The file was made by a newer version.
    #[error("the store was made by a newer version\n  hint: run that version, or name another `state.dir`")]
    Newer,
    /// It was written to while it was read as a file that nobody writes to.
    #[error("the store was changed while it was read; ask again")]
    Changed,
    /// There is a write-ahead log, and nowhere to put its index.
    #[error(
        "the newest records are in the `-wal` file beside it, which cannot be read where no file can be made\n  \
         hint: copy both to a folder that can be written to"
    )]
    Unindexed,
    /// Another gateway decided about the same part first; what it decided stands.
    #[error("another gateway on the same store was first")]
    Raced,
    /// A row that does not say what it should.
    #[error("a stored row is damaged")]
    Damaged,
    /// As much waits to be written as may.
    #[error("as much waits to be written as `limits.queue` lets wait")]
    Full,
    /// It was not stored in time.
    #[error("the store takes too long")]
    TimedOut,
    /// Whoever asked for it has gone on without it.
    #[error("the request left before")]
    Withdrawn,
    /// The writer has ended.
    #[error("the store's writer has ended")]
    Gone,
}

// What to do about a store that cannot be opened.
const UNWRITABLE: &str = "\n  hint: a gateway has to write there: let it, or name another `state.dir`";
const NO_DIRECTORY: &str =
    "\n  hint: a file is where a directory has to be: move it away, or name another `state.dir`";
const FULL: &str = "\n  hint: the disk is full: make room, or name another `state.dir`";
const UNWRITTEN: &str = "\n  hint: the disk may be full, or a file as large as it may be (`ulimit -f`): make room, or name another \
                         `state.dir`";
const NO_DATABASE: &str = "\n  hint: it is damaged, or something else: move it away, with the `-wal` and the `-shm` beside it \
                           if they are there, and a new one is made; what was decided about conversations that go on is lost \
                           with it, and so are the books but for the logs of conversations";

impl StoreError {
    /// What to do about it where it keeps a gateway from starting, on a line of its own; empty where that is not known or
    /// said already.
    pub fn way_out(&self) -> &'static str {
        match self {
            Self::File(error) => match error.kind() {
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => UNWRITABLE,
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => FULL,
                ErrorKind::FileTooLarge => UNWRITTEN,
                ErrorKind::NotADirectory | ErrorKind::AlreadyExists => NO_DIRECTORY,
                _ => "",
            },
            Self::Database(error) => match error.sqlite_error_code() {
                Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => UNWRITABLE,
                Some(ErrorCode::DiskFull) => FULL,
                Some(ErrorCode::SystemIoFailure) if is_of_writing(error) => UNWRITTEN,
                _ if health::is_damage(error) => NO_DATABASE,
                _ => "",
            },
            _ => "",
        }
    }
}

/// Whether an error of the system's came of making a file longer. SQLite says no more of it where the file is its index.
fn is_of_writing(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    code.is_some_and(|code| {
        [
            ffi::SQLITE_IOERR_WRITE,
            ffi::SQLITE_IOERR_FSYNC,
            ffi::SQLITE_IOERR_SHMSIZE,
            ffi::SQLITE_IOERR_SHMMAP,
        ]
        .contains(&code)
    })
}

#[cfg(test)]
mod tests;
