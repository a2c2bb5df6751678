//! Newborn parts: how new results are sent, those that the model sees for the first time with this request.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::conversation::{Conversation, Digest, Part, PartId};
use crate::plan::LeafEdit;
use crate::shape::{self, GONE, Rule, Rules, Settings, Shaped, Subject};

use super::decision::{self, Applied, Cause, Decision, PartKey, Save};
use super::read_back::is_read_back;
use super::{Outcome, RecallSentence};

/// A full text that is read back is cut again only if it is longer than the usual limit times this.
const READ_BACK_FACTOR: usize = 4;

/// Decides how a new result is sent. Nothing is decided if it is sent as it came.
pub(super) fn decide(
    conversation: &Conversation,
    id: PartId,
    settings: &Settings,
    recall: RecallSentence<'_>,
    view: &mut View<'_>,
    outcome: &mut Outcome,
) {
    let Some(part) = conversation.part(id) else { return };
    let Some(content) = part.content() else { return };
    // A text that cannot be decoded cannot be shortened either.
    let Some(texts) = conversation.texts(id).filter(|texts| !texts.is_empty()) else { return };
    let arguments = conversation.call_of(id).and_then(|call| conversation.arguments(call));
    let output = decision::output_id(&texts);
    let subject = Subject {
        leaves: &texts,
        members: part.slots().is_none() && texts.len() > 1,
        tool: conversation.tool_of(id),
        arguments: arguments.as_deref(),
        is_error: part.is_error(),
        recall: &recall(&output),
    };
    let most = settings.truncate.base.max_bytes.saturating_mul(READ_BACK_FACTOR);
    let full_text = |id: &str| view.full_text(conversation, outcome, id);
    let reads_back = arguments
        .as_deref()
        .is_some_and(|arguments| is_read_back(arguments, &texts, &output, most, full_text));

    let earlier = view.earlier(conversation, outcome, id, content, settings);
    // The agent reads a full text back because the result was cut. A pointer to a cut result would make the text
    // unreachable, but one to a result that is sent whole, such as an earlier reading, does not.
    let is_whole = |earlier: PartId| !outcome.applied.iter().any(|applied| applied.part == earlier);
    let can_be_named = |earlier: &Earlier<'_>| all_text(part) && (!reads_back || is_whole(earlier.part));
    let pointer = earlier.filter(can_be_named).and_then(|earlier| pointer_to(&earlier, &subject, settings));
    if reads_back && pointer.is_none() && total_len(&texts) <= most {
        return;
    }
    let Some(shaped) = pointer.or_else(|| shape::shape(&subject, settings)) else { return };
    let Some(decision) = decision_of(shaped, part, content, &texts, output) else { return };
    if decision.output.is_some() {
        outcome.saves.push(Save::of(&texts));
    }
    outcome.applied.push(Applied { part: id, decision: decision.into() });
    outcome.fresh += 1;
}

