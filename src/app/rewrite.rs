//! What is done to a request before it leaves: read it, find its place, plan, verify, store.
//!
//! Whatever goes wrong here ends with bytes that are safe to send: the original, or the original with exactly the
//! edits that an earlier request of the thread was sent with.

use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Instant;

use bytes::Bytes;

use super::books::Reading;
use super::context::{Incoming, RequestContext};
use super::frame::{FrameMark, SharedFrame};
use super::rewritten::{CacheFacts, InForce, ProviderHistory, RequestFacts, Rewritten};
use super::sender::Sender;
use super::shadow::Track;
use super::summaries::{Prospect, Seen};
use super::tuning::Tuning;
use super::{Core, clock};
use crate::config;
use crate::conversation::{Chain, Conversation, Prelude};
use crate::ledger::words::State;
use crate::lineage::{self, Place, Relation};
use crate::planner::{self, Outcome, Past, Policy, Splice, Standing};
use crate::protocol::{self, Prompt, Protocol};
use crate::server::{Deadline, Fault};
use crate::store::{Batch, CommitError, StoreError};
use crate::strategy::compaction::{self, Compaction};
use crate::usage::cache_model::CacheKind;
use crate::usage::{Binding, Habits, Price, Priced};

/// One request while it is being rewritten.
pub(super) struct Request<'a> {
    pub(super) core: &'a Core,
    pub(super) track: Track<'a>,
    pub(super) protocol: &'static dyn Protocol,
    pub(super) conversation: Conversation,
    pub(super) sender: Sender,
    pub(super) context: RequestContext<'a>,
    /// The prices of its model, if they are known.
    priced: Option<Priced>,
    /// What is known of its model by the name; `None` if it names none.
    pub(super) habits: Option<Habits>,
    pub(super) compaction: Option<Compaction>,
    /// The settings that match it; those of its thread apply instead if the thread has begun ([`Self::tuning`]).
    pub(super) tuning: Arc<Tuning>,
    /// What its frame has in common with that of other conversations.
    pub(super) shared_frame: Option<SharedFrame>,
    /// Its frame, if the provider caches prompts by marks; read when it is first needed.
    pub(super) prelude: OnceLock<Box<(Prelude, Prompt)>>,
    /// The text of the checkpoint that the conversation begins with, or why it cannot be used; `None` if the client
    /// asks for none.
    pub(super) opening: Option<Result<String, Fault>>,
    pub(super) now_ms: i64,
}

/// Whether an attempt at a request waits for a summary that is being written, if there is no room without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SummaryWait {
    Briefly,
    Never,
}

impl Core {
    /// Rewrites a request that asks for an answer.
    pub(super) async fn rewrite(
        &self,
        protocol: &'static dyn Protocol,
        headers: &http::HeaderMap,
        body: &Bytes,
        context: RequestContext<'_>,
    ) -> Rewritten {
        let incoming = Incoming { protocol, headers, body, context };
        let mut request = match Request::read(self, incoming) {
            Ok(request) => request,
            Err(unread) => {
                let unlisted = self.unlisted(incoming);
                return unlisted.unwrap_or_else(|| self.unread(headers, context.model, unread.to_string()));
            }
        };
        request.shared_frame = request.learn_frame();
        if let Some(refused) = request.refuse_missing_opening().or_else(|| request.refuse_over_budget()) {
            return refused;
        }
        // Only the first attempt at a request waits for a summary.
        let attempted = match context.overflow {
            Some(_) => Box::pin(request.make_room()).await,
            None => match request.attempt(SummaryWait::Briefly).await {
                // Another gateway on the same store was faster: its decisions are there now.
                Err(CommitError::Raced) => Box::pin(request.attempt_after_race()).await,
                done => done,
            },
        };
        let mut rewritten = attempted.unwrap_or_else(|error| request.untouched(error.to_string()));
        rewritten.prospect = request.summary_due(&rewritten.facts).map(Box::new);
        if self.observes() {
            Box::pin(request.plan_shadow(&mut rewritten)).await;
        }
        rewritten.reading = Some(request.into_reading(&mut rewritten));
        rewritten
    }
}

