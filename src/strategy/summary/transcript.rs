//! A history as its summariser reads it: who said what, as plain text.
//!
//! Results that were shortened or cleared are shown that way, media as a placeholder. Reasoning is left out, because a
//! model that is asked to restate it may refuse. The text is data for its reader, never instructions: a prompt encloses
//! it in fences that do not occur in it.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::ops::Range;

use crate::conversation::{Conversation, Part, PartId, PartKind, Role, boundary};
use crate::plan::{LeafEdit, sent_texts};

/// The most bytes shown of a call's arguments.
const MAX_ARGUMENTS: usize = 2 << 10;

/// The edits to the leaves of a part; `None` if it is sent as received.
pub type Sent<'a> = &'a dyn Fn(PartId) -> Option<&'a [(u32, LeafEdit)]>;

/// A message of a transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The index of the message in the history.
    pub message: usize,
    /// What is shown of it.
    pub text: String,
}

/// Renders messages, one entry each; those with nothing to show are left out.
pub fn render(
    conversation: &Conversation,
    messages: &[usize],
    sent: Sent<'_>,
    result_bytes: usize,
) -> Vec<Entry> {
    let view = View { conversation, sent, result_bytes };
    let entry = |message: usize| {
        let mut text = String::new();
        for (id, part) in conversation.parts_of(message) {
            view.show(&mut text, id, part);
        }
        (!text.is_empty()).then_some(Entry { message, text })
    };
    let there = messages.iter().copied().filter(|message| *message < conversation.messages.len());
    there.filter_map(entry).collect()
}

/// The approximate number of bytes that [`render`] makes of these messages, without reading them. `spared` gives the
/// bytes by which a part is sent shorter.
pub fn about(
    conversation: &Conversation,
    messages: Range<usize>,
    spared: &dyn Fn(PartId) -> u64,
    result_bytes: usize,
) -> u64 {
    let shown = |(id, part): (PartId, &Part)| {
        let sent = (part.read_len() as u64).saturating_sub(spared(id));
        let most = match part.kind() {
            PartKind::Text => u64::MAX,
            PartKind::ToolResult => result_bytes as u64,
            PartKind::ToolCall | PartKind::Hosted => MAX_ARGUMENTS as u64,
            PartKind::Thinking | PartKind::Media | PartKind::Opaque => 0,
        };
        sent.min(most)
    };
    messages.flat_map(|message| conversation.parts_of(message)).map(shown).sum()
}

/// How parts are shown.
struct View<'a, 's> {
    conversation: &'a Conversation,
    sent: Sent<'s>,
    /// The most bytes shown of a result.
    result_bytes: usize,
}

impl View<'_, '_> {
    /// Appends what is shown of a part.
    fn show(&self, out: &mut String, id: PartId, part: &Part) {
        let Self { conversation, sent, result_bytes } = *self;
        let number = id.message + 1;
        let who = match conversation.messages[id.message as usize].index.role {
            Role::System => "system",
            Role::User | Role::Tool => "user",
            Role::Assistant => "assistant",
        };
        // Writing to a string cannot fail.
        let _ = match part.kind() {
            PartKind::Thinking => Ok(()),
            PartKind::Text => {
                let text = texts(conversation, id, sent);
                if text.trim().is_empty() {
                    Ok(())
                } else {
                    writeln!(out, "[{number}] {who}: {}", text.trim_end())
                }
            }
            PartKind::ToolCall => {
                let arguments = conversation.arguments(id).unwrap_or_default();
                let tool = part.tool().unwrap_or("a tool");
                writeln!(out, "[{number}] {who} calls {tool}: {}", shorten(&arguments, MAX_ARGUMENTS))
            }
            PartKind::ToolResult => {
                let tool = conversation.tool_of(id).unwrap_or("a tool");
                let failed = if part.is_error() { " (an error)" } else { "" };
                let text = texts(conversation, id, sent);
                let media =
                    if part.leaves().is_empty() && text.is_empty() { " (nothing that is text)" } else { "" };
                let text = shorten(text.trim_end(), result_bytes);
                writeln!(out, "[{number}] result of {tool}{failed}:{media} {text}")
            }
            PartKind::Hosted => {
                let raw = String::from_utf8_lossy(conversation.bytes_of(id.message, part.span));
                writeln!(out, "[{number}] run by the provider: {}", shorten(&raw, MAX_ARGUMENTS))
            }
            PartKind::Media => writeln!(out, "[{number}] {who}: (an image or a document)"),
            PartKind::Opaque => writeln!(out, "[{number}] {who}: (something that cannot be shown)"),
        };
    }
}

