//! The table of uses: when the decisions about a history were last relied on.
//!
//! A decision records when it was made, and is shared by all threads that continue from there. So threads record now
//! and then under which histories they rely on something; see [`super::idle`] for what happens to the rest.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::StoreError;
use super::row::Batch;

/// Keys of rows that are not histories. Those of histories are longer and so come after them.
pub(super) const BEGUN: &[u8] = b"";
pub(super) const LAST: &[u8] = b"\0";

/// Records what a batch's thread relies on, and that the thread was in use.
pub(super) fn put(connection: &Connection, batch: &Batch) -> Result<(), StoreError> {
    let Some(used) = &batch.used else { return Ok(()) };
    connection
        .prepare_cached("UPDATE threads SET at_ms = ?2 WHERE id = ?1 AND at_ms < ?2")?
        .execute(params![used.thread, batch.at_ms])?;
    for chain in &used.chains {
        note(connection, &chain.0.0, batch.at_ms)?;
    }
    Ok(())
}

/// A time is only ever raised.
fn note(connection: &Connection, chain: &[u8], at_ms: i64) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO uses (chain, at_ms) VALUES (?1, ?2)
             ON CONFLICT (chain) DO UPDATE SET at_ms = ?2 WHERE at_ms < ?2",
        )?
        .execute(params![chain, at_ms])?;
    Ok(())
}

/// The time in a row that is not a history.
pub(super) fn mark(connection: &Connection, name: &[u8]) -> Result<Option<i64>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT at_ms FROM uses WHERE chain = ?1")?;
    Ok(statement.query_row([name], |row| row.get(0)).optional()?)
}

/// Sets such a time, whatever it was before: clocks are set back, too.
pub(super) fn set_mark(connection: &Connection, name: &[u8], at_ms: i64) -> Result<(), StoreError> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO uses (chain, at_ms) VALUES (?1, ?2)")?
        .execute(params![name, at_ms])?;
    Ok(())
}
