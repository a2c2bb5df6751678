//! `plimsoll checkpoint`.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use jiff::Timestamp;

use super::history::History;
use super::{Failure, Source, say};
use crate::store::Summary;
use crate::strategy::summary::{Checkpoint, Outline};

/// What the files hold.
const SCHEMA: &str = "\
Two files are written, CONVERSATION.checkpoint.json and CONVERSATION.checkpoint.md: what the user wants (word for
word), what is done, under way and next, decisions, open issues, constraints, files, facts, and the last summary.
They are as old as that summary: what came after it is not in them.

JSON:
  {\"version\", \"conversation\", \"saved_at\", \"goal\", \"constraints\": [], \"completed\": [], \"current\": [], \"remaining\": [],
   \"decisions\": [], \"open_issues\": [], \"facts\": [], \"files\": [], \"summary\"}
  version   1; a file of a newer version is refused, not guessed at
  saved_at  when the summary was made, RFC 3339 in UTC";

/// The options of `plimsoll checkpoint`.
#[derive(Debug, Args)]
#[command(after_long_help = SCHEMA)]
pub(super) struct Options {
    /// The conversation's id, or its beginning; `plimsoll conversations` lists them
    id: String,
    /// Where to write the files
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    #[command(flatten)]
    source: Source,
}

/// Writes the state of a conversation.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let history = History::read(&options.source, &options.id)?;
    let summary = history.books.summary(&history.id).map_err(|error| history.failed(&error))?;
    let Some(summary) = summary else {
        return Err(Failure::Said(format!("`{}`: no summary was made of it yet", history.id)));
    };
    let checkpoint = checkpoint(&summary);
    for (ending, text) in [("json", checkpoint.to_json() + "\n"), ("md", checkpoint.to_markdown())] {
        let path = options.dir.join(format!("{}.checkpoint.{ending}", file_stem(&history.id)));
        write(&path, &text)?;
        say(&path.display().to_string());
    }
    Ok(())
}

fn checkpoint(summary: &Summary) -> Checkpoint {
    let saved_at = Timestamp::from_millisecond(summary.at_ms).map(|at| at.to_string()).unwrap_or_default();
    let outline = Outline::read(&summary.outline);
    Checkpoint::of(&summary.conversation, &saved_at, &summary.goal, &outline, &summary.text)
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| Failure::Said(format!("{}: {error}", path.display())))
}

/// An id as it can stand in the name of a file.
fn file_stem(id: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '_' };
    id.chars().take(100).map(plain).collect()
}
