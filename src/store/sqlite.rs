//! The store in one SQLite file.
//!
//! The calling threads read; one thread does all writing (`writer`).

use std::fs::{File, TryLockError};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Row};

use super::health::{self, Health};
use super::outputs::{Outputs, create_private, create_private_file};
use super::row::{Batch, Boundary, Spent, StoredDecision, StoredLacking, StoredSplice, StoredWindow, Thread};
use super::summaries::{self, Summary};
use super::writer::Writer;
use super::{Store, StoreError, Stored, lacking, ledger, schema, senders, splices, windows};
use crate::conversation::{Chain, Digest};
use crate::plan::LeafEdit;
use crate::planner::{Cause, Decision, PartKey};

/// Selects decisions with their replacements; the columns are in the order in which [`decision`] reads them.
pub(super) const DECISIONS: &str =
    "SELECT chain, part, since, root, part_key, content, rules, leaves, bytes_before, bytes_after, output
     FROM decisions JOIN replacements ON replacements.id = decisions.replacement";

/// Restricts [`DECISIONS`] to the newest decision about a part in any history of a sender; of several made at the same
/// time, always the same one.
pub(super) const NEWEST_OF_PART: &str = "WHERE root = ?1 AND part_key = ?2
                                 ORDER BY at_ms DESC, chain DESC, part DESC, since DESC LIMIT 1";

/// Selects threads; the columns are in the order in which [`thread`] reads them.
const THREADS: &str = "SELECT id, conversation, session, parent, head, observe, at_ms, since
                       FROM threads LEFT JOIN refusals ON thread = id";

/// A SQLite file, read by the calling threads and written by a thread of its own.
pub struct Sqlite {
    path: PathBuf,
    /// Idle readers, as many as were in use at the same time. As the field comes first, they are closed before the
    /// writer: the last connection to close tidies up the file.
    readers: Mutex<Vec<Connection>>,
    writer: Writer,
    health: Arc<Health>,
}

impl Sqlite {
    /// Opens or creates a store. `queue` is the most batches that may wait to be written; `logs` is the folder of the
    /// conversations' logs.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened, is found to be damaged, or was made by a newer version.
    pub fn open(path: &Path, outputs: Outputs, logs: PathBuf, queue: usize) -> Result<Self, StoreError> {
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
        create_private(dir)?;
        let turn = wait_for_turn(dir);
        // SQLite gives the files next to it the same mode.
        create_private_file(path)?;
        let is_new = std::fs::metadata(path)?.len() == 0;
        let connection = Connection::open(path)?;
        if schema::prepare(&connection)? > schema::VERSION {
            return Err(StoreError::Newer);
        }
        drop(turn);
        if !is_new {
            health::look_for_damage(&connection)?;
        }
        let health = Arc::new(Health::of(path));
        let writer = Writer::start(connection, path, outputs, logs, queue, Arc::clone(&health))?;
        Ok(Self { path: path.to_owned(), writer, readers: Mutex::default(), health })
    }

    fn read<T>(&self, query: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.health.note(self.ask(query))
    }

    fn ask<T>(&self, query: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let idle = self.readers.lock().map(|mut readers| readers.pop()).unwrap_or_default();
        let connection = match idle {
            Some(connection) => connection,
            None => open_reader(&self.path)?,
        };
        let answer = query(&connection);
        if let Ok(mut readers) = self.readers.lock() {
            readers.push(connection);
        }
        answer
    }

    /// Reads with several queries, which all see the same state of the file and take its locks once.
    fn read_at_once<T>(
        &self,
        queries: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.read(|connection| {
            let transaction = connection.unchecked_transaction()?;
            let answer = queries(&transaction)?;
            transaction.finish()?;
            Ok(answer)
        })
    }
}

/// Locks the folder, so that gateways that start at the same time create the file one after the other: SQLite does not
/// wait for the lock that the first use of a write-ahead log needs. Returns `None` if the folder cannot be locked; then
/// starting at the same time may fail.
fn wait_for_turn(dir: &Path) -> Option<File> {
    let folder = File::open(dir).ok()?;
    if matches!(folder.try_lock(), Err(TryLockError::WouldBlock)) {
        tracing::info!(dir = %dir.display(), "another gateway is opening the store; waiting for it");
        folder.lock().ok()?;
    }
    Some(folder)
}

fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(path, flags)?;
    schema::tune(&connection)?;
    Ok(connection)
}

impl Store for Sqlite {
    fn boundaries(
        &self,
        chains: &[Chain],
        session: Option<&str>,
    ) -> Result<Vec<(Boundary, Option<Thread>)>, StoreError> {
        self.read_at_once(|connection| senders::find(connection, chains, session))
    }

    fn decisions(&self, chains: &[Chain]) -> Result<Vec<StoredDecision>, StoreError> {
        self.read_at_once(|connection| {
            let mut statement =
                connection.prepare_cached(&format!("{DECISIONS} WHERE chain = ?1 ORDER BY part, at_ms"))?;
            let mut found = Vec::new();
            for chain in chains {
                let mut rows = statement.query([chain.0.0])?;
                while let Some(row) = rows.next()? {
                    found.push(decision(row)?);
                }
            }
            Ok(found)
        })
    }

    fn splices(&self, chains: &[Chain]) -> Result<Vec<StoredSplice>, StoreError> {
        self.read_at_once(|connection| splices::find(connection, chains))
    }

