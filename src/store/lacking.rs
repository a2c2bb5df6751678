//! The table of what is missing from histories that providers hold. If something was cut from a request, every request
//! that continues from its answer lacks it too, and any process may book that request.
//!
//! Only histories from which something is missing have a row. The oldest rows are removed, by number and by age; a
//! history without a row is taken to be complete.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, params};

use super::StoreError;
use super::row::{Batch, StoredLacking};
use crate::conversation::Digest;

/// The most rows that are kept: a few megabytes.
const MAX_ROWS: i64 = 1 << 16;
/// How long rows are kept.
const KEPT: Duration = Duration::from_secs(90 * 24 * 3600);
/// How many of the oldest rows are examined with each new one, and removed if they are outdated.
const REMOVED_AT_ONCE: i64 = 4;

/// What is missing from a history, as far as known at `now_ms`, in milliseconds since 1970.
pub(super) fn find(
    connection: &Connection,
    history: Digest,
    now_ms: i64,
) -> Result<Option<StoredLacking>, StoreError> {
    let mut statement =
        connection.prepare_cached("SELECT tokens, at_ms FROM lacking WHERE history = ?1 AND at_ms >= ?2")?;
    let found = statement.query_row(params![history.0, oldest(now_ms)], |row| {
        Ok(StoredLacking { history, tokens: row.get(0)?, at_ms: row.get(1)? })
    });
    Ok(found.optional()?)
}

/// Stores the rows of a batch, and removes the oldest ones. A row gets the highest id, also if it replaces one.
pub(super) fn put(connection: &Connection, batch: &Batch) -> Result<(), StoreError> {
    for lacking in &batch.lacking {
        connection
            .prepare_cached("INSERT OR REPLACE INTO lacking (history, tokens, at_ms) VALUES (?1, ?2, ?3)")?
            .execute(params![
                lacking.history.0,
                lacking.tokens.map(|tokens| i64::try_from(tokens).unwrap_or(i64::MAX)),
                lacking.at_ms
            ])?;
        let last = connection.last_insert_rowid();
        connection
            .prepare_cached("DELETE FROM lacking WHERE id <= ?1")?
            .execute([last.saturating_sub(MAX_ROWS)])?;
        connection
            .prepare_cached(
                "DELETE FROM lacking WHERE at_ms < ?1 AND id IN (SELECT id FROM lacking ORDER BY id LIMIT ?2)",
            )?
            .execute([oldest(lacking.at_ms), REMOVED_AT_ONCE])?;
    }
    Ok(())
}

/// The earliest time of a row that still counts.
const fn oldest(now_ms: i64) -> i64 {
    now_ms.saturating_sub(KEPT.as_millis() as i64)
}
