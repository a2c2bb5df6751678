//! How full the window is with a request.
//!
//! As far as the provider has reported the size of the prompt, its figure counts; the rest is estimated. A setting may
//! ask for the estimate of a known agent instead, which walks the whole history and does not count anything outside the
//! messages.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::conversation::{Conversation, PartId, PartKind, Role};
use crate::plan::sent_texts;
use crate::strategy::estimate::{Estimate, Message, Sum};
use crate::strategy::gate::Account;
use crate::strategy::window::{self, Gauge, Growth, Reading};

use super::arguments;
use super::decision::{Decision, by_part};
use super::event::Before;
use super::splice::Splice;

/// How full the window is with this request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// The estimated tokens of the prompt, before an event.
    pub prompt_tokens: u64,
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
    /// The client has the provider make room itself, so the gateway makes room only if the window forces it to.
    pub defers: bool,
    /// The prompt may be much shorter than its estimate, and the provider will refuse it if it is too long. Until then
    /// no message is dropped and no new result cut.
    pub waits: bool,
    /// An event that would make room is postponed: the prompt fits, and the event costs more than the thread may lose
    /// or loses what a summary may still preserve.
    pub can_wait: bool,
    /// The client asks with this request for a summary of the whole history, or seems to.
    pub summarised: bool,
    /// Whether an event that would make room may be postponed at all.
    pub patient: bool,
    /// What the thread has cost, the gateway's own calls included.
    pub account: Account,
}

impl Level {
    /// Whether room must be made now.
    pub fn is_full(&self, settings: &window::Settings) -> bool {
        !self.can_wait && self.gauge.is_some_and(|gauge| gauge.excess(settings) > 0)
    }

    /// Whether there are enough messages for a summary to be due.
    pub fn is_crowded(&self, settings: &window::Settings) -> bool {
        settings.messages.is_some_and(|most| self.messages >= most)
    }
}

/// A token may have this many bytes whatever has been learned, as in escaped text.
const MAX_BYTES_PER_TOKEN: f64 = 8.0;
/// A token may have this many times the bytes that have been learned: white space and lists take fewer tokens than
/// other text.
const MAX_LEARNED_FACTOR: f64 = 2.0;
/// The size of a prompt counts as known if no more than the window divided by this is estimated.
const ESTIMATED_DIVISOR: u64 = 20;

/// The estimated size of a prompt, in tokens.
struct PromptSize {
    tokens: u64,
    /// A lower bound.
    least_tokens: u64,
    /// Whether the provider has reported the size of an earlier prompt of the thread. Only what came since is
    /// estimated then.
    is_measured: bool,
}

