//! The database's tables.
//!
//! Stores outlive versions, and gateways of several versions share one: tables and indexes are added, and existing ones
//! are never changed. What a table lacks is put into a new table.

use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};

use super::{StoreError, spare};

/// The version of the layout below. A store of a newer version is left alone.
pub(super) const VERSION: i64 = 3;

/// Bytes of a page of a new store. Records take a kilobyte or two: less space is left empty than with the usual 4096,
/// and half as many pages are written.
const PAGE_SIZE: u32 = 8192;

/// How long to wait for others that have locked the store.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait where it does not matter whether the lock is obtained.
const SHORT_PATIENCE: Duration = Duration::from_millis(100);

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS threads (
  id TEXT PRIMARY KEY,
  conversation TEXT NOT NULL,
  session TEXT,
  parent TEXT,
  head BLOB NOT NULL,
  observe INTEGER NOT NULL DEFAULT 0,
  at_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS threads_by_session ON threads (session, at_ms);
CREATE TABLE IF NOT EXISTS boundaries (
  chain BLOB NOT NULL,
  thread TEXT NOT NULL,
  at_ms INTEGER NOT NULL,
  PRIMARY KEY (chain, thread)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS decisions (
  chain BLOB NOT NULL,
  part INTEGER NOT NULL,
  since BLOB NOT NULL,
  root BLOB NOT NULL,
  part_key BLOB,
  content BLOB NOT NULL,
  rules TEXT NOT NULL,
  replacement BLOB NOT NULL,
  bytes_before INTEGER NOT NULL,
  bytes_after INTEGER NOT NULL,
  output TEXT,
  at_ms INTEGER NOT NULL,
  PRIMARY KEY (chain, part, since)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS replacements (
  id BLOB PRIMARY KEY,
  leaves TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS decisions_by_key ON decisions (root, part_key, at_ms);
CREATE TABLE IF NOT EXISTS splices (
  chain BLOB NOT NULL,
  since BLOB NOT NULL,
  root BLOB NOT NULL,
  splice TEXT NOT NULL,
  at_ms INTEGER NOT NULL,
  PRIMARY KEY (chain, since)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS summaries (
  chain BLOB PRIMARY KEY,
  messages INTEGER NOT NULL,
  thread TEXT NOT NULL,
  conversation TEXT NOT NULL,
  goal TEXT NOT NULL,
  text TEXT NOT NULL,
  outline TEXT NOT NULL,
  model TEXT NOT NULL,
  recipe BLOB NOT NULL,
  generation INTEGER NOT NULL,
  score REAL,
  at_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS summaries_by_thread ON summaries (thread, at_ms);
CREATE INDEX IF NOT EXISTS summaries_by_conversation ON summaries (conversation, at_ms);
CREATE TABLE IF NOT EXISTS outputs (
  id TEXT PRIMARY KEY,
  at_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS ledger (
  id TEXT PRIMARY KEY,
  at_ms INTEGER NOT NULL,
  conversation TEXT NOT NULL,
  model TEXT,
  client TEXT,
  cost INTEGER,
  record TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS ledger_by_conversation ON ledger (conversation, at_ms);
CREATE INDEX IF NOT EXISTS ledger_by_time ON ledger (at_ms);
CREATE TABLE IF NOT EXISTS uses (
  chain BLOB PRIMARY KEY,
  at_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS decisions_by_replacement ON decisions (replacement);
CREATE TABLE IF NOT EXISTS missing (
  at_ms INTEGER NOT NULL,
  records INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS unlogged (
  id TEXT PRIMARY KEY,
  at_ms INTEGER NOT NULL,
  conversation TEXT NOT NULL,
  line TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS refusals (
  thread TEXT PRIMARY KEY,
  since BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS unlogged_by_conversation ON unlogged (conversation);
CREATE TABLE IF NOT EXISTS windows (
  upstream TEXT NOT NULL,
  model TEXT NOT NULL,
  tokens INTEGER NOT NULL,
  at_ms INTEGER NOT NULL,
  PRIMARY KEY (upstream, model)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS lacking (
  id INTEGER PRIMARY KEY,
  history BLOB NOT NULL UNIQUE,
  tokens INTEGER,
  at_ms INTEGER NOT NULL
);
";

/// Creates the tables of a new store, and those that an older one lacks. Returns the version, or an error if the store
/// cannot be written to. The write-ahead log lets several gateways share a store, and a commit survives the death of
/// the process.
pub(super) fn prepare(connection: &Connection) -> rusqlite::Result<i64> {
    tell_of_lock(connection)?;
    connection.busy_timeout(PATIENCE)?;
    // An existing store keeps its page size.
    connection.pragma_update(None, "page_size", PAGE_SIZE)?;
    // In an existing store this would write, and wait for whoever is writing.
    if connection.pragma_query_value(None, "page_count", |row| row.get::<_, i64>(0))? == 0 {
        connection.pragma_update(None, "auto_vacuum", spare::INCREMENTAL)?;
    }
    connection.pragma_update(None, "journal_mode", "WAL")?;
    tune(connection)?;
    let version = version(connection)?;
    // Tables are only ever added: creating the missing ones is all that an older store needs.
    if version < VERSION || (version == VERSION && !has_all(connection)?) {
        connection
            .execute_batch(&format!("BEGIN IMMEDIATE; {TABLES} PRAGMA user_version = {VERSION}; COMMIT;"))?;
        return Ok(VERSION);
    }
    if version == VERSION { write_again(connection) } else { Ok(version) }
}

/// Logs a warning if the store cannot even be read until others are done.
pub(super) fn tell_of_lock(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(SHORT_PATIENCE)?;
    if version(connection).is_err_and(|error| is_locked(&error)) {
        tracing::warn!(at_most = ?PATIENCE, "the store is locked by another process; waiting for it");
    }
    Ok(())
}

/// Writes a value that is already stored, so that a disk that is full or read-only is noticed now and not by the first
/// request. Does not wait for somebody else who is writing, because that proves as much. Returns the version, which a
/// newer gateway may have raised in the meantime.
pub(super) fn write_again(connection: &Connection) -> rusqlite::Result<i64> {
    connection.busy_timeout(SHORT_PATIENCE)?;
    let begun = Transaction::new_unchecked(connection, TransactionBehavior::Immediate);
    connection.busy_timeout(PATIENCE)?;
    let transaction = match begun {
        // Whoever holds the lock can write.
        Err(error) if is_locked(&error) => return version(connection),
        begun => begun?,
    };
    let version = version(&transaction)?;
    transaction.pragma_update(None, "user_version", version)?;
    transaction.commit()?;
    Ok(version)
}

/// Begins a transaction that writes. Waits up to [`PATIENCE`] for others that have locked the store, but only as long
/// as `may_wait`.
pub(super) fn begin_while<'c>(
    connection: &'c Connection,
    may_wait: &dyn Fn() -> bool,
) -> rusqlite::Result<Transaction<'c>> {
    let begun = Instant::now();
    connection.busy_timeout(SHORT_PATIENCE)?;
    let transaction = loop {
        match Transaction::new_unchecked(connection, TransactionBehavior::Immediate) {
            Err(error) if is_locked(&error) && may_wait() && begun.elapsed() < PATIENCE => {}
            begun => break begun,
        }
    };
    connection.busy_timeout(PATIENCE)?;
    transaction
}

/// Whether something failed because the store as a whole cannot be written at present, whatever is to be written.
pub(super) fn is_unwritable(error: &StoreError) -> bool {
    use ErrorCode::{CannotOpen, DatabaseBusy, DatabaseLocked, DiskFull, ReadOnly, SystemIoFailure};
    let codes = [CannotOpen, DatabaseBusy, DatabaseLocked, DiskFull, ReadOnly, SystemIoFailure];
    matches!(error, StoreError::Database(error) if error.sqlite_error_code().is_some_and(|code| codes.contains(&code)))
}

/// Whether something failed because others have locked the store.
pub(super) fn is_locked(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
}

/// Whether the store has the tables that were added without a new version: gateways that do not know these can use a
/// store that has them.
fn has_all(connection: &Connection) -> rusqlite::Result<bool> {
    let mut has_all = true;
    for table in ["uses", "unlogged", "refusals", "windows", "lacking"] {
        has_all &= connection.table_exists(None, table)?;
    }
    Ok(has_all)
}

/// The version of a store; 0 for an empty file.
pub(super) fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Sets up a connection. The cache is small: frequently used rows are cached above the store.
pub(super) fn tune(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(PATIENCE)?;
    // A statement's plan is made once, not for every value that it is run with.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "wal_autocheckpoint", 2000)?;
    connection.pragma_update(None, "cache_size", -512)
}
