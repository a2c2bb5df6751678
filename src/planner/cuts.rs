//! Where a history may be cut, and what a splice up to each such place would drop.
//!
//! The history is walked from place to place, beginning after the head of the conversation. Messages are dropped in
//! whole units, the messages between two places. What remains around a gap must be a sequence that providers accept, so
//! some messages of a dropped unit may have to stay. This module does not judge which cut is best.

use std::ops::Range;

use super::reasoning::{can_go, sealed};
use super::splice::{Layout, Splice, last_text};
use crate::conversation::{Conversation, Part, PartId, PartKind, Role};
use crate::plan::{self, Plan};
use crate::usage::Binding;

/// The most ranges that the cuts at all places may have together. A fragmented history has many ranges at each place;
/// beyond this number every second place is left out.
const MAX_RANGES: usize = 1 << 20;

/// A place where a history may be cut, and what a splice up to it would drop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The first message after it.
    pub end: usize,
    /// Whether a turn of the user's begins there; otherwise it is a step of the newest turn.
    pub is_turn: bool,
    dropped: Dropped,
    /// The user's question that begins the newest turn, if the cut is within that turn. It stays.
    question: Option<usize>,
    /// The message before which the text must be inserted, if any: it could not follow the message that would
    /// otherwise precede it.
    text_before: Option<usize>,
    /// The first message after the head of the conversation.
    head: usize,
}

impl Cut {
    /// Bytes of the dropped messages that are text.
    pub fn bytes(&self) -> u64 {
        self.dropped.bytes
    }

    /// The dropped messages.
    pub fn messages(&self) -> impl Iterator<Item = usize> + '_ {
        self.ranges().flatten()
    }

    /// The sum over the dropped messages, given the prefix sums `before` each message.
    pub fn total(&self, before: &[u64]) -> u64 {
        self.ranges().map(|range| before[range.end] - before[range.start]).sum()
    }

    /// How many messages are dropped.
    pub(super) fn count(&self) -> usize {
        self.ranges().map(|range| range.len()).sum()
    }

    /// Whether all of these messages, given in order, are dropped.
    pub(super) fn drops_all(&self, messages: &[usize]) -> bool {
        let before = |end: usize| messages.partition_point(|message| *message < end);
        self.ranges().map(|range| before(range.end) - before(range.start)).sum::<usize>() == messages.len()
    }

    /// The ranges of dropped messages, ascending and disjoint.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.dropped.ranges.iter().map(|(first, end)| *first as usize..*end as usize)
    }

    /// The splice that makes this cut and inserts `text`, in the requested layout if that is possible, else in another
    /// one. Within a turn the text goes before the question that begins the turn.
    ///
    /// `None` if no layout gives a request that providers accept.
    pub fn splice(
        &self,
        conversation: &Conversation,
        rule: &str,
        text: &str,
        layout: &Layout,
    ) -> Option<Splice> {
        let before = self.text_before.or(self.question).unwrap_or(self.end);
        let splice = |layout: &Layout, at, leaf| Splice {
            rule: rule.into(),
            drops: self.dropped.ranges.clone().into(),
            layout: layout.clone(),
            at,
            leaf,
            text: text.into(),
            bytes_before: self.dropped.bytes,
            output: None,
        };
        let inserted = |layout| splice(layout, PartId { message: before as u32, part: 0 }, 0);
        let appended =
            || last_text(conversation, self.head).map(|(at, leaf)| splice(&Layout::Appended, at, leaf));
        let wanted = if *layout == Layout::Appended || (!self.is_turn && self.question.is_none()) {
            appended()
        } else {
            Some(inserted(layout))
        };
        let others = [appended(), Some(inserted(&Layout::Answer)), Some(inserted(&Layout::User))];
        std::iter::once(wanted).chain(others).flatten().find(|splice| {
            let plan = Plan { ops: splice.operations() };
            plan::check(conversation, &plan).is_ok()
        })
    }
}

/// The messages that a cut drops.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Dropped {
    /// Disjoint ranges `first..end`, ascending.
    ranges: Vec<(u32, u32)>,
    /// Bytes of these messages that are text.
    bytes: u64,
}

impl Dropped {
    /// Adds a message, which must come after all others.
    fn add(&mut self, conversation: &Conversation, message: usize) {
        self.bytes += conversation.messages[message].read_len() as u64;
        let at = message as u32;
        match self.ranges.last_mut() {
            Some((_, end)) if *end == at => *end = at + 1,
            _ => self.ranges.push((at, at + 1)),
        }
    }

