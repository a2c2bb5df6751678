//! Reads the ledger's rows.
//!
//! Reports need no running gateway and disturb none: they read through a connection of their own. Nothing here writes,
//! and nothing here knows the contents of a record.

use std::ops::Range;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension as _, named_params};

use super::reader::Reader;
use super::sqlite::DECISIONS;
use super::{Spent, StoreError, StoredDecision, Summary, missing, schema, splices, sqlite, summaries};
use crate::planner::Splice;

/// The name of the database file in the state directory.
pub const FILE_NAME: &str = "plimsoll.db";

/// Which rows to read. The default is all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LedgerFilter {
    /// Only requests received at this time or later, in milliseconds since 1970.
    pub since_ms: Option<i64>,
    /// Only requests received before this time, in milliseconds since 1970.
    pub until_ms: Option<i64>,
}

/// The order in which rows are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// By the time of the request.
    OldestFirst,
    /// The opposite.
    NewestFirst,
}

/// A row of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerEntry<'a> {
    /// When the request was received, in milliseconds since 1970.
    pub at_ms: i64,
    /// The record as JSON: a missing field is null, false, 0 or empty.
    pub record: &'a str,
}

/// The rows of a conversation, oldest first: by the time of the request, except that rows from before and after the
/// clock was set back stay in the order of booking. The clock was set back where a request ended more than [`LATE_MS`]
/// before the one that was booked before it.
const OF_CONVERSATION: &str = "
WITH booked AS (
  SELECT rowid AS place,
         at_ms + coalesce(CASE WHEN json_valid(record) THEN json_extract(record, '$.timing.total_ms') END, 0) AS end_ms
  FROM ledger WHERE conversation = :conversation
), steps AS (
  SELECT place, end_ms + :late_ms < lag(end_ms, 1, end_ms) OVER (ORDER BY place) AS is_back FROM booked
), runs AS (
  SELECT place, sum(is_back) OVER (ORDER BY place) AS run FROM steps
)
SELECT at_ms, record FROM runs JOIN ledger ON ledger.rowid = place ORDER BY run, at_ms, id";

/// Records of requests that ended within this many milliseconds may be booked in the opposite order.
const LATE_MS: i64 = 60_000;

/// How many of a conversation's newest rows are searched for one.
const SEARCHED_ROWS: u32 = 512;

/// A decision as described by a record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sought<'a> {
    /// The digest of the history that ends with its message; `None` if the record does not say.
    pub chain: Option<&'a str>,
    /// The index of the part in the message.
    pub part: u32,
    /// The digest of the part's original contents.
    pub content: &'a str,
    /// The rules that led to it.
    pub rules: &'a str,
    /// The size in bytes of the text that is sent.
    pub bytes_after: u64,
    /// The id of the stored full text, if any.
    pub output: Option<&'a str>,
}

/// The ledger of a store, read-only.
#[derive(Debug)]
pub struct Books {
    reader: Reader,
}

impl Books {
    /// Opens the ledger of a store; `None` if there is no store yet.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or was made by a newer version.
    pub fn open(path: &Path) -> Result<Option<Self>, StoreError> {
        if !path.try_exists()? {
            return Ok(None);
        }
        let reader = Reader::open(path)?;
        match reader.ask(|connection| Ok(schema::version(connection)?))? {
            0 => Ok(None),
            1..=schema::VERSION => Ok(Some(Self { reader })),
            _ => Err(StoreError::Newer),
        }
    }

