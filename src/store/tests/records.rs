//! Full texts and records: saved before they are cited, booked once, and forgotten with age.

use super::*;

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
    // What is known later stands in its place.
    book(vec![LedgerRow { cost: Some(7), record: "{}".to_owned(), ..row("b", 9) }]);
    wait(store.commit(Batch { forget_ledger: Some(2), ..Batch::default() })).unwrap();
    let sums = "SELECT count(*), sum(at_ms), sum(cost), max(record) FROM ledger";
    let columns = |row: &rusqlite::Row<'_>| row.try_into();
    let left: (i64, i64, i64, String) = bench.database().query_row(sums, [], columns).unwrap();
    assert_eq!(left, (1, 2, 7, "{}".to_owned()));
}
