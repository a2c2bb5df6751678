//! Where requests belong, on a real store, before and after a restart.

use std::cell::Cell;
use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use tempfile::TempDir;

use super::{Caller, Lineage, Memory, Place, Relation};
use crate::conversation::{Chain, Conversation, NoMemo, PartId};
use crate::plan::LeafEdit;
use crate::planner::{Applied, Decision, Layout, PartKey, Splice};
use crate::protocol;
use crate::store::{Batch, Outputs, Sqlite, Store};

/// A gateway's lineage.
struct Desk {
    _home: Option<TempDir>,
    store: Arc<dyn Store>,
    lineage: Lineage,
    root: Chain,
    ids: Cell<u32>,
}

impl Desk {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let outputs = Outputs::new(home.path().join("outputs"));
        let store = Sqlite::open(&home.path().join("a.db"), outputs, home.path().join("logs"), 64).unwrap();
        Self { _home: Some(home), ..Self::on(Arc::new(store), 0) }
    }

    fn on(store: Arc<dyn Store>, ids: u32) -> Self {
        let lineage = Lineage::new(Arc::clone(&store), Memory::new(1 << 20));
        Self { _home: None, store, lineage, root: Chain::root("x", b"me"), ids: Cell::new(ids) }
    }

    /// The same store, with nothing remembered above it.
    fn restarted(&self) -> Self {
        Self { root: self.root, ..Self::on(Arc::clone(&self.store), self.ids.get()) }
    }

    fn place(&self, caller: &Caller, conversation: &Conversation) -> Place {
        let id = || {
            self.ids.set(self.ids.get() + 1);
            format!("thread-{}", self.ids.get())
        };
        self.lineage.place(conversation, self.root, caller, &id, i64::from(self.ids.get())).unwrap()
    }

    /// A request leaves with what was in force and with new decisions.
    fn send(&self, caller: &Caller, conversation: &Conversation, fresh: &[Applied]) -> Place {
        let place = self.place(caller, conversation);
        let applied: Arc<[Applied]> = [&place.applied, fresh].concat().into();
        let batch = self.lineage.batch(&place, self.root, &applied, fresh.len(), i64::from(self.ids.get()));
        self.commit(batch);
        self.lineage.sent(conversation, &place, applied, place.splice.clone(), i64::from(self.ids.get()));
        place
    }

    fn commit(&self, batch: Batch) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(self.store.commit(batch)).unwrap();
    }
}

fn session(name: &str) -> Caller {
    Caller { session: Some(name.to_owned()), ..Caller::default() }
}

