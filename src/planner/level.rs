//! How the window stands with a request, and its prompt counted as known agents guess it.
//!
//! A fixed estimate walks the whole history, so it is for those who ask for it. What stands outside of the messages is
//! not counted by it.

use std::collections::HashMap;

use crate::conversation::{Conversation, PartId, PartKind, Role};
use crate::plan::LeafEdit;
use crate::strategy::estimate::{Estimate, Message, Sum};
use crate::strategy::window::{self, Gauge, Reading};

use super::arguments;
use super::event::Before;

/// How the window stands with this request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// The prompt, an estimate in tokens, before an event.
    pub prompt_tokens: u64,
    /// The prompt in the model's window, if that is known.
    pub gauge: Option<Gauge>,
    /// How fast the prompt grows; `None` for a request that was made before.
    pub reading: Option<Reading>,
    /// Bytes that clearing alone could free for the next request; 0 while the prompt is below the target.
    pub clearable_bytes: u64,
    /// Messages, as they would be sent.
    pub messages: u32,
    /// The provider was asked to make room by itself: only what the window forces is done.
    pub defers: bool,
}

impl Level {
    /// Whether there are so many messages that room is to be made by a summary.
    pub fn is_crowded(&self, settings: &window::Settings) -> bool {
        settings.messages.is_some_and(|most| self.messages >= most)
    }
}

/// A text of a decision, by its leaf.
type Leaves<'a> = HashMap<PartId, &'a [(u32, LeafEdit)]>;

impl Before<'_> {
    /// Messages of the request as it would be sent.
    pub(super) fn sent_messages(&self) -> u32 {
        let (gone, more) = self.splice.map_or((0, 0), |splice| (splice.dropped(), splice.inserted()));
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
