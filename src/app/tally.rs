//! Sums of the records of this process, for the metrics, and alerts about them in the log.
//!
//! A record is counted off the request's path, when it is handed to the store, whether or not the store takes it.
//! Memory does not grow with what clients send: only names from the configuration become labels.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use hashlink::LruCache;

use super::histogram::Histogram;
use crate::config::Alerts;
use crate::conversation::NamePatterns;
use crate::ledger::{Caching, Event, Made, Record, Shares, Totals};
use crate::strategy::window::Zone;
use crate::usage::{BYTES_PER_TOKEN, Tokens};

/// The most threads that are remembered. Beyond that, the least recently used ones are dropped.
const MAX_THREADS: usize = 4096;
/// The number of prompts that the cache hit rate covers.
pub(super) const HIT_RATE_PROMPTS: usize = 100;
/// The label for tools that the configuration does not name.
const OTHER: &str = "other";

// The upper bounds of the histograms' buckets.
const TOKEN_BOUNDS: &[f64] = &[1e3, 4e3, 16e3, 32e3, 64e3, 128e3, 200e3, 500e3, 1e6];
const MESSAGE_BOUNDS: &[f64] = &[2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0];
const TURN_BOUNDS: &[f64] = &[1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0];
const SHARE_BOUNDS: &[f64] = &[0.05, 0.1, 0.15, 0.3, 0.5, 0.6, 0.75, 0.9, 1.0];
const GROWTH_BOUNDS: &[f64] = &[0.0, 100.0, 300.0, 1e3, 3e3, 10e3, 30e3, 100e3];
const RATIO_BOUNDS: &[f64] = &[1.0, 2.0, 3.0, 5.0, 10.0, 15.0, 30.0];
const SCORE_BOUNDS: &[f64] = &[0.5, 0.75, 0.85, 0.95, 1.0];
const SECOND_BOUNDS: &[f64] = &[0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0];

/// The counts of this process.
#[derive(Debug, Default)]
pub(super) struct Tally {
    counts: Mutex<Counts>,
    /// How many batches the store did not take.
    lost: AtomicU64,
    /// The tools that the configuration names, each pattern set as written there.
    tools: Vec<(String, NamePatterns)>,
    /// Which events the log reports.
    alerts: Alerts,
}

#[derive(Debug)]
struct Counts {
    sums: Sums,
    threads: LruCache<String, ThreadState>,
}

impl Default for Counts {
    fn default() -> Self {
        Self { sums: Sums::default(), threads: LruCache::new(MAX_THREADS) }
    }
}

/// The state of a thread after its last request.
#[derive(Debug, Default)]
struct ThreadState {
    zone: Option<Zone>,
    /// Whether it repeats the same call.
    repeats: bool,
}

/// What the log reports about a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Alert {
    /// It has reached the zone that the configuration names, or one above.
    Zone,
    /// A prompt grew much faster than was usual.
    Spike,
    /// The agent has begun to repeat the same call.
    DoomLoop,
}

impl Alert {
    /// Its label in the metrics.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Zone => "zone",
            Self::Spike => "spike",
            Self::DoomLoop => "doom_loop",
        }
    }
}

/// Everything that is summed up.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Sums {
    pub(super) totals: Totals,
    /// Events that were sent, by reason.
    pub(super) events: BTreeMap<String, EventSums>,
    /// New results that were cut, by the tool's name in the configuration.
    pub(super) truncations: BTreeMap<String, Cuts>,
    /// Prompts by the zone that they were sent in, if known.
    pub(super) zones: BTreeMap<String, u64>,
    /// Alerts by kind.
    pub(super) alerts: BTreeMap<&'static str, u64>,
    /// Changes from one zone to another, by the two zones.
    pub(super) transitions: BTreeMap<(String, String), u64>,
    /// Prompts that grew much faster than usual.
    pub(super) spikes: u64,
    /// Prompts that the provider refused as too long.
    pub(super) overflows: u64,
    /// Requests whose turn ends in the same call again and again, by whether the results are the same too.
    pub(super) doom_loops: BTreeMap<&'static str, u64>,
    /// Requests whose instructions differ from those of the thread's request before.
    pub(super) volatile: u64,
    /// What prompts were made of, in tokens.
    pub(super) shares: Shares,
    /// The gateway's own calls.
    pub(super) own: OwnCalls,
    /// The last prompts, oldest first: tokens read from the provider's cache, and all tokens.
    prompts: VecDeque<(u64, u64)>,
    pub(super) sizes: Sizes,
}

