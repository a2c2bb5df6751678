//! One conversation's records, found by its id or the beginning of it.

use std::collections::{BTreeSet, HashMap, VecDeque};

use serde::Serialize;

use super::record::{Calls, Record};
use super::totals::Totals;
use crate::store::{Books, StoreError};

/// Files that are noted of one conversation.
const FILES: usize = 1000;

/// What its ids are the ids of, in words.
pub const CONVERSATION: &str = "conversation";

/// A conversation.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Its id.
    pub id: String,
    /// Its newest records, oldest first.
    pub entries: Vec<Entry>,
    /// How many records it has in all, those that could not be read aside.
    pub of: usize,
    /// The sums of all of them.
    pub totals: Totals,
    /// The files that calls wrote, by all of them, in the order in which they were first written: the first 1,000.
    pub files: Vec<WrittenFile>,
    /// Records that could not be read.
    pub unreadable: u64,
}

/// A file that calls wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WrittenFile {
    /// Its path, as the calls spell it.
    pub path: String,
    /// The number of the request that the first of these calls came with.
    pub n: usize,
    /// How many requests such calls came with.
    pub requests: u32,
}

/// A record of it.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    /// When the request came, in milliseconds since 1970.
    pub at_ms: i64,
    /// The number of the request, from 1; `None` for a call of the gateway's own.
    pub number: Option<usize>,
    /// What was written down.
    pub record: Record,
}

/// The files of a conversation, and where each is among them.
#[derive(Default)]
struct Files {
    all: Vec<WrittenFile>,
    places: HashMap<String, usize>,
}

/// Why there is no such conversation.
#[derive(Debug, thiserror::Error)]
pub enum NoHistory {
    /// The store cannot be read.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// There is none, or more than one.
    #[error("{0}")]
    Id(#[from] NoId),
}

/// Why the beginning of an id leads to none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoId {
    /// There is none.
    #[error("`{start}`: no {kind} has an id that begins so")]
    None {
        /// What it is the id of.
        kind: &'static str,
        /// What was asked for.
        start: String,
    },
    /// There is more than one.
    #[error("`{start}`: {} {kind}s have ids that begin so", .found.len())]
    Several {
        /// What they are the ids of.
        kind: &'static str,
        /// What was asked for.
        start: String,
        /// The ids.
        found: Vec<String>,
    },
}

impl History {
    /// The id of the conversation that `id` is the id of, or the beginning of no other's.
    ///
    /// # Errors
    /// [`NoHistory`].
    pub fn find(books: &Books, id: &str) -> Result<String, NoHistory> {
        let found = books.conversations(begun(id))?;
        Ok(one(CONVERSATION, id, found)?)
    }

    /// Reads the conversation that `id` is the id of, or the beginning of no other's. No more than the newest `most`
    /// records are kept.
    ///
    /// # Errors
    /// [`NoHistory`].
    pub fn read(books: &Books, id: &str, most: usize) -> Result<Self, NoHistory> {
        let mut history = Self { id: Self::find(books, id)?, ..Self::default() };
        let (mut entries, mut count, mut files) = (VecDeque::new(), 0, Files::default());
        books.rows_of(&history.id, &mut |row| {
            let Ok(record) = serde_json::from_str::<Record>(row.record) else {
                history.unreadable += 1;
                return;
            };
            history.of += 1;
            history.totals.add(&record);
            let number = number(&record, &mut count);
            files.add(&record, number.unwrap_or(count));
            entries.push_back(Entry { at_ms: row.at_ms, number, record });
            if entries.len() > most {
                entries.pop_front();
            }
        })?;
        (history.entries, history.files) = (entries.into(), files.all);
        Ok(history)
    }

    /// How the calls of the newest prompt that was read stand.
    pub fn calls(&self) -> Option<Calls> {
        self.entries.iter().rev().find_map(|entry| entry.record.calls)
    }
}

/// The records of other conversations whose history those of this one go on from, and of those that these go on from in
/// turn: each conversation's oldest first.
///
/// # Errors
/// When they cannot be read.
pub fn ancestors(
    books: &Books,
    id: &str,
    records: &mut dyn Iterator<Item = &Record>,
) -> Result<Vec<Entry>, StoreError> {
    let (mut found, mut read) = (Vec::new(), BTreeSet::from([id.to_owned()]));
    let mut sought = strangers(records);
    while let Some(thread) = sought.pop() {
        let Some(conversation) = books.conversation_of(&thread)? else { continue };
        if !read.insert(conversation.clone()) {
            continue;
        }
        match History::read(books, &conversation, usize::MAX) {
            Ok(History { entries, .. }) => {
                sought.extend(strangers(&mut entries.iter().map(|entry| &entry.record)));
                found.extend(entries);
            }
            // Its records have been removed.
            Err(NoHistory::Id(_)) => {}
            Err(NoHistory::Store(error)) => return Err(error),
        }
    }
    Ok(found)
}

/// The threads that some branched from and that are not among them.
fn strangers(records: &mut dyn Iterator<Item = &Record>) -> Vec<String> {
    let (mut threads, mut parents) = (BTreeSet::new(), BTreeSet::new());
    for record in records {
        threads.extend(&record.thread);
        parents.extend(&record.parent);
    }
    parents.difference(&threads).map(|thread| (*thread).clone()).collect()
}

