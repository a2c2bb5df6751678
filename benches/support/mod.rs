//! What is measured: requests of synthetic sessions, and what the gateway's core does with them.

mod memo;
pub(crate) mod session;
pub(crate) mod text;

use std::fmt::{self, Write as _};
use std::sync::Mutex;

use bytes::Bytes;
use plimsoll::conversation::{Conversation, Memo, NoMemo, Role};
use plimsoll::planner::{self, Applied, Facts, Outcome, Past, Policy, Standing};
use plimsoll::protocol::{self, Protocol, anthropic::Anthropic, openai_chat::OpenAiChat};

use memo::{During, Known};
use session::{Dialect, Session};
use text::Random;

/// The seed that all cases are made from.
pub(crate) const SEED: u64 = 7;

/// An answer as a stream of events, about `bytes` bytes long.
pub(crate) fn events(bytes: usize) -> String {
    let mut random = Random::new(SEED);
    let mut stream = String::with_capacity(bytes + 200);
    while stream.len() < bytes {
        let text = text::prose(&mut random, 12).replace('\n', " ");
        let delta = format!(r#"{{"type":"text_delta","text":"{text}"}}"#);
        let _ = write!(
            stream,
            "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{delta}}}\n\n"
        );
    }
    stream
}

/// What is done to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Read a known session and find nothing to do.
    Pass,
    /// Read results that are all new, shorten them, write the request and verify it.
    Shape,
    /// One more step of a session: all but the last two messages are known, and old decisions apply.
    MemoWarm,
    /// The same with the gateway's own kind of cache.
    MemoCache,
    /// The same with nothing remembered.
    MemoCold,
}

impl fmt::Display for Operation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Pass => "pass",
            Self::Shape => "shape",
            Self::MemoWarm => "memo_warm",
            Self::MemoCache => "memo_cache",
            Self::MemoCold => "memo_cold",
        })
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(protocol(*self).name())
    }
}

fn protocol(dialect: Dialect) -> &'static dyn Protocol {
    match dialect {
        Dialect::Anthropic => &Anthropic,
        Dialect::OpenAiChat => &OpenAiChat,
    }
}

/// A request, and what the gateway knows when it is received.
pub(crate) struct Case {
    protocol: &'static dyn Protocol,
    body: Bytes,
    /// `None`: no memo at all.
    known: Option<Known>,
    sent: usize,
    applied: Vec<Applied>,
    policy: Policy,
    /// What the last plan left. A request that is run again finds its own messages counted.
    standing: Mutex<Option<Box<Standing>>>,
}

impl Case {
    pub(crate) fn new(dialect: Dialect, operation: Operation, bytes: usize) -> Self {
        let session = match operation {
            Operation::Shape => Session::burst(dialect, bytes, SEED),
            _ => Session::grown(dialect, bytes, SEED),
        };
        let mut case = Self {
            protocol: protocol(dialect),
            body: session.body(),
            known: Some(Known::nothing()),
            sent: 0,
            applied: Vec::new(),
            policy: Policy::default(),
            standing: Mutex::default(),
        };
        if operation != Operation::Shape {
            case.play(operation == Operation::Pass);
        }
        match operation {
            Operation::MemoCold => case.known = None,
            Operation::MemoCache => case.known = case.known.map(Known::cached),
            Operation::Pass | Operation::Shape | Operation::MemoWarm => {}
        }
        case
    }

    /// The size of the request in bytes.
    pub(crate) fn len(&self) -> usize {
        self.body.len()
    }

    /// Carries the request through; returns the bytes that would be sent.
    pub(crate) fn run(&self) -> Bytes {
        match &self.known {
            Some(known) => self.carry(&During::new(known)),
            None => self.carry(&NoMemo),
        }
    }

    fn carry(&self, memo: &dyn Memo) -> Bytes {
        let conversation = self.protocol.index(&self.body, memo).expect("the session is well-formed");
        let outcome = self.plan(&conversation, self.sent, &self.applied);
        if outcome.plan.is_empty() {
            return conversation.body;
        }
        protocol::apply_verified(self.protocol, &conversation, &outcome.plan, memo)
            .expect("the plan can be carried out")
            .body
    }

    fn plan(&self, conversation: &Conversation, sent: usize, applied: &[Applied]) -> Outcome {
        let mut standing = self.standing.lock().expect("nobody panics with it");
        let past = Past { sent, applied, standing: standing.take(), ..Past::nothing() };
        let recall = |id: &str| format!("full output: /home/me/.local/state/plimsoll/outputs/{id}");
        let mut outcome = planner::plan(conversation, past, &self.policy, &Facts::default(), &recall);
        *standing = outcome.standing.take();
        outcome
    }

    /// Plays the session up to the previous request, which ends before the last message of the model. With `done`, this
    /// request too, without decisions.
    fn play(&mut self, done: bool) {
        let nothing = Known::nothing();
        let memo = During::new(&nothing);
        let mut conversation = self.protocol.index(&self.body, &memo).expect("the session is well-formed");
        let count = conversation.messages.len();
        if done {
            (self.sent, self.known) = (count, Some(memo.learned()));
            return;
        }
        let messages = std::mem::take(&mut conversation.messages);
        let ends = (1..count).filter(|next| messages[*next].index.role == Role::Assistant);
        for end in ends {
            conversation.messages = messages[..end].to_vec();
            self.applied = self.plan(&conversation, self.sent, &self.applied).applied;
            self.sent = end;
        }
        self.known = Some(self.remember(&conversation));
    }

    /// What is remembered after a request with these messages: as received and as sent.
    fn remember(&self, before: &Conversation) -> Known {
        let end = before.messages.last().map_or(before.array.start + 1, |message| message.span.end);
        let body = [&self.body[..end as usize], b"]}"].concat().into();
        let nothing = Known::nothing();
        let memo = During::new(&nothing);
        let conversation = self.protocol.index(&body, &memo).expect("the session is well-formed");
        let outcome = self.plan(&conversation, self.sent, &self.applied);
        protocol::apply_verified(self.protocol, &conversation, &outcome.plan, &memo)
            .expect("the plan can be carried out");
        memo.learned()
    }
}

/// A short description of the request.
impl fmt::Display for Case {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let conversation = self.protocol.index(&self.body, &NoMemo).expect("the session is well-formed");
        let (messages, old) = (conversation.messages.len(), self.applied.len());
        let fresh = self.plan(&conversation, self.sent, &self.applied).fresh;
        let (bytes, sent) = (self.len(), self.run().len());
        write!(out, "{messages} messages, {old} old decisions, {fresh} new ones, {bytes} bytes, {sent} sent")
    }
}
