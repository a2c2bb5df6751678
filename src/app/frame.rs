//! What stands before the messages, instructions and tools: where a mark for the provider's cache is worth what it costs.

use super::Core;
use super::rewrite::Request;
use super::rewritten::RequestFacts;
use crate::conversation::{Conversation, Digest, Marks};
use crate::lineage::Place;
use crate::planner::Outcome;
use crate::protocol;
use crate::strategy::system::{EntryKey, Expected, Frame, Stable};
use crate::usage::Usage;
use crate::usage::cache_model::CacheKind;

/// Bytes that a token of instructions is taken for.
const BYTES_PER_TOKEN: usize = 4;

impl Request<'_> {
    /// Learns from what stands before the messages, where the client sets no marks of its own.
    pub(super) fn learn(&self) -> Option<(Stable, EntryKey)> {
        self.conversation.marks.as_ref().filter(|marks| marks.free() == Marks::MOST)?;
        self.conversation.frame_end.filter(|_| self.tuning.policy.marks.marks)?;
        let model = self.model()?;
        let kind = self.cache();
        let CacheKind::Marked { min_tokens, .. } = kind else { return None };
        let client = self.caller.client.as_deref().unwrap_or_default();
        let sender = [
            &self.principal.0,
            client.as_bytes(),
            b"\0",
            model.as_bytes(),
            b"\0",
            self.asked.upstream.as_bytes(),
        ];
        let least = usize::try_from(min_tokens).unwrap_or(usize::MAX).saturating_mul(BYTES_PER_TOKEN);
        let text = || self.conversation.instructions().map(std::borrow::Cow::into_owned);
        let Conversation { body, system, .. } = &self.conversation;
        let before = protocol::before_messages(self.protocol, &self.conversation).into_iter();
        let rest: Vec<&[u8]> =
            before.filter(|span| Some(*span) != *system).map(|span| span.of(body)).collect();
        let instructions = system.map(|span| span.of(body)).unwrap_or_default();
        let frame = Frame { rest: &rest, instructions, text: &text };
        let now = (self.now(), kind.default_ttl_ms().unwrap_or(0));
        self.core.systems().see(Digest::of(&sender), frame, least, now)
    }

    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.now_ms).unwrap_or(0)
    }

    /// A mark that begins an entry of the provider's cache is left out where another request has begun the same one, or
    /// where too many were never read.
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
    /// A request is answered, or refused: the provider keeps what it marks now, or does not.
    pub(super) fn frame_answered(&self, facts: &RequestFacts, is_kept: bool) {
        if let Some((key, _)) = facts.frame_mark {
            let now_ms = u64::try_from((self.now_ms)()).unwrap_or(0);
            self.systems().answered(key, is_kept, now_ms);
        }
    }

    /// A request is over: what was to be read at the beginning of a conversation was, or was not, if it was answered.
    pub(super) fn frame_read(&self, facts: &RequestFacts, is_answered: bool, usage: Option<&Usage>) {
        let Some((key, expected)) = facts.frame_mark else { return };
        if !is_answered {
            self.frame_answered(facts, false);
        }
        let is_first = facts.place.as_ref().is_some_and(|place| place.sent == 0);
        let is_read = usage.filter(|_| is_first).map(|usage| usage.tokens.cache_read > 0);
        if let Some(is_read) = is_read.filter(|is_read| *is_read || expected == Expected::Reads) {
            self.systems().read(key, is_read);
        }
    }
}
