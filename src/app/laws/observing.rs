//! Observing changes nothing, and records what rewriting would do.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use proptest::prelude::*;

use super::client::{Client, Event, Script, Way, events, quiet_events, scripts};
use super::rig::{self, Rig, SETTINGS, headers, policy, prices};
use super::{keys, messages};
use crate::app::Core;
use crate::app::books::Planned;
use crate::app::rewritten::Rewritten;
use crate::app::shadow::Shadow;
use crate::ledger::words::State;
use crate::planner::Decision;
use crate::protocol::conformance::{Subject, for_all};
use crate::store::Store;

/// Two gateways with a store each, one of which stops changing anything.
struct Twins<'a> {
    rig: &'a Rig,
    subject: &'static dyn Subject,
    stores: [Arc<dyn Store>; 2],
    headers: HeaderMap,
    variant: u8,
    rewriting: Core,
    other: Core,
    /// What the other gateway has decided until it began to observe.
    decided: Vec<Arc<Decision>>,
    /// How it has sent each message, with everything up to and including that message.
    sent: HashSet<(Vec<String>, String)>,
    /// Requests that were observed although they would have been changed, and events among them.
    seen: (u32, u32),
}

impl<'a> Twins<'a> {
    fn new(
        rig: &'a Rig,
        subject: &'static dyn Subject,
        stores: &[Arc<dyn Store>; 2],
        key: &str,
        variant: u8,
    ) -> Self {
        rig::set_clock(0);
        let core = |at: usize| rig.core(Arc::clone(&stores[at]), policy(variant), prices(variant));
        let (rewriting, other) = (core(0), core(1));
        let (stores, headers) = (stores.clone(), headers(key, "one-session"));
        let (decided, sent, seen) = (Vec::new(), HashSet::new(), (0, 0));
        Self { rig, subject, stores, headers, variant, rewriting, other, decided, sent, seen }
    }

    /// Restarts both. The other one only observes from now on.
    fn turn(&mut self) {
        let core = |at: usize| {
            self.rig.core(Arc::clone(&self.stores[at]), policy(self.variant), prices(self.variant))
        };
        (self.rewriting, self.other) = (core(0), core(1));
        self.other.shadow = Some(Shadow::over(&self.stores[1], 1 << 20));
    }

    fn send(&mut self, body: &Bytes) -> Result<(), TestCaseError> {
        // Of several decisions about one result the newest is found: so they are made at different times.
        rig::wait(1);
        let send = |core: &Core| self.rig.send(core, self.subject.protocol(), &self.headers, body);
        let (sent, seen) = (send(&self.rewriting), send(&self.other));
        if self.other.shadow.is_some() {
            self.nothing_new_is_stored(&seen)?;
            self.nothing_new_left(body, &seen)?;
            agree(body, &sent, &seen)?;
            self.seen.0 += u32::from(seen.facts.state == State::Observed);
            self.seen.1 += u32::from(seen.facts.event.is_some());
        } else {
            prop_assert_eq!(&sent.body, &seen.body);
            self.decided
                .extend(seen.facts.decided.applied.iter().map(|applied| Arc::clone(&applied.decision)));
        }
        let [came, left] = [body, seen.body.as_ref().unwrap_or(body)].map(|of| messages(self.subject, of));
        self.sent.extend(left.into_iter().enumerate().map(|(at, left)| (came[..=at].to_vec(), left)));
        Ok(())
    }

    /// The store contains nothing but what was decided before.
    fn nothing_new_is_stored(&self, seen: &Rewritten) -> Result<(), TestCaseError> {
        let place = seen.facts.place.as_ref().expect("it was read");
        let stored = self.stores[1].decisions(&place.chains).expect("it can be read");
        prop_assert!(stored.iter().all(|stored| self.decided.contains(&stored.decision)));
        prop_assert!(self.stores[1].splices(&place.chains).expect("it can be read").is_empty());
        Ok(())
    }

