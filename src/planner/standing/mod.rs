//! The standing of a thread: its history, folded message by message as its requests pass.
//!
//! The fold gives the same result whether it continues from the last request or starts over, so a standing is kept
//! between requests only for speed. The exception is [`Kept`]: the entries in the provider's cache and their cost
//! cannot be derived from a history, so they count only for as long as they are remembered.

mod kept;

use std::collections::HashMap;
use std::sync::Arc;

use crate::conversation::{Conversation, MEDIA, Part, PartId, PartKind, Prelude, Role};
use crate::json;
use crate::strategy::clear::{self, Settings};
use crate::strategy::debt::Staked;
use crate::strategy::findings::Expected;
use crate::strategy::gate::{Account, Rates};
use crate::strategy::window::{Growth, Reading, Velocity};
use crate::strategy::{Action, History, Lines, ToolResult};

use super::Ending;
use super::action;
use super::decision::{Applied, Decision, by_part};
use super::splice::Splice;
use super::transcript::lines;
use kept::Kept;

/// The most bytes around the content of a result: its type, ids and names.
const MAX_ENVELOPE: u32 = 512;

/// What is known of a thread up to some message.
#[derive(Debug, Clone, Default)]
pub struct Standing {
    history: History,
    /// What each call does.
    calls: HashMap<PartId, Arc<Action>>,
    /// How many messages have been folded.
    messages: usize,
    /// The first part of the last request that the next one is not expected to repeat.
    stays: Option<PartId>,
    /// Whether the last folded message is the model's.
    answering: bool,
    /// Whether the request that ends with the last folded message has been counted.
    counted: bool,
    account: Account,
    /// What the provider's cache holds thanks to marks.
    pub(super) kept: Kept,
    /// Bytes at the beginning of the body that the client's own marks keep in the provider's cache.
    cached_by_client: u64,
    /// The size of the last request.
    last: RequestSize,
    /// Bytes added since the last request. In the first request the bytes around the messages are among them.
    fresh: u64,
    /// Bytes that shaping has saved in all results, counted once for each.
    spared: u64,
    /// The end of the last splice whose dropped messages have been removed from the history.
    spliced: usize,
    velocity: Velocity,
    /// The number of messages when the velocity was last measured.
    measured: usize,
    /// Repeated calls in this request whose earlier result had been cleared.
    recalls: u32,
    /// The number of messages of the first of the last requests that all lacked tools, if the last one did.
    lacks_tools_since: Option<usize>,
}

/// The size of a request after its newborn parts were shaped, in bytes.
#[derive(Debug, Clone, Copy, Default)]
struct RequestSize {
    /// Without the effects of events.
    direct: u64,
    /// As it was sent.
    sent: u64,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The provider billed it.
    Billed,
    /// The provider billed it, and reported the tokens read from its cache and written to it. If both are 0 it may
    /// not report them at all.
    Told {
        /// Read.
        read: u64,
        /// Written.
        written: u64,
    },
    /// The provider refused it, and billed nothing.
    Refused,
    /// It may or may not have been billed.
    Unknown,
}

/// The decisions about a history, and how much of it was sent before.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    /// The decisions in force.
    pub(super) applied: &'a [Applied],
    /// Messages that an earlier request carried.
    pub(super) sent: usize,
}

/// What costs are calculated with.
#[derive(Clone, Copy)]
pub(super) struct Terms<'a> {
    pub(super) rates: Rates,
    /// What may be cleared, and what it is worth.
    pub(super) settings: &'a Settings,
}

impl Standing {
    /// How many messages have been folded.
    pub fn messages(&self) -> usize {
        self.messages
    }

    /// The parts and what is recorded about them.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// What the thread has cost, including this request if it has no event.
    pub fn account(&self) -> Account {
        self.account
    }

    /// Repeated calls in this request whose earlier result had been cleared.
    pub(super) fn recalls(&self) -> u32 {
        self.recalls
    }

    /// Whether this request lacks the tools that its history has results of, and no earlier request that it continues
    /// did. A client that asks for a summary of its history sends such a request, and then replaces the history by the
    /// answer. If the history goes on without tools, that was not it.
    pub(super) fn first_lacks_tools(&mut self, conversation: &Conversation) -> bool {
        let messages = conversation.messages.len();
        let before = self.lacks_tools_since.take();
        self.lacks_tools_since = conversation.lacks_tools().then(|| before.unwrap_or(messages).min(messages));
        self.lacks_tools_since == Some(messages)
    }

