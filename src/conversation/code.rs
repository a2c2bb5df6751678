//! Results that are read by code which the provider runs, not by a model.
//!
//! If a model writes code that calls the client's tools, that code reads the results and needs them in full. None of it
//! is in the prompt. So nothing of such a result can be edited, cleared, pointed to or replaced by a pointer, and it
//! counts as nothing.

use std::sync::Arc;

use super::{Conversation, MessageIndex, Part, PartData, PartKind, ToolResult};

impl ToolResult {
    /// Forgets everything that a model would read.
    pub fn leave_to_code(&mut self) {
        (self.leaves, self.slots, self.media, self.content) = (Box::default(), None, None, None);
    }

    /// Whether no model reads it.
    pub const fn is_for_code(&self) -> bool {
        self.content.is_none()
    }
}

impl Part {
    /// Whether it is a call made by code, or the result of one.
    pub fn is_for_code(&self) -> bool {
        match &self.data {
            PartData::ToolCall(call) => call.is_for_code,
            PartData::ToolResult(result) => result.is_for_code(),
            _ => false,
        }
    }

    /// Whether it is a result that no model reads.
    pub fn is_read_by_code(&self) -> bool {
        self.result().is_some_and(ToolResult::is_for_code)
    }
}

impl Conversation {
    /// Marks the results of calls made by code. Messages are read one by one, and only the call says who made it.
    #[must_use]
    pub fn with_code_apart(mut self) -> Self {
        let is_call = |part: &Part| part.is_for_code() && part.kind() == PartKind::ToolCall;
        let Some(first) = self.messages.iter().position(|message| message.index.parts.iter().any(is_call))
        else {
            return self;
        };
        for at in first..self.messages.len() {
            let results = self.parts_of(at).filter(|(_, part)| part.kind() == PartKind::ToolResult);
            let called_by_code = |result| Some(is_call(self.part(self.call_of(result)?)?));
            let found = results.filter(|(id, part)| !part.is_for_code() && called_by_code(*id) == Some(true));
            let found: Vec<usize> = found.map(|(id, _)| id.part as usize).collect();
            if found.is_empty() {
                continue;
            }
            let index = &self.messages[at].index;
            let mut parts = index.parts.to_vec();
            let is_found = |(at, _): &(usize, &mut Part)| found.contains(at);
            for (_, part) in parts.iter_mut().enumerate().filter(is_found) {
                if let PartData::ToolResult(result) = &mut part.data {
                    result.leave_to_code();
                }
            }
            let read = MessageIndex::new(index.role, parts, index.fingerprint);
            let read = read.with_stem(index.stem).marked(index.is_marked).showing(index.shows);
            let raw = self.messages[at].span.of(&self.body);
            self.messages[at].index = Arc::new(read.with_encodings(raw));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use crate::conversation::{NoMemo, PartKind};
    use crate::protocol;

    /// Content of a message that is not read by code is part of the prompt.
    #[test]
    fn images_beside_results_for_code_are_seen() {
        let image = r#"{"type":"image","source":{"type":"url","url":"https://a/b.png"}}"#;
        let call = r#"{"type":"tool_use","id":"a","name":"f","input":{},"caller":{"type":"code_execution_20250825","tool_id":"s"}}"#;
        let result = r#"{"type":"tool_result","tool_use_id":"a","content":"some rows"}"#;
        let body = format!(
            r#"{{"messages":[{{"role":"assistant","content":[{call}]}},{{"role":"user","content":[{result},{image}]}}]}}"#
        );
        let read = protocol::named("anthropic").unwrap().index(&Bytes::from(body), &NoMemo).unwrap();
        assert!(read.messages[1].index.shows.images);
        assert!(read.messages[1].index.parts[0].is_read_by_code());
    }

    /// Which results, in order, are read by code, by their ids; these count as nothing and contain nothing to edit.
    #[test]
    fn results_read_by_code_count_as_nothing() {
        let anthropic =
            |messages: &[&str]| ("anthropic", format!(r#"{{"messages":[{}]}}"#, messages.join(",")));
        let call = |id: &str, caller: &str| {
            format!(
                r#"{{"role":"assistant","content":[{{"type":"tool_use","id":"{id}","name":"f","input":{{}}{caller}}}]}}"#
            )
        };
        let result = |id: &str| {
            format!(
                r#"{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"{id}","content":"some rows"}}]}}"#
            )
        };
        let both = r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"x"}]},{"type":"tool_result","tool_use_id":"b","content":"x"}]}"#;
        let calls = r#"{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{},"caller":{"type":"code_execution_20260120","tool_id":"s"}},{"type":"tool_use","id":"b","name":"f","input":{},"caller":{"type":"direct"}}]}"#;
        let code = r#","caller":{"type":"code_execution_20250825","tool_id":"s"}"#;
        let responses =
            |items: &[&str]| ("openai-responses", format!(r#"{{"input":[{}]}}"#, items.join(",")));
        let made = |id: &str, caller: &str| {
            format!(r#"{{"type":"function_call","call_id":"{id}","name":"f","arguments":"{{}}"{caller}}}"#)
        };
        let output = |id: &str, caller: &str| {
            format!(r#"{{"type":"function_call_output","call_id":"{id}","output":"some rows"{caller}}}"#)
        };
        let program = r#","caller":{"type":"program","caller_id":"p"}"#;
        for ((dialect, body), expected) in [
            (anthropic(&[&call("a", ""), &result("a")]), ""),
            (anthropic(&[&call("a", r#","caller":null"#), &result("a")]), ""),
            (anthropic(&[&call("a", r#","caller":{"type":"direct"}"#), &result("a")]), ""),
            (anthropic(&[&call("a", code), &result("a")]), "a"),
            (anthropic(&[calls, both]), "a"),
            (anthropic(&[&call("a", code), &result("a"), &call("b", ""), &result("b")]), "a"),
            // An id that is used again belongs to another call.
            (anthropic(&[&call("a", code), &result("a"), &call("a", ""), &result("a")]), "a"),
            (anthropic(&[&call("a", ""), &result("a"), &call("b", code), &result("b")]), "b"),
            (responses(&[&made("a", ""), &output("a", "")]), ""),
            (responses(&[&made("a", r#","caller":{"type":"direct"}"#), &output("a", "")]), ""),
            (responses(&[&made("a", program), &output("a", ""), &made("b", ""), &output("b", "")]), "a"),
            // Without the call, which the provider may have.
            (responses(&[&output("a", program), &output("b", "")]), "a"),
        ] {
            let protocol = protocol::named(dialect).unwrap();
            let read = protocol.index(&Bytes::from(body.clone()), &NoMemo).unwrap();
            let all = (0..read.messages.len()).flat_map(|at| read.parts_of(at));
            let results = all.filter(|(_, part)| part.kind() == PartKind::ToolResult);
            let (apart, others): (Vec<_>, Vec<_>) = results.partition(|(_, part)| part.is_read_by_code());
            let ids: Vec<&str> = apart.iter().filter_map(|(_, part)| part.call_id()).collect();
            assert_eq!(ids.join(" "), expected, "{body}");
            for (id, part) in apart {
                let nothing = part.leaves().is_empty() && part.content().is_none() && part.read_len() == 0;
                let block = protocol.prompt(&read).blocks.into_iter().find(|block| block.part == Some(id));
                assert!(
                    nothing && block.is_some_and(|block| (block.bytes, block.weight) == (0, 0)),
                    "{body}"
                );
            }
            assert!(
                others.iter().all(|(_, part)| !part.leaves().is_empty() && part.read_len() > 0),
                "{body}"
            );
        }
    }
}
