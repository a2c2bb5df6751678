//! Makes a plan from stored decisions, shapers and events. Pure.
//!
//! Old parts are sent exactly as their stored decisions say, unless the gate lets an event through. Newborn parts are
//! decided here, once. The caller stores the new decisions and saves the full texts before the request leaves, or drops
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
mod shortening;
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
pub use decision::{ARGUMENTS, Applied, CLEAR, Cause, Decision, PartKey, REASONING, Save};
pub use event::Event;
pub use facts::{Facts, Overflow};
pub use level::Level;
pub use opening::has_place as has_place_for_opening;
pub use reasoning::{over_in as reasoning_is_over_in, turn_in_progress};
pub use splice::{Layout, Splice};
pub use standing::{Fate, Standing};
pub use transcript::left_out;

pub use crate::strategy::debt::{Debt, Staked};
pub use crate::strategy::findings::{Expected, Findings, Found, Outlook};

/// The user's settings for planning.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// How new results are shortened.
    pub shape: Settings,
    /// How old results are cleared.
    pub clear: clear::Settings,
    /// How full the window may get.
    pub window: window::Settings,
    /// How room is made when the window is too full.
    pub ladder: ladder::Settings,
    /// Which cache marks may be set.
    pub marks: marks::Settings,
}

impl Policy {
    /// The same policy for conversations that must not be marked.
    fn without_marks(&self) -> Self {
        let marks = marks::Settings { marks: false, anchors: false, ..self.marks };
        Self { marks, ..self.clone() }
    }
}

/// Looks up the stored decisions about several results in one call; `None` for each result without one.
pub type KnownDecisions<'a> = &'a dyn Fn(&[PartKey]) -> Vec<Option<Arc<Decision>>>;

/// What became of the end of the previous request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It is in this request too, or there was no previous request.
    Stands,
    /// It was left out from this part on: text for one request only, such as a state or a reminder.
    LeftOut(PartId),
    /// Another request continues from there as well.
    Branches,
}

/// What is known of a request's past.
#[derive(Clone)]
pub struct Past<'a> {
    /// The number of messages that were sent before.
    pub sent: usize,
    /// What became of the end of the previous request.
    pub ending: Ending,
    /// The decisions about the messages that were sent before.
    pub applied: &'a [Applied],
    /// Looks up decisions about results in a history that is not known as a whole.
    pub known_decisions: KnownDecisions<'a>,
    /// What the plan of the previous request left for this one, if it is still there.
    pub standing: Option<Box<Standing>>,
    /// The splice in force.
    pub splice: Option<Arc<Splice>>,
    /// Where the instructions stop being the same in every conversation, if known.
    pub stable: Option<Stable>,
    /// A splice that is prepared and can be applied when the window demands it, such as a summary.
    pub ready: Option<Splice>,
    /// Text to add below the user's first words, if the conversation begins with this request.
    pub opening: Option<&'a str>,
    /// The number of messages in the last request to a model that refuses its own reasoning if anything before it has
    /// changed; 0 if there was none.
    pub bound: usize,
}

impl Past<'_> {
    /// The past of a request of which nothing is known.
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

/// What to do with a request.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The operations of all decisions, stored and new.
    pub plan: Plan,
    /// All decisions in force, the new ones last.
    pub applied: Vec<Applied>,
    /// How many of these are new and must be stored.
    pub fresh: usize,
    /// The full texts that new decisions refer to.
    pub saves: Vec<Save>,
    /// The splice in force. Decisions about messages that it drops are not listed.
    pub splice: Option<Arc<Splice>>,
    /// Whether the splice is new and must be stored.
    pub spliced: bool,
    /// The change to old parts, if there is one.
    pub event: Option<Event>,
    /// The decision that splits the instructions.
    split: Option<Arc<Decision>>,
    /// The decisions that the event's decisions have replaced.
    replaced: Vec<Applied>,
    /// The splice that the event's splice has replaced.
    former: Option<Arc<Splice>>,
    /// How full the window is, before the event.
    pub level: Option<Level>,
    /// A summary is needed: without one old messages are dropped, new results are cut, or the prompt does not fit.
    pub needs_summary: bool,
    /// Repeated calls in this request whose earlier result had been cleared.
    pub recalls: u32,
    /// The cache marks to add.
    pub marks: Chosen,
    /// Carried over to the thread's next request.
    pub standing: Option<Box<Standing>>,
}

