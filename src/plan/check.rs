//! The rules that every plan must obey.
//!
//! - A call and its result stay or go together, and nothing comes between them.
//! - Messages that begin a turn of the user are never edited, except that text may be appended to them; the first and
//!   the last of them are never dropped.
//! - Nothing of the step in progress is dropped, and nothing that is not understood is changed.
//! - Reasoning is never changed, and is left out only from the first block on.
//! - The order of messages must be one that every provider accepts.
//! - No operation may name what does not exist, and no two may name the same thing.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::conversation::{Conversation, Hold, Message, Part, PartId, PartKind, Role};

use super::marks::{check_mark, check_marked_texts, check_marks, check_split};
use super::model::{Placed, arranged};
use super::{LeafEdit, Op, Plan};

/// Why a plan is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It names a message, part or leaf that does not exist.
    #[error("the plan names a message, part or text that does not exist")]
    Missing,
    /// Two operations name the same thing, or one edits something that another drops.
    #[error("two operations of the plan conflict")]
    Conflict,
    /// It changes a part that no plan may change.
    #[error("the plan changes a protected part")]
    Protected,
    /// A call would lose its result or a result its call, something would come between them, or reasoning would lose
    /// the answer that it led to.
    #[error("the plan separates a call from its result, or reasoning from what it led to")]
    Pairing,
    /// The history is a single text, so nothing can be inserted.
    #[error("the plan inserts a message into a history that is a single text")]
    NoList,
    /// Some provider would refuse the order of messages.
    #[error("the plan leaves an order of messages that providers refuse")]
    Order,
    /// It removes a leaf that has no block of its own.
    #[error("the plan removes a text that can only be replaced")]
    NotRemovable,
    /// It replaces an image or a document in a place where no text is allowed.
    #[error("the plan puts a text where providers take none")]
    NotReplaceable,
    /// It leaves a text empty, which providers refuse.
    #[error("the plan leaves an empty text")]
    EmptyText,
    /// Arguments that are a single text would be read as JSON.
    #[error("the plan makes a call's argument text look like JSON")]
    Form,
    /// The arguments of a call would not become shorter.
    #[error("the plan makes the arguments of a call no shorter")]
    Longer,
}

/// Checks a plan against the conversation it is for.
///
/// # Errors
/// The first [`Refusal`].
pub fn check(conversation: &Conversation, plan: &Plan) -> Result<(), Refusal> {
    let dropped = dropped(conversation, plan)?;
    let mut changes = Changes { moves: dropped.contains(&true), ..Changes::default() };
    for op in &plan.ops {
        changes.add(conversation, op, &dropped)?;
    }
    let Changes { omitted, marked, frame_mark, moves, .. } = changes;
    if !omitted.is_empty() {
        check_omitted(conversation, &omitted, &dropped)?;
    }
    if !marked.is_empty() || frame_mark.is_some() {
        check_marks(conversation, &marked, frame_mark)?;
        check_marked_texts(conversation, plan, &marked)?;
    }
    if moves {
        check_pairs(conversation, plan, &dropped)?;
        check_reasoning(conversation, plan, &dropped)?;
        check_order(conversation, plan)?;
    }
    Ok(())
}

/// What the operations of a plan do together, noted when each is checked by itself.
#[derive(Default)]
struct Changes {
    /// Parts whose text changes.
    edited: HashSet<PartId>,
    /// Reasoning that is left out.
    omitted: HashSet<PartId>,
    /// Parts that get a mark.
    marked: Vec<(PartId, Hold)>,
    /// Whether the instructions are sent as two texts, or the frame is marked.
    is_frame_changed: bool,
    /// The mark on the first of the two texts or after the frame, if there is one.
    frame_mark: Option<Hold>,
    /// Whether a message follows another one than before.
    moves: bool,
}

impl Changes {
    /// Checks an operation by itself, and notes what it does.
    fn add(&mut self, conversation: &Conversation, op: &Op, dropped: &[bool]) -> Result<(), Refusal> {
        let is_dropped = |part: &PartId| dropped[part.message as usize];
        let is_new = match op {
            Op::Drop { .. } => true,
            Op::Text { part, leaves } => {
                check_text(conversation, *part, leaves)?;
                !is_dropped(part) && self.edited.insert(*part)
            }
            Op::Append { part, leaf, text } => {
                check_append(conversation, *part, *leaf, text)?;
                !is_dropped(part) && self.edited.insert(*part)
            }
            Op::Omit { part } => {
                check_omit(conversation, *part)?;
                !is_dropped(part) && self.omitted.insert(*part)
            }
            Op::Mark { part, hold } => {
                check_mark(conversation, *part)?;
                self.marked.push((*part, *hold));
                !is_dropped(part)
            }
            Op::Insert { before, text, role } => {
                check_insert(conversation, *before, text, *role)?;
                self.moves = true;
                true
            }
            Op::Split { bytes, mark } => {
                check_split(conversation, *bytes)?;
                self.frame_mark = *mark;
                !std::mem::replace(&mut self.is_frame_changed, true)
            }
            Op::MarkFrame { hold } => {
                conversation.frame_end.ok_or(Refusal::Missing)?;
                self.frame_mark = Some(*hold);
                !std::mem::replace(&mut self.is_frame_changed, true)
            }
        };
        if is_new { Ok(()) } else { Err(Refusal::Conflict) }
    }
}

