//! Abridging long texts in the arguments of old calls.
//!
//! A long text, such as a written file, a patch or a script, keeps only its beginning; a line replaces the rest, and
//! the full text is saved. The call keeps its tool, its id, its result and everything else in it. Signed calls stay as
//! they are.

use crate::conversation::{Arguments, Conversation, Digest, MIN_ABRIDGED, PartId, PartKind, Texts, boundary};
use crate::plan::LeafEdit;
use crate::strategy::clear;
use crate::strategy::gate::{Candidate, Reason};
use crate::strategy::ladder::{Need, Rung};

use super::RecallSentence;
use super::decision::{self, Applied, Cause, Decision, PartKey, Save};
use super::event::{Before, Change};

/// Bytes of the beginning that stay: a path, a command, the head of a patch.
const KEPT_HEAD: usize = 200;
/// Approximate bytes of the line that replaces the rest.
const LINE_LEN: usize = 160;
/// A call stays whole for this many requests after it was made, unless the window demands room, because the agent may
/// still be working on what it wrote.
const RECENT_REQUESTS: u32 = 10;

impl Before<'_> {
    /// Extends the change `cleared`, which clears results, by abridging the calls before message `end`, the oldest
    /// first, until enough is freed; `None` if no call is abridged.
    pub(super) fn abridge_for(&self, need: &Need, cleared: Option<Change>, end: usize) -> Option<Change> {
        let policy = self.policy;
        let clears = clear::allows(&policy.clear, Reason::Window);
        if !clears || !policy.ladder.enabled || policy.clear.arguments == clear::Arguments::Never {
            return None;
        }
        let mut change = cleared.unwrap_or_else(|| Change::nothing(Reason::Window, Rung::Arguments));
        let behind_all = PartId { message: self.conversation.messages.len() as u32, part: 0 };
        let began = change.decided.iter().map(|applied| applied.part).min().unwrap_or(behind_all);
        let (before, cleared) = (change.freed_bytes, change.decided.len());
        for candidate in self.long_calls(0) {
            let part = self.history().items()[candidate.item].part;
            if change.freed_bytes >= need.wanted || part.message as usize >= end {
                break;
            }
            let Some((applied, save)) = decide(self.conversation, part, self.recall) else { continue };
            change.freed_bytes += applied.decision.bytes_spared_of(self.conversation, part);
            change.decided.push(applied);
            change.saves.push(save);
        }
        self.complete_record(began, &mut change);
        let freed = change.freed_bytes - before;
        change.rewritten_bytes = change.rewritten_bytes.saturating_sub(freed);
        change.rung = Rung::Arguments;
        (change.decided.len() > cleared).then_some(change)
    }

    /// The calls with long texts that an event may abridge to save money, if the settings allow it.
    pub(super) fn old_arguments(&self) -> Vec<Candidate> {
        if self.policy.clear.arguments != clear::Arguments::Always {
            return Vec::new();
        }
        self.long_calls(RECENT_REQUESTS)
    }

    /// The calls whose long texts are still sent and that were made at least `min_age` requests ago, in order. Their
    /// rent is what reading these texts has cost beyond that age.
    fn long_calls(&self, min_age: u32) -> Vec<Candidate> {
        let (history, gone, tail) = (self.history(), self.cleared(), self.conversation.tail());
        let items = history.items().iter().enumerate();
        let long = items.filter(|(at, item)| item.long > 0 && !gone(*at));
        let old = long.filter_map(|(at, item)| {
            let tool = self.conversation.part(item.part)?.tool()?;
            let age = history.step().checked_sub(item.step + min_age)?;
            let result = self.conversation.result_of(item.part)?;
            let is_sent = (result.message as usize) < self.sent.min(tail);
            let may_go = is_sent && !self.policy.clear.protected_tools.matches(tool);
            let rent = self.rates.read * f64::from(item.long) * f64::from(age);
            may_go.then_some(Candidate { item: at, frees: item.long, rent })
        });
        old.collect()
    }
}

/// Bytes saved by abridging a call; 0 if it has no long texts or must be sent as received.
pub(super) fn frees(conversation: &Conversation, id: PartId) -> u32 {
    if conversation.part(id).is_none_or(|part| part.is_sealed() || part.span.len() < MIN_ABRIDGED) {
        return 0;
    }
    let Some(texts) = conversation.argument_texts(id) else { return 0 };
    let free: usize = long(&texts).map(|(_, text)| text.len().saturating_sub(KEPT_HEAD + LINE_LEN)).sum();
    u32::try_from(free).unwrap_or(u32::MAX)
}

/// The digest of a call's tool and arguments, if the call can be abridged.
pub(super) fn content(conversation: &Conversation, id: PartId) -> Option<Digest> {
    (is_call(conversation, id) && frees(conversation, id) > 0).then(|| conversation.call_digest(id))?
}

