//! What goes with a change for nothing: what stands behind it is written again anyway.

use std::collections::HashSet;

use crate::conversation::PartId;
use crate::strategy::clear;
use crate::strategy::gate::{Candidate, Reason};

use super::event::{Before, Change, Choice};
use super::level::Level;
use super::{Policy, Recall, arguments};

impl Before<'_> {
    /// A change that makes room, with all behind it that break-even would clear: it costs nothing now, and would break the
    /// cache once more later. What has not cost the reading of it for one request yet beyond what it is worth stays, and so
    /// do the newest messages.
    pub(super) fn with_stale(
        &self,
        mut change: Change,
        policy: &Policy,
        level: &Level,
        recall: Recall<'_>,
    ) -> Change {
        let Some(mut choice) = self.stale(&change, policy, level) else { return change };
        let (decided, saves) = self.decisions(&mut choice, recall);
        let more = choice.event(&decided);
        let event = &mut change.event;
        event.cleared += more.cleared;
        event.abridged += more.abridged;
        event.freed_bytes += more.freed_bytes;
        event.rewritten_bytes = event.rewritten_bytes.saturating_sub(more.freed_bytes);
        change.decided.extend(decided);
        change.saves.extend(saves);
        change
    }

    fn stale(&self, change: &Change, policy: &Policy, level: &Level) -> Option<Choice> {
        let clear = &policy.clear;
        let may = [Reason::Window, Reason::BreakEven].into_iter().all(|reason| clear::allows(clear, reason));
        // What is bound to what is said behind the change goes with it already.
        let first = change.first_said().filter(|_| may && !self.conversation.asks_for_edits)?;
        let (items, cleared, kept) = (self.history().items(), self.cleared(), self.kept(level) as u32);
        let decided: HashSet<PartId> = change.decided.iter().map(|applied| applied.part).collect();
        let drops =
            |message: u32| change.splice.as_ref().is_some_and(|splice| splice.drops(message as usize));
        let goes = |part: PartId| decided.contains(&part) || drops(part.message);
        let gone = |at: usize| cleared(at) || goes(items[at].part);
        let results = self.sent_before(clear::candidates(self.history(), &gone, self.rates, clear));
        let calls = if self.facts.bound.is_none() { self.old_arguments(clear) } else { Vec::new() };
        let mut stale = arguments::among(results, calls);
        let is_stale = |candidate: &Candidate| {
            let part = items[candidate.item].part;
            let is_due = candidate.rent >= self.rates.read * f64::from(candidate.frees);
            is_due && first < part && part.message < kept && !goes(part)
        };
        stale.retain(is_stale);
        let freed: u64 = stale.iter().map(|candidate| u64::from(candidate.frees)).sum();
        // Without the last of the images more is written again than what is behind the change.
        let is_free =
            self.images_among(&stale).is_none() && self.stays_cached()(change.event.freed_bytes + freed);
        if is_free { self.choice(Reason::Window, &stale, &gone, clear) } else { None }
    }
}
