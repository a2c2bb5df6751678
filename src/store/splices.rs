//! The table of splices.
//!
//! A splice is only found by the history that it replaces, and is never changed. A row that cannot be read is not a
//! splice: the messages that it replaced are sent again, because nobody knows what was sent instead, and everything
//! else continues as decided.

use std::sync::Arc;

use rusqlite::{Connection, Row, params};
use serde::{Deserialize, Serialize};

use super::row::{Batch, StoredSplice};
use super::sqlite::digest;
use super::{CommitError, StoreError};
use crate::conversation::{Chain, PartId};
use crate::planner::{Layout, Splice};

/// The splices for any of these histories.
pub(super) fn find(connection: &Connection, chains: &[Chain]) -> Result<Vec<StoredSplice>, StoreError> {
    let mut statement = connection
        .prepare_cached("SELECT since, root, splice FROM splices WHERE chain = ?1 ORDER BY at_ms")?;
    let mut found = Vec::new();
    for chain in chains {
        let mut rows = statement.query([chain.0.0])?;
        while let Some(row) = rows.next()? {
            match stored(*chain, row) {
                Some(splice) => found.push(splice),
                None => tracing::warn!("a stored splice is damaged: what it took is sent again"),
            }
        }
    }
    Ok(found)
}

fn stored(chain: Chain, row: &Row<'_>) -> Option<StoredSplice> {
    let chain_in = |column: usize| digest(row, column).ok().map(Chain);
    let splice: String = row.get(2).ok()?;
    let splice = Arc::new(from_text(&splice)?);
    Some(StoredSplice { chain, since: chain_in(0)?, root: chain_in(1)?, splice })
}

/// The newest splice with this rule, end, sizes in bytes before and after, and stored full text, in any history.
pub(super) fn like(
    connection: &Connection,
    rule: &str,
    end: u32,
    sizes: (u64, u64),
    output: Option<&str>,
) -> Result<Option<Splice>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT splice FROM splices ORDER BY at_ms DESC")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let splice = row.get(0).ok().and_then(|splice: String| from_text(&splice)).filter(|splice| {
            (&*splice.rule, splice.end()) == (rule, end as usize)
                && (splice.bytes_before, splice.bytes_after()) == sizes
                && splice.output.as_deref() == output
        });
        if splice.is_some() {
            return Ok(splice);
        }
    }
    Ok(None)
}

/// Stores a batch's splices. If another gateway was first, its splice is kept and the batch fails.
pub(super) fn put(connection: &Connection, batch: &Batch) -> Result<(), CommitError> {
    for stored in &batch.splices {
        let made = connection
            .prepare_cached(
                "INSERT INTO splices (chain, since, root, splice, at_ms) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (chain, since) DO NOTHING",
            )?
            .execute(params![
                stored.chain.0.0,
                stored.since.0.0,
                stored.root.0.0,
                to_text(&stored.splice),
                batch.at_ms
            ])?;
        if made == 0 {
            return Err(CommitError::Raced);
        }
    }
    Ok(())
}

/// A splice as stored in the table.
#[derive(Serialize, Deserialize)]
struct Written {
    rule: String,
    drops: Vec<(u32, u32)>,
    layout: String,
    /// The additional text of the layout.
    said: Option<String>,
    message: u32,
    part: u32,
    leaf: u32,
    text: String,
    bytes_before: u64,
    output: Option<String>,
}

fn to_text(splice: &Splice) -> String {
    let (layout, said) = match &splice.layout {
        Layout::Answer => ("answer", None),
        Layout::Appended => ("appended", None),
        Layout::User => ("user", None),
        Layout::Acknowledged(said) => ("acknowledged", Some(said.to_string())),
        Layout::Asked(said) => ("asked", Some(said.to_string())),
    };
    let written = Written {
        rule: splice.rule.to_string(),
        drops: splice.drops.to_vec(),
        layout: layout.to_owned(),
        said,
        message: splice.at.message,
        part: splice.at.part,
        leaf: splice.leaf,
        text: splice.text.to_string(),
        bytes_before: splice.bytes_before,
        output: splice.output.clone(),
    };
    serde_json::to_string(&written).unwrap_or_default()
}

fn from_text(text: &str) -> Option<Splice> {
    let written: Written = serde_json::from_str(text).ok()?;
    let layout = match (&*written.layout, written.said) {
        ("answer", None) => Layout::Answer,
        ("appended", None) => Layout::Appended,
        ("user", None) => Layout::User,
        ("acknowledged", Some(said)) => Layout::Acknowledged(said.into()),
        ("asked", Some(said)) => Layout::Asked(said.into()),
        _ => return None,
    };
    let ascending = written.drops.windows(2).all(|pair| pair[0].1 < pair[1].0);
    if written.drops.iter().any(|(first, end)| first >= end) || !ascending {
        return None;
    }
    Some(Splice {
        rule: written.rule.into(),
        drops: written.drops.into(),
        layout,
        at: PartId { message: written.message, part: written.part },
        leaf: written.leaf,
        text: written.text.into(),
        bytes_before: written.bytes_before,
        output: written.output,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splices_round_trip_and_invalid_ones_are_refused() {
        let splice = |layout| Splice {
            rule: "note".into(),
            drops: [(1, 4), (6, 9)].into(),
            layout,
            at: PartId { message: 9, part: 1 },
            leaf: 2,
            text: "what was \"there\"\n".into(),
            bytes_before: 4000,
            output: Some("0a".to_owned()),
        };
        for layout in [
            Layout::Answer,
            Layout::Appended,
            Layout::User,
            Layout::Acknowledged("ok".into()),
            Layout::Asked("what did we do?".into()),
        ] {
            let splice = splice(layout);
            assert_eq!(from_text(&to_text(&splice)), Some(splice));
        }
        let good = to_text(&splice(Layout::Answer));
        for (from, to) in [("[1,4]", "[4,4]"), ("[1,4]", "[1,7]"), ("\"answer\"", "\"new\""), ("{", "[")] {
            assert_eq!(from_text(&good.replacen(from, to, 1)), None, "{from} {to}");
        }
    }
}