/// The decision to send a result in this shape; `None` if that is not shorter. `output` is the id of the full text.
pub(super) fn decision_of(
    shaped: Shaped,
    part: &Part,
    content: Digest,
    texts: &[Cow<'_, str>],
    output: String,
) -> Option<Decision> {
    let leaves = leaf_edits(shaped.leaves, part, texts);
    // Replacements of short texts may be longer than the texts.
    let (bytes_before, bytes_after) = (total_len(texts), sent_len(&leaves, texts));
    if leaves.is_empty() || bytes_after >= bytes_before {
        return None;
    }
    Some(Decision {
        cause: Cause::Shaped(shaped.rules),
        content,
        key: PartKey::of(part.call_id(), content),
        bytes_before: bytes_before as u64,
        bytes_after: bytes_after as u64,
        output: shaped.rules.cite_full_text().then_some(output),
        leaves,
    })
}

/// Whether a result consists only of text. A pointer in place of anything else would hide it.
pub(super) fn all_text(part: &Part) -> bool {
    part.slots().is_none_or(|slots| slots.items.len() == part.leaves().len())
}

/// A pointer to an earlier result in place of this one; `None` if the tool is exempt, the result is too short, or no
/// pointer can replace all its texts.
fn pointer_to(earlier: &Earlier<'_>, subject: &Subject<'_>, settings: &Settings) -> Option<Shaped> {
    let before = total_len(subject.leaves);
    let exempt = subject.tool.is_some_and(|tool| settings.truncate.exempt.matches(tool));
    let pointer = shape::pointer(earlier.tool.or(subject.tool), earlier.call_id, before, subject.recall);
    if exempt || before < settings.repeat_min_bytes || pointer.len() >= before || subject.members {
        return None;
    }
    let mut leaves = vec![Some(LeafEdit::Replace(pointer.into()))];
    leaves.resize(subject.leaves.len(), Some(LeafEdit::Remove));
    Some(Shaped { leaves, rules: Rules::from(Rule::Repeat) })
}

/// The edits that carry out `leaves`, given for a result's texts or for its texts and media. A text that cannot be
/// removed together with its block, or whose block the client has marked, is replaced by [`GONE`] if it is longer.
pub(super) fn leaf_edits(
    leaves: Vec<Option<LeafEdit>>,
    part: &Part,
    texts: &[Cow<'_, str>],
) -> Vec<(u32, LeafEdit)> {
    let removed = |at: usize| match part.block(at)?.0 {
        leaf if leaf.slot.is_some() && !leaf.is_marked => Some(LeafEdit::Remove),
        _ => (texts.get(at)?.len() > GONE.len()).then(|| LeafEdit::Replace(GONE.into())),
    };
    let stays = |at: usize| part.leaves().get(at).is_some_and(|leaf| leaf.stays_blank);
    let leaves = leaves.into_iter().enumerate().filter(|(at, _)| !stays(*at));
    let edits = leaves.filter_map(|(at, leaf)| match leaf? {
        LeafEdit::Remove => Some((at as u32, removed(at)?)),
        replaced @ LeafEdit::Replace(_) => Some((at as u32, replaced)),
    });
    edits.collect()
}

/// Bytes of the texts as they came.
fn total_len(texts: &[Cow<'_, str>]) -> usize {
    texts.iter().map(|text| text.len()).sum()
}

/// Bytes of the texts after these edits.
pub(super) fn sent_len(edits: &[(u32, LeafEdit)], texts: &[Cow<'_, str>]) -> usize {
    let mut sizes: Vec<usize> = texts.iter().map(|text| text.len()).collect();
    for (leaf, edit) in edits {
        if let Some(size) = sizes.get_mut(*leaf as usize) {
            *size = if let LeafEdit::Replace(text) = edit { text.len() } else { 0 };
        }
    }
    sizes.iter().sum()
}

/// The history before the new results, as the model sees it.
pub(super) struct View<'p> {
    /// The results that the model can still read, by content. Built when first needed.
    results: Option<HashMap<Digest, PartId>>,
    /// The decisions about them.
    applied: &'p [Applied],
    /// Full texts found so far, by id.
    full_texts: RefCell<HashMap<String, Rc<str>>>,
}

impl<'p> View<'p> {
    pub(super) fn new(applied: &'p [Applied]) -> Self {
        Self { results: None, applied, full_texts: RefCell::default() }
    }

    /// The full text with this id, if the body still contains the result or the messages that it was made from.
    fn full_text(&self, conversation: &Conversation, outcome: &Outcome, id: &str) -> Option<Rc<str>> {
        if let Some(known) = self.full_texts.borrow().get(id) {
            return Some(Rc::clone(known));
        }
        // A miss is not remembered, because later results may have the id.
        let found: Rc<str> = self.find_full_text(conversation, outcome, id)?.into();
        self.full_texts.borrow_mut().insert(id.to_owned(), Rc::clone(&found));
        Some(found)
    }

    fn find_full_text(&self, conversation: &Conversation, outcome: &Outcome, id: &str) -> Option<String> {
        let splice = outcome.splice.as_deref().filter(|splice| splice.output.as_deref() == Some(id));
        if let Some(splice) = splice {
            return Some(super::left_out(conversation, splice, self.applied));
        }
        let refers_to_it = |applied: &&Applied| {
            applied.decision.output.as_deref() == Some(id) && super::fits(conversation, applied)
        };
        let decided = self.applied.iter().chain(&outcome.applied).find(refers_to_it)?;
        super::full_text(conversation, decided)
    }

    /// The newest earlier result with the same content that the model can still read, if its call id leads to it. If
    /// there is none, this result is remembered for later ones.
    fn earlier<'a>(
        &mut self,
        conversation: &'a Conversation,
        outcome: &Outcome,
        id: PartId,
        content: Digest,
        settings: &Settings,
    ) -> Option<Earlier<'a>> {
        if !settings.repeat || conversation.hides_results {
            return None;
        }
        let seen =
            self.results.get_or_insert_with(|| results_before(conversation, outcome, id.message as usize));
        let earlier =
            seen.get(&content).copied().filter(|earlier| is_unambiguous(conversation, *earlier, id));
        let Some(earlier) = earlier else {
            seen.insert(content, id);
            return None;
        };
        let call_id = conversation.part(earlier)?.call_id()?;
        Some(Earlier { part: earlier, call_id, tool: conversation.tool_of(earlier) })
    }
}

/// An earlier result that a pointer can name.
struct Earlier<'a> {
    part: PartId,
    call_id: &'a str,
    tool: Option<&'a str>,
}

