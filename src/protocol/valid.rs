//! Checks histories against the rules of providers: whose message may follow whose, how calls and results pair, which
//! texts may be blank.
//!
//! Whoever edits a request uses these rules to verify that it is still accepted. They are never a reason to refuse a
//! request as it came.

use crate::conversation::{Conversation, Message, PartId, PartKind, Role};

/// A rule that a history breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Invalid {
    /// There are no messages.
    #[error("no messages")]
    Empty,
    /// The first message is not the user's.
    #[error("message {0}: the first message is not the user's")]
    First(usize),
    /// The last message is the model's.
    #[error("message {0}: the last message is the model's")]
    Last(usize),
    /// A call lacks a required result.
    #[error("message {0}: a call before it has no result")]
    Unanswered(usize),
    /// A result has no call before it.
    #[error("message {0}: a result without a call")]
    Orphan(usize),
    /// An id occurs twice.
    #[error("message {0}: the id of an earlier call")]
    Reused(usize),
    /// A text is blank, or a message is empty.
    #[error("message {0}: blank")]
    Blank(usize),
    /// Instructions are where they are not allowed.
    #[error("message {0}: instructions out of place")]
    Instructions(usize),
    /// The reasoning of two answers meets in one message, or no answer follows the reasoning.
    #[error("message {0}: reasoning out of place")]
    Reasoning(usize),
}

/// The rules of a provider.
#[derive(Debug)]
pub(super) struct Rules {
    /// The first message must be the user's.
    pub(super) begins_with_user: bool,
    /// The last message must not be the model's.
    pub(super) ends_with_client: bool,
    /// Where results must be.
    pub(super) results: Results,
    /// No id may occur twice.
    pub(super) unique_ids: bool,
    /// Which blank texts are refused.
    pub(super) blanks: Blanks,
    /// Instructions may come only at the end or before an answer: never first, and after an answer only if it ends with
    /// a result of the provider's own tools.
    pub(super) instructions_before_answers: bool,
    /// Reasoning is signed, so the reasoning of two answers must not meet in one message.
    pub(super) reasoning_apart: bool,
    /// Reasoning must be followed by the item that it led to.
    pub(super) reasoning_followed: bool,
}

/// Where the results of calls must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Results {
    /// Directly after the calls, before anything else.
    First,
    /// After the calls, before the model's next message.
    Together,
    /// Anywhere after the calls.
    Later,
}

/// Which blank texts a provider refuses. All refuse messages without parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blanks {
    /// Any text of white space.
    All,
    /// Blocks with an empty text.
    Blocks,
}

/// Checks a history against a provider's rules.
///
/// # Errors
/// The first rule that it breaks.
pub(super) fn check(conversation: &Conversation, rules: &Rules) -> Result<(), Invalid> {
    let messages = &conversation.messages;
    let (Some(first), Some(last)) = (messages.first(), messages.last()) else { return Err(Invalid::Empty) };
    if rules.begins_with_user && first.index.role != Role::User {
        return Err(Invalid::First(0));
    }
    if rules.ends_with_client && last.index.role == Role::Assistant {
        return Err(Invalid::Last(messages.len() - 1));
    }
    let mut calls = OpenCalls::default();
    for at in 0..messages.len() {
        check_order(messages, at, rules)?;
        check_pairs(conversation, at, rules, &mut calls)?;
        check_blanks(conversation, at, rules.blanks)?;
    }
    if calls.open.is_empty() { Ok(()) } else { Err(Invalid::Unanswered(messages.len())) }
}

/// The calls that await their results.
#[derive(Default)]
struct OpenCalls<'a> {
    open: Vec<&'a str>,
    /// The ids of all calls so far.
    seen: std::collections::HashSet<&'a str>,
}

