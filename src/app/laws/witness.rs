//! Sees everything that is sent, and remembers it better than the gateway does.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher as _};

use bytes::Bytes;
use proptest::prelude::*;

use super::thoughts::Thoughts;
use super::unchanged::{frame_is_kept, only_results_change, pairs_are_kept, rules_are_kept, weight};
use crate::conversation::{Conversation, NoMemo, PartId};
use crate::planner::Event;
use crate::protocol::conformance::openai_chat::THOUGHTS;
use crate::protocol::conformance::tree::Tree;
use crate::protocol::conformance::{Subject, is_text};
use crate::strategy::gate::Reason;
use crate::usage;

/// Hashes of a message that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    /// As spelled by the client.
    raw: u64,
    /// What the client said in it, without cache marks.
    said: u64,
    /// As spelled by the gateway.
    wire_raw: u64,
    /// What was said on the wire, without cache marks.
    wire: u64,
}

/// A result, identified by its call and its text.
type ResultKey = (Option<String>, String);

/// What one principal has sent.
pub(super) struct Witness {
    subject: &'static dyn Subject,
    /// Whether no two calls have the same id.
    tells_apart: bool,
    /// Requests that went through a gateway, newest last.
    sent: Vec<Sent>,
    /// The forms in which results were sent, wherever they were.
    results: HashMap<ResultKey, HashSet<String>>,
    pub(super) thoughts: Thoughts,
}

/// A request that was sent.
struct Sent {
    seen: Vec<Seen>,
    wire: Vec<Tree>,
}

/// A request as the client made it and as it was sent, without added cache marks.
struct Pair {
    conversation: Conversation,
    messages: Vec<Tree>,
    wire: Vec<Tree>,
    seen: Vec<Seen>,
}

impl Witness {
    pub(super) fn new(subject: &'static dyn Subject, tells_apart: bool) -> Self {
        let (sent, results) = (Vec::new(), HashMap::new());
        Self { subject, tells_apart, sent, results, thoughts: Thoughts::default() }
    }

    /// Records that the provider was asked without a gateway.
    pub(super) fn bypassed(&mut self, body: &Bytes) {
        self.thoughts.bypassed(self.subject, body);
    }

    /// Judges a request that went through a gateway: as received, as sent, and as sent without added cache marks.
    pub(super) fn through(
        &mut self,
        body: &Bytes,
        wire: &Bytes,
        bare: &Tree,
        event: Option<&Event>,
    ) -> Result<(), TestCaseError> {
        let pair = self.pair(body, bare)?;
        frame_is_kept(self.subject, body, bare)?;
        rules_are_kept(self.subject, &pair.conversation, wire)?;
        pairs_are_kept(self.subject, &pair.messages, &pair.wire)?;
        only_results_change(self.subject, &pair.messages, &pair.wire)?;
        let cleared = self.cleared(&pair, event);
        self.sent_is_a_prefix(&pair, event)?;
        self.cleared_well(&pair, &cleared, event)?;
        self.old_is_known(&pair, &cleared)?;
        let (subject, of, messages, wire) = (self.subject, &pair.conversation, &pair.messages, &pair.wire);
        self.thoughts.through(subject, of, messages, wire, Some)?;
        for (message, wired) in pair.messages.iter().zip(&pair.wire) {
            for (key, text) in results(self.subject, message, wired) {
                self.results.entry(key).or_default().insert(text);
            }
        }
        self.sent.push(Sent { seen: pair.seen, wire: pair.wire });
        Ok(())
    }

    fn pair(&self, body: &Bytes, bare: &Tree) -> Result<Pair, TestCaseError> {
        let conversation = self.subject.protocol().index(body, &NoMemo).expect("bodies are read");
        let list = |root: &Tree| self.subject.messages_of(root).to_vec();
        let (messages, wire) = (list(&Tree::parse(super::text(body))), list(bare));
        prop_assert_eq!(messages.len(), wire.len());
        let seen = messages.iter().zip(&wire).map(|(message, wired)| Seen {
            raw: hash(message),
            said: hash(&plain(self.subject, message)),
            wire_raw: hash(wired),
            wire: hash(&plain(self.subject, wired)),
        });
        let seen = seen.collect();
        Ok(Pair { conversation, messages, wire, seen })
    }

