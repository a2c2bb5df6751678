//! The result of rewriting a request, and the facts that the books need.

use std::sync::Arc;

use bytes::Bytes;

use super::books::{Planned, Reading};
use super::frame::FrameMark;
use super::pauses::Uncertain;
use super::summaries::Prospect;
use super::tuning::Tuning;
use crate::conversation::{Chain, Conversation};
use crate::ledger::words::State;
use crate::lineage::{Caller, Place};
use crate::plan::Kinds;
use crate::planner::{Applied, Event, Level, Outcome, Splice};
use crate::protocol::Leaving;
use crate::server::Fault;
use crate::store::Thread;
use crate::strategy::compaction::Compaction;
use crate::usage::{self, Binding};

/// The result of rewriting a request. It is moved several times, so large parts are boxed.
pub(super) struct Rewritten {
    /// The body to send; `None`: the one that came.
    pub(super) body: Option<Bytes>,
    /// Facts for the books.
    pub(super) facts: Box<RequestFacts>,
    /// The edited request, read again.
    pub(super) edited: Option<Box<Conversation>>,
    /// If the gateway observes: what it would have sent.
    pub(super) planned: Option<Planned>,
    /// The request as it was read.
    pub(super) reading: Option<Box<Reading>>,
    /// The summary to begin once the request has been answered.
    pub(super) prospect: Option<Box<Prospect>>,
    /// Why the request must not be sent at all.
    pub(super) fault: Option<Fault>,
    /// The request was refused as too long, and this form is shorter than the refused one.
    pub(super) has_room: bool,
}

/// What the books need to know about a request.
#[derive(Default)]
pub(super) struct RequestFacts {
    pub(super) caller: Caller,
    /// The conversation to book it on if neither thread nor session is known; `None`: one of its own.
    pub(super) series: Option<String>,
    pub(super) place: Option<Place>,
    pub(super) history: ProviderHistory,
    pub(super) model: Option<String>,
    pub(super) messages: u32,
    /// How long the provider may take to answer, if that is longer than usual.
    pub(super) completion_window: Option<Box<str>>,
    /// Bytes of the sent messages that are not text; `None`: the body does not hold the whole prompt that is billed.
    pub(super) encoded: Option<u64>,
    pub(super) state: State,
    pub(super) why: Option<String>,
    /// The decisions that apply on the wire; if the gateway observes, those that would apply.
    pub(super) decided: InForce,
    pub(super) cache: CacheFacts,
    /// Whether the client compacts its history.
    pub(super) compaction: Option<Compaction>,
    /// The event that this request carries.
    pub(super) event: Option<Event>,
    /// How full the window is, before the event.
    pub(super) level: Option<Level>,
    /// Repeated calls whose earlier result had been cleared.
    pub(super) recalls: u32,
    /// The settings that apply; `None`: the request could not be read.
    pub(super) tuning: Option<Arc<Tuning>>,
    /// What an observing gateway would have sent, if that is known.
    pub(super) would: Option<Would>,
}

/// What the provider holds of a request's history, so that the body need not repeat it.
#[derive(Default)]
pub(super) struct ProviderHistory {
    /// The id of the history that the request continues, if the provider holds that.
    pub(super) continues: Option<Box<str>>,
    /// Whether that history keeps its id while it grows by this request.
    pub(super) grows: bool,
    /// The thread that the request continues by that id, with the empty history of its sender. Set only for requests
    /// without a list of messages, which have no place.
    pub(super) goes_on_in: Option<(Chain, Thread)>,
    /// The provider keeps the history together with the answer.
    pub(super) is_kept: bool,
}

/// What is known of a request's stay in the provider's cache.
#[derive(Default)]
pub(super) struct CacheFacts {
    /// Everything that the provider is asked to cache is to be kept for the long time to live.
    pub(super) kept_long: bool,
    /// The mark that the gateway put at the end of the frame.
    pub(super) frame_mark: Option<FrameMark>,
    /// The provider's cache, if it may keep prompts for longer than it promises.
    pub(super) uncertain: Option<Uncertain>,
}

