//! Dropped messages as readable text: in full for a file, and as a short note for the model.
//!
//! Both are functions of the messages and the decisions about them alone, so that they can be reproduced.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::fmt::Write as _;

use crate::conversation::{Conversation, PartId, PartKind, Role, boundary};
use crate::plan::sent_texts;
use crate::strategy::Lines;
use crate::strategy::summary::text::{MAX_PLAN, is_binding, last_plan, says_a_decision};
use crate::strategy::summary::wrapper::is_wrapped;

use super::decision::{Applied, Decision, by_part};
use super::splice::Splice;

/// A note repeats as many bytes of the messages that it replaces as these have, divided by `QUOTES_DIVISOR`, within the
/// two bounds.
const QUOTES_DIVISOR: usize = 50;
const MIN_QUOTES: usize = 4096;
const MAX_QUOTES: usize = 16_384;
/// The most bytes that a note repeats of one message.
const MAX_QUOTE: usize = 300;
/// The plan is not repeated if there is room for fewer bytes of it than this.
const MIN_PLAN: usize = 200;

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
    let decided = by_part(applied);
    let mut out = String::new();
    for at in messages {
        let role = speaker(conversation.messages[at].index.role);
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

/// The lines that a result showed when it was new.
pub(super) fn lines(conversation: &Conversation, id: PartId, decision: Option<&Decision>) -> Lines {
    let mut out = String::new();
    texts(conversation, id, decision.filter(|decision| !decision.is_clearing()), &mut out);
    Lines::of(&out)
}

/// Appends the texts of a part as they were sent.
fn texts(conversation: &Conversation, id: PartId, decision: Option<&Decision>, out: &mut String) {
    for text in sent_texts(conversation, id, decision.map_or(&[], |decision| &decision.leaves)) {
        out.extend([&*text, "\n"]);
    }
}

/// The note that replaces messages: it says how many there were and where they can be read, and repeats the beginnings
/// of what user and model said in them. If they contain the agent's last plan, up to `most` bytes of it follow. Not
/// everything may fit: binding statements take precedence, then the newest messages.
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
    let quotes = quotes(conversation, messages, (bytes / QUOTES_DIVISOR).clamp(MIN_QUOTES, MAX_QUOTES));
    if !quotes.is_empty() {
        out.push_str("; excerpts of what was said:");
        for quote in quotes {
            out.push('\n');
            out.push_str(&quote);
        }
    }
    let plan = (most >= MIN_PLAN).then(|| last_plan(conversation, messages, MAX_PLAN.min(most)));
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

/// How important a message is, the most important first: demands of the user, decisions, anything else that the user
/// said, all other messages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Demand,
    Decision,
    User,
    Other,
}

/// A line that a note repeats of a message.
struct Quote {
    rank: Rank,
    message: usize,
    line: String,
}

/// What was said in messages, one line each, in order, as much as fits into `most` bytes. Repetitions are left out.
/// Demands and decisions may each use half of the room, so that neither crowds out the other. What they leave is used
/// for all messages.
fn quotes(conversation: &Conversation, messages: &[usize], most: usize) -> Vec<String> {
    let mut open: Vec<Quote> = messages.iter().filter_map(|message| quote(conversation, *message)).collect();
    open.sort_by_key(|quote| (quote.rank, Reverse(quote.message)));
    let mut known = HashSet::new();
    open.retain(|quote| known.insert(quote.line.clone()));
    let (mut kept, mut left) = (Vec::new(), most);
    for (rank, share) in [(Rank::Demand, most / 2), (Rank::Decision, most / 2), (Rank::Other, most)] {
        let mut room = share.min(left);
        for quote in std::mem::take(&mut open) {
            let (is_due, length) = (quote.rank == rank || rank == Rank::Other, quote.line.len());
            if is_due && length <= room {
                (room, left) = (room - length, left - length);
                kept.push(quote);
            } else {
                open.push(quote);
            }
        }
    }
    kept.sort_by_key(|quote| quote.message);
    kept.into_iter().map(|quote| quote.line).collect()
}

/// What a note repeats of a message: its first decision if there is one, else its beginning; `None` if it says nothing.
fn quote(conversation: &Conversation, message: usize) -> Option<Quote> {
    let texts = conversation.parts_of(message).filter(|(_, part)| part.kind() == PartKind::Text);
    let leaves = texts.flat_map(|(id, part)| (0..part.leaves().len()).map(move |leaf| (id, leaf)));
    let texts: Vec<_> = leaves
        .filter_map(|(id, leaf)| conversation.text(id, leaf))
        .filter(|text| !is_wrapped(text.trim()))
        .collect();
    let role = conversation.messages[message].index.role;
    let mut lines = texts.iter().flat_map(|text| text.lines());
    let decision = lines.clone().position(says_a_decision);
    let rank = match role {
        Role::User if texts.iter().any(|text| is_binding(text)) => Rank::Demand,
        _ if decision.is_some() => Rank::Decision,
        Role::User => Rank::User,
        _ => Rank::Other,
    };
    if role != Role::User
        && let Some(last_before) = decision.and_then(|at| at.checked_sub(1))
    {
        // Skips the lines before the decision.
        lines.nth(last_before);
    }
    let words = beginning(lines.flat_map(str::split_whitespace))?;
    Some(Quote { rank, message, line: format!("- {}: {words}", speaker(role)) })
}

/// The first of these words, up to [`MAX_QUOTE`] bytes; `None` if there are none. A long word that does not fit, such
/// as a URL or text written without spaces, is cut; a shorter one is left out.
fn beginning<'t>(words: impl Iterator<Item = &'t str>) -> Option<String> {
    let mut text = String::new();
    for word in words {
        let space = if text.is_empty() { "" } else { " " };
        let room = MAX_QUOTE.saturating_sub(text.len());
        if word.len() <= room {
            text.extend([space, word]);
            continue;
        }
        let most = if word.len() > MAX_QUOTE / 2 { room } else { 0 };
        let end = boundary::floor(word, most);
        if end > 0 {
            text.extend([space, &word[..end]]);
        }
        text.push_str(" …");
        break;
    }
    (!text.is_empty()).then_some(text)
}

/// The name of a message's speaker.
const fn speaker(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Assistant => "model",
        Role::Tool => "tool",
        Role::System => "system",
    }
}
