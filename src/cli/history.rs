//! One conversation's records, found by its id.

use std::path::PathBuf;

use super::table::{cut, printable};
use super::{Failure, Source, books, files};
use crate::config::Config;
use crate::ledger::{Made, Record};
use crate::store::{Books, StoreError, ledger};

/// How many ids are named where one was meant.
const NAMED: usize = 10;

/// A conversation.
pub(super) struct History {
    pub(super) config: Config,
    pub(super) books: Books,
    path: PathBuf,
    pub(super) id: String,
    /// Its records, oldest first.
    pub(super) entries: Vec<Entry>,
    /// Records that could not be read.
    pub(super) unreadable: u64,
}

/// A record of it.
#[derive(Debug, Default)]
pub(super) struct Entry {
    /// When the request came, in milliseconds since 1970.
    pub(super) at_ms: i64,
    /// The number of the request, from 1; `None` for a call of the gateway's own.
    pub(super) number: Option<usize>,
    pub(super) record: Record,
}

/// A decision in force, and the number of the request that made it, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Standing<'a> {
    pub(super) made: &'a Made,
    pub(super) request: usize,
}

impl History {
    /// Reads the conversation that `id` is the id of, or the beginning of no other's.
    pub(super) fn read(source: &Source, id: &str) -> Result<Self, Failure> {
        Self::with(files::load_to_read(source)?, id)
    }

    /// The same, with a configuration that was read already.
    pub(super) fn with(config: Config, id: &str) -> Result<Self, Failure> {
        let path = config.state.dir.join(ledger::FILE_NAME);
        let failed = |error: StoreError| Failure::Said(format!("{}: {error}", path.display()));
        let Some(books) = Books::open(&path).map_err(failed)? else {
            return Err(Failure::Said(books::nothing(&config.state.dir)));
        };
        let id = one(id, books.conversations(id.trim_end_matches('…')).map_err(failed)?)?;
        let (mut records, mut unreadable) = (Vec::new(), 0);
        books
            .rows_of(&id, &mut |row| match serde_json::from_str(row.record) {
                Ok(record) => records.push((row.at_ms, record)),
                Err(_) => unreadable += 1,
            })
            .map_err(failed)?;
        Ok(Self { config, books, path, id, entries: numbered(records), unreadable })
    }

    /// Its id as it is shown.
    pub(super) fn name(&self) -> String {
        printable(&self.id)
    }

    /// A failure of the store that it was read from.
    pub(super) fn failed(&self, error: &StoreError) -> Failure {
        Failure::Said(format!("{}: {error}", self.path.display()))
    }

    /// How many requests the client made.
    pub(super) fn requests(&self) -> usize {
        self.entries.iter().filter(|entry| entry.number.is_some()).count()
    }

    /// The place of the request with a number.
    pub(super) fn place(&self, number: usize) -> Option<usize> {
        self.entries.iter().position(|entry| entry.number == Some(number))
    }

    /// The decisions that were in force for the request at a place, by their parts.
    pub(super) fn standing(&self, at: usize) -> Vec<Standing<'_>> {
        standing(&self.entries, at)
    }
}

/// Counts what the client asked for, and nothing else.
fn numbered(records: Vec<(i64, Record)>) -> Vec<Entry> {
    let mut count = 0;
    let mut entry = |(at_ms, record): (i64, Record)| {
        let number = record.own.is_none().then(|| {
            count += 1;
            count
        });
        Entry { at_ms, number, record }
    };
    records.into_iter().map(&mut entry).collect()
}

fn one(id: &str, mut found: Vec<String>) -> Result<String, Failure> {
    let id = id.trim_end_matches('…');
    if found.iter().any(|found| found == id) {
        return Ok(id.to_owned());
    }
    match (found.pop(), found.is_empty()) {
        (Some(only), true) => Ok(only),
        (None, _) => Err(Failure::Said(format!("`{id}`: no conversation has an id that begins so"))),
        (Some(last), false) => {
            let all = found.len() + 1;
            let names: Vec<String> = found
                .iter()
                .chain([&last])
                .take(NAMED)
                .map(|name| cut(&printable(name), books::WIDTH))
                .collect();
            let more = if all > NAMED { format!("\n  and {} more", all - NAMED) } else { String::new() };
            Err(Failure::Said(format!(
                "`{id}`: {all} conversations have ids that begin so:\n  {}{more}",
                names.join("\n  ")
            )))
        }
    }
}

