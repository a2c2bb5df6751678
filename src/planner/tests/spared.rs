//! What decisions save of a body, in which texts are written with escapes.

use bytes::Bytes;

use super::super::*;
use super::settings;
use crate::conversation::NoMemo;
use crate::protocol;

/// A tool that answers in JSON, or is given it: every fourth byte of the literal is a backslash.
const ITEMS: &str = r#"{\"id\":7,\"on\":\"a\"},\n"#;

fn index(dialect: &str, body: String) -> Conversation {
    protocol::named(dialect).unwrap().index(&Bytes::from(body), &NoMemo).unwrap()
}

/// A call and its result.
fn answered(content: &str) -> Conversation {
    let call = r#"{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"Bash","input":{}}]}"#;
    let result = format!(r#"{{"type":"tool_result","tool_use_id":"t","content":{content}}}"#);
    let body = format!(
        r#"{{"messages":[{{"role":"user","content":"x"}},{call},{{"role":"user","content":[{result}]}}]}}"#
    );
    index("anthropic", body)
}

/// A call with one long argument, and its result.
fn called(dialect: &str) -> Conversation {
    let text = ITEMS.repeat(200);
    let (call, result) = match dialect {
        "anthropic" => (
            format!(
                r#""content":[{{"type":"tool_use","id":"t","name":"Write","input":{{"content":"{text}"}}}}]"#
            ),
            r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"ok"}]}"#,
        ),
        _ => {
            let arguments = crate::json::string::encode(&format!(r#"{{"content":"{text}"}}"#));
            let function = format!(r#"{{"name":"Write","arguments":{arguments}}}"#);
            (
                format!(r#""tool_calls":[{{"id":"t","type":"function","function":{function}}}]"#),
                r#"{"role":"tool","tool_call_id":"t","content":"ok"}"#,
            )
        }
    };
    let messages = format!(r#"{{"role":"user","content":"x"}},{{"role":"assistant",{call}}},{result}"#);
    index(dialect, format!(r#"{{"messages":[{messages}]}}"#))
}

/// What a decision says that it spares is what is missing in the body, and an unmeasured prompt is estimated from the
/// rest.
fn check(name: &str, dialect: &str, conversation: &Conversation, applied: &Applied) {
    let applied = std::slice::from_ref(applied);
    let past = Past { sent: conversation.messages.len(), applied, ..Past::nothing() };
    let marks = marks::Settings { marks: false, anchors: false, keys: true, split: false };
    let policy = Policy { shape: settings(), marks, ..Policy::default() };
    let facts = Facts { window: Some(1_000_000), ..Facts::default() };
    let outcome = plan(conversation, past, &policy, &facts, &|_| String::new());
    let protocol = protocol::named(dialect).unwrap();
    let after =
        protocol::apply_verified(protocol, conversation, &outcome.plan, &NoMemo).unwrap().body.len() as u64;
    let missing = conversation.body.len() as u64 - after;
    assert!(missing > 2_000, "{name}: {missing}");
    let spared = applied[0].bytes_spared_of(conversation);
    assert!(spared.abs_diff(missing) <= missing / 50, "{name}: {spared} for {missing}");
    let estimated = outcome.level.unwrap().prompt_tokens * 4;
    assert!(estimated.abs_diff(after) <= 100 + missing / 50, "{name}: {estimated} for {after}");
}

#[test]
fn bytes_spared_of_a_body_include_escapes() {
    let text = format!("\"{}\"", ITEMS.repeat(200));
    let blocks = |texts: &[&str]| {
        let block = |text: &&str| format!(r#"{{"type":"text","text":{text}}}"#);
        format!("[{}]", texts.iter().map(block).collect::<Vec<_>>().join(","))
    };
    let result = PartId { message: 2, part: 0 };
    // Too short to be cut, and three times as long as its text.
    let beside = format!("\"{}\"", r"\u00e9".repeat(60));
    for content in [text.clone(), blocks(&[&text]), blocks(&[&text, &beside, &text])] {
        let conversation = answered(&content);
        let outcome = super::run(&conversation, 1, &[]);
        let [shaped] = &*outcome.applied else { panic!("{:?}", outcome.applied) };
        check("shaped", "anthropic", &conversation, shaped);
        let (cleared, _) = cleared::decide(&conversation, result, None, &|_| String::new()).unwrap();
        check("cleared", "anthropic", &conversation, &cleared);
    }
    let image = "iVBORw0KGgo".repeat(2_000);
    let image = format!(
        r#"{{"type":"image","source":{{"type":"base64","media_type":"image/png","data":"{image}"}}}}"#
    );
    let conversation = answered(&format!(r#"[{{"type":"text","text":{text}}},{image}]"#));
    let (cleared, _) = cleared::decide(&conversation, result, None, &|_| String::new()).unwrap();
    let spared = cleared.bytes_spared_of(&conversation);
    assert_eq!(
        spared.saturating_sub(cleared.decision.bytes_spared()) / 100,
        ITEMS.matches('\\').count() as u64 * 2
    );
    for dialect in ["anthropic", "openai-chat"] {
        let conversation = called(dialect);
        let call = PartId { message: 1, part: 0 };
        let (abridged, _) = arguments::decide(&conversation, call, &|_| String::new()).unwrap();
        check("abridged", dialect, &conversation, &abridged);
    }
}
