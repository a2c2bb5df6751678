//! Events, the changes to old parts: whether one that saves money is due, and what an event does. Events that make
//! room are chosen in [`room`](super::room).

use std::cell::OnceCell;
use std::collections::HashSet;

use crate::conversation::{Conversation, PartId};
use crate::strategy::gate::{self, Account, Candidate, Rates, Reason};
use crate::strategy::ladder::Rung;
use crate::strategy::{History, clear};

use super::decision::{Applied, Cause, Decision, Save, parts};
use super::splice::{Layout, Splice};
use super::standing::Standing;
use super::{Facts, Policy, RecallSentence, arguments, cleared, reasoning};

/// A change to old parts.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Why the gate allowed it.
    pub reason: Reason,
    /// How room was made.
    pub rung: Rung,
    /// How many results were cleared.
    pub cleared: u32,
    /// How many results that were new with the request were cut.
    pub cut: u32,
    /// How many messages are no longer sent.
    pub dropped: u32,
    /// Bytes of text saved with each later request.
    pub freed_bytes: u64,
    /// Estimated bytes that the provider has to write to its cache again.
    pub rewritten_bytes: u64,
    /// The first message that changes.
    pub first_message: u32,
    /// How many blocks of reasoning were left out: those of earlier turns, or all if reasoning is bound to what
    /// changed.
    pub reasoning: u32,
    /// How many calls have the long texts in their arguments abridged.
    pub abridged: u32,
}

impl Event {
    /// Whether it loses something that a summary would preserve.
    pub(super) fn loses(&self) -> bool {
        self.rung != Rung::Summary && (self.dropped > 0 || self.cut > 0)
    }
}

/// A request before its event.
pub(super) struct Before<'a> {
    pub(super) conversation: &'a Conversation,
    pub(super) policy: &'a Policy,
    pub(super) facts: &'a Facts,
    pub(super) recall: RecallSentence<'a>,
    pub(super) standing: &'a Standing,
    pub(super) applied: &'a [Applied],
    /// The splice in force.
    pub(super) splice: Option<&'a Splice>,
    /// The splice that is prepared, if any.
    pub(super) ready: Option<&'a Splice>,
    /// Messages that were sent before; the rest must not be touched.
    pub(super) sent: usize,
    /// Messages up to the last one with bound reasoning.
    pub(super) bound: usize,
    /// The rates that apply to this prompt.
    pub(super) rates: Rates,
    /// Whether the provider reads up to the nearest cache entry before a cut, because a mark is free to reach it.
    pub(super) anchored: bool,
    /// Whether the frame has a cache entry of its own.
    pub(super) keeps_frame: bool,
    pub(super) derived: Derived,
}

/// Derived values that are needed repeatedly, computed on first use.
#[derive(Default)]
pub(super) struct Derived {
    /// See [`Before::cleared`].
    cleared: OnceCell<HashSet<PartId>>,
    /// See [`Before::sizes`].
    sizes: OnceCell<Vec<u64>>,
    /// See [`Before::tails`].
    pub(super) tails: OnceCell<Vec<u64>>,
}

/// What an event does.
pub(super) struct Change {
    /// Why it is made.
    pub(super) reason: Reason,
    /// How room is made.
    pub(super) rung: Rung,
    /// New decisions on results, calls and reasoning.
    pub(super) decided: Vec<Applied>,
    /// The full texts that they refer to.
    pub(super) saves: Vec<Save>,
    /// The splice, if messages are dropped.
    pub(super) splice: Option<Splice>,
    /// Bytes of text saved with each later request.
    pub(super) freed_bytes: u64,
    /// Estimated bytes that the provider has to write to its cache again.
    pub(super) rewritten_bytes: u64,
}

impl Change {
    /// A change without effects.
    pub(super) const fn nothing(reason: Reason, rung: Rung) -> Self {
        Self {
            reason,
            rung,
            decided: Vec::new(),
            saves: Vec::new(),
            splice: None,
            freed_bytes: 0,
            rewritten_bytes: 0,
        }
    }

