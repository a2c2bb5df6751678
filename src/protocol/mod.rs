//! Wire dialects: one folder each, one trait.
//!
//! A dialect turns body bytes into a [`Conversation`], a [`Plan`] into byte edits, and answers into usage. It
//! never knows why something is edited. The trait has a method per direction, never one per feature; what all
//! dialects share is in `splice` (plan to edits), `body` (reading the frame) and `conformance` (the tests that
//! every dialect passes).

pub mod answer;
mod body;
#[cfg(test)]
pub(crate) mod conformance;
mod content;
mod reader;
mod splice;

pub mod anthropic;
pub mod openai_chat;

use bytes::Bytes;

use crate::conversation::{Conversation, Memo, Role};
use crate::json::{Edits, Odd};
use crate::plan::{self, Plan};

pub use answer::{Answer, AnswerReader, AtFault, Fault, Refused};
pub use body::Unread;
pub use splice::Lowering;

/// A wire dialect.
pub trait Protocol: Send + Sync + std::fmt::Debug {
    /// Its name, as users write it.
    fn name(&self) -> &'static str;

    /// Reads a request body.
    ///
    /// # Errors
    /// [`Unread`] for anything that is not certainly understood; the request then passes through.
    fn index(&self, body: &Bytes, memo: &dyn Memo) -> Result<Conversation, Unread>;

    /// A message with one text, as it is written on the wire.
    fn message(&self, role: Role, text: &str) -> String;

    /// Reads the usage and the end of an answer. `streamed` says whether it is an event stream.
    fn answer(&self, streamed: bool) -> Box<dyn AnswerReader>;

    /// The body of an error that the gateway itself must report, in the shape that clients of this dialect read.
    fn fault(&self, fault: &Fault<'_>) -> String;

    /// What a provider's refusal is about.
    fn refused(&self, status: u16, body: &[u8]) -> Refused;

    /// The byte edits that carry out a plan.
    ///
    /// # Errors
    /// [`Lowering`] when the plan breaks a rule or does not fit the conversation.
    fn lower(&self, conversation: &Conversation, plan: &Plan) -> Result<Edits, Lowering> {
        plan::check(conversation, plan)?;
        splice::lower(conversation, plan, &|role, text| self.message(role, text))
    }
}

/// All dialects.
pub const ALL: &[&dyn Protocol] = &[&anthropic::Anthropic, &openai_chat::OpenAiChat];

/// The dialect with a name.
pub fn named(name: &str) -> Option<&'static dyn Protocol> {
    ALL.iter().copied().find(|protocol| protocol.name() == name)
}

/// Carries out a plan on a request and proves the result: what comes back was read again and compared with
/// what the plan means.
///
/// # Errors
/// Why the original must be sent instead.
pub fn rewrite(
    protocol: &dyn Protocol,
    conversation: &Conversation,
    plan: &Plan,
    memo: &dyn Memo,
) -> Result<Bytes, Unsafe> {
    let edits = protocol.lower(conversation, plan)?;
    let body = Bytes::from(edits.apply(&conversation.body));
    let after = protocol.index(&body, memo)?;
    plan::verify(conversation, plan, &after)?;
    Ok(body)
}

/// Why a rewritten request is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unsafe {
    /// The plan could not be carried out.
    #[error(transparent)]
    Lowering(#[from] Lowering),
    /// The result cannot be read.
    #[error(transparent)]
    Unread(#[from] Unread),
    /// The result is not what was planned.
    #[error(transparent)]
    Mismatch(#[from] plan::Mismatch),
}

impl From<Odd> for Unread {
    fn from(odd: Odd) -> Self {
        Self::Odd(odd)
    }
}
