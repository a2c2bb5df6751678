//! Edits of the history that the provider makes itself if a request asks for them: it clears old results, or replaces
//! the history by a summary.
//!
//! Used for the books only: a request is examined after it has left.

use serde_json::Value;

use crate::conversation::Conversation;
use crate::json::scan;

/// For each edit: the beginning of its type, and the prompt size in tokens from which it is made by default.
const EDITS: &[(&str, u64)] = &[("clear_tool_uses", 100_000), ("compact", 150_000)];

/// The prompt size in tokens from which the provider makes an edit; 0 if it depends on something else.
pub(super) fn from(conversation: &Conversation) -> Option<u64> {
    let body = &*conversation.body;
    let management = scan::get(body, &conversation.members, "context_management")?;
    let management: Value = serde_json::from_slice(management.span.of(body)).ok()?;
    let from = |edit: &Value| {
        let kind = edit["type"].as_str()?;
        let (_, default) = EDITS.iter().find(|(start, _)| kind.starts_with(start))?;
        let trigger = &edit["trigger"];
        Some(match trigger["type"].as_str() {
            Some("input_tokens") => trigger["value"].as_u64().unwrap_or(0),
            None if trigger.is_null() => *default,
            _ => 0,
        })
    };
    management["edits"].as_array()?.iter().filter_map(from).min()
}

/// Whether an edit of this type, which the provider reports, is one of these.
pub(super) fn is_known(kind: &str) -> bool {
    EDITS.iter().any(|(start, _)| kind.starts_with(start))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use crate::conversation::NoMemo;
    use crate::protocol;

    #[test]
    fn thresholds_of_requested_provider_edits() {
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