/// The form that an observing gateway would have sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Would {
    /// Bytes of its body.
    pub(super) bytes: u64,
    /// Those of them that are not text; `None`: the body does not hold the whole prompt.
    pub(super) encoded: Option<u64>,
    /// Bytes of text saved compared with the original.
    pub(super) spared: u64,
}

impl RequestFacts {
    /// Whether the model refuses reasoning if anything before it has changed, as it has in the original.
    pub(super) fn is_bound(&self) -> bool {
        self.was_edited() && self.model.as_deref().and_then(usage::binding) == Some(Binding::Refused)
    }

    /// Whether an earlier request of the thread was sent with edits.
    pub(super) fn was_edited(&self) -> bool {
        let place = self.place.as_ref().filter(|place| place.sent > 0);
        place.is_some_and(Place::is_edited)
    }

    /// Bytes of text saved by the decisions and the splice.
    pub(super) fn spared(&self) -> u64 {
        let InForce { applied, splice, .. } = &self.decided;
        let decided: u64 = applied.iter().map(|applied| applied.decision.bytes_spared()).sum();
        decided + splice.as_ref().map_or(0, |splice| splice.bytes_spared())
    }

    /// The thread that the request belongs to, with the empty history of its sender.
    pub(super) fn thread(&self) -> Option<(Chain, &Thread)> {
        let place = self.place.as_ref().map(|place| (place.root, &place.thread));
        place.or_else(|| self.history.goes_on_in.as_ref().map(|(root, thread)| (*root, thread)))
    }

    /// The conversation that the request is booked on: one of its own, named by the id of its `record`, if nothing else
    /// is known.
    pub(super) fn conversation(&self, record: &str) -> String {
        let thread = self.thread().map(|(_, thread)| &thread.conversation);
        let known = thread.or(self.caller.session.as_ref()).or(self.series.as_ref());
        known.map_or_else(|| record.to_owned(), String::clone)
    }
}

/// The decisions about a request that apply, old and new.
#[derive(Default)]
pub(super) struct InForce {
    pub(super) applied: Arc<[Applied]>,
    /// How many of them, at the end, were made with this request.
    pub(super) fresh: usize,
    /// The kinds of edits.
    pub(super) kinds: Kinds,
    pub(super) splice: Option<Arc<Splice>>,
    /// The splice was made with this request.
    pub(super) spliced: bool,
    /// The gateway marks the end of the frame.
    pub(super) marks_frame: bool,
}

impl InForce {
    pub(super) fn of(outcome: &Outcome) -> Self {
        Self {
            applied: outcome.applied.as_slice().into(),
            fresh: outcome.fresh,
            kinds: outcome.plan.kinds(),
            splice: outcome.splice.clone(),
            spliced: outcome.spliced,
            marks_frame: outcome.marks.frame.is_some(),
        }
    }
}

impl Rewritten {
    /// The result for a request that leaves as it came.
    pub(super) fn of(facts: RequestFacts) -> Self {
        Self {
            body: None,
            facts: Box::new(facts),
            edited: None,
            planned: None,
            reading: None,
            prospect: None,
            fault: None,
            has_room: false,
        }
    }

    /// The form that leaves: the edited one, or else the original, whose body is `body`.
    pub(super) fn leaving<'a>(&'a self, body: &'a Bytes) -> Leaving<'a> {
        let body = self.body.as_ref().unwrap_or(body);
        let Some(reading) = self.reading.as_deref() else { return Leaving::Unread(body) };
        let read = reading.edited.as_deref().unwrap_or(&reading.conversation);
        debug_assert!(read.body == *body, "what leaves is what was read last");
        Leaving::Read(read)
    }

    pub(super) fn with(mut self, event: Option<Event>, level: Option<Level>, recalls: u32) -> Self {
        (self.facts.event, self.facts.level, self.facts.recalls) = (event, level, recalls);
        self
    }
}