    /// Measures how fast the thread grows, given the tokens of this request; `None` for a retry, which is not
    /// measured.
    pub(super) fn measure_velocity(&mut self, tokens: u64) -> Option<Reading> {
        let before = std::mem::replace(&mut self.measured, self.messages);
        (self.messages > before).then(|| self.velocity.read(tokens))
    }

    /// What the thread's requests add to the prompt.
    pub(super) fn growth(&self) -> Option<Growth> {
        self.velocity.growth()
    }

    /// The first part of this request that the next one is not expected to repeat: caching it is not worthwhile.
    /// `all` is the number of its messages, `sent` the number of those that were sent before. A retry keeps what was
    /// found for the request that it repeats.
    pub(super) fn stays(&mut self, all: usize, sent: usize, ending: Ending) -> PartId {
        let behind = |messages: usize| PartId { message: messages as u32, part: 0 };
        let stays = match ending {
            Ending::Stands => behind(all),
            Ending::LeftOut(part) => part,
            Ending::Branches => behind(sent),
        };
        let is_retry = sent == all;
        let before = self.stays.filter(|_| is_retry);
        *self.stays.insert(before.unwrap_or(stays))
    }

    /// The least that the last request would cost untouched, in bytes of plain input: nothing is cached but what the
    /// client marks.
    fn plain(&self, rates: Rates) -> f64 {
        let uncached = self.last.direct.saturating_sub(self.cached_by_client) + self.spared;
        uncached as f64 + rates.read * self.cached_by_client as f64
    }

    /// Adjusts the costs for another thread that branches off with this request. With `is_forgotten`, it is unknown
    /// what the old thread has spent, and the most that it was allowed to spend is assumed.
    pub(super) fn branch(&mut self, rates: Rates, is_forgotten: bool) {
        self.kept.branch(self.plain(rates), is_forgotten);
    }

    /// Settles the last request.
    pub fn ended(&mut self, fate: Fate) {
        self.kept.settle(fate);
    }

    /// Takes what this request does to its sender's debt.
    pub fn take_staked(&mut self) -> Option<Staked> {
        self.kept.staked.take()
    }

    /// What should be read from the cache with this request thanks to the gateway's marks.
    pub fn expected(&self) -> Option<Expected> {
        self.kept.expected
    }

    /// The state for a request that departs from the thread at a part: the cache entries before it, and what marks have
    /// cost.
    #[must_use]
    pub fn departed(&self, part: PartId) -> Self {
        Self { kept: self.kept.departed(part), ..Self::default() }
    }

    /// Books an event of this request: it frees `freed` bytes, and makes this request more expensive by `price`, in
    /// bytes of plain input.
    pub(super) fn book(&mut self, freed: u64, price: f64, rates: Rates) {
        self.account.paid += price - freed as f64 * rates.read;
        self.last.sent = self.last.sent.saturating_sub(freed);
    }

    /// Removes the messages that the splice in force drops, if that has not been done.
    pub(super) fn take_out(&mut self, splice: &Splice) {
        if self.spliced < splice.end() {
            let gone = self.splice(splice);
            self.last.sent = self.last.sent.saturating_sub(gone) + splice.bytes_after();
        }
    }

    /// Removes the messages that a new splice drops, and returns their bytes.
    pub(super) fn splice(&mut self, splice: &Splice) -> u64 {
        self.spliced = splice.end();
        self.history.forget(|part| splice.drops(part.message as usize))
    }

    /// Folds the history again after results of the step in progress were shortened or messages were dropped, with
    /// the decisions and the splice that now apply.
    pub(super) fn refold(
        &mut self,
        conversation: &Conversation,
        known: Known<'_>,
        splice: Option<&Splice>,
        terms: Terms<'_>,
    ) {
        let mut anew = Self::default();
        anew.advance(conversation, known, (0, Prelude::default()), terms);
        self.history = anew.history;
        if let Some(splice) = splice {
            self.history.forget(|part| splice.drops(part.message as usize));
        }
    }

    /// Approximate memory that it takes, in bytes.
    pub fn weight(&self) -> usize {
        self.history.items().len() * 200 + self.calls.len() * 300
    }

