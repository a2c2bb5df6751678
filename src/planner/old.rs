//! Old parts: brings the thread's state up to date, asks for the event that is due, if any, and places the cache
//! marks.
//!
//! If the provider holds the history and the client sends only what is new, a request has no old parts. Then nothing
//! is done here, unless the provider has refused the request as too long.

use crate::conversation::{Conversation, Marks, PartId, Role};
use crate::strategy::marks;
use crate::strategy::system::Access;

use super::event::{Before, Change, Derived};
use super::level::Level;
use super::standing::{Known, Standing, Terms};
use super::{Ending, Facts, Outcome, Past, Policy, RecallSentence, anchors, reasoning};

/// A request, and what is known of it.
pub(super) struct Request<'a> {
    pub(super) conversation: &'a Conversation,
    pub(super) policy: &'a Policy,
    pub(super) facts: &'a Facts,
    recall: RecallSentence<'a>,
    /// The client's marks, if the provider caches by marks.
    marks: Option<&'a Marks>,
    pub(super) terms: Terms<'a>,
    /// The number of messages that were sent before.
    pub(super) sent: usize,
    pub(super) ending: Ending,
}

/// What is to be done with old parts.
struct Due {
    /// How full the window is before the event.
    level: Level,
    /// The event, if one is due.
    event: Option<DueEvent>,
    /// The first part that the event changes; without an event, the first part that the next one would change.
    cut: Option<PartId>,
    needs_summary: bool,
}

/// An event that is due.
struct DueEvent {
    change: Change,
    /// The first part that can no longer be read from the provider's cache because of it.
    uncached_from: PartId,
}

/// Asks whether an event is due, puts its decisions into the outcome, and chooses the marks for what is then sent.
pub(super) fn decide(
    conversation: &Conversation,
    mut past: Past<'_>,
    policy: &Policy,
    facts: &Facts,
    recall: RecallSentence<'_>,
    outcome: &mut Outcome,
) {
    if conversation.continues.is_some() {
        return cut_sent_results(conversation, past, policy, facts, recall, outcome);
    }
    let facts = &Facts { bound: facts.bound.filter(|_| conversation.has_reasoning()), ..*facts };
    let marks = conversation.marks.as_ref().filter(|_| !facts.caches_without_marks);
    let cached = policy.marks.marks || marks.is_none_or(Marks::are_in_history);
    let terms = Terms { rates: facts.rates(cached), settings: &policy.clear };
    let request =
        Request { conversation, policy, facts, recall, marks, terms, sent: past.sent, ending: past.ending };
    let mut standing = past.standing.take().unwrap_or_default();
    request.update_standing(outcome, &mut standing);
    let first_lacks_tools = standing.first_lacks_tools(conversation);
    let is_summarised = facts.compacting || (facts.had_tools && first_lacks_tools);
    let may_change = facts.overflow.is_some() || !is_summarised;
    let due = request.before(&past, outcome, &standing).due(may_change);
    let Due { mut level, event, cut, needs_summary } = due;
    level.reading = standing.measure_velocity(level.prompt_tokens);
    level.growth = standing.growth();
    level.summarised = is_summarised;
    outcome.level = Some(level);
    outcome.needs_summary = needs_summary;
    outcome.recalls = standing.recalls();
    if let Some(event) = event {
        request.carry_out(event, outcome, &mut standing);
    }
    request.mark(cut, outcome, &mut standing);
    outcome.standing = Some(standing);
}