    /// Keeps a message: removes it, if it is one of the dropped ones.
    fn keep(&mut self, conversation: &Conversation, message: usize) {
        let at = message as u32;
        let holds = |(first, end): &(u32, u32)| (*first..*end).contains(&at);
        let Some(range) = self.ranges.iter().position(holds) else { return };
        let (first, end) = self.ranges[range];
        let rest = [(first, at), (at + 1, end)].into_iter().filter(|(first, end)| first < end);
        self.ranges.splice(range..=range, rest);
        self.bytes -= conversation.messages[message].read_len() as u64;
    }

    /// The gap right before a message that stays, and the role of the message before the gap; `None` if there is no gap
    /// there.
    fn gap(&self, conversation: &Conversation, stays: usize) -> Option<(Range<usize>, Role)> {
        let at = self.ranges.partition_point(|(_, end)| (*end as usize) < stays);
        let gap = self.ranges.get(at).map(|(first, end)| *first as usize..*end as usize)?;
        let before = gap.start.checked_sub(1).filter(|_| gap.end == stays)?;
        Some((gap, conversation.messages[before].index.role))
    }
}

/// The places where a history may be cut, in order. Each cut drops everything that the splice in force, `since`, has
/// dropped.
///
/// If the model's reasoning is `bound`, nothing before a message whose reasoning cannot be removed may change while
/// that message is sent. Every cut therefore drops all such messages. No place is after message `sent`, nor within the
/// step in progress.
pub fn cuts(
    conversation: &Conversation,
    since: Option<&Splice>,
    bound: Option<Binding>,
    sent: usize,
) -> Vec<Cut> {
    let sealed = sealed(conversation, bound);
    let Some(mut walk) = Walk::new(conversation, since, &sealed) else { return Vec::new() };
    let last = conversation.tail().min(sent).min(conversation.messages.len().saturating_sub(1));
    let (mut cuts, mut ranges) = (Vec::new(), 0);
    for end in walk.head + 1..=last {
        // Calls that the provider executes and their results are dropped together.
        if !starts(conversation, end) || walk.hosted.divides(end) {
            continue;
        }
        walk.go_to(end);
        if let Some(cut) = walk.cut().filter(|cut| cut.drops_all(&sealed)) {
            ranges += cut.dropped.ranges.len();
            cuts.push(cut);
        }
        if ranges > MAX_RANGES {
            thin_out(&mut cuts);
            ranges = cuts.iter().map(|cut| cut.dropped.ranges.len()).sum();
        }
    }
    cuts
}

/// A walk through a history from its head on, place by place.
struct Walk<'c> {
    conversation: &'c Conversation,
    /// The splice in force.
    since: Option<&'c Splice>,
    /// Messages with bound reasoning that cannot be removed, ascending: nothing before them may change while they are
    /// sent.
    sealed: &'c [usize],
    hosted: Hosted,
    /// The first message after the head of the conversation.
    head: usize,
    /// The user's last question before the step in progress.
    newest_question: usize,
    /// The place that the walk has reached.
    at: usize,
    /// What a cut here would drop.
    dropped: Dropped,
    /// Dropped messages whose neighbours could not follow each other, so that the text must be inserted in their place.
    /// There is only one text, so there is at most one such gap.
    text_gap: Option<Range<usize>>,
}

impl<'c> Walk<'c> {
    /// `None` if there is nothing after the head, or if the provider holds the history.
    fn new(conversation: &'c Conversation, since: Option<&'c Splice>, sealed: &'c [usize]) -> Option<Self> {
        let messages = &conversation.messages;
        let first_user = messages.iter().position(|message| message.index.starts_turn())?;
        let is_answer = |at: &usize| messages[*at].index.role == Role::Assistant;
        let head = (first_user..messages.len()).find(is_answer)?;
        if conversation.continues.is_some() {
            return None;
        }
        let before_tail = &messages[..conversation.tail()];
        let newest = before_tail.iter().rposition(|message| message.index.starts_turn());
        Some(Self {
            conversation,
            since,
            sealed,
            hosted: Hosted::of(conversation),
            head,
            newest_question: newest.unwrap_or(first_user),
            at: head,
            dropped: Dropped::default(),
            text_gap: None,
        })
    }

    /// Advances to the next place. The messages up to it are dropped or kept as a unit.
    fn go_to(&mut self, end: usize) {
        let mut needed = self.drop_unit(self.at..end);
        if let Some(gone) = needed.take_if(|needed| self.must_go(needed)) {
            (needed, self.text_gap) = self.place_text(gone.start..self.at);
        }
        needed.into_iter().flatten().for_each(|at| self.dropped.keep(self.conversation, at));
        self.at = end;
    }

