//! How much a summary keeps of what it replaces: a measure that costs nothing and needs no judge.
//!
//! It counts what can be searched for: paths, identifiers and numbers named by the user, the model or a call, and error
//! lines from anywhere. A fact named in several messages counts once for each. Other tool output does not count,
//! because nobody wants it kept. The measure serves to compare summaries with each other; it is not the share of what
//! matters.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::facts::{self, Kind};
use crate::conversation::{Conversation, PartKind};

/// What `summary` keeps of these messages, from 0 to 1: the mean of the shares that it keeps of each kind of facts.
/// `None` if there was nothing to keep.
pub fn score(conversation: &Conversation, messages: &[usize], summary: &str) -> Option<f64> {
    let mut kinds = BTreeMap::<Kind, (u64, u64)>::new();
    for ((kind, fact), messages) in facts(conversation, messages) {
        let (kept, total) = kinds.entry(kind).or_default();
        *total += messages;
        if memchr::memmem::find(summary.as_bytes(), fact.as_bytes()).is_some() {
            *kept += messages;
        }
    }
    let shares = kinds.values().map(|(kept, total)| *kept as f64 / *total as f64);
    (!kinds.is_empty()).then(|| shares.sum::<f64>() / kinds.len() as f64)
}

/// The facts of these messages, each with the number of messages that name it.
fn facts(conversation: &Conversation, messages: &[usize]) -> HashMap<(Kind, String), u64> {
    let mut counts = HashMap::new();
    for fact in messages.iter().flat_map(|message| named_in(conversation, *message)) {
        *counts.entry(fact).or_default() += 1;
    }
    counts
}

/// The facts that a message names.
fn named_in(conversation: &Conversation, message: usize) -> HashSet<(Kind, String)> {
    let mut named = HashSet::new();
    let mut note = |kind: Kind, fact: &str| {
        named.insert((kind, fact.to_owned()));
    };
    for (id, part) in conversation.parts_of(message) {
        let texts = (0..part.leaves().len()).map(|leaf| conversation.text(id, leaf).unwrap_or_default());
        match part.kind() {
            PartKind::ToolCall => facts::each(&conversation.arguments(id).unwrap_or_default(), &mut note),
            PartKind::Text => texts.for_each(|text| facts::each(&text, &mut note)),
            PartKind::ToolResult => texts.for_each(|text| facts::errors_in(&text, &mut note)),
            PartKind::Thinking | PartKind::Media | PartKind::Hosted | PartKind::Opaque => {}
        }
    }
    named
}
