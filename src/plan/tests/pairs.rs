//! Calls and their results, and reasoning and what it led to.

use proptest::prelude::*;

use super::*;

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

/// A result without its call answers a call that the provider keeps; a call without its result waits for it.
#[test]
fn unpaired_calls_and_results_are_not_dropped() {
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

/// A call may be there without being understood: named, or in an older form. A call far before the insertion does not
/// prevent it.
#[test]
fn insertions_must_not_separate_a_result_from_a_referenced_call() {
    let named = r#"{"input":[{"role":"user","content":"goal"},{"role":"assistant","content":"well"},
        {"role":"user","content":"go"},{"type":"item_reference","id":"fc_1"},
        {"type":"function_call_output","call_id":"a","output":"one"}]}"#;
    for (before, expected) in [(1, Ok(())), (2, Ok(())), (3, Ok(())), (4, Err(Refusal::Pairing)), (5, Ok(()))]
    {
        refusals("openai-responses", named, &[(&[insert(before, Role::User, "x")], expected)]);
    }
    // A message that the same plan drops separates nothing.
    let kept = r#"{"previous_response_id":"r","input":[{"role":"user","content":"goal"},
        {"role":"assistant","content":"well"},{"role":"user","content":"go"},
        {"type":"function_call_output","call_id":"a","output":"one"},{"role":"user","content":"on"}]}"#;
    let (gone, said) = (drop(1, 2), insert(1, Role::User, "x"));
    refusals("openai-responses", kept, &[(&[gone, said], Err(Refusal::Pairing))]);
}

/// A server that counts its calls anew in every turn must not have one turn's result taken for another's.
#[test]
fn ids_reused_in_later_turns_are_paired_within_their_turn() {
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
fn ids_reused_before_an_answer_are_paired_one_to_one() {
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
fn reasoning_is_dropped_only_with_its_call_or_answer() {
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

/// Where no answer followed it, it goes alone, and does not become another answer's.
#[test]
fn reasoning_without_an_answer_may_be_dropped_alone() {
    refusals(
        "openai-responses",
        r#"{"input":[{"role":"user","content":"a"},{"type":"reasoning","id":"r","summary":[]},{"role":"user","content":"b"},{"role":"assistant","content":"c"},{"role":"user","content":"d"}]}"#,
        &[(&[drop(1, 2)], Ok(())), (&[drop(1, 4)], Ok(())), (&[drop(2, 3)], Err(Refusal::Pairing))],
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
    fn accepted_drops_leave_no_unpaired_call(
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
            let after = protocol::apply_verified(protocol, &conversation, &plan, &NoMemo).unwrap();
            prop_assert_eq!(protocol.valid(&after), Ok(()), "{:?}", plan);
        }
    }
}
