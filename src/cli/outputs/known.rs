//! The full texts that the books and the store know, and the requests that use them.

use std::collections::{BTreeMap, BTreeSet};

use crate::cli::history::holds_at;
use crate::cli::{Failure, books};
use crate::config::Config;
use crate::ledger::Record;
use crate::ledger::history::number;
use crate::ledger::words::State;
use crate::store::{Books, LedgerFilter, Outputs, StoreError};

/// All texts, and what is needed to find their uses.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) outputs: BTreeMap<String, Output>,
    /// The number of requests in each conversation so far.
    counts: BTreeMap<String, usize>,
    /// The messages that were sent in another form in each thread.
    threads: BTreeMap<String, Vec<Replaced>>,
    pub(super) unreadable: u64,
    pub(super) missing: u64,
}

/// A full text.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Output {
    /// When a request last referred to it, in milliseconds since 1970.
    pub(super) last_ms: Option<i64>,
    /// The size of its file; `None` if there is no file.
    pub(super) bytes: Option<u64>,
    /// Whether the store expects its file to exist.
    pub(super) is_stored: bool,
    /// The conversations that use it, by their ids.
    pub(super) uses: BTreeMap<String, Use>,
    /// The number of references to it so far.
    pub(super) references: u64,
}

/// The use of a text by a conversation.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Use {
    /// The numbers of the requests with which the text was shortened or cleared.
    pub(super) requests: BTreeSet<usize>,
    /// Which of the references to the text is the conversation's last one, from 1.
    last: u64,
}

/// A message that was sent in another form, and the id of its full text.
#[derive(Debug, Clone)]
struct Replaced {
    message: u32,
    output: String,
    /// The number of messages in the request that it was decided with, and of those that had been sent before.
    messages: u32,
    prior: u32,
}

/// A full text with its id.
pub(super) type Named<'k> = (&'k str, &'k Output);

impl Known {
    /// Reads the store, the books and the directory of texts. Also returns the store, if there is one.
    pub(super) fn of(config: &Config) -> Result<(Self, Option<Books>), Failure> {
        let mut known = Self::default();
        let books = books::open(&config.state.dir)?;
        if let Some(books) = &books {
            known.read(books).map_err(|error| books::failed(&config.state.dir, &error))?;
        }
        let dir = &config.outputs.dir;
        let sizes = Outputs::new(dir).sizes();
        let sizes = sizes.map_err(|error| Failure::about(dir, error))?;
        for (id, bytes) in sizes {
            known.outputs.entry(id).or_default().bytes = Some(bytes);
        }
        Ok((known, books))
    }

    fn read(&mut self, books: &Books) -> Result<(), StoreError> {
        let all = LedgerFilter::default();
        books.rows(all, &mut |row| match serde_json::from_str(row.record) {
            Ok(record) => self.add(row.at_ms, &record),
            Err(_) => self.unreadable += 1,
        })?;
        self.missing = books.missing(all)?;
        for (id, at_ms) in books.outputs()? {
            let output = self.outputs.entry(id).or_default();
            (output.last_ms, output.is_stored) = (Some(at_ms), true);
        }
        Ok(())
    }

    /// Adds a record; records must come oldest first.
    fn add(&mut self, at_ms: i64, record: &Record) {
        let count = self.counts.entry(record.conversation.clone()).or_default();
        let Some(number) = number(record, count) else { return };
        self.inherit(at_ms, record, number);
        let edits = &record.edits;
        let made = edits.made.iter().filter_map(|made| made.output.as_deref());
        // If the gateway only observes, nothing is replaced.
        let splice = edits.splice.as_ref().filter(|_| edits.state == State::Edited);
        let spliced = splice.and_then(|splice| Some((splice.output.as_deref()?, splice.made)));
        for (id, is_made) in made.map(|id| (id, true)).chain(spliced) {
            self.outputs.entry(id.to_owned()).or_default().add(at_ms, &record.conversation, number, is_made);
        }
    }

