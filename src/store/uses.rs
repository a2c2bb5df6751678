//! The table of uses: when what was decided about a history was last relied on.
//!
//! A decision says when it was made, and is shared by all threads that go on from there. So threads say now and then
//! under which histories they go on relying on something; see [`super::idle`] for what becomes of the rest.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::StoreError;
use super::row::Batch;

/// Rows that are no histories, which are longer and so stand behind these.
pub(super) const BEGUN: &[u8] = b"";
pub(super) const LAST: &[u8] = b"\0";

/// Notes what a batch's thread relies on, and that it was in use.
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

/// What has once been noted is never taken back.
fn note(connection: &Connection, chain: &[u8], at_ms: i64) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO uses (chain, at_ms) VALUES (?1, ?2)
             ON CONFLICT (chain) DO UPDATE SET at_ms = ?2 WHERE at_ms < ?2",
        )?
        .execute(params![chain, at_ms])?;
    Ok(())
}

/// A time that stands in a row that is no history.
pub(super) fn mark(connection: &Connection, name: &[u8]) -> Result<Option<i64>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT at_ms FROM uses WHERE chain = ?1")?;
    Ok(statement.query_row([name], |row| row.get(0)).optional()?)
}

/// Sets it, whatever it was: clocks are set back, too.
pub(super) fn set_mark(connection: &Connection, name: &[u8], at_ms: i64) -> Result<(), StoreError> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO uses (chain, at_ms) VALUES (?1, ?2)")?
        .execute(params![name, at_ms])?;
    Ok(())
}
