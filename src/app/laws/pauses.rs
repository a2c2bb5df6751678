//! How long a provider keeps prompts without marks, learned from what it reads after pauses.

use bytes::Bytes;
use serde_json::{Value, json};

use super::rig::{self, Rig, headers, policy};
use crate::app::meter::Figure;
use crate::planner::{Fate, Policy};
use crate::protocol;
use crate::shape;
use crate::strategy::gate::Reason;
use crate::usage::{Catalogue, Rate, Stated};

const MINUTE_MS: i64 = 60_000;
/// The variant whose events cost nothing.
const COLD: u8 = 5;
/// Requests between pauses, each of which brings a result that may be cleared.
const STEPS: usize = 3;
/// Approximate bytes that are new in each request.
const NEW: u64 = 10_500;

/// Bytes of instructions that others use as well.
const FRAME: usize = 20_000;

/// A history with this many results.
fn history(results: usize) -> Bytes {
    let mut messages = vec![
        json!({"role": "system", "content": "Be brief. ".repeat(FRAME / 10)}),
        json!({"role": "user", "content": "Go on. ".repeat(2000)}),
    ];
    for at in 0..results {
        let call =
            json!({"id": format!("c{at}"), "type": "function", "function": {"name": "f", "arguments": "{}"}});
        messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
        let text = format!("result {at} ").repeat(1000);
        messages.push(json!({"role": "tool", "tool_call_id": format!("c{at}"), "content": text}));
    }
    Bytes::from(json!({"model": "kept", "messages": Value::from(messages)}).to_string())
}

/// A price without one for writing.
fn prices() -> Catalogue {
    let rate = |pico: u64| Some(Rate::from_picodollars(pico));
    let price = Stated {
        input: rate(1_000_000),
        output: rate(1),
        cache_read: rate(100_000),
        cache_min: Some(64),
        ..Stated::default()
    };
    Catalogue::with_overrides(vec![("*".to_owned(), price)]).unwrap()
}

/// Pauses in minutes, the share of a prompt after its instructions that is read after each, and whether results are
/// cleared there because nothing of it was left.
type Pauses = &'static [(i64, f64, bool)];

#[test]
fn automatic_caches_count_as_cold_after_reported_misses() {
    let cases: [(&str, Pauses); 6] = [
        ("kept", &[(70, 1.0, false), (70, 1.0, false), (90, 1.0, false)]),
        ("gone", &[(70, 0.0, false), (70, 0.0, true), (90, 0.0, true), (61, 0.0, false), (61, 0.0, true)]),
        ("gone, but not for good", &[(70, 0.0, false), (70, 1.0, true), (70, 1.0, false)]),
        ("kept for a while", &[(70, 1.0, false), (600, 0.0, false), (70, 1.0, false), (600, 0.0, true)]),
        ("missed once", &[(90, 1.0, false), (70, 0.0, false), (70, 1.0, false)]),
        ("short", &[(50, 0.0, false), (50, 0.0, false), (70, 0.0, false)]),
    ];
    let protocol = protocol::named("openai-chat").unwrap();
    for (what, pauses) in cases {
        let rig = Rig::new();
        let core = rig.core(
            rig.store("store"),
            Policy { shape: shape::Settings::default(), ..policy(COLD) },
            prices(),
        );
        let mut results = 0;
        let mut found = Vec::new();
        for (minutes, share, _) in std::iter::once(&(0, 1.0, false)).chain(pauses) {
            rig::wait(minutes * MINUTE_MS);
            for step in 0..STEPS {
                results += 1;
                let body = history(results);
                let sent = rig.send(&core, protocol, &headers("k", "s"), &body);
                let wire = sent.body.as_ref().unwrap_or(&body).len() as u64;
                let (facts, place) = (&sent.facts, sent.facts.place.as_ref().unwrap());
                let event = facts.event.as_ref();
                assert!(
                    event.is_none_or(|event| event.reason == Reason::Cold && step == 0),
                    "{what}: {event:?}"
                );
                if step == 0 && *minutes > 0 {
                    found.push((*minutes, *share, event.is_some()));
                }
                let again = event.map_or(NEW, |event| event.rewritten_bytes + NEW);
                let share = if step == 0 { *share } else { 1.0 };
                // The instructions are cached, whoever has used them.
                let history = wire.saturating_sub(again).saturating_sub(FRAME as u64);
                let read = (FRAME as u64 + (history as f64 * share) as u64) / 4;
                core.learned.learn_pause(&core.lineage, "", facts, rig::clock(), read);
                core.lineage.ended(place, Fate::Told { read, written: 0 });
                let figure = Figure {
                    messages: facts.messages as usize,
                    tokens: wire / 4,
                    model: facts.model.as_deref().map(Into::into),
                };
                core.learned.meter.learn(place.head(), figure, Some(wire));
            }
        }
        assert_eq!(found, pauses, "{what}");
    }
}