/// A conversation in short: `u` the user, `a` the model, `c1` a call, `r1` its result, each with a text behind a
/// colon where it matters.
fn talk(short: &str) -> Conversation {
    let messages: Vec<String> = short
        .split_whitespace()
        .map(|word| {
            let (what, text) = word.split_once(':').unwrap_or((word, "x"));
            let (kind, id) = what.split_at(1);
            match kind {
                "u" => format!(r#"{{"role":"user","content":"{text}{id}"}}"#),
                "a" => format!(r#"{{"role":"assistant","content":"{text}{id}"}}"#),
                "s" => format!(r#"{{"role":"system","content":"{text}{id}"}}"#),
                "c" => format!(r#"{{"role":"assistant","content":[{{"type":"tool_use","id":"t{id}","name":"n","input":{{}}}}]}}"#),
                _ => format!(r#"{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t{id}","content":"{text}"}}]}}"#),
            }
        })
        .collect();
    let body = format!(r#"{{"messages":[{}]}}"#, messages.join(","));
    protocol::named("anthropic").unwrap().index(&Bytes::from(body), &NoMemo).unwrap()
}

/// A decision about the result in a message.
fn decided(conversation: &Conversation, message: u32, text: &str) -> Applied {
    let part = PartId { message, part: 0 };
    let found = conversation.part(part).unwrap();
    let content = found.content.unwrap();
    let decision = Decision {
        rules: "truncate".into(),
        leaves: vec![(0, LeafEdit::Replace(text.into()))],
        content,
        key: PartKey::of(found.call_id.as_deref(), content),
        bytes_before: 9,
        bytes_after: 1,
        output: None,
    };
    Applied { part, decision: Arc::new(decision) }
}

fn texts(place: &Place) -> Vec<String> {
    let text = |applied: &Applied| match &applied.decision.leaves[0].1 {
        LeafEdit::Replace(text) => format!("{}:{text}", applied.part.message),
        LeafEdit::Remove => String::new(),
    };
    place.applied.iter().map(text).collect()
}

/// What a request is taken for, after others were sent: its relation and how much of it is old.
#[test]
fn relations() {
    for (sent, request, expected) in [
        (&[][..], "u:goal", (Relation::New, 0)),
        (&[], "u:goal c1 r1 a u:more", (Relation::New, 0)),
        (&["u:goal"], "u:goal c1 r1", (Relation::Continue, 1)),
        (&["u:goal"], "u:goal s:note c1 r1", (Relation::Continue, 1)),
        (&["u:goal"], "u:goal", (Relation::Retry, 1)),
        (&["u:goal"], "u:goal u:hurry", (Relation::Continue, 1)),
        (&["u:goal", "u:goal c1 r1"], "u:goal c1 r1", (Relation::Retry, 3)),
        (&["u:goal", "u:goal c1 r1"], "u:goal c1 r1 u:stop", (Relation::Continue, 3)),
        (&["u:goal", "u:goal c1 r1"], "u:goal", (Relation::Retry, 1)),
        (&["u:goal", "u:goal c1 r1"], "u:goal c2 r2", (Relation::Fork, 1)),
        (&["u:goal", "u:goal c1 r1"], "u:goal c1 r1:other", (Relation::Fork, 1)),
        (&["u:goal", "u:goal c1 r1"], "u:target c1 r1", (Relation::New, 0)),
        (&["u:goal c1 r1 a u:more"], "u:goal c1 r1", (Relation::Retry, 3)),
        (&["u:goal c1 r1 a u:more"], "u:goal c1 r1 a u:less", (Relation::Fork, 3)),
        (&["u:goal c1 r1 a u:more"], "u:goal c1 r1 a u:more a u:end", (Relation::Continue, 5)),
        (&["u:goal", "u:goal c1 r1"], "u:summary c1 r1", (Relation::New, 0)),
        (&["u:goal c1 r1 c2 r2"], "u:goal c1 r1 c3 r3", (Relation::Fork, 3)),
    ] {
        let desk = Desk::new();
        for earlier in sent {
            desk.send(&session("s"), &talk(earlier), &[]);
        }
        for desk in [&desk, &desk.restarted()] {
            let place = desk.place(&session("s"), &talk(request));
            assert_eq!((place.relation, place.sent), expected, "{request} after {sent:?}");
        }
    }
}

#[test]
fn a_growing_thread_stays_one() {
    let desk = Desk::new();
    let threads: Vec<String> = ["u", "u c1 r1", "u c1 r1 c2 r2", "u c1 r1 c2 r2 a u:more"]
        .iter()
        .map(|request| desk.send(&session("s"), &talk(request), &[]).thread.id)
        .collect();
    assert_eq!(threads, ["thread-1"; 4]);
    let fork = desk.send(&session("s"), &talk("u c1 r1 c3 r3"), &[]);
    assert_eq!((fork.thread.id.as_str(), fork.thread.parent.as_deref()), ("thread-2", Some("thread-1")));
    let place = desk.send(&session("s"), &talk("u c1 r1 c2 r2 a u:more a u"), &[]);
    assert_eq!((place.thread.id.as_str(), place.relation), ("thread-1", Relation::Continue));
    let place = desk.send(&session("s"), &talk("u c1 r1 c3 r3 c4 r4"), &[]);
    assert_eq!((place.thread.id.as_str(), place.relation), ("thread-2", Relation::Continue));
}

/// Two requests that go on from one at the same time: both find what was sent, one thread each.
#[test]
fn parallel_requests_are_two_threads() {
    let desk = Desk::new();
    desk.send(&session("s"), &talk("u"), &[]);
    let (one, two) = (talk("u c1 r1"), talk("u c2 r2"));
    let places = [desk.place(&session("s"), &one), desk.place(&session("s"), &two)];
    assert_eq!(places.map(|place| (place.relation, place.sent)), [(Relation::Continue, 1); 2]);
    assert_eq!(desk.send(&session("s"), &one, &[]).thread.id, "thread-1");
    assert_eq!(desk.send(&session("s"), &two, &[]).relation, Relation::Fork);
}

/// A label groups threads; it never makes one history of two, nor two of one.
#[test]
fn sessions_are_labels() {
    let desk = Desk::new();
    let first = talk("u:goal c1 r1");
    desk.send(&session("s"), &talk("u:goal"), &[]);
    desk.send(&session("s"), &first, &[decided(&first, 2, "short")]);

    let other = desk.send(&session("s"), &talk("u:sub-agent c1 r1"), &[]);
    assert_eq!((other.relation, other.sent, texts(&other)), (Relation::New, 0, vec![]));
    assert_eq!((other.thread.conversation.as_str(), other.thread.parent.as_deref()), ("s", Some("thread-1")));

    let moved = desk.send(&session("t"), &talk("u:goal c1 r1 a u"), &[]);
    assert_eq!((moved.relation, moved.sent, texts(&moved)), (Relation::Fork, 3, vec!["2:short".to_owned()]));
    assert_eq!(moved.thread.conversation, "t");

    let nameless = desk.send(&Caller::default(), &talk("u:goal c1 r1 c2 r2"), &[]);
    assert_eq!((nameless.relation, texts(&nameless)), (Relation::Fork, vec!["2:short".to_owned()]));
    assert_eq!(nameless.thread.conversation, "s");
    let alone = desk.send(&Caller::default(), &talk("u:alone"), &[]);
    assert_eq!(alone.thread.conversation, alone.thread.id);
}

#[test]
fn principals_know_nothing_of_each_other() {
    let desk = Desk::new();
    let request = talk("u c1 r1");
    let decision = decided(&request, 2, "short");
    desk.send(&session("s"), &request, std::slice::from_ref(&decision));
    let key = decision.decision.key.unwrap();
    assert_eq!(desk.lineage.recover(desk.root, &[key]), [Some(decision.decision)]);
    for desk in [&desk, &desk.restarted()] {
        let other = Desk { root: Chain::root("x", b"you"), ..Desk::on(Arc::clone(&desk.store), 100) };
        let place = other.place(&session("s"), &talk("u c1 r1 a u"));
        assert_eq!((place.relation, place.sent, texts(&place)), (Relation::New, 0, vec![]));
        assert_eq!(other.lineage.recover(other.root, &[key]), [None]);
    }
}

/// What one gateway has sent of a thread, another one on the same store goes on with, however much older what it
/// remembers is.
#[test]
fn gateways_on_one_store_take_turns_in_a_thread() {
    let one = Desk::new();
    one.send(&session("s"), &talk("u:goal"), &[]);
    let other = one.restarted();
    let mut said = "u:goal".to_owned();
    for step in 1..7_u32 {
        let _ = write!(said, " c{step} r{step}");
        let desk = if step % 3 == 0 { &one } else { &other };
        desk.ids.set(10 * step);
        let place = desk.send(&session("s"), &talk(&said), &[]);
        let expected = (Relation::Continue, "thread-1", 2 * step as usize - 1);
        assert_eq!((place.relation, &*place.thread.id, place.sent), expected, "{said}");
    }
}

/// A new thread of a session does not take over that another one of it was set aside: the label may be anyone's.
#[test]
fn threads_are_set_aside_with_their_forks_only() {
    let desk = Desk::new();
    let place = desk.send(&session("s"), &talk("u:a c1 r1"), &[]);
    desk.lineage.set_aside(&place, 7);
    desk.commit(Batch::default());
    for desk in [&desk, &desk.restarted()] {
        let observed = |request| desk.place(&session("s"), &talk(request)).thread.observe;
        assert!(observed("u:a c1 r1 c2 r2"), "goes on");
        assert!(observed("u:a c1 r1"), "again");
        assert!(observed("u:a c3 r3"), "forks");
        assert!(!observed("u:b"), "another thread");
    }
    let stranger = Desk { root: Chain::root("x", b"you"), ..Desk::on(Arc::clone(&desk.store), 100) };
    assert!(!stranger.place(&session("s"), &talk("u:a c1 r1")).thread.observe);
}

/// What was sent before an event is sent so by whoever goes back before it.
#[test]
fn decisions_hold_since_they_were_sent() {
    let desk = Desk::new();
    desk.send(&session("s"), &talk("u"), &[]);
    let step = talk("u c1 r1:long");
    desk.send(&session("s"), &step, &[decided(&step, 2, "first")]);
    desk.send(&session("s"), &talk("u c1 r1:long c2 r2"), &[]);
    let event = talk("u c1 r1:long c2 r2 a u:more");
    let place = desk.place(&session("s"), &event);
    let again: Arc<[Applied]> = vec![decided(&event, 2, "event")].into();
    desk.commit(desk.lineage.batch(&place, desk.root, &again, 1, 9));
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

/// Clients put words at the end of a request and leave them out of the next: that is one thread all the same, and an
/// event holds.
#[test]
fn an_event_holds_without_the_last_words() {
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

/// Who takes the last words back that an event was sent with, and says something else upon the model's answer, is sent
/// what was sent before the event; what is decided then stands beside what the event has decided.
#[test]
fn who_goes_back_before_an_event_decides_anew() {
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

/// What is decided anew about a request that the provider has refused takes the place of what was decided first.
#[test]
fn what_was_refused_is_decided_anew() {
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
            let batch = desk.lineage.batch(&place, desk.root, &again, 1, 9);
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

/// Of requests of one history that leave at the same time, the one that decides more is stored, and so remembered.
#[test]
fn what_decides_more_is_remembered() {
    let desk = Desk::new();
    let request = talk("u c1 r1:long a u:more");
    let places = [desk.place(&session("s"), &request), desk.place(&session("s"), &request)];
    let event: Arc<[Applied]> = vec![decided(&request, 2, "event")].into();
    desk.commit(desk.lineage.batch(&places[0], desk.root, &event, 1, 1));
    desk.lineage.sent(&request, &places[0], event, None, 1);
    desk.lineage.sent(&request, &places[1], Arc::default(), None, 2);
    for desk in [&desk, &desk.restarted()] {
        let place = desk.place(&session("s"), &talk("u c1 r1:long a u:more a u"));
        assert_eq!(texts(&place), ["2:event"]);
    }
}

/// A splice that takes the messages from 1 to `end`.
fn splice(end: u32, text: &str) -> Arc<Splice> {
    Arc::new(Splice {
        rule: "note".into(),
        drops: [(1, end)].into(),
        layout: Layout::Answer,
        at: PartId { message: end, part: 0 },
        leaf: 0,
        text: text.into(),
        bytes_before: 100,
        bytes_after: text.len() as u64,
        output: None,
    })
}

/// A splice does not hold where what it takes is in the step in progress, or is what the user said last.
#[test]
fn splices_take_nothing_from_who_goes_back() {
    for (request, back, end) in [
        ("u c1 r1 a u:more", "u c1 r1 u:other", 3),
        ("u a u:b c1 r1 u:state", "u a u:b c1 r1 c2 r2", 3),
        ("u a u:b c1 r1 u:state", "u a u:b c1 r1", 3),
    ] {
        let desk = Desk::new();
        let body = talk(request);
        let place = desk.place(&session("s"), &body);
        let splice = splice(end, "note");
        let mut batch = desk.lineage.batch(&place, desk.root, &[], 0, 9);
        batch.splices.extend(desk.lineage.spliced(&body, &place, &splice));
        desk.commit(batch);
        desk.lineage.sent(&body, &place, Arc::default(), Some(splice), 9);
        // Made again, it leaves no more behind.
        desk.send(&session("s"), &body, &[]);
        for desk in [&desk, &desk.restarted()] {
            let next = format!("{request} a u:on");
            let held =
                [request, &next, back].map(|body| desk.place(&session("s"), &talk(body)).splice.is_some());
            assert_eq!(held, [true, true, false], "{request}");
        }
    }
}

/// A splice holds where exactly what it replaces stands, in histories that go on from its request; the one that
/// replaces most counts.
#[test]
fn splices_hold_since_they_were_sent() {
    let desk = Desk::new();
    let send = |request: &str, splice: Option<Arc<Splice>>| {
        let request = talk(request);
        let place = desk.place(&session("s"), &request);
        let mut batch = desk.lineage.batch(&place, desk.root, &[], 0, 9);
        batch
            .splices
            .extend(splice.as_ref().and_then(|splice| desk.lineage.spliced(&request, &place, splice)));
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

/// A request that never ended a request, but was the beginning of one, was sent all the same.
#[test]
fn beginnings_of_requests_were_sent() {
    let desk = Desk::new();
    let joined = talk("u c1 r1 c2 r2 a u:more");
    desk.send(&session("s"), &joined, &[]);
    for desk in [&desk, &desk.restarted()] {
        for (request, sent) in
            [("u", 1), ("u c1 r1", 3), ("u c1 r1 c2 r2", 5), ("u c1 r1 c3 r3", 3), ("u c4 r4", 1)]
        {
            assert_eq!(desk.place(&session("s"), &talk(request)).sent, sent, "{request}");
        }
    }
}

/// Another gateway on the store sees what this one stored, and is not told what it remembers otherwise.
#[test]
fn gateways_share_a_store() {
    let (one, request) = (Desk::new(), talk("u c1 r1"));
    let two = one.restarted();
    one.send(&session("s"), &request, &[decided(&request, 2, "one")]);
    let place = two.send(&session("s"), &talk("u c1 r1 c2 r2"), &[]);
    assert_eq!((place.relation, texts(&place)), (Relation::Continue, vec!["2:one".to_owned()]));
    let place = one.place(&session("s"), &talk("u c1 r1 c2 r2 a u"));
    assert_eq!((place.sent, texts(&place)), (5, vec!["2:one".to_owned()]));
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

/// A request of a walk: by which gateway, from which earlier request on, without how many of its last messages, and with
/// which words more.
type Step = (bool, prop::sample::Index, usize, &'static str);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let more = prop::sample::select(vec!["a u", "c r", "c r a u", "c r c r", "u", "a", "c r u"]);
    let back = prop_oneof![4 => Just(0_usize), 1 => 1..4_usize];
    prop::collection::vec((any::<bool>(), any::<prop::sample::Index>(), back, more), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// Of whatever one of several gateways on a store has sent, the others know what it was sent as.
    #[test]
    fn gateways_on_one_store_decide_as_one(steps in steps()) {
        let alone = Desk::new();
        let one = Desk::new();
        let other = one.restarted();
        let mut sent: Vec<Vec<String>> = vec![vec!["u:goal".to_owned()]];
        for (at, (is_one, from, back, more)) in steps.into_iter().enumerate() {
            // Most requests go on from the newest one.
            let from = if from.index(3) > 0 { sent.len() - 1 } else { from.index(sent.len()) };
            let mut words = sent[from].clone();
            words.truncate(words.len().saturating_sub(back).max(1));
            while words.last().is_some_and(|word| word.starts_with('c')) {
                words.pop();
            }
            let mut id = words.len();
            words.extend(more.split(' ').map(|word| {
                id += usize::from(word != "r");
                format!("{word}{id}:{at}")
            }));
            let request = talk(&words.join(" "));
            let desk = if is_one { &one } else { &other };
            let places = [&alone, desk].map(|desk| {
                desk.ids.set(100 * at as u32 + 100);
                let place = desk.place(&session("s"), &request);
                // What is new is decided about with every second request, and what is old with every third.
                let is_open = |message: usize| !place.applied.iter().any(|one| one.part.message as usize == message);
                let is_due = |message: usize| {
                    let is_new = message >= place.sent;
                    is_open(message) && ((is_new && at % 2 == 0) || (!is_new && at % 3 == 2 && message < place.answered))
                };
                let results = words.iter().enumerate().filter(|(_, word)| word.starts_with('r'));
                let fresh = results.filter(|(message, _)| is_due(*message));
                let fresh: Vec<Applied> =
                    fresh.map(|(message, _)| decided(&request, message as u32, &format!("by {at}"))).collect();
                desk.send(&session("s"), &request, &fresh)
            });
            let [expected, found] = places.map(|place| {
                let mut decided = texts(&place);
                decided.sort();
                (place.sent, decided)
            });
            prop_assert_eq!(expected, found, "{:?}", words);
            sent.push(words);
        }
    }
}
