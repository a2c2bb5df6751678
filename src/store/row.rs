//! The rows that go into a store and come back, as plain data, independent of how the store keeps them.

use std::sync::Arc;

use super::summaries::Summary;
use crate::conversation::{Chain, Digest};
use crate::planner::{Decision, Save, Splice};

/// A growing list of messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    /// Its id, ordered by time.
    pub id: String,
    /// The conversation it is booked on.
    pub conversation: String,
    /// The client's own name for its run, if it has one.
    pub session: Option<String>,
    /// The thread it branched from.
    pub parent: Option<String>,
    /// The history of its newest request.
    pub head: Chain,
    /// Whether it is set aside: nothing in it is edited any more, because an edit was refused.
    pub observe: bool,
    /// If it is set aside, the shortest history that was refused with that edit. Everything shorter was accepted in the
    /// form that was sent. `None` if it is not known.
    pub refused: Option<Chain>,
    /// When its newest request came, in milliseconds since 1970.
    pub at_ms: i64,
}

/// A history that a thread has sent, alone or with more after it. It may also be the name under which a provider
/// holds a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boundary {
    /// The history.
    pub chain: Chain,
    /// The thread that the request belonged to.
    pub thread: String,
}

/// A decision and the histories it applies to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDecision {
    /// The history that ends with the message.
    pub chain: Chain,
    /// The part's place in the message.
    pub part: u32,
    /// The shortest history that was never sent without it: up to its own message or, if an event decided about a
    /// part that had been sent differently, up to the first new message of the event's request.
    pub since: Chain,
    /// The empty history of the principal.
    pub root: Chain,
    /// What was decided.
    pub decision: Arc<Decision>,
}

/// A splice and the histories it applies to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSplice {
    /// The history of exactly the messages up to its end.
    pub chain: Chain,
    /// The shortest history that was never sent without it: up to the first new message of its event's request.
    pub since: Chain,
    /// The empty history of the principal.
    pub root: Chain,
    /// What was decided.
    pub splice: Arc<Splice>,
}

/// What a thread still relies on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Used {
    /// Its id.
    pub thread: String,
    /// The histories under which decisions were made that apply to it.
    pub chains: Vec<Chain>,
}

/// A model's context window at an upstream, as the provider stated it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredWindow {
    /// The upstream's base URL, because its name may be reused.
    pub upstream: String,
    /// The model, as requests name it.
    pub model: String,
    /// The window in tokens; `None` if what was stated has turned out to be wrong.
    pub tokens: Option<u64>,
    /// When it was stated, in milliseconds since 1970.
    pub at_ms: i64,
}

/// What is missing from a history that a provider holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredLacking {
    /// The key of the history.
    pub history: Digest,
    /// The number of missing tokens; `None` if unknown.
    pub tokens: Option<u64>,
    /// When the request came that established this, in milliseconds since 1970.
    pub at_ms: i64,
}

/// A request's record, as the database keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LedgerRow {
    /// The record's id, ordered by time.
    pub id: String,
    /// When the request came, in milliseconds since 1970.
    pub at_ms: i64,
    /// The conversation it is booked on.
    pub conversation: String,
    /// The model that is billed.
    pub model: Option<String>,
    /// The client's name.
    pub client: Option<String>,
    /// What it cost, or cost at least, in pico-dollars; `None` if nothing is known of that.
    pub cost: Option<i64>,
    /// The whole record as JSON, without members that have their default value.
    pub record: String,
    /// The record as a line of the conversation's log, without the line end.
    pub line: String,
}

/// Money and tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// Pico-dollars, of which those of unknown cost are a lower bound.
    pub picodollars: i64,
    /// Tokens of prompts and answers.
    pub tokens: u64,
}

impl std::ops::AddAssign for Spent {
    fn add_assign(&mut self, other: Self) {
        self.picodollars = self.picodollars.saturating_add(other.picodollars);
        self.tokens = self.tokens.saturating_add(other.tokens);
    }
}

/// Rows and texts that are stored together, in one transaction.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batch {
    /// Full texts to save first.
    pub saves: Vec<Save>,
    /// Decisions.
    pub decisions: Vec<StoredDecision>,
    /// Whether the decisions replace others under the same history, because those were refused.
    pub overrule: bool,
    /// Splices.
    pub splices: Vec<StoredSplice>,
    /// Summaries that are ready.
    pub summaries: Vec<Summary>,
    /// Threads, new or with a new head.
    pub threads: Vec<Thread>,
    /// Histories that were sent.
    pub boundaries: Vec<Boundary>,
    /// What is still relied on.
    pub used: Option<Used>,
    /// Windows that providers have stated.
    pub windows: Vec<StoredWindow>,
    /// What is missing from histories that providers hold.
    pub lacking: Vec<StoredLacking>,
    /// Ids of full texts that are still in use.
    pub touch: Vec<String>,
    /// Records for the ledger.
    pub ledger: Vec<LedgerRow>,
    /// Remove the full texts that were last in use before this time, in milliseconds since 1970.
    pub forget_outputs: Option<i64>,
    /// Remove the ledger's rows from before this time, and the logs to which nothing was added since.
    pub forget_ledger: Option<i64>,
    /// Remove what was decided about threads whose last request came before this time.
    pub forget_threads: Option<i64>,
    /// The time of the batch, in milliseconds since 1970.
    pub at_ms: i64,
}

impl Batch {
    /// Whether it contains decisions, so that a request must wait until it is stored.
    pub fn decides(&self) -> bool {
        !self.decisions.is_empty() || !self.splices.is_empty()
    }
}
