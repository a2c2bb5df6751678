//! Records that are in the ledger, but not yet in the logs of their conversations.
//!
//! If a log cannot be written, because its folder is read-only or the disk is full, the record's line is put into a
//! table of the database. It is moved from there to the log as soon as that can be written: in order, each line once, a
//! few at a time. Until then, newer records of its conversation are put into the table too.
//!
//! The work is done in rounds of turns. A turn logs some lines of one conversation. A round goes through all
//! conversations with waiting lines, and gives up after some that cannot be logged. As long as rounds leave lines
//! waiting, ever more records are logged between them, so that logs that stay unwritable cost little. If no more than
//! [`TRIES`] of them do, one that becomes writable is caught up with after about as many records as were logged while
//! it was not; otherwise it takes several rounds.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};

use super::logs::Logs;
use super::{Batch, LedgerRow, StoreError, schema};

/// The most lines that one turn logs.
const LINES_PER_TURN: usize = 64;
/// The number of consecutive conversations that cannot be logged after which a round gives up. The next round continues
/// after them.
const TRIES: usize = 16;
/// The most appends between two rounds.
const MAX_PAUSE: u32 = 1024;

/// Where a round is: after a conversation, or still at it. The default is before all conversations.
#[derive(Default)]
struct Position {
    conversation: String,
    /// Whether more lines of the conversation may wait.
    has_more: bool,
}

/// The progress of logging what waits. The default is that nothing waits.
#[derive(Default)]
pub(super) struct Unlogged {
    /// Whether the table may have lines.
    may_have_lines: bool,
    /// Whether the last attempt to log something failed.
    down: bool,
    /// The number of further consecutive failures after which the round gives up; `None` between rounds.
    tries: Option<usize>,
    /// The number of appends that must succeed before the next round. Each round that leaves lines waiting doubles it.
    pause: u32,
    /// The number of appends that have succeeded since the last round.
    appends: u32,
    position: Position,
}

impl Unlogged {
    /// Begins a round if an earlier process has left lines in the table.
    pub(super) fn of(connection: &Connection) -> Self {
        // If the table cannot be read, it may have some.
        let may_have_lines = next(connection, &Position::default()).map_or(true, |first| first.is_some());
        let tries = may_have_lines.then_some(TRIES);
        Self { may_have_lines, down: may_have_lines, tries, ..Self::default() }
    }

    /// Whether no round is in progress, so that there is no turn to take.
    pub(super) fn is_done(&self) -> bool {
        self.tries.is_none()
    }

    /// Begins a round if the table may have lines and no round is in progress.
    pub(super) fn begin(&mut self) {
        if self.may_have_lines {
            self.tries.get_or_insert(TRIES);
        }
    }