    /// Fills a gap whose neighbours cannot follow each other, although the messages needed between them must be
    /// dropped: with the text or, if an earlier gap already has it, with an answer in one of the two gaps. Returns the
    /// messages of that answer, and the gap where the text goes.
    fn place_text(&self, gap: Range<usize>) -> (Option<Range<usize>>, Option<Range<usize>>) {
        let Some(earlier) = self.text_gap.clone() else { return (None, Some(gap)) };
        if let answer @ Some(_) = self.shortest_answer(gap.clone()) {
            return (answer, Some(earlier));
        }
        (self.shortest_answer(earlier), Some(gap))
    }

    /// Whether the splice in force has dropped one of these messages. A dropped message never comes back.
    fn was_dropped(&self, messages: &Range<usize>) -> bool {
        self.since.is_some_and(|since| messages.clone().any(|at| since.drops(at)))
    }

    /// Whether one of these messages cannot be kept: it was dropped before, or nothing before it could change.
    fn must_go(&self, messages: &Range<usize>) -> bool {
        self.was_dropped(messages) || messages.clone().any(|at| self.sealed.binary_search(&at).is_ok())
    }

    /// The cut at the place reached, if one is allowed.
    fn cut(&self) -> Option<Cut> {
        let (conversation, end) = (self.conversation, self.at);
        let is_turn = conversation.messages[end].index.starts_turn();
        let least = self.since.map_or(self.head, Splice::end);
        // A finished turn is dropped as a whole or not at all. In the newest turn, the question stays.
        if end <= least || self.dropped.ranges.is_empty() || (!is_turn && end < self.newest_question) {
            return None;
        }
        let question = (!is_turn && self.newest_question >= self.head).then_some(self.newest_question);
        let mut dropped = self.dropped.clone();
        if let Some(question) = question {
            dropped.keep(conversation, question);
        }
        let mut text_gap = self.text_gap.clone();
        if text_gap.is_some() {
            // The text is inserted elsewhere, so it cannot separate a system note from the user message here.
            let user = question.unwrap_or(end);
            let mut needed = self.answer_after_note(user, &dropped);
            if let Some(gone) = needed.take_if(|needed| self.must_go(needed)) {
                (needed, text_gap) = self.place_text(gone.start..user);
            }
            needed.into_iter().flatten().for_each(|at| dropped.keep(conversation, at));
        }
        if dropped.ranges.is_empty() {
            return None;
        }
        let text_before = text_gap.map(|gap| gap.end);
        Some(Cut { end, is_turn, dropped, question, text_before, head: self.head })
    }

    /// Drops a unit: everything but system notes, or nothing if a part of it is not understood.
    ///
    /// What remains around a gap must be a sequence that providers accept: no answer after an answer, no system note
    /// before a user message, no system note after an answer. Returns the messages that must be kept for that.
    fn drop_unit(&mut self, messages: Range<usize>) -> Option<Range<usize>> {
        let index = |at: usize| &self.conversation.messages[at].index;
        let is_opaque = |at: usize| index(at).parts.iter().any(|part| part.kind() == PartKind::Opaque);
        // Tool definitions must stay, unless the splice in force has dropped them already.
        let has_tools = |at: usize| {
            index(at).parts.iter().any(Part::has_tools) && self.since.is_none_or(|since| !since.drops(at))
        };
        if messages.clone().any(|at| is_opaque(at) || has_tools(at) || self.hosted.unpaired[at]) {
            let question = self.question_between_answers(messages.start);
            return question.or_else(|| self.answer_after_note(messages.start, &self.dropped));
        }
        for at in messages.clone().filter(|at| index(*at).role != Role::System) {
            self.dropped.add(self.conversation, at);
        }
        self.words_before_note(messages)
    }

    /// The user's words before the first system note that stays, if the note would otherwise follow an answer.
    fn words_before_note(&self, mut messages: Range<usize>) -> Option<Range<usize>> {
        let index = |at: usize| &self.conversation.messages[at].index;
        let note = messages.find(|at| index(*at).role == Role::System)?;
        let (mut gap, before) = self.dropped.gap(self.conversation, note)?;
        if before != Role::Assistant {
            return None;
        }
        let words = gap.rfind(|at| index(*at).starts_turn())?;
        Some(words..words + 1)
    }

    /// The user's question before an answer that stays, if the answer would otherwise follow another one.
    fn question_between_answers(&self, answer: usize) -> Option<Range<usize>> {
        let (mut gap, before) = self.dropped.gap(self.conversation, answer)?;
        let index = |at: usize| &self.conversation.messages[at].index;
        if before != Role::Assistant || index(answer).role != Role::Assistant {
            return None;
        }
        let question = gap.rfind(|at| index(*at).starts_turn())?;
        Some(question..question + 1)
    }

