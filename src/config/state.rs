//! `[state]` and the sections about what is stored there: `[outputs]`, `[ledger]`, `[lineage]`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::environment::state_home;
use super::period::{self, DAY, HOUR};
use super::section::Section;
use super::value::{Fault, Word};

/// Where the state is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// The absolute path of the database's directory, which also holds all other directories unless they are set.
    pub dir: PathBuf,
}

/// The full texts of shortened tool results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outputs {
    /// The absolute path of their directory.
    pub dir: PathBuf,
    /// How a model is told to access them.
    pub recall: Recall,
    /// How long they are kept after their conversation's last request.
    pub retention: Duration,
}

/// How a model can access the full text of a shortened tool result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recall {
    /// By the path of a file.
    Path,
    /// By a URL of the admin listener.
    Http,
    /// Not at all; it can run the tool again.
    None,
}

/// The books.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    /// The absolute path of the directory of the conversations' cost logs.
    pub dir: PathBuf,
    /// What is recorded of a request.
    pub record: Record,
    /// Whether tokens are counted with a tokenizer, rather than estimated from bytes.
    pub count_tokens: bool,
    /// How long records, and logs that are no longer added to, are kept; `None`: forever.
    pub retention: Option<Duration>,
}

/// What is recorded of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// Its record: figures and names.
    Usage,
    /// Also its body, as received and as sent.
    Full,
}

/// How threads of conversation are distinguished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lineage {
    /// Whether requests with different credentials never share a thread or its decisions.
    pub isolate: bool,
    /// How long the decisions of a thread are kept after its last request; `None`: forever.
    pub retention: Option<Duration>,
}

impl Word for Recall {
    const WORDS: &'static [(&'static str, Self)] =
        &[("path", Self::Path), ("http", Self::Http), ("none", Self::None)];
}

impl Word for Record {
    const WORDS: &'static [(&'static str, Self)] = &[("usage", Self::Usage), ("full", Self::Full)];
}

const MAX_RETENTION: Duration = Duration::from_secs(36_500 * 24 * 3600);

pub(super) fn read(section: &mut Section<'_, '_>) -> State {
    if let Some(dir) = section.path("dir") {
        return State { dir };
    }
    if let Some(home) = state_home(section.environment()) {
        return State { dir: home.join("plimsoll") };
    }
    if !section.has("dir") {
        let is_set = |name| section.environment().variable(name).is_some_and(|value| !value.is_empty());
        let message = if is_set("XDG_STATE_HOME") || is_set("HOME") {
            "no directory for the state: neither `XDG_STATE_HOME` nor `HOME` is set to an absolute path"
        } else {
            "no directory for the state: neither `XDG_STATE_HOME` nor `HOME` is set"
        };
        section.problem_with_hint("dir", message, "set it to an absolute path");
    }
    State { dir: PathBuf::new() }
}

pub(super) fn outputs(section: &mut Section<'_, '_>, state: &Path) -> Outputs {
    Outputs {
        dir: section.path_below("dir", state, "outputs"),
        recall: section.value("recall", Recall::Path),
        retention: section.within("retention", HOUR..=MAX_RETENTION, 7 * DAY),
    }
}

pub(super) fn ledger(section: &mut Section<'_, '_>, state: &Path) -> Ledger {
    let dir = section.path_below("dir", state, "conversations");
    let record = section.value("record", Record::Usage);
    let retention = retention(section, None);
    let count_tokens = section.value("count_tokens", false);
    Ledger { dir, record, count_tokens, retention }
}

/// Reads a retention; `None` for `"forever"`.
fn retention(section: &mut Section<'_, '_>, default: Option<Duration>) -> Option<Duration> {
    let expected = || "a duration such as \"90d\", or \"forever\"".into();
    let retention = section.parse("retention", expected, |value, _| match value.as_str() {
        Some("forever") => Ok(None),
        Some(text) => {
            let kept = period::parse(text).ok_or(Fault::UNEXPECTED)?;
            let message = || Fault::Message(format!("expected 1d or more, got {}", period::show(kept)));
            if kept < DAY { Err(message()) } else { Ok(Some(kept)) }
        }
        None => Err(Fault::UNEXPECTED),
    });
    retention.unwrap_or(default)
}

pub(super) fn lineage(section: &mut Section<'_, '_>) -> Lineage {
    Lineage { isolate: section.value("isolate", true), retention: retention(section, Some(90 * DAY)) }
}
