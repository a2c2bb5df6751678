//! Anthropic Messages.
//!
//! Tool results are blocks of user messages. Reasoning is signed, so it is kept unchanged or removed whole. A block of
//! an unknown type is opaque. Consecutive messages of the same role are allowed.

mod answer;
mod ask;
mod dialect;
mod edits;
mod error;
mod index;
mod summary;

use super::{AnswerReader, Ask, Asked, Dialect, Document, Fault, Framing, Protocol, Unread, between};
use crate::conversation::{Conversation, Memo};

/// The dialect.
#[derive(Debug, Clone, Copy)]
pub struct Anthropic;

impl Protocol for Anthropic {
    fn dialect(&self) -> &'static Dialect {
        &dialect::DIALECT
    }

    /// Resellers name the model in the path: `…/models/MODEL:rawPredict`, `/model/MODEL/invoke`.
    fn model_of_path<'p>(&self, path: &'p str) -> Option<&'p str> {
        between(path, "models", ':').or_else(|| between(path, "model", '/'))
    }

    fn conversation(&self, document: Document, memo: &dyn Memo) -> Result<Conversation, Unread> {
        index::conversation(document, memo)
    }

    fn edits_from(&self, conversation: &Conversation) -> Option<u64> {
        edits::from(conversation)
    }

    fn ask(&self, question: &Ask<'_>) -> Asked {
        ask::ask(question)
    }

    fn text_of_answer(&self, answer: &[u8]) -> Option<String> {
        ask::text_of_answer(answer)
    }

    fn answer(&self, framing: Framing) -> Box<dyn AnswerReader> {
        answer::reader(framing)
    }

    fn fault(&self, fault: &Fault<'_>) -> String {
        error::body(fault)
    }
}
