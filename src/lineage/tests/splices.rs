//! Where a splice holds.

use super::*;
use crate::planner::{Layout, Splice};

/// A splice that takes the messages from 1 to `end`.
pub(super) fn splice(end: u32, text: &str) -> Arc<Splice> {
    Arc::new(Splice {
        rule: "note".into(),
        drops: [(1, end)].into(),
        layout: Layout::Answer,
        at: PartId { message: end, part: 0 },
        leaf: 0,
        text: text.into(),
        bytes_before: 100,
        output: None,
    })
}

/// A splice does not apply where a message that it replaces is in the step in progress, or is the user's last.
#[test]
fn splices_do_not_apply_to_a_rewind_into_what_they_replace() {
    for (request, back, end) in [
        ("u c1 r1 a u:more", "u c1 r1 u:other", 3),
        ("u a u:b c1 r1 u:state", "u a u:b c1 r1 c2 r2", 3),
        ("u a u:b c1 r1 u:state", "u a u:b c1 r1", 3),
    ] {
        let desk = Desk::new();
        let body = talk(request);
        let place = desk.place(&session("s"), &body);
        let splice = splice(end, "note");
        let mut batch = desk.lineage.batch(&place, &[], 0, 9);
        desk.lineage.event_in(&mut batch, &body, &place, &[], Some(&splice));
        desk.commit(batch);
        desk.lineage.sent(&body, &place, Arc::default(), Some(splice), 9);
        // The same request once more changes nothing.
        desk.send(&session("s"), &body, &[]);
        for desk in [&desk, &desk.restarted()] {
            let next = format!("{request} a u:on");
            let held =
                [request, &next, back].map(|body| desk.place(&session("s"), &talk(body)).splice.is_some());
            assert_eq!(held, [true, true, false], "{request}");
        }
    }
}

/// A splice applies where exactly the messages that it replaces are, in histories that continue its request; the one
/// that replaces most counts.
#[test]
fn splices_apply_only_from_their_request_on() {
    let desk = Desk::new();
    let send = |request: &str, splice: Option<Arc<Splice>>| {
        let request = talk(request);
        let place = desk.place(&session("s"), &request);
        let mut batch = desk.lineage.batch(&place, &[], 0, 9);
        if let Some(splice) = &splice {
            desk.lineage.event_in(&mut batch, &request, &place, &[], Some(splice));
        }
        desk.commit(batch);
        desk.lineage.sent(&request, &place, Arc::default(), splice.or_else(|| place.splice.clone()), 9);
    };
    send("u a u:b", None);
    send("u a u:b a u:c", Some(splice(2, "first")));
    send("u a u:b a u:c a u:d", None);
    send("u a u:b a u:c a u:d a u:e", Some(splice(4, "second")));
    for desk in [&desk, &desk.restarted()] {
        for (request, expected) in [
            ("u a u:b a u:c a u:d a u:e a u:f", Some("second")),
            ("u a u:b a u:c a u:d a u:e", Some("second")),
            ("u a u:b a u:c a u:d a u:other", Some("first")),
            ("u a u:b a u:c a u:d", Some("first")),
            ("u a u:b a u:c", Some("first")),
            ("u a u:b a u:other", None),
            ("u a u:b", None),
            ("u a u:x a u:c a u:d a u:e a u:f", None),
            ("u:goal a u:b a u:c a u:d a u:e a u:f", None),
            ("u:summary u:e a u:f", None),
        ] {
            let place = desk.place(&session("s"), &talk(request));
            assert_eq!(place.splice.as_ref().map(|splice| &*splice.text), expected, "{request}");
        }
        let stranger = Desk { root: Chain::root("x", b"you"), ..Desk::on(Arc::clone(&desk.store), 100) };
        let place = stranger.place(&session("s"), &talk("u a u:b a u:c a u:d a u:e a u:f"));
        assert!(place.splice.is_none());
    }
}

