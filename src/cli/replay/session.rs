//! Replays recorded requests: each is planned, edited, proved and billed as by the gateway.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_128;

use super::price::{self, Found};
use super::quotes::{Counts, Quotes};
use super::side::{BYTES_PER_TOKEN, Bill, Billed, Last, Side};
use crate::cli::history::holds_at;
use crate::conversation::{Conversation, Memo, MessageIndex, PartId};
use crate::planner::{self, Applied, Ending, Facts, Fate, Past, Policy, RecallSentence, Splice, Standing};
use crate::protocol::{self, Protocol, Scale};
use crate::strategy::gate::Rates;
use crate::usage::cache_model::{CacheKind, CacheModel};
use crate::usage::{self, Price};

/// The results over several requests.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) requests: u64,
    pub(super) events: BTreeMap<&'static str, u64>,
    /// Edited requests that a provider would refuse although it accepts the original.
    pub(super) invalid: u64,
    /// Requests that could not be read, or whose edits could not be proved, and which were sent unchanged.
    pub(super) untouched: u64,
    /// Requests that are on neither bill, since their original prompts are longer than the model's window.
    pub(super) beyond_window: u64,
}

/// What is known of a request besides its body.
pub(super) struct Asked<'a> {
    /// The number of messages that were sent before.
    pub(super) sent: usize,
    pub(super) now_ms: u64,
    /// The tokens of its answer.
    pub(super) output: u64,
    /// The scale of its tokens as billed.
    pub(super) scale: Scale,
    /// The bytes per token that were assumed when it was planned.
    pub(super) assumed: f64,
    /// The provider's count of tokens for the prompt that was sent, if a gateway recorded that.
    pub(super) counted: Option<u64>,
    /// Whether it was answered: a request that was refused is not billed.
    pub(super) answered: bool,
    /// The tokens of instructions and tools that the recording lacks.
    pub(super) unrecorded_tokens: Option<u64>,
    /// The tokens of a history that the provider holds, which is in no body.
    pub(super) held_tokens: u64,
    pub(super) recall: RecallSentence<'a>,
    /// Whether it is on the bills; if not, it only goes into the provider's cache.
    pub(super) is_booked: bool,
}

/// A thread, as it grows.
#[derive(Default)]
pub(super) struct Thread {
    applied: Vec<Applied>,
    splice: Option<Arc<Splice>>,
    /// All decisions, oldest first.
    decided: Vec<Made<Applied>>,
    /// All splices, oldest first.
    spliced: Vec<Made<Arc<Splice>>>,
    standing: Option<Box<Standing>>,
    /// When the last request was sent.
    last_ms: u64,
    /// The messages and tokens of the last prompt.
    pub(super) measured: Option<(usize, u64)>,
    direct: Last,
    gateway: Last,
    quotes: Quotes,
}

/// A decision or a splice, and the request that made it.
#[derive(Clone)]
struct Made<T> {
    what: T,
    /// The number of messages that had been sent before the request.
    prior: usize,
    /// The number of messages in the request.
    messages: usize,
}

impl<T> Made<T> {
    /// Whether it applies to a continuation of the first `messages` messages, provided that it is about these.
    fn holds_at(&self, messages: usize) -> bool {
        holds_at(messages, self.prior, self.messages)
    }
}

impl Thread {
    /// A thread that continues from the first `messages` messages of this one, with the decisions that were in force at
    /// that point.
    pub(super) fn branch(&self, messages: usize) -> Self {
        let decided = self.decided.iter().filter(|one| one.holds_at(messages));
        let decided = decided.filter(|one| (one.what.part.message as usize) < messages);
        let spliced = self.spliced.iter().filter(|one| one.holds_at(messages));
        let spliced = spliced.filter(|one| one.what.end() <= messages);
        let (decided, spliced): (Vec<_>, Vec<_>) = (decided.cloned().collect(), spliced.cloned().collect());
        // A later decision about a part replaces an earlier one.
        let newest: BTreeMap<_, _> = decided.iter().map(|one| (one.what.part, one.what.clone())).collect();
        Self {
            applied: newest.into_values().collect(),
            splice: spliced.last().map(|one| Arc::clone(&one.what)),
            decided,
            spliced,
            last_ms: self.last_ms,
            ..Self::default()
        }
    }

