//! Full texts and records: saved before they are cited, booked once, and removed with age.

use super::*;

#[test]
fn no_decision_is_stored_if_its_full_text_cannot_be_saved() {
    let bench = Bench::new();
    let id = "0123456789abcdef0123456789abcdef";
    let save = Save { id: id.to_owned(), text: "full".to_owned() };
    let batch = Batch { saves: vec![save], ..decided(vec![stored("m", 0, "m", "short")], 1) };
    // There is a file in place of the folder.
    std::fs::write(bench.home.path().join("outputs"), "").unwrap();
    let store = bench.open();
    let refused = wait(store.commit(batch.clone()));
    assert!(matches!(refused, Err(CommitError::Store(StoreError::File(_)))), "{refused:?}");
    assert_eq!(store.decisions(&[chain("m")]).unwrap(), []);
    std::fs::remove_file(bench.home.path().join("outputs")).unwrap();
    wait(store.commit(batch)).unwrap();
    assert_eq!(bench.outputs().read(id).unwrap().as_deref(), Some(&b"full"[..]));
    assert_eq!(store.decisions(&[chain("m")]).unwrap().len(), 1);
}

/// For a day, unless something else becomes known.
#[test]
fn stored_windows_expire_after_a_day_and_are_bounded() {
    const DAY: i64 = 24 * 3_600_000;
    let bench = Bench::new();
    let store = bench.open();
    let window = |model: &str, tokens, at_ms| StoredWindow {
        upstream: "http://u".to_owned(),
        model: model.to_owned(),
        tokens,
        at_ms,
    };
    for (at_ms, model, tokens) in [
        (1, "m", Some(1000)),
        (2, "n", Some(u64::MAX)),
        (3, "o", Some(3000)),
        (4, "m", Some(500)),
        (5, "o", None),
        (6, "p", None),
    ] {
        wait(store.commit(Batch { windows: vec![window(model, tokens, at_ms)], ..Batch::default() }))
            .unwrap();
    }
    let (m, n) = (window("m", Some(500), 4), window("n", Some(i64::MAX as u64), 2));
    for (now_ms, expected) in
        [(0, &[n.clone(), m.clone()][..]), (DAY + 2, &[n, m.clone()]), (DAY + 4, &[m]), (DAY + 5, &[])]
    {
        assert_eq!(store.windows(now_ms).unwrap(), expected, "{now_ms}");
    }
    let at_ms = 2 * DAY;
    let q = window("q", Some(9), at_ms);
    wait(store.commit(Batch { windows: vec![q.clone()], ..Batch::default() })).unwrap();
    assert_eq!(store.windows(0).unwrap(), [q], "what is too old is gone");
    for (model, at_ms) in (0..300).zip(at_ms + 1..) {
        let windows = vec![window(&i32::to_string(&model), Some(9), at_ms)];
        wait(store.commit(Batch { windows, ..Batch::default() })).unwrap();
    }
    let kept = store.windows(0).unwrap();
    let ends = (&*kept[0].model, &*kept[kept.len() - 1].model);
    assert_eq!((kept.len(), ends), (256, ("44", "299")), "those that were told last");
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
fn records_are_logged_in_order_per_conversation() {
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
fn records_are_stored_once_updated_and_removed_by_age() {
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
    // What becomes known later replaces it.
    book(vec![LedgerRow { cost: Some(7), record: "{}".to_owned(), ..row("b", 9) }]);
    wait(store.commit(Batch { forget_ledger: Some(2), ..Batch::default() })).unwrap();
    let sums = "SELECT count(*), sum(at_ms), sum(cost), max(record) FROM ledger";
    let columns = |row: &rusqlite::Row<'_>| row.try_into();
    let left: (i64, i64, i64, String) = bench.database().query_row(sums, [], columns).unwrap();
    assert_eq!(left, (1, 2, 7, "{}".to_owned()));
}

/// What is missing from histories is kept for a limited time, and for a limited number: the latest.
#[test]
fn tokens_lacking_in_histories_expire_and_are_bounded() {
    const DAY: i64 = 24 * 3_600_000;
    let bench = Bench::new();
    let store = bench.open();
    let history = |name: &str| Digest::of(&[name.as_bytes()]);
    let said = |name: &str, tokens, at_ms| StoredLacking { history: history(name), tokens, at_ms };
    let put = |lacking: Vec<StoredLacking>| {
        wait(store.commit(Batch { lacking, ..Batch::default() })).unwrap();
    };
    put(vec![said("a", Some(1000), 1), said("b", None, 2)]);
    put(vec![said("a", Some(u64::MAX), 3)]);
    let (a, b) = (said("a", Some(i64::MAX as u64), 3), said("b", None, 2));
    for (name, now_ms, expected) in [
        ("a", 0, Some(a)),
        ("a", 90 * DAY + 3, Some(a)),
        ("a", 90 * DAY + 4, None),
        ("b", 90 * DAY + 2, Some(b)),
        ("b", 90 * DAY + 3, None),
        ("c", 0, None),
    ] {
        assert_eq!(store.lacking(history(name), now_ms).unwrap(), expected, "{name} {now_ms}");
    }
    put(vec![said("c", Some(9), 91 * DAY)]);
    let left = ["a", "b", "c"].map(|name| store.lacking(history(name), 0).unwrap().is_some());
    assert_eq!(left, [false, false, true], "what is too old is gone");
    let many: Vec<_> = (0..(1 << 16) + 9).map(|at| said(&at.to_string(), Some(9), 92 * DAY)).collect();
    many.chunks(10_000).for_each(|some| put(some.to_vec()));
    let left = ["c", "8", "9", "65544"].map(|name| store.lacking(history(name), 0).unwrap().is_some());
    assert_eq!(left, [false, false, true, true]);
}
