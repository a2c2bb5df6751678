//! Decisions: "this part is sent as that", made once, stored, never changed.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use crate::conversation::{Conversation, Digest, PartId};
use crate::plan::LeafEdit;
use crate::shape::{Rule, Rules};

use super::arguments;

/// The name of [`Cause::Cleared`] in the store and in records.
pub const CLEAR: &str = "clear";

/// The name of [`Cause::Omitted`].
pub const REASONING: &str = "reasoning";

/// The name of [`Cause::Abridged`].
pub const ARGUMENTS: &str = "arguments";

/// The name of [`Cause::Split`].
const SPLIT: &str = "split";

/// The name of [`Cause::Opened`].
pub const OPENING: &str = "opening";

/// What made a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// Shapers shortened a result.
    Shaped(Rules),
    /// A result was cleared.
    Cleared,
    /// Reasoning was left out.
    Omitted,
    /// Long texts were taken out of a call's arguments.
    Abridged,
    /// The instructions were split into two texts.
    Split,
    /// Text was added below the user's first words.
    Opened,
    /// A stored name that is none of the above, as it was read. Its edits are applied like those of shapers.
    Unknown(Box<str>),
}

impl Cause {
    /// The cause with this name. The name is kept: [`Display`](fmt::Display) writes the same.
    pub fn parse(name: &str) -> Self {
        match name {
            CLEAR => Self::Cleared,
            REASONING => Self::Omitted,
            ARGUMENTS => Self::Abridged,
            SPLIT => Self::Split,
            OPENING => Self::Opened,
            _ => Rules::parse(name).map_or_else(|| Self::Unknown(name.into()), Self::Shaped),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shaped(rules) => rules.fmt(f),
            Self::Cleared => f.write_str(CLEAR),
            Self::Omitted => f.write_str(REASONING),
            Self::Abridged => f.write_str(ARGUMENTS),
            Self::Split => f.write_str(SPLIT),
            Self::Opened => f.write_str(OPENING),
            Self::Unknown(name) => f.write_str(name),
        }
    }
}

/// Identifies a result or a call in any history: by the call's id and the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PartKey(pub Digest);

impl PartKey {
    /// The key of a result or a call; `None` if it has no call id.
    pub fn of(call_id: Option<&str>, content: Digest) -> Option<Self> {
        let call_id = call_id?;
        Some(Self(Digest::of(&[&(call_id.len() as u64).to_le_bytes(), call_id.as_bytes(), &content.0])))
    }
}

/// What a part is sent as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What made it.
    pub cause: Cause,
    /// The edited leaves, or texts of a call's arguments, ascending.
    pub leaves: Vec<(u32, LeafEdit)>,
    /// The content of the part when it was decided.
    pub content: Digest,
    /// Identifies the part outside of its history; `None` if it has no call id.
    pub key: Option<PartKey>,
    /// Bytes of the original text, plus those that media removed with it counts as.
    pub bytes_before: u64,
    /// Bytes of the text that is sent.
    pub bytes_after: u64,
    /// The id of the saved full text, if one was saved.
    pub output: Option<String>,
}

impl Decision {
    /// Bytes of text saved with each request.
    pub fn bytes_spared(&self) -> u64 {
        self.bytes_before.saturating_sub(self.bytes_after)
    }

    /// Bytes that it saves of a body, in which texts are longer by their escapes. It is about the part `id` there.
    pub fn bytes_spared_of(&self, conversation: &Conversation, id: PartId) -> u64 {
        let spared = match &self.cause {
            Cause::Shaped(_) | Cause::Cleared | Cause::Unknown(_) => self.spared_of_result(conversation, id),
            Cause::Abridged => arguments::spared(conversation, id, self.bytes_spared()),
            // These do not count decoded text.
            Cause::Omitted | Cause::Split | Cause::Opened => None,
        };
        spared.unwrap_or_else(|| self.bytes_spared())
    }

    /// What is saved of a result's literals. What remains of an edited text is taken to have its share of the escapes,
    /// so that it need not be decoded.
    fn spared_of_result(&self, conversation: &Conversation, id: PartId) -> Option<u64> {
        let part = conversation.part(id)?;
        // Images and documents that were cleared with the texts count as well.
        let media = if self.is_clearing() { part.media_len() } else { 0 };
        let mut text = self.bytes_before.saturating_sub(media as u64);
        let mut literals = 0;
        for (at, leaf) in part.leaves().iter().enumerate() {
            if self.leaves.binary_search_by_key(&(at as u32), |(edited, _)| *edited).is_ok() {
                literals += leaf.span.len().saturating_sub(2) as u64;
            } else {
                text = text.saturating_sub(conversation.text(id, at)?.len() as u64);
            }
        }
        let (spared, escapes) = (self.bytes_spared(), literals.saturating_sub(text));
        let share = spared.min(text) as f64 / text.max(1) as f64;
        Some(spared + (escapes as f64 * share) as u64)
    }

    /// Approximate memory that it takes, in bytes.
    pub fn weight(&self) -> usize {
        let text = |edit: &LeafEdit| if let LeafEdit::Replace(text) = edit { text.len() } else { 0 };
        std::mem::size_of::<Self>() + self.leaves.iter().map(|(_, edit)| text(edit) + 24).sum::<usize>()
    }

    /// Whether it clears the result.
    pub fn is_clearing(&self) -> bool {
        self.cause == Cause::Cleared
    }

    /// Whether it leaves out reasoning.
    pub fn is_omission(&self) -> bool {
        self.cause == Cause::Omitted
    }

    /// Whether it takes long texts out of a call's arguments.
    pub fn is_abridgement(&self) -> bool {
        self.cause == Cause::Abridged
    }

