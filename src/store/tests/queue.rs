//! What waits to be stored: batches that fail, are withdrawn, or find no room.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::*;

/// Batches that wait together are one transaction, but one that fails only affects itself.
#[test]
fn a_failing_batch_does_not_affect_others_of_its_transaction() {
    let bench = Bench::new();
    let store = bench.open();
    wait(store.commit(decided(vec![stored("m", 0, "m", "first")], 1))).unwrap();
    // While somebody else writes, batches accumulate.
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

/// Nobody was promised that it would be stored: it must not be, or the store would differ from what was sent.
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
fn a_full_queue_refuses_further_batches() {
    let bench = Bench::new();
    let store = Sqlite::open(&bench.path(), bench.outputs(), bench.home.path().join("logs"), 1).unwrap();
    let other = bench.database();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    // One group is being written, one batch waits: nothing else is accepted.
    let mut waiting = Vec::new();
    let refused = loop {
        let mut stored = store.commit(decided(Vec::new(), 1));
        match Pin::new(&mut stored).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => break done,
            Poll::Pending => waiting.push(stored),
        }
        assert!(waiting.len() < 1000, "the queue has no end");
    };
    assert!(matches!(refused, Err(CommitError::Full)), "{refused:?}");
    other.execute_batch("COMMIT").unwrap();
    assert!(waiting.into_iter().all(|stored| wait(stored).is_ok()));
}

/// Records that find no room or cannot be written are counted, and the count outlives the store.
#[test]
fn dropped_records_are_counted_beyond_a_restart() {
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
    assert_eq!(store.lost(), 3);
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
    assert_eq!(store.lost(), 1);
    drop(store);
    assert_eq!(books.missing(LedgerFilter::default()).unwrap(), 2, "one was forgotten, one came");
}
