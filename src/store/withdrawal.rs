//! Removes what was committed for a request that was then sent without it.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::StoreError;
use super::idle::forget_texts;
use super::row::Batch;

/// Removes a batch's decisions and splices, and the texts to which no other decision refers. Its threads and histories
/// stay, because the request was sent. A batch that overruled refused decisions stays as a whole: the decisions that it
/// replaced cannot be restored.
pub(super) fn take_out(connection: &Connection, batch: &Batch) -> Result<(), StoreError> {
    if batch.overrule || !batch.decides() {
        return Ok(());
    }
    let transaction = connection.unchecked_transaction()?;
    let mut replacements = Vec::new();
    for decision in &batch.decisions {
        let key = params![decision.chain.0.0, decision.part, decision.since.0.0];
        let removed = transaction
            .prepare_cached(
                "DELETE FROM decisions WHERE chain = ?1 AND part = ?2 AND since = ?3 RETURNING replacement",
            )?
            .query_row(key, |row| row.get(0))
            .optional()?;
        replacements.extend(removed);
    }
    forget_texts(&transaction, &replacements)?;
    for splice in &batch.splices {
        transaction
            .prepare_cached("DELETE FROM splices WHERE chain = ?1 AND since = ?2")?
            .execute(params![splice.chain.0.0, splice.since.0.0])?;
    }
    Ok(transaction.commit()?)
}