impl Files {
    /// Notes those of a request, the `n`th.
    fn add(&mut self, record: &Record, n: usize) {
        for path in &record.files {
            match self.places.get(path) {
                // One that is sent again is another record of the same.
                Some(at) => self.all[*at].requests += u32::from(record.attempt == 0),
                None if self.all.len() < FILES => {
                    self.places.insert(path.clone(), self.all.len());
                    self.all.push(WrittenFile { path: path.clone(), n, requests: 1 });
                }
                None => {}
            }
        }
    }
}

/// The number of a conversation's next request: counts what the client asked for, and nothing else.
pub fn number(record: &Record, count: &mut usize) -> Option<usize> {
    record.own.is_none().then(|| {
        *count += 1;
        *count
    })
}

/// An id as tables show one that they cut.
fn begun(id: &str) -> &str {
    id.trim_end_matches('…')
}

/// The only one of the ids that begin with `start`, or the one that it is; `found` are ids of that kind.
///
/// # Errors
/// [`NoId`].
pub fn one(kind: &'static str, start: &str, mut found: Vec<String>) -> Result<String, NoId> {
    let id = begun(start);
    found.retain(|found| found.starts_with(id));
    if found.iter().any(|found| found == id) {
        return Ok(id.to_owned());
    }
    match found.len() {
        0 => Err(NoId::None { kind, start: id.to_owned() }),
        1 => Ok(found.remove(0)),
        _ => Err(NoId::Several { kind, start: id.to_owned(), found }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Own;
    use crate::store::{Batch, LedgerRow, Outputs, Sqlite, Store, ledger};

    #[test]
    fn an_id_may_be_cut() {
        let found = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        for (id, ids, expected) in [
            ("a", &["a"][..], Ok("a")),
            ("ab", &["abc"], Ok("abc")),
            ("ab…", &["abc", "b"], Ok("abc")),
            ("ab", &["ab", "abc"], Ok("ab")),
            ("ab", &[], Err("`ab`: no conversation has an id that begins so")),
            ("a", &["ab", "ac"], Err("`a`: 2 conversations have ids that begin so")),
        ] {
            let one = one(CONVERSATION, id, found(ids)).map_err(|wrong| wrong.to_string());
            assert_eq!(one.as_deref().map_err(String::as_str), expected, "{id} {ids:?}");
        }
    }

    /// Four requests, a call of the gateway's own between them, and a record that cannot be read.
    fn rows() -> Vec<LedgerRow> {
        let own = |at_ms: i64| (at_ms == 2).then(Own::default);
        let record = |at_ms| Record { conversation: "abc".to_owned(), own: own(at_ms), ..Record::default() };
        let row = |at_ms: i64| LedgerRow { id: at_ms.to_string(), ..Box::new(record(at_ms)).into_row(at_ms) };
        let mut rows: Vec<_> = (1..=5).map(row).collect();
        rows.push(LedgerRow { record: "{".to_owned(), ..row(6) });
        rows
    }

    #[test]
    fn the_newest_records_are_kept_and_all_are_counted() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(ledger::FILE_NAME);
        let store =
            Sqlite::open(&path, Outputs::new(home.path().join("o")), home.path().join("l"), 8).unwrap();
        let stored = store.commit(Batch { ledger: rows(), ..Batch::default() });
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(stored).unwrap();
        let books = Books::open(&path).unwrap().unwrap();
        for (most, expected) in [
            (9, &[Some(1), None, Some(2), Some(3), Some(4)][..]),
            (4, &[None, Some(2), Some(3), Some(4)]),
            (1, &[Some(4)]),
            (0, &[]),
        ] {
            let history = History::read(&books, "ab…", most).unwrap();
            let numbers: Vec<_> = history.entries.iter().map(|entry| entry.number).collect();
            assert_eq!((history.id.as_str(), numbers.as_slice()), ("abc", expected), "{most}");
            assert_eq!((history.of, history.unreadable), (5, 1), "{most}");
            assert_eq!((history.totals.requests, history.totals.own_calls), (4, 1), "{most}");
        }
    }

    /// In the order of their first request; what is sent again is no other request.
    #[test]
    fn files_that_calls_wrote() {
        let mut files = Files::default();
        for (n, paths, attempt) in
            [(1, &["b", "a"][..], 0), (2, &["a", "c"], 0), (2, &["a", "c"], 1), (4, &[], 0)]
        {
            let paths = paths.iter().map(|path| (*path).to_owned()).collect();
            files.add(&Record { files: paths, attempt, ..Record::default() }, n);
        }
        let file = |path: &str, n, requests| WrittenFile { path: path.to_owned(), n, requests };
        assert_eq!(files.all, [file("b", 1, 1), file("a", 1, 2), file("c", 2, 1)]);
        let many = (0..2 * FILES).map(|at| at.to_string()).collect();
        files.add(&Record { files: many, ..Record::default() }, 5);
        assert_eq!((files.all.len(), files.places.len()), (FILES, FILES));
    }
}
