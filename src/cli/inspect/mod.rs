//! `plimsoll inspect`.

mod newest;

use clap::Args;
use jiff::tz::TimeZone;

use super::history::History;
use super::table::{Align, Table, cut, wrapped};
use super::{Failure, TimedOutput, books, figures, say, say_lines};
use crate::ledger::{Entry, Fill, HistoryDocument, Record, Totals, WrittenFile, Zone, told, when};
use crate::usage::Money;

/// The explanation of the columns and the JSON, for `--help`.
const SCHEMA: &str = "\
The columns: the request's number (`own`: a call that the gateway made itself, such as for a summary), the user's turn and
the request within it, the time, the tokens of the prompt as the client sent it and as it was sent on, how full that made
the model's window, the cost, the cost if the gateway had left it untouched, and the difference; if the gateway only
observed, what rewriting would have saved. `~` marks an estimate, `≥` a lower bound, `–` an unknown figure.

JSON:
  {\"conversation\", \"log\", \"requests\": [{\"n\", \"happened\": [], \"standing\": [], \"record\"}], \"totals\": TOTALS,
   \"unreadable\", \"fill\", \"calls\", \"files\"}
  log         the name of the file in `ledger.dir` that holds its records
  n           the number that `plimsoll diff ID N` takes; null for a call that the gateway made itself
  happened    the lines printed below the request's row
  standing    what was decided before and applies to it too, in words; and what is sent beside its messages
  record      the record as it is in the log
  unreadable  the number of damaged records
  fill        how the newest prompt fills the window: {window, regions: [{name, tokens, limit, state}], burn}, in tokens;
              null if the window is unknown. The region memory is the summary or note that replaces messages. All
              regions except output add up to the prompt; the syntax around its texts is spread over them.
              state: ok, soft (four fifths of the limit), hard; for output: whether the room that the prompt leaves is
              as large as what is reserved for the answer. burn: {tokens_per_turn, turns_left, urgency} or null;
              urgency: normal, warning (fewer than 10 turns left), critical (fewer than 3)
  calls       the number of tool calls in the newest prompt as it was sent: {pending (no result), completed, error,
              cleared (a placeholder replaces the result)}; null if no prompt was read
  files       the files that calls wrote, in the order of the first write: [{path, n, requests}]; n: the request that
              contained the first of these calls, requests: the number of requests that contained one. Failed calls are
              left out, and so are files written by shell commands, unless a patch names them
  TOTALS      as described by `plimsoll report --help`
  Fields may be added; none will change its meaning.";

/// The maximum number of files that are listed.
const MAX_FILES: usize = 40;
/// The maximum length of a path, in characters.
const MAX_PATH: usize = 76;

/// The options of `plimsoll inspect`.
#[derive(Debug, Args)]
#[command(after_long_help = SCHEMA)]
pub(super) struct Options {
    /// The conversation's id, or its beginning; `plimsoll conversations` lists the ids
    id: String,
    #[command(flatten)]
    output: TimedOutput,
}

/// Prints a conversation.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let history = History::read(&options.output.source, &options.id)?;
    let totals = &history.found.totals;
    if options.output.json {
        return books::say_json(&HistoryDocument::new(&history.found));
    }
    let zone = when::zone(options.output.utc);
    say_lines(heading(&history, &zone).into_iter().chain(timeline(&history, &zone)));
    say("");
    say_lines(sums(totals));
    say_lines(newest::made_of(&history));
    say_lines(Fill::of(&history.found).iter().flat_map(newest::filled));
    say_lines(written(&history.found.files));
    books::say_notes(&books::notes(totals, history.found.unreadable));
    Ok(())
}

/// The heading: the conversation, its times, clients, models and profiles.
fn heading(history: &History, zone: &TimeZone) -> Vec<String> {
    let mut lines = vec![format!("conversation {}", history.name())];
    let times = || history.found.entries.iter().map(|entry| entry.at_ms);
    if let (Some(first), Some(last)) = (times().min(), times().max()) {
        lines.push(format!("{} to {}", when::minute(first, zone), when::minute(last, zone)));
    }
    for (what, name) in [
        ("client", (|record| record.client.as_deref()) as fn(&Record) -> Option<&str>),
        ("model", |record| record.model.as_deref().or(record.model_asked.as_deref())),
        ("profile", |record| record.profile.as_deref()),
    ] {
        let names: std::collections::BTreeSet<&str> =
            history.found.entries.iter().filter_map(|entry| name(&entry.record)).collect();
        if !names.is_empty() {
            let names: Vec<&str> = names.into_iter().collect();
            lines.push(format!("{what}: {}", names.join(", ")));
        }
    }
    if history.found.entries.iter().any(|entry| entry.record.edits.deferred.is_some()) {
        lines.push(DEFERRED.to_owned());
    }
    lines.push(String::new());
    lines
}

/// The note for when the provider was asked to make room.
const DEFERRED: &str = "the provider is asked to make room by itself: nothing old is cleared or summed up here unless the window forces it";

