//! What the model has thought, as far as its provider reads it.
//!
//! Some providers leave out of a prompt what was thought behind something else than what stands before it now, and all that
//! was thought since. They tell how much that is, and do not bill it: it must not count as sent. How much they would have
//! left out of the prompt as it came is modelled, as their caches are: what is told of what was sent corrects it.

use std::borrow::Cow;

use super::Ended;
use super::measure::Measured;
use crate::ledger::Record;
use crate::planner::{ARGUMENTS, CLEAR, REASONING};
use crate::protocol::{Prompt, Thought};
use crate::store::Recent;
use crate::usage::{self, Binding};

/// Thoughts that are remembered of each form: those that were read last, a megabyte of them.
const THOUGHTS: u64 = 16 * 1024;
/// What stood before a thought, where that is not what stands there now.
const ANOTHER: u64 = 0;

/// What stood before thoughts when they were first sent, by their keys.
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

/// The forms of a request, as far as they are read.
pub(super) struct Forms<'m> {
    pub(super) original: Cow<'m, Prompt>,
    pub(super) sent: Cow<'m, Prompt>,
    pub(super) planned: Option<Cow<'m, Prompt>>,
}

impl Thoughts {
    /// What is read of a request that was `sent` in this form.
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

    /// How many of the last thoughts would have been left out of what came, where so many were `unbound` in what was sent.
    /// `breaks`: what was sent before is no prefix of it; `has_event`: it was not, some time.
    fn lost(
        &self,
        came: &[Thought],
        sent: &[Thought],
        breaks: bool,
        has_event: bool,
        unbound: usize,
    ) -> usize {
        // What comes with an event was thought before it, and so was what is not known of a history with one.
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

    /// How many of these thoughts, the last ones, do not stand behind what they were thought behind, or stand behind one that
    /// does not. New ones were thought behind what stands before them, unless that is `strange` to them.
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

/// Whether a model's provider leaves out what does not stand where it stood.
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
