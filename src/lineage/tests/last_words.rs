//! Words at the end of a request's last message that the next one leaves out.

use bytes::Bytes;

use super::{Desk, session};
use crate::conversation::{Conversation, NoMemo, PartId};
use crate::lineage::Relation;
use crate::planner::Ending;
use crate::protocol;

/// Messages in short, the user's and the model's in turns: a letter for each text, `1` to `9` for a call of the model's
/// or the result of that call. `=` precedes a text that is not in a list.
fn talk(messages: &[&str]) -> Conversation {
    let part = |(role, letter): (&str, char)| match (role, letter.is_ascii_digit()) {
        ("user", true) => format!(r#"{{"type":"tool_result","tool_use_id":"t{letter}","content":"x"}}"#),
        (_, true) => format!(r#"{{"type":"tool_use","id":"t{letter}","name":"n","input":{{}}}}"#),
        (_, false) => format!(r#"{{"type":"text","text":"{letter}"}}"#),
    };
    let message = |(at, letters): (usize, &&str)| {
        let role = ["user", "assistant"][at % 2];
        if let Some(text) = letters.strip_prefix('=') {
            return format!(r#"{{"role":"{role}","content":"{text}"}}"#);
        }
        let parts: Vec<String> = letters.chars().map(|letter| part((role, letter))).collect();
        format!(r#"{{"role":"{role}","content":[{}]}}"#, parts.join(","))
    };
    let messages: Vec<String> = messages.iter().enumerate().map(message).collect();
    let body = Bytes::from(format!(r#"{{"messages":[{}]}}"#, messages.join(",")));
    protocol::named("anthropic").unwrap().index(&body, &NoMemo).unwrap()
}

/// How a request is classified, and from which part on it leaves out what the last one ended with.
#[test]
fn omitted_last_words_continue_a_thread_and_other_changes_fork() {
    const LAST: &[&str] = &["a", "1", "1s"];
    let left_out = |message, part| (Relation::Continue, Ending::LeftOut(PartId { message, part }));
    let (fork, goes_on) = ((Relation::Fork, Ending::Branches), (Relation::Continue, Ending::Stands));
    for (last, request, expected) in [
        (LAST, &["a", "1", "1", "2", "2s"][..], left_out(2, 1)),
        (LAST, &["a", "1", "1o", "2", "2s"], left_out(2, 1)),
        (LAST, &["a", "1", "1s", "2", "2s"], goes_on),
        (&["a", "1", "1rs"], &["a", "1", "1r", "2", "2s"], left_out(2, 2)),
        (&["a", "1", "1rs"], &["a", "1", "1", "2", "2s"], left_out(2, 1)),
        (&["a", "b", "cs"], &["a", "b", "c", "2", "2s"], left_out(2, 1)),
        (&["a", "b", "cs"], &["a", "b", "=c", "2", "2s"], left_out(2, 1)),
        // Another result, another answer, or other words of the user's: another branch.
        (LAST, &["a", "1", "2", "2", "2s"], fork),
        (LAST, &["a", "2", "1", "2", "2s"], fork),
        (&["a", "b", "cs"], &["a", "b", "ds", "2", "2s"], fork),
        // The model has not answered what precedes them.
        (LAST, &["a", "1", "1"], fork),
        (LAST, &["a", "1", "1o"], fork),
        (&["a", "1", "1"], &["a", "1", "2", "2", "2"], fork),
    ] {
        let desk = Desk::new();
        desk.send(&session("s"), &talk(&["a"]), &[]);
        let before = desk.send(&session("s"), &talk(last), &[]);
        let place = desk.place(&session("s"), &talk(request));
        assert_eq!((place.relation, place.ending()), expected, "{request:?} after {last:?}");
        let is_same = place.thread.id == before.thread.id;
        assert_eq!(is_same, expected != fork, "{request:?} after {last:?}");
        // Of two requests that continue from there, the first one continues the thread.
        if is_same {
            desk.send(&session("s"), &talk(request), &[]);
            let other = desk.place(&session("s"), &talk(&["a", "1", "1", "3", "3"]));
            assert_eq!(other.relation, Relation::Fork, "{request:?} after {last:?}");
        }
    }
}

/// A clock that was set back does not make the store's copy of a thread newer than what is remembered of it.
#[test]
fn omitted_last_words_are_recognised_after_the_clock_is_set_back() {
    let desk = Desk::new();
    desk.ids.set(1000);
    let first = desk.send(&session("s"), &talk(&["a"]), &[]);
    desk.send(&session("s"), &talk(&["a", "1", "1s"]), &[]);
    desk.ids.set(10);
    desk.send(&session("s"), &talk(&["a", "1", "1", "2", "2s"]), &[]);
    let place = desk.send(&session("s"), &talk(&["a", "1", "1", "2", "2", "3", "3s"]), &[]);
    let left_out = Ending::LeftOut(PartId { message: 4, part: 1 });
    assert_eq!((place.relation, place.ending()), (Relation::Continue, left_out));
    assert_eq!(place.thread.id, first.thread.id);
}
