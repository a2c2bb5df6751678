//! Google Gemini: `generateContent`, streamed and not.
//!
//! The model is named in the path. Calls and results may have no ids, and are then paired by name and order. A
//! signature is next to the part that it signs, which is then never edited. Names are written in camel case or in snake
//! case; a request with a part that uses both for one member is not read.

mod answer;
mod ask;
mod dialect;
mod error;
mod index;
mod pair;

use bytes::Bytes;

use super::{
    AnswerReader, Ask, Asked, Dialect, Document, Envelope, Fault, Framing, Lowering, Protocol, Unread,
    between, splice,
};
use crate::conversation::{Conversation, Memo, Role};
use crate::json::{Edits, string};
use crate::plan::{self, Op, Plan, Refusal};

/// The dialect.
#[derive(Debug, Clone, Copy)]
pub struct Gemini;

impl Protocol for Gemini {
    fn dialect(&self) -> &'static Dialect {
        &dialect::DIALECT
    }

    fn conversation(&self, document: Document, memo: &dyn Memo) -> Result<Conversation, Unread> {
        index::conversation(document, memo)
    }

    /// `…/models/MODEL:verb`.
    fn model_of_path<'p>(&self, path: &'p str) -> Option<&'p str> {
        between(path, "models", ':')
    }

    /// `{"generateContentRequest": …}`, in which alone instructions and tools are counted, and `{"request": …}`, as
    /// Code Assist (the login of Google's own clients) expects it.
    fn envelope(&self, body: &Bytes) -> Option<Envelope> {
        Envelope::read(body, self.list(), &["request", "generateContentRequest", "generate_content_request"])
    }

    /// This dialect has no instructions within the history: they become the user's.
    fn message(&self, role: Role, text: &str) -> String {
        let role = if role == Role::Assistant { "model" } else { "user" };
        format!(r#"{{"role":"{role}","parts":[{{"text":{}}}]}}"#, string::encode(text))
    }

    fn lower(&self, conversation: &Conversation, plan: &Plan) -> Result<Edits, Lowering> {
        let instructs = |op: &Op| matches!(op, Op::Insert { role: Role::System, .. });
        if plan.ops.iter().any(instructs) {
            return Err(Refusal::Order.into());
        }
        plan::check(conversation, plan)?;
        splice::lower(conversation, plan, &|role, text| self.message(role, text))
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
