//! `plimsoll inspect`.

mod newest;

use std::collections::BTreeMap;

use clap::Args;
use jiff::tz::TimeZone;

use super::diff::left_out;
use super::history::History;
use super::table::{Align, Table, cut, wrapped};
use super::{Failure, TimedOutput, books, figures, say, say_lines};
use crate::config::Preset;
use crate::ledger::words::{Outcome, State, Term, Used};
use crate::ledger::{
    DoomLoop, Edits, Entry, Event, Fill, HistoryDocument, Own, Record, Shares, Splice, Totals, Window,
    WrittenFile, Zone, when,
};
use crate::lineage::Relation;
use crate::planner::decision::{CLEAR, OPENING};
use crate::strategy::window;
use crate::usage::Money;

/// The explanation of the columns and the JSON, for `--help`.
const SCHEMA: &str = "\
The columns: the request's number (`own`: a call that the gateway made itself, such as for a summary), the user's turn and
the request within it, the time, the tokens of the prompt as the client sent it and as it was sent on, how full that made
the model's window, the cost, the cost if the gateway had left it untouched, and the difference; if the gateway only
observed, what rewriting would have saved. `~` marks an estimate, `≥` a lower bound, `–` an unknown figure.

JSON:
  {\"conversation\", \"log\", \"requests\": [{\"n\", \"record\"}], \"totals\": TOTALS, \"unreadable\",
   \"fill\", \"calls\", \"files\"}
  log         the name of the file in `ledger.dir` that holds its records
  n           the number that `plimsoll diff ID N` takes; null for a call that the gateway made itself
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
        for what in happened(&entry.record, entry.number == Some(1)) {
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

/// The zone that was acted upon, if it differs from that of what was sent.
fn zone_before(record: &Record) -> Option<String> {
    let window = record.window.as_ref()?;
    let zone =
        window.zone.as_ref().filter(|zone| window.zone_sent.as_ref().is_some_and(|sent| sent != *zone))?;
    let Term::Known(state) = record.edits.state else { return None };
    match (state, &record.edits.event) {
        (State::Observed, None) => Some(format!("if shortened, it would be in zone {zone}")),
        (State::Observed, Some(_)) => {
            Some(format!("if shortened, it would be in zone {zone} before the event"))
        }
        (State::Edited, Some(_)) => Some(format!("before the event it was in zone {zone}")),
        _ => None,
    }
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

/// The events of a request that deserve a line of their own.
fn happened(record: &Record, is_first: bool) -> Vec<String> {
    if let Some(own) = &record.own {
        return summarised(own, record.error.as_deref());
    }
    let mut lines: Vec<String> = relation(record, is_first).into_iter().collect();
    lines.extend(gave_way(&record.edits));
    lines.extend(record.window.as_ref().and_then(|window| pressure(window, &record.edits)));
    lines.extend(record.prompt.as_ref().and_then(changed));
    lines.extend(record.doom_loop.as_ref().map(circles));
    lines.extend(charges(record));
    lines.extend(shortened(record));
    lines.extend(zone_before(record));
    lines.extend(went_wrong(record));
    lines
}

/// The purpose and the result of a call of the gateway's own.
fn summarised(own: &Own, error: Option<&str>) -> Vec<String> {
    let score = own.score.map_or_else(String::new, |score| format!(", keeps {:.0} %", score * 100.0));
    let what = match own.messages {
        0 if error.is_none() => format!("a part read for a {}", own.purpose),
        0 => format!("a call for a {} that came to nothing", own.purpose),
        messages => format!("{} {} of {messages} messages{score}", own.purpose, own.generation),
    };
    std::iter::once(what).chain(error.map(str::to_owned)).collect()
}

/// How a request relates to the previous ones, unless it simply continues them.
fn relation(record: &Record, is_first: bool) -> Option<String> {
    if record.attempt > 0 {
        return Some("sent again, as its prompt had been too long".to_owned());
    }
    let relation = record.relation.as_deref().unwrap_or("not read");
    if relation == Relation::Continue.as_str() || (is_first && relation == Relation::New.as_str()) {
        return None;
    }
    let agent = record.agent.as_deref().map_or_else(String::new, |agent| format!(" by {agent}"));
    Some(format!("{relation}{agent}"))
}

/// What replaced old parts, and which calls were repeated because of it.
fn gave_way(edits: &Edits) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(event) = &edits.event {
        lines.push(change(event, edits.state == State::Edited));
        lines.extend((event.reasoning > 0).then(|| left_out(event.reasoning)));
    }
    lines.extend(edits.splice.as_ref().filter(|splice| splice.made).map(spliced));
    if edits.recalls > 0 {
        let calls = figures::counted(edits.recalls.into(), "call", "calls");
        lines.push(format!("{calls} made again: the result had been cleared"));
    }
    lines
}

/// What it means for a budget, and which of its charges have no known price.
fn charges(record: &Record) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(budget) = &record.budget {
        let what = if budget.state == Used::Spent { "spent" } else { "nearly spent" };
        lines.push(format!("budget {what}: {} (`{}`)", budget.used, budget.limit));
    }
    if !record.unpriced_charges.is_empty() {
        lines.push(format!("charges of unknown price: {}", record.unpriced_charges.join(", ")));
    }
    lines
}

/// How new parts were changed, or would have been.
fn shortened(record: &Record) -> Vec<String> {
    let (edits, bytes) = (&record.edits, &record.bytes);
    let mut lines = Vec::new();
    let begins = edits.made.iter().any(|made| made.rules == OPENING);
    lines.extend(begins.then(|| "begins with a checkpoint".to_owned()));
    let newborn = edits.made.iter().map(|made| made.rules.as_str());
    let newborn = rules(newborn.filter(|rules| ![CLEAR, OPENING].contains(rules)));
    if !newborn.is_empty() {
        lines.push(format!("shortened: {newborn}"));
    }
    if edits.marked && edits.parts.is_empty() && edits.splice.is_none() && edits.event.is_none() {
        lines.push("only marked for the provider's cache".to_owned());
    }
    if edits.state == State::Observed {
        let parts: Vec<String> = edits.parts.iter().map(|(rule, count)| format!("{rule} {count}")).collect();
        let less = match bytes.would_have_saved {
            0 => String::new(),
            bytes => format!(": {} bytes less", figures::count(bytes)),
        };
        lines.push(format!("only observed, would be shortened: {}{less}", parts.join(", ")));
    }
    lines
}

/// What went wrong.
fn went_wrong(record: &Record) -> Vec<String> {
    let mut lines = Vec::new();
    let edits = &record.edits;
    if record.breaks_prefix() && edits.event.is_none() {
        lines.push("it does not begin with what was sent before".to_owned());
    }
    if edits.original_resent {
        lines.push("the edited request was refused and sent again as it came".to_owned());
    }
    let status = record.status.filter(|status| *status >= 400).map(|status| format!("status {status}"));
    let outcome = Some(&record.outcome).filter(|outcome| **outcome != Outcome::Complete);
    let outcome = outcome.map(|outcome| ended(outcome, record.status)).filter(|outcome| !outcome.is_empty());
    let error = record.error.as_ref().map(|error| format!("error: {error}"));
    let wrong: Vec<String> = [status, outcome, error, edits.why.clone()].into_iter().flatten().collect();
    if !wrong.is_empty() {
        lines.push(wrong.join("; "));
    }
    lines
}

/// How an exchange ended, in words.
fn ended(outcome: &Term<Outcome>, status: Option<u16>) -> String {
    match outcome {
        Term::Known(Outcome::UpstreamBroke) if status.is_none() => "no answer came".to_owned(),
        Term::Known(Outcome::UpstreamBroke) => "the answer broke off".to_owned(),
        Term::Known(Outcome::ClientGone) => "the client did not wait for the end".to_owned(),
        Term::Known(Outcome::Stopped) => "the gateway was stopped".to_owned(),
        outcome => outcome.to_string(),
    }
}

/// What an event changes.
fn change(event: &Event, is_made: bool) -> String {
    let would = if is_made { "" } else { "would be " };
    let done = [
        (event.cleared, "result", "results", "cleared"),
        (event.dropped, "message", "messages", "left out"),
        (event.cut, "new result", "new results", "cut"),
        (event.abridged, "call", "calls", "abridged"),
    ];
    let told = done.into_iter().filter(|(count, _, _, what)| {
        *count > 0 || (*what == "cleared" && event.dropped + event.cut + event.abridged == 0)
    });
    let told: Vec<String> = told
        .map(|(count, one, many, what)| {
            format!("{} {would}{what}", figures::counted(count.into(), one, many))
        })
        .collect();
    let preset = Some(&*event.preset).filter(|preset| !["", Preset::Default.as_str()].contains(preset));
    format!(
        "event ({}{}): {} from message {} on, {} bytes freed, ~{} bytes written to the cache again",
        event.reason,
        preset.map_or_else(String::new, |preset| format!(", preset {preset}")),
        told.join(", "),
        event.first_message,
        figures::count(event.freed_bytes),
        figures::count(event.rewritten_bytes),
    )
}

/// What replaces messages that are not sent.
fn spliced(splice: &Splice) -> String {
    format!(
        "a {} stands for {} from {} to {}: {} → {} bytes",
        splice.rule,
        figures::counted(splice.messages.into(), "message", "messages"),
        splice.first,
        splice.end.saturating_sub(1),
        figures::count(splice.before),
        figures::count(splice.after),
    )
}

/// How soon the window is full, if that is soon, as measured before an event made room.
fn pressure(window: &Window, edits: &Edits) -> Option<String> {
    const SOON: u64 = 5;
    const RED: &str = window::Zone::Red.as_str();
    let velocity = window.velocity.and_then(|velocity| u64::try_from(velocity).ok())?;
    let made_room = edits.event.is_some() && edits.were_sent();
    let soon = window.steps_until_red.filter(|steps| *steps <= SOON && !made_room);
    if soon.is_none() && !window.spike {
        return None;
    }
    let spike = if window.spike { ", much faster than before" } else { "" };
    let until = match soon {
        Some(0) if window.zone_sent.as_ref().or(window.zone.as_ref()).is_some_and(|zone| zone == RED) => {
            "; the zone is red".to_owned()
        }
        Some(0) => "; red with the next request".to_owned(),
        Some(steps) => format!("; red in {}", figures::counted(steps, "request", "requests")),
        None => String::new(),
    };
    Some(format!("grows by ~{} tokens a request{spike}{until}", figures::count(velocity)))
}

/// Where instructions changed.
fn changed(prompt: &Shares) -> Option<String> {
    let byte = figures::count(prompt.volatile_at?);
    let line =
        prompt.volatile_line.map_or_else(String::new, |line| format!(" (line {})", figures::count(line)));
    Some(format!("the instructions change at byte {byte}{line}: what follows is not read from the cache"))
}

/// A call that is repeated.
fn circles(found: &DoomLoop) -> String {
    let results = match found.same_results {
        Some(true) => ", with the same result",
        Some(false) => ", with other results",
        None => "",
    };
    format!("the same call of {} {} times in a row{results}", found.tool, found.calls)
}

/// Rules, and the number of parts that each changed.
fn rules<'a>(all: impl Iterator<Item = &'a str>) -> String {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for rule in all.flat_map(|rules| rules.split('+')) {
        *counts.entry(rule).or_default() += 1;
    }
    let counts: Vec<String> = counts.into_iter().map(|(rule, count)| format!("{rule} {count}")).collect();
    counts.join(", ")
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
