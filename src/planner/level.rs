//! How the window stands with a request, and its prompt counted as known agents guess it.
//!
//! A fixed estimate walks the whole history, so it is for those who ask for it. What stands outside of the messages is
//! not counted by it.

use std::collections::HashMap;

use crate::conversation::{Conversation, PartId, PartKind, Role};
use crate::plan::LeafEdit;
use crate::strategy::estimate::{Estimate, Message, Sum};
use crate::strategy::gate::Account;
use crate::strategy::window::{self, Gauge, Growth, Reading};

use super::arguments;
use super::event::Before;
use super::splice::Splice;

/// How the window stands with this request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// The prompt, an estimate in tokens, before an event.
    pub prompt_tokens: u64,
    /// Tokens that it has at least, however few those are that its bytes make.
    pub least_tokens: u64,
    /// The prompt in the model's window, if that is known.
    pub gauge: Option<Gauge>,
    /// How fast the prompt grows; `None` for a request that was made before.
    pub reading: Option<Reading>,
    /// What its requests add to the prompt, as far as that is known; with one that was made before, too.
    pub growth: Option<Growth>,
    /// Bytes that clearing alone could free for the next request; 0 while the prompt is below the target.
    pub clearable_bytes: u64,
    /// Messages, as they would be sent.
    pub messages: u32,
    /// The provider was asked to make room by itself: only what the window forces is done.
    pub defers: bool,
    /// The prompt may be much shorter than it is estimated, and the provider says so if it is not: until then nothing goes
    /// that would be missed.
    pub waits: bool,
    /// Room is not made yet: that would be dearer than what the thread may lose by it, and the prompt fits.
    pub can_wait: bool,
    /// Room may wait to be made until there is none left, if that is dear or a summary may still come.
    pub patient: bool,
    /// What the thread has cost, calls of the gateway's own included.
    pub account: Account,
}

impl Level {
    /// Whether room is to be made now.
    pub fn is_full(&self, settings: &window::Settings) -> bool {
        !self.can_wait && self.gauge.is_some_and(|gauge| gauge.excess(settings) > 0)
    }

    /// Whether there are so many messages that room is to be made by a summary.
    pub fn is_crowded(&self, settings: &window::Settings) -> bool {
        settings.messages.is_some_and(|most| self.messages >= most)
    }
}

/// Bytes of a token that may be more than is known: what is escaped has as many.
const MANY_BYTES: f64 = 8.0;
/// How many times as many as is known a token may have: white space and lists of the like are shorter than other text.
const MANY_TIMES: f64 = 2.0;
/// Of the window, one part in so many may be new and only estimated for the rest to be as good as known.
const LITTLE: u64 = 20;

/// A text of a decision, by its leaf.
type Leaves<'a> = HashMap<PartId, &'a [(u32, LeafEdit)]>;

impl Before<'_> {
    /// Tokens that so many bytes make at least.
    pub(super) fn least_tokens(&self, bytes: u64) -> u64 {
        (bytes as f64 / (self.facts.bytes_per_token * MANY_TIMES).max(MANY_BYTES)) as u64
    }

    /// Whether the provider is to say first that the prompt is too long: of much of it nothing is known but its bytes, and by
    /// these it may as well not have reached the trigger. A window that the user has set, or that was guessed, is not
    /// the provider's, and neither is a count that the user has asked for.
    pub(super) fn waits(&self, level: &Level, settings: &window::Settings) -> bool {
        let is_told = self.facts.refuses && self.facts.overflow.is_none();
        let gauge = level.gauge.filter(|gauge| is_told && self.facts.window == Some(gauge.window));
        let Some(gauge) = gauge.filter(|_| settings.count == Estimate::Usage) else { return false };
        let estimated = match self.known_figure() {
            Some((_, exact)) if !self.facts.measured_elsewhere => level.prompt_tokens.saturating_sub(exact),
            _ => level.prompt_tokens,
        };
        let reaches = |prompt| Gauge { prompt, ..gauge }.reaches(settings.trigger, settings);
        estimated > gauge.window / LITTLE && reaches(gauge.prompt) && !reaches(level.least_tokens)
    }

    /// Messages of the request as it would be sent with a splice, or without any.
    pub(super) fn messages_with(&self, splice: Option<&Splice>) -> u32 {
        let (gone, more) = splice.map_or((0, 0), |splice| (splice.dropped(), splice.inserted()));
        (self.conversation.messages.len() as u32).saturating_sub(gone) + more
    }

    /// The messages as they would be sent, in tokens; `None` if the provider's figures are to count.
    pub(super) fn estimated(&self, estimate: Estimate) -> Option<u64> {
        if estimate == Estimate::Usage {
            return None;
        }
        let decided = self.applied.iter();
        let decided: Leaves<'_> = decided.map(|one| (one.part, &*one.decision.leaves)).collect();
        let mut sum = Sum::new(estimate);
        for at in 0..self.conversation.messages.len() {
            if !self.splice.is_some_and(|splice| splice.drops(at)) {
                add(self.conversation, at, &decided, &mut sum);
            }
        }
        if let Some(splice) = self.splice {
            sum.add(&Message { role: "assistant", texts: &[&splice.text], ..Message::default() });
        }
        Some(sum.tokens())
    }
}

fn add(conversation: &Conversation, at: usize, decided: &Leaves<'_>, sum: &mut Sum) {
    let role = match conversation.messages[at].index.role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    let (mut texts, mut extras, mut media) = (Vec::new(), Vec::new(), 0);
    let mut is_result = false;
    for (id, part) in conversation.parts_of(at) {
        for leaf in 0..part.leaves.len() + part.media().len() {
            let edit = decided.get(&id).and_then(|leaves| leaves.iter().find(|(at, _)| *at as usize == leaf));
            match edit {
                Some((_, LeafEdit::Replace(text))) => texts.push((**text).into()),
                Some((_, LeafEdit::Remove)) => {}
                None => texts.extend(conversation.text(id, leaf)),
            }
        }
        extras.extend(part.call_id.as_deref().map(Into::into));
        extras.extend(part.tool.as_deref().map(Into::into));
        let arguments =
            decided.get(&id).and_then(|edits| arguments::sent(conversation, id, edits)).map(Into::into);
        extras.extend(arguments.or_else(|| conversation.arguments(id)));
        media += u64::from(part.kind == PartKind::Media);
        is_result |= part.kind == PartKind::ToolResult;
    }
    let texts: Vec<&str> = texts.iter().map(|text: &std::borrow::Cow<'_, str>| &**text).collect();
    let extras: Vec<&str> = extras.iter().map(|text: &std::borrow::Cow<'_, str>| &**text).collect();
    sum.add(&Message { role, texts: &texts, extras: &extras, is_result, media });
}
