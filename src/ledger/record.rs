//! One request's record, as it stands in the conversation's log: a line of JSON made to be read with `less`
//! and `jq`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::cost::{Cost, Counterfactual};
use super::line::forms;
use super::words::{Outcome, Prefix, State, Term, Used};
use crate::store::LedgerRow;
use crate::usage::{self, Bill, Tokens, Usage};

/// Of a text that was not counted.
const BYTES_PER_TOKEN: u64 = 4;

/// One of a few words of the gateway's own: borrowed, but where it was read from a store or has a date in it.
pub type Word = Cow<'static, str>;

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
    pub relation: Option<Word>,
    /// The client program.
    pub client: Option<String>,
    /// The wire dialect.
    pub protocol: Word,
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
    /// How many of them an earlier request carried.
    pub prior: u32,
    /// Which of the user's turns it belongs to, counted from 1; 0 when it was not read.
    pub turn: u32,
    /// Which of that turn's requests it is, counted from 1; 0 when it was not read.
    pub step: u32,
    /// The answer's HTTP status; null when there was none.
    pub status: Option<u16>,
    /// How it ended: `complete`, `upstream_broke` (in its answer; without a status before that, and what it cost is not
    /// known), `client_gone`, `stopped` (the gateway itself), `failed` (it never reached an upstream), `pending` (the provider
    /// goes on with it, and tells its usage to a later request alone: once that has passed by, the record is booked again
    /// with the figures, under the same id, and this one no longer counts). The client of a call of the gateway's own is the
    /// gateway: it is `client_gone` where `summarize.timeout` has passed.
    pub outcome: Term<Outcome>,
    /// Why the model stopped, in the provider's word.
    pub stop: Option<String>,
    /// What went wrong.
    pub error: Option<String>,
    /// The provider's figures; null when it gave none.
    pub tokens: Option<Tokens>,
    /// The answer broke off: the output figure is a lower bound.
    pub output_is_lower_bound: bool,
    /// The provider's figures do not tell how long the prompt was: `tokens.input` means nothing.
    pub prompt_is_unknown: bool,
    /// They do not tell how long the answer was, although it did not break off: `tokens.output` means nothing.
    pub output_is_unknown: bool,
    /// What it cost; null when the usage, the prompt's and the output's included, or the price is not known.
    pub cost: Option<Cost>,
    /// What the provider charges for beside tokens, and no price is known of: `grounding`, `web_search`, `file_search`,
    /// `code_execution`, `image_generation`, `server_tools`. It is not in the cost, which is a lower bound then.
    pub unpriced_charges: Vec<String>,
    /// What it would have been without the gateway, with what was cut of requests that it continues (`previous_response_id`,
    /// message threads); null when that cannot be told: its past is not known, it would have been too long for the window, or
    /// it or what it continues so long that the provider would have taken parts out of it by itself, as the client asks it to
    /// (`context_management`), or has.
    pub counterfactual: Option<Counterfactual>,
    /// What that would have cost, less what it did cost; negative when the gateway made it dearer, null when one
    /// of them is not known.
    pub net_saved: Option<i64>,
    /// Observing: what rewriting would have saved, in pico-dollars: an estimate. Negative where it would have made the
    /// request dearer; null when it is not known, as with `counterfactual`, or not asked.
    pub would_have_saved_estimate: Option<i64>,
    /// Whether what was sent before is a prefix of what was sent now: `kept`, `broken`; null when nothing was
    /// sent before.
    pub prefix: Option<Term<Prefix>>,
    /// What the prompt is made of, as it was sent; null when it was not read.
    pub prompt: Option<Shares>,
    /// The call that the agent makes again and again, if this turn ends so; null: it does not.
    pub doom_loop: Option<DoomLoop>,
    /// How the calls of tools in the prompt stand, as it was sent; null when it was not read.
    pub calls: Option<Calls>,
    /// The files that new calls write, as these spell them, in order: the first 32, and no path of more than 300 bytes.
    /// Without those of calls that failed, and of shells those alone that a patch names.
    pub files: Vec<String>,
    /// Size of the request.
    pub bytes: Bytes,
    /// What was done to it.
    pub edits: Edits,
    /// How full the model's window is with it; null when it was not read.
    pub window: Option<Window>,
    /// A limit of `[budget]` that was nearly reached, or reached, when the request came; null otherwise.
    pub budget: Option<Budget>,
    /// How long things took.
    pub timing: Timing,
    /// How often the request was sent before, each time with a record of its own, and refused because its prompt
    /// was too long.
    pub attempt: u32,
    /// The provider refused it because its prompt was too long.
    pub overflow: bool,
    /// The client compacts its own history: `asked` for a summary with this request, or `continued` from one. null:
    /// neither.
    pub compaction: Option<Word>,
    /// The profile whose settings hold for the conversation; null: the file's own.
    pub profile: Option<String>,
    /// A call of the gateway's own, for this conversation; null for what the client asked for.
    pub own: Option<Own>,
}

