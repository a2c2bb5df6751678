//! Where a history may be cut, and what a splice up to each such place would drop.
//!
//! Walks from the head of the conversation from place to place: what is dropped goes in whole units, and what remains
//! around a gap must be a sequence that providers accept. This module does not judge which cut is best.

use std::ops::Range;

use super::reasoning::{can_go, sealed};
use super::splice::{Layout, Splice, last_text};
use crate::conversation::{Conversation, Part, PartId, PartKind, Role};
use crate::plan::{self, Plan};
use crate::usage::Binding;

/// The most ranges that all places together may have; beyond that some places are left out. A fragmented history has
/// many ranges at each place.
const RANGES: usize = 1 << 20;

/// A place where a history may be cut, and what a splice up to it would drop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The first message behind it.
    pub end: usize,
    /// Whether a turn of the user's begins there; otherwise it is a step of the newest turn.
    pub is_turn: bool,
    taken: Taken,
    /// A message of the user's own before the end that stays.
    stays: Option<usize>,
    /// A message that cannot directly follow what would stand before it, unless the text is inserted between them.
    parted: Option<usize>,
    /// The first message behind the head of the conversation.
    head: usize,
}

impl Cut {
    /// Bytes of the dropped messages that are text.
    pub fn bytes(&self) -> u64 {
        self.taken.bytes
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
    pub(super) fn takes_all(&self, messages: &[usize]) -> bool {
        let before = |end: usize| messages.partition_point(|message| *message < end);
        self.ranges().map(|range| before(range.end) - before(range.start)).sum::<usize>() == messages.len()
    }

    /// The ranges of dropped messages, ascending and disjoint.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.taken.ranges.iter().map(|(first, end)| *first as usize..*end as usize)
    }

    /// The splice that inserts `text` there, in the requested layout if that is possible, else in one that is. Within
    /// a turn the text goes before the newest words of the user.
    ///
    /// `None` if no provider would accept the result, or the history cannot be cut there.
    pub fn splice(
        &self,
        conversation: &Conversation,
        rule: &str,
        text: &str,
        layout: &Layout,
    ) -> Option<Splice> {
        let before = self.parted.or(self.stays).unwrap_or(self.end);
        let splice = |layout: &Layout, at, leaf| Splice {
            rule: rule.into(),
            drops: self.taken.ranges.clone().into(),
            layout: layout.clone(),
            at,
            leaf,
            text: text.into(),
            bytes_before: self.taken.bytes,
            bytes_after: text.len() as u64,
            output: None,
        };
        let inserted = |layout| splice(layout, PartId { message: before as u32, part: 0 }, 0);
        let appended =
            || last_text(conversation, self.head).map(|(at, leaf)| splice(&Layout::Appended, at, leaf));
        let wanted = if *layout == Layout::Appended || (!self.is_turn && self.stays.is_none()) {
            appended()
        } else {
            Some(inserted(layout))
        };
        let others = [appended(), Some(inserted(&Layout::Answer)), Some(inserted(&Layout::User))];
        let mut all = std::iter::once(wanted).chain(others).flatten();
        all.find(|splice| {
            let plan = Plan { ops: splice.operations() };
            plan::check(conversation, &plan).is_ok()
        })
    }
}

/// Dropped messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Taken {
    /// Disjoint ranges `first..end`, ascending.
    ranges: Vec<(u32, u32)>,
    /// Bytes of these messages that are text.
    bytes: u64,
}

impl Taken {
    /// Adds a message behind all others.
    fn add(&mut self, conversation: &Conversation, message: usize) {
        self.bytes += conversation.messages[message].read_len() as u64;
        let at = message as u32;
        match self.ranges.last_mut() {
            Some((_, end)) if *end == at => *end = at + 1,
            _ => self.ranges.push((at, at + 1)),
        }
    }

    /// Removes a message, if it is one of them.
    fn keep(&mut self, conversation: &Conversation, message: usize) {
        let at = message as u32;
        let holds = |(first, end): &(u32, u32)| (*first..*end).contains(&at);
        let Some(range) = self.ranges.iter().position(holds) else { return };
        let (first, end) = self.ranges[range];
        let apart = [(first, at), (at + 1, end)].into_iter().filter(|(first, end)| first < end);
        self.ranges.splice(range..=range, apart);
        self.bytes -= conversation.messages[message].read_len() as u64;
    }

    /// The gap right before a message that stays, and the role of the message before the gap.
    fn gap(&self, conversation: &Conversation, stays: usize) -> Option<(Range<usize>, Role)> {
        let at = self.ranges.partition_point(|(_, end)| (*end as usize) < stays);
        let gap = self.ranges.get(at).map(|(first, end)| *first as usize..*end as usize)?;
        let before = gap.start.checked_sub(1).filter(|_| gap.end == stays)?;
        Some((gap, conversation.messages[before].index.role))
    }
}

