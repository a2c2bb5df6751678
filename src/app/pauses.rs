//! Judges whether the provider has dropped a thread's prompt from its cache while the thread was idle.
//!
//! A cache that works by marks has dropped it once the marks' time to live is over. For caches that keep prompts
//! without marks, it is learned from what answers report after pauses, by upstream and model. That is bounded, and lost
//! with the process.

use super::learned::Learned;
use super::rewrite::Request;
use super::rewritten::RequestFacts;
use crate::conversation::{Conversation, Role};
use crate::lineage::{Lineage, Place, Relation};
use crate::usage::cache_model::Pause;

/// A cache that may keep prompts for longer than it promises.
#[derive(Debug, Clone, Copy)]
pub(super) struct Uncertain {
    /// A prompt that was used at most this many milliseconds ago is not taken for dropped.
    gone_ms: u64,
    /// The shortest prompt that is cached, in tokens.
    min_tokens: u64,
    /// Bytes of the frame. Another thread with the same frame may have kept it in the cache.
    frame_bytes: u64,
}

impl Request<'_> {
    /// Whether the cache has dropped what was sent of this thread before.
    pub(super) fn is_cold(&self, place: &Place) -> bool {
        let kind = self.cache();
        let last_ms = self.track.lineage.last_read_ms(place);
        let idle_ms = u64::try_from(self.now_ms.saturating_sub(last_ms)).unwrap_or(0);
        let may_be_gone = kind.gone_ms(self.conversation.requested_ttl_ms).is_some_and(|gone| idle_ms > gone);
        let is_gone = || {
            let model = self.model().unwrap_or_default();
            self.core.learned.pauses.get(self.context.upstream, model).is_gone(idle_ms)
        };
        place.sent > 0 && may_be_gone && (!kind.is_automatic() || is_gone())
    }

    /// The cache of this request, if it may keep prompts for longer than it promises.
    pub(super) fn uncertain(&self) -> Option<Uncertain> {
        let kind = self.cache();
        let gone_ms = kind.gone_ms(self.conversation.requested_ttl_ms).filter(|_| kind.is_automatic())?;
        let Conversation { body, array, messages, .. } = &self.conversation;
        let instructions = messages.iter().take_while(|message| message.index.role == Role::System);
        let instruction_bytes: usize = instructions.map(|message| message.span.len()).sum();
        let frame_bytes = (body.len() - array.len() + instruction_bytes) as u64;
        Some(Uncertain { gone_ms, min_tokens: kind.min_prefix_tokens(), frame_bytes })
    }
}

impl Learned {
    /// Learns whether the cache still held the history after a pause, from the tokens that were `read` from it. `at_ms`
    /// is when the request left.
    pub(super) fn learn_pause(
        &self,
        lineage: &Lineage,
        upstream: &str,
        facts: &RequestFacts,
        at_ms: i64,
        read: u64,
    ) {
        let Some(place) = &facts.place else { return };
        let Some(Uncertain { gone_ms, min_tokens, frame_bytes }) = facts.cache.uncertain else { return };
        let idle_ms = u64::try_from(at_ms.saturating_sub(lineage.last_read_ms(place))).unwrap_or(0);
        if place.relation != Relation::Continue || idle_ms <= gone_ms {
            return;
        }
        let model = facts.model.as_deref();
        let report = self.meter.report(place.chains[place.sent]);
        let Some(before) = report.figure().filter(|_| !report.is_of_another(model)) else { return };
        let tokens = |bytes: u64| (bytes as f64 / self.meter.bytes_per_token(model)) as u64;
        // What an event has changed, and whatever follows it, cannot be read from the cache. Of the rest, the frame is
        // not counted.
        let changed = facts.event.as_ref().map_or(0, |event| event.freed_bytes + event.rewritten_bytes);
        let frame = tokens(frame_bytes);
        let kept = before.tokens.saturating_sub(tokens(changed)).saturating_sub(frame);
        // The size of the frame is an estimate.
        if kept >= (2 * min_tokens).max(frame / 2) {
            let pause = Pause { ms: idle_ms, kept, read: read.saturating_sub(frame) };
            self.pauses.update(upstream, model.unwrap_or_default(), |pauses| pauses.ended(pause));
        }
    }
}
