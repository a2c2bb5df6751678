//! Splices: found by what they replace; the first one is kept.

use super::*;

/// The first splice for a history from a request on is kept.
#[test]
fn the_first_splice_of_a_history_and_request_is_kept() {
    let bench = Bench::new();
    let batch = |splice: &StoredSplice| Batch { splices: vec![splice.clone()], ..Batch::default() };
    let (one, two, other) = (spliced("m", "n", "one"), spliced("m", "o", "two"), spliced("m", "n", "other"));
    {
        let store = bench.open();
        wait(store.commit(batch(&one))).unwrap();
        wait(store.commit(batch(&two))).unwrap();
        assert!(matches!(wait(store.commit(batch(&other))), Err(CommitError::Raced)));
    }
    let store = bench.open();
    assert_eq!(store.splices(&[chain("x"), chain("m")]).unwrap(), [one, two]);
    assert_eq!(store.splices(&[chain("n")]).unwrap(), []);
}

/// A splice that cannot be read does not hide others.
#[test]
fn a_damaged_splice_does_not_hide_others() {
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
