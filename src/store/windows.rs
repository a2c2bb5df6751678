//! The table of windows: how much a model accepts, as stated by a provider when it rejected more.
//!
//! It saves a new process the rejection that would state it again. Models and servers change, so such a statement is
//! only believed for a while.

use std::time::Duration;

use rusqlite::{Connection, params};

use super::StoreError;
use super::row::{Batch, StoredWindow};

/// The most rows that are kept: the latest ones.
const MAX_ROWS: u32 = 256;
/// How long a statement is believed.
pub const BELIEVED: Duration = Duration::from_secs(24 * 3600);

/// All statements that are believed at `now_ms`, in milliseconds since 1970, the latest last.
pub(super) fn all(connection: &Connection, now_ms: i64) -> Result<Vec<StoredWindow>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT upstream, model, tokens, at_ms FROM windows WHERE at_ms >= ?1 ORDER BY at_ms",
    )?;
    let rows = statement.query_map([oldest(now_ms)], |row| {
        Ok(StoredWindow {
            upstream: row.get(0)?,
            model: row.get(1)?,
            tokens: Some(row.get(2)?),
            at_ms: row.get(3)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Stores a batch's windows. Removes those that have turned out to be wrong, are too old, or are too many.
pub(super) fn put(connection: &Connection, batch: &Batch) -> Result<(), StoreError> {
    for window in &batch.windows {
        connection
            .prepare_cached("DELETE FROM windows WHERE (upstream = ?1 AND model = ?2) OR at_ms < ?3")?
            .execute(params![window.upstream, window.model, oldest(window.at_ms)])?;
        if let Some(tokens) = window.tokens {
            connection
                .prepare_cached(
                    "INSERT INTO windows (upstream, model, tokens, at_ms) VALUES (?1, ?2, ?3, ?4)",
                )?
                .execute(params![
                    window.upstream,
                    window.model,
                    i64::try_from(tokens).unwrap_or(i64::MAX),
                    window.at_ms
                ])?;
            connection
                .prepare_cached(
                    "DELETE FROM windows WHERE (upstream, model) NOT IN
                       (SELECT upstream, model FROM windows ORDER BY at_ms DESC LIMIT ?1)",
                )?
                .execute([MAX_ROWS])?;
        }
    }
    Ok(())
}

/// The earliest time of a statement that is believed.
const fn oldest(now_ms: i64) -> i64 {
    now_ms.saturating_sub(BELIEVED.as_millis() as i64)
}