    /// The longest history that was sent before, alone or within a longer request, in messages; and the requests with
    /// it: those that consist of it, otherwise the first one that begins with it.
    fn before(&self, pair: &Pair) -> (usize, Vec<&Sent>) {
        let shared = |sent: &Sent| {
            let shared = sent.seen.iter().zip(&pair.seen).take_while(|(a, b)| a.said == b.said).count();
            let ends = |count: &usize| {
                *count == sent.seen.len() || !self.subject.is_answer(&pair.messages[count - 1])
            };
            (1..=shared).rev().find(ends).unwrap_or(0)
        };
        longest(&self.sent, shared, |sent| sent.seen.len())
    }

    /// Law 7: every request begins with what the previous one sent, unless it records an event: then only with what
    /// precedes the first message that the event changes.
    fn sent_is_a_prefix(&self, pair: &Pair, event: Option<&Event>) -> Result<(), TestCaseError> {
        let end = event.map_or(usize::MAX, |event| event.first_message as usize);
        let (count, before) = self.before(pair);
        for earlier in before {
            let is_again = count == pair.seen.len() && count == earlier.seen.len();
            prop_assert!(event.is_none() || !is_again, "an event when a request is made again");
            for (at, (a, b)) in earlier.seen.iter().zip(&pair.seen).enumerate().take(end.min(count)) {
                let same = a.wire == b.wire && (a.raw != b.raw || a.wire_raw == b.wire_raw);
                prop_assert!(same, "message {} of {} was sent otherwise: {:?}", at, count, pair.wire[at]);
            }
        }
        Ok(())
    }

    /// The results that were sent in another form before, as message and part. After the request that it continues, a
    /// history may still be the beginning of a longer one; what is new there is recorded by the event.
    fn cleared(&self, pair: &Pair, event: Option<&Event>) -> Vec<(usize, usize)> {
        let (end, _) = self.before(pair);
        let mut cleared = Vec::new();
        for at in 0..if event.is_some() { pair.wire.len() } else { end } {
            let Some(earlier) = self.was(pair, at) else { break };
            for (part, _, content) in self.subject.results(earlier) {
                let (_, _, after) = find(self.subject, &pair.wire[at], part);
                if plain(self.subject, &content) != plain(self.subject, &after) {
                    cleared.push((at, part));
                }
            }
        }
        cleared
    }

    /// How a message was sent with the request that this one continues, otherwise when it was first sent.
    fn was(&self, pair: &Pair, at: usize) -> Option<&Tree> {
        let (count, before) = self.before(pair);
        let before = before.last().filter(|_| at < count).map(|earlier| &earlier.wire[at]);
        let shares = |sent: &&Sent| {
            sent.seen.len() > at
                && sent.seen.iter().zip(&pair.seen).take(at + 1).all(|(a, b)| a.said == b.said)
        };
        before.or_else(|| self.sent.iter().find(shares).map(|sent| &sent.wire[at]))
    }

    /// The first message that loses its reasoning with this request.
    fn forgets(&self, pair: &Pair) -> Option<u32> {
        let lost = pair.wire.iter().enumerate().position(|(at, wire)| {
            let was = self.was(pair, at).unwrap_or(&pair.messages[at]);
            thoughts(was) > thoughts(wire)
        });
        lost.map(|at| at as u32)
    }