    /// Calls `each` with the rows of the store at a path; not at all if there is no store yet. Returns the number of
    /// missing records.
    pub fn read(
        path: &Path,
        filter: LedgerFilter,
        order: Order,
        each: &mut dyn FnMut(LedgerEntry<'_>),
    ) -> Result<u64, StoreError> {
        let Some(books) = Self::open(path)? else { return Ok(0) };
        books.reader.ask(|connection| rows(connection, filter, order, each))?;
        books.missing(filter)
    }

    /// Calls `each` with the rows, oldest first.
    pub fn rows(
        &self,
        filter: LedgerFilter,
        each: &mut dyn FnMut(LedgerEntry<'_>),
    ) -> Result<(), StoreError> {
        self.reader.ask(|connection| rows(connection, filter, Order::OldestFirst, each))
    }

    /// The number of records that were dropped, of requests in the time that the filter gives. A store of an older
    /// version has no such figure; then it is 0.
    pub fn missing(&self, filter: LedgerFilter) -> Result<u64, StoreError> {
        self.reader.ask(|connection| {
            if has_table(connection, "missing")? { missing::count(connection, filter) } else { Ok(0) }
        })
    }

    /// The ids of the conversations that begin with `start`.
    pub fn conversations(&self, start: &str) -> Result<Vec<String>, StoreError> {
        self.reader.ask(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT DISTINCT conversation FROM ledger
                 WHERE substr(conversation, 1, length(:start)) = :start ORDER BY conversation",
            )?;
            let ids = statement.query_map(named_params! {":start": start}, |row| row.get(0))?;
            Ok(ids.collect::<Result<_, _>>()?)
        })
    }

