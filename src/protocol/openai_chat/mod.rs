//! OpenAI Chat Completions, and the many servers that speak it.
//!
//! A tool result is a message of its own. Reasoning is in members next to the content or in blocks of it, and is kept
//! unchanged or removed whole.

mod answer;
mod ask;
mod dialect;
mod include_usage;
mod index;
mod single_call;

use super::content::role_and_content;
use super::splice::{self, Lowering};
use super::{AnswerReader, Ask, Asked, Dialect, Document, Fault, Framing, Object, Protocol, Unread, openai};
use crate::conversation::{Carriers, Conversation, Memo, Role};
use crate::json::{Edit, Edits};
use crate::plan::{self, Plan};

/// The dialect.
#[derive(Debug, Clone, Copy)]
pub struct OpenAiChat;

impl Protocol for OpenAiChat {
    fn dialect(&self) -> &'static Dialect {
        &dialect::DIALECT
    }

    fn conversation(&self, document: Document, memo: &dyn Memo) -> Result<Conversation, Unread> {
        index::conversation(document, memo)
    }

    fn with_marks(&self, conversation: Conversation, carriers: Carriers) -> Conversation {
        index::with_marks(conversation, carriers)
    }

    fn lower(&self, conversation: &Conversation, plan: &Plan) -> Result<Edits, Lowering> {
        plan::check(conversation, plan)?;
        let has_reasoning = index::drops_reasoning_content(conversation, plan);
        splice::lower(conversation, plan, &|role, text| match role {
            Role::Assistant if has_reasoning => {
                format!(r#"{{{},"reasoning_content":""}}"#, role_and_content(role, text))
            }
            _ => self.message(role, text),
        })
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

    fn ask_for_usage(&self, frame: &Object<'_>) -> Option<Edit> {
        include_usage::ask(frame)
    }

    fn only_states_usage(&self, event: &[u8]) -> bool {
        include_usage::only_states_usage(event)
    }

    fn add_cache_key(&self, frame: &Object<'_>, key: &str) -> Option<Edit> {
        openai::add_cache_key(frame, self.list(), key)
    }

    fn fault(&self, fault: &Fault<'_>) -> String {
        openai::fault(fault)
    }
}
