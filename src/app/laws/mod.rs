//! The laws that need the whole core of the gateway: lineage, planner, dialect and a store on disk, driven without
//! sockets.

mod client;
mod fault;
mod faulty;
mod idle;
mod late;
mod observing;
mod pauses;
mod rig;
mod room;
mod stakes;
mod summaries;
mod thoughts;
mod unchanged;
mod unmark;
mod witness;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use proptest::prelude::*;
use serde_json::json;

use super::Core;
use super::budget::Budget;
use crate::config::{self, BudgetLimits, OnExceeded};
use crate::ledger::Record;
use crate::ledger::words::State;
use crate::protocol::conformance::talk::Ids;
use crate::protocol::conformance::tree::Tree;
use crate::protocol::conformance::{Subject, for_all};
use crate::protocol::{self, Protocol};
use crate::store::Store;
use crate::strategy::gate::Reason;
use crate::usage::Tokens;

use client::{Client, Event, Script, Way, events, quiet_events, scripts, sittings};
use faulty::{Clumsy, FAILURES, Faulty, WRITES};
use rig::{QUIET, Rig, SETTINGS, headers, policy, prices};
use unmark::unmarked;
use witness::{Witness, plain};

/// The scripts of two agents, the settings of the gateways, and what happens.
type Life = (Script, Script, [u8; 2], Vec<Event>);

fn lives(_: &'static dyn Subject) -> BoxedStrategy<Life> {
    (scripts(), scripts(), variants(), events()).boxed()
}

fn quiet_lives(_: &'static dyn Subject) -> BoxedStrategy<Life> {
    (scripts(), scripts(), variants(), quiet_events()).boxed()
}

fn variants() -> impl Strategy<Value = [u8; 2]> {
    [0..SETTINGS, 0..SETTINGS]
}

/// One user, two agents, two gateways on one store.
struct World<'a> {
    rig: &'a Rig,
    subject: &'static dyn Subject,
    /// A store for each gateway, on the same file.
    stores: &'a [Arc<dyn Store>; 2],
    gateways: Vec<Core>,
    clients: Vec<Client>,
    key: String,
    witness: Witness,
    /// Everything that was sent, in order.
    wire: Vec<Bytes>,
    tally: Tally,
}

/// Counts of what happened, so that a law is not satisfied merely because nothing has put it to the test.
#[derive(Debug, Clone, Default)]
struct Tally {
    edited: u32,
    marked: u32,
    /// Messages sent with reasoning left out, and requests with bound reasoning that can be judged.
    thoughts: [u32; 2],
    /// Whether there were conversations of a dialect in which reasoning may be left out.
    may_leave_out: bool,
    events: BTreeMap<Reason, u32>,
}

