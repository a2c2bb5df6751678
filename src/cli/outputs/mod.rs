//! `plimsoll outputs`: the full texts of shortened or cleared results. Read-only, and only within their directory.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use jiff::tz::TimeZone;
use serde::Serialize;

use super::history::{holds_at, told};
use super::range::Range;
use super::table::{Align, Table, cut};
use super::{Failure, TimedOutput, books, figures, files, say, say_bytes};
use crate::config::Config;
use crate::ledger::history::{number, one};
use crate::ledger::words::State;
use crate::ledger::{History, NoHistory, Record, Totals, when};
use crate::store::{Books, LedgerFilter, Outputs, StoreError, ledger};

/// The maximum length of a list of requests in a column.
const REQUESTS: usize = 16;
/// The maximum length of a conversation's id in a column.
const CONVERSATION: usize = 32;

/// The description of the JSON, for `--help`.
const SCHEMA: &str = "\
JSON:
  {\"outputs\": [{\"id\", \"last_used\", \"bytes\", \"path\", \"uses\": [{\"conversation\", \"requests\": []}]}], \"unreadable\", \"missing\"}
  last_used   when a request last referred to it, RFC 3339 in UTC; what is older than `outputs.retention` is removed
  bytes, path of its file; null where it is not kept, not any more or because of `outputs.recall = \"none\"`
  uses        the conversations that the books name it in, the newest first, and the numbers of the requests with which
              it was decided on, as `plimsoll inspect` has them
  unreadable  damaged records; what they name is not known
  missing     records that could not be written; what they name is not known
  Fields may be added; none will change its meaning.";

/// The options of `plimsoll outputs`.
#[derive(Debug, Args)]
#[command(after_long_help = SCHEMA)]
#[command(mut_arg("since", |arg| arg.help("Only what was last used from then on: a date (2026-11-21), a time \
    (2026-11-21T10:00), or how long ago (12h, 7d, 2w)")))]
#[command(mut_arg("until", |arg| arg.help("Only what was last used up to then, in the same words; a date means the \
    end of that day")))]
pub(super) struct Options {
    /// The id of a text, or its beginning: the text is printed, byte for byte. Without it they are listed, the newest
    /// first
    #[arg(conflicts_with_all = ["conversation", "since", "until", "json"])]
    id: Option<String>,
    /// Only those of the conversation with this id, or this beginning of one
    #[arg(long, value_name = "ID")]
    conversation: Option<String>,
    #[command(flatten)]
    range: Range,
    #[command(flatten)]
    output: TimedOutput,
}

/// A full text.
#[derive(Debug, Default, PartialEq, Eq)]
struct Output {
    /// When a request last referred to it, in milliseconds since 1970.
    last_ms: Option<i64>,
    /// The size of its file; `None` if there is no file.
    bytes: Option<u64>,
    /// Whether the store expects its file to exist.
    is_stored: bool,
    /// The conversations that use it, the newest last.
    uses: Vec<Use>,
}

/// A conversation, and the numbers of its requests with which a text was shortened or cleared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Use {
    conversation: String,
    requests: BTreeSet<usize>,
}

/// A message that was sent in another form, and the id of its full text.
#[derive(Debug, Clone)]
struct Otherwise {
    message: u32,
    output: String,
    /// The number of messages in the request that it was decided with, and of those that had been sent before.
    messages: u32,
    prior: u32,
}

/// All texts, and what is needed to find their uses.
#[derive(Debug, Default)]
struct Known {
    outputs: BTreeMap<String, Output>,
    /// The number of requests in each conversation so far.
    counts: BTreeMap<String, usize>,
    /// The messages that were sent in another form in each thread.
    threads: BTreeMap<String, Vec<Otherwise>>,
    unreadable: u64,
    missing: u64,
}

/// A full text with its id.
type Named<'k> = (&'k str, &'k Output);

/// Lists full texts, or prints one.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let config = files::load_to_read(&options.output.source)?;
    match &options.id {
        Some(id) => print(&config, id),
        None => list(options, &config),
    }
}