/// A limit of `[budget]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Budget {
    /// `near`, `spent`.
    pub state: Term<Used>,
    /// Its key in the configuration.
    pub limit: String,
    /// How much of how much was used up.
    pub used: String,
}

/// A call of the gateway's own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Own {
    /// What for: `summary`.
    pub purpose: String,
    /// The messages that the summary stands for; 0 if there is none.
    pub messages: u32,
    /// How many summaries there were of the thread, with it.
    pub generation: u32,
    /// Bytes of the text.
    pub bytes: u64,
    /// The share of what can be looked for in the messages that the summary keeps, from 0 to 1; null if there was
    /// nothing.
    pub score: Option<f64>,
}

/// What a prompt is made of, in tokens: estimates. And where its instructions are other than those that the thread had
/// before, if they are: all that stands behind is written to the provider's cache again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Shares {
    /// Definitions of tools.
    pub tools: u64,
    /// Instructions.
    pub system: u64,
    /// What the user said or showed.
    pub user: u64,
    /// What the model said, its calls included.
    pub assistant: u64,
    /// What the model thought.
    pub reasoning: u64,
    /// What tools answered.
    pub results: u64,
    /// Bytes of the instructions' text that are the same as they were; null: all.
    pub volatile_at: Option<u64>,
    /// The line that the first other byte stands in, from 1.
    pub volatile_line: Option<u64>,
}

/// How calls of tools stand: each is one of these.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Calls {
    /// Without a result.
    pub pending: u32,
    /// With a result.
    pub completed: u32,
    /// With one that says that the tool failed.
    pub error: u32,
    /// With a placeholder in place of its result.
    pub cleared: u32,
}

/// A call that was made three times in a row or more, in one turn.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DoomLoop {
    /// The tool.
    pub tool: String,
    /// How often it was called so.
    pub calls: u32,
    /// The results were the same, too; null: fewer than two are there.
    pub same_results: Option<bool>,
}

impl Shares {
    /// Tokens of the whole prompt.
    pub const fn all(&self) -> u64 {
        self.tools + self.system + self.user + self.assistant + self.reasoning + self.results
    }
}

impl DoomLoop {
    /// How its results compare, in a word: `same`, `different`, `unknown`.
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
pub struct Bytes {
    /// As the client sent it, decoded.
    pub received: u64,
    /// As it went upstream.
    pub sent: u64,
    /// Bytes of text that this request would have carried more without the gateway, if it was answered.
    pub saved: u64,
    /// The same in tokens: an estimate.
    pub saved_tokens_estimate: u64,
    /// Observing: bytes of text that the request would have carried less with rewriting on.
    pub would_have_saved: u64,
    /// The same in tokens: an estimate.
    pub would_have_saved_tokens_estimate: u64,
}

/// What was done to a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Edits {
    /// What became of it: `edited`, `unchanged`, `observed` (would have been edited), `set_aside` (an edit was
    /// refused by the provider before, nothing of this thread is edited), `unread`.
    pub state: Term<State>,
    /// Why it was not read or not edited, where that is not by plan.
    pub why: Option<String>,
    /// Who is left to clear and sum up what is old, because the client asks it to, unless the window forces it here:
    /// `provider`; null: nobody else.
    pub deferred: Option<Word>,
    /// Parts sent in another form than they came, by what changed them.
    pub parts: BTreeMap<String, u32>,
    /// How many of these were decided with this request.
    pub decided: u32,
    /// What was decided with this request, to hold from then on.
    pub made: Vec<Made>,
    /// A change to old parts, which the provider has to write to its cache again.
    pub event: Option<Event>,
    /// Messages that are not sent, and what stands for them.
    pub splice: Option<Splice>,
    /// Marks for the provider's cache were set in it.
    pub marked: bool,
    /// Members of the body that were added, or added to, beside its messages: `prompt_cache_key`, `stream_options`. That
    /// makes it no edited one.
    pub added: Vec<String>,
    /// The provider refused the edited request and was sent the original.
    pub original_resent: bool,
    /// Reasoning blocks that the provider says it dropped.
    pub reasoning_dropped: u32,
    /// Calls that came with this request and were made before: the result had been cleared.
    pub recalls: u32,
}

