//! A write-ahead file for records on their way to the database and to the logs of their conversations.
//!
//! A record is stored in the database first and appended to its conversation's log afterwards. If the gateway is killed
//! in between, the log lacks the record. So each gateway has a file of its own next to the database: it notes there the
//! records that it is about to store and log, and crosses them out when that is done. It keeps the file locked as long
//! as it lives.
//!
//! A gateway that starts reads the files that nobody has locked. It stores the noted records that the database lacks,
//! since nobody else will book them. It puts those that a log lacks among the records that wait to be logged
//! ([`unlogged`]).
//!
//! A note says where the log ended before its record ([`LogEnd`]), and the record is looked for after that place. If
//! the log is another file by now, or a shorter one, all of it is searched. A record that is not found is logged, even
//! if it was logged before. Records that are crossed out are never logged again, since the log may have been moved away
//! since.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension as _, params};
use serde::{Deserialize, Serialize};

use super::file_identity::FileIdentity;
use super::{LedgerRow, StoreError, logs, schema, tables, unlogged};

/// The most gateways that have a file at the same time. Another one has none, and its records are not recovered if it
/// is killed.
const MAX_FILES: usize = 64;

/// About how many bytes a row takes in the header.
const ROW_HEADER_LEN: usize = 256;

/// Replaces the first byte of a file when its records are crossed out.
const CROSSED_OUT: &[u8] = b"-";

/// Where a log ended: the inode of its file and its length in bytes. Both are 0 if there was no file.
type LogEnd = (u64, u64);

/// What a warning says about a gateway without a file.
const UNNOTED: &str = "if this gateway is killed, what it has not logged will be only in the database";

/// The beginning of a file, as JSON. A line end follows, then the line and the record of each row.
#[derive(Default, Serialize, Deserialize)]
struct Header<'a> {
    /// The folder of the logs.
    folder: Cow<'a, str>,
    /// Whether the rows have all columns. Older gateways noted only those that a log needs.
    #[serde(default)]
    is_whole: bool,
    rows: Vec<RowHeader<'a>>,
}

/// A row in the header, without its line and its record.
#[derive(Serialize, Deserialize)]
struct RowHeader<'a> {
    id: Cow<'a, str>,
    at_ms: i64,
    conversation: Cow<'a, str>,
    #[serde(default)]
    model: Option<Cow<'a, str>>,
    #[serde(default)]
    client: Option<Cow<'a, str>>,
    #[serde(default)]
    cost: Option<i64>,
    #[serde(rename = "end")]
    log_end: LogEnd,
    /// The length of its line in bytes.
    #[serde(rename = "line")]
    line_len: usize,
    /// The length of its record in bytes.
    #[serde(rename = "record")]
    record_len: usize,
}

/// The contents of a file.
#[derive(Default)]
struct Notes {
    /// The folder of the logs.
    folder: String,
    notes: Vec<Note>,
}

/// A record that a gateway was about to store and log.
struct Note {
    /// Where its log ended before.
    log_end: LogEnd,
    row: LedgerRow,
    /// Whether the row has all columns, so that it can be booked.
    is_whole: bool,
}

/// A file that this process has locked.
struct LockedFile {
    file: File,
    identity: FileIdentity,
}

/// The records that this gateway is about to store and log.
#[derive(Default)]
pub(super) struct Underway {
    /// `None` if this gateway has no file: then it notes nothing.
    file: Option<LockedFile>,
    /// Whether records are noted and not crossed out.
    has_notes: bool,
}

impl Underway {
    /// Takes a file for this gateway, and recovers the records that killed gateways have noted. `dir` is the folder of
    /// the logs. Waits for others that have locked the database, as long as `may_wait`.
    pub(super) fn open(
        database: &Path,
        connection: &Connection,
        dir: &Path,
        may_wait: &dyn Fn() -> bool,
    ) -> Self {
        let Takeover { own, abandoned, notes, error } = Takeover::of_unlocked(database, dir);
        match recover(connection, dir, &notes, may_wait) {
            Ok(recovered) => {
                abandoned.into_iter().for_each(LockedFile::remove);
                recovered.tell();
            }
            Err(error) => {
                tracing::warn!(%error, "what a killed gateway had not logged is left to the next start");
            }
        }
        if own.is_none() {
            let error = error.as_ref().map(tracing::field::display);
            tracing::warn!(error, "{UNNOTED}");
        }
        Self { file: own, has_notes: false }
    }

