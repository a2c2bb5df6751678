//! What the note says that replaces dropped messages.

use super::super::super::transcript::note;
use super::*;

/// A body of texts: `u TEXT` the user's, `a TEXT` the model's, `r TEXT` the result of a call.
fn texts(all: &[String]) -> Conversation {
    let message = |said: &String| {
        let (who, text) = said.split_once(' ').unwrap();
        let text = serde_json::to_string(text).unwrap();
        match who {
            "u" => format!(r#"{{"role":"user","content":{text}}}"#),
            "a" => format!(r#"{{"role":"assistant","content":{text}}}"#),
            _ => format!(
                r#"{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t","content":{text}}}]}}"#
            ),
        }
    };
    let messages: Vec<String> = all.iter().map(message).collect();
    let body = format!(r#"{{"messages":[{}]}}"#, messages.join(","));
    protocol::named("anthropic").unwrap().index(&Bytes::from(body), &NoMemo).unwrap()
}

/// The lines of the note for all messages.
fn lines(all: &[String]) -> Vec<String> {
    let conversation = texts(all);
    let messages: Vec<usize> = (0..all.len()).collect();
    let note = note(&conversation, &messages, Some("see FILE"), usize::MAX);
    let note = note.strip_suffix(']').unwrap();
    let mut lines = note.lines();
    assert!(lines.next().unwrap().contains("; see FILE"), "{note}");
    lines.map(str::to_owned).collect()
}

#[test]
fn a_note_quotes_users_and_models_within_limits() {
    let long = "word ".repeat(90);
    let cut = format!("{}…", "word ".repeat(60));
    let unspaced = "永远不要修改数据库的表结构。".repeat(30);
    let first = |most: usize| unspaced.chars().take(most).collect::<String>();
    let (address, half) = (format!("https://e.org/{}", "a".repeat(400)), "x".repeat(145));
    for (all, expected) in [
        (
            &["u please help", "a well\n  then", "r a result"][..],
            &["- user: please help", "- model: well then"][..],
        ),
        // A repetition counts once.
        (&["u go", "a fine", "u go"], &["- model: fine", "- user: go"]),
        // Each excerpt is bounded.
        (&[&format!("a {long}")], &[&format!("- model: {cut}")]),
        // This holds for a single word and for text without spaces, and no character is cut in half.
        (&[&format!("u {unspaced}")], &[&format!("- user: {} …", first(100))]),
        (&[&format!("u 注意： {unspaced}")], &[&format!("- user: 注意： {} …", first(97))]),
        (&[&format!("u .{unspaced}")], &[&format!("- user: .{} …", first(99))]),
        (&[&format!("u {address} fails")], &[&format!("- user: {} …", &address[..300])]),
        (&[&format!("u {half} {half} {half}")], &[&format!("- user: {half} {half} …")]),
        // A model's decision is quoted, however late it comes; a user is quoted from the beginning.
        (
            &[&format!("a {long}\nDecision: tabs.\nNext."), &format!("u {long}\nwe decided so")],
            &["- model: Decision: tabs. Next.", &format!("- user: {cut}")],
        ),
        // What clients add to the user's words is not the user's.
        (&["u <system-reminder>You must never.</system-reminder>", "u go"], &["- user: go"]),
        (&["u <user_query>go</user_query>"], &["- user: <user_query>go</user_query>"]),
        (&["r nothing was said"], &[]),
        (&["a  "], &[]),
    ] {
        let all: Vec<String> = all.iter().map(|&text| text.to_owned()).collect();
        assert_eq!(lines(&all), expected, "{all:?}");
    }
}

/// The newest plan of all, if it is among the dropped messages.
#[test]
fn a_note_repeats_the_last_plan() {
    let call = |tool: &str, input: &str| {
        format!(
            r#"{{"role":"assistant","content":[{{"type":"tool_use","id":"t","name":"{tool}","input":{input}}}]}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t","content":"ok"}}]}}"#
        )
    };
    let [older, newer] = ["one", "two"].map(|todo| format!(r#"{{"todos":["{todo}"]}}"#));
    let long = format!(r#"{{"plan":"{}"}}"#, "step ".repeat(2000));
    let said = r#"{"role":"assistant","content":"well"},{"role":"user","content":"go"}"#.to_owned();
    let all = usize::MAX;
    for (messages, most, room, expected) in [
        (
            vec![call("TodoWrite", &older), call("TodoWrite", &newer)],
            4,
            all,
            Some("; the last plan: {\"todos\":[\"two\"]}]"),
        ),
        (
            vec![call("update_plan", &newer), said.clone()],
            4,
            all,
            Some(
                "excerpts of what was said:\n- model: well\n- user: go\n- the last plan: {\"todos\":[\"two\"]}]",
            ),
        ),
        // A newer one stays.
        (vec![call("TodoWrite", &older), call("TodoWrite", &newer)], 2, all, None),
        (vec![call("TodoWrite", "{}")], 2, all, None),
        (vec![call("Bash", &older), said], 4, all, None),
        // A call that only reads the plan is ignored.
        (vec![call("TodoWrite", &newer), call("TodoRead", "{}")], 4, all, Some("[\"two\"]")),
        (vec![call("ExitPlanMode", &long)], 2, all, Some("step step")),
        (vec![call("ExitPlanMode", &long)], 2, 300, Some("step step")),
        (vec![call("ExitPlanMode", &long)], 2, 199, None),
    ] {
        let body = format!(r#"{{"messages":[{}]}}"#, messages.join(","));
        let conversation = protocol::named("anthropic").unwrap().index(&Bytes::from(body), &NoMemo).unwrap();
        let note = note(&conversation, &(0..most).collect::<Vec<_>>(), None, room);
        match expected {
            Some(expected) => {
                assert!(note.contains(expected) && note.len() < 400 + room.min(3_100), "{note}");
            }
            None => assert!(!note.contains("plan"), "{note}"),
        }
    }
}

/// However much is said, what is binding is there, in order, and neither demands nor decisions take all of the room.
#[test]
fn a_note_keeps_demands_and_decisions_in_order() {
    let filler = "and so on ".repeat(20);
    let chat = |at| format!("a step {at} {filler}");
    let often = |what: &str| (0..60).map(|at| format!("{what} {at} {filler}")).collect::<Vec<_>>();
    let said = |parts: &[&[String]]| parts.concat();
    let (one_demand, one_decision) =
        (["u You must keep the API.".to_owned()], ["a I decided on SQLite.".to_owned()]);
    let (chatter, users) = ((0..60).map(chat).collect::<Vec<_>>(), often("u fine, go on,"));
    let (demands, decisions) = (often("u never touch file"), often("a decided on option"));
    for (name, all) in [
        ("chatter", said(&[&one_demand, &one_decision, &chatter])),
        ("users", said(&[&one_decision, &one_demand, &users, &chatter])),
        ("demands", said(&[&one_decision, &demands])),
        ("decisions", said(&[&one_demand, &decisions])),
        ("both", said(&[&demands, &chatter, &decisions])),
    ] {
        let lines = lines(&all);
        let count = |word: &str| lines.iter().filter(|line| line.contains(word)).count();
        let (of_users, of_models) = (count("must") + count("never"), count("decided"));
        assert!(of_users > 0, "{name}: {lines:#?}");
        assert!(of_models > 0, "{name}: {lines:#?}");
        let places: Vec<usize> = lines
            .iter()
            .map(|line| {
                let (_, text) = line.split_once(": ").unwrap();
                all.iter().position(|said| said[2..].starts_with(text.trim_end_matches(" …"))).unwrap()
            })
            .collect();
        assert!(places.is_sorted(), "{name}: {lines:#?}");
        let bytes: usize = lines.iter().map(String::len).sum();
        assert!((3_000..=4_096).contains(&bytes), "{name}: {bytes}");
    }
    // A longer past has more room.
    let results: Vec<String> = (0..40).map(|at| format!("r {at} {}", filler.repeat(40))).collect();
    let bytes: usize = lines(&said(&[&chatter, &results, &users])).iter().map(String::len).sum();
    assert!((6_000..=16_384).contains(&bytes), "{bytes}");
}