    /// Folds the messages that have not been folded yet, request by request, the present one included. `hidden` bytes
    /// of the prompt are not in the body.
    pub(super) fn advance(
        &mut self,
        conversation: &Conversation,
        known: Known<'_>,
        (hidden, prelude): (u64, Prelude),
        terms: Terms<'_>,
    ) {
        let Known { applied, sent } = known;
        self.recalls = 0;
        self.kept.begin_request(prelude.key);
        self.cached_by_client = conversation.kept_bytes(prelude) as u64;
        if self.messages == 0 {
            self.fresh = conversation.frame_bytes() as u64 + hidden;
        }
        let decided = by_part(applied);
        for message in self.messages..conversation.messages.len() {
            let recalls = self.recalls;
            self.fold_message(conversation, message, &decided, terms);
            if message < sent {
                // Repeated calls in earlier requests were counted with those requests.
                self.recalls = recalls;
            }
        }
        self.messages = conversation.messages.len();
        self.count_request(terms);
        self.kept.count_request(self.plain(terms.rates), sent == 0);
        self.history.settle();
    }

    fn fold_message(
        &mut self,
        conversation: &Conversation,
        message: usize,
        decided: &HashMap<PartId, &Decision>,
        terms: Terms<'_>,
    ) {
        let index = &conversation.messages[message].index;
        let is_answer = index.role == Role::Assistant;
        if is_answer && !self.answering {
            if self.count_request(terms) {
                self.kept.count_followed(self.plain(terms.rates));
            }
            self.history.begin_step();
            self.counted = false;
        } else if index.starts_turn() {
            self.history.begin_turn();
        }
        self.answering = is_answer;
        for (id, part) in conversation.parts_of(message) {
            let decision = decided.get(&id).copied();
            let spared = decision.map_or(0, |decision| spared(conversation, id, decision));
            let bytes = len(part).saturating_sub(spared);
            self.fresh += u64::from(bytes);
            self.spared += u64::from(spared);
            match part.kind() {
                PartKind::ToolResult => {
                    self.fold_result(conversation, (id, part), bytes, decision, terms.settings);
                }
                PartKind::ToolCall => {
                    let earlier = self.fold_call(conversation, (id, part), bytes);
                    let decision = earlier.and_then(|earlier| decided.get(&earlier));
                    self.recalls += u32::from(decision.is_some_and(|decision| decision.is_clearing()));
                }
                _ => self.history.add_part(id, bytes),
            }
        }
    }

    /// Counts the request that ends with the last folded message. Returns whether it was not counted before. If it
    /// was, the client has added messages before the model answered: these were written to the cache all the same.
    fn count_request(&mut self, terms: Terms<'_>) -> bool {
        let Terms { rates, settings } = terms;
        let RequestSize { direct, sent } = self.last;
        let is_new = !std::mem::replace(&mut self.counted, true);
        if is_new {
            self.account.direct += rates.read * direct as f64;
            self.account.paid += rates.read * sent as f64;
        }
        let fresh = std::mem::take(&mut self.fresh);
        self.account.direct += rates.write * fresh as f64;
        self.account.paid += rates.write * fresh as f64;
        self.last = RequestSize { direct: direct + fresh, sent: sent + fresh };
        if is_new {
            clear::step(&mut self.history, rates, settings);
        }
        is_new
    }

    /// Adds a call of `bytes` bytes. Returns the newest result of the same call, if it was made before.
    fn fold_call(
        &mut self,
        conversation: &Conversation,
        (id, part): (PartId, &Part),
        bytes: u32,
    ) -> Option<PartId> {
        self.history.add_call(id, bytes, super::arguments::frees(conversation, id));
        let tool = part.tool().unwrap_or_default();
        let arguments = conversation.arguments(id);
        let action = Arc::new(action::of(tool, arguments.as_deref().unwrap_or_default()));
        let earlier = self.history.record_call(&action);
        self.calls.insert(id, action);
        earlier
    }

    /// What the call of a result did.
    fn action_of(&self, conversation: &Conversation, id: PartId) -> Arc<Action> {
        conversation.call_of(id).and_then(|call| self.calls.get(&call)).cloned().unwrap_or_default()
    }

