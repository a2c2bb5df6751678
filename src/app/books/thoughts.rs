//! Reasoning blocks, and which of them the provider really reads.
//!
//! Some providers leave a reasoning block, and all reasoning after it, out of the prompt if the block does not follow
//! the prefix that it was generated after. They report how many blocks they left out and do not bill them, so these
//! must not count as sent. How many they would have left out of the original is modelled like their caches: the number
//! that they report for what was sent, plus the difference between what the model says of the two forms.

use std::borrow::Cow;

use super::Ended;
use super::measure::Measured;
use crate::ledger::Record;
use crate::planner::{ARGUMENTS, CLEAR, REASONING};
use crate::protocol::{Prompt, Thought};
use crate::store::Recent;
use crate::usage::{self, Binding};

/// How many reasoning blocks are remembered for each form: the most recently read, about a megabyte.
const MAX_THOUGHTS: u64 = 16 * 1024;
/// The key of a prefix that differs from every other.
const ANOTHER_PREFIX: u64 = 0;

/// The prefixes that reasoning blocks were generated after, in the two forms of each conversation.
pub(super) struct Thoughts {
    /// In the form that clients sent.
    original: Bonds,
    /// In the form that was sent to providers.
    sent: Bonds,
}

impl Default for Thoughts {
    fn default() -> Self {
        let new = || Bonds(Recent::of_entries(MAX_THOUGHTS));
        Self { original: new(), sent: new() }
    }
}

/// The forms of a request, without the reasoning that the provider leaves out.
pub(super) struct Forms<'m> {
    pub(super) original: Cow<'m, Prompt>,
    pub(super) sent: Cow<'m, Prompt>,
    pub(super) planned: Option<Cow<'m, Prompt>>,
}

impl Thoughts {
    /// The forms of a request of which the provider has received `sent`, each without the reasoning that the provider
    /// leaves out of it.
    pub(super) fn read<'m>(&self, ended: &Ended, measured: &'m Measured, sent: &'m Prompt) -> Forms<'m> {
        let mut forms = Forms {
            original: Cow::Borrowed(&measured.original),
            sent: Cow::Borrowed(sent),
            planned: measured.planned.as_ref().map(Cow::Borrowed),
        };
        let (record, unbound) = (&*ended.record, ended.unbound as usize);
        let has_thoughts = measured.original.has_thoughts() || sent.has_thoughts();
        if unbound == 0 && !(has_thoughts && is_bound(record)) {
            return forms;
        }
        let [in_original, in_sent] = [&measured.original, sent].map(Prompt::thoughts);
        // Also called if nothing was left out, for the prefixes to be remembered.
        let unbound_in_original = self.count_left_out(&in_original, &in_sent, SentAs::of(record), unbound);
        if unbound > 0 {
            forms.original.to_mut().keep_thoughts(in_original.len().saturating_sub(unbound_in_original));
            forms.sent.to_mut().keep_thoughts(in_sent.len().saturating_sub(unbound));
            if let Some(planned) = &mut forms.planned {
                let all = planned.thoughts().len();
                planned.to_mut().keep_thoughts(all.saturating_sub(unbound));
            }
        }
        forms
    }

    /// How many trailing reasoning blocks would have been left out of the original if `unbound` were left out of the
    /// form that was sent.
    fn count_left_out(
        &self,
        original: &[Thought],
        sent: &[Thought],
        sent_as: SentAs,
        unbound: usize,
    ) -> usize {
        // Blocks that are seen for the first time in a rewritten prompt were generated before it was rewritten. So were
        // those of a history with an event of which none was seen before.
        let is_older = match sent_as {
            SentAs::Rewritten => true,
            SentAs::ExtensionAfterEvent => !self.sent.knows(sent),
            SentAs::Extension => false,
        };
        let broken_in_original = self.original.count_broken(original, false);
        let broken_in_sent = self.sent.count_broken(sent, is_older);
        (unbound + broken_in_original).saturating_sub(broken_in_sent)
    }
}

/// How the prompt that was sent relates to the one before.
#[derive(Debug, Clone, Copy)]
enum SentAs {
    /// It begins with the one before, and no event ever changed its history.
    Extension,
    /// It begins with the one before, and an event has changed its history at some time.
    ExtensionAfterEvent,
    /// It does not begin with the one before.
    Rewritten,
}