    /// Notes records that are about to be stored and logged. If there are any, those that were noted before are crossed
    /// out. Returns whether the records are noted; if not, they are to be stored and logged all the same.
    pub(super) fn note<'r>(&mut self, dir: &Path, rows: impl Iterator<Item = &'r LedgerRow>) -> bool {
        let Some(bytes) = self.file.as_ref().and_then(|_| to_bytes(dir, rows)) else { return false };
        if self.has_notes {
            self.cross_out();
        }
        let Some(LockedFile { file, .. }) = &self.file else { return false };
        // The first byte is written last: until then, the file counts as crossed out.
        let write = || file.write_all_at(&bytes[1..], 1).and_then(|()| file.write_all_at(&bytes[..1], 0));
        let is_noted = write().is_ok();
        if !is_noted {
            // On a full disk, a part of a note would take space that the database needs.
            let _ = file.set_len(CROSSED_OUT.len() as u64);
        }
        self.has_notes = is_noted;
        is_noted
    }

    /// Notes records that could not be stored, and leaves the file to the next start. Returns whether they are noted.
    pub(super) fn leave<'r>(mut self, dir: &Path, rows: impl Iterator<Item = &'r LedgerRow>) -> bool {
        self.note(dir, rows)
    }

    /// Crosses out the noted records: they are logged, or wait to be logged.
    pub(super) fn cross_out(&mut self) {
        self.has_notes = false;
        if let Some(LockedFile { file, .. }) = &self.file
            && let Err(error) = file.write_all_at(CROSSED_OUT, 0)
        {
            tracing::warn!(%error, "cannot mark records as logged: {UNNOTED}");
            self.file.take().into_iter().for_each(LockedFile::remove);
        }
    }

    /// Removes the file.
    pub(super) fn close(self) {
        self.file.into_iter().for_each(LockedFile::remove);
    }
}

impl LockedFile {
    /// Removes the file; its notes are not needed any more. It stays locked until it has no name. It is crossed out
    /// first, in case it cannot be removed.
    fn remove(self) {
        let Self { file, identity } = self;
        let _ = file.write_all_at(CROSSED_OUT, 0);
        if !identity.is_left()
            && let Err(error) = fs::remove_file(identity.path())
        {
            tracing::debug!(%error, "{} cannot be removed", identity.path().display());
        }
        drop(file);
    }
}

/// The files that a starting gateway has found unlocked, and has locked.
#[derive(Default)]
struct Takeover {
    /// The file that becomes its own; `None` if it could lock none.
    own: Option<LockedFile>,
    /// Files of killed gateways, to be removed once their notes are recovered.
    abandoned: Vec<LockedFile>,
    /// What is noted in these.
    notes: Vec<Note>,
    /// The last error.
    error: Option<io::Error>,
}

impl Takeover {
    /// Locks the files that nobody has locked. An empty one becomes the gateway's own, and further ones are removed.
    fn of_unlocked(database: &Path, dir: &Path) -> Self {
        let mut taken = Self::default();
        for path in (0..MAX_FILES).map(|number| file_path(database, number)) {
            if taken.own.is_some() && !path.exists() {
                continue;
            }
            match lock_and_read(&path) {
                Ok(Some((file, Notes { folder, notes }))) => taken.add(file, &folder, notes, dir),
                // Another gateway has it, or has just removed it.
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!(%error, "{} cannot be looked through", path.display());
                    taken.error = Some(error);
                }
            }
        }
        taken
    }

    /// Adds a file that is locked now. What it notes for the logs of another folder is left in it.
    fn add(&mut self, file: LockedFile, folder: &str, notes: Vec<Note>, dir: &Path) {
        if notes.is_empty() {
            match self.own {
                None => self.own = Some(file),
                Some(_) => file.remove(),
            }
        } else if folder == dir.to_string_lossy() {
            self.abandoned.push(file);
            self.notes.extend(notes);
        } else {
            tracing::info!(
                folder,
                "what a killed gateway has not logged there is left to the next one with this folder"
            );
        }
    }
}

fn file_path(database: &Path, number: usize) -> PathBuf {
    let mut path = OsString::from(database);
    path.push(format!("-underway-{number}"));
    path.into()
}

