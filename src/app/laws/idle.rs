//! What is sent again and again for longer than things are kept.

use std::cell::Cell;

use proptest::prelude::*;

use super::client::{Client, sittings};
use super::keys;
use super::rig::{self, Rig, headers, policy, prices};
use crate::lineage::NOTED_EVERY;
use crate::protocol::conformance::for_all;
use crate::store::Batch;

const HOUR_MS: i64 = 3_600_000;
/// How long things are kept.
const KEPT_MS: i64 = 48 * HOUR_MS;
/// Turns that the store is given for a sweep: a few for each table.
const TURNS: usize = 40;

/// A request that is made again and again is sent the same, whatever the store removes meanwhile, which gateway sends it
/// and what that would decide now; and when it was not made for long, nothing fails.
#[test]
fn law_07_append_only_for_as_long_as_a_request_is_made() {
    let (rig, key, edited) = (Rig::new(), keys(), Cell::new(0));
    let store = rig.store("laws.db");
    let sweep = || {
        let before = rig::clock() - KEPT_MS - NOTED_EVERY.as_millis() as i64;
        let batch = Batch { forget_threads: Some(before), at_ms: rig::clock(), ..Batch::default() };
        rig.store_now(&*store, batch);
        (0..TURNS).for_each(|_| rig.store_now(&*store, Batch::default()));
    };
    for_all(
        6,
        |_| sittings().boxed(),
        |subject, (script, requests)| {
            let gateway = |variant| rig.core(store.clone(), policy(variant), prices(variant));
            let headers = headers(&key(), "s");
            let mut client = Client::new(subject, script, 0);
            let Some(body) = client.requests(requests).last() else { return Ok(()) };
            let (first, other) = (gateway(0), gateway(1));
            let send = |gateway| rig.send(gateway, subject.protocol(), &headers, &body);
            let sent = send(&first);
            edited.set(edited.get() + u32::from(!sent.facts.applied.is_empty()));
            for _ in 0..3 * KEPT_MS / (12 * HOUR_MS) {
                rig::wait(12 * HOUR_MS);
                let again = send(&other);
                prop_assert_eq!(&again.facts.applied, &sent.facts.applied);
                sweep();
            }
            for _ in 0..2 * KEPT_MS / (12 * HOUR_MS) {
                rig::wait(12 * HOUR_MS);
                sweep();
            }
            for gateway in [&first, &other] {
                let late = send(gateway);
                prop_assert!(late.facts.why.is_none(), "{:?}", late.facts.why);
            }
            Ok(())
        },
    );
    assert!(edited.get() > 5, "hardly anything is decided: {}", edited.get());
}
