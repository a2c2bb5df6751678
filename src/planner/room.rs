//! Making room when the window is nearly full: carries out the ladder.
//!
//! All of it is one event. Only parts that were sent before are removed; new results are at most shortened, those of
//! the step in progress last. If nothing frees enough, nothing is done.

use std::collections::HashMap;

use crate::conversation::{Conversation, PartId};
use crate::strategy::clear;
use crate::strategy::gate::{Candidate, MOST_LOSS, Reason};
use crate::strategy::ladder::{self, CutPoint, Need, Rung};
use crate::strategy::window::Gauge;

use super::cuts::{Cut, cuts};
use super::decision::{self, Applied, Save};
use super::event::{Before, Change};
use super::level::Level;
use super::shortening::Shortened;
use super::splice::{Layout, NOTE, Splice};
use super::{Overflow, transcript};

/// The share of the usable window that counts as the newest messages. Their results are cleared only if there is no
/// other way to make room.
const NEWEST_SHARE: f64 = 0.1;
/// An event that frees less than the usable window divided by this would be followed by the next one at once.
const MIN_FREED_DIVISOR: u64 = 20;
/// The error that is tolerated in the estimate of what an event frees, in bytes.
const ESTIMATE_ERROR: u64 = 1200;
/// How many places for a note are tried.
pub(super) const MAX_PLACES: usize = 8;
/// The agent's last plan may fill the room that a note leaves free beyond what is needed, divided by this.
const PLAN_DIVISOR: u64 = 4;

/// The ways to make room, in the order in which they are tried. Each is booked as a [`Rung`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Clear old results, except those in the newest messages.
    ClearOld,
    /// Replace old messages by a summary that is ready.
    Summary,
    /// Clear all old results.
    ClearAll,
    /// Clear all old results, and abridge long arguments of old calls.
    Abridge,
    /// Drop the oldest turns.
    DropTurns,
    /// Drop the oldest messages, within a turn if necessary.
    DropMessages,
    /// Drop the oldest messages, and cut the middle out of new results.
    Cut,
}

impl Way {
    const ALL: [Self; 7] = [
        Self::ClearOld,
        Self::Summary,
        Self::ClearAll,
        Self::Abridge,
        Self::DropTurns,
        Self::DropMessages,
        Self::Cut,
    ];

    /// Whether messages or parts of new results are lost with it.
    const fn drops(self) -> bool {
        matches!(self, Self::DropTurns | Self::DropMessages | Self::Cut)
    }
}

/// The messages whose results may be cleared.
#[derive(Clone, Copy)]
struct Scope<'a> {
    /// The first message after them.
    end: usize,
    /// The splice that the same event makes, if any. The messages that it drops are not in the scope.
    splice: Option<&'a Splice>,
}

impl<'a> Scope<'a> {
    const ALL: Self = Self::before(usize::MAX);

    /// The messages before this one.
    const fn before(end: usize) -> Self {
        Self { end, splice: None }
    }

    /// The messages that a splice leaves.
    const fn left_by(splice: &'a Splice) -> Self {
        Self { splice: Some(splice), ..Self::ALL }
    }

    fn drops(self, message: usize) -> bool {
        self.splice.is_some_and(|splice| splice.drops(message))
    }

    fn holds(self, message: usize) -> bool {
        message < self.end && !self.drops(message)
    }
}

