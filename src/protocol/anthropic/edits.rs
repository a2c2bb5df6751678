//! What the provider takes out of a prompt by itself: old results, or all but a summary.
//!
//! For the books alone: what a request asks for is looked at when it has left.

use serde_json::Value;

use crate::conversation::Conversation;
use crate::json::scan;

/// Edits by the beginning of their types, with how many tokens of a prompt call for them where a request does not say it.
const EDITS: &[(&str, u64)] = &[("clear_tool_uses", 100_000), ("compact", 150_000)];

/// From how many tokens on a prompt is edited; 0: that depends on something else than its tokens.
pub(super) fn from(conversation: &Conversation) -> Option<u64> {
    let body = &*conversation.body;
    let asked = scan::get(body, &conversation.members, "context_management")?;
    let asked: Value = serde_json::from_slice(asked.span.of(body)).ok()?;
    let from = |edit: &Value| {
        let kind = edit["type"].as_str()?;
        let (_, usual) = EDITS.iter().find(|(start, _)| kind.starts_with(start))?;
        let trigger = &edit["trigger"];
        Some(match trigger["type"].as_str() {
            Some("input_tokens") => trigger["value"].as_u64().unwrap_or(0),
            None if trigger.is_null() => *usual,
            _ => 0,
        })
    };
    asked["edits"].as_array()?.iter().filter_map(from).min()
}

/// Whether an edit that was made is one of these.
pub(super) fn is_one(kind: &str) -> bool {
    EDITS.iter().any(|(start, _)| kind.starts_with(start))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use crate::conversation::NoMemo;
    use crate::protocol;

    #[test]
    fn how_long_a_prompt_is_that_is_edited() {
        for (dialect, asked, expected) in [
            ("anthropic", "null", None),
            ("anthropic", r#"{"edits":[]}"#, None),
            ("anthropic", r#"{"edits":[{"type":"clear_thinking_20251015"}]}"#, None),
            ("anthropic", r#"{"edits":[{"type":"clear_tool_uses_20250919"}]}"#, Some(100_000)),
            ("anthropic", r#"{"edits":[{"type":"compact_20260112"}]}"#, Some(150_000)),
            (
                "anthropic",
                r#"{"edits":[{"type":"compact_20260112"},{"type":"clear_tool_uses_20250919","trigger":{"type":"input_tokens","value":30000}}]}"#,
                Some(30_000),
            ),
            (
                "anthropic",
                r#"{"edits":[{"type":"clear_tool_uses_20250919","trigger":{"type":"tool_uses","value":9}}]}"#,
                Some(0),
            ),
            ("openai-responses", "null", None),
            ("openai-responses", r#"[{"type":"compaction","compact_threshold":70000}]"#, Some(70_000)),
            ("openai-responses", r#"[{"type":"compaction"}]"#, Some(0)),
            ("openai-chat", r#"[{"type":"compaction"}]"#, None),
        ] {
            let body =
                format!(r#"{{"messages":[{{"role":"user","content":"x"}}],"context_management":{asked}}}"#);
            let body = if dialect.ends_with("responses") { body.replace("messages", "input") } else { body };
            let protocol = protocol::named(dialect).unwrap();
            let read = protocol.index(&Bytes::from(body), &NoMemo).unwrap();
            assert_eq!(protocol.edits_from(&read), expected, "{dialect} {asked}");
        }
    }
}
