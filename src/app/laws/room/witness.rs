//! Sees what is sent with little room, and judges it by what was sent before.

use bytes::Bytes;
use proptest::prelude::*;

use super::view::View;
use crate::app::laws::text;
use crate::app::laws::thoughts::{Thoughts, turn};
use crate::app::laws::unchanged::{frame_is_kept, only_results_change, pairs_are_kept, rules_are_kept};
use crate::app::laws::unmark::{judge, may_mark, unmark};
use crate::app::laws::witness::{hash, longest, plain};
use crate::app::rewritten::RequestFacts;
use crate::conversation::{Conversation, Fingerprint, NoMemo, Part, PartKind, Role};
use crate::planner::cuts::cuts;
use crate::planner::{Cut, Splice};
use crate::protocol::conformance::Subject;
use crate::protocol::conformance::tree::Tree;
use crate::usage::{self, Binding};

/// Results of the step in progress are not cut to fewer bytes than this.
const FLOOR: u64 = 2048;
/// Bytes that the note and the markers of cuts may take, and by which the estimates of an event may be wrong.
const SLACK: u64 = 1200;

/// What one principal has sent.
#[derive(Clone)]
pub(super) struct Witness {
    subject: &'static dyn Subject,
    sent: Vec<Sent>,
    /// The text of each summary, and the meaning of the messages that it was made of.
    summaries: Vec<(String, Vec<u64>)>,
    thoughts: Thoughts,
}

/// A request that was sent.
#[derive(Clone)]
struct Sent {
    /// Hashes of what the client said in each message.
    said: Vec<u64>,
    /// Hashes of what it meant, whatever the spelling.
    meant: Vec<u64>,
    /// The messages as a gateway reads them: different spellings may be read as the same.
    read: Vec<Fingerprint>,
    /// Which messages are the model's.
    answers: Vec<bool>,
    /// Hashes of the messages as sent; `None` for those that were not.
    kept: Vec<Option<u64>>,
    /// The messages that were sent.
    wire: Vec<Wired>,
    /// What replaced the messages that were not sent.
    splice: Option<Box<str>>,
    /// The first message that its event changed.
    changed: Option<usize>,
    /// Whether its event made the splice.
    spliced: bool,
    /// How many messages a history must have for the turns to be over whose reasoning was left out.
    over: usize,
    whole: Bytes,
}

/// A message as sent.
#[derive(Clone)]
struct Wired {
    /// A hash of what it says.
    says: u64,
    raw: Box<[u8]>,
    /// How the client spelled it, white space included, and a hash of what it said; `None`: the gateway's own.
    came: Option<(Box<[u8]>, u64)>,
}

/// One request.
pub(super) struct Exchange<'a> {
    pub(super) body: &'a Bytes,
    pub(super) wire: &'a Bytes,
    pub(super) facts: &'a RequestFacts,
    pub(super) bytes_per_token: f64,
}

impl Witness {
    pub(super) fn new(subject: &'static dyn Subject) -> Self {
        Self { subject, sent: Vec::new(), summaries: Vec::new(), thoughts: Thoughts::default() }
    }

    /// Records that the provider was asked without a gateway.
    pub(super) fn bypassed(&mut self, body: &Bytes) {
        self.thoughts.bypassed(self.subject, body);
    }

    /// A witness for somebody who has sent nothing, and of whose words no summary was made.
    pub(super) fn of_a_stranger(&self) -> Self {
        let nobodys = |(says, _): &(String, Vec<u64>)| (says.clone(), vec![0]);
        let summaries = self.summaries.iter().map(nobodys).collect();
        Self { subject: self.subject, sent: Vec::new(), summaries, thoughts: Thoughts::default() }
    }

    /// Hashes of what the client says in each message, without cache marks.
    fn said(&self, body: &Bytes) -> Vec<u64> {
        let root = Tree::parse(text(body));
        self.subject.messages_of(&root).iter().map(|message| hash(&plain(self.subject, message))).collect()
    }

