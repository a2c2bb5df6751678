//! The state of a conversation, from which another one can continue: versioned, and checked when it is read.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::{Outline, Section};

/// The version that is written. Older ones can be read, newer ones cannot.
pub const VERSION: u32 = 1;

/// The longest text that is read as a checkpoint, in bytes.
const MAX_LEN: usize = 1 << 20;

/// The state of a conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The version of this format.
    pub version: u32,
    /// The id of the conversation.
    pub conversation: String,
    /// When it was saved, RFC 3339.
    pub saved_at: String,
    /// The user's first message, word for word.
    pub goal: String,
    /// What is demanded or forbidden.
    #[serde(default)]
    pub constraints: Vec<String>,
    /// What is finished.
    #[serde(default)]
    pub completed: Vec<String>,
    /// What is in progress.
    #[serde(default)]
    pub current: Vec<String>,
    /// What comes next.
    #[serde(default)]
    pub remaining: Vec<String>,
    /// What was decided, and why.
    #[serde(default)]
    pub decisions: Vec<String>,
    /// What failed.
    #[serde(default)]
    pub open_issues: Vec<String>,
    /// Names, numbers and paths.
    #[serde(default)]
    pub facts: Vec<String>,
    /// Files and their state.
    #[serde(default)]
    pub files: Vec<String>,
    /// The full text of the last summary.
    #[serde(default)]
    pub summary: String,
}

/// Why a text is not a checkpoint.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// It does not have the right form.
    #[error("not a checkpoint: {0}")]
    Form(#[from] serde_json::Error),
    /// It was written by a newer version.
    #[error("version {0} is newer than this one")]
    Newer(u32),
    /// It lacks a version, or the goal of the conversation.
    #[error("it has no {0}")]
    Lacks(&'static str),
    /// It is too long.
    #[error("it is too long")]
    TooLong,
}

impl Checkpoint {
    /// The checkpoint of a conversation with this goal, from its last summary.
    pub fn of(conversation: &str, saved_at: &str, goal: &str, outline: &Outline, summary: &str) -> Self {
        let items = |section| outline.items(section).into_iter().map(str::to_owned).collect();
        Self {
            version: VERSION,
            conversation: conversation.to_owned(),
            saved_at: saved_at.to_owned(),
            goal: goal.trim().to_owned(),
            constraints: items(Section::Constraints),
            completed: items(Section::Done),
            current: items(Section::Current),
            remaining: items(Section::Next),
            decisions: items(Section::Decisions),
            open_issues: items(Section::Errors),
            facts: items(Section::Facts),
            files: items(Section::Files),
            summary: summary.to_owned(),
        }
    }

    /// Parses a checkpoint.
    ///
    /// # Errors
    /// Returns [`Unusable`] unless the checkpoint is complete and of a known version.
    pub fn from_json(text: &str) -> Result<Self, Unusable> {
        if text.len() > MAX_LEN {
            return Err(Unusable::TooLong);
        }
        let checkpoint: Self = serde_json::from_str(text)?;
        match checkpoint.version {
            0 => Err(Unusable::Lacks("version")),
            version if version > VERSION => Err(Unusable::Newer(version)),
            _ if checkpoint.goal.trim().is_empty() => Err(Unusable::Lacks("goal")),
            _ => Ok(checkpoint),
        }
    }

    /// The checkpoint as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// The text that tells a new conversation to continue from here.
    pub fn to_prompt(&self) -> String {
        format!(
            "<checkpoint>\nAn earlier conversation about this work ended here. It is for reference: go on from it as \
             far as the user's words above ask for that.\n\n{}</checkpoint>",
            self.to_markdown()
        )
    }

    /// The checkpoint as Markdown, for people.
    pub fn to_markdown(&self) -> String {
        let mut text = format!("# Checkpoint of {}\n\n{}\n\n", self.conversation, self.saved_at);
        let _ = writeln!(text, "**Goal:** {}\n", self.goal);
        let mut list = |title: &str, mark: &str, items: &[String]| {
            if !items.is_empty() {
                let _ = write!(text, "## {title}\n\n");
                for item in items {
                    let _ = writeln!(text, "- {mark}{item}");
                }
                text.push('\n');
            }
        };
        list("Progress", "[x] ", &self.completed);
        list("Under way", "[ ] ", &self.current);
        list("Next", "[ ] ", &self.remaining);
        list("Open issues", "", &self.open_issues);
        list("Decisions", "", &self.decisions);
        list("Constraints", "", &self.constraints);
        list("Files", "", &self.files);
        list("Facts", "", &self.facts);
        if !self.summary.is_empty() {
            let _ = write!(text, "## Last summary\n\n{}\n", self.summary);
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint() -> Checkpoint {
        let outline = "## Constraints\n- no vendor\n## Current\n- tests\n## Next\n- commit\n## Done\n- parser\n## Errors\n- E0502";
        Checkpoint::of("c-1", "2026-11-21T10:00:00Z", "Fix \"it\"\n", &Outline::read(outline), "the summary")
    }

    #[test]
    fn checkpoints_round_trip() {
        let checkpoint = checkpoint();
        assert_eq!(Checkpoint::from_json(&checkpoint.to_json()).unwrap(), checkpoint);
        assert_eq!(
            (checkpoint.goal.as_str(), checkpoint.remaining.as_slice()),
            ("Fix \"it\"", &["commit".to_owned()][..])
        );
    }

    #[test]
    fn checkpoints_are_shown_as_markdown() {
        let markdown = checkpoint().to_markdown();
        for words in
            ["**Goal:** Fix \"it\"", "- [x] parser", "- [ ] tests", "- [ ] commit", "- E0502", "the summary"]
        {
            assert!(markdown.contains(words), "{words}: {markdown}");
        }
        assert!(!markdown.contains("## Decisions"));
    }

    #[test]
    fn unusable_checkpoints_are_refused() {
        let json = checkpoint().to_json();
        let huge = " ".repeat(MAX_LEN + 1);
        for (text, expected) in [
            (json.replace("\"version\": 1", "\"version\": 2"), "version 2 is newer than this one"),
            (json.replace("\"version\": 1", "\"version\": 0"), "it has no version"),
            (json.replace("Fix \\\"it\\\"", " "), "it has no goal"),
            (huge, "it is too long"),
        ] {
            assert_eq!(Checkpoint::from_json(&text).unwrap_err().to_string(), expected);
        }
        for text in ["", "{}", "[]", "{\"version\":1}"] {
            assert!(matches!(Checkpoint::from_json(text), Err(Unusable::Form(_))), "{text}");
        }
    }
}
