//! The thread that writes.
//!
//! Batches that wait at the same time are committed in one transaction. Full texts are written before the transaction
//! that refers to them. A batch that fails is reported to whoever waits for it, and does not affect the others. Between
//! two groups of batches the thread removes what is too old ([`Sweep`]) and logs what waits to be logged
//! ([`Unlogged`]), one turn of each at a time.
//!
//! While others have locked the store, or the disk is full, records are kept in memory ([`Backlog`]), and tried again
//! before newer ones.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::{Connection, TransactionBehavior};

use super::backlog::{Backlog, RETRY_AFTER, log_last, tell_of_last};
use super::file_identity::FileIdentity;
use super::health::Health;
use super::logs::Logs;
use super::missing::Missing;
use super::outage::Outage;
use super::outputs::Outputs;
use super::promise::{Duty, Stored, promise};
use super::queue::{self, Inlet, Outlet};
use super::row::{Batch, LedgerRow};
use super::schema::{self, PATIENCE};
use super::sweep::Sweep;
use super::underway::Underway;
use super::unlogged::Unlogged;
use super::{CommitError, StoreError, tables, withdrawal};

/// The most batches in one transaction.
const MAX_GROUP: usize = 256;

/// A batch to store.
struct Job {
    batch: Batch,
    /// Reports the outcome; `None` if nobody waits for it, or if it was reported.
    duty: Option<Duty>,
}

impl Job {
    /// The job to store a record for which nobody waits. In a batch of its own, it affects no other if it fails.
    fn of_row(row: LedgerRow) -> Self {
        Self { batch: Batch { at_ms: row.at_ms, ledger: vec![row], ..Batch::default() }, duty: None }
    }

    /// Whether nothing is left to store, and nobody waits for it.
    fn is_done(&self) -> bool {
        let Self { batch, duty } = self;
        duty.is_none() && *batch == Batch { at_ms: batch.at_ms, ..Batch::default() }
    }

    /// Whether whoever waited for the batch has given up, and has sent the request without it.
    fn is_withdrawn(&self) -> bool {
        self.duty.as_ref().is_some_and(Duty::is_withdrawn)
    }

    /// Ensures that the batch can no longer be withdrawn. Returns `false` if it was withdrawn before.
    fn claim(&self) -> bool {
        self.duty.as_ref().is_none_or(Duty::claim)
    }

