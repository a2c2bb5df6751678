//! What is still sent in its edited form, and what is no longer edited, after the provider has refused an edit.

use super::*;
use crate::planner::Fate;

/// A fork that shares the refused edit is left alone, and so is a thread that was never edited. If an earlier edit was
/// accepted, a client that goes back to it continues in that form.
#[test]
fn a_rewind_before_a_refused_edit_keeps_accepted_edits() {
    let taken: &[&str] = &["2:first"];
    let refused: &[&str] = &["2:first", "4:second"];
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    for (request, is_aside, expected) in [
        ("u c1 r1:long c2 r2:long", true, refused),
        ("u c1 r1:long c2 r2:long c3 r3", true, refused),
        ("u c1 r1:long c2 r2:long a u:more", true, refused),
        ("u c1 r1:long", false, taken),
        ("u c1 r1:long c4 r4", false, taken),
        ("u c1 r1:long a u:more", false, taken),
        ("u c1 r1:long c2 r2:other", false, taken),
        ("u c5 r5", true, &[]),
        ("u", true, &[]),
    ] {
        for restarts in [false, true] {
            let mut desk = Desk::new();
            let session = session("s");
            let first = talk("u c1 r1:long");
            desk.send(&session, &first, &[decided(&first, 2, "first")]);
            let second = talk("u c1 r1:long c2 r2:long");
            let place = desk.send(&session, &second, &[decided(&second, 4, "second")]);
            assert!(desk.lineage.set_aside(&place, 7));
            desk.commit(Batch::default());
            let mut before = place.thread.id;
            // What continues from there, or from a branch, is treated like it.
            let next = format!("{request} c8 r8");
            let further = format!("{next} a u:end");
            for (request, relation) in [
                (request, None),
                (request, Some(Relation::Retry)),
                (&next, Some(Relation::Continue)),
                (&further, Some(Relation::Continue)),
                // Another branch from the beginning of the thread.
                (&format!("{request} c9 r9"), Some(Relation::Fork)),
            ] {
                if restarts {
                    desk = Desk { home: desk.home.take(), ..desk.restarted() };
                }
                let place = desk.send(&session, &talk(request), &[]);
                let case = format!("{request}, restarted: {restarts}");
                assert_eq!((place.thread.observe, texts(&place)), (is_aside, owned(expected)), "{case}");
                if let Some(relation) = relation {
                    assert_eq!(place.relation, relation, "{case}");
                    assert_eq!(place.thread.id == before, relation != Relation::Fork, "{case}");
                }
                before = place.thread.id;
            }
        }
    }
}

/// Other gateways on the same store know which threads are set aside, and from which point on. If the point was not
/// stored, the forks of a thread are set aside with it.
#[test]
fn threads_set_aside_at_an_unknown_point_include_their_forks() {
    for (forgets, is_aside) in [(false, false), (true, true)] {
        let desk = Desk::new();
        let session = session("s");
        let first = talk("u c1 r1:long");
        desk.send(&session, &first, &[decided(&first, 2, "first")]);
        let place = desk.send(&session, &talk("u c1 r1:long c2 r2"), &[]);
        if forgets {
            let thread = crate::store::Thread { observe: true, ..place.thread };
            desk.commit(Batch { threads: vec![thread], ..Batch::default() });
        } else {
            assert!(desk.lineage.set_aside(&place, 7));
            desk.commit(Batch::default());
        }
        let other = desk.restarted().place(&session, &talk("u c1 r1:long c3 r3"));
        assert_eq!((other.thread.observe, texts(&other)), (is_aside, vec!["2:first".to_owned()]));
    }
}

/// A pause lasts until the provider reads something, however often it refuses requests before.
#[test]
fn refused_requests_do_not_end_a_pause() {
    use Fate::{Billed, Refused, Unknown};
    let desk = Desk::new();
    for (now_ms, request, fate, last_ms) in [
        (1_000, "u", Billed, 1_000),
        (9_000, "u a u", Refused, 1_000),
        (9_010, "u a u", Refused, 1_000),
        (9_020, "u a u u:more", Refused, 1_000),
        (9_030, "u a u u:more", Unknown, 1_000),
        (9_040, "u a u u:more", Billed, 9_030),
        (9_050, "u a u u:more a u", Refused, 9_040),
        (9_060, "u a u u:more a u c1 r1", Unknown, 9_040),
    ] {
        let request = talk(request);
        let id = || "thread".to_owned();
        let place = desk.lineage.place(&request, (desk.root, desk.root), &session("s"), &id, now_ms).unwrap();
        assert_eq!(desk.lineage.last_read_ms(&place), last_ms, "{now_ms}");
        desk.commit(desk.lineage.batch(&place, &[], 0, now_ms));
        desk.lineage.sent(&request, &place, Arc::default(), None, now_ms);
        desk.lineage.ended(&place, fate);
    }
    // What is not remembered was read from the store.
    let place = desk.restarted().place(&session("s"), &talk("u a u u:more a u c1 r1"));
    assert_eq!(desk.restarted().lineage.last_read_ms(&place), 9_060);
}
