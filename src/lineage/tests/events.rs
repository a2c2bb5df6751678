//! Where an event holds that has decided about old parts anew, and where what was decided before does.

use super::*;

/// A client that goes back to a point before an event is sent what was sent there before the event.
#[test]
fn a_rewind_before_an_event_gets_the_decisions_sent_then() {
    let desk = Desk::new();
    desk.send(&session("s"), &talk("u"), &[]);
    let step = talk("u c1 r1:long");
    desk.send(&session("s"), &step, &[decided(&step, 2, "first")]);
    desk.send(&session("s"), &talk("u c1 r1:long c2 r2"), &[]);
    let event = talk("u c1 r1:long c2 r2 a u:more");
    let place = desk.place(&session("s"), &event);
    let again: Arc<[Applied]> = vec![decided(&event, 2, "event")].into();
    desk.commit(desk.lineage.batch(&place, &again, 1, 9));
    desk.lineage.sent(&event, &place, again, None, 9);
    for desk in [&desk, &desk.restarted()] {
        for (request, expected) in [
            ("u c1 r1:long c2 r2 a u:more a u", "2:event"),
            ("u c1 r1:long c2 r2 a u:more", "2:event"),
            ("u c1 r1:long c2 r2 a u:less", "2:first"),
            ("u c1 r1:long c2 r2", "2:first"),
            ("u c1 r1:long u:stop", "2:first"),
            ("u c1 r1:long", "2:first"),
        ] {
            assert_eq!(texts(&desk.place(&session("s"), &talk(request))), [expected], "{request}");
        }
        assert!(texts(&desk.place(&session("s"), &talk("u c1 r1:other"))).is_empty());
    }
}

/// Clients add words at the end of a request and leave them out of the next: it is still one thread, and its event
/// applies.
#[test]
fn an_event_applies_though_its_last_words_are_left_out() {
    for (earlier, event, next, relation) in [
        (
            "u c1 r1:long",
            "u c1 r1:long c2 r2 u:state2",
            "u c1 r1:long c2 r2 c3 r3 u:state3",
            Relation::Continue,
        ),
        (
            "u c1 r1:long",
            "u c1 r1:long c2 r2 u:a u:b",
            "u c1 r1:long c2 r2 c3 r3 u:c u:d",
            Relation::Continue,
        ),
        // The provider has refused all of it.
        (
            "u c1 r1:long c2 r2 u:state",
            "u c1 r1:long c2 r2 u:state",
            "u c1 r1:long c2 r2 c3 r3",
            Relation::Continue,
        ),
        // The last words are the model's.
        ("u c1 r1:long", "u c1 r1:long a", "u c1 r1:long a c2 r2", Relation::Continue),
        (
            "u c1 r1:long c2 r2",
            "u c1 r1:long c2 r2 a u:more",
            "u c1 r1:long c2 r2 a b u:else",
            Relation::Fork,
        ),
    ] {
        let desk = Desk::new();
        desk.send(&session("s"), &talk(earlier), &[]);
        let request = talk(event);
        desk.send(&session("s"), &request, &[decided(&request, 2, "event")]);
        let place = desk.place(&session("s"), &talk(next));
        let expected = if relation == Relation::Fork { vec![] } else { vec!["2:event".to_owned()] };
        assert_eq!((place.relation, texts(&place)), (relation, expected.clone()), "{event} {next}");
        assert_eq!(texts(&desk.restarted().place(&session("s"), &talk(next))), expected, "{event} {next}");
    }
}

/// A client that takes back the last words that an event was sent with, and replies to the model's answer in another
/// way, is sent what was sent before the event. What is decided then is kept next to what the event has decided.
#[test]
fn a_rewind_before_an_event_is_decided_independently() {
    let (earlier, event, other) =
        ("u c1 r1:long c2 r2", "u c1 r1:long c2 r2 a u:more", "u c1 r1:long c2 r2 a u:less");
    for restarts in [false, true] {
        let first = Desk::new();
        first.send(&session("s"), &talk(earlier), &[]);
        first.send(&session("s"), &talk(event), &[decided(&talk(event), 2, "event")]);
        let anew = first.restarted();
        let desk = if restarts { &anew } else { &first };
        let request = talk(other);
        assert!(texts(&desk.place(&session("s"), &request)).is_empty());
        desk.send(&session("s"), &request, &[decided(&request, 2, "other")]);
        for desk in [desk, &desk.restarted()] {
            for (request, expected) in [(event, "2:event"), (other, "2:other")] {
                let next = format!("{request} a u:on");
                assert_eq!(texts(&desk.place(&session("s"), &talk(&next))), [expected], "{request}");
            }
        }
    }
}

/// New decisions about a request that the provider has refused replace the first ones.
#[test]
fn new_decisions_for_a_refused_request_replace_the_first() {
    for (earlier, request) in [
        ("u", "u c1 r1:long"),
        ("u c1 r1:long", "u c1 r1:long u:hurry"),
        ("u c1 r1:long", "u c1 r1:long c2 r2"),
        ("u c1 r1:long", "u c1 r1:long c2 r2 c3 r3 u:state"),
    ] {
        for restarts in [false, true] {
            let first = Desk::new();
            first.send(&session("s"), &talk(earlier), &[]);
            let body = talk(request);
            first.send(&session("s"), &body, &[decided(&body, 2, "first")]);
            let anew = first.restarted();
            let desk = if restarts { &anew } else { &first };
            let place = desk.place(&session("s"), &body);
            let again: Arc<[Applied]> = vec![decided(&body, 2, "again")].into();
            let batch = desk.lineage.batch(&place, &again, 1, 9);
            desk.commit(Batch { overrule: true, ..batch });
            desk.lineage.sent(&body, &place, again, None, 9);
            for desk in [desk, &desk.restarted()] {
                let next = format!("{request} a u:more");
                for request in [request, &next] {
                    let place = desk.place(&session("s"), &talk(request));
                    assert_eq!(texts(&place), ["2:again"], "{earlier} {request} {restarts}");
                }
            }
        }
    }
}

/// Of simultaneous requests of one history, the one that decides more is stored, and so remembered.
#[test]
fn of_parallel_requests_the_one_with_more_decisions_is_remembered() {
    let desk = Desk::new();
    let request = talk("u c1 r1:long a u:more");
    let places = [desk.place(&session("s"), &request), desk.place(&session("s"), &request)];
    let event: Arc<[Applied]> = vec![decided(&request, 2, "event")].into();
    desk.commit(desk.lineage.batch(&places[0], &event, 1, 1));
    desk.lineage.sent(&request, &places[0], event, None, 1);
    desk.lineage.sent(&request, &places[1], Arc::default(), None, 2);
    for desk in [&desk, &desk.restarted()] {
        let place = desk.place(&session("s"), &talk("u c1 r1:long a u:more a u"));
        assert_eq!(texts(&place), ["2:event"]);
    }
}
