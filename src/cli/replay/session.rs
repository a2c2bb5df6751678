//! Plays one recorded conversation: every request planned, edited, proved and billed as the gateway would.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_128;

use super::bodies::{Bodies, Marks};
use super::price::{self, Found};
use super::quotes::{Counts, Quotes};
use super::side::{BYTES_PER_TOKEN, Side};
use super::transcript::{Request, Transcript};
use crate::conversation::{Conversation, Memo, MessageIndex};
use crate::planner::{self, Applied, Facts, Past, Policy, Splice, Standing};
use crate::protocol::{self, Protocol};
use crate::strategy::gate::Rates;
use crate::usage::cache_model::CacheModel;
use crate::usage::{Catalogue, Price, binds_reasoning};

/// With what a conversation is played.
#[derive(Clone, Copy)]
pub(super) struct Setting<'a> {
    pub(super) policy: &'a Policy,
    pub(super) catalogue: &'a Catalogue,
    /// The model whose prices hold in place of the recorded one's.
    pub(super) prices: Option<&'a str>,
    pub(super) marks: Marks,
    /// Milliseconds from one request to the next.
    pub(super) pace_ms: u64,
}

/// What came of it.
pub(super) struct Played {
    pub(super) id: String,
    pub(super) model: Option<String>,
    /// The model whose prices were taken.
    pub(super) priced_as: Option<String>,
    pub(super) requests: u64,
    pub(super) direct: Side,
    pub(super) gateway: Side,
    pub(super) events: BTreeMap<&'static str, u64>,
    /// Edited requests that a provider would refuse although it accepts the original.
    pub(super) invalid: u64,
    /// Requests that could not be read, or whose edits could not be proved: sent as they came.
    pub(super) untouched: u64,
    pub(super) counts: Counts,
}

/// Plays a conversation.
///
/// # Errors
/// Why it cannot be played.
pub(super) fn play(transcript: &Transcript, setting: &Setting<'_>) -> Result<Played, String> {
    let header = &transcript.header;
    let protocol =
        protocol::named(&header.protocol).ok_or_else(|| format!("unknown protocol `{}`", header.protocol))?;
    let bodies = Bodies::new(transcript, setting.marks)?;
    let model = setting.prices.or(header.model.as_deref()).unwrap_or_default();
    let found = price::find(setting.catalogue, model);
    let mut session = Session::new(protocol, model, found.as_ref(), header.hidden_prefix_tokens_est);
    for (at, request) in header.requests.iter().enumerate() {
        let output = output_tokens(transcript, request);
        session.request(&bodies.body(request.n), output, at as u64 * setting.pace_ms, setting);
    }
    Ok(Played {
        id: header.id.clone(),
        model: header.model.clone(),
        priced_as: found.map(|found| found.name),
        requests: header.requests.len() as u64,
        direct: session.direct,
        gateway: session.gateway,
        events: session.events,
        invalid: session.invalid,
        untouched: session.untouched,
        counts: session.quotes.counts,
    })
}

/// What the provider billed, else an estimate from the answer's size.
fn output_tokens(transcript: &Transcript, request: &Request) -> u64 {
    let billed = request.usage.as_ref().and_then(|usage| usage.output);
    billed.unwrap_or_else(|| (transcript.answer_bytes(request) as f64 / BYTES_PER_TOKEN) as u64)
}

/// A thread, as it grows.
struct Session {
    protocol: &'static dyn Protocol,
    memo: Messages,
    sent: usize,
    applied: Vec<Applied>,
    splice: Option<Arc<Splice>>,
    standing: Option<Standing>,
    facts: Facts,
    price: Option<Arc<Price>>,
    /// Its reasoning is bound to what stands before it.
    binds: bool,
    /// When the last request was sent, and how long the cache keeps it.
    last_ms: u64,
    idle_ms: Option<u64>,
    /// Tokens of instructions and tools that the recording lacks.
    recorded_hidden: Option<u64>,
    hidden: Option<u64>,
    direct: Side,
    gateway: Side,
    events: BTreeMap<&'static str, u64>,
    invalid: u64,
    untouched: u64,
    quotes: Quotes,
}