/// A message can be inserted only into a list of messages. It must say something, and must not be a result.
fn check_insert(conversation: &Conversation, before: usize, text: &str, role: Role) -> Result<(), Refusal> {
    if before > conversation.messages.len() || role == Role::Tool {
        return Err(Refusal::Missing);
    }
    if text.trim().is_empty() {
        return Err(Refusal::EmptyText);
    }
    let is_list = conversation.array.of(&conversation.body).starts_with(b"[");
    if is_list { Ok(()) } else { Err(Refusal::NoList) }
}

/// Only removable reasoning may be left out.
fn check_omit(conversation: &Conversation, id: PartId) -> Result<(), Refusal> {
    let part = conversation.part(id).ok_or(Refusal::Missing)?;
    let may_go = part.kind() == PartKind::Thinking && part.slots().is_some();
    if may_go { Ok(()) } else { Err(Refusal::Protected) }
}

/// Text may be appended only to the user's own text.
fn check_append(conversation: &Conversation, id: PartId, leaf: u32, text: &str) -> Result<(), Refusal> {
    let part = conversation.part(id).ok_or(Refusal::Missing)?;
    let message = &conversation.messages[id.message as usize].index;
    if part.kind() != PartKind::Text || !message.starts_turn() {
        return Err(Refusal::Protected);
    }
    conversation.text(id, leaf as usize).ok_or(Refusal::Missing)?;
    if text.trim().is_empty() { Err(Refusal::EmptyText) } else { Ok(()) }
}

/// Reasoning must be left out from the first block on, and no message that stays may be left empty.
fn check_omitted(
    conversation: &Conversation,
    omitted: &HashSet<PartId>,
    dropped: &[bool],
) -> Result<(), Refusal> {
    let mut left = omitted.len();
    for message in (0..conversation.messages.len()).filter(|message| !dropped[*message]) {
        let (mut stays, mut changes) = (false, false);
        for (id, part) in conversation.parts_of(message) {
            let goes = omitted.contains(&id);
            if part.kind() == PartKind::Thinking && !goes && left > 0 {
                return Err(Refusal::Protected);
            }
            left -= usize::from(goes);
            changes |= goes;
            stays |= part.kind() != PartKind::Thinking;
        }
        if changes && !stays {
            return Err(Refusal::EmptyText);
        }
        if left == 0 {
            break;
        }
    }
    Ok(())
}

/// Whether each message is dropped. The first and the last message that begins a turn, the step in progress, system
/// messages and those with opaque parts may not be.
fn dropped(conversation: &Conversation, plan: &Plan) -> Result<Vec<bool>, Refusal> {
    let mut dropped = vec![false; conversation.messages.len()];
    for op in &plan.ops {
        let Op::Drop { first, end } = op else { continue };
        let range = dropped.get_mut(*first..*end).ok_or(Refusal::Missing)?;
        if range.is_empty() || range.contains(&true) {
            return Err(Refusal::Conflict);
        }
        range.fill(true);
    }
    let user = |message: &Message| message.index.starts_turn();
    let ends = [conversation.messages.iter().position(user), conversation.messages.iter().rposition(user)];
    if ends.into_iter().flatten().any(|message| dropped[message])
        || dropped[conversation.tail()..].contains(&true)
        || dropped.last() == Some(&true)
    {
        return Err(Refusal::Protected);
    }
    let lost = conversation.messages.iter().zip(&dropped).filter(|(_, dropped)| **dropped);
    for (message, _) in lost {
        if message.index.role == Role::System
            || message.index.parts.iter().any(|part| part.kind() == PartKind::Opaque)
        {
            return Err(Refusal::Protected);
        }
    }
    Ok(dropped)
}

