//! Records that are in the ledger, but not in the logs of their conversations yet.
//!
//! A folder that cannot be written to, or a disk that is full, keeps a record from its log. Its line is then put into the
//! database, and from there into the log as soon as that can be written: in order, each once, a few at a time. Until
//! then all newer ones of its conversation go the same way.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};

use super::logs::Logs;
use super::{Batch, LedgerRow, StoreError, schema};

/// Lines that one turn writes at most.
const TURN: usize = 64;
/// Conversations that a round fails at, one after the other, before it gives up. The next one goes on from there.
const TRIES: usize = 16;

/// What became of lines that were to be logged.
#[derive(Debug, PartialEq, Eq)]
enum Done {
    /// All of them are in the log.
    All,
    /// There are more of them.
    Some,
}

/// What waits to be logged: nothing, unless the database is asked.
#[derive(Default)]
pub(super) struct Unlogged {
    /// There may be some.
    any: bool,
    /// Nothing could be logged when that was tried last.
    down: bool,
    /// How many more conversations the round may fail at one after the other; `None`: there is no round.
    tries: Option<usize>,
    /// The conversation that a round looked at last, and whether there is more of it.
    after: (String, bool),
}

impl Unlogged {
    /// What an earlier process has left is taken up at once.
    pub(super) fn of(connection: &Connection) -> Self {
        // If it cannot be told, there may be some.
        let any = next(connection, &Default::default()).map_or(true, |first| first.is_some());
        Self { any, down: any, tries: any.then_some(TRIES), after: Default::default() }
    }

    /// Whether there is no turn to be taken now.
    pub(super) fn is_done(&self) -> bool {
        self.tries.is_none()
    }

    /// Begins a round, if anything waits and there is none.
    pub(super) fn begin(&mut self) {
        if self.any {
            self.tries.get_or_insert(TRIES);
        }
    }

    /// Appends what was stored to the conversations' logs, a conversation's all at once.
    pub(super) fn log(&mut self, connection: &mut Connection, logs: &mut Logs, stored: &[Batch]) {
        let mut rows: BTreeMap<&str, Vec<&LedgerRow>> = BTreeMap::new();
        for row in stored.iter().flat_map(|batch| &batch.ledger) {
            rows.entry(&row.conversation).or_default().push(row);
        }
        for (conversation, rows) in rows {
            if let Err(error) = self.log_rows(connection, logs, conversation, &rows) {
                tracing::warn!(%error, conversation, "records could not be logged, and are in the database alone");
            }
        }
    }

    fn log_rows(
        &mut self,
        connection: &mut Connection,
        logs: &mut Logs,
        conversation: &str,
        rows: &[&LedgerRow],
    ) -> Result<(), StoreError> {
        if self.any && waits(connection, conversation)? {
            keep(connection, rows)?;
            if write(connection, logs, conversation, &|| true).is_ok() {
                self.is_up();
            }
            return Ok(());
        }
        let lines: Vec<&str> = rows.iter().map(|row| &*row.line).collect();
        match logs.append(conversation, &lines) {
            Ok(()) => {
                self.is_up();
                Ok(())
            }
            Err(cut) => {
                if !self.down {
                    let error = &cut.error;
                    tracing::warn!(%error, conversation, "records cannot be logged: they will be when that is possible");
                }
                (self.any, self.down) = (true, true);
                keep(connection, &rows[cut.whole..])
            }
        }
    }

    /// Something could be logged: what waits is looked at, if nothing could before.
    fn is_up(&mut self) {
        if std::mem::take(&mut self.down) {
            self.begin();
        }
    }

    /// Takes a turn: some lines of a conversation, if there is a round. Others that have locked the database are waited for
    /// as long as `goes_on`.
    pub(super) fn go_on(&mut self, connection: &Connection, logs: &mut Logs, goes_on: &dyn Fn() -> bool) {
        let Some(tries) = self.tries else { return };
        match self.turn(connection, logs, goes_on) {
            Ok(goes_on) => self.tries = goes_on.then_some(TRIES),
            Err(error) => {
                tracing::debug!(%error, conversation = self.after.0, "records cannot be logged yet");
                self.tries = Some(tries - 1).filter(|left| *left > 0);
                self.down |= self.tries.is_none();
            }
        }
    }

