//! What became of a request, and what is known of it.

use std::sync::Arc;

use bytes::Bytes;

use super::books::{Planned, Reading};
use super::context::RequestContext;
use super::frame::FrameMark;
use super::pauses::Uncertain;
use super::summaries::Prospect;
use super::tuning::Tuning;
use crate::conversation::{Chain, Conversation};
use crate::ledger::words::State;
use crate::lineage::{self, Caller, Place};
use crate::plan::Kinds;
use crate::planner::{Applied, Event, Level, Outcome, Splice};
use crate::protocol::Leaving;
use crate::server::Fault;
use crate::store::Thread;
use crate::strategy::compaction::Compaction;
use crate::usage::{self, Binding};

/// What became of a request. It is handed on several times, so that what is large stands elsewhere.
pub(super) struct Rewritten {
    /// The bytes to send; `None`: as they came.
    pub(super) body: Option<Bytes>,
    /// What is known of the request, for the books.
    pub(super) facts: Box<RequestFacts>,
    /// What it was rewritten to, read again.
    pub(super) edited: Option<Conversation>,
    /// What it would have been rewritten to.
    pub(super) planned: Option<Planned>,
    /// The request as it was read.
    pub(super) reading: Option<Box<Reading>>,
    /// A summary that is to be begun when it has been answered.
    pub(super) prospect: Option<Box<Prospect>>,
    /// Why it is not to be sent at all.
    pub(super) fault: Option<Fault>,
    /// It was refused as too long, and this form has more room than the refused one.
    pub(super) has_room: bool,
}

/// What the books want to know of a request.
#[derive(Default)]
pub(super) struct RequestFacts {
    pub(super) caller: Caller,
    /// What it is booked on where neither thread nor session is known; `None`: a conversation of its own.
    pub(super) series: Option<String>,
    pub(super) place: Option<Place>,
    /// The name of what it goes on from, if that is not in the body.
    pub(super) continues: Option<Box<str>>,
    /// What has that name grows with the request.
    pub(super) grows: bool,
    /// The thread that it goes on with by that name, where it has no place in it, and the empty history of its sender.
    pub(super) goes_on_in: Option<(Chain, Thread)>,
    /// The provider keeps the history with the answer.
    pub(super) is_kept: bool,
    pub(super) model: Option<String>,
    pub(super) messages: u32,
    /// Bytes of those that are sent which are no text; `None`: the prompt that is billed is not what the body
    /// holds.
    pub(super) encoded: Option<u64>,
    pub(super) state: State,
    pub(super) why: Option<String>,
    /// The decisions in force on the wire, or, observing, those that would be.
    pub(super) applied: Arc<[Applied]>,
    pub(super) fresh: usize,
    /// The kinds of changes that leave, in the same sense.
    pub(super) kinds: Kinds,
    /// The splice in force, in the same sense.
    pub(super) splice: Option<Arc<Splice>>,
    /// The splice was made with this request.
    pub(super) spliced: bool,
    /// Whatever the provider is asked to keep of it is to last for long.
    pub(super) kept_long: bool,
    /// What stands before its messages is marked by the gateway.
    pub(super) frame_mark: Option<FrameMark>,
    /// The provider's cache, where it may keep prompts for longer than it promises.
    pub(super) uncertain: Option<Uncertain>,
    /// What the client does about its history.
    pub(super) compaction: Option<Compaction>,
    /// The change to old parts that this request carries.
    pub(super) event: Option<Event>,
    /// How full the window is, before the event.
    pub(super) level: Option<Level>,
    /// Calls made again whose results had been cleared.
    pub(super) recalls: u32,
    /// The settings that hold for it; `None`: it could not be read.
    pub(super) tuning: Option<Arc<Tuning>>,
    /// Observing: what it would have been; `None`: that is not known.
    pub(super) would: Option<Would>,
}

/// The form that a request would have been sent in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Would {
    /// Bytes of its body.
    pub(super) bytes: u64,
    /// Those of them that are no text; `None`: the body does not hold the whole prompt.
    pub(super) encoded: Option<u64>,
    /// Bytes of text that it carries less than the client sent.
    pub(super) spared: u64,
}

