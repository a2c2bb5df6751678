//! One user, two agents, two gateways on one store, and summaries that get ready on demand.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::sample::Index;

use super::settings::Wants;
use super::witness::{Exchange, Witness};
use super::{Branch, Moment};
use crate::app::Core;
use crate::app::laws::client::{Client, Event, Script, Way};
use crate::app::laws::rig::{self, Rig, headers};
use crate::app::summaries::Prospect;
use crate::ledger::words::State;
use crate::protocol::conformance::Subject;
use crate::store::{Batch, Store, Summary};
use crate::strategy::ladder::Rung;

/// Counts of what happened, so that a law is not satisfied merely because nothing has put it to the test.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    pub(super) requests: u32,
    pub(super) rungs: BTreeMap<Rung, u32>,
    /// Summaries that got ready, requests that contain one, and requests that came while one was there that was made of
    /// something else.
    pub(super) ready: u32,
    pub(super) used: u32,
    pub(super) tempted: u32,
}

/// One user, two agents, two gateways on one store.
pub(super) struct World<'a> {
    rig: &'a Rig,
    subject: &'static dyn Subject,
    /// A store for each gateway, on the same file.
    stores: [Arc<dyn Store>; 2],
    wants: &'a [Wants],
    gateways: Vec<Core>,
    /// Summaries that are being written: the gateway, the prospect, and the meaning of the messages.
    making: Vec<(usize, Prospect, Vec<u64>)>,
    pub(super) ready: Vec<(usize, Summary)>,
    /// Whether a summary is ready as soon as it is wanted.
    pub(super) at_once: bool,
    /// The thread of the last request.
    pub(super) thread: String,
    pub(super) life: Past,
    pub(super) tally: Tally,
}

/// What remains of a world when its gateways are gone.
#[derive(Clone)]
pub(super) struct Past {
    pub(super) clients: Vec<Client>,
    pub(super) key: String,
    pub(super) witness: Witness,
    /// The number of summaries made.
    summaries: u32,
    /// Everything that was sent, in order.
    pub(super) wire: Vec<Bytes>,
}

impl Past {
    pub(super) fn new(subject: &'static dyn Subject, key: String, scripts: &[Script; 2]) -> Self {
        let client = |(at, script): (usize, &Script)| Client::new(subject, script.clone(), at);
        Self {
            clients: scripts.iter().enumerate().map(client).collect(),
            key,
            witness: Witness::new(subject),
            summaries: 0,
            wire: Vec::new(),
        }
    }
}

impl<'a> World<'a> {
    pub(super) fn new(
        rig: &'a Rig,
        stores: &[Arc<dyn Store>; 2],
        subject: &'static dyn Subject,
        wants: &'a [Wants],
        life: Past,
    ) -> Self {
        let stores = stores.clone();
        let gateway = |at: usize| core(rig, &stores[at], &wants[at]);
        let gateways = vec![gateway(0), gateway(1)];
        let (making, ready, thread) = (Vec::new(), Vec::new(), String::new());
        Self {
            at_once: false,
            rig,
            subject,
            stores,
            wants,
            gateways,
            making,
            ready,
            thread,
            life,
            tally: Tally::default(),
        }
    }

    pub(super) fn live(&mut self, moments: &[Moment]) -> Result<(), TestCaseError> {
        moments.iter().try_for_each(|moment| self.happen(moment))
    }