    /// An event does what it records, and never affects what it must not.
    fn cleared_well(
        &self,
        pair: &Pair,
        cleared: &[(usize, usize)],
        event: Option<&Event>,
    ) -> Result<(), TestCaseError> {
        let first = cleared.first().map(|(at, _)| *at as u32);
        let forgets = event.filter(|event| event.reasoning > 0).and_then(|_| self.forgets(pair));
        prop_assert_eq!(event.map(|event| event.first_message), first.into_iter().chain(forgets).min());
        prop_assert_eq!(event.map_or(0, |event| event.cleared as usize), cleared.len());
        let tail = pair.messages.iter().rposition(|message| self.subject.is_answer(message)).unwrap_or(0);
        let is_bound = pair.conversation.model.as_deref().and_then(usage::binding).is_some();
        let thinks = is_bound && pair.messages.iter().any(|message| thoughts(message) > 0);
        let may = event.is_none_or(|event| matches!(event.reason, Reason::Window | Reason::Cold));
        prop_assert!(may || !thinks, "what is bound is changed for the money's sake: {:?}", event);
        let protected = glob::Pattern::new(super::rig::PROTECTED).expect("a pattern");
        for &(at, part) in cleared {
            prop_assert!(at < tail, "the step in progress is cleared");
            let (_, _, after) = find(self.subject, &pair.wire[at], part);
            let mut was = self.was(pair, at).expect("it was sent").clone();
            let images = self.subject.take_images(&mut was, part, |_| true);
            let left = self.subject.take_images(&mut pair.wire[at].clone(), part, |_| true);
            prop_assert!(left.is_empty(), "an image is left of {:?}", after);
            let (_, _, before) = find(self.subject, &was, part);
            let (before, after) = (texts(&before).concat(), texts(&after).concat());
            let is_placeholder = after.contains("[plimsoll: result of ") && after.contains(" cleared (");
            prop_assert!(is_placeholder, "{}", after);
            let images = images.iter().map(weight).sum::<usize>();
            prop_assert!(after.len() < before.len() + images, "{} is longer than {}", after, before);
            prop_assert!(!before.contains(" cleared ("), "cleared twice: {}", after);
            let id = PartId { message: at as u32, part: part as u32 };
            let tool = pair.conversation.tool_of(id).expect("only results of calls are cleared");
            prop_assert!(!protected.matches(tool), "{} is protected", tool);
            let result = pair.conversation.part(id).expect("a result");
            let again = pair.conversation.messages[at..].iter().flat_map(|message| &*message.index.parts);
            let again =
                again.filter(|part| part.content().is_some() && part.content() == result.content()).count()
                    > 1;
            prop_assert!(!result.is_error() || again, "an error is cleared");
        }
        Ok(())
    }

    /// Everything before the model's last words was sent before, or has bypassed the gateway: it is sent as it was, in
    /// a form that it once had if its history was replaced, or as received.
    fn old_is_known(&self, pair: &Pair, cleared: &[(usize, usize)]) -> Result<(), TestCaseError> {
        let tail = pair.messages.iter().rposition(|message| self.subject.is_answer(message));
        for at in 0..tail.unwrap_or(0) {
            let said = results(self.subject, &pair.messages[at], &pair.wire[at]);
            for ((part, ..), (key, text)) in self.subject.results(&pair.messages[at]).iter().zip(said) {
                if cleared.contains(&(at, *part)) {
                    continue;
                }
                let known = self.results.get(&key);
                let is_known = known.is_some_and(|known| known.contains(&text));
                prop_assert!(is_known || key.1 == text, "{:?} was never sent as {:?}", key, text);
                // A pointer means nothing if its target is missing; everything else does. A call without an id of its
                // own cannot be distinguished here.
                let only = known
                    .filter(|known| known.len() == 1 && key.0.is_some() && self.tells_apart)
                    .and_then(|known| known.iter().next());
                let once = only.filter(|only| !is_pointer(only) || self.is_there(pair, at, only, &key.1));
                prop_assert!(once.is_none_or(|once| *once == text), "{:?} was sent as {:?}", text, once);
            }
        }
        Ok(())
    }

    /// Whether the result that a pointer names is in an earlier message, has this text, and is sent in full.
    fn is_there(&self, pair: &Pair, at: usize, pointer: &str, came: &str) -> bool {
        (0..at).any(|before| {
            let said = results(self.subject, &pair.messages[before], &pair.wire[before]);
            said.into_iter().any(|((call, text), sent)| {
                let is_named = call.is_some_and(|call| pointer.contains(&format!(" ({call}), ")));
                is_named && text == came && !is_pointer(&sent) && !sent.contains(" cleared (")
            })
        })
    }
}

