//! The SQLite store: what goes in comes out, whoever else is at it and whatever fails.

mod opening;
mod overlay;

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rusqlite::Connection;
use tempfile::TempDir;

use super::*;
use crate::conversation::{Digest, PartId};
use crate::plan::LeafEdit;
use crate::planner::{Decision, Layout, Save, Splice};

struct Bench {
    home: TempDir,
}

impl Bench {
    fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> std::path::PathBuf {
        self.home.path().join("state/plimsoll.db")
    }

    fn outputs(&self) -> Outputs {
        Outputs::new(self.home.path().join("outputs"))
    }

    fn try_open(&self) -> Result<Sqlite, StoreError> {
        Sqlite::open(&self.path(), self.outputs(), self.home.path().join("logs"), 256)
    }

    fn open(&self) -> Sqlite {
        self.try_open().unwrap()
    }

    /// The database behind the store's back.
    fn database(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }
}

fn wait(stored: Stored) -> Result<(), StoreError> {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(stored)
}

fn chain(name: &str) -> Chain {
    Chain(Digest::of(&[name.as_bytes()]))
}

fn decision(text: &str, key: Option<&str>) -> Decision {
    let content = Digest::of(&[b"content"]);
    Decision {
        rules: "escapes+truncate".into(),
        leaves: vec![(0, LeafEdit::Replace(text.into())), (2, LeafEdit::Remove)],
        content,
        key: PartKey::of(key, content),
        bytes_before: 9000,
        bytes_after: 40,
        output: Some("0123456789abcdef0123456789abcdef".to_owned()),
    }
}

fn stored(at: &str, part: u32, since: &str, text: &str) -> StoredDecision {
    let decision = Arc::new(decision(text, Some("call")));
    StoredDecision { chain: chain(at), part, since: chain(since), root: chain("root"), decision }
}

fn decided(decisions: Vec<StoredDecision>, at_ms: i64) -> Batch {
    Batch { decisions, at_ms, ..Batch::default() }
}

fn thread(id: &str, head: &str, at_ms: i64) -> Thread {
    Thread {
        id: id.to_owned(),
        conversation: "c".to_owned(),
        session: Some("s".to_owned()),
        parent: None,
        head: chain(head),
        observe: false,
        at_ms,
    }
}

#[test]
fn rows_come_back() {
    let bench = Bench::new();
    let boundary = |at: &str, thread: &str| Boundary { chain: chain(at), thread: thread.to_owned() };
    let given = Batch {
        decisions: vec![stored("m", 1, "m", "short \u{1F980} \"\u{0}\n"), stored("m", 0, "m", "other")],
        threads: vec![thread("t1", "m", 5), thread("t2", "n", 6)],
        boundaries: vec![boundary("m", "t1"), boundary("m", "t2"), boundary("m", "t1")],
        at_ms: 5,
        ..Batch::default()
    };
    wait(bench.open().commit(given.clone())).unwrap();
    let store = bench.open();
    let found = store.decisions(&[chain("m")]).unwrap();
    assert_eq!(found, [given.decisions[1].clone(), given.decisions[0].clone()]);
    assert_eq!(store.decisions(&[chain("n")]).unwrap(), []);
    assert_eq!(store.boundaries(&[chain("m")]).unwrap(), [boundary("m", "t1"), boundary("m", "t2")]);
    assert_eq!(store.boundaries(&[chain("n")]).unwrap(), []);
    assert_eq!(store.thread("t1").unwrap().as_ref(), Some(&given.threads[0]));
    assert_eq!(store.session("s").unwrap().as_ref(), Some(&given.threads[1]));
    assert_eq!((store.thread("t3").unwrap(), store.session("other").unwrap()), (None, None));
}

