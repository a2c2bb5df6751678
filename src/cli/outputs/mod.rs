//! `plimsoll outputs`: the full texts of shortened or cleared results. Read-only, and only within their directory.

mod known;

use std::collections::BTreeSet;

use clap::Args;
use jiff::tz::TimeZone;
use serde::Serialize;

use super::history::not_found_message;
use super::range::Range;
use super::table::{Align, Table, cut};
use super::{Failure, TimedOutput, books, figures, files, say, say_bytes, say_lines};
use crate::config::Config;
use crate::ledger::history::one;
use crate::ledger::{History, NoHistory, Totals, when};
use crate::store::Outputs;

use known::{Known, Named, Output, Use};

/// The maximum length of a list of requests in a column.
const MAX_REQUESTS: usize = 16;
/// The maximum length of a conversation's id in a column.
const MAX_CONVERSATION: usize = 32;

/// The description of the JSON, for `--help`.
const SCHEMA: &str = "\
JSON:
  {\"outputs\": [{\"id\", \"last_used\", \"bytes\", \"path\", \"uses\": [{\"conversation\", \"requests\": []}]}], \"unreadable\", \"missing\"}
  last_used   when a request last referred to it, RFC 3339 in UTC; what is older than `outputs.retention` is removed
  bytes, path of its file; null if the text is not kept: not any more, or because of `outputs.recall = \"none\"`
  uses        the conversations in whose records it occurs, the newest first, each with the numbers (as in `plimsoll
              inspect`) of the requests in which the result was shortened or cleared
  unreadable  the number of damaged records; which texts they name is not known
  missing     the number of records that could not be written; which texts they name is not known
  Fields may be added; none will change its meaning.";

/// The options of `plimsoll outputs`.
#[derive(Debug, Args)]
#[command(after_long_help = SCHEMA)]
#[command(mut_arg("since", |arg| arg.help("Only what was last used from this time on: a date (2026-11-21), a time \
    (2026-11-21T10:00), or how long ago (12h, 7d, 2w)")))]
#[command(mut_arg("until", |arg| arg.help("Only what was last used up to this time, given in the same way; a date means the \
    end of that day")))]
pub(super) struct Options {
    /// The id of a text, or the beginning of one: the text is printed, byte for byte. Without it, all texts are listed,
    /// the newest first
    #[arg(conflicts_with_all = ["conversation", "since", "until", "json"])]
    id: Option<String>,
    /// Only texts of the conversation with this id; its beginning is enough
    #[arg(long, value_name = "ID")]
    conversation: Option<String>,
    #[command(flatten)]
    range: Range,
    #[command(flatten)]
    output: TimedOutput,
}

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
    let read = |id: &str| outputs.read(id).map_err(|error| Failure::about(&outputs.path(id), error));
    // For a whole id, the books need not be read.
    if let Some(text) = read(id)? {
        say_bytes(&text);
        return Ok(());
    }
    let (known, _) = Known::of(config)?;
    let found = known.outputs.keys().cloned().collect();
    let id = one("full text", id, found).map_err(|none| Failure::Message(not_found_message(&none)))?;
    match read(&id)? {
        Some(text) => say_bytes(&text),
        None => return Err(Failure::Message(gone(&id, &known.outputs[&id], &outputs))),
    }
    Ok(())
}

/// The message for a text that is gone, with what is known about it.
fn gone(id: &str, output: &Output, outputs: &Outputs) -> String {
    let why = if output.is_stored {
        format!("its file {} has been removed", outputs.path(id).display())
    } else {
        "it is not kept, because of `outputs.recall`, or not any more, because of `outputs.retention`"
            .to_owned()
    };
    let newest = output.users().first().copied();
    let hint = newest.and_then(|(conversation, last)| Some((conversation, last.requests.last()?)));
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
            NoHistory::Store(error) => books::failed(&config.state.dir, &error),
            NoHistory::Id(none) => Failure::Message(not_found_message(&none)),
        })?),
        (Some(_), None) => return Err(Failure::Message(books::nothing(&config.state.dir))),
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
            "no full texts for that time or conversation"
        });
    }
    say_lines(lines(&known, &listed, of.as_deref(), &zone));
    books::say_notes(&notes(&known, &listed, config));
    Ok(())
}

