//! Messages that are not sent any more, as a text to be read: whole, for a file, and in short, for the model.
//!
//! Both are functions of the messages and of what was decided about them, so that they can be made again.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::conversation::{Conversation, PartId, PartKind, Role};
use crate::plan::LeafEdit;

use super::decision::{Applied, Decision};

/// The most bytes of what was said that a note repeats, in all and of one message.
const SAID: usize = 4096;
const SAID_EACH: usize = 300;

/// The messages as they were sent, with who said what.
pub(super) fn whole(
    conversation: &Conversation,
    messages: impl Iterator<Item = usize>,
    applied: &[Applied],
) -> String {
    let decided: HashMap<PartId, &Decision> =
        applied.iter().map(|applied| (applied.part, &*applied.decision)).collect();
    let mut out = String::new();
    for at in messages {
        let role = who(conversation.messages[at].index.role);
        let _ = writeln!(out, "=== message {at}: {role} ===");
        for (id, part) in conversation.parts_of(at) {
            let tool = part.tool.as_deref().unwrap_or_default();
            match part.kind {
                PartKind::ToolCall => {
                    let arguments = conversation.arguments(id).unwrap_or_default();
                    let _ = writeln!(out, "[call of {tool}] {arguments}");
                }
                PartKind::Thinking => out.push_str("[reasoning]\n"),
                PartKind::Hosted => {
                    let raw = conversation.bytes_of(id.message, part.span);
                    let _ = writeln!(out, "[run by the provider] {}", String::from_utf8_lossy(raw));
                }
                PartKind::Media => out.push_str("[image or document]\n"),
                PartKind::ToolResult => {
                    out.push_str(if part.is_error { "[result, an error]\n" } else { "[result]\n" });
                    texts(conversation, id, decided.get(&id).copied(), &mut out);
                }
                PartKind::Text | PartKind::Opaque => texts(conversation, id, None, &mut out),
            }
        }
        out.push('\n');
    }
    out
}

/// The texts of a part as they were sent.
fn texts(conversation: &Conversation, id: PartId, decision: Option<&Decision>, out: &mut String) {
    let leaves = conversation.part(id).map_or(0, |part| part.leaves.len());
    for leaf in 0..leaves {
        let edit = decision.and_then(|one| one.leaves.iter().find(|(at, _)| *at as usize == leaf));
        match edit {
            Some((_, LeafEdit::Replace(text))) => out.push_str(text),
            Some((_, LeafEdit::Remove)) => continue,
            None => out.push_str(&conversation.text(id, leaf).unwrap_or_default()),
        }
        out.push('\n');
    }
}

/// The note that stands for messages: how many there were, where they can be read, and the beginnings of what user
/// and model said in them, the newest if there is too much.
pub(super) fn note(conversation: &Conversation, messages: &[usize], recall: Option<&str>) -> String {
    let count = messages.len();
    let plural = if count == 1 { "" } else { "s" };
    let bytes: usize = messages.iter().map(|at| conversation.messages[*at].span.len()).sum();
    let mut out = format!(
        "[plimsoll: {count} earlier message{plural} of this conversation ({bytes} bytes) removed here to fit the \
         context window"
    );
    if let Some(recall) = recall {
        let _ = write!(out, "; {recall}");
    }
    let (mut said, mut left) = (Vec::new(), SAID);
    for at in messages.iter().rev() {
        let line = line(conversation, *at);
        let Some(line) = line.filter(|line| line.len() <= left) else { continue };
        left -= line.len();
        said.push(line);
    }
    if !said.is_empty() {
        out.push_str("; what was said in them begins so:");
        for line in said.iter().rev() {
            out.push('\n');
            out.push_str(line);
        }
    }
    out.push(']');
    out
}

/// The beginning of what a message says, on one line; `None` if it says nothing.
fn line(conversation: &Conversation, at: usize) -> Option<String> {
    let texts = conversation.parts_of(at).filter(|(_, part)| part.kind == PartKind::Text);
    let mut said = String::new();
    for (id, part) in texts {
        for leaf in 0..part.leaves.len() {
            let text = conversation.text(id, leaf).unwrap_or_default();
            for word in text.split_whitespace() {
                if said.len() + word.len() > SAID_EACH {
                    return (!said.is_empty()).then(|| format!("- {}: {said} …", role(conversation, at)));
                }
                if !said.is_empty() {
                    said.push(' ');
                }
                said.push_str(word);
            }
        }
    }
    (!said.is_empty()).then(|| format!("- {}: {said}", role(conversation, at)))
}

fn role(conversation: &Conversation, at: usize) -> &'static str {
    who(conversation.messages[at].index.role)
}

const fn who(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Assistant => "model",
        Role::Tool => "tool",
        Role::System => "system",
    }
}
