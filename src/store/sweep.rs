//! Removes what is too old, a little at a time.
//!
//! The writing thread does this in short turns, and writes between two of them what requests wait for. What cannot be
//! removed does not keep the rest from being removed, and is tried again with the next sweep. Finally the database
//! gives its free space back, in steps that are as short.

use std::fs::{self, DirEntry, ReadDir};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, TransactionBehavior, params};

use super::idle::Idle;
use super::logs::{self, Logs};
use super::outputs::{self, Outputs};
use super::{Batch, StoreError, spare};

/// The most files that one turn removes or examines.
const FILES_PER_TURN: usize = 50;
/// The most outputs whose age one turn looks up.
const OUTPUTS_PER_TURN: usize = 1_000;
/// The most records that one turn removes.
const RECORDS_PER_TURN: usize = 500;
/// The pause between two steps of giving space back.
const PAUSE: Duration = Duration::from_millis(5);

/// What is left to remove.
#[derive(Default)]
pub(super) struct Sweep {
    outputs: Option<OldOutputs>,
    /// The time before which records are removed.
    records: Option<i64>,
    drafts: Option<OldFiles>,
    logs: Option<OldFiles>,
    idle: Option<Idle>,
    /// Whether the space that this frees is still to be given back.
    leaves_free: bool,
}

impl Sweep {
    /// Begins the removals that a batch asks for. A later batch overrides an earlier one.
    pub(super) fn begin(&mut self, batch: &Batch, outputs: &Outputs, logs: &Logs) {
        if let Some(before) = batch.forget_outputs {
            self.outputs = Some(OldOutputs { before, ..OldOutputs::default() });
            self.drafts = Some(OldFiles::new(before, outputs.dir().to_owned(), outputs::remove_old_draft));
        }
        if let Some(before) = batch.forget_ledger {
            self.records = Some(before);
            self.logs = Some(OldFiles::new(before, logs.dir().to_owned(), logs::remove_old));
        }
        self.leaves_free |= batch.forget_ledger.is_some() || batch.forget_threads.is_some();
        // A long removal that is under way is not started again.
        if let Some(before) = batch.forget_threads {
            self.idle.get_or_insert_with(|| Idle::new(before, batch.at_ms));
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.has_removed() && !self.leaves_free
    }

    /// Whether everything that is too old is removed.
    fn has_removed(&self) -> bool {
        let files = self.outputs.is_none() && self.drafts.is_none() && self.logs.is_none();
        files && self.records.is_none() && self.idle.is_none()
    }

    /// How long to pause before the next turn, so that others can write to the database. Only giving space back has
    /// pauses: nobody waits for it.
    pub(super) fn pause(&self) -> Duration {
        if self.leaves_free && self.has_removed() { PAUSE } else { Duration::ZERO }
    }

    /// Takes a turn: removes some records, and some of one other kind of thing. Once all is removed, gives some space
    /// back.
    pub(super) fn take_turn(&mut self, connection: &mut Connection, outputs: &Outputs) {
        self.records = self.records.filter(|before| {
            forget_records(connection, *before).unwrap_or_else(|error| {
                tracing::warn!(%error, "old records could not be removed");
                false
            })
        });
        if let Some(old) = &mut self.outputs {
            let has_more = old.turn(connection, outputs).unwrap_or_else(|error| {
                tracing::warn!(%error, "old outputs could not be removed");
                false
            });
            if !has_more {
                old.failures.tell("old outputs could not be removed");
                self.outputs = None;
            }
        } else if let Some(old) = &mut self.drafts {
            if !old.turn() {
                old.failures.tell("outputs that were never finished could not be removed");
                self.drafts = None;
            }
        } else if let Some(old) = &mut self.logs {
            if !old.turn() {
                old.failures.tell("old logs of conversations could not be removed");
                self.logs = None;
            }
        } else if let Some(idle) = &mut self.idle {
            let has_more = idle.turn(connection).unwrap_or_else(|error| {
                tracing::warn!(%error, "what was decided about idle threads could not be removed");
                false
            });
            if !has_more {
                self.idle = None;
            }
        }
        if self.leaves_free && self.has_removed() {
            self.leaves_free = spare::give_back(connection).unwrap_or_else(|error| {
                tracing::warn!(%error, "free pages could not be returned to the file system");
                false
            });
        }
    }
}

/// Removes some records older than a time. Returns whether there may be more.
pub(super) fn forget_records(connection: &Connection, before: i64) -> rusqlite::Result<bool> {
    let removed = connection
        .prepare_cached(
            "DELETE FROM ledger WHERE rowid IN (SELECT rowid FROM ledger WHERE at_ms < ?1 LIMIT ?2)",
        )?
        .execute(params![before, RECORDS_PER_TURN as u64])?;
    Ok(removed == RECORDS_PER_TURN)
}

/// The failures to remove a file.
#[derive(Default)]
struct Failures {
    files: u32,
    first_error: Option<io::Error>,
}

impl Failures {
    fn add(&mut self, error: io::Error) {
        self.files += 1;
        self.first_error.get_or_insert(error);
    }

