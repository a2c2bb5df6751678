//! Decides when a summary is written, and when a finished one may be used.
//!
//! A summary replaces exactly the history whose chain it carries, and is offered to no other. One is begun after a
//! request whose prompt is near the window, in tokens and in requests left, if no usable one is ready or being written.
//! A summary that is written too early may be wasted. If it is written too late, messages are dropped, which is worse.
//! So a summary that is expensive compared to what the conversation has cost is delayed until room is needed, but no
//! longer.

mod bill;
mod choice;
#[cfg(test)]
mod made;
mod outdated;
mod price;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;

use super::budget::Budget;
use super::route::Served;
use super::tally::Tally;
use crate::config::Summarize;
use crate::conversation::{Conversation, Digest};
use crate::lineage::Place;
use crate::planner::cuts::cuts;
use crate::planner::splice::SUMMARY;
use crate::planner::{Applied, Layout, Level, Policy, Splice};
use crate::protocol::{self, Protocol};
use crate::store::{Recent, Store, Summary};
use crate::strategy::ladder;
use crate::strategy::summary::{self, Demand};
use crate::strategy::window::{self, Gauge};
use crate::summarizer::{Allowance, Call, Expected, Job, Limits, Summarizer, Task, credentials};
use crate::upstream::Upstream;
use crate::usage::{Binding, Catalogue, Price, Vendor};

use choice::{Choice, next_cut};
use outdated::Outdated;
use price::Spending;

/// The most threads for which it is remembered that the store was asked for their summaries.
const MAX_ASKED: u64 = 65_536;
/// The assumed window of a model in tokens, if nothing is known or set.
const DEFAULT_WINDOW: u64 = 32_000;

/// How the summaries of a conversation are made.
pub(super) struct Terms {
    settings: Arc<summary::Settings>,
    recipe: Digest,
    layout: Layout,
    max_wait: Duration,
    /// The upstream that writes them; `None`: the one that the request goes to.
    writer: Option<Served>,
    /// The model that writes them; `None`: the request's own.
    model: Option<String>,
    /// How full the window may become.
    window: window::Settings,
    /// Which summaries free too little to be used.
    ladder: ladder::Settings,
}

/// The summaries of all conversations.
pub(super) struct Summaries {
    summarizer: Summarizer,
    store: Arc<dyn Store>,
    prices: Arc<Catalogue>,
    asked: Recent<String, ()>,
    spending: Spending,
    outdated: Outdated,
}

/// What must be known of a request to decide about a summary.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) protocol: &'static dyn Protocol,
    pub(super) conversation: &'a Conversation,
    pub(super) place: &'a Place,
    pub(super) terms: &'a Arc<Terms>,
    /// The decisions that it was sent with.
    pub(super) applied: &'a [Applied],
    /// The splice that it was sent with, if any.
    pub(super) splice: Option<&'a Splice>,
    pub(super) level: Level,
    pub(super) model: Option<&'a str>,
    /// The price of its model, and the vendor.
    pub(super) price: Option<&'a Price>,
    pub(super) vendor: Option<Vendor>,
    pub(super) bytes_per_token: f64,
    pub(super) now_ms: i64,
}

/// A summary that could be written.
pub(super) struct Prospect {
    terms: Arc<Terms>,
    /// The dialect and the model of the request.
    protocol: &'static dyn Protocol,
    model: Option<String>,
    task: Task,
}

impl Prospect {
    /// `None` if nothing would be replaced.
    fn new(
        seen: Seen<'_>,
        choice: Choice,
        previous: Option<&Summary>,
        (allowance, expected): (Option<Allowance>, Option<Expected>),
    ) -> Option<Self> {
        let Seen { conversation, place, terms, applied, .. } = seen;
        let Choice { cut, bytes } = choice;
        let is_replaced = |applied: &&Applied| (applied.part.message as usize) < cut.end;
        let edits = |applied: &Applied| (applied.part, applied.decision.leaves.clone());
        // Messages that stay for now may be replaced by the next summary, so they are summarised too.
        let first = cut.messages().next()?;
        let task = Task {
            thread: place.thread.id.clone(),
            conversation_id: place.thread.conversation.clone(),
            chain: place.chains[cut.end],
            end: cut.end,
            messages: (first..cut.end).collect(),
            conversation: conversation.clone(),
            sent: applied.iter().filter(is_replaced).map(edits).collect(),
            previous: previous.map(|previous| (previous.outline.clone(), previous.end)),
            generation: previous.map_or(0, |previous| previous.generation) + 1,
            bytes,
            bytes_per_token: seen.bytes_per_token,
            settings: Arc::clone(&terms.settings),
            allowance,
            expected,
            now_ms: seen.now_ms,
        };
        let model = seen.model.map(str::to_owned);
        Some(Self { terms: Arc::clone(terms), protocol: seen.protocol, model, task })
    }
}

