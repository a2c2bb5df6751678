//! Pairs calls with results where ids are missing.
//!
//! The provider pairs by name and order within one exchange, which is the model's calls and the results right after
//! them:
//!
//! - A result without an id gets the id of the first open call of the same tool.
//! - A call without an id is given one that is made from its content. If several calls of an exchange have the same id,
//!   all but the first get a number appended, the lowest that is free, and so do the results with that id, in order.
//!
//! So no id is given twice. Since numbers are rarely needed, messages that were paired before keep their ids when
//! others among them are read anew.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::conversation::{Call, Message, Part, PartData, Role, ToolResult};

/// Gives calls and results the ids by which they pair.
pub(super) fn pair(messages: &mut [Message]) {
    let mut exchange = Exchange::default();
    let mut speaker = Role::User;
    for message in messages {
        if message.index.role == Role::Assistant && speaker != Role::Assistant {
            exchange = Exchange::default();
        }
        speaker = message.index.role;
        let parts = message.index.parts.iter().enumerate();
        let ids: Vec<(usize, Box<str>)> =
            parts.filter_map(|(at, part)| Some((at, exchange.new_id(part)?))).collect();
        if !ids.is_empty() {
            let index = Arc::make_mut(&mut message.index);
            for (at, id) in ids {
                index.parts[at].set_call_id(id);
            }
        }
    }
}

/// The calls and results of one exchange so far.
#[derive(Default)]
struct Exchange {
    /// For each id that a call has: the last number that was tried for it.
    given: HashMap<Box<str>, u32>,
    /// For each tool: the ids of its calls that may have no result yet, in order.
    open: HashMap<Option<Box<str>>, VecDeque<Box<str>>>,
    /// For each id of a call with a result: the last number that was tried for it.
    answered: HashMap<Box<str>, u32>,
}

impl Exchange {
    /// The id that a part should get in place of its own or of none; `None` if it can stay as it is.
    fn new_id(&mut self, part: &Part) -> Option<Box<str>> {
        match &part.data {
            PartData::ToolCall(Call { id: Some(own), tool, .. }) => {
                let new = self.numbered(own);
                let id = new.as_ref().unwrap_or(own).clone();
                self.given.insert(id.clone(), 1);
                self.open.entry(tool.clone()).or_default().push_back(id);
                new
            }
            PartData::ToolResult(ToolResult { call_id: Some(own), .. }) => {
                let new = self.next_of(own);
                self.answered.entry(own.clone()).or_insert(1);
                new
            }
            PartData::ToolResult(ToolResult { call_id: None, tool, .. }) => {
                let open = self.open.get_mut(tool)?;
                let id =
                    std::iter::from_fn(|| open.pop_front()).find(|id| !self.answered.contains_key(id))?;
                self.answered.insert(id.clone(), 1);
                Some(id)
            }
            _ => None,
        }
    }

    /// For a result with the id `own`, whose call has a result already: the id of the next call that came with `own`.
    fn next_of(&mut self, own: &str) -> Option<Box<str>> {
        let tried = *self.answered.get(own)?;
        let numbered = (tried + 1..).map(|number| (number, format!("{own}/{number}").into_boxed_str()));
        let mut given = numbered.take_while(|(_, id)| self.given.contains_key(id));
        let (number, next) = given.find(|(_, id)| !self.answered.contains_key(id))?;
        self.answered.extend([(own.into(), number), (next.clone(), 1)]);
        Some(next)
    }

    /// For a call with the id `own`: that id with a number, if an earlier call has it.
    fn numbered(&mut self, own: &str) -> Option<Box<str>> {
        let mut number = *self.given.get(own)?;
        let free = loop {
            number += 1;
            let id: Box<str> = format!("{own}/{number}").into();
            if !self.given.contains_key(&id) {
                break id;
            }
        };
        self.given.insert(own.into(), number);
        Some(free)
    }
}