/// The effects of events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct EventSums {
    pub(super) count: u64,
    pub(super) cleared: u64,
    /// Tokens that later requests are spared, an estimate.
    pub(super) freed: u64,
    /// Tokens that are written to the provider's cache again, an estimate.
    pub(super) rewritten: u64,
}

/// What was cut from new results.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Cuts {
    pub(super) count: u64,
    pub(super) bytes: u64,
}

/// The gateway's own calls, besides their number and cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct OwnCalls {
    pub(super) summaries: u64,
    pub(super) millis: u64,
    pub(super) tokens: Tokens,
}

/// Histograms with one value for each request of which that value is known.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sizes {
    pub(super) input: Histogram,
    pub(super) output: Histogram,
    pub(super) total: Histogram,
    pub(super) messages: Histogram,
    pub(super) turns: Histogram,
    /// The share of the usable window that the prompt takes.
    pub(super) utilisation: Histogram,
    pub(super) growth: Histogram,
    /// Shares of the prompt.
    pub(super) results: Histogram,
    pub(super) tools: Histogram,
    /// Bytes before a splice divided by bytes after it.
    pub(super) ratio: Histogram,
    pub(super) fidelity: Histogram,
    pub(super) gateway: Histogram,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            input: Histogram::new(TOKEN_BOUNDS),
            output: Histogram::new(TOKEN_BOUNDS),
            total: Histogram::new(TOKEN_BOUNDS),
            messages: Histogram::new(MESSAGE_BOUNDS),
            turns: Histogram::new(TURN_BOUNDS),
            utilisation: Histogram::new(SHARE_BOUNDS),
            growth: Histogram::new(GROWTH_BOUNDS),
            results: Histogram::new(SHARE_BOUNDS),
            tools: Histogram::new(SHARE_BOUNDS),
            ratio: Histogram::new(RATIO_BOUNDS),
            fidelity: Histogram::new(SCORE_BOUNDS),
            gateway: Histogram::new(SECOND_BOUNDS),
        }
    }
}

impl Tally {
    /// A tally that counts by these tools, and reports these alerts.
    pub(super) fn of<'t>(tools: impl Iterator<Item = &'t NamePatterns>, alerts: Alerts) -> Self {
        let named = |tools: &NamePatterns| (tools.patterns().join(", "), tools.clone());
        Self { tools: tools.map(named).collect(), alerts, ..Self::default() }
    }

    /// Counts a record, and logs the alerts that it causes.
    pub(super) fn book(&self, record: &Record) {
        let due = {
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            counts.sums.add(record, &self.tools);
            let due = counts.due_alerts(record, self.alerts);
            for alert in &due {
                *counts.sums.alerts.entry(alert.as_str()).or_default() += 1;
            }
            due
        };
        for alert in due {
            log(alert, record);
        }
    }

    /// Counts figures that were reported late, for a record that was counted without them. `is_known` tells whether
    /// this process has counted the record.
    pub(super) fn book_late(&self, record: &Record, is_known: bool) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.sums.add_late(record, is_known);
    }

    /// Counts a batch as lost unless it `was_taken` by the store. The log reports every doubling of the losses, since a
    /// full queue leaves no time for a line for each loss.
    pub(super) fn stored(&self, was_taken: bool) {
        if was_taken {
            return;
        }
        let dropped = self.lost.fetch_add(1, Ordering::Relaxed) + 1;
        if dropped.is_power_of_two() {
            tracing::warn!(dropped, "the store's queue is full: what was to be recorded is dropped");
        }
    }

    pub(super) fn sums(&self) -> Sums {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).sums.clone()
    }
}

