//! Results that say what an earlier one says: what they point to, and when that is known again.

use super::*;

/// A pointer is recognised again only if its target precedes it and can be read.
#[test]
fn pointers_are_recovered_only_with_a_readable_target() {
    let request = talk("u c1 r1:even c2 r2:even");
    let pointer = run(&request, 3, &[]);
    assert_eq!(decided(&pointer), ["4 repeat"]);
    let known = &pointer.applied[0].decision;
    assert!(!known.stands_alone());
    let known_decisions = knowing(known);
    for (short, sent, expected) in [
        ("u c2 r2:even a u", 0, &[][..]),
        ("u c1 r1:even c2 r2:even a u", 3, &["4 repeat"]),
        ("u c1 r1:even c2 r2:even a u", 0, &["4 repeat"]),
        // Neither another result with the same content nor a later one is its target.
        ("u c3 r3:even c2 r2:even a u", 3, &[]),
        ("u c2 r2:even c1 r1:even a u", 0, &[]),
        ("u c1 r1:even c3 r3:even c2 r2:even a u", 3, &["6 repeat"]),
        ("u c1 r1:big c2 r2:even a u", 3, &[]),
        // An id that is used again names the newest call with it.
        ("u c1 r1:even c1 r1:big c2 r2:even a u", 3, &[]),
        ("u c1 r1:even c1 r1:even c2 r2:even a u", 3, &["6 repeat"]),
        // The provider has summarised its target.
        ("u c1 r1:even s u c2 r2:even a u", 3, &[]),
        ("u s u c1 r1:even c2 r2:even a u", 3, &["6 repeat"]),
    ] {
        let past = Past { sent, known_decisions: &known_decisions, ..Past::nothing() };
        assert_eq!(decided(&plan_with(&talk(short), &past, &settings())), expected, "{short}");
    }
    // What has been cleared cannot be read.
    let part = PartId { message: 2, part: 0 };
    let cleared = Applied { part, decision: Decision { cause: Cause::Cleared, ..(**known).clone() }.into() };
    let past = Past { sent: 3, applied: &[cleared], known_decisions: &known_decisions, ..Past::nothing() };
    let outcome = plan_with(&talk("u c1 r1:even c2 r2:even a u"), &past, &settings());
    assert_eq!(decided(&outcome), ["2 clear"]);
}

#[test]
fn pointers_target_the_newest_readable_result() {
    for (talk_in_short, sent, expected) in [
        ("u c1 r1:even c2 r2:even", 3, &["t1"][..]),
        // The newest that is untouched.
        ("u c1 r1:even c2 r2:even c3 r3:even", 5, &["t2"]),
        ("u c1 r1:image c2 r2:image", 3, &[]),
        ("u c1 r1:pieces c2 r2:pieces", 3, &["t1"]),
        ("u c1 r1:small c2 r2:small", 3, &[]),
        ("u c1 r1:broken c2 r2:broken", 3, &[]),
        // An id that is used again names the newest call with it.
        ("u c1 r1:even c1 r1:even", 3, &["t1"]),
        ("u c1 r1:even c1 r1:small c2 r2:even", 5, &[]),
        ("u c1 r1:even c2 r2:small c3 r3:even", 5, &["t1"]),
        // What the provider has summarised is out of view.
        ("u c1 r1:even d2 r2:even", 3, &[]),
        ("u c1 r1:even s u c2 r2:even", 5, &[]),
        ("u c1 r1:even s u c2 r2:even c3 r3:even", 7, &["t2"]),
        ("u d1 r1:even c2 r2:even", 3, &["t1"]),
    ] {
        let outcome = run(&talk(talk_in_short), sent, &[]);
        let pointers: Vec<&str> = outcome
            .applied
            .iter()
            .filter_map(|applied| match &applied.decision.leaves[0].1 {
                LeafEdit::Replace(text) => text.split('(').nth(1)?.split(')').next(),
                LeafEdit::Remove => None,
            })
            .collect();
        assert_eq!(pointers, expected, "{talk_in_short}");
    }
    let chained = run(&talk("u c1 r1:even c2 r2:even"), 3, &[]);
    let outcome = run(&talk("u c1 r1:even c2 r2:even c3 r3:even"), 5, &chained.applied);
    assert_eq!(decided(&outcome), ["4 repeat", "6 repeat"]);
    let LeafEdit::Replace(text) = &outcome.applied[1].decision.leaves[0].1 else {
        panic!("a pointer is text")
    };
    assert!(text.contains("(t1)"), "{text}");
    assert_eq!(outcome.saves.len(), 1);
}