impl RequestFacts {
    /// Whether the model refuses reasoning when something before it is not what it was sent, as in the original.
    pub(super) fn is_bound(&self) -> bool {
        self.was_edited() && self.model.as_deref().and_then(usage::binding) == Some(Binding::Refused)
    }

    /// Whether something that was sent before was sent in another form than it came.
    pub(super) fn was_edited(&self) -> bool {
        let place = self.place.as_ref().filter(|place| place.sent > 0);
        place.is_some_and(Place::is_edited)
    }

    /// Bytes of text that the decisions and the splice spare.
    pub(super) fn spared(&self) -> u64 {
        let decided: u64 = self.applied.iter().map(|applied| applied.decision.bytes_spared()).sum();
        decided + self.splice.as_ref().map_or(0, |splice| splice.bytes_spared())
    }

    /// The thread that it belongs to, and the empty history of its sender.
    pub(super) fn thread(&self) -> Option<(Chain, &Thread)> {
        let place = self.place.as_ref().map(|place| (place.root, &place.thread));
        place.or_else(|| self.goes_on_in.as_ref().map(|(root, thread)| (*root, thread)))
    }

    /// The conversation that the request with this record is booked on.
    pub(super) fn conversation(&self, record: &str) -> String {
        let thread = self.thread().map(|(_, thread)| &thread.conversation);
        let known = thread.or(self.caller.session.as_ref()).or(self.series.as_ref());
        known.map_or_else(|| record.to_owned(), String::clone)
    }
}

/// What was decided about a request, now and before.
#[derive(Default)]
pub(super) struct InForce {
    pub(super) applied: Arc<[Applied]>,
    pub(super) fresh: usize,
    pub(super) kinds: Kinds,
    pub(super) splice: Option<Arc<Splice>>,
    pub(super) spliced: bool,
    pub(super) marks_frame: bool,
}

impl InForce {
    pub(super) fn of(outcome: Outcome) -> Self {
        let (kinds, marks_frame) = (outcome.plan.kinds(), outcome.marks.frame.is_some());
        let Outcome { applied, fresh, splice, spliced, .. } = outcome;
        Self { applied: applied.into(), fresh, kinds, splice, spliced, marks_frame }
    }

    pub(super) fn of_plan(outcome: &Outcome) -> Self {
        let applied = outcome.applied.as_slice().into();
        let (splice, spliced) = (outcome.splice.clone(), outcome.spliced);
        let (kinds, marks_frame) = (outcome.plan.kinds(), outcome.marks.frame.is_some());
        Self { applied, fresh: outcome.fresh, kinds, splice, spliced, marks_frame }
    }
}

impl Rewritten {
    /// A request that leaves as it came.
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

    /// What leaves of it; as it came, that is `body`.
    pub(super) fn leaving<'a>(&'a self, body: &'a Bytes) -> Leaving<'a> {
        let body = self.body.as_ref().unwrap_or(body);
        let Some(reading) = self.reading.as_deref() else { return Leaving::Unread(body) };
        let read = reading.edited.as_ref().unwrap_or(&reading.conversation);
        debug_assert!(read.body == *body, "what leaves is what was read last");
        Leaving::Read(read)
    }

    pub(super) fn unread(
        headers: &http::HeaderMap,
        asked: RequestContext<'_>,
        why: String,
        series: String,
    ) -> Self {
        let (caller, model) = (lineage::caller(headers, None), asked.model.map(str::to_owned));
        Self::of(RequestFacts {
            caller,
            model,
            why: Some(why),
            series: Some(series),
            ..RequestFacts::default()
        })
    }

    /// A request in which there is nothing to change.
    pub(super) fn unchanged(headers: &http::HeaderMap, model: Option<String>, series: String) -> Self {
        let (caller, state) = (lineage::caller(headers, None), State::Unchanged);
        Self::of(RequestFacts { caller, model, state, series: Some(series), ..RequestFacts::default() })
    }

    pub(super) fn with(mut self, event: Option<Event>, (level, recalls): (Option<Level>, u32)) -> Self {
        (self.facts.event, self.facts.level, self.facts.recalls) = (event, level, recalls);
        self
    }
}
