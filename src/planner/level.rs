//! How full the window is with a request, and the prompt's size as known agents estimate it.
//!
//! Such an estimate walks the whole history, so it is made only where a setting asks for it. It does not count what
//! stands outside the messages.

use std::collections::HashMap;

use crate::conversation::{Conversation, PartId, PartKind, Role};
use crate::plan::LeafEdit;
use crate::strategy::estimate::{Estimate, Message, Sum};
use crate::strategy::gate::Account;
use crate::strategy::window::{self, Gauge, Growth, Reading};

use super::arguments;
use super::event::Before;
use super::splice::Splice;

/// How full the window is with this request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// The estimated tokens of the prompt, before an event.
    pub prompt_tokens: u64,
    /// A lower bound for the tokens of the prompt.
    pub least_tokens: u64,
    /// The prompt in the model's window, if the window is known.
    pub gauge: Option<Gauge>,
    /// How fast the prompt grows; `None` for a retry.
    pub reading: Option<Reading>,
    /// What the thread's requests add to the prompt, if known; also for a retry.
    pub growth: Option<Growth>,
    /// Bytes that clearing alone could free for the next request; 0 while the prompt is below the target.
    pub clearable_bytes: u64,
    /// The number of messages as they would be sent.
    pub messages: u32,
    /// The client has the provider make room itself, so only what the window forces is done.
    pub defers: bool,
    /// The prompt may be much shorter than its estimate, and the provider reports it if it is too long: until then
    /// nothing is removed that would be missed.
    pub waits: bool,
    /// Room is not made yet: it would cost more than the thread may lose, and the prompt fits.
    pub can_wait: bool,
    /// Making room may wait until there is none left, if it is dear or a summary may still come.
    pub patient: bool,
    /// What the thread has cost, the gateway's own calls included.
    pub account: Account,
}

impl Level {
    /// Whether room must be made now.
    pub fn is_full(&self, settings: &window::Settings) -> bool {
        !self.can_wait && self.gauge.is_some_and(|gauge| gauge.excess(settings) > 0)
    }

    /// Whether there are so many messages that a summary is due.
    pub fn is_crowded(&self, settings: &window::Settings) -> bool {
        settings.messages.is_some_and(|most| self.messages >= most)
    }
}

/// Bytes that a token may have whatever has been learned: escaped text has as many.
const MANY_BYTES: f64 = 8.0;
/// How many times longer than learned a token may be: white space and lists take fewer tokens than other text.
const MANY_TIMES: f64 = 2.0;
/// One part in so many of the window may be new, and only estimated, for the size of the prompt to count as known.
const LITTLE: u64 = 20;

/// A part's decided texts, by leaf.
type Leaves<'a> = HashMap<PartId, &'a [(u32, LeafEdit)]>;

impl Before<'_> {
    /// The fewest tokens that so many bytes may have.
    pub(super) fn least_tokens(&self, bytes: u64) -> u64 {
        (bytes as f64 / (self.facts.bytes_per_token * MANY_TIMES).max(MANY_BYTES)) as u64
    }

    /// Whether to wait for the provider to refuse the prompt as too long: much of it is only estimated by its bytes,
    /// and it may not have reached the trigger at all. Does not apply to a window that the user has set or that was
    /// guessed, nor to a count that the user has chosen, since those are not the provider's.
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

    /// The number of messages of the request if it is sent with this splice, or without one.
    pub(super) fn messages_with(&self, splice: Option<&Splice>) -> u32 {
        let (gone, more) = splice.map_or((0, 0), |splice| (splice.dropped(), splice.inserted()));
        (self.conversation.messages.len() as u32).saturating_sub(gone) + more
    }

    /// The tokens of the messages as they would be sent, by a fixed estimate; `None` if the provider's figures are to
    /// be used.
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
        for leaf in 0..part.leaves().len() + part.media().len() {
            let edit = decided.get(&id).and_then(|leaves| leaves.iter().find(|(at, _)| *at as usize == leaf));
            match edit {
                Some((_, LeafEdit::Replace(text))) => texts.push((**text).into()),
                Some((_, LeafEdit::Remove)) => {}
                None => texts.extend(conversation.text(id, leaf)),
            }
        }
        extras.extend(part.call_id().map(Into::into));
        extras.extend(part.tool().map(Into::into));
        let arguments =
            decided.get(&id).and_then(|edits| arguments::sent(conversation, id, edits)).map(Into::into);
        extras.extend(arguments.or_else(|| conversation.arguments(id)));
        media += u64::from(part.kind() == PartKind::Media);
        is_result |= part.kind() == PartKind::ToolResult;
    }
    let texts: Vec<&str> = texts.iter().map(|text: &std::borrow::Cow<'_, str>| &**text).collect();
    let extras: Vec<&str> = extras.iter().map(|text: &std::borrow::Cow<'_, str>| &**text).collect();
    sum.add(&Message { role, texts: &texts, extras: &extras, is_result, media });
}
