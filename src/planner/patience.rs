//! Room that can be made later: an event that would cost more than a thread may lose waits for as long as the prompt fits.
//!
//! What an event leaves is written to the provider's cache anew, and a thread that ends right behind it has paid for that
//! in vain. Many end before they have no room left.

use crate::strategy::clear;
use crate::strategy::estimate::Estimate;

use super::Policy;
use super::event::{Before, Change};
use super::level::Level;
use super::room::LOSS;

impl Before<'_> {
    /// Whether the window demands an event that is dearer than what the thread may lose by it, and can do without for now.
    pub(super) fn may_wait(&self, change: &Change, policy: &Policy, level: &Level) -> bool {
        let price = change.event.rewritten_bytes as f64 * self.rates.rewrite();
        let is_dear = !self.facts.cold && price > self.standing.account().allowance(LOSS);
        is_dear && self.has_time(policy, level)
    }

    /// Whether the prompt fits, also if what is only estimated of it has twice as many tokens. Where nobody says how long an
    /// answer may be, little is kept free for it, and it may need what is left. What known agents do at a trigger of theirs
    /// is done there, whatever it costs.
    fn has_time(&self, policy: &Policy, level: &Level) -> bool {
        let is_by_worth =
            policy.clear.policy == clear::Policy::Worth && policy.window.count == Estimate::Usage;
        let is_reserved = self.facts.max_output.is_some() || policy.window.reserve_output.is_some();
        let (true, None, Some(gauge)) = (is_by_worth && is_reserved, self.facts.overflow, level.gauge) else {
            return false;
        };
        let exact = self.known_figure().filter(|_| !self.facts.measured_elsewhere);
        exact.is_some_and(|(_, exact)| {
            gauge.reaches(policy.window.trigger, &policy.window)
                && gauge.prompt + level.prompt_tokens.saturating_sub(exact) < gauge.usable()
        })
    }
}
