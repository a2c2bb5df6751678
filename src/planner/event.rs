//! Events, the changes to old parts: whether one is due, and what it does.

use std::cell::OnceCell;
use std::collections::HashSet;

use crate::conversation::{Conversation, PartId};
use crate::strategy::gate::{self, Account, Candidate, Rates, Reason};
use crate::strategy::ladder::Rung;
use crate::strategy::window::{self, Gauge};
use crate::strategy::{History, clear};

use super::decision::{Applied, Save};
use super::level::Level;
use super::splice::{Layout, Splice};
use super::standing::Standing;
use super::{Facts, Policy, Recall, arguments, cleared, reasoning};

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
    /// Blocks of reasoning that were left out: those of earlier turns or, if bound to what changed, all.
    pub reasoning: u32,
    /// How many calls have the long texts in their arguments abridged.
    pub abridged: u32,
}

impl Event {
    /// Whether it loses something that a summary would preserve.
    pub(super) fn loses(&self) -> bool {
        self.rung != Rung::Ready && (self.dropped > 0 || self.cut > 0)
    }

    /// An event without effects.
    pub(super) const fn nothing(reason: Reason, rung: Rung, first_message: u32) -> Self {
        Self {
            reason,
            rung,
            cleared: 0,
            cut: 0,
            dropped: 0,
            freed_bytes: 0,
            rewritten_bytes: 0,
            first_message,
            reasoning: 0,
            abridged: 0,
        }
    }
}

/// A request before its event.
pub(super) struct Before<'a> {
    pub(super) conversation: &'a Conversation,
    pub(super) standing: &'a Standing,
    pub(super) applied: &'a [Applied],
    /// The splice in force.
    pub(super) splice: Option<&'a Splice>,
    /// Messages that were sent before; the rest must not be touched.
    pub(super) sent: usize,
    /// Messages up to the last one with bound reasoning.
    pub(super) bound: usize,
    pub(super) facts: &'a Facts,
    /// The rates that apply to this prompt.
    pub(super) rates: Rates,
    /// Whether a cut falls back to the nearest cache entry, with a mark free to reach it.
    pub(super) anchored: bool,
    /// Whether the frame has a cache entry of its own.
    pub(super) keeps_frame: bool,
    pub(super) derived: Derived,
}

/// Derived values that are needed repeatedly, computed on first use.
#[derive(Default)]
pub(super) struct Derived {
    cleared: OnceCell<HashSet<PartId>>,
    sizes: OnceCell<Vec<u64>>,
}

/// What an event does.
pub(super) struct Change {
    /// New decisions on results, calls and reasoning.
    pub(super) decided: Vec<Applied>,
    /// The full texts that they refer to.
    pub(super) saves: Vec<Save>,
    /// The splice, if messages are dropped.
    pub(super) splice: Option<Splice>,
    /// Its record.
    pub(super) event: Event,
}

impl Change {
    /// A change without effects.
    pub(super) const fn nothing(event: Event) -> Self {
        Self { decided: Vec::new(), saves: Vec::new(), splice: None, event }
    }

    /// The first part that changes.
    pub(super) fn first(&self) -> PartId {
        let first = self.decided.iter().map(|applied| applied.part).min();
        first.into_iter().chain(self.spliced()).min().unwrap_or(PartId { message: 0, part: 0 })
    }

    /// The first part that changes other than reasoning.
    pub(super) fn first_said(&self) -> Option<PartId> {
        let said = self.decided.iter().filter(|applied| !applied.decision.is_omission());
        said.map(|applied| applied.part).chain(self.spliced()).min()
    }

    fn spliced(&self) -> Option<PartId> {
        self.splice.as_ref().map(|splice| match splice.layout {
            Layout::Appended => splice.at,
            _ => PartId { message: splice.first_changed() as u32, part: 0 },
        })
    }
}

/// What to clear, and why.
pub(super) struct Choice {
    reason: Reason,
    /// The parts that are cleared, each with the bytes saved: results, calls, and the first block of reasoning on
    /// behalf of all.
    parts: Vec<(PartId, u32)>,
    freed: u64,
    rewritten: u64,
    /// How many of them are reasoning.
    reasoning: u32,
    /// How many of them are calls.
    abridged: u32,
}

