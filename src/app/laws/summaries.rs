//! The cost of summaries, and time: a conversation may end before there is any use for one.

use std::cell::RefCell;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::keys;
use super::rig::{Rig, headers, set_clock};
use crate::app::meter::Figure;
use crate::config::Summarize;
use crate::planner::Policy;
use crate::protocol;
use crate::strategy::ladder;
use crate::strategy::summary::{Settings, prompt};
use crate::usage::{Catalogue, Rate, Stated};

/// Tokens of the model's window.
const WINDOW: u64 = 20_000;
/// The price of a token of an answer, in tokens of plain input.
const ANSWER: f64 = 5.0;
/// How much more a conversation may cost, as a share of what it has cost.
const LOSS: f64 = 0.15;
/// The factor for the bytes around what is said, by which an estimate without them may be wrong.
const AROUND: f64 = 1.01;

/// The prices of models, none of which caches prompts by marks.
fn prices() -> Catalogue {
    let rate = |picodollars| Some(Rate::from_picodollars(picodollars));
    let price = Stated {
        input: rate(1_000_000),
        output: rate(ANSWER as u64 * 1_000_000),
        cache_read: rate(100_000),
        context_window: Some(WINDOW),
        ..Stated::default()
    };
    Catalogue::with_overrides(vec![("*".to_owned(), price)]).unwrap()
}

fn settings(most_loss: f64) -> Settings {
    Settings { length: 200, keep_tokens: 50, minimum_gain: 1, most_loss, ..Settings::default() }
}

/// A conversation with messages of these lengths, by the user and the model in turn: one request up to each of the
/// user's.
fn requests(lengths: &[usize]) -> impl Iterator<Item = Bytes> {
    let said = |(at, length): (usize, &usize)| {
        let text: String =
            (at..).flat_map(|word| format!("{word} ").into_bytes()).map(char::from).take(*length).collect();
        let role = ["user", "assistant"][at % 2];
        json!({"role": role, "content": text})
    };
    let talk: Vec<Value> = lengths.iter().enumerate().map(said).collect();
    (0..lengths.len()).step_by(2).map(move |last| {
        Bytes::from(json!({"model": "m", "max_tokens": 1000, "messages": talk[..=last]}).to_string())
    })
}

/// The summaries begun in a conversation: by how much it would have been more expensive because of them if it had ended
/// there.
#[derive(Debug, Default)]
struct Begun {
    /// Before room was needed.
    early: Vec<f64>,
    /// When room was needed.
    late: Vec<f64>,
}

/// A conversation whose summaries are all paid for although none is ever ready, up to where there is no room left.
/// Nothing else makes room.
fn begun(lengths: &[usize], most_loss: f64, key: &str) -> Begun {
    let rig = Rig::new();
    set_clock(0);
    let given = Summarize { settings: settings(most_loss), ..Summarize::default() };
    let limits = Some(crate::summarizer::Limits { per_hour: None, ..Default::default() });
    let ladder = ladder::Settings { enabled: false, ..ladder::Settings::default() };
    let policy = Policy { ladder, ..Policy::default() };
    let core = rig.summarising(rig.store("store"), policy.clone(), prices(), &given, limits);
    let protocol = protocol::named("openai-chat").unwrap();
    let task = prompt::write(prompt::Material { goal: "", previous: None, transcript: "" }, &given.settings);
    let (mut direct, mut own, mut before) = (0.0, 0.0, Bytes::new());
    let mut begun = Begun::default();
    for body in requests(lengths) {
        let sent = rig.send(&core, protocol, &headers(key, "s"), &body);
        let gauge = sent.facts.level.unwrap().gauge.unwrap();
        if gauge.prompt >= gauge.usable() {
            break;
        }
        let kept = body.iter().zip(&before).take_while(|(one, other)| one == other).count() as f64;
        direct += body.len() as f64 - 0.9 * kept;
        let (head, bytes) = (sent.facts.place.as_ref().unwrap().head(), body.len() as u64);
        let messages = sent.facts.messages as usize;
        let figure = Figure { messages, tokens: bytes / 4, model: Some("m".into()) };
        core.learned.meter.learn(head, figure, Some(bytes));
        before = body;
        let Some(prospect) = sent.prospect else { continue };
        let answer = given.settings.length as f64 * core.learned.meter.bytes_per_token(Some("m")) * ANSWER;
        own += prospect.bytes() as f64 + task.len() as f64 + answer;
        core.summaries.as_ref().unwrap().pay(&prospect);
        let is_wanted = gauge.reaches(policy.window.trigger, &policy.window);
        if is_wanted { &mut begun.late } else { &mut begun.early }.push((direct + own) / direct);
    }
    begun
}

/// However long messages are, and whenever a conversation ends before room is needed, it has paid at most 15 % of its
/// cost without the gateway for summaries that it does not use. When room is needed, one is begun.
#[test]
fn unused_summaries_cost_at_most_the_loss_limit() {
    let (key, seen) = (keys(), RefCell::new(Begun::default()));
    let lengths = |most: usize, counts| prop::collection::vec(100..most, counts);
    let talks = prop_oneof![lengths(1_000, 80..160), lengths(6_000, 8..60), lengths(20_000, 4..30)];
    let config = ProptestConfig { cases: 30, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(lengths in talks)| {
        let begun = begun(&lengths, LOSS, &key());
        prop_assert!(begun.early.iter().all(|share| *share <= (1.0 + LOSS) * AROUND), "{begun:?}");
        seen.borrow_mut().early.extend(begun.early);
        seen.borrow_mut().late.extend(begun.late);
    });
    let seen = seen.into_inner();
    assert!(!seen.early.is_empty() && seen.late.iter().any(|share| *share > 1.0 + LOSS), "{seen:?}");
}

/// A conversation of a few long messages has no summary before room is needed; with no limit on the loss it has one at
/// its share.
#[test]
fn a_loss_limit_delays_summaries_of_few_long_messages() {
    let key = keys();
    let lengths: Vec<usize> = (0..60).map(|at| if at < 3 { 12_000 } else { 700 }).collect();
    for (most_loss, is_early) in [(0.0, false), (LOSS, false), (1.0, true)] {
        let begun = begun(&lengths, most_loss, &key());
        assert_eq!(begun.early.iter().any(|share| *share > 1.2), is_early, "{most_loss} {begun:?}");
        assert_eq!(begun.early.is_empty(), !is_early, "{most_loss} {begun:?}");
        assert!(!begun.late.is_empty() || is_early, "{most_loss} {begun:?}");
    }
}