    /// The messages to keep after a system note that stays, as few as possible, if a user message would otherwise
    /// follow it.
    fn answer_after_note(&self, user: usize, dropped: &Dropped) -> Option<Range<usize>> {
        let (gap, before) = dropped.gap(self.conversation, user)?;
        let role = |at: usize| self.conversation.messages[at].index.role;
        if before != Role::System || role(user) == Role::Assistant {
            return None;
        }
        let first = gap.start..self.unit_end(&gap);
        let shortest = if self.was_dropped(&first) { None } else { self.shortest_answer(gap) };
        shortest.or(Some(first))
    }

    /// The shortest answer among these messages that may be kept, with its results; `None` also if the messages do not
    /// begin with an answer.
    ///
    /// A message of reasoning alone does not count, because bound reasoning is removed. An answer whose reasoning
    /// cannot be removed is the last choice: if reasoning is bound, nothing before such an answer could change.
    fn shortest_answer(&self, gap: Range<usize>) -> Option<Range<usize>> {
        let message = |at: usize| &self.conversation.messages[at];
        let is_answer = |at: usize| message(at).index.role == Role::Assistant;
        let says = |at: usize| message(at).index.parts.iter().any(|part| part.kind() != PartKind::Thinking);
        let stands = |at: &usize| is_answer(*at) && !self.hosted.divides(*at);
        if !is_answer(gap.start) {
            return None;
        }
        let unit = |start: usize| (start < gap.end).then(|| start..self.unit_end(&(start..gap.end)));
        let units = std::iter::successors(unit(gap.start), |before| unit(before.end));
        let answers = units.filter_map(|mut unit| Some(unit.find(stands)?..unit.end));
        let bytes = |answer: &Range<usize>| answer.clone().map(|at| message(at).span.len()).sum::<usize>();
        let has_fixed_reasoning = |at: usize| {
            let mut parts = self.conversation.parts_of(at);
            parts.any(|(id, part)| part.kind() == PartKind::Thinking && !can_go(self.conversation, id))
        };
        let cost = |answer: &Range<usize>| (answer.clone().any(has_fixed_reasoning), bytes(answer));
        answers.filter(|answer| answer.clone().any(says) && !self.must_go(answer)).min_by_key(cost)
    }

    /// The end of the unit that the first of these messages belongs to.
    fn unit_end(&self, messages: &Range<usize>) -> usize {
        let is_end = |end: &usize| starts(self.conversation, *end) && !self.hosted.divides(*end);
        (messages.start + 1..messages.end).find(is_end).unwrap_or(messages.end)
    }
}

/// Keeps every second place, including the last.
fn thin_out(cuts: &mut Vec<Cut>) {
    let mut stays = cuts.len().is_multiple_of(2);
    cuts.retain(|_| {
        stays = !stays;
        stays
    });
}

/// Whether a turn or a step starts with this message.
fn starts(conversation: &Conversation, at: usize) -> bool {
    let (before, message) = (&conversation.messages[at - 1].index, &conversation.messages[at].index);
    message.starts_turn() || (message.role == Role::Assistant && before.has_results())
}

/// Calls that the provider executes by itself.
struct Hosted {
    /// For each message, whether a call before it has its result in it or after it.
    divided: Vec<bool>,
    /// For each message, whether it has a call without a result, or a result without a call.
    unpaired: Vec<bool>,
}

impl Hosted {
    fn of(conversation: &Conversation) -> Self {
        let count = conversation.messages.len();
        let (mut unpaired, mut open) = (vec![false; count], Vec::new());
        // For each message, how many calls become pending before it, and how many cease to be.
        let (mut opened, mut closed) = (vec![0_usize; count + 1], vec![0_usize; count + 1]);
        for message in 0..count {
            let parts = conversation.parts_of(message).map(|(_, part)| part);
            for part in parts.filter(|part| part.kind() == PartKind::Hosted) {
                let Some(id) = part.call_id() else { continue };
                if part.tool().is_some() {
                    open.push((id, message));
                } else if let Some(at) = open.iter().rposition(|(call_id, _)| *call_id == id) {
                    let (_, call) = open.remove(at);
                    opened[call + 1] += 1;
                    closed[message + 1] += 1;
                } else {
                    unpaired[message] = true;
                }
            }
        }
        for (_, message) in open {
            unpaired[message] = true;
        }
        let mut pending = 0;
        let divided = opened.into_iter().zip(closed).map(|(opened, closed)| {
            pending = pending + opened - closed;
            pending > 0
        });
        Self { divided: divided.collect(), unpaired }
    }

    /// Whether a cut before a message would separate a call from its result.
    fn divides(&self, end: usize) -> bool {
        self.divided[end]
    }
}
