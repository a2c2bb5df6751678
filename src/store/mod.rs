//! Keeps what outlives a process: histories, decisions, full texts, the rows of the ledger.
//!
//! Reads happen on the calling thread; writes go through one writer thread, which groups them into transactions. A
//! decision is committed before the request that made it leaves. Bodies are stored only if the configuration says so,
//! credentials never. In front of the store there are caches that are bounded and lost with the process ([`Recent`]).

mod backlog;
pub mod bodies;
mod checkpoints;
mod file_identity;
mod health;
mod idle;
mod lacking;
pub mod ledger;
mod listening;
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
mod senders;
mod spare;
mod splices;
pub mod sqlite;
pub mod summaries;
mod sweep;
mod tables;
mod underway;
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
pub use listening::{Listening, listening};
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

/// A store, whatever it is made of. Each read returns a [`StoreError`] if it fails.
pub trait Store: Send + Sync {
    /// Finds the first of these histories that any thread has sent. Returns the threads that sent it, in the order of
    /// their ids, each with `None` if the thread itself is no longer stored. Their number is bounded: of many, the
    /// newest are returned, and those of `session` that were in use last.
    fn boundaries(
        &self,
        chains: &[Chain],
        session: Option<&str>,
    ) -> Result<Vec<(Boundary, Option<Thread>)>, StoreError>;

    /// The decisions about the last messages of these histories.
    fn decisions(&self, chains: &[Chain]) -> Result<Vec<StoredDecision>, StoreError>;

    /// The splices that each replace one of these histories as a whole, whether or not they still apply. Damaged ones
    /// are skipped.
    fn splices(&self, chains: &[Chain]) -> Result<Vec<StoredSplice>, StoreError>;

    /// A principal's newest decision about each of these results, in whatever history. Damaged ones are skipped.
    fn known_decisions(
        &self,
        root: Chain,
        keys: &[PartKey],
    ) -> Result<Vec<Option<StoredDecision>>, StoreError>;

    /// The thread with this id.
    fn thread(&self, id: &str) -> Result<Option<Thread>, StoreError>;

    /// The newest thread of a session.
    fn session(&self, session: &str) -> Result<Option<Thread>, StoreError>;

    /// The newest summary of a thread, in use or not.
    fn summary(&self, thread: &str) -> Result<Option<Summary>, StoreError>;

    /// The newest summaries of a conversation's threads, in use or not, newest first; their number is bounded.
    fn summaries(&self, conversation: &str) -> Result<Vec<Summary>, StoreError>;

    /// The context windows that providers have stated and that are believed at `now_ms` (milliseconds since 1970),
    /// the newest last.
    fn windows(&self, now_ms: i64) -> Result<Vec<StoredWindow>, StoreError>;

    /// What is known at `now_ms` (milliseconds since 1970) to be missing from a history that a provider holds.
    fn lacking(&self, history: Digest, now_ms: i64) -> Result<Option<StoredLacking>, StoreError>;

    /// What requests have spent that came within a period, in milliseconds since 1970: those of one conversation, or of
    /// all.
    fn spent(&self, conversation: Option<&str>, within_ms: Range<i64>) -> Result<Spent, StoreError>;

    /// The record of the answer with this id, and when its request came, in milliseconds since 1970. Only the newest
    /// records of the conversation are searched.
    fn record(&self, conversation: &str, answer: &str) -> Result<Option<(String, i64)>, StoreError>;

    /// The record of a thread's newest request that was billed for this model, or was not billed at all, and when it
    /// came, in milliseconds since 1970. Only the newest records of the conversation are searched.
    fn last_request(
        &self,
        conversation: &str,
        thread: &str,
        model: &str,
    ) -> Result<Option<(String, i64)>, StoreError>;

    /// Commits a batch. The returned future completes once the batch would survive the death of the process, or with a
    /// [`CommitError`]. Dropping it earlier withdraws the batch: then none of its decisions and splices takes effect,
    /// even if writing had begun.
    fn commit(&self, batch: Batch) -> Stored;

    /// Queues a batch that nobody waits for; `false` if the queue was full and the batch was dropped.
    #[must_use]
    fn later(&self, batch: Batch) -> bool;

