//! Many threads that begin with the same messages.

use super::*;

/// How many there are besides the first: more than are considered.
const MANY: usize = 100;
/// The most threads of which one is chosen.
const CONSIDERED: usize = 64;

/// What becomes of a request.
#[derive(Debug, PartialEq, Eq)]
enum Goes {
    /// It goes on with the first thread.
    On,
    /// It makes the first thread's request again.
    Again,
    /// It branches from the first thread.
    OffFirst,
    /// It branches from the newest thread.
    OffNewest,
}

/// One thread of a session sends a prefix and has decided about a result in it; many others send it too, followed by
/// more words. The decision applies to all, and a request of the session continues its own thread.
#[test]
fn a_request_continues_its_own_thread_among_many_with_its_prefix() {
    const SHOT: &str = "u:shot c1 r1:long";
    let (me, you, nobody) = (session("me"), session("you"), Caller::default());
    for (case, first, others, caller, request, expected) in [
        ("a history of its own", " a u:mine", " a u:N", &me, " a u:mine a u", (Goes::On, 5)),
        (
            "a history of its own, elsewhere",
            " a u:mine",
            " a u:N",
            &you,
            " a u:mine a u",
            (Goes::OffFirst, 5),
        ),
        ("where it ended", "", " a u:N", &me, " a u:more", (Goes::On, 3)),
        ("where it ended, again", "", " a u:N", &me, "", (Goes::Again, 3)),
        ("where it went on from", " a u:mine", " a u:N", &me, " a u:other", (Goes::OffFirst, 3)),
        ("where it went on from, elsewhere", " a u:mine", " a u:N", &you, " a u:other", (Goes::OffNewest, 3)),
        ("where it went on from, nobody", " a u:mine", " a u:N", &nobody, " a u:other", (Goes::OffNewest, 3)),
        ("the words of all", "", "", &me, " a u:more", (Goes::On, 3)),
        ("the words of all, again", "", "", &me, "", (Goes::Again, 3)),
        ("the words of all, elsewhere", "", "", &you, " a u:more", (Goes::OffNewest, 3)),
    ] {
        let first_desk = Desk::new();
        // All ids have the same length, so that they sort in the order in which they are made.
        first_desk.ids.set(100);
        let say = |more: &str| talk(&format!("{SHOT}{more}"));
        let body = say(first);
        let mine = first_desk.send(&me, &body, &[decided(&body, 2, "cut")]).thread.id;
        let mut newest = String::new();
        for n in 0..MANY {
            let body = say(&others.replace('N', &n.to_string()));
            let place = first_desk.send(&session(&n.to_string()), &body, &[]);
            assert_eq!(
                (texts(&place), place.relation),
                (vec!["2:cut".to_owned()], Relation::Fork),
                "{case}: {n}"
            );
            newest = place.thread.id;
        }
        for desk in [&first_desk, &first_desk.restarted()] {
            let place = desk.place(caller, &say(request));
            let goes = match place.relation {
                Relation::Continue if place.thread.id == mine => Goes::On,
                Relation::Retry if place.thread.id == mine => Goes::Again,
                Relation::Fork if place.thread.parent.as_ref() == Some(&mine) => Goes::OffFirst,
                Relation::Fork if place.thread.parent.as_ref() == Some(&newest) => Goes::OffNewest,
                other => panic!("{case}: {other:?} of {:?}", place.thread),
            };
            assert_eq!((goes, place.sent), expected, "{case}");
            assert_eq!(texts(&place), ["2:cut"], "{case}");
            let (_, considered) = desk.lineage.longest_sent(&place.chains, caller, 0).unwrap().unwrap();
            assert!(considered.len() <= CONSIDERED, "{case}: {}", considered.len());
        }
    }
}

/// Threads of one session that share a prefix each continue separately, even at the same time.
#[test]
fn parallel_threads_with_a_shared_prefix_continue_separately() {
    let desk = Desk::new();
    let say = |n: usize, more: &str| talk(&format!("u:shot c1 r1 a u:{n}{more}"));
    for caller in [session("s"), Caller::default()] {
        let sent: Vec<Place> = (0..MANY).map(|n| desk.send(&caller, &say(n, ""), &[])).collect();
        for (n, before) in sent.iter().enumerate() {
            for desk in [&desk, &desk.restarted()] {
                let place = desk.place(&caller, &say(n, " a u:more"));
                let thread = (&place.thread.id, &place.thread.conversation);
                let expected = (&before.thread.id, &before.thread.conversation);
                assert_eq!((thread, place.relation, place.sent), (expected, Relation::Continue, 5), "{n}");
            }
        }
    }
}