/// Where the provider removes old results from the prompt by itself, it is unknown which of them can be read.
#[test]
fn no_pointer_targets_what_the_provider_may_remove() {
    const TALK: &str = "u c1 r1:even c2 r2:even";
    const SUMMARY: &str = r#"{"type":"compaction","encrypted_content":"x"},"#;
    let pointer = run(&talk(TALK), 3, &[]);
    let known_decisions = knowing(&pointer.applied[0].decision);
    let answers = [(3, &[][..]), (3, &pointer.applied[..]), (0, &[])];
    let edits = |edit: &str| format!(r#""context_management":{{"edits":[{{"type":"{edit}"}}]}}"#);
    for (frame, expected) in [
        (edits("clear_tool_uses_20250919"), false),
        (edits("compact_20260112"), true),
        (edits("clear_thinking_20251015"), true),
    ] {
        let body = format!("{{{frame},{}", &std::str::from_utf8(&talk(TALK).body).unwrap()[1..]);
        let talk = protocol::named("anthropic").unwrap().index(&body.into(), &NoMemo).unwrap();
        for (sent, applied) in answers {
            let past = Past { sent, known_decisions: &known_decisions, ..Past::nothing() };
            let found = plan_with(&talk, &past, &settings());
            assert_eq!(decided(&found).len(), usize::from(expected), "{frame} {sent}");
            // What was sent in this form before stays in it.
            let past = Past { sent: 5, applied, ..past };
            assert_eq!(decided(&plan_with(&talk, &past, &settings())).len(), applied.len(), "{frame}");
        }
    }
    // The same holds if the provider drops messages itself, and before its summary.
    for (truncation, between, expected) in [("auto", "", 0), ("disabled", "", 1), ("disabled", SUMMARY, 0)] {
        let made = |id: u8| {
            let lines: Vec<String> = (0..20).map(|at| format!("line {at} of a file\\n")).collect();
            let text = lines.concat();
            format!(
                r#"{{"type":"function_call","call_id":"{id}","name":"f","arguments":"{{}}"}},{{"type":"function_call_output","call_id":"{id}","output":"{text}"}}"#
            )
        };
        let body = format!(
            r#"{{"truncation":"{truncation}","input":[{{"role":"user","content":"x"}},{},{between}{}]}}"#,
            made(1),
            made(2)
        );
        let talk = protocol::named("openai-responses").unwrap().index(&body.into(), &NoMemo).unwrap();
        assert_eq!(decided(&run(&talk, 3, &[])).len(), expected, "{truncation} {between}");
    }
}

#[test]
fn equal_results_of_one_step_point_to_the_first() {
    let body = format!(
        r#"{{"messages":[{{"role":"user","content":"x"}},{{"role":"assistant","content":[{}]}},{{"role":"user","content":[{}]}}]}}"#,
        [1, 2, 3]
            .map(|id| format!(r#"{{"type":"tool_use","id":"t{id}","name":"Bash","input":{{}}}}"#))
            .join(","),
        [1, 2, 3]
            .map(|id| format!(
                r#"{{"type":"tool_result","tool_use_id":"t{id}","content":{}}}"#,
                content("even")
            ))
            .join(","),
    );
    let conversation = protocol::named("anthropic").unwrap().index(&Bytes::from(body), &NoMemo).unwrap();
    let outcome = run(&conversation, 1, &[]);
    assert_eq!(decided(&outcome), ["2 repeat", "2 repeat"]);
    let parts: Vec<u32> = outcome.applied.iter().map(|applied| applied.part.part).collect();
    assert_eq!(parts, [1, 2]);
}

/// A request in which a call reads by this command a text that was cut, `result` being what the call shows.
fn reading(command: &str, result: &str) -> Conversation {
    let text: String = serde_json::from_str(&content("huge")).unwrap();
    let id = decision::output_id(&[text.into()]);
    let request = talk("u c1 r1:huge c2 r2:huge");
    let body = std::str::from_utf8(&request.body).unwrap();
    let (before, after) = body.rsplit_once("make").unwrap();
    let after = after.replace(&content("huge"), result);
    let body = format!("{before}{}{after}", command.replace("ID", &id));
    protocol::named("anthropic").unwrap().index(&body.into(), &NoMemo).unwrap()
}

fn read_back(command: &str, max_bytes: usize, result: &str) -> Vec<String> {
    let mut settings = settings();
    settings.truncate.base.max_bytes = max_bytes;
    let cut = run(&talk("u c1 r1:huge"), 1, &[]).applied;
    let past = Past { sent: 3, applied: &cut, ..Past::nothing() };
    let decided = decided(&plan_with(&reading(command, result), &past, &settings));
    decided.into_iter().filter(|decision| decision != "2 truncate").collect()
}

/// A cut text that is read back from its file is sent whole, or cut again if it is very long; never as a pointer to
/// where it was cut.
#[test]
fn read_back_outputs_are_sent_whole_or_truncated_but_not_as_pointers() {
    for (command, max_bytes, expected) in [
        ("cat /home/me/outputs/ID.txt", 500, &[][..]),
        ("cd /home/me/outputs && cat ID.txt", 500, &[]),
        ("curl http://localhost:1/outputs/ID", 500, &[]),
        ("cat /home/me/outputs/ID.txt", 250, &["4 truncate"]),
        ("cat /home/me/outputs/another.txt", 500, &["4 repeat"]),
        ("make", 500, &["4 repeat"]),
    ] {
        assert_eq!(read_back(command, max_bytes, &content("huge")), expected, "{command} {max_bytes}");
    }
}

/// The same holds for readers that number the lines.
#[test]
fn read_backs_with_line_numbers_are_sent_whole_within_the_limit() {
    let text: String = serde_json::from_str(&content("huge")).unwrap();
    let numbered = text.lines().enumerate().map(|(at, line)| format!("{:6}\t{line}\n", at + 1));
    let numbered = serde_json::to_string(&numbered.collect::<String>()).unwrap();
    for (command, max_bytes, expected) in [
        ("cat -n /home/me/outputs/ID.txt", 700, &[][..]),
        ("cat -n /home/me/outputs/ID.txt", 400, &["4 truncate"]),
        ("cat -n /home/me/outputs/another.txt", 700, &["4 truncate"]),
    ] {
        assert_eq!(read_back(command, max_bytes, &numbered), expected, "{command} {max_bytes}");
    }
}

/// The same holds for parts of a known text, as long as that text is in the body, whether it is sent or not.
#[test]
fn partial_read_backs_of_known_texts_are_not_truncated() {
    let text: String = serde_json::from_str(&content("huge")).unwrap();
    let page: Vec<String> = text.lines().skip(30).map(|line| format!("{line}\n")).collect();
    let page = serde_json::to_string(&page.concat()).unwrap();
    let cut = run(&talk("u c1 r1:huge"), 1, &[]).applied;
    let splice = |output: &str| Splice {
        rule: splice::NOTE.into(),
        drops: [(1, 3)].into(),
        layout: Layout::Answer,
        at: PartId { message: 3, part: 0 },
        leaf: 0,
        text: "gone".into(),
        bytes_before: 2000,
        output: Some(output.to_owned()),
    };
    let left_out = left_out(&talk("u c1 r1:huge"), &splice(""), &[]);
    let left_out = decision::output_id(&[left_out.into()]);
    for (command, applied, of, expected) in [
        ("sed -n 31,90p /o/ID.txt", &*cut, None, &["2 truncate"][..]),
        ("sed -n 31,90p /o/ID.txt", &cut, Some("other"), &[]),
        ("sed -n 33,92p /o/ALL.txt", &[], Some(&*left_out), &[]),
        ("sed -n 31,90p /o/another.txt", &cut, None, &["2 truncate", "4 truncate"]),
        // It is unknown what it is a part of.
        ("sed -n 31,90p /o/ID.txt", &[], None, &["4 truncate"]),
    ] {
        let past =
            Past { sent: 3, applied, splice: of.map(|output| splice(output).into()), ..Past::nothing() };
        let request = reading(&command.replace("ALL", &left_out), &page);
        assert_eq!(decided(&plan_with(&request, &past, &settings())), expected, "{command}");
    }
}

/// A text read back once more becomes a pointer to the place where it is whole, and to no other.
#[test]
fn a_second_read_back_points_to_the_first() {
    let text: String = serde_json::from_str(&content("huge")).unwrap();
    let id = decision::output_id(&[text.into()]);
    let request = talk("u c1 r1:huge c2 r2:huge c3 r3:huge");
    let body = String::from_utf8(request.body.to_vec()).unwrap();
    let [head, second, third] = [0, 1, 2].map(|at| body.split("make").nth(at).unwrap().to_owned());
    let rest = body.split("make").nth(3).unwrap();
    let body = format!("{head}make{second}cat /o/{id}.txt{third}cat /o/{id}.txt{rest}");
    let request = protocol::named("anthropic").unwrap().index(&body.into(), &NoMemo).unwrap();
    let cut = run(&talk("u c1 r1:huge"), 1, &[]).applied;
    assert_eq!(decided(&run(&request, 5, &cut)), ["2 truncate", "6 repeat"]);
}