    /// Hashes of what the client means in each message, whatever its spelling: the words, and whether they are the
    /// model's. The ids of Gemini's calls, which may be missing, are replaced by what they tell: which result belongs
    /// to which call. The tool that a result of OpenAI's may name next to the id of its call is that of the call.
    pub(super) fn meant(&self, body: &Bytes) -> Vec<u64> {
        let (subject, root) = (self.subject, Tree::parse(text(body)));
        let messages = subject.messages_of(&root);
        let is_gemini = subject.protocol().name() == "gemini";
        let (ids, pairs): (&[&str], _) =
            if is_gemini { (&["id"], pairs(messages)) } else { (&[], Vec::new()) };
        let skip = [subject.marks(), &["role"], ids].concat();
        let of_result = [&skip[..], &["name"]].concat();
        let meant = |(at, message): (usize, &Tree)| {
            let is_result = message.text_of("role").is_some_and(|role| role == "tool");
            let words = message.words(if is_result { &of_result } else { &skip });
            hash(&(subject.is_answer(message), words, pairs.get(at)))
        };
        messages.iter().enumerate().map(meant).collect()
    }

    /// Records that a summary of exactly these messages says `text`, and no other one does.
    pub(super) fn made(&mut self, text: &str, of: &[u64]) {
        self.summaries.push((text.to_owned(), of.to_vec()));
    }

    /// Judges a request that went through a gateway. Returns whether it contains a summary.
    pub(super) fn through(&mut self, exchange: &Exchange<'_>) -> Result<bool, TestCaseError> {
        let Exchange { body, wire, facts, .. } = exchange;
        let subject = self.subject;
        let root = Tree::parse(text(wire));
        judge(subject, &root);
        frame_is_kept(subject, body, &root)?;
        let conversation = subject.protocol().index(body, &NoMemo).expect("bodies are read");
        rules_are_kept(subject, &conversation, wire)?;
        let came = Tree::parse(text(body));
        let (messages, left) = (subject.messages_of(&came), subject.messages_of(&root));
        pairs_are_kept(subject, messages, left)?;
        let mut view = View::of(subject, messages, left, facts.decided.splice.as_deref())?;
        if may_mark(subject, &came) {
            for (message, wired) in view.messages.iter().zip(&mut view.wire) {
                unmark(message, wired);
            }
        }
        only_results_change(subject, &view.messages, &view.wire)?;
        self.thoughts.through(subject, &conversation, messages, left, |at| view.origin(at))?;
        let sent = self.sent_of(exchange, &conversation, left, &view);
        let used = self.summaries_are_carried(&sent, wire)?;
        self.grows(&sent, facts)?;
        self.fits(&sent, exchange, &conversation)?;
        self.sent.push(sent);
        Ok(used)
    }

    fn sent_of(
        &self,
        exchange: &Exchange<'_>,
        conversation: &Conversation,
        left: &[Tree],
        view: &View,
    ) -> Sent {
        let (said, meant) = (self.said(exchange.body), self.meant(exchange.body));
        let read = conversation.messages.iter().map(|message| message.index.fingerprint).collect();
        let answers =
            conversation.messages.iter().map(|message| message.index.role == Role::Assistant).collect();
        let mut kept = vec![None; said.len()];
        for (at, wired) in view.kept.iter().zip(&view.wire) {
            kept[*at] = Some(hash(&plain(self.subject, wired)));
        }
        let index = self.subject.protocol().index(exchange.wire, &NoMemo).expect("what is sent can be read");
        let came =
            |origin: usize| (conversation.messages[origin].span.of(&conversation.body).into(), said[origin]);
        let wired = |(at, message): (usize, &Tree)| Wired {
            says: hash(&plain(self.subject, message)),
            raw: index.messages[at].span.of(&index.body).into(),
            came: view.origin(at).map(came),
        };
        let wire = left.iter().enumerate().map(wired).collect();
        let splice = exchange.facts.decided.splice.as_ref().map(|splice| (*splice.text).into());
        let event = exchange.facts.event.as_ref();
        let changed = event.map(|event| event.first_message as usize);
        let spliced = exchange.facts.decided.spliced;
        let applied = &exchange.facts.decided.applied;
        let decided = &applied[applied.len() - exchange.facts.decided.fresh..];
        let omissions = decided.iter().filter(|applied| applied.decision.is_omission());
        let last = omissions.map(|applied| applied.part.message as usize).max();
        let came = Tree::parse(text(exchange.body));
        let turn = turn(self.subject, self.subject.messages_of(&came));
        let over = if last.is_some_and(|last| last < turn) { turn + 1 } else { 0 };
        let whole = exchange.wire.clone();
        Sent { said, meant, read, answers, kept, wire, splice, changed, spliced, over, whole }
    }