/// The texts that are long enough to be abridged, with their indices.
fn long<'a>(texts: &'a Texts<'_>) -> impl Iterator<Item = (usize, std::borrow::Cow<'a, str>)> {
    (0..texts.len()).filter_map(|at| Some((at, texts.get(at).filter(|text| text.len() >= MIN_ABRIDGED)?)))
}

/// The decision that abridges a call, and the full text to save; `None` if that would not make the call shorter.
pub(super) fn decide(
    conversation: &Conversation,
    id: PartId,
    recall: RecallSentence<'_>,
) -> Option<(Applied, Save)> {
    let content = content(conversation, id)?;
    let texts = conversation.argument_texts(id)?;
    let text = full_text(&texts)?;
    let output = decision::output_id(&[text.as_str().into()]);
    let recall = recall(&output);
    let (mut leaves, mut before, mut after) = (Vec::new(), 0, 0);
    for (at, text) in long(&texts) {
        let short = abridged(&text, &recall);
        if short.len() < text.len() {
            (before, after) = (before + text.len(), after + short.len());
            leaves.push((at as u32, LeafEdit::Replace(short.into())));
        }
    }
    let decision = Decision {
        cause: Cause::Abridged,
        leaves,
        content,
        key: PartKey::of(conversation.part(id)?.call_id(), content),
        bytes_before: before as u64,
        bytes_after: after as u64,
        output: Some(output.clone()),
    };
    let save = Save { id: output, text };
    (before > 0).then(|| (Applied { part: id, decision: decision.into() }, save))
}

/// The full texts of the long arguments. If there are several, each is preceded by a line with its number. `None` if
/// there is none.
fn full_text(texts: &Texts<'_>) -> Option<String> {
    let long: Vec<_> = long(texts).map(|(_, text)| text).collect();
    if let [only] = &long[..] {
        return Some(only.to_string());
    }
    let count = long.len();
    let numbered = long.iter().enumerate().map(|(at, text)| {
        let end = if text.ends_with('\n') { "" } else { "\n" };
        format!("[plimsoll: argument {} of {count}]\n{text}{end}", at + 1)
    });
    (count > 0).then(|| numbered.collect::<Vec<_>>().join("\n"))
}

/// The full text that a decision about a call refers to; `None` if it cannot be read.
pub(super) fn full(conversation: &Conversation, decision: &Decision, id: PartId) -> Option<String> {
    let texts = conversation.argument_texts(id)?;
    let text = full_text(&texts)?;
    if decision.output == Some(decision::output_id(&[text.as_str().into()])) {
        return Some(text);
    }
    // Older gateways saved the texts without numbers, and derived the id from those.
    Some(long(&texts).map(|(_, text)| text).collect::<Vec<_>>().join("\n\n"))
}

/// The beginning of a text, and a line that replaces the rest.
fn abridged(text: &str, recall: &str) -> String {
    let head = &text[..boundary::floor(text, KEPT_HEAD)];
    let (removed, total) = (text.len() - head.len(), text.len());
    format!("{head}\n\n[plimsoll: {removed} of {total} bytes of this argument removed here; {recall}]")
}

/// Whether a decision abridges this call as it still is, and the call may be edited and has a result.
pub(super) fn fits(conversation: &Conversation, applied: &Applied) -> bool {
    let is_open = conversation.part(applied.part).is_some_and(|part| !part.is_sealed());
    applied.decision.is_abridgement()
        && is_open
        && conversation.call_digest(applied.part) == Some(applied.decision.content)
        && conversation.result_of(applied.part).is_some()
}

/// The arguments of a call with these edits applied.
pub(super) fn with_edits(
    conversation: &Conversation,
    id: PartId,
    edits: &[(u32, LeafEdit)],
) -> Option<String> {
    let replaced = edits.iter().filter_map(|(at, edit)| match edit {
        LeafEdit::Replace(text) => Some((*at as usize, &**text)),
        LeafEdit::Remove => None,
    });
    conversation.argument_texts(id)?.with(replaced)
}

/// Bytes that are saved of a call's arguments as they are written in the body, if `spared` bytes of their text are.
pub(super) fn spared(conversation: &Conversation, id: PartId, spared: u64) -> Option<u64> {
    let (Arguments::Value(span) | Arguments::Encoded(span)) = conversation.part(id)?.arguments()?;
    let written = conversation.bytes_of(id.message, span);
    // Nearly every escape adds as many bytes as it has backslashes, also one within JSON that is itself in a literal.
    let escapes = memchr::memchr_iter(b'\\', written).count();
    let text = (written.len() - escapes).max(1);
    Some(spared + (spared as f64 * escapes as f64 / text as f64) as u64)
}

/// Whether a part is a call.
pub(super) fn is_call(conversation: &Conversation, id: PartId) -> bool {
    conversation.part(id).is_some_and(|part| part.kind() == PartKind::ToolCall)
}
