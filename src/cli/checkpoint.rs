//! `plimsoll checkpoint`.

use std::path::PathBuf;

use clap::Args;
use jiff::Timestamp;

use super::history::History;
use super::{Failure, Source, say};
use crate::store::{Checkpoints, Summary};
use crate::strategy::summary::{Checkpoint, Outline};

/// The description of the files, for `--help`.
const SCHEMA: &str = "\
Two files are written, CONVERSATION.checkpoint.json and CONVERSATION.checkpoint.md: what the user wants (word for
word), what is done, under way and next, decisions, open issues, constraints, files, facts, and the last summary.
They are as old as that summary: messages after it are not covered. Without a summary, nothing is written.

They are written to `checkpoints` below `state.dir`, where the gateway looks for them: a new conversation whose requests
carry the header `x-plimsoll-checkpoint: CONVERSATION` starts from there: in each of them, the text of the checkpoint is
added below the user's first message.

JSON:
  {\"version\", \"conversation\", \"saved_at\", \"goal\", \"constraints\": [], \"completed\": [], \"current\": [], \"remaining\": [],
   \"decisions\": [], \"open_issues\": [], \"facts\": [], \"files\": [], \"summary\"}
  version   1; the gateway rejects files of a newer version
  saved_at  when the summary was made, RFC 3339 in UTC";

/// The options of `plimsoll checkpoint`.
#[derive(Debug, Args)]
#[command(after_long_help = SCHEMA)]
pub(super) struct Options {
    /// The conversation's id, or its beginning; `plimsoll conversations` lists the ids
    id: String,
    /// Where to write the files [default: `checkpoints` below `state.dir`, where the gateway looks for them]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    source: Source,
}

/// Writes the state of a conversation to files.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let history = History::read(&options.source, &options.id)?;
    let summary = history.books.summary(&history.found.id).map_err(|error| history.failed(&error))?;
    let Some(summary) = summary else {
        return Err(Failure::Message(format!("`{}`: no summary of it has been made yet", history.name())));
    };
    let checkpoint = checkpoint(&summary);
    let below = || Checkpoints::below(&history.config.state.dir);
    let checkpoints = options.dir.clone().map_or_else(below, Checkpoints::within);
    for (ending, text) in [("json", checkpoint.to_json() + "\n"), ("md", checkpoint.to_markdown())] {
        let written = checkpoints.write(&history.found.id, ending, &text);
        let path =
            written.map_err(|error| Failure::about(&checkpoints.path(&history.found.id, ending), error))?;
        say(&path.display().to_string());
    }
    Ok(())
}

fn checkpoint(summary: &Summary) -> Checkpoint {
    let saved_at = Timestamp::from_millisecond(summary.at_ms).map(|at| at.to_string()).unwrap_or_default();
    let outline = Outline::read(&summary.outline);
    Checkpoint::of(&summary.conversation, &saved_at, &summary.goal, &outline, &summary.text)
}