    /// A summary only occurs where the request contains everything that it was made of, and replaces nothing else.
    fn summaries_are_carried(&self, sent: &Sent, wire: &Bytes) -> Result<bool, TestCaseError> {
        let mut used = false;
        for (says, of) in self.summaries.iter().filter(|(says, _)| text(wire).contains(&**says)) {
            prop_assert!(sent.meant.starts_with(of), "{} was made of another conversation", says);
            let gone = sent.kept.iter().rposition(Option::is_none);
            prop_assert!(gone.is_some_and(|gone| gone < of.len()), "{} stands for more: {:?}", says, gone);
            used = true;
        }
        Ok(used)
    }

    /// The longest history that was sent before, alone or within a longer request, in messages; and the requests with
    /// it: those that consist of it, otherwise the first one that begins with it.
    fn before(&self, sent: &Sent) -> (usize, Vec<&Sent>) {
        let shared = |earlier: &Sent| {
            let shared = earlier.read.iter().zip(&sent.read).take_while(|(a, b)| a == b).count();
            let ends = |count: &usize| *count == earlier.read.len() || !sent.answers[count - 1];
            (1..=shared).rev().find(ends).unwrap_or(0)
        };
        longest(&self.sent, shared, |earlier| earlier.read.len())
    }

    /// Law 7: between events, what is sent begins with what the previous request sent, byte for byte; with an event,
    /// everything before the first message that it changes stays. A message that the client now spells differently is
    /// exempt.
    fn grows(&self, sent: &Sent, facts: &RequestFacts) -> Result<(), TestCaseError> {
        let (count, before) = self.before(sent);
        for earlier in before {
            let is_whole = earlier.said.len() == count;
            let is_again = is_whole && sent.said.len() == count;
            prop_assert!(!is_again || facts.event.is_none(), "an event when a request is made again");
            if facts.event.is_some() || !is_whole {
                let first =
                    facts.event.as_ref().map_or(count, |event| event.first_message as usize).min(count);
                let is_over = count >= earlier.over;
                let is_undone = !is_whole && (earlier.spliced && !holds(earlier, facts) || !is_over);
                let undone = earlier.changed.filter(|_| is_undone);
                let is_same = |at: &usize| earlier.said[*at] == sent.said[*at];
                for at in (0..first).filter(is_same).filter(|at| earlier.kept[*at].is_some()) {
                    if undone.is_some_and(|undone| undone <= at) {
                        let former = self.former(earlier, sent, at);
                        prop_assert!(
                            former.contains(&sent.kept[at]),
                            "message {} of {} is undone",
                            at,
                            first
                        );
                        continue;
                    }
                    prop_assert_eq!(earlier.kept[at], sent.kept[at], "message {} of {}", at, first);
                }
                continue;
            }
            prop_assert_eq!(&earlier.splice, &sent.splice, "an event that nobody has recorded");
            prop_assert!(earlier.wire.len() <= sent.wire.len());
            for (at, (was, is)) in earlier.wire.iter().zip(&sent.wire).enumerate() {
                let [was_sent, is_sent] = [was, is].map(|one| String::from_utf8_lossy(&one.raw));
                prop_assert!(is.goes_on_from(was), "message {}: {} was {}", at, is_sent, was_sent);
            }
        }
        Ok(())
    }

