//! The gateway itself: joins the other modules of the crate, and holds what requests have in common.
//!
//! For each request, `route` decides where it goes, `rewrite` what is changed in it, and `follow` what its answer means
//! and what is recorded about it. `books` then works out what it would have cost without the gateway.
//!
//! The steps of rewriting are methods of `rewrite::Request`, each in the module of its subject:
//!
//! - `rewrite`: `read`; `attempt`; `decide`, which calls `plan`, `carry_out` and `store_decisions`; and `edited`
//! - `room`: `make_room`, which attempts anew what was refused as too long
//! - `settled`: `apply_stored`, the result without new decisions; `attempt_after_race`, if another gateway was faster
//! - `shadow`: `leave_alone`, the result without edits; `plan_shadow`, what an observing gateway would have decided
//! - `opening`, `planner_facts`, `frame`, `pauses`: what these steps need to know
//!
//! Between requests it remembers what their answers have taught (`learned`), in memory that is bounded: prompt sizes
//! (`meter`), windows (`windows`), how long providers keep prompts (`pauses`), which edits upstreams accept
//! (`acceptance`). It also has summaries made (`summaries`), compares what was spent with the budgets (`budget`), and
//! sums up records for metrics and alerts (`tally`). `build` makes all of it from a configuration.
//!
//! Code about one subject alone is in the module of that subject, here or at the top of the crate. The modules here may
//! use every other module of the crate.

mod acceptance;
mod books;
mod budget;
mod build;
mod clock;
mod context;
mod enveloped;
mod follow;
mod frame;
mod histogram;
mod housekeeping;
mod last_use;
mod later;
#[cfg(test)]
mod laws;
mod learned;
mod memo;
mod meter;
mod metrics;
mod opening;
mod origin_policy;
mod pauses;
mod planner_facts;
mod preview;
mod recall;
mod rewrite;
mod rewritten;
mod room;
mod route;
mod secrets;
mod sender;
mod settled;
mod shadow;
mod slips;
mod summaries;
mod tally;
mod tuning;
mod unlisted;
mod windows;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method};

use crate::config::{CacheKey, Recover};
use crate::conversation::Digest;
use crate::ledger::when;
use crate::ledger::words::State;
use crate::lineage::{self, Lineage};
use crate::planner::Overflow;
use crate::protocol::{self, Added, EventFilter, Purpose, Refused, Wanted};
use crate::server::{
    Deadline, Exchange, Fault, Filter, Gateway, Inbound, Party, Prepared, Refusal, Rejection, Route, Target,
    Unprepared,
};
use crate::store::{Checkpoints, Outage, Store};
use crate::summarizer::Job;
use crate::upstream::Upstream;
use crate::usage::Catalogue;

pub use build::{App, StartError, prices, upstream as upstream_of};
pub use recall::Recall;

use books::{Books, Name};
use budget::{Budget, Reached};
use context::RequestContext;
use enveloped::Enveloped;
use follow::{Attempt, Follow, Start};
use later::LaterAnswer;
use learned::Learned;
use memo::MessageMemo;
use origin_policy::OriginPolicy;
use recall::FullTexts;
use rewritten::{RequestFacts, Rewritten};
use route::Routes;
use shadow::Shadow;
use slips::Slips;
use summaries::{Prospect, Summaries};
use tally::Tally;
use tuning::Tunings;

/// The state that all requests share.
struct Core {
    settings: Settings,
    routes: Routes,
    origins: OriginPolicy,
    slips: Slips,
    memo: MessageMemo,
    prices: Arc<Catalogue>,
    lineage: Lineage,
    store: Arc<dyn Store>,
    /// Whether decisions are stored before their requests have to leave.
    storing: Mutex<Outage>,
    checkpoints: Checkpoints,
    full_texts: FullTexts,
    learned: Learned,
    /// `None`: no summaries are made, and existing ones are not used.
    summaries: Option<Summaries>,
    books: Books,
    budget: Arc<Budget>,
    /// What rewriting would have decided, if the gateway only observes.
    shadow: Option<Shadow>,
    /// Sums of the records that were booked or lost.
    tally: Arc<Tally>,
    /// The current time, in milliseconds since 1970.
    now_ms: fn() -> i64,
}

