//! What is known of the caches that a sender's requests go to.

use super::*;
use crate::lineage::cache;
use crate::planner::{Debt, Expected, Fate, Outlook, Staked};
use crate::strategy::debt::{Shares, Write};
use crate::strategy::gate::Rates;

/// Expectations of one model's cache are not compared with the figures of another one, even if both are asked the same
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

/// Misses during a rest, of what was written before it, do not prolong the next one.
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

/// Writes count when requests leave, and are taken back if these are refused. Reads count once the requests are billed,
/// unless nothing was there. A request that is made again before it has ended counts as often.
#[test]
fn stakes_are_settled_when_requests_end() {
    use Fate::{Billed, Refused, Unknown};
    let (told, missing) = (Fate::Told { read: 9, written: 9 }, Fate::Told { read: 0, written: 9 });
    let written = Write::of(9_000.0, None);
    let nothing =
        Staked { read: Shares::default(), missed: Shares::default(), written: None, rates: Rates::USUAL };
    let writes = Staked { written, ..nothing };
    let reads = Staked { read: Shares::default().with(written.unwrap()), ..nothing };
    // Requests by their upstream, and their fates once all have left; and the writes and the reads that count at
    // either upstream.
    for (name, requests, expected) in [
        ("under way", &[("a", "u a u", writes, None)][..], [(1, 0), (0, 0)]),
        ("billed", &[("a", "u a u", writes, Some(Billed))], [(1, 0), (0, 0)]),
        ("refused", &[("a", "u a u", writes, Some(Refused))], [(0, 0), (0, 0)]),
        (
            "unknown",
            &[("a", "u a u", writes, Some(Unknown)), ("a", "u", reads, Some(Unknown))],
            [(1, 1), (0, 0)],
        ),
        ("read", &[("a", "u a u", writes, None), ("a", "u", reads, Some(told))], [(1, 1), (0, 0)]),
        ("not there", &[("a", "u a u", writes, None), ("a", "u", reads, Some(missing))], [(1, 0), (0, 0)]),
        (
            "read, but refused",
            &[("a", "u a u", writes, None), ("a", "u", reads, Some(Refused))],
            [(1, 0), (0, 0)],
        ),
        (
            "at once",
            &[("a", "u a u", writes, Some(Billed)), ("a", "u a u", writes, Some(Billed))],
            [(2, 0), (0, 0)],
        ),
        (
            "at once, of which the second writes nothing",
            &[("a", "u a u", writes, Some(Billed)), ("a", "u a u", nothing, Some(Billed))],
            [(1, 0), (0, 0)],
        ),
        ("two that differ", &[("a", "u a u", writes, None), ("a", "u a u2", writes, None)], [(2, 0), (0, 0)]),
        ("two caches", &[("a", "u a u", writes, None), ("b", "u a u", writes, None)], [(1, 0), (1, 0)]),
    ] {
        let desk = Desk::new();
        let named = |upstream: &str| cache(desk.root, upstream, Some("m"));
        let places: Vec<_> = requests
            .iter()
            .map(|(upstream, messages, staked, _)| {
                let place = Place { cache: named(upstream), ..desk.place(&session("s"), &talk(messages)) };
                desk.lineage.memory.stake(place.request_key(), Some(*staked));
                place
            })
            .collect();
        for (place, (.., fate)) in places.iter().zip(requests) {
            if let Some(fate) = fate {
                desk.lineage.ended(place, *fate);
            }
        }
        let debts = expected.map(|(left, read)| {
            let debt = (0..left).fold(Debt::default(), |debt, _| debt.left(&writes));
            (0..read).fold(debt, |debt, _| debt.billed(&reads))
        });
        assert_eq!(["a", "b"].map(|upstream| desk.lineage.debt(named(upstream))), debts, "{name}");
    }
    // The same once more after it has ended is another stake; if it does not leave, there is none.
    let desk = Desk::new();
    let place = desk.place(&session("s"), &talk("u a u"));
    for _ in 0..2 {
        desk.lineage.memory.stake(place.request_key(), Some(writes));
        desk.lineage.ended(&place, Billed);
    }
    desk.lineage.memory.stake(place.request_key(), Some(writes));
    desk.lineage.withdraw_stake(&place);
    assert_eq!(desk.lineage.debt(place.cache), Debt::default().left(&writes).left(&writes));
}