fn check_order(messages: &[Message], at: usize, rules: &Rules) -> Result<(), Invalid> {
    let role = |at: usize| messages.get(at).map(|message| message.index.role);
    let thinks = |at: usize| messages[at].index.parts.iter().any(|part| part.kind() == PartKind::Thinking);
    if rules.instructions_before_answers
        && role(at) == Some(Role::System)
        && (follows_an_answer(messages, at)
            || !matches!(role(at + 1), None | Some(Role::Assistant | Role::System)))
    {
        return Err(Invalid::Instructions(at));
    }
    let merged = at > 0 && role(at) == Some(Role::Assistant) && role(at - 1) == role(at);
    if rules.reasoning_apart && merged && thinks(at - 1) && thinks(at) {
        return Err(Invalid::Reasoning(at));
    }
    if rules.reasoning_followed && thinks(at) && role(at + 1) != Some(Role::Assistant) {
        return Err(Invalid::Reasoning(at));
    }
    Ok(())
}

/// Whether a message directly follows an answer that does not end with a result of the provider's own tools.
fn follows_an_answer(messages: &[Message], at: usize) -> bool {
    let Some(before) = at.checked_sub(1).map(|before| &messages[before].index) else { return false };
    let ends_with_result =
        before.parts.last().is_some_and(|part| part.kind() == PartKind::Hosted && part.tool().is_none());
    before.role == Role::Assistant && !ends_with_result
}

fn check_pairs<'a>(
    conversation: &'a Conversation,
    at: usize,
    rules: &Rules,
    calls: &mut OpenCalls<'a>,
) -> Result<(), Invalid> {
    let message = &conversation.messages[at].index;
    let continues_answer = rules.results == Results::Together && at > 0 && {
        let before = conversation.messages[at - 1].index.role;
        before == Role::Assistant && message.role == Role::Assistant
    };
    let closes_calls = matches!(message.role, Role::Assistant | Role::System) && !continues_answer;
    if rules.results != Results::Later && closes_calls {
        calls.require_none(at)?;
    }
    for part in &message.parts {
        let id = part.call_id();
        match (part.kind(), id) {
            (PartKind::ToolCall, Some(id)) => {
                if !calls.seen.insert(id) && rules.unique_ids {
                    return Err(Invalid::Reused(at));
                }
                calls.open.push(id);
            }
            (PartKind::ToolResult, id) => {
                let call = calls.open.iter().position(|open| Some(*open) == id);
                calls.open.swap_remove(call.ok_or(Invalid::Orphan(at))?);
            }
            _ if rules.results == Results::First && message.role != Role::Assistant => {
                calls.require_none(at)?;
            }
            _ => {}
        }
    }
    Ok(())
}

impl OpenCalls<'_> {
    /// Fails if a call awaits its result.
    fn require_none(&self, at: usize) -> Result<(), Invalid> {
        if self.open.is_empty() { Ok(()) } else { Err(Invalid::Unanswered(at)) }
    }
}