/// A decision: this part is sent in another form from now on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Made {
    /// The message, counted from 0.
    pub message: u32,
    /// The part in it, counted from 0.
    pub part: u32,
    /// The tool whose result it is, or whose call; null: not known.
    pub tool: Option<String>,
    /// What made it, joined by `+`.
    pub rules: String,
    /// Bytes of the text before, and of images that went with it as they count.
    pub before: u64,
    /// Bytes of the text that is sent.
    pub after: u64,
    /// A digest of what the part said.
    pub content: String,
    /// The stored full text.
    pub output: Option<String>,
    /// A digest of the history that ends with the message: what it is stored by; null: it was not written down.
    pub chain: Option<String>,
}

/// Messages that are not sent, and what stands for them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Splice {
    /// What stands there: a `note` that they are gone, or a `summary`.
    pub rule: String,
    /// How many messages.
    pub messages: u32,
    /// The first of them, counted from 0.
    pub first: u32,
    /// The message behind the last of them.
    pub end: u32,
    /// Their bytes, of images as they count.
    pub before: u64,
    /// Bytes of the text in their place.
    pub after: u64,
    /// It was made with this request.
    pub made: bool,
    /// The stored full text.
    pub output: Option<String>,
}

/// A change to old parts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Event {
    /// Why it was allowed: `window`, `cold`, `uncached`, `break-even`, `budget`, `eager`.
    pub reason: Word,
    /// How many results were cleared.
    pub cleared: u32,
    /// Bytes that this request and all later ones are spared.
    pub freed_bytes: u64,
    /// Bytes that the provider writes to its cache again, an estimate.
    pub rewritten_bytes: u64,
    /// The first message that changed, counted from 0.
    pub first_message: u32,
    /// How room was made: `clear`, `ready`, `arguments`, `turns`, `half`, `cut`.
    pub rung: Word,
    /// How many messages are not sent any more.
    pub dropped: u32,
    /// How many results that were new with the request were cut.
    pub cut: u32,
    /// Blocks of reasoning that are no longer sent: those of earlier turns, or all, where it was bound to what changed.
    pub reasoning: u32,
    /// How many calls are sent without the long texts of their arguments.
    pub abridged: u32,
    /// The preset that the settings it was decided by are based on; empty where that was not written down.
    pub preset: Word,
}

/// How full the model's window is. But for `zone_sent`, as it was measured before the request left: with what was
/// decided by then, before an event, and observing with what would have been decided.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Window {
    /// The prompt's tokens: the provider's figure for the last request and an estimate of what is new.
    pub prompt_tokens_estimate: u64,
    /// What the model takes; null when that is not known.
    pub tokens: Option<u64>,
    /// Tokens kept free for the answer.
    pub reserved: Option<u64>,
    /// What instructions, definitions of tools, a summary and the answer leave of it for the history: an estimate; null
    /// when the window is not known.
    pub history_budget_estimate: Option<u64>,
    /// `green`, `yellow`, `orange`, `red`.
    pub zone: Option<Word>,
    /// The zone of what was sent, by the provider's figure; null when it gave none, or but a sum over several calls of the
    /// model that its own tools made.
    pub zone_sent: Option<Word>,
    /// Tokens a request that the prompt grows by, over the last ones; null for a request that was made again.
    pub velocity: Option<i64>,
    /// Requests until the zone is red, at that velocity; null when it does not grow.
    pub steps_until_red: Option<u64>,
    /// It grows several times as fast as was usual.
    pub spike: bool,
}

/// How full the model's window is, in a word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Zone {
    /// `green`, `yellow`, `orange`, `red`.
    pub name: Word,
    /// It is not by the provider's figure.
    pub estimated: bool,
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

impl Edits {
    /// Whether what left was another request than came, and stayed so.
    pub fn were_sent(&self) -> bool {
        self.state == State::Edited && !self.original_resent
    }
}

impl Record {
    /// The tokens of the prompt, where the provider's figures tell.
    pub fn prompt_tokens(&self) -> Option<u64> {
        self.tokens.filter(|_| !self.prompt_is_unknown).map(|tokens| tokens.prompt())
    }

