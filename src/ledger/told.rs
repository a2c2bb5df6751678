//! What happened to a request, in words: those of `plimsoll inspect`, of the admin listener's API and of its page.
//!
//! It only reads records, and never says more than they do. Text from outside (names, errors) is used as it is: whoever
//! shows it makes it harmless.

use std::collections::BTreeMap;

use super::figures;
use super::record::{DoomLoop, Edits, Event, OwnCall, Record, Shares, Splice, Window};
use super::words::{Outcome, State, Term, Used};

/// Words of records that other modules write there.
const CONTINUE: &str = "continue";
const NEW: &str = "new";
const OPENING: &str = "opening";
const CLEAR: &str = "clear";
const SPLIT: &str = "split";
const REASONING: &str = "reasoning";
const USUAL_PRESET: &str = "default";
const RED: &str = "red";

/// What happened to a request, or with it, that deserves a line of its own; `is_first`: it is its conversation's first.
pub fn happened(record: &Record, is_first: bool) -> Vec<String> {
    if let Some(own) = &record.own {
        return summarised(own, record.error.as_deref());
    }
    let mut lines: Vec<String> = relation(record, is_first).into_iter().collect();
    lines.extend(gave_way(&record.edits));
    lines.extend(record.window.as_ref().and_then(|window| pressure(window, &record.edits)));
    lines.extend(record.prompt.as_ref().and_then(changed));
    lines.extend(record.doom_loop.as_ref().map(circles));
    lines.extend(charges(record));
    lines.extend(shortened(record));
    lines.extend(zone_before(record));
    lines.extend(went_wrong(record));
    lines
}

/// What was decided before and applies to this request too, and what was added besides its messages.
pub fn still_applies(record: &Record) -> Vec<String> {
    let edits = &record.edits;
    let mut lines = Vec::new();
    if edits.were_sent() {
        let old = decided_before(edits);
        lines.extend((!old.is_empty()).then(|| format!("as decided before: {}", listed(&old))));
        lines.extend(edits.splice.as_ref().filter(|splice| !splice.made).map(spliced));
    }
    lines.extend((!edits.added.is_empty()).then(|| added(edits)));
    lines
}

/// The members that were added besides the messages.
pub fn added(edits: &Edits) -> String {
    format!("added beside the messages: {}", edits.added.join(", "))
}

/// How a request was sent whose messages are not edited.
pub fn as_it_came(edits: &Edits) -> &'static str {
    if edits.added.is_empty() { "it was sent as it came" } else { "its messages were sent as they came" }
}

/// The refusal for which a thread is set aside, and what follows from it.
pub fn set_aside(edits: &Edits) -> String {
    format!("an edit of this thread was refused before, {}", as_it_came(edits))
}

/// The line about reasoning that is not sent.
pub fn left_out(blocks: u32) -> String {
    omission(blocks, "left out")
}

fn omission(blocks: u32, what: &str) -> String {
    let blocks = figures::counted(blocks.into(), "block", "blocks");
    format!("{blocks} of reasoning {what}")
}

/// The purpose and the result of a call of the gateway's own.
fn summarised(own: &OwnCall, error: Option<&str>) -> Vec<String> {
    let score = own.score.map_or_else(String::new, |score| format!(", keeps {:.0} %", score * 100.0));
    let what = match own.messages {
        0 if error.is_none() => format!("a part read for a {}", own.purpose),
        0 => format!("a call for a {} that came to nothing", own.purpose),
        messages => format!("{} {} of {messages} messages{score}", own.purpose, own.generation),
    };
    std::iter::once(what).chain(error.map(str::to_owned)).collect()
}

/// How a request relates to the previous ones, unless it simply continues them.
fn relation(record: &Record, is_first: bool) -> Option<String> {
    if record.attempt > 0 {
        return Some("sent again, as its prompt had been too long".to_owned());
    }
    let relation = record.relation.as_deref().unwrap_or("not read");
    if relation == CONTINUE || (is_first && relation == NEW) {
        return None;
    }
    let agent = record.agent.as_deref().map_or_else(String::new, |agent| format!(" by {agent}"));
    Some(format!("{relation}{agent}"))
}

/// What replaced old parts, or would have, and which calls were repeated because of it.
fn gave_way(edits: &Edits) -> Vec<String> {
    let (mut lines, were_sent) = (Vec::new(), edits.were_sent());
    if let Some(event) = &edits.event {
        lines.push(change(event, were_sent));
        let what = if were_sent { "left out" } else { "would be left out" };
        lines.extend((event.reasoning > 0).then(|| omission(event.reasoning, what)));
    }
    let stands = if were_sent { "stands" } else { "would stand" };
    let splice = edits.splice.as_ref().filter(|splice| splice.made);
    lines.extend(splice.map(|splice| replacement(splice, stands)));
    if edits.recalls > 0 {
        let calls = figures::counted(edits.recalls.into(), "call", "calls");
        lines.push(format!("{calls} made again: the result had been cleared"));
    }
    lines
}