impl<'a> Request<'a> {
    /// Reads a request. Nothing is learned from it.
    ///
    /// # Errors
    /// [`protocol::Unread`] if its body is not that of a request with messages.
    pub(super) fn read(core: &'a Core, incoming: Incoming<'a>) -> Result<Self, protocol::Unread> {
        let Incoming { protocol, headers, body, context } = incoming;
        let (protocol, conversation) = protocol::read(protocol, body, &core.memo)?;
        let sender = core.sender(protocol, headers, conversation.session.as_deref(), context.query);
        let compaction = context.compaction.or_else(|| compaction::of(&conversation));
        let model = conversation.model.as_deref().or(context.model);
        let tuning = core.settings.tunings.of(&config::Request {
            client: sender.caller.client.as_deref(),
            model,
            upstream: context.upstream,
            protocol: protocol.name(),
            headers,
        });
        let priced = model.and_then(|model| core.prices.find(model, context.vendor));
        let habits = model.map(Habits::of);
        let conversation = match model.and_then(|model| context.mark_carriers(&core.routes, model)) {
            Some(carriers) => protocol.with_marks(conversation, carriers),
            None => conversation,
        };
        let mut request = Self {
            core,
            track: core.track(),
            protocol,
            conversation,
            sender,
            context,
            priced,
            habits,
            compaction,
            tuning,
            shared_frame: None,
            prelude: OnceLock::new(),
            opening: None,
            now_ms: (core.now_ms)(),
        };
        request.opening = request.find_opening(headers);
        Ok(request)
    }

    pub(super) fn model(&self) -> Option<&str> {
        self.conversation.model.as_deref().or(self.context.model)
    }

    /// What becomes of reasoning once the prompt before it has changed.
    pub(super) fn binding(&self) -> Option<Binding> {
        self.habits?.binding
    }

    pub(super) fn price(&self) -> Option<&Price> {
        self.priced.as_ref().map(|priced| &*priced.price)
    }

    pub(super) fn cache(&self) -> CacheKind {
        let reads_marks = self.conversation.marks.is_some();
        CacheKind::of(self.protocol.name(), reads_marks, self.model().unwrap_or_default(), self.price())
    }

    /// The name of the cache that the upstream keeps for this sender and model.
    pub(super) fn cache_name(&self) -> Chain {
        lineage::cache(self.sender.root, self.context.upstream, self.model())
    }

    /// Looks up the place of the request, with the decisions that are stored by now.
    pub(super) fn place(&self) -> Result<Place, StoreError> {
        let Sender { root, caller, .. } = &self.sender;
        let names = (*root, self.cache_name());
        self.core.lineage.place(&self.conversation, names, caller, &clock::new_id, self.now_ms)
    }

    /// The settings of the request's thread.
    pub(super) fn tuning(&self, place: &Place) -> Arc<Tuning> {
        self.core.settings.tunings.of_thread(&place.thread.id, &self.tuning)
    }

    /// Plans the request. If there is no room without a summary and `wait` allows it, waits for one and plans again.
    pub(super) async fn plan(&self, place: &Place, wait: SummaryWait) -> Outcome {
        let tuning = self.tuning(place);
        let (policy, terms) = (&tuning.policy, &tuning.terms);
        let summaries = self.core.summaries.as_ref();
        let bound = self.binding();
        let ready =
            || summaries.and_then(|summaries| summaries.ready(terms, &self.conversation, place, bound));
        let plan = |standing| {
            let mut outcome = self.plan_by(place, policy, standing, ready());
            self.claim_frame_write(place, &mut outcome);
            outcome
        };
        let outcome = plan(self.track.lineage.standing(place));
        self.record_frame(place);
        let Some(summaries) = summaries else { return outcome };
        if wait == SummaryWait::Never || !outcome.lacks_summary(&policy.window) {
            return outcome;
        }
        let may_be_ready = summaries.wait(terms, place, outcome.needs_summary, self.context.left()).await;
        if may_be_ready { plan(None) } else { outcome }
    }