    /// Counts a record that never reached the store as lost. Its request came at this time, in milliseconds since 1970.
    fn count_lost(&self, _at_ms: i64) {}

    /// The number of records lost since the process began: because the queue was full, because the store failed, or
    /// because they never reached it.
    fn lost(&self) -> u64 {
        0
    }

    /// The number of reads that failed since the process began.
    fn failed_reads(&self) -> u64 {
        0
    }
}

/// Why something could not be read or stored.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// An error of the database.
    #[error("database: {0}")]
    Database(#[from] rusqlite::Error),
    /// An error of the file system.
    #[error("{0}")]
    File(#[from] std::io::Error),
    /// The store was made by a newer version.
    #[error("the store was made by a newer version\n  hint: run that version, or name another `state.dir`")]
    Newer,
    /// The file was changed although it was opened as one that nobody writes to.
    #[error("the store was changed while it was read; ask again")]
    Changed,
    /// There is a write-ahead log, but its index file cannot be created next to it.
    #[error(
        "the newest records are in the `-wal` file next to it, which cannot be read where no file can be created\n  \
         hint: copy both to a folder that can be written to"
    )]
    Unindexed,
    /// There are too few file descriptors.
    #[error("no more files can be opened: {0}\n  hint: allow this process more of them (`ulimit -n`)")]
    NoDescriptors(std::io::Error),
    /// A row is malformed.
    #[error("a stored row is damaged")]
    Damaged,
}

/// Why a batch was not committed.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another gateway has already stored a decision about the same part or range; its decision holds.
    #[error("another gateway on the same store was first")]
    Raced,
    /// The queue of writes is full.
    #[error("the queue of what waits to be written is full (`limits.queue`)")]
    Full,
    /// It was not stored before its request had to leave.
    #[error("the store did not write it in time")]
    TimedOut,
    /// It was withdrawn, because its request has left without it.
    #[error("the request left before it was stored")]
    Withdrawn,
    /// The writer thread has ended.
    #[error("the store's writer has ended")]
    Gone,
}

impl From<rusqlite::Error> for CommitError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(error.into())
    }
}

// Hints about a store that cannot be opened.
const UNWRITABLE: &str =
    "\n  hint: a gateway has to write there: give it the permission, or name another `state.dir`";
const NO_DIRECTORY: &str =
    "\n  hint: a file is where a directory has to be: move it away, or name another `state.dir`";
const FULL: &str = "\n  hint: the disk is full: make room, or name another `state.dir`";
const UNWRITTEN: &str = "\n  hint: the disk may be full, or a file as large as it may be (`ulimit -f`): make room, or name another \
                         `state.dir`";
const LOCKED: &str = "\n  hint: another process has it locked, such as a backup or an open `sqlite3`: try again once that has ended";
const NO_DATABASE: &str = "\n  hint: it is damaged, or something else: move it away, together with its `-wal` and `-shm` files, \
                           and start again: the gateway then creates a new one. This loses the decisions about \
                           conversations that continue, and the books except the logs of conversations";

// The same where it is only read.
const UNREADABLE: &str = "\n  hint: it is damaged, or something else: stop the gateway, move it away, together with its `-wal` and `-shm` files, and \
                          start the gateway again, which then creates a new one. This loses the decisions about conversations that \
                          continue, and the books except the logs of conversations (`*.jsonl` in `ledger.dir`), which say what each \
                          request cost";

impl StoreError {
    /// What to do about an error that keeps the books from being read, as [`Self::hint`] has it.
    pub fn hint_to_read(&self) -> &'static str {
        match self {
            Self::Database(error) => match error.sqlite_error_code() {
                Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => LOCKED,
                _ if health::is_damage(error) => UNREADABLE,
                _ => "",
            },
            _ => "",
        }
    }

    /// What to do about an error that keeps a gateway from starting, on a line of its own; empty if nothing is known,
    /// or if the error's text says it already.
    pub fn hint(&self) -> &'static str {
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
                Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => LOCKED,
                Some(ErrorCode::SystemIoFailure) if is_of_writing(error) => UNWRITTEN,
                _ if health::is_damage(error) => NO_DATABASE,
                _ => "",
            },
            _ => "",
        }
    }
}

/// Whether an I/O error arose from writing or extending a file. SQLite reports no other cause if the disk is full and
/// the file is its index.
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
