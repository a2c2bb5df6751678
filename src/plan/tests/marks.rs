//! Marks for the provider's cache: which may be added, and what becomes of those that are there.

use super::*;
use crate::conversation::Hold;

/// The tools precede the messages; the provider's own mark follows them.
#[test]
fn long_marks_precede_short_ones_across_tools_and_messages() {
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

/// Long-lived marks come first, and no mark occurs twice, whatever marks the client sets.
#[test]
fn long_marks_precede_short_ones_and_none_is_repeated() {
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

/// What is dropped takes its marks with it; all other marks stay where they were.
#[test]
fn marks_are_verified_after_drops_and_insertions() {
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
