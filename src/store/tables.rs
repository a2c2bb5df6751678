//! Puts batches into the tables.
//!
//! Everything here runs in a transaction of the caller.

use rusqlite::types::Value;
use rusqlite::{CachedStatement, Connection, OptionalExtension as _, Statement, params};

use super::idle::forget_texts;
use super::row::{Batch, LedgerRow, StoredDecision};
use super::sqlite::leaves_to;
use super::{CommitError, StoreError, lacking, splices, summaries, sweep, uses, windows};
use crate::conversation::Digest;

/// Puts all of a batch into the tables; `booking` is as for [`book`].
pub(super) fn put(
    connection: &Connection,
    booking: &mut Statement<'_>,
    batch: &Batch,
) -> Result<(), CommitError> {
    let at = batch.at_ms;
    for thread in &batch.threads {
        connection
            .prepare_cached(
                "INSERT INTO threads (id, conversation, session, parent, head, observe, at_ms)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
                 ON CONFLICT (id) DO UPDATE SET head = ?5, observe = MAX(observe, ?6), at_ms = MAX(at_ms, ?7)",
            )?
            .execute(params![
                thread.id,
                thread.conversation,
                thread.session,
                thread.parent,
                thread.head.0.0,
                thread.observe,
                thread.at_ms
            ])?;
        if let Some(since) = thread.refused {
            connection
                .prepare_cached("INSERT OR IGNORE INTO refusals (thread, since) VALUES (?1, ?2)")?
                .execute(params![thread.id, since.0.0])?;
        }
    }
    for boundary in &batch.boundaries {
        connection
            .prepare_cached("INSERT OR IGNORE INTO boundaries (chain, thread, at_ms) VALUES (?1, ?2, ?3)")?
            .execute(params![boundary.chain.0.0, boundary.thread, at])?;
    }
    put_decisions(connection, batch)?;
    splices::put(connection, batch)?;
    summaries::put(connection, batch)?;
    uses::put(connection, batch)?;
    windows::put(connection, batch)?;
    lacking::put(connection, batch)?;
    put_outputs(connection, batch)?;
    if let Some(before) = batch.forget_ledger {
        // The sweep removes the rest in turns.
        sweep::forget_records(connection, before)?;
        connection.execute("DELETE FROM missing WHERE at_ms < ?1", [before])?;
        connection.execute("DELETE FROM unlogged WHERE at_ms < ?1", [before])?;
    }
    batch.ledger.iter().try_for_each(|row| Ok(book(booking, row)?))
}

/// The statement for [`book`]. Almost every transaction books, and some book hundreds of records.
pub(super) fn booking(connection: &Connection) -> rusqlite::Result<CachedStatement<'_>> {
    connection.prepare_cached(
        "INSERT INTO ledger (id, at_ms, conversation, model, client, cost, record)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT (id) DO UPDATE SET model = ?4, cost = ?6, record = ?7",
    )
}

/// Puts a record into the ledger, or updates the one with the same id by what is known by now. `booking` is the
/// statement of that name.
pub(super) fn book(booking: &mut Statement<'_>, row: &LedgerRow) -> rusqlite::Result<()> {
    let LedgerRow { id, at_ms, conversation, model, client, cost, record, .. } = row;
    booking.execute(params![id, at_ms, conversation, model, client, cost, record])?;
    Ok(())
}

/// Lists the full texts that a batch saves or still uses, with the time of that use. The sweep removes them by this
/// list.
pub(super) fn put_outputs(connection: &Connection, batch: &Batch) -> Result<(), StoreError> {
    let saved = batch.saves.iter().map(|save| &save.id);
    for id in saved.chain(&batch.touch) {
        connection
            .prepare_cached("INSERT INTO outputs (id, at_ms) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET at_ms = MAX(at_ms, ?2)")?
            .execute(params![id, batch.at_ms])?;
    }
    Ok(())
}

/// Puts a batch's decisions into their table, and their texts into that of the replacements. Equal texts are stored
/// once, and removed with the last decision that refers to them.
///
/// A decision is made once: if another gateway was first, its decision is kept and the batch fails, so that the request
/// is planned again from what is stored.
fn put_decisions(connection: &Connection, batch: &Batch) -> Result<(), CommitError> {
    let mut overruled = Vec::new();
    for stored in &batch.decisions {
        let decision = &stored.decision;
        let leaves = leaves_to(&decision.leaves);
        let replacement = Digest::of(&[leaves.as_bytes()]);
        if batch.overrule {
            overruled.extend(overruled_text(connection, stored)?);
        }
        connection
            .prepare_cached("INSERT OR IGNORE INTO replacements (id, leaves) VALUES (?1, ?2)")?
            .execute(params![replacement.0, leaves])?;
        let made = connection
            .prepare_cached(
                "INSERT INTO decisions
                 (chain, part, since, root, part_key, content, rules, replacement, bytes_before, bytes_after, output, at_ms)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
                 ON CONFLICT (chain, part, since) DO UPDATE SET
                 rules = ?7, replacement = ?8, bytes_after = ?10, output = ?11, at_ms = ?12 WHERE ?13",
            )?
            .execute(params![
                stored.chain.0.0,
                stored.part,
                stored.since.0.0,
                stored.root.0.0,
                decision.key.map(|key| key.0.0),
                decision.content.0,
                decision.cause.to_string(),
                replacement.0,
                decision.bytes_before,
                decision.bytes_after,
                decision.output,
                batch.at_ms,
                batch.overrule
            ])?;
        if made == 0 {
            return Err(CommitError::Raced);
        }
    }
    Ok(forget_texts(connection, &overruled)?)
}

/// The id of the replacement of the existing decision that this one overrules, if there is one.
fn overruled_text(connection: &Connection, stored: &StoredDecision) -> rusqlite::Result<Option<Value>> {
    connection
        .prepare_cached("SELECT replacement FROM decisions WHERE chain = ?1 AND part = ?2 AND since = ?3")?
        .query_row(params![stored.chain.0.0, stored.part, stored.since.0.0], |row| row.get(0))
        .optional()
}
