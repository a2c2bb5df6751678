//! From stored decisions and shapers to a plan. Pure.
//!
//! Old parts get exactly what was stored for them, unless the gate lets an event through. Newborn parts are
//! decided here, once; the caller stores the decisions and saves the full texts before anything leaves, or drops
//! both.

mod action;
mod anchors;
mod arguments;
mod cache_minimum;
mod cleared;
pub mod cuts;
pub mod decision;
mod event;
mod facts;
mod level;
mod message_limit;
mod newborn;
mod old;
mod opening;
mod patience;
mod read_back;
mod reasoning;
mod rewriting;
mod room;
pub mod splice;
mod split;
mod standing;
mod transcript;

use std::sync::Arc;

use crate::conversation::{Carriers, Conversation, Part, PartId, PartKind};
use crate::plan::{Op, Plan, takes};
use crate::shape::Settings;
use crate::strategy::ladder::Rung;
use crate::strategy::marks::{self, Chosen};
use crate::strategy::system::Stable;
use crate::strategy::{clear, ladder, window};

pub use action::written as written_files;
pub use cuts::Cut;
pub use decision::{ARGUMENTS, Applied, CLEAR, Decision, PartKey, REASONING, Save};
pub use event::Event;
pub use facts::{Facts, Overflow};
pub use level::Level;
pub use opening::has_place as has_place_for_opening;
pub use reasoning::{over_in as reasoning_is_over_in, turn_in_progress};
pub use splice::{Layout, Splice};
pub use standing::{Fate, Standing};
pub use transcript::left_out;

pub use crate::strategy::findings::{Expected, Findings, Found, Outlook};
pub use crate::strategy::marks::Wager;

/// What the user wants.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// How newborn results are shortened.
    pub shape: Settings,
    /// How old ones are cleared.
    pub clear: clear::Settings,
    /// How full the window may get.
    pub window: window::Settings,
    /// What is done when it is too full.
    pub ladder: ladder::Settings,
    /// What may be done about cache marks.
    pub marks: marks::Settings,
}

impl Policy {
    /// The same for conversations that are not to be marked.
    fn without_marks(&self) -> Self {
        let marks = marks::Settings { marks: false, anchors: false, ..self.marks };
        Self { marks, ..self.clone() }
    }
}

/// What was once decided about each of some results, if anything. Asked for all at once.
pub type KnownDecisions<'a> = &'a dyn Fn(&[PartKey]) -> Vec<Option<Arc<Decision>>>;

/// What has become of the end of the request that another one goes on from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It stands in this one too, or there was none.
    Stands,
    /// It was left out from this part on: words that hold for one request, a state or a reminder.
    LeftOut(PartId),
    /// Another request goes on from there too.
    Branches,
}

/// What is known of a request's past.
#[derive(Clone)]
pub struct Past<'a> {
    /// The first so many messages were sent before.
    pub sent: usize,
    /// What has become of the end of the request that it goes on from.
    pub ending: Ending,
    /// What was decided about their parts.
    pub applied: &'a [Applied],
    /// What is known of results that stand in an unknown history.
    pub known_decisions: KnownDecisions<'a>,
    /// What the plan of the last request of this history left for this one, if it is still there.
    pub standing: Option<Box<Standing>>,
    /// The splice in force.
    pub splice: Option<Arc<Splice>>,
    /// Where the instructions stop being the same from conversation to conversation, if that is known.
    pub stable: Option<Stable>,
    /// A splice that could be made now: what takes time to make, and is there. It is made when the window demands
    /// it.
    pub ready: Option<Splice>,
    /// What is said below the user's first words if the conversation begins with this request.
    pub opening: Option<&'a str>,
    /// Messages of the last request, if any, to a model that binds what it thinks, and refuses it where something before
    /// it has changed.
    pub bound: usize,
}

impl Past<'_> {
    /// Nothing is known.
    pub const fn nothing() -> Self {
        Self {
            sent: 0,
            ending: Ending::Stands,
            applied: &[],
            known_decisions: &|_| Vec::new(),
            standing: None,
            splice: None,
            stable: None,
            ready: None,
            opening: None,
            bound: 0,
        }
    }
}

/// What shall be done with a request.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The operations: stored and new decisions alike.
    pub plan: Plan,
    /// All decisions in force: old ones, and behind them the new ones.
    pub applied: Vec<Applied>,
    /// How many of them are new, the last ones; these are the ones to store.
    pub fresh: usize,
    /// Full texts that new decisions refer to.
    pub saves: Vec<Save>,
    /// The splice in force. What was decided about messages that it takes is not among the decisions.
    pub splice: Option<Arc<Splice>>,
    /// The splice was made with this request, and is to be stored.
    pub spliced: bool,
    /// The change to old parts, if there is one.
    pub event: Option<Event>,
    /// How the instructions are divided.
    split: Option<Arc<Decision>>,
    /// The decisions that the event's took the place of.
    replaced: Vec<Applied>,
    /// The splice that the event's took the place of.
    former: Option<Arc<Splice>>,
    /// How full the window is, before the event.
    pub level: Option<Level>,
    /// Without a summary old messages go, new results are cut, or the prompt does not fit.
    pub needs_summary: bool,
    /// Calls that came with this request although their results had been there, and were cleared.
    pub recalls: u32,
    /// The cache marks that are added.
    pub marks: Chosen,
    /// For the thread's next request, which takes it.
    pub standing: Option<Box<Standing>>,
}