#[test]
fn a_thread_moves_on_and_stays_set_aside() {
    let bench = Bench::new();
    let store = bench.open();
    let put =
        |thread: Thread| wait(store.commit(Batch { threads: vec![thread], ..Batch::default() })).unwrap();
    put(thread("t", "one", 5));
    put(Thread { observe: true, ..thread("t", "two", 7) });
    put(thread("t", "three", 6));
    let found = store.thread("t").unwrap().unwrap();
    assert_eq!((found.head, found.observe, found.at_ms), (chain("three"), true, 7));
}

/// A decision is made once. A later one about the same part has another beginning, or comes too late.
#[test]
fn the_first_decision_stands() {
    let bench = Bench::new();
    let (one, two) = (bench.open(), bench.open());
    wait(one.commit(decided(vec![stored("m", 0, "m", "first")], 1))).unwrap();
    let raced =
        wait(two.commit(decided(vec![stored("x", 0, "x", "lost"), stored("m", 0, "m", "second")], 2)));
    assert!(matches!(raced, Err(StoreError::Raced)), "{raced:?}");
    wait(two.commit(decided(vec![stored("m", 0, "later", "event")], 3))).unwrap();
    for store in [&one, &two] {
        let found = store.decisions(&[chain("m")]).unwrap();
        assert_eq!(found, [stored("m", 0, "m", "first"), stored("m", 0, "later", "event")]);
        assert_eq!(store.decisions(&[chain("x")]).unwrap(), [], "a batch is stored as a whole or not at all");
    }
}

#[test]
fn the_newest_decision_of_a_principal_is_recovered() {
    let bench = Bench::new();
    let store = bench.open();
    let key = PartKey::of(Some("call"), Digest::of(&[b"content"])).unwrap();
    let other = PartKey::of(Some("another call"), Digest::of(&[b"content"])).unwrap();
    assert_eq!(store.recover(chain("root"), &[key]).unwrap(), [None]);
    wait(store.commit(decided(vec![stored("m", 0, "m", "old")], 1))).unwrap();
    wait(store.commit(decided(vec![stored("n", 0, "n", "new")], 2))).unwrap();
    let keyless = Arc::new(decision("keyless", None));
    wait(store.commit(decided(vec![StoredDecision { decision: keyless, ..stored("o", 0, "o", "") }], 3)))
        .unwrap();
    let new = || Some(stored("n", 0, "n", "new"));
    assert_eq!(store.recover(chain("root"), &[key, other, key]).unwrap(), [new(), None, new()]);
    assert_eq!(store.recover(chain("other root"), &[key]).unwrap(), [None]);
    assert_eq!(store.recover(chain("root"), &[]).unwrap(), []);
}

/// One row that cannot be read hides no other.
#[test]
fn damaged_rows_are_not_recovered() {
    let bench = Bench::new();
    let store = bench.open();
    let keyed = |at: &str, call: &str| StoredDecision {
        decision: Arc::new(decision(at, Some(call))),
        ..stored(at, 0, at, "")
    };
    let key = |call: &str| PartKey::of(Some(call), Digest::of(&[b"content"])).unwrap();
    let keys = [key("first"), key("second")];
    let batch = decided(vec![keyed("m", "first"), keyed("n", "second")], 1);
    wait(store.commit(batch)).unwrap();
    let rows = || [Some(keyed("m", "first")), Some(keyed("n", "second"))];
    assert_eq!(store.recover(chain("root"), &keys).unwrap(), rows());
    let damage = "UPDATE decisions SET rules = x'ff' WHERE chain = ?1";
    assert_eq!(bench.database().execute(damage, [chain("m").0.0]).unwrap(), 1);
    let [_, second] = rows();
    assert_eq!(store.recover(chain("root"), &keys).unwrap(), [None, second]);
}