    /// Its record.
    pub(super) fn event(&self) -> Event {
        let mut event = Event {
            reason: self.reason,
            rung: self.rung,
            cleared: 0,
            cut: 0,
            dropped: self.splice.as_ref().map_or(0, Splice::dropped),
            freed_bytes: self.freed_bytes,
            rewritten_bytes: self.rewritten_bytes,
            first_message: self.first().message,
            reasoning: 0,
            abridged: 0,
        };
        for applied in &self.decided {
            match applied.decision.cause {
                Cause::Cleared => event.cleared += 1,
                Cause::Shaped(_) => event.cut += 1,
                Cause::Omitted => event.reasoning += 1,
                Cause::Abridged => event.abridged += 1,
                Cause::Split | Cause::Opened | Cause::Unknown(_) => {}
            }
        }
        event
    }

    /// The first part that changes.
    pub(super) fn first(&self) -> PartId {
        let first = self.decided.iter().map(|applied| applied.part).min();
        first.into_iter().chain(self.first_spliced()).min().unwrap_or(PartId { message: 0, part: 0 })
    }

    /// The first part that changes other than reasoning.
    pub(super) fn first_said(&self) -> Option<PartId> {
        let said = self.decided.iter().filter(|applied| !applied.decision.is_omission());
        said.map(|applied| applied.part).chain(self.first_spliced()).min()
    }

    /// The first part that the splice changes.
    fn first_spliced(&self) -> Option<PartId> {
        self.splice.as_ref().map(|splice| match splice.layout {
            Layout::Appended => splice.at,
            _ => PartId { message: splice.first_changed() as u32, part: 0 },
        })
    }
}

/// What to clear, and why.
pub(super) struct Choice {
    reason: Reason,
    /// The parts that are cleared, each with the bytes saved: results, calls, and the first block of reasoning, which
    /// represents all of it.
    parts: Vec<(PartId, u32)>,
    /// Bytes saved with each later request.
    freed: u64,
    /// Estimated bytes that the provider has to write to its cache again.
    rewritten: u64,
}

/// The gate's verdict.
#[derive(Default)]
struct Verdict {
    /// What to clear now, if anything.
    choice: Option<Choice>,
    /// The first part that the next event is expected to clear.
    next: Option<PartId>,
}

