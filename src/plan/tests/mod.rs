//! Plans against conversations of the dialects, table by table.

mod marks;
mod pairs;
mod verified;

use bytes::Bytes;

use super::{LeafEdit, Mismatch, Op, Plan, Refusal, check, verify};
use crate::conversation::{Conversation, Hold, NoMemo, PartId, Role};
use crate::protocol;

/// A conversation of the dialect in which results are blocks.
const BLOCKS: &str = r#"{"model":"m","messages":[
 {"role":"user","content":"goal"},
 {"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"s"},{"type":"tool_use","id":"a","name":"x","input":{}},{"type":"tool_use","id":"b","name":"x","input":{}}]},
 {"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"one"},{"type":"tool_result","tool_use_id":"b","content":[{"type":"text","text":"two"},{"type":"image","source":{}},{"type":"text","text":"three"}]}]},
 {"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"s"},{"type":"text","text":"done"}]},
 {"role":"user","content":"and now?"},
 {"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"s"},{"type":"tool_use","id":"c","name":"x","input":{}}]},
 {"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"four"}]}]},
 {"role":"assistant","content":"hm"},
 {"role":"user","content":"last"},
 {"role":"assistant","content":[{"type":"tool_use","id":"d","name":"x","input":{}}]},
 {"role":"user","content":[{"type":"tool_result","tool_use_id":"d","content":"five"}]}]}"#;

/// A conversation of the dialect in which results are messages.
const MESSAGES: &str = r#"{"model":"m","messages":[
 {"role":"system","content":"be good"},
 {"role":"user","content":"goal"},
 {"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"x","arguments":"{}"}},{"id":"b","type":"function","function":{"name":"x","arguments":"{}"}}]},
 {"role":"tool","tool_call_id":"a","content":"one"},
 {"role":"tool","tool_call_id":"b","content":[{"type":"text","text":"two"}]},
 {"role":"assistant","content":"done","refusal":"no"},
 {"role":"user","content":"more"},
 {"role":"assistant","content":"hm"},
 {"role":"user","content":"last"}]}"#;

/// A conversation of the dialect in which everything is an item.
const ITEMS: &str = r#"{"model":"m","input":[
 {"role":"user","content":"goal"},
 {"type":"reasoning","summary":[]},
 {"type":"function_call","call_id":"a","name":"x","arguments":"{}"},
 {"type":"function_call_output","call_id":"a","output":"one"},
 {"type":"reasoning","summary":[]},
 {"role":"assistant","content":"done"},
 {"role":"user","content":"last"}]}"#;

