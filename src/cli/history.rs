//! The records of one conversation, found by its id.

use super::table::{cut, printable};
use super::{Failure, Source, books, files};
use crate::config::Config;
use crate::ledger::{self, Entry, Made, NoHistory, NoId};
use crate::store::{Books, StoreError};

/// The maximum number of ids that an error lists if a prefix is ambiguous.
const MAX_LISTED: usize = 10;

/// A conversation, and the store that it was read from.
pub(super) struct History {
    pub(super) config: Config,
    pub(super) books: Books,
    pub(super) found: ledger::History,
    /// The records of the conversations that it was forked from.
    inherited: Vec<Entry>,
}

/// A decision in force. `request` is the number of the request that made it, from 1; `of` names that request's
/// conversation, `None` for this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Standing<'a> {
    pub(super) made: &'a Made,
    pub(super) request: usize,
    pub(super) of: Option<&'a str>,
}

impl History {
    /// Reads the conversation that `id` names, in full or by a unique prefix.
    pub(super) fn read(source: &Source, id: &str) -> Result<Self, Failure> {
        Self::with(files::load_to_read(source)?, id)
    }

    /// The same, with a configuration that has been read already.
    pub(super) fn with(config: Config, id: &str) -> Result<Self, Failure> {
        let state = &config.state.dir;
        let failed = |error| books::failed(state, &error);
        let Some(books) = books::open(state)? else {
            return Err(Failure::Message(books::nothing(state)));
        };
        let found = match ledger::History::read(&books, id, usize::MAX) {
            Ok(found) => found,
            Err(NoHistory::Store(error)) => return Err(failed(error)),
            Err(NoHistory::Id(none @ NoId::None { .. })) => {
                return Err(Failure::Message(format!("{none} in {}", state.display())));
            }
            Err(NoHistory::Id(none)) => return Err(Failure::Message(not_found_message(&none))),
        };
        let mut records = found.entries.iter().map(|entry| &entry.record);
        let inherited = ledger::ancestors(&books, &found.id, &mut records).map_err(failed)?;
        Ok(Self { config, books, found, inherited })
    }

    /// Its id, for printing.
    pub(super) fn name(&self) -> String {
        printable(&self.found.id)
    }

    /// The failure for an error of the store.
    pub(super) fn failed(&self, error: &StoreError) -> Failure {
        books::failed(&self.config.state.dir, error)
    }

    /// The number of requests that the client made.
    pub(super) fn requests(&self) -> usize {
        self.found.entries.iter().filter(|entry| entry.number.is_some()).count()
    }

    /// The index of the request with this number.
    pub(super) fn place(&self, number: usize) -> Option<usize> {
        self.found.entries.iter().position(|entry| entry.number == Some(number))
    }

    /// The decisions in force for the request at index `at`, ordered by their parts.
    pub(super) fn standing(&self, at: usize) -> Vec<Standing<'_>> {
        standing(&self.inherited, &self.found.entries, at)
    }
}

/// The message for an id that was not found; if it is ambiguous, with the candidates.
pub(super) fn not_found_message(none: &NoId) -> String {
    let NoId::Several { found, .. } = none else { return none.to_string() };
    let named =
        found.iter().take(MAX_LISTED).map(|name| format!("\n  {}", cut(&printable(name), books::width())));
    let more = found.len().saturating_sub(MAX_LISTED);
    let more = (more > 0).then(|| format!("\n  and {more} more"));
    format!("{none}:{}", named.chain(more).collect::<String>())
}

