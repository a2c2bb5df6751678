//! The reference semantics of a plan, message by message and leaf by leaf.
//!
//! [`verify`] compares an edited request with the plan applied to the original. It compares their indexes and does not
//! depend on how the bytes were made, so it detects mistakes in lowering or splicing.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::conversation::{Conversation, Hold, Part, PartId, PartKind, Role};
use crate::json;

use super::{LeafEdit, Op, Plan};

/// How an edited request differs from what the plan says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// The number of messages is wrong.
    #[error("wrong number of messages")]
    Count,
    /// A message that should be unchanged is not.
    #[error("message {0} changed without a plan")]
    Changed(usize),
    /// A message that was edited is not as planned.
    #[error("message {0} is not as planned")]
    Wrong(usize),
    /// The cache marks are not as planned.
    #[error("wrong cache marks")]
    Marks,
    /// Something outside the messages changed.
    #[error("the frame changed")]
    Frame,
}

/// Checks that `after` is `before` with `plan` applied.
///
/// # Errors
/// The first [`Mismatch`]; message numbers count in `after`.
pub fn verify(before: &Conversation, plan: &Plan, after: &Conversation) -> Result<(), Mismatch> {
    let same_fields =
        before.model == after.model && before.stream == after.stream && before.continues == after.continues;
    if !same_fields || !same_frame(before, plan, after) {
        return Err(Mismatch::Frame);
    }
    let arranged = arranged(before.messages.len(), plan);
    if !same_marks(before, plan, after, &arranged) {
        return Err(Mismatch::Marks);
    }
    if arranged.len() != after.messages.len() {
        return Err(Mismatch::Count);
    }
    let edits = edits(plan);
    for (at, (placed, message)) in arranged.iter().zip(&after.messages).enumerate() {
        let is_as_planned = match placed {
            Placed::Original(original) => match edits.get(original) {
                Some(edits) => is_edited(before, *original, edits, after, at),
                None => {
                    let was = before.messages[*original].span;
                    if before.body[was.range()] != after.body[message.span.range()] {
                        return Err(Mismatch::Changed(at));
                    }
                    true
                }
            },
            Placed::Inserted(role, text) => {
                message.index.role == *role
                    && message.index.parts.len() == 1
                    && after.text(PartId { message: at as u32, part: 0 }, 0).as_deref() == Some(*text)
            }
        };
        if !is_as_planned {
            return Err(Mismatch::Wrong(at));
        }
    }
    Ok(())
}

/// A message of the request that a plan results in.
#[derive(Debug, Clone, Copy)]
pub(super) enum Placed<'p> {
    /// This message of the original.
    Original(usize),
    /// A new message with this text.
    Inserted(Role, &'p str),
}

/// The messages that a plan for a request of `count` messages results in, in order.
pub(super) fn arranged(count: usize, plan: &Plan) -> Vec<Placed<'_>> {
    let (mut dropped, mut inserted) = (vec![false; count], vec![Vec::new(); count + 1]);
    for op in &plan.ops {
        match op {
            Op::Drop { first, end } => {
                if let Some(range) = dropped.get_mut(*first..*end) {
                    range.fill(true);
                }
            }
            Op::Insert { before, role, text } => {
                if let Some(place) = inserted.get_mut(*before) {
                    place.push(Placed::Inserted(*role, text));
                }
            }
            _ => {}
        }
    }
    let mut out = Vec::with_capacity(count);
    for (at, inserted) in inserted.into_iter().enumerate() {
        out.extend(inserted);
        out.extend((dropped.get(at) == Some(&false)).then_some(Placed::Original(at)));
    }
    out
}

/// What a plan changes in one message.
#[derive(Default)]
struct MessageEdits<'a> {
    /// The edits of each part that changes; `None`: the part is left out.
    parts: BTreeMap<u32, Option<&'a [(u32, LeafEdit)]>>,
    /// The texts that are appended, by part and leaf.
    appended: BTreeMap<(u32, u32), &'a str>,
}