    /// Calls `each` with the rows of a conversation, oldest first, even if the clock was set back in between.
    pub fn rows_of(
        &self,
        conversation: &str,
        each: &mut dyn FnMut(LedgerEntry<'_>),
    ) -> Result<(), StoreError> {
        self.reader.ask(|connection| {
            let mut statement = connection.prepare_cached(OF_CONVERSATION)?;
            let mut rows =
                statement.query(named_params! {":conversation": conversation, ":late_ms": LATE_MS})?;
            each_of(&mut rows, each)
        })
    }

    /// The id of the conversation that a thread belongs to; `None` if the thread is no longer stored.
    pub fn conversation_of(&self, thread: &str) -> Result<Option<String>, StoreError> {
        self.reader.ask(|connection| {
            let mut statement =
                connection.prepare_cached("SELECT conversation FROM threads WHERE id = ?1")?;
            let mut rows = statement.query([thread])?;
            Ok(rows.next()?.map(|row| row.get(0)).transpose()?)
        })
    }

    /// The newest summary of a conversation. A store of an older version has none.
    pub fn summary(&self, conversation: &str) -> Result<Option<Summary>, StoreError> {
        self.reader.ask(|connection| {
            if has_table(connection, "summaries")? {
                summaries::of_conversation(connection, conversation)
            } else {
                Ok(None)
            }
        })
    }

    /// The newest splice with this rule, end, sizes in bytes before and after, and stored full text.
    pub fn splice(
        &self,
        rule: &str,
        end: u32,
        sizes: (u64, u64),
        output: Option<&str>,
    ) -> Result<Option<Splice>, StoreError> {
        self.reader.ask(|connection| {
            if has_table(connection, "splices")? {
                splices::like(connection, rule, end, sizes, output)
            } else {
                Ok(None)
            }
        })
    }

    /// The ids of the stored full texts, each with the time when it was last used, in milliseconds since 1970.
    pub fn outputs(&self) -> Result<Vec<(String, i64)>, StoreError> {
        self.reader.ask(|connection| {
            let mut statement = connection.prepare_cached("SELECT id, at_ms FROM outputs")?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    /// The decision that a record describes. `None` if it is no longer stored or, where the record does not name the
    /// history, if several decisions match that are not sent as the same text.
    pub fn decision(&self, sought: &Sought<'_>) -> Result<Option<StoredDecision>, StoreError> {
        // Two statements, so that the first can use its index.
        let place = match sought.chain {
            Some(_) => "chain = unhex(:chain) AND part = :part",
            None => ":chain IS NULL AND part = :part",
        };
        self.reader.ask(|connection| {
            let mut statement = connection.prepare_cached(&format!(
                "{DECISIONS} WHERE {place} AND content = unhex(:content) AND rules = :rules AND bytes_after = :bytes_after
                 AND output IS :output"
            ))?;
            let mut rows = statement.query(named_params! {
                ":chain": sought.chain,
                ":part": sought.part,
                ":content": sought.content,
                ":rules": sought.rules,
                ":bytes_after": sought.bytes_after,
                ":output": sought.output,
            })?;
            let mut found: Option<StoredDecision> = None;
            while let Some(row) = rows.next()? {
                let other = sqlite::decision(row)?;
                match &found {
                    Some(one) if one.decision.leaves != other.decision.leaves => return Ok(None),
                    Some(_) => {}
                    None => found = Some(other),
                }
            }
            Ok(found)
        })
    }
}

fn has_table(connection: &Connection, name: &str) -> Result<bool, StoreError> {
    let mut statement =
        connection.prepare_cached("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1")?;
    Ok(statement.exists([name])?)
}

fn rows(
    connection: &Connection,
    filter: LedgerFilter,
    order: Order,
    each: &mut dyn FnMut(LedgerEntry<'_>),
) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(match order {
        Order::OldestFirst => {
            "SELECT at_ms, record FROM ledger WHERE at_ms >= :since AND at_ms < :until ORDER BY at_ms, id"
        }
        Order::NewestFirst => {
            "SELECT at_ms, record FROM ledger WHERE at_ms >= :since AND at_ms < :until ORDER BY at_ms DESC, id DESC"
        }
    })?;
    let mut rows = statement.query(named_params! {
        ":since": filter.since_ms.unwrap_or(i64::MIN),
        ":until": filter.until_ms.unwrap_or(i64::MAX),
    })?;
    each_of(&mut rows, each)
}

/// The row of an answer among the newest of a conversation, and when its request was received.
pub(super) fn record(
    connection: &Connection,
    conversation: &str,
    answer: &str,
) -> Result<Option<(String, i64)>, StoreError> {
    // Only rows that contain the id are parsed.
    let mut statement = connection.prepare_cached(
        "SELECT record, at_ms FROM
           (SELECT record, at_ms FROM ledger WHERE conversation = :conversation ORDER BY at_ms DESC LIMIT :most)
         WHERE CASE WHEN instr(record, :answer) AND json_valid(record) THEN json_extract(record, '$.answer') END = :answer",
    )?;
    let named = named_params! {":conversation": conversation, ":answer": answer, ":most": SEARCHED_ROWS};
    Ok(statement.query_row(named, |row| Ok((row.get(0)?, row.get(1)?))).optional()?)
}

/// The row of a thread's newest request that was billed for this model, or was not billed at all, among the newest rows
/// of a conversation, and when it was received.
pub(super) fn last_request(
    connection: &Connection,
    conversation: &str,
    thread: &str,
    model: &str,
) -> Result<Option<(String, i64)>, StoreError> {
    // Only rows that contain the thread's id are parsed, from the newest to the first that fits. Calls of the gateway's
    // own are not requests of the thread.
    let mut statement = connection.prepare_cached(
        "SELECT record, at_ms FROM ledger WHERE conversation = :conversation
           AND at_ms >= coalesce((SELECT at_ms FROM ledger WHERE conversation = :conversation
             ORDER BY at_ms DESC LIMIT 1 OFFSET :most), at_ms)
           AND CASE WHEN instr(record, :thread) AND json_valid(record) THEN
             json_extract(record, '$.thread') = :thread AND json_type(record, '$.own') IS NULL
               AND (model = :model OR json_type(record, '$.tokens') IS NOT 'object') END
         ORDER BY at_ms DESC LIMIT 1",
    )?;
    let named = named_params! {
        ":conversation": conversation,
        ":thread": thread,
        ":model": model,
        ":most": SEARCHED_ROWS,
    };
    Ok(statement.query_row(named, |row| Ok((row.get(0)?, row.get(1)?))).optional()?)
}

/// The cost and the tokens of the rows of one conversation, or of all, in a period.
pub(super) fn spent(
    connection: &Connection,
    conversation: Option<&str>,
    within_ms: Range<i64>,
) -> Result<Spent, StoreError> {
    // Two statements, so that each can use its index.
    let rows = match conversation {
        Some(_) => "conversation = :conversation AND at_ms >= :since AND at_ms < :until",
        None => ":conversation IS NULL AND at_ms >= :since AND at_ms < :until",
    };
    let mut statement = connection.prepare_cached(&format!(
        "SELECT coalesce(sum(cost), 0), coalesce(sum(
           (SELECT sum(value) FROM json_each(CASE WHEN json_valid(record) THEN record END, '$.tokens')
            WHERE type = 'integer' AND value BETWEEN 0 AND 4294967296
              AND key IN ('input', 'cache_read', 'cache_write_5m', 'cache_write_1h', 'cache_write_12h', 'output'))
         ), 0) FROM ledger WHERE {rows}"
    ))?;
    let Range { start, end } = within_ms;
    let named = named_params! {":conversation": conversation, ":since": start, ":until": end};
    Ok(statement.query_row(named, |row| Ok(Spent { picodollars: row.get(0)?, tokens: row.get(1)? }))?)
}

fn each_of(rows: &mut rusqlite::Rows<'_>, each: &mut dyn FnMut(LedgerEntry<'_>)) -> Result<(), StoreError> {
    while let Some(row) = rows.next()? {
        // A value that is not text is not a record: it is counted as one that cannot be read.
        let record = row.get_ref(1)?.as_str().unwrap_or_default();
        each(LedgerEntry { at_ms: row.get(0)?, record });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::conversation::{Chain, Digest};
    use crate::plan::LeafEdit;
    use crate::planner::decision::Save;
    use crate::planner::{Cause, Decision};
    use crate::store::{Batch, LedgerRow, Outputs, Sqlite, Store};

    fn row(at_ms: i64) -> LedgerRow {
        let text = at_ms.to_string();
        LedgerRow { id: text.clone(), at_ms, record: text, ..LedgerRow::default() }
    }

    fn write(home: &Path, rows: Vec<LedgerRow>) -> Sqlite {
        write_all(home, Batch { ledger: rows, ..Batch::default() })
    }

    fn write_all(home: &Path, batch: Batch) -> Sqlite {
        let store =
            Sqlite::open(&home.join(FILE_NAME), Outputs::new(home.join("outputs")), home.join("logs"), 8)
                .unwrap();
        let stored = store.commit(batch);
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(stored).unwrap();
        store
    }

    fn times(read: impl FnOnce(&mut dyn FnMut(LedgerEntry<'_>)) -> Result<(), StoreError>) -> Vec<i64> {
        let mut times = Vec::new();
        read(&mut |entry| {
            assert_eq!(entry.record, entry.at_ms.to_string());
            times.push(entry.at_ms);
        })
        .unwrap();
        times
    }

    #[test]
    fn rows_can_be_read_beside_a_writer_and_without_one() {
        let home = tempfile::tempdir().unwrap();
        let store = write(home.path(), vec![row(30), row(10), row(20)]);
        let books = Books::open(&home.path().join(FILE_NAME)).unwrap().unwrap();
        for (since_ms, until_ms, expected) in [
            (None, None, &[10, 20, 30][..]),
            (Some(20), None, &[20, 30]),
            (None, Some(20), &[10]),
            (Some(11), Some(30), &[20]),
            (Some(31), None, &[]),
        ] {
            let filter = LedgerFilter { since_ms, until_ms };
            assert_eq!(times(|each| books.rows(filter, each)), expected, "{filter:?}");
            let path = home.path().join(FILE_NAME);
            let order = Order::NewestFirst;
            let mut read = times(|each| Books::read(&path, filter, order, each).map(|_| ()));
            read.reverse();
            assert_eq!(read, expected, "{filter:?}");
        }
        drop(store);
        assert_eq!(times(|each| books.rows(LedgerFilter::default(), each)), [10, 20, 30]);
        drop(books);
        let files = std::fs::read_dir(home.path()).unwrap();
        let mut files: Vec<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        files.sort();
        assert_eq!(files, ["logs", "plimsoll.db"], "nothing is left behind");
        let books = Books::open(&home.path().join(FILE_NAME)).unwrap().unwrap();
        assert_eq!(times(|each| books.rows(LedgerFilter::default(), each)), [10, 20, 30]);
    }

    #[test]
    fn damaged_records_do_not_affect_the_spent_sums_of_others() {
        let home = tempfile::tempdir().unwrap();
        let spent = |id: &str, record: &str| LedgerRow {
            id: id.to_owned(),
            at_ms: 1,
            conversation: "c".to_owned(),
            cost: Some(1),
            record: record.to_owned(),
            ..LedgerRow::default()
        };
        let rows = [
            ("1", r#"{"tokens":{"input":2,"output":3}}"#),
            ("2", r#"{"tokens":{"#),
            ("3", "{}"),
            ("4", r#"{"tokens":{"input":12.5}}"#),
            ("5", r#"{"tokens":{"input":"x"}}"#),
            ("6", r#"{"tokens":{"input":9223372036854775807}}"#),
            ("7", r#"{"tokens":{"input":-9}}"#),
        ];
        let store = write(home.path(), rows.map(|(id, record)| spent(id, record)).into());
        for conversation in [None, Some("c")] {
            let all = Spent { picodollars: 7, tokens: 5 };
            assert_eq!(store.spent(conversation, 0..2).unwrap(), all, "{conversation:?}");
        }
    }

    /// A record is found by the id of its answer in its conversation, if it is one of the newest; a damaged one is not
    /// found.
    #[test]
    fn a_recent_record_is_found_by_its_answer_id() {
        let home = tempfile::tempdir().unwrap();
        let told = |at_ms: i64, conversation: &str, record: &str| LedgerRow {
            conversation: conversation.to_owned(),
            record: record.to_owned(),
            ..row(at_ms)
        };
        let answer = |id: &str| format!(r#"{{"error":"r1","answer":"{id}"}}"#);
        let more = (0..i64::from(SEARCHED_ROWS)).map(|at| told(100 + at, "long", "{}"));
        let rows = [
            told(1, "c", &answer("r1")),
            told(2, "c", r#"{"answer":"r1""#),
            told(3, "c", &answer("r10")),
            told(4, "d", &answer("r4")),
            told(99, "long", &answer("r5")),
        ];
        let store = write(home.path(), rows.into_iter().chain(more).collect());
        for (conversation, id, expected) in [
            ("c", "r1", Some(1)),
            ("c", "r10", Some(3)),
            ("c", "r", None),
            ("c", "r4", None),
            ("long", "r5", None),
            ("none", "r1", None),
        ] {
            let found = store.record(conversation, id).unwrap();
            assert_eq!(found, expected.map(|at_ms| (answer(id), at_ms)), "{conversation} {id}");
        }
    }

    #[test]
    fn the_last_request_of_a_thread_is_found_by_its_model() {
        let home = tempfile::tempdir().unwrap();
        let of = |thread: &str, more: &str| format!(r#"{{"error":"a","thread":"{thread}"{more}}}"#);
        let (billed, own) =
            (r#","tokens":{"input":1}"#, r#","tokens":{"input":1},"own":{"purpose":"summary"}"#);
        let rows = [
            (1, "c", "m", of("a", billed)),
            (3, "c", "m", of("a", billed)),
            (2, "c", "m", of("a", billed)),
            (5, "c", "m", of("a", own)),
            (6, "c", "m", of("b", billed)),
            (7, "c", "n", of("a", billed)),
            (8, "c", "m", of("a", billed).replace('}', "")),
            (9, "d", "m", of("a", billed)),
            (10, "e", "m", of("a", billed)),
            (11, "e", "n", of("a", "")),
        ];
        let rows = rows.map(|(at_ms, conversation, model, record)| LedgerRow {
            conversation: conversation.to_owned(),
            model: Some(model.to_owned()),
            record,
            ..row(at_ms)
        });
        let store = write(home.path(), rows.into());
        for (conversation, thread, model, expected) in [
            ("c", "a", "m", Some((3, billed))),
            ("c", "b", "m", Some((6, billed))),
            ("c", "a", "n", Some((7, billed))),
            ("d", "a", "m", Some((9, billed))),
            ("e", "a", "m", Some((11, ""))),
            ("c", "c", "m", None),
            ("d", "a", "n", None),
        ] {
            let found = store.last_request(conversation, thread, model).unwrap();
            let expected = expected.map(|(at_ms, more)| (of(thread, more), at_ms));
            assert_eq!(found, expected, "{conversation} {thread} {model}");
        }
    }

    /// Requests in the order in which they were booked, each with the time when it was received and how long it took.
    #[test]
    fn rows_of_a_conversation_keep_their_order_when_the_clock_is_set_back() {
        const HOUR: i64 = 3_600_000;
        for (booked, expected) in [
            (&[(30, 0), (10, 0), (20, 0)][..], &[10, 20, 30][..]),
            // A long one is booked when it ends.
            (&[(20, 10), (HOUR, 5), (10, 2 * HOUR)], &[10, 20, HOUR]),
            (&[(HOUR, 0), (5, 0), (10, 0), (3 * HOUR, 0)], &[HOUR, 5, 10, 3 * HOUR]),
            (
                &[(HOUR, 0), (HOUR + 5, 0), (7, 0), (2, 9), (HOUR, 0), (1, 0)],
                &[HOUR, HOUR + 5, 2, 7, HOUR, 1],
            ),
            // One that was in progress when the clock was set.
            (&[(HOUR, 9), (5, 9), (HOUR - 50, 90), (20, 9)], &[HOUR, 5, HOUR - 50, 20]),
            (&[(LATE_MS, 0), (0, 0)], &[0, LATE_MS]),
            (&[(LATE_MS + 1, 0), (0, 0)], &[LATE_MS + 1, 0]),
        ] {
            let home = tempfile::tempdir().unwrap();
            let row = |(at, (at_ms, took)): (usize, &(i64, i64))| LedgerRow {
                id: format!("{}", 99 - at),
                at_ms: *at_ms,
                conversation: "c".to_owned(),
                record: format!(r#"{{"timing":{{"total_ms":{took}}}}}"#),
                ..LedgerRow::default()
            };
            let damaged =
                LedgerRow { conversation: "d".to_owned(), record: "{".to_owned(), ..row((9, &(1, 0))) };
            let rows = booked.iter().enumerate().map(row).chain([damaged]).collect();
            drop(write(home.path(), rows));
            let books = Books::open(&home.path().join(FILE_NAME)).unwrap().unwrap();
            let read = |conversation| {
                let mut times = Vec::new();
                books.rows_of(conversation, &mut |entry| times.push(entry.at_ms)).unwrap();
                times
            };
            assert_eq!((read("c").as_slice(), read("d")), (expected, vec![1]), "{booked:?}");
        }
    }

    #[test]
    fn outputs_are_listed_with_their_last_use() {
        let home = tempfile::tempdir().unwrap();
        let saves = vec![Save { id: "00".to_owned(), text: String::new() }];
        drop(write_all(home.path(), Batch { saves, at_ms: 5, ..Batch::default() }));
        drop(write_all(home.path(), Batch { touch: vec!["00".to_owned()], at_ms: 7, ..Batch::default() }));
        let books = Books::open(&home.path().join(FILE_NAME)).unwrap().unwrap();
        assert_eq!(books.outputs().unwrap(), [("00".to_owned(), 7)]);
    }

    /// Equal results are sent as different texts in different conversations: unless a decision is known to be the right
    /// one, none is returned.
    #[test]
    fn decisions_are_found_by_their_history_or_if_unambiguous() {
        let digest = |name: &str| Digest::of(&[name.as_bytes()]);
        let hex = |name: &str| digest(name).to_string();
        let stored = |chain: &str, (part, since): (u32, &str), content: &str, text: &str| {
            let decision = Decision {
                cause: Cause::Cleared,
                leaves: vec![(0, LeafEdit::Replace(text.into()))],
                content: digest(content),
                key: None,
                bytes_before: 900,
                bytes_after: text.len() as u64,
                output: Some(text[..1].to_owned()),
            };
            let [chain, since, root] = [chain, since, "root"].map(|name| Chain(digest(name)));
            StoredDecision { chain, part, since, root, decision: Arc::new(decision) }
        };
        let home = tempfile::tempdir().unwrap();
        let decisions = vec![
            stored("a", (0, "a"), "ls", "a: Bash"),
            stored("b", (0, "b"), "ls", "a: Grep"),
            stored("c", (0, "c"), "ls", "o: Bash"),
            stored("c", (1, "c"), "ls", "a: long"),
            stored("d", (0, "d"), "cat", "a: once"),
            stored("d", (0, "e"), "cat", "a: once"),
            stored("e", (0, "e"), "cat", "a: longer"),
        ];
        drop(write_all(home.path(), Batch { decisions, ..Batch::default() }));
        let books = Books::open(&home.path().join(FILE_NAME)).unwrap().unwrap();
        for (chain, part, content, bytes_after, expected) in [
            (Some("a"), 0, "ls", 7, Some("a: Bash")),
            (Some("b"), 0, "ls", 7, Some("a: Grep")),
            (Some("c"), 1, "ls", 7, Some("a: long")),
            // What is stored there now is not what the record describes.
            (Some("c"), 0, "ls", 7, None),
            (Some("a"), 0, "ls", 8, None),
            (Some("a"), 0, "cat", 7, None),
            (Some("gone"), 0, "ls", 7, None),
            (Some("d"), 0, "cat", 7, Some("a: once")),
            // The history is not known.
            (None, 0, "ls", 7, None),
            (None, 1, "ls", 7, Some("a: long")),
            (None, 0, "cat", 7, Some("a: once")),
            (None, 0, "cat", 9, Some("a: longer")),
            (None, 0, "cat", 8, None),
        ] {
            let (chain, content) = (chain.map(hex), hex(content));
            let sought = Sought {
                chain: chain.as_deref(),
                part,
                content: &content,
                rules: "clear",
                bytes_after,
                output: Some("a"),
            };
            let found = books.decision(&sought).unwrap();
            let text = found.map(|found| found.decision.leaves.clone());
            let expected = expected.map(|text| vec![(0, LeafEdit::Replace(text.into()))]);
            assert_eq!(text, expected, "{sought:?}");
            let other = Sought { rules: "fold", ..sought };
            assert_eq!(books.decision(&other).unwrap(), None);
        }
    }

    #[test]
    fn a_ledger_changed_while_being_read_is_an_error() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(FILE_NAME);
        drop(write(home.path(), vec![row(10)]));
        let books = Books::open(&path).unwrap().unwrap();
        assert_eq!(times(|each| books.rows(LedgerFilter::default(), each)), [10]);
        assert!(!path.with_extension("db-wal").exists(), "reading creates nothing");
        let long = LedgerRow { record: " ".repeat(100_000), ..row(20) };
        drop(write(home.path(), vec![long]));
        let read = books.rows(LedgerFilter::default(), &mut |_| {});
        assert!(matches!(read, Err(StoreError::Changed)));
        assert!(matches!(books.conversations(""), Err(StoreError::Changed)));
    }

    #[test]
    fn the_wal_is_read_through_a_symlink_too() {
        let home = tempfile::tempdir().unwrap();
        let store = write(home.path(), vec![row(10)]);
        let link = home.path().join("link");
        std::os::unix::fs::symlink(home.path().join(FILE_NAME), &link).unwrap();
        let books = Books::open(&link).unwrap().unwrap();
        assert_eq!(times(|each| books.rows(LedgerFilter::default(), each)), [10]);
        drop(store);
    }

    #[test]
    fn missing_newer_older_and_foreign_ledgers_are_distinguished() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(FILE_NAME);
        assert!(Books::open(&path).unwrap().is_none());
        assert!(!path.exists(), "reading creates nothing");
        std::fs::write(&path, "").unwrap();
        assert!(Books::open(&path).unwrap().is_none());
        drop(write(home.path(), vec![]));
        let connection = Connection::open(&path).unwrap();
        connection.pragma_update(None, "user_version", schema::VERSION + 1).unwrap();
        drop(connection);
        let newer = Books::open(&path).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(newer.contains("newer version\n  hint: run that version"), "{newer}");
        let connection = Connection::open(&path).unwrap();
        connection
            .execute_batch(
                "DROP TABLE summaries; DROP TABLE splices; DROP TABLE missing; PRAGMA user_version = 1",
            )
            .unwrap();
        drop(connection);
        let older = Books::open(&path).unwrap().unwrap();
        assert!(older.summary("c").unwrap().is_none());
        assert!(older.splice("note", 1, (2, 1), None).unwrap().is_none());
        assert_eq!(older.missing(LedgerFilter::default()).unwrap(), 0);
        drop(older);
        std::fs::write(&path, "x".repeat(4096)).unwrap();
        assert!(matches!(Books::open(&path), Err(StoreError::Database(_))));
    }
}