impl Outcome {
    /// Whether something was decided that is to be stored.
    pub fn is_fresh(&self) -> bool {
        self.fresh > 0 || self.spliced
    }

    /// Whether room is to be made and no summary makes it, although one could.
    pub fn lacks_summary(&self, settings: &window::Settings) -> bool {
        let is_full = self.level.is_some_and(|level| level.is_full(settings));
        self.event
            .as_ref()
            .map_or(is_full, |event| event.rung != Rung::Ready && (is_full || event.dropped > 0))
    }

    /// Takes back what was decided now, and the event with it; what was decided before stays.
    pub fn forget_fresh(&mut self) {
        let old = self.applied.len() - std::mem::take(&mut self.fresh);
        self.applied.truncate(old);
        self.applied.append(&mut self.replaced);
        if std::mem::take(&mut self.spliced) {
            self.splice = self.former.take();
        }
        self.saves.clear();
        self.event = None;
        self.split = self.split.take().filter(|split| self.applied.iter().any(|a| a.decision == *split));
        self.operate();
    }

    /// Adds no cache mark behind what stands before the messages.
    pub fn leave_frame_unmarked(&mut self) {
        self.marks.frame = None;
        self.operate();
    }

    /// Adds no cache marks.
    pub fn leave_unmarked(&mut self) {
        self.marks = Chosen::default();
        self.operate();
    }

    /// Makes the plan of the decisions and marks.
    fn operate(&mut self) {
        let marks = self.marks.parts().iter().map(|(part, hold)| Op::Mark { part: *part, hold: *hold });
        let spliced = self.splice.iter().flat_map(|splice| splice.operations());
        let decided = self.applied.iter().filter(|applied| !applied.decision.is_split()).map(operation);
        let split = split::operation(self.split.as_deref(), self.marks.frame);
        self.plan.ops = split.into_iter().chain(decided).chain(marks).chain(spliced).collect();
        opening::join(&mut self.plan.ops);
    }

    /// Whether a message is not sent.
    fn drops(&self, message: usize) -> bool {
        self.splice.as_ref().is_some_and(|splice| splice.drops(message))
    }

    /// Puts the event's decisions in place of those about the same parts, and its splice in place of the one in
    /// force. What was decided about messages that a splice takes rests.
    fn put(&mut self, change: event::Change) {
        let event::Change { decided, saves, splice, event } = change;
        let parts: std::collections::HashSet<PartId> = decided.iter().map(|applied| applied.part).collect();
        let rests = |applied: &Applied| {
            let message = applied.part.message as usize;
            parts.contains(&applied.part) || splice.as_ref().is_some_and(|splice| splice.drops(message))
        };
        // What was decided with this very request, and is decided otherwise now, has never been.
        let old = self.applied.len() - self.fresh;
        let mut fresh = self.applied.split_off(old);
        fresh.retain(|applied| !rests(applied));
        (self.replaced, self.applied) = std::mem::take(&mut self.applied).into_iter().partition(rests);
        self.fresh = fresh.len() + decided.len();
        self.applied.extend(fresh);
        self.applied.extend(decided);
        self.saves.extend(saves);
        self.event = Some(event);
        if let Some(splice) = splice {
            (self.former, self.spliced) = (self.splice.replace(splice.into()), true);
        }
    }
}

/// Where a model finds the full text: a ready sentence for an output's id.
pub type Recall<'a> = &'a dyn Fn(&str) -> String;

