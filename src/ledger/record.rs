//! The record of one request, as stored in the conversation's log: a line of JSON, for `less` and `jq`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::cost::{Cost, Counterfactual};
use super::line::forms;
use super::words::{Outcome, Prefix, State, Term, Used};
use crate::store::LedgerRow;
use crate::usage::{self, BYTES_PER_TOKEN, Bill, Money, Tokens, Usage};

/// One of a few words of the gateway's own: borrowed, unless it was read from a store or contains a date.
pub type Word = Cow<'static, str>;

/// The record of one request. Its fields are in the order of the log.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    // What the request is, and where it belongs.
    /// When the request arrived, in RFC 3339 with milliseconds. A call of the gateway's own: when it was sent.
    pub time: String,
    /// The record's id, ordered by time.
    pub id: String,
    /// The conversation that it is booked on.
    pub conversation: String,
    /// The client's name for its session.
    pub session: Option<String>,
    /// The thread of messages that it belongs to.
    pub thread: Option<String>,
    /// The thread that this one branched from.
    pub parent: Option<String>,
    /// The sub-agent that sent it.
    pub agent: Option<String>,
    /// How it relates to what was sent before: `new`, `continue`, `retry`, `fork`.
    pub relation: Option<Word>,

    // Who sent it, and to whom.
    /// The client program.
    pub client: Option<String>,
    /// The wire dialect.
    pub protocol: Word,
    /// The upstream that it was sent to.
    pub upstream: String,
    /// The model that the client asked for.
    pub model_asked: Option<String>,
    /// The model that answered, which is the one that is billed.
    pub model: Option<String>,
    /// The provider's id for the answer.
    pub answer: Option<String>,
    /// How long a background request may take, at a discount that is in no price list; null for `soonest`.
    pub completion_window: Option<String>,

    // Its place in the conversation.
    /// The number of messages in the request.
    pub messages: u32,
    /// How many of them were in an earlier request.
    pub prior: u32,
    /// The number of the user's turn that it belongs to, from 1; 0 if the request was not read.
    pub turn: u32,
    /// Its number among the requests of that turn, from 1; 0 if the request was not read.
    pub step: u32,

    // How it ended.
    /// The HTTP status of the answer; null if there was none.
    pub status: Option<u16>,
    /// How it ended: `complete`; `upstream_broke` (the answer broke off; without a status it never began, and the cost
    /// is unknown); `client_gone`; `stopped` (the gateway was stopped); `failed` (it never reached an upstream); or
    /// `pending`. In that case the provider goes on with it and reports its usage only to a later request: when that
    /// has passed through, the record is booked again with the figures, under the same id, and this one no longer
    /// counts. For a call of the gateway's own, the gateway is the client, so `client_gone` means that
    /// `summarize.timeout` has passed.
    pub outcome: Term<Outcome>,
    /// Why the model stopped, in the provider's terms.
    pub stop: Option<String>,
    /// What went wrong; of a provider's text, the first 2,000 characters.
    pub error: Option<String>,

    // What it used and what it cost.
    /// The provider's figures; null if it gave none.
    pub tokens: Option<Tokens>,
    /// Whether the answer broke off, so that `tokens.output` is a lower bound.
    pub output_is_lower_bound: bool,
    /// Whether the provider's figures leave out the length of the prompt, so that `tokens.input` means nothing.
    pub prompt_is_unknown: bool,
    /// Whether they leave out that of the answer, although it did not break off: `tokens.output` means nothing.
    pub output_is_unknown: bool,
    /// What it cost; null if the price or the usage, whether of the prompt or of the output, is unknown, or if the
    /// price depends on the length of a prompt of which only the sum with others is known.
    pub cost: Option<Cost>,
    /// What it cost at least, in pico-dollars, if the cost is null: for budgets alone, and only in the store's row.
    #[serde(skip)]
    pub min_cost: Option<i64>,
    /// Charges besides tokens for which no price is known: `grounding`, `web_search`, `file_search`, `code_execution`,
    /// `image_generation`, `server_tools`. The cost, then a lower bound, leaves these out.
    pub unpriced_charges: Vec<String>,

    // What it would have cost otherwise.
    /// The request as it would have been without the gateway, including what was removed from requests that it
    /// continues (`previous_response_id`, message threads). Null if that cannot be determined: if its past is unknown,
    /// if it would have been too long for the window, or if it or what it continues is or would have been so long that
    /// the provider removes parts by itself, as the client asks it to (`context_management`).
    pub counterfactual: Option<Counterfactual>,
    /// The cost of the counterfactual less the real one, in pico-dollars: negative if the gateway made the request more
    /// expensive, null if either is unknown.
    pub net_saved: Option<i64>,
    /// In `observe` mode, what rewriting would have saved, in pico-dollars, an estimate: negative if it would have made
    /// the request more expensive; null if it is unknown, as `counterfactual` may be, or in `rewrite` mode.
    pub would_have_saved_estimate: Option<i64>,

    // What was sent.
    /// Whether what was sent before is a prefix of what was sent now: `kept`, `broken`; null if nothing was sent
    /// before.
    pub prefix: Option<Term<Prefix>>,
    /// What the prompt consists of, as it was sent; null if it was not read.
    pub prompt: Option<Shares>,
    /// The call that the agent repeats, if the turn ends with repetitions; null otherwise.
    pub doom_loop: Option<DoomLoop>,
    /// The states of the tool calls in the prompt, as it was sent; null if it was not read.
    pub calls: Option<Calls>,
    /// The files that new calls write, as the calls spell them, in order: the first 32, without paths of more than 300
    /// bytes. Failed calls are left out; of shell commands, only files that a patch names are included.
    pub files: Vec<String>,
    /// Its sizes.
    pub bytes: BodySizes,
    /// How it was changed.
    pub edits: Edits,

    // The limits that apply to it, and the time that it took.
    /// How full the model's window is with it; null if it was not read.
    pub window: Option<Window>,
    /// The limit of `[budget]` that was reached, or nearly, when the request arrived; null otherwise.
    pub budget: Option<Budget>,
    /// How long things took.
    pub timing: Timing,

    // What is special about it.
    /// How often the request was sent before and refused because its prompt was too long; each attempt has a record of
    /// its own.
    pub attempt: u32,
    /// Whether the provider refused it because its prompt was too long.
    pub overflow: bool,
    /// Whether the client compacts its own history: `asked` for a summary with this request, or `continued` from one;
    /// null for neither.
    pub compaction: Option<Word>,
    /// The profile whose settings apply to the conversation; null for the file's own.
    pub profile: Option<String>,
    /// What a call of the gateway's own for this conversation was for; null for requests of the client.
    pub own: Option<OwnCall>,
}

