//! The laws that need the whole core of the gateway: lineage, planner, dialect and a store on disk, driven
//! without sockets.

mod client;
mod faulty;
mod rig;
mod witness;

use std::cell::Cell;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::Core;
use super::rewrite::State;
use crate::protocol::conformance::tree::Tree;
use crate::protocol::conformance::{Subject, for_all};
use crate::shape::Settings;
use crate::store::Store;

use client::{Client, Event, Script, Way, events, scripts};
use faulty::{Clumsy, FAILURES, Faulty};
use rig::{Rig, headers, settings};
use witness::{Witness, plain};

type Life = (Script, Script, Vec<Event>);

fn lives(_: &'static dyn Subject) -> BoxedStrategy<Life> {
    (scripts(), scripts(), events()).boxed()
}

/// One user, two agents, two gateways on one store.
struct World<'a> {
    rig: &'a Rig,
    subject: &'static dyn Subject,
    /// A store for each gateway, on one file.
    stores: &'a [Arc<dyn Store>; 2],
    gateways: Vec<Core>,
    clients: Vec<Client>,
    key: String,
    witness: Witness,
    /// What left, in order.
    wire: Vec<Bytes>,
    edited: usize,
}

impl<'a> World<'a> {
    fn new(
        rig: &'a Rig,
        stores: &'a [Arc<dyn Store>; 2],
        subject: &'static dyn Subject,
        key: &str,
        scripts: [&Script; 2],
    ) -> Self {
        let gateway = |at: u8| rig.core(Arc::clone(&stores[usize::from(at)]), settings(at));
        let client = |(at, script): (usize, &&Script)| Client::new(subject, (*script).clone(), at);
        Self {
            rig,
            subject,
            stores,
            gateways: vec![gateway(0), gateway(1)],
            clients: scripts.iter().enumerate().map(client).collect(),
            key: key.to_owned(),
            witness: Witness::new(subject),
            wire: Vec::new(),
            edited: 0,
        }
    }

    fn live(&mut self, events: &[Event]) -> Result<(), TestCaseError> {
        for event in events {
            self.happen(event)?;
        }
        Ok(())
    }

    fn happen(&mut self, event: &Event) -> Result<(), TestCaseError> {
        let client = &mut self.clients[0];
        let way = match event {
            Event::Next(way) => client.advance().then_some(*way),
            Event::Retry(way) => Some(*way),
            Event::Compact(from, way) => client.compact(*from).then_some(*way),
            Event::Interrupt(text, way) => client.interrupt(text).then_some(*way),
            Event::Rewind(moment, script) => {
                client.rewind(*moment, *script);
                None
            }
            Event::Switch => {
                self.clients.swap(0, 1);
                None
            }
            Event::Restart(gateway, variant) => {
                let gateway = usize::from(*gateway);
                let store = Arc::clone(&self.stores[gateway]);
                self.gateways[gateway] = self.rig.core(store, settings(*variant));
                None
            }
        };
        match (way, self.clients[0].body()) {
            (Some(Way::Through(gateway)), Some(body)) => self.send(usize::from(gateway), &body),
            _ => Ok(()),
        }
    }

    fn send(&mut self, gateway: usize, body: &Bytes) -> Result<(), TestCaseError> {
        let headers = headers(&self.key, "one-session");
        let counted = self.gateways[gateway].preview(self.subject.protocol(), &headers, body);
        let sent = self.rig.send(&self.gateways[gateway], self.subject.protocol(), &headers, body);
        let fine = matches!(sent.facts.state, State::Unchanged | State::Edited) && sent.facts.why.is_none();
        prop_assert!(fine, "{:?} {:?}", sent.facts.state, sent.facts.why);
        prop_assert_eq!(sent.body.is_some(), !sent.facts.applied.is_empty());
        prop_assert_eq!(&counted, &sent.body, "counted is not what is sent");
        for applied in sent.facts.applied.iter() {
            let kept = applied.decision.output.as_ref().is_none_or(|id| self.rig.outputs().path(id).exists());
            prop_assert!(kept, "a text is cited that was not saved: {:?}", applied);
        }
        self.edited += usize::from(sent.body.is_some());
        let wire = sent.body.unwrap_or_else(|| body.clone());
        self.witness.through(text(body), text(&wire))?;
        self.wire.push(wire);
        Ok(())
    }
}

fn text(body: &Bytes) -> &str {
    std::str::from_utf8(body).expect("bodies are text")
}

/// A principal for each case, so that all share one store.
fn keys() -> impl Fn() -> String {
    let count = Cell::new(0);
    move || {
        count.set(count.get() + 1);
        format!("key-{}", count.get())
    }
}