/// The table. Of the conversations that use a text, it shows `asked`, or else the newest.
fn lines(known: &Known, listed: &[Named<'_>], asked: Option<&str>, zone: &TimeZone) -> Vec<String> {
    if listed.is_empty() {
        return Vec::new();
    }
    let ids: Vec<&str> = known.outputs.keys().map(String::as_str).collect();
    let width = books::id_width(&ids);
    let uses = known.outputs.values().flat_map(|output| output.uses.keys());
    let conversations: BTreeSet<&str> = uses.map(String::as_str).collect();
    let of_width =
        books::id_width(&conversations.into_iter().collect::<Vec<_>>()).min(books::most(MAX_CONVERSATION));
    let mut table = Table::new(&[
        ("full text", Align::Left),
        ("last used", Align::Left),
        ("bytes", Align::Right),
        ("file", Align::Left),
        ("conversation", Align::Left),
        ("requests", Align::Left),
    ]);
    let requests = |one: &Use| cut(&figures::runs(&one.requests, "-").join(", "), books::most(MAX_REQUESTS));
    for (id, output) in listed {
        let of_asked = asked.and_then(|asked| Some((asked, output.uses.get(asked)?)));
        let shown = of_asked.or_else(|| output.users().first().copied());
        let others = output.uses.len().saturating_sub(1);
        let others = if others > 0 { format!(" +{others}") } else { String::new() };
        table.row(&[
            cut(id, width),
            figures::or_unknown(output.last_ms.map(|at_ms| when::minute(at_ms, zone))),
            figures::or_unknown(output.bytes.map(figures::count)),
            if output.bytes.is_some() { "kept" } else { "not kept" }.to_owned(),
            figures::or_unknown(shown.map(|(conversation, _)| cut(conversation, of_width) + &others)),
            figures::or_unknown(shown.map(|(_, one)| requests(one))),
        ]);
    }
    table.lines_within(books::width())
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
    uses: Vec<JsonUse<'a>>,
}

#[derive(Serialize)]
struct JsonUse<'a> {
    conversation: &'a str,
    requests: &'a BTreeSet<usize>,
}

impl<'a> Json<'a> {
    fn of(known: &Known, listed: &[Named<'a>], outputs: &Outputs) -> Self {
        let used =
            |(conversation, one): (&'a str, &'a Use)| JsonUse { conversation, requests: &one.requests };
        let one = |&(id, output): &Named<'a>| JsonOutput {
            id,
            last_used: output.last_ms.map(when::rfc3339),
            bytes: output.bytes,
            path: output.bytes.map(|_| outputs.path(id).display().to_string()),
            uses: output.users().into_iter().map(used).collect(),
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
    use super::known::tests::{known, record};
    use super::*;
    use crate::store::LedgerFilter;

    #[test]
    fn a_shared_text_is_shown_with_the_requested_conversation() {
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
    fn missing_outputs_are_explained_with_a_hint() {
        let outputs = Outputs::new("/o");
        let known = known(&[record("c", &["a"], None)]);
        let plain = Output::default();
        let stored = Output { is_stored: true, ..Output::default() };
        for (output, expected) in [
            (
                &plain,
                "`a`: it is not kept, because of `outputs.recall`, or not any more, because of `outputs.retention`",
            ),
            (&stored, "`a`: its file /o/a.txt has been removed"),
            (
                &known.outputs["a"],
                "`a`: it is not kept, because of `outputs.recall`, or not any more, because of `outputs.retention`\n  \
                 hint: `plimsoll diff c 1` shows what was sent in its place",
            ),
        ] {
            assert_eq!(gone("a", output, &outputs), expected);
        }
    }
}