    /// Appends the records of stored batches to the logs of their conversations, all of a conversation at once. Returns
    /// those that can neither be appended nor put into the table at present, because the disk is full for instance.
    pub(super) fn log(
        &mut self,
        connection: &mut Connection,
        logs: &mut Logs,
        stored: &[Batch],
    ) -> Vec<LedgerRow> {
        let mut left = Vec::new();
        let mut rows: BTreeMap<&str, Vec<&LedgerRow>> = BTreeMap::new();
        for row in stored.iter().flat_map(|batch| &batch.ledger) {
            rows.entry(&row.conversation).or_default().push(row);
        }
        for (conversation, rows) in rows {
            let mut logged = 0;
            match self.log_rows(connection, logs, conversation, &rows, &mut logged) {
                Ok(()) => {}
                Err(error) if schema::is_unwritable(&error) => {
                    tracing::debug!(%error, conversation, "records can neither be logged nor wait in the database");
                    left.extend(rows[logged..].iter().map(|row| (*row).clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, conversation, "records could not be logged, and are only in the database");
                }
            }
        }
        left
    }

    /// Appends records to the log of their conversation. Those that cannot be appended, or that must follow waiting
    /// ones, are put into the table. Counts in `logged` those that were appended.
    fn log_rows(
        &mut self,
        connection: &mut Connection,
        logs: &mut Logs,
        conversation: &str,
        rows: &[&LedgerRow],
        logged: &mut usize,
    ) -> Result<(), StoreError> {
        if self.may_have_lines && has_waiting(connection, conversation)? {
            keep(connection, rows)?;
            if log_waiting(connection, logs, conversation, &|| true).is_ok() {
                self.succeeded();
            }
            return Ok(());
        }
        let lines: Vec<&str> = rows.iter().map(|row| &*row.line).collect();
        match logs.append(conversation, &lines) {
            Ok(()) => {
                self.succeeded();
                Ok(())
            }
            Err(cut) => {
                if !self.down {
                    tracing::warn!(
                        error = %format_args!("{}: {}", logs.dir().display(), cut.error),
                        conversation,
                        "records cannot be logged: they are in the store, and will be logged when that is possible"
                    );
                }
                (self.may_have_lines, self.down) = (true, true);
                *logged = cut.whole;
                keep(connection, &rows[cut.whole..])
            }
        }
    }

    /// Records that something could be logged. A round begins if that had failed before, or if the pause since the last
    /// round is over.
    fn succeeded(&mut self) {
        self.appends = self.appends.saturating_add(1);
        if std::mem::take(&mut self.down) || self.appends >= self.pause {
            self.begin();
        }
    }

    /// Ends a round.
    fn end(&mut self) {
        self.tries = None;
        self.appends = 0;
        self.pause = if self.may_have_lines { (self.pause * 2).clamp(1, MAX_PAUSE) } else { 0 };
    }

    /// Takes a turn if a round is in progress. Waits for others that have locked the database, as long as `may_wait`.
    pub(super) fn take_turn(
        &mut self,
        connection: &Connection,
        logs: &mut Logs,
        may_wait: &dyn Fn() -> bool,
    ) {
        let Some(tries) = self.tries else { return };
        match self.log_next(connection, logs, may_wait) {
            Ok(true) => self.tries = Some(TRIES),
            Ok(false) => self.end(),
            Err(error) => {
                let conversation = &self.position.conversation;
                tracing::debug!(%error, conversation, "records cannot be logged yet");
                match tries - 1 {
                    0 => self.end(),
                    left => self.tries = Some(left),
                }
            }
        }
    }

    /// Logs some lines of the next conversation. Returns whether there may be more in this round.
    fn log_next(
        &mut self,
        connection: &Connection,
        logs: &mut Logs,
        may_wait: &dyn Fn() -> bool,
    ) -> Result<bool, StoreError> {
        let Some(conversation) = next(connection, &self.position)? else {
            self.position = Position::default();
            self.may_have_lines = next(connection, &self.position)?.is_some();
            return Ok(false);
        };
        // If this fails, the round continues with the next conversation.
        self.position = Position { conversation, has_more: false };
        self.position.has_more = log_waiting(connection, logs, &self.position.conversation, may_wait)?;
        Ok(true)
    }
}

/// The next conversation with waiting lines.
fn next(connection: &Connection, position: &Position) -> rusqlite::Result<Option<String>> {
    connection
        .prepare_cached(
            "SELECT conversation FROM unlogged WHERE conversation > ?1 OR (?2 AND conversation = ?1)
             ORDER BY conversation LIMIT 1",
        )?
        .query_row(params![position.conversation, position.has_more], |row| row.get(0))
        .optional()
}

/// Whether lines of a conversation wait.
fn has_waiting(connection: &Connection, conversation: &str) -> rusqlite::Result<bool> {
    connection.prepare_cached("SELECT 1 FROM unlogged WHERE conversation = ?1")?.exists([conversation])
}

/// Puts the lines of records into the table, in a transaction of its own.
fn keep(connection: &mut Connection, rows: &[&LedgerRow]) -> Result<(), StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    put(&transaction, rows.iter().copied())?;
    Ok(transaction.commit()?)
}

/// Puts the lines of records into the table.
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