/// A limit of `[budget]` that was reached, or nearly.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Budget {
    /// `near`, `spent`.
    pub state: Term<Used>,
    /// Its key in the configuration.
    pub limit: String,
    /// The amount used and the limit, in words.
    pub used: String,
}

/// A call of the gateway's own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnCall {
    /// Its purpose: `summary`.
    pub purpose: String,
    /// The number of messages that the summary replaces; 0 if there is no summary.
    pub messages: u32,
    /// The number of summaries of the thread so far, including this one.
    pub generation: u32,
    /// The size of the summary in bytes.
    pub bytes: u64,
    /// The share of the paths, names, numbers and error messages in those messages that the summary preserves, from 0
    /// to 1; null if there were none.
    pub score: Option<f64>,
}

/// What a prompt consists of, in estimated tokens; and if its instructions differ from the thread's previous ones,
/// where they do: everything after that place has to be written to the provider's cache again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Shares {
    /// Definitions of tools.
    pub tools: u64,
    /// Instructions.
    pub system: u64,
    /// Text and images of the user.
    pub user: u64,
    /// Text and calls of the model.
    pub assistant: u64,
    /// Reasoning of the model.
    pub reasoning: u64,
    /// Results of tools.
    pub results: u64,
    /// The number of bytes of the instructions' text before the first change; null if nothing changed.
    pub volatile_at: Option<u64>,
    /// The line of the first byte that changed, from 1; null if nothing changed.
    pub volatile_line: Option<u64>,
}

