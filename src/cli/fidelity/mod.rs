//! `plimsoll fidelity`.

mod judged;

use clap::Args;
use serde::Serialize;

use super::history::History;
use super::table::{Align, Table};
use super::{Failure, TimedOutput, books, figures, files, say, say_lines};
use crate::ledger::{OwnCall, Record, when};

/// The explanation of the figures, for `--help`.
const SCHEMA: &str = "\
A score is measured when a summary is made: of all paths, names, numbers and error messages in the messages that it
replaces, the share that the summary still contains. Use it to compare summaries; it does not say how much of what
matters was kept.

JSON:
  {\"conversation\", \"summaries\": [{\"time\", \"generation\", \"messages\", \"bytes\", \"model\", \"score\"}], \"mean\"}
  time         when it was made, RFC 3339 in UTC
  score, mean  from 0 to 1, null if there was nothing to keep
  Fields may be added; none will change its meaning.

With --judge, the model of `[fidelity]` answers the same questions about the newest request, once as the client sent it
and once as it was sent on, and says how far the answers agree. This needs `ledger.record = \"full\"`, and its calls are
billed by the provider.

JSON with --judge:
  {\"conversation\", \"request\", \"model\", \"questions\": [{\"asked\", \"original\", \"rewritten\", \"agrees\"}], \"mean\", \"usd\"}
  request       the number of the request, from 1
  agrees, mean  from 0 to 1, null if the original does not answer the question either
  usd           the cost of the judge's calls, null if its price is unknown";

/// The options of `plimsoll fidelity`.
#[derive(Debug, Args)]
#[command(after_long_help = SCHEMA)]
pub(super) struct Options {
    /// The conversation's id, its beginning, or the path of its log, of which only the id is read;
    /// `plimsoll conversations` lists the ids
    id: String,
    /// Compare the newest request with what was sent, by asking the model of `[fidelity]`;
    /// needs `ledger.record = "full"`
    #[arg(long)]
    judge: bool,
    #[command(flatten)]
    output: TimedOutput,
}

#[derive(Serialize)]
struct Json<'a> {
    conversation: &'a str,
    summaries: Vec<One<'a>>,
    mean: Option<f64>,
}

#[derive(Serialize)]
struct One<'a> {
    time: &'a str,
    generation: u32,
    messages: u32,
    bytes: u64,
    model: Option<&'a str>,
    score: Option<f64>,
}

/// Prints how much the summaries of a conversation preserve.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let id = id(&options.id);
    if options.judge {
        // The judge is called with the API keys of its upstream.
        return judged::run(&History::with(files::load(&options.output.source)?, &id)?, options.output.json);
    }
    let history = History::read(&options.output.source, &id)?;
    let entries = history.found.entries.iter();
    let (times, summaries): (Vec<i64>, Vec<One<'_>>) = entries
        .filter_map(|entry| Some((entry.at_ms, one(&entry.record, entry.record.own.as_ref()?))))
        .filter(|(_, one)| one.messages > 0)
        .unzip();
    if options.output.json {
        let mean = mean(&summaries);
        return books::say_json(&Json { conversation: &history.found.id, summaries, mean });
    }
    if summaries.is_empty() {
        say("no summary of it has been made yet");
        return Ok(());
    }
    let mut table = Table::new(&[
        ("summary", Align::Right),
        ("time", Align::Left),
        ("messages", Align::Right),
        ("bytes", Align::Right),
        ("keeps", Align::Right),
        ("model", Align::Left),
    ]);
    let zone = when::zone(options.output.utc);
    for (at_ms, one) in times.into_iter().zip(&summaries) {
        table.row(&[
            one.generation.to_string(),
            when::minute(at_ms, &zone),
            figures::count(one.messages.into()),
            figures::count(one.bytes),
            share(one.score),
            one.model.unwrap_or("–").to_owned(),
        ]);
    }
    say_lines(table.lines());
    say(&format!("mean: {}", share(mean(&summaries))));
    Ok(())
}

/// The id of the conversation; it may be given as a file of records, each of which contains it.
fn id(given: &str) -> String {
    let named = || {
        let text = std::fs::read_to_string(given).ok()?;
        let first: Record = serde_json::from_str(text.lines().next()?).ok()?;
        Some(first.conversation)
    };
    named().unwrap_or_else(|| given.to_owned())
}

fn one<'a>(record: &'a Record, own: &OwnCall) -> One<'a> {
    One {
        time: &record.time,
        generation: own.generation,
        messages: own.messages,
        bytes: own.bytes,
        model: record.model.as_deref(),
        score: own.score,
    }
}

fn mean(summaries: &[One<'_>]) -> Option<f64> {
    let scores: Vec<f64> = summaries.iter().filter_map(|one| one.score).collect();
    (!scores.is_empty()).then(|| scores.iter().sum::<f64>() / scores.len() as f64)
}

fn share(score: Option<f64>) -> String {
    figures::or_unknown(score.map(|score| format!("{:.0} %", score * 100.0)))
}