/// The decisions of the request at index `at` and of the history that it continues, across threads and conversations:
/// goes back request by request, each time with the decisions for messages that had been sent before. A later decision
/// about a part replaces an earlier one.
fn standing<'a>(inherited: &'a [Entry], entries: &'a [Entry], at: usize) -> Vec<Standing<'a>> {
    let all: Vec<&Entry> = inherited.iter().chain(entries).collect();
    let mut standing = std::collections::BTreeMap::new();
    let mut messages = entries.get(at).map_or(0, |entry| entry.record.messages);
    let mut next = (at < entries.len()).then_some(inherited.len() + at);
    // No request is visited twice.
    for _ in 0..all.len() {
        let Some((place, request)) = next.and_then(|place| Some((place, all[place].number?))) else { break };
        let record = &all[place].record;
        let of = (place < inherited.len()).then_some(record.conversation.as_str());
        let made = record.edits.made.iter().filter(|made| made.message < messages);
        for made in made.filter(|_| !record.edits.original_resent) {
            standing.entry((made.message, made.part)).or_insert(Standing { made, request, of });
        }
        messages = messages.min(record.prior);
        next = before(&all, place, messages).filter(|_| messages > 0);
    }
    standing.into_values().collect()
}

/// Whether the decisions of a request apply to requests that continue its first `messages` messages. It had `all`
/// messages, of which `prior` had been sent before: it must have been the first to send the last of the `messages`, or
/// have sent exactly these again.
pub(super) fn holds_at<N: Ord + Copy>(messages: N, prior: N, all: N) -> bool {
    prior < messages || all == messages
}

