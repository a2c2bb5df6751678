//! The records of one conversation, found by its id or a prefix of it.

use std::collections::{BTreeSet, HashMap, VecDeque};

use serde::Serialize;

use super::record::{Calls, Record};
use super::totals::Totals;
use crate::store::{Books, StoreError};

/// The maximum number of files listed for one conversation.
const MAX_FILES: usize = 1000;

/// The kind of id that this module looks up, in words.
pub const CONVERSATION: &str = "conversation";

/// A conversation, or its newest records.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Its id.
    pub id: String,
    /// Its newest records, oldest first.
    pub entries: Vec<Entry>,
    /// The number of records it has in all, without unreadable ones.
    pub of: usize,
    /// The sums over all of them.
    pub totals: Totals,
    /// The files that calls wrote, over all records, in the order in which they were first written; at most 1,000.
    pub files: Vec<WrittenFile>,
    /// The number of records that could not be read.
    pub unreadable: u64,
}

/// A file that calls wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WrittenFile {
    /// Its path, as the calls spell it.
    pub path: String,
    /// The number of the first request with such a call.
    pub n: usize,
    /// The number of requests with such calls.
    pub requests: u32,
}

/// A record of a conversation.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    /// When the request arrived, in milliseconds since 1970.
    pub at_ms: i64,
    /// The number of the request, from 1; `None` for a call of the gateway's own.
    pub number: Option<usize>,
    /// Its record.
    pub record: Record,
}

/// The files of a conversation, and the index of each by its path.
#[derive(Default)]
struct Files {
    all: Vec<WrittenFile>,
    indices: HashMap<String, usize>,
}

/// Why no conversation was found.
#[derive(Debug, thiserror::Error)]
pub enum NoHistory {
    /// The store cannot be read.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// No id matches, or several do.
    #[error("{0}")]
    Id(#[from] NoId),
}

/// Why a prefix does not identify one id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoId {
    /// No id matches.
    #[error("no {kind} id starts with `{start}`")]
    None {
        /// What kind of id it is.
        kind: &'static str,
        /// The prefix that was asked for.
        start: String,
    },
    /// Several ids match.
    #[error("{} {kind} ids start with `{start}`", .found.len())]
    Several {
        /// What kind of ids they are.
        kind: &'static str,
        /// The prefix that was asked for.
        start: String,
        /// The ids that match.
        found: Vec<String>,
    },
}

impl History {
    /// Returns the full id of the conversation that `id` names, in full or by a unique prefix.
    pub fn find(books: &Books, id: &str) -> Result<String, NoHistory> {
        let found = books.conversations(without_ellipsis(id))?;
        Ok(one(CONVERSATION, id, found)?)
    }

    /// Reads the conversation that `id` names, in full or by a unique prefix. Only the newest `most` records are kept.
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

    /// The states of the tool calls in the newest prompt that was read; `None` if none was.
    pub fn calls(&self) -> Option<Calls> {
        self.entries.iter().rev().find_map(|entry| entry.record.calls)
    }
}

/// The records of the conversations that this one was forked from, and of those that these were forked from in turn;
/// within each conversation, oldest first.
pub fn ancestors(
    books: &Books,
    id: &str,
    records: &mut dyn Iterator<Item = &Record>,
) -> Result<Vec<Entry>, StoreError> {
    let (mut found, mut read) = (Vec::new(), BTreeSet::from([id.to_owned()]));
    let mut sought = foreign_parents(records);
    while let Some(thread) = sought.pop() {
        let Some(conversation) = books.conversation_of(&thread)? else { continue };
        if !read.insert(conversation.clone()) {
            continue;
        }
        match History::read(books, &conversation, usize::MAX) {
            Ok(History { entries, .. }) => {
                sought.extend(foreign_parents(&mut entries.iter().map(|entry| &entry.record)));
                found.extend(entries);
            }
            // Its records were removed.
            Err(NoHistory::Id(_)) => {}
            Err(NoHistory::Store(error)) => return Err(error),
        }
    }
    Ok(found)
}