/// What a plan changes in messages, by their index in the original.
fn edits(plan: &Plan) -> BTreeMap<usize, MessageEdits<'_>> {
    let mut edits: BTreeMap<usize, MessageEdits<'_>> = BTreeMap::new();
    for op in &plan.ops {
        match op {
            Op::Text { part, leaves } => {
                edits.entry(part.message as usize).or_default().parts.insert(part.part, Some(leaves));
            }
            Op::Omit { part } => {
                edits.entry(part.message as usize).or_default().parts.insert(part.part, None);
            }
            Op::Mark { part, .. } => {
                edits.entry(part.message as usize).or_default();
            }
            Op::Append { part, leaf, text } => {
                edits.entry(part.message as usize).or_default().appended.insert((part.part, *leaf), text);
            }
            Op::Split { .. } | Op::MarkFrame { .. } | Op::Drop { .. } | Op::Insert { .. } => {}
        }
    }
    edits
}

/// A part of one of the two requests that are compared.
#[derive(Clone, Copy)]
struct Side<'a> {
    conversation: &'a Conversation,
    id: PartId,
    part: &'a Part,
}

impl<'a> Side<'a> {
    /// The decoded text of a leaf.
    fn text(self, leaf: usize) -> Option<Cow<'a, str>> {
        self.conversation.text(self.id, leaf)
    }
}

/// Whether message `at` of `after` is message `original` of `before` with these edits.
fn is_edited(
    before: &Conversation,
    original: usize,
    edits: &MessageEdits<'_>,
    after: &Conversation,
    at: usize,
) -> bool {
    let (old, new) = (&before.messages[original].index, &after.messages[at].index);
    let goes = |id: PartId| edits.parts.get(&id.part) == Some(&None);
    let stay: Vec<_> = before.parts_of(original).filter(|(id, _)| !goes(*id)).collect();
    old.role == new.role
        && stay.len() == new.parts.len()
        && stay.into_iter().zip(after.parts_of(at)).all(|((old_id, old), (new_id, new))| {
            let old = Side { conversation: before, id: old_id, part: old };
            let new = Side { conversation: after, id: new_id, part: new };
            let of_part = edits.parts.get(&old_id.part).copied().flatten().unwrap_or_default();
            same_head(old.part, new.part)
                && match old.part.kind() {
                    PartKind::ToolCall => same_arguments(old, of_part, new),
                    _ => same_texts(old, of_part, &edits.appended, new),
                }
        })
}

