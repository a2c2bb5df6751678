//! Plans against conversations of the dialects, table by table.

use bytes::Bytes;
use proptest::prelude::*;

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

/// The start of a conversation with images in results: one between texts, two alone, and one that stands elsewhere.
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
fn texts_that_may_be_changed() {
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
fn images_that_may_give_way() {
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
fn texts_in_place_of_images_are_verified() {
    let before = read("anthropic", IMAGES);
    let plan = Plan {
        ops: vec![text(2, 0, &[(0, None), (2, Some("seen"))]), text(2, 1, &[(0, None), (1, Some("gone"))])],
    };
    let protocol = protocol::named("anthropic").unwrap();
    let after = protocol::rewrite(protocol, &before, &plan, &NoMemo).unwrap();
    let after = String::from_utf8(after.to_vec()).unwrap();
    let (seen, two) = (r#"{"type":"text","text":"seen"}"#, r#"{"type":"text","text":"two"}"#);
    let (gone, image) =
        (r#"{"type":"text","text":"gone"}"#, r#"{"type":"image","source":{"type":"base64","data":"BB"}}"#);
    assert!(after.contains(&format!(r#""content":[{seen},{two}]"#)), "{after}");
    assert!(after.contains(&format!(r#""content":[{gone}]"#)), "{after}");
    for (after, expected) in [
        (after.clone(), Ok(())),
        (after.replace("gone", "lost"), Err(Mismatch::Wrong(2))),
        (after.replace(&format!("{seen},{two}"), &format!("{two},{seen}")), Err(Mismatch::Wrong(2))),
        (after.replace(gone, &format!("{gone},{image}")), Err(Mismatch::Wrong(2))),
        (after.replace(gone, image), Err(Mismatch::Wrong(2))),
        (IMAGES.to_owned(), Err(Mismatch::Wrong(2))),
    ] {
        assert_eq!(verify(&before, &plan, &read("anthropic", &after)), expected, "{after}");
    }
}

#[test]
fn calls_and_results_stay_together() {
    refusals(
        "anthropic",
        BLOCKS,
        &[
            (&[drop(1, 3)], Ok(())),
            (&[drop(1, 4)], Ok(())),
            (&[drop(5, 7), drop(1, 3)], Ok(())),
            (&[drop(1, 2)], Err(Refusal::Pairing)),
            (&[drop(2, 3)], Err(Refusal::Pairing)),
            (&[drop(2, 4)], Err(Refusal::Pairing)),
            (&[drop(9, 10)], Err(Refusal::Pairing)),
            (&[insert(2, Role::User, "x")], Err(Refusal::Pairing)),
            (&[insert(10, Role::User, "x")], Err(Refusal::Pairing)),
            (&[insert(2, Role::User, "x"), drop(1, 3)], Ok(())),
            (&[insert(11, Role::User, "x")], Ok(())),
        ],
    );
    refusals(
        "openai-chat",
        MESSAGES,
        &[
            (&[drop(2, 5)], Ok(())),
            (&[drop(2, 4)], Err(Refusal::Pairing)),
            (&[drop(4, 5)], Err(Refusal::Pairing)),
            (&[insert(3, Role::User, "x")], Err(Refusal::Pairing)),
            (&[insert(4, Role::User, "x")], Err(Refusal::Pairing)),
            (&[insert(5, Role::User, "x")], Ok(())),
        ],
    );
}

/// A result alone in a body answers a call that the provider keeps; a call alone waits for its result.
#[test]
fn halves_of_pairs_stay() {
    let continued = r#"{"thread":{"type":"continue"},"messages":[
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"x"}]},
        {"role":"assistant","content":"y"},{"role":"user","content":"z"}]}"#;
    refusals(
        "anthropic",
        continued,
        &[
            (&[drop(0, 1)], Err(Refusal::Pairing)),
            (&[insert(0, Role::User, "x")], Err(Refusal::Pairing)),
            (&[insert(3, Role::User, "x")], Ok(())),
        ],
    );
    let open = r#"{"messages":[{"role":"user","content":"x"},
        {"role":"assistant","content":[{"type":"tool_use","id":"a","name":"x","input":{}}]}]}"#;
    refusals("anthropic", open, &[(&[insert(2, Role::User, "x")], Err(Refusal::Pairing))]);
    let unanswered = r#"{"messages":[{"role":"user","content":"x"},
        {"role":"assistant","content":[{"type":"tool_use","name":"x","input":{}}]},
        {"role":"user","content":"y"}]}"#;
    refusals("anthropic", unanswered, &[(&[drop(1, 2)], Err(Refusal::Pairing))]);
}

/// A call may be there without being understood: named, or in an older form. What stands far before it is not in
/// its way.
#[test]
fn results_of_calls_that_are_only_named() {
    let named = r#"{"input":[{"role":"user","content":"goal"},{"role":"assistant","content":"well"},
        {"role":"user","content":"go"},{"type":"item_reference","id":"fc_1"},
        {"type":"function_call_output","call_id":"a","output":"one"}]}"#;
    for (before, expected) in [(1, Ok(())), (2, Ok(())), (3, Ok(())), (4, Err(Refusal::Pairing)), (5, Ok(()))]
    {
        refusals("openai-responses", named, &[(&[insert(before, Role::User, "x")], expected)]);
    }
    // What goes with the same plan stands between nothing.
    let kept = r#"{"previous_response_id":"r","input":[{"role":"user","content":"goal"},
        {"role":"assistant","content":"well"},{"role":"user","content":"go"},
        {"type":"function_call_output","call_id":"a","output":"one"},{"role":"user","content":"on"}]}"#;
    let (gone, said) = (drop(1, 2), insert(1, Role::User, "x"));
    refusals("openai-responses", kept, &[(&[gone, said], Err(Refusal::Pairing))]);
}

