//! The thread that writes.
//!
//! Batches that wait at the same time are one transaction. Full texts are written before the transaction that refers to
//! them. A failed batch is reported to whoever waits for it and does not affect others.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::file_identity::FileIdentity;
use super::health::Health;
use super::idle::forget_texts;
use super::logs::Logs;
use super::missing::Missing;
use super::outage::Outage;
use super::outputs::Outputs;
use super::promise::{Duty, Stored, promise};
use super::queue::{self, Inlet, Outlet};
use super::row::{Batch, LedgerRow, StoredDecision};
use super::schema::{self, PATIENCE};
use super::sqlite::leaves_to;
use super::sweep::{self, Sweep};
use super::underway::Underway;
use super::unlogged::Unlogged;
use super::{CommitError, StoreError, lacking, splices, uses, windows, withdrawal};
use crate::conversation::Digest;

/// The most batches in one transaction.
const GROUP: usize = 256;

struct Job {
    batch: Batch,
    /// The duty to whoever waits for it.
    duty: Option<Duty>,
}

impl Job {
    /// Whether whoever waited for it has given up, and has sent something else.
    fn is_withdrawn(&self) -> bool {
        self.duty.as_ref().is_some_and(Duty::is_withdrawn)
    }

    /// Makes sure that it can no longer be withdrawn; `false` if it was.
    fn claim(&self) -> bool {
        self.duty.as_ref().is_none_or(Duty::claim)
    }
}

/// The handle of the writing thread. Dropping it writes what is queued and ends the thread.
pub(super) struct Writer {
    jobs: Option<Inlet<Job>>,
    thread: Option<JoinHandle<()>>,
    missing: Arc<Missing>,
}