fn print(config: &Config, id: &str) -> Result<(), Failure> {
    let outputs = Outputs::new(&config.outputs.dir);
    let read = |id: &str| {
        let failed = |error| Failure::Said(format!("{}: {error}", outputs.path(id).display()));
        outputs.read(id).map_err(failed)
    };
    // For a whole id, the books need not be read.
    if let Some(text) = read(id)? {
        say_bytes(&text);
        return Ok(());
    }
    let (known, _) = Known::of(config)?;
    let found = known.outputs.keys().cloned().collect();
    let id = one("full text", id, found).map_err(|none| Failure::Said(told(&none)))?;
    match read(&id)? {
        Some(text) => say_bytes(&text),
        None => return Err(Failure::Said(gone(&id, &known.outputs[&id], &outputs))),
    }
    Ok(())
}

/// The message for a text that is gone, with what is known about it.
fn gone(id: &str, output: &Output, outputs: &Outputs) -> String {
    let why = if output.is_stored {
        format!("its file {} has been taken away", outputs.path(id).display())
    } else {
        "it is not kept, because of `outputs.recall`, or not any more, because of `outputs.retention`"
            .to_owned()
    };
    let hint = output.uses.last().and_then(|last| Some((&last.conversation, last.requests.last()?)));
    let hint = hint.map(|(conversation, request)| {
        format!("\n  hint: `plimsoll diff {conversation} {request}` shows what was sent in its place")
    });
    format!("`{id}`: {why}{}", hint.unwrap_or_default())
}

fn list(options: &Options, config: &Config) -> Result<(), Failure> {
    let zone = when::zone(options.output.utc);
    let filter = options.range.filter(&zone)?;
    let (known, books) = Known::of(config)?;
    let of = match (&options.conversation, &books) {
        (None, _) => None,
        (Some(id), Some(books)) => Some(History::find(books, id).map_err(|none| match none {
            NoHistory::Store(error) => failed(config, &error),
            NoHistory::Id(none) => Failure::Said(told(&none)),
        })?),
        (Some(_), None) => return Err(Failure::Said(books::nothing(&config.state.dir))),
    };
    let listed = known.newest_first(of.as_deref(), filter);
    if options.output.json {
        return books::say_json(&Json::of(&known, &listed, &Outputs::new(&config.outputs.dir)));
    }
    if known.outputs.is_empty() && books.is_none() {
        say(&books::nothing(&config.state.dir));
    } else if listed.is_empty() {
        say(if known.outputs.is_empty() {
            "no full texts yet"
        } else {
            "no full texts of that time or conversation"
        });
    }
    for line in lines(&known, &listed, of.as_deref(), &zone) {
        say(&line);
    }
    books::say_notes(&notes(&known, &listed, config));
    Ok(())
}

fn failed(config: &Config, error: &StoreError) -> Failure {
    Failure::Said(format!("{}: {error}", config.state.dir.join(ledger::FILE_NAME).display()))
}

impl Known {
    /// Reads the store, the books and the directory of texts. Also returns the store, if there is one.
    fn of(config: &Config) -> Result<(Self, Option<Books>), Failure> {
        let mut known = Self::default();
        let books = Books::open(&config.state.dir.join(ledger::FILE_NAME));
        let books = books.map_err(|error| failed(config, &error))?;
        if let Some(books) = &books {
            known.read(books).map_err(|error| failed(config, &error))?;
        }
        let dir = &config.outputs.dir;
        let sizes = Outputs::new(dir).sizes();
        let sizes = sizes.map_err(|error| Failure::Said(format!("{}: {error}", dir.display())))?;
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
            for Otherwise { output, .. } in &taken {
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
            Some(Otherwise { message: made.message, output: made.output.clone()?, messages, prior })
        });
        self.threads.entry(thread.clone()).or_default().extend(made);
    }

    fn newest_first(&self, conversation: Option<&str>, filter: LedgerFilter) -> Vec<Named<'_>> {
        let is_of = |output: &Output| {
            conversation.is_none_or(|id| output.uses.iter().any(|one| one.conversation == id))
        };
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

impl Otherwise {
    /// Whether it applies to a continuation of the first `messages` messages.
    fn holds_at(&self, messages: u32) -> bool {
        self.message < messages && holds_at(messages, self.prior, self.messages)
    }
}