/// Whether the marks in `after` are the planned ones and those of the original on parts that stay.
fn same_marks(before: &Conversation, plan: &Plan, after: &Conversation, arranged: &[Placed<'_>]) -> bool {
    let (Some(old), Some(new)) = (&before.marks, &after.marks) else {
        return before.marks.is_none() && after.marks.is_none();
    };
    let planned = plan.ops.iter().filter_map(|op| match op {
        Op::Mark { part, hold } => Some((*part, *hold)),
        _ => None,
    });
    let omitted: Vec<PartId> = plan
        .ops
        .iter()
        .filter_map(|op| if let Op::Omit { part } = op { Some(*part) } else { None })
        .collect();
    let places = places(before.messages.len(), arranged);
    let moved = |(id, hold): (PartId, Hold)| {
        let message = places.get(id.message as usize).copied().flatten()?;
        let before = omitted.iter().filter(|gone| gone.message == id.message && **gone < id).count() as u32;
        Some((PartId { message, part: id.part - before }, hold))
    };
    // A result may have several marks, on blocks within it, in the order of the bytes.
    let mut expected: Vec<_> = old.parts.iter().copied().chain(planned).filter_map(moved).collect();
    let mut found = new.parts.clone();
    expected.sort_unstable();
    found.sort_unstable();
    // A mark on a removed block is removed with it. Which marks remain on such a part is not compared.
    let fewer: Vec<PartId> =
        losing_marks(before, plan).filter_map(|part| Some(moved((part, Hold::Short))?.0)).collect();
    if !fewer.is_empty() && found.len() <= expected.len() {
        let is_compared = |(part, _): &(PartId, Hold)| !fewer.contains(part);
        expected.retain(is_compared);
        found.retain(is_compared);
    }
    let is_framed = |op: &&Op| matches!(op, Op::Split { mark: Some(_), .. } | Op::MarkFrame { .. });
    old.frame + plan.ops.iter().filter(is_framed).count() == new.frame && expected == found
}

/// The index in the edited request of each of `count` original messages; `None` if the message is dropped.
fn places(count: usize, arranged: &[Placed<'_>]) -> Vec<Option<u32>> {
    let mut places = vec![None; count];
    for (at, placed) in arranged.iter().enumerate() {
        if let Placed::Original(original) = placed {
            places[*original] = Some(at as u32);
        }
    }
    places
}

/// The parts that lose a block with a mark.
fn losing_marks<'a>(before: &'a Conversation, plan: &'a Plan) -> impl Iterator<Item = PartId> + 'a {
    plan.ops.iter().filter_map(|op| {
        let Op::Text { part, leaves } = op else { return None };
        let of = before.part(*part)?;
        let goes = |(leaf, edit): &(u32, LeafEdit)| {
            let goes = *edit == LeafEdit::Remove || *leaf as usize >= of.leaves().len();
            goes && of.block(*leaf as usize).is_some_and(|(block, _)| block.is_marked)
        };
        leaves.iter().any(goes).then_some(*part)
    })
}

/// Whether two parts have the same kind, ids and names.
fn same_head(old: &Part, new: &Part) -> bool {
    let [old, new] = [old, new].map(|part| (part.kind(), part.call_id(), part.tool(), part.is_error()));
    old == new
}

/// Whether the arguments of the call `new` are those of `old` with these edits.
fn same_arguments(old: Side<'_>, edits: &[(u32, LeafEdit)], new: Side<'_>) -> bool {
    if edits.is_empty() {
        return old.conversation.arguments(old.id) == new.conversation.arguments(new.id);
    }
    let texts = [old, new].map(|side| side.conversation.argument_texts(side.id));
    let [Some(old), Some(new)] = texts else { return false };
    let planned = |at: usize| match edits.iter().find(|(edited, _)| *edited as usize == at) {
        Some((_, LeafEdit::Replace(text))) => Some(Cow::Borrowed(&**text)),
        Some((_, LeafEdit::Remove)) => None,
        None => old.get(at),
    };
    old.len() == new.len()
        && old.beside() == new.beside()
        && (0..old.len()).all(|at| new.get(at).is_some_and(|now| Some(now) == planned(at)))
}

/// Whether the leaves of the part `new` are those of `old` with these edits and appended texts, and its media are those
/// of `old` that are not edited. Unchanged leaves need not be spelled alike, but must have the same decoded text.
fn same_texts(
    old: Side<'_>,
    edits: &[(u32, LeafEdit)],
    appended: &BTreeMap<(u32, u32), &str>,
    new: Side<'_>,
) -> bool {
    let edits: BTreeMap<u32, &LeafEdit> = edits.iter().map(|(leaf, edit)| (*leaf, edit)).collect();
    let edit = |at: usize| edits.get(&(at as u32)).copied();
    let count = old.part.leaves().len();
    let unedited = (count..).zip(media(old)).filter(|(at, _)| edit(*at).is_none());
    if !unedited.map(|(_, block)| block).eq(media(new)) {
        return false;
    }
    let is_text = |at: &usize| match edit(*at) {
        None => *at < count,
        Some(edit) => *edit != LeafEdit::Remove,
    };
    let mut stay: Vec<usize> = (0..count + old.part.media().len()).filter(is_text).collect();
    // A text that replaces an image takes its place in the order.
    stay.sort_by_key(|at| old.part.block(*at).and_then(|(block, _)| block.slot));
    let same = |(leaf, now): (usize, usize)| match edit(leaf) {
        Some(LeafEdit::Replace(text)) => new.text(now).as_deref() == Some(text),
        _ => match appended.get(&(old.id.part, leaf as u32)) {
            Some(more) => {
                let is_longer =
                    |text: Cow<'_, str>| new.text(now).is_some_and(|longer| longer == text + *more);
                old.text(leaf).is_some_and(is_longer)
            }
            None => {
                // Literals are compared first, since they need not be decoded.
                old.conversation.literal(old.id, leaf) == new.conversation.literal(new.id, now)
                    || old.text(leaf) == new.text(now)
            }
        },
    };
    stay.len() == new.part.leaves().len() && stay.into_iter().zip(0..).all(same)
}

/// The removable images and documents of a result, as written.
fn media(of: Side<'_>) -> impl Iterator<Item = Option<&[u8]>> {
    let slots = of.part.media_list().map(|media| &media.slots.items);
    of.part.media().iter().map(move |block| {
        let item = slots?.get(block.slot? as usize)?;
        Some(of.conversation.bytes_of(of.id.message, *item))
    })
}

/// Whether everything around the messages is byte for byte the same, except for instructions sent as two texts and a
/// mark at the end.
fn same_frame(before: &Conversation, plan: &Plan, after: &Conversation) -> bool {
    let ends = |of: &Conversation| (of.array.range().start + 1, of.array.range().end - 1);
    let ((head, tail), (new_head, new_tail)) = (ends(before), ends(after));
    let change = plan.ops.iter().find_map(|op| match op {
        Op::Split { bytes, mark } => Some((before.system, two_texts(before, *bytes, *mark))),
        Op::MarkFrame { hold } => Some((before.frame_end, marked(before, *hold))),
        _ => None,
    });
    let (old, new) = (&before.body, &after.body);
    match change.map(|(at, text)| (at.map(json::Span::range), text)) {
        None => old[..head] == new[..new_head] && old[tail..] == new[new_tail..],
        Some((Some(at), Some(text))) if at.end <= head => {
            let expected = [&old[..at.start], text.as_bytes(), &old[at.end..head]].concat();
            expected == new[..new_head] && old[tail..] == new[new_tail..]
        }
        Some((Some(at), Some(text))) => {
            let expected = [&old[tail..at.start], text.as_bytes(), &old[at.end..]].concat();
            old[..head] == new[..new_head] && expected == new[new_tail..]
        }
        Some(_) => false,
    }
}

/// The end of the frame, with a mark.
fn marked(before: &Conversation, hold: Hold) -> Option<String> {
    let (end, marks) =
        (std::str::from_utf8(before.frame_end?.of(&before.body)).ok()?, before.marks.as_ref()?);
    let member = marks.member(hold);
    Some(match end.strip_suffix('}') {
        Some(block) => format!("{block},{member}}}"),
        None => format!(r#"[{{"type":"text","text":{end},{member}}}]"#),
    })
}

/// The instructions as two texts.
fn two_texts(before: &Conversation, bytes: u32, mark: Option<Hold>) -> Option<String> {
    let (literal, marks) = (before.system?.of(&before.body), before.marks.as_ref()?);
    let (first, second) = literal.split_at_checked(json::string::offset(literal, bytes as usize)?)?;
    let (first, second) = (std::str::from_utf8(first).ok()?, std::str::from_utf8(second).ok()?);
    let mark = mark.map(|hold| format!(",{}", marks.member(hold))).unwrap_or_default();
    Some(format!(r#"[{{"type":"text","text":{first}"{mark}}},{{"type":"text","text":"{second}}}]"#))
}