/// What was decided in the request's thread up to then, and in the threads that it branched from up to where it
/// did. A later decision about a part takes the place of an earlier one.
fn standing(entries: &[Entry], at: usize) -> Vec<Standing<'_>> {
    let Some(Entry { record: request, .. }) = entries.get(at) else { return Vec::new() };
    let requests = || entries.iter().filter_map(|entry| Some((entry.number?, &entry.record)));
    let mut lines = Vec::new();
    let (mut thread, mut messages) = (request.thread.as_ref(), request.messages);
    while let Some(name) = thread.filter(|name| !lines.iter().any(|(known, _)| known == name)) {
        lines.push((name, messages));
        let first = requests().map(|(_, record)| record).find(|one| one.thread.as_ref() == Some(name));
        messages = messages.min(first.map_or(0, |first| first.prior));
        thread = first.and_then(|first| first.parent.as_ref());
    }
    let mut standing = std::collections::BTreeMap::new();
    for (thread, messages) in lines.into_iter().rev() {
        for (number, record) in requests().take_while(|(number, _)| entries[at].number >= Some(*number)) {
            if record.thread.as_ref() != Some(thread) || record.edits.original_resent {
                continue;
            }
            for made in record.edits.made.iter().filter(|made| made.message < messages) {
                standing.insert((made.message, made.part), Standing { made, request: number });
            }
        }
    }
    standing.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Edits, Own};

    #[test]
    fn an_id_may_be_cut() {
        let found = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        for (id, ids, expected) in [
            ("a", &["a"][..], Ok("a")),
            ("ab", &["abc"], Ok("abc")),
            ("ab…", &["abc"], Ok("abc")),
            ("ab", &["ab", "abc"], Ok("ab")),
            ("ab", &[], Err("`ab`: no conversation has an id that begins so")),
            ("a", &["ab", "ac"], Err("`a`: 2 conversations have ids that begin so:\n  ab\n  ac")),
        ] {
            let one = one(id, found(ids)).map_err(|failure| failure.to_string());
            assert_eq!(one.as_deref().map_err(String::as_str), expected, "{id} {ids:?}");
        }
    }

    /// A request of a thread with its parent, messages, those sent before, and decisions by message and rule.
    fn request(
        (thread, parent): (&str, Option<&str>),
        (messages, prior): (u32, u32),
        made: &[(u32, &str)],
    ) -> Record {
        let made = made.iter().map(|(message, rules)| Made {
            message: *message,
            rules: (*rules).to_owned(),
            ..Made::default()
        });
        Record {
            thread: Some(thread.to_owned()),
            parent: parent.map(str::to_owned),
            messages,
            prior,
            edits: Edits { made: made.collect(), ..Edits::default() },
            ..Record::default()
        }
    }

    #[test]
    fn decisions_hold_in_the_thread_and_in_what_branches_from_it() {
        let own = Record { own: Some(Own::default()), ..request(("a", None), (0, 0), &[]) };
        let records = [
            request(("a", None), (3, 0), &[(2, "fold")]),
            own.clone(),
            request(("a", None), (5, 3), &[(4, "truncate")]),
            own,
            request(("b", Some("a")), (5, 3), &[(4, "minify")]),
            request(("a", None), (7, 5), &[(2, "clear"), (6, "fold")]),
            request(("c", Some("a")), (1, 0), &[]),
        ];
        let entries = numbered(records.into_iter().map(|record| (0, record)).collect());
        let numbers: Vec<_> = entries.iter().map(|entry| entry.number).collect();
        assert_eq!(numbers, [Some(1), None, Some(2), None, Some(3), Some(4), Some(5)]);
        for (at, expected) in [
            (0, &[(2, "fold", 1)][..]),
            (1, &[]),
            (2, &[(2, "fold", 1), (4, "truncate", 2)]),
            (4, &[(2, "fold", 1), (4, "minify", 3)]),
            (5, &[(2, "clear", 4), (4, "truncate", 2), (6, "fold", 4)]),
            (6, &[]),
            (7, &[]),
        ] {
            let found: Vec<_> = standing(&entries, at)
                .into_iter()
                .map(|one| (one.made.message, one.made.rules.as_str(), one.request))
                .collect();
            assert_eq!(found, expected, "{at}");
        }
    }
}
