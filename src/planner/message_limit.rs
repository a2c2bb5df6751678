//! Making room among messages, where their number is bounded and not their size.
//!
//! A summary that is there takes the place of old messages; where there is a bound that nothing may pass, the oldest go
//! until it is kept. Like all that changes what was sent before, it is one event.

use crate::strategy::gate::Reason;
use crate::strategy::ladder::Rung;

use super::cuts::Cut;
use super::decision::Save;
use super::event::{Before, Change};
use super::level::Level;
use super::splice::Splice;
use super::{Policy, Recall, transcript};

/// Bytes of text that count as much as what stands around a message: four tokens, about.
const FRAME: u64 = 16;
/// Places for a note that are tried.
const TRIES: usize = 8;

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
        let is_enough = |ready: &Splice| most.is_none_or(|most| self.messages_with(Some(ready)) <= most);
        let splicing = || self.splicing(ready?.clone());
        let dropping = || self.drop_oldest(most?, policy, recall);
        let change = if ready.is_some_and(is_enough) {
            splicing().or_else(dropping)
        } else {
            dropping().or_else(splicing)
        };
        self.unbound(change?)
    }

    /// Drops the oldest messages, as few as leave no more than `most`, else as many as may go.
    fn drop_oldest(&self, most: u32, policy: &Policy, recall: Recall<'_>) -> Option<Change> {
        let cuts = self.cuts(policy);
        // A note stands for them.
        let left = |cut: &Cut| (self.conversation.messages.len() - cut.count()) as u32 + 1;
        let enough = cuts.iter().filter(|cut| left(cut) <= most).take(TRIES);
        let mut places = enough.chain(cuts.iter().rev().take(TRIES));
        let (splice, save) = places.find_map(|cut| self.note_that_fits(cut, recall))?;
        let event = self.event_of(&splice, Reason::Window, Rung::Turns);
        Some(Change { decided: Vec::new(), saves: save.into_iter().collect(), splice: Some(splice), event })
    }

    /// A note at a cut that is shorter than what it stands for: short messages have room for few words.
    fn note_that_fits(&self, cut: &Cut, recall: Recall<'_>) -> Option<(Splice, Option<Save>)> {
        let bare = |messages: &[usize], _: Option<&str>| transcript::short_note(messages, None);
        let shorter = |noted: &(Splice, Option<Save>)| self.is_shorter(&noted.0);
        let whole = self.note(cut, recall, usize::MAX).filter(shorter);
        let short = || self.noted(cut, recall, &transcript::short_note).filter(shorter);
        whole.or_else(short).or_else(|| self.noted(cut, recall, &bare).filter(shorter))
    }

    /// Whether less is sent with a splice than without. What stands around a message is sent for each of them.
    fn is_shorter(&self, splice: &Splice) -> bool {
        let sizes = self.sizes();
        let taken = splice.drops.iter().map(|(first, end)| sizes[*end as usize] - sizes[*first as usize]);
        let (text, gone, stood) =
            self.splice.map_or((0, 0, 0), |former| (former.bytes_after, former.dropped(), former.inserted()));
        let fewer = (splice.dropped() + stood).saturating_sub(gone + splice.inserted());
        taken.sum::<u64>() + text + FRAME * u64::from(fewer) > splice.bytes_after
    }
}
