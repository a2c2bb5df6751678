//! What a gateway recorded of a conversation: the log of its records. The bodies are files of their own, and are
//! read one at a time.

use jiff::Timestamp;

use super::transcript::{self, Transcript};
use crate::ledger::Record;

/// A conversation's records, oldest first.
pub(super) struct Recording {
    pub(super) id: String,
    pub(super) requests: Vec<Recorded>,
}

/// A request's record, and when it came, in milliseconds since 1970.
pub(super) struct Recorded {
    pub(super) record: Record,
    pub(super) at_ms: u64,
}

/// A file to play.
pub(super) enum Played {
    Transcript(Transcript),
    Recording(Recording),
}

impl Played {
    /// Reads a file: one whose first line is a gateway's record is a recording.
    ///
    /// # Errors
    /// What is wrong with it, without its name.
    pub(super) fn read(path: &std::path::Path) -> Result<Self, String> {
        let text = transcript::text(path)?;
        match Recording::parse(&text)? {
            Some(recording) => Ok(Self::Recording(recording)),
            None => Transcript::parse(text).map(Self::Transcript),
        }
    }
}

impl Recording {
    fn parse(text: &str) -> Result<Option<Self>, String> {
        let lines = || text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let Some((_, first)) = lines().next() else { return Ok(None) };
        let is_record = |record: &Record| !record.conversation.is_empty() && !record.id.is_empty();
        let Some(first) = serde_json::from_str(first).ok().filter(is_record) else { return Ok(None) };
        let mut requests = Vec::new();
        for (number, line) in lines() {
            let wrong = |error: String| format!("line {}: {error}", number + 1);
            let record: Record = serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
            let time: Timestamp = record.time.parse().map_err(|_| wrong("not a time".to_owned()))?;
            requests.push(Recorded { record, at_ms: u64::try_from(time.as_millisecond()).unwrap_or(0) });
        }
        requests.sort_by(|one, other| {
            one.at_ms.cmp(&other.at_ms).then_with(|| one.record.id.cmp(&other.record.id))
        });
        Ok(Some(Self { id: first.conversation, requests }))
    }
}
