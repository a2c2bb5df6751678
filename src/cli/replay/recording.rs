//! A conversation as recorded by a gateway: the log of its records. The bodies are separate files, which are read one
//! at a time.

use jiff::Timestamp;
use serde::de::IgnoredAny;

use super::damage::Damage;
use super::transcript::{self, Transcript};
use crate::ledger::Record;

/// The records of a conversation, oldest first.
pub(super) struct Recording {
    pub(super) id: String,
    pub(super) requests: Vec<Recorded>,
    /// Lines that are not records: a crash leaves half of one, after which a gateway goes on.
    pub(super) damage: Damage,
}

/// The record of a request, and when the request arrived, in milliseconds since 1970.
pub(super) struct Recorded {
    pub(super) record: Record,
    pub(super) at_ms: u64,
}

/// A file to replay.
pub(super) enum Input {
    Transcript(Transcript),
    Recording(Recording),
}

impl Input {
    /// Reads a file; it is a recording if its first complete line is a record of a gateway.
    ///
    /// # Errors
    /// What is wrong with the file, without its name.
    pub(super) fn read(path: &std::path::Path) -> Result<Self, String> {
        let content = transcript::content(path)?;
        // A line that is cut off may end within a character.
        match Recording::parse(&String::from_utf8_lossy(&content)) {
            Some(recording) => Ok(Self::Recording(recording)),
            None => Transcript::parse(&content).map(Self::Transcript),
        }
    }

    /// The parts of the file that are left out.
    pub(super) fn damage(&self) -> &Damage {
        match self {
            Self::Transcript(transcript) => &transcript.damage,
            Self::Recording(recording) => &recording.damage,
        }
    }
}

impl Recording {
    fn parse(text: &str) -> Option<Self> {
        let lines = || text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let is_whole = |line: &&str| serde_json::from_str::<IgnoredAny>(line).is_ok();
        let (first, _) = lines().map(|(_, line)| line).find(is_whole).and_then(record)?;
        let mut recording = Self { id: first.conversation, requests: Vec::new(), damage: Damage::default() };
        for (at, line) in lines() {
            match record(line) {
                Some((record, at_ms)) => recording.requests.push(Recorded { record, at_ms }),
                None => recording.damage.lines.push(at + 1),
            }
        }
        recording.requests.sort_by(|one, other| {
            one.at_ms.cmp(&other.at_ms).then_with(|| one.record.id.cmp(&other.record.id))
        });
        // A record that was completed later occurs twice.
        recording.requests.dedup_by(|later, one| {
            let is_same = later.record.id == one.record.id;
            if is_same {
                std::mem::swap(later, one);
            }
            is_same
        });
        Some(recording)
    }
}

/// A record, and when its request arrived.
fn record(line: &str) -> Option<(Record, u64)> {
    let record: Record = serde_json::from_str(line).ok()?;
    let time: Timestamp = record.time.parse().ok()?;
    let is_one = !record.conversation.is_empty() && !record.id.is_empty();
    is_one.then_some((record, u64::try_from(time.as_millisecond()).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_lines_are_skipped_and_reported() {
        let whole = |id: &str, second: u32| {
            let record = Record {
                id: id.to_owned(),
                conversation: "c".to_owned(),
                time: format!("2026-01-01T00:00:{second:02}Z"),
                ..Record::default()
            };
            serde_json::to_string(&record).unwrap()
        };
        let (a, b) = (whole("a", 2), whole("b", 1));
        for (text, expected) in [
            (format!("{a}\n{b}\n"), Some(("ba", &[][..]))),
            (format!("{a}\n{}\n\n{b}\n{{}}\n", &a[..40]), Some(("ba", &[2, 5]))),
            // One that was completed later.
            (format!("{a}\n{b}\n{a}\n"), Some(("ba", &[]))),
            (format!("{}\n{a}", &b[..40]), Some(("a", &[1]))),
            (format!("{a}\n{}", &b[..40]), Some(("a", &[2]))),
            (format!("{a}\n{}\n", b.replace("2026-01", "20-01")), Some(("a", &[2]))),
            (r#"{"id":"t","protocol":"anthropic","requests":[]}"#.to_owned() + "\n" + &a, None),
            (a[..40].to_owned(), None),
            (String::new(), None),
        ] {
            let read = Recording::parse(&text);
            let found = read.map(|read| {
                let ids: String = read.requests.iter().map(|one| one.record.id.as_str()).collect();
                (ids, read.damage.lines)
            });
            let found = found.as_ref().map(|(ids, lines)| (ids.as_str(), &**lines));
            assert_eq!(found, expected, "{text}");
        }
    }
}