/// Opens or creates a file, locks it, and reads its notes. If there are none, or they cannot be read, the file is
/// emptied. Returns `None` if somebody else has locked or removed it.
fn lock_and_read(path: &Path) -> io::Result<Option<(LockedFile, Notes)>> {
    let mut options = OpenOptions::new();
    let mut file = options.create(true).read(true).write(true).truncate(false).mode(0o600).open(path)?;
    // Reading a pipe would block.
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file"));
    }
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => {
            // Where nothing can be locked, no empty files stay behind.
            if file.metadata()?.len() == 0 {
                fs::remove_file(path)?;
            }
            return Err(error);
        }
    }
    let identity = match FileIdentity::of(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found?,
    };
    if !identity.is_of(&file)? {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let notes = if is_crossed_out(&bytes) { Some(Notes::default()) } else { parse(&bytes) };
    let notes = notes.unwrap_or_else(|| {
        tracing::warn!(
            "{} is no list of what a killed gateway had to log: what it had stored and not logged is only in the database",
            path.display()
        );
        Notes::default()
    });
    if notes.notes.is_empty() {
        file.set_len(0)?;
    }
    Ok(Some((LockedFile { file, identity }, notes)))
}

/// The contents of a file that notes these rows; `None` if there are none.
fn to_bytes<'r>(dir: &Path, rows: impl Iterator<Item = &'r LedgerRow>) -> Option<Vec<u8>> {
    let rows: Vec<&LedgerRow> = rows.collect();
    if rows.is_empty() {
        return None;
    }
    let mut log_ends = BTreeMap::new();
    let mut header = Header { folder: dir.to_string_lossy(), is_whole: true, rows: Vec::new() };
    for row in &rows {
        let log_end = log_ends.entry(&row.conversation).or_insert_with_key(|id| log_end(&log_of(dir, id)));
        header.rows.push(RowHeader {
            id: Cow::Borrowed(&row.id),
            at_ms: row.at_ms,
            conversation: Cow::Borrowed(&row.conversation),
            model: row.model.as_deref().map(Cow::Borrowed),
            client: row.client.as_deref().map(Cow::Borrowed),
            cost: row.cost,
            log_end: *log_end,
            line_len: row.line.len(),
            record_len: row.record.len(),
        });
    }
    // There may be many rows of a few kilobytes: space for all of them is made at once.
    let texts = rows.iter().flat_map(|row| [row.line.as_bytes(), row.record.as_bytes()]);
    let texts_len: usize = texts.clone().map(<[u8]>::len).sum();
    let mut bytes = Vec::with_capacity((1 + rows.len()) * ROW_HEADER_LEN + texts_len);
    serde_json::to_writer(&mut bytes, &header).ok()?;
    bytes.push(b'\n');
    texts.for_each(|text| bytes.extend_from_slice(text));
    Some(bytes)
}

/// Whether a file with these contents notes nothing. In a new file, the first byte is 0 until the rest is written.
fn is_crossed_out(bytes: &[u8]) -> bool {
    bytes.first().is_none_or(|first| *first == 0 || CROSSED_OUT.contains(first))
}

/// Reads the notes in the contents of a file; `None` if they are malformed. The rest of earlier, longer notes may
/// follow them.
fn parse(bytes: &[u8]) -> Option<Notes> {
    let mut headers = serde_json::Deserializer::from_slice(bytes).into_iter::<Header<'_>>();
    let Header { folder, is_whole, rows } = headers.next()?.ok()?;
    let mut texts = bytes.get(headers.byte_offset() + 1..)?;
    let mut take = |len: usize| {
        let (taken, rest) = texts.split_at_checked(len)?;
        texts = rest;
        String::from_utf8(taken.to_vec()).ok()
    };
    let notes = rows.into_iter().map(|header| {
        let row = LedgerRow {
            id: header.id.into_owned(),
            at_ms: header.at_ms,
            conversation: header.conversation.into_owned(),
            model: header.model.map(Cow::into_owned),
            client: header.client.map(Cow::into_owned),
            cost: header.cost,
            line: take(header.line_len)?,
            record: take(header.record_len)?,
        };
        Some(Note { log_end: header.log_end, row, is_whole })
    });
    Some(Notes { notes: notes.collect::<Option<_>>()?, folder: folder.into_owned() })
}

fn log_of(dir: &Path, conversation: &str) -> PathBuf {
    dir.join(logs::file_name(conversation))
}

fn log_end(log: &Path) -> LogEnd {
    fs::metadata(log).map_or((0, 0), |file| (file.ino(), file.len()))
}

/// The number of records that were stored late, and of those that wait to be logged now.
#[derive(Default)]
struct Recovered {
    stored: usize,
    waiting: usize,
}