/// What it means for a budget, and which of its charges have no known price.
fn charges(record: &Record) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(budget) = &record.budget {
        let what = if budget.state == Used::Spent { "spent" } else { "nearly spent" };
        lines.push(format!("budget {what}: {} (`{}`)", budget.used, budget.limit));
    }
    if !record.unpriced_charges.is_empty() {
        lines.push(format!("charges of unknown price: {}", record.unpriced_charges.join(", ")));
    }
    lines
}

/// How new parts were changed, or would have been.
fn shortened(record: &Record) -> Vec<String> {
    let (edits, bytes) = (&record.edits, &record.bytes);
    let (mut lines, were_sent) = (Vec::new(), edits.were_sent());
    let begins = edits.made.iter().any(|made| made.rules == OPENING);
    let begin = if were_sent { "begins" } else { "would begin" };
    lines.extend(begins.then(|| format!("{begin} with a checkpoint")));
    let newborn = edits.made.iter().map(|made| made.rules.as_str());
    let newborn = rules(newborn.filter(|rules| ![CLEAR, OPENING].contains(rules)));
    if !newborn.is_empty() {
        let would = if were_sent { "" } else { "would be " };
        lines.push(format!("{would}shortened: {newborn}"));
    }
    let is_split = edits.state == State::Edited && splits(edits);
    let are = if were_sent { "are" } else { "would be" };
    lines.extend(is_split.then(|| format!("the instructions {are} sent as two texts from now on")));
    if edits.marked && edits.parts.is_empty() && edits.splice.is_none() && edits.event.is_none() {
        lines.push("only marked for the provider's cache".to_owned());
    }
    if edits.state == State::Observed {
        let counts = edits.parts.iter().map(|(rule, count)| (rule.as_str(), *count)).collect();
        let less = match bytes.would_have_saved {
            0 => String::new(),
            bytes => format!("{} bytes less", figures::count(bytes)),
        };
        let told: Vec<String> = [listed(&counts), less].into_iter().filter(|told| !told.is_empty()).collect();
        let what = if told.is_empty() { "edited" } else { "shortened: " };
        lines.push(format!("only observed, would be {what}{}", told.join(": ")));
    }
    lines
}

/// What went wrong.
fn went_wrong(record: &Record) -> Vec<String> {
    let mut lines = Vec::new();
    let edits = &record.edits;
    if record.breaks_prefix() && edits.event.is_none() {
        lines.push("it does not begin with what was sent before".to_owned());
    }
    if edits.state == State::SetAside {
        lines.push(set_aside(edits));
    }
    if edits.original_resent {
        lines.push("the edited request was refused and sent again as it came".to_owned());
    }
    let status = record.status.filter(|status| *status >= 400).map(|status| format!("status {status}"));
    let outcome = Some(&record.outcome).filter(|outcome| **outcome != Outcome::Complete);
    let outcome = outcome.map(|outcome| ended(outcome, record.status)).filter(|outcome| !outcome.is_empty());
    let error = record.error.as_ref().map(|error| format!("error: {error}"));
    let wrong: Vec<String> = [status, outcome, error, edits.why.clone()].into_iter().flatten().collect();
    if !wrong.is_empty() {
        lines.push(wrong.join("; "));
    }
    lines
}

/// How an exchange ended, in words.
fn ended(outcome: &Term<Outcome>, status: Option<u16>) -> String {
    match outcome {
        Term::Known(Outcome::UpstreamBroke) if status.is_none() => "no answer came".to_owned(),
        Term::Known(Outcome::UpstreamBroke) => "the answer broke off".to_owned(),
        Term::Known(Outcome::ClientGone) => "the client did not wait for the end".to_owned(),
        Term::Known(Outcome::Stopped) => "the gateway was stopped".to_owned(),
        outcome => outcome.to_string(),
    }
}