    /// The summary to begin once the request has been answered.
    fn summary_due(&self, sent: &RequestFacts) -> Option<Prospect> {
        let (summaries, place, level) = (self.core.summaries.as_ref()?, sent.place.as_ref()?, sent.level?);
        if self.compaction == Some(Compaction::Asked) {
            summaries.abandon(place);
            return None;
        }
        let tuning = sent.tuning.as_ref()?;
        let terms = &tuning.terms;
        // A client that compacts its history itself may do so any moment now: the summary would be wasted.
        let is_late = level.gauge.is_some_and(|gauge| gauge.excess(&tuning.policy.window) > 0);
        let compacts = is_late && self.sender.caller.client.as_deref().is_some_and(compaction::is_done_by);
        // After an event, the answer first shows how long the prompt is now. Behind a request that seems to ask for a
        // summary, the client replaces the history, or the next request shows that it does not.
        if compacts || level.summarised || sent.event.is_some() || sent.state == State::SetAside {
            return None;
        }
        let model = self.model();
        summaries.due(Seen {
            protocol: self.protocol,
            conversation: &self.conversation,
            place,
            terms,
            applied: &sent.decided.applied,
            splice: sent.decided.splice.as_deref(),
            level,
            model,
            price: self.price(),
            vendor: self.context.vendor,
            bytes_per_token: self.core.learned.meter.bytes_per_token(model),
            now_ms: self.now_ms,
        })
    }

    /// Plans the request by a policy, with the summary that is `ready`, if any.
    pub(super) fn plan_by(
        &self,
        place: &Place,
        policy: &Policy,
        standing: Option<Box<Standing>>,
        ready: Option<Splice>,
    ) -> Outcome {
        let facts = self.planner_facts(place);
        let past = Past {
            sent: place.sent,
            ending: place.ending(),
            applied: &place.applied,
            known_decisions: &|keys| self.track.lineage.known_decisions(self.sender.root, keys),
            standing,
            splice: place.splice.clone(),
            stable: self.shared_frame.as_ref().map(|frame| frame.stable),
            ready,
            opening: self.opening.as_ref().and_then(|opening| opening.as_deref().ok()),
            bound: self.track.lineage.bound(place),
        };
        planner::plan(&self.conversation, past, policy, &facts, &|id| self.core.full_texts.sentence(id))
    }

    /// Records whether the model refuses reasoning once the prompt before it has changed, and whether it has tools.
    pub(super) fn record_frame(&self, place: &Place) {
        self.track.lineage.note_tools(place, self.conversation.has_tools);
        let binds = self.binding() == Some(Binding::Refused);
        self.track.lineage.bind(place, binds);
    }

    /// The request as it came, not to be sent, if the budget is spent; `None` if it may be sent.
    fn refuse_over_budget(&self) -> Option<Rewritten> {
        let budget = Some(&self.core.budget).filter(|budget| budget.refuses())?;
        let place = self.place().ok()?;
        let fault = budget.reached(&place.thread.conversation, self.now_ms)?.refusal()?;
        Some(self.not_sent(Some(place), fault))
    }

    /// The request as it came, not to be sent because of a fault.
    pub(super) fn not_sent(&self, place: Option<Place>, fault: Fault) -> Rewritten {
        let facts = self.facts(place, State::Unchanged, None, InForce::default());
        Rewritten { fault: Some(fault), ..Rewritten::of(facts) }
    }

    /// Looks up the request's place and decides about it there.
    ///
    /// # Errors
    /// [`CommitError::Raced`] if another gateway on the same store has decided first; another error if the store cannot
    /// be read.
    pub(super) async fn attempt(&self, wait: SummaryWait) -> Result<Rewritten, CommitError> {
        let mut place = self.place()?;
        if place.thread.observe {
            return Ok(self.leave_alone(place, State::SetAside));
        }
        // What was edited before, or begins with a checkpoint, must not leave as it came.
        let must_be_edited = place.is_edited() || self.opening.is_some();
        if !self.context.until.is_none_or(|until| until.placed(must_be_edited)) {
            return Ok(self.leave_alone(place, State::Unchanged));
        }
        if let Some(batch) = self.track.lineage.resumed(&place, self.now_ms)? {
            // A failure does not matter: while the store takes nothing, it removes nothing either.
            let _ = self.commit(batch).await;
            place = self.place()?;
        }
        if self.core.observes() {
            Ok(self.repeat_as_before(place).await)
        } else {
            self.decide(place, wait).await
        }
    }

