//! Agents that repeat themselves: the same call made again and again within one turn. Only reported, never acted upon.

use crate::conversation::{Conversation, Digest, Part, PartId, PartKind, Role};

/// The number of equal calls in a row that make a loop.
pub const MIN_CALLS: u32 = 3;

/// A call made several times in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoomLoop {
    /// The tool.
    pub tool: Box<str>,
    /// How many times in a row it was called.
    pub calls: u32,
    /// Whether the results were equal too. If not, the agent is probably waiting for something. `None` if there are
    /// fewer than two results.
    pub same_results: Option<bool>,
}

/// The loop that a conversation ends in, if any.
pub fn of(conversation: &Conversation) -> Option<DoomLoop> {
    let turn = turn(conversation);
    let calls = (turn..conversation.messages.len()).rev().flat_map(|at| calls(conversation, at));
    let mut calls = calls.map(|call| (call, conversation.call_digest(call)));
    let (last, first_key) = calls.next()?;
    let first_key = first_key?;
    let mut repeats = vec![last];
    repeats.extend(calls.take_while(|(_, key)| *key == Some(first_key)).map(|(call, _)| call));
    if repeats.len() < MIN_CALLS as usize {
        return None;
    }
    Some(DoomLoop {
        tool: conversation.part(last)?.tool()?.into(),
        calls: repeats.len() as u32,
        same_results: same_results(conversation, &repeats),
    })
}

/// The index of the first message of the newest turn.
fn turn(conversation: &Conversation) -> usize {
    let messages = &conversation.messages;
    let is_answer = |at: usize| messages[at].index.role == Role::Assistant;
    let begins = |at: &usize| messages[*at].index.starts_turn() && (*at == 0 || is_answer(at - 1));
    (0..messages.len()).rev().find(begins).unwrap_or(0)
}

/// The calls of a message, last one first.
fn calls(conversation: &Conversation, message: usize) -> impl Iterator<Item = PartId> {
    let calls = conversation.parts_of(message).filter(|(_, part)| part.kind() == PartKind::ToolCall);
    let calls: Vec<PartId> = calls.map(|(id, _)| id).collect();
    calls.into_iter().rev()
}

fn same_results(conversation: &Conversation, calls: &[PartId]) -> Option<bool> {
    let results = calls.iter().filter_map(|call| conversation.part(conversation.result_of(*call)?));
    let contents: Vec<Digest> = results.filter_map(Part::content).collect();
    let (first, others) = contents.split_first()?;
    (!others.is_empty()).then(|| others.iter().all(|content| content == first))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::conversation::NoMemo;
    use crate::protocol;

    /// A call and its result, or what the user or the model says.
    fn message(at: usize, word: &str, dialect: &str) -> String {
        let Some((call, result)) = word.split_once('=') else {
            let role = if word == "u" { "user" } else { "assistant" };
            return format!(r#"{{"role":"{role}","content":"{word}"}}"#);
        };
        let (tool, arguments) = call.split_once(':').unwrap();
        if dialect == "anthropic" {
            return format!(
                r#"{{"role":"assistant","content":[{{"type":"tool_use","id":"t{at}","name":"{tool}","input":{arguments}}}]}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t{at}","content":"{result}"}}]}}"#
            );
        }
        let arguments = serde_json::to_string(arguments).unwrap();
        format!(
            r#"{{"role":"assistant","tool_calls":[{{"id":"t{at}","type":"function","function":{{"name":"{tool}","arguments":{arguments}}}}}]}},{{"role":"tool","tool_call_id":"t{at}","content":"{result}"}}"#
        )
    }

    fn talk(words: &[&str], dialect: &str) -> Conversation {
        let messages: Vec<String> =
            words.iter().enumerate().map(|(at, word)| message(at, word, dialect)).collect();
        let body = format!(r#"{{"model":"m","messages":[{}]}}"#, messages.join(","));
        protocol::named(dialect).unwrap().index(&Bytes::from(body), &NoMemo).unwrap()
    }

    #[test]
    fn identical_calls_in_a_row_are_a_doom_loop() {
        let read = r#"read:{"path":"config.json","from":1}=same"#;
        let turned = r#"read:{ "from" : 1, "path":"config\u002ejson" }=same"#;
        let other = r#"read:{"path":"other.json","from":1}=same"#;
        let waits = r#"read:{"path":"config.json","from":1}=later"#;
        let grep = r#"grep:{"path":"config.json","from":1}=same"#;
        for (words, expected) in [
            (vec!["u", read, read, read], Some((3, Some(true)))),
            (vec!["u", read, turned, read], Some((3, Some(true)))),
            (vec!["u", other, read, read, read, read], Some((4, Some(true)))),
            (vec!["u", read, read, waits], Some((3, Some(false)))),
            // What the model says between the calls does not matter.
            (vec!["u", read, "a", read, read], Some((3, Some(true)))),
            (vec!["u", read, read], None),
            (vec!["u", read, read, other], None),
            (vec!["u", read, read, grep], None),
            (vec!["u", read, other, read, read], None),
            (vec!["u", read, "a", "u", read, read], None),
            (vec!["u", read, read, read, "a", "u"], None),
            (vec!["u"], None),
            (vec![], None),
        ] {
            for dialect in ["anthropic", "openai-chat"] {
                let found = of(&talk(&words, dialect));
                let found = found.map(|found| {
                    assert_eq!(&*found.tool, "read");
                    (found.calls, found.same_results)
                });
                assert_eq!(found, expected, "{dialect} {words:?}");
            }
        }
    }

    /// Other calls with the same id have other results.
    #[test]
    fn results_in_a_doom_loop_are_compared_though_ids_are_reused() {
        let body = |words: &[&str]| {
            let messages: Vec<String> = words.iter().map(|word| message(0, word, "openai-chat")).collect();
            Bytes::from(format!(r#"{{"model":"m","messages":[{}]}}"#, messages.join(",")))
        };
        let read = r#"read:{"path":"a"}=same"#;
        let words = ["u", r#"read:{"path":"b"}=other"#, read, read, read];
        let talk = protocol::named("openai-chat").unwrap().index(&body(&words), &NoMemo).unwrap();
        assert_eq!(of(&talk).map(|found| (found.calls, found.same_results)), Some((3, Some(true))));
    }
}
