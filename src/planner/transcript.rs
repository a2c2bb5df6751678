//! Dropped messages as readable text: in full for a file, and in short for the model.
//!
//! Both are functions of the messages and the decisions about them, so that they can be reproduced.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use crate::conversation::{Conversation, PartId, PartKind, Role, boundary};
use crate::plan::LeafEdit;
use crate::strategy::Lines;
use crate::strategy::summary::text::{PLAN, is_binding, last_plan, says_a_decision};
use crate::strategy::summary::wrapper::is_wrapped;

use super::decision::{Applied, Decision};
use super::splice::Splice;

/// How many bytes of the conversation a note repeats: one in so many of what it replaces, within bounds, and a limit
/// for each message.
const SAID_OF: usize = 50;
const SAID_LEAST: usize = 4096;
const SAID_MOST: usize = 16_384;
const SAID_EACH: usize = 300;
/// With less room than this, no part of a plan is repeated.
const PLAN_LEAST: usize = 200;

/// The messages that a splice drops, in full.
pub fn left_out(conversation: &Conversation, splice: &Splice, applied: &[Applied]) -> String {
    let messages = (0..conversation.messages.len()).filter(|at| splice.drops(*at));
    whole(conversation, messages, applied)
}

/// The messages as they were sent, each with its speaker.
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
            let tool = part.tool().unwrap_or_default();
            match part.kind() {
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
                    out.push_str(if part.is_error() { "[result, an error]\n" } else { "[result]\n" });
                    texts(conversation, id, decided.get(&id).copied(), &mut out);
                }
                PartKind::Text | PartKind::Opaque => texts(conversation, id, None, &mut out),
            }
        }
        out.push('\n');
    }
    out
}

/// What a result showed when it was new, line by line.
pub(super) fn lines(conversation: &Conversation, id: PartId, decision: Option<&Decision>) -> Lines {
    let mut out = String::new();
    texts(conversation, id, decision.filter(|decision| !decision.is_clearing()), &mut out);
    Lines::of(&out)
}

/// The texts of a part as they were sent.
fn texts(conversation: &Conversation, id: PartId, decision: Option<&Decision>, out: &mut String) {
    let Some(part) = conversation.part(id) else { return };
    let (leaves, media) = (part.leaves().len(), part.media().len());
    for leaf in 0..leaves + media {
        let edit = decision.and_then(|one| one.leaves.iter().find(|(at, _)| *at as usize == leaf));
        match edit {
            Some((_, LeafEdit::Replace(text))) => out.push_str(text),
            Some((_, LeafEdit::Remove)) => continue,
            None if leaf >= leaves => continue,
            None => out.push_str(&conversation.text(id, leaf).unwrap_or_default()),
        }
        out.push('\n');
    }
}

/// The note that replaces messages: how many there were, where they can be read, the beginnings of what user and
/// model said in them, and up to `most` bytes of the agent's last plan if it is among them. If there is too much,
/// binding statements come first, then the newest.
pub(super) fn note(
    conversation: &Conversation,
    messages: &[usize],
    recall: Option<&str>,
    most: usize,
) -> String {
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
    let said = said(conversation, messages, (bytes / SAID_OF).clamp(SAID_LEAST, SAID_MOST));
    if !said.is_empty() {
        out.push_str("; what was said in them begins so:");
        for line in said {
            out.push('\n');
            out.push_str(&line);
        }
    }
    let plan = (most >= PLAN_LEAST).then(|| last_plan(conversation, messages, PLAN.min(most)));
    if let Some(plan) = plan.flatten() {
        let _ = write!(out, "{} the last plan: {plan}", if out.contains('\n') { "\n-" } else { ";" });
    }
    out.push(']');
    out
}

/// A note that says only how many messages there were and, if given, where they can be read.
pub(super) fn short_note(messages: &[usize], recall: Option<&str>) -> String {
    let count = messages.len();
    let plural = if count == 1 { "" } else { "s" };
    let place = recall.map(|recall| format!("; {recall}")).unwrap_or_default();
    format!("[plimsoll: {count} message{plural} removed{place}]")
}

