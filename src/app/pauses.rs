//! Whether the provider has dropped a thread's prompt while nobody used it.
//!
//! Where marks are read it has when their time is over. Where it keeps prompts without marks, what its answers say after
//! pauses counts: by upstream and model, bounded, and lost with the process.

use super::Core;
use super::models::Models;
use super::rewrite::Request;
use super::rewritten::RequestFacts;
use crate::conversation::{Conversation, Role};
use crate::lineage::{Place, Relation};
use crate::usage::cache_model::{Pause, Pauses};

/// What is known of the caches of models, by upstream and model.
pub(super) type Caches = Models<(String, String), Pauses>;

/// A cache that may keep prompts for longer than it promises.
#[derive(Debug, Clone, Copy)]
pub(super) struct Uncertain {
    /// No prompt is taken for gone that was used so many milliseconds ago.
    gone_ms: u64,
    /// Tokens of the shortest that is kept.
    least: u64,
    /// Bytes of the request that stand before what anyone has said: others may have used them meanwhile.
    frame: u64,
}

impl Request<'_> {
    /// Whether what was sent before of a thread is gone.
    pub(super) fn is_cold(&self, place: &Place) -> bool {
        let kind = self.cache();
        let last_ms = self.track.lineage.last_read_ms(place);
        let idle_ms = u64::try_from(self.now_ms.saturating_sub(last_ms)).unwrap_or(0);
        let may_be = kind.gone_ms(self.conversation.requested_ttl_ms).is_some_and(|gone| idle_ms > gone);
        let is_gone = || {
            let name = name(self.asked.upstream, self.model());
            self.core.caches.read(&name, |pauses| pauses.is_gone(idle_ms)).unwrap_or_default()
        };
        place.sent > 0 && may_be && (!kind.is_automatic() || is_gone())
    }

    /// What its cache is like, if what is kept there for how long is not certain.
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

impl Core {
    /// A request that left then was answered, and so much of it was read: after a pause that tells whether its history was
    /// kept.
    pub(super) fn pause_told(&self, upstream: &str, facts: &RequestFacts, at_ms: i64, read: u64) {
        let Some((place, Uncertain { gone_ms, least, frame })) = facts.place.as_ref().zip(facts.uncertain)
        else {
            return;
        };
        let idle_ms = u64::try_from(at_ms.saturating_sub(self.lineage.last_read_ms(place))).unwrap_or(0);
        if place.relation != Relation::Continue || idle_ms <= gone_ms {
            return;
        }
        let model = facts.model.as_deref();
        let said = self.meter.said(place.chains[place.sent]);
        let Some((_, before)) = said.figure().filter(|_| !said.is_of_another(model)) else { return };
        let tokens = |bytes: u64| (bytes as f64 / self.meter.bytes_per_token(model)) as u64;
        // What an event has changed is not read, nor what stands behind it. Of the history alone the pause tells.
        let changed = facts.event.as_ref().map_or(0, |event| event.freed_bytes + event.rewritten_bytes);
        let frame = tokens(frame);
        let kept = before.saturating_sub(tokens(changed)).saturating_sub(frame);
        // What the frame comes to is an estimate.
        if kept >= (2 * least).max(frame / 2) {
            let pause = Pause { ms: idle_ms, kept, read: read.saturating_sub(frame) };
            self.caches.learn(&name(upstream, model), |pauses| pauses.ended(pause));
        }
    }
}

/// What the cache of a model is known by.
fn name(upstream: &str, model: Option<&str>) -> (String, String) {
    (upstream.to_owned(), model.unwrap_or_default().to_owned())
}
