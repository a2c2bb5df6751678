//! `plimsoll diff`.
//!
//! If bodies were recorded, it compares what was received with what was sent; otherwise it collects what is stored: the
//! decisions in force, and the full texts that they refer to.

mod changes;
mod excerpt;

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::history::History;
use super::table::wrapped;
use super::{Failure, Output, books, figures, say_lines};
use crate::ledger::words::{State, Term};
use crate::ledger::{Record, told};
use excerpt::excerpt;

/// The description of the JSON, for `--help`.
const SCHEMA: &str = "\
Messages and parts are counted from 0, as in the log. Long texts are shortened here; `full output` says where they are.

JSON:
  {\"conversation\", \"n\", \"record\", \"state\", \"from\", \"gone\": GONE, \"reasoning\", \"changes\": [CHANGE], \"notes\": []}
  record   the id of the request's record
  state    of its messages, as in the log: edited, unchanged, observed, set_aside, unread or original_resent
  from     where the changes were read from: bodies (if `ledger.record` is \"full\") or store
  GONE     {\"messages\", \"first\", \"end\", \"rule\", \"bytes_before\", \"bytes_after\", \"before\", \"text\", \"output\"} or null:
           the messages that are not sent, from first up to but not including end; rule: whether a note or a summary
           replaces them; before: their texts, text: that of the note or summary; null if not stored
  reasoning  the number of blocks of reasoning that are left out
  CHANGE   {\"message\", \"part\", \"what\", \"rules\", \"decided_in\", \"decided_for\", \"bytes_before\", \"bytes_after\", \"before\",
           \"after\", \"output\"}
           what: the tool, or the kind of part; decided_in: the number of the request in which the change was decided;
           decided_for: the conversation of that request if it is another one, of which this one continues the history,
           otherwise null; before, after: the whole texts, null if not stored; output: the file of the full text or null
  notes    other changes, in words: members that were added to the body beside the messages, cache marks
  Fields may be added; none will change its meaning.";

/// The rule of a part that differs only in its cache mark.
const CACHE_MARK: &str = "cache mark";

/// The options of `plimsoll diff`.
#[derive(Debug, Args)]
#[command(after_long_help = SCHEMA)]
pub(super) struct Options {
    /// The conversation's id, or its beginning; `plimsoll conversations` lists the ids
    id: String,
    /// The number of the request; `plimsoll inspect` lists them
    n: usize,
    #[command(flatten)]
    output: Output,
}

/// A part that was sent in another form.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
struct Change {
    message: u32,
    part: u32,
    what: String,
    rules: String,
    decided_in: Option<usize>,
    decided_for: Option<String>,
    bytes_before: u64,
    bytes_after: u64,
    before: Option<String>,
    after: Option<String>,
    output: Option<PathBuf>,
}

/// Messages that are not sent, and what replaces them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Gone {
    messages: u32,
    first: u32,
    end: u32,
    rule: String,
    bytes_before: u64,
    bytes_after: u64,
    before: Option<String>,
    text: Option<String>,
    output: Option<PathBuf>,
}

/// All changes of a request.
#[derive(Debug, Default, Serialize)]
struct Difference {
    from: &'static str,
    gone: Option<Gone>,
    /// The number of reasoning blocks that are left out.
    reasoning: u32,
    changes: Vec<Change>,
    notes: Vec<String>,
}

/// Prints the changes of a request.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let history = History::read(&options.output.source, &options.id)?;
    let at = history.place(options.n).ok_or_else(|| {
        let requests = figures::counted(history.requests() as u64, "request", "requests");
        Failure::Message(format!(
            "{}: there is no request {}, the conversation has {requests}",
            history.name(),
            options.n
        ))
    })?;
    let record = &history.found.entries[at].record;
    let difference = changes::of(&history, at)?;
    if options.output.json {
        return say_json(&history, options.n, record, &difference);
    }
    say_lines(lines(&history, options.n, record, &difference));
    Ok(())
}

fn state(record: &Record) -> String {
    if record.edits.original_resent {
        return "original_resent".to_owned();
    }
    record.edits.state.to_string()
}

fn lines(history: &History, number: usize, record: &Record, difference: &Difference) -> Vec<String> {
    let went = told::as_it_came(&record.edits);
    let what = match record.edits.state {
        _ if record.edits.original_resent => format!("refused after it was edited, {went}"),
        Term::Known(State::Edited) => changed(record, difference),
        Term::Known(State::Observed) => format!("only observed, {went}"),
        Term::Known(State::SetAside) => told::set_aside(&record.edits),
        Term::Known(State::Unread) => format!("it could not be read, {went}"),
        Term::Known(State::Unchanged) | Term::Other(_) => went.to_owned(),
    };
    let mut lines = fitted(&format!("request {number} of {}: {what}", history.name()));
    if let Some(gone) = &difference.gone {
        lines.push(String::new());
        lines.extend(show_gone(gone));
    }
    if difference.reasoning > 0 {
        lines.push(String::new());
        lines.push(told::left_out(difference.reasoning));
    }
    for change in &difference.changes {
        lines.push(String::new());
        lines.extend(show(change));
    }
    if !difference.notes.is_empty() {
        lines.push(String::new());
        lines.extend(difference.notes.iter().flat_map(|note| fitted(note)));
    }
    lines
}

/// What of an edited request was sent otherwise, in the same words whether bodies were stored or not.
fn changed(record: &Record, difference: &Difference) -> String {
    let mut told = Vec::new();
    if let Some(gone) = &difference.gone {
        let messages = figures::counted(gone.messages.into(), "message", "messages");
        told.push(format!("{messages} replaced by a {}", gone.rule));
    }
    // The text that replaces messages may be appended to a part.
    let stands = |change: &&Change| difference.gone.as_ref().is_some_and(|gone| gone.rule == change.rules);
    let is_form = |change: &&Change| change.rules != CACHE_MARK && !stands(change);
    let parts = difference.changes.iter().filter(is_form).count() as u64;
    let nothing_else = difference.gone.is_none() && difference.reasoning == 0;
    if parts == 0 && nothing_else && record.edits.marked {
        return "only marked for the provider's cache".to_owned();
    }
    if parts > 0 || nothing_else {
        told.push(format!("{} sent in another form", figures::counted(parts, "part", "parts")));
    }
    told.extend((difference.reasoning > 0).then(|| told::left_out(difference.reasoning)));
    told.join(", ")
}

/// A line about a change, in as many as it takes on the terminal.
fn fitted(line: &str) -> Vec<String> {
    wrapped(line, books::width())
}

fn show_gone(gone: &Gone) -> Vec<String> {
    let mut lines = fitted(&format!(
        "{}, from message {} to {}: a {} stands for them, {} → {} bytes",
        figures::counted(gone.messages.into(), "message", "messages"),
        gone.first,
        gone.end.saturating_sub(1),
        gone.rule,
        figures::count(gone.bytes_before),
        figures::count(gone.bytes_after),
    ));
    lines.extend(excerpt(gone.before.as_deref(), gone.text.as_deref()));
    lines.extend(gone.output.as_ref().map(|output| format!("  full output: {}", output.display())));
    lines
}

fn show(change: &Change) -> Vec<String> {
    let of = change.decided_for.as_ref().map_or_else(String::new, |of| format!(" of {of}"));
    let decided = change.decided_in.map_or_else(String::new, |n| format!(", decided in request {n}{of}"));
    let mut lines = fitted(&format!(
        "message {}, part {}: {}, {}, {} → {} bytes{decided}",
        change.message,
        change.part,
        change.what,
        change.rules,
        figures::count(change.bytes_before),
        figures::count(change.bytes_after),
    ));
    match (&change.before, &change.after) {
        (Some(before), Some(after)) if before == after => {}
        (before, after) => lines.extend(excerpt(before.as_deref(), after.as_deref())),
    }
    if let Some(output) = &change.output {
        lines.push(format!("  full output: {}", output.display()));
    }
    lines
}

#[derive(Serialize)]
struct Json<'a> {
    conversation: &'a str,
    n: usize,
    record: &'a str,
    state: String,
    #[serde(flatten)]
    difference: &'a Difference,
}

fn say_json(
    history: &History,
    number: usize,
    record: &Record,
    difference: &Difference,
) -> Result<(), Failure> {
    books::say_json(&Json {
        conversation: &history.found.id,
        n: number,
        record: &record.id,
        state: state(record),
        difference,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Edits;

    /// With bodies, cache marks and the text that replaces messages are among the changes; without, they are not.
    #[test]
    fn both_forms_of_a_difference_count_alike() {
        let change = |rules: &str| Change { rules: rules.to_owned(), ..Change::default() };
        let gone = Gone {
            messages: 15,
            first: 1,
            end: 16,
            rule: "note".to_owned(),
            bytes_before: 9,
            bytes_after: 1,
            before: None,
            text: None,
            output: None,
        };
        for (gone, reasoning, rules, expected) in [
            (None, 0, &["fold"][..], "1 part sent in another form"),
            (None, 0, &["fold", CACHE_MARK], "1 part sent in another form"),
            (None, 0, &[], "only marked for the provider's cache"),
            (None, 0, &[CACHE_MARK, CACHE_MARK], "only marked for the provider's cache"),
            (Some(gone.clone()), 0, &[], "15 messages replaced by a note"),
            (Some(gone.clone()), 0, &["note", CACHE_MARK], "15 messages replaced by a note"),
            (
                Some(gone),
                0,
                &["clear", "fold"],
                "15 messages replaced by a note, 2 parts sent in another form",
            ),
            (None, 2, &[], "2 blocks of reasoning left out"),
            (None, 2, &["clear"], "1 part sent in another form, 2 blocks of reasoning left out"),
        ] {
            let edits = Edits { state: State::Edited.into(), marked: true, ..Edits::default() };
            let record = Record { edits, ..Record::default() };
            let changes = rules.iter().map(|rules| change(rules)).collect();
            let difference = Difference { gone, reasoning, changes, ..Difference::default() };
            assert_eq!(changed(&record, &difference), expected);
        }
    }
}