/// What an event changes, or would have.
fn change(event: &Event, was_sent: bool) -> String {
    let would = if was_sent { "" } else { "would be " };
    let done = [
        (event.cleared, "result", "results", "cleared"),
        (event.dropped, "message", "messages", "left out"),
        (event.cut, "new result", "new results", "cut"),
        (event.abridged, "call", "calls", "abridged"),
    ];
    let told = done.into_iter().filter(|(count, _, _, what)| {
        *count > 0 || (*what == "cleared" && event.dropped + event.cut + event.abridged == 0)
    });
    let told: Vec<String> = told
        .map(|(count, one, many, what)| {
            format!("{} {would}{what}", figures::counted(count.into(), one, many))
        })
        .collect();
    let preset = Some(&*event.preset).filter(|preset| !["", USUAL_PRESET].contains(preset));
    format!(
        "event ({}{}): {} from message {} on, {} bytes {would}freed, ~{} bytes {would}written to the cache again",
        event.reason,
        preset.map_or_else(String::new, |preset| format!(", preset {preset}")),
        told.join(", "),
        event.first_message,
        figures::count(event.freed_bytes),
        figures::count(event.rewritten_bytes),
    )
}

/// What replaces messages that are not sent.
pub fn spliced(splice: &Splice) -> String {
    replacement(splice, "stands")
}

fn replacement(splice: &Splice, stands: &str) -> String {
    format!(
        "a {} {stands} for {} from {} to {}: {} → {} bytes",
        splice.rule,
        figures::counted(splice.messages.into(), "message", "messages"),
        splice.first,
        splice.end.saturating_sub(1),
        figures::count(splice.before),
        figures::count(splice.after),
    )
}

/// How soon the window is full, if that is soon, as measured before an event made room.
fn pressure(window: &Window, edits: &Edits) -> Option<String> {
    const SOON: u64 = 5;
    let velocity = window.velocity.and_then(|velocity| u64::try_from(velocity).ok())?;
    let made_room = edits.event.is_some() && edits.were_sent();
    let soon = window.steps_until_red.filter(|steps| *steps <= SOON && !made_room);
    if soon.is_none() && !window.spike {
        return None;
    }
    let spike = if window.spike { ", much faster than before" } else { "" };
    let until = match soon {
        Some(0) if window.zone_sent.as_ref().or(window.zone.as_ref()).is_some_and(|zone| zone == RED) => {
            "; the zone is red".to_owned()
        }
        Some(0) => "; red with the next request".to_owned(),
        Some(steps) => format!("; red in {}", figures::counted(steps, "request", "requests")),
        None => String::new(),
    };
    Some(format!("grows by ~{} tokens a request{spike}{until}", figures::count(velocity)))
}

/// Where instructions changed.
fn changed(prompt: &Shares) -> Option<String> {
    let byte = figures::count(prompt.volatile_at?);
    let line =
        prompt.volatile_line.map_or_else(String::new, |line| format!(" (line {})", figures::count(line)));
    Some(format!("the instructions change at byte {byte}{line}: what follows is not read from the cache"))
}

/// A call that is repeated.
fn circles(found: &DoomLoop) -> String {
    let results = match found.same_results {
        Some(true) => ", with the same result",
        Some(false) => ", with other results",
        None => "",
    };
    format!("the same call of {} {} times in a row{results}", found.tool, found.calls)
}

/// Rules, and the number of parts that each changed.
pub fn rules<'a>(all: impl Iterator<Item = &'a str>) -> String {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for rule in all.flat_map(|rules| rules.split('+')) {
        *counts.entry(rule).or_default() += 1;
    }
    listed(&counts)
}

fn listed(counts: &BTreeMap<&str, u32>) -> String {
    let counts: Vec<String> =
        counts.iter().map(|(rule, count)| format!("{rule} {}", figures::count((*count).into()))).collect();
    counts.join(", ")
}

/// The number of parts in another form by rule, without those that were decided with this request.
fn decided_before(edits: &Edits) -> BTreeMap<&str, u32> {
    let mut counts: BTreeMap<&str, u32> =
        edits.parts.iter().map(|(rule, count)| (rule.as_str(), *count)).collect();
    let mut less = |rule: &str, count: u32| {
        if let Some(parts) = counts.get_mut(rule) {
            *parts = parts.saturating_sub(count);
        }
    };
    edits.made.iter().flat_map(|made| made.rules.split('+')).for_each(|rule| less(rule, 1));
    less(REASONING, reasoning(edits));
    less(SPLIT, u32::from(splits(edits)));
    counts.retain(|_, count| *count > 0);
    counts
}

/// The number of blocks of reasoning that are left out from this request on.
fn reasoning(edits: &Edits) -> u32 {
    edits.event.as_ref().map_or(0, |event| event.reasoning)
}

/// Whether the instructions are sent as two texts from this request on: that and reasoning are not among what was made.
fn splits(edits: &Edits) -> bool {
    edits.parts.contains_key(SPLIT) && edits.decided > edits.made.len() as u32 + reasoning(edits)
}