    /// Whether it removes something that was sent before, as opposed to shaping something new.
    pub fn is_of_old(&self) -> bool {
        matches!(self.cause, Cause::Cleared | Cause::Omitted | Cause::Abridged)
    }

    /// Whether it sends the instructions as two texts.
    pub fn is_split(&self) -> bool {
        self.cause == Cause::Split
    }

    /// Whether it adds text below the user's first words.
    pub fn is_opening(&self) -> bool {
        self.cause == Cause::Opened
    }

    /// Whether it makes sense outside of its history. A pointer to an earlier result does not.
    pub fn stands_alone(&self) -> bool {
        match &self.cause {
            Cause::Shaped(rules) => !rules.contains(Rule::Repeat),
            Cause::Unknown(name) => !name.split('+').any(|rule| rule == Rule::Repeat.as_str()),
            Cause::Cleared | Cause::Omitted | Cause::Abridged | Cause::Split | Cause::Opened => true,
        }
    }
}

/// A decision applied to a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The part.
    pub part: PartId,
    /// What it is sent as.
    pub decision: Arc<Decision>,
}

impl Applied {
    /// Bytes that the decision saves of the body ([`Decision::bytes_spared_of`]).
    pub fn bytes_spared_of(&self, conversation: &Conversation) -> u64 {
        self.decision.bytes_spared_of(conversation, self.part)
    }
}

/// The decisions by the part that each is about.
pub(super) fn by_part(applied: &[Applied]) -> HashMap<PartId, &Decision> {
    applied.iter().map(|applied| (applied.part, &*applied.decision)).collect()
}

/// The parts that decisions of a kind are about.
pub(super) fn parts(applied: &[Applied], is_of_kind: impl Fn(&Decision) -> bool) -> HashSet<PartId> {
    applied.iter().filter(|applied| is_of_kind(&applied.decision)).map(|applied| applied.part).collect()
}

/// A full text to be saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Save {
    /// Its id, derived from its content.
    pub id: String,
    /// The text.
    pub text: String,
}

impl Save {
    /// The full text of a result.
    pub fn of(texts: &[Cow<'_, str>]) -> Self {
        Self { id: output_id(texts), text: line_pieces(texts).concat() }
    }
}

/// The id of a result's full text: a digest of it.
pub fn output_id(texts: &[Cow<'_, str>]) -> String {
    let pieces: Vec<&[u8]> = line_pieces(texts).into_iter().map(str::as_bytes).collect();
    Digest::of(&pieces).to_string()
}

/// The pieces of the texts joined so that each begins on a line of its own.
fn line_pieces<'t>(texts: &'t [Cow<'_, str>]) -> Vec<&'t str> {
    let mut pieces: Vec<&str> = Vec::with_capacity(texts.len());
    for text in texts.iter().filter(|text| !text.is_empty()) {
        if pieces.last().is_some_and(|last| !last.ends_with('\n')) {
            pieces.push("\n");
        }
        pieces.push(text);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is stored is read, and written again, as it is.
    #[test]
    fn cause_names_round_trip_including_unknown_ones() {
        let rules = |all: &[Rule]| {
            let mut rules = Rules::NONE;
            for rule in all {
                rules.insert(*rule);
            }
            Cause::Shaped(rules)
        };
        let unknown = |name: &str| Cause::Unknown(name.into());
        for (name, cause, is_of_old, stands_alone) in [
            ("clear", Cause::Cleared, true, true),
            ("reasoning", Cause::Omitted, true, true),
            ("arguments", Cause::Abridged, true, true),
            ("split", Cause::Split, false, true),
            ("opening", Cause::Opened, false, true),
            ("truncate", rules(&[Rule::Truncate]), false, true),
            ("escapes+truncate", rules(&[Rule::Escapes, Rule::Truncate]), false, true),
            ("escapes+fold+minify+base64+truncate+repeat", rules(&Rule::ALL), false, false),
            ("repeat", rules(&[Rule::Repeat]), false, false),
            ("", unknown(""), false, true),
            ("+", unknown("+"), false, true),
            ("truncate+", unknown("truncate+"), false, true),
            ("truncate+escapes", unknown("truncate+escapes"), false, true),
            ("fold+fold", unknown("fold+fold"), false, true),
            ("Truncate", unknown("Truncate"), false, true),
            ("clear+truncate", unknown("clear+truncate"), false, true),
            ("of tomorrow", unknown("of tomorrow"), false, true),
            ("of tomorrow+repeat", unknown("of tomorrow+repeat"), false, false),
        ] {
            assert_eq!(Cause::parse(name), cause, "{name:?}");
            assert_eq!(cause.to_string(), name);
            let (leaves, content) = (Vec::new(), Digest::of(&[]));
            let decision =
                Decision { cause, leaves, content, key: None, bytes_before: 2, bytes_after: 1, output: None };
            assert_eq!(
                (decision.is_of_old(), decision.stands_alone()),
                (is_of_old, stands_alone),
                "{name:?}"
            );
        }
    }

    #[test]
    fn full_texts_are_joined_by_line_ends() {
        for (texts, expected) in [
            (&["a"][..], "a"),
            (&["a\n"], "a\n"),
            (&["a", "b"], "a\nb"),
            (&["a\n", "b\n"], "a\nb\n"),
            (&["a", "", "b", ""], "a\nb"),
            (&["", "b"], "b"),
            (&["\n", "b"], "\nb"),
            (&[""], ""),
            (&[], ""),
        ] {
            let texts: Vec<Cow<'_, str>> = texts.iter().map(|text| Cow::Borrowed(*text)).collect();
            let save = Save::of(&texts);
            assert_eq!(save.text, expected, "{texts:?}");
            assert_eq!(save.id, Digest::of(&[expected.as_bytes()]).to_string(), "{texts:?}");
        }
    }
}