#[cfg(test)]
mod tests {
    use crate::conversation::NoMemo;
    use crate::conversation::{Conversation, PartId, PartKind};
    use crate::plan::{LeafEdit, Op, Plan};
    use crate::protocol::gemini::Gemini;
    use crate::protocol::{self, Protocol as _};

    /// Messages of calls and results: a call as its id, a result as `=` and its id, or `.` if it has none.
    fn read(messages: &[(&str, &str)]) -> Conversation {
        let part = |word: &str| match (word, word.strip_prefix('=')) {
            (".", _) => r#"{"functionResponse":{"response":{"output":"long"}}}"#.to_owned(),
            (_, Some(id)) => {
                format!(r#"{{"functionResponse":{{"id":"{id}","response":{{"output":"long"}}}}}}"#)
            }
            (id, None) => format!(r#"{{"functionCall":{{"id":"{id}"}}}}"#),
        };
        let message = |(role, parts): &(&str, &str)| {
            let parts: Vec<String> = parts.split_whitespace().map(part).collect();
            format!(r#"{{"role":"{role}","parts":[{}]}}"#, parts.join(","))
        };
        let messages: Vec<String> = messages.iter().map(message).collect();
        Gemini.index(&format!(r#"{{"contents":[{}]}}"#, messages.join(",")).into(), &NoMemo).unwrap()
    }

    fn ids(conversation: &Conversation) -> String {
        let parts = conversation.messages.iter().flat_map(|message| &*message.index.parts);
        parts.map(|part| part.call_id().unwrap_or("-")).collect::<Vec<_>>().join(" ")
    }

    /// Ids do not change if some messages are read anew and the others were paired before.
    #[test]
    fn missing_call_ids_are_assigned_uniquely_and_stay() {
        for (messages, expected) in [
            (&[("model", "a b"), ("user", ". .")][..], "a b a b"),
            (&[("model", "a a a"), ("user", ". . . .")], "a a/2 a/3 a a/2 a/3 -"),
            (&[("model", "a a"), ("user", ". a .")], "a a/2 a a/3 a/2"),
            (&[("model", "a a/2 a a"), ("user", ".")], "a a/2 a/3 a/4 a"),
            (&[("model", "a a a/2"), ("user", ". a/2 a")], "a a/2 a/2/2 a a/2/3 a/3"),
            (
                &[("model", "a a"), ("model", "a a"), ("user", ". a"), ("user", "a .")],
                "a a/2 a/3 a/4 a a/5 a/6 a/2",
            ),
            (&[("model", "a"), ("user", "."), ("model", "a"), ("user", ".")], "a a a a"),
            (&[("model", "a b"), ("user", "=b =a")], "a b b a"),
            (&[("model", "a a a"), ("user", "=a"), ("user", "=a =a")], "a a/2 a/3 a a/2 a/3"),
            (&[("model", "a a a"), ("user", ". =a .")], "a a/2 a/3 a a/2 a/3"),
            (&[("model", "a a"), ("user", "=a/2 =a")], "a a/2 a/2 a"),
            (&[("model", "a b"), ("user", "=a =a =b")], "a b a a b"),
        ] {
            let talk = read(messages);
            assert_eq!(ids(&talk), expected, "{messages:?}");
            let results = talk.messages.iter().enumerate().flat_map(|(at, _)| talk.parts_of(at));
            let results: Vec<PartId> =
                results.filter(|(_, part)| part.kind() == PartKind::ToolResult).map(|(id, _)| id).collect();
            for part in results {
                let leaves = vec![(0, LeafEdit::Replace("cut".into()))];
                let plan = Plan { ops: vec![Op::Text { part, leaves }] };
                let sent = protocol::apply_verified(&Gemini, &talk, &plan, &NoMemo).unwrap();
                assert_eq!(ids(&sent), expected, "{messages:?} {part:?}");
            }
        }
    }
}
