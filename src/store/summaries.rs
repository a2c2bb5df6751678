//! The table of finished summaries.
//!
//! A summary is found by exactly the history that it replaces. Whether it is ever sent is decided elsewhere: what is
//! sent is a splice.

use rusqlite::{Connection, Row, params};

use super::StoreError;
use super::row::Batch;
use super::sqlite::digest;
use crate::conversation::{Chain, Digest};

/// A summary of the first messages of a history.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// The history that it replaces: up to and including the last message that it summarises.
    pub chain: Chain,
    /// The number of messages in that history.
    pub end: usize,
    /// The thread that it was written for.
    pub thread: String,
    /// The conversation that its cost is booked on.
    pub conversation: String,
    /// The user's first message, word for word.
    pub goal: String,
    /// The text that replaces the messages.
    pub text: String,
    /// What the model wrote, from which the next summary continues.
    pub outline: String,
    /// The model that wrote it.
    pub model: String,
    /// The digest of how the prompt is made: summaries of other recipes are not used.
    pub recipe: Digest,
    /// The number of this summary in its thread, counted from 1.
    pub generation: u32,
    /// The share of the facts in the messages that it keeps, from 0 to 1; `None` if there were none.
    pub score: Option<f64>,
    /// When it was written, in milliseconds since 1970.
    pub at_ms: i64,
}

impl Summary {
    /// The approximate memory that it takes, in bytes.
    pub fn weight(&self) -> usize {
        std::mem::size_of::<Self>()
            + self.goal.len()
            + self.text.len()
            + self.outline.len()
            + 2 * self.thread.len()
    }
}

const COLUMNS: &str =
    "chain, messages, thread, conversation, goal, text, outline, model, recipe, generation, score, at_ms";

/// The most summaries of a conversation that are read.
const MAX_SUMMARIES: u32 = 64;

/// The newest summary of a thread.
pub(super) fn newest(connection: &Connection, thread: &str) -> Result<Option<Summary>, StoreError> {
    Ok(newest_by(connection, "thread", thread, 1)?.pop())
}

/// The newest summary of a conversation.
pub(super) fn of_conversation(connection: &Connection, id: &str) -> Result<Option<Summary>, StoreError> {
    Ok(newest_by(connection, "conversation", id, 1)?.pop())
}

/// The newest summaries of a conversation, whichever of its threads they were written for.
pub(super) fn all_of(connection: &Connection, id: &str) -> Result<Vec<Summary>, StoreError> {
    newest_by(connection, "conversation", id, MAX_SUMMARIES)
}

/// The newest summaries with this id in a column.
fn newest_by(connection: &Connection, column: &str, id: &str, most: u32) -> Result<Vec<Summary>, StoreError> {
    let query =
        format!("SELECT {COLUMNS} FROM summaries WHERE {column} = ?1 ORDER BY at_ms DESC LIMIT {most}");
    let mut statement = connection.prepare_cached(&query)?;
    let mut rows = statement.query([id])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(summary(row)?);
    }
    Ok(found)
}

/// Stores a batch's summaries. A newer one for the same history replaces the older one. If the clock was set back, the
/// time of a summary is raised, so that it is later than that of all earlier ones of its thread.
pub(super) fn put(connection: &Connection, batch: &Batch) -> Result<(), StoreError> {
    for summary in &batch.summaries {
        connection
            .prepare_cached(&format!(
                "INSERT OR REPLACE INTO summaries ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, max(?12,
                 coalesce((SELECT max(at_ms) + 1 FROM summaries WHERE thread = ?3 AND chain <> ?1), ?12)))"
            ))?
            .execute(params![
                summary.chain.0.0,
                summary.end as u64,
                summary.thread,
                summary.conversation,
                summary.goal,
                summary.text,
                summary.outline,
                summary.model,
                summary.recipe.0,
                summary.generation,
                summary.score,
                summary.at_ms,
            ])?;
    }
    Ok(())
}

fn summary(row: &Row<'_>) -> Result<Summary, StoreError> {
    Ok(Summary {
        chain: Chain(digest(row, 0)?),
        end: usize::try_from(row.get::<_, i64>(1)?).map_err(|_| StoreError::Damaged)?,
        thread: row.get(2)?,
        conversation: row.get(3)?,
        goal: row.get(4)?,
        text: row.get(5)?,
        outline: row.get(6)?,
        model: row.get(7)?,
        recipe: digest(row, 8)?,
        generation: row.get(9)?,
        score: row.get(10)?,
        at_ms: row.get(11)?,
    })
}