/// Tool calls by state: each call is in exactly one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Calls {
    /// Calls without a result.
    pub pending: u32,
    /// Calls with a result.
    pub completed: u32,
    /// Calls with a result that reports a failure of the tool.
    pub error: u32,
    /// Calls whose result is replaced by a placeholder.
    pub cleared: u32,
}

/// A call that was made at least three times in a row within one turn.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DoomLoop {
    /// The name of the tool.
    pub tool: String,
    /// The number of times it was called.
    pub calls: u32,
    /// Whether the results were the same, too; null if there are fewer than two.
    pub same_results: Option<bool>,
}

impl Shares {
    /// Tokens of the whole prompt.
    pub const fn all(&self) -> u64 {
        self.tools + self.system + self.user + self.assistant + self.reasoning + self.results
    }
}

impl DoomLoop {
    /// How its results compare: `same`, `different`, `unknown`.
    pub const fn results(&self) -> &'static str {
        match self.same_results {
            Some(true) => "same",
            Some(false) => "different",
            None => "unknown",
        }
    }
}

/// Sizes of the request body.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BodySizes {
    /// As the client sent it, after decoding.
    pub received: u64,
    /// As it was sent upstream.
    pub sent: u64,
    /// Bytes of text by which the request would have been longer without the gateway, if it was answered.
    pub saved: u64,
    /// The same in tokens, an estimate.
    pub saved_tokens_estimate: u64,
    /// In `observe` mode, bytes of text by which rewriting would have made the request shorter.
    pub would_have_saved: u64,
    /// The same in tokens, an estimate.
    pub would_have_saved_tokens_estimate: u64,
}

/// How a request was changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Edits {
    /// The overall result: `edited`, `unchanged`, `observed` (it would have been edited), `set_aside` (nothing of this
    /// thread is edited, since the provider refused an edit before), `unread`.
    pub state: Term<State>,
    /// Why it was not read or not edited, unless that is intended; what the provider said of a refused form, cut.
    pub why: Option<String>,
    /// Who else clears and summarises old parts, because the client asks it to: `provider`; the gateway then does so
    /// only if the window forces it. Null if nobody does.
    pub deferred: Option<Word>,
    /// The number of parts that were sent in another form, by rule.
    pub parts: BTreeMap<String, u32>,
    /// How many of these were decided with this request.
    pub decided: u32,
    /// The decisions made with this request, which hold from now on.
    pub made: Vec<Made>,
    /// A change to old parts, which the provider has to write to its cache again.
    pub event: Option<Event>,
    /// Messages that are not sent, and what replaces them.
    pub splice: Option<Splice>,
    /// Whether marks for the provider's cache were set.
    pub marked: bool,
    /// Members of the body outside its messages that were added or extended: `prompt_cache_key`, `stream_options`.
    /// These alone do not make the request an edited one.
    pub added: Vec<String>,
    /// Whether the provider refused the edited request and was then sent the original.
    pub original_resent: bool,
    /// The number of reasoning blocks that the provider reports as dropped.
    pub reasoning_dropped: u32,
    /// The number of calls that came with this request and had been made before, with a result that had been cleared.
    pub recalls: u32,
}

/// A decision to send a part in another form from now on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Made {
    /// The message, counted from 0.
    pub message: u32,
    /// The part within it, counted from 0.
    pub part: u32,
    /// The tool whose result or call it is; null if unknown.
    pub tool: Option<String>,
    /// The rules that made the decision, joined by `+`.
    pub rules: String,
    /// Bytes of the text before, including images, as they are counted.
    pub before: u64,
    /// Bytes of the text that is sent instead.
    pub after: u64,
    /// A digest of the part's content.
    pub content: String,
    /// The id of the stored full text.
    pub output: Option<String>,
    /// A digest of the history up to and including the message, which is the key that the decision is stored by; null
    /// if it was not stored.
    pub chain: Option<String>,
}