    /// Adds the uses that a thread takes over from the one that it branched from, which hold from its first request on.
    fn inherit(&mut self, at_ms: i64, record: &Record, number: usize) {
        let Some(thread) = record.thread.as_ref().filter(|_| record.edits.were_sent()) else { return };
        if !self.threads.contains_key(thread) {
            let parent = record.parent.as_ref().and_then(|parent| self.threads.get(parent));
            let taken = parent.into_iter().flatten().filter(|one| one.holds_at(record.prior));
            let taken: Vec<_> = taken.cloned().collect();
            for Replaced { output, .. } in &taken {
                self.outputs.entry(output.clone()).or_default().add(
                    at_ms,
                    &record.conversation,
                    number,
                    false,
                );
            }
            self.threads.insert(thread.clone(), taken);
        }
        let Record { messages, prior, .. } = *record;
        let made = record.edits.made.iter().filter_map(|made| {
            Some(Replaced { message: made.message, output: made.output.clone()?, messages, prior })
        });
        self.threads.entry(thread.clone()).or_default().extend(made);
    }

    pub(super) fn newest_first(&self, conversation: Option<&str>, filter: LedgerFilter) -> Vec<Named<'_>> {
        let is_of = |output: &Output| conversation.is_none_or(|id| output.uses.contains_key(id));
        let is_then = |output: &Output| match output.last_ms {
            Some(at_ms) => {
                filter.since_ms.is_none_or(|since| at_ms >= since)
                    && filter.until_ms.is_none_or(|until| at_ms < until)
            }
            None => filter == LedgerFilter::default(),
        };
        let all = self.outputs.iter().map(|(id, output)| (id.as_str(), output));
        let mut listed: Vec<Named<'_>> = all.filter(|(_, output)| is_of(output) && is_then(output)).collect();
        listed.sort_by_key(|(_, output)| std::cmp::Reverse(output.last_ms));
        listed
    }
}

impl Replaced {
    /// Whether it applies to a continuation of the first `messages` messages.
    fn holds_at(&self, messages: u32) -> bool {
        self.message < messages && holds_at(messages, self.prior, self.messages)
    }
}

impl Output {
    /// Adds a reference by a request; `is_made` says whether the decision was made with that request or earlier.
    fn add(&mut self, at_ms: i64, conversation: &str, number: usize, is_made: bool) {
        self.last_ms = self.last_ms.max(Some(at_ms));
        self.references += 1;
        let one = self.uses.entry(conversation.to_owned()).or_default();
        one.last = self.references;
        // The record of the request with the decision may have been removed.
        if is_made || one.requests.is_empty() {
            one.requests.insert(number);
        }
    }