/// How requests are treated.
struct Settings {
    tunings: Tunings,
    recover: Recover,
    /// Whether histories of different credentials are kept apart.
    isolate: bool,
    /// How long a request waits for its decisions to be stored before it leaves without them; `None`: as long as it
    /// takes.
    patience: Option<Duration>,
    /// The address of the dashboard, if there is one.
    dashboard: Option<SocketAddr>,
}

/// Log wording for [`Core::storing`].
fn storing() -> Mutex<Outage> {
    Mutex::new(Outage::new(
        "a request leaves without what was to be decided about it",
        "requests leave with what is decided about them again",
    ))
}

impl Core {
    /// Whether a prompt that was refused as too long is shortened and sent again.
    fn recovers(&self) -> bool {
        self.settings.recover.enabled && !self.observes()
    }

    /// Adds the dashboard's address to the answer for a browser that was pointed at the clients' address.
    fn with_dashboard(&self, head: &Parts, mut fault: Fault) -> Fault {
        if let Some(address) = self.settings.dashboard
            && head.method == Method::GET
            && head.uri.path() == "/"
        {
            let _ = write!(fault.message.to_mut(), "; the dashboard is at http://{address}/");
        }
        fault
    }

    /// Whether the gateway only observes: it plans, and changes nothing.
    fn observes(&self) -> bool {
        self.shadow.is_some()
    }

    /// The model that a request asks for.
    fn requested_model(&self, enveloped: &Enveloped) -> Option<String> {
        let read = protocol::read(enveloped.protocol, &enveloped.inbound.body, &self.memo).ok();
        let named = read.and_then(|(_, conversation)| conversation.model).map(String::from);
        named.or_else(|| enveloped.model().map(str::to_owned))
    }

    /// The result for a request that leaves as it came and is only booked. If its session is not known, all such
    /// requests of one kind and day are booked on one conversation.
    fn unchanged(&self, enveloped: &Enveloped) -> Rewritten {
        let Inbound { head, body, .. } = &enveloped.inbound;
        let kind = head.uri.path().trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        let named = enveloped.model().map(str::to_owned);
        let model = named.or_else(|| protocol::model_of_body(body).map(String::from));
        Rewritten::of(RequestFacts {
            caller: lineage::caller(&head.headers, None),
            model,
            state: State::Unchanged,
            series: Some(self.series(kind)),
            ..RequestFacts::default()
        })
    }

    /// The conversation that today's requests of this kind are booked on if nothing else is known of them.
    fn series(&self, kind: &str) -> String {
        let day = when::rfc3339((self.now_ms)());
        format!("{kind}-{}", &day[..day.find('T').unwrap_or(day.len())])
    }

    /// The result for a request that could not be read and leaves as it came. If its session is not known, all such
    /// requests of one day are booked on one conversation.
    fn unread(&self, headers: &HeaderMap, model: Option<&str>, why: String) -> Rewritten {
        Rewritten::of(RequestFacts {
            caller: lineage::caller(headers, None),
            model: model.map(str::to_owned),
            why: Some(self.unread_because(headers, why)),
            series: Some(self.series("unread")),
            ..RequestFacts::default()
        })
    }

    /// The current time, in milliseconds since 1970; 0 if it is earlier.
    fn unix_ms(&self) -> u64 {
        u64::try_from((self.now_ms)()).unwrap_or(0)
    }

    /// The budget that a conversation has reached or nearly reached, if any; and the fault that its requests are
    /// refused with, if they must not be sent.
    fn check_budget(&self, conversation: &str, now_ms: i64) -> (Option<Reached>, Option<Fault>) {
        let budget = self.budget.reached(conversation, now_ms);
        let refusal = budget.as_ref().filter(|_| self.budget.refuses()).and_then(Reached::refusal);
        (budget, refusal)
    }
}

