//! `[state]` and what lives below it: `[outputs]`, `[ledger]`, `[lineage]`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::environment::state_home;
use super::period;
use super::section::Section;
use super::value::{Fault, Word};

/// Where everything is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// The directory of the database, and of all other directories unless they say otherwise. Absolute.
    pub dir: PathBuf,
}

/// The full texts of shortened tool results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outputs {
    /// Where they are kept. Absolute.
    pub dir: PathBuf,
    /// How a model is told to get at them.
    pub recall: Recall,
    /// How long they stay after their conversation's last request.
    pub retention: Duration,
}

/// How a model gets at the full text of a shortened tool result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recall {
    /// By the path of a file.
    Path,
    /// By a URL of the admin listener.
    Http,
    /// Not at all: it may run the tool again.
    None,
}

/// The books.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    /// Where the cost log of each conversation is kept. Absolute.
    pub dir: PathBuf,
    /// What is kept of a request.
    pub record: Record,
    /// Tokens are counted with a tokenizer, not only estimated by bytes.
    pub count_tokens: bool,
    /// How long records are kept, and logs to which none is added.
    pub retention: Retention,
}

/// What is kept of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// Its record: figures and names.
    Usage,
    /// Its body too, as it came and as it was sent.
    Full,
}

/// How long something is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    /// It is never removed.
    Forever,
    /// It is removed when it is this old.
    For(Duration),
}

/// How threads of conversation are told apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lineage {
    /// Whether requests with different credentials never share a thread or its decisions.
    pub isolate: bool,
    /// How long what was decided about a thread is kept after its last request.
    pub retention: Retention,
}

impl Retention {
    /// The time after which it is removed, if it ever is.
    pub fn period(self) -> Option<Duration> {
        match self {
            Self::Forever => None,
            Self::For(period) => Some(period),
        }
    }
}

impl Word for Recall {
    const WORDS: &'static [(&'static str, Self)] =
        &[("path", Self::Path), ("http", Self::Http), ("none", Self::None)];
}

impl Word for Record {
    const WORDS: &'static [(&'static str, Self)] = &[("usage", Self::Usage), ("full", Self::Full)];
}

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
const LONGEST: Duration = Duration::from_secs(36_500 * 24 * 3600);

pub(super) fn read(section: &mut Section<'_, '_>) -> State {
    if let Some(dir) = section.path("dir") {
        return State { dir };
    }
    if let Some(home) = state_home(section.environment()) {
        return State { dir: home.join("plimsoll") };
    }
    if !section.has("dir") {
        let message = "nowhere to keep state: neither `XDG_STATE_HOME` nor `HOME` is set";
        section.problem("dir", message, Some("set it to an absolute path".to_owned()));
    }
    State { dir: PathBuf::new() }
}

pub(super) fn outputs(section: &mut Section<'_, '_>, state: &Path) -> Outputs {
    Outputs {
        dir: section.path_below("dir", state, "outputs"),
        recall: section.value("recall", Recall::Path),
        retention: section.within("retention", HOUR..=LONGEST, 7 * DAY),
    }
}

pub(super) fn ledger(section: &mut Section<'_, '_>, state: &Path) -> Ledger {
    let dir = section.path_below("dir", state, "conversations");
    let record = section.value("record", Record::Usage);
    let retention = kept(section, Retention::Forever);
    let count_tokens = section.value("count_tokens", false);
    Ledger { dir, record, count_tokens, retention }
}

/// How long something is kept that may be kept for ever.
fn kept(section: &mut Section<'_, '_>, usual: Retention) -> Retention {
    let expected = || "a duration such as \"90d\", or \"forever\"".into();
    let retention = section.parse("retention", expected, |value, _| match value.as_str() {
        Some("forever") => Ok(Retention::Forever),
        Some(text) => {
            let kept = period::parse(text).ok_or(Fault::UNEXPECTED)?;
            let message = || Fault::Said(format!("expected 1d or more, got {}", period::show(kept)));
            if kept < DAY { Err(message()) } else { Ok(Retention::For(kept)) }
        }
        None => Err(Fault::UNEXPECTED),
    });
    retention.unwrap_or(usual)
}

pub(super) fn lineage(section: &mut Section<'_, '_>) -> Lineage {
    Lineage { isolate: section.value("isolate", true), retention: kept(section, Retention::For(90 * DAY)) }
}