    /// The conversations that use it, the newest first.
    pub(super) fn users(&self) -> Vec<(&str, &Use)> {
        let all = self.uses.iter().map(|(conversation, one)| (conversation.as_str(), one));
        let mut users: Vec<_> = all.collect();
        users.sort_by_key(|(_, one)| std::cmp::Reverse(one.last));
        users
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::ledger::{Edits, Made, OwnCall, Splice};

    /// The record of an edited request: the texts of its decisions, and of the splice, if any.
    pub(in crate::cli::outputs) fn record(
        conversation: &str,
        made: &[&str],
        splice: Option<(&str, bool)>,
    ) -> Record {
        let made = made.iter().map(|id| Made { output: Some((*id).to_owned()), ..Made::default() });
        let splice =
            splice.map(|(id, made)| Splice { output: Some(id.to_owned()), made, ..Splice::default() });
        let edits = Edits { state: State::Edited.into(), made: made.collect(), splice, ..Edits::default() };
        Record { conversation: conversation.to_owned(), edits, ..Record::default() }
    }

    pub(in crate::cli::outputs) fn known(records: &[Record]) -> Known {
        let mut known = Known::default();
        for (at_ms, record) in (1..).zip(records) {
            known.add(at_ms, record);
        }
        known
    }

    /// The id, the time of its last reference, and the conversations with their requests.
    type Expected<'a> = (&'a str, i64, &'a [(&'a str, &'a [usize])]);

    #[test]
    fn texts_belong_to_the_requests_that_decided_on_them() {
        let observed = |mut record: Record| {
            record.edits.state = State::Observed.into();
            record
        };
        let own = Record { own: Some(OwnCall::default()), ..record("c", &[], None) };
        let cases: [(&[Record], &[Expected<'_>]); 5] = [
            (&[record("c", &["a", "b"], None)], &[("a", 1, &[("c", &[1])]), ("b", 1, &[("c", &[1])])]),
            (
                &[record("c", &["a"], None), own, record("d", &["a"], None), record("c", &["a"], None)],
                &[("a", 4, &[("d", &[1]), ("c", &[1, 2])])],
            ),
            (
                &[record("c", &[], Some(("s", true))), record("c", &[], Some(("s", false)))],
                &[("s", 2, &[("c", &[1])])],
            ),
            // The record that it was made with has been removed.
            (&[record("c", &[], Some(("s", false)))], &[("s", 1, &[("c", &[1])])]),
            (&[observed(record("c", &[], Some(("s", false)))), record("c", &[], None)], &[]),
        ];
        for (records, expected) in cases {
            let known = known(records);
            let requests = |one: &Use| one.requests.iter().copied().collect::<Vec<_>>();
            let uses = |output: &Output| -> Vec<(String, Vec<usize>)> {
                let users = output.users().into_iter().rev();
                users.map(|(conversation, one)| (conversation.to_owned(), requests(one))).collect()
            };
            let found = known.outputs.iter().map(|(id, output)| (id.as_str(), output.last_ms, uses(output)));
            let expected = expected.iter().map(|(id, at_ms, of)| {
                let of =
                    of.iter().map(|(conversation, requests)| ((*conversation).to_owned(), requests.to_vec()));
                (*id, Some(*at_ms), of.collect())
            });
            assert!(found.eq(expected), "{known:?}");
        }
    }

    /// A thread that continues from the middle of a history takes over what applied there, and no more.
    #[test]
    fn a_branch_uses_only_texts_decided_before_it() {
        let of = |conversation: &str,
                  (thread, parent): (&str, Option<&str>),
                  (messages, prior),
                  made: &[(u32, &str)]| {
            let mut record = record(conversation, &made.iter().map(|(_, id)| *id).collect::<Vec<_>>(), None);
            record.edits.made.iter_mut().zip(made).for_each(|(one, (message, _))| one.message = *message);
            let (thread, parent) = (Some(thread.to_owned()), parent.map(str::to_owned));
            Record { thread, parent, messages, prior, ..record }
        };
        let trunk = [
            of("c", ("a", None), (3, 0), &[(2, "w")]),
            of("c", ("a", None), (5, 3), &[(4, "x")]),
            of("c", ("a", None), (7, 5), &[(2, "y"), (6, "z")]),
        ];
        for (prior, expected) in
            [(7, &["w", "x", "y", "z"][..]), (6, &["w", "x", "y"]), (5, &["w", "x"]), (4, &["w"])]
        {
            let known = known(&[&trunk[..], &[of("d", ("b", Some("a")), (9, prior), &[])]].concat());
            let listed = known.outputs.iter().filter(|(_, one)| one.uses.contains_key("d"));
            assert!(listed.map(|(id, _)| id).eq(expected), "{prior}");
        }
    }

    #[test]
    fn outputs_are_listed_newest_first_and_undated_last() {
        let mut known =
            known(&[record("c", &["a"], None), record("d", &["b"], None), record("c", &["e"], None)]);
        known.outputs.entry("f".to_owned()).or_default().bytes = Some(1);
        let range = |since_ms, until_ms| LedgerFilter { since_ms, until_ms };
        for (conversation, filter, expected) in [
            (None, range(None, None), &["e", "b", "a", "f"][..]),
            (Some("c"), range(None, None), &["e", "a"]),
            (None, range(Some(2), None), &["e", "b"]),
            (None, range(None, Some(2)), &["a"]),
            (Some("d"), range(Some(3), None), &[]),
        ] {
            let listed = known.newest_first(conversation, filter);
            assert!(listed.iter().map(|(id, _)| id).eq(expected), "{conversation:?} {filter:?}");
        }
    }
}