impl Counts {
    /// The alerts that are due after a record, of those that the configuration wants. Updates the state of the record's
    /// thread.
    fn due_alerts(&mut self, record: &Record, wanted: Alerts) -> Vec<Alert> {
        let is_spike = record.window.as_ref().is_some_and(|window| window.spike);
        let (mut reaches_zone, mut begins_to_repeat) = (false, false);
        if let Some(thread) = record.thread.as_ref().filter(|_| record.own.is_none()) {
            let state = self.threads.entry(thread.clone()).or_insert_with(ThreadState::default);
            let repeats = record.doom_loop.as_ref().is_some_and(|found| found.same_results == Some(true));
            begins_to_repeat = repeats && !state.repeats;
            state.repeats = repeats;
            let zone = record.window.as_ref().and_then(|window| Zone::named(window.zone_sent.as_ref()?));
            let from = state.zone;
            if let Some(to) = zone.filter(|zone| from != Some(*zone)) {
                state.zone = Some(to);
                reaches_zone =
                    wanted.zone.is_some_and(|zone| to >= zone && from.is_none_or(|from| from < zone));
                if let Some(from) = from {
                    let transition = (from.as_str().to_owned(), to.as_str().to_owned());
                    *self.sums.transitions.entry(transition).or_default() += 1;
                }
            }
        }
        [
            (Alert::Zone, reaches_zone),
            (Alert::Spike, wanted.spikes && is_spike),
            (Alert::DoomLoop, wanted.doom_loops && begins_to_repeat),
        ]
        .into_iter()
        .filter_map(|(alert, is_due)| is_due.then_some(alert))
        .collect()
    }
}

fn log(alert: Alert, record: &Record) {
    let (conversation, window) = (&record.conversation, record.window.as_ref());
    let zone = window.and_then(|window| window.zone_sent.as_deref());
    let velocity = window.and_then(|window| window.velocity);
    let (tool, calls) = record.doom_loop.as_ref().map(|found| (&*found.tool, found.calls)).unzip();
    match alert {
        Alert::Zone => tracing::warn!(conversation, zone, "a conversation fills the model's window"),
        Alert::Spike => tracing::warn!(conversation, velocity, "a prompt grows much faster than was usual"),
        Alert::DoomLoop => tracing::warn!(
            conversation,
            tool,
            calls,
            "the agent makes the same call again and again, and gets the same result"
        ),
    }
}

impl Sums {
    /// The share of the last prompts that was read from the provider's cache, from 0 to 1; `None` before the first
    /// prompt.
    pub(super) fn cache_hit_rate(&self) -> Option<f64> {
        let mut all = Caching::default();
        for (read, prompt) in &self.prompts {
            all += Caching { read: *read, prompt: *prompt, ..Caching::default() };
        }
        all.hit_rate()
    }

    fn add(&mut self, record: &Record, tools: &[(String, NamePatterns)]) {
        self.totals.add(record);
        self.add_cache_read(record);
        if let Some(own) = &record.own {
            self.own.summaries += u64::from(own.messages > 0);
            self.own.millis += record.timing.total_ms;
            self.own.tokens += record.tokens.unwrap_or_default();
            own.score.into_iter().for_each(|score| self.sizes.fidelity.add(score));
            return;
        }
        self.overflows += u64::from(record.overflow);
        if let Some(found) = &record.doom_loop {
            *self.doom_loops.entry(found.results()).or_default() += 1;
        }
        self.add_shares(record);
        if record.edits.were_sent() {
            self.add_edits(record, tools);
        }
        if let Some(window) = &record.window {
            self.spikes += u64::from(window.spike);
            if let Some(zone) = &window.zone_sent {
                *self.zones.entry(zone.to_string()).or_default() += 1;
            }
        }
        self.sizes.add(record);
    }

    fn add_late(&mut self, record: &Record, is_known: bool) {
        self.totals.add_late(record, is_known);
        self.add_cache_read(record);
        self.sizes.add_tokens(record);
    }

    /// Records how much of a prompt was read from the provider's cache.
    fn add_cache_read(&mut self, record: &Record) {
        let Caching { read, prompt, .. } = Caching::of(record);
        if prompt > 0 {
            self.prompts.push_back((read, prompt));
            self.prompts.drain(..self.prompts.len().saturating_sub(HIT_RATE_PROMPTS));
        }
    }

    /// Adds what a prompt is made of.
    fn add_shares(&mut self, record: &Record) {
        let Some(prompt) = &record.prompt else { return };
        self.volatile += u64::from(prompt.volatile_at.is_some());
        let sum = &mut self.shares;
        for (sum, tokens) in [
            (&mut sum.tools, prompt.tools),
            (&mut sum.system, prompt.system),
            (&mut sum.user, prompt.user),
            (&mut sum.assistant, prompt.assistant),
            (&mut sum.reasoning, prompt.reasoning),
            (&mut sum.results, prompt.results),
        ] {
            *sum = sum.saturating_add(tokens);
        }
    }