    /// Adds a result that had `bytes` bytes when it was new, with the `decision` about it.
    fn fold_result(
        &mut self,
        conversation: &Conversation,
        (id, part): (PartId, &Part),
        bytes: u32,
        decision: Option<&Decision>,
        settings: &Settings,
    ) {
        let (action, is_error) = (self.action_of(conversation, id), part.is_error());
        self.history.record_changes(&action, is_error);
        if part.is_read_by_code() {
            return self.history.add_part(id, bytes);
        }
        let content = content(part);
        if decision.is_some_and(|decision| !decision.stands_alone()) {
            return self.history.add_pointer(id, bytes, content);
        }
        let tool = conversation.tool_of(id).unwrap_or_default();
        let clearable = conversation.call_of(id).is_some()
            && !settings.protects(conversation.bytes_of(id.message, part.span))
            && super::cleared::can_go(part)
            && !settings.protected_tools.matches(tool);
        let is_view = !is_error && !action.views.is_empty();
        let lines = if is_view { lines(conversation, id, decision) } else { Lines::default() };
        let weight = clear::weight(bytes, &action);
        let result = ToolResult {
            action,
            content,
            lines,
            is_error,
            tokens: tokens(conversation, id, part, decision),
            has_media: !part.media().is_empty(),
            stays: stays(part),
            clearable,
            weight,
            ..Default::default()
        };
        self.history.add_result(id, bytes, result);
    }
}

/// Bytes of a part as the model reads it.
fn len(part: &Part) -> u32 {
    let bytes = u32::try_from(part.read_len()).unwrap_or(u32::MAX);
    // Encrypted reasoning is longer than its text.
    if part.kind() == PartKind::Thinking { bytes / 5 * 2 } else { bytes }
}

/// A hash of a result's content.
fn content(part: &Part) -> u128 {
    part.content().map_or(0, |digest| u128::from_le_bytes(digest.0))
}

/// Bytes of a result that remain when it is cleared: data besides its texts and media, without the envelope.
fn stays(part: &Part) -> u32 {
    let slot = |slot: u32| part.slots().and_then(|slots| slots.items.get(slot as usize));
    let texts = part.leaves().iter().map(|leaf| leaf.slot.and_then(slot).unwrap_or(&leaf.span).len());
    let list = part.media_list().into_iter().flat_map(|media| &*media.slots.items);
    let beside = part.media().iter().filter_map(|block| list.clone().nth(block.slot? as usize));
    let media = beside.map(|item| item.len().min(MEDIA));
    let stays = part.read_len().saturating_sub(texts.chain(media).sum());
    u32::try_from(stays).unwrap_or(u32::MAX).saturating_sub(MAX_ENVELOPE)
}

/// Estimated tokens of a result as it was sent when it was new: those of its text, and of the images and documents
/// that may be cleared with it.
fn tokens(conversation: &Conversation, id: PartId, part: &Part, decision: Option<&Decision>) -> u32 {
    let units = match decision.filter(|decision| !decision.is_clearing()) {
        Some(decision) => decision.bytes_after as usize,
        None => {
            let leaves = part.leaves().iter();
            leaves.map(|leaf| json::string::utf16_len(conversation.bytes_of(id.message, leaf.span))).sum()
        }
    };
    u32::try_from((units + part.media_len() + 2) / clear::BYTES_PER_TOKEN as usize).unwrap_or(u32::MAX)
}

