//! Conversations and histories that the provider keeps.

use super::*;

/// Requests of a conversation that the provider keeps are of one thread, whoever else has one of that name.
#[test]
fn a_kept_conversation_is_one() {
    let desk = Desk::new();
    let within = |kept: &str, text: &str| {
        let body = format!(r#"{{"conversation":{kept},"input":[{{"role":"user","content":"{text}"}}]}}"#);
        let protocol = protocol::named("openai-responses").unwrap();
        protocol.index(&Bytes::from(body), &NoMemo).unwrap()
    };
    let me = Caller::default();
    let first = desk.send(&me, &within(r#""conv_1""#, "a"), &[]);
    assert_eq!(first.relation, Relation::New);
    for (caller, kept, text, expected) in [
        (&me, r#""conv_1""#, "b", true),
        (&me, r#"{"id":"conv_1"}"#, "c", true),
        (&me, r#""conv_1""#, "d", true),
        (&me, r#""conv_2""#, "e", false),
        (&session("other"), r#""conv_1""#, "f", false),
        // What has no name is nobody's.
        (&me, "7", "g", false),
        (&me, "7", "h", false),
    ] {
        let place = desk.send(caller, &within(kept, text), &[]);
        assert_eq!(place.relation == Relation::Continue, expected, "{kept} {text}");
        assert_eq!(place.thread.conversation == first.thread.conversation, expected, "{kept} {text}");
    }
}

/// A history that the provider keeps is not in the body: the name of what is continued stands for it.
#[test]
fn a_kept_history_goes_on_in_its_thread() {
    let desk = Desk::new();
    let continuing = |answer: &str, text: &str| {
        let body = format!(
            r#"{{"previous_response_id":"{answer}","input":[{{"type":"function_call_output","call_id":"c","output":"{text}"}}]}}"#
        );
        let protocol = protocol::named("openai-responses").unwrap();
        protocol.index(&Bytes::from(body), &NoMemo).unwrap()
    };
    let me = Caller::default();
    let first = desk.send(&me, &talk("u"), &[]);
    desk.lineage.answered(&first, "resp_1");
    let second = desk.send(&me, &continuing("resp_1", "x"), &[]);
    assert_eq!((second.relation, &second.thread.id), (Relation::Continue, &first.thread.id));
    desk.lineage.answered(&second, "resp_2");
    // The same words behind another answer are another history.
    let third = desk.send(&me, &continuing("resp_2", "x"), &[]);
    assert_eq!((third.relation, third.sent, &third.thread.id), (Relation::Continue, 0, &first.thread.id));
    let again = desk.place(&me, &continuing("resp_2", "x"));
    assert_eq!((again.relation, again.sent), (Relation::Retry, 1));
    for (caller, answer) in [(&me, "resp_9"), (&session("other"), "resp_2")] {
        let place = desk.place(caller, &continuing(answer, "y"));
        assert_eq!(place.relation, Relation::New);
        assert_ne!(place.thread.id, first.thread.id);
    }
}