/// The start of a conversation with images in results: one between texts, two alone, and one that is stored elsewhere.
const IMAGES: &str = r#"{"model":"m","messages":[
 {"role":"user","content":"goal"},
 {"role":"assistant","content":[{"type":"tool_use","id":"a","name":"x","input":{}},{"type":"tool_use","id":"b","name":"x","input":{}},{"type":"tool_use","id":"c","name":"x","input":{}}]},
 {"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"one"},{"type":"image","source":{"type":"base64","data":"AA"}},{"type":"text","text":"two"}]},{"type":"tool_result","tool_use_id":"b","content":[{"type":"image","source":{"type":"base64","data":"BB"}},{"type":"image","source":{"type":"base64","data":"CC"}}]},{"type":"tool_result","tool_use_id":"c","content":[{"type":"image","source":{"type":"url","url":"d"}}]}]}]}"#;

fn read(dialect: &str, body: &str) -> Conversation {
    protocol::named(dialect).unwrap().index(&Bytes::copy_from_slice(body.as_bytes()), &NoMemo).unwrap()
}

fn drop(first: usize, end: usize) -> Op {
    Op::Drop { first, end }
}

fn insert(before: usize, role: Role, text: &str) -> Op {
    Op::Insert { before, role, text: text.into() }
}

fn text(message: u32, part: u32, leaves: &[(u32, Option<&str>)]) -> Op {
    let edit = |text: Option<&str>| text.map_or(LeafEdit::Remove, |text| LeafEdit::Replace(text.into()));
    Op::Text {
        part: PartId { message, part },
        leaves: leaves.iter().map(|(leaf, text)| (*leaf, edit(*text))).collect(),
    }
}

fn refusals(dialect: &str, body: &str, cases: &[(&[Op], Result<(), Refusal>)]) {
    let conversation = read(dialect, body);
    for (ops, expected) in cases {
        let plan = Plan { ops: ops.to_vec() };
        assert_eq!(check(&conversation, &plan), *expected, "{ops:?}");
        let lowered = protocol::named(dialect).unwrap().lower(&conversation, &plan);
        assert_eq!(lowered.is_ok(), expected.is_ok(), "{ops:?}");
    }
}

#[test]
fn only_existing_unprotected_texts_may_be_replaced() {
    let x = Some("x");
    refusals(
        "anthropic",
        BLOCKS,
        &[
            (&[], Ok(())),
            (&[text(2, 0, &[(0, x)])], Ok(())),
            (&[text(2, 1, &[(0, x), (1, None)])], Ok(())),
            (&[text(2, 1, &[(0, None), (1, None)])], Ok(())),
            (&[text(2, 0, &[(0, x)]), text(2, 1, &[(0, x)])], Ok(())),
            (&[text(2, 0, &[(0, x)]), text(2, 0, &[(0, x)])], Err(Refusal::Conflict)),
            (&[text(2, 0, &[])], Err(Refusal::Conflict)),
            (&[text(2, 1, &[(1, x), (0, x)])], Err(Refusal::Conflict)),
            (&[text(2, 1, &[(1, x), (1, x)])], Err(Refusal::Conflict)),
            (&[text(2, 0, &[(1, x)])], Err(Refusal::Missing)),
            (&[text(2, 2, &[(0, x)])], Err(Refusal::Missing)),
            (&[text(11, 0, &[(0, x)])], Err(Refusal::Missing)),
            (&[text(u32::MAX, u32::MAX, &[(u32::MAX, x)])], Err(Refusal::Missing)),
            (&[text(0, 0, &[(0, x)])], Err(Refusal::Protected)),
            (&[text(1, 0, &[(0, x)])], Err(Refusal::Protected)),
            (&[text(3, 1, &[(0, x)])], Err(Refusal::Protected)),
            (&[text(2, 0, &[(0, None)])], Err(Refusal::NotRemovable)),
            (&[text(6, 0, &[(0, None)])], Err(Refusal::EmptyText)),
            (&[text(2, 0, &[(0, Some(""))])], Err(Refusal::EmptyText)),
            (&[text(2, 0, &[(0, Some(" \n"))])], Err(Refusal::EmptyText)),
        ],
    );
}

#[test]
fn images_of_results_may_be_removed_or_replaced_by_text() {
    let x = Some("x");
    refusals(
        "anthropic",
        IMAGES,
        &[
            (&[text(2, 0, &[(2, x)])], Ok(())),
            (&[text(2, 0, &[(0, None), (1, None), (2, x)])], Ok(())),
            (&[text(2, 1, &[(0, x)])], Ok(())),
            (&[text(2, 1, &[(0, None), (1, x)])], Ok(())),
            (&[text(2, 1, &[(0, None), (1, None)])], Err(Refusal::EmptyText)),
            (&[text(2, 1, &[(0, Some(" "))])], Err(Refusal::EmptyText)),
            (&[text(2, 1, &[(2, x)])], Err(Refusal::Missing)),
            (&[text(2, 2, &[(0, x)])], Err(Refusal::Missing)),
        ],
    );
    refusals(
        "gemini",
        r#"{"contents":[{"role":"user","parts":[{"functionResponse":{"name":"f","response":{"error":"","a":"b"},"parts":[{"inlineData":{"data":"AA"}}]}}]}]}"#,
        &[
            (&[text(0, 0, &[(0, x), (2, None)])], Ok(())),
            (&[text(0, 0, &[(1, x)])], Err(Refusal::Protected)),
            (&[text(0, 0, &[(2, x)])], Err(Refusal::NotReplaceable)),
        ],
    );
}

#[test]
fn protected_messages_are_not_dropped() {
    refusals(
        "anthropic",
        BLOCKS,
        &[
            (&[drop(0, 1)], Err(Refusal::Protected)),
            (&[drop(7, 9)], Err(Refusal::Protected)),
            (&[drop(9, 11)], Err(Refusal::Protected)),
            (&[drop(3, 3)], Err(Refusal::Conflict)),
            (&[drop(3, 12)], Err(Refusal::Missing)),
            (&[drop(5, 4)], Err(Refusal::Missing)),
            (&[drop(1, 3), drop(2, 4)], Err(Refusal::Conflict)),
            (&[drop(1, 3), text(2, 0, &[(0, Some("x"))])], Err(Refusal::Conflict)),
        ],
    );
    refusals(
        "openai-chat",
        MESSAGES,
        &[
            (&[drop(0, 1)], Err(Refusal::Protected)),
            (&[drop(1, 2)], Err(Refusal::Protected)),
            (&[drop(5, 6)], Err(Refusal::Protected)),
            (&[drop(8, 9)], Err(Refusal::Protected)),
        ],
    );
}

#[test]
fn insertions_and_drops_must_keep_a_valid_role_order() {
    refusals(
        "anthropic",
        BLOCKS,
        &[
            (&[drop(1, 4), insert(1, Role::Assistant, "summary")], Ok(())),
            (&[insert(4, Role::User, "x")], Ok(())),
            (&[insert(3, Role::System, "x")], Ok(())),
            (&[insert(11, Role::System, "x")], Ok(())),
            (&[insert(0, Role::User, "x")], Ok(())),
            (&[insert(0, Role::Assistant, "x")], Err(Refusal::Order)),
            (&[insert(0, Role::System, "x")], Err(Refusal::Order)),
            (&[insert(11, Role::Assistant, "x")], Err(Refusal::Order)),
            (&[insert(4, Role::System, "x")], Err(Refusal::Order)),
            (&[insert(3, Role::Assistant, "x")], Err(Refusal::Order)),
            (&[insert(4, Role::Assistant, "x")], Err(Refusal::Order)),
            (&[insert(5, Role::Assistant, "x")], Err(Refusal::Order)),
            (&[drop(4, 5)], Err(Refusal::Order)),
            (&[insert(3, Role::Tool, "x")], Err(Refusal::Missing)),
            (&[insert(12, Role::User, "x")], Err(Refusal::Missing)),
            (&[insert(4, Role::User, " ")], Err(Refusal::EmptyText)),
        ],
    );
    let said = |role: &str, text: &str| format!(r#"{{"role":"{role}","content":"{text}"}}"#);
    let talk = [
        ("user", "goal"),
        ("assistant", "a"),
        ("user", "b"),
        ("system", "note"),
        ("assistant", "c"),
        ("user", "d"),
    ];
    let talk: Vec<String> = talk.iter().map(|(role, text)| said(role, text)).collect();
    refusals(
        "anthropic",
        &format!(r#"{{"messages":[{}]}}"#, talk.join(",")),
        &[
            (&[drop(1, 3)], Ok(())),
            (&[drop(2, 3)], Err(Refusal::Order)),
            (&[drop(1, 3), insert(1, Role::Assistant, "summary")], Err(Refusal::Order)),
            (&[drop(1, 3), insert(1, Role::User, "summary")], Ok(())),
        ],
    );
}

#[test]
fn insertions_into_a_plain_text_history_are_refused() {
    refusals(
        "openai-responses",
        r#"{"input":"hi"}"#,
        &[(&[insert(0, Role::User, "x")], Err(Refusal::NoList))],
    );
}

#[test]
fn marking_operations_are_recognised() {
    let split = |mark| Op::Split { bytes: 5, mark };
    for (op, has_marks) in [
        (split(None), false),
        (split(Some(Hold::Short)), true),
        (Op::MarkFrame { hold: Hold::Long }, true),
        (drop(0, 1), false),
    ] {
        assert_eq!(Plan { ops: vec![op.clone()] }.kinds().has_marks(), has_marks, "{op:?}");
    }
}
