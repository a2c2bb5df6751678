//! What is known of the caches that a sender's requests go to.

use super::*;
use crate::lineage::cache;
use crate::planner::{Debt, Expected, Fate, Outlook, Staked, Write};
use crate::strategy::gate::Rates;

/// What one model's cache is asked for is not looked for in what another one tells, also where both are asked the same
/// at the same time.
#[test]
fn expectations_of_one_cache_do_not_affect_the_outlook_of_another() {
    let desk = Desk::new();
    let names = [("a", Some("m")), ("b", Some("m")), ("a", Some("n")), ("a", None)];
    let caches = names.map(|(upstream, model)| cache(desk.root, upstream, model));
    let rates = Rates { read: 0.1, write: 1.25 };
    let expected = Expected { bytes: 900.0, before: 0.0, tokens: Some(300), least: None, rates };
    let place = desk.place(&session("s"), &talk("u a u"));
    let places = caches.map(|cache| Place { cache, ..place.clone() });
    for _ in 0..2 {
        for place in &places {
            desk.lineage.expect(place, Some(expected));
        }
        for (place, read) in places.iter().zip([300, 0, 300, 300]) {
            desk.lineage.ended(place, Fate::Told { read, written: 400 - read });
        }
    }
    assert_eq!(
        caches.map(|cache| desk.lineage.outlook(cache)),
        [Outlook::Fair, Outlook::SeldomKept, Outlook::Fair, Outlook::Fair]
    );
    assert_eq!(desk.lineage.outlook(cache(Chain::root("x", b"you"), "b", Some("m"))), Outlook::Fair);
}

/// What was written before the rest began, and is not there while it lasts, makes the next one no longer.
#[test]
fn misses_during_a_rest_do_not_prolong_the_next() {
    let desk = Desk::new();
    let rates = Rates { read: 0.1, write: 1.25 };
    let expected = Expected { bytes: 900.0, before: 0.0, tokens: Some(300), least: None, rates };
    let place = desk.place(&session("s"), &talk("u a u"));
    for _ in 0..5 {
        desk.lineage.expect(&place, Some(expected));
        desk.lineage.ended(&place, Fate::Told { read: 0, written: 400 });
    }
    assert_eq!(desk.lineage.outlook(place.cache), Outlook::SeldomKept);
    desk.lineage.expect(&place, None);
    assert_eq!(desk.lineage.outlook(place.cache), Outlook::Fair);
}

/// Requests with the same history that leave at the same time have one stake, in each cache.
#[test]
fn what_is_asked_several_times_at_once_is_staked_once() {
    let write = Write { size: 9_000.0, bytes: 9_000.0, extra: 2_250.0, is_held: false };
    let staked = Staked { written: Some(write), ..Staked::default() };
    for (name, requests, expected) in [
        ("one", &[("a", "u a u")][..], [1, 0]),
        ("the same four times", &[("a", "u a u"); 4], [1, 0]),
        ("two that differ", &[("a", "u a u"), ("a", "u a u2"), ("a", "u a u")], [2, 0]),
        ("two caches", &[("a", "u a u"), ("b", "u a u"), ("a", "u a u"), ("b", "u a u")], [1, 1]),
    ] {
        let desk = Desk::new();
        let named = |upstream: &str| cache(desk.root, upstream, Some("m"));
        for (upstream, messages) in requests {
            let place = desk.place(&session("s"), &talk(messages));
            let place = Place { cache: named(upstream), ..place };
            desk.lineage.memory.stake(place.cache, place.request_key(), &Staked::default());
            desk.lineage.memory.stake(place.cache, place.request_key(), &staked);
        }
        let after = |count: usize| (0..count).fold(Debt::default(), |debt, _| debt.after(&staked));
        assert_eq!(
            ["a", "b"].map(|upstream| desk.lineage.debt(named(upstream))),
            expected.map(after),
            "{name}"
        );
    }
}
