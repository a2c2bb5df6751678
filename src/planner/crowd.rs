//! Making room among messages, where their number is bounded and not their size.
//!
//! A summary that is there takes the place of old messages; where there is a bound that nothing may pass, the oldest go
//! until it is kept. Like all that changes what was sent before, it is one event.

use crate::strategy::gate::Reason;
use crate::strategy::ladder::Rung;

use super::cuts::Cut;
use super::event::{Before, Change};
use super::level::Level;
use super::splice::Splice;
use super::{Policy, Recall};

impl Before<'_> {
    /// The event that makes room among the messages, if there are too many.
    pub(super) fn thin_out(
        &self,
        ready: Option<&Splice>,
        policy: &Policy,
        level: &Level,
        recall: Recall<'_>,
    ) -> Option<Change> {
        if level.defers || self.sent == 0 || self.sent >= self.conversation.messages.len() {
            return None;
        }
        let most = policy.ladder.messages.filter(|most| policy.ladder.enabled && level.messages > *most);
        let ready = ready.filter(|_| most.is_some() || level.is_crowded(&policy.window));
        let splicing = ready.and_then(|ready| self.splicing(ready.clone()));
        let change = splicing.or_else(|| self.drop_oldest(most?, policy, recall))?;
        self.unbound(change)
    }

    /// Drops the oldest messages, as few as leave no more than `most`, else as many as may go.
    fn drop_oldest(&self, most: u32, policy: &Policy, recall: Recall<'_>) -> Option<Change> {
        let cuts = self.cuts(policy);
        // A note stands for them.
        let left = |cut: &Cut| (self.conversation.messages.len() - cut.count()) as u32 + 1;
        let cut = cuts.iter().find(|cut| left(cut) <= most).or_else(|| cuts.last())?;
        let (splice, save) = self.note(cut, recall)?;
        let event = self.event_of(&splice, Reason::Window, Rung::Turns);
        (event.freed_bytes > 0).then(|| Change {
            decided: Vec::new(),
            saves: save.into_iter().collect(),
            splice: Some(splice),
            event,
        })
    }
}