const COLUMNS: [(&str, Align); 9] = [
    ("n", Align::Right),
    ("turn", Align::Right),
    ("time", Align::Left),
    ("came as|came", Align::Right),
    ("sent as|sent", Align::Right),
    ("zone", Align::Left),
    ("cost", Align::Right),
    ("untouched", Align::Right),
    ("saved", Align::Right),
];

/// The indentation of lines about what happened.
const INDENT: &str = "       ";

/// A row for each request, followed by what happened to it, if anything did.
fn timeline(history: &History, zone: &TimeZone) -> Vec<String> {
    let costs =
        history.found.entries.iter().flat_map(|entry| [cost(&entry.record), untouched(&entry.record)]);
    let places = figures::places(costs.flatten()).max(4);
    let entries = &history.found.entries;
    let observes = entries.iter().any(|entry| entry.record.would_have_saved_estimate.is_some());
    let would = observes.then_some((books::WOULD, Align::Right));
    let mut table = Table::new(&COLUMNS.into_iter().chain(would).collect::<Vec<_>>());
    for entry in entries {
        let would = observes.then(|| would_save(&entry.record, places));
        table.row(&cells(entry, zone, places).into_iter().chain(would).collect::<Vec<_>>());
    }
    let mut lines = table.lines_within(books::width()).into_iter();
    let most = books::width().min(books::WIDTH);
    let mut all: Vec<String> = lines.next().into_iter().collect();
    for (line, entry) in lines.zip(&history.found.entries) {
        all.push(line);
        // These lines are wrapped and not cut, since they may end in a figure.
        for what in told::happened(&entry.record, entry.number == Some(1)) {
            let lines = wrapped(&what, most.saturating_sub(INDENT.len()));
            all.extend(lines.iter().map(|line| format!("{INDENT}{line}")));
        }
    }
    all
}

fn cells(entry: &Entry, zone: &TimeZone, places: usize) -> [String; 9] {
    let record = &entry.record;
    let unknown = || "–".to_owned();
    let money =
        |amount: Option<Money>| amount.map_or_else(unknown, |amount| figures::dollars(amount, places));
    let estimated = record.counterfactual.as_ref().is_some_and(|one| one.estimated);
    let mark = |text: String| if estimated && text != unknown() { format!("~{text}") } else { text };
    let is_lower_bound = record.output_is_lower_bound || !record.unpriced_charges.is_empty();
    let at_least = if is_lower_bound && record.cost.is_some() { "≥ " } else { "" };
    let came = record.counterfactual.as_ref().map(|one| one.tokens.prompt());
    let sent = record.prompt_tokens();
    let count = |tokens: Option<u64>| tokens.map_or_else(unknown, figures::count);
    [
        entry.number.map_or_else(|| "own".to_owned(), |number| number.to_string()),
        if record.turn > 0 { format!("{}.{}", record.turn, record.step) } else { unknown() },
        when::second(entry.at_ms, zone),
        mark(count(came)),
        count(sent),
        record.zone().map_or_else(unknown, zone_shown),
        at_least.to_owned() + &money(cost(record)),
        mark(money(untouched(record))),
        mark(money(record.net_saved.map(pico))),
    ]
}

/// What rewriting would have saved, if it was only observed.
fn would_save(record: &Record, places: usize) -> String {
    books::estimate(record.would_have_saved_estimate.map(pico), places)
}

fn zone_shown(zone: Zone) -> String {
    if zone.estimated { format!("~{}", zone.name) } else { zone.name.into_owned() }
}

fn pico(amount: i64) -> Money {
    Money::from_picodollars(amount.into())
}

fn cost(record: &Record) -> Option<Money> {
    record.cost.as_ref().map(|cost| pico(cost.total))
}

fn untouched(record: &Record) -> Option<Money> {
    record.counterfactual.as_ref()?.cost.map(pico)
}

/// The sums, in the columns of the other reports.
fn sums(totals: &Totals) -> Vec<String> {
    let mut columns = vec![("", Align::Left)];
    let shown = books::Sums::of(std::iter::once(totals));
    columns.extend(shown.columns());
    let mut table = Table::new(&columns);
    table.row(&shown.row("total".to_owned(), totals));
    table.lines_within(books::width())
}

/// The files that calls wrote.
fn written(files: &[WrittenFile]) -> Vec<String> {
    if files.is_empty() {
        return Vec::new();
    }
    let titles = [("files written", Align::Left), ("first in", Align::Right), ("requests", Align::Right)];
    let mut table = Table::new(&titles);
    for WrittenFile { path, n, requests } in files.iter().take(MAX_FILES) {
        table.row(&[cut(path, books::most(MAX_PATH)), n.to_string(), requests.to_string()]);
    }
    let mut lines = vec![String::new()];
    lines.extend(table.lines_within(books::width()));
    let more = files.len().saturating_sub(MAX_FILES);
    lines.extend((more > 0).then(|| format!("and {more} more")));
    lines
}