    /// The forms in which a message may be sent where the event of `request`, which had it, does not apply: those in
    /// which it was sent before. If it was not, it is sent as the client says it, because only events change answers,
    /// unless one had changed the very same message elsewhere, which applies to branches too; and a result that was new
    /// in `request` is sent as it was there.
    fn former(&self, request: &Sent, sent: &Sent, at: usize) -> Vec<Option<u64>> {
        let before = || self.sent.iter().take_while(|earlier| !std::ptr::eq(*earlier, request));
        let shares = |earlier: &&Sent| earlier.read.get(..=at) == sent.read.get(..=at);
        let forms = before().filter(shares).filter_map(|earlier| earlier.kept[at]);
        let forms: Vec<Option<u64>> = forms.map(Some).collect();
        if forms.is_empty() {
            let same = |earlier: &Sent| {
                let mut messages = earlier.said.iter().zip(&earlier.kept);
                messages.any(|(said, kept)| *said == sent.said[at] && *kept == request.kept[at])
            };
            let is_taken_over = !sent.answers[at] || before().any(same);
            let own = sent.answers[at].then_some(Some(sent.said[at]));
            return own.into_iter().chain(is_taken_over.then_some(request.kept[at])).collect();
        }
        forms
    }

    /// What the provider sees fits the window, unless removing all that may be removed is not enough. What was sent
    /// before, alone or within a longer request, is left to the provider's judgement, and so is a request that begins
    /// like another one and shares none of the model's words.
    fn fits(
        &self,
        sent: &Sent,
        exchange: &Exchange<'_>,
        conversation: &Conversation,
    ) -> Result<(), TestCaseError> {
        let (count, before) = self.before(sent);
        let is_whole = before.iter().any(|earlier| earlier.read.len() == count);
        let is_known = (!is_whole && !sent.answers[..count].contains(&true))
            || self.sent.iter().any(|earlier| earlier.read.starts_with(&sent.read));
        let Some(gauge) = exchange.facts.level.and_then(|level| level.gauge).filter(|_| !is_known) else {
            return Ok(());
        };
        // Messages that a splice has left within a turn are only removed by a later one.
        let splice = exchange.facts.decided.splice.as_deref().filter(|_| !exchange.facts.decided.spliced);
        if splice.is_some() && cuts(conversation, splice, bound_of(conversation), usize::MAX).is_empty() {
            return Ok(());
        }
        // Bound reasoning that is sent and cannot be removed keeps what it is bound to.
        let stays = |part: &Part| part.kind() == PartKind::Thinking && part.slots().is_none();
        let messages = conversation.messages.iter().zip(&sent.kept).filter(|(_, kept)| kept.is_some());
        let mut parts = messages.flat_map(|(message, _)| &*message.index.parts);
        if bound_of(conversation) == Some(Binding::Refused) && parts.any(stays) {
            return Ok(());
        }
        let usable = (gauge.usable() as f64 * exchange.bytes_per_token) as u64;
        let wire = self.subject.protocol().index(&sent.whole, &NoMemo).expect("what is sent can be read");
        let left = read_len(&wire);
        // A splice continues from the one before it, and there is only one text: what would be an answer elsewhere is
        // dropped with it.
        let goes_on = before.iter().any(|earlier| earlier.splice.is_some());
        let least = least(conversation, exchange.facts.decided.splice.as_deref().filter(|_| goes_on));
        prop_assert!(
            left <= usable + SLACK || least + SLACK > usable,
            "{} bytes of {}, of which {} had to stay, where {} may be: {:?} {:?}",
            left,
            exchange.body.len(),
            least,
            usable,
            exchange.facts.level,
            exchange.facts.event
        );
        Ok(())
    }
}

/// Whether the splice that a request was sent with also applied to another.
fn holds(request: &Sent, facts: &RequestFacts) -> bool {
    let splice = facts.place.as_ref().and_then(|place| place.splice.as_deref());
    splice.map(|splice| &*splice.text) == request.splice.as_deref()
}