/// How much depends on a message: demands of the user most, then decisions, then anything else the user said.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Demand,
    Decision,
    User,
    Other,
}

/// What was said in messages, one line each, in order, as much as fits into `most` bytes; repetitions are left out.
/// Neither demands nor decisions crowd out the other: each may use half of the room, as far as it needs it.
fn said(conversation: &Conversation, messages: &[usize], most: usize) -> Vec<String> {
    let lines =
        messages.iter().filter_map(|at| line(conversation, *at).map(|(rank, line)| (rank, *at, line)));
    let mut open: Vec<(Rank, usize, String)> = lines.collect();
    open.sort_by_key(|(rank, at, _)| (*rank, Reverse(*at)));
    let mut known = HashSet::new();
    open.retain(|(.., line)| known.insert(line.clone()));
    let (mut kept, mut left) = (Vec::new(), most);
    for (rank, share) in [(Rank::Demand, most / 2), (Rank::Decision, most / 2), (Rank::Other, most)] {
        let mut room = share.min(left);
        let fits = |(of, _, line): &mut (Rank, usize, String)| {
            let fits = (*of == rank || rank == Rank::Other) && line.len() <= room;
            room -= if fits { line.len() } else { 0 };
            fits
        };
        let taken: Vec<_> = open.extract_if(.., fits).collect();
        left -= taken.iter().map(|(.., line)| line.len()).sum::<usize>();
        kept.extend(taken);
    }
    kept.sort_by_key(|(_, at, _)| *at);
    kept.into_iter().map(|(.., line)| line).collect()
}

/// A message as one line, with its rank: its first decision if there is one, else its beginning; `None` if it says
/// nothing.
fn line(conversation: &Conversation, at: usize) -> Option<(Rank, String)> {
    let texts = conversation.parts_of(at).filter(|(_, part)| part.kind() == PartKind::Text);
    let leaves = texts.flat_map(|(id, part)| (0..part.leaves().len()).map(move |leaf| (id, leaf)));
    let texts: Vec<_> = leaves
        .filter_map(|(id, leaf)| conversation.text(id, leaf))
        .filter(|text| !is_wrapped(text.trim()))
        .collect();
    let role = conversation.messages[at].index.role;
    let mut lines = texts.iter().flat_map(|text| text.lines());
    let decision = lines.clone().position(says_a_decision);
    let rank = match role {
        Role::User if texts.iter().any(|text| is_binding(text)) => Rank::Demand,
        _ if decision.is_some() => Rank::Decision,
        Role::User => Rank::User,
        _ => Rank::Other,
    };
    if let (Some(before), false) = (decision.and_then(|at| at.checked_sub(1)), role == Role::User) {
        lines.nth(before);
    }
    let said = beginning(lines.flat_map(str::split_whitespace))?;
    Some((rank, format!("- {}: {said}", who(role))))
}

/// The beginning of one message that a note repeats; `None` if it has no words. Of a long word, such as a URL or text
/// written without spaces, as much as there is room for.
fn beginning<'t>(words: impl Iterator<Item = &'t str>) -> Option<String> {
    let mut said = String::new();
    for word in words {
        let space = if said.is_empty() { "" } else { " " };
        let room = SAID_EACH.saturating_sub(said.len());
        if word.len() <= room {
            said.extend([space, word]);
            continue;
        }
        let most = if word.len() > SAID_EACH / 2 { room } else { 0 };
        let end = boundary::floor(word, most);
        if end > 0 {
            said.extend([space, &word[..end]]);
        }
        said.push_str(" …");
        break;
    }
    (!said.is_empty()).then_some(said)
}

const fn who(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Assistant => "model",
        Role::Tool => "tool",
        Role::System => "system",
    }
}
