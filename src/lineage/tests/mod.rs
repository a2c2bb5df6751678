//! Where requests belong, on a real store, before and after a restart.

mod crowds;
mod events;
mod gateways;
mod held;
mod idle;
mod last_words;
mod outlook;
mod refused;
mod runs;
mod splices;

use std::cell::Cell;
use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use tempfile::TempDir;

use super::{Caller, Lineage, Memory, Place, Relation};
use crate::conversation::{Chain, Conversation, NoMemo, PartId};
use crate::plan::LeafEdit;
use crate::planner::{Applied, Cause, Decision, PartKey};
use crate::protocol;
use crate::shape::Rule;
use crate::store::{Batch, Outputs, Sqlite, Store};

/// A gateway's lineage.
struct Desk {
    home: Option<TempDir>,
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
        Self { home: Some(home), ..Self::on(Arc::new(store), 0) }
    }

    fn on(store: Arc<dyn Store>, ids: u32) -> Self {
        let lineage = Lineage::new(Arc::clone(&store), Memory::new(1 << 20));
        Self { home: None, store, lineage, root: Chain::root("x", b"me"), ids: Cell::new(ids) }
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
        self.lineage
            .place(conversation, (self.root, self.root), caller, &id, i64::from(self.ids.get()))
            .unwrap()
    }

    /// A request leaves with what was in force and with new decisions.
    fn send(&self, caller: &Caller, conversation: &Conversation, fresh: &[Applied]) -> Place {
        let place = self.place(caller, conversation);
        let applied: Arc<[Applied]> = [&place.applied, fresh].concat().into();
        let batch = self.lineage.batch(&place, &applied, fresh.len(), i64::from(self.ids.get()));
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

/// A conversation in short: `u` the user, `a` the model, `t` the same after a thought, `c1` a call, `d1` the same after
/// a thought, `r1` its result, each with a text after a colon where it matters.
fn talk(short: &str) -> Conversation {
    let messages: Vec<String> = short
        .split_whitespace()
        .map(|word| {
            let (what, text) = word.split_once(':').unwrap_or((word, "x"));
            let (kind, id) = what.split_at(1);
            match kind {
                "u" => format!(r#"{{"role":"user","content":"{text}{id}"}}"#),
                "a" => format!(r#"{{"role":"assistant","content":"{text}{id}"}}"#),
                "t" => format!(r#"{{"role":"assistant","content":[{{"type":"thinking","thinking":"","signature":"s"}},{{"type":"text","text":"{text}{id}"}}]}}"#),
                "d" => format!(r#"{{"role":"assistant","content":[{{"type":"thinking","thinking":"","signature":"s"}},{{"type":"tool_use","id":"t{id}","name":"n","input":{{}}}}]}}"#),
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
    let content = found.content().unwrap();
    let decision = Decision {
        cause: Cause::Shaped(Rule::Truncate.into()),
        leaves: vec![(0, LeafEdit::Replace(text.into()))],
        content,
        key: PartKey::of(found.call_id(), content),
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

/// How a request is classified after others were sent: its relation and how much of it is old.
#[test]
fn relations_of_a_request_to_earlier_ones() {
    for (sent, request, expected) in [
        (&[][..], "u:goal", (Relation::New, 0)),
        (&[], "u:goal c1 r1 a u:more", (Relation::New, 0)),
        (&["u:goal"], "u:goal c1 r1", (Relation::Continue, 1)),
        (&["u:goal"], "u:goal s:note c1 r1", (Relation::Continue, 1)),
        (&["u:goal"], "u:goal", (Relation::Retry, 1)),
        (&["u:goal"], "u:goal u:hurry", (Relation::Continue, 1)),
        (&["s:10h s:a u:goal"], "s:11h s:a u:goal c1 r1", (Relation::Continue, 3)),
        (&["s:10h u:goal c1 r1"], "s:11h s:a u:goal c1 r1 a u", (Relation::New, 0)),
        (&["s:10h u:goal c1 r1"], "u:goal c1 r1 a u", (Relation::New, 0)),
        (&["s:10h u:goal"], "s:11h u:goal", (Relation::Retry, 2)),
        (&["s:10h u:goal"], "s:10h u:target", (Relation::New, 0)),
        (&["s:10h u:goal"], "s:10h", (Relation::New, 0)),
        (&["s:10h"], "s:10h u:goal", (Relation::New, 0)),
        (&["u:goal s:10h c1 r1"], "u:goal s:11h c1 r1", (Relation::Fork, 1)),
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

/// Decisions apply whatever the instructions say now.
#[test]
fn threads_and_decisions_are_found_despite_changed_instructions() {
    let (desk, nobody) = (Desk::new(), Caller::default());
    let first = talk("s:10h u:goal c1 r1");
    let place = desk.send(&nobody, &first, &[decided(&first, 3, "cut")]);
    assert_eq!(texts(&desk.place(&nobody, &talk("s:10h u:other c1 r1"))), [""; 0]);
    for desk in [&desk, &desk.restarted()] {
        for request in ["s:11h u:goal c1 r1 c2 r2", "s:12h u:goal c1 r1", "s u:goal c1 r1 a u"] {
            let again = desk.place(&nobody, &talk(request));
            assert_eq!(texts(&again), ["3:cut"], "{request}");
            assert_eq!(again.thread.conversation, place.thread.conversation, "{request}");
        }
        let other = desk.place(&nobody, &talk("s:10h u:other"));
        assert_ne!(other.thread.conversation, place.thread.conversation);
    }
}

#[test]
fn a_growing_history_stays_one_thread() {
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

/// Two simultaneous requests that continue the same one: both find what was sent, in one thread each.
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

/// A label groups threads; it never joins two histories, nor splits one.
#[test]
fn sessions_group_threads_without_joining_or_splitting_histories() {
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
fn principals_do_not_share_threads_or_decisions() {
    let desk = Desk::new();
    let request = talk("u c1 r1");
    let decision = decided(&request, 2, "short");
    desk.send(&session("s"), &request, std::slice::from_ref(&decision));
    let key = decision.decision.key.unwrap();
    assert_eq!(desk.lineage.known_decisions(desk.root, &[key]), [Some(decision.decision)]);
    for desk in [&desk, &desk.restarted()] {
        let other = Desk { root: Chain::root("x", b"you"), ..Desk::on(Arc::clone(&desk.store), 100) };
        let place = other.place(&session("s"), &talk("u c1 r1 a u"));
        assert_eq!((place.relation, place.sent, texts(&place)), (Relation::New, 0, vec![]));
        assert_eq!(other.lineage.known_decisions(other.root, &[key]), [None]);
    }
}

/// A new thread of a session does not inherit that another one of it was set aside: the label may be anyone's.
#[test]
fn threads_are_set_aside_with_their_forks_only() {
    let desk = Desk::new();
    let place = desk.send(&session("s"), &talk("u:a c1 r1"), &[]);
    assert!(desk.lineage.set_aside(&place, 7));
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

/// A request that found its thread before it was set aside does not undo that when it leaves.
#[test]
fn a_request_in_flight_does_not_undo_setting_aside() {
    let desk = Desk::new();
    let first = desk.send(&session("s"), &talk("u:a c1 r1"), &[]);
    let next = talk("u:a c1 r1 c2 r2");
    let under_way = desk.place(&session("s"), &next);
    assert!(desk.lineage.set_aside(&first, 7));
    desk.commit(desk.lineage.batch(&under_way, &[], 0, 8));
    desk.lineage.sent(&next, &under_way, Arc::default(), None, 8);
    for desk in [&desk, &desk.restarted()] {
        assert!(desk.place(&session("s"), &talk("u:a c1 r1 c2 r2 c3 r3")).thread.observe);
    }
}

/// What was sent to a model that binds its reasoning is known to all histories that continue from there, and to no
/// others.
#[test]
fn bound_reasoning_is_remembered_per_history() {
    let desk = Desk::new();
    let bound = |request, binds| {
        let place = desk.send(&session("s"), &talk(request), &[]);
        // Asking changes nothing.
        let bound = [(); 2].map(|()| desk.lineage.bound(&place));
        desk.lineage.bind(&place, binds);
        assert_eq!(bound[0], bound[1], "{request}");
        bound[0]
    };
    for (request, binds, expected) in [
        ("u:a t u:b", false, 0),
        ("u:a t u:b", true, 0),
        ("u:a t u:b", false, 3),
        ("u:a t u:b t u:c", true, 3),
        ("u:a t u:b t u:c a u:d", false, 5),
        ("u:a t u:b t u:c a u:d a u:e", false, 5),
        // Another branch from an earlier request, and its continuation; then back to the first one.
        ("u:a t u:b c3 r3", false, 3),
        ("u:a t u:b c3 r3 t u:f", false, 3),
        ("u:a t u:b t u:c a u:d a u:e a u:f", false, 5),
        // Last words that are left out of the next request.
        ("u:a t u:b t u:c t u:g u:state", true, 5),
        ("u:a t u:b t u:c t u:g t u:h", false, 7),
        // Other first words.
        ("u:z", false, 0),
        ("u:z t u:b", false, 0),
    ] {
        assert_eq!(bound(request, binds), expected, "{request}");
    }
}

/// A history that was only ever the beginning of a request was sent nevertheless.
#[test]
fn prefixes_of_a_sent_request_count_as_sent() {
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