    /// The tokens of the summary or the note that was sent in place of messages, an estimate; 0 if none was.
    pub fn memory(&self) -> u64 {
        let is_sent = self.edits.state == State::Edited && !self.edits.original_resent;
        let splice = self.edits.splice.as_ref().filter(|_| is_sent);
        splice.map_or(0, |splice| splice.after / BYTES_PER_TOKEN)
    }

    /// The zone of what was sent. Without the provider's figure it is the one that was estimated, where that was sent.
    pub fn zone(&self) -> Option<Zone> {
        let window = self.window.as_ref()?;
        let is_as_measured =
            self.edits.event.is_none() && self.edits.state != State::Observed && !self.edits.original_resent;
        let measured = window.zone_sent.clone().map(|name| Zone { name, estimated: false });
        let estimated =
            || Some(Zone { name: window.zone.clone().filter(|_| is_as_measured)?, estimated: true });
        measured.or_else(estimated)
    }

    /// Whether what was sent before is no prefix of what was sent.
    pub fn breaks_prefix(&self) -> bool {
        self.prefix.as_ref().is_some_and(|prefix| *prefix == Prefix::Broken)
    }

    /// Whether the provider gave some figures, but not those that a cost takes.
    pub fn lacks_figures(&self) -> bool {
        self.prompt_is_unknown || self.output_is_unknown
    }

    /// Puts a provider's figures into it, with the bill for them; `complete`: the answer came to its end.
    pub fn put_usage(&mut self, usage: &Usage, bill: Option<&Bill>, complete: bool) {
        self.tokens = Some(usage.billed_tokens());
        self.output_is_lower_bound = !complete;
        self.prompt_is_unknown = usage.prompt_is_unknown;
        self.output_is_unknown = usage.output_is_unknown;
        self.unpriced_charges = usage::unpriced_names(usage, bill);
        self.cost = bill.map(Cost::of);
    }

    /// The row that the store keeps of it.
    pub fn into_row(self: Box<Self>, at_ms: i64) -> LedgerRow {
        let forms = forms(&*self);
        LedgerRow {
            id: self.id,
            at_ms,
            conversation: self.conversation,
            model: self.model.or(self.model_asked),
            client: self.client,
            cost: self.cost.as_ref().map(|cost| cost.total),
            record: forms.terse,
            line: forms.whole,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::usage::{CostBreakdown, Money, Source};

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

    fn own() -> Own {
        Own { purpose: "summary".to_owned(), messages: 40, generation: 2, bytes: 9000, score: Some(0.5) }
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
            bytes: Bytes {
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

    /// What people have written `jq` filters for: a field may be added, none may change.
    #[test]
    fn a_line_of_the_log() {
        let expected = concat!(
            r#"{"time":"2026-11-21T10:02:03.004Z","id":"019a-1","conversation":"c-1","session":"c-1","#,
            r#""thread":"019a-0","parent":null,"agent":"explore","relation":"continue","#,
            r#""client":"claude-cli/2.1.305","protocol":"anthropic","upstream":"anthropic","#,
            r#""model_asked":"claude-sonnet-5-5","model":"claude-sonnet-5-5","answer":"msg_1","messages":7,"#,
            r#""prior":5,"turn":1,"step":4,"#,
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
    fn records_come_back_as_they_were() {
        for record in [full(), Record::default(), Record { cost: None, tokens: None, ..full() }] {
            let row = Box::new(record.clone()).into_row(1_000);
            assert!(row.record.len() < row.line.len());
            for form in [&row.record, &row.line] {
                assert_eq!(serde_json::from_str::<Record>(form).unwrap(), record);
            }
            assert_eq!(row.cost, record.cost.map(|cost| cost.total));
        }
    }

    #[test]
    fn a_zone_is_an_estimate_where_the_provider_gave_no_figure() {
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

    /// Lines of older and of newer versions are read too.
    #[test]
    fn a_prompt_has_tokens_where_the_figures_tell() {
        let unknown = Record { prompt_is_unknown: true, ..full() };
        let found = [full(), unknown, Record::default()].map(|record| record.prompt_tokens());
        assert_eq!(found, [Some(41_912), None, None]);
    }

    /// The members of objects, each with its object's path; of lists, those of their items.
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

    /// In its tables nothing else is in backticks.
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
