//! Whether the provider has dropped a thread's prompt from its cache while the thread was idle.
//!
//! With cache marks, it has when their time to live is over. For caches that keep prompts without marks, experience
//! counts: what answers report after pauses, by upstream and model. Bounded, and lost with the process.

use super::learned::Learned;
use super::models::Models;
use super::rewrite::Request;
use super::rewritten::RequestFacts;
use crate::conversation::{Conversation, Role};
use crate::lineage::{Lineage, Place, Relation};
use crate::usage::cache_model::{Pause, Pauses};

/// What is known of the caches, by upstream and model.
pub(super) type Caches = Models<(String, String), Pauses>;

/// A cache that may keep prompts for longer than it promises.
#[derive(Debug, Clone, Copy)]
pub(super) struct Uncertain {
    /// A prompt used within so many milliseconds is not taken for dropped.
    gone_ms: u64,
    /// The shortest prompt that is cached, in tokens.
    least: u64,
    /// Bytes of the frame: another thread with the same one may have kept it in the cache.
    frame: u64,
}

impl Request<'_> {
    /// Whether what was sent before of this thread has been dropped from the cache.
    pub(super) fn is_cold(&self, place: &Place) -> bool {
        let kind = self.cache();
        let last_ms = self.track.lineage.last_read_ms(place);
        let idle_ms = u64::try_from(self.now_ms.saturating_sub(last_ms)).unwrap_or(0);
        let may_be = kind.gone_ms(self.conversation.requested_ttl_ms).is_some_and(|gone| idle_ms > gone);
        let is_gone = || {
            let name = name(self.asked.upstream, self.model());
            self.core.learned.caches.read(&name, |pauses| pauses.is_gone(idle_ms)).unwrap_or_default()
        };
        place.sent > 0 && may_be && (!kind.is_automatic() || is_gone())
    }

    /// The cache of this request, if it may keep prompts for longer than it promises.
    pub(super) fn uncertain(&self) -> Option<Uncertain> {
        let kind = self.cache();
        let gone_ms = kind.gone_ms(self.conversation.requested_ttl_ms).filter(|_| kind.is_automatic())?;
        let Conversation { body, array, messages, .. } = &self.conversation;
        let instructions = messages.iter().take_while(|message| message.index.role == Role::System);
        let said: usize = instructions.map(|message| message.span.len()).sum();
        let frame = (body.len() - array.len() + said) as u64;
        Some(Uncertain { gone_ms, least: kind.min_prefix_tokens(), frame })
    }
}

impl Learned {
    /// Learns from the tokens that were read from the cache after a pause: they tell whether the history was still
    /// there. `at_ms` is when the request left.
    pub(super) fn pause_told(
        &self,
        lineage: &Lineage,
        upstream: &str,
        facts: &RequestFacts,
        at_ms: i64,
        read: u64,
    ) {
        let Some((place, Uncertain { gone_ms, least, frame })) =
            facts.place.as_ref().zip(facts.cache.uncertain)
        else {
            return;
        };
        let idle_ms = u64::try_from(at_ms.saturating_sub(lineage.last_read_ms(place))).unwrap_or(0);
        if place.relation != Relation::Continue || idle_ms <= gone_ms {
            return;
        }
        let model = facts.model.as_deref();
        let report = self.meter.report(place.chains[place.sent]);
        let Some(before) = report.figure().filter(|_| !report.is_of_another(model)) else { return };
        let tokens = |bytes: u64| (bytes as f64 / self.meter.bytes_per_token(model)) as u64;
        // Neither what an event has changed nor anything behind it can be read from the cache. Of the rest, only the
        // history is looked at.
        let changed = facts.event.as_ref().map_or(0, |event| event.freed_bytes + event.rewritten_bytes);
        let frame = tokens(frame);
        let kept = before.tokens.saturating_sub(tokens(changed)).saturating_sub(frame);
        // The size of the frame is an estimate.
        if kept >= (2 * least).max(frame / 2) {
            let pause = Pause { ms: idle_ms, kept, read: read.saturating_sub(frame) };
            self.caches.learn(&name(upstream, model), |pauses| pauses.ended(pause));
        }
    }
}

/// The key of a model's cache.
fn name(upstream: &str, model: Option<&str>) -> (String, String) {
    (upstream.to_owned(), model.unwrap_or_default().to_owned())
}
