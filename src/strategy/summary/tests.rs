//! What the writer is shown, what replaces the messages, and how that is measured.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;

use super::*;
use crate::conversation::{Conversation, NoMemo, PartId};
use crate::plan::LeafEdit;
use crate::protocol;

fn talk() -> Conversation {
    let call = |id: &str, name: &str, input: serde_json::Value| {
        json!({"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": format!("Now {name}")},
            {"type": "tool_use", "id": id, "name": name, "input": input}]})
    };
    let result = |id: &str, text: &str, failed: bool, aside: &str| {
        let mut blocks =
            vec![json!({"type": "tool_result", "tool_use_id": id, "content": text, "is_error": failed})];
        if !aside.is_empty() {
            blocks.push(json!({"type": "text", "text": aside}));
        }
        json!({"role": "user", "content": blocks})
    };
    let body = json!({"model": "m", "messages": [
        {"role": "user", "content": "Fix src/parse.rs"},
        call("t1", "Read", json!({"file_path": "src/parse.rs"})),
        result("t1", "fn parse() { MAX_DEPTH }", false, "<system-reminder>be nice</system-reminder>"),
        call("t2", "Bash", json!({"command": "cargo test"})),
        result("t2", "thread main panicked at parse.rs:117", true, "Never touch vendor/zlib.c"),
        call("t3", "TodoWrite", json!({"todos": ["one", "two"]})),
        result("t3", "ok", false, ""),
        {"role": "assistant", "content": "Done with 4096 entries"},
        {"role": "user", "content": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
            {"type": "text", "text": "Thanks\nIt looks fine"}]},
        {"role": "assistant", "content": "Good"},
        {"role": "user", "content": "Go on"},
    ]});
    let body = Bytes::from(body.to_string());
    protocol::named("anthropic").unwrap().index(&body, &NoMemo).unwrap()
}

/// The length of what the writer will read is known without rendering it, except for what is put around it.
#[test]
fn the_transcript_length_is_estimated_without_rendering() {
    let talk = talk();
    for (result_bytes, spared) in [(1 << 20, 0), (20, 0), (1 << 20, 10)] {
        let sent = |_: PartId| None;
        let messages: Vec<usize> = (1..9).collect();
        let entries = transcript::render(&talk, &messages, &sent, result_bytes);
        let shown: usize = entries.iter().map(|entry| entry.text.len()).sum();
        let of_first = |id: PartId| if id == (PartId { message: 2, part: 0 }) { spared } else { 0 };
        let about = transcript::about(&talk, 1..9, &of_first, result_bytes);
        assert!(about.abs_diff(shown as u64 - spared) < 300, "{result_bytes} {spared}: {about} {shown}");
        let less = transcript::about(&talk, 1..9, &|_| 0, result_bytes).saturating_sub(about);
        assert_eq!(less, spared, "{result_bytes}");
    }
}

#[test]
fn the_transcript_shows_messages_as_sent_with_shortened_results() {
    let talk = talk();
    let cleared: Vec<(u32, LeafEdit)> = vec![(0, LeafEdit::Replace(Arc::from("[cleared]")))];
    let edits = HashMap::from([(PartId { message: 2, part: 0 }, cleared)]);
    let sent = |id: PartId| edits.get(&id).map(Vec::as_slice);
    let entries = transcript::render(&talk, CUT, &sent, 20);
    let text: String = entries.iter().map(|entry| entry.text.as_str()).collect();
    let expected = r#"[2] assistant: Now Read
[2] assistant calls Read: {"file_path":"src/parse.rs"}
[3] result of Read: [cleared]
[3] user: <system-reminder>be nice</system-reminder>
[4] assistant: Now Bash
[4] assistant calls Bash: {"command":"cargo test"}
[5] result of Bash (an error): thread main 
[… 18 bytes …]
rs:117
[5] user: Never touch vendor/zlib.c
[6] assistant: Now TodoWrite
[6] assistant calls TodoWrite: {"todos":["one","two"]}
[7] result of TodoWrite: ok
[8] assistant: Done with 4096 entries
[9] user: (an image or a document)
[9] user: Thanks
It looks fine
[10] assistant: Good
"#;
    assert_eq!(text, expected);
    assert!(!text.contains("hm"), "reasoning is not shown");
}