fn check_blanks(conversation: &Conversation, at: usize, refused: Blanks) -> Result<(), Invalid> {
    /// Longer literals, in bytes, are assumed not to be blank.
    const LONG: usize = 256;
    let is_blank = |id: PartId, leaf: usize| {
        let text = conversation.text(id, leaf);
        text.is_some_and(|text| if refused == Blanks::All { text.trim().is_empty() } else { text.is_empty() })
    };
    for (id, part) in conversation.parts_of(at) {
        for (leaf, place) in part.leaves().iter().enumerate() {
            let is_block = place.slot.is_some() || (part.kind() == PartKind::Text && place.span != part.span);
            // A result may be an empty string.
            let is_checked = is_block || (part.kind() == PartKind::Text && refused == Blanks::All);
            if is_checked && place.span.len() <= LONG && is_blank(id, leaf) {
                return Err(Invalid::Blank(at));
            }
        }
    }
    if conversation.messages[at].index.parts.is_empty() { Err(Invalid::Blank(at)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::conversation::NoMemo;
    use crate::protocol;

    fn check(dialect: &str, messages: &str) -> Option<Invalid> {
        let protocol = protocol::named(dialect).unwrap();
        let body = Bytes::from(format!(r#"{{"messages":[{messages}]}}"#));
        protocol.valid(&protocol.index(&body, &NoMemo).unwrap()).err()
    }

    #[test]
    fn valid_and_invalid_anthropic_histories() {
        const HI: &str = r#"{"role":"user","content":"hi"}"#;
        const CALL: &str =
            r#"{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]}"#;
        const SAID: &str = r#"{"role":"assistant","content":"well"}"#;
        const FOUND: &str = r#"{"role":"assistant","content":[{"type":"server_tool_use","id":"s","name":"web_search","input":{}},{"type":"web_search_tool_result","tool_use_id":"s","content":[]}]}"#;
        const THINKS: &str =
            r#"{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"x"}]}"#;
        const RESULT: &str = r#"{"type":"tool_result","tool_use_id":"a","content":""}"#;
        let user = |blocks: &str| format!(r#"{{"role":"user","content":[{blocks}]}}"#);
        let text = r#"{"type":"text","text":"x"}"#;
        let system = r#"{"role":"system","content":"be brief"}"#;
        let answered = format!("{HI},{CALL},{}", user(RESULT));
        for (messages, expected) in [
            (HI.to_owned(), None),
            (answered.clone(), None),
            (format!("{answered},{HI}"), None),
            (format!("{HI},{CALL},{}", user(&format!("{RESULT},{text}"))), None),
            (String::new(), Some(Invalid::Empty)),
            (CALL.to_owned(), Some(Invalid::First(0))),
            (format!("{HI},{CALL}"), Some(Invalid::Last(1))),
            (format!("{HI},{CALL},{HI}"), Some(Invalid::Unanswered(2))),
            (format!("{HI},{CALL},{}", user(&format!("{text},{RESULT}"))), Some(Invalid::Unanswered(2))),
            (format!("{HI},{}", user(RESULT)), Some(Invalid::Orphan(1))),
            (format!("{answered},{CALL},{}", user(RESULT)), Some(Invalid::Reused(3))),
            (format!("{HI},{}", user("")), Some(Invalid::Blank(1))),
            (format!("{HI},{}", user(r#"{"type":"text","text":" \n"}"#)), Some(Invalid::Blank(1))),
            (format!("{HI},{system}"), None),
            (format!("{HI},{system},{HI}"), Some(Invalid::Instructions(1))),
            (format!("{HI},{SAID},{system}"), Some(Invalid::Instructions(2))),
            (format!("{HI},{FOUND},{system}"), None),
            (format!("{HI},{system},{system},{SAID},{HI}"), None),
            (format!("{HI},{CALL},{system},{}", user(RESULT)), Some(Invalid::Instructions(2))),
            (format!("{HI},{THINKS},{THINKS},{HI}"), Some(Invalid::Reasoning(2))),
        ] {
            assert_eq!(check("anthropic", &messages), expected, "{messages}");
        }
    }

    #[test]
    fn valid_and_invalid_chat_histories() {
        const HI: &str = r#"{"role":"user","content":"hi"}"#;
        const CALL: &str = r#"{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]}"#;
        const RESULT: &str = r#"{"role":"tool","tool_call_id":"a","content":"x"}"#;
        for (messages, expected) in [
            (format!("{HI},{CALL},{RESULT}"), None),
            (format!("{HI},{CALL},{RESULT},{CALL},{RESULT}"), None),
            (format!("{HI},{CALL}"), Some(Invalid::Unanswered(2))),
            (format!("{HI},{CALL},{HI},{RESULT}"), Some(Invalid::Unanswered(2))),
            (format!("{HI},{RESULT}"), Some(Invalid::Orphan(1))),
            (r#"{"role":"assistant","content":null}"#.to_owned(), Some(Invalid::Blank(0))),
        ] {
            assert_eq!(check("openai-chat", &messages), expected, "{messages}");
        }
    }
}
