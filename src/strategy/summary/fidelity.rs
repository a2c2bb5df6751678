//! How much a summary keeps of what it replaces: a measure that costs nothing and needs no judge.
//!
//! It counts what can be searched for: paths, identifiers and numbers named by the user, the model or a call, and error
//! lines from anywhere. A fact named in several messages counts once for each. Other tool output does not count,
//! because nobody wants it kept. The measure serves to compare summaries with each other; it is not the share of what
//! matters.

use std::collections::{HashMap, HashSet};

use super::facts::{self, Kind};
use crate::conversation::{Conversation, PartKind};

/// Facts of one kind, each counted once per message that names it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Kept {
    /// Those that the summary contains.
    pub kept: u64,
    /// All of them.
    pub total: u64,
}

/// What a summary keeps, by kind of fact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fidelity {
    /// Files and URLs.
    pub paths: Kept,
    /// Identifiers.
    pub identifiers: Kept,
    /// Numbers.
    pub numbers: Kept,
    /// Error messages.
    pub errors: Kept,
}

impl Kept {
    /// The share that is kept, from 0 to 1; `None` if there was nothing to keep.
    pub fn share(self) -> Option<f64> {
        (self.total > 0).then(|| self.kept as f64 / self.total as f64)
    }
}

impl Fidelity {
    /// Measures what `summary` keeps of these messages.
    pub fn of(conversation: &Conversation, messages: &[usize], summary: &str) -> Self {
        let mut fidelity = Self::default();
        for ((kind, fact), messages) in facts(conversation, messages) {
            let kept = match kind {
                Kind::Path => &mut fidelity.paths,
                Kind::Identifier => &mut fidelity.identifiers,
                Kind::Number => &mut fidelity.numbers,
                Kind::Error => &mut fidelity.errors,
            };
            kept.total += messages;
            if memchr::memmem::find(summary.as_bytes(), fact.as_bytes()).is_some() {
                kept.kept += messages;
            }
        }
        fidelity
    }

    /// The mean of the kinds' shares, from 0 to 1; `None` if there was nothing to keep.
    pub fn score(&self) -> Option<f64> {
        let kinds = [self.paths, self.identifiers, self.numbers, self.errors];
        let shares: Vec<f64> = kinds.into_iter().filter_map(Kept::share).collect();
        (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64)
    }
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