    /// Plans the request, carries the plan out and stores its decisions. If nothing is new, or if anything fails, it
    /// leaves with what is stored already.
    ///
    /// # Errors
    /// [`CommitError::Raced`] if another gateway on the same store has decided first.
    pub(super) async fn decide(&self, place: Place, wait: SummaryWait) -> Result<Rewritten, CommitError> {
        let mut outcome = self.plan(&place, wait).await;
        let mut standing = outcome.standing.take();
        // The standing after an event is kept only once the event is stored.
        if outcome.event.is_none() {
            self.keep_standing(&place, standing.take());
        }
        if !outcome.is_fresh() {
            return Ok(self.apply_stored(place, outcome, None).await);
        }
        let edited = match self.carry_out(&outcome) {
            Ok(edited) => edited,
            Err(error) => return Ok(self.apply_stored(place, outcome, Some(error.to_string())).await),
        };
        match self.store_decisions(&place, &outcome).await {
            Ok(()) => {
                let decided = InForce::of(&outcome);
                let (applied, splice) = (Arc::clone(&decided.applied), decided.splice.clone());
                self.track.lineage.sent(&self.conversation, &place, applied, splice, self.now_ms);
                self.keep_standing(&place, standing);
                self.keep_alive(&place, &decided).await;
                let Outcome { event, level, recalls, .. } = outcome;
                Ok(self.edited(place, edited, None, decided).with(event, level, recalls))
            }
            Err(error @ CommitError::Raced) => {
                self.track.lineage.withdraw_stake(&place);
                Err(error)
            }
            Err(error) => Ok(self.apply_stored(place, outcome, Some(error.to_string())).await),
        }
    }

    pub(super) fn keep_standing(&self, place: &Place, standing: Option<Box<Standing>>) {
        if let Some(standing) = standing {
            self.track.lineage.keep_standing(place, standing);
        }
    }

    /// Stores what was decided, and holds the request meanwhile.
    ///
    /// # Errors
    /// [`CommitError::Withdrawn`] if the request has left already.
    async fn store_decisions(&self, place: &Place, outcome: &Outcome) -> Result<(), CommitError> {
        if !self.context.until.is_none_or(Deadline::hold) {
            return Err(CommitError::Withdrawn);
        }
        let mut batch = self.track.lineage.batch(place, &outcome.applied, outcome.fresh, self.now_ms);
        batch.overrule = self.context.overflow.is_some();
        if outcome.event.is_some() {
            let fresh = &outcome.applied[outcome.applied.len() - outcome.fresh..];
            let splice = outcome.splice.as_ref().filter(|_| outcome.spliced);
            self.track.lineage.event_in(&mut batch, &self.conversation, place, fresh, splice);
        }
        batch.saves = if self.core.full_texts.are_kept() { outcome.saves.clone() } else { Vec::new() };
        let done = self.commit(batch).await;
        let mut storing = self.core.storing.lock().unwrap_or_else(PoisonError::into_inner);
        match &done {
            Ok(()) => storing.end(Instant::now()),
            Err(error @ (CommitError::Full | CommitError::TimedOut | CommitError::Gone)) => {
                storing.begin(error, Instant::now());
            }
            Err(_) => {}
        }
        done
    }

    /// Stores a batch, and waits for it no longer than the request may be delayed.
    pub(super) async fn commit(&self, batch: Batch) -> Result<(), CommitError> {
        let commit = self.track.store.commit(batch);
        let time_left = self.context.until.map(|_| self.context.left());
        match self.core.settings.patience.into_iter().chain(time_left).min() {
            Some(patience) => commit.within(patience).await,
            None => commit.await,
        }
    }