/// The texts of a part as they are sent.
pub(super) fn texts(conversation: &Conversation, id: PartId, sent: Sent<'_>) -> String {
    let mut out = String::new();
    for text in sent_texts(conversation, id, sent(id).unwrap_or_default()) {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&text);
    }
    out
}

/// The beginning and the end of a text, about `most` bytes together.
pub(super) fn shorten(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    let head = boundary::floor(text, most / 3 * 2);
    let tail = boundary::ceil(text, text.len() - most / 3);
    Cow::Owned(format!("{}\n[… {} bytes …]\n{}", &text[..head], tail - head, &text[tail..]))
}

/// Joins entries into texts of at most `most` bytes each, in order. A longer entry is divided, at the end of a line if
/// possible.
pub fn chunks(entries: &[Entry], most: usize) -> Vec<String> {
    let most = most.max(64);
    let mut chunks = vec![String::new()];
    for entry in entries {
        let mut rest = entry.text.as_str();
        while !rest.is_empty() {
            let (piece, after) = if rest.len() <= most { (rest, "") } else { divide(rest, most) };
            let last = chunks.last_mut().filter(|last| last.len() + piece.len() <= most);
            match last {
                Some(last) => last.push_str(piece),
                None => chunks.push(piece.to_owned()),
            }
            rest = after;
        }
    }
    chunks.retain(|chunk| !chunk.is_empty());
    chunks
}

/// The entries after the first `bytes` bytes of their text. If an entry is cut there, its rest is an entry.
pub fn behind(entries: &[Entry], mut bytes: usize) -> Vec<Entry> {
    let rest = entries.iter().filter_map(|Entry { message, text }| {
        let (gone, message) = (bytes.min(text.len()), *message);
        bytes -= gone;
        let rest = text.get(gone..).filter(|rest| !rest.is_empty())?;
        Some(Entry { message, text: rest.to_owned() })
    });
    rest.collect()
}

/// Splits a text after `most` bytes, or after the last line end in the second half of that.
fn divide(text: &str, most: usize) -> (&str, &str) {
    let end = boundary::floor(text, most).max(boundary::ceil(text, 1));
    let line = text[..end].rfind('\n').map(|at| at + 1).filter(|at| *at > end / 2);
    text.split_at(line.unwrap_or(end))
}

/// A line that does not occur in any of the texts, to put around data.
pub fn fence(texts: &[&str]) -> String {
    let fence = |number: usize| format!("===== DATA {number} =====");
    let is_free = |fence: &String| !texts.iter().any(|text| text.contains(fence.as_str()));
    // Texts of n bytes cannot contain n different fences.
    let most = texts.iter().map(|text| text.len()).sum::<usize>() + 1;
    (1..=most).map(fence).find(is_free).unwrap_or_else(|| fence(most + 1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn long_texts_keep_both_ends() {
        assert_eq!(shorten("short", 10), "short");
        let text = shorten("0123456789012345678901234567890123456789", 12);
        assert_eq!(text, "01234567\n[… 28 bytes …]\n6789");
    }

    proptest! {
        #[test]
        fn chunks_are_bounded_and_concatenate_to_the_transcript(
            texts in prop::collection::vec("\\PC{0,300}|(\\PC{0,20}\n){0,20}", 0..8),
            most in 0..400_usize,
        ) {
            let entries: Vec<Entry> =
                texts.iter().enumerate().map(|(message, text)| Entry { message, text: text.clone() }).collect();
            let chunks = chunks(&entries, most);
            prop_assert_eq!(chunks.concat(), texts.concat());
            prop_assert!(chunks.iter().all(|chunk| !chunk.is_empty() && chunk.len() <= most.max(64)));
            // What follows some entries is all of the others.
            for read in 0..=chunks.len() {
                let (gone, left) = chunks.split_at(read);
                let rest = behind(&entries, gone.iter().map(String::len).sum());
                prop_assert_eq!(super::chunks(&rest, usize::MAX).concat(), left.concat());
                prop_assert!(rest.iter().all(|rest| texts[rest.message].ends_with(&rest.text)));
            }
        }

        #[test]
        fn no_text_contains_its_fence(texts in prop::collection::vec("(===== DATA [1-3] =====|\\PC){0,12}", 0..4)) {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let fence = fence(&texts);
            prop_assert!(texts.iter().all(|text| !text.contains(&fence)));
        }

        #[test]
        fn shortening_never_panics(text in "\\PC{0,60}", most in 0..80_usize) {
            let short = shorten(&text, most);
            prop_assert!(short.len() <= text.len().max(most + 40));
        }
    }
}