    /// Adds the event of a request, and the results that it cut.
    fn add_edits(&mut self, record: &Record, tools: &[(String, NamePatterns)]) {
        if let Some(event) = &record.edits.event {
            self.events.entry(event.reason.to_string()).or_default().add(event);
        }
        let is_cut = |made: &&Made| made.rules.split('+').any(|rule| rule == "truncate");
        for made in record.edits.made.iter().filter(is_cut) {
            let tool = made.tool.as_deref().unwrap_or_default();
            let named = tools.iter().find(|(_, tools)| tools.matches(tool)).map(|(name, _)| &**name);
            let cuts = self.truncations.entry(named.unwrap_or(OTHER).to_owned()).or_default();
            cuts.count += 1;
            cuts.bytes += made.before.saturating_sub(made.after);
        }
    }
}

impl EventSums {
    fn add(&mut self, event: &Event) {
        self.count += 1;
        self.cleared += u64::from(event.cleared);
        self.freed += event.freed_bytes / BYTES_PER_TOKEN;
        self.rewritten += event.rewritten_bytes / BYTES_PER_TOKEN;
    }
}

impl Sizes {
    fn add_tokens(&mut self, record: &Record) {
        if let (Some(prompt), Some(tokens)) = (record.prompt_tokens(), &record.tokens) {
            self.input.add(prompt as f64);
            self.output.add(tokens.output as f64);
            self.total.add((prompt + tokens.output) as f64);
        }
    }

    fn add(&mut self, record: &Record) {
        self.add_tokens(record);
        if record.messages > 0 {
            self.messages.add(record.messages.into());
        }
        if record.turn > 0 {
            self.turns.add(record.turn.into());
        }
        if let Some(window) = &record.window {
            let usable =
                window.tokens.zip(window.reserved).map(|(tokens, reserved)| tokens.saturating_sub(reserved));
            if let (Some(prompt), Some(usable)) =
                (record.prompt_tokens(), usable.filter(|usable| *usable > 0))
            {
                self.utilisation.add(prompt as f64 / usable as f64);
            }
            window.velocity.into_iter().for_each(|velocity| self.growth.add(velocity as f64));
        }
        if let Some(prompt) = &record.prompt {
            let all = prompt.all().max(1) as f64;
            self.results.add(prompt.results as f64 / all);
            self.tools.add(prompt.tools as f64 / all);
        }
        if let Some(splice) =
            record.edits.splice.as_ref().filter(|splice| splice.made && record.edits.were_sent())
        {
            self.ratio.add(splice.before as f64 / splice.after.max(1) as f64);
        }
        self.gateway.add(record.timing.gateway_us as f64 / 1e6);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::words::State;
    use crate::ledger::{self, Edits, Event, Made, Splice, Timing, Window};

    #[test]
    fn events_and_zones_are_counted_as_sent() {
        let tally = Tally::default();
        for (state, original_resent, zone_sent, spike) in [
            (State::Edited, false, Some("orange"), true),
            (State::Edited, false, Some("green"), false),
            (State::Edited, true, Some("green"), false),
            (State::Observed, false, None, false),
        ] {
            let event = Some(Event { reason: "window".into(), freed_bytes: 4_000, ..Event::default() });
            let edits = Edits { state: state.into(), original_resent, event, ..Edits::default() };
            let window = Window { zone_sent: zone_sent.map(Into::into), spike, ..Window::default() };
            tally.book(&Record { edits, window: Some(window), ..Record::default() });
        }
        tally.stored(true);
        tally.stored(false);
        let sums = tally.sums();
        let counts = |counts: &[(&str, u64)]| -> BTreeMap<String, u64> {
            counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
        };
        let events = sums.events.iter().map(|(reason, changes)| (reason.clone(), changes.count)).collect();
        assert_eq!(
            (events, sums.spikes, tally.lost.load(Ordering::Relaxed)),
            (counts(&[("window", 2)]), 1, 1)
        );
        assert_eq!(sums.events["window"].freed, 2_000);
        assert_eq!(sums.zones, counts(&[("green", 2), ("orange", 1)]));
        assert_eq!((sums.totals.requests, sums.totals.edited), (4, 2));
    }

    /// A thread's way through the zones; an unknown zone changes nothing, and threads are independent.
    #[test]
    fn zone_transitions_are_counted_per_thread() {
        let tally = Tally::default();
        for (thread, zone) in [
            ("t", Some("green")),
            ("u", Some("red")),
            ("t", Some("green")),
            ("t", Some("yellow")),
            ("t", None),
            ("t", Some("orange")),
            ("t", Some("red")),
            ("u", Some("green")),
            ("u", Some("red")),
            ("u", Some("green")),
        ] {
            let window = Window { zone_sent: zone.map(Into::into), ..Window::default() };
            let thread = Some(thread.to_owned());
            tally.book(&Record { thread, window: Some(window), ..Record::default() });
        }
        let found: Vec<(String, u64)> = tally
            .sums()
            .transitions
            .into_iter()
            .map(|((from, to), count)| (format!("{from} {to}"), count))
            .collect();
        let expected = [
            ("green red", 1),
            ("green yellow", 1),
            ("orange red", 1),
            ("red green", 2),
            ("yellow orange", 1),
        ];
        assert_eq!(found, expected.map(|(way, count)| (way.to_owned(), count)));
    }

    /// Only a limited number of threads is remembered: the most recent ones.
    #[test]
    fn threads_idle_for_longest_are_evicted() {
        let tally = Tally::default();
        let book = |thread: usize, zone: &'static str| {
            let window = Some(Window { zone_sent: Some(zone.into()), ..Window::default() });
            tally.book(&Record { thread: Some(thread.to_string()), window, ..Record::default() });
        };
        (0..=MAX_THREADS).for_each(|thread| book(thread, "green"));
        (0..=MAX_THREADS).rev().for_each(|thread| book(thread, "red"));
        let counted = tally.sums().transitions.into_values().sum::<u64>();
        assert_eq!(counted, MAX_THREADS as u64, "all but the first have come from one zone to another");
    }