/// Whether the result that a pointer names still precedes it and can be read.
pub(super) fn points_to_readable(conversation: &Conversation, outcome: &Outcome, pointer: &Applied) -> bool {
    if conversation.hides_results {
        return false;
    }
    let Some((_, LeafEdit::Replace(text))) = pointer.decision.leaves.first() else { return false };
    let begin = conversation.beginning();
    let is_hidden =
        |id: PartId| outcome.applied.iter().any(|applied| applied.part == id && hides(&applied.decision));
    // If several results have the id it names, the newest readable one is meant.
    for message in (0..=pointer.part.message as usize).rev().filter(|message| !outcome.drops(*message)) {
        let parts: Vec<(PartId, &Part)> = conversation.parts_of(message).collect();
        let is_named = |part: &Part| part.call_id().is_some_and(|call| shape::points_to(text, call));
        let before = parts.into_iter().rev().filter(|(id, _)| (begin..pointer.part).contains(id));
        for (id, part) in before.filter(|(_, part)| part.content().is_some() && is_named(part)) {
            if part.content() != Some(pointer.decision.content) {
                return false;
            }
            if !is_hidden(id) {
                return true;
            }
        }
    }
    false
}

/// Whether the call id of a result leads from `end` back to its content. Ids are reused, so no result with the same id
/// and another content may come in between.
fn is_unambiguous(conversation: &Conversation, result: PartId, end: PartId) -> bool {
    let Some(named) = conversation.part(result) else { return false };
    let parts = (result.message..=end.message).flat_map(|message| conversation.parts_of(message as usize));
    let mut between = parts.filter(|(id, _)| result < *id && *id < end);
    between.all(|(_, part)| {
        part.content().is_none() || part.call_id() != named.call_id() || part.content() == named.content()
    })
}

/// Whether a decision leaves nothing of a result's content: it clears the result or replaces it by a pointer.
fn hides(decision: &Decision) -> bool {
    !decision.stands_alone() || decision.is_clearing()
}

/// The newest result with each content in the messages before `end`. Pointers, cleared results and results before a
/// summary of the provider's own are left out.
fn results_before(conversation: &Conversation, outcome: &Outcome, end: usize) -> HashMap<Digest, PartId> {
    let unreadable = decision::parts(&outcome.applied, hides);
    let mut seen = HashMap::new();
    let begin = conversation.beginning();
    for message in (begin.message as usize..end).filter(|message| !outcome.drops(*message)) {
        for (id, part) in conversation.parts_of(message).filter(|(id, _)| *id >= begin) {
            if let Some(content) = part.content().filter(|_| !unreadable.contains(&id)) {
                seen.insert(content, id);
            }
        }
    }
    seen
}
