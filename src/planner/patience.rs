//! Postpones events that make room, for as long as the prompt fits: those that would cost more than the thread may
//! lose, and those that drop messages which a summary may still replace.
//! After an event the rest of the history must be written to the provider's cache again. For a thread that ends right
//! after the event, that cost is wasted, and many threads end before they run out of room.

use crate::strategy::clear;
use crate::strategy::estimate::Estimate;
use crate::strategy::gate::MOST_LOSS;

use super::event::{Before, Change};
use super::level::Level;

impl Before<'_> {
    /// Whether an event that the window demands can wait, and should: it costs more than the thread may lose, or
    /// loses something that a summary may still preserve.
    pub(super) fn may_wait(&self, change: &Change, level: &Level) -> bool {
        let price = change.rewritten_bytes as f64 * self.rates.rewrite();
        let is_dear = !self.facts.cold && price > self.account().allowance(MOST_LOSS);
        let is_early = self.facts.awaits_summary && change.event().loses();
        // If the estimate is too low, the prompt takes some of the room reserved for the answer. That is better than
        // losing messages, so the estimate is trusted where a summary may still come. Otherwise it is doubled.
        let error_factor = u64::from(!is_early);
        (is_dear || is_early) && self.has_time(level, error_factor)
    }

    /// Whether the prompt has reached the trigger but still fits, even if its estimated part is larger by
    /// `error_factor` times its size.
    fn has_time(&self, level: &Level, error_factor: u64) -> bool {
        if !level.patient {
            return false;
        }
        let (Some(gauge), Some(exact)) = (level.gauge, self.exact()) else { return false };
        let estimated = level.prompt_tokens.saturating_sub(exact);
        gauge.reaches(self.policy.window.trigger, &self.policy.window)
            && gauge.prompt + error_factor * estimated < gauge.usable()
    }

    /// Whether an event that makes room may wait at all.
    ///
    /// The provider must report prompt sizes. The answer must have a limit: otherwise little room is reserved for it,
    /// and it may need all that is left. Policies that imitate a known agent act at that agent's trigger, whatever it
    /// costs.
    pub(super) fn is_patient(&self) -> bool {
        let policy = self.policy;
        let is_by_worth =
            policy.clear.policy == clear::Policy::Worth && policy.window.count == Estimate::Usage;
        let is_reserved = self.facts.max_output.is_some() || policy.window.reserve_output.is_some();
        let is_measured = self.sent == 0 || self.exact().is_some();
        is_by_worth && is_reserved && is_measured && self.facts.overflow.is_none()
    }
}