/// The zone that was acted upon, if it differs from that of what was sent.
fn zone_before(record: &Record) -> Option<String> {
    let window = record.window.as_ref()?;
    let zone =
        window.zone.as_ref().filter(|zone| window.zone_sent.as_ref().is_some_and(|sent| sent != *zone))?;
    let edits = &record.edits;
    let is_as_it_came = edits.state == State::Observed || edits.original_resent;
    match &edits.event {
        None if is_as_it_came => Some(format!("if shortened, it would be in zone {zone}")),
        Some(_) if is_as_it_came => {
            Some(format!("if shortened, it would be in zone {zone} before the event"))
        }
        Some(_) if edits.were_sent() => Some(format!("before the event it was in zone {zone}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Preset;
    use crate::ledger::{Budget, Made};
    use crate::lineage::Relation;
    use crate::planner::decision;
    use crate::strategy::window;

    fn edits(state: State, parts: &[(&str, u32)]) -> Edits {
        let parts = parts.iter().map(|(rule, count)| ((*rule).to_owned(), *count)).collect();
        Edits { state: state.into(), parts, ..Edits::default() }
    }

    fn record(edits: Edits) -> Record {
        let outcome = Outcome::Complete.into();
        Record { relation: Some(CONTINUE.into()), outcome, edits, ..Record::default() }
    }

    /// The ledger must not name the modules that write to it.
    #[test]
    fn words_of_other_modules_are_as_they_write_them() {
        let written = [decision::OPENING, decision::CLEAR, decision::REASONING];
        assert_eq!([OPENING, CLEAR, REASONING], written);
        assert_eq!(decision::Cause::Split.to_string(), SPLIT);
        assert_eq!((Relation::Continue.as_str(), Relation::New.as_str()), (CONTINUE, NEW));
        assert_eq!((Preset::Default.as_str(), window::Zone::Red.as_str()), (USUAL_PRESET, RED));
    }

    #[test]
    fn calls_of_the_gateways_own_are_described_by_their_results() {
        let own = |messages| OwnCall {
            purpose: "summary".to_owned(),
            messages,
            generation: 2,
            ..OwnCall::default()
        };
        let late = "it took too long";
        for (own, error, expected) in [
            (own(0), None, &["a part read for a summary"][..]),
            (own(0), Some(late), &["a call for a summary that came to nothing", late]),
            (own(7), None, &["summary 2 of 7 messages"]),
            (OwnCall { score: Some(0.5), ..own(7) }, None, &["summary 2 of 7 messages, keeps 50 %"]),
        ] {
            let error = error.map(str::to_owned);
            let record = Record { own: Some(own), error, ..record(Edits::default()) };
            assert_eq!(happened(&record, false), expected);
        }
    }

    #[test]
    fn new_and_standing_decisions_are_described() {
        let made = |rules: &str| Made { rules: rules.to_owned(), ..Made::default() };
        let splice = |made| Splice {
            rule: "summary".to_owned(),
            messages: 3,
            first: 1,
            end: 4,
            before: 9_000,
            after: 700,
            made,
            output: None,
        };
        let stands = "a summary stands for 3 messages from 1 to 3: 9,000 → 700 bytes";
        let event = Event { reason: "cold".into(), reasoning: 2, first_message: 1, ..Event::default() };
        let marked = Edits { marked: true, ..edits(State::Edited, &[]) };
        let three = edits(State::Edited, &[("fold", 1), ("truncate", 2)]);
        for (edits, now, before) in [
            (edits(State::Unchanged, &[]), &[][..], &[][..]),
            (marked, &["only marked for the provider's cache"], &[]),
            (three.clone(), &[], &["as decided before: fold 1, truncate 2"]),
            (
                Edits { made: vec![made("fold+truncate")], decided: 1, ..three },
                &["shortened: fold 1, truncate 1"],
                &["as decided before: truncate 1"],
            ),
            (Edits { splice: Some(splice(true)), ..edits(State::Edited, &[]) }, &[stands], &[]),
            (Edits { splice: Some(splice(false)), ..edits(State::Edited, &[]) }, &[], &[stands]),
            (
                Edits { event: Some(event), decided: 2, ..edits(State::Edited, &[("reasoning", 5)]) },
                &[
                    "event (cold): 0 results cleared from message 1 on, 0 bytes freed, ~0 bytes written to the cache again",
                    "2 blocks of reasoning left out",
                ],
                &["as decided before: reasoning 3"],
            ),
            (
                Edits { decided: 1, ..edits(State::Edited, &[("split", 1)]) },
                &["the instructions are sent as two texts from now on"],
                &[],
            ),
            (edits(State::Edited, &[("split", 1)]), &[], &["as decided before: split 1"]),
            (edits(State::Observed, &[("fold", 1)]), &["only observed, would be shortened: fold 1"], &[]),
            (edits(State::Observed, &[]), &["only observed, would be edited"], &[]),
            (
                Edits { original_resent: true, ..edits(State::Edited, &[("fold", 1)]) },
                &["the edited request was refused and sent again as it came"],
                &[],
            ),
            (
                edits(State::SetAside, &[]),
                &["an edit of this thread was refused before, it was sent as it came"],
                &[],
            ),
            (
                Edits { added: vec!["prompt_cache_key".to_owned()], ..edits(State::SetAside, &[]) },
                &["an edit of this thread was refused before, its messages were sent as they came"],
                &["added beside the messages: prompt_cache_key"],
            ),
            (
                Edits { recalls: 2, why: Some("no time".to_owned()), ..edits(State::Unchanged, &[]) },
                &["2 calls made again: the result had been cleared", "no time"],
                &[],
            ),
        ] {
            let record = record(edits);
            assert_eq!((happened(&record, false), still_applies(&record)), (owned(now), owned(before)));
        }
    }

    fn owned(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn refused_and_observed_edits_are_not_described_as_made() {
        let made = |rules: &str| Made { rules: rules.to_owned(), ..Made::default() };
        let event = Event {
            reason: "window".into(),
            cleared: 4,
            reasoning: 2,
            first_message: 1,
            freed_bytes: 24_000,
            rewritten_bytes: 13_817,
            ..Event::default()
        };
        let splice = Splice { rule: "note".to_owned(), messages: 1, end: 1, made: true, ..Splice::default() };
        let window =
            Window { zone: Some("red".into()), zone_sent: Some("green".into()), ..Window::default() };
        let told = |edits| happened(&Record { window: Some(window.clone()), ..record(edits) }, false);
        let planned =
            Edits { event: Some(event), splice: Some(splice), ..edits(State::Edited, &[("split", 1)]) };
        let would = [
            "event (window): 4 results would be cleared from message 1 on, 24,000 bytes would be freed, \
             ~13,817 bytes would be written to the cache again",
            "2 blocks of reasoning would be left out",
            "a note would stand for 1 message from 0 to 0: 0 → 0 bytes",
        ];
        let zone = "if shortened, it would be in zone red before the event";
        let observed = Edits { state: State::Observed.into(), ..planned.clone() };
        assert_eq!(
            told(observed),
            [&would[..], &["only observed, would be shortened: split 1", zone]].concat()
        );
        let made = vec![made(OPENING), made("truncate")];
        let refused = Edits { made, decided: 5, original_resent: true, ..planned };
        let edited = [
            "would begin with a checkpoint",
            "would be shortened: truncate 1",
            "the instructions would be sent as two texts from now on",
            zone,
            "the edited request was refused and sent again as it came",
        ];
        assert_eq!(told(refused.clone()), [&would[..], &edited].concat());
        assert_eq!(still_applies(&record(refused.clone())), [""; 0]);
        let shortened = Edits { event: None, splice: None, made: Vec::new(), decided: 0, ..refused };
        assert_eq!(told(shortened), ["if shortened, it would be in zone red", edited[4]]);
    }

    #[test]
    fn ends_are_described_in_words() {
        let circles = DoomLoop { tool: "Read".to_owned(), calls: 3, same_results: Some(true) };
        let budget =
            Budget { state: Used::Spent.into(), limit: "budget.day_usd".to_owned(), used: "$9".to_owned() };
        for (record, expected) in [
            (
                Record { outcome: Outcome::ClientGone.into(), ..record(Edits::default()) },
                "the client did not wait for the end",
            ),
            (
                Record {
                    outcome: Outcome::UpstreamBroke.into(),
                    status: Some(200),
                    ..record(Edits::default())
                },
                "the answer broke off",
            ),
            (Record { outcome: Outcome::UpstreamBroke.into(), ..record(Edits::default()) }, "no answer came"),
            (
                Record { status: Some(500), error: Some("oh".to_owned()), ..record(Edits::default()) },
                "status 500; error: oh",
            ),
            (
                Record { doom_loop: Some(circles), ..record(Edits::default()) },
                "the same call of Read 3 times in a row, with the same result",
            ),
            (
                Record { budget: Some(budget), ..record(Edits::default()) },
                "budget spent: $9 (`budget.day_usd`)",
            ),
        ] {
            assert_eq!(happened(&record, false), [expected]);
        }
    }
}