impl SentAs {
    fn of(record: &Record) -> Self {
        let edits = &record.edits;
        let has_parts_of = |rule: &&str| edits.parts.contains_key(*rule);
        if record.breaks_prefix() {
            Self::Rewritten
        } else if edits.original_resent {
            // The event that it was to carry was not sent.
            Self::Extension
        } else if edits.splice.is_some() || [CLEAR, REASONING, ARGUMENTS].iter().any(has_parts_of) {
            Self::ExtensionAfterEvent
        } else {
            Self::Extension
        }
    }
}

/// The prefix that each reasoning block was generated after, by the block's key.
struct Bonds(Recent<u128, u64>);

impl Bonds {
    /// Whether any of these blocks was sent before.
    fn knows(&self, thoughts: &[Thought]) -> bool {
        thoughts.iter().any(|thought| self.0.get(&thought.key).is_some())
    }

    /// Counts the reasoning blocks from the first one on that does not follow the prefix it was generated after. Blocks
    /// that were never seen before are remembered as generated after their present prefix, or, if `is_older`, after
    /// another one.
    fn count_broken(&self, thoughts: &[Thought], is_older: bool) -> usize {
        let mut first = thoughts.len();
        for (at, thought) in thoughts.iter().enumerate() {
            let unseen = if is_older { ANOTHER_PREFIX } else { thought.before };
            if self.0.get_or_insert(thought.key, unseen) != thought.before {
                first = first.min(at);
            }
        }
        thoughts.len() - first
    }
}

/// Whether the provider leaves out reasoning whose prefix has changed.
fn is_bound(record: &Record) -> bool {
    let model = record.model.as_deref().or(record.model_asked.as_deref());
    model.is_some_and(|model| usage::binding(model) == Some(Binding::Dropped))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thoughts from one number to another, and what precedes all of them.
    type Form = (u128, u128, u64);

    fn thoughts((from, to, before): Form) -> Vec<Thought> {
        (from..to).map(|key| Thought { key, before: before + key as u64 }).collect()
    }

    /// Requests of a conversation: what came, what was sent and as what, how many thoughts were left out of that, and
    /// how many would have been left out of what came.
    #[test]
    fn reasoning_dropped_by_an_event_counts_in_the_untouched_prompt() {
        use SentAs::{Extension, ExtensionAfterEvent, Rewritten};

        type Request = (Form, Form, SentAs, usize, usize);
        const BEGUN: Request = ((0, 4, 100), (0, 4, 200), Extension, 0, 0);
        const EVENT: Request = ((0, 5, 100), (0, 5, 300), Rewritten, 5, 0);
        const CHANGE: Request = ((0, 5, 400), (0, 5, 500), Extension, 5, 5);
        for (what, requests) in [
            ("an event", &[BEGUN, EVENT, ((0, 6, 100), (0, 6, 300), ExtensionAfterEvent, 6, 0)][..]),
            ("two", &[BEGUN, EVENT, ((0, 6, 100), (0, 6, 600), Rewritten, 6, 0)]),
            ("the client", &[BEGUN, CHANGE, ((0, 6, 400), (0, 6, 500), Extension, 6, 6)]),
            (
                "an event, then the client",
                &[BEGUN, EVENT, ((0, 6, 400), (0, 6, 500), ExtensionAfterEvent, 6, 6)],
            ),
            ("the client, then an event", &[BEGUN, CHANGE, ((0, 6, 400), (0, 6, 600), Rewritten, 6, 6)]),
            (
                "a summary, behind which new ones stay",
                &[
                    BEGUN,
                    ((0, 5, 100), (3, 5, 300), Rewritten, 2, 0),
                    ((0, 6, 100), (5, 6, 300), ExtensionAfterEvent, 0, 0),
                ],
            ),
            ("as it came, behind an event", &[BEGUN, EVENT, ((0, 6, 100), (0, 6, 100), Rewritten, 6, 0)]),
            ("after a restart", &[((0, 6, 100), (0, 6, 300), ExtensionAfterEvent, 4, 0)]),
            (
                "after a restart, and then the client",
                &[EVENT, ((0, 6, 400), (0, 6, 500), ExtensionAfterEvent, 6, 6)],
            ),
            // Nothing is known to have changed: it is left out of both.
            ("for another reason", &[BEGUN, ((0, 5, 100), (0, 5, 200), Extension, 3, 3)]),
            ("the only one", &[((0, 1, 100), (0, 1, 300), Rewritten, 1, 0)]),
        ] {
            let known = Thoughts::default();
            for (came, sent, sent_as, unbound, expected) in requests {
                let (came, sent) = (thoughts(*came), thoughts(*sent));
                let left_out = known.count_left_out(&came, &sent, *sent_as, *unbound);
                assert_eq!(left_out, *expected, "{what}: of {}", came.len());
            }
        }
    }
}