    fn known_decisions(
        &self,
        root: Chain,
        keys: &[PartKey],
    ) -> Result<Vec<Option<StoredDecision>>, StoreError> {
        self.read_at_once(|connection| {
            let mut statement = connection.prepare_cached(&format!("{DECISIONS} {NEWEST_OF_PART}"))?;
            let mut newest = |key: &PartKey| {
                let mut rows = statement.query([root.0.0, key.0.0])?;
                // A row that cannot be read affects its own part, not all others.
                Ok(rows.next()?.and_then(|row| decision(row).ok()))
            };
            keys.iter().map(&mut newest).collect()
        })
    }

    fn thread(&self, id: &str) -> Result<Option<Thread>, StoreError> {
        self.read(|connection| thread_with_id(connection, id))
    }

    fn session(&self, session: &str) -> Result<Option<Thread>, StoreError> {
        self.read(|connection| {
            let newest = format!("{THREADS} WHERE session = ?1 ORDER BY at_ms DESC LIMIT 1");
            let mut statement = connection.prepare_cached(&newest)?;
            statement.query_row([session], |row| Ok(thread(row))).optional()?.transpose()
        })
    }

    fn summary(&self, thread: &str) -> Result<Option<Summary>, StoreError> {
        self.read(|connection| summaries::newest(connection, thread))
    }

    fn summaries(&self, conversation: &str) -> Result<Vec<Summary>, StoreError> {
        self.read(|connection| summaries::all_of(connection, conversation))
    }

    fn windows(&self, now_ms: i64) -> Result<Vec<StoredWindow>, StoreError> {
        self.read(|connection| windows::all(connection, now_ms))
    }

    fn lacking(&self, history: Digest, now_ms: i64) -> Result<Option<StoredLacking>, StoreError> {
        self.read(|connection| lacking::find(connection, history, now_ms))
    }

    fn spent(&self, conversation: Option<&str>, within_ms: Range<i64>) -> Result<Spent, StoreError> {
        self.read(|connection| ledger::spent(connection, conversation, within_ms))
    }

    fn record(&self, conversation: &str, answer: &str) -> Result<Option<(String, i64)>, StoreError> {
        self.read(|connection| ledger::record(connection, conversation, answer))
    }

    fn last_request(
        &self,
        conversation: &str,
        thread: &str,
        model: &str,
    ) -> Result<Option<(String, i64)>, StoreError> {
        self.read(|connection| ledger::last_request(connection, conversation, thread, model))
    }

    fn commit(&self, batch: Batch) -> Stored {
        self.writer.commit(batch)
    }

    fn later(&self, batch: Batch) -> bool {
        self.writer.later(batch)
    }

    fn count_lost(&self, at_ms: i64) {
        self.writer.lose(at_ms);
    }

    fn lost(&self) -> u64 {
        self.writer.lost()
    }

    fn failed_reads(&self) -> u64 {
        self.health.failed()
    }
}

/// The thread with this id.
pub(super) fn thread_with_id(connection: &Connection, id: &str) -> Result<Option<Thread>, StoreError> {
    let mut statement = connection.prepare_cached(&format!("{THREADS} WHERE id = ?1"))?;
    statement.query_row([id], |row| Ok(thread(row))).optional()?.transpose()
}

fn thread(row: &Row<'_>) -> Result<Thread, StoreError> {
    Ok(Thread {
        id: row.get(0)?,
        conversation: row.get(1)?,
        session: row.get(2)?,
        parent: row.get(3)?,
        head: Chain(digest(row, 4)?),
        observe: row.get(5)?,
        refused: optional_digest(row, 7)?.map(Chain),
        at_ms: row.get(6)?,
    })
}

pub(super) fn decision(row: &Row<'_>) -> Result<StoredDecision, StoreError> {
    let leaves: String = row.get(7)?;
    let decision = Decision {
        cause: Cause::parse(&row.get::<_, String>(6)?),
        leaves: leaves_from(&leaves).ok_or(StoreError::Damaged)?,
        content: digest(row, 5)?,
        key: optional_digest(row, 4)?.map(PartKey),
        bytes_before: row.get(8)?,
        bytes_after: row.get(9)?,
        output: row.get(10)?,
    };
    Ok(StoredDecision {
        chain: Chain(digest(row, 0)?),
        part: row.get(1)?,
        since: Chain(digest(row, 2)?),
        root: Chain(digest(row, 3)?),
        decision: Arc::new(decision),
    })
}

/// The digest in a column.
pub(super) fn digest(row: &Row<'_>, column: usize) -> Result<Digest, StoreError> {
    let bytes: Vec<u8> = row.get(column)?;
    bytes.try_into().map(Digest).map_err(|_| StoreError::Damaged)
}

/// The digest in a column that may be null; `None` also if it is no digest.
fn optional_digest(row: &Row<'_>, column: usize) -> Result<Option<Digest>, StoreError> {
    let bytes: Option<Vec<u8>> = row.get(column)?;
    Ok(bytes.and_then(|bytes| bytes.try_into().ok()).map(Digest))
}

/// Leaves as JSON, `[[leaf, text or null], …]`; null means that the leaf is removed.
pub(super) fn leaves_to(leaves: &[(u32, LeafEdit)]) -> String {
    let rows: Vec<(u32, Option<&str>)> = leaves
        .iter()
        .map(|(leaf, edit)| match edit {
            LeafEdit::Replace(text) => (*leaf, Some(&**text)),
            LeafEdit::Remove => (*leaf, None),
        })
        .collect();
    serde_json::to_string(&rows).expect("numbers and texts are JSON")
}

fn leaves_from(text: &str) -> Option<Vec<(u32, LeafEdit)>> {
    let rows: Vec<(u32, Option<String>)> = serde_json::from_str(text).ok()?;
    let edit = |text: Option<String>| text.map_or(LeafEdit::Remove, |text| LeafEdit::Replace(text.into()));
    Some(rows.into_iter().map(|(leaf, text)| (leaf, edit(text))).collect())
}