/// The gateway as the server sees it.
#[derive(Clone)]
struct Sidecar {
    core: Arc<Core>,
}

impl Gateway for Sidecar {
    fn route(&self, head: &Parts) -> Route {
        let route = self.core.routes.route(head);
        let upstream = match &route {
            Route::Forward(target) | Route::Read(target) => &target.upstream,
            Route::Refuse(fault) => return Route::Refuse(self.core.with_dashboard(head, fault.clone())),
        };
        if let Some(refusal) = self.core.origins.refusal(upstream, head) {
            return Route::Refuse(refusal);
        }
        self.core.slips.look_for(&self.core.routes, head, upstream);
        route
    }

    async fn prepare(&self, inbound: Inbound, until: Deadline) -> Prepared {
        let Some((protocol, purpose)) = route::dialect(&inbound.head.method, inbound.head.uri.path()) else {
            return Prepared::untouched();
        };
        let enveloped = Enveloped::open(protocol, purpose, inbound);
        match purpose {
            Purpose::Count => {
                let Inbound { head, body, .. } = &enveloped.inbound;
                let body = self.core.preview(protocol, &head.headers, body, enveloped.context());
                Prepared { body: body.map(|body| enveloped.seal(body)), ..Prepared::default() }
            }
            Purpose::Other => {
                let rewritten = self.core.unchanged(&enveloped);
                self.prepare_rewritten(&enveloped, rewritten, Attempt::default())
            }
            Purpose::Generate | Purpose::Compact => self.generate(enveloped, until).await,
        }
    }

    fn follow(&self, head: &Arc<Parts>, target: &Target) -> Option<Box<dyn Exchange>> {
        let (protocol, _) = route::later_answer(head.uri.path())?;
        Some(Box::new(LaterAnswer::new(Arc::clone(&self.core), protocol, head, target)))
    }

    fn unprepared(&self, inbound: Inbound, why: Unprepared) -> Prepared {
        let dialect = route::dialect(&inbound.head.method, inbound.head.uri.path());
        let Some((protocol, purpose)) = dialect.filter(|(_, purpose)| *purpose != Purpose::Count) else {
            return Prepared::untouched();
        };
        let enveloped = Enveloped::open(protocol, purpose, inbound);
        let fault = match why {
            Unprepared::Panicked => self.core.unprepared_opening(&enveloped),
            Unprepared::TimedOut | Unprepared::Undecoded => None,
        };
        let why = match why {
            Unprepared::TimedOut => "it took longer than `limits.rewrite_timeout`",
            Unprepared::Panicked => "a fault of the gateway's own",
            Unprepared::Undecoded => "the body could not be decoded, or ends with trailer fields",
        };
        let headers = &enveloped.inbound.head.headers;
        let rewritten = self.core.unread(headers, enveloped.model(), why.to_owned());
        self.prepare_unread(&enveloped, Rewritten { fault, ..rewritten })
    }

    async fn again(
        &self,
        inbound: Inbound,
        rejection: Rejection,
        attempt: u32,
        until: Deadline,
    ) -> Option<Prepared> {
        let (protocol, purpose) = route::dialect(&inbound.head.method, inbound.head.uri.path())?;
        let max_attempts = self.core.settings.recover.max_attempts;
        let may_recover = matches!(purpose, Purpose::Generate | Purpose::Compact) && self.core.recovers();
        if !may_recover || attempt > max_attempts {
            return None;
        }
        // The time of the attempt before was the provider's, not the gateway's.
        let inbound = Inbound { read_at: Instant::now(), ..inbound };
        let enveloped = Enveloped::open(protocol, purpose, inbound);
        let refused = protocol::refused(rejection.status.as_u16(), &rejection.body);
        let is_last = attempt > 1 && attempt == max_attempts;
        let overflow = match refused {
            Refused::Overflow { limit, prompt } => {
                let (model, upstream) = (self.core.requested_model(&enveloped), &enveloped.inbound.upstream);
                let is_believed = |limit| self.core.learn_window(upstream, model.as_deref(), limit);
                Overflow { prompt, has_limit: limit.is_some_and(is_believed), is_last }
            }
            Refused::Answer | Refused::Malformed | Refused::Unanswered | Refused::Other => {
                Overflow::default()
            }
        };
        let is_paid = rejection.status.is_success() && !matches!(refused, Refused::Overflow { .. });
        let attempt = Attempt { before: attempt, is_paid };
        self.recover(enveloped, overflow, attempt, until).await
    }