impl Request<'_> {
    /// Brings the standing of the thread up to this request.
    fn update_standing(&self, outcome: &Outcome, standing: &mut Standing) {
        let known = Known { applied: &outcome.applied, sent: self.sent };
        let (is_first, is_forgotten) = (!standing.kept.is_departed(), standing.messages() == 0);
        standing.kept.convert_to_price(self.facts.price);
        standing.advance(self.conversation, known, (self.facts.hidden_bytes, self.facts.prelude), self.terms);
        if self.ending == Ending::Branches && is_first {
            standing.branch(self.terms.rates, is_forgotten);
        }
        if let Some(splice) = outcome.splice.as_deref() {
            standing.take_out(splice);
        }
    }

    /// The request before its event.
    fn before<'b>(&'b self, past: &'b Past<'_>, outcome: &'b Outcome, standing: &'b Standing) -> Before<'b> {
        let Self { conversation, policy, facts, recall, marks, terms, sent, .. } = *self;
        let has_frame = outcome.split.is_some() || marks.is_none_or(Marks::are_before_messages);
        Before {
            conversation,
            policy,
            facts,
            recall,
            standing,
            applied: &outcome.applied,
            splice: outcome.splice.as_deref(),
            ready: past.ready.as_ref(),
            sent,
            bound: reasoning::bound(conversation, past.bound),
            rates: terms.rates,
            anchored: policy.marks.anchors && marks.is_some_and(|marks| marks.free() > 0),
            // Without marks in the history, no entry is lost.
            keeps_frame: !conversation.is_marked()
                || has_frame
                || past.stable.is_some_and(|stable| stable.mark == Some(Access::Read)),
            derived: Derived::default(),
        }
    }

    /// Puts an event into the outcome, and books it.
    fn carry_out(&self, event: DueEvent, outcome: &mut Outcome, standing: &mut Standing) {
        let Self { conversation, facts, terms, sent, .. } = *self;
        let DueEvent { change, uncached_from } = event;
        let price = if facts.cold { 0.0 } else { change.rewritten_bytes as f64 * terms.rates.rewrite() };
        standing.book(change.freed_bytes, price, terms.rates);
        standing.kept.cut(uncached_from);
        if let Some(splice) = &change.splice {
            standing.splice(splice);
        }
        outcome.put(change);
        if outcome.event.as_ref().is_some_and(|event| event.cut > 0) {
            let known = Known { applied: &outcome.applied, sent };
            standing.refold(conversation, known, outcome.splice.as_deref(), terms);
        }
    }

    /// Chooses the marks and records them.
    fn mark(&self, cut: Option<PartId>, outcome: &mut Outcome, standing: &mut Standing) {
        let Self { conversation, facts, sent, .. } = *self;
        let after_pause = standing.kept.record_time(facts.clock());
        let may_be_kept = !facts.caches_without_marks && facts.may_be_kept(conversation.body.len());
        let may_write = self.is_worth_marks(standing);
        // Marking an existing entry again costs nothing extra as long as the provider still has it. If it is gone, it
        // is written once more at the price of writing: this cost is booked, and the stake bounds it.
        let may_read = !conversation.is_marked() && sent > 0;
        if may_be_kept && (may_write || may_read) {
            let anchored = anchors::Anchored { request: self, cut, after_pause, may_write };
            outcome.marks = anchors::place(&anchored, outcome, standing);
        }
        let gone = |message: usize| outcome.drops(message);
        let added = outcome.marks.parts().iter().map(|(part, _)| *part);
        standing.kept.entries.sent(marks::of_client(conversation, &gone).chain(added), facts.now_ms);
    }

    /// Whether marks are worthwhile, since writing to the cache costs extra. A client that marks nothing in the
    /// history may send another history each time (only the newest messages, a transcript to be judged), and would
    /// never read what was written. If all its requests were refused so far, that it repeats them does not show that
    /// it continues the history.
    fn is_worth_marks(&self, standing: &Standing) -> bool {
        if self.conversation.is_marked() {
            self.sent > 0 || self.conversation.messages.iter().any(|message| message.index.has_results())
        } else if standing.kept.was_only_refused() {
            false
        } else {
            // The omission begins within a message, whose earlier parts were sent before.
            let sent = match self.ending {
                Ending::LeftOut(part) if part.part > 0 => self.sent.max(part.message as usize + 1),
                _ => self.sent,
            };
            continues_history(self.conversation, sent)
        }
    }
}

impl Before<'_> {
    /// The event that is due, if the history `may_change`: to make room, or else to save money.
    fn due(&self, may_change: bool) -> Due {
        let mut level = self.level();
        level.clearable_bytes = self.clearable_bytes(&level);
        let room = self.make_room(&level);
        level.can_wait = room.as_ref().is_some_and(|change| self.may_wait(change, &level));
        let room = room.filter(|_| !level.can_wait);
        let room = room.or_else(|| self.thin_out(&level));
        let (change, next) = match room.filter(|_| may_change) {
            Some(change) => (Some(change), None),
            None if may_change && !level.defers => self.clear_for_money(),
            None => (None, None),
        };
        let needs_summary = may_change && self.needs_summary(change.as_ref(), &level);
        let cut = change.as_ref().map_or(next, |change| Some(change.first()));
        let event = change.map(|mut change| {
            let uncached_from = self.uncached_from(&mut change);
            DueEvent { change, uncached_from }
        });
        Due { level, event, cut, needs_summary }
    }
}

/// Cuts the results in the request if the provider, which holds the history, has refused both together as too long.
fn cut_sent_results(
    conversation: &Conversation,
    past: Past<'_>,
    policy: &Policy,
    facts: &Facts,
    recall: RecallSentence<'_>,
    outcome: &mut Outcome,
) {
    let Some(overflow) = facts.overflow else { return };
    let terms = Terms { rates: facts.rates(false), settings: &policy.clear };
    // Everything in the body is new, even if the same body was sent before and refused.
    let past = Past { sent: 0, ..past };
    let request =
        Request { conversation, policy, facts, recall, marks: None, terms, sent: 0, ending: past.ending };
    let standing = Standing::default();
    let before = request.before(&past, outcome, &standing);
    if let Some(change) = before.cut_without_history(overflow) {
        outcome.put(change);
    }
}

/// Whether the request continues the history that was sent: everything that was not sent before is the model's last
/// answer or new with this request.
fn continues_history(conversation: &Conversation, sent: usize) -> bool {
    let unknown = conversation.messages.get(sent..conversation.tail());
    sent > 0 && unknown.is_none_or(|unknown| unknown.iter().all(|message| message.index.role != Role::User))
}