/// Moves the first waiting lines of a conversation to its log. Returns whether more may wait. The transaction keeps
/// other gateways from logging the same lines. A line that is in the log already is not appended again: a gateway may
/// have been killed after it had logged it and before it removed it from the table.
fn log_waiting(
    connection: &Connection,
    logs: &mut Logs,
    conversation: &str,
    may_wait: &dyn Fn() -> bool,
) -> Result<bool, StoreError> {
    let transaction = schema::begin_while(connection, may_wait)?;
    let waiting: Vec<(i64, String)> = transaction
        .prepare_cached("SELECT rowid, line FROM unlogged WHERE conversation = ?1 ORDER BY rowid LIMIT ?2")?
        .query_map(params![conversation, LINES_PER_TURN as u64], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    let lines: Vec<&str> = waiting.iter().map(|(_, line)| &**line).collect();
    let appended = logs.append_missing(conversation, &lines);
    let whole = appended.as_ref().map_or_else(|cut| cut.whole, |()| lines.len());
    for (rowid, _) in &waiting[..whole] {
        transaction.prepare_cached("DELETE FROM unlogged WHERE rowid = ?1")?.execute([rowid])?;
    }
    transaction.commit()?;
    match appended {
        Ok(()) => Ok(waiting.len() == LINES_PER_TURN),
        Err(cut) => Err(cut.error.into()),
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

        /// Takes turns as long as there are any, `most` at most.
        fn turns(&mut self, most: usize) {
            for _ in 0..most {
                self.unlogged.take_turn(&self.connection, &mut self.logs, &|| true);
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

    #[test]
    fn records_that_cannot_be_logged_are_reported_with_their_path() {
        let mut bench = Bench::new();
        bench.block();
        let log = crate::store::tests::logged(tracing::Level::WARN, || bench.log(&["a1"]));
        let says = format!(
            "they are in the store, and will be logged when that is possible error={}: ",
            bench.dir().display()
        );
        assert!(log.contains(&says), "{log}");
    }

    /// A log catches up when another one is written, and on its own, in order.
    #[test]
    fn unlogged_records_are_logged_in_order_once_possible() {
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
            assert!(!bench.unlogged.may_have_lines, "from now on nobody looks");
            bench.log(&["a4"]);
            bench.check("a", &[&own[..], &["a4"]].concat(), 0);
        }
    }

    #[test]
    fn waiting_records_are_logged_after_a_restart() {
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

    /// A gateway may die after it has logged what waits and before it has taken it out.
    #[test]
    fn records_logged_before_a_crash_are_not_logged_twice() {
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
    fn an_unwritable_log_does_not_delay_others() {
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

    /// Rounds are repeated while other logs can be written: rarely if a log stays unwritable, and soon enough if it
    /// does not.
    #[test]
    fn a_round_that_left_lines_is_repeated_after_further_appends() {
        for (appends, rounds) in [(1, 1), (10, 4), (100, 7), (1000, 10)] {
            let mut bench = Bench::new();
            let in_the_way = bench.dir().join("a.jsonl");
            fs::create_dir_all(&in_the_way).unwrap();
            bench.log(&["a1"]);
            let round = |bench: &mut Bench, line: usize| {
                bench.log(&[&format!("b{line}")]);
                let begun = !bench.unlogged.is_done();
                bench.turns(2 * usize::from(begun));
                usize::from(begun)
            };
            let begun: usize = (0..appends).map(|line| round(&mut bench, line)).sum();
            assert_eq!((begun, bench.waiting()), (rounds, 1), "{appends} appends");
            fs::remove_dir(in_the_way).unwrap();
            let until = (0..=appends).find(|line| round(&mut bench, appends + line) > 0);
            assert!(until.is_some(), "{appends} appends");
            bench.check("a", &["a1"], 0);
        }
    }

    #[test]
    fn waiting_records_are_logged_in_bounded_turns() {
        let mut bench = Bench::new();
        bench.block();
        let lines: Vec<String> = (0..2 * LINES_PER_TURN + 2).map(|n| format!("a{n}")).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        bench.log(&lines);
        bench.unblock();
        bench.restart();
        for left in [LINES_PER_TURN + 2, 2, 0] {
            bench.unlogged.take_turn(&bench.connection, &mut bench.logs, &|| true);
            assert_eq!((bench.waiting(), bench.unlogged.is_done()), (left, false));
        }
        bench.turns(1);
        bench.check("a", &lines, 0);

        // A round that fails everywhere ends, and the next one goes on where it ended.
        let all: Vec<String> = ('b'..='z').map(|name| format!("{name}1")).collect();
        fs::remove_dir_all(bench.dir()).unwrap();
        bench.block();
        bench.log(&all.iter().map(String::as_str).collect::<Vec<_>>());
        bench.restart();
        bench.turns(TRIES);
        assert_eq!(bench.unlogged.position.conversation, "q");
        bench.unblock();
        bench.log(&["a_"]);
        bench.turns(all.len() - TRIES + 1);
        assert_eq!(bench.waiting(), TRIES);
    }
}
