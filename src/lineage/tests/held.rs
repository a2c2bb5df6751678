//! Conversations and histories that the provider keeps.

use super::*;
use crate::lineage::{Boundary, held_key};

/// A request that goes on from an answer, or within a conversation of the provider's.
fn continuing(from: &str, text: &str) -> Conversation {
    let body =
        format!(r#"{{{from},"input":[{{"type":"function_call_output","call_id":"c","output":"{text}"}}]}}"#);
    protocol::named("openai-responses").unwrap().index(&Bytes::from(body), &NoMemo).unwrap()
}

/// The provider gives an answer in a thread, and keeps it.
fn answered(desk: &Desk, place: &Place, answer: &str) {
    let boundary = desk.lineage.answered(place.root, &place.thread.id, answer);
    desk.commit(Batch { boundaries: vec![boundary], ..Batch::default() });
}

/// Requests of a conversation that the provider keeps belong to one thread, whoever else has a conversation of that
/// name.
#[test]
fn requests_of_a_provider_held_conversation_are_one_thread() {
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
        // A history without a name belongs to nobody.
        (&me, "7", "g", false),
        (&me, "7", "h", false),
    ] {
        let place = desk.send(caller, &within(kept, text), &[]);
        assert_eq!(place.relation == Relation::Continue, expected, "{kept} {text}");
        assert_eq!(place.thread.conversation == first.thread.conversation, expected, "{kept} {text}");
    }
}

/// A history that the provider keeps is not in the body: the id of the answer that is continued represents it.
#[test]
fn a_provider_held_history_continues_its_thread() {
    let desk = Desk::new();
    let continuing =
        |answer: &str, text: &str| continuing(&format!(r#""previous_response_id":"{answer}""#), text);
    let me = Caller::default();
    let first = desk.send(&me, &talk("u"), &[]);
    answered(&desk, &first, "resp_1");
    let second = desk.send(&me, &continuing("resp_1", "x"), &[]);
    assert_eq!((second.relation, &second.thread.id), (Relation::Continue, &first.thread.id));
    answered(&desk, &second, "resp_2");
    // The same words after another answer are another history.
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

/// This holds for any gateway on the store, and after any number of restarts.
#[test]
fn a_provider_held_history_is_known_to_all_gateways() {
    let answer = r#""previous_response_id":"resp_1""#;
    let (me, one) = (Caller::default(), Desk::new());
    let first = one.send(&me, &talk("u"), &[]);
    answered(&one, &first, "resp_1");
    let stranger = Desk { root: Chain::root("x", b"other"), ..one.restarted() };
    let cases = [
        (one.restarted(), &me, answer, true),
        // Two that continue from the same answer.
        (one.restarted(), &me, answer, true),
        (one.restarted(), &session("s"), answer, false),
        (one.restarted(), &me, r#""previous_response_id":"resp_9""#, false),
        (stranger, &me, answer, false),
    ];
    for (at, (desk, caller, from, expected)) in cases.iter().enumerate() {
        desk.ids.set(10 * (at as u32 + 1));
        let place = desk.send(caller, &continuing(from, &at.to_string()), &[]);
        let expected = if *expected { (Relation::Continue, true) } else { (Relation::New, false) };
        let is_same = place.thread.conversation == first.thread.conversation;
        assert_eq!((place.relation, is_same), expected, "{at}");
    }
}

/// A conversation with a name is found by it, answered or not; one without a name is not found.
#[test]
fn a_provider_held_conversation_is_known_to_all_gateways() {
    for (from, expected) in [
        (r#""conversation":"conv_1""#, true),
        (r#""conversation":{"id":"conv_1"}"#, true),
        (r#""previous_response_id":"resp_seen_by_none""#, true),
        (r#""conversation":7"#, false),
    ] {
        let (me, one) = (Caller::default(), Desk::new());
        let first = one.send(&me, &continuing(from, "a"), &[]);
        for text in ["b", "c"] {
            let place = one.restarted().send(&me, &continuing(from, text), &[]);
            assert_eq!(place.thread.id == first.thread.id, expected, "{from} {text}");
        }
    }
}

/// Of several threads under one name, the newest is continued. A forgotten thread does not count.
#[test]
fn the_newest_existing_thread_of_a_held_conversation_continues() {
    let (me, desk) = (Caller::default(), Desk::new());
    let threads = ["u:a", "u:b"].map(|said| desk.send(&me, &talk(said), &[]).thread);
    let chain = held_key(desk.root, "conv_1");
    let named = |thread: &str| Boundary { chain, thread: thread.to_owned() };
    let boundaries = vec![named("gone"), named(&threads[1].id), named(&threads[0].id)];
    desk.commit(Batch { boundaries, ..Batch::default() });
    let place = desk.restarted().place(&me, &continuing(r#""conversation":"conv_1""#, "x"));
    assert_eq!((place.relation, &place.thread.id), (Relation::Continue, &threads[1].id));
    let other = Desk::new();
    other.commit(Batch { boundaries: vec![named("gone")], ..Batch::default() });
    let place = other.place(&me, &continuing(r#""conversation":"conv_1""#, "x"));
    assert_eq!(place.relation, Relation::New);
}
