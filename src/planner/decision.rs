//! Decisions: "this part is sent as that", made once, stored, never changed.

use std::borrow::Cow;
use std::sync::Arc;

use crate::conversation::{Digest, PartId};
use crate::plan::LeafEdit;
use crate::shape::Rule;

/// The rule of decisions that clear a result.
pub const CLEAR: &str = "clear";

/// The rule of decisions that leave out reasoning.
pub const REASONING: &str = "reasoning";

/// The rule of decisions that take long texts out of a call's arguments.
pub const ARGUMENTS: &str = "arguments";

/// The rule of decisions that send the instructions as two texts.
pub const SPLIT: &str = "split";

/// The rule of decisions that add text below the user's first words.
pub const OPENING: &str = "opening";

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
    /// The names of the rules that made it, joined by `+`.
    pub rules: Box<str>,
    /// The edited leaves, or texts of a call's arguments, ascending.
    pub leaves: Vec<(u32, LeafEdit)>,
    /// The content of the part when it was decided.
    pub content: Digest,
    /// Identifies the part outside of its history.
    pub key: Option<PartKey>,
    /// Bytes of the original text, plus the size that media removed with it counts for.
    pub bytes_before: u64,
    /// Bytes of the text that is sent.
    pub bytes_after: u64,
    /// The id of the saved full text.
    pub output: Option<String>,
}

impl Decision {
    /// Bytes saved with each request.
    pub fn bytes_spared(&self) -> u64 {
        self.bytes_before.saturating_sub(self.bytes_after)
    }

    /// Approximate memory that it takes, in bytes.
    pub fn weight(&self) -> usize {
        let text = |edit: &LeafEdit| if let LeafEdit::Replace(text) = edit { text.len() } else { 0 };
        std::mem::size_of::<Self>() + self.leaves.iter().map(|(_, edit)| text(edit) + 24).sum::<usize>()
    }

    /// Whether it clears the result.
    pub fn is_clearing(&self) -> bool {
        &*self.rules == CLEAR
    }

    /// Whether it leaves out reasoning.
    pub fn is_omission(&self) -> bool {
        &*self.rules == REASONING
    }

    /// Whether it takes long texts out of a call's arguments.
    pub fn is_abridgement(&self) -> bool {
        &*self.rules == ARGUMENTS
    }

    /// Whether it removes something that was sent before, as opposed to shaping something new.
    pub fn is_of_old(&self) -> bool {
        self.is_clearing() || self.is_omission() || self.is_abridgement()
    }

    /// Whether it sends the instructions as two texts.
    pub fn is_split(&self) -> bool {
        &*self.rules == SPLIT
    }

    /// Whether it adds text below the user's first words.
    pub fn is_opening(&self) -> bool {
        &*self.rules == OPENING
    }

    /// Whether it makes sense outside of its history. A pointer to an earlier result does not.
    pub fn stands_alone(&self) -> bool {
        !self.rules.split('+').any(|rule| rule == Rule::Repeat.as_str())
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
        Self { id: output_id(texts), text: lines(texts).concat() }
    }
}

/// The id of a result's full text: a digest of it.
pub fn output_id(texts: &[Cow<'_, str>]) -> String {
    let pieces: Vec<&[u8]> = lines(texts).into_iter().map(str::as_bytes).collect();
    Digest::of(&pieces).to_string()
}

/// The lines of some texts, each text beginning a line of its own.
fn lines<'t>(texts: &'t [Cow<'_, str>]) -> Vec<&'t str> {
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

    #[test]
    fn full_texts_of_several() {
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