/// Batches that wait together are one transaction, but one that fails harms only itself.
#[test]
fn a_bad_batch_harms_no_other() {
    let bench = Bench::new();
    let store = bench.open();
    wait(store.commit(decided(vec![stored("m", 0, "m", "first")], 1))).unwrap();
    // While somebody else writes, batches pile up.
    let other = bench.database();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let waiting: Vec<Stored> = ["a", "m", "b", "b", "c"]
        .iter()
        .map(|at| store.commit(decided(vec![stored(at, 0, at, "new")], 2)))
        .collect();
    other.execute_batch("COMMIT").unwrap();
    let done: Vec<bool> = waiting.into_iter().map(|stored| wait(stored).is_ok()).collect();
    assert_eq!(done, [true, false, true, false, true]);
    for (at, text) in [("a", "new"), ("m", "first"), ("b", "new"), ("c", "new")] {
        assert_eq!(store.decisions(&[chain(at)]).unwrap(), [stored(at, 0, at, text)]);
    }
}

/// Nobody was told that it would be stored: it must not be, or what is stored is not what was sent.
#[test]
fn a_withdrawn_batch_is_not_stored() {
    let bench = Bench::new();
    let store = bench.open();
    let other = bench.database();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let first = store.commit(decided(vec![stored("a", 0, "a", "x")], 1));
    let save = Save { id: "0123456789abcdef0123456789abcdef".to_owned(), text: "full".to_owned() };
    let withdrawn =
        store.commit(Batch { saves: vec![save.clone()], ..decided(vec![stored("b", 0, "b", "x")], 1) });
    drop(withdrawn);
    let last = store.commit(decided(vec![stored("c", 0, "c", "x")], 1));
    other.execute_batch("COMMIT").unwrap();
    assert!(wait(first).is_ok() && wait(last).is_ok());
    assert_eq!(store.decisions(&[chain("b")]).unwrap(), []);
    let listed: String = bench.database().query_row("SELECT id FROM outputs", [], |row| row.get(0)).unwrap();
    assert_eq!(listed, save.id, "what was saved is swept one day");
}

#[test]
fn a_full_queue_takes_no_more() {
    let bench = Bench::new();
    let store = Sqlite::open(&bench.path(), bench.outputs(), bench.home.path().join("logs"), 1).unwrap();
    let other = bench.database();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    // One group is being written, one batch waits: nothing else is taken.
    let mut waiting = Vec::new();
    let refused = loop {
        let mut stored = store.commit(decided(Vec::new(), 1));
        match Pin::new(&mut stored).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => break done,
            Poll::Pending => waiting.push(stored),
        }
        assert!(waiting.len() < 1000, "the queue has no end");
    };
    assert!(matches!(refused, Err(StoreError::Busy)), "{refused:?}");
    other.execute_batch("COMMIT").unwrap();
    assert!(waiting.into_iter().all(|stored| wait(stored).is_ok()));
}

/// What finds no room, or cannot be written, is counted, and the count outlives the store.
#[test]
fn records_that_were_dropped_are_counted() {
    let bench = Bench::new();
    let store = Sqlite::open(&bench.path(), bench.outputs(), bench.home.path().join("logs"), 1).unwrap();
    let record = |at_ms, name: &str| {
        let ledger = vec![LedgerRow { id: format!("{name}{at_ms}"), at_ms, ..LedgerRow::default() }];
        Batch { ledger, at_ms, ..Batch::default() }
    };
    let other = bench.database();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (mut taken, mut dropped) = (0, 0);
    while dropped < 3 {
        if store.later(record(10_000 * (taken + dropped), "a")) {
            taken += 1;
        } else {
            dropped += 1;
        }
        assert!(taken < 1000, "the queue has no end");
    }
    assert!(!store.later(Batch::default()), "what holds no record is not missed");
    other.execute_batch("COMMIT").unwrap();
    drop(store);
    let last_ms = 10_000 * (taken + dropped - 1);
    let books = Books::open(&bench.path()).unwrap().unwrap();
    for (since_ms, until_ms, expected) in
        [(None, None, 3), (Some(last_ms), None, 1), (Some(last_ms + 1), None, 0), (None, Some(last_ms), 2)]
    {
        assert_eq!(books.missing(LedgerFilter { since_ms, until_ms }).unwrap(), expected);
    }
    let store = bench.open();
    wait(store.commit(Batch { forget_ledger: Some(last_ms), ..Batch::default() })).unwrap();
    bench
        .database()
        .execute_batch("CREATE TRIGGER full BEFORE INSERT ON ledger BEGIN SELECT raise(ABORT, 'full'); END")
        .unwrap();
    assert!(wait(store.commit(record(1, "b"))).is_err());
    drop(store);
    assert_eq!(books.missing(LedgerFilter::default()).unwrap(), 2, "one was forgotten, one came");
}