    /// What was sent before is sent in a form in which it was sent then; everything else is sent as received.
    fn nothing_new_left(&self, body: &Bytes, seen: &Rewritten) -> Result<(), TestCaseError> {
        let [came, left] = [body, seen.body.as_ref().unwrap_or(body)].map(|of| messages(self.subject, of));
        let prior = seen.facts.place.as_ref().map_or(0, |place| place.sent);
        prop_assert_eq!(came.len(), left.len());
        for (at, left) in left.iter().enumerate() {
            let is_right = if at < prior {
                self.sent.contains(&(came[..=at].to_vec(), left.clone()))
            } else {
                *left == came[at]
            };
            prop_assert!(is_right, "message {} of {}: {}", at, prior, left);
        }
        Ok(())
    }
}

/// What one has recorded is what the other has done.
fn agree(body: &Bytes, sent: &Rewritten, seen: &Rewritten) -> Result<(), TestCaseError> {
    let would = seen.facts.would.expect("it is known what would have been");
    let bytes = sent.body.as_ref().unwrap_or(body).len() as u64;
    prop_assert_eq!((would.bytes, would.spared), (bytes, sent.facts.spared()));
    prop_assert_eq!(would.encoded, sent.facts.encoded);
    let planned = match &seen.reading.as_ref().expect("it was read").planned {
        Some(Planned::Edited(planned)) => &planned.body,
        _ => body,
    };
    prop_assert_eq!(planned, sent.body.as_ref().unwrap_or(body));
    if seen.facts.state != State::Edited {
        prop_assert!(seen.body.is_none());
        prop_assert_eq!(&seen.facts.decided.applied, &sent.facts.decided.applied);
        prop_assert_eq!(&seen.facts.decided.splice, &sent.facts.decided.splice);
        prop_assert_eq!(&seen.facts.event, &sent.facts.event);
        prop_assert_eq!(seen.facts.decided.fresh, sent.facts.decided.fresh);
        prop_assert_eq!((seen.facts.level, seen.facts.recalls), (sent.facts.level, sent.facts.recalls));
    }
    Ok(())
}

/// The script of an agent, the settings of the gateways, what happens, and after how much of it one of them begins to
/// observe.
type Life = (Script, u8, Vec<Event>, usize);

fn lives(_: &'static dyn Subject) -> BoxedStrategy<Life> {
    let events = prop_oneof![events().boxed(), quiet_events().boxed()];
    (scripts(), 0..SETTINGS, events, prop_oneof![2 => Just(0_usize), 1 => 1_usize..9]).boxed()
}

fn happen(client: &mut Client, event: &Event) -> bool {
    match event {
        Event::Next(Way::Through(_)) => client.advance(),
        Event::Next(Way::Bypass) => {
            client.advance();
            false
        }
        Event::Retry(way) => *way != Way::Bypass,
        Event::Compact(from, way) => client.compact(*from) && *way != Way::Bypass,
        Event::Interrupt(text, way) => client.interrupt(text) && *way != Way::Bypass,
        Event::Rewind(moment, script) => {
            client.rewind(*moment, *script);
            false
        }
        Event::Pause(minutes) => {
            rig::wait(i64::from(*minutes) * 60_000);
            false
        }
        Event::Switch | Event::Restart(..) => false,
    }
}

/// Whatever an agent does, and whenever a gateway begins to observe.
#[test]
fn observing_sends_unchanged_and_records_what_rewriting_would_do() {
    let (rig, key) = (Rig::new(), keys());
    let stores = [rig.store("rewriting.db"), rig.store("observing.db")];
    let tally = Cell::new((0, 0));
    for_all(96, lives, |subject, (script, variant, events, turns)| {
        let mut twins = Twins::new(&rig, subject, &stores, &key(), variant);
        let mut client = Client::new(subject, script, 0);
        for (at, event) in events.iter().enumerate() {
            if at == turns {
                twins.turn();
            }
            if happen(&mut client, event)
                && let Some(body) = client.body()
            {
                twins.send(&body)?;
            }
        }
        let (changed, events) = tally.get();
        tally.set((changed + twins.seen.0, events + twins.seen.1));
        Ok(())
    });
    let (changed, events) = tally.get();
    assert!(changed > 100 && events > 20, "hardly anything would have been done: {changed}, {events}");
}
