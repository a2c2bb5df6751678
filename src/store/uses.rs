//! The table of uses: when threads last relied on the decisions about a history.
//!
//! A decision is shared by all threads that continue from its history, and its own time is only when it was made. So
//! each thread records now and then the histories whose decisions it relies on. Decisions that are old and not relied
//! on are removed ([`super::idle`]).

use rusqlite::{Connection, OptionalExtension as _, params};

use super::StoreError;
use super::row::Batch;

// Three keys are not histories. They are shorter than those of histories, and so come before them.
/// The key of the time since which uses have been recorded.
pub(super) const BEGUN: &[u8] = b"";
/// The key of the time of the last pass of [`super::idle`], or of the last check at which none was due yet.
pub(super) const LAST: &[u8] = b"\0";
/// The key of the time when a gateway last checked whether a pass was due.
pub(super) const SEEN: &[u8] = b"\0\0";

/// Records what a batch's thread relies on, and that the thread was in use.
pub(super) fn put(connection: &Connection, batch: &Batch) -> Result<(), StoreError> {
    let Some(used) = &batch.used else { return Ok(()) };
    connection
        .prepare_cached("UPDATE threads SET at_ms = ?2 WHERE id = ?1 AND at_ms < ?2")?
        .execute(params![used.thread, batch.at_ms])?;
    for chain in &used.chains {
        // An earlier time does not replace a later one.
        connection
            .prepare_cached(
                "INSERT INTO uses (chain, at_ms) VALUES (?1, ?2)
                 ON CONFLICT (chain) DO UPDATE SET at_ms = ?2 WHERE at_ms < ?2",
            )?
            .execute(params![chain.0.0, batch.at_ms])?;
    }
    Ok(())
}

/// The time under one of the keys that are not histories.
pub(super) fn mark(connection: &Connection, name: &[u8]) -> Result<Option<i64>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT at_ms FROM uses WHERE chain = ?1")?;
    Ok(statement.query_row([name], |row| row.get(0)).optional()?)
}

/// Sets such a time, even to an earlier one: clocks are set back, too.
pub(super) fn set_mark(connection: &Connection, name: &[u8], at_ms: i64) -> Result<(), StoreError> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO uses (chain, at_ms) VALUES (?1, ?2)")?
        .execute(params![name, at_ms])?;
    Ok(())
}
