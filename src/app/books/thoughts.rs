//! Reasoning blocks, and which of them the provider really reads.
//!
//! Some providers leave reasoning out of the prompt, with all later reasoning, if what stands before it is not what
//! stood there when it was generated. They report how many blocks that affects and do not bill them, so these must
//! not count as sent. How many they would have left out of the original is modelled the same way as their caches, and
//! corrected by what they report for the form that was sent.

use std::borrow::Cow;

use super::Ended;
use super::measure::Measured;
use crate::ledger::Record;
use crate::planner::{ARGUMENTS, CLEAR, REASONING};
use crate::protocol::{Prompt, Thought};
use crate::store::Recent;
use crate::usage::{self, Binding};

/// Reasoning blocks that are remembered for each form: the most recently read, about a megabyte.
const THOUGHTS: u64 = 16 * 1024;
/// Stands for a prefix other than the present one.
const ANOTHER: u64 = 0;

/// The prefix of each reasoning block when it was first sent, by the block's key.
pub(super) struct Thoughts {
    came: Bonds,
    sent: Bonds,
}

impl Default for Thoughts {
    fn default() -> Self {
        let new = || Bonds(Recent::of_entries(THOUGHTS));
        Self { came: new(), sent: new() }
    }
}

/// The forms of a request, without the reasoning that the provider leaves out.
pub(super) struct Forms<'m> {
    pub(super) original: Cow<'m, Prompt>,
    pub(super) sent: Cow<'m, Prompt>,
    pub(super) planned: Option<Cow<'m, Prompt>>,
}

impl Thoughts {
    /// The forms of a request that was sent as `sent`.
    pub(super) fn read<'m>(&self, ended: &Ended, measured: &'m Measured, sent: &'m Prompt) -> Forms<'m> {
        let mut forms = Forms {
            original: Cow::Borrowed(&measured.original),
            sent: Cow::Borrowed(sent),
            planned: measured.planned.as_ref().map(Cow::Borrowed),
        };
        let (record, unbound) = (&*ended.record, ended.unbound as usize);
        if unbound == 0 && !is_bound(record) {
            return forms;
        }
        let (came, went) = (measured.original.thoughts(), sent.thoughts());
        let of_came = self.lost(&came, &went, record.breaks_prefix(), has_event(record), unbound);
        if unbound > 0 {
            forms.original.to_mut().keep_thoughts(came.len().saturating_sub(of_came));
            forms.sent.to_mut().keep_thoughts(went.len().saturating_sub(unbound));
            if let Some(planned) = &mut forms.planned {
                let all = planned.thoughts().len();
                planned.to_mut().keep_thoughts(all.saturating_sub(unbound));
            }
        }
        forms
    }

    /// How many trailing reasoning blocks would have been left out of the original, where `unbound` were left out of
    /// what was sent. `breaks`: the prompt is no extension of the one before; `has_event`: there was an event at some
    /// time.
    fn lost(
        &self,
        came: &[Thought],
        sent: &[Thought],
        breaks: bool,
        has_event: bool,
        unbound: usize,
    ) -> usize {
        // Reasoning that comes with an event is older than it, and so is the unknown reasoning of a history with one.
        let is_strange = breaks || (has_event && !self.sent.knows(sent));
        let [of_came, of_sent] = [self.came.broken(came, false), self.sent.broken(sent, is_strange)];
        (unbound + of_came).saturating_sub(of_sent)
    }
}

struct Bonds(Recent<u128, u64>);

impl Bonds {
    fn knows(&self, thoughts: &[Thought]) -> bool {
        thoughts.iter().any(|thought| self.0.get(&thought.key).is_some())
    }

    /// How many of these reasoning blocks, counted from the end, stand behind another prefix than they were generated
    /// behind, or behind such a block. New ones were generated behind their present prefix, unless it is `strange` to
    /// them.
    fn broken(&self, thoughts: &[Thought], strange: bool) -> usize {
        let mut first = thoughts.len();
        for (at, thought) in thoughts.iter().enumerate() {
            let born = if strange { ANOTHER } else { thought.before };
            if self.0.get_or_insert(thought.key, born) != thought.before {
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

/// Whether an event's decisions hold for a request.
fn has_event(record: &Record) -> bool {
    let edits = &record.edits;
    edits.splice.is_some() || [CLEAR, REASONING, ARGUMENTS].iter().any(|rule| edits.parts.contains_key(*rule))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thoughts that are counted from here to there, and what stands before all of them.
    type Form = (u128, u128, u64);

    fn thoughts((from, to, before): Form) -> Vec<Thought> {
        (from..to).map(|key| Thought { key, before: before + key as u64 }).collect()
    }

    /// Requests of a conversation: what came, what was sent, whether that breaks, whether there was an event, how many
    /// thoughts were left out of it, and how many would have been left out of what came.
    #[test]
    fn what_is_left_out_behind_an_event_would_have_been_read() {
        type Request = (Form, Form, bool, bool, usize, usize);
        const BEGUN: Request = ((0, 4, 100), (0, 4, 200), false, false, 0, 0);
        const EVENT: Request = ((0, 5, 100), (0, 5, 300), true, true, 5, 0);
        const CHANGE: Request = ((0, 5, 400), (0, 5, 500), false, false, 5, 5);
        for (what, requests) in [
            ("an event", &[BEGUN, EVENT, ((0, 6, 100), (0, 6, 300), false, true, 6, 0)][..]),
            ("two", &[BEGUN, EVENT, ((0, 6, 100), (0, 6, 600), true, true, 6, 0)]),
            ("the client", &[BEGUN, CHANGE, ((0, 6, 400), (0, 6, 500), false, false, 6, 6)]),
            ("an event, then the client", &[BEGUN, EVENT, ((0, 6, 400), (0, 6, 500), false, true, 6, 6)]),
            ("the client, then an event", &[BEGUN, CHANGE, ((0, 6, 400), (0, 6, 600), true, true, 6, 6)]),
            (
                "a summary, behind which new ones stay",
                &[
                    BEGUN,
                    ((0, 5, 100), (3, 5, 300), true, true, 2, 0),
                    ((0, 6, 100), (5, 6, 300), false, true, 0, 0),
                ],
            ),
            ("as it came, behind an event", &[BEGUN, EVENT, ((0, 6, 100), (0, 6, 100), true, false, 6, 0)]),
            ("after a restart", &[((0, 6, 100), (0, 6, 300), false, true, 4, 0)]),
            ("after a restart, and then the client", &[EVENT, ((0, 6, 400), (0, 6, 500), false, true, 6, 6)]),
            // Nothing is known to have changed: it is left out of both.
            ("for another reason", &[BEGUN, ((0, 5, 100), (0, 5, 200), false, false, 3, 3)]),
            ("the only one", &[((0, 1, 100), (0, 1, 300), true, true, 1, 0)]),
        ] {
            let known = Thoughts::default();
            for (came, sent, breaks, has_event, unbound, expected) in requests {
                let (came, sent) = (thoughts(*came), thoughts(*sent));
                let lost = known.lost(&came, &sent, *breaks, *has_event, *unbound);
                assert_eq!(lost, *expected, "{what}: of {}", came.len());
            }
        }
    }
}