impl Before<'_> {
    /// How full the window is.
    pub(super) fn level(&self) -> Level {
        let size = self.prompt_size();
        let gauge = self.gauge(&size);
        Level {
            prompt_tokens: size.tokens,
            gauge,
            reading: None,
            growth: None,
            clearable_bytes: 0,
            messages: self.messages_with(self.splice),
            defers: self.conversation.asks_for_edits,
            waits: self.waits(&size, gauge),
            can_wait: false,
            summarised: false,
            patient: self.is_patient(),
            account: self.account(),
        }
    }

    /// The estimated size of the prompt before its event.
    fn prompt_size(&self) -> PromptSize {
        let bytes = |from: usize| -> u64 {
            self.conversation.messages[from..].iter().map(|message| message.read_len() as u64).sum()
        };
        let measured = self.known_figure();
        let (known, rest) = match measured {
            Some((messages, tokens)) => (tokens, bytes(messages).saturating_sub(self.spared_from(messages))),
            None => (0, self.sent_bytes()),
        };
        let least_tokens = match self.exact() {
            Some(exact) => exact + self.least_tokens(rest),
            None => self.least_tokens(self.sent_bytes()),
        };
        let rest = (rest as f64 / self.facts.bytes_per_token.max(0.5)) as u64;
        PromptSize { tokens: known + rest, least_tokens, is_measured: measured.is_some() }
    }

    /// The prompt in the model's window. If the window is unknown but the provider has refused the prompt as too long,
    /// the window is taken to be as large as the prompt; otherwise `None`.
    fn gauge(&self, size: &PromptSize) -> Option<Gauge> {
        let settings = &self.policy.window;
        let known = settings.window(self.facts.window, self.facts.max_output);
        let refused = self.facts.overflow.map(|overflow| overflow.prompt.unwrap_or(size.tokens));
        let window = known.or(refused)?;
        let gauge = Gauge::new(size.tokens, window, self.facts.max_output, settings);
        Some(match self.estimated(settings.count) {
            // The count that the settings ask for does not hide that the prompt is too long.
            Some(prompt) if gauge.prompt < gauge.usable() => Gauge { prompt, ..gauge },
            _ if size.is_measured => gauge,
            _ => gauge.estimated(),
        })
    }

    /// The provider's figure for the last prompt of this thread, unless it covers more messages than there are.
    fn known_figure(&self) -> Option<(usize, u64)> {
        self.facts.measured.filter(|(messages, _)| *messages <= self.conversation.messages.len())
    }

    /// The tokens that the provider reported for the last prompt, if the same model counted them.
    pub(super) fn exact(&self) -> Option<u64> {
        self.known_figure().filter(|_| !self.facts.measured_elsewhere).map(|(_, exact)| exact)
    }

    /// Bytes that decisions save in this message and the later ones.
    fn spared_from(&self, message: usize) -> u64 {
        let later = self.applied.iter().filter(|applied| applied.part.message as usize >= message);
        later.map(|applied| applied.bytes_spared_of(self.conversation)).sum()
    }

    /// A lower bound on the tokens in `bytes` bytes.
    fn least_tokens(&self, bytes: u64) -> u64 {
        let most = (self.facts.bytes_per_token * MAX_LEARNED_FACTOR).max(MAX_BYTES_PER_TOKEN);
        (bytes as f64 / most) as u64
    }

    /// Whether to wait for the provider to refuse the prompt as too long: much of it is only estimated from its bytes,
    /// and it may not have reached the trigger at all. Does not apply to a window that the user has set or that was
    /// guessed, nor to a count that the user has chosen, because the provider does not enforce those.
    fn waits(&self, size: &PromptSize, gauge: Option<Gauge>) -> bool {
        let settings = &self.policy.window;
        let may_refuse = self.facts.refuses && self.facts.overflow.is_none();
        if !may_refuse || settings.count != Estimate::Usage {
            return false;
        }
        let Some(gauge) = gauge.filter(|gauge| self.facts.window == Some(gauge.window)) else {
            return false;
        };
        let estimated = size.tokens.saturating_sub(self.exact().unwrap_or(0));
        let reaches = |prompt| Gauge { prompt, ..gauge }.reaches(settings.trigger, settings);
        estimated > gauge.window / ESTIMATED_DIVISOR && reaches(gauge.prompt) && !reaches(size.least_tokens)
    }

    /// The number of messages of the request if it is sent with this splice, or without one.
    pub(super) fn messages_with(&self, splice: Option<&Splice>) -> u32 {
        let (dropped, inserted) = splice.map_or((0, 0), |splice| (splice.dropped(), splice.inserted()));
        (self.conversation.messages.len() as u32).saturating_sub(dropped) + inserted
    }

    /// The tokens of the messages as they would be sent, by a fixed estimate; `None` if the provider's figures are to
    /// be used.
    fn estimated(&self, estimate: Estimate) -> Option<u64> {
        if estimate == Estimate::Usage {
            return None;
        }
        let decided = by_part(self.applied);
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

/// Adds a message to an estimate, as it would be sent.
fn add(conversation: &Conversation, at: usize, decided: &HashMap<PartId, &Decision>, sum: &mut Sum) {
    let role = match conversation.messages[at].index.role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    let (mut texts, mut extras, mut media) = (Vec::new(), Vec::new(), 0);
    let mut is_result = false;
    for (id, part) in conversation.parts_of(at) {
        let edits = decided.get(&id).map(|decision| &*decision.leaves);
        texts.extend(sent_texts(conversation, id, edits.unwrap_or_default()));
        extras.extend(part.call_id().map(Cow::Borrowed));
        extras.extend(part.tool().map(Cow::Borrowed));
        let arguments = edits.and_then(|edits| arguments::with_edits(conversation, id, edits));
        extras.extend(arguments.map(Cow::Owned).or_else(|| conversation.arguments(id)));
        media += u64::from(part.kind() == PartKind::Media);
        is_result |= part.kind() == PartKind::ToolResult;
    }
    let texts: Vec<&str> = texts.iter().map(|text: &Cow<'_, str>| &**text).collect();
    let extras: Vec<&str> = extras.iter().map(|text: &Cow<'_, str>| &**text).collect();
    sum.add(&Message { role, texts: &texts, extras: &extras, is_result, media });
}