/// All changes that an event makes to what was sent before apply where its splice does, and where the turns are over
/// whose reasoning it leaves out, if it leaves out none of the turn in progress. Decisions about new results apply
/// wherever these are sent.
#[test]
fn all_changes_of_an_event_apply_together() {
    let (whole, before) = (&["2:event", "3:gone", "6:new"][..], &["2:first", "6:new"][..]);
    let (thinned, kept) = (&["1:gone", "2:event", "4:new"][..], &["2:first", "4:new"][..]);
    for (event, [thought, new], drops, requests) in [
        (
            "u c1 r1:long t u:b c2 r2:new a u:c c3 r3",
            [3, 6],
            &[(4, 5), (7, 8)][..],
            &[
                ("u c1 r1:long t u:b c2 r2:new a u:c c3 r3 c4 r4", whole),
                ("u c1 r1:long t u:b c2 r2:new a u:c c3 r3", whole),
                ("u c1 r1:long t u:b c2 r2:new a u:c", whole),
                ("u c1 r1:long t u:b c2 r2:new a u:other", before),
                ("u c1 r1:long t u:b c2 r2:new", before),
                ("u c1 r1:long t u:b", &["2:first"]),
                ("u c1 r1:long", &["2:first"]),
            ][..],
        ),
        // It replaces the user's newest words, except for the last, which a client leaves out again.
        (
            "u c1 r1:long t u:b c2 r2:new u:state",
            [3, 6],
            &[(1, 2), (4, 5)],
            &[
                ("u c1 r1:long t u:b c2 r2:new u:state c3 r3", whole),
                ("u c1 r1:long t u:b c2 r2:new u:state", whole),
                ("u c1 r1:long t u:b c2 r2:new c3 r3", before),
                ("u c1 r1:long t u:b c2 r2:new", before),
            ],
        ),
        // It comes with a request whose beginning was sent without the gateway.
        (
            "u d1 r1:long c2 r2:new a u:b u:state",
            [1, 4],
            &[],
            &[
                ("u d1 r1:long c2 r2:new a u:b u:state c3 r3", thinned),
                ("u d1 r1:long c2 r2:new a u:b u:state", thinned),
                ("u d1 r1:long c2 r2:new a u:b c3 r3", thinned),
                ("u d1 r1:long c2 r2:new a u:b", thinned),
                ("u d1 r1:long c2 r2:new a u:other", kept),
                ("u d1 r1:long c2 r2:new c3 r3", kept),
                ("u d1 r1:long c2 r2:new", kept),
            ],
        ),
        (
            "u d1 r1:long c2 r2:new c3 r3",
            [1, 4],
            &[],
            &[
                ("u d1 r1:long c2 r2:new c3 r3 c4 r4", thinned),
                ("u d1 r1:long c2 r2:new", thinned),
                ("u d1 r1:long", &["2:first"]),
            ],
        ),
    ] {
        let desk = Desk::new();
        let step: Vec<&str> = event.split(' ').take(3).collect();
        let (step, event) = (talk(&step.join(" ")), talk(event));
        desk.send(&session("s"), &step, &[decided(&step, 2, "first")]);
        let place = desk.place(&session("s"), &event);
        let cleared = decided(&event, 2, "event");
        let gone = Decision { cause: Cause::Omitted, ..(*decided(&event, 2, "gone").decision).clone() };
        let gone = Applied { part: PartId { message: thought, part: 0 }, decision: gone.into() };
        let mut applied = vec![cleared, gone, decided(&event, new, "new")];
        applied.sort_by_key(|applied| applied.part);
        let applied: Arc<[Applied]> = applied.into();
        let splice = Arc::new(Splice { drops: drops.into(), ..(*splice(5, "note")).clone() });
        let splice = Some(splice).filter(|_| !drops.is_empty());
        let mut batch = desk.lineage.batch(&place, &applied, 3, 9);
        desk.lineage.event_in(&mut batch, &event, &place, &applied, splice.as_ref());
        desk.commit(batch);
        desk.lineage.sent(&event, &place, applied, splice.clone(), 9);
        for desk in [&desk, &desk.restarted()] {
            for (request, expected) in requests {
                let place = desk.place(&session("s"), &talk(request));
                assert_eq!(texts(&place), *expected, "{request}");
                assert_eq!(place.splice.is_some(), splice.is_some() && *expected == whole, "{request}");
            }
        }
    }
}

/// The messages of a splice that cannot be read any more are sent again. Decisions about the rest still apply.
#[test]
fn a_damaged_splice_is_ignored_without_losing_decisions() {
    let desk = Desk::new();
    let request = talk("u c1 r1 a u:b a u:c");
    let place = desk.place(&session("s"), &request);
    let applied: Arc<[Applied]> = vec![decided(&request, 2, "short")].into();
    let mut batch = desk.lineage.batch(&place, &applied, 1, 9);
    desk.lineage.event_in(&mut batch, &request, &place, &[], Some(&splice(4, "note")));
    desk.commit(batch);
    let next = || desk.restarted().place(&session("s"), &talk("u c1 r1 a u:b a u:c a u:d"));
    assert!(next().splice.is_some());
    let home = desk.home.as_ref().unwrap().path();
    let database = rusqlite::Connection::open(home.join("a.db")).unwrap();
    assert_eq!(database.execute("UPDATE splices SET splice = '{'", []).unwrap(), 1);
    assert!(next().splice.is_none());
    assert_eq!((texts(&next()), next().relation), (vec!["2:short".to_owned()], Relation::Continue));
}