impl Before<'_> {
    /// The parts of the thread and what is recorded about them.
    pub(super) fn history(&self) -> &History {
        self.standing.history()
    }

    /// What the thread has cost, the gateway's own calls included.
    pub(super) fn account(&self) -> Account {
        let account = self.standing.account();
        Account { paid: account.paid + self.facts.spent, ..account }
    }

    /// Whether the request continues another one: it is neither the first of its thread nor a retry.
    pub(super) fn goes_on(&self) -> bool {
        (1..self.conversation.messages.len()).contains(&self.sent)
    }

    /// Bytes that the model reads of the request as it would be sent before its event.
    pub(super) fn sent_bytes(&self) -> u64 {
        let spared: u64 = self.applied.iter().map(|applied| applied.bytes_spared_of(self.conversation)).sum();
        let dropped = self.splice.map_or(0, |splice| splice.read_len(self.conversation));
        let inserted = self.splice.map_or(0, Splice::bytes_after);
        let read = self.conversation.body.len() - self.conversation.encoded(|_| true) - dropped;
        (read as u64 + inserted).saturating_sub(spared)
    }

    /// The event that applies the prepared splice, if that is possible and frees anything.
    pub(super) fn splicing(&self) -> Option<Change> {
        let splice = self.ready?;
        if self.splice.is_some_and(|former| former.end() >= splice.end()) {
            return None;
        }
        let change = self.change_by(splice.clone(), Rung::Summary);
        (change.freed_bytes > 0).then_some(change)
    }

    /// Adds what a change causes to be written again before `part`, if only what follows `part` has been counted.
    pub(super) fn complete_record(&self, part: PartId, change: &mut Change) {
        let first = change.first();
        if first < part {
            let more = self.rewritten_from(first).saturating_sub(self.rewritten_from(part));
            change.rewritten_bytes += more;
        }
    }

    /// The change that makes room by a splice.
    pub(super) fn change_by(&self, splice: Splice, rung: Rung) -> Change {
        let items = self.history().items();
        let sizes = self.sizes();
        let dropped_before = |end: usize| -> u64 {
            let size = |at: u32| sizes.get((at as usize).min(end)).copied().unwrap_or(0);
            splice.drops.iter().map(|(first, end)| size(*end) - size(*first)).sum()
        };
        let dropped = dropped_before(usize::MAX);
        // The text of the former splice is removed, too.
        let former = self.splice.map_or(0, Splice::bytes_after);
        let changed = items.partition_point(|item| (item.part.message as usize) < splice.first_changed());
        let behind = if changed < items.len() { self.written_again(changed, self.tails()) } else { 0 };
        Change {
            freed_bytes: (dropped + former).saturating_sub(splice.bytes_after()),
            rewritten_bytes: behind.saturating_sub(dropped_before(self.sent)) + splice.bytes_after(),
            splice: Some(splice),
            ..Change::nothing(Reason::Window, rung)
        }
    }

    /// Prefix sums: the bytes of the messages before each message, as they are sent.
    pub(super) fn sizes(&self) -> &[u64] {
        self.derived.sizes.get_or_init(|| self.count_sizes())
    }

    fn count_sizes(&self) -> Vec<u64> {
        let mut sizes = vec![0_u64; self.conversation.messages.len() + 1];
        let cleared = self.cleared();
        for (at, item) in self.history().items().iter().enumerate() {
            // This holds for new messages as well: if the history is only partly known, some may contain results that
            // were cleared earlier.
            let bytes = if cleared(at) { item.bytes_gone() } else { item.bytes };
            sizes[item.part.message as usize + 1] += u64::from(bytes);
        }
        let mut sum = 0;
        for size in &mut sizes {
            sum += *size;
            *size = sum;
        }
        sizes
    }

    /// A predicate for the items that were cleared, left out or abridged already.
    pub(super) fn cleared(&self) -> impl Fn(usize) -> bool + use<'_> {
        let cleared = self.derived.cleared.get_or_init(|| parts(self.applied, Decision::is_of_old));
        let items = self.history().items();
        move |at: usize| cleared.contains(&items[at].part)
    }

    /// The event that clears results to save money, if one is due, or else the first part that the next one is expected
    /// to clear.
    pub(super) fn clear_for_money(&self) -> (Option<Change>, Option<PartId>) {
        let Verdict { choice, next } = self.judge();
        let change = choice.and_then(|choice| self.change(choice));
        (change.and_then(|change| self.remove_bound_reasoning(change)), next)
    }

    /// What to clear now to save money, if anything.
    fn judge(&self) -> Verdict {
        let clear = &self.policy.clear;
        if !clear.enabled || !self.goes_on() {
            return Verdict::default();
        }
        let turn_begins = self.conversation.messages[self.sent..].iter().any(|m| m.index.starts_turn());
        if clear.at_turns && !turn_begins {
            return Verdict::default();
        }
        let candidates = self.candidates();
        if let Some(verdict) = self.clear_at_once(&candidates) {
            return verdict;
        }
        let is_settled = self.history().step() >= clear.settle;
        if self.facts.bound.is_some() || !is_settled || !clear::allows(clear, Reason::BreakEven) {
            return Verdict::default();
        }
        self.break_even(&candidates)
    }

    /// What may be cleared to save money, in order of position.
    fn candidates(&self) -> Vec<Candidate> {
        let (clear, is_unbound) = (&self.policy.clear, self.facts.bound.is_none());
        let results = self.sent_before(clear::candidates(self.history(), &self.cleared(), self.rates, clear));
        let thoughts = self.old_reasoning();
        // Reasoning that is bound to a result is removed with it, and some models need their reasoning within a turn.
        let is_at_rest = || reasoning::turn_in_progress(self.conversation) >= self.sent;
        let results = if is_unbound || is_at_rest() { results } else { Vec::new() };
        let calls = if is_unbound { self.old_arguments() } else { Vec::new() };
        let mut candidates: Vec<Candidate> = thoughts.into_iter().chain(results).chain(calls).collect();
        candidates.sort_by_key(|candidate| candidate.item);
        candidates
    }

    /// The verdict if a reason holds for which all candidates are cleared at once.
    fn clear_at_once(&self, candidates: &[Candidate]) -> Option<Verdict> {
        let (facts, clear, is_unbound) = (self.facts, &self.policy.clear, self.facts.bound.is_none());
        let reasons = [
            (Reason::Cold, facts.cold),
            (Reason::Budget, facts.over_budget && is_unbound),
            (Reason::Uncached, self.rates.is_uncached() && is_unbound),
            (Reason::Eager, is_unbound),
        ];
        let due = reasons.into_iter().filter(|(reason, holds)| *holds && clear::allows(clear, *reason));
        for (reason, _) in due {
            let choice = match reason {
                Reason::Uncached => self.choice(reason, candidates),
                _ => self.choice(reason, &self.within_cache(candidates)),
            };
            if reason != Reason::Budget || choice.as_ref().is_none_or(|choice| self.pays_off(choice)) {
                return Some(Verdict { choice, next: None });
            }
        }
        None
    }

    /// The cut that pays, if there is one, and where the next one is expected.
    fn break_even(&self, candidates: &[Candidate]) -> Verdict {
        let (clear, rates) = (&self.policy.clear, self.rates);
        let tails = self.tails();
        let most = self.account().allowance(clear.most_loss);
        let images = self.images_among(candidates);
        let written = |item: usize| self.written_by(item, images, tails);
        let now = gate::break_even(candidates, written, self.stays_cached(), rates, clear.patience, most);
        let behind = |item: usize| tails[if images.is_some_and(|first| item <= first) { 0 } else { item }];
        let next = gate::nearest(candidates, behind, rates, most);
        Verdict {
            choice: now.and_then(|from| self.choice(Reason::BreakEven, &candidates[from..])),
            next: next.map(|from| self.history().items()[candidates[from].item].part),
        }
    }

    /// The candidates that were sent before this request.
    pub(super) fn sent_before(&self, mut candidates: Vec<Candidate>) -> Vec<Candidate> {
        let items = self.history().items();
        candidates.retain(|candidate| (items[candidate.item].part.message as usize) < self.sent);
        candidates
    }

    /// Whether a choice is likely to save money before the thread ends.
    fn pays_off(&self, choice: &Choice) -> bool {
        let rest = self.history().expected_rest();
        choice.freed as f64 * self.rates.read * rest >= choice.rewritten as f64 * self.rates.rewrite()
    }

    /// The choice to clear these candidates; `None` if that frees nothing, or too few tokens unless the window demands
    /// them. What is written again is that of the history without a new splice.
    pub(super) fn choice(&self, reason: Reason, chosen: &[Candidate]) -> Option<Choice> {
        let freed: u64 = chosen.iter().map(|candidate| u64::from(candidate.frees)).sum();
        let items = self.history().items();
        let tokens = |candidate: &Candidate| match &items[candidate.item].result {
            Some(result) => u64::from(result.tokens),
            None => u64::from(candidate.frees) / clear::BYTES_PER_TOKEN,
        };
        let too_few = || chosen.iter().map(tokens).sum::<u64>() <= self.policy.clear.minimum_tokens;
        if freed == 0 || (reason != Reason::Window && too_few()) {
            return None;
        }
        let part = |candidate: &Candidate| (items[candidate.item].part, candidate.frees);
        let parts = chosen.iter().map(part).collect();
        let images = self.images_among(chosen);
        let rewritten = self.written_by(chosen[0].item, images, self.tails()).saturating_sub(freed);
        Some(Choice { reason, parts, freed, rewritten })
    }

    /// The change that carries out a choice, without the parts that cannot be cleared or would not get shorter; `None`
    /// if none is left.
    pub(super) fn change(&self, choice: Choice) -> Option<Change> {
        let mut change = Change::nothing(choice.reason, Rung::Clear);
        change.rewritten_bytes = choice.rewritten;
        let sent = self.sent_sizes();
        for (part, frees) in choice.parts {
            if reasoning::is_thought(self.conversation, part) {
                change.decided.extend(self.omit_old_reasoning());
            } else if arguments::is_call(self.conversation, part) {
                let abridged = arguments::decide(self.conversation, part, self.recall);
                let Some((applied, save)) = abridged else { continue };
                change.decided.push(applied);
                change.saves.push(save);
            } else {
                let bytes = sent.get(&part).copied();
                let cleared = cleared::decide(self.conversation, part, bytes, self.recall);
                let Some((applied, save)) = cleared else { continue };
                change.decided.push(applied);
                change.saves.extend(save);
            }
            change.freed_bytes += u64::from(frees);
        }
        (!change.decided.is_empty()).then_some(change)
    }
}
