//! One conversation's records, found by its id.

use std::path::PathBuf;

use super::table::{cut, printable};
use super::{Failure, Source, books, files};
use crate::config::Config;
use crate::ledger::{self, Entry, Made, NoHistory, NoId};
use crate::store::ledger::FILE_NAME;
use crate::store::{Books, StoreError};

/// How many ids are named where one was meant.
const NAMED: usize = 10;

/// A conversation.
pub(super) struct History {
    pub(super) config: Config,
    pub(super) books: Books,
    path: PathBuf,
    pub(super) found: ledger::History,
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
        let path = config.state.dir.join(FILE_NAME);
        let failed = |error: StoreError| Failure::Said(format!("{}: {error}", path.display()));
        let Some(books) = Books::open(&path).map_err(failed)? else {
            return Err(Failure::Said(books::nothing(&config.state.dir)));
        };
        match ledger::History::read(&books, id, usize::MAX) {
            Ok(found) => Ok(Self { config, books, path, found }),
            Err(NoHistory::Store(error)) => Err(failed(error)),
            Err(NoHistory::Id(none)) => Err(Failure::Said(told(&none))),
        }
    }

    /// Its id as it is shown.
    pub(super) fn name(&self) -> String {
        printable(&self.found.id)
    }

    /// A failure of the store that it was read from.
    pub(super) fn failed(&self, error: &StoreError) -> Failure {
        Failure::Said(format!("{}: {error}", self.path.display()))
    }

    /// How many requests the client made.
    pub(super) fn requests(&self) -> usize {
        self.found.entries.iter().filter(|entry| entry.number.is_some()).count()
    }

    /// The place of the request with a number.
    pub(super) fn place(&self, number: usize) -> Option<usize> {
        self.found.entries.iter().position(|entry| entry.number == Some(number))
    }

    /// The decisions that were in force for the request at a place, by their parts.
    pub(super) fn standing(&self, at: usize) -> Vec<Standing<'_>> {
        standing(&self.found.entries, at)
    }
}

/// Why there is no such id; where it could be several, which.
pub(super) fn told(none: &NoId) -> String {
    let NoId::Several { found, .. } = none else { return none.to_string() };
    let named = found.iter().take(NAMED).map(|name| format!("\n  {}", cut(&printable(name), books::WIDTH)));
    let more = found.len().saturating_sub(NAMED);
    let more = (more > 0).then(|| format!("\n  and {more} more"));
    format!("{none}:{}", named.chain(more).collect::<String>())
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
    use crate::ledger::{Edits, Own, Record};

    #[test]
    fn some_of_many_are_named() {
        let several = |count| NoId::Several {
            kind: "conversation",
            start: "a".to_owned(),
            found: (0..count).map(|at| format!("a{at}")).collect(),
        };
        for (none, expected) in [
            (
                NoId::None { kind: "full text", start: "a".to_owned() },
                "`a`: no full text has an id that begins so",
            ),
            (several(2), "`a`: 2 conversations have ids that begin so:\n  a0\n  a1"),
            (
                several(12),
                "`a`: 12 conversations have ids that begin so:\n  a0\n  a1\n  a2\n  a3\n  a4\n  a5\n  a6\n  a7\n  a8\n  \
                 a9\n  and 2 more",
            ),
        ] {
            assert_eq!(told(&none), expected);
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
        let numbers = [Some(1), None, Some(2), None, Some(3), Some(4), Some(5)];
        let entries = numbers.into_iter().zip(records);
        let entries: Vec<_> =
            entries.map(|(number, record)| Entry { number, record, ..Entry::default() }).collect();
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
