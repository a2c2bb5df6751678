//! `[log]`: the gateway's own log, on standard error.

use tracing_subscriber::filter::Targets;

use super::section::Section;
use super::suggest::{did_you_mean, nearest};
use super::value::{Fault, Word};

/// What is logged, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// A filter that has been checked to be readable as `tracing_subscriber`'s `Targets`.
    pub level: String,
    /// The format of a line.
    pub format: LogFormat,
}

/// The format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For human readers.
    Text,
    /// A JSON object per line.
    Json,
}

impl Word for LogFormat {
    const WORDS: &'static [(&'static str, Self)] = &[("text", Self::Text), ("json", Self::Json)];
}

const LEVELS: &[&str] = &["off", "error", "warn", "info", "debug"];

pub(super) fn read(section: &mut Section<'_, '_>) -> Log {
    let expected = || "a level such as \"info\", or a filter such as \"info,plimsoll=debug\"".into();
    let level = section.parse("level", expected, |value, _| {
        let text = value.as_str().ok_or(Fault::UNEXPECTED)?;
        filter(text).map(|()| text.to_owned())
    });
    Log {
        level: level.unwrap_or_else(|| "info".to_owned()),
        format: section.value("format", LogFormat::Text),
    }
}

/// Checks a filter. Here a word alone is a level; the filter's own parser would take a misspelt one for the name of a
/// module, and log nothing else. `trace` is rejected, since no messages of that level are compiled in.
fn filter(text: &str) -> Result<(), Fault> {
    for directive in text.split(',').map(str::trim) {
        let word = directive.rsplit('=').next().unwrap_or(directive);
        if !word.contains('[') && !LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word)) {
            return Err(Fault::Unexpected(nearest(word, LEVELS).map(did_you_mean)));
        }
    }
    text.parse::<Targets>().map(drop).map_err(|_| Fault::UNEXPECTED)
}