/// Bytes that a decision saved when the part was new; 0 for a decision of an event.
fn spared(conversation: &Conversation, id: PartId, decision: &Decision) -> u32 {
    if decision.is_of_old() {
        return 0;
    }
    u32::try_from(decision.bytes_spared_of(conversation, id)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::conversation::NoMemo;
    use crate::protocol;

    /// Whether the first of two results is repeated in the second, judged by the calls and the results. `FILE` is a
    /// hundred lines, `HEAD` the first forty of them. The answer is the same whether the history is read at once or
    /// request by request.
    #[test]
    fn views_repeated_by_later_ones_are_superseded() {
        const READ: &str = r#""name":"Read","input":{"file_path":"/w/src/a.rs""#;
        let bash = |script: &str| format!(r#""name":"Bash","input":{{"command":"{script}"}}"#);
        let read = |more: &str| format!("{READ}{more}}}");
        let cat = || bash("cat src/a.rs");
        let edit = r#""name":"Edit","input":{"file_path":"/w/src/a.rs"}"#;
        for (first, between, (second, answer), expected) in [
            (cat(), "", (cat(), "FILE"), true),
            (cat(), "", (read(""), "FILE"), true),
            (cat(), "", (bash("nl -ba src/a.rs 2>&1"), "FILE"), true),
            (cat(), "", (bash("tail -n 51 src/a.rs"), "TAIL"), false),
            (cat(), "", (bash("cat src/a.rs | wc -l"), "100"), false),
            (cat(), "", (bash("cat src/a.rs 2>&1 | head -40"), "HEAD"), false),
            (cat(), "", (bash("cat src/a.rs"), "HEAD"), false),
            (cat(), edit, (cat(), "HEAD"), true),
            (read(""), "", (read(""), "File unchanged since last read."), false),
            (read(r#","offset":50"#), "", (read(""), "FILE"), true),
            (read(r#","offset":50"#), "", (read(""), "HEAD"), false),
            (bash("cd a && cat src/a.rs"), "", (bash("cd b && cat src/a.rs"), "FILE of b"), false),
            (bash("git show v1:src/a.rs"), "", (bash("git show v2:src/a.rs"), "FILE "), false),
            (bash("git show v1:src/a.rs"), "", (bash("git show v1:src/a.rs | cat"), "FILE "), true),
        ] {
            let call = |id: &str, call: &str| {
                format!(r#"{{"role":"assistant","content":[{{"type":"tool_use","id":"{id}",{call}}}]}}"#)
            };
            let result = |id: &str, text: &str| {
                let line =
                    |at: u32| format!(r"\tlet a_name{at} = some_call({at});{}\n", &text[4.min(text.len())..]);
                let lines = |all: std::ops::Range<u32>| all.map(line).collect::<String>();
                let said = match text.get(..4) {
                    Some("FILE") => lines(0..100),
                    Some("HEAD") => lines(0..40),
                    Some("TAIL") => lines(49..100),
                    _ => text.to_owned(),
                };
                format!(
                    r#"{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"{id}","content":"{said}"}}]}}"#
                )
            };
            let said = if first.contains("offset") { "TAIL" } else { "FILE" };
            let mut messages = vec![call("a", &first), result("a", said)];
            if !between.is_empty() {
                messages.extend([call("b", between), result("b", "done")]);
            }
            messages.extend([call("c", &second), result("c", answer)]);
            let terms = Terms { rates: Rates::USUAL, settings: &Settings::default() };
            let told = |steps: &[usize]| {
                let mut standing = Standing::default();
                for &count in steps {
                    let body = format!(r#"{{"messages":[{}]}}"#, messages[..count].join(","));
                    let read = protocol::named("anthropic").unwrap().index(&body.into(), &NoMemo).unwrap();
                    let known = Known { applied: &[], sent: count.saturating_sub(2) };
                    standing.advance(&read, known, (0, Prelude::default()), terms);
                }
                let outcome = standing.history.items()[1].result.as_deref().unwrap();
                outcome.superseded
            };
            let steps: Vec<usize> = (2..=messages.len()).step_by(2).collect();
            assert_eq!(told(&steps), expected, "{first} {second} {answer}");
            assert_eq!(told(&[messages.len()]), expected, "{first} {second} {answer}");
        }
    }

    /// A file is read, then an edit of it succeeds or fails, in the dialects that say so.
    #[test]
    fn a_failed_edit_does_not_outdate_a_read() {
        const READ: &str = r#"{"file_path":"/w/a.rs"}"#;
        let anthropic = |(tool, arguments): (&str, &str), failed: bool| {
            let block = |id: u32, name: &str, input: &str, failed: bool| {
                format!(
                    r#"{{"role":"assistant","content":[{{"type":"tool_use","id":"t{id}","name":"{name}","input":{input}}}]}},
                    {{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t{id}","is_error":{failed},"content":"said {id}"}}]}}"#
                )
            };
            let (read, edit) = (block(0, "Read", READ, false), block(1, tool, arguments, failed));
            ("anthropic", format!(r#"{{"messages":[{read},{edit}]}}"#))
        };
        let gemini = |(tool, arguments): (&str, &str), failed: bool| {
            let step = |name: &str, args: &str, key: &str| {
                format!(
                    r#"{{"role":"model","parts":[{{"functionCall":{{"name":"{name}","args":{args}}}}}]}},
                    {{"role":"user","parts":[{{"functionResponse":{{"name":"{name}","response":{{"{key}":"said by {name}"}}}}}}]}}"#
                )
            };
            let key = if failed { "error" } else { "output" };
            let (read, edit) = (step("read_file", READ, "output"), step(tool, arguments, key));
            ("gemini", format!(r#"{{"contents":[{read},{edit}]}}"#))
        };
        let responses = |failed: bool| {
            let status = if failed { "failed" } else { "completed" };
            let read = format!(
                r#"{{"type":"function_call","call_id":"a","name":"Read","arguments":{}}},
                {{"type":"function_call_output","call_id":"a","output":"said"}}"#,
                json::string::encode(READ)
            );
            let edit = format!(
                r#"{{"type":"apply_patch_call","call_id":"b","status":"completed",
                    "operation":{{"type":"update_file","path":"a.rs","diff":"@@"}}}},
                {{"type":"apply_patch_call_output","call_id":"b","status":"{status}","output":"said b"}}"#
            );
            ("openai-responses", format!(r#"{{"input":[{read},{edit}]}}"#))
        };
        let (edit, script) = (r#"{"path":"a.rs"}"#, r#"{"command":"sed -i s/a/b/ a.rs && make"}"#);
        for (case, (dialect, body), expected) in [
            ("a", anthropic(("Edit", edit), false), true),
            ("b", anthropic(("Edit", edit), true), false),
            ("c", anthropic(("Write", edit), true), false),
            ("d", anthropic(("Bash", script), true), true),
            ("e", gemini(("replace", edit), false), true),
            ("f", gemini(("replace", edit), true), false),
            ("g", gemini(("run_shell_command", script), true), true),
            ("h", responses(false), true),
            ("i", responses(true), false),
        ] {
            let read = protocol::named(dialect).unwrap().index(&body.into(), &NoMemo).unwrap();
            let mut standing = Standing::default();
            let terms = Terms { rates: Rates::USUAL, settings: &Settings::default() };
            let known = Known { applied: &[], sent: 0 };
            standing.advance(&read, known, (0, Prelude::default()), terms);
            let mut results = standing.history.items().iter().filter_map(|item| item.result.as_deref());
            let first = results.next().unwrap();
            assert_eq!((first.edited, first.action.views.len()), (expected, 1), "{case} {dialect}");
        }
    }

    /// `LONG` is 5,000 bytes.
    #[test]
    fn data_beside_the_texts_of_a_result_is_not_clearable() {
        let anthropic = |content: &str| {
            let part = format!(r#"{{"type":"tool_result","tool_use_id":"c","content":{content}}}"#);
            ("anthropic", format!(r#"{{"messages":[{{"role":"user","content":[{part}]}}]}}"#))
        };
        let gemini = |members: &str| {
            let part = format!(r#"{{"functionResponse":{{"name":"f",{members}}}}}"#);
            ("gemini", format!(r#"{{"contents":[{{"role":"user","parts":[{part}]}}]}}"#))
        };
        let image = r#"{"type":"image","source":{"type":"base64","data":"LONG"}}"#;
        for ((dialect, body), expected) in [
            (anthropic(r#""LONG""#), 0),
            (anthropic(r#"[{"type":"text","text":"LONG"},{"type":"text","text":"LONG"}]"#), 0),
            (anthropic(&format!(r#"[{{"type":"text","text":"LONG"}},{image}]"#)), 0),
            (anthropic(&format!("[{image},{image}]")), 0),
            (gemini(r#""response":{"output":"LONG"}"#), 0),
            (gemini(r#""response":{"output":"LONG"},"parts":[{"inlineData":{"data":"LONG"}}]"#), 0),
            (gemini(r#""response":{"output":"LONG","n":{"rows":[1,2]}}"#), 0),
            (gemini(r#""response":{"stderr":"warning","lines":["LONG"]}"#), 5_000),
            (gemini(r#""response":{"content":[{"text":"LONG"}],"structuredContent":{"x":"LONG"}}"#), 5_000),
            (gemini(r#""response":{"a":"x","b":["LONG"]},"parts":[{"inlineData":{"data":"LONG"}}]"#), 5_000),
        ] {
            let long = "text ".repeat(1_000);
            let body = Bytes::from(body.replace("LONG", &long));
            let conversation = protocol::named(dialect).unwrap().index(&body, &NoMemo).unwrap();
            let found = stays(conversation.part(PartId { message: 0, part: 0 }).unwrap());
            assert!(
                found.abs_diff(expected) <= MAX_ENVELOPE && (found > 0) == (expected > 0),
                "{body:?}: {found}"
            );
        }
    }
}