impl Session {
    fn new(
        protocol: &'static dyn Protocol,
        model: &str,
        found: Option<&Found>,
        recorded_hidden: Option<u64>,
    ) -> Self {
        let price = found.map(|found| Arc::clone(&found.price));
        let kind = price::cache(protocol.name(), model, price.as_deref());
        let cache = CacheModel::new(kind);
        let rates = price.as_deref().and_then(Price::shares);
        let facts = Facts {
            rates: rates.map(|(read, write)| Rates { read, write }),
            lasts_ms: kind.idle_ms().unwrap_or(0),
            window: price.as_ref().and_then(|price| price.context_window),
            ..Facts::default()
        };
        Self {
            protocol,
            memo: Messages::default(),
            sent: 0,
            applied: Vec::new(),
            splice: None,
            standing: None,
            facts,
            price: price.clone(),
            binds: binds_reasoning(model),
            last_ms: 0,
            idle_ms: kind.idle_ms(),
            recorded_hidden,
            hidden: None,
            direct: Side::new(cache.clone(), price.clone()),
            gateway: Side::new(cache, price),
            events: BTreeMap::new(),
            invalid: 0,
            untouched: 0,
            quotes: Quotes::default(),
        }
    }

    fn request(&mut self, body: &Bytes, output: u64, now_ms: u64, setting: &Setting<'_>) {
        let Ok(original) = self.protocol.index(body, &self.memo) else {
            self.untouched += 1;
            return;
        };
        let idle_ms = now_ms.saturating_sub(self.last_ms);
        self.facts.cold = self.sent > 0 && self.idle_ms.is_some_and(|lasts| idle_ms > lasts);
        self.facts.now_ms = now_ms;
        self.facts.max_output = Price::most_output(self.price.as_deref(), original.max_output);
        self.facts.bound = self.binds && original.has_reasoning();
        let prompt = self.protocol.prompt(&original);
        let hidden = *self.hidden.get_or_insert_with(|| {
            // What is there of it counts as part of it.
            let frame =
                prompt.shape(BYTES_PER_TOKEN).blocks.iter().take(prompt.frame()).map(|b| b.tokens).sum();
            self.recorded_hidden.unwrap_or(0).saturating_sub(frame)
        });
        self.facts.hidden_bytes = (hidden as f64 * BYTES_PER_TOKEN) as u64;
        let edited = self.rewrite(&original, setting);
        self.direct.send(&prompt, hidden, output, now_ms);
        match edited.as_ref() {
            Some(edited) => {
                self.invalid +=
                    u64::from(self.protocol.valid(edited).is_err() && self.protocol.valid(&original).is_ok());
                self.gateway.send(&self.protocol.prompt(edited), hidden, output, now_ms);
            }
            None => self.gateway.send(&prompt, hidden, output, now_ms),
        }
        self.quotes.request(&original, &self.applied);
        (self.sent, self.last_ms) = (original.messages.len(), now_ms);
        self.facts.measured = Some((self.sent, self.gateway.last_prompt()));
    }

    /// The request as it would be sent; `None`: as it came.
    fn rewrite(&mut self, original: &Conversation, setting: &Setting<'_>) -> Option<Conversation> {
        let standing = self.standing.take();
        let splice = self.splice.take();
        let past = Past {
            sent: self.sent,
            applied: &self.applied,
            recover: &|_| None,
            standing,
            splice,
            ready: None,
        };
        let mut outcome = planner::plan(original, past, setting.policy, &self.facts, &recall);
        self.standing = Some(std::mem::take(&mut outcome.standing));
        let mut edited = self.carry_out(original, &outcome);
        if edited.is_none() && outcome.is_fresh() {
            outcome.forget_fresh();
            edited = self.carry_out(original, &outcome);
            self.untouched += 1;
        }
        if let Some(event) = &outcome.event {
            *self.events.entry(event.reason.as_str()).or_default() += 1;
        }
        (self.applied, self.splice) = (outcome.applied, outcome.splice);
        edited
    }

    fn carry_out(&self, original: &Conversation, outcome: &planner::Outcome) -> Option<Conversation> {
        if outcome.plan.is_empty() {
            return None;
        }
        let body = protocol::rewrite(self.protocol, original, &outcome.plan, &self.memo).ok()?;
        self.protocol.index(&body, &self.memo).ok()
    }
}

/// Where a model finds a full text: as long as a real path.
fn recall(id: &str) -> String {
    format!("full output: /home/user/.local/state/plimsoll/outputs/{id}.txt")
}

/// Messages that were read before.
#[derive(Default)]
struct Messages(RefCell<HashMap<u128, Arc<MessageIndex>>>);

impl Memo for Messages {
    fn key(&self, _: &str, raw: &[u8]) -> u128 {
        xxh3_128(raw)
    }

    fn get(&self, key: u128) -> Option<Arc<MessageIndex>> {
        self.0.borrow().get(&key).cloned()
    }

    fn put(&self, key: u128, index: &Arc<MessageIndex>) {
        self.0.borrow_mut().insert(key, Arc::clone(index));
    }
}