/// The threads that some of these records branched from, but none of them belongs to.
fn foreign_parents(records: &mut dyn Iterator<Item = &Record>) -> Vec<String> {
    let (mut threads, mut parents) = (BTreeSet::new(), BTreeSet::new());
    for record in records {
        threads.extend(&record.thread);
        parents.extend(&record.parent);
    }
    parents.difference(&threads).map(|thread| (*thread).clone()).collect()
}

impl Files {
    /// Adds the files of the conversation's `n`th request.
    fn add(&mut self, record: &Record, n: usize) {
        for path in &record.files {
            match self.indices.get(path) {
                // A resent request has another record of the same calls.
                Some(at) => self.all[*at].requests += u32::from(record.attempt == 0),
                None if self.all.len() < MAX_FILES => {
                    self.indices.insert(path.clone(), self.all.len());
                    self.all.push(WrittenFile { path: path.clone(), n, requests: 1 });
                }
                None => {}
            }
        }
    }
}

/// Returns the number of a conversation's next request; only requests of the client count.
pub fn number(record: &Record, count: &mut usize) -> Option<usize> {
    record.own.is_none().then(|| {
        *count += 1;
        *count
    })
}

/// A prefix of an id without the ellipsis that tables print after shortened ids.
fn without_ellipsis(id: &str) -> &str {
    id.trim_end_matches('…')
}

/// Returns the one id that begins with `start`, or that equals it; `found` are the candidates, all of that kind.
pub fn one(kind: &'static str, start: &str, mut found: Vec<String>) -> Result<String, NoId> {
    let id = without_ellipsis(start);
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
    use crate::ledger::OwnCall;
    use crate::store::{Batch, LedgerRow, Outputs, Sqlite, Store, ledger};

    #[test]
    fn an_unambiguous_id_prefix_is_resolved() {
        let found = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        for (id, ids, expected) in [
            ("a", &["a"][..], Ok("a")),
            ("ab", &["abc"], Ok("abc")),
            ("ab…", &["abc", "b"], Ok("abc")),
            ("ab", &["ab", "abc"], Ok("ab")),
            ("ab", &[], Err("no conversation id starts with `ab`")),
            ("a", &["ab", "ac"], Err("2 conversation ids start with `a`")),
        ] {
            let one = one(CONVERSATION, id, found(ids)).map_err(|wrong| wrong.to_string());
            assert_eq!(one.as_deref().map_err(String::as_str), expected, "{id} {ids:?}");
        }
    }

    /// Four requests, a call of the gateway's own among them, and an unreadable record.
    fn rows() -> Vec<LedgerRow> {
        let own = |at_ms: i64| (at_ms == 2).then(OwnCall::default);
        let record = |at_ms| Record { conversation: "abc".to_owned(), own: own(at_ms), ..Record::default() };
        let row = |at_ms: i64| LedgerRow { id: at_ms.to_string(), ..Box::new(record(at_ms)).into_row(at_ms) };
        let mut rows: Vec<_> = (1..=5).map(row).collect();
        rows.push(LedgerRow { record: "{".to_owned(), ..row(6) });
        rows
    }

    #[test]
    fn history_keeps_the_newest_records_and_counts_all() {
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

    /// In the order of their first request; a resent request does not count again.
    #[test]
    fn written_files_are_counted_once_per_request() {
        let mut files = Files::default();
        for (n, paths, attempt) in
            [(1, &["b", "a"][..], 0), (2, &["a", "c"], 0), (2, &["a", "c"], 1), (4, &[], 0)]
        {
            let paths = paths.iter().map(|path| (*path).to_owned()).collect();
            files.add(&Record { files: paths, attempt, ..Record::default() }, n);
        }
        let file = |path: &str, n, requests| WrittenFile { path: path.to_owned(), n, requests };
        assert_eq!(files.all, [file("b", 1, 1), file("a", 1, 2), file("c", 2, 1)]);
        let many = (0..2 * MAX_FILES).map(|at| at.to_string()).collect();
        files.add(&Record { files: many, ..Record::default() }, 5);
        assert_eq!((files.all.len(), files.indices.len()), (MAX_FILES, MAX_FILES));
    }
}