/// With settings under which nothing is worth a change, the very same buffer leaves.
#[test]
fn law_01_identity_of_the_whole_way() {
    let (rig, key) = (Rig::new(), keys());
    let store = rig.store("laws.db");
    for_all(32, lives, |subject, (script, _, events)| {
        let gateway = rig.core(Arc::clone(&store), Settings { repeat: false, ..settings(3) });
        let mut client = Client::new(subject, script, 0);
        let headers = headers(&key(), "s");
        for _ in &events {
            if !client.advance() {
                break;
            }
            let body = client.body().expect("a request");
            let sent = rig.send(&gateway, subject.protocol(), &headers, &body);
            prop_assert!(sent.body.is_none() && sent.facts.state == State::Unchanged);
        }
        Ok(())
    });
}

/// Two stores that saw the same requests give the same bytes.
#[test]
fn law_04_determinism_of_the_whole_way() {
    let (rig, key) = (Rig::new(), keys());
    let (first, second) = (rig.two_stores("first.db"), rig.two_stores("second.db"));
    for_all(24, lives, |subject, (one, two, events)| {
        let key = key();
        let live = |stores| {
            let mut world = World::new(&rig, stores, subject, &key, [&one, &two]);
            world.live(&events).map(|()| world.wire)
        };
        prop_assert_eq!(live(&first)?, live(&second)?);
        Ok(())
    });
}

/// Whatever agents and gateways do: what was sent once is sent the same again, pairs stay together, nothing
/// but results changes, and what changes gets shorter.
#[test]
fn law_07_append_only() {
    let (rig, key, edited) = (Rig::new(), keys(), Cell::new(0));
    let stores = rig.two_stores("laws.db");
    for_all(64, lives, |subject, (one, two, events)| {
        let mut world = World::new(&rig, &stores, subject, &key(), [&one, &two]);
        world.live(&events)?;
        edited.set(edited.get() + world.edited);
        Ok(())
    });
    assert!(edited.get() > 50, "hardly anything is edited: {}", edited.get());
}

/// While the store fails, only bytes leave that are safe: the original, or what was decided before. When it
/// works again, nothing is as if it had never failed but what was sent meanwhile.
#[test]
fn law_09_fail_open_store() {
    let (rig, key) = (Rig::new(), keys());
    let store = rig.store("laws.db");
    let strategy = |subject| (lives(subject), 1..=FAILURES, any::<prop::sample::Index>()).boxed();
    for_all(48, strategy, |subject, ((script, _, events), failure, when)| {
        let faulty = Arc::new(Faulty::new(Arc::clone(&store)));
        let gateway = rig.core(Arc::clone(&faulty) as Arc<dyn Store>, settings(0));
        let mut client = Client::new(subject, script, 0);
        let headers = headers(&key(), "s");
        let when = when.index(events.len());
        let mut sent_before: HashSet<String> = HashSet::new();
        for at in 0..events.len() {
            if !client.advance() {
                break;
            }
            let body = client.body().expect("a request");
            faulty.fail(if at == when { failure } else { 0 });
            let send = || rig.send(&gateway, subject.protocol(), &headers, &body).body;
            let wire = match catch_unwind(AssertUnwindSafe(send)) {
                Ok(wire) => wire.unwrap_or_else(|| body.clone()),
                // The server sends the original when the gateway panics.
                Err(_) => body.clone(),
            };
            let lists = [&body, &wire].map(|of| messages(subject, of));
            prop_assert_eq!(lists[0].len(), lists[1].len());
            for (message, wired) in lists[0].iter().zip(&lists[1]) {
                // What can still be stored may still be decided.
                let stored = at != when || failure == 2;
                let is_safe = stored || message == wired || sent_before.contains(wired);
                prop_assert!(is_safe, "made up while the store failed: {}", wired);
            }
            sent_before.extend(lists[1].iter().cloned());
        }
        Ok(())
    });
}

/// The messages of a body, each as text, cache marks aside.
fn messages(subject: &dyn Subject, body: &Bytes) -> Vec<String> {
    let root = Tree::parse(text(body));
    let said = |message: &Tree| format!("{:?}", plain(subject, message));
    subject.messages_of(&root).iter().map(said).collect()
}

/// A plan that cannot be carried out, or is carried out wrongly, changes nothing.
#[test]
fn law_09_fail_open_dialect() {
    let (rig, key) = (Rig::new(), keys());
    let store = rig.store("laws.db");
    let (changed, strategy) = (Cell::new(0), |subject| (lives(subject), 0..Clumsy::WAYS).boxed());
    for_all(32, strategy, |subject, ((script, _, events), how)| {
        let gateway = rig.core(Arc::clone(&store), settings(0));
        let clumsy = Clumsy::new(subject.protocol(), how);
        let mut client = Client::new(subject, script, 0);
        let headers = headers(&key(), "s");
        for _ in &events {
            if !client.advance() {
                break;
            }
            let body = client.body().expect("a request");
            let sent = rig.send(&gateway, clumsy, &headers, &body);
            changed.set(changed.get() + u32::from(sent.facts.why.is_some()));
            prop_assert!(sent.body.is_none(), "{:?} gave {:?}", how, sent.body);
        }
        Ok(())
    });
    assert!(changed.get() > 10, "there was hardly a plan: {}", changed.get());
}