    /// Each alert is reported when its cause begins, and not again as long as that lasts.
    #[test]
    fn alerts_are_counted_once_while_their_cause_lasts() {
        let all = Alerts { zone: Some(Zone::Orange), spikes: true, doom_loops: true };
        let none = Alerts { zone: None, spikes: false, doom_loops: false };
        for (alerts, expected) in [
            (all, &[("doom_loop", 2), ("spike", 1), ("zone", 3)][..]),
            (Alerts::default(), &[("doom_loop", 2)]),
            (Alerts { zone: Some(Zone::Red), ..none }, &[("zone", 1)]),
            (none, &[]),
        ] {
            let tally = Tally::of(std::iter::empty(), alerts);
            for (thread, zone, spike, same_results) in [
                ("t", "green", false, None),
                ("t", "yellow", true, Some(Some(true))),
                ("t", "orange", false, Some(Some(true))),
                ("t", "red", false, Some(Some(false))),
                ("t", "orange", false, Some(Some(true))),
                ("t", "green", false, Some(None)),
                ("t", "orange", false, None),
                // The thread begins there.
                ("u", "orange", false, None),
            ] {
                let window = Window { zone_sent: Some(zone.into()), spike, ..Window::default() };
                let doom_loop =
                    same_results.map(|same_results| ledger::DoomLoop { same_results, ..Default::default() });
                let thread = Some(thread.to_owned());
                tally.book(&Record { thread, doom_loop, window: Some(window), ..Record::default() });
            }
            let told: Vec<(&str, u64)> = tally.sums().alerts.into_iter().collect();
            assert_eq!(told, expected, "{alerts:?}");
        }
    }

    /// The share that was read, of the last prompts whose tokens are known.
    #[test]
    fn the_cache_hit_rate_is_that_of_recent_prompts() {
        let tally = Tally::default();
        let book = |tokens: Option<Tokens>| tally.book(&Record { tokens, ..Record::default() });
        let prompt = |input, cache_read, cache_write_5m| Tokens {
            input,
            cache_read,
            cache_write_5m,
            ..Tokens::default()
        };
        let rate = || tally.sums().cache_hit_rate();
        book(None);
        book(Some(prompt(0, 0, 0)));
        assert_eq!(rate(), None);
        book(Some(prompt(20, 0, 80)));
        assert_eq!(rate(), Some(0.0));
        book(Some(prompt(100, 600, 0)));
        assert_eq!(rate(), Some(0.75));
        (0..HIT_RATE_PROMPTS).for_each(|_| book(Some(prompt(1, 2, 1))));
        tally.book(&Record { prompt_is_unknown: true, tokens: Some(prompt(9, 0, 0)), ..Record::default() });
        assert_eq!(rate(), Some(0.5));
    }