/// The places where a history may be cut, in order. A new splice drops everything that the one in force, `since`, has
/// dropped.
///
/// If the model's reasoning is `bound`, messages whose reasoning cannot be removed must be dropped too; there is no
/// cut in front of one that stays. No place is behind message `sent`, nor within the step in progress.
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
        if let Some(cut) = walk.cut().filter(|cut| cut.takes_all(&sealed)) {
            ranges += cut.taken.ranges.len();
            cuts.push(cut);
        }
        if ranges > RANGES {
            thin_out(&mut cuts);
            ranges = cuts.iter().map(|cut| cut.taken.ranges.len()).sum();
        }
    }
    cuts
}

/// A walk through a history from its head on, place by place.
struct Walk<'c> {
    conversation: &'c Conversation,
    /// The splice in force.
    since: Option<&'c Splice>,
    /// Messages with bound reasoning that cannot be removed, ascending: nothing in front of them may change while
    /// they are sent.
    sealed: &'c [usize],
    hosted: Hosted,
    /// The first message behind the head of the conversation.
    head: usize,
    /// The user's last message before the step in progress.
    newest: usize,
    /// The place that the walk has reached.
    at: usize,
    /// What a cut here would drop.
    taken: Taken,
    /// Dropped messages without which their neighbours could not follow each other: the text must be inserted in
    /// their place. There is only one text.
    parted: Option<Range<usize>>,
}

impl<'c> Walk<'c> {
    /// `None` if there is nothing behind the head, or if what comes before is held by the provider.
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
            newest: newest.unwrap_or(first_user),
            at: head,
            taken: Taken::default(),
            parted: None,
        })
    }

    /// Advances to the next place. The messages up to it are dropped or kept as a unit.
    fn go_to(&mut self, end: usize) {
        let mut needed = self.unit(self.at..end);
        if let Some(gone) = needed.take_if(|needed| self.must_go(needed)) {
            (needed, self.parted) = self.said(gone.start..self.at);
        }
        needed.into_iter().flatten().for_each(|at| self.taken.keep(self.conversation, at));
        self.at = end;
    }

    /// What is kept in place of needed messages that must be dropped, and where the text goes then: in their place,
    /// unless an earlier gap needs it more.
    fn said(&self, gone: Range<usize>) -> (Option<Range<usize>>, Option<Range<usize>>) {
        let Some(earlier) = self.parted.clone() else { return (None, Some(gone)) };
        if let answer @ Some(_) = self.answered(gone.clone()) {
            return (answer, Some(earlier));
        }
        (self.answered(earlier), Some(gone))
    }

    /// Whether one of these messages was dropped before: a dropped message never comes back.
    fn comes_back(&self, needed: &Range<usize>) -> bool {
        self.since.is_some_and(|since| needed.clone().any(|at| since.drops(at)))
    }

    /// Whether one of these messages cannot be kept: it would come back, or it would freeze everything before it.
    fn must_go(&self, needed: &Range<usize>) -> bool {
        self.comes_back(needed) || needed.clone().any(|at| self.sealed.binary_search(&at).is_ok())
    }

    /// The cut at the place reached, if one is allowed.
    fn cut(&self) -> Option<Cut> {
        let (conversation, end) = (self.conversation, self.at);
        let is_turn = conversation.messages[end].index.starts_turn();
        let least = self.since.map_or(self.head, Splice::end);
        // A finished turn is dropped as a whole or not at all; of the newest one, the question stays.
        if end <= least || self.taken.ranges.is_empty() || (!is_turn && end < self.newest) {
            return None;
        }
        let stays = (!is_turn && self.newest >= self.head).then_some(self.newest);
        let mut taken = self.taken.clone();
        if let Some(stays) = stays {
            taken.keep(conversation, stays);
        }
        let mut parted = self.parted.clone();
        if parted.is_some() {
            // The text is inserted elsewhere, and cannot separate a system note from the user.
            let user = stays.unwrap_or(end);
            let mut needed = self.instructed(user, &taken);
            if let Some(gone) = needed.take_if(|needed| self.must_go(needed)) {
                (needed, parted) = self.said(gone.start..user);
            }
            needed.into_iter().flatten().for_each(|at| taken.keep(conversation, at));
        }
        let parted = parted.map(|gone| gone.end);
        let cut = Cut { end, is_turn, taken, stays, parted, head: self.head };
        Some(cut).filter(|cut| !cut.taken.ranges.is_empty())
    }

    /// Drops a unit: everything but system notes, or nothing if a part of it is not understood. What remains around a
    /// gap must be a sequence that providers accept: no answer after an answer, no system note before a user message,
    /// no system note after an answer. Returns the messages needed for that.
    fn unit(&mut self, messages: Range<usize>) -> Option<Range<usize>> {
        let index = |at: usize| &self.conversation.messages[at].index;
        let is_opaque = |at: usize| index(at).parts.iter().any(|part| part.kind() == PartKind::Opaque);
        // What a splice has once dropped stays dropped.
        let has_tools = |at: usize| {
            index(at).parts.iter().any(Part::has_tools) && self.since.is_none_or(|since| !since.drops(at))
        };
        if messages.clone().any(|at| is_opaque(at) || has_tools(at) || self.hosted.stuck[at]) {
            return self.question(messages.start).or_else(|| self.instructed(messages.start, &self.taken));
        }
        for at in messages.clone().filter(|at| index(*at).role != Role::System) {
            self.taken.add(self.conversation, at);
        }
        self.heard(messages)
    }

    /// The user's words before the first system note that stays, if the note would otherwise follow an answer.
    fn heard(&self, mut messages: Range<usize>) -> Option<Range<usize>> {
        let index = |at: usize| &self.conversation.messages[at].index;
        let note = messages.find(|at| index(*at).role == Role::System)?;
        let (mut gap, before) = self.taken.gap(self.conversation, note)?;
        let said = gap.rfind(|at| index(*at).starts_turn()).filter(|_| before == Role::Assistant)?;
        Some(said..said + 1)
    }

    /// The user's question before an answer that stays, if the answer would otherwise follow another one.
    fn question(&self, answer: usize) -> Option<Range<usize>> {
        let (mut gap, before) = self.taken.gap(self.conversation, answer)?;
        let index = |at: usize| &self.conversation.messages[at].index;
        let is_alone = before == Role::Assistant && index(answer).role == Role::Assistant;
        let question = gap.rfind(|at| index(*at).starts_turn()).filter(|_| is_alone)?;
        Some(question..question + 1)
    }

    /// As few as possible of the messages after a system note that stays, if a user message would otherwise follow
    /// it.
    fn instructed(&self, user: usize, taken: &Taken) -> Option<Range<usize>> {
        let (gap, before) = taken.gap(self.conversation, user)?;
        let role = |at: usize| self.conversation.messages[at].index.role;
        if before != Role::System || role(user) == Role::Assistant {
            return None;
        }
        let first = gap.start..self.whole_to(&gap);
        let shortest = if self.comes_back(&first) { None } else { self.answered(gap) };
        shortest.or(Some(first))
    }

    /// The shortest answer among these messages that is still sent, with its results, if an answer is what is needed.
    /// A message of reasoning alone does not count: bound reasoning is removed. One whose reasoning cannot be removed
    /// is the last choice, because nothing before it could be changed if reasoning is bound.
    fn answered(&self, gap: Range<usize>) -> Option<Range<usize>> {
        let message = |at: usize| &self.conversation.messages[at];
        let is_answer = |at: usize| message(at).index.role == Role::Assistant;
        let says = |at: usize| message(at).index.parts.iter().any(|part| part.kind() != PartKind::Thinking);
        let stands = |at: &usize| is_answer(*at) && !self.hosted.divides(*at);
        if !is_answer(gap.start) {
            return None;
        }
        let unit = |start: usize| (start < gap.end).then(|| start..self.whole_to(&(start..gap.end)));
        let units = std::iter::successors(unit(gap.start), |before| unit(before.end));
        let answers = units.filter_map(|mut unit| Some(unit.find(stands)?..unit.end));
        let bytes = |answer: &Range<usize>| answer.clone().map(|at| message(at).span.len()).sum::<usize>();
        let is_stuck = |at: usize| {
            let mut parts = self.conversation.parts_of(at);
            parts.any(|(id, part)| part.kind() == PartKind::Thinking && !can_go(self.conversation, id))
        };
        let least = |answer: &Range<usize>| (answer.clone().any(is_stuck), bytes(answer));
        answers.filter(|answer| answer.clone().any(says) && !self.must_go(answer)).min_by_key(least)
    }

    /// The end of the unit that the first of these messages belongs to.
    fn whole_to(&self, gap: &Range<usize>) -> usize {
        let is_whole = |end: &usize| starts(self.conversation, *end) && !self.hosted.divides(*end);
        (gap.start + 1..gap.end).find(is_whole).unwrap_or(gap.end)
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
    /// For each message, whether a call is open in front of it.
    divided: Vec<bool>,
    /// For each message, whether it has a call without a result, or a result without a call.
    stuck: Vec<bool>,
}