impl Output {
    /// Adds a reference by a request; `is_made` says whether the decision was made with that request or earlier.
    fn add(&mut self, at_ms: i64, conversation: &str, number: usize, is_made: bool) {
        self.last_ms = self.last_ms.max(Some(at_ms));
        let known = self.uses.iter().position(|one| one.conversation == conversation);
        let mut newest = match known {
            Some(at) => self.uses.remove(at),
            None => Use { conversation: conversation.to_owned(), requests: BTreeSet::new() },
        };
        // The record of the request with the decision may have been removed.
        if is_made || newest.requests.is_empty() {
            newest.requests.insert(number);
        }
        self.uses.push(newest);
    }
}

/// The table. Of the conversations that use a text, it shows `asked`, or else the newest.
fn lines(known: &Known, listed: &[Named<'_>], asked: Option<&str>, zone: &TimeZone) -> Vec<String> {
    if listed.is_empty() {
        return Vec::new();
    }
    let ids: Vec<&str> = known.outputs.keys().map(String::as_str).collect();
    let width = books::id_width(&ids);
    let uses = known.outputs.values().flat_map(|output| &output.uses);
    let conversations: BTreeSet<&str> = uses.map(|one| one.conversation.as_str()).collect();
    let of_width =
        books::id_width(&conversations.into_iter().collect::<Vec<_>>()).min(books::most(CONVERSATION));
    let unknown = || "–".to_owned();
    let mut table = Table::new(&[
        ("full text", Align::Left),
        ("last used", Align::Left),
        ("bytes", Align::Right),
        ("file", Align::Left),
        ("conversation", Align::Left),
        ("requests", Align::Left),
    ]);
    for (id, output) in listed {
        let of_asked = output.uses.iter().find(|one| Some(&*one.conversation) == asked);
        let shown = of_asked.or_else(|| output.uses.last());
        let others = output.uses.len().saturating_sub(1);
        let others = if others > 0 { format!(" +{others}") } else { String::new() };
        table.row(&[
            cut(id, width),
            output.last_ms.map_or_else(unknown, |at_ms| when::minute(at_ms, zone)),
            output.bytes.map_or_else(unknown, figures::count),
            if output.bytes.is_some() { "kept" } else { "not kept" }.to_owned(),
            shown.map_or_else(unknown, |shown| cut(&shown.conversation, of_width) + &others),
            shown.map_or_else(unknown, |shown| cut(&ranges(&shown.requests), books::most(REQUESTS))),
        ]);
    }
    table.lines_within(books::width())
}

/// Numbers as readers write them: `2, 7-9`.
fn ranges(numbers: &BTreeSet<usize>) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let shown = ranges
        .into_iter()
        .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") });
    shown.collect::<Vec<_>>().join(", ")
}

/// The notes for reading the list.
fn notes(known: &Known, listed: &[Named<'_>], config: &Config) -> Vec<String> {
    let kept: Vec<u64> = listed.iter().filter_map(|(_, output)| output.bytes).collect();
    let mut notes = Vec::new();
    if !listed.is_empty() {
        notes.push(format!(
            "{}, {} bytes in {}",
            figures::counted(kept.len() as u64, "full text", "full texts"),
            figures::count(kept.iter().sum()),
            config.outputs.dir.display()
        ));
    }
    if kept.len() < listed.len() {
        notes.push("not kept: `outputs.retention` is over, or `outputs.recall` is \"none\"".to_owned());
    }
    notes.extend(books::notes(&Totals::default(), known.unreadable));
    notes.extend(books::missing(known.missing));
    notes
}

#[derive(Serialize)]
struct Json<'a> {
    outputs: Vec<JsonOutput<'a>>,
    unreadable: u64,
    missing: u64,
}

#[derive(Serialize)]
struct JsonOutput<'a> {
    id: &'a str,
    last_used: Option<String>,
    bytes: Option<u64>,
    path: Option<String>,
    uses: Vec<&'a Use>,
}