impl Terms {
    pub(super) fn new(given: &Summarize, writer: Option<Served>, policy: &Policy) -> Self {
        let recipe = summary::prompt::recipe(&given.settings);
        Self {
            settings: Arc::new(given.settings.clone()),
            recipe,
            layout: given.layout.clone(),
            max_wait: given.max_wait,
            writer,
            model: given.model.clone(),
            window: policy.window,
            ladder: policy.ladder,
        }
    }

    /// Whether a summary is to be prepared: once the prompt has reached `trigger` of the window and one of the next
    /// requests may have no room without a summary, as far as the growth is known; or if there are too many messages.
    fn is_due(&self, level: Level) -> bool {
        let is_near = |gauge: Gauge| {
            gauge.reaches(self.settings.trigger, &self.window)
                && level.growth.is_none_or(|growth| gauge.nears_trigger(growth, &self.window))
        };
        level.gauge.is_some_and(is_near) || level.is_crowded(&self.window)
    }

    /// The most that a summary may cost, in bytes of plain input. There is no limit once room is needed, nor if making
    /// room must not wait whatever it costs (`level.patient`).
    fn max_cost(&self, level: Level) -> f64 {
        let is_wanted = |gauge: Gauge| gauge.reaches(self.window.trigger, &self.window);
        let is_late = level.gauge.is_none_or(is_wanted) || level.is_crowded(&self.window);
        let is_limited = self.settings.most_loss < 1.0 && level.patient && !is_late;
        if is_limited { level.account.allowance(self.settings.most_loss) } else { f64::INFINITY }
    }

    /// Whether a finished summary must be used.
    fn must_be_used(&self, level: Level) -> bool {
        level.is_full(&self.window) || level.is_crowded(&self.window)
    }

    /// Whether a summary was written with the present recipe and replaces the beginning of this history.
    fn takes(&self, summary: &Summary, place: &Place) -> bool {
        summary.recipe == self.recipe && carries(place, summary)
    }

    /// The window, in tokens, of the model that writes, whose price list states `known`, if anything. The window set
    /// for the conversation is meant for its own model, which reads the smaller one of the two; for another model it is
    /// used only if nothing is known.
    fn writers_window(&self, known: Option<u64>) -> u64 {
        let set = || self.window.window(known, None);
        let window = if self.model.is_some() { known.or_else(set) } else { set() };
        window.unwrap_or(DEFAULT_WINDOW)
    }

    /// How much a summary must free. If the window is not known, that is as much as possible.
    fn demand(&self, level: Level) -> Demand {
        let Some(gauge) = level.gauge else {
            return Demand { wanted: u64::MAX, usable: level.prompt_tokens, least: 0 };
        };
        let (trigger, target) =
            (gauge.share(self.window.trigger, &self.window) as u64, gauge.target(&self.window));
        let (wanted, usable) = (gauge.prompt.max(trigger).saturating_sub(target), gauge.usable());
        // Where messages may be dropped instead, a summary that frees less than the least is passed over; but not if
        // there are too many messages.
        let is_passed_over = self.ladder.enabled && !level.is_crowded(&self.window);
        let least = if is_passed_over { self.ladder.least_of(usable).min(wanted) } else { 0 };
        Demand { wanted, usable, least }
    }
}

impl Summaries {
    /// Starts the summariser.
    ///
    /// # Errors
    /// Returns an error if the system cannot start a thread.
    pub(super) fn start(
        limits: Limits,
        store: Arc<dyn Store>,
        prices: Arc<Catalogue>,
        tally: Arc<Tally>,
        budget: Arc<Budget>,
    ) -> io::Result<Self> {
        let spending = Spending::new();
        let report = bill::report(Arc::clone(&store), tally, budget, spending.clone());
        let summarizer = Summarizer::start(limits, Arc::clone(&prices), report)?;
        Ok(Self {
            summarizer,
            store,
            prices,
            asked: Recent::of_entries(MAX_ASKED),
            spending,
            outdated: Outdated::new(),
        })
    }