#[test]
fn texts_are_saved_before_they_are_cited() {
    let bench = Bench::new();
    let id = "0123456789abcdef0123456789abcdef";
    let save = Save { id: id.to_owned(), text: "full".to_owned() };
    let batch = Batch { saves: vec![save], ..decided(vec![stored("m", 0, "m", "short")], 1) };
    // A file stands where the folder should be.
    std::fs::write(bench.home.path().join("outputs"), "").unwrap();
    let store = bench.open();
    let refused = wait(store.commit(batch.clone()));
    assert!(matches!(refused, Err(StoreError::File(_))), "{refused:?}");
    assert_eq!(store.decisions(&[chain("m")]).unwrap(), []);
    std::fs::remove_file(bench.home.path().join("outputs")).unwrap();
    wait(store.commit(batch)).unwrap();
    assert_eq!(bench.outputs().read(id).unwrap().as_deref(), Some(&b"full"[..]));
    assert_eq!(store.decisions(&[chain("m")]).unwrap().len(), 1);
}

#[test]
fn old_texts_are_swept() {
    let bench = Bench::new();
    let store = bench.open();
    let id = |n: u32| format!("{n:032x}");
    let put = |n: u32, at_ms| {
        let saves = vec![Save { id: id(n), text: format!("text {n}") }];
        wait(store.commit(Batch { saves, at_ms, ..Batch::default() })).unwrap();
    };
    (1..=4).for_each(|n| put(n, i64::from(n) * 100));
    wait(store.commit(Batch { touch: vec![id(1)], at_ms: 1000, ..Batch::default() })).unwrap();
    put(2, 50);
    // A folder with a file in it cannot be removed like a file: it stays in the list.
    std::fs::remove_file(bench.outputs().path(&id(3))).unwrap();
    std::fs::create_dir(bench.outputs().path(&id(3))).unwrap();
    let sweep =
        || wait(store.commit(Batch { forget_outputs: Some(400), at_ms: 2000, ..Batch::default() })).unwrap();
    sweep();
    wait(store.commit(Batch::default())).unwrap();
    let there = || -> Vec<bool> { (1..=4).map(|n| bench.outputs().path(&id(n)).exists()).collect() };
    assert_eq!(there(), [true, false, true, true]);
    std::fs::remove_dir(bench.outputs().path(&id(3))).unwrap();
    sweep();
    wait(store.commit(Batch::default())).unwrap();
    let listed: i64 =
        bench.database().query_row("SELECT COUNT(*) FROM outputs", [], |row| row.get(0)).unwrap();
    assert_eq!((there(), listed), (vec![true, false, false, true], 2));
}

#[test]
fn records_are_logged_in_order_whatever_is_booked_beside_them() {
    let bench = Bench::new();
    let row = |id: &str, conversation: &str| LedgerRow {
        id: id.to_owned(),
        conversation: conversation.to_owned(),
        line: id.to_owned(),
        ..LedgerRow::default()
    };
    let store = bench.open();
    for rows in [vec![row("1", "b"), row("2", "a"), row("3", "b")], vec![row("4", "b")]] {
        assert!(store.later(Batch { ledger: rows, ..Batch::default() }));
    }
    drop(store);
    let log = |name: &str| std::fs::read_to_string(bench.home.path().join("logs").join(name)).unwrap();
    assert_eq!(["a.jsonl", "b.jsonl"].map(log), ["2\n", "1\n3\n4\n"]);
}