impl<'a> World<'a> {
    fn new(
        rig: &'a Rig,
        stores: &'a [Arc<dyn Store>; 2],
        subject: &'static dyn Subject,
        key: &str,
        scripts: [&Script; 2],
        variants: [u8; 2],
    ) -> Self {
        rig::set_clock(0);
        let gateway =
            |at: usize| rig.core(Arc::clone(&stores[at]), policy(variants[at]), prices(variants[at]));
        let client = |(at, script): (usize, &&Script)| Client::new(subject, (*script).clone(), at);
        let mut talks = scripts.iter().flat_map(|script| &script.talks);
        let tells_apart = talks.all(|talk| subject.ids(talk) == Ids::Own);
        Self {
            rig,
            subject,
            stores,
            gateways: vec![gateway(0), gateway(1)],
            clients: scripts.iter().enumerate().map(client).collect(),
            key: key.to_owned(),
            witness: Witness::new(subject, tells_apart),
            wire: Vec::new(),
            tally: Tally::default(),
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
                self.gateways[gateway] = self.rig.core(store, policy(*variant), prices(*variant));
                None
            }
            Event::Pause(minutes) => {
                rig::wait(i64::from(*minutes) * 60_000);
                None
            }
        };
        match (way, self.clients[0].body()) {
            (Some(Way::Through(gateway)), Some(body)) => self.send(usize::from(gateway), &body),
            (Some(Way::Bypass), Some(body)) => {
                self.witness.bypassed(&body);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The body whose tokens would be counted, whatever form the request is given in.
    fn count(
        &self,
        gateway: usize,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Result<Option<Bytes>, TestCaseError> {
        let (gateway, protocol) = (&self.gateways[gateway], self.subject.protocol());
        let alone = |body: &Bytes| gateway.preview(protocol, headers, body, Rig::asked());
        let count = |body: &Bytes| match protocol.envelope(body) {
            Some(envelope) => alone(&envelope.request()).map(|counted| envelope.around(&counted)),
            None => alone(body),
        };
        let within = |body: &Bytes| -> Bytes {
            [&br#"{"a":1.0, "generateContentRequest" :"#[..], body, b" }"].concat().into()
        };
        let counted = count(body);
        if protocol.name() == "gemini" {
            prop_assert_eq!(count(&within(body)), counted.as_ref().map(within));
        }
        Ok(counted)
    }

    fn send(&mut self, gateway: usize, body: &Bytes) -> Result<(), TestCaseError> {
        let headers = headers(&self.key, "one-session");
        let counted = self.count(gateway, &headers, body)?;
        let sent = self.rig.send(&self.gateways[gateway], self.subject.protocol(), &headers, body);
        let fine = matches!(sent.facts.state, State::Unchanged | State::Edited) && sent.facts.why.is_none();
        prop_assert!(fine, "{:?} {:?}", sent.facts.state, sent.facts.why);
        for applied in sent.facts.decided.applied.iter() {
            let kept = applied.decision.output.as_ref().is_none_or(|id| self.rig.outputs().path(id).exists());
            prop_assert!(kept, "a text is cited that was not saved: {:?}", applied);
        }
        let (edited, event) = (sent.body.is_some(), sent.facts.event);
        let wire = sent.body.unwrap_or_else(|| body.clone());
        let (bare, marks) = unmarked(self.subject, text(body), text(&wire));
        prop_assert_eq!(edited, !sent.facts.decided.applied.is_empty() || marks > 0);
        if event.is_none() {
            let counted = Tree::parse(text(counted.as_ref().unwrap_or(body)));
            prop_assert!(counted.same(&bare), "counted is not what is sent");
        }
        self.witness.through(body, &wire, &bare, event.as_ref())?;
        self.tally.edited += u32::from(edited);
        self.tally.marked += u32::from(marks > 0);
        if let Some(event) = event {
            *self.tally.events.entry(event.reason).or_default() += 1;
        }
        self.wire.push(wire);
        Ok(())
    }
}

fn text(body: &Bytes) -> &str {
    std::str::from_utf8(body).expect("bodies are text")
}

/// A principal for each case, so that all can share one store.
fn keys() -> impl Fn() -> String {
    let count = Cell::new(0);
    move || {
        count.set(count.get() + 1);
        format!("key-{}", count.get())
    }
}

/// With settings under which no change is worthwhile, the very same buffer is sent.
#[test]
fn law_01_identity_of_the_pipeline() {
    let (rig, key) = (Rig::new(), keys());
    let store = rig.store("laws.db");
    for_all(
        32,
        |_| sittings().boxed(),
        |subject, (script, requests)| {
            let gateway = rig.core(Arc::clone(&store), policy(QUIET), prices(QUIET));
            let mut client = Client::new(subject, script, 0);
            let headers = headers(&key(), "s");
            for body in client.requests(requests) {
                let sent = rig.rewrite(&gateway, subject.protocol(), &headers, &body);
                prop_assert!(sent.body.is_none() && sent.facts.state == State::Unchanged);
            }
            Ok(())
        },
    );
}

/// Two stores that saw the same requests lead to the same bytes.
#[test]
fn law_04_determinism_of_the_pipeline() {
    let (rig, key) = (Rig::new(), keys());
    let (first, second) = (rig.two_stores("first.db"), rig.two_stores("second.db"));
    for_all(24, lives, |subject, (one, two, variants, events)| {
        let key = key();
        let live = |stores| {
            let mut world = World::new(&rig, stores, subject, &key, [&one, &two], variants);
            world.live(&events).map(|()| world.wire)
        };
        prop_assert_eq!(live(&first)?, live(&second)?);
        Ok(())
    });
}

/// Whatever agents and gateways do: what was sent once is sent the same way again, pairs stay together, nothing but
/// results changes, and what changes gets shorter.
#[test]
fn law_07_append_only() {
    live_all(64, lives);
}

/// The same for agents that mostly continue, so that conversations grow long and events are many: whatever is cleared
/// or marked, the provider accepts what it would have accepted.
#[test]
fn law_07_append_only_between_events() {
    let tally = live_all(64, quiet_lives);
    for reason in [Reason::Eager, Reason::BreakEven, Reason::Window, Reason::Cold, Reason::Uncached] {
        let count = tally.events.get(&reason).copied().unwrap_or_default();
        assert!(count >= 3, "hardly any event for {reason:?}: {tally:?}");
    }
    let is_telling = !tally.may_leave_out || tally.thoughts.iter().all(|count| *count >= 3);
    assert!(is_telling, "hardly anything was thought: {tally:?}");
}

/// Plays lives before a witness, and returns the counts of what happened.
fn live_all(usual: u32, lives: impl Fn(&'static dyn Subject) -> BoxedStrategy<Life>) -> Tally {
    let (rig, key, tally) = (Rig::new(), keys(), RefCell::new(Tally::default()));
    let stores = rig.two_stores("laws.db");
    for_all(usual, lives, |subject, (one, two, variants, events)| {
        let mut world = World::new(&rig, &stores, subject, &key(), [&one, &two], variants);
        world.live(&events)?;
        let thoughts = &world.witness.thoughts;
        world.tally.thoughts = [thoughts.left_out, thoughts.bound];
        world.tally.may_leave_out = subject.protocol().name() == "anthropic";
        tally.borrow_mut().add(&world.tally);
        Ok(())
    });
    let tally = tally.into_inner();
    assert!(tally.edited > 50, "hardly anything is edited: {tally:?}");
    tally
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.edited += other.edited;
        self.marked += other.marked;
        self.may_leave_out |= other.may_leave_out;
        for (sum, more) in self.thoughts.iter_mut().zip(other.thoughts) {
            *sum += more;
        }
        for (reason, count) in &other.events {
            *self.events.entry(*reason).or_default() += count;
        }
    }
}

/// While the store fails, only safe bytes are sent: the original, or what was decided before and, if only writing
/// fails, what was sent before at the beginning. When it works again, everything is as if it had never failed, except
/// for what was sent in the meantime.
#[test]
fn law_09_fail_open_store() {
    let (rig, key) = (Rig::new(), keys());
    let store = rig.store("laws.db");
    let failures = || prop_oneof![2 => 1..=FAILURES, 1 => WRITES];
    let strategy = |_| (sittings(), failures(), any::<prop::sample::Index>()).boxed();
    for_all(64, strategy, |subject, ((script, requests), failure, when)| {
        let faulty = Arc::new(Faulty::new(Arc::clone(&store)));
        let gateway = rig.core(Arc::clone(&faulty) as Arc<dyn Store>, policy(0), prices(0));
        let mut client = Client::new(subject, script, 0);
        let headers = headers(&key(), "s");
        let when = when.index(requests);
        let mut sent_before: HashSet<String> = HashSet::new();
        let mut before = [Vec::new(), Vec::new()];
        for (at, body) in client.requests(requests).enumerate() {
            faulty.fail(if at == when { failure } else { 0 });
            let send = || rig.send(&gateway, subject.protocol(), &headers, &body).body;
            let wire = match catch_unwind(AssertUnwindSafe(send)) {
                Ok(wire) => wire.unwrap_or_else(|| body.clone()),
                // The server sends the original if the gateway panics.
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
            let goes_on = at == when && WRITES.contains(&failure) && lists[0].starts_with(&before[0]);
            prop_assert!(!goes_on || lists[1].starts_with(&before[1]), "changed by failure {}", failure);
            before = lists;
        }
        Ok(())
    });
}

/// The messages of a body as texts, without cache marks.
fn messages(subject: &dyn Subject, body: &Bytes) -> Vec<String> {
    let root = Tree::parse(text(body));
    let said = |message: &Tree| format!("{:?}", plain(subject, message));
    subject.messages_of(&root).iter().map(said).collect()
}

/// A request that is not edited because the budget is spent is not sent: nothing judges it again by a later clock.
#[test]
fn requests_over_a_spent_budget_are_refused_unedited() {
    let (rig, key) = (Rig::new(), keys());
    let store = rig.store("laws.db");
    let day = BudgetLimits { usd: None, tokens: Some(1) };
    let settings = config::Budget { day, on_exceeded: OnExceeded::Refuse, ..config::Budget::default() };
    let strategy = |_| (sittings(), any::<bool>()).boxed();
    for_all(8, strategy, |subject, ((script, requests), is_spent)| {
        let mut gateway = rig.core(Arc::clone(&store), policy(0), prices(0));
        gateway.budget = Arc::new(Budget::new(settings.clone(), Arc::clone(&store)));
        let tokens = Some(Tokens { output: u64::from(is_spent), ..Tokens::default() });
        gateway.budget.book(&Record { tokens, ..Record::default() }, rig::clock());
        let headers = headers(&key(), "s");
        for body in Client::new(subject, script, 0).requests(requests) {
            let sent = rig.rewrite(&gateway, subject.protocol(), &headers, &body);
            prop_assert_eq!(sent.fault.is_some(), is_spent);
            prop_assert!(!is_spent || sent.body.is_none());
        }
        Ok(())
    });
}

/// A plan that cannot be carried out, or is carried out wrongly, changes nothing.
#[test]
fn law_09_fail_open_dialect() {
    let (rig, key) = (Rig::new(), keys());
    let store = rig.store("laws.db");
    let (changed, strategy) = (Cell::new(0), |_| (sittings(), 0..Clumsy::WAYS).boxed());
    for_all(32, strategy, |subject, ((script, requests), how)| {
        let gateway = rig.core(Arc::clone(&store), policy(0), prices(0));
        let clumsy = Clumsy::new(subject.protocol(), how);
        let mut client = Client::new(subject, script, 0);
        let headers = headers(&key(), "s");
        for body in client.requests(requests) {
            let sent = rig.rewrite(&gateway, clumsy, &headers, &body);
            changed.set(changed.get() + u32::from(sent.facts.why.is_some()));
            prop_assert!(sent.body.is_none(), "{:?} gave {:?}", how, sent.body);
        }
        Ok(())
    });
    assert!(changed.get() > 10, "there was hardly a plan: {}", changed.get());
}

/// Where a dialect cannot add marks, a request leaves with the stored edits, and no marks are recorded.
#[test]
fn marks_that_cannot_be_put_are_not_recorded() {
    let anthropic = protocol::named("anthropic").unwrap();
    let system = "Do as you are told, and say what you have done.\n".repeat(20);
    let body = |talk: &str, turns: usize| {
        let result = (0..99).map(|at| format!("{talk}: line {at}\n")).collect::<Vec<_>>().concat();
        let mut messages = vec![
            json!({"role": "user", "content": talk}),
            json!({"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]}),
            json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": result}]}),
        ];
        for turn in 0..turns {
            messages.push(json!({"role": "assistant", "content": "done"}));
            messages.push(json!({"role": "user", "content": format!("and {turn}")}));
        }
        let body =
            json!({"model": "claude-sonnet-4-5", "max_tokens": 9, "system": system, "messages": messages});
        Bytes::from(body.to_string())
    };
    for (dialect, is_marked) in
        [(anthropic, true), (Clumsy::new(anthropic, Clumsy::NO_MARKS) as &dyn Protocol, false)]
    {
        let rig = Rig::new();
        let gateway = rig.core(rig.store("laws.db"), policy(0), prices(0));
        let headers = headers("k", "s");
        for body in [body("a", 0), body("b", 0)] {
            let sent = rig.send(&gateway, anthropic, &headers, &body);
            assert_eq!(sent.facts.state, State::Edited);
        }
        let sent = rig.send(&gateway, dialect, &headers, &body("b", 1));
        let found = (sent.facts.state, sent.facts.cache.frame_mark.is_some());
        assert_eq!(found, (State::Edited, is_marked), "{:?}", sent.facts.why);
    }
}