fn outline() -> Outline {
    Outline::parse("<summary>\n## Done\n- parsed\n## Next\n- go on\n</summary>", 1000).unwrap()
}

const CUT: &[usize] = &[1, 2, 3, 4, 5, 6, 7, 8, 9];

#[test]
fn a_summary_text_has_outline_quotes_files_and_plan() {
    let text = text::compose(&talk(), CUT, &outline(), 1000);
    let expected = "\
[plimsoll: a summary stands here in place of 9 earlier messages of this conversation. Check files before relying on \
what it says about them.]

## Next
- go on

## Done
- parsed

## What the user said meanwhile, word for word
> Never touch vendor/zlib.c
> Thanks
> It looks fine

## Files that were worked with
src/parse.rs

## The last plan
{\"todos\":[\"one\",\"two\"]}";
    assert_eq!(text, expected);
    assert_eq!(Outline::read(&text).get(Section::Done), "- parsed", "it can be read again");
}

#[test]
fn user_demands_are_quoted_first() {
    let said = |most| text::user_words(&talk(), CUT, most);
    assert_eq!(said(1000), ["Never touch vendor/zlib.c", "Thanks\nIt looks fine"]);
    assert_eq!(said(30), ["Never touch vendor/zlib.c"]);
    assert_eq!(said(24), ["Thanks\nIt looks fine"]);
    assert!(said(10).is_empty());
}

/// The user's words as editors send them.
#[test]
fn user_words_in_tags_are_quoted_without_client_context() {
    let query = "<user_query>\nNever change the schema\n</user_query>";
    let body = json!({"messages": [
        {"role": "user", "content": [
            {"type": "text", "text": "<environment_details>\nx\n</environment_details>"},
            {"type": "text", "text": query}]},
    ]});
    let talk = protocol::named("anthropic").unwrap().index(&Bytes::from(body.to_string()), &NoMemo).unwrap();
    assert_eq!(text::user_words(&talk, &[0], 1000), [query]);
}

/// Calls as Codex and MCP servers make them.
#[test]
fn files_of_patches_are_listed() {
    let call = |id: &str, kind: &str, name: &str, said: &str, text: &str| json!({"type": kind, "call_id": id, "name": name, said: text});
    let patch =
        "*** Begin Patch\n*** Update File: src/a.rs\n@@\n-x\n+y\n*** Add File: b.rs\n+x\n*** End Patch";
    let body = json!({"model": "m", "input": [
        {"type": "message", "role": "user", "content": "go"},
        call("1", "custom_tool_call", "apply_patch", "input", patch),
        call("2", "function_call", "find_symbol", "arguments", r#"{"relative_path":"src/c.rs"}"#),
    ]});
    let talk = protocol::named("openai-responses").unwrap();
    let talk = talk.index(&Bytes::from(body.to_string()), &NoMemo).unwrap();
    let all: Vec<usize> = (0..talk.messages.len()).collect();
    let text = text::compose(&talk, &all, &outline(), 0);
    assert!(text.ends_with("\n\n## Files that were worked with\nsrc/a.rs\nb.rs\nsrc/c.rs"), "{text}");
}

#[test]
fn a_plan_is_not_repeated_if_a_newer_one_stays() {
    let early = &CUT[..4];
    assert!(!text::compose(&talk(), early, &outline(), 0).contains("The last plan"));
}

#[test]
fn fidelity_is_the_share_of_facts_kept() {
    const ERROR: &str = "thread main panicked at parse.rs:117";
    for (summary, expected) in [
        (&*format!("src/parse.rs vendor/zlib.c 4096 {ERROR} TodoWrite file_path"), 1.0),
        // One of two paths, of four kinds of facts.
        ("see src/parse.rs", 0.125),
        ("4096", 0.25),
        (ERROR, 0.25),
        ("TodoWrite", 0.125),
        ("TodoWrite file_path", 0.25),
        ("", 0.0),
    ] {
        assert_eq!(fidelity::score(&talk(), CUT, summary), Some(expected), "{summary}");
    }
    assert_eq!(fidelity::score(&talk(), &[9], "x"), None, "nothing to keep is no success");
}