#[test]
fn records_are_booked_once_and_forgotten() {
    let bench = Bench::new();
    let store = bench.open();
    let row = |id: &str, at_ms| LedgerRow {
        id: id.to_owned(),
        at_ms,
        conversation: "c".to_owned(),
        record: format!("{{\"id\":\"{id}\"}}"),
        ..LedgerRow::default()
    };
    let book = |rows: Vec<LedgerRow>| wait(store.commit(Batch { ledger: rows, ..Batch::default() })).unwrap();
    book(vec![row("a", 1), row("b", 2)]);
    book(vec![row("a", 9)]);
    wait(store.commit(Batch { forget_ledger: Some(2), ..Batch::default() })).unwrap();
    let count: i64 = bench.database().query_row("SELECT COUNT(*) FROM ledger", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 1);
}

fn spliced(at: &str, since: &str, text: &str) -> StoredSplice {
    let splice = Splice {
        rule: "note".into(),
        drops: [(1, 3)].into(),
        layout: Layout::Answer,
        at: PartId { message: 3, part: 0 },
        leaf: 0,
        text: text.into(),
        bytes_before: 9,
        bytes_after: text.len() as u64,
        output: None,
    };
    StoredSplice { chain: chain(at), since: chain(since), root: chain("root"), splice: splice.into() }
}

/// What was refused can be decided anew; else the first decision stands.
#[test]
fn a_refused_decision_is_overruled() {
    let bench = Bench::new();
    let store = bench.open();
    let texts = |store: &Sqlite| -> Vec<StoredDecision> { store.decisions(&[chain("m")]).unwrap() };
    let kept = || -> u32 {
        let count = "SELECT COUNT(*) FROM replacements";
        bench.database().query_row(count, [], |row| row.get(0)).unwrap()
    };
    wait(store.commit(decided(vec![stored("m", 0, "m", "long")], 1))).unwrap();
    let shorter = vec![stored("m", 0, "m", "short")];
    assert!(matches!(wait(store.commit(decided(shorter.clone(), 2))), Err(StoreError::Raced)));
    wait(store.commit(Batch { overrule: true, ..decided(shorter.clone(), 2) })).unwrap();
    assert_eq!((texts(&store), kept()), (shorter.clone(), 1), "nothing is left of what was refused");
    // The same again, and what another decision is sent as too.
    wait(store.commit(Batch { overrule: true, ..decided(shorter.clone(), 3) })).unwrap();
    assert_eq!((texts(&store), kept()), (shorter, 1));
    wait(store.commit(decided(vec![stored("n", 0, "n", "short")], 4))).unwrap();
    let shortest = vec![stored("m", 0, "m", "")];
    wait(store.commit(Batch { overrule: true, ..decided(shortest.clone(), 5) })).unwrap();
    assert_eq!((texts(&store), kept()), (shortest, 2));
    assert_eq!(store.decisions(&[chain("n")]).unwrap(), [stored("n", 0, "n", "short")]);
}

/// The first splice under a history and since a request stands.
#[test]
fn splices_are_found_by_what_they_replace() {
    let bench = Bench::new();
    let batch = |splice: &StoredSplice| Batch { splices: vec![splice.clone()], ..Batch::default() };
    let (one, two, other) = (spliced("m", "n", "one"), spliced("m", "o", "two"), spliced("m", "n", "other"));
    {
        let store = bench.open();
        wait(store.commit(batch(&one))).unwrap();
        wait(store.commit(batch(&two))).unwrap();
        assert!(matches!(wait(store.commit(batch(&other))), Err(StoreError::Raced)));
    }
    let store = bench.open();
    assert_eq!(store.splices(&[chain("x"), chain("m")]).unwrap(), [one, two]);
    assert_eq!(store.splices(&[chain("n")]).unwrap(), []);
}

