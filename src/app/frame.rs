//! Decides whether the frame of a prompt, that is its tools and instructions, is worth a mark for the provider's cache.

use std::sync::OnceLock;

use super::learned::Learned;
use super::rewrite::Request;
use super::rewritten::RequestFacts;
use crate::conversation::{Conversation, Digest, Marks, Prelude};
use crate::lineage::Place;
use crate::planner::Outcome;
use crate::protocol;
use crate::strategy::marks::CacheClock;
use crate::strategy::system::{Access, CacheUse, EntryKey, Frame, Source, Stable};
use crate::usage::cache_model::CacheKind;
use crate::usage::{BYTES_PER_TOKEN, Usage};

impl Request<'_> {
    /// Learns up to where the frame is the same in all conversations, and returns what a mark there would do. `None` if
    /// the client sets marks of its own, or if the gateway may set none there.
    pub(super) fn learn_frame(&self) -> Option<SharedFrame> {
        self.conversation.marks.as_ref().filter(|marks| marks.free() == Marks::MOST)?;
        if self.conversation.continues.is_some() {
            return None;
        }
        self.conversation.frame_end.filter(|_| self.tuning.policy.marks.marks)?;
        let model = self.model()?;
        let kind = self.cache();
        let CacheKind::Marked { min_tokens, .. } = kind else { return None };
        let min_bytes = usize::try_from(min_tokens.saturating_mul(BYTES_PER_TOKEN)).unwrap_or(usize::MAX);
        let text = || self.conversation.instructions().map(std::borrow::Cow::into_owned);
        let Conversation { body, system, .. } = &self.conversation;
        let before = protocol::before_messages(self.protocol, &self.conversation).into_iter();
        let rest: Vec<&[u8]> =
            before.filter(|span| Some(*span) != *system).map(|span| span.of(body)).collect();
        let instructions = system.map(|span| span.of(body)).unwrap_or_default();
        let frame = Frame { rest: &rest, instructions, text: &text };
        if frame.bytes() < min_bytes {
            return None;
        }
        let clock = CacheClock { now_ms: self.now_unix_ms(), ttl_ms: kind.default_ttl_ms().unwrap_or(0) };
        let (stable, entry) =
            self.core.learned.systems().learn(self.frame_source(model), frame, min_bytes, clock)?;
        Some(SharedFrame { stable, entry, may_write: OnceLock::new() })
    }

    /// Who sends the frame. Frames are compared among requests of the same client to the same model and upstream.
    fn frame_source(&self, model: &str) -> Source {
        let client = self.sender.caller.client.as_deref().unwrap_or_default();
        let parts = [client.as_bytes(), b"\0", model.as_bytes(), b"\0", self.context.upstream.as_bytes()];
        Source { kind: Digest::of(&parts), key: self.sender.principal }
    }

    /// The part of the prompt before its messages, with which every cache entry of the messages begins. Its key also
    /// says in which cache the entries are.
    pub(super) fn prelude_for(&self, kind: CacheKind, place: &Place) -> Prelude {
        if kind.is_automatic() || self.conversation.marks.is_none() {
            return Prelude::default();
        }
        let read = || Box::new(protocol::prelude(self.protocol, &self.conversation));
        let (prelude, _) = **self.prelude.get_or_init(read);
        Prelude { key: prelude.key ^ place.cache.0.half(), ..prelude }
    }

    /// When the request came, in milliseconds since 1970; 0 if that is earlier.
    pub(super) fn now_unix_ms(&self) -> u64 {
        u64::try_from(self.now_ms).unwrap_or(0)
    }

    /// Claims the write of the frame to the cache for this request if its mark would write it. If another request is
    /// writing the same entry, or too many such entries were never read, the mark is removed.
    pub(super) fn claim_frame_write(&self, place: &Place, outcome: &mut Outcome) {
        let Some(SharedFrame { stable, entry, may_write }) = &self.shared_frame else { return };
        if stable.mark != Some(Access::Write)
            || place.sent > 0
            || outcome.marks.frame.is_none()
            || self.core.observes()
        {
            return;
        }
        if !may_write.get_or_init(|| self.core.learned.systems().claim_write(*entry, self.now_unix_ms())) {
            outcome.leave_frame_unmarked();
        }
    }
}

impl Learned {
    /// Records whether the provider now keeps the marked frame: it does if the request was answered.
    pub(super) fn record_frame_answer(&self, facts: &RequestFacts, is_kept: bool, now_ms: impl Fn() -> u64) {
        if let Some(mark) = &facts.cache.frame_mark {
            self.systems().record_answer(mark.entry, mark.access(), is_kept, now_ms());
        }
    }

    /// Learns from the usage of a finished request whether the marked frame was read. Only the first request of a
    /// conversation shows that: later ones read more than the frame, or nothing, whether or not the frame was cached.
    pub(super) fn learn_frame_usage(
        &self,
        facts: &RequestFacts,
        is_answered: bool,
        usage: Option<&Usage>,
        now_ms: impl Fn() -> u64,
    ) {
        let Some(mark) = &facts.cache.frame_mark else { return };
        if !is_answered {
            self.record_frame_answer(facts, false, &now_ms);
        }
        let Some(usage) = usage.filter(|usage| !usage.prompt_is_unknown) else { return };
        let tokens = &usage.tokens;
        let found = CacheUse { has_read: tokens.cache_read > 0, has_written: tokens.cache_write() > 0 };
        let was_missing = mark.expected == Some(Access::Read) && !found.has_read && found.has_written;
        if mark.is_first || was_missing {
            self.systems().record_usage(mark.entry, mark.access(), found, now_ms());
        }
    }
}

/// What the frame of a request has in common with that of other conversations.
#[derive(Debug)]
pub(super) struct SharedFrame {
    /// Where it ends, and what a mark there would do.
    pub(super) stable: Stable,
    /// The cache entry that ends there.
    pub(super) entry: EntryKey,
    /// Whether the request may write that entry; claimed when it first plans to.
    may_write: OnceLock<bool>,
}

/// A cache mark at the end of the frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameMark {
    /// The cache entry that ends there.
    pub(super) entry: EntryKey,
    /// What the mark was meant to do with it.
    pub(super) expected: Option<Access>,
    /// The request is the first of its conversation.
    pub(super) is_first: bool,
}

impl FrameMark {
    /// What its request may do with the entry.
    fn access(&self) -> Access {
        if self.is_first && self.expected == Some(Access::Write) { Access::Write } else { Access::Read }
    }
}