    /// Whether there may be more.
    fn turn(
        &mut self,
        connection: &Connection,
        logs: &mut Logs,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<bool, StoreError> {
        let Some(conversation) = next(connection, &self.after)? else {
            self.after = Default::default();
            self.any = next(connection, &self.after)?.is_some();
            return Ok(false);
        };
        // Whatever comes of it, the next one's turn comes.
        self.after = (conversation, false);
        self.after.1 = write(connection, logs, &self.after.0, goes_on)? == Done::Some;
        Ok(true)
    }
}

/// The first conversation behind one that something of waits, or that one, if there is more of it.
fn next(connection: &Connection, (after, again): &(String, bool)) -> rusqlite::Result<Option<String>> {
    connection
        .prepare_cached(
            "SELECT conversation FROM unlogged WHERE conversation > ?1 OR (?2 AND conversation = ?1)
             ORDER BY conversation LIMIT 1",
        )?
        .query_row(params![after, again], |row| row.get(0))
        .optional()
}

/// Whether something of a conversation waits.
fn waits(connection: &Connection, conversation: &str) -> rusqlite::Result<bool> {
    connection.prepare_cached("SELECT 1 FROM unlogged WHERE conversation = ?1")?.exists([conversation])
}

/// Keeps the lines of records for later.
fn keep(connection: &mut Connection, rows: &[&LedgerRow]) -> Result<(), StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    put(&transaction, rows.iter().copied())?;
    Ok(transaction.commit()?)
}

/// Puts the lines of records among what waits.
pub(super) fn put<'r>(
    connection: &Connection,
    rows: impl Iterator<Item = &'r LedgerRow>,
) -> rusqlite::Result<()> {
    for row in rows {
        connection
            .prepare_cached(
                "INSERT INTO unlogged (id, at_ms, conversation, line) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (id) DO UPDATE SET line = ?4",
            )?
            .execute(params![row.id, row.at_ms, row.conversation, row.line])?;
    }
    Ok(())
}

