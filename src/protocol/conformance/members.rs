//! What a body says about a request beside its messages, as each dialect spells it.

use bytes::Bytes;

use crate::conversation::NoMemo;
use crate::protocol::named;

#[test]
fn the_requested_cache_ttl_is_read() {
    const HOUR: u64 = 60 * 60 * 1000;
    let marked = |ttl: &str| format!(r#""cache_control":{{"type":"ephemeral"{ttl}}}"#);
    let (short, long) = (marked(""), marked(r#","ttl":"1h""#));
    let block =
        |mark: &str| format!(r#"[{{"role":"user","content":[{{"type":"text","text":"a",{mark}}}]}}]"#);
    let system = format!(r#""system":[{{"type":"text","text":"s",{long}}}]"#);
    for (dialect, list, messages, member, expected) in [
        ("anthropic", "messages", block(&short), short.clone(), None),
        ("anthropic", "messages", block(&long), short.clone(), Some(HOUR)),
        ("anthropic", "messages", block(&short), long.clone(), Some(HOUR)),
        // Instructions alone: the history is not kept, or not for as long.
        ("anthropic", "messages", "[]".to_owned(), system.clone(), None),
        ("anthropic", "messages", block(&short), system.clone(), None),
        ("anthropic", "messages", block(&long), system.clone(), Some(HOUR)),
        ("anthropic", "messages", "[]".to_owned(), r#""a":1"#.to_owned(), None),
        (
            "openai-chat",
            "messages",
            "[]".to_owned(),
            r#""prompt_cache_retention":"24h""#.to_owned(),
            Some(24 * HOUR),
        ),
        (
            "openai-chat",
            "messages",
            "[]".to_owned(),
            r#""prompt_cache_retention":"in_memory""#.to_owned(),
            None,
        ),
        (
            "openai-responses",
            "input",
            "[]".to_owned(),
            r#""prompt_cache_options":{"ttl":"12h"}"#.to_owned(),
            Some(12 * HOUR),
        ),
        (
            "openai-responses",
            "input",
            "[]".to_owned(),
            r#""prompt_cache_options":{"ttl":"30m"}"#.to_owned(),
            Some(HOUR / 2),
        ),
        (
            "openai-responses",
            "input",
            "[]".to_owned(),
            r#""prompt_cache_options":{"ttl":"h"}"#.to_owned(),
            None,
        ),
        ("openai-responses", "input", "[]".to_owned(), r#""prompt_cache_options":7"#.to_owned(), None),
        ("gemini", "contents", "[]".to_owned(), long.clone(), None),
    ] {
        let body = Bytes::from(format!(r#"{{"{list}":{messages},{member}}}"#));
        let read = named(dialect).unwrap().index(&body, &NoMemo).unwrap();
        assert_eq!(read.requested_ttl_ms, expected, "{dialect} {messages} {member}");
    }
}

#[test]
fn requests_for_provider_context_edits_are_recognised() {
    let edits = |kinds: &[&str]| {
        let edits: Vec<String> = kinds.iter().map(|kind| format!(r#"{{"type":"{kind}"}}"#)).collect();
        format!(r#""context_management":{{"edits":[{}]}}"#, edits.join(","))
    };
    let (cleared, thought) = ("clear_tool_uses_20250919", "clear_thinking_20251015");
    let compacted = r#""context_management":[{"type":"compaction","compact_threshold":200000}]"#.to_owned();
    for (protocol, list, member, expected) in [
        ("anthropic", "messages", edits(&[cleared]), true),
        ("anthropic", "messages", edits(&[thought, "compact_20260112"]), true),
        // Claude Code sends this with every request.
        ("anthropic", "messages", edits(&[thought]), false),
        ("anthropic", "messages", edits(&[]), false),
        ("anthropic", "messages", edits(&["new"]), false),
        ("anthropic", "messages", r#""context_management":null"#.to_owned(), false),
        ("anthropic", "messages", r#""context_management":{"edits":[1,{"type":2}]}"#.to_owned(), false),
        ("anthropic", "messages", compacted.clone(), false),
        ("openai-responses", "input", compacted.clone(), true),
        ("openai-responses", "input", r#""context_management":[]"#.to_owned(), false),
        ("openai-responses", "input", r#""truncation":"auto""#.to_owned(), true),
        ("openai-responses", "input", r#""truncation":"disabled""#.to_owned(), false),
        ("openai-responses", "input", edits(&[cleared]), false),
        ("openai-chat", "messages", compacted.clone(), false),
        ("gemini", "contents", compacted, false),
    ] {
        let body = Bytes::from(format!(r#"{{"{list}":[],{member}}}"#));
        let read = named(protocol).unwrap().index(&body, &NoMemo).unwrap();
        assert_eq!(read.asks_for_edits, expected, "{protocol} {member}");
    }
    for member in [
        r#""context_management":{"edits":[],"edits":[]}"#,
        r#""context_management":{"edits":[{"type":"a","type":"b"}]}"#,
    ] {
        let body = Bytes::from(format!(r#"{{"messages":[],{member}}}"#));
        assert!(named("anthropic").unwrap().index(&body, &NoMemo).is_err(), "{member}");
    }
}

/// By default the provider keeps the reasoning of one turn where it is asked to clear any.
#[test]
fn requests_to_clear_old_reasoning_are_recognised() {
    let edits = |edits: &str| format!(r#""context_management":{{"edits":[{edits}]}}"#);
    let clears = |keep: &str| edits(&format!(r#"{{"type":"clear_thinking_20251015"{keep}}}"#));
    for (protocol, list, member, expected) in [
        ("anthropic", "messages", r#""x":0"#.to_owned(), false),
        ("anthropic", "messages", clears(r#","keep":"all""#), false),
        ("anthropic", "messages", clears(r#","keep":{"type":"thinking_turns","value":2}"#), true),
        ("anthropic", "messages", clears(""), true),
        ("anthropic", "messages", edits(r#"7,{"type":"clear_tool_uses_20250919"}"#), false),
        ("anthropic", "messages", r#""thinking":{"type":"disabled"}"#.to_owned(), true),
        ("anthropic", "messages", r#""thinking":{"type":"adaptive"}"#.to_owned(), false),
        ("anthropic", "messages", r#""thinking":null,"context_management":null"#.to_owned(), false),
        ("openai-chat", "messages", clears(""), false),
    ] {
        let body = Bytes::from(format!(r#"{{"{list}":[],{member}}}"#));
        let read = named(protocol).unwrap().index(&body, &NoMemo).unwrap();
        assert_eq!(read.forgets_reasoning, expected, "{protocol} {member}");
    }
}

#[test]
fn the_output_token_limit_is_read() {
    for (protocol, list, frame, expected) in [
        ("anthropic", "messages", r#""max_tokens":4096"#, Some(4096)),
        ("anthropic", "messages", r#""max_tokens":1e3"#, None),
        ("anthropic", "messages", r#""max_tokens":"9""#, None),
        ("openai-chat", "messages", r#""max_tokens":9"#, Some(9)),
        ("openai-chat", "messages", r#""max_tokens":9,"max_completion_tokens":8"#, Some(8)),
        ("openai-responses", "input", r#""max_output_tokens":9"#, Some(9)),
        ("gemini", "contents", r#""generationConfig":{"maxOutputTokens":9,"topK":1}"#, Some(9)),
        ("gemini", "contents", r#""generation_config":{"max_output_tokens":9}"#, Some(9)),
        ("gemini", "contents", r#""generationConfig":{"maxOutputTokens":9,"maxOutputTokens":8}"#, None),
        ("gemini", "contents", r#""generationConfig":7"#, None),
        ("gemini", "contents", r#""x":1"#, None),
    ] {
        let body = Bytes::from(format!(r#"{{{frame},"{list}":[]}}"#));
        let read = named(protocol).unwrap().index(&body, &NoMemo).unwrap();
        assert_eq!(read.max_output, expected, "{protocol} {frame}");
    }
}