/// Messages that are not sent, and what replaces them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Splice {
    /// What replaces them: a `note` that they are gone, or a `summary`.
    pub rule: String,
    /// The number of messages.
    pub messages: u32,
    /// The index of the first of them, from 0.
    pub first: u32,
    /// The index after the last of them.
    pub end: u32,
    /// Their size in bytes, including images, as they are counted.
    pub before: u64,
    /// Bytes of the text in their place.
    pub after: u64,
    /// Whether it was made with this request.
    pub made: bool,
    /// The id of the stored full text.
    pub output: Option<String>,
}

/// A change to old parts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Event {
    /// Why it was allowed: `window`, `cold`, `uncached`, `break-even`, `budget`, `eager`.
    pub reason: Word,
    /// The number of results that were cleared.
    pub cleared: u32,
    /// Bytes by which this request and all later ones are shorter.
    pub freed_bytes: u64,
    /// Bytes that the provider has to write to its cache again, an estimate.
    pub rewritten_bytes: u64,
    /// The first message that changed, counted from 0.
    pub first_message: u32,
    /// How room was made: `clear`, `ready`, `arguments`, `turns`, `half`, `cut`.
    pub rung: Word,
    /// The number of messages that are no longer sent.
    pub dropped: u32,
    /// The number of results that were cut although they came with this request.
    pub cut: u32,
    /// The number of reasoning blocks that are no longer sent: those of earlier turns, or all if they were bound to
    /// what changed.
    pub reasoning: u32,
    /// The number of calls that are sent without the long texts in their arguments.
    pub abridged: u32,
    /// The preset that its settings are based on; empty if that was not recorded.
    pub preset: Word,
}

/// How full the model's window is. Except for `zone_sent`, as measured before the request left, counting what had been
/// decided by then, before an event; in `observe` mode, counting what would have been decided.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Window {
    /// Tokens of the prompt: the provider's figure for the last request, plus an estimate for what is new.
    pub prompt_tokens_estimate: u64,
    /// The size of the window in tokens; null if unknown.
    pub tokens: Option<u64>,
    /// Tokens reserved for the answer.
    pub reserved: Option<u64>,
    /// Tokens that instructions, tool definitions, a summary and the answer leave for the history, an estimate; null if
    /// the window is unknown.
    pub history_budget_estimate: Option<u64>,
    /// The zone by `prompt_tokens_estimate`: `green`, `yellow`, `orange`, `red`.
    pub zone: Option<Word>,
    /// The zone of what was sent, by the provider's figure; null if it gave none, or only a sum over several calls of
    /// the model that its own tools made.
    pub zone_sent: Option<Word>,
    /// Tokens per request by which the prompt grows, averaged over the last ones; null for a repeated request.
    pub velocity: Option<i64>,
    /// Requests until the zone is red, at that velocity; null if the prompt does not grow.
    pub steps_until_red: Option<u64>,
    /// Whether it grows several times as fast as usual.
    pub spike: bool,
}

/// The zone of the model's window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Zone {
    /// Its name: `green`, `yellow`, `orange`, `red`.
    pub name: Word,
    /// Whether it is estimated, rather than by the provider's figure.
    pub estimated: bool,
}

/// How long the stages of a request took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Timing {
    /// From when the request had been read, or was refused, until it left, in microseconds.
    pub gateway_us: u64,
    /// From the request's arrival to the head of the answer, in milliseconds.
    pub head_ms: Option<u64>,
    /// From its arrival to the first byte of the answer's body, in milliseconds.
    pub first_byte_ms: Option<u64>,
    /// From its arrival to the end of the answer, in milliseconds.
    pub total_ms: u64,
}

impl Edits {
    /// Whether an edited request was sent, and not replaced by the original.
    pub fn were_sent(&self) -> bool {
        self.state == State::Edited && !self.original_resent
    }
}

impl Record {
    /// Tokens of the prompt; `None` if the provider's figures do not tell.
    pub fn prompt_tokens(&self) -> Option<u64> {
        self.tokens.filter(|_| !self.prompt_is_unknown).map(|tokens| tokens.prompt())
    }