/// Only leaves of results and texts in the arguments of calls may be edited, in ascending order.
fn check_text(conversation: &Conversation, id: PartId, leaves: &[(u32, LeafEdit)]) -> Result<(), Refusal> {
    let part = conversation.part(id).ok_or(Refusal::Missing)?;
    if leaves.is_empty() || leaves.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
        return Err(Refusal::Conflict);
    }
    match part.kind() {
        PartKind::ToolResult => check_leaves(part, leaves),
        PartKind::ToolCall => check_arguments(conversation, id, leaves),
        _ => Err(Refusal::Protected),
    }
}

/// Only the arguments of an answered call may be edited, and only to become shorter.
fn check_arguments(
    conversation: &Conversation,
    id: PartId,
    edits: &[(u32, LeafEdit)],
) -> Result<(), Refusal> {
    let may_change = conversation.part(id).is_some_and(|part| !part.is_sealed());
    if !may_change || conversation.result_of(id).is_none() {
        return Err(Refusal::Protected);
    }
    let texts = conversation.argument_texts(id).ok_or(Refusal::Missing)?;
    for (at, edit) in edits {
        let before = texts.get(*at as usize).ok_or(Refusal::Missing)?;
        match edit {
            LeafEdit::Remove => return Err(Refusal::NotRemovable),
            LeafEdit::Replace(text) if text.trim().is_empty() => return Err(Refusal::EmptyText),
            LeafEdit::Replace(text) if text.len() >= before.len() => return Err(Refusal::Longer),
            LeafEdit::Replace(text) if !texts.takes(text) => return Err(Refusal::Form),
            LeafEdit::Replace(_) => {}
        }
    }
    Ok(())
}

/// Whether a result can take these edits. The same content in another form may have other leaves.
pub fn takes(part: &Part, leaves: &[(u32, LeafEdit)]) -> bool {
    check_leaves(part, leaves).is_ok()
}

/// Every leaf must exist and take its edit, and neither a text nor the result may be left empty.
fn check_leaves(part: &Part, leaves: &[(u32, LeafEdit)]) -> Result<(), Refusal> {
    let mut removed = 0;
    for (at, edit) in leaves {
        let (block, list) = part.block(*at as usize).ok_or(Refusal::Missing)?;
        match edit {
            LeafEdit::Remove if block.slot.is_none() => return Err(Refusal::NotRemovable),
            LeafEdit::Remove => removed += usize::from(list == part.slots()),
            LeafEdit::Replace(_)
                if *at as usize >= part.leaves().len() && part.text_for_media().is_none() =>
            {
                return Err(Refusal::NotReplaceable);
            }
            LeafEdit::Replace(_) if block.stays_blank => return Err(Refusal::Protected),
            LeafEdit::Replace(text) if text.trim().is_empty() => return Err(Refusal::EmptyText),
            LeafEdit::Replace(_) => {}
        }
    }
    // Not every provider accepts an empty list of blocks. A list of media next to the content may be empty, because it
    // may be absent.
    if part.slots().is_some_and(|slots| slots.items.len() == removed) {
        return Err(Refusal::EmptyText);
    }
    Ok(())
}

/// Every remaining result must find its call, every remaining call that had a result must keep it, and nothing may
/// come between them.
fn check_pairs(conversation: &Conversation, plan: &Plan, dropped: &[bool]) -> Result<(), Refusal> {
    let Pairs { answered, hosted, orphans, open } = Pairs::of(conversation);
    let lost = |message: &usize| dropped[*message];
    // A call without a result belongs to the step in progress; a result without a call answers one that the provider
    // holds.
    if answered.iter().chain(&hosted).any(|(call, result)| lost(call) != lost(result))
        || orphans.iter().any(lost)
        || open.iter().any(lost)
    {
        return Err(Refusal::Pairing);
    }
    let end = conversation.messages.len();
    for op in &plan.ops {
        let Op::Insert { before, .. } = op else { continue };
        let between = |(call, result): &(usize, usize)| !lost(call) && call < before && before <= result;
        if answered.iter().any(between)
            || orphans
                .iter()
                .any(|result| before <= result && !is_answered(conversation, dropped, *before..*result))
            || (*before == end && open.contains(&(end - 1)))
        {
            return Err(Refusal::Pairing);
        }
    }
    Ok(())
}

/// Whether a message of the model remains between an insertion and a result whose call is not in the body. Such a
/// message refers to the call, or to the answer that contains the call.
fn is_answered(conversation: &Conversation, dropped: &[bool], mut between: Range<usize>) -> bool {
    between.any(|at| !dropped[at] && conversation.messages[at].index.role == Role::Assistant)
}