    pub(super) fn counts(&self) -> Counts {
        self.quotes.counts
    }
}

/// The requests to one model, with its provider's cache on either side.
pub(super) struct Session<'a> {
    protocol: &'static dyn Protocol,
    policy: &'a Policy,
    memo: Messages,
    facts: Facts,
    price: Option<Arc<Price>>,
    reads_reasoning: bool,
    cache: CacheKind,
    hidden: Option<u64>,
    direct: Side,
    gateway: Side,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        protocol: &'static dyn Protocol,
        policy: &'a Policy,
        model: &str,
        found: Option<&Found>,
    ) -> Self {
        let price = found.map(|found| Arc::clone(&found.price));
        let kind = price::cache(protocol.name(), model, price.as_deref());
        let cache = CacheModel::new(kind);
        let window = price.as_ref().and_then(|price| price.context_window);
        let facts = Facts {
            window,
            min_prefix_tokens: kind.min_prefix_tokens(),
            caches_without_marks: kind.is_automatic(),
            bound: usage::binding(model),
            ..Facts::default()
        };
        Self {
            protocol,
            policy,
            memo: Messages::default(),
            facts,
            price: price.clone(),
            reads_reasoning: usage::reads_old_reasoning(model),
            cache: kind,
            hidden: None,
            direct: Side::new(cache.clone(), price.clone()),
            gateway: Side::new(cache, price),
        }
    }

    /// The bills without the gateway, and with it.
    pub(super) fn bills(&self) -> (Bill, Bill) {
        (self.direct.bill, self.gateway.bill)
    }

    /// The scale at which a request has the tokens that were billed, 0 if that is unknown; and the tokens of the
    /// history, if the provider holds it. `None` if the request cannot be read.
    pub(super) fn scale(&self, body: &Bytes, billed: u64) -> Option<(Scale, Option<u64>)> {
        let conversation = self.protocol.index(body, &self.memo).ok()?;
        let prompt = self.protocol.prompt(&conversation);
        if !conversation.is_held_elsewhere() {
            return Some((prompt.scale(billed), None));
        }
        let (scale, held) = prompt.held(billed, true);
        Some((scale, Some(held)))
    }

    /// Replays a request; returns the bytes that would have been sent, if they differ from the original.
    pub(super) fn request(
        &mut self,
        body: &Bytes,
        asked: &Asked<'_>,
        thread: &mut Thread,
        tally: &mut Tally,
    ) -> Option<Bytes> {
        tally.requests += 1;
        let Ok(original) = self.protocol.index(body, &self.memo) else {
            tally.untouched += 1;
            return None;
        };
        let prompt = self.protocol.prompt(&original);
        let hidden = *self.hidden.get_or_insert_with(|| {
            // The estimate includes the instructions and tools that the recording does have.
            let blocks = prompt.shape(asked.scale).blocks;
            let frame = blocks.iter().take(prompt.frame()).map(|b| b.tokens).sum();
            asked.unrecorded_tokens.unwrap_or(0).saturating_sub(frame)
        }) + asked.held_tokens;
        self.set_facts(&original, asked, thread, hidden);
        let edited = self.rewrite(&original, asked, thread, tally);
        if let Some(standing) = &mut thread.standing {
            standing.ended(if asked.answered { Fate::Billed } else { Fate::Refused });
            if let Some(staked) = standing.take_staked().filter(|_| asked.answered) {
                self.facts.debt = self.facts.debt.left(&staked).billed(&staked);
            }
        }
        if asked.answered {
            let Asked { scale, output, now_ms, .. } = *asked;
            let billed = Billed { scale, hidden, output, now_ms };
            let direct = self.direct.send(&prompt, billed, &mut thread.direct);
            let sent = edited.as_ref().map(|edited| self.protocol.prompt(edited));
            let gateway = self.gateway.send(sent.as_ref().unwrap_or(&prompt), billed, &mut thread.gateway);
            if self.is_refused(asked, &direct) {
                tally.beyond_window += 1;
            } else if asked.is_booked {
                self.direct.book(direct);
                self.gateway.book(gateway);
            }
        }
        if let Some(edited) = &edited {
            let refused = self.protocol.valid(edited).is_err() && self.protocol.valid(&original).is_ok();
            tally.invalid += u64::from(refused);
        }
        thread.quotes.request(&original, &thread.applied, thread.splice.as_deref());
        // A refused request does not get into the provider's cache.
        if asked.answered || thread.last_ms == 0 {
            thread.last_ms = asked.now_ms;
        }
        thread.measured = Some((original.messages.len(), self.gateway.last_prompt()));
        edited.map(|edited| edited.body)
    }

    /// Whether the original prompt would have been refused although what was sent in its place was not: nobody knows
    /// what the client would have done then. If even what was sent is longer than the window, the window is larger than
    /// the catalogue has it.
    fn is_refused(&self, asked: &Asked<'_>, direct: &Bill) -> bool {
        let counted = asked.counted.zip(self.facts.window);
        counted.is_some_and(|(counted, window)| (counted..direct.tokens.prompt()).contains(&window))
    }

    /// Sets the facts for the gate.
    fn set_facts(&mut self, original: &Conversation, asked: &Asked<'_>, thread: &Thread, hidden: u64) {
        let idle_ms = asked.now_ms.saturating_sub(thread.last_ms);
        let (end_ttl_ms, price) = (original.end_ttl_ms(), self.price.as_deref());
        let (ttl_ms, rates) =
            (self.cache.ttl_ms(end_ttl_ms), price.and_then(|price| price.shares(end_ttl_ms)));
        let gone_ms = self.cache.gone_ms(original.requested_ttl_ms);
        self.facts.cold = asked.sent > 0 && gone_ms.is_some_and(|gone| idle_ms > gone);
        self.facts.ttl_ms = ttl_ms.unwrap_or(0);
        self.facts.rates = rates.map(|(read, write)| Rates { read, write });
        self.facts.now_ms = asked.now_ms;
        self.facts.max_output = Price::most_output(self.price.as_deref(), original.max_output);
        self.facts.reads_reasoning = self.reads_reasoning && !original.forgets_reasoning;
        if !self.facts.caches_without_marks {
            self.facts.prelude = protocol::prelude(self.protocol, original).0;
        }
        self.facts.hidden_bytes = (hidden as f64 * BYTES_PER_TOKEN) as u64;
        self.facts.bytes_per_token = asked.assumed;
        self.facts.measured = thread.measured;
    }

    /// The request as it would be sent; `None` to send it unchanged.
    fn rewrite(
        &self,
        original: &Conversation,
        asked: &Asked<'_>,
        thread: &mut Thread,
        tally: &mut Tally,
    ) -> Option<Conversation> {
        let (standing, ending) = match thread.standing.take() {
            // The end of the previous request is not part of this one.
            Some(standing) if standing.messages() > asked.sent => {
                let part = PartId { message: asked.sent as u32, part: 0 };
                (Some(Box::new(standing.departed(part))), Ending::LeftOut(part))
            }
            standing => (standing, Ending::Stands),
        };
        let (sent, splice) = (asked.sent, thread.splice.take());
        let past = Past { sent, ending, applied: &thread.applied, standing, splice, ..Past::nothing() };
        let mut outcome = planner::plan(original, past, self.policy, &self.facts, asked.recall);
        thread.standing = outcome.standing.take();
        let mut edited = self.carry_out(original, &outcome);
        if edited.is_none() && outcome.is_fresh() {
            outcome.forget_fresh();
            edited = self.carry_out(original, &outcome);
            tally.untouched += 1;
        }
        if let Some(event) = &outcome.event {
            *tally.events.entry(event.reason.as_str()).or_default() += 1;
        }
        let (prior, messages) = (asked.sent, original.messages.len());
        let fresh = &outcome.applied[outcome.applied.len() - outcome.fresh..];
        thread.decided.extend(fresh.iter().map(|what| Made { what: what.clone(), prior, messages }));
        let splice = outcome.splice.iter().filter(|_| outcome.spliced);
        thread.spliced.extend(splice.map(|what| Made { what: Arc::clone(what), prior, messages }));
        (thread.applied, thread.splice) = (outcome.applied, outcome.splice);
        edited
    }

    fn carry_out(&self, original: &Conversation, outcome: &planner::Outcome) -> Option<Conversation> {
        if outcome.plan.is_empty() {
            return None;
        }
        protocol::apply_verified(self.protocol, original, &outcome.plan, &self.memo).ok()
    }
}

/// An index of messages that were read before.
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