    /// Whatever clients call their tools, there are no more names than in the configuration.
    #[test]
    fn truncations_are_grouped_by_configured_tool_names() {
        let tools = [NamePatterns::new(["*bash*", "sh"]).unwrap(), NamePatterns::new(["read"]).unwrap()];
        let tally = Tally::of(tools.iter(), Alerts::default());
        let cut = |tool: Option<String>, rules: &str| {
            let made = Made { tool, rules: rules.to_owned(), before: 900, after: 300, ..Made::default() };
            let edits = Edits { state: State::Edited.into(), made: vec![made], ..Edits::default() };
            tally.book(&Record { edits, ..Record::default() });
        };
        (0..1000).for_each(|at| cut(Some(format!("tool {at}")), "truncate"));
        for (tool, rules) in [
            (Some("Bash"), "fold+truncate"),
            (Some("sh"), "truncate"),
            (Some("read"), "fold"),
            (None, "truncate"),
        ] {
            cut(tool.map(str::to_owned), rules);
        }
        let found = tally.sums().truncations;
        let expected =
            [("*bash*, sh", Cuts { count: 2, bytes: 1_200 }), (OTHER, Cuts { count: 1_001, bytes: 600_600 })];
        assert_eq!(found, expected.map(|(tool, cuts)| (tool.to_owned(), cuts)).into());
    }

    #[test]
    fn request_sizes_exclude_own_calls() {
        let tally = Tally::default();
        let splice = Splice { made: true, before: 8_000, after: 1_000, ..Splice::default() };
        tally.book(&Record {
            messages: 7,
            turn: 2,
            overflow: true,
            tokens: Some(Tokens { input: 50, cache_read: 45_000, output: 500, ..Tokens::default() }),
            prompt: Some(Shares { tools: 10, system: 20, results: 70, ..Shares::default() }),
            window: Some(Window {
                tokens: Some(100_000),
                reserved: Some(9_900),
                velocity: Some(1_200),
                ..Window::default()
            }),
            edits: Edits { state: State::Edited.into(), splice: Some(splice), ..Edits::default() },
            timing: Timing { gateway_us: 500, ..Timing::default() },
            ..Record::default()
        });
        let own = Some(ledger::OwnCall { messages: 4, score: Some(0.9), ..ledger::OwnCall::default() });
        tally.book(&Record {
            own,
            messages: 9,
            tokens: Some(Tokens { input: 8, output: 2, ..Tokens::default() }),
            timing: Timing { total_ms: 1_500, ..Timing::default() },
            ..Record::default()
        });
        tally.book(&Record { own: Some(ledger::OwnCall::default()), ..Record::default() });
        let Sums { sizes, own, shares, overflows, .. } = tally.sums();
        let one = |bounds, value| {
            let mut one = Histogram::new(bounds);
            one.add(value);
            one
        };
        let expected = Sizes {
            input: one(TOKEN_BOUNDS, 45_050.0),
            output: one(TOKEN_BOUNDS, 500.0),
            total: one(TOKEN_BOUNDS, 45_550.0),
            messages: one(MESSAGE_BOUNDS, 7.0),
            turns: one(TURN_BOUNDS, 2.0),
            utilisation: one(SHARE_BOUNDS, 0.5),
            growth: one(GROWTH_BOUNDS, 1_200.0),
            results: one(SHARE_BOUNDS, 0.7),
            tools: one(SHARE_BOUNDS, 0.1),
            ratio: one(RATIO_BOUNDS, 8.0),
            fidelity: one(SCORE_BOUNDS, 0.9),
            gateway: one(SECOND_BOUNDS, 0.0005),
        };
        assert_eq!((sizes, overflows, shares.results), (expected, 1, 70));
        let tokens = Tokens { input: 8, output: 2, ..Tokens::default() };
        assert_eq!(own, OwnCalls { summaries: 1, millis: 1_500, tokens });
    }
}