fn is_pointer(text: &str) -> bool {
    text.contains("same output as the earlier call")
}

/// The longest history that a request shares with earlier ones, in messages, and the requests that share it: those that
/// consist of it, otherwise the first one. `shared` gives how much one shares, `whole` how long it is.
pub(super) fn longest<T>(
    earlier: &[T],
    shared: impl Fn(&T) -> usize,
    whole: impl Fn(&T) -> usize,
) -> (usize, Vec<&T>) {
    let shared: Vec<(usize, &T)> = earlier.iter().map(|earlier| (shared(earlier), earlier)).collect();
    let longest = shared.iter().map(|(count, _)| *count).max().unwrap_or(0);
    let with: Vec<&T> = shared
        .into_iter()
        .filter(|(count, _)| longest > 0 && *count == longest)
        .map(|(_, one)| one)
        .collect();
    let (wholes, others): (Vec<&T>, Vec<&T>) = with.into_iter().partition(|one| whole(one) == longest);
    (longest, if wholes.is_empty() { others.into_iter().take(1).collect() } else { wholes })
}

/// The number of reasoning items of a message: in a list of blocks, next to it, or the message itself.
pub(super) fn thoughts(message: &Tree) -> usize {
    let blocks = match message.get("content") {
        Some(Tree::List(blocks)) => blocks.iter().filter(|block| is_thought(block)).count(),
        _ => 0,
    };
    let beside = THOUGHTS.iter().filter(|name| message.get(name).is_some()).count();
    blocks + beside + usize::from(message.text_of("type").as_deref() == Some("reasoning"))
}

fn is_thought(block: &Tree) -> bool {
    matches!(block.text_of("type").as_deref(), Some("thinking" | "redacted_thinking"))
}

pub(super) fn without_thoughts(message: &mut Tree) {
    if let Tree::Map(members) = message {
        members.retain(|(name, _)| !THOUGHTS.contains(&name.as_str()));
    }
    if let Some(Tree::List(blocks)) = message.get_mut("content") {
        blocks.retain(|block| !is_thought(block));
    }
}

/// All strings in some content.
pub(super) fn texts(content: &Tree) -> Vec<String> {
    match content {
        Tree::List(items) => items.iter().flat_map(texts).collect(),
        Tree::Map(members) => members.iter().flat_map(|(_, value)| texts(value)).collect(),
        other => other.text().into_iter().collect(),
    }
}

/// The results of a message, and how they are sent.
fn results(subject: &dyn Subject, message: &Tree, wired: &Tree) -> Vec<(ResultKey, String)> {
    let said = |content: &Tree| format!("{:?}", plain(subject, content));
    let found = subject.results(message).into_iter().map(|(part, call, content)| {
        let (_, _, after) = find(subject, wired, part);
        ((call, said(&content)), said(&after))
    });
    found.collect()
}

pub(super) fn find(subject: &dyn Subject, message: &Tree, part: usize) -> (usize, Option<String>, Tree) {
    let all = subject.results(message);
    all.into_iter().find(|(at, _, _)| *at == part).expect("a result stays a result")
}

/// What is said, whether as a string or as one block, without marks.
pub(super) fn plain(subject: &dyn Subject, message: &Tree) -> Tree {
    let mut plain = message.plain(subject.marks());
    flatten(&mut plain);
    plain
}

/// Treats a list with one text like that text.
fn flatten(tree: &mut Tree) {
    match tree {
        Tree::List(items) => {
            items.iter_mut().for_each(flatten);
            if let [only] = &items[..]
                && is_text(only)
                && let Some(text) = only.text_of("text")
            {
                *tree = Tree::Text(text);
            }
        }
        Tree::Map(members) => members.iter_mut().for_each(|(_, value)| flatten(value)),
        Tree::Raw(_) | Tree::Text(_) | Tree::Json(_) => {}
    }
}

pub(super) fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