/// A splice that cannot be read hides no other.
#[test]
fn damaged_splices_are_none() {
    for damage in [
        "splice = 'nonsense'",
        "splice = replace(splice, 'answer', 'unheard of')",
        "splice = x'ff'",
        "root = x'00'",
        "root = 'text'",
    ] {
        let bench = Bench::new();
        let store = bench.open();
        let (one, two) = (spliced("m", "n", "one"), spliced("m", "o", "two"));
        wait(store.commit(Batch { splices: vec![one.clone(), two], ..Batch::default() })).unwrap();
        let damage = format!("UPDATE splices SET {damage} WHERE since = ?1");
        assert_eq!(bench.database().execute(&damage, [chain("o").0.0]).unwrap(), 1);
        assert_eq!(store.splices(&[chain("m")]).unwrap(), [one], "{damage}");
    }
}

#[test]
fn damaged_rows_are_errors() {
    for (damage, broken) in [
        ("UPDATE replacements SET leaves = 'nonsense'", "decisions"),
        ("UPDATE replacements SET leaves = '[[0]]'", "decisions"),
        ("UPDATE decisions SET since = x'00'", "decisions"),
        ("UPDATE decisions SET content = x''", "decisions"),
        ("UPDATE decisions SET root = x'00'", "decisions"),
        ("UPDATE decisions SET bytes_before = -1", "decisions"),
        ("UPDATE decisions SET rules = x'ff'", "decisions"),
        ("UPDATE threads SET head = x'0011'", "threads"),
        ("UPDATE threads SET head = 'text'", "threads"),
        ("UPDATE threads SET at_ms = 'text'", "threads"),
    ] {
        let bench = Bench::new();
        let store = bench.open();
        let batch =
            Batch { threads: vec![thread("t", "m", 1)], ..decided(vec![stored("m", 0, "m", "x")], 1) };
        wait(store.commit(batch)).unwrap();
        bench.database().execute_batch(damage).unwrap();
        assert_eq!(store.decisions(&[chain("m")]).is_err(), broken == "decisions", "{damage}");
        assert_eq!(store.thread("t").is_err(), broken == "threads", "{damage}");
        assert_eq!(store.session("s").is_err(), broken == "threads", "{damage}");
    }
}

fn summary(name: &str, thread: &str, at_ms: i64) -> Summary {
    Summary {
        chain: chain(name),
        end: 7,
        thread: thread.to_owned(),
        conversation: "c".to_owned(),
        goal: "goal".to_owned(),
        text: format!("text of {name}"),
        outline: "## Done\nall".to_owned(),
        model: "m".to_owned(),
        recipe: Digest::of(&[b"recipe"]),
        generation: 2,
        score: Some(0.25),
        at_ms,
    }
}

#[test]
fn the_newest_summary_of_a_thread_is_found() {
    let bench = Bench::new();
    let store = bench.open();
    let unscored = Summary { score: None, ..summary("c", "other", 9) };
    let summaries = vec![summary("a", "t", 1), summary("b", "t", 2), unscored.clone()];
    wait(store.commit(Batch { summaries, ..Batch::default() })).unwrap();
    drop(store);
    let store = bench.open();
    assert_eq!(store.summary("t").unwrap(), Some(summary("b", "t", 2)));
    assert_eq!(store.summary("other").unwrap(), Some(unscored));
    assert_eq!(store.summary("nobody").unwrap(), None);
    let again = Summary { text: "better".to_owned(), ..summary("a", "t", 3) };
    wait(store.commit(Batch { summaries: vec![again.clone()], ..Batch::default() })).unwrap();
    assert_eq!(store.summary("t").unwrap(), Some(again));
    bench.database().execute_batch("UPDATE summaries SET chain = x'00' || hex(chain)").unwrap();
    assert!(store.summary("t").is_err());
}
