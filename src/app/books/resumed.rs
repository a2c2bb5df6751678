//! Threads that an earlier process has followed: what a provider's cache still holds of them.
//!
//! The models of caches are lost with the process. The ledger says when the last request of a thread to a model was
//! made and how many messages it had. The messages that a request repeats were sent then as they are sent now, unless
//! an event has changed them with this request. So the models are first fed these messages, as of that time.

use super::thoughts::Forms;
use crate::ledger::Record;
use crate::protocol::Prompt;
use crate::store::Store;
use crate::usage::cache_model::PromptShape;

/// The last request of a thread to a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Resumed {
    /// When it came, in milliseconds since 1970.
    at_ms: u64,
    /// The messages after those that it had in common with the present request.
    new: u32,
    /// The first message that an event has changed with the present request, in the form that is sent.
    changed: Option<u32>,
}

/// The prompt of that request in its two forms, as the caches see it.
#[derive(Debug, Clone)]
pub(super) struct Before {
    pub(super) at_ms: u64,
    pub(super) original: PromptShape,
    pub(super) sent: PromptShape,
}

impl Resumed {
    /// The last request before the present one with the record `record`, of its thread or of the one that this
    /// branched from. `prior`: the messages that an earlier request carried. `None` if the store has none, and if it is
    /// not known what the provider has read since: of a request that was not billed, or went past the gateway.
    pub(super) fn find(store: &dyn Store, record: &Record, prior: u32) -> Option<Self> {
        let model = record.model.as_deref()?;
        let threads = [&record.thread, &record.parent].into_iter().flatten();
        let mut found = threads.filter_map(|thread| {
            let (last, at_ms) = store.last_request(&record.conversation, thread, model).ok()??;
            let last: Record = serde_json::from_str(&last).ok()?;
            Some((last, u64::try_from(at_ms).ok()?))
        });
        let (last, at_ms) = found.find(|(last, _)| last.upstream == record.upstream)?;
        if last.tokens.is_none() || !is_next(&last, record) {
            return None;
        }
        let new = record.messages.saturating_sub(prior.min(last.messages));
        Some(Self { at_ms, new, changed: changed(record) })
    }

    /// The forms of its prompt. `original` and `sent` are the shapes of the present request's `forms`.
    pub(super) fn before(self, forms: &Forms<'_>, [original, sent]: [&PromptShape; 2]) -> Before {
        let old = |prompt: &Prompt| prompt.messages().saturating_sub(self.new);
        let still_sent = old(&forms.sent).min(self.changed.unwrap_or(u32::MAX));
        Before {
            at_ms: self.at_ms,
            original: beginning(original, forms.original.kept_before(old(&forms.original))),
            sent: beginning(sent, forms.sent.kept_before(still_sent)),
        }
    }
}

/// Whether at most one answer lies between two requests of a thread, or of a thread and its branch.
fn is_next(last: &Record, record: &Record) -> bool {
    let is_next_turn = record.turn == last.turn.saturating_add(1) && record.step == 1;
    is_next_turn || (record.turn, record.step) <= (last.turn, last.step.saturating_add(1))
}

/// The first message that an event has changed with a request, in the form that was sent. After a splice, messages
/// have other numbers there, so nothing after one counts as unchanged.
fn changed(record: &Record) -> Option<u32> {
    let edits = &record.edits;
    let event = edits.event.as_ref().map_or(0, |event| event.first_message);
    let spliced = edits.splice.as_ref().map(|splice| splice.first);
    record.breaks_prefix().then(|| event.min(spliced.unwrap_or(u32::MAX)))
}

/// The first `blocks` blocks of a prompt as an earlier request had them: the mark on the end moves on with the prompt.
fn beginning(prompt: &PromptShape, blocks: usize) -> PromptShape {
    let (old, new) = prompt.blocks.split_at(blocks.min(prompt.blocks.len()));
    let mut blocks = old.to_vec();
    if let Some(last) = blocks.last_mut() {
        last.mark = last.mark.or_else(|| new.iter().rev().find_map(|block| block.mark));
    }
    PromptShape { blocks, automatic: prompt.automatic, late: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_follow_each_other_if_at_most_one_answer_lies_between() {
        for (last, record, expected) in [
            ((2, 3), (2, 4), true),
            ((2, 3), (3, 1), true),
            // A retry, and a branch.
            ((2, 3), (2, 3), true),
            ((2, 3), (1, 9), true),
            ((2, 3), (2, 5), false),
            ((2, 3), (3, 2), false),
            ((2, 3), (4, 1), false),
            // Nothing that a damaged store says is too much.
            ((u32::MAX, u32::MAX), (2, 3), true),
        ] {
            let [last, record] =
                [last, record].map(|(turn, step)| Record { turn, step, ..Record::default() });
            assert_eq!(is_next(&last, &record), expected, "{last:?} {record:?}");
        }
    }
}