/// A server that counts its calls anew in every turn must not have one turn's result taken for another's.
#[test]
fn ids_that_are_used_again() {
    let step = r#"{"role":"assistant","content":null,"tool_calls":[{"id":"call_0","type":"function","function":{"name":"x","arguments":"{}"}}]},{"role":"tool","tool_call_id":"call_0","content":"x"}"#;
    let body = format!(
        r#"{{"messages":[{{"role":"user","content":"a"}},{step},{{"role":"user","content":"b"}},{step},{{"role":"assistant","content":"ok"}},{{"role":"user","content":"c"}}]}}"#
    );
    refusals(
        "openai-chat",
        &body,
        &[
            (&[drop(1, 3)], Ok(())),
            (&[drop(4, 6)], Ok(())),
            (&[drop(1, 2)], Err(Refusal::Pairing)),
            (&[drop(4, 5)], Err(Refusal::Pairing)),
            (&[drop(2, 3), drop(4, 5)], Err(Refusal::Pairing)),
        ],
    );
}

/// Two calls with one id, the second before the first is answered, and two results: one for each.
#[test]
fn ids_that_are_used_before_they_are_answered() {
    let item = |kind: &str| {
        format!(r#"{{"type":"{kind}","call_id":"a","name":"x","arguments":"{{}}","output":""}}"#)
    };
    let (call, result) = (item("function_call"), item("function_call_output"));
    let goal = r#"{"role":"user","content":"goal"}"#;
    let said = r#"{"role":"assistant","content":"well"}"#;
    let body = format!(r#"{{"input":[{goal},{call},{goal},{call},{result},{result},{said},{goal}]}}"#);
    refusals(
        "openai-responses",
        &body,
        &[
            (&[drop(1, 6)], Ok(())),
            (&[drop(3, 6)], Err(Refusal::Pairing)),
            (&[drop(3, 5)], Ok(())),
            (&[drop(1, 2), drop(5, 6)], Ok(())),
            (&[drop(1, 2), drop(4, 5)], Err(Refusal::Pairing)),
        ],
    );
}

#[test]
fn messages_that_stay() {
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

/// What stands around the messages is before them, but for the provider's own mark at the end.
#[test]
fn marks_around_the_messages_are_in_order_too() {
    const SHORT: &str = r#","cache_control":{"type":"ephemeral"}"#;
    const LONG: &str = r#","cache_control":{"type":"ephemeral","ttl":"1h"}"#;
    let mark = |hold| [Op::Mark { part: PartId { message: 0, part: 0 }, hold }];
    let (good, bad) = (Ok(()), Err(Refusal::Conflict));
    for (tools, automatic, short, long) in [
        ("", "", good, good),
        (SHORT, "", good, bad),
        (LONG, "", good, good),
        ("", SHORT, good, good),
        ("", LONG, bad, good),
        (SHORT, LONG, bad, bad),
    ] {
        let body = format!(
            r#"{{"tools":[{{"name":"t"{tools}}}],"messages":[{{"role":"user","content":"goal"}}]{automatic}}}"#
        );
        refusals("anthropic", &body, &[(&mark(Hold::Short), short), (&mark(Hold::Long), long)]);
    }
}

/// Marks that last for long come first, and none stands twice; whatever the client's own are like.
#[test]
fn marks_stand_where_providers_take_them() {
    const SHORT: &str = r#","cache_control":{"type":"ephemeral"}"#;
    const LONG: &str = r#","cache_control":{"type":"ephemeral","ttl":"1h"}"#;
    let mark = |message, hold| Op::Mark { part: PartId { message, part: 0 }, hold };
    let (good, bad) = (Ok(()), Err(Refusal::Conflict));
    for (first, block, result, last, plan, expected) in [
        ("", "", "", "", &[mark(0, Hold::Short), mark(2, Hold::Short)][..], good),
        ("", "", "", "", &[mark(2, Hold::Short), mark(0, Hold::Long)], good),
        ("", "", "", "", &[mark(0, Hold::Short), mark(2, Hold::Long)], bad),
        ("", "", "", "", &[mark(2, Hold::Long), mark(0, Hold::Short)], bad),
        ("", "", "", "", &[mark(2, Hold::Short), mark(2, Hold::Short)], bad),
        ("", "", "", "", &[mark(2, Hold::Short), mark(2, Hold::Long)], bad),
        ("", LONG, SHORT, "", &[mark(0, Hold::Long), mark(4, Hold::Short)], good),
        ("", LONG, SHORT, "", &[mark(0, Hold::Short)], bad),
        ("", LONG, SHORT, "", &[mark(4, Hold::Long)], bad),
        ("", LONG, SHORT, "", &[mark(2, Hold::Long)], bad),
        ("", SHORT, LONG, "", &[mark(0, Hold::Long), mark(4, Hold::Short)], good),
        (SHORT, SHORT, SHORT, SHORT, &[mark(3, Hold::Short)], bad),
        (SHORT, SHORT, SHORT, "", &[mark(3, Hold::Short)], good),
    ] {
        let body = format!(
            r#"{{"messages":[{{"role":"user","content":[{{"type":"text","text":"goal"{first}}}]}},{{"role":"assistant","content":[{{"type":"tool_use","id":"a","name":"x","input":{{}}}}]}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"a","content":[{{"type":"text","text":"one"{block}}}]{result}}}]}},{{"role":"assistant","content":"hm"}},{{"role":"user","content":[{{"type":"text","text":"last"{last}}}]}}]}}"#
        );
        refusals("anthropic", &body, &[(plan, expected)]);
    }
}

#[test]
fn messages_stand_where_providers_take_them() {
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
fn what_is_not_as_planned_is_noticed() {
    let before = read("anthropic", BLOCKS);
    let plan = Plan { ops: vec![text(2, 1, &[(0, Some("2")), (1, None)])] };
    let planned = BLOCKS.replace(r#""two""#, r#""2""#).replace(r#",{"type":"text","text":"three"}"#, "");
    for (after, expected) in [
        (planned.clone(), Ok(())),
        (planned.replace(r#""2""#, r#""\u0032""#), Ok(())),
        (planned.replace(r#""2""#, r#""3""#), Err(Mismatch::Wrong(2))),
        (BLOCKS.to_owned(), Err(Mismatch::Wrong(2))),
        (planned.replace(r#""one""#, r#""1""#), Err(Mismatch::Wrong(2))),
        (planned.replace(r#""tool_use_id":"b""#, r#""tool_use_id":"x""#), Err(Mismatch::Wrong(2))),
        (
            planned.replace(r#","content":"one"}"#, r#","content":"one","is_error":true}"#),
            Err(Mismatch::Wrong(2)),
        ),
        (planned.replace("goal", "foal"), Err(Mismatch::Changed(0))),
        (planned.replace(r#"{"role":"assistant","content":"hm"},"#, ""), Err(Mismatch::Count)),
        (planned.replace(r#""model":"m""#, r#""model":"n""#), Err(Mismatch::Frame)),
        (planned.replace("]}", "] }"), Err(Mismatch::Frame)),
    ] {
        assert_eq!(verify(&before, &plan, &read("anthropic", &after)), expected, "{after}");
    }
}

#[test]
fn insertions_and_drops_are_verified() {
    let before = read("anthropic", BLOCKS);
    let plan = Plan { ops: vec![drop(1, 4), insert(1, Role::Assistant, "so far")] };
    let protocol = protocol::named("anthropic").unwrap();
    let after = protocol::rewrite(protocol, &before, &plan, &NoMemo).unwrap();
    let after = String::from_utf8(after.to_vec()).unwrap();
    assert!(
        after.contains(r#"{"role":"user","content":"goal"},{"role":"assistant","content":"so far"}"#),
        "{after}"
    );
    for (after, expected) in [
        (after.clone(), Ok(())),
        (after.replace("so far", "so what"), Err(Mismatch::Wrong(1))),
        (
            after.replace(
                r#"{"role":"assistant","content":"so far"}"#,
                r#"{"role":"user","content":"so far"}"#,
            ),
            Err(Mismatch::Wrong(1)),
        ),
        (
            after.replace(
                r#","content":"so far""#,
                r#","content":[{"type":"text","text":"so far"},{"type":"text","text":"x"}]"#,
            ),
            Err(Mismatch::Wrong(1)),
        ),
    ] {
        assert_eq!(verify(&before, &plan, &read("anthropic", &after)), expected, "{after}");
    }
}

/// What goes takes its marks with it; all others stay, on what they stood on.
#[test]
fn marks_are_verified_where_messages_move() {
    const MARK: &str = r#","cache_control":{"type":"ephemeral"}"#;
    let message = |role: &str, text: &str, mark: &str| {
        format!(r#"{{"role":"{role}","content":[{{"type":"text","text":"{text}"{mark}}}]}}"#)
    };
    let body = |messages: &[String]| format!(r#"{{"messages":[{}]}}"#, messages.join(","));
    let (goal, more) = (message("user", "goal", ""), message("user", "more", ""));
    let old = [message("assistant", "a", MARK), message("user", "b", MARK)];
    let (said, asked) = (message("assistant", "c", MARK), message("user", "d", ""));
    let before = read(
        "anthropic",
        &body(&[vec![goal.clone()], old.to_vec(), vec![said.clone(), more.clone(), asked.clone()]].concat()),
    );
    let plan = Plan {
        ops: vec![
            drop(1, 3),
            insert(1, Role::User, "so far"),
            Op::Mark { part: PartId { message: 4, part: 0 }, hold: Hold::Short },
        ],
    };
    let note = r#"{"role":"user","content":"so far"}"#.to_owned();
    let (marked, last) = (message("user", "more", MARK), message("user", "d", MARK));
    for (after, expected) in [
        ([&goal, &note, &said, &marked, &asked], Ok(())),
        ([&goal, &note, &message("assistant", "c", ""), &marked, &asked], Err(Mismatch::Marks)),
        ([&goal, &note, &said, &more, &asked], Err(Mismatch::Marks)),
        ([&goal, &note, &said, &more, &last], Err(Mismatch::Marks)),
        ([&goal, &note, &said, &marked, &last], Err(Mismatch::Marks)),
    ] {
        let after = body(&after.map(Clone::clone));
        assert_eq!(verify(&before, &plan, &read("anthropic", &after)), expected, "{after}");
    }
}

#[test]
fn reasoning_stays_with_what_it_led_to() {
    refusals(
        "openai-responses",
        ITEMS,
        &[
            (&[drop(1, 4)], Ok(())),
            (&[drop(1, 6)], Ok(())),
            (&[drop(4, 6)], Ok(())),
            (&[drop(2, 4)], Err(Refusal::Pairing)),
            (&[drop(4, 5)], Err(Refusal::Pairing)),
            (&[drop(5, 6)], Err(Refusal::Pairing)),
            (&[insert(5, Role::User, "x")], Err(Refusal::Pairing)),
            (&[insert(2, Role::User, "x")], Err(Refusal::Pairing)),
            (&[insert(1, Role::User, "x")], Ok(())),
            (&[drop(1, 4), insert(2, Role::User, "x")], Ok(())),
        ],
    );
}

#[test]
fn a_history_that_is_one_text_has_no_places() {
    refusals(
        "openai-responses",
        r#"{"input":"hi"}"#,
        &[(&[insert(0, Role::User, "x")], Err(Refusal::NoList))],
    );
}

/// A history of items: `u` the user, `a` the model, `c1` a call, `r1` its result; no result without a call that has
/// none yet, and none is left out.
fn history(words: &[&str]) -> String {
    let mut open: Vec<&str> = Vec::new();
    let mut items = vec![item("u")];
    for word in words {
        match word.split_at(1) {
            ("c", id) => open.push(id),
            ("r", id) => match open.iter().position(|call| *call == id) {
                Some(at) => _ = open.remove(at),
                None => continue,
            },
            _ => {}
        }
        items.push(item(word));
    }
    items.extend(open.iter().map(|id| item(&format!("r{id}"))));
    items.extend([item("a"), item("u")]);
    format!(r#"{{"input":[{}]}}"#, items.join(","))
}

fn item(word: &str) -> String {
    let (kind, id) = word.split_at(1);
    match kind {
        "u" => r#"{"role":"user","content":"hello"}"#.to_owned(),
        "a" => r#"{"role":"assistant","content":"well"}"#.to_owned(),
        "c" => format!(r#"{{"type":"function_call","call_id":"{id}","name":"x","arguments":"{{}}"}}"#),
        _ => format!(r#"{{"type":"function_call_output","call_id":"{id}","output":"found"}}"#),
    }
}

proptest! {
    /// However ids are used again, no plan leaves a call without a result.
    #[test]
    fn as_many_calls_as_results_stay(
        words in prop::collection::vec(prop::sample::select(&["u", "a", "c1", "c2", "r1", "r2", "r1", "r2"][..]), 1..12),
        ends in prop::collection::vec(any::<prop::sample::Index>(), 2..6),
    ) {
        let conversation = read("openai-responses", &history(&words));
        let protocol = protocol::named("openai-responses").unwrap();
        prop_assert_eq!(protocol.valid(&conversation), Ok(()));
        let mut ends: Vec<usize> = ends.iter().map(|end| end.index(conversation.messages.len())).collect();
        ends.sort_unstable();
        ends.dedup();
        let plan = Plan { ops: ends.chunks_exact(2).map(|range| drop(range[0], range[1])).collect() };
        if check(&conversation, &plan).is_ok() {
            let after = protocol::rewritten(protocol, &conversation, &plan, &NoMemo).unwrap();
            prop_assert_eq!(protocol.valid(&after), Ok(()), "{:?}", plan);
        }
    }
}
