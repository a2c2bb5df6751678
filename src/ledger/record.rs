//! One request's record, as it stands in the conversation's log: a line of JSON made to be read with `less`
//! and `jq`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::store::LedgerRow;
use crate::usage::{Bill, Money, Tokens};

/// What is written down of one request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// When the request came, RFC 3339 with milliseconds.
    pub time: String,
    /// The record's id, ordered by time.
    pub id: String,
    /// The conversation it is booked on.
    pub conversation: String,
    /// The client's name for its run.
    pub session: Option<String>,
    /// The thread of messages it belongs to.
    pub thread: Option<String>,
    /// The thread that one branched from.
    pub parent: Option<String>,
    /// The sub-agent that sent it.
    pub agent: Option<String>,
    /// How it goes on from what was sent before: `new`, `continue`, `retry`, `fork`.
    pub relation: Option<String>,
    /// The client program.
    pub client: Option<String>,
    /// The wire dialect.
    pub protocol: String,
    /// Where it went.
    pub upstream: String,
    /// The model that was asked for.
    pub model_asked: Option<String>,
    /// The model that answered; the one that is billed.
    pub model: Option<String>,
    /// The provider's id of the answer.
    pub answer: Option<String>,
    /// Messages in the request.
    pub messages: u32,
    /// The answer's HTTP status; null when there was none.
    pub status: Option<u16>,
    /// How it ended: `complete`, `upstream_broke`, `client_gone`, `failed`.
    pub outcome: String,
    /// Why the model stopped, in the provider's word.
    pub stop: Option<String>,
    /// What went wrong.
    pub error: Option<String>,
    /// The provider's figures; null when it gave none.
    pub tokens: Option<Tokens>,
    /// The answer broke off: the output figure is a lower bound.
    pub output_is_lower_bound: bool,
    /// What it cost; null when the usage or the price is not known.
    pub cost: Option<Cost>,
    /// Size of the request.
    pub bytes: Bytes,
    /// What was done to it.
    pub edits: Edits,
    /// How long things took.
    pub timing: Timing,
}

/// Money, in pico-dollars (millionths of a millionth of a US dollar), exact.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cost {
    /// The sum, in dollars, for readers.
    pub usd: String,
    /// Uncached prompt tokens.
    pub input: i64,
    /// Tokens read from the provider's cache.
    pub cache_read: i64,
    /// Tokens written to it.
    pub cache_write: i64,
    /// Output tokens.
    pub output: i64,
    /// Searches that the provider made.
    pub searches: i64,
    /// The sum; where only the provider's own total is known, the kinds are 0.
    pub total: i64,
    /// Where the price is from: `embedded 2026-11-21`, `config`, `provider`.
    pub price: String,
}

impl Cost {
    /// A bill as the books keep it.
    pub fn of(bill: &Bill) -> Self {
        // The integer holds nine million dollars a request.
        let pico = |money: Money| i64::try_from(money.picodollars()).unwrap_or(i64::MAX);
        let lines = bill.lines.unwrap_or_default();
        Self {
            usd: bill.total.usd(),
            input: pico(lines.input),
            cache_read: pico(lines.cache_read),
            cache_write: pico(lines.cache_write),
            output: pico(lines.output),
            searches: pico(lines.searches),
            total: pico(bill.total),
            price: bill.source.to_string(),
        }
    }
}

/// Sizes of the request body.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bytes {
    /// As the client sent it, decoded.
    pub received: u64,
    /// As it went upstream.
    pub sent: u64,
    /// Bytes of text that this request would have carried more without the gateway.
    pub saved: u64,
    /// The same in tokens: an estimate.
    pub saved_tokens_estimate: u64,
}

/// What was done to a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Edits {
    /// What became of it: `edited`, `unchanged`, `observed` (would have been edited), `set_aside` (an edit was
    /// refused by the provider before, nothing of this thread is edited), `unread`.
    pub state: String,
    /// Why it was not read or not edited, where that is not by plan.
    pub why: Option<String>,
    /// Parts sent in another form than they came, by what changed them.
    pub parts: BTreeMap<String, u32>,
    /// How many of these were decided with this request.
    pub decided: u32,
    /// The provider refused the edited request and was sent the original.
    pub original_resent: bool,
    /// Reasoning blocks that the provider says it dropped.
    pub reasoning_dropped: u32,
}

/// How long things took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Timing {
    /// In the gateway before the request left, in microseconds.
    pub gateway_us: u64,
    /// From arrival to the answer's head, in milliseconds.
    pub head_ms: Option<u64>,
    /// From arrival to the first byte of the answer's body, in milliseconds.
    pub first_byte_ms: Option<u64>,
    /// From arrival to the end, in milliseconds.
    pub total_ms: u64,
}

impl Record {
    /// The row that the store keeps of it.
    pub fn row(&self, at_ms: i64) -> LedgerRow {
        LedgerRow {
            id: self.id.clone(),
            at_ms,
            conversation: self.conversation.clone(),
            model: self.model.clone().or_else(|| self.model_asked.clone()),
            client: self.client.clone(),
            cost: self.cost.as_ref().map(|cost| cost.total),
            record: serde_json::to_string(self).unwrap_or_default(),
        }
    }
}