    /// The splice with which the newest summary of a request's history could be sent.
    pub(super) fn ready(
        &self,
        terms: &Terms,
        conversation: &Conversation,
        place: &Place,
        bound: Option<Binding>,
    ) -> Option<Splice> {
        if !terms.settings.enabled || place.sent == 0 || conversation.continues.is_some() {
            return None;
        }
        splice_of(&*self.newest(terms, place)?, conversation, bound, place, &terms.layout)
    }

    /// Looks for a new summary of a history that has no room left, and returns whether one may be ready now. If nothing
    /// else makes room (`is_needed`), waits for the one that is being written, but no longer than allowed and no longer
    /// than half of the time that is `left` for the request. Otherwise takes over a summary that another thread or
    /// another gateway has had written.
    pub(super) async fn wait(&self, terms: &Terms, place: &Place, is_needed: bool, left: Duration) -> bool {
        let (thread, max_wait) = (&place.thread.id, terms.max_wait.min(left / 2));
        if is_needed && !max_wait.is_zero() && self.summarizer.is_running(thread) {
            self.summarizer.wait(thread, max_wait).await;
            return true;
        }
        let used = place.splice.as_ref().map_or(0, |splice| splice.end());
        terms.settings.enabled && self.take_over(terms, place, used)
    }

    /// The summary to be written now that this request is sent, if one is due.
    pub(super) fn due(&self, seen: Seen<'_>) -> Option<Prospect> {
        let Seen { conversation, place, terms, level, .. } = seen;
        let thread = &place.thread.id;
        if !terms.settings.enabled {
            return None;
        }
        if seen.splice.is_some_and(|splice| &*splice.rule == SUMMARY) {
            self.outdated.record_use(place);
        }
        self.outdated.record_branch(place, conversation.messages.len(), seen.now_ms);
        if !terms.is_due(level) {
            // It matters if the next request is a long one.
            self.spending.set_may_begin(thread, self.summarizer.takes(thread));
            return None;
        }
        self.spending.close(thread);
        self.outdated.record_near(place, &level, seen.now_ms);
        if conversation.continues.is_some() || level.defers || !self.summarizer.takes(thread) {
            return None;
        }
        let newest = self.newest(terms, place);
        let choice = next_cut(seen, newest.as_deref())?;
        let expected = Expected::of(&seen, &choice.cut, newest.as_deref(), &self.prices);
        let allowance = expected.and_then(|expected| expected.within(terms.max_cost(level)));
        // One that has failed may cost as much again, whatever was expected of it.
        let failed = self.spending.failed(thread);
        let waits = allowance.is_some_and(|Allowance { most, expected, .. }| {
            expected.max(failed) > most || self.summarizer.rests(thread)
        });
        let is_likely_vain = !level.is_crowded(&terms.window) && self.outdated.is_cut_likely(place, &level);
        if waits || is_likely_vain {
            self.spending.set_may_begin(thread, true);
            return None;
        }
        if self.take_over(terms, place, 0) {
            return None;
        }
        Prospect::new(seen, choice, newest.as_deref(), (allowance, expected))
    }

    /// The job for a prospect. `like` is the path of the client's own request, if a call of the gateway may be modelled
    /// on it. `None` if nobody may be asked for the summary.
    pub(super) fn job(
        &self,
        prospect: Prospect,
        upstream: &Arc<Upstream>,
        like: Option<String>,
        headers: &HeaderMap,
    ) -> Option<Job> {
        let call = self.call(&prospect, upstream, like, headers)?;
        Some(Job { task: prospect.task, call, is_doubted: false })
    }

    fn call(
        &self,
        prospect: &Prospect,
        upstream: &Arc<Upstream>,
        like: Option<String>,
        headers: &HeaderMap,
    ) -> Option<Call> {
        let terms = &prospect.terms;
        let model = terms.model.clone().or_else(|| prospect.model.clone())?;
        let other = terms.writer.as_ref().filter(|writer| writer.upstream.name() != upstream.name());
        let (upstream, protocol, like, headers) = match other {
            Some(writer) => {
                let own = prospect.protocol.name();
                let dialect = writer.dialects.iter().find(|dialect| *dialect == own);
                let protocol = protocol::named(dialect.or_else(|| writer.dialects.first())?)?;
                (&writer.upstream, protocol, None, HeaderMap::new())
            }
            None => {
                let headers = credentials::of(headers, upstream.base_url().domain())?;
                (upstream, prospect.protocol, Some(like?), headers)
            }
        };
        let vendor = Vendor::of_host(upstream.base_url().domain());
        let known = self.prices.find(&model, vendor).and_then(|priced| priced.price.context_window);
        let upstream = Arc::clone(upstream);
        Some(Call { upstream, protocol, model, like, headers, window: terms.writers_window(known) })
    }