/// For each of Gemini's messages, which of the earlier calls its results belong to: by their ids, otherwise by their
/// places.
fn pairs(messages: &[Tree]) -> Vec<Vec<usize>> {
    let (mut calls, mut results) = (Vec::new(), 0);
    let pairs_of = |message: &Tree| {
        let mut pairs = Vec::new();
        for part in message.get("parts").map(Tree::items).unwrap_or_default() {
            let any = |names: [&str; 2]| names.into_iter().find_map(|name| part.get(name));
            if let Some(call) = any(["functionCall", "function_call"]) {
                if results > 0 {
                    (calls, results) = (Vec::new(), 0);
                }
                calls.push(call.text_of("id"));
            }
            if let Some(result) = any(["functionResponse", "function_response"]) {
                let id = result.text_of("id");
                let named = calls.iter().position(|call| id.is_some() && *call == id);
                pairs.push(named.unwrap_or(results));
                results += 1;
            }
        }
        pairs
    };
    messages.iter().map(pairs_of).collect()
}

impl Wired {
    /// Whether it is the same, byte for byte, except for cache marks and what the client itself spells differently.
    fn goes_on_from(&self, earlier: &Self) -> bool {
        let is_marked = |one: &Self| memchr::memmem::find(&one.raw, b"cache_control").is_some();
        let said = |one: &Self| one.came.as_ref().map(|(_, said)| *said);
        let may_differ = is_marked(self) || is_marked(earlier) || self.came != earlier.came;
        let says_otherwise = said(self).is_some() && said(earlier).is_some() && said(self) != said(earlier);
        self.raw == earlier.raw || says_otherwise || (may_differ && self.says == earlier.says)
    }
}

/// How reasoning of the requested model is bound to what precedes it.
fn bound_of(conversation: &Conversation) -> Option<Binding> {
    conversation.model.as_deref().and_then(usage::binding)
}

/// Bytes, as far as they are read as text, of a request without everything that the ladder may drop or cut, continuing
/// from a splice if there is one.
fn least(conversation: &Conversation, splice: Option<&Splice>) -> u64 {
    let dropped = cuts(conversation, splice, bound_of(conversation), usize::MAX).last().map_or(0, Cut::bytes);
    let tail = conversation.tail()..conversation.messages.len();
    let results = tail.flat_map(|message| conversation.parts_of(message));
    let results = results.filter(|(_, part)| part.kind() == PartKind::ToolResult);
    let size = |(id, part): (_, &Part)| -> u64 {
        (0..part.leaves().len())
            .map(|leaf| conversation.text(id, leaf).map_or(0, |text| text.len() as u64))
            .sum()
    };
    let cut: u64 = results.map(|result| size(result).saturating_sub(FLOOR)).sum();
    read_len(conversation).saturating_sub(dropped + cut)
}

/// Bytes of a request that are read as text: an encoded image counts as no more than an image does.
fn read_len(conversation: &Conversation) -> u64 {
    (conversation.body.len() - conversation.encoded(|_| true)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_paired_with_calls_by_id_or_order() {
        let call = |id: &str| format!(r#"{{"functionCall":{{"name":"f"{id}}}}}"#);
        let result = |id: &str| format!(r#"{{"functionResponse":{{"name":"f"{id}}}}}"#);
        let pairs_of = |[first, second]: [&str; 2], [one, other]: [&str; 2]| {
            let (calls, results) =
                ([call(first), call(second)].join(","), [result(one), result(other)].join(","));
            let body = format!(r#"[{{"parts":[{calls}]}},{{"parts":[{results}]}}]"#);
            pairs(Tree::parse(&body).items())
        };
        let (a, b) = (r#","id":"a""#, r#","id":"b""#);
        for (calls, results, expected) in [
            (["", ""], ["", ""], [0, 1]),
            ([a, b], [a, b], [0, 1]),
            ([a, b], [b, a], [1, 0]),
            ([a, b], ["", ""], [0, 1]),
        ] {
            assert_eq!(pairs_of(calls, results), [vec![], expected.to_vec()], "{results:?}");
        }
    }
}