impl Recovered {
    fn tell(&self) {
        if self.stored > 0 {
            tracing::info!(
                records = self.stored,
                "records that an earlier gateway had not stored are stored"
            );
        }
        if self.waiting > 0 {
            tracing::info!(
                records = self.waiting,
                "records that an earlier gateway had not logged wait to be logged"
            );
        }
    }
}

/// Stores the noted records that the database lacks, and puts those that a log lacks among what waits to be logged.
fn recover(
    connection: &Connection,
    dir: &Path,
    notes: &[Note],
    may_wait: &dyn Fn() -> bool,
) -> Result<Recovered, StoreError> {
    let not_logged = not_logged(dir, notes);
    if not_logged.is_empty() && !notes.iter().any(|note| note.is_whole) {
        return Ok(Recovered::default());
    }
    let transaction = schema::begin_while(connection, may_wait)?;
    let not_stored = not_stored(&transaction, notes)?;
    let mut booking = tables::booking(&transaction)?;
    not_stored.iter().try_for_each(|row| tables::book(&mut booking, row))?;
    drop(booking);
    let mut waiting: Vec<(i64, &LedgerRow)> = Vec::new();
    for row in not_logged {
        // It may not have been stored, or it was booked again since with another record.
        let place = transaction
            .prepare_cached("SELECT rowid FROM ledger WHERE id = ?1 AND record = ?2")?
            .query_row(params![row.id, row.record], |found| found.get(0))
            .optional()?;
        waiting.extend(place.map(|place| (place, row)));
    }
    waiting.sort_by_key(|(place, _)| *place);
    unlogged::put(&transaction, waiting.iter().map(|(_, row)| *row))?;
    transaction.commit()?;
    Ok(Recovered { stored: not_stored.len(), waiting: waiting.len() })
}

/// The noted records that are not in the ledger, or only as pending, except those that cannot be booked.
fn not_stored<'n>(connection: &Connection, notes: &'n [Note]) -> rusqlite::Result<Vec<&'n LedgerRow>> {
    let mut lacking = Vec::new();
    let mut stored = connection.prepare_cached(
        "SELECT 1 FROM ledger WHERE id = ?1 AND (record = ?2 OR coalesce(
           CASE WHEN json_valid(record) THEN json_extract(record, '$.outcome') END, '') <> 'pending')",
    )?;
    for Note { row, .. } in notes.iter().filter(|note| note.is_whole) {
        if !stored.exists([&row.id, &row.record])? {
            lacking.push(row);
        }
    }
    Ok(lacking)
}

/// The noted records that the logs lack, as far as these can be read.
fn not_logged<'n>(dir: &Path, notes: &'n [Note]) -> Vec<&'n LedgerRow> {
    let mut logs: BTreeMap<PathBuf, Vec<&Note>> = BTreeMap::new();
    for note in notes {
        logs.entry(log_of(dir, &note.row.conversation)).or_default().push(note);
    }
    for (log, notes) in &mut logs {
        // A log that cannot be read now is searched again before anything is appended to it.
        if let Err(error) = leave_out_logged(log, notes) {
            tracing::debug!(%error, "{} cannot be read", log.display());
        }
    }
    logs.into_values().flatten().map(|note| &note.row).collect()
}

