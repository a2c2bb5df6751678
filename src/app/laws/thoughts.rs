//! Reasoning, judged as providers do: the turn in progress keeps all of it, and reasoning that is bound to what
//! precedes it is sent after nothing else.

use bytes::Bytes;
use proptest::prelude::*;

use super::text;
use super::witness::{hash, plain, thoughts, without_thoughts};
use crate::conversation::Conversation;
use crate::protocol::conformance::Subject;
use crate::protocol::conformance::tree::Tree;
use crate::usage::{self, Binding};

/// What the model was asked, in order.
#[derive(Clone, Default)]
pub(super) struct Thoughts {
    asked: Vec<Asked>,
    /// Requests in which bound reasoning was found after what it is bound to.
    pub(super) bound: u32,
    /// Messages that were sent with reasoning left out.
    pub(super) left_out: u32,
}

/// A request as the model received it.
#[derive(Clone)]
struct Asked {
    /// Hashes of what the client said.
    said: Vec<u64>,
    /// The same as sent, without reasoning and marks; `None`: without a gateway, and reasoning in the answer to that is
    /// valid for nothing else.
    wire: Option<Vec<u64>>,
    /// Whether the model's provider rejects reasoning after a change.
    binds: bool,
}

impl Thoughts {
    /// Records that the provider was asked without a gateway.
    pub(super) fn bypassed(&mut self, subject: &dyn Subject, body: &Bytes) {
        let root = Tree::parse(text(body));
        let messages = subject.messages_of(&root);
        self.asked.push(Asked { said: said(subject, messages), wire: None, binds: false });
    }

    /// Judges a request that went through a gateway. `origin` gives the client's message that is sent at a place.
    pub(super) fn through(
        &mut self,
        subject: &dyn Subject,
        conversation: &Conversation,
        messages: &[Tree],
        wire: &[Tree],
        origin: impl Fn(usize) -> Option<usize>,
    ) -> Result<(), TestCaseError> {
        let binding = conversation.model.as_deref().and_then(usage::binding);
        let (said, bare) = (said(subject, messages), bare(subject, wire));
        let turn = turn(subject, messages);
        let mut found = false;
        for (at, wired) in wire.iter().enumerate() {
            let Some(came) = origin(at) else { continue };
            let [before, after] = [&messages[came], wired].map(thoughts);
            self.left_out += u32::from(after < before);
            if binding != Some(Binding::Refused) {
                // If no reasoning is read, removing it is never worthwhile; but another model may be rejected after a
                // change.
                let is_free = || conversation.forgets_reasoning && !self.is_bound(&said[..came], &bare[..at]);
                let may = came < turn && !is_free();
                prop_assert!(may || after == before, "message {} of a turn from {} on", came, turn);
            } else if after > 0 {
                // The answer is to the last request with this history.
                let asked = self.asked.iter().rev().find(|asked| asked.said == said[..came]);
                let asked = asked.and_then(|asked| asked.wire.as_ref());
                found |= asked.is_some();
                let same = asked.is_none_or(|wire| *wire == bare[..at]);
                prop_assert!(same, "what was thought in message {} was thought upon something else", came);
            }
        }
        self.bound += u32::from(found);
        self.asked.push(Asked { said, wire: Some(bare), binds: binding == Some(Binding::Refused) });
        Ok(())
    }

    /// Whether a model that binds reasoning was sent everything in `said` in a form other than `wire`.
    fn is_bound(&self, said: &[u64], wire: &[u64]) -> bool {
        let differs = |sent: &Vec<u64>| !sent.starts_with(wire);
        let is_other =
            |asked: &Asked| asked.said.starts_with(said) && asked.wire.as_ref().is_some_and(differs);
        self.asked.iter().any(|asked| asked.binds && is_other(asked))
    }
}

/// Where the turn in progress begins: with the last run of messages from the user's side without a result.
pub(super) fn turn(subject: &dyn Subject, messages: &[Tree]) -> usize {
    let (mut begin, mut first) = (0, 0);
    for row in messages.chunk_by(|one, other| subject.is_answer(one) == subject.is_answer(other)) {
        if !subject.is_answer(&row[0]) && row.iter().all(|message| subject.results(message).is_empty()) {
            begin = first;
        }
        first += row.len();
    }
    begin
}

fn said(subject: &dyn Subject, messages: &[Tree]) -> Vec<u64> {
    messages.iter().map(|message| hash(&plain(subject, message))).collect()
}

fn bare(subject: &dyn Subject, messages: &[Tree]) -> Vec<u64> {
    let said = |message: &Tree| {
        let mut message = message.clone();
        without_thoughts(&mut message);
        hash(&plain(subject, &message))
    };
    messages.iter().map(said).collect()
}
