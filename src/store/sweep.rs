//! Removing what is too old, a little at a time.
//!
//! It is the writing thread's work, in short turns: between two of them it writes what requests wait for. What cannot be
//! removed stays and is tried again with the next sweep; it never keeps the rest.

use std::io;

use rusqlite::{Connection, TransactionBehavior, params};

use super::outputs::Outputs;
use super::{Batch, StoreError};

/// What one turn removes at most.
const TURN: usize = 200;

/// What is left to remove.
#[derive(Default)]
pub(super) struct Sweep {
    outputs: Option<OldOutputs>,
}

impl Sweep {
    /// Begins what a batch asks for. Of two that ask for the same the later knows better.
    pub(super) fn begin(&mut self, batch: &Batch) {
        if let Some(before) = batch.forget_outputs {
            self.outputs = Some(OldOutputs { before, ..OldOutputs::default() });
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.outputs.is_none()
    }

    /// Takes a turn.
    pub(super) fn go_on(&mut self, connection: &mut Connection, outputs: &Outputs) {
        if let Some(old) = &mut self.outputs {
            let goes_on = old.turn(connection, outputs).unwrap_or_else(|error| {
                tracing::warn!(%error, "old outputs could not be removed");
                false
            });
            if !goes_on {
                old.tell();
                self.outputs = None;
            }
        }
    }
}

/// Full texts that were last in use before a time.
#[derive(Default)]
struct OldOutputs {
    before: i64,
    /// The last one that was looked at.
    after: String,
    /// How many could not be removed, and why the first of them.
    kept: Option<(u32, io::Error)>,
}

impl OldOutputs {
    /// Removes some; whether there may be more. Nobody says meanwhile that one of them is in use.
    fn turn(&mut self, connection: &mut Connection, outputs: &Outputs) -> Result<bool, StoreError> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let old: Vec<String> = transaction
            .prepare_cached("SELECT id FROM outputs WHERE id > ?1 AND at_ms < ?2 ORDER BY id LIMIT ?3")?
            .query_map(params![self.after, self.before, TURN as i64], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        for id in &old {
            match outputs.remove(id) {
                Ok(()) => {
                    transaction.prepare_cached("DELETE FROM outputs WHERE id = ?1")?.execute([id])?;
                }
                Err(error) => self.kept.get_or_insert((0, error)).0 += 1,
            }
        }
        transaction.commit()?;
        let goes_on = old.len() == TURN;
        self.after = old.into_iter().next_back().unwrap_or_default();
        Ok(goes_on)
    }

    fn tell(&self) {
        if let Some((outputs, error)) = &self.kept {
            tracing::warn!(outputs, %error, "old outputs could not be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::schema;

    /// What cannot be removed is left, and what no turn has come to yet.
    #[test]
    fn outputs_go_in_turns() {
        let home = tempfile::tempdir().unwrap();
        let mut connection = Connection::open_in_memory().unwrap();
        schema::prepare(&connection).unwrap();
        let outputs = Outputs::new(home.path().join("outputs"));
        let ids: Vec<String> = (0..2 * TURN + 2).map(|n| format!("{n:032x}")).collect();
        for (at, id) in ids.iter().enumerate() {
            outputs.save(id, "text").unwrap();
            // The last one is in use.
            let at_ms = if at + 1 == ids.len() { 7 } else { 6 };
            connection
                .execute("INSERT INTO outputs (id, at_ms) VALUES (?1, ?2)", params![id, at_ms])
                .unwrap();
        }
        for stuck in [0, TURN + 3] {
            std::fs::remove_file(outputs.path(&ids[stuck])).unwrap();
            std::fs::create_dir(outputs.path(&ids[stuck])).unwrap();
        }
        let mut sweep = Sweep::default();
        sweep.begin(&Batch::default());
        assert!(sweep.is_done());
        sweep.begin(&Batch { forget_outputs: Some(7), ..Batch::default() });
        let all = ids.len();
        for (left, is_done) in [(all, false), (all - TURN + 1, false), (all - 2 * TURN + 2, false), (3, true)]
        {
            let listed: usize =
                connection.query_row("SELECT COUNT(*) FROM outputs", [], |row| row.get(0)).unwrap();
            let there = ids.iter().filter(|id| outputs.path(id).exists()).count();
            assert_eq!((listed, there, sweep.is_done()), (left, left, is_done));
            sweep.go_on(&mut connection, &outputs);
        }
    }
}