impl Outcome {
    /// Whether anything new was decided that must be stored.
    pub fn is_fresh(&self) -> bool {
        self.fresh > 0 || self.spliced
    }

    /// Whether room must be made and no summary makes it, although one could.
    pub fn lacks_summary(&self, settings: &window::Settings) -> bool {
        let is_full = self.level.is_some_and(|level| level.is_full(settings));
        self.event
            .as_ref()
            .map_or(is_full, |event| event.rung != Rung::Summary && (is_full || event.dropped > 0))
    }

    /// Undoes the new decisions and the event. Earlier decisions are in force again.
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

    /// Removes the cache mark after the frame.
    pub fn leave_frame_unmarked(&mut self) {
        self.marks.frame = None;
        self.operate();
    }

    /// Removes all cache marks.
    pub fn leave_unmarked(&mut self) {
        self.marks = Chosen::default();
        self.operate();
    }

    /// Builds the plan from the decisions and marks.
    fn operate(&mut self) {
        let marks = self.marks.parts().iter().map(|(part, hold)| Op::Mark { part: *part, hold: *hold });
        let spliced = self.splice.iter().flat_map(|splice| splice.operations());
        let decided = self.applied.iter().filter(|applied| !applied.decision.is_split()).map(operation);
        let split = split::operation(self.split.as_deref(), self.marks.frame);
        self.plan.ops = split.into_iter().chain(decided).chain(marks).chain(spliced).collect();
        opening::join(&mut self.plan.ops);
    }

    /// Whether a message is dropped.
    fn drops(&self, message: usize) -> bool {
        self.splice.as_ref().is_some_and(|splice| splice.drops(message))
    }

    /// Puts the event's decisions in place of those about the same parts, and its splice in place of the one in
    /// force. Decisions about messages that the splice drops are replaced too.
    fn put(&mut self, change: event::Change) {
        self.event = Some(change.event());
        let event::Change { decided, saves, splice, .. } = change;
        let parts = decision::parts(&decided, |_| true);
        let is_replaced = |applied: &Applied| {
            let message = applied.part.message as usize;
            parts.contains(&applied.part) || splice.as_ref().is_some_and(|splice| splice.drops(message))
        };
        // New decisions that are replaced have never been sent, so they need not be remembered.
        let old = self.applied.len() - self.fresh;
        let mut fresh = self.applied.split_off(old);
        fresh.retain(|applied| !is_replaced(applied));
        (self.replaced, self.applied) = std::mem::take(&mut self.applied).into_iter().partition(is_replaced);
        self.fresh = fresh.len() + decided.len();
        self.applied.extend(fresh);
        self.applied.extend(decided);
        self.saves.extend(saves);
        if let Some(splice) = splice {
            (self.former, self.spliced) = (self.splice.replace(splice.into()), true);
        }
    }
}

/// The sentence that tells a model where the full text with this id is.
pub type RecallSentence<'a> = &'a dyn Fn(&str) -> String;

/// Plans one request: applies the stored decisions, decides newborn parts, and has an event made if one is due.
pub fn plan(
    conversation: &Conversation,
    past: Past<'_>,
    policy: &Policy,
    facts: &Facts,
    recall: RecallSentence<'_>,
) -> Outcome {
    let carriers = conversation.marks.as_ref().map(|marks| marks.carriers);
    let unmarked = (carriers == Some(Carriers::Nothing)).then(|| policy.without_marks());
    let policy = unmarked.as_ref().unwrap_or(policy);
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
    apply_known(conversation, &past, past.sent..conversation.tail(), &mut outcome);
    decide_newborn(conversation, &past, policy, facts, recall, &mut outcome);
    let (sent, stable) = (past.sent, past.stable);
    if let Some(text) = past.opening.filter(|_| past.sent == 0) {
        outcome.applied.extend(opening::decide(conversation, text).inspect(|_| outcome.fresh += 1));
    }
    old::decide(conversation, past, policy, facts, recall, &mut outcome);
    if policy.marks.marks && !facts.caches_without_marks {
        split::mark(conversation, sent, stable, facts, &mut outcome);
    }
    outcome.operate();
    outcome
}