    /// The request with the edits of a plan, read again and compared with the plan.
    pub(super) fn carry_out(&self, outcome: &Outcome) -> Result<Conversation, protocol::Unsafe> {
        protocol::apply_verified(self.protocol, &self.conversation, &outcome.plan, &self.core.memo)
    }

    /// Records, without waiting for the store, that the request leaves with these decisions.
    pub(super) fn record_sent(&self, place: &Place, decided: &InForce) {
        let applied = Arc::clone(&decided.applied);
        let lineage = self.track.lineage;
        let batch = match place.relation {
            // Its history is stored already.
            Relation::Retry => lineage.again(place, self.now_ms),
            _ => Some(lineage.batch(place, &applied, 0, self.now_ms)),
        };
        lineage.sent(&self.conversation, place, applied, decided.splice.clone(), self.now_ms);
        if let Some(batch) = batch {
            self.core.tally.stored(self.track.store.later(batch));
        }
    }

    /// The result for a request that leaves in the form `edited`.
    pub(super) fn edited(
        &self,
        place: Place,
        edited: Conversation,
        why: Option<String>,
        decided: InForce,
    ) -> Rewritten {
        let mut facts = self.facts(Some(place), State::Edited, why, decided);
        facts.cache.kept_long = edited.is_kept_long();
        Rewritten { body: Some(edited.body.clone()), edited: Some(Box::new(edited)), ..Rewritten::of(facts) }
    }

    /// The request as it was read and as it leaves, for the books.
    fn into_reading(self, rewritten: &mut Rewritten) -> Box<Reading> {
        let (edited, planned) = (rewritten.edited.take(), rewritten.planned.take());
        let RequestFacts { place, decided, .. } = &*rewritten.facts;
        // Written in place: it is large, and would otherwise be built on the stack and moved.
        Box::write(
            Box::new_uninit(),
            Reading {
                protocol: self.protocol,
                root: self.sender.root,
                prior: place.as_ref().map_or(0, |place| place.sent),
                thread: place.as_ref().map(|place| place.thread.id.clone()),
                conversation: self.conversation,
                frame: self.prelude.into_inner().map(|read| read.1),
                edited,
                applied: Arc::clone(&decided.applied),
                fresh: decided.fresh,
                splice: decided.splice.clone(),
                planned,
            },
        )
    }

    /// What the books need to know about the request as it leaves.
    pub(super) fn facts(
        &self,
        place: Option<Place>,
        state: State,
        why: Option<String>,
        decided: InForce,
    ) -> RequestFacts {
        let is_first = place.as_ref().is_some_and(|place| place.sent == 0);
        let is_edited = state == State::Edited;
        let marked_frame = self.shared_frame.as_ref().filter(|_| is_edited && decided.marks_frame);
        let frame_mark = marked_frame.map(|SharedFrame { stable, entry, .. }| FrameMark {
            entry: *entry,
            expected: stable.mark,
            is_first,
        });
        let tuning = place.as_ref().map_or_else(|| Arc::clone(&self.tuning), |place| self.tuning(place));
        let splice = decided.splice.as_ref().filter(|_| is_edited);
        let is_sent = |at: usize| !splice.is_some_and(|splice| splice.drops(at));
        let is_whole = self.conversation.is_whole();
        let encoded = is_whole.then(|| self.conversation.encoded(is_sent) as u64);
        RequestFacts {
            caller: self.sender.caller.clone(),
            series: None,
            history: ProviderHistory {
                continues: self.conversation.continues.clone().filter(|name| !name.is_empty()),
                grows: self.conversation.grows,
                goes_on_in: None,
                is_kept: self.conversation.is_kept,
            },
            place,
            model: self.model().map(str::to_owned),
            messages: self.conversation.messages.len() as u32,
            completion_window: self.conversation.completion_window.clone(),
            encoded,
            state,
            why,
            decided,
            cache: CacheFacts {
                kept_long: self.conversation.is_kept_long(),
                frame_mark,
                uncertain: self.uncertain(),
            },
            compaction: self.compaction,
            event: None,
            level: None,
            recalls: 0,
            tuning: Some(tuning),
            would: None,
        }
    }
}
