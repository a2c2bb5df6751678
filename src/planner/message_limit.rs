//! Making room where the number of messages is limited, rather than their size.
//!
//! A summary that is ready replaces old messages; where a hard limit applies, the oldest are dropped until it is met.
//! Like every change to old parts, this is one event.

use crate::strategy::ladder::Rung;

use super::cuts::Cut;
use super::decision::Save;
use super::event::{Before, Change};
use super::level::Level;
use super::room::MAX_PLACES;
use super::splice::Splice;
use super::transcript;

/// Bytes of text equivalent to the overhead of a message, which is about four tokens.
const MESSAGE_OVERHEAD: u64 = 16;

impl Before<'_> {
    /// The event that reduces the number of messages, if there are too many.
    pub(super) fn thin_out(&self, level: &Level) -> Option<Change> {
        if level.defers || !self.goes_on() {
            return None;
        }
        let ladder = &self.policy.ladder;
        let most = ladder.messages.filter(|most| ladder.enabled && level.messages > *most);
        if most.is_none() && !level.is_crowded(&self.policy.window) {
            return None;
        }
        let is_enough = |ready: &Splice| most.is_none_or(|most| self.messages_with(Some(ready)) <= most);
        let splicing = || self.splicing();
        let dropping = || self.drop_oldest(most?);
        let change = if self.ready.is_some_and(is_enough) {
            splicing().or_else(dropping)
        } else {
            dropping().or_else(splicing)
        };
        self.remove_bound_reasoning(change?)
    }

    /// The event that drops as few of the oldest messages as possible so that no more than `most` are left, or else as
    /// many as possible.
    fn drop_oldest(&self, most: u32) -> Option<Change> {
        let cuts = self.cuts();
        // A note replaces the dropped messages.
        let left = |cut: &Cut| (self.conversation.messages.len() - cut.count()) as u32 + 1;
        let enough = cuts.iter().filter(|cut| left(cut) <= most).take(MAX_PLACES);
        let mut places = enough.chain(cuts.iter().rev().take(MAX_PLACES));
        let (splice, save) = places.find_map(|cut| self.note_that_fits(cut))?;
        Some(Change { saves: save.into_iter().collect(), ..self.change_by(splice, Rung::Turns) })
    }

    /// The longest of several notes at this cut that is shorter than the messages it replaces, which may be short.
    fn note_that_fits(&self, cut: &Cut) -> Option<(Splice, Option<Save>)> {
        let shorter = |noted: &(Splice, Option<Save>)| self.is_shorter(&noted.0);
        let whole = self.note(cut, usize::MAX).filter(shorter);
        let short = || self.splice_with(cut, transcript::short_note).filter(shorter);
        let bare = || {
            let noted = self.splice_with(cut, |messages, _| transcript::short_note(messages, None));
            noted.filter(shorter)
        };
        whole.or_else(short).or_else(bare)
    }

    /// Whether less is sent with a splice than without, counting the overhead of each message.
    fn is_shorter(&self, splice: &Splice) -> bool {
        let sizes = self.sizes();
        let dropped = splice.drops.iter().map(|(first, end)| sizes[*end as usize] - sizes[*first as usize]);
        let former_text = self.splice.map_or(0, Splice::bytes_after);
        let fewer = self.messages_with(self.splice).saturating_sub(self.messages_with(Some(splice)));
        dropped.sum::<u64>() + former_text + MESSAGE_OVERHEAD * u64::from(fewer) > splice.bytes_after()
    }
}