    /// Logs the failures, if there are any.
    fn tell(&self, what: &str) {
        if let Self { files, first_error: Some(error) } = self {
            tracing::warn!(files, %error, "{what}");
        }
    }
}

/// The removal of a folder's files to which nothing was added since a time.
struct OldFiles {
    before: SystemTime,
    dir: PathBuf,
    /// Removes one of them, if it is of the right kind and old enough.
    remove: fn(&DirEntry, SystemTime) -> io::Result<()>,
    /// The remaining entries of the folder; `None` until it is opened.
    entries: Option<ReadDir>,
    failures: Failures,
}

impl OldFiles {
    fn new(before: i64, dir: PathBuf, remove: fn(&DirEntry, SystemTime) -> io::Result<()>) -> Self {
        let before = UNIX_EPOCH + Duration::from_millis(u64::try_from(before).unwrap_or(0));
        Self { before, dir, remove, entries: None, failures: Failures::default() }
    }

    /// Examines some files. Returns whether there may be more.
    fn turn(&mut self) -> bool {
        let entries = match &mut self.entries {
            Some(entries) => entries,
            None => match fs::read_dir(&self.dir) {
                Ok(entries) => self.entries.insert(entries),
                Err(error) => {
                    // Nothing has been written yet.
                    if error.kind() != io::ErrorKind::NotFound {
                        self.failures.add(error);
                    }
                    return false;
                }
            },
        };
        for _ in 0..FILES_PER_TURN {
            let Some(entry) = entries.next() else { return false };
            // A folder that cannot be read would return errors forever.
            let Ok(entry) = entry.map_err(|error| self.failures.add(error)) else { return false };
            if let Err(error) = (self.remove)(&entry, self.before) {
                self.failures.add(error);
            }
        }
        true
    }
}

/// The removal of full texts that were last used before a time.
#[derive(Default)]
struct OldOutputs {
    before: i64,
    /// The id of the last one that was examined.
    after: String,
    failures: Failures,
}

impl OldOutputs {
    /// Removes some texts. Returns whether there may be more. The transaction keeps others from recording a use of one
    /// of them in the meantime.
    fn turn(&mut self, connection: &mut Connection, outputs: &Outputs) -> Result<bool, StoreError> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Old texts may be few and far between, so the number of examined rows is limited too.
        let rows: Vec<(String, bool)> = transaction
            .prepare_cached("SELECT id, at_ms < ?2 FROM outputs WHERE id > ?1 ORDER BY id LIMIT ?3")?
            .query_map(params![self.after, self.before, OUTPUTS_PER_TURN as u64], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?
            .collect::<Result<_, _>>()?;
        let old: Vec<&String> =
            rows.iter().filter(|(_, is_old)| *is_old).map(|(id, _)| id).take(FILES_PER_TURN).collect();
        for id in &old {
            match outputs.remove(id) {
                Ok(()) => {
                    transaction.prepare_cached("DELETE FROM outputs WHERE id = ?1")?.execute([id])?;
                }
                Err(error) => self.failures.add(error),
            }
        }
        transaction.commit()?;
        let last =
            if old.len() == FILES_PER_TURN { old.last().copied() } else { rows.last().map(|(id, _)| id) };
        self.after = last.cloned().unwrap_or_default();
        Ok(old.len() == FILES_PER_TURN || rows.len() == OUTPUTS_PER_TURN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::schema;

    /// An empty store.
    struct Rig {
        /// The folder of the texts and the logs, removed with this.
        home: tempfile::TempDir,
        connection: Connection,
        outputs: Outputs,
        logs: Logs,
    }

    impl Rig {
        fn new() -> Self {
            let home = tempfile::tempdir().unwrap();
            let connection = Connection::open_in_memory().unwrap();
            schema::prepare(&connection).unwrap();
            let (outputs, logs) =
                (Outputs::new(home.path().join("outputs")), Logs::new(home.path().join("logs")));
            Self { home, connection, outputs, logs }
        }
    }

    fn list(connection: &Connection, id: &str, at_ms: i64) {
        let row = params![id, at_ms];
        connection.execute("INSERT INTO outputs (id, at_ms) VALUES (?1, ?2)", row).unwrap();
    }

    fn count(connection: &Connection, table: &str) -> usize {
        let count = format!("SELECT COUNT(*) FROM {table}");
        connection.query_row(&count, [], |row| row.get(0)).unwrap()
    }

    /// The rest is what cannot be removed, and what no turn has reached yet.
    #[test]
    fn outputs_are_swept_in_bounded_turns() {
        let Rig { home: _home, mut connection, outputs, logs } = Rig::new();
        let ids: Vec<String> = (0..2 * FILES_PER_TURN + 2).map(|n| format!("{n:032x}")).collect();
        for (at, id) in ids.iter().enumerate() {
            outputs.save(id, "text").unwrap();
            // The last one is in use.
            let at_ms = if at + 1 == ids.len() { 7 } else { 6 };
            list(&connection, id, at_ms);
        }
        for stuck in [0, FILES_PER_TURN + 3] {
            std::fs::remove_file(outputs.path(&ids[stuck])).unwrap();
            std::fs::create_dir(outputs.path(&ids[stuck])).unwrap();
        }
        let mut sweep = Sweep::default();
        sweep.begin(&Batch::default(), &outputs, &logs);
        assert!(sweep.is_done());
        sweep.begin(&Batch { forget_outputs: Some(7), ..Batch::default() }, &outputs, &logs);
        let all = ids.len();
        // When no text is left to remove, unfinished files are.
        for (left, is_done) in [
            (all, false),
            (all - FILES_PER_TURN + 1, false),
            (all - 2 * FILES_PER_TURN + 2, false),
            (3, false),
        ] {
            let listed = count(&connection, "outputs");
            let there = ids.iter().filter(|id| outputs.path(id).exists()).count();
            assert_eq!((listed, there, sweep.is_done()), (left, left, is_done));
            sweep.take_turn(&mut connection, &outputs);
        }
    }

    /// A turn that finds nothing old ends after a bounded number of outputs in use.
    #[test]
    fn old_outputs_among_many_in_use_are_found_in_bounded_turns() {
        let Rig { home: _home, mut connection, outputs, .. } = Rig::new();
        let all = 2 * OUTPUTS_PER_TURN + 1;
        for at in 0..all {
            let at_ms = if at + 1 == all { 6 } else { 7 };
            list(&connection, &format!("{at:032x}"), at_ms);
        }
        let mut old = OldOutputs { before: 7, ..OldOutputs::default() };
        for (has_more, left) in [(true, all), (true, all), (false, all - 1)] {
            assert_eq!(old.turn(&mut connection, &outputs).unwrap(), has_more);
            let listed = count(&connection, "outputs");
            assert_eq!(listed, left);
        }
    }

    /// What a dead process has begun is removed, and nothing else that is not listed.
    #[test]
    fn old_partial_files_are_swept() {
        let Rig { home: _home, mut connection, outputs, logs } = Rig::new();
        let id = "0123456789abcdef0123456789abcdef";
        outputs.save(id, "text").unwrap();
        let named = |ending: &str| outputs.path(id).with_extension(ending);
        for ending in ["71.part", "part", "7x.part", "71.part.txt"] {
            fs::write(named(ending), "te").unwrap();
        }
        fs::write(outputs.dir().join("mine.71.part"), "").unwrap();
        fs::create_dir(named("72.part")).unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
        for (before, is_left) in [(now - 60_000, true), (now + 60_000, false)] {
            let mut sweep = Sweep::default();
            sweep.begin(&Batch { forget_outputs: Some(before), ..Batch::default() }, &outputs, &logs);
            for is_done in [false, true] {
                sweep.take_turn(&mut connection, &outputs);
                assert_eq!(sweep.is_done(), is_done);
            }
            assert_eq!(named("71.part").exists(), is_left);
            assert_eq!(fs::read_dir(outputs.dir()).unwrap().count(), 6 + usize::from(is_left));
        }
    }

    /// Records are removed a few at a time, beginning with the commit that asks for it.
    #[test]
    fn records_are_swept_in_bounded_turns() {
        let Rig { home: _home, mut connection, outputs, logs } = Rig::new();
        let all = 3 * RECORDS_PER_TURN + 2;
        for n in 0..all {
            // The last one is recent.
            let at_ms = if n + 1 == all { 7 } else { 6 };
            connection
                .execute(
                    "INSERT INTO ledger (id, at_ms, conversation, record) VALUES (?1, ?2, 'c', '{}')",
                    params![n, at_ms],
                )
                .unwrap();
        }
        let mut sweep = Sweep::default();
        sweep.begin(&Batch { forget_ledger: Some(7), ..Batch::default() }, &outputs, &logs);
        for (left, is_done) in [all, all - RECORDS_PER_TURN, all - 2 * RECORDS_PER_TURN, 2, 1]
            .into_iter()
            .zip([false, false, false, false, true])
        {
            assert_eq!((count(&connection, "ledger"), sweep.is_done()), (left, is_done));
            sweep.take_turn(&mut connection, &outputs);
        }
    }

    /// Logs are removed together with the records, whatever else is in their folder, and are created again when their
    /// conversation continues.
    #[test]
    fn logs_are_swept_in_bounded_turns() {
        let Rig { home, mut connection, outputs, mut logs } = Rig::new();
        let mut sweep = Sweep::default();
        let count = || fs::read_dir(home.path().join("logs")).map_or(0, Iterator::count);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
        let all = 2 * FILES_PER_TURN + 1;
        for (before, left) in
            [(now + 60_000, [0; 3]), (now - 60_000, [all; 3]), (now + 60_000, [all - FILES_PER_TURN, 1, 0])]
        {
            sweep.begin(&Batch { forget_ledger: Some(before), ..Batch::default() }, &outputs, &logs);
            for left in left {
                sweep.take_turn(&mut connection, &outputs);
                assert_eq!(count(), left);
            }
            assert!(sweep.is_done());
            for n in 0..all {
                logs.append(&n.to_string(), &[&format!("{{\"conversation\":\"{n}\"}}")]).unwrap();
            }
            assert_eq!(count(), all);
        }
    }
}