impl Before<'_> {
    /// The event that makes room, if the window demands it: the first way that frees enough, or else the one that frees
    /// most if that much helps.
    pub(super) fn make_room(&self, level: &Level) -> Option<Change> {
        let Some(need) = self.need(level) else { return self.clear_early(level) };
        let (old, all) = (Scope::before(self.newest_from(level)), Scope::ALL);
        let clear = |scope| self.clear_for(need.wanted, scope);
        // No message is dropped while a better way may still come, or while the prompt may be shorter than estimated.
        let is_late =
            |gauge: Gauge| gauge.prompt as f64 >= gauge.share(self.policy.ladder.from, &self.policy.window);
        let may_drop = self.facts.overflow.is_some() || (!level.waits && level.gauge.is_some_and(is_late));
        let mut best: Option<Change> = None;
        for way in Way::ALL.into_iter().filter(|way| may_drop || !way.drops()) {
            let change = match way {
                Way::ClearOld => clear(old),
                Way::Summary => self.splicing(),
                Way::ClearAll => clear(all),
                Way::Abridge => self.abridge_for(&need, clear(all), old.end),
                Way::DropTurns => self.drop_for(Rung::Turns, &need),
                Way::DropMessages => self.drop_for(Rung::Messages, &need),
                Way::Cut => self.cut_for(&need),
            };
            let Some(change) = change.and_then(|change| self.remove_bound_reasoning(change)) else {
                continue;
            };
            let least = if way == Way::ClearOld { need.enough() } else { need.least };
            if change.freed_bytes >= least {
                return Some(change);
            }
            if change.freed_bytes > best.as_ref().map_or(0, |best| best.freed_bytes) {
                best = Some(change);
            }
        }
        best.filter(|best| need.helps.is_some_and(|helps| best.freed_bytes >= helps))
    }

    /// Whether making room loses something that a summary would preserve, or does not make enough room.
    pub(super) fn needs_summary(&self, change: Option<&Change>, level: &Level) -> bool {
        let loses = change.is_some_and(|change| change.event().loses());
        let freed = change.map_or(0, |change| change.freed_bytes);
        loses || self.need(level).is_some_and(|need| need.is_urgent() && freed < need.least)
    }

    /// The event that clears old results before the window demands room, if the settings ask for that and it frees
    /// enough.
    fn clear_early(&self, level: &Level) -> Option<Change> {
        let need = self.need_from(self.policy.clear.trigger?, level)?;
        let change = self.clear_for(need.wanted, Scope::before(self.newest_from(level)));
        let change = change.and_then(|change| self.remove_bound_reasoning(change))?;
        // A prompt that exceeds the target by little is no reason to break the cache.
        let least = self.policy.ladder.least_of(level.gauge?.usable()) as f64 * self.facts.bytes_per_token;
        (change.freed_bytes >= need.least.max(least as u64)).then_some(change)
    }

    /// Bytes that clearing could free after this request, if the window were to demand it.
    pub(super) fn clearable_bytes(&self, level: &Level) -> u64 {
        let is_near = level.gauge.is_some_and(|gauge| gauge.prompt >= gauge.target(&self.policy.window));
        if !is_near || !clear::allows(&self.policy.clear, Reason::Window) {
            return 0;
        }
        let (items, cleared) = (self.history().items(), self.cleared());
        let old = Scope::before(self.newest_from(level));
        let may = |candidate: &&Candidate| old.holds(items[candidate.item].part.message as usize);
        let order = clear::order(self.history(), &cleared, &self.policy.clear);
        let thoughts = self.unbound_reasoning(|message| old.holds(message));
        order.iter().filter(may).chain(&thoughts).map(|candidate| u64::from(candidate.frees)).sum()
    }

    /// The first of the newest messages. Their results stay as long as there is another way, because an agent that
    /// loses what it has just read reads it again.
    fn newest_from(&self, level: &Level) -> usize {
        let tokens = level.gauge.map_or(0.0, |gauge| gauge.usable() as f64 * NEWEST_SHARE);
        let (sizes, bytes) = (self.sizes(), (tokens * self.facts.bytes_per_token) as u64);
        let whole = sizes.last().copied().unwrap_or(0);
        sizes.partition_point(|size| size + bytes < whole).min(self.conversation.messages.len())
    }

    /// How much must be freed; `None` if nothing must be, or nothing may be.
    fn need(&self, level: &Level) -> Option<Need> {
        if let Some(overflow) = self.facts.overflow {
            return Some(self.need_after_overflow(level.gauge?, overflow));
        }
        self.need_from(self.policy.window.trigger, level)
    }

    /// How much must be freed once this share of the window is reached; `None` if it is not, or nothing may be freed.
    fn need_from(&self, trigger: f64, level: &Level) -> Option<Need> {
        let gauge = level.gauge?;
        // An estimate does not know what the provider removes by itself, so only its own figure can force an event.
        let is_forced = self.facts.measured.is_some() && level.prompt_tokens >= gauge.usable();
        if level.defers && !is_forced {
            return None;
        }
        let excess = gauge.excess_from(trigger, &self.policy.window);
        if excess == 0 || !self.goes_on() {
            return None;
        }
        let bytes = |tokens: u64| (tokens as f64 * self.facts.bytes_per_token) as u64;
        let wanted = bytes(excess);
        let over = gauge.prompt.saturating_sub(gauge.usable());
        let worth = self.policy.ladder.least_of(gauge.usable());
        let least = bytes(worth.max(over)).min(wanted).max(1);
        // If the prompt remains too long even so, losing a little does not help, and the next request would lose as
        // much again. Instead the prompt may grow into the room reserved for a long answer, until there is no room for
        // a short one either or the provider refuses the prompt.
        let fits = ladder::nearly(bytes(over)).saturating_sub(ESTIMATE_ERROR);
        let fits = fits.max(bytes(gauge.usable() / MIN_FREED_DIVISOR));
        let fails = gauge.leaves_no_room(self.conversation.max_output, self.facts.counted_output);
        let helps = if fails { 1 } else { fits.min(bytes(worth)).min(wanted).max(1) };
        Some(Need { wanted, least, helps: (gauge.prompt >= gauge.usable()).then_some(helps) })
    }

    /// How much must be freed after the provider has refused the prompt as too long, relative to the size that it
    /// reported.
    ///
    /// The window must be smaller than assumed if the reported size is below the target, or if the provider has not
    /// reported its limit and the prompt should have fitted. The prompt then counts as at least filling the assumed
    /// window, and so does a prompt of unknown size.
    fn need_after_overflow(&self, gauge: Gauge, overflow: Overflow) -> Need {
        let target = gauge.target(&self.policy.window);
        // A shortened form was refused as well, and there is one more attempt: the window is far smaller than assumed.
        let target = if overflow.is_last && !overflow.has_limit { target / 2 } else { target };
        let plausible_from = if overflow.has_limit { target } else { gauge.usable().max(target) };
        let reported = overflow.prompt.filter(|prompt| *prompt > plausible_from);
        let prompt = reported.unwrap_or_else(|| gauge.prompt.max(gauge.window));
        let sent = self.sent_bytes() as f64;
        let bytes_above = |limit: u64| {
            let share = prompt.saturating_sub(limit) as f64 / prompt.max(1) as f64;
            (sent * share) as u64
        };
        Need { wanted: bytes_above(target), least: bytes_above(gauge.usable()).max(1), helps: Some(1) }
    }

    /// The event that clears results in this scope, in the policy's order, until `wanted` bytes are free. Reasoning of
    /// earlier turns is removed first. `None` if the settings do not allow it or it frees nothing.
    fn clear_for(&self, wanted: u64, scope: Scope<'_>) -> Option<Change> {
        if !clear::allows(&self.policy.clear, Reason::Window) {
            return None;
        }
        let cleared = self.cleared();
        let items = self.history().items();
        let message = |at: usize| items[at].part.message as usize;
        let gone = |at: usize| cleared(at) || scope.drops(message(at));
        let (mut chosen, mut freed) = (Vec::new(), 0);
        let order = self.sent_before(clear::order(self.history(), &gone, &self.policy.clear));
        let results: Vec<_> =
            order.into_iter().filter(|candidate| scope.holds(message(candidate.item))).collect();
        let thoughts = self.unbound_reasoning(|message| scope.holds(message));
        let is_by_worth = self.policy.clear.policy == clear::Policy::Worth && thoughts.is_none();
        let from = if is_by_worth { self.first_to_clear(&results, wanted, &gone) } else { 0 };
        for candidate in thoughts.into_iter().chain(results.into_iter().skip(from)) {
            if freed >= wanted {
                break;
            }
            freed += u64::from(candidate.frees);
            chosen.push(candidate);
        }
        chosen.sort_by_key(|candidate| candidate.item);
        self.change(self.choice(Reason::Window, &chosen)?)
    }

    /// The index of the first result to clear among `results`, the oldest first: the first one for which writing
    /// everything after it again costs no more than the thread may lose. If there is none, or the results from there on
    /// free less than `wanted` bytes, the last one from which on they free as much, or 0 if all together do not.
    fn first_to_clear(&self, results: &[Candidate], wanted: u64, gone: &dyn Fn(usize) -> bool) -> usize {
        let most = self.account().allowance(MOST_LOSS);
        let (tails, images) = (self.tails_without(gone), self.images_among(results));
        let mut left: u64 = results.iter().map(|result| u64::from(result.frees)).sum();
        let mut start = 0;
        for (at, result) in results.iter().enumerate() {
            if left < wanted {
                break;
            }
            start = at;
            let written = self.written_by(result.item, images, &tails).saturating_sub(wanted);
            if self.facts.cold || written as f64 * self.rates.rewrite() <= most {
                break;
            }
            left -= u64::from(result.frees);
        }
        start
    }

    /// The event that drops messages and, if that is not enough, clears results of those that stay.
    fn drop_for(&self, rung: Rung, need: &Need) -> Option<Change> {
        let (splice, save) = self.drop_at(rung, need)?;
        let mut change = self.change_by(splice, rung);
        let splice = change.splice.as_ref()?;
        let dropped = PartId { message: splice.first_changed() as u32, part: 0 };
        let missing = need.wanted.saturating_sub(change.freed_bytes);
        let more = (missing > 0).then(|| self.clear_for(missing, Scope::left_by(splice))).flatten();
        let mut freed = 0;
        if let Some(Change { decided, saves, .. }) = more {
            let sent = self.sent_sizes();
            freed = decided.iter().map(|applied| self.newly_spared(applied, &sent)).sum();
            (change.decided, change.saves) = (decided, saves);
        }
        change.freed_bytes += freed;
        change.saves.extend(save);
        self.complete_record(dropped, &mut change);
        change.rewritten_bytes = change.rewritten_bytes.saturating_sub(freed);
        (change.freed_bytes > 0).then_some(change)
    }

    /// Bytes that a new decision saves beyond those that an earlier one about the same part saves; `sent` are the bytes
    /// that earlier decisions left.
    fn newly_spared(&self, applied: &Applied, sent: &HashMap<PartId, u64>) -> u64 {
        let Applied { part, decision } = applied;
        if decision.is_omission()
            && let Some(at) = self.history().place(*part)
        {
            return self.history().items()[at].bytes.into();
        }
        let media = self.conversation.part(*part).map_or(0, |part| part.media_len() as u64);
        (self.size(*part, sent) + media).saturating_sub(decision.bytes_after)
    }

    /// The splice with a note at the place that the ladder chooses, and the full text of what it drops. If no note fits
    /// there, the ladder chooses another place.
    fn drop_at(&self, rung: Rung, need: &Need) -> Option<(Splice, Option<Save>)> {
        let mut cuts = self.cuts();
        let mut places = self.places(&cuts);
        for _ in 0..MAX_PLACES {
            let at = ladder::cut(&places, rung, need, &self.policy.ladder)?;
            let beyond = places[at].frees.saturating_sub(need.least);
            let noted = self.note(&cuts[at], (beyond / PLAN_DIVISOR) as usize);
            if noted.is_some() {
                return noted;
            }
            cuts.remove(at);
            places.remove(at);
        }
        None
    }

    /// The event that drops or else clears what it may, and cuts the middle out of the largest new results.
    fn cut_for(&self, need: &Need) -> Option<Change> {
        if !self.policy.ladder.enabled {
            return None;
        }
        let dropped = self.drop_for(Rung::Messages, need);
        let nothing = || Change::nothing(Reason::Window, Rung::Cut);
        let change = dropped.or_else(|| self.clear_for(need.wanted, Scope::ALL)).unwrap_or_else(nothing);
        self.cut_new(change, need.wanted)
    }

    /// Cuts the middle out of the largest new results, so that the change frees `wanted` bytes if possible; `None` if
    /// nothing can be cut.
    fn cut_new(&self, mut change: Change, wanted: u64) -> Option<Change> {
        let others = change.decided.len();
        for mut results in self.new_results() {
            if let Some(splice) = &change.splice {
                results.retain(|result| !splice.drops(result.part.message as usize));
            }
            let missing = wanted.saturating_sub(change.freed_bytes);
            for Shortened { applied, save, freed } in self.shorten_all(&results, missing) {
                change.freed_bytes += freed;
                change.decided.push(applied);
                change.saves.push(save);
            }
        }
        change.rung = Rung::Cut;
        (change.decided.len() > others).then_some(change)
    }

    /// The event that cuts the middle out of the largest results of a request whose history the provider holds: nothing
    /// else can make room there. If the provider has not reported by how much the prompt is too long, half of their
    /// text is cut.
    pub(super) fn cut_without_history(&self, overflow: Overflow) -> Option<Change> {
        if !self.policy.ladder.enabled {
            return None;
        }
        let max_output = self.facts.max_output;
        let known = overflow.prompt.zip(self.policy.window.window(self.facts.window, max_output));
        let gauge = known.map(|(prompt, window)| Gauge::new(prompt, window, max_output, &self.policy.window));
        let bytes = |tokens: u64| (tokens as f64 * self.facts.bytes_per_token) as u64;
        let (wanted, least) = match gauge.filter(|gauge| gauge.prompt > gauge.usable()) {
            // The estimate in bytes may be wrong by a tenth, but is hardly ever wrong by half.
            Some(gauge) => {
                let beyond = gauge.prompt - gauge.usable();
                (bytes(beyond + beyond / 10), bytes(gauge.prompt.saturating_sub(gauge.window) / 2))
            }
            None => (self.new_results().iter().flatten().map(|result| result.size).sum::<u64>() / 2, 0),
        };
        let change = self.cut_new(Change::nothing(Reason::Window, Rung::Cut), wanted)?;
        // A cut that does not make the prompt fit would only lose text.
        (change.freed_bytes >= least).then_some(change)
    }

    /// The places where the history may be cut.
    pub(super) fn cuts(&self) -> Vec<Cut> {
        if !self.policy.ladder.enabled {
            return Vec::new();
        }
        cuts(self.conversation, self.splice, self.facts.bound, usize::MAX)
    }

    fn places(&self, cuts: &[Cut]) -> Vec<CutPoint> {
        let (sizes, turns) = (self.sizes(), turns_from(self.conversation));
        let place =
            |cut: &Cut| CutPoint { frees: cut.total(sizes), turns: cut.is_turn.then(|| turns[cut.end]) };
        cuts.iter().map(place).collect()
    }

    /// The splice that puts a note at a cut, and the full text of what it drops. The note has up to `plan` bytes of the
    /// agent's last plan.
    pub(super) fn note(&self, cut: &Cut, plan: usize) -> Option<(Splice, Option<Save>)> {
        self.splice_with(cut, |messages, recalled| {
            transcript::note(self.conversation, messages, recalled, plan)
        })
    }

    /// The splice at a cut with the text that `text` makes from the dropped messages and, if it is kept, the place
    /// where their full text can be read.
    pub(super) fn splice_with(
        &self,
        cut: &Cut,
        text: impl FnOnce(&[usize], Option<&str>) -> String,
    ) -> Option<(Splice, Option<Save>)> {
        let messages: Vec<usize> = cut.messages().collect();
        let (mut recalled, mut save) = (None, None);
        if self.facts.keeps_outputs {
            let text = transcript::whole(self.conversation, messages.iter().copied(), self.applied);
            let id = decision::output_id(&[text.as_str().into()]);
            (recalled, save) = (Some((self.recall)(&id)), Some(Save { id, text }));
        }
        let text = text(&messages, recalled.as_deref());
        let splice = cut.splice(self.conversation, NOTE, &text, &Layout::Answer)?;
        let output = save.as_ref().map(|save| save.id.clone());
        Some((Splice { output, ..splice }, save))
    }

    /// The bytes that the decisions in force leave of their parts.
    pub(super) fn sent_sizes(&self) -> HashMap<PartId, u64> {
        self.applied.iter().map(|applied| (applied.part, applied.decision.bytes_after)).collect()
    }
}

/// For each message, how many turns begin with it or after it.
pub(super) fn turns_from(conversation: &Conversation) -> Vec<u32> {
    let mut turns = vec![0; conversation.messages.len() + 1];
    for (at, message) in conversation.messages.iter().enumerate().rev() {
        turns[at] = turns[at + 1] + u32::from(message.index.starts_turn());
    }
    turns
}