impl Writer {
    pub(super) fn start(
        connection: Connection,
        database: &Path,
        outputs: Outputs,
        logs: PathBuf,
        queue: usize,
        health: Arc<Health>,
    ) -> Result<Self, StoreError> {
        let (jobs, inbox) = queue::queue(queue);
        let database = Some(FileIdentity::of(database)?);
        let missing = Arc::new(Missing::default());
        let desk = Desk {
            inbox,
            connection,
            underway: Underway::default(),
            unlogged: Unlogged::default(),
            database,
            outputs,
            logs: Logs::new(logs),
            sweep: Sweep::default(),
            missing: Arc::clone(&missing),
            health,
            outages: Outages::default(),
            left: Vec::new(),
            patience: PATIENCE,
        };
        let thread = std::thread::Builder::new().name("plimsoll-store".into()).spawn(move || desk.run())?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread), missing })
    }

    pub(super) fn commit(&self, batch: Batch) -> Stored {
        let (duty, stored) = promise();
        self.send(Job { batch, duty: Some(duty) });
        stored
    }

    pub(super) fn later(&self, batch: Batch) -> bool {
        self.send(Job { batch, duty: None })
    }

    /// Counts a record that was dropped before it came here. The count is stored with the next batch.
    pub(super) fn lose(&self, at_ms: i64) {
        self.missing.add_records(1, at_ms);
    }

    /// The number of records that were dropped.
    pub(super) fn lost(&self) -> u64 {
        self.missing.records()
    }

    fn send(&self, job: Job) -> bool {
        let urgent = job.duty.is_some();
        let Some(jobs) = &self.jobs else { return false };
        let Err(mut job) = jobs.push(job, urgent) else { return true };
        self.missing.add(&job.batch);
        refuse(&mut job, if jobs.is_closed() { CommitError::Gone } else { CommitError::Full });
        false
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Desk {
    inbox: Outlet<Job>,
    connection: Connection,
    /// `None` once it was found to be gone.
    database: Option<FileIdentity>,
    outputs: Outputs,
    logs: Logs,
    underway: Underway,
    unlogged: Unlogged,
    sweep: Sweep,
    /// Counts dropped records: the count is stored as soon as possible.
    missing: Arc<Missing>,
    health: Arc<Health>,
    outages: Outages,
    /// Records that could not be stored before the gateway ends, since others have locked the store.
    left: Vec<LedgerRow>,
    /// How long others that have locked the store are waited for.
    patience: Duration,
}

/// What a full disk keeps from being written, each reported once and not for every request.
struct Outages {
    texts: Outage,
    batches: Outage,
    missing: Outage,
}

impl Default for Outages {
    fn default() -> Self {
        Self {
            texts: Outage::new("a full text could not be saved", "full texts are saved again"),
            batches: Outage::new("a batch could not be stored", "batches are stored again"),
            missing: Outage::new(
                "how many records are missing could not be stored",
                "how many records are missing is stored",
            ),
        }
    }
}

impl Outages {
    /// Logs that a batch was not stored. Only what cannot be dealt with is worth a warning.
    fn tell(&mut self, error: &CommitError, now: Instant) {
        match error {
            CommitError::Raced => {
                tracing::debug!("{error}: the request is planned again by what stands in the store");
            }
            _ => self.batches.begin(error, now),
        }
    }
}

impl Desk {
    fn run(mut self) {
        // A stop does not wait for what the next start can do.
        let goes_on = || !self.inbox.is_closed();
        if let Some(database) = &self.database {
            self.underway = Underway::open(database.path(), &self.connection, self.logs.dir(), &goes_on);
            self.unlogged = Unlogged::of(&self.connection);
        }
        let mut jobs = Vec::new();
        loop {
            // Removing what is too old waits while anything is queued, but not for ever.
            self.limit_wait();
            self.sweep.go_on(&mut self.connection, &self.outputs);
            let goes_on = || !self.inbox.is_closed();
            self.unlogged.go_on(&self.connection, &mut self.logs, &goes_on);
            let is_idle = self.sweep.is_done() && self.unlogged.is_done();
            if !is_idle && !self.inbox.wait(self.sweep.rest()) {
                continue;
            }
            if !self.inbox.take(&mut jobs) {
                break;
            }
            while !jobs.is_empty() {
                let group = jobs.drain(..jobs.len().min(GROUP)).collect();
                self.write(group);
            }
            self.note_missing();
            self.look_for_database();
        }
        self.note_missing();
        self.limit_wait();
        let _ = self.connection.pragma_update(None, "optimize", "");
        self.leave();
    }

    /// Limits how long others that have locked the store are waited for. Once the gateway stops, all that it still has to
    /// write shares one limit.
    fn limit_wait(&self) {
        // It cannot fail as long as the connection is open.
        let _ = self.connection.busy_timeout(wait_left(self.patience, self.inbox.closed_for()));
    }

    /// Leaves the records that could not be stored to the next start, and logs them.
    fn leave(mut self) {
        if self.left.is_empty() {
            return self.underway.close();
        }
        let is_noted = self.underway.leave(self.logs.dir(), self.left.iter());
        for rows in self.left.chunk_by(|one, next| one.conversation == next.conversation) {
            let lines: Vec<&str> = rows.iter().map(|row| &*row.line).collect();
            if let Err(cut) = self.logs.append(&rows[0].conversation, &lines) {
                let (error, conversation) = (&cut.error, &rows[0].conversation);
                tracing::warn!(%error, conversation, "records could not be logged");
            }
        }
        let records = self.left.len();
        if is_noted {
            tracing::warn!(
                records,
                "the store is locked by another process: the last records are in the logs of their conversations, and the \
                 next start stores them"
            );
        } else {
            tracing::warn!(
                records,
                "the store is locked by another process: the last records are in the logs of their conversations alone"
            );
        }
    }

    fn note_missing(&mut self) {
        self.limit_wait();
        match self.missing.write(&mut self.connection) {
            Ok(()) => self.outages.missing.end(Instant::now()),
            Err(error) => self.outages.missing.begin(&error, Instant::now()),
        }
    }

    /// SQLite continues with a file that has been removed, and nobody would notice.
    fn look_for_database(&mut self) {
        if let Some(gone) = self.database.take_if(|database| database.is_left()) {
            let path = gone.path().display();
            tracing::error!(
                "the database {path} was removed or replaced: what is decided and booked from now on is lost when the \
                 gateway stops; restart it"
            );
        }
    }

    /// One transaction for all; if it fails, one for each, so that a bad batch only affects itself.
    fn write(&mut self, mut group: Vec<Job>) {
        for job in &mut group {
            match self.save(&job.batch) {
                Ok(()) if job.batch.saves.is_empty() => {}
                Ok(()) => self.outages.texts.end(Instant::now()),
                Err(error) => {
                    self.outages.texts.begin(&error, Instant::now());
                    refuse(job, StoreError::from(error).into());
                }
            }
        }
        // A batch that decides and has no one waiting any more was refused above: nothing of it is stored.
        group.retain(|job| job.duty.is_some() || !job.batch.decides());
        self.underway.begin(self.logs.dir(), group.iter().flat_map(|job| &job.batch.ledger));
        let together = self.transaction(&group);
        let mut stored = Vec::with_capacity(group.len());
        for mut job in group {
            let done = match &together {
                Ok(()) => Ok(()),
                Err(_) => self.transaction(std::slice::from_ref(&job)),
            };
            match done {
                Ok(()) => {
                    self.outages.batches.end(Instant::now());
                    self.tell_stored(&mut job);
                    stored.push(job.batch);
                }
                Err(error) => {
                    let failure = if let CommitError::Store(error) = &error { Some(error) } else { None };
                    if let Some(failure) = failure {
                        self.health.heed(failure);
                    }
                    self.outages.tell(&error, Instant::now());
                    if self.inbox.is_closed() && failure.is_some_and(schema::is_lock) {
                        self.left.append(&mut job.batch.ledger);
                    } else {
                        self.missing.add(&job.batch);
                    }
                    refuse(&mut job, error);
                }
            }
        }
        // The database has the records: if this fails, nothing booked is lost.
        self.unlogged.log(&mut self.connection, &mut self.logs, &stored);
        self.underway.end();
        for batch in &stored {
            self.sweep.begin(batch, &self.outputs, &self.logs);
            if batch.forget_outputs.is_some() {
                self.unlogged.begin();
            }
        }
    }

    fn save(&self, batch: &Batch) -> io::Result<()> {
        batch.saves.iter().try_for_each(|save| self.outputs.save(&save.id, &save.text))
    }

    fn transaction(&mut self, jobs: &[Job]) -> Result<(), CommitError> {
        loop {
            self.limit_wait();
            let transaction =
                self.connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
            let mut put_in = Vec::with_capacity(jobs.len());
            for job in jobs {
                // Waiting for the lock may have taken long. What was saved is listed nevertheless, to be swept some
                // day.
                if job.is_withdrawn() {
                    put_outputs(&transaction, &job.batch)?;
                } else {
                    put(&transaction, &job.batch)?;
                    put_in.push(job);
                }
            }
            // If one was withdrawn while others were put in, it is left out in another try.
            if put_in.into_iter().all(Job::claim) {
                return Ok(transaction.commit()?);
            }
        }
    }

    /// If nobody hears that it is stored, it was withdrawn during the commit: it is removed again. What was withdrawn
    /// before was not put in.
    fn tell_stored(&self, job: &mut Job) {
        let Some(duty) = job.duty.take() else { return };
        let is_in = duty.claim();
        if !duty.answer(Ok(()))
            && is_in
            && let Err(error) = withdrawal::take_out(&self.connection, &job.batch)
        {
            tracing::warn!(%error, "what a request was not sent with could not be taken out of the store");
        }
    }
}

/// How long others that have locked the store are still waited for, if the queue was closed so long ago.
fn wait_left(patience: Duration, closed_for: Option<Duration>) -> Duration {
    patience.saturating_sub(closed_for.unwrap_or_default())
}

fn refuse(job: &mut Job, error: CommitError) {
    if let Some(duty) = job.duty.take() {
        duty.answer(Err(error));
    }
}

fn put(connection: &Connection, batch: &Batch) -> Result<(), CommitError> {
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
    super::summaries::put(connection, batch)?;
    uses::put(connection, batch)?;
    windows::put(connection, batch)?;
    lacking::put(connection, batch)?;
    put_outputs(connection, batch)?;
    if let Some(before) = batch.forget_ledger {
        // The rest is done in turns.
        sweep::forget_records(connection, before)?;
        connection.execute("DELETE FROM missing WHERE at_ms < ?1", [before])?;
        connection.execute("DELETE FROM unlogged WHERE at_ms < ?1", [before])?;
    }
    batch.ledger.iter().try_for_each(|row| Ok(book(connection, row)?))
}

/// Books a record once: booking the same id again updates what is known by then.
pub(super) fn book(connection: &Connection, row: &LedgerRow) -> rusqlite::Result<()> {
    let LedgerRow { id, at_ms, conversation, model, client, cost, record, .. } = row;
    connection
        .prepare_cached(
            "INSERT INTO ledger (id, at_ms, conversation, model, client, cost, record)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT (id) DO UPDATE SET model = ?4, cost = ?6, record = ?7",
        )?
        .execute(params![id, at_ms, conversation, model, client, cost, record])?;
    Ok(())
}

fn put_outputs(connection: &Connection, batch: &Batch) -> Result<(), StoreError> {
    let saved = batch.saves.iter().map(|save| &save.id);
    for id in saved.chain(&batch.touch) {
        connection
            .prepare_cached("INSERT INTO outputs (id, at_ms) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET at_ms = MAX(at_ms, ?2)")?
            .execute(params![id, batch.at_ms])?;
    }
    Ok(())
}

/// A text that is decided on again, in another history, is stored once, and is removed when all decisions that were
/// sent as it are overruled.
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
            overruled.extend(text_of(connection, stored)?);
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

/// The replacement of the existing decision that this one overrules, if there is one.
fn text_of(connection: &Connection, stored: &StoredDecision) -> rusqlite::Result<Option<Value>> {
    connection
        .prepare_cached("SELECT replacement FROM decisions WHERE chain = ?1 AND part = ?2 AND since = ?3")?
        .query_row(params![stored.chain.0.0, stored.part, stored.since.0.0], |row| row.get(0))
        .optional()
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;
    use crate::conversation::Chain;
    use crate::planner::{Cause, Decision};
    use crate::store::LedgerRow;
    use crate::store::tests::logged;

    fn desk(home: &Path) -> Desk {
        let connection = Connection::open_in_memory().unwrap();
        crate::store::schema::prepare(&connection).unwrap();
        let (outputs, logs) = (Outputs::new(home.join("outputs")), Logs::new(home.join("logs")));
        let (underway, unlogged) = (Underway::default(), Unlogged::of(&connection));
        let (sweep, missing) = (Sweep::default(), Arc::default());
        let health = Arc::new(Health::of(home));
        let (outages, left) = (Outages::default(), Vec::new());
        let (_, inbox) = queue::queue(1);
        let patience = PATIENCE;
        Desk {
            inbox,
            connection,
            database: None,
            outputs,
            logs,
            underway,
            unlogged,
            sweep,
            missing,
            health,
            outages,
            left,
            patience,
        }
    }

    fn job() -> (Job, Stored) {
        let (chain, content) = (Chain(Digest::of(&[b"m"])), Digest::of(&[b"content"]));
        let decision = Decision {
            cause: Cause::parse("truncate"),
            leaves: Vec::new(),
            content,
            key: None,
            bytes_before: 9,
            bytes_after: 1,
            output: None,
        };
        let decided =
            StoredDecision { chain, part: 0, since: chain, root: chain, decision: Arc::new(decision) };
        let (duty, stored) = promise();
        (Job { batch: Batch { decisions: vec![decided], ..Batch::default() }, duty: Some(duty) }, stored)
    }

    /// However late a batch is withdrawn, it is either known to be stored or it is not stored.
    #[test]
    fn what_is_withdrawn_is_not_stored() {
        let stored = |desk: &Desk| {
            ["decisions", "replacements"].map(|table| -> u32 {
                let count = format!("SELECT COUNT(*) FROM {table}");
                desk.connection.query_row(&count, [], |row| row.get(0)).unwrap()
            })
        };
        let home = tempfile::tempdir().unwrap();
        let mut desk = desk(home.path());
        let (mut late, promise) = job();
        desk.transaction(std::slice::from_ref(&late)).unwrap();
        drop(promise);
        assert_eq!(stored(&desk), [1, 1], "committed");
        desk.tell_stored(&mut late);
        assert_eq!(stored(&desk), [0, 0]);

        let ((early, promise), (kept, _promise)) = (job(), job());
        drop(promise);
        desk.write(vec![early, kept]);
        assert_eq!(stored(&desk), [1, 1], "the same was decided by another");

        let (mut late, promise) = job();
        let elsewhere = Chain(Digest::of(&[b"elsewhere"]));
        late.batch.decisions[0].chain = elsewhere;
        desk.transaction(std::slice::from_ref(&late)).unwrap();
        drop(promise);
        assert_eq!(stored(&desk), [2, 1], "committed");
        desk.tell_stored(&mut late);
        assert_eq!(stored(&desk), [1, 1], "what another is sent as stays");
    }

    /// What is stored is underway before that, and not any more when it is logged.
    #[test]
    fn records_are_underway_until_they_are_logged() {
        let home = tempfile::tempdir().unwrap();
        let mut desk = desk(home.path());
        let database = Connection::open_in_memory().unwrap();
        desk.underway = Underway::open(&home.path().join("db"), &database, desk.logs.dir(), &|| true);
        let found = || std::fs::read_to_string(home.path().join("db-underway-0")).unwrap();
        for (name, fails) in [("stored", false), ("not stored", true)] {
            if fails {
                let full =
                    "CREATE TRIGGER full BEFORE INSERT ON ledger BEGIN SELECT RAISE(ABORT, 'full'); END";
                desk.connection.execute_batch(full).unwrap();
            }
            let row = LedgerRow {
                id: name.into(),
                conversation: "c".into(),
                line: name.into(),
                ..LedgerRow::default()
            };
            desk.write(vec![Job { batch: Batch { ledger: vec![row], ..Batch::default() }, duty: None }]);
            assert!(found().starts_with('-') && found().contains(name), "{name}: {}", found());
        }
        assert_eq!(std::fs::read_to_string(home.path().join("logs/c.jsonl")).unwrap(), "stored\n");
    }

    /// All that is queued when the gateway stops shares one time limit. What is not stored by then is logged at once, and
    /// stored by the next start.
    #[test]
    fn a_stop_waits_once_for_a_locked_store() {
        const BATCHES: usize = 3;
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("db");
        let open = || {
            let connection = Connection::open(&path).unwrap();
            crate::store::schema::prepare(&connection).unwrap();
            connection
        };
        let (inlet, inbox) = queue::queue(BATCHES);
        let mut desk = Desk { inbox, connection: open(), ..desk(home.path()) };
        (desk.database, desk.patience) = (Some(FileIdentity::of(&path).unwrap()), Duration::from_secs(1));
        for at in 0..BATCHES {
            let id = format!("r{at:02}");
            let row = LedgerRow { conversation: "c".into(), line: id.clone(), id, ..LedgerRow::default() };
            let batch = Batch { ledger: vec![row], ..Batch::default() };
            assert!(inlet.push(Job { batch, duty: None }, false).is_ok());
        }
        drop(inlet);
        let other = open();
        other.execute_batch("BEGIN EXCLUSIVE").unwrap();
        let told = logged(Level::WARN, || desk.run());
        assert!(told.contains("the next start stores them records=3"), "{told}");
        let log = || std::fs::read_to_string(home.path().join("logs/c.jsonl")).unwrap();
        let (before, lines) = (log(), log().lines().count());
        assert_eq!(lines, BATCHES);
        other.execute_batch("ROLLBACK").unwrap();
        let stored =
            || -> usize { other.query_row("SELECT COUNT(*) FROM ledger", [], |row| row.get(0)).unwrap() };
        assert_eq!(stored(), 0);
        let logs = Logs::new(home.path().join("logs"));
        Underway::open(&path, &open(), logs.dir(), &|| true).close();
        assert_eq!((stored(), log()), (BATCHES, before));
        assert!(next_unlogged(&other).is_none(), "nothing is logged twice");
    }

    #[test]
    fn what_is_written_after_the_end_shares_one_wait() {
        let seconds = Duration::from_secs;
        for (closed_for, expected) in [(None, 10), (Some(0), 10), (Some(4), 6), (Some(10), 0), (Some(99), 0)]
        {
            assert_eq!(wait_left(seconds(10), closed_for.map(seconds)), seconds(expected), "{closed_for:?}");
        }
    }

    fn next_unlogged(connection: &Connection) -> Option<String> {
        connection.query_row("SELECT id FROM unlogged", [], |row| row.get(0)).optional().unwrap()
    }

    #[test]
    fn who_comes_second_is_no_warning() {
        for (error, level, expected) in [
            (CommitError::Raced, Level::INFO, ""),
            (
                CommitError::Raced,
                Level::DEBUG,
                "another gateway on the same store was first: the request is planned again by what stands in the store",
            ),
            (CommitError::Full, Level::WARN, "a batch could not be stored"),
        ] {
            let log = logged(level, || Outages::default().tell(&error, Instant::now()));
            assert!(log.contains(expected) && log.is_empty() == expected.is_empty(), "{level}: {log}");
        }
    }
}