/// The index of the latest request before that at `place` which sent all of its first `messages` messages and whose
/// decisions apply to them, in the same thread or in those that it branched from. If its record is missing, the latest
/// one before it.
fn before(all: &[&Entry], place: usize, messages: u32) -> Option<usize> {
    let last = all[place];
    // Within a conversation, the order of records is reliable even if the clock was set back.
    let is_earlier = |at: usize| {
        let is_same_conversation = all[at].record.conversation == last.record.conversation;
        if is_same_conversation { at < place } else { all[at].at_ms <= last.at_ms }
    };
    let (mut thread, mut known) = (last.record.thread.as_ref(), Vec::new());
    while let Some(name) = thread.filter(|name| !known.contains(name)) {
        known.push(name);
        let is_candidate = |at: &usize| {
            let Entry { number, record, .. } = all[*at];
            let is_request = number.is_some() && record.thread.as_ref() == Some(name);
            is_request && holds_at(messages, record.prior, record.messages) && is_earlier(*at)
        };
        let mut candidates = (0..all.len()).rev().filter(is_candidate);
        let nearest = candidates.clone().next();
        if let Some(at) = candidates.find(|at| all[*at].record.messages >= messages).or(nearest) {
            return Some(at);
        }
        let first = all.iter().find(|one| one.record.thread.as_ref() == Some(name));
        thread = first.and_then(|first| first.record.parent.as_ref());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Edits, OwnCall, Record};

    /// The decisions that were in force for a request: their messages, their rules, and the numbers of the requests
    /// that made them.
    fn in_force(entries: &[Entry], at: usize) -> Vec<(u32, &str, usize)> {
        let standing = standing(&[], entries, at).into_iter();
        standing.map(|one| (one.made.message, &*one.made.rules, one.request)).collect()
    }

    #[test]
    fn ambiguous_ids_list_some_candidates() {
        let several = |count| NoId::Several {
            kind: "conversation",
            start: "a".to_owned(),
            found: (0..count).map(|at| format!("a{at}")).collect(),
        };
        for (none, expected) in [
            (NoId::None { kind: "full text", start: "a".to_owned() }, "no full text id starts with `a`"),
            (several(2), "2 conversation ids start with `a`:\n  a0\n  a1"),
            (
                several(12),
                "12 conversation ids start with `a`:\n  a0\n  a1\n  a2\n  a3\n  a4\n  a5\n  a6\n  a7\n  a8\n  \
                 a9\n  and 2 more",
            ),
        ] {
            assert_eq!(not_found_message(&none), expected);
        }
    }

    /// A request with its thread and parent, its messages, those sent before, and its decisions by message and rule.
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
    fn decisions_apply_in_their_thread_and_its_branches() {
        let own = Record { own: Some(OwnCall::default()), ..request(("a", None), (0, 0), &[]) };
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
            assert_eq!(in_force(&entries, at), expected, "{at}");
        }
    }

    /// A client that goes back gets what was sent at that point, whether in a thread of its own or, with an old request
    /// again, in the same one.
    #[test]
    fn decisions_after_a_rewind_point_do_not_apply() {
        let requests: [(_, _, &[(u32, &str)]); 10] = [
            // A history that another gateway sent: all of it is decided on at once, each decision for its own message.
            (("a", None), (5, 0), &[(2, "fold"), (4, "fold")]),
            (("a", None), (7, 5), &[(6, "truncate")]),
            (("a", None), (9, 7), &[(2, "clear"), (4, "clear"), (6, "clear")]),
            (("b", Some("a")), (4, 3), &[]),
            (("b", Some("a")), (6, 4), &[(5, "minify")]),
            (("c", Some("b")), (6, 5), &[]),
            (("d", Some("a")), (8, 7), &[]),
            (("a", None), (7, 7), &[]),
            (("a", None), (9, 7), &[(8, "minify")]),
            (("e", Some("a")), (10, 9), &[]),
        ];
        let entry = |(number, (of, counts, made))| Entry {
            number: Some(number),
            record: request(of, counts, made),
            ..Entry::default()
        };
        let entries: Vec<_> = (1..).zip(requests).map(entry).collect();
        for (at, expected) in [
            (2, &[(2, "clear", 3), (4, "clear", 3), (6, "clear", 3)][..]),
            (3, &[(2, "fold", 1)]),
            (4, &[(2, "fold", 1), (5, "minify", 5)]),
            (5, &[(2, "fold", 1)]),
            (6, &[(2, "fold", 1), (4, "fold", 1), (6, "truncate", 2)]),
            (7, &[(2, "fold", 1), (4, "fold", 1), (6, "truncate", 2)]),
            (8, &[(2, "fold", 1), (4, "fold", 1), (6, "truncate", 2), (8, "minify", 9)]),
            (9, &[(2, "fold", 1), (4, "fold", 1), (6, "truncate", 2), (8, "minify", 9)]),
        ] {
            assert_eq!(in_force(&entries, at), expected, "{at}");
        }
    }

    /// What the other conversation decided after the fork, whether before it or later, does not apply.
    #[test]
    fn decisions_before_a_fork_apply_in_the_new_conversation() {
        let entry = |conversation: &str, at_ms, number, record| Entry {
            at_ms,
            number: Some(number),
            record: Record { conversation: conversation.to_owned(), ..record },
        };
        let others = [
            entry("one", 1, 1, request(("a", None), (3, 0), &[(2, "fold")])),
            entry("one", 2, 2, request(("a", None), (5, 3), &[(4, "truncate")])),
            entry("one", 9, 3, request(("a", None), (7, 5), &[(2, "clear"), (6, "fold")])),
        ];
        let own = [
            entry("two", 3, 1, request(("b", Some("a")), (5, 5), &[])),
            entry("two", 10, 2, request(("b", Some("a")), (7, 5), &[(6, "minify")])),
            // From the middle of the other's history, long after that has continued.
            entry("two", 11, 3, request(("c", Some("a")), (6, 5), &[])),
            entry("two", 12, 4, request(("d", Some("a")), (4, 3), &[])),
            entry("two", 13, 5, request(("d", Some("a")), (7, 4), &[(5, "fold")])),
        ];
        for (at, expected) in [
            (0, &[(2, "fold", 1, Some("one")), (4, "truncate", 2, Some("one"))][..]),
            (1, &[(2, "fold", 1, Some("one")), (4, "truncate", 2, Some("one")), (6, "minify", 2, None)]),
            (2, &[(2, "fold", 1, Some("one")), (4, "truncate", 2, Some("one"))]),
            (3, &[(2, "fold", 1, Some("one"))]),
            (4, &[(2, "fold", 1, Some("one")), (5, "fold", 5, None)]),
        ] {
            let found: Vec<_> = standing(&others, &own, at)
                .into_iter()
                .map(|one| (one.made.message, one.made.rules.as_str(), one.request, one.of))
                .collect();
            assert_eq!(found, expected, "{at}");
        }
    }
}