/// Leaves out the records that have a line of their own in the log, after the place where it ended.
fn leave_out_logged(log: &Path, notes: &mut Vec<&Note>) -> io::Result<()> {
    let found = fs::metadata(log)?;
    if !found.is_file() {
        return Ok(());
    }
    let start = |(inode, len): LogEnd| if inode == found.ino() && len <= found.len() { len } else { 0 };
    let start = notes.iter().map(|note| start(note.log_end)).min().unwrap_or_default();
    let mut file = File::open(log)?;
    // Begins with the byte before: if that is no line end, the log ended in half a line, and what was appended to it
    // is no line of its own.
    file.seek(SeekFrom::Start(start.saturating_sub(1)))?;
    for line in BufReader::new(file).split(b'\n') {
        let line = line?;
        notes.retain(|note| note.row.line.as_bytes() != line);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::logs::Logs;
    use super::unlogged::Unlogged;
    use super::*;
    use crate::store::tests::logged;

    /// The first letter of an id is its conversation. `~` is a record that is pending, `^` one that broke off. The
    /// number does not survive being read and written again.
    fn line(word: &str) -> String {
        let outcome = match &word[..1] {
            "~" => ",\"outcome\":\"pending\"",
            "^" => ",\"outcome\":\"upstream_broke\"",
            _ => "",
        };
        let id = id(word);
        let conversation = &id[..1];
        format!(
            "{{\"time\":\"t\",\"id\":\"{id}\",\"conversation\":\"{conversation}\"{outcome}, \"score\":0.11333333333333333}}"
        )
    }

    fn id(word: &str) -> &str {
        word.trim_start_matches(['~', '^'])
    }

    /// `/` is half of a record, `-` one without its line end, `.` a line end, `*` text of somebody else.
    fn text(words: &str) -> String {
        let text = |word: &str| match (&word[..1], &word[1..]) {
            ("/", word) => line(word)[..50].to_owned(),
            ("-", word) => line(word),
            (".", _) => "\n".to_owned(),
            ("*", text) => text.to_owned() + "\n",
            _ => line(word) + "\n",
        };
        words.split_whitespace().map(text).collect()
    }

    fn rows(words: &str) -> Vec<LedgerRow> {
        let row = |word: &str| LedgerRow {
            id: id(word).to_owned(),
            at_ms: 7,
            conversation: id(word)[..1].to_owned(),
            record: line(word),
            line: line(word),
            ..LedgerRow::default()
        };
        words.split_whitespace().map(row).collect()
    }

    struct Bench {
        home: tempfile::TempDir,
        connection: Connection,
    }

    impl Bench {
        fn new(booked: &str, log: Option<&str>) -> Self {
            let home = tempfile::tempdir().unwrap();
            let connection = Connection::open(home.path().join("db")).unwrap();
            schema::prepare(&connection).unwrap();
            let bench = Self { home, connection };
            for row in rows(booked) {
                let insert = "INSERT INTO ledger (id, at_ms, conversation, record) VALUES (?1, 7, ?2, ?3)";
                bench.connection.execute(insert, params![row.id, row.conversation, row.record]).unwrap();
            }
            fs::create_dir(bench.dir()).unwrap();
            bench.put_log(log);
            bench
        }

        fn put_log(&self, log: Option<&str>) {
            match log {
                Some(log) => fs::write(self.log(), text(log)).unwrap(),
                None => fs::remove_file(self.log()).unwrap_or_default(),
            }
        }

        fn dir(&self) -> PathBuf {
            self.home.path().join("logs")
        }

        fn log(&self) -> PathBuf {
            self.dir().join(logs::file_name("a"))
        }

        fn file(&self, number: usize) -> PathBuf {
            file_path(&self.home.path().join("db"), number)
        }

        fn files(&self) -> [bool; 3] {
            [0, 1, 2].map(|number| self.file(number).exists())
        }

        fn open(&mut self) -> Underway {
            let dir = self.dir();
            Underway::open(&self.home.path().join("db"), &self.connection, &dir, &|| true)
        }

        /// A gateway begins with these records.
        fn begin(&mut self, underway: &str) -> Underway {
            let mut gateway = self.open();
            gateway.note(&self.dir(), rows(underway).iter());
            gateway
        }

        /// What the log has when a gateway has started, and has logged what waits.
        fn logged(&mut self) -> Option<String> {
            let _underway = self.open();
            self.wait()
        }

        fn wait(&mut self) -> Option<String> {
            let (mut unlogged, mut logs) = (Unlogged::of(&self.connection), Logs::new(self.dir()));
            while !unlogged.is_done() {
                unlogged.take_turn(&self.connection, &mut logs, &|| true);
            }
            fs::read_to_string(self.log()).ok()
        }
    }

    /// Records in the order of booking, those that a gateway was about to log when it was killed, and what the log of
    /// `a` had before, has now, and has after the next start.
    #[test]
    fn unlogged_records_of_a_killed_gateway_are_logged_once() {
        for (name, booked, underway, before, now, expected) in [
            ("nothing lacks", "a1 a2", "a2", Some("a1"), Some("a1 a2"), Some("a1 a2")),
            ("the last one", "a1 a2", "a2", Some("a1"), Some("a1"), Some("a1 a2")),
            ("some of several", "a1 a2 a3 a4", "a2 a3 a4", Some("a1"), Some("a1 a2"), Some("a1 a2 a3 a4")),
            ("in the order of booking", "a1 a2 a3", "a3 a2", Some("a1"), Some("a1"), Some("a1 a2 a3")),
            ("that of one conversation", "a1 b1 a2", "b1 a2", Some("a1"), Some("a1"), Some("a1 a2")),
            ("it was not stored", "a1", "a2", Some("a1"), Some("a1"), Some("a1 a2")),
            ("it was logged and not stored", "a1", "a2", Some("a1"), Some("a1 a2"), Some("a1 a2")),
            ("it was booked twice and not stored", "a1", "~a2 a2", Some("a1"), Some("a1"), Some("a1 a2")),
            ("the first ones", "a1 a2", "a1 a2", None, None, Some("a1 a2")),
            ("the first one is there", "a1", "a1", None, Some("a1"), Some("a1")),
            ("the first one, half", "a1", "a1", None, Some("/a1"), Some("/a1 . a1")),
            ("the first one, gone on", "a1 a2", "a1", None, Some("a2"), Some("a2 a1")),
            ("half of it is there", "a1 a2", "a2", Some("a1"), Some("a1 /a2"), Some("a1 /a2 . a2")),
            ("its line end lacks", "a1 a2", "a2", Some("a1"), Some("a1 -a2"), Some("a1 -a2")),
            ("behind half a line", "a1 a2", "a2", Some("a1"), Some("a1 /a9 a2"), Some("a1 /a9 a2 a2")),
            ("the log ended in half a line", "a2", "a2", Some("/a9"), Some("/a9 a2"), Some("/a9 a2 a2")),
            (
                "it ended in half a line, and went on",
                "a2",
                "a2",
                Some("/a9"),
                Some("/a9 . a2"),
                Some("/a9 . a2"),
            ),
            ("others have gone on", "a1 a2 a3", "a2", Some("a1"), Some("a1 a3"), Some("a1 a3 a2")),
            (
                "others before and behind it",
                "a1 a2 a3",
                "a2",
                Some("a1"),
                Some("a1 a3 a2 a4"),
                Some("a1 a3 a2 a4"),
            ),
            ("it was completed", "a1 a2", "a2", Some("a1 ~a2"), Some("a1 ~a2"), Some("a1 ~a2 a2")),
            ("it was completed in the log, too", "a2", "a2", Some("~a2"), Some("~a2 a2"), Some("~a2 a2")),
            ("it had broken off and was completed", "a2", "a2", Some("^a2"), Some("^a2"), Some("^a2 a2")),
            ("it is pending", "a1 ~a2", "~a2", Some("a1"), Some("a1"), Some("a1 ~a2")),
            (
                "its completion was not stored",
                "a1 ~a2",
                "a2",
                Some("a1 ~a2"),
                Some("a1 ~a2"),
                Some("a1 ~a2 a2"),
            ),
            ("another has completed it", "a1 a2", "~a2", Some("a1"), Some("a1 a2"), Some("a1 a2")),
            ("the log is gone", "a1 a2", "a2", Some("a1"), None, Some("a2")),
            ("emptied, and gone on", "a1 a2 a3", "a2", Some("a1"), Some(""), Some("a2")),
            ("emptied, and it is there", "a2", "a2", Some("a1 a3 a4"), Some("a2 a5"), Some("a2 a5")),
            ("moved away, and it is there", "a2", "a2", Some("a1"), Some("new a2 a5"), Some("a2 a5")),
            ("moved away, and gone on", "a2", "a2", Some("a1"), Some("new a5 a6"), Some("a5 a6 a2")),
        ] {
            let mut bench = Bench::new(booked, before);
            drop(bench.begin(underway));
            if now.is_some_and(|now| now.starts_with("new")) {
                fs::rename(bench.log(), bench.dir().join("moved")).unwrap();
            }
            bench.put_log(now.map(|now| now.trim_start_matches("new")));
            for start in 0..2 {
                assert_eq!(bench.logged(), expected.map(text), "{name}, start {start}");
            }
        }
    }

    /// People may move a log away as soon as a record is there: it is no longer underway.
    #[test]
    fn logged_records_are_not_recovered_again() {
        type End = fn(&Bench, Underway);
        let crossed_out: End = |_, mut gateway| gateway.cross_out();
        let closed: End = |_, mut gateway| {
            gateway.cross_out();
            gateway.close();
        };
        let next_not_noted: End = |_, mut gateway| {
            gateway.cross_out();
            gateway.file.as_ref().unwrap().file.write_all_at(b"\"folder\":\"/logs\",\"rows\":[{", 1).unwrap();
        };
        let next_noted: End = |bench, mut gateway| {
            gateway.cross_out();
            gateway.note(&bench.dir(), rows("b1").iter());
        };
        let none_next: End = |bench, mut gateway| {
            gateway.cross_out();
            gateway.note(&bench.dir(), [].iter());
        };
        for (name, end, left) in [
            ("crossed out", crossed_out, true),
            ("closed", closed, false),
            ("the next one could not be noted", next_not_noted, true),
            ("a shorter one is noted over it", next_noted, true),
            ("nothing is noted over it", none_next, true),
        ] {
            let mut bench = Bench::new("a1 a2 b1", None);
            let gateway = bench.begin("a1 b1 a2");
            end(&bench, gateway);
            assert_eq!(bench.file(0).exists(), left, "{name}");
            assert_eq!(bench.logged(), None, "{name}");
        }
    }

    /// Records that lack columns cannot be booked.
    #[test]
    fn unstored_records_noted_by_an_older_gateway_are_dropped() {
        let mut bench = Bench::new("a1", None);
        drop(bench.begin("a1 a2"));
        let noted = fs::read_to_string(bench.file(0)).unwrap();
        fs::write(bench.file(0), noted.replace(",\"is_whole\":true", "")).unwrap();
        assert_eq!(bench.logged(), Some(text("a1")));
    }

    #[test]
    fn recovered_records_are_logged_after_waiting_ones() {
        let mut bench = Bench::new("a1 a2 a3", None);
        unlogged::put(&bench.connection, rows("a1 a2").iter()).unwrap();
        drop(bench.begin("a2 a3"));
        assert_eq!(bench.logged(), Some(text("a1 a2 a3")));
    }

    /// What a running gateway has not logged yet is left to it, however long it takes.
    #[test]
    fn only_records_of_killed_gateways_are_recovered() {
        for (name, killed, expected) in [
            ("all live", [false, false, false], "a1"),
            ("one is killed", [false, true, false], "a1 a2"),
            ("the others", [true, false, true], "a1 a3 a4"),
            ("all, in the order of booking", [true, true, true], "a1 a2 a3 a4"),
        ] {
            let mut bench = Bench::new("a1 a2 a3 a4", Some("a1"));
            let mut gateways = ["a4", "a2", "a3"].map(|underway| Some(bench.begin(underway)));
            for (gateway, killed) in gateways.iter_mut().zip(killed) {
                gateway.take_if(|_| killed);
            }
            assert_eq!(bench.logged(), Some(text(expected)), "{name}");
            assert_eq!(bench.files(), killed.map(|killed| !killed), "{name}");
        }
    }

    /// Closing a file removes it, and does not hide another gateway's file that comes after it.
    #[test]
    fn closed_underway_files_are_removed() {
        let mut bench = Bench::new("a1 a2", Some("a1"));
        let (first, second, third) = (bench.open(), bench.open(), bench.begin("a2"));
        first.close();
        second.close();
        drop(third);
        assert_eq!(bench.files(), [false, false, true]);
        let next = bench.open();
        assert_eq!(bench.wait(), Some(text("a1 a2")));
        assert_eq!(bench.files(), [true, false, false]);
        fs::remove_file(bench.file(0)).unwrap();
        fs::write(bench.file(0), "another's").unwrap();
        next.close();
        assert!(bench.file(0).exists());
    }

    /// Notes that can no longer be crossed out would come back.
    #[test]
    fn an_underway_file_that_cannot_be_cleared_is_removed_with_a_warning() {
        let mut bench = Bench::new("a1 a2", Some("a1"));
        let mut gateway = bench.begin("a1");
        gateway.file.as_mut().unwrap().file = File::open(bench.file(0)).unwrap();
        let log = logged(Level::INFO, || {
            gateway.cross_out();
            gateway.note(&bench.dir(), rows("a2").iter());
            gateway.cross_out();
        });
        assert_eq!((log.contains("WARN") && log.contains(UNNOTED), log.lines().count()), (true, 1), "{log}");
        assert!(!bench.file(0).exists());
    }

    /// Even if its file could not be removed, what was taken over does not come back.
    #[test]
    fn an_underway_file_is_cleared_when_taken_over() {
        let mut bench = Bench::new("a1 a2", Some("a1"));
        drop(bench.begin("a2"));
        let file = File::open(bench.file(0)).unwrap();
        assert_eq!(bench.logged(), Some(text("a1 a2")));
        let mut first = [0];
        assert_eq!((file.read_at(&mut first, 0).unwrap(), &first[..]), (1, CROSSED_OUT));
    }

    /// Gateways with one database may have a folder of logs each.
    #[test]
    fn records_for_another_log_folder_are_left_to_its_gateway() {
        let mut bench = Bench::new("a1", None);
        drop(bench.begin("a1"));
        let (database, other) = (bench.home.path().join("db"), bench.home.path().join("other"));
        let underway = Underway::open(&database, &bench.connection, &other, &|| true);
        assert_eq!((bench.wait(), bench.files()), (None, [true, true, false]));
        underway.close();
        assert_eq!(bench.logged(), Some(text("a1")));
    }

    #[test]
    fn invalid_underway_files_are_ignored_and_emptied() {
        let mut bench = Bench::new("a1", None);
        drop(bench.begin("a1"));
        let noted = fs::read_to_string(bench.file(0)).unwrap();
        for (name, found, is_told) in [
            ("empty", "", false),
            ("the first byte is still to come", &format!("\0{}", &noted[1..]), false),
            ("crossed out", &format!("-{}", &noted[1..]), false),
            ("cut", &noted[..noted.len() - 1], true),
            ("another form", "000000000000003\nabc", true),
            ("another form in JSON", "[\"/logs\",[{}]]", true),
        ] {
            fs::write(bench.file(0), found).unwrap();
            let log = logged(Level::INFO, || assert_eq!(bench.logged(), None, "{name}"));
            let told = format!("WARN plimsoll::store::underway: {} is no list", bench.file(0).display());
            assert_eq!(
                (log.contains(&told), log.lines().count()),
                (is_told, is_told.into()),
                "{name}: {log}"
            );
            assert_eq!(bench.files(), [true, false, false], "{name}");
            assert_eq!(fs::read(bench.file(0)).unwrap(), b"", "{name}");
        }
    }

    /// If nothing can be put into the database now, the file stays for the next start, and this one takes another.
    #[test]
    fn an_underway_file_that_cannot_be_taken_over_is_kept() {
        let mut bench = Bench::new("a1 a2", Some("a1"));
        drop(bench.begin("a2"));
        let full = "CREATE TRIGGER full BEFORE INSERT ON unlogged BEGIN SELECT RAISE(ABORT, 'full'); END";
        bench.connection.execute_batch(full).unwrap();
        let log = logged(Level::INFO, || assert_eq!(bench.logged(), Some(text("a1"))));
        assert_eq!(log.lines().count(), 1, "{log}");
        assert!(log.contains("is left to the next start") && log.contains("full"), "{log}");
        assert_eq!(bench.files(), [true, true, false]);
        bench.connection.execute_batch("DROP TRIGGER full").unwrap();
        assert_eq!(bench.logged(), Some(text("a1 a2")));
    }

    /// A file that cannot be opened or locked does not hide those after it.
    #[test]
    fn unusable_underway_files_are_skipped_with_a_warning_if_all_are() {
        for (name, blocked, expected, told) in [("one", 1, Some("a1"), false), ("all", MAX_FILES, None, true)]
        {
            let mut bench = Bench::new("a1", None);
            drop(bench.begin("a1"));
            fs::rename(bench.file(0), bench.file(1)).unwrap();
            for number in 0..blocked {
                fs::remove_file(bench.file(number)).unwrap_or_default();
                let make = if number == 0 { "mkfifo" } else { "mkdir" };
                assert!(std::process::Command::new(make).arg(bench.file(number)).status().unwrap().success());
            }
            let log = logged(Level::INFO, || {
                let mut underway = bench.begin("a1");
                assert_eq!(bench.wait(), expected.map(text), "{name}");
                underway.cross_out();
                underway.close();
            });
            assert_eq!(log.contains("WARN") && log.contains("only in the database"), told, "{name}: {log}");
            assert_eq!(log.lines().count(), 1, "{name}: {log}");
        }
    }

    /// A log that cannot be read keeps nothing else from being logged, and is examined again once it can be.
    #[test]
    fn an_unreadable_log_is_examined_again_once_readable() {
        let mut bench = Bench::new("a1 a2 b1", Some("a1"));
        drop(bench.begin("a2 b1"));
        let away = bench.dir().join("away");
        fs::rename(bench.log(), &away).unwrap();
        fs::create_dir(bench.log()).unwrap();
        assert_eq!(bench.logged(), None);
        assert_eq!(fs::read_to_string(bench.dir().join(logs::file_name("b"))).unwrap(), text("b1"));
        fs::remove_dir(bench.log()).unwrap();
        fs::rename(&away, bench.log()).unwrap();
        fs::write(bench.log(), text("a1 a2")).unwrap();
        assert_eq!(bench.logged(), Some(text("a1 a2")));
    }
}