/// The gate's verdict.
#[derive(Default)]
struct Verdict {
    /// The event that is due.
    choice: Option<Choice>,
    /// Where the next event would cut if one were due.
    next: Option<PartId>,
}

impl Before<'_> {
    pub(super) fn history(&self) -> &History {
        self.standing.history()
    }

    /// What the thread has cost, the gateway's own calls included.
    pub(super) fn account(&self) -> Account {
        let account = self.standing.account();
        Account { paid: account.paid + self.facts.spent, ..account }
    }

    /// How full the window is.
    pub(super) fn level(&self, settings: &window::Settings) -> Level {
        let bytes = |from: usize| -> u64 {
            self.conversation.messages[from..].iter().map(|message| message.read_len() as u64).sum()
        };
        let tokens = |bytes: u64| (bytes as f64 / self.facts.bytes_per_token.max(0.5)) as u64;
        let measured = self.known_figure();
        // The figure is that of an earlier prompt; what came since is estimated.
        let (exact, rest) = match measured {
            Some((messages, exact)) => (exact, bytes(messages).saturating_sub(self.spared_from(messages))),
            None => (0, self.sent_bytes()),
        };
        let prompt_tokens = exact + tokens(rest);
        let least_tokens = match measured {
            Some(_) if !self.facts.measured_elsewhere => exact + self.least_tokens(rest),
            _ => self.least_tokens(self.sent_bytes()),
        };
        let unknown = self.facts.overflow.map(|overflow| overflow.prompt.unwrap_or(prompt_tokens));
        let known = settings.window(self.facts.window, self.facts.max_output);
        let counted = self.estimated(settings.count);
        let gauge = known.or(unknown).map(|window| {
            let gauge = Gauge::new(prompt_tokens, window, self.facts.max_output, settings);
            match counted {
                // Whatever the guess: what is too long is too long.
                Some(prompt) if gauge.prompt < gauge.usable() => Gauge { prompt, ..gauge },
                _ if measured.is_some() => gauge,
                _ => gauge.estimated(),
            }
        });
        let level = Level {
            prompt_tokens,
            least_tokens,
            gauge,
            reading: None,
            growth: None,
            clearable_bytes: 0,
            messages: self.messages_with(self.splice),
            defers: self.conversation.asks_for_edits,
            waits: false,
            can_wait: false,
            patient: false,
            account: self.account(),
        };
        Level { waits: self.waits(&level, settings), ..level }
    }

    /// The provider's figure for the last prompt of this thread, unless it covers more messages than there are.
    pub(super) fn known_figure(&self) -> Option<(usize, u64)> {
        self.facts.measured.filter(|(messages, _)| *messages <= self.conversation.messages.len())
    }

    /// Bytes of the request as it would be sent that are text.
    pub(super) fn sent_bytes(&self) -> u64 {
        let spared: u64 = self.applied.iter().map(|applied| applied.decision.bytes_spared()).sum();
        let dropped = self.splice.map_or(0, |splice| splice.read_len(self.conversation));
        let said = self.splice.map_or(0, |splice| splice.bytes_after);
        let read = self.conversation.body.len() - self.conversation.encoded(|_| true) - dropped;
        (read as u64 + said).saturating_sub(spared)
    }

    fn spared_from(&self, message: usize) -> u64 {
        let later = self.applied.iter().filter(|applied| applied.part.message as usize >= message);
        later.map(|applied| applied.decision.bytes_spared()).sum()
    }

    /// The event that applies a prepared splice, if that is possible and frees anything.
    pub(super) fn splicing(&self, splice: Splice) -> Option<Change> {
        if self.splice.is_some_and(|former| former.end() >= splice.end()) {
            return None;
        }
        let event = self.event_of(&splice, Reason::Window, Rung::Ready);
        (event.freed_bytes > 0).then(|| Change {
            decided: Vec::new(),
            saves: Vec::new(),
            splice: Some(splice),
            event,
        })
    }

    /// Extends a change's record by what it does before `part`, where the recorded part begins.
    pub(super) fn begin_before(&self, part: PartId, change: &mut Change) {
        let first = change.first();
        if first < part {
            let more = self.rewritten_from(first).saturating_sub(self.rewritten_from(part));
            change.event.rewritten_bytes += more;
            change.event.first_message = first.message;
        }
    }

    /// The record of an event that makes a splice.
    pub(super) fn event_of(&self, splice: &Splice, reason: Reason, rung: Rung) -> Event {
        let items = self.history().items();
        let (tails, sizes) = (self.tails(&self.cleared()), self.sizes());
        let taken = |until: usize| -> u64 {
            let size = |at: u32| sizes.get((at as usize).min(until)).copied().unwrap_or(0);
            splice.drops.iter().map(|(first, end)| size(*end) - size(*first)).sum()
        };
        // The text of the former splice is removed, too.
        let former = self.splice.map_or(0, |former| former.bytes_after);
        let changed = items.partition_point(|item| (item.part.message as usize) < splice.first_changed());
        let behind = if changed < items.len() { self.written_again(changed, &tails) } else { 0 };
        Event {
            dropped: splice.dropped(),
            freed_bytes: (taken(usize::MAX) + former).saturating_sub(splice.bytes_after),
            rewritten_bytes: behind.saturating_sub(taken(self.sent)) + splice.bytes_after,
            ..Event::nothing(reason, rung, splice.first_changed() as u32)
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
            // If the history is only partly known, what was cleared earlier may stand behind what was sent.
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

    /// Tells whether an item was cleared, left out or abridged already.
    pub(super) fn cleared(&self) -> impl Fn(usize) -> bool + use<'_> {
        let cleared = self
            .derived
            .cleared
            .get_or_init(|| self.applied.iter().filter(|a| a.decision.is_of_old()).map(|a| a.part).collect());
        let items = self.history().items();
        move |at: usize| cleared.contains(&items[at].part)
    }

    /// The event that clears results, if one is due, or else where the next one would cut.
    pub(super) fn clearing(&self, policy: &Policy, recall: Recall<'_>) -> (Option<Change>, Option<PartId>) {
        let Verdict { choice, next } = self.judge(&policy.clear);
        let Some(mut choice) = choice else { return (None, next) };
        let (decided, saves) = self.decisions(&mut choice, recall);
        let event = choice.event(&decided);
        let change = (!decided.is_empty()).then_some(Change { decided, saves, splice: None, event });
        (change.and_then(|change| self.unbound(change)), next)
    }

    /// What to clear now to save money, if anything.
    fn judge(&self, clear: &clear::Settings) -> Verdict {
        if !clear.enabled || self.sent == 0 || self.sent >= self.conversation.messages.len() {
            return Verdict::default();
        }
        let gone = self.cleared();
        self.for_money(clear, &gone)
    }

    fn for_money(&self, clear: &clear::Settings, gone: &dyn Fn(usize) -> bool) -> Verdict {
        let (facts, rates) = (self.facts, self.rates);
        let is_free = facts.bound.is_none();
        let turn_begins = self.conversation.messages[self.sent..].iter().any(|m| m.index.starts_turn());
        if clear.at_turns && !turn_begins {
            return Verdict::default();
        }
        let results = self.sent_before(clear::candidates(self.history(), gone, rates, clear));
        let thoughts = self.old_reasoning(clear);
        // A result takes all reasoning with it that is bound to it, and within a turn some models need that
        // reasoning.
        let is_at_rest = || reasoning::turn_in_progress(self.conversation) >= self.sent;
        let results = if is_free || is_at_rest() { results } else { Vec::new() };
        let calls = if is_free { self.old_arguments(clear) } else { Vec::new() };
        let mut candidates: Vec<Candidate> = thoughts.into_iter().chain(results).chain(calls).collect();
        candidates.sort_by_key(|candidate| candidate.item);
        let whole = [
            (Reason::Cold, facts.cold),
            (Reason::Budget, facts.over_budget && is_free),
            (Reason::Uncached, rates.is_uncached() && is_free),
            (Reason::Eager, is_free),
        ];
        let due = whole.into_iter().filter(|(reason, holds)| *holds && clear::allows(clear, *reason));
        for (reason, _) in due {
            let choice = match reason {
                Reason::Uncached => self.choice(reason, &candidates, gone, clear),
                _ => self.choice(reason, &self.within_cache(&candidates), gone, clear),
            };
            if reason != Reason::Budget || choice.as_ref().is_none_or(|choice| self.pays_off(choice)) {
                return Verdict { choice, next: None };
            }
        }
        let settled = self.history().step() >= clear.settle;
        if !is_free || !settled || !clear::allows(clear, Reason::BreakEven) {
            return Verdict::default();
        }
        let tails = self.tails(gone);
        let most = self.account().allowance(clear.most_loss);
        let images = self.images_among(&candidates);
        let priced = |item: usize| self.written_by(item, images, &tails);
        let may_go = self.stays_cached();
        let cut = gate::break_even(&candidates, priced, may_go, rates, clear.patience, most);
        let behind = |item: usize| tails[if images.is_some_and(|first| item <= first) { 0 } else { item }];
        let next = gate::nearest(&candidates, behind, rates, most);
        Verdict {
            choice: cut.and_then(|cut| self.choice(Reason::BreakEven, &candidates[cut.from..], gone, clear)),
            next: next.map(|from| self.history().items()[candidates[from].item].part),
        }
    }

    /// The candidates that were sent before this request.
    pub(super) fn sent_before(&self, mut candidates: Vec<Candidate>) -> Vec<Candidate> {
        let items = self.history().items();
        candidates.retain(|candidate| (items[candidate.item].part.message as usize) < self.sent);
        candidates
    }

    /// Whether a choice is likely to save money before the thread ends, assuming that the thread has as many requests
    /// to go as it has had, within bounds.
    fn pays_off(&self, choice: &Choice) -> bool {
        let rest = f64::from(self.history().step().clamp(5, 60));
        choice.freed as f64 * self.rates.read * rest >= choice.rewritten as f64 * self.rates.rewrite()
    }

    pub(super) fn choice(
        &self,
        reason: Reason,
        chosen: &[Candidate],
        gone: &dyn Fn(usize) -> bool,
        clear: &clear::Settings,
    ) -> Option<Choice> {
        let freed: u64 = chosen.iter().map(|candidate| u64::from(candidate.frees)).sum();
        let items = self.history().items();
        let tokens = |candidate: &Candidate| match &items[candidate.item].result {
            Some(result) => u64::from(result.tokens),
            None => u64::from(candidate.frees) / clear::BYTES_PER_TOKEN,
        };
        let too_few = || chosen.iter().map(tokens).sum::<u64>() <= clear.minimum_tokens;
        if freed == 0 || (reason != Reason::Window && too_few()) {
            return None;
        }
        let tails = self.tails(gone);
        let part = |candidate: &Candidate| (items[candidate.item].part, candidate.frees);
        let parts = chosen.iter().map(part).collect();
        let images = self.images_among(chosen);
        let rewritten = self.written_by(chosen[0].item, images, &tails).saturating_sub(freed);
        Some(Choice { reason, parts, freed, rewritten, reasoning: 0, abridged: 0 })
    }

    /// The decisions that carry out a choice. Whatever is no longer than its placeholder stays, and is removed from
    /// the choice.
    pub(super) fn decisions(&self, choice: &mut Choice, recall: Recall<'_>) -> (Vec<Applied>, Vec<Save>) {
        let sent = self.sent_sizes();
        let (mut decided, mut saves) = (Vec::new(), Vec::new());
        choice.parts.retain(|(part, _)| {
            if reasoning::is_thought(self.conversation, *part) {
                let before = decided.len();
                decided.extend(self.without_reasoning());
                choice.reasoning = (decided.len() - before) as u32;
                return true;
            }
            let is_call = arguments::is_call(self.conversation, *part);
            let made = if is_call {
                arguments::decide(self.conversation, *part, recall).map(|(made, save)| (made, Some(save)))
            } else {
                cleared::decide(self.conversation, *part, sent.get(part).copied(), recall)
            };
            choice.abridged += u32::from(is_call && made.is_some());
            made.is_some_and(|(applied, save)| {
                decided.push(applied);
                saves.extend(save);
                true
            })
        });
        choice.freed = choice.parts.iter().map(|(_, frees)| u64::from(*frees)).sum();
        (decided, saves)
    }
}

impl Choice {
    /// The record of what was really decided.
    pub(super) fn event(&self, decided: &[Applied]) -> Event {
        let first = decided.iter().map(|applied| applied.part.message).min().unwrap_or(0);
        Event {
            cleared: decided.len() as u32 - self.reasoning - self.abridged,
            freed_bytes: self.freed,
            rewritten_bytes: self.rewritten,
            reasoning: self.reasoning,
            abridged: self.abridged,
            ..Event::nothing(self.reason, Rung::Clear, first)
        }
    }
}