    /// Tokens of the summary or note that was sent in place of messages, an estimate; 0 if none was.
    pub fn memory(&self) -> u64 {
        let splice = self.edits.splice.as_ref().filter(|_| self.edits.were_sent());
        splice.map_or(0, |splice| splice.after / BYTES_PER_TOKEN)
    }

    /// The zone of what was sent, by the provider's figure, or else as estimated, if what was measured is what was
    /// sent.
    pub fn zone(&self) -> Option<Zone> {
        let window = self.window.as_ref()?;
        let is_as_measured =
            self.edits.event.is_none() && self.edits.state != State::Observed && !self.edits.original_resent;
        let measured = window.zone_sent.clone().map(|name| Zone { name, estimated: false });
        let estimated =
            || Some(Zone { name: window.zone.clone().filter(|_| is_as_measured)?, estimated: true });
        measured.or_else(estimated)
    }

    /// Whether what was sent before is not a prefix of what was sent now.
    pub fn breaks_prefix(&self) -> bool {
        self.prefix.as_ref().is_some_and(|prefix| *prefix == Prefix::Broken)
    }

    /// Whether the provider gave figures, but not all of those that the cost depends on.
    pub fn lacks_figures(&self) -> bool {
        self.prompt_is_unknown || self.output_is_unknown
    }

    /// What counts towards budgets in dollars: the cost, or what it was at least, in pico-dollars.
    pub fn known_cost(&self) -> Option<i64> {
        self.cost.as_ref().map(|cost| cost.total).or(self.min_cost)
    }

    /// Sets the provider's figures, and their bill or the `least` they cost; `complete`: the answer reached its end.
    pub fn put_usage(&mut self, usage: &Usage, bill: Option<&Bill>, least: Option<Money>, complete: bool) {
        self.tokens = Some(usage.billed_tokens());
        self.output_is_lower_bound = !complete;
        self.prompt_is_unknown = usage.prompt_is_unknown;
        self.output_is_unknown = usage.output_is_unknown;
        self.unpriced_charges = usage::unpriced_names(usage, bill);
        self.cost = bill.map(Cost::of);
        self.min_cost = least.filter(|_| bill.is_none()).map(super::cost::pico);
    }