/// Plans one request.
pub fn plan(
    conversation: &Conversation,
    past: Past<'_>,
    policy: &Policy,
    facts: &Facts,
    recall: Recall<'_>,
) -> Outcome {
    let carriers = conversation.marks.as_ref().map(|marks| marks.carriers);
    let own = (carriers == Some(Carriers::Nothing)).then(|| policy.without_marks());
    let policy = own.as_ref().unwrap_or(policy);
    let splice = past.splice.clone().filter(|splice| splice.fits(conversation));
    let mut outcome = Outcome { splice, ..Outcome::default() };
    for applied in past.applied {
        let stays = applied.decision.is_split() || fits(conversation, applied);
        if stays && !outcome.drops(applied.part.message as usize) {
            outcome.applied.push(applied.clone());
        }
    }
    reasoning::leave_out(conversation, past.applied, &mut outcome);
    split::place(conversation, &past, policy, &mut outcome);
    let tail = conversation.tail();
    apply_known(conversation, &past, past.sent..tail, &mut outcome);
    let (old, saves) = (outcome.applied.len(), outcome.saves.len());
    let mut view = newborn::View::new(past.applied);
    for message in past.sent.max(tail)..conversation.messages.len() {
        for (id, part) in conversation.parts_of(message) {
            if part.kind == PartKind::ToolResult {
                newborn::decide(conversation, id, &policy.shape, recall, &mut view, &mut outcome);
            }
        }
    }
    let fresh = outcome.applied.len() - old;
    let newborn = cache_minimum::Newborn { conversation, applied: &outcome.applied, fresh, facts };
    if fresh > 0 && newborn.falls_short() {
        outcome.applied.truncate(old);
        outcome.saves.truncate(saves);
        outcome.fresh -= fresh;
    }
    let known = (past.sent, past.stable);
    if let Some(text) = past.opening.filter(|_| past.sent == 0) {
        outcome.applied.extend(opening::decide(conversation, text).inspect(|_| outcome.fresh += 1));
    }
    old::decide(conversation, past, policy, facts, recall, &mut outcome);
    if !facts.caches_without_marks {
        split::mark(conversation, known, (policy, facts), &mut outcome);
    }
    outcome.operate();
    outcome
}

/// A decision fits the part it names only if the part still says what it said then, in a form that it can be changed in.
fn fits(conversation: &Conversation, applied: &Applied) -> bool {
    conversation.part(applied.part).is_some_and(|part| match part.kind {
        PartKind::ToolResult => {
            part.content == Some(applied.decision.content) && takes(part, &applied.decision.leaves)
        }
        // All of the message's reasoning goes, so it does not matter how the client spells it.
        PartKind::Thinking => applied.decision.is_omission() && part.slots.is_some(),
        PartKind::ToolCall => arguments::fits(conversation, applied),
        PartKind::Text => applied.decision.is_opening() && opening::fits(conversation, applied),
        _ => false,
    })
}

/// Parts of a history that is not known as a whole (the client compacted or edited it): what was decided about
/// the very same result before still holds; everything else there is old and stays as it is.
fn apply_known(
    conversation: &Conversation,
    past: &Past<'_>,
    messages: std::ops::Range<usize>,
    outcome: &mut Outcome,
) {
    let keyed = |(id, part): (PartId, &Part)| {
        let content = part.content.or_else(|| arguments::content(conversation, id));
        Some((id, PartKey::of(part.call_id.as_deref(), content?)?))
    };
    let parts = messages.flat_map(|message| conversation.parts_of(message));
    let (parts, keys): (Vec<PartId>, Vec<PartKey>) = parts.filter_map(keyed).unzip();
    if keys.is_empty() {
        return;
    }
    for (part, decision) in parts.into_iter().zip((past.known_decisions)(&keys)) {
        let Some(decision) = decision else { continue };
        let applied = Applied { part, decision };
        let stands = || {
            applied.decision.stands_alone()
                || newborn::points_to_what_is_there(conversation, outcome, &applied)
        };
        if fits(conversation, &applied) && stands() {
            outcome.saves.extend(save(conversation, &applied));
            outcome.applied.push(applied);
            outcome.fresh += 1;
        }
    }
}

/// The full text that a known decision cites: it may have been swept since.
fn save(conversation: &Conversation, applied: &Applied) -> Option<Save> {
    let id = applied.decision.output.clone()?;
    Some(Save { id, text: full_text(conversation, applied)? })
}

/// The arguments of a call as a decision about it has them sent.
pub fn sent_arguments(conversation: &Conversation, applied: &Applied) -> Option<String> {
    arguments::sent(conversation, applied.part, &applied.decision.leaves)
}

/// The full text that a decision refers to, as the client has sent it again; `None` if it cannot be read.
pub fn full_text(conversation: &Conversation, applied: &Applied) -> Option<String> {
    if applied.decision.is_abridgement() {
        return arguments::full(conversation, &applied.decision, applied.part);
    }
    let texts = conversation.texts(applied.part)?;
    // Older gateways saved several texts without a line's end between them, and named the file by that.
    let is_of_old = || applied.decision.output != Some(decision::output_id(&texts));
    Some(if texts.len() > 1 && is_of_old() { texts.concat() } else { Save::of(&texts).text })
}

fn operation(applied: &Applied) -> Op {
    if applied.decision.is_omission() {
        return Op::Omit { part: applied.part };
    }
    if let Some((leaf, text)) = opening::of(&applied.decision) {
        return Op::Append { part: applied.part, leaf, text };
    }
    Op::Text { part: applied.part, leaves: applied.decision.leaves.clone() }
}

#[cfg(test)]
mod tests;