impl Hosted {
    fn of(conversation: &Conversation) -> Self {
        let count = conversation.messages.len();
        let (mut stuck, mut open) = (vec![false; count], Vec::new());
        // The number of calls that open and close at each message.
        let (mut begin, mut end) = (vec![0_usize; count + 1], vec![0_usize; count + 1]);
        for message in 0..count {
            for (_, part) in
                conversation.parts_of(message).filter(|(_, part)| part.kind() == PartKind::Hosted)
            {
                match (part.call_id(), part.tool()) {
                    (Some(id), Some(_)) => open.push((id, message)),
                    (Some(id), None) => match open.iter().rposition(|(known, _)| *known == id) {
                        Some(at) => {
                            let (_, call) = open.remove(at);
                            begin[call + 1] += 1;
                            end[message + 1] += 1;
                        }
                        None => stuck[message] = true,
                    },
                    (None, _) => {}
                }
            }
        }
        for (_, message) in open {
            stuck[message] = true;
        }
        let mut pending = 0;
        let divided = begin.into_iter().zip(end).map(|(begin, end)| {
            pending = pending + begin - end;
            pending > 0
        });
        Self { divided: divided.collect(), stuck }
    }

    /// Whether a cut in front of a message would separate a call from its result.
    fn divides(&self, end: usize) -> bool {
        self.divided[end]
    }
}
