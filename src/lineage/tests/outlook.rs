//! What is known of the caches that a sender's requests go to.

use super::*;
use crate::lineage::cache;
use crate::planner::{Expected, Fate, Outlook};
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