/// Logs the first lines of a conversation that wait. No other gateway does so meanwhile; what one that died had logged
/// and not taken out is not logged again.
fn write(
    connection: &Connection,
    logs: &mut Logs,
    conversation: &str,
    goes_on: &dyn Fn() -> bool,
) -> Result<Done, StoreError> {
    let transaction = schema::begin_while(connection, goes_on)?;
    let waiting: Vec<(i64, String)> = transaction
        .prepare_cached("SELECT rowid, line FROM unlogged WHERE conversation = ?1 ORDER BY rowid LIMIT ?2")?
        .query_map(params![conversation, TURN as u64], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    let lines: Vec<&str> = waiting.iter().map(|(_, line)| &**line).collect();
    let (whole, failed) = logs.append_missing(conversation, &lines);
    for (rowid, _) in &waiting[..whole] {
        transaction.prepare_cached("DELETE FROM unlogged WHERE rowid = ?1")?.execute([rowid])?;
    }
    transaction.commit()?;
    match failed {
        Some(error) => Err(error.into()),
        None if waiting.len() == TURN => Ok(Done::Some),
        None => Ok(Done::All),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    struct Bench {
        home: tempfile::TempDir,
        connection: Connection,
        logs: Logs,
        unlogged: Unlogged,
    }

    impl Bench {
        fn new() -> Self {
            let home = tempfile::tempdir().unwrap();
            let connection = Connection::open_in_memory().unwrap();
            schema::prepare(&connection).unwrap();
            let (logs, unlogged) = (Logs::new(home.path().join("logs")), Unlogged::of(&connection));
            Self { home, connection, logs, unlogged }
        }

        fn dir(&self) -> PathBuf {
            self.home.path().join("logs")
        }

        /// Something else is where the folder should be.
        fn block(&self) {
            fs::write(self.dir(), "").unwrap();
        }

        fn unblock(&self) {
            fs::remove_file(self.dir()).unwrap();
        }

        fn restart(&mut self) {
            self.logs = Logs::new(self.dir());
            self.unlogged = Unlogged::of(&self.connection);
        }

        /// Records are stored together: the first letter of each is its conversation.
        fn log(&mut self, lines: &[&str]) {
            let row = |line: &&str| LedgerRow {
                id: (*line).to_owned(),
                conversation: line[..1].to_owned(),
                line: (*line).to_owned(),
                ..LedgerRow::default()
            };
            let batch = Batch { ledger: lines.iter().map(row).collect(), ..Batch::default() };
            self.unlogged.log(&mut self.connection, &mut self.logs, &[batch]);
        }

        /// Takes turns as long as there are any, so many at most.
        fn turns(&mut self, most: usize) {
            for _ in 0..most {
                self.unlogged.go_on(&self.connection, &mut self.logs, &|| true);
            }
            assert!(self.unlogged.is_done());
        }

        fn waiting(&self) -> usize {
            self.connection.query_row("SELECT COUNT(*) FROM unlogged", [], |row| row.get(0)).unwrap()
        }

        #[track_caller]
        fn check(&self, conversation: &str, expected: &[&str], waiting: usize) {
            let log =
                fs::read_to_string(self.dir().join(format!("{conversation}.jsonl"))).unwrap_or_default();
            assert_eq!((log.lines().collect::<Vec<_>>(), self.waiting()), (expected.to_vec(), waiting));
        }
    }

    /// A log of which another is written is caught up with, and so is one that goes on itself, in order.
    #[test]
    fn what_cannot_be_logged_is_logged_when_that_is_possible() {
        for then in [&["b1"][..], &["a3"], &["a3", "b1"]] {
            let mut bench = Bench::new();
            bench.block();
            bench.log(&["a1", "c1"]);
            bench.log(&["a2"]);
            assert_eq!(bench.waiting(), 3);
            bench.unblock();
            bench.log(then);
            bench.turns(4);
            let own: Vec<&str> =
                ["a1", "a2"].into_iter().chain(then.iter().copied().filter(|line| *line == "a3")).collect();
            bench.check("a", &own, 0);
            bench.check("c", &["c1"], 0);
            assert!(!bench.unlogged.any, "from now on nobody looks");
            bench.log(&["a4"]);
            bench.check("a", &[&own[..], &["a4"]].concat(), 0);
        }
    }

    #[test]
    fn what_waits_is_logged_after_a_restart() {
        let mut bench = Bench::new();
        bench.block();
        bench.log(&["a1", "b1"]);
        bench.restart();
        bench.turns(3);
        assert_eq!(bench.waiting(), 2, "it still cannot be logged");
        bench.unblock();
        bench.restart();
        bench.turns(3);
        bench.check("a", &["a1"], 0);
        bench.check("b", &["b1"], 0);
    }

    /// A gateway may die when it has logged what waits and has not taken it out.
    #[test]
    fn nothing_is_logged_twice() {
        let mut bench = Bench::new();
        bench.block();
        bench.log(&["a1", "a2", "a3"]);
        bench.unblock();
        bench.logs.append("a", &["a0", "a1", "a2"]).unwrap();
        bench.restart();
        bench.turns(2);
        bench.check("a", &["a0", "a1", "a2", "a3"], 0);
    }

    #[test]
    fn a_log_that_cannot_be_written_keeps_no_other() {
        let mut bench = Bench::new();
        bench.block();
        bench.log(&["a1", "b1", "c1"]);
        bench.unblock();
        fs::create_dir_all(bench.dir().join("a.jsonl")).unwrap();
        // A disk without room.
        std::os::unix::fs::symlink("/dev/full", bench.dir().join("b.jsonl")).unwrap();
        bench.log(&["d1"]);
        bench.turns(4);
        bench.check("c", &["c1"], 2);
        bench.log(&["a2"]);
        fs::remove_dir(bench.dir().join("a.jsonl")).unwrap();
        fs::remove_file(bench.dir().join("b.jsonl")).unwrap();
        bench.unlogged.begin();
        bench.turns(3);
        bench.check("a", &["a1", "a2"], 0);
        bench.check("b", &["b1"], 0);
    }

    #[test]
    fn work_is_done_in_turns() {
        let mut bench = Bench::new();
        bench.block();
        let lines: Vec<String> = (0..2 * TURN + 2).map(|n| format!("a{n}")).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        bench.log(&lines);
        bench.unblock();
        bench.restart();
        for left in [TURN + 2, 2, 0] {
            bench.unlogged.go_on(&bench.connection, &mut bench.logs, &|| true);
            assert_eq!((bench.waiting(), bench.unlogged.is_done()), (left, false));
        }
        bench.turns(1);
        bench.check("a", &lines, 0);

        // A round that fails everywhere ends, and the next one goes on behind it.
        let all: Vec<String> = ('b'..='z').map(|name| format!("{name}1")).collect();
        fs::remove_dir_all(bench.dir()).unwrap();
        bench.block();
        bench.log(&all.iter().map(String::as_str).collect::<Vec<_>>());
        bench.restart();
        bench.turns(TRIES);
        assert_eq!(bench.unlogged.after.0, "q");
        bench.unblock();
        bench.log(&["a_"]);
        bench.turns(all.len() - TRIES + 1);
        assert_eq!(bench.waiting(), TRIES);
    }
}