    fn happen(&mut self, moment: &Moment) -> Result<(), TestCaseError> {
        let client = &mut self.life.clients[0];
        let way = match moment {
            Moment::Usual(Event::Next(way)) => client.advance().then_some(*way),
            Moment::Usual(Event::Retry(way)) => Some(*way),
            Moment::Usual(Event::Compact(from, way)) => client.compact(*from).then_some(*way),
            Moment::Usual(Event::Interrupt(text, way)) => client.interrupt(text).then_some(*way),
            Moment::Edited(at, way) => client.alter(*at).then_some(*way),
            other => {
                self.pass(other);
                None
            }
        };
        match (way, self.life.clients[0].body()) {
            (Some(Way::Through(gateway)), Some(body)) => self.send(usize::from(gateway), &body),
            (Some(Way::Bypass), Some(body)) => {
                self.life.witness.bypassed(&body);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Performs what happens without a request.
    fn pass(&mut self, moment: &Moment) {
        match moment {
            Moment::Usual(Event::Rewind(at, script)) => self.life.clients[0].rewind(*at, *script),
            Moment::Usual(Event::Switch) => self.life.clients.swap(0, 1),
            Moment::Usual(Event::Pause(minutes)) => rig::wait(i64::from(*minutes) * 60_000),
            Moment::Usual(Event::Restart(gateway, wants)) => {
                let (gateway, wants) = (usize::from(*gateway), &self.wants[usize::from(*wants)]);
                self.making.retain(|(by, ..)| *by != gateway);
                self.gateways[gateway] = core(self.rig, &self.stores[gateway], wants);
            }
            Moment::Ready(which) if !self.making.is_empty() => self.finish(which.index(self.making.len())),
            Moment::Misfiled(of, to) if self.ready.len() > 1 => {
                let (_, summary) = self.ready[of.index(self.ready.len())].clone();
                let (gateway, thread) = &self.ready[to.index(self.ready.len())];
                let misfiled = Summary { thread: thread.thread.clone(), ..summary };
                self.file(*gateway, misfiled);
            }
            _ => {}
        }
    }

    /// Makes a summary ready: the gateway that had it made knows it, and the store.
    fn finish(&mut self, which: usize) {
        let (gateway, prospect, of) = self.making.remove(which);
        self.life.summaries += 1;
        let says = format!("<<what was done, {}>>", self.life.summaries);
        let Some(summary) = prospect.written(&says) else { return };
        self.life.witness.made(&says, &of[..summary.end]);
        self.tally.ready += 1;
        let batch = Batch { summaries: vec![summary.clone()], ..Batch::default() };
        self.rig.store_now(&*self.stores[gateway], batch);
        self.ready.push((gateway, summary.clone()));
        self.file(gateway, summary);
    }

    pub(super) fn file(&self, gateway: usize, summary: Summary) {
        self.gateways[gateway].summaries.as_ref().expect("they are on").file(summary);
    }

    /// The first agent continues through the first gateway, or sends its last request again if it has nothing to say.
    pub(super) fn go_on(&mut self) -> Result<(), TestCaseError> {
        self.life.clients[0].advance();
        self.life.clients[0].body().map_or(Ok(()), |body| self.send(0, &body))
    }

    /// Files some summary under the name of the last request's thread.
    pub(super) fn misfile(&self, which: Index, step: usize) {
        if !self.ready.is_empty() {
            let at = (which.index(self.ready.len()) + step) % self.ready.len();
            let (gateway, summary) = &self.ready[at];
            self.file(*gateway, Summary { thread: self.thread.clone(), ..summary.clone() });
        }
    }

    /// The first agent, or somebody else instead of it, says something that differs from what was said so far.
    pub(super) fn branch(&mut self, branch: &Branch, number: usize) {
        let client = &mut self.life.clients[0];
        match branch {
            Branch::Other(at, script) => client.rewind(*at, *script),
            Branch::Within(at) => drop(client.alter(*at)),
            Branch::Compacted(from) => drop(client.compact(*from)),
            Branch::Stranger => {
                self.life.key = format!("{}-other-{number}", self.life.key);
                self.life.witness = self.life.witness.of_a_stranger();
            }
            Branch::Same => {}
        }
    }

    pub(super) fn send(&mut self, gateway: usize, body: &Bytes) -> Result<(), TestCaseError> {
        let headers = headers(&self.life.key, "one-session");
        let core = &self.gateways[gateway];
        let sent = self.rig.send(core, self.subject.protocol(), &headers, body);
        let facts = &sent.facts;
        let fine = matches!(facts.state, State::Unchanged | State::Edited) && facts.why.is_none();
        prop_assert!(fine, "{:?} {:?}", facts.state, facts.why);
        let cited = facts.decided.applied.iter().filter_map(|applied| applied.decision.output.as_ref());
        for id in cited.chain(facts.decided.splice.as_ref().and_then(|splice| splice.output.as_ref())) {
            prop_assert!(self.rig.outputs().path(id).exists(), "a text is cited that was not saved: {}", id);
        }
        let wire = sent.body.as_ref().unwrap_or(body);
        let bytes_per_token = core.learned.meter.bytes_per_token(facts.model.as_deref());
        let exchange = Exchange { body, wire, facts, bytes_per_token };
        let used = self.life.witness.through(&exchange)?;
        self.tally.requests += 1;
        self.tally.used += u32::from(used);
        self.tally.tempted += u32::from(!used && !self.ready.is_empty());
        if let Some(event) = &facts.event {
            *self.tally.rungs.entry(event.rung).or_default() += 1;
        }
        self.life.wire.push(wire.clone());
        self.thread = facts.place.as_ref().map(|place| place.thread.id.clone()).unwrap_or_default();
        if let Some(prospect) = sent.prospect {
            let is_made = self
                .making
                .iter()
                .any(|(by, other, _)| *by == gateway && other.thread() == prospect.thread());
            if !is_made {
                self.making.push((gateway, *prospect, self.life.witness.meant(body)));
            }
            if self.at_once {
                self.finish(self.making.len() - 1);
            }
        }
        Ok(())
    }
}

/// A gateway that has just started.
fn core(rig: &Rig, store: &Arc<dyn Store>, wants: &Wants) -> Core {
    let limits = Some(Wants::limits());
    rig.summarising(Arc::clone(store), wants.policy(), wants.prices(), &wants.summarize(), limits)
}

impl Tally {
    pub(super) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.ready += other.ready;
        self.used += other.used;
        self.tempted += other.tempted;
        for (rung, count) in &other.rungs {
            *self.rungs.entry(*rung).or_default() += count;
        }
    }
}