/// Decides how the results that are new with the request are sent. Nothing is decided if the prompt would get too short
/// for the provider's cache.
fn decide_newborn(
    conversation: &Conversation,
    past: &Past<'_>,
    policy: &Policy,
    facts: &Facts,
    recall: RecallSentence<'_>,
    outcome: &mut Outcome,
) {
    let (old, saves) = (outcome.applied.len(), outcome.saves.len());
    let mut view = newborn::View::new(past.applied);
    for message in past.sent.max(conversation.tail())..conversation.messages.len() {
        for (id, part) in conversation.parts_of(message) {
            if part.kind() == PartKind::ToolResult {
                newborn::decide(conversation, id, &policy.shape, recall, &mut view, outcome);
            }
        }
    }
    let fresh = outcome.applied.len() - old;
    if fresh > 0 && cache_minimum::falls_short(conversation, &outcome.applied, fresh, facts) {
        outcome.applied.truncate(old);
        outcome.saves.truncate(saves);
        outcome.fresh -= fresh;
    }
}

/// Whether a decision still fits the part that it names: the part must have the same content as when it was decided, in
/// a form that can be edited.
fn fits(conversation: &Conversation, applied: &Applied) -> bool {
    conversation.part(applied.part).is_some_and(|part| match part.kind() {
        PartKind::ToolResult => {
            part.content() == Some(applied.decision.content) && takes(part, &applied.decision.leaves)
        }
        // All reasoning of the message is removed, so its spelling does not matter.
        PartKind::Thinking => applied.decision.is_omission() && part.slots().is_some(),
        PartKind::ToolCall => arguments::fits(conversation, applied),
        PartKind::Text => applied.decision.is_opening() && opening::fits(conversation, applied),
        _ => false,
    })
}

/// Applies earlier decisions to parts of a history that is not known as a whole, because the client has compacted or
/// edited it. Decisions about the very same results still apply. Everything else there is old and stays as it is.
fn apply_known(
    conversation: &Conversation,
    past: &Past<'_>,
    messages: std::ops::Range<usize>,
    outcome: &mut Outcome,
) {
    let with_key = |(id, part): (PartId, &Part)| {
        let content = part.content().or_else(|| arguments::content(conversation, id));
        Some((id, PartKey::of(part.call_id(), content?)?))
    };
    let parts = messages.flat_map(|message| conversation.parts_of(message));
    let (parts, keys): (Vec<PartId>, Vec<PartKey>) = parts.filter_map(with_key).unzip();
    if keys.is_empty() {
        return;
    }
    for (part, decision) in parts.into_iter().zip((past.known_decisions)(&keys)) {
        let Some(decision) = decision else { continue };
        let applied = Applied { part, decision };
        let stands = || {
            applied.decision.stands_alone() || newborn::points_to_readable(conversation, outcome, &applied)
        };
        if fits(conversation, &applied) && stands() {
            outcome.saves.extend(save(conversation, &applied));
            outcome.applied.push(applied);
            outcome.fresh += 1;
        }
    }
}

/// The full text that a known decision refers to. It is saved again, because the saved one may have expired.
fn save(conversation: &Conversation, applied: &Applied) -> Option<Save> {
    let id = applied.decision.output.clone()?;
    Some(Save { id, text: full_text(conversation, applied)? })
}

/// The arguments of a call as they are sent with this decision; `None` if they cannot be read.
pub fn sent_arguments(conversation: &Conversation, applied: &Applied) -> Option<String> {
    arguments::with_edits(conversation, applied.part, &applied.decision.leaves)
}

/// The full text that a decision refers to, from the request; `None` if it cannot be read.
pub fn full_text(conversation: &Conversation, applied: &Applied) -> Option<String> {
    if applied.decision.is_abridgement() {
        return arguments::full(conversation, &applied.decision, applied.part);
    }
    let texts = conversation.texts(applied.part)?;
    // Older gateways joined several texts without line breaks, and named the file by the result.
    let is_of_old = || applied.decision.output != Some(decision::output_id(&texts));
    Some(if texts.len() > 1 && is_of_old() { texts.concat() } else { Save::of(&texts).text })
}

/// The operation that carries out a decision.
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
