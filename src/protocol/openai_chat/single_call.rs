//! Reads the old form of tool calls: an answer has one call (`function_call`), and a message with the role `function`
//! has its result, with the tool's name in place of an id.
//!
//! A call counts as a tool call only if its result follows directly. Any other is kept as it is: some clients use calls
//! only to get structured output, and never answer them.

use std::sync::Arc;

use crate::conversation::{Arguments, Call, Message, MessageIndex, Part, PartData, Role};
use crate::json::scan::Kind;
use crate::protocol::body::Object;

/// The call that an opaque part becomes once its result is seen; `None` if it lacks a name or arguments.
pub(super) fn read(call: &Object<'_>, is_sealed: bool) -> Option<Call> {
    let (name, arguments) = (call.text("name")?, call.of_kind("arguments", Kind::String)?);
    let arguments = Some(Arguments::Encoded(arguments.span));
    Some(Call { id: Some(name.clone()), tool: Some(name), arguments, is_sealed, is_for_code: false })
}

/// The id of the call that a message of the role `function` answers: the tool's name.
pub(super) fn id_of_result(message: &Object<'_>) -> Option<Box<str>> {
    message.text("name").filter(|_| message.says("role", "function"))
}

/// Turns single calls whose results follow into tool calls.
pub(super) fn pair(messages: &mut [Message]) {
    for at in 1..messages.len() {
        if let Some(call) = answered(&messages[at - 1].index, &messages[at].index) {
            let part = &mut Arc::make_mut(&mut messages[at - 1].index).parts[call];
            if let PartData::Opaque(opaque) = &mut part.data
                && let Some(call) = opaque.call.take()
            {
                part.data = PartData::ToolCall(call);
            }
        }
    }
}

/// The part of an answer that is the call with this result.
fn answered(answer: &MessageIndex, result: &MessageIndex) -> Option<usize> {
    let result = result.parts.first()?.result()?;
    let is_answered = |part: &Part| match &part.data {
        PartData::Opaque(opaque) => opaque.call.as_ref().is_some_and(|call| call.id == result.call_id),
        _ => false,
    };
    answer.parts.iter().position(is_answered).filter(|_| answer.role == Role::Assistant)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use crate::conversation::NoMemo;
    use crate::protocol;

    #[test]
    fn a_function_call_counts_only_if_its_result_follows() {
        let call = |rest: &str| format!(r#"{{"role":"assistant","content":null{rest}}}"#);
        let ls = |path: &str| {
            call(&format!(r#","function_call":{{"name":"ls","arguments":"{{\"path\":\"{path}\"}}"}}"#))
        };
        let result = |rest: &str| format!(r#"{{"role":"function","content":"a.rs"{rest}}}"#);
        let (of_ls, asks) = (result(r#","name":"ls""#), r#"{"role":"user","content":"List"}"#.to_owned());
        let has_both = call(
            r#","tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}],"function_call":{"name":"ls","arguments":"{}"}"#,
        );
        // The results of the calls, by the places of the messages.
        for (messages, calls) in [
            (&[&ls("a"), &of_ls][..], &[Some(2)][..]),
            (&[&ls("a"), &of_ls, &ls("a"), &of_ls, &ls("b"), &of_ls], &[Some(2), Some(4), Some(6)]),
            (&[&ls("a"), &of_ls, &of_ls], &[Some(2)]),
            (&[&ls("a"), &asks, &ls("b"), &of_ls], &[Some(4)]),
            (&[&ls("a")], &[]),
            (&[&of_ls], &[]),
            (&[&ls("a"), &asks, &of_ls], &[]),
            (&[&ls("a"), &result(r#","name":"cat""#)], &[]),
            (&[&ls("a"), &result("")], &[]),
            (&[&ls("a"), &result(r#","name":"ls","tool_call_id":"c""#)], &[]),
            (&[&has_both, &of_ls], &[None]),
            (&[&call(r#","function_call":{"name":"ls"}"#), &of_ls], &[]),
            (&[&call(r#","function_call":{"name":"ls","arguments":{}}"#), &of_ls], &[]),
            (&[&call(r#","function_call":"auto""#), &of_ls], &[]),
        ] {
            let messages: Vec<&str> =
                std::iter::once(&&asks).chain(messages).map(|message| message.as_str()).collect();
            let body = Bytes::from(format!(r#"{{"messages":[{}]}}"#, messages.join(",")));
            let read = protocol::named("openai-chat").unwrap().index(&body, &NoMemo).unwrap();
            let found = read.calls().into_iter().map(|(_, result)| result.map(|id| id.message));
            assert!(found.eq(calls.iter().copied()), "{messages:?}");
        }
    }
}
