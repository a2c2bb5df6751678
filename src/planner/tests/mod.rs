//! What is decided, and what is not.

mod arguments;
mod epochs;
pub(super) mod events;
mod losses;
mod media;
mod pointers;
mod reasoning;
mod room;
mod spared;
mod splices;

use std::cell::RefCell;
use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::conversation::NoMemo;
use crate::plan::LeafEdit;
use crate::protocol;
use crate::shape::settings::NamePatterns;

/// A body in short: `u` the user, `a` the model, `c1` a call of `Bash`, `r1:KIND` its result, `s` a summary of the
/// provider's, `d1` a call after one.
fn talk(short: &str) -> Conversation {
    let messages: Vec<String> = short.split_whitespace().map(message).collect();
    let body = format!(r#"{{"messages":[{}]}}"#, messages.join(","));
    protocol::named("anthropic").unwrap().index(&Bytes::from(body), &NoMemo).unwrap()
}

fn message(word: &str) -> String {
    let (what, kind) = word.split_once(':').unwrap_or((word, "small"));
    let (who, id) = what.split_at(1);
    match who {
        "u" => r#"{"role":"user","content":"x"}"#.to_owned(),
        "a" => r#"{"role":"assistant","content":"x"}"#.to_owned(),
        "s" => r#"{"role":"assistant","content":[{"type":"compaction","content":"so far"}]}"#.to_owned(),
        "d" => format!(
            r#"{{"role":"assistant","content":[{{"type":"compaction","content":"so"}},{{"type":"tool_use","id":"t{id}","name":"Bash","input":{{"command":"make"}}}}]}}"#
        ),
        "c" => format!(
            r#"{{"role":"assistant","content":[{{"type":"tool_use","id":"t{id}","name":"Bash","input":{{"command":"make"}}}}]}}"#
        ),
        _ => format!(
            r#"{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t{id}","content":{}}}]}}"#,
            content(kind)
        ),
    }
}

/// Results by kind. `big` ones are cut, `even` ones are not, but long enough to be pointed to.
fn content(kind: &str) -> String {
    let lines = |name: &str, count: usize| {
        let line = |at| format!("{name} line {at}\\n");
        (0..count).map(line).collect::<Vec<String>>().concat()
    };
    match kind {
        "small" => r#""ok""#.to_owned(),
        "big" => format!("\"{}\"", lines("big", 60)),
        "huge" => format!("\"{}\"", lines("huge", 90)),
        "even" => format!("\"{}\"", lines("even", 20)),
        "broken" => format!("\"{}\\ud800\"", lines("big", 60)),
        "image" => {
            format!(r#"[{{"type":"text","text":"{}"}},{{"type":"image","source":{{}}}}]"#, lines("big", 60))
        }
        "pieces" => format!(
            r#"[{{"type":"text","text":"{}"}},{{"type":"text","text":"{}"}}]"#,
            lines("even", 10),
            lines("odd", 10)
        ),
        // Blocks that do not end with a line.
        "open" => format!(
            r#"[{{"type":"text","text":"{0}end"}},{{"type":"text","text":"{0}end"}}]"#,
            lines("even", 10)
        ),
        "halfbroken" => {
            format!(r#"[{{"type":"text","text":"{}"}},{{"type":"text","text":"\udfff"}}]"#, lines("big", 60))
        }
        other => panic!("{other}"),
    }
}

fn settings() -> Settings {
    let mut settings = Settings { repeat_min_bytes: 200, ..Settings::default() };
    settings.truncate.tools = Vec::new();
    settings.truncate.base.max_bytes = 500;
    settings
}

fn run(conversation: &Conversation, sent: usize, applied: &[Applied]) -> Outcome {
    plan_with(conversation, &Past { sent, applied, ..Past::nothing() }, &settings())
}

fn plan_with(conversation: &Conversation, past: &Past<'_>, settings: &Settings) -> Outcome {
    let marks = marks::Settings { marks: false, anchors: false, keys: true, split: false };
    let clear = clear::Settings { enabled: false, ..clear::Settings::default() };
    let policy = Policy { shape: settings.clone(), clear, marks, ..Policy::default() };
    plan(conversation, past.clone(), &policy, &Facts::default(), &|id| {
        format!("full output: /o/{}", &id[..4])
    })
}

/// Knows one decision.
fn knowing(known: &Arc<Decision>) -> impl Fn(&[PartKey]) -> Vec<Option<Arc<Decision>>> {
    let decision = |key: &PartKey| (Some(*key) == known.key).then(|| Arc::clone(known));
    move |keys| keys.iter().map(decision).collect()
}

/// The decisions in short: message and rules.
fn decided(outcome: &Outcome) -> Vec<String> {
    let in_short = |applied: &Applied| format!("{} {}", applied.part.message, applied.decision.cause);
    outcome.applied.iter().map(in_short).collect()
}

#[test]
fn only_newborn_results_are_decided() {
    for (talk_in_short, sent, expected) in [
        ("u c1 r1:big", 0, &["2 truncate"][..]),
        ("u c1 r1:big", 1, &["2 truncate"]),
        ("u c1 r1:big", 3, &[]),
        ("u c1 r1:big u", 3, &[]),
        ("u c1 r1:big u", 1, &["2 truncate"]),
        ("u c1 r1:big c2 r2:huge", 0, &["4 truncate"]),
        ("u c1 r1:big c2 r2:huge", 3, &["4 truncate"]),
        ("u c1 r1:big a u", 0, &[]),
        ("u c1 r1:big a", 1, &[]),
        ("u c1 r1:small", 1, &[]),
        ("r1:big u", 0, &["0 truncate"]),
        ("u", 0, &[]),
    ] {
        let outcome = run(&talk(talk_in_short), sent, &[]);
        assert_eq!(
            (decided(&outcome), outcome.fresh),
            (expected.iter().map(|&text| text.to_owned()).collect(), expected.len()),
            "{talk_in_short}"
        );
        assert_eq!((outcome.plan.ops.len(), outcome.saves.len()), (expected.len(), expected.len()));
    }
}

#[test]
fn stored_decisions_come_first_and_are_kept() {
    let first = run(&talk("u c1 r1:big"), 1, &[]);
    let request = talk("u c1 r1:big c2 r2:huge");
    let again = run(&request, 3, &first.applied);
    assert_eq!((decided(&again), again.fresh), (vec!["2 truncate".to_owned(), "4 truncate".to_owned()], 1));
    assert_eq!(again.applied[0], first.applied[0]);
    assert_eq!(again.saves.len(), 1);
    // Other settings do not change it.
    let off = Settings {
        truncate: crate::shape::settings::Truncate {
            exempt: NamePatterns::new(["*"]).unwrap(),
            ..settings().truncate
        },
        ..settings()
    };
    let past = Past { sent: 5, applied: &again.applied, ..Past::nothing() };
    assert_eq!(plan_with(&request, &past, &off).plan, again.plan);
}

/// A result that code reads is sent unchanged, whatever it is: it is neither cut nor pointed to or from, not even if an
/// earlier gateway has cut it.
#[test]
fn results_read_by_code_are_neither_shortened_nor_pointed_to() {
    let talk = |words: &str, code: &[&str]| {
        let by_code = |word: &str| {
            let caller = r#""type":"tool_use","caller":{"type":"code_execution_20260120","tool_id":"s"}"#;
            let is_code = code.contains(&word);
            let message = message(word);
            if is_code { message.replace(r#""type":"tool_use""#, caller) } else { message }
        };
        let messages: Vec<String> = words.split_whitespace().map(by_code).collect();
        let body = format!(r#"{{"messages":[{}]}}"#, messages.join(","));
        protocol::named("anthropic").unwrap().index(&Bytes::from(body), &NoMemo).unwrap()
    };
    let cut = run(&talk("u c1 r1:big", &[]), 1, &[]);
    let known_decisions = knowing(&cut.applied[0].decision);
    for (words, code, expected) in [
        ("u c1 r1:big", &["c1"][..], &[][..]),
        ("u c1 r1:even c2 r2:even", &["c1", "c2"], &[]),
        ("u c1 r1:even c2 r2:even", &["c1"], &[]),
        ("u c1 r1:even c2 r2:even", &["c2"], &[]),
        ("u c1 r1:even c2 r2:even", &[], &["4 repeat"]),
        ("u c1 r1:even c2 r2:even c3 r3:even", &["c2"], &["6 repeat"]),
        ("u c1 r1:big c2 r2:huge", &["c1"], &["4 truncate"]),
    ] {
        for (sent, applied) in [(words.split(' ').count() - 1, &cut.applied[..]), (0, &[])] {
            let past = Past { sent, applied, known_decisions: &known_decisions, ..Past::nothing() };
            let outcome = plan_with(&talk(words, code), &past, &settings());
            assert_eq!(decided(&outcome), expected, "{words} {code:?} {sent}");
        }
    }
}

/// A decision applies only to the result that it was made about.
#[test]
fn decisions_about_other_content_are_ignored() {
    let first = run(&talk("u c1 r1:big"), 1, &[]);
    for other in ["u c1 r1:huge", "u c1 r1:small", "u a u", "u"] {
        let outcome = run(&talk(other), 3, &first.applied);
        assert!(outcome.plan.is_empty() && outcome.applied.is_empty(), "{other}");
    }
}

/// A result with the same content in a form that cannot be changed is sent unchanged; decisions about others apply.
#[test]
fn a_decision_is_skipped_if_the_form_of_the_result_is_not_editable() {
    let protocol = protocol::named("openai-responses").unwrap();
    let text = |name: &str| format!("\"{}\"", format!("{name}\\n").repeat(3000));
    let talk = |first: &str| {
        let call = |id: u8| {
            format!(r#"{{"type":"function_call","call_id":"{id}","name":"run","arguments":"{{}}"}}"#)
        };
        let result = |id: u8, output: &str| {
            format!(r#"{{"type":"function_call_output","call_id":"{id}","output":{output}}}"#)
        };
        let items = [call(1), call(2), result(1, first), result(2, &text("two"))].join(",");
        let body = format!(r#"{{"model":"m","input":[{{"role":"user","content":"go"}},{items}]}}"#);
        protocol.index(&Bytes::from(body), &NoMemo).unwrap()
    };
    let one = text("one");
    let decided = run(&talk(&one), 0, &[]).applied;
    for (form, expected) in [
        (one.clone(), &[3, 4][..]),
        (format!(r#"[{{"type":"input_text","text":{one}}}]"#), &[3, 4]),
        (format!("[{one}]"), &[4]),
    ] {
        let talk = talk(&form);
        let outcome = run(&talk, 5, &decided);
        let sent: Vec<u32> = outcome.applied.iter().map(|applied| applied.part.message).collect();
        assert_eq!(sent, expected, "{}", &form[..20]);
        assert!(protocol::apply_verified(protocol, &talk, &outcome.plan, &NoMemo).is_ok());
    }
}

#[test]
fn decisions_in_unknown_histories_are_recovered_by_content() {
    let first = run(&talk("u c1 r1:big"), 1, &[]);
    let known = &first.applied[0].decision;
    let known_decisions = knowing(known);
    let past = Past { sent: 0, applied: &[], known_decisions: &known_decisions, ..Past::nothing() };
    let request = talk("u c1 r1:big c2 r2:huge c3 r3:big");
    let outcome = plan_with(&request, &past, &settings());
    assert_eq!((decided(&outcome), outcome.fresh), (vec!["2 truncate".to_owned(), "6 repeat".to_owned()], 2));
    assert_eq!(&outcome.applied[0].decision, known);
    assert_eq!(outcome.plan.ops[0], first.plan.ops[0]);
    // The text that it cites may have been swept since.
    assert_eq!(plan_with(&talk("u c1 r1:big a u"), &past, &settings()).saves, first.saves);
    // The same text of another call, or another text of the same call, is not what was decided about.
    for other in ["u c9 r9:big a u", "u c1 r1:huge a u"] {
        assert!(plan_with(&talk(other), &past, &settings()).plan.is_empty(), "{other}");
    }
    let lying = |keys: &[PartKey]| vec![Some(Arc::clone(known)); keys.len()];
    let past = Past { sent: 0, applied: &[], known_decisions: &lying, ..Past::nothing() };
    assert!(plan_with(&talk("u c1 r1:huge a u"), &past, &settings()).plan.is_empty());
    // A result that was sent unchanged stays unchanged.
    let past = Past { sent: 3, applied: &[], known_decisions: &known_decisions, ..Past::nothing() };
    assert!(plan_with(&talk("u c1 r1:big a u"), &past, &settings()).plan.is_empty());
}

#[test]
fn stored_decisions_are_looked_up_in_one_query() {
    for (talk_in_short, sent, expected) in [
        ("u c1 r1:big c2 r2:huge a u c3 r3:big", 0, &[2][..]),
        ("u c1 r1:big c2 r2:huge c3 r3:big a u", 3, &[2]),
        ("u c1 r1:big", 0, &[]),
        ("u a u", 0, &[]),
    ] {
        let asked = RefCell::new(Vec::new());
        let known_decisions = |keys: &[PartKey]| {
            asked.borrow_mut().push(keys.len());
            Vec::new()
        };
        let past = Past { sent, known_decisions: &known_decisions, ..Past::nothing() };
        plan_with(&talk(talk_in_short), &past, &settings());
        assert_eq!(*asked.borrow(), expected, "{talk_in_short}");
    }
}

#[test]
fn undecodable_texts_stay_and_text_beside_images_is_only_truncated() {
    for kind in ["broken", "halfbroken"] {
        let outcome = run(&talk(&format!("u c1 r1:{kind}")), 1, &[]);
        assert!(outcome.plan.is_empty() && outcome.saves.is_empty(), "{kind}");
    }
    // Next to an image, text is cut but never replaced by a pointer.
    let outcome = run(&talk("u c1 r1:image"), 1, &[]);
    assert_eq!(decided(&outcome), ["2 truncate"]);
    let Op::Text { leaves, .. } = &outcome.plan.ops[0] else { panic!("a text") };
    assert!(matches!(leaves[..], [(0, LeafEdit::Replace(_))]), "{leaves:?}");
}

#[test]
fn exemptions_and_repeat_settings_are_obeyed() {
    let past = Past { sent: 3, applied: &[], ..Past::nothing() };
    let exempt = |repeat| {
        let mut settings = Settings { repeat, ..settings() };
        settings.truncate.exempt = NamePatterns::new(["bash"]).unwrap();
        settings
    };
    for (talk_in_short, settings, expected) in [
        ("u c1 r1:even c2 r2:even", Settings { repeat: false, ..settings() }, &[][..]),
        ("u c1 r1:even c2 r2:even", Settings { repeat_min_bytes: 10_000, ..settings() }, &[]),
        ("u c1 r1:even c2 r2:even", exempt(true), &[]),
        ("u c1 r1:even c2 r2:big", exempt(true), &[]),
        ("u c1 r1:big c2 r2:big", Settings { repeat: false, ..settings() }, &["4 truncate"]),
        ("u c1 r1:big c2 r2:big", settings(), &["4 repeat"]),
    ] {
        assert_eq!(decided(&plan_with(&talk(talk_in_short), &past, &settings)), expected, "{talk_in_short}");
    }
}

/// The whole text is saved, under an id derived from it.
#[test]
fn full_texts_are_saved_by_a_content_id() {
    let outcome = run(&talk("u c1 r1:pieces c2 r2:pieces"), 3, &[]);
    let [save] = &outcome.saves[..] else { panic!("{:?}", outcome.saves) };
    assert!(save.text.starts_with("even line 0\n") && save.text.ends_with("odd line 9\n"), "{}", save.text);
    assert_eq!(outcome.applied[0].decision.output.as_ref(), Some(&save.id));
    assert_eq!(save.id, decision::output_id(&[(&*save.text).into()]));
    assert_eq!(Arc::strong_count(&outcome.applied[0].decision), 1);
}

/// Blocks are joined by line ends. An older gateway joined them without: texts it saved and named that way are saved in
/// the same form again.
#[test]
fn full_texts_of_several_blocks_are_joined_by_line_ends() {
    let request = talk("u c1 r1:open c2 r2:open");
    let outcome = run(&request, 3, &[]);
    let [save] = &outcome.saves[..] else { panic!("{:?}", outcome.saves) };
    assert!(save.text.contains("\nend\neven line 0\n") && save.text.ends_with("\nend"), "{}", save.text);
    assert_eq!(save.id, decision::output_id(&[(&*save.text).into()]));
    let [applied] = &outcome.applied[..] else { panic!("{:?}", outcome.applied) };
    assert_eq!(full_text(&request, applied).as_ref(), Some(&save.text));
    let glued = save.text.replace("end\neven", "endeven");
    let output = Some(decision::output_id(&[(&*glued).into()]));
    let of_old = Decision { output, ..(*applied.decision).clone() };
    let of_old = Applied { part: applied.part, decision: of_old.into() };
    assert_eq!(full_text(&request, &of_old), Some(glued));
}

/// A text without a block of its own cannot be removed; it is shortened to almost nothing, unless it already is.
#[test]
fn emptied_output_channels_keep_a_minimal_text() {
    let lines = (0..60).map(|line| format!("line {line} of many\\n")).collect::<Vec<String>>().concat();
    let entry = |stdout: &str, stderr: &str| format!(r#"{{"stdout":"{stdout}","stderr":"{stderr}"}}"#);
    let words = "no short text ".repeat(20);
    let entries = [entry(&lines, &words), entry("", "ok"), entry(&words, &lines)].join(",");
    let body = format!(r#"{{"input":[{{"type":"shell_call_output","call_id":"c","output":[{entries}]}}]}}"#);
    let protocol = protocol::named("openai-responses").unwrap();
    let conversation = protocol.index(&Bytes::from(body), &NoMemo).unwrap();
    let mut settings = settings();
    settings.truncate.base.keep = crate::shape::settings::Keep::Head;
    let past = Past { sent: 0, applied: &[], ..Past::nothing() };
    let outcome = plan_with(&conversation, &past, &settings);
    protocol::apply_verified(protocol, &conversation, &outcome.plan, &NoMemo).unwrap();
    let decision = &outcome.applied[0].decision;
    let texts: Vec<(u32, usize)> = decision
        .leaves
        .iter()
        .map(|(leaf, edit)| (*leaf, if let LeafEdit::Replace(text) = edit { text.len() } else { 0 }))
        .collect();
    assert!(matches!(texts[..], [(0, 100..), (1, 3), (4, 3), (5, 3)]), "{texts:?}");
    let kept = "ok".len();
    assert_eq!(decision.bytes_after as usize, texts.iter().map(|(_, bytes)| bytes).sum::<usize>() + kept);
}

/// If the replacements of short texts of members are no shorter than the texts, nothing is cut.
#[test]
fn results_that_would_not_get_shorter_are_not_truncated() {
    let protocol = protocol::named("gemini").unwrap();
    let cut = |text: &str| {
        let members: Vec<String> = (0..3_000).map(|at| format!(r#""k{at:04}":"{text}""#)).collect();
        let body = format!(
            r#"{{"contents":[{{"role":"user","parts":[{{"functionResponse":{{"id":"a","name":"t","response":{{{}}}}}}}]}}]}}"#,
            members.join(",")
        );
        let conversation = protocol.index(&Bytes::from(body), &NoMemo).unwrap();
        let outcome = plan_with(&conversation, &Past::nothing(), &settings());
        outcome.applied.first().map(|applied| applied.decision.bytes_after < applied.decision.bytes_before)
    };
    assert_eq!([cut("abc"), cut(&"abcd ".repeat(20))], [None, Some(true)]);
}

/// A block that the client has marked stays, with its mark. If the mark came later than the decision, the history stays
/// as it was sent.
#[test]
fn blocks_marked_by_the_client_keep_their_mark_when_shortened() {
    let lines = (0..60).map(|line| format!("line {line} of many\\n")).collect::<Vec<String>>().concat();
    let protocol = protocol::named("anthropic").unwrap();
    let read = |mark: &str| {
        let content = format!(
            r#"[{{"type":"text","text":"{lines}"}},{{"type":"text","text":"more"}},{{"type":"text","text":"more"{mark}}}]"#
        );
        let results = format!(r#"{{"type":"tool_result","tool_use_id":"t1","content":{content}}}"#);
        let body = format!(
            r#"{{"messages":[{},{},{{"role":"user","content":[{results}]}}]}}"#,
            message("u"),
            message("c1")
        );
        protocol.index(&Bytes::from(body), &NoMemo).unwrap()
    };
    let mut settings = settings();
    settings.truncate.base.keep = crate::shape::settings::Keep::Head;
    let marked = read(r#","cache_control":{"type":"ephemeral"}"#);
    let sent = |conversation: &Conversation, past: &Past<'_>| {
        let outcome = plan_with(conversation, past, &settings);
        let rewritten = protocol::apply_verified(protocol, conversation, &outcome.plan, &NoMemo).unwrap();
        let texts: Vec<String> = (0..rewritten.parts_of(2).next().unwrap().1.leaves().len())
            .map(|leaf| {
                rewritten.text(PartId { message: 2, part: 0 }, leaf).unwrap().chars().take(4).collect()
            })
            .collect();
        (texts.join(","), rewritten.marks.unwrap().parts.len(), outcome.applied)
    };
    let (texts, marks, decided) = sent(&read(""), &Past::nothing());
    assert_eq!((texts.as_str(), marks), ("line", 0));
    let (texts, marks, _) = sent(&marked, &Past { sent: 3, applied: &decided, ..Past::nothing() });
    assert_eq!((texts.as_str(), marks), ("line", 0));
    let (texts, marks, _) = sent(&marked, &Past::nothing());
    assert_eq!((texts.as_str(), marks), ("line,…", 1));
}