/// A message of reasoning alone must stay or go with the answer after it, and nothing may come between them. If no
/// answer follows it, it may go alone.
fn check_reasoning(conversation: &Conversation, plan: &Plan, dropped: &[bool]) -> Result<(), Refusal> {
    let inserted = plan.ops.iter().filter_map(|op| match op {
        Op::Insert { before, .. } => Some(*before),
        _ => None,
    });
    let inserted: HashSet<usize> = inserted.collect();
    for (at, message) in conversation.messages.iter().enumerate() {
        let parts = &message.index.parts;
        let is_reasoning = !parts.is_empty() && parts.iter().all(|part| part.kind() == PartKind::Thinking);
        let is_answer = |at: usize| conversation.messages[at].index.role == Role::Assistant;
        let separated = match dropped.get(at + 1) {
            Some(false) if dropped[at] => is_answer(at + 1),
            Some(next) => *next != dropped[at],
            None => false,
        };
        if is_reasoning && (separated || (!dropped[at] && inserted.contains(&(at + 1)))) {
            return Err(Refusal::Pairing);
        }
    }
    Ok(())
}

/// The messages of calls and of their results.
#[derive(Default)]
struct Pairs {
    /// Calls with their results.
    answered: Vec<(usize, usize)>,
    /// The same for calls that the provider executed.
    hosted: Vec<(usize, usize)>,
    /// Results whose calls are not in the body.
    orphans: Vec<usize>,
    /// Calls without results.
    open: Vec<usize>,
}

impl Pairs {
    fn of(conversation: &Conversation) -> Self {
        let mut pairs = Self::default();
        let (mut calls, mut hosted) = (Calls::default(), Calls::default());
        for message in 0..conversation.messages.len() {
            for (_, part) in conversation.parts_of(message) {
                match (part.kind(), part.call_id()) {
                    (PartKind::ToolCall, Some(id)) => calls.add(id, message),
                    (PartKind::ToolCall, None) => pairs.open.push(message),
                    // Its result may come with a later answer.
                    (PartKind::Hosted, Some(id)) if part.tool().is_some() => hosted.add(id, message),
                    (PartKind::Hosted, Some(id)) => match hosted.answer(id) {
                        Some(call) => pairs.hosted.push((call, message)),
                        None => pairs.open.push(message),
                    },
                    (PartKind::ToolResult, id) => match id.and_then(|id| calls.answer(id)) {
                        Some(call) => pairs.answered.push((call, message)),
                        None => pairs.orphans.push(message),
                    },
                    _ => {}
                }
            }
        }
        pairs.open.extend(calls.open().chain(hosted.open()));
        pairs
    }
}

/// Calls by id; ids may be reused.
#[derive(Default)]
struct Calls<'c>(HashMap<&'c str, CallsOfId>);

/// The messages of the calls that have the same id.
#[derive(Default)]
struct CallsOfId {
    /// Those without a result so far.
    open: Vec<usize>,
    /// The one that was answered last.
    answered: Option<usize>,
}

impl<'c> Calls<'c> {
    /// Adds a call in this message.
    fn add(&mut self, id: &'c str, message: usize) {
        self.0.entry(id).or_default().open.push(message);
    }

    /// Answers a call with this id, and returns its message. The nearest call without a result is answered, so that as
    /// many calls are answered as there are results; otherwise the one that was answered last.
    fn answer(&mut self, id: &str) -> Option<usize> {
        let calls = self.0.get_mut(id)?;
        calls.answered = calls.open.pop().or(calls.answered);
        calls.answered
    }

    /// The messages of calls without a result.
    fn open(self) -> impl Iterator<Item = usize> {
        self.0.into_values().flat_map(|calls| calls.open)
    }
}

/// Where the order of messages changes, it must be one that every provider accepts: the user comes first, an inserted
/// answer is not last, only the user follows an answer, and only an answer or more instructions follow instructions.
fn check_order(conversation: &Conversation, plan: &Plan) -> Result<(), Refusal> {
    let order = arranged(conversation.messages.len(), plan);
    let role = |placed: &Placed<'_>| match placed {
        Placed::Original(at) => conversation.messages[*at].index.role,
        Placed::Inserted(role, _) => *role,
    };
    let starts_well =
        order.first().is_none_or(|first| matches!(first, Placed::Original(0)) || role(first) == Role::User);
    let ends_well =
        order.last().is_none_or(|last| matches!(last, Placed::Original(_)) || role(last) != Role::Assistant);
    let follows_well = |pair: &[Placed<'_>]| match (role(&pair[0]), role(&pair[1])) {
        _ if matches!(*pair, [Placed::Original(one), Placed::Original(next)] if next == one + 1) => true,
        (Role::Assistant, next) => next == Role::User,
        (Role::System, next) => matches!(next, Role::Assistant | Role::System),
        _ => true,
    };
    if starts_well && ends_well && order.windows(2).all(follows_well) { Ok(()) } else { Err(Refusal::Order) }
}
