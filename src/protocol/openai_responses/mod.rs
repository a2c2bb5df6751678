//! OpenAI Responses over HTTP.
//!
//! The history is a list of items, or a single text. Each item counts as a message, and reasoning belongs to the item
//! after it. Unknown items, compactions and references are never edited.

mod answer;
mod ask;
mod dialect;
mod index;

use super::content::role_and_content;
use super::{
    AnswerReader, Ask, Asked, Dialect, Document, Fault, Framing, Object, Protocol, Unlisted, Unread, openai,
};
use crate::conversation::{Conversation, Memo, Role};
use crate::json::Edit;

/// The dialect.
#[derive(Debug, Clone, Copy)]
pub struct OpenAiResponses;

impl Protocol for OpenAiResponses {
    fn dialect(&self) -> &'static Dialect {
        &dialect::DIALECT
    }

    fn conversation(&self, document: Document, memo: &dyn Memo) -> Result<Conversation, Unread> {
        index::conversation(document, memo)
    }

    fn edits_from(&self, conversation: &Conversation) -> Option<u64> {
        index::edits_from(conversation)
    }

    fn unlisted(&self, frame: &Object<'_>) -> Option<Unlisted> {
        index::unlisted(frame)
    }

    fn message(&self, role: Role, text: &str) -> String {
        format!(r#"{{"type":"message",{}}}"#, role_and_content(role, text))
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

    fn add_cache_key(&self, frame: &Object<'_>, key: &str) -> Option<Edit> {
        openai::add_cache_key(frame, self.list(), key)
    }

    fn fault(&self, fault: &Fault<'_>) -> String {
        openai::fault(fault)
    }
}
