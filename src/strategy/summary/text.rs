//! The text that replaces the summarised messages.
//!
//! It consists of what a model wrote, followed by what no model needs to write: the user's own words, the files that
//! calls named, and the last plan. These come from the history itself, so they are there however bad the summary is.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::Outline;
use super::transcript::shorten;
use super::wrapper::is_wrapped;
use crate::conversation::files::{concerned, is_path};
use crate::conversation::{Conversation, Part, PartKind, Role};

/// The most bytes that are repeated of one message of the user.
const MAX_QUOTE: usize = 3 << 10;
/// The most bytes that are repeated of the last plan.
pub const MAX_PLAN: usize = 3 << 10;
/// Arguments of no more bytes than this contain no plan.
const MAX_WITHOUT_PLAN: usize = 4;
/// The most files that are named.
const MAX_FILES: usize = 40;

/// Composes the text that replaces these messages, which are in ascending order.
pub fn compose(
    conversation: &Conversation,
    messages: &[usize],
    outline: &Outline,
    user_bytes: usize,
) -> String {
    let mut text = format!(
        "[plimsoll: a summary stands here in place of {} earlier messages of this conversation. Check files before \
         relying on what it says about them.]\n\n{}\n",
        messages.len(),
        outline.to_text()
    );
    let words = user_words(conversation, messages, user_bytes);
    if !words.is_empty() {
        text.push_str("\n## What the user said meanwhile, word for word\n");
        for words in &words {
            let _ = writeln!(text, "> {}", words.replace('\n', "\n> "));
        }
    }
    let files = files(conversation, messages);
    if !files.is_empty() {
        let _ = writeln!(text, "\n## Files that were worked with\n{}", files.join("\n"));
    }
    if let Some(plan) = last_plan(conversation, messages, MAX_PLAN) {
        let _ = writeln!(text, "\n## The last plan\n{plan}");
    }
    text.truncate(text.trim_end().len());
    text
}

/// Words that demand, forbid or decide something.
const BINDING: &[&str] = &[
    "must",
    "never",
    "always",
    "do not",
    "don't",
    "only",
    "should",
    "need",
    "require",
    "instead",
    "prefer",
    "remember",
    "important",
    "decid",
    "decis",
    "agree",
    "make sure",
    "not allowed",
    "forbid",
    "keep",
    "use ",
    "no longer",
];

/// Whether a text demands, forbids or decides something, judging by its words.
pub fn is_binding(text: &str) -> bool {
    let lower = text.to_lowercase();
    BINDING.iter().any(|word| lower.contains(word))
}

/// Whether a text states a decision, judging by its words.
pub fn says_a_decision(text: &str) -> bool {
    let lower = text.to_lowercase();
    lower.contains("decid") || lower.contains("decis")
}

/// The user's own words in these messages, in order, as many as fit into `most` bytes. Messages that demand, forbid or
/// decide something take precedence, then later ones.
pub fn user_words(conversation: &Conversation, messages: &[usize], most: usize) -> Vec<String> {
    let mut all: Vec<(usize, bool, String)> = Vec::new();
    for &message in messages {
        if conversation.messages.get(message).is_none_or(|message| message.index.role != Role::User) {
            continue;
        }
        for (id, part) in conversation.parts_of(message).filter(|(_, part)| part.kind() == PartKind::Text) {
            let texts = (0..part.leaves().len()).filter_map(|leaf| conversation.text(id, leaf));
            let text = texts.map(std::borrow::Cow::into_owned).collect::<Vec<_>>().join("\n");
            let text = text.trim();
            if !text.is_empty() && !is_wrapped(text) {
                all.push((all.len(), is_binding(text), shorten(text, MAX_QUOTE).into_owned()));
            }
        }
    }
    all.sort_by_key(|(at, binding, _)| (!*binding, std::cmp::Reverse(*at)));
    let mut left = most;
    all.retain(|(_, _, text)| {
        let fits = text.len() <= left;
        left -= if fits { text.len() } else { 0 };
        fits
    });
    all.sort_by_key(|(at, ..)| *at);
    all.into_iter().map(|(_, _, text)| text).collect()
}

/// The files that the calls of these messages name, in the order of their first mention; only the last ones if there
/// are many.
fn files(conversation: &Conversation, messages: &[usize]) -> Vec<String> {
    let (mut seen, mut files) = (HashSet::new(), Vec::new());
    for &message in messages {
        for (id, part) in conversation.parts_of(message) {
            if part.kind() != PartKind::ToolCall {
                continue;
            }
            let arguments = conversation.arguments(id).unwrap_or_default();
            for path in concerned(&arguments) {
                if is_path(&path) && seen.insert(path.clone()) {
                    files.push(path);
                }
            }
        }
    }
    let skip = files.len().saturating_sub(MAX_FILES);
    files.split_off(skip)
}

/// The arguments of the newest call that writes a plan or a list of tasks, shortened to about `most` bytes; `None` if
/// that call is not in these messages and so stays in the history. A call that only reads the list does not count.
pub fn last_plan(conversation: &Conversation, messages: &[usize], most: usize) -> Option<String> {
    let calls = (0..conversation.messages.len()).rev().flat_map(|message| conversation.parts_of(message));
    for (id, _) in calls.filter(|(_, part)| part.kind() == PartKind::ToolCall && concerns_plan(part)) {
        let arguments = conversation.arguments(id).unwrap_or_default();
        if arguments.len() > MAX_WITHOUT_PLAN {
            let is_dropped = messages.contains(&(id.message as usize));
            return is_dropped.then(|| shorten(&arguments, most).into_owned());
        }
    }
    None
}

/// Whether a call writes or reads a plan or a list of tasks, judging by the name of its tool.
fn concerns_plan(call: &Part) -> bool {
    let tool = call.tool().unwrap_or_default().to_ascii_lowercase();
    tool.contains("todo") || tool.contains("plan")
}