    fn refuse(&self, head: &Parts, fault: &Fault) -> Refusal {
        let protocol = self.core.routes.spoken(head);
        let at_fault = match fault.at_fault {
            Party::Client => protocol::AtFault::Client,
            Party::Upstream | Party::Proxy | Party::Network | Party::Way | Party::Tls => {
                protocol::AtFault::Upstream
            }
            Party::Gateway => protocol::AtFault::Gateway,
        };
        let message = format!("plimsoll: {} ({} at fault)", fault.message, fault.at_fault.as_str());
        let body =
            protocol.fault(&protocol::Fault { status: fault.status.as_u16(), at_fault, message: &message });
        Refusal { content_type: HeaderValue::from_static("application/json"), body: body.into() }
    }
}

impl Sidecar {
    /// The key for the provider's cache that is to be added to the request; `None` if it gets none.
    fn cache_key(&self, upstream: &Upstream, rewritten: &Rewritten) -> Option<String> {
        let facts = &rewritten.facts;
        if !matches!(facts.state, State::Edited | State::Unchanged) || self.core.observes() {
            return None;
        }
        let place = facts.place.as_ref()?;
        if facts.tuning.as_ref().is_some_and(|tuning| !tuning.policy.marks.keys) {
            return None;
        }
        match self.core.routes.named(upstream.name())?.cache_key {
            CacheKey::Shared => Some("plimsoll".to_owned()),
            CacheKey::Conversation => {
                Some(format!("plimsoll-{}", Digest::of(&[place.thread.conversation.as_bytes()])))
            }
            CacheKey::None => None,
        }
    }

    /// Adds members besides the messages to the body that leaves, unless the upstream is known to refuse them.
    fn add_members(&self, enveloped: &Enveloped, rewritten: &Rewritten) -> Added {
        let Inbound { body, upstream, .. } = &enveloped.inbound;
        let key = self.cache_key(upstream, rewritten);
        let served = self.core.routes.named(upstream.name());
        let usage = served.is_some_and(|served| served.include_usage);
        let wanted = Wanted { cache_key: key.as_deref(), usage };
        let added = protocol::add(enveloped.protocol, rewritten.leaving(body), &wanted);
        if added.body.is_none()
            || self.core.learned.acceptance.takes_additions(upstream.name(), &rewritten.facts)
        {
            added
        } else {
            Added::default()
        }
    }

    /// Prepares a request that asks for an answer.
    async fn generate(&self, enveloped: Enveloped, until: Deadline) -> Prepared {
        let rewritten = self.rewrite(&enveloped, None, until.clone()).await;
        if until.has_left() {
            // It was sent without this result, which must not be booked.
            return Prepared::untouched();
        }
        self.prepare_rewritten(&enveloped, rewritten, Attempt::default())
    }

    /// Prepares a refused request again, if more room can be made in it.
    async fn recover(
        &self,
        enveloped: Enveloped,
        overflow: Overflow,
        attempt: Attempt,
        until: Deadline,
    ) -> Option<Prepared> {
        let rewritten = self.rewrite(&enveloped, Some(overflow), until).await;
        if !rewritten.has_room {
            return None;
        }
        tracing::info!(
            sent_before = attempt.before,
            "the prompt was too long: it is shortened and sent again"
        );
        Some(self.prepare_rewritten(&enveloped, rewritten, attempt))
    }

