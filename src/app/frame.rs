//! The frame of a prompt, that is tools and instructions: whether it is worth a mark for the provider's cache.

use super::Core;
use super::rewrite::Request;
use super::rewritten::RequestFacts;
use crate::conversation::{Conversation, Digest, Marks, Prelude};
use crate::lineage::Place;
use crate::planner::Outcome;
use crate::protocol;
use crate::strategy::system::{EntryKey, Expected, Frame, Source, Stable};
use crate::usage::Usage;
use crate::usage::cache_model::CacheKind;

/// Bytes assumed for a token of instructions.
const BYTES_PER_TOKEN: usize = 4;

impl Request<'_> {
    /// Learns where the frame stops being stable, if the client sets no marks of its own.
    pub(super) fn learn(&self) -> Option<(Stable, EntryKey)> {
        self.conversation.marks.as_ref().filter(|marks| marks.free() == Marks::MOST)?;
        if self.conversation.continues.is_some() {
            return None;
        }
        self.conversation.frame_end.filter(|_| self.tuning.policy.marks.marks)?;
        let model = self.model()?;
        let kind = self.cache();
        let CacheKind::Marked { min_tokens, .. } = kind else { return None };
        let client = self.caller.client.as_deref().unwrap_or_default();
        let alike = [client.as_bytes(), b"\0", model.as_bytes(), b"\0", self.asked.upstream.as_bytes()];
        let alike = Digest::of(&alike);
        let from = Source { kind: alike, sender: Digest::of(&[&alike.0, &self.principal.0]) };
        let least = usize::try_from(min_tokens).unwrap_or(usize::MAX).saturating_mul(BYTES_PER_TOKEN);
        let text = || self.conversation.instructions().map(std::borrow::Cow::into_owned);
        let Conversation { body, system, .. } = &self.conversation;
        let before = protocol::before_messages(self.protocol, &self.conversation).into_iter();
        let rest: Vec<&[u8]> =
            before.filter(|span| Some(*span) != *system).map(|span| span.of(body)).collect();
        let instructions = system.map(|span| span.of(body)).unwrap_or_default();
        let frame = Frame { rest: &rest, instructions, text: &text };
        let now = (self.now(), kind.default_ttl_ms().unwrap_or(0));
        self.core.systems().see(from, frame, least, now)
    }

    /// What the frame says, as far as cache entries of the messages are bound to it, and the cache that they are in.
    pub(super) fn prelude_for(&self, kind: CacheKind, place: &Place) -> Prelude {
        if kind.is_automatic() || self.conversation.marks.is_none() {
            return Prelude::default();
        }
        let prelude = *self.prelude.get_or_init(|| protocol::prelude(self.protocol, &self.conversation));
        Prelude { key: prelude.key ^ place.cache.0.half(), ..prelude }
    }

    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.now_ms).unwrap_or(0)
    }

    /// Removes the mark that would write the frame to the cache if another request has begun the same entry, or if
    /// too many such entries were never read.
    pub(super) fn stake(&self, place: &Place, outcome: &mut Outcome) {
        let Some((Stable { mark: Expected::Writes, .. }, key)) = self.stable else { return };
        if place.sent > 0 || outcome.marks.frame.is_none() || self.core.observes() {
            return;
        }
        if !self.may_write.get_or_init(|| self.core.systems().may_write(key, self.now())) {
            outcome.leave_frame_unmarked();
        }
    }
}

impl Core {
    /// Records whether the provider now keeps the marked frame: it does if the request was answered.
    pub(super) fn frame_answered(&self, facts: &RequestFacts, is_kept: bool) {
        if let Some(mark) = &facts.cache.frame_mark {
            self.systems().answered(mark.entry, is_kept, mark.writes(), self.unix_ms());
        }
    }

    /// Learns from the usage of a finished request whether the marked frame was read. Only the first request of a
    /// conversation tells: later ones read more than the frame, or nothing, whether or not the frame was cached.
    pub(super) fn frame_told(&self, facts: &RequestFacts, is_answered: bool, usage: Option<&Usage>) {
        let Some(mark) = &facts.cache.frame_mark else { return };
        if !is_answered {
            self.frame_answered(facts, false);
        }
        let Some(usage) = usage.filter(|usage| !usage.prompt_is_unknown) else { return };
        let told = (usage.tokens.cache_read > 0, usage.tokens.cache_write() > 0);
        if mark.is_first || (mark.expected == Expected::Reads && told == (false, true)) {
            self.systems().told(mark.entry, told, mark.writes(), self.unix_ms());
        }
    }

    fn unix_ms(&self) -> u64 {
        u64::try_from((self.now_ms)()).unwrap_or(0)
    }
}

/// A cache mark at the end of the frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameMark {
    /// The cache entry that ends there.
    pub(super) entry: EntryKey,
    /// What the mark was meant to do.
    pub(super) expected: Expected,
    /// The request is the first of its conversation.
    pub(super) is_first: bool,
}

impl FrameMark {
    /// Whether it was meant to write the entry.
    fn writes(&self) -> bool {
        self.is_first && self.expected == Expected::Writes
    }
}