    /// Reports that the batch is not stored.
    fn refuse(&mut self, error: CommitError) {
        if let Some(duty) = self.duty.take() {
            duty.answer(Err(error));
        }
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
        let worker = Worker {
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
            backlog: Backlog::of(queue),
            patience: PATIENCE,
        };
        let thread = std::thread::Builder::new().name("plimsoll-store".into()).spawn(move || worker.run())?;
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

    /// Counts a record that was dropped before it was in a batch. The count is stored with the next batch.
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
        job.refuse(if jobs.is_closed() { CommitError::Gone } else { CommitError::Full });
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

/// The state of the writing thread.
struct Worker {
    inbox: Outlet<Job>,
    connection: Connection,
    /// `None` once the file was found to be gone.
    database: Option<FileIdentity>,
    outputs: Outputs,
    logs: Logs,
    underway: Underway,
    unlogged: Unlogged,
    sweep: Sweep,
    /// Dropped records; their number is stored as soon as possible.
    missing: Arc<Missing>,
    health: Arc<Health>,
    outages: Outages,
    backlog: Backlog,
    /// How long to wait for others that have locked the store.
    patience: Duration,
}

/// The writes that a full disk prevents. An outage is logged when it begins, and not for every request.
struct Outages {
    texts: Outage,
    batches: Outage,
    missing: Outage,
}

impl Default for Outages {
    fn default() -> Self {
        Self {
            texts: Outage::new(
                "a full text could not be saved: what would be cut is sent whole until that is possible",
                "full texts are saved again",
            ),
            batches: Outage::new("a batch could not be stored", "batches are stored again"),
            missing: Outage::new(
                "how many records are missing could not be stored",
                "how many records are missing is stored",
            ),
        }
    }
}

impl Outages {
    /// Logs that a batch was not stored. A lost race is no outage: the request is planned again.
    fn tell_of_batch(&mut self, error: &CommitError, now: Instant) {
        match error {
            CommitError::Raced => {
                tracing::debug!("{error}: the request is planned again by what stands in the store");
            }
            _ => self.batches.begin(error, now),
        }
    }
}

impl Worker {
    fn run(mut self) {
        if let Some(database) = &self.database {
            // A stop does not wait for what the next start can do.
            let may_wait = || !self.inbox.is_closed();
            self.underway = Underway::open(database.path(), &self.connection, self.logs.dir(), &may_wait);
            self.unlogged = Unlogged::of(&self.connection);
        }
        let mut jobs = Vec::new();
        loop {
            // One turn before each look at the queue: queued jobs wait for no more than that, and the turns go on even
            // if there are always more jobs.
            self.take_turns();
            let is_idle = self.sweep.is_done() && self.unlogged.is_done() && self.backlog.is_empty();
            if !is_idle && !self.inbox.wait(self.pause()) {
                self.write_backlog();
                continue;
            }
            if !self.inbox.take(&mut jobs) {
                break;
            }
            while !jobs.is_empty() {
                let group = jobs.drain(..jobs.len().min(MAX_GROUP)).collect();
                self.write(group);
            }
            self.store_missing();
            self.look_for_database();
        }
        self.backlog.retry_now();
        self.write_backlog();
        self.store_missing();
        self.limit_wait();
        let _ = self.connection.pragma_update(None, "optimize", "");
        self.finish();
    }

    /// How long to wait for jobs before the next turn.
    fn pause(&self) -> Duration {
        if self.backlog.is_empty() { self.sweep.pause() } else { RETRY_AFTER }
    }

    /// Takes a turn at removing what is too old, and one at logging what waits to be logged.
    fn take_turns(&mut self) {
        self.limit_wait();
        self.sweep.take_turn(&mut self.connection, &self.outputs);
        let may_wait = || !self.inbox.is_closed();
        self.unlogged.take_turn(&self.connection, &mut self.logs, &may_wait);
    }

    /// Sets how long the connection waits for others that have locked the store. Once the gateway stops, everything
    /// that it still has to write shares one limit.
    fn limit_wait(&self) {
        self.limit_wait_to(self.patience);
    }

    /// How long to wait for others that have locked the store: shorter once that has failed.
    fn patience(&self) -> Duration {
        if self.backlog.is_empty() { self.patience } else { self.patience.min(RETRY_AFTER) }
    }

    fn limit_wait_to(&self, patience: Duration) {
        // It cannot fail as long as the connection is open.
        let _ = self.connection.busy_timeout(wait_left(patience, self.inbox.closed_for()));
    }

    /// Ends the thread's work. Records that could not be stored are noted for the next start, and logged.
    fn finish(mut self) {
        let rows = self.backlog.take_all();
        if rows.is_empty() {
            self.underway.close();
        } else {
            let is_noted = self.underway.leave(self.logs.dir(), rows.iter());
            let logged = log_last(&mut self.logs, &rows);
            tell_of_last(rows.len(), logged, is_noted);
            if !is_noted {
                self.missing.add_records(rows.len() as u64, rows[0].at_ms);
            }
        }
        if self.missing.write(&mut self.connection).is_err() {
            tracing::error!(
                records = self.missing.unstored(),
                "records are missing from the books, and their number cannot be stored"
            );
        }
    }

    /// Stores the number of dropped records.
    fn store_missing(&mut self) {
        self.limit_wait();
        match self.missing.write(&mut self.connection) {
            Ok(()) => self.outages.missing.end(Instant::now()),
            Err(error) => self.outages.missing.begin(&error, Instant::now()),
        }
    }

    /// Logs an error if the database file was removed or replaced: SQLite continues with the old file without an error.
    fn look_for_database(&mut self) {
        if let Some(gone) = self.database.take_if(|database| database.is_left()) {
            let path = gone.path().display();
            tracing::error!(
                "the database {path} was removed or replaced: what is decided and booked from now on is lost when the \
                 gateway stops; restart it"
            );
        }
    }

    /// Stores the records in memory, some at a time, if there are any and it is time. Ends at the first that cannot be
    /// stored.
    fn write_backlog(&mut self) {
        let database = self.database.as_ref().filter(|_| !self.inbox.is_closed()).map(FileIdentity::path);
        if !self.backlog.is_due(database, Instant::now()) {
            return;
        }
        while let Some((first, others)) = self.backlog.split() {
            self.write_jobs(first.into_iter().map(Job::of_row).collect());
            let is_stored = self.backlog.is_empty();
            self.backlog.put_behind(others);
            if !is_stored {
                break;
            }
        }
        self.store_missing();
    }

    /// Stores a group of jobs, after the records in memory, and logs their records.
    fn write(&mut self, mut group: Vec<Job>) {
        self.write_backlog();
        if !self.backlog.is_empty() {
            for job in &mut group {
                self.postpone(std::mem::take(&mut job.batch.ledger));
            }
            group.retain(|job| !job.is_done());
        }
        if !group.is_empty() {
            self.write_jobs(group);
        }
    }

    /// Stores a group of jobs, and logs their records.
    fn write_jobs(&mut self, mut group: Vec<Job>) {
        self.save_texts(&mut group);
        // A batch that decides, but whose full text could not be saved, was refused: nothing of it is stored.
        group.retain(|job| job.duty.is_some() || !job.batch.decides());
        let is_noted = self.underway.note(self.logs.dir(), group.iter().flat_map(|job| &job.batch.ledger));
        let stored = self.store(group);
        let unlogged = self.unlogged.log(&mut self.connection, &mut self.logs, &stored);
        if !unlogged.is_empty() {
            self.backlog.put_before(unlogged);
            self.backlog.defer(Instant::now());
        } else if is_noted {
            self.underway.cross_out();
        }
        for batch in &stored {
            self.sweep.begin(batch, &self.outputs, &self.logs);
            if batch.forget_outputs.is_some() {
                self.unlogged.begin();
            }
        }
    }

    /// Saves the full texts of the jobs' batches, and refuses the jobs for which that fails.
    fn save_texts(&mut self, group: &mut [Job]) {
        for job in group {
            let mut saves = job.batch.saves.iter();
            match saves.try_for_each(|save| self.outputs.save(&save.id, &save.text)) {
                Ok(()) if job.batch.saves.is_empty() => {}
                Ok(()) => self.outages.texts.end(Instant::now()),
                Err(error) => {
                    let dir = self.outputs.dir().display();
                    self.outages.texts.begin(&format_args!("{dir}: {error}"), Instant::now());
                    job.refuse(StoreError::from(error).into());
                }
            }
        }
    }

    /// Commits the jobs in one transaction, or else each in one of its own. Reports the outcomes, and returns the
    /// batches that were stored.
    fn store(&mut self, group: Vec<Job>) -> Vec<Batch> {
        match self.commit(&group, self.patience()) {
            Ok(()) => group.into_iter().map(|job| self.stored(job)).collect(),
            Err(error) => self.store_singly(group, &error),
        }
    }

    /// Commits each job in a transaction of its own after `together`, the error of all in one, so that a bad batch
    /// affects only itself. Records are not tried again if the store as a whole could not be written: that would fill a
    /// disk to its last page, and leave none for decisions and for the logs.
    fn store_singly(&mut self, group: Vec<Job>, together: &CommitError) -> Vec<Batch> {
        let postpones = is_unwritable(together);
        if postpones {
            self.outages.tell_of_batch(together, Instant::now());
            self.backlog.defer(Instant::now());
        }
        // A lock on the store is waited for only once.
        let patience = if is_lock(together) { Duration::ZERO } else { self.patience() };
        let mut stored = Vec::with_capacity(group.len());
        for mut job in group {
            if postpones || !self.backlog.is_empty() {
                self.postpone(std::mem::take(&mut job.batch.ledger));
                if job.is_done() {
                    continue;
                }
            }
            match self.commit(std::slice::from_ref(&job), patience) {
                Ok(()) => stored.push(self.stored(job)),
                Err(error) => self.report_failed(job, error),
            }
        }
        stored
    }

    /// Reports that a job is stored, and returns its batch.
    fn stored(&mut self, mut job: Job) -> Batch {
        self.outages.batches.end(Instant::now());
        self.report_stored(&mut job);
        job.batch
    }

    /// Commits the jobs that are not withdrawn in one transaction. Waits up to `patience` for others that have locked
    /// the store.
    fn commit(&mut self, jobs: &[Job], patience: Duration) -> Result<(), CommitError> {
        loop {
            self.limit_wait_to(patience);
            let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let (mut put_in, mut booking) = (Vec::with_capacity(jobs.len()), tables::booking(&transaction)?);
            for job in jobs {
                // The job may have been withdrawn while this waited for the lock. Its full texts are saved already:
                // they are listed all the same, so that the sweep removes them some day.
                if job.is_withdrawn() {
                    tables::put_outputs(&transaction, &job.batch)?;
                } else {
                    tables::put(&transaction, &mut booking, &job.batch)?;
                    put_in.push(job);
                }
            }
            drop(booking);
            // If a job was withdrawn after it was put in, this is tried again without it.
            if put_in.into_iter().all(Job::claim) {
                return Ok(transaction.commit()?);
            }
        }
    }

    /// Reports that a job is stored. If nobody receives that, the job was withdrawn: during the commit, then its
    /// decisions are removed again; or before, then they were not put in.
    fn report_stored(&self, job: &mut Job) {
        let Some(duty) = job.duty.take() else { return };
        let is_in = duty.claim();
        if !duty.answer(Ok(()))
            && is_in
            && let Err(error) = withdrawal::take_out(&self.connection, &job.batch)
        {
            tracing::warn!(%error, "what a request was not sent with could not be taken out of the store");
        }
    }

    /// Reports that a job could not be stored. Its records are tried again if the store as a whole could not be
    /// written, and otherwise count as missing.
    fn report_failed(&mut self, mut job: Job, error: CommitError) {
        self.outages.tell_of_batch(&error, Instant::now());
        if let CommitError::Store(error) = &error {
            self.health.note_damage(error);
        }
        if is_unwritable(&error) {
            self.backlog.defer(Instant::now());
            self.postpone(std::mem::take(&mut job.batch.ledger));
        } else {
            self.missing.add(&job.batch);
        }
        job.refuse(error);
    }

    /// Keeps records in memory until the store can be written. Those for which there is no room count as missing.
    fn postpone(&mut self, rows: Vec<LedgerRow>) {
        for row in self.backlog.add(rows) {
            self.missing.add_records(1, row.at_ms);
        }
    }
}

fn is_unwritable(error: &CommitError) -> bool {
    matches!(error, CommitError::Store(error) if schema::is_unwritable(error))
}

fn is_lock(error: &CommitError) -> bool {
    matches!(error, CommitError::Store(StoreError::Database(error)) if schema::is_locked(error))
}

/// How much of `patience` is left to wait for others that have locked the store, if the queue was closed so long ago.
fn wait_left(patience: Duration, closed_for: Option<Duration>) -> Duration {
    patience.saturating_sub(closed_for.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use rusqlite::OptionalExtension as _;
    use tracing::Level;

    use super::*;
    use crate::conversation::{Chain, Digest};
    use crate::planner::{Cause, Decision, Save};
    use crate::store::tests::logged;
    use crate::store::{LedgerRow, StoredDecision};

    fn worker(home: &Path) -> Worker {
        let connection = Connection::open_in_memory().unwrap();
        crate::store::schema::prepare(&connection).unwrap();
        let (outputs, logs) = (Outputs::new(home.join("outputs")), Logs::new(home.join("logs")));
        let (underway, unlogged) = (Underway::default(), Unlogged::of(&connection));
        let (sweep, missing) = (Sweep::default(), Arc::default());
        let health = Arc::new(Health::of(home));
        let (outages, backlog) = (Outages::default(), Backlog::of(16));
        let (_, inbox) = queue::queue(1);
        let patience = PATIENCE;
        Worker {
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
            backlog,
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

    /// If nothing can be written, nothing is claimed to be in the logs.
    #[test]
    fn last_records_that_cannot_be_logged_are_said_to_be_lost() {
        for (is_lost, says) in [
            (
                false,
                "WARN plimsoll::store::backlog: the store cannot be written: the last records are only in the logs",
            ),
            (
                true,
                "ERROR plimsoll::store::backlog: neither the store nor all logs of conversations can be written",
            ),
        ] {
            let home = tempfile::tempdir().unwrap();
            if is_lost {
                std::fs::write(home.path().join("logs"), "").unwrap();
            }
            let mut worker = worker(home.path());
            worker.backlog.add(vec![LedgerRow { id: "1".to_owned(), ..LedgerRow::default() }]);
            let log = logged(Level::WARN, || worker.finish());
            assert!(log.contains(says), "{is_lost}: {log}");
        }
    }

    /// A reader of the warning needs to know where the text should be, and what follows from its absence.
    #[test]
    fn a_text_that_cannot_be_saved_is_reported_with_its_path() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("outputs"), "").unwrap();
        let mut worker = worker(home.path());
        let save = Save { id: "0123456789abcdef0123456789abcdef".to_owned(), text: "full".to_owned() };
        let (mut job, _stored) = job();
        job.batch.saves.push(save);
        let log = logged(Level::WARN, || worker.save_texts(&mut [job]));
        let says = format!("is sent whole until that is possible error={}/outputs: ", home.path().display());
        assert!(log.contains(&says), "{log}");
    }

    /// However late a batch is withdrawn, it is either known to be stored or it is not stored.
    #[test]
    fn a_batch_withdrawn_at_any_time_is_not_stored() {
        let stored = |worker: &Worker| {
            ["decisions", "replacements"].map(|table| -> u32 {
                let count = format!("SELECT COUNT(*) FROM {table}");
                worker.connection.query_row(&count, [], |row| row.get(0)).unwrap()
            })
        };
        let home = tempfile::tempdir().unwrap();
        let mut worker = worker(home.path());
        let (mut late, promise) = job();
        worker.commit(std::slice::from_ref(&late), PATIENCE).unwrap();
        drop(promise);
        assert_eq!(stored(&worker), [1, 1], "committed");
        worker.report_stored(&mut late);
        assert_eq!(stored(&worker), [0, 0]);

        let ((early, promise), (kept, _promise)) = (job(), job());
        drop(promise);
        worker.write(vec![early, kept]);
        assert_eq!(stored(&worker), [1, 1], "the same was decided by another");

        let (mut late, promise) = job();
        let elsewhere = Chain(Digest::of(&[b"elsewhere"]));
        late.batch.decisions[0].chain = elsewhere;
        worker.commit(std::slice::from_ref(&late), PATIENCE).unwrap();
        drop(promise);
        assert_eq!(stored(&worker), [2, 1], "committed");
        worker.report_stored(&mut late);
        assert_eq!(stored(&worker), [1, 1], "what another is sent as stays");
    }

    /// A record is underway before it is stored, and no longer once it is logged.
    #[test]
    fn records_are_underway_until_they_are_logged() {
        let home = tempfile::tempdir().unwrap();
        let mut worker = worker(home.path());
        let database = Connection::open_in_memory().unwrap();
        worker.underway = Underway::open(&home.path().join("db"), &database, worker.logs.dir(), &|| true);
        let found = || std::fs::read_to_string(home.path().join("db-underway-0")).unwrap();
        for (name, fails) in [("stored", false), ("not stored", true)] {
            if fails {
                let full =
                    "CREATE TRIGGER full BEFORE INSERT ON ledger BEGIN SELECT RAISE(ABORT, 'full'); END";
                worker.connection.execute_batch(full).unwrap();
            }
            let row = LedgerRow {
                id: name.into(),
                conversation: "c".into(),
                line: name.into(),
                ..LedgerRow::default()
            };
            worker.write(vec![Job { batch: Batch { ledger: vec![row], ..Batch::default() }, duty: None }]);
            assert!(found().starts_with('-') && found().contains(name), "{name}: {}", found());
        }
        assert_eq!(std::fs::read_to_string(home.path().join("logs/c.jsonl")).unwrap(), "stored\n");
    }

    fn row(id: &str, text: &str) -> LedgerRow {
        let (record, line) = (text.to_owned(), text.to_owned());
        LedgerRow { id: id.into(), conversation: "c".into(), record, line, ..LedgerRow::default() }
    }

    fn open(path: &Path) -> Connection {
        let connection = Connection::open(path).unwrap();
        crate::store::schema::prepare(&connection).unwrap();
        connection
    }

    /// Lets the database grow by this many pages, as on a disk that is nearly full.
    fn limit_growth(connection: &Connection, pages: u32) {
        let now: u32 = connection.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
        connection.query_row(&format!("PRAGMA max_page_count = {}", now + pages), [], |_| Ok(())).unwrap();
    }

    /// Records are stored when there is room again, in order. Those for which there is no room in memory are counted.
    #[test]
    fn records_outlast_a_full_disk() {
        let long = "x".repeat(10_000);
        for (records, expected, missing) in
            [(&["a1", "b1", "a2"][..], &["a2", "b1"][..], 0), (&["a1", "b1", "c1"], &["a1", "b1"], 1)]
        {
            let home = tempfile::tempdir().unwrap();
            let path = home.path().join("db");
            let open = || open(&path);
            let mut worker = Worker { connection: open(), ..worker(home.path()) };
            worker.backlog = Backlog::of(if missing > 0 { 2 } else { 9 });
            worker.underway = Underway::open(&path, &worker.connection, worker.logs.dir(), &|| true);
            limit_growth(&worker.connection, 0);
            let (first, others) = records.split_first().unwrap();
            let job = |record: &&str| Job::of_row(row(&record[..1], &format!("{record} {long}")));
            worker.write(vec![job(first)]);
            // It is not time to try the first one again.
            for record in others {
                worker.write(vec![job(record)]);
            }
            assert_eq!(worker.missing.records(), missing);
            worker.backlog.retry_now();
            worker.write_backlog();
            assert_eq!(worker.backlog.len(), records.len() - missing as usize);

            limit_growth(&worker.connection, 9_999);
            worker.backlog.retry_now();
            worker.write_backlog();
            assert!(worker.backlog.is_empty());
            let mut stored =
                worker.connection.prepare("SELECT substr(record, 1, 2) FROM ledger ORDER BY id").unwrap();
            let stored: Vec<String> =
                stored.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
            assert_eq!(stored, expected, "{records:?}");
            let log = std::fs::read_to_string(worker.logs.dir().join("c.jsonl")).unwrap();
            let logged: Vec<&str> = log.lines().map(|line| &line[..2]).collect();
            assert_eq!(logged, records[..records.len() - missing as usize]);
        }
    }

    /// The next start logs what could neither be logged nor wait in the database when the gateway was killed.
    #[test]
    fn records_that_cannot_be_logged_stay_underway() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("db");
        let open = || open(&path);
        let mut worker = Worker { connection: open(), ..worker(home.path()) };
        worker.underway = Underway::open(&path, &worker.connection, worker.logs.dir(), &|| true);
        std::fs::write(worker.logs.dir(), "in the way").unwrap();
        limit_growth(&worker.connection, 0);
        let line = "x".repeat(10_000);
        worker.write(vec![Job::of_row(LedgerRow { line: line.clone(), ..row("a", "short") })]);
        assert_eq!(worker.backlog.len(), 1);
        let (decides, _stored) = job();
        worker.write(vec![decides]);
        // What only a running gateway has is gone.
        let dir = worker.logs.dir().to_owned();
        drop(worker);
        std::fs::remove_file(&dir).unwrap();

        let mut worker = Worker { connection: open(), ..self::worker(home.path()) };
        worker.underway = Underway::open(&path, &worker.connection, &dir, &|| true);
        worker.unlogged = Unlogged::of(&worker.connection);
        while !worker.unlogged.is_done() {
            worker.take_turns();
        }
        assert_eq!(std::fs::read_to_string(dir.join("c.jsonl")).unwrap(), line + "\n");
    }

    #[test]
    fn a_stop_without_a_writable_store_logs_how_many_records_are_lost() {
        let home = tempfile::tempdir().unwrap();
        let (inlet, inbox) = queue::queue(2);
        let worker = Worker { inbox, ..worker(home.path()) };
        worker.connection.pragma_update(None, "query_only", true).unwrap();
        std::fs::write(worker.logs.dir(), "in the way").unwrap();
        for id in ["a", "b"] {
            assert!(inlet.push(Job::of_row(row(id, id)), false).is_ok());
        }
        drop(inlet);
        let told = logged(Level::ERROR, || worker.run());
        assert!(told.contains("their number cannot be stored records=2"), "{told}");
    }

    /// All that is queued when the gateway stops shares one time limit. What is not stored by then is logged at once,
    /// and stored by the next start.
    #[test]
    fn a_stop_waits_once_for_a_locked_store() {
        const BATCHES: usize = 3;
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("db");
        let open = || open(&path);
        let (inlet, inbox) = queue::queue(BATCHES);
        let mut worker = Worker { inbox, connection: open(), ..worker(home.path()) };
        (worker.database, worker.patience) = (Some(FileIdentity::of(&path).unwrap()), Duration::from_secs(1));
        for at in 0..BATCHES {
            let id = format!("r{at:02}");
            let row = LedgerRow { conversation: "c".into(), line: id.clone(), id, ..LedgerRow::default() };
            let batch = Batch { ledger: vec![row], ..Batch::default() };
            assert!(inlet.push(Job { batch, duty: None }, false).is_ok());
        }
        drop(inlet);
        let other = open();
        other.execute_batch("BEGIN EXCLUSIVE").unwrap();
        let told = logged(Level::WARN, || worker.run());
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
    fn writes_after_closing_share_one_time_limit() {
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
    fn a_lost_race_is_logged_at_debug_and_other_errors_as_warnings() {
        for (error, level, expected) in [
            (CommitError::Raced, Level::INFO, ""),
            (
                CommitError::Raced,
                Level::DEBUG,
                "another gateway on the same store was first: the request is planned again by what stands in the store",
            ),
            (CommitError::Full, Level::WARN, "a batch could not be stored"),
        ] {
            let log = logged(level, || Outages::default().tell_of_batch(&error, Instant::now()));
            assert!(log.contains(expected) && log.is_empty() == expected.is_empty(), "{level}: {log}");
        }
    }
}