    /// Begins a job, unless there are too many already.
    pub(super) fn begin(&self, job: Job) {
        let (thread, expected) = (job.task.thread.clone(), job.task.expected);
        // Before the job begins, as it replaces this by what it has cost.
        self.spending.book_expected(&thread, expected);
        if self.summarizer.begin(job) {
            self.outdated.record_begun(&thread);
        } else {
            self.spending.take_back(&thread, expected);
        }
    }

    /// What a thread's summaries have cost so far, in bytes of plain input, and whether a summary is awaited: one that
    /// is being written, or one that may be begun when room is needed. The latter is assumed if no request in this
    /// process has brought the thread near the window.
    pub(super) fn of_thread(&self, terms: &Terms, thread: &str) -> (f64, bool) {
        let may_wait = terms.settings.enabled && terms.settings.most_loss < 1.0;
        let is_awaited = may_wait && self.spending.may_begin(thread) || self.summarizer.is_running(thread);
        (self.spending.spent(thread), is_awaited)
    }

    /// Makes no further calls for the threads of a request, because its client summarises the history itself.
    pub(super) fn abandon(&self, place: &Place) {
        place.threads().for_each(|thread| self.summarizer.abandon(thread));
    }

    /// The usable summary, of the thread or its parent, that replaces the longest beginning of a history.
    fn newest(&self, terms: &Terms, place: &Place) -> Option<Arc<Summary>> {
        let summaries = place.threads().rev().filter_map(|thread| self.look_up(thread));
        summaries.filter(|summary| terms.takes(summary, place)).max_by_key(|summary| summary.end)
    }

    /// Takes over a summary of more than the first `used` messages that another thread of the conversation, or another
    /// gateway on the same store, has had written in the meantime, so that none is paid for twice. Returns whether
    /// there is one.
    fn take_over(&self, terms: &Terms, place: &Place, used: usize) -> bool {
        let Place { thread, .. } = place;
        let known = self.newest(terms, place).map_or(used, |newest| newest.end.max(used));
        let own = place.threads().filter_map(|thread| self.store.summary(thread).ok()?);
        let others = self.store.summaries(&thread.conversation).unwrap_or_default();
        let stored = own.chain(others).filter(|made| made.end > known && terms.takes(made, place));
        let made = stored.max_by_key(|made| made.end);
        let is_made = made.is_some();
        if let Some(made) = made {
            self.summarizer.remember(&thread.id, Arc::new(made));
        }
        is_made
    }

    /// The newest summary of a thread. The store is only asked once.
    fn look_up(&self, thread: &String) -> Option<Arc<Summary>> {
        if let Some(summary) = self.summarizer.ready(thread) {
            return Some(summary);
        }
        if self.asked.get(thread).is_some() {
            return None;
        }
        let stored = self.store.summary(thread).ok()?;
        self.asked.insert(thread.clone(), ());
        let summary = Arc::new(stored?);
        self.summarizer.remember(thread, Arc::clone(&summary));
        Some(summary)
    }
}

/// Whether a request's history begins with exactly what a summary replaces.
fn carries(place: &Place, summary: &Summary) -> bool {
    place.chains.get(summary.end) == Some(&summary.chain)
}

/// The splice that sends a summary in place of the beginning of a history; `None` if the summary does not replace that,
/// or no more than the splice in use.
fn splice_of(
    summary: &Summary,
    conversation: &Conversation,
    bound: Option<Binding>,
    place: &Place,
    layout: &Layout,
) -> Option<Splice> {
    let former = place.splice.as_deref();
    if !carries(place, summary) || former.is_some_and(|former| former.end() >= summary.end) {
        return None;
    }
    let cuts = cuts(conversation, former, bound, place.sent);
    let cut = cuts.into_iter().find(|cut| cut.end == summary.end)?;
    cut.splice(conversation, SUMMARY, &summary.text, layout)
}
