//! Postponing room: an event that would cost more than a thread may lose waits for as long as the prompt fits, and so
//! does one that drops messages for which a summary may still come.
//!
//! What an event leaves must be written to the provider's cache again. A thread that ends right behind it has paid
//! for that in vain, and many threads end before they run out of room.

use crate::strategy::clear;
use crate::strategy::estimate::Estimate;

use super::Policy;
use super::event::{Before, Change};
use super::level::Level;
use super::room::LOSS;

impl Before<'_> {
    /// Whether an event that the window demands can wait, and should: it costs more than the thread may lose, or
    /// drops what a summary may still stand for.
    pub(super) fn may_wait(&self, change: &Change, policy: &Policy, level: &Level) -> bool {
        let price = change.event.rewritten_bytes as f64 * self.rates.rewrite();
        let is_dear = !self.facts.cold && price > self.account().allowance(LOSS);
        let is_early = self.facts.awaits_summary && change.event.loses();
        // An estimate that is too low eats into the room kept free for the answer, which is better than losing
        // messages.
        let doubt = u64::from(!is_early);
        (is_dear || is_early) && self.has_time(policy, level, doubt)
    }

    /// Whether the prompt fits, even if its estimated part is larger by `doubt` times its size.
    fn has_time(&self, policy: &Policy, level: &Level, doubt: u64) -> bool {
        let known = level.gauge.zip(self.exact().filter(|_| level.patient));
        known.is_some_and(|(gauge, exact)| {
            gauge.reaches(policy.window.trigger, &policy.window)
                && gauge.prompt + doubt * level.prompt_tokens.saturating_sub(exact) < gauge.usable()
        })
    }

    /// Whether making room may wait, as far as is known by now. The provider must report prompt sizes. Without a
    /// limit for the answer, little is kept free for it, and it may need what is left. Policies that copy a known
    /// agent act at that agent's trigger, whatever it costs.
    pub(super) fn is_patient(&self, policy: &Policy) -> bool {
        let is_by_worth =
            policy.clear.policy == clear::Policy::Worth && policy.window.count == Estimate::Usage;
        let is_reserved = self.facts.max_output.is_some() || policy.window.reserve_output.is_some();
        let is_measured = self.sent == 0 || self.exact().is_some();
        is_by_worth && is_reserved && is_measured && self.facts.overflow.is_none()
    }

    /// The provider's figure for the last prompt.
    fn exact(&self) -> Option<u64> {
        self.known_figure().filter(|_| !self.facts.measured_elsewhere).map(|(_, exact)| exact)
    }
}