    async fn rewrite(&self, enveloped: &Enveloped, overflow: Option<Overflow>, until: Deadline) -> Rewritten {
        let context = RequestContext { overflow, until: Some(&until), ..enveloped.context() };
        let Inbound { head, body, .. } = &enveloped.inbound;
        self.core.rewrite(enveloped.protocol, &head.headers, body, context).await
    }

    /// Prepares a request for sending: checks the budget, adds members, and has its exchange followed.
    fn prepare_rewritten(
        &self,
        enveloped: &Enveloped,
        mut rewritten: Rewritten,
        attempt: Attempt,
    ) -> Prepared {
        let body = &enveloped.inbound.body;
        let (id, now_ms) = (clock::new_id(), (self.core.now_ms)());
        let name = Name { conversation: rewritten.facts.conversation(&id), id: id.clone() };
        let rewritten_to = rewritten.body.as_ref().map_or(body.len(), Bytes::len) as u64;
        let (budget, over_budget) = self.core.check_budget(&name.conversation, now_ms);
        // A request that was left unedited because the budget was spent is refused even if a new day has begun since.
        let refusal = over_budget.or_else(|| rewritten.fault.take());
        let added = self.add_members(enveloped, &rewritten);
        let filter =
            added.asks_for_usage.then(|| Box::new(EventFilter::new(enveloped.protocol)) as Box<dyn Filter>);
        let names = added.names();
        rewritten.body = added.body.or(rewritten.body);
        let mut start = Start {
            budget,
            sent: (rewritten.body.as_ref().map_or(body.len(), Bytes::len) + enveloped.overhead()) as u64,
            added: names,
            attempt,
            rewritten_to,
            ..Start::unchanged(id, enveloped)
        };
        start.job =
            rewritten.prospect.take().and_then(|prospect| self.job(*prospect, enveloped)).map(Box::new);
        start.slot =
            rewritten.reading.map(|reading| self.core.books.left(name, reading, rewritten.body.clone()));
        let exchange = Follow::new(&self.core, enveloped, rewritten.facts, start, now_ms);
        let body = rewritten.body.map(|body| enveloped.seal(body));
        Prepared { body, exchange: Some(Box::new(exchange)), filter, refusal }
    }

    /// Prepares a request that was not read and leaves as it came, unless a budget is spent or there is a fault.
    fn prepare_unread(&self, enveloped: &Enveloped, rewritten: Rewritten) -> Prepared {
        let (id, now_ms) = (clock::new_id(), (self.core.now_ms)());
        let (budget, over_budget) = self.core.check_budget(&rewritten.facts.conversation(&id), now_ms);
        let refusal = over_budget.or(rewritten.fault);
        let start = Start { budget, ..Start::unchanged(id, enveloped) };
        let exchange = Follow::new(&self.core, enveloped, rewritten.facts, start, now_ms);
        Prepared { exchange: Some(Box::new(exchange)), refusal, ..Prepared::default() }
    }

    /// The summariser's job, to begin once this request is answered; `None` if nobody may be asked for the summary.
    fn job(&self, prospect: Prospect, enveloped: &Enveloped) -> Option<Job> {
        let summaries = self.core.summaries.as_ref()?;
        let head = &enveloped.inbound.head;
        let like = match self.core.routes.route(head) {
            // An envelope is sent by one program alone, with a login of its own.
            Route::Read(target) if enveloped.envelope.is_none() => {
                Some(target.path_and_query.as_str().to_owned())
            }
            _ => None,
        };
        let job = summaries.job(prospect, &enveloped.inbound.upstream, like, &head.headers)?;
        // A page that may not use the configuration's headers may not cause other requests with them either.
        self.core.origins.refusal(&job.call.upstream, head).is_none().then_some(job)
    }
}

/// Removes from an answer what is in it only because the gateway asked for usage.
impl Filter for EventFilter {
    fn pass(&mut self, piece: &Bytes) -> Bytes {
        self.push(piece).into()
    }

    fn rest(&mut self) -> Bytes {
        self.finish().into()
    }
}