    /// The row that the store keeps of the record.
    pub fn into_row(self: Box<Self>, at_ms: i64) -> LedgerRow {
        let (forms, cost) = (forms(&*self), self.known_cost());
        LedgerRow {
            id: self.id,
            at_ms,
            conversation: self.conversation,
            model: self.model.or(self.model_asked),
            client: self.client,
            cost,
            record: forms.terse,
            line: forms.whole,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::usage::{CostBreakdown, Source};

    fn splice() -> Splice {
        Splice {
            rule: "summary".to_owned(),
            messages: 2,
            first: 1,
            end: 3,
            before: 9_000,
            after: 700,
            made: true,
            output: None,
        }
    }

    fn shares() -> Shares {
        Shares {
            tools: 9_000,
            system: 3_000,
            user: 40,
            assistant: 900,
            reasoning: 60,
            results: 28_912,
            volatile_at: Some(4_000),
            volatile_line: Some(80),
        }
    }

    fn bill() -> Bill {
        let lines = CostBreakdown {
            input: Money::from_picodollars(24_000_000),
            cache_read: Money::from_picodollars(4_100_000_000),
            cache_write: Money::from_picodollars(2_250_000_000),
            output: Money::from_picodollars(3_100_000_000),
            searches: Money::ZERO,
        };
        let cache_saved = Some(Money::from_picodollars(118_450_000_000));
        Bill { total: lines.total(), lines: Some(lines), cache_saved, source: Source::Embedded("2026-11-21") }
    }

    fn own() -> OwnCall {
        OwnCall { purpose: "summary".to_owned(), messages: 40, generation: 2, bytes: 9000, score: Some(0.5) }
    }

    fn full() -> Record {
        let text = |text: &str| Some(text.to_owned());
        let word = |word: &'static str| Some(Word::from(word));
        let bill = bill();
        Record {
            time: "2026-11-21T10:02:03.004Z".to_owned(),
            id: "019a-1".to_owned(),
            conversation: "c-1".to_owned(),
            session: text("c-1"),
            thread: text("019a-0"),
            parent: None,
            agent: text("explore"),
            relation: word("continue"),
            client: text("claude-cli/2.1.305"),
            protocol: "anthropic".into(),
            upstream: "anthropic".to_owned(),
            model_asked: text("claude-sonnet-5-5"),
            model: text("claude-sonnet-5-5"),
            answer: text("msg_1"),
            messages: 7,
            prior: 5,
            turn: 1,
            step: 4,
            status: Some(200),
            outcome: Outcome::Complete.into(),
            stop: text("tool_use"),
            error: None,
            tokens: Some(Tokens {
                input: 12,
                cache_read: 41_000,
                cache_write_5m: 900,
                output: 310,
                reasoning: 120,
                ..Tokens::default()
            }),
            output_is_lower_bound: false,
            cost: Some(Cost::of(&bill)),
            unpriced_charges: vec!["grounding".to_owned()],
            counterfactual: Some(Counterfactual {
                tokens: Tokens { cache_read: 52_000, output: 310, reasoning: 120, ..Tokens::default() },
                cost: Some(9_000_000_000),
                estimated: true,
            }),
            net_saved: Some(-474_000_000),
            prefix: Some(Prefix::Broken.into()),
            prompt: Some(shares()),
            doom_loop: Some(DoomLoop { tool: "Read".to_owned(), calls: 3, same_results: Some(true) }),
            calls: Some(Calls { pending: 1, completed: 40, error: 0, cleared: 3 }),
            files: vec!["/w/a.rs".to_owned()],
            bytes: BodySizes {
                received: 200_000,
                sent: 160_000,
                saved: 40_000,
                saved_tokens_estimate: 10_000,
                would_have_saved: 0,
                would_have_saved_tokens_estimate: 0,
            },
            edits: edits(),
            window: Some(Window {
                prompt_tokens_estimate: 42_000,
                tokens: Some(200_000),
                reserved: Some(4096),
                history_budget_estimate: None,
                zone: word("green"),
                zone_sent: word("green"),
                velocity: Some(1200),
                steps_until_red: Some(114),
                spike: false,
            }),
            budget: Some(Budget {
                state: Used::Near.into(),
                limit: "budget.day_usd".to_owned(),
                used: "$9.00 of $10.00".to_owned(),
            }),
            timing: Timing { gateway_us: 412, head_ms: Some(800), first_byte_ms: Some(801), total_ms: 4000 },
            attempt: 1,
            own: Some(own()),
            ..Record::default()
        }
    }

    fn edits() -> Edits {
        let text = |text: &str| Some(text.to_owned());
        Edits {
            state: State::Edited.into(),
            parts: BTreeMap::from([("escapes".to_owned(), 1), ("truncate".to_owned(), 2)]),
            decided: 1,
            made: vec![Made {
                message: 6,
                part: 0,
                tool: text("Bash"),
                rules: "escapes+truncate".to_owned(),
                before: 61_440,
                after: 13_227,
                content: "0c".to_owned(),
                output: text("0a"),
                chain: text("0d"),
            }],
            event: Some(Event {
                reason: "break-even".into(),
                cleared: 3,
                freed_bytes: 24_000,
                rewritten_bytes: 5_000,
                first_message: 4,
                rung: "ready".into(),
                dropped: 2,
                cut: 0,
                reasoning: 0,
                abridged: 0,
                preset: "codex".into(),
            }),
            splice: Some(splice()),
            marked: true,
            ..Edits::default()
        }
    }

    /// Users write `jq` filters for it: a field may be added, none may change.
    #[test]
    fn log_lines_have_a_stable_format() {
        let expected = concat!(
            r#"{"time":"2026-11-21T10:02:03.004Z","id":"019a-1","conversation":"c-1","session":"c-1","#,
            r#""thread":"019a-0","parent":null,"agent":"explore","relation":"continue","#,
            r#""client":"claude-cli/2.1.305","protocol":"anthropic","upstream":"anthropic","#,
            r#""model_asked":"claude-sonnet-5-5","model":"claude-sonnet-5-5","answer":"msg_1","#,
            r#""completion_window":null,"messages":7,"prior":5,"turn":1,"step":4,"#,
            r#""status":200,"outcome":"complete","stop":"tool_use","error":null,"#,
            r#""tokens":{"input":12,"cache_read":41000,"cache_write_5m":900,"cache_write_1h":0,"#,
            r#""cache_write_12h":0,"output":310,"reasoning":120},"output_is_lower_bound":false,"#,
            r#""prompt_is_unknown":false,"output_is_unknown":false,"#,
            r#""cost":{"usd":"0.009474","input":24000000,"cache_read":4100000000,"cache_write":2250000000,"#,
            r#""output":3100000000,"searches":0,"total":9474000000,"price":"catalogue 2026-11-21","#,
            r#""cache_saved":118450000000},"#,
            r#""unpriced_charges":["grounding"],"#,
            r#""counterfactual":{"tokens":{"input":0,"cache_read":52000,"cache_write_5m":0,"cache_write_1h":0,"#,
            r#""cache_write_12h":0,"output":310,"reasoning":120},"cost":9000000000,"estimated":true},"#,
            r#""net_saved":-474000000,"would_have_saved_estimate":null,"prefix":"broken","prompt":{"tools":9000,"system":3000,"user":40,"#,
            r#""assistant":900,"reasoning":60,"results":28912,"volatile_at":4000,"volatile_line":80},"#,
            r#""doom_loop":{"tool":"Read","calls":3,"same_results":true},"#,
            r#""calls":{"pending":1,"completed":40,"error":0,"cleared":3},"files":["/w/a.rs"],"#,
            r#""bytes":{"received":200000,"sent":160000,"saved":40000,"saved_tokens_estimate":10000,"would_have_saved":0,"#,
            r#""would_have_saved_tokens_estimate":0},"#,
            r#""edits":{"state":"edited","why":null,"deferred":null,"parts":{"escapes":1,"truncate":2},"decided":1,"#,
            r#""made":[{"message":6,"part":0,"tool":"Bash","rules":"escapes+truncate","before":61440,"after":13227,"#,
            r#""content":"0c","output":"0a","chain":"0d"}],"#,
            r#""event":{"reason":"break-even","cleared":3,"freed_bytes":24000,"rewritten_bytes":5000,"#,
            r#""first_message":4,"rung":"ready","dropped":2,"cut":0,"reasoning":0,"abridged":0,"preset":"codex"},"splice":{"rule":"summary","messages":2,"first":1,"#,
            r#""end":3,"before":9000,"after":700,"made":true,"output":null},"marked":true,"added":[],"original_resent":false,"reasoning_dropped":0,"recalls":0},"#,
            r#""window":{"prompt_tokens_estimate":42000,"tokens":200000,"reserved":4096,"history_budget_estimate":null,"#,
            r#""zone":"green","zone_sent":"green","velocity":1200,"#,
            r#""steps_until_red":114,"spike":false},"#,
            r#""budget":{"state":"near","limit":"budget.day_usd","used":"$9.00 of $10.00"},"#,
            r#""timing":{"gateway_us":412,"head_ms":800,"first_byte_ms":801,"total_ms":4000},"#,
            r#""attempt":1,"overflow":false,"compaction":null,"profile":null,"#,
            r#""own":{"purpose":"summary","messages":40,"generation":2,"bytes":9000,"score":0.5}}"#,
        );
        assert_eq!(Box::new(full()).into_row(0).line, expected);
    }

    #[test]
    fn records_round_trip_in_both_forms() {
        for record in [full(), Record::default(), Record { cost: None, tokens: None, ..full() }] {
            let known = Record { min_cost: Some(7), ..record.clone() };
            let cost = record.cost.as_ref().map_or(7, |cost| cost.total);
            let row = Box::new(known).into_row(1_000);
            assert_eq!((row.cost, row.record), (Some(cost), Box::new(record.clone()).into_row(1_000).record));
            let row = Box::new(record.clone()).into_row(1_000);
            assert!(row.record.len() < row.line.len());
            for form in [&row.record, &row.line] {
                assert_eq!(serde_json::from_str::<Record>(form).unwrap(), record);
            }
            assert_eq!(row.cost, record.cost.map(|cost| cost.total));
        }
    }

    #[test]
    fn a_zone_is_estimated_if_the_provider_gave_no_figure() {
        let window = |sent: Option<&'static str>| Window {
            zone: Some("red".into()),
            zone_sent: sent.map(Into::into),
            ..Window::default()
        };
        let edits = |state: State, event| Edits { state: state.into(), event, ..Edits::default() };
        let event = Some(Event::default());
        for (sent, edits, expected) in [
            (Some("green"), edits(State::Edited, event.clone()), Some(("green", false))),
            (None, edits(State::Edited, None), Some(("red", true))),
            (None, edits(State::Edited, event), None),
            (None, edits(State::Observed, None), None),
            (None, Edits { original_resent: true, ..edits(State::Edited, None) }, None),
        ] {
            let record = Record { window: Some(window(sent)), edits, ..Record::default() };
            let expected = expected.map(|(name, estimated)| Zone { name: name.into(), estimated });
            assert_eq!(record.zone(), expected, "{record:?}");
        }
        assert_eq!(Record::default().zone(), None);
    }

    /// Lines of older and newer versions can be read too.
    #[test]
    fn prompt_tokens_are_known_only_if_the_provider_reported_them() {
        let unknown = Record { prompt_is_unknown: true, ..full() };
        let found = [full(), unknown, Record::default()].map(|record| record.prompt_tokens());
        assert_eq!(found, [Some(41_912), None, None]);
    }

    /// Collects the members of all objects, each with the path of its object; lists count as their items.
    fn members(value: &serde_json::Value, path: &str, all: &mut BTreeSet<(String, String)>) {
        match value {
            serde_json::Value::Array(items) => items.iter().for_each(|item| members(item, path, all)),
            serde_json::Value::Object(fields) => {
                for (name, value) in fields {
                    all.insert((path.to_owned(), name.clone()));
                    members(value, format!("{path}.{name}").trim_start_matches('.'), all);
                }
            }
            _ => {}
        }
    }

    /// Its tables have only fields in backticks.
    #[test]
    fn the_readme_explains_each_field() {
        let readme = include_str!("../../README.md");
        let (_, section) = readme.split_once("### What a record says").unwrap();
        let (section, _) = section.split_once("\n### ").unwrap();
        let mut told = BTreeSet::new();
        for row in section.lines().filter(|line| line.starts_with("| ")) {
            let Some((object, fields)) = row[2..].split_once(" | ") else { continue };
            let object = object.strip_prefix('`').map_or("", |object| object.trim_end_matches('`'));
            let fields = fields.split('`').skip(1).step_by(2);
            told.extend(fields.map(|field| (object.to_owned(), field.to_owned())));
            told.extend(object.split_once('.').map(|(of, field)| (of.to_owned(), field.to_owned())));
            told.extend((!object.contains('.')).then(|| (String::new(), object.to_owned())));
        }
        told.remove(&(String::new(), String::new()));
        let mut written = BTreeSet::new();
        members(&serde_json::to_value(full()).unwrap(), "", &mut written);
        // Rules are names, not fields; the tokens are the same as the other ones.
        let is_field = |path: &str| !["edits.parts", "counterfactual.tokens"].contains(&path);
        let written: BTreeSet<_> = written.into_iter().filter(|(path, _)| is_field(path)).collect();
        let (of, lacking) = (told.difference(&written), written.difference(&told));
        assert!(of.clone().next().is_none(), "no fields: {:?}", of.collect::<Vec<_>>());
        assert!(lacking.clone().next().is_none(), "not explained: {:?}", lacking.collect::<Vec<_>>());
    }

    #[test]
    fn fields_may_be_missing_or_unknown() {
        let read: Record =
            serde_json::from_str(r#"{"id":"x","cost":{"total":5},"bytes":{},"new":[1]}"#).unwrap();
        let cost = Some(Cost { total: 5, ..Cost::default() });
        assert_eq!(read, Record { id: "x".to_owned(), cost, ..Record::default() });
    }
}
