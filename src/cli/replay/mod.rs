//! `plimsoll replay`: what a configuration would have done to recorded conversations.
//!
//! Each request is built again, then planned, edited and proved as the gateway does it, and both versions are billed by
//! a model of the provider's cache. Nothing is sent or stored, and only one file is in memory at a time.

mod bodies;
mod damage;
mod lines;
mod played;
mod price;
mod quotes;
mod recording;
mod report;
mod session;
mod side;
mod sweep;
#[cfg(test)]
mod tests;
mod transcript;

use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;

use super::{Failure, Output, books, figures, files, say_lines, table};
use crate::app::{self, Recall};
use crate::store::ledger::FILE_NAME;
use crate::store::{Bodies, Outputs};
use bodies::Marks;
use played::{Played, Setting};
use recording::Input;
use report::Report;

/// The options of `plimsoll replay`.
#[derive(Debug, Args)]
#[command(after_long_help = report::SCHEMA)]
pub(super) struct Options {
    /// Recorded conversations: logs of the gateway in `ledger.dir`, made with `ledger.record = "full"`, or transcripts,
    /// whose format `--help` describes
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Use the prices of this model instead of the recorded one's
    #[arg(long, value_name = "MODEL")]
    prices: Option<String>,
    /// Where the agent of a transcript puts its cache marks
    #[arg(long, value_enum, default_value_t = Marks::Placed)]
    client_marks: Marks,
    /// Seconds between the requests of a transcript, which does not record them
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pace: u32,
    /// Try a grid of settings around the configuration, and print the cost and the losses of each
    #[arg(long)]
    sweep: bool,
    #[command(flatten)]
    output: Output,
}

/// Replays the files.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let config = files::load_to_read(&options.output.source)?;
    let catalogue = app::prices(&config.prices).map_err(Failure::said)?;
    if let Some(model) = &options.prices
        && price::find(&catalogue, model).is_none()
    {
        return Err(Failure::Usage(format!("no price is known for `{model}`")));
    }
    let (recall, outputs) =
        (Recall::new(config.outputs.recall, config.listen.admin), Outputs::new(&config.outputs.dir));
    let setting = Setting {
        policy: &config.tuning.policy,
        catalogue: &catalogue,
        prices: options.prices.as_deref(),
        marks: options.client_marks,
        pace_ms: u64::from(options.pace) * 1000,
        bodies: &Bodies::below(&config.state.dir),
        store: &config.state.dir.join(FILE_NAME),
        recall: &|id| recall.sentence(&outputs, id),
    };
    if options.sweep {
        return sweep(options, &setting);
    }
    let mut report = Report::default();
    let wrong = each(options, &mut |file| {
        report.add(play(file, &setting)?);
        Ok(())
    })?;
    if options.output.json {
        books::say_json(&report)?;
    } else {
        say_lines(report::table(&report).lines_within(books::width()));
        books::say_notes(&report::notes(&report));
    }
    result(wrong)
}

/// Replays each file under all settings of the grid.
fn sweep(options: &Options, setting: &Setting<'_>) -> Result<(), Failure> {
    let mut rows = sweep::grid(setting.policy);
    let wrong = each(options, &mut |file| {
        for row in &mut rows {
            row.total.add(play(file, &Setting { policy: &row.policy, ..*setting })?);
        }
        Ok(())
    })?;
    if options.output.json {
        books::say_json(&rows)?;
    } else {
        say_lines(sweep::table(&rows).lines_within(books::width()));
    }
    result(wrong)
}

/// The result of a command that had to leave out this many files that it should have been able to read.
fn result(wrong: u64) -> Result<(), Failure> {
    let files = figures::counted(wrong, "file", "files");
    if wrong == 0 { Ok(()) } else { Err(Failure::Message(format!("{files} could not be replayed"))) }
}

/// Why a file cannot be replayed.
#[derive(Debug, PartialEq, thiserror::Error)]
enum Unplayed {
    /// It is a log of requests whose bodies are missing.
    #[error("no bodies of its requests in {0}; `ledger.record = \"full\"` keeps them, and `-c` says where")]
    NoBodies(String),
    #[error("{0}")]
    Wrong(String),
}

impl From<String> for Unplayed {
    fn from(error: String) -> Self {
        Self::Wrong(error)
    }
}

/// Reads the files one after another. If others can be replayed, one that cannot is left out. Returns the number of
/// those that are wrong; a file without bodies is not, since not everything that a gateway logs was a prompt.
fn each(options: &Options, play: &mut dyn FnMut(&Input) -> Result<(), Unplayed>) -> Result<u64, Failure> {
    let (mut without_bodies, mut wrong) = (Vec::new(), Vec::new());
    for file in &options.files {
        let played = Input::read(file).map_err(Unplayed::from).and_then(|read| {
            play(&read)?;
            Ok(read.damage().clone())
        });
        match played {
            Ok(damage) if damage.is_none() => {}
            Ok(damage) => say_left_out(&format!("{}: {damage}", file.display())),
            Err(error) => {
                let is_wrong = matches!(error, Unplayed::Wrong(_));
                let left_out = if is_wrong { &mut wrong } else { &mut without_bodies };
                left_out.push(format!("{}: {error}", file.display()));
            }
        }
    }
    if wrong.len() + without_bodies.len() == options.files.len() {
        // What is said of one log without bodies is true of all.
        wrong.extend(without_bodies.into_iter().take(1));
        return Err(Failure::Message(wrong.join("\n")));
    }
    for line in wrong.iter().chain(&without_bodies) {
        say_left_out(line);
    }
    Ok(wrong.len() as u64)
}

fn say_left_out(what: &str) {
    let _ = writeln!(std::io::stderr(), "left out: {}", table::printable(what));
}

fn play(input: &Input, setting: &Setting<'_>) -> Result<Played, Unplayed> {
    match input {
        Input::Transcript(transcript) => Ok(played::transcript(transcript, setting)?),
        Input::Recording(recording) => played::recording(recording, setting),
    }
}