impl<'a> Json<'a> {
    fn of(known: &Known, listed: &[Named<'a>], outputs: &Outputs) -> Self {
        let one = |&(id, output): &Named<'a>| JsonOutput {
            id,
            last_used: output.last_ms.map(when::rfc3339),
            bytes: output.bytes,
            path: output.bytes.map(|_| outputs.path(id).display().to_string()),
            uses: output.uses.iter().rev().collect(),
        };
        Self {
            outputs: listed.iter().map(one).collect(),
            unreadable: known.unreadable,
            missing: known.missing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Edits, Made, Own, Splice};

    /// The record of an edited request: the texts of its decisions, and of the splice, if any.
    fn record(conversation: &str, made: &[&str], splice: Option<(&str, bool)>) -> Record {
        let made = made.iter().map(|id| Made { output: Some((*id).to_owned()), ..Made::default() });
        let splice =
            splice.map(|(id, made)| Splice { output: Some(id.to_owned()), made, ..Splice::default() });
        let edits = Edits { state: State::Edited.into(), made: made.collect(), splice, ..Edits::default() };
        Record { conversation: conversation.to_owned(), edits, ..Record::default() }
    }

    fn known(records: &[Record]) -> Known {
        let mut known = Known::default();
        for (at_ms, record) in (1..).zip(records) {
            known.add(at_ms, record);
        }
        known
    }

    /// The id, the time of its last reference, and the conversations with their requests.
    type Expected<'a> = (&'a str, i64, &'a [(&'a str, &'a [usize])]);

    #[test]
    fn texts_belong_to_the_requests_that_they_were_decided_on_with() {
        let observed = |mut record: Record| {
            record.edits.state = State::Observed.into();
            record
        };
        let own = Record { own: Some(Own::default()), ..record("c", &[], None) };
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
            let found: Vec<_> = known.outputs.iter().map(|(id, output)| (id.as_str(), output)).collect();
            let uses = |uses: &[(&str, &[usize])]| -> Vec<Use> {
                let one = |(conversation, requests): &(&str, &[usize])| Use {
                    conversation: (*conversation).to_owned(),
                    requests: requests.iter().copied().collect(),
                };
                uses.iter().map(one).collect()
            };
            let expected: Vec<_> = expected
                .iter()
                .map(|(id, at_ms, of)| {
                    (*id, Output { last_ms: Some(*at_ms), uses: uses(of), ..Output::default() })
                })
                .collect();
            assert!(found.into_iter().eq(expected.iter().map(|(id, output)| (*id, output))), "{known:?}");
        }
    }

    /// A thread that continues from the middle of a history takes over what applied there, and no more.
    #[test]
    fn texts_are_taken_over_from_where_a_thread_branches() {
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
            let listed =
                known.outputs.iter().filter(|(_, one)| one.uses.iter().any(|one| one.conversation == "d"));
            assert!(listed.map(|(id, _)| id).eq(expected), "{prior}");
        }
    }

    #[test]
    fn the_newest_come_first_and_what_has_no_time_last() {
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

    #[test]
    fn a_shared_text_is_shown_with_the_conversation_that_was_asked_for() {
        let shared = [record("c", &[], None), record("c", &["a"], None), record("d", &["a"], None)];
        let known = known(&shared);
        for (asked, conversation, requests) in
            [(None, "d +1", "1"), (Some("c"), "c +1", "2"), (Some("d"), "d +1", "1")]
        {
            let lines =
                lines(&known, &known.newest_first(asked, LedgerFilter::default()), asked, &TimeZone::UTC);
            let expected = format!("{conversation}          {requests}");
            assert!(lines.len() == 2 && lines[1].ends_with(&expected), "{asked:?}: {lines:?}");
        }
    }

    #[test]
    fn what_is_gone_says_why_and_what_is_left() {
        let outputs = Outputs::new("/o");
        let known = known(&[record("c", &["a"], None)]);
        let plain = Output::default();
        let stored = Output { is_stored: true, ..Output::default() };
        for (output, expected) in [
            (
                &plain,
                "`a`: it is not kept, because of `outputs.recall`, or not any more, because of `outputs.retention`",
            ),
            (&stored, "`a`: its file /o/a.txt has been taken away"),
            (
                &known.outputs["a"],
                "`a`: it is not kept, because of `outputs.recall`, or not any more, because of `outputs.retention`\n  \
                 hint: `plimsoll diff c 1` shows what was sent in its place",
            ),
        ] {
            assert_eq!(gone("a", output, &outputs), expected);
        }
    }

    #[test]
    fn numbers_in_a_row_are_a_range() {
        for (numbers, expected) in
            [(&[][..], ""), (&[2], "2"), (&[7, 2, 8, 9], "2, 7-9"), (&[1, 3, 5], "1, 3, 5"), (&[1, 2], "1-2")]
        {
            assert_eq!(ranges(&numbers.iter().copied().collect()), expected);
        }
    }
}
