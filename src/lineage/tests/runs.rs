//! One conversation and the next that begins with the same words.

use super::*;

const MINUTE_MS: i64 = 60_000;
const NIGHT_MS: i64 = 24 * 60 * MINUTE_MS;

/// Sends a request, and gives its place.
fn send(desk: &Desk, caller: &Caller, now_ms: i64, request: &str) -> Place {
    let request = talk(request);
    let id = || {
        desk.ids.set(desk.ids.get() + 1);
        format!("thread-{}", desk.ids.get())
    };
    let place = desk.lineage.place(&request, (desk.root, desk.root), caller, &id, now_ms).unwrap();
    desk.commit(desk.lineage.batch(&place, &place.applied, 0, now_ms));
    desk.lineage.sent(&request, &place, Arc::clone(&place.applied), None, now_ms);
    place
}

/// A job that runs every night with the same words is a new conversation each time; a retry is not.
#[test]
fn an_anonymous_rerun_after_an_hour_is_a_new_conversation() {
    let (nobody, somebody) = (Caller::default(), session("s"));
    for (caller, before, minutes, request, is_new) in [
        (&nobody, &["u:goal"][..], 59, "u:goal", false),
        (&nobody, &["u:goal"], 60, "u:goal", true),
        (&nobody, &["u:goal", "u:goal c1 r1 a"], 59, "u:goal", false),
        (&nobody, &["u:goal", "u:goal c1 r1 a"], 60, "u:goal", true),
        (&nobody, &["s:10h u:goal u:now", "s:10h u:goal u:now c1 r1"], 90, "s:11h u:goal u:now", true),
        // Something other than the beginning.
        (&nobody, &["u:goal c1 r1"], 90, "u:goal c1 r1", false),
        (&nobody, &["u:goal c1 r1"], 90, "u:goal c1 r1 a u", false),
        (&nobody, &["u:goal c1 r1"], 90, "u:goal c2 r2", false),
        // The client names the conversation.
        (&somebody, &["u:goal", "u:goal c1 r1 a"], 90, "u:goal", false),
    ] {
        for restarts in [false, true] {
            let mut desk = Desk::new();
            let first = before.iter().map(|request| send(&desk, caller, 0, request)).next_back().unwrap();
            if restarts {
                desk = desk.restarted();
            }
            let place = send(&desk, caller, minutes * MINUTE_MS, request);
            let case = format!("{request} {minutes} minutes after {before:?}, restarted: {restarts}");
            assert_eq!(place.thread.conversation != first.thread.conversation, is_new, "{case}");
            if is_new {
                assert_eq!(place.thread.conversation, place.thread.id, "{case}");
                assert_eq!(place.thread.parent, Some(first.thread.id), "{case}");
            }
        }
    }
}

/// Each night's run stays one conversation to its end, despite retries in between.
#[test]
fn each_run_stays_one_conversation_despite_retries() {
    let (desk, nobody) = (Desk::new(), Caller::default());
    let mut conversations = Vec::new();
    for night in 0..3 {
        let at = |minutes: i64| night * NIGHT_MS + minutes * MINUTE_MS;
        let goes_on = format!("u:goal c{night} r{night}");
        let run =
            [(0, "u:goal"), (1, "u:goal"), (2, &*goes_on), (50, &*goes_on), (120, &format!("{goes_on} a u"))];
        let run =
            run.map(|(minutes, request)| send(&desk, &nobody, at(minutes), request).thread.conversation);
        assert!(run.iter().all(|conversation| *conversation == run[0]), "{night}: {run:?}");
        conversations.push(run[0].clone());
    }
    conversations.dedup();
    assert_eq!(conversations.len(), 3);
}

/// Decisions about a run's first words apply to the next run: the bytes are the same.
#[test]
fn decisions_on_first_messages_apply_to_the_next_run() {
    let (desk, nobody) = (Desk::new(), Caller::default());
    let first = talk("r1:report");
    let place = desk.send(&nobody, &first, &[decided(&first, 0, "cut")]);
    let next = send(&desk, &nobody, NIGHT_MS, "r1:report");
    assert_eq!(texts(&next), ["0:cut"]);
    assert_ne!(next.thread.conversation, place.thread.conversation);
}

/// An edit refused in one run says nothing about the next; it applies to everything that continues that run.
#[test]
fn a_new_run_is_not_set_aside_for_a_refusal_of_the_former() {
    for (first, minutes, request, expected) in [
        ("u:goal", 60, "u:goal", false),
        ("u:goal c1 r1", 60, "u:goal", false),
        ("u:goal", 59, "u:goal", true),
        ("u:goal c1 r1", 60, "u:goal c1 r1", true),
        ("u:goal c1 r1", 60, "u:goal c1 r1 a u", true),
        ("u:goal c1 r1", 60, "u:goal c2 r2", true),
    ] {
        for restarts in [false, true] {
            let (mut desk, nobody) = (Desk::new(), Caller::default());
            send(&desk, &nobody, 0, "u:goal");
            let place = send(&desk, &nobody, 0, first);
            assert!(desk.lineage.set_aside(&place, 0));
            desk.commit(Batch::default());
            if restarts {
                desk = desk.restarted();
            }
            let place = send(&desk, &nobody, minutes * MINUTE_MS, request);
            let case = format!("{request} {minutes} minutes after {first}, restarted: {restarts}");
            assert_eq!(place.thread.observe, expected, "{case}");
            let next = send(&desk, &nobody, minutes * MINUTE_MS + 1, &format!("{request} c9 r9"));
            assert_eq!(next.thread.observe, expected, "what goes on from {case}");
        }
    }
}

/// Decisions about first words apply to the next run even if an edit of the first run was refused, whether the gateway
/// remembers that or reads it.
#[test]
fn decisions_on_first_messages_apply_to_the_next_run_after_a_refusal() {
    for restarts in [false, true] {
        let (mut desk, nobody) = (Desk::new(), Caller::default());
        let first = talk("r1:report");
        let place = desk.send(&nobody, &first, &[decided(&first, 0, "cut")]);
        assert!(desk.lineage.set_aside(&place, 0));
        desk.commit(Batch::default());
        if restarts {
            desk = desk.restarted();
        }
        assert_eq!(texts(&send(&desk, &nobody, NIGHT_MS, "r1:report")), ["0:cut"], "restarted: {restarts}");
    }
}

/// What is not remembered of a thread is assumed: a client that asks for a summary may do so after a restart.
#[test]
fn threads_are_remembered_by_whether_they_had_tools() {
    let desk = Desk::new();
    let asked = |desk: &Desk, short: &str, has_tools: bool| {
        let caller = session(short.split(' ').next().unwrap());
        let place = desk.send(&caller, &talk(short), &[]);
        let had_tools = desk.lineage.had_tools(&place);
        desk.lineage.note_tools(&place, has_tools);
        had_tools
    };
    for (short, has_tools, expected) in [
        ("u:without", false, false),
        ("u:without a u", false, false),
        ("u:with", true, false),
        ("u:with a u", false, true),
        ("u:with a u a u", true, true),
        ("u:with a u:branch", false, true),
        ("u:later", false, false),
        ("u:later a u", true, false),
        ("u:later a u a u", false, true),
    ] {
        assert_eq!(asked(&desk, short, has_tools), expected, "{short}");
    }
    let desk = desk.restarted();
    for (short, expected) in [("u:without a u a u", true), ("u:with a u a u a u", true), ("u:new", false)] {
        assert_eq!(asked(&desk, short, false), expected, "{short}");
    }
}
