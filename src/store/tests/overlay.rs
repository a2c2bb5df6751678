//! Decisions in memory above a store: found in addition to those of the store, and never stored.

use super::*;

fn root() -> Chain {
    chain("root")
}

fn key() -> PartKey {
    PartKey::of(Some("call"), Digest::of(&[b"content"])).unwrap()
}

#[test]
fn decisions_in_an_overlay_do_not_reach_the_store() {
    let bench = Bench::new();
    let below: Arc<dyn Store> = Arc::new(bench.open());
    let overlay = Overlay::above(Arc::clone(&below), 1 << 20);
    let real = stored("m", 0, "m", "real");
    wait(below.commit(decided(vec![real.clone()], 1))).unwrap();
    let newest = |store: &dyn Store| store.known_decisions(root(), &[key()]).unwrap().remove(0);
    assert_eq!(newest(&overlay).as_ref(), Some(&real));

    let one = stored("m", 1, "m", "one");
    wait(overlay.commit(decided(vec![one.clone()], 2))).unwrap();
    // The first decision is kept, and a batch is accepted as a whole or not at all.
    for again in [vec![stored("n", 0, "n", "lost"), stored("m", 1, "m", "again")], vec![one.clone()]] {
        assert!(matches!(wait(overlay.commit(decided(again, 3))), Err(CommitError::Raced)));
    }
    let later = stored("m", 1, "x", "later");
    wait(overlay.commit(decided(vec![later.clone()], 4))).unwrap();
    assert!(overlay.later(Batch { threads: vec![thread("t", "m", 5)], ..Batch::default() }));

    let chains = [chain("n"), chain("m")];
    assert_eq!(overlay.decisions(&chains).unwrap(), [real.clone(), one, later.clone()]);
    assert_eq!((newest(&overlay), overlay.thread("t").unwrap()), (Some(later), None));
    assert_eq!(below.decisions(&chains).unwrap(), std::slice::from_ref(&real));
    assert_eq!(newest(&*below), Some(real));
}

/// Calls with the same id and equal results: of simultaneous decisions, the overlay finds the same one as the store.
#[test]
fn an_overlay_finds_the_same_of_simultaneous_decisions_as_a_store() {
    for names in [["m", "n"], ["n", "m"], ["m", "m"]] {
        let (bench, empty) = (Bench::new(), Bench::new());
        let store: Arc<dyn Store> = Arc::new(bench.open());
        let overlay = Overlay::above(Arc::new(empty.open()), 1 << 20);
        let decisions =
            || (0..2).map(|at| stored(names[at], 1 - at as u32, names[at], &format!("{at}"))).collect();
        let found = [&*store, &overlay as &dyn Store].map(|store| {
            wait(store.commit(decided(decisions(), 1))).unwrap();
            store.known_decisions(root(), &[key()]).unwrap()
        });
        assert_eq!(found[0], found[1], "{names:?}");
    }
}

#[test]
fn an_overlay_is_bounded_by_evicting_unused_decisions() {
    let bench = Bench::new();
    let overlay = Overlay::above(Arc::new(bench.open()), 10_000);
    let name = |at: usize| format!("m{at}");
    for at in 0..100 {
        let text = "x".repeat(900);
        wait(overlay.commit(decided(vec![stored(&name(at), 0, &name(at), &text)], 1))).unwrap();
    }
    let known = |at: usize| !overlay.decisions(&[chain(&name(at))]).unwrap().is_empty();
    assert!(known(99) && !known(0), "what was used last is known");
    assert!((0..100).filter(|at| known(*at)).count() <= 10);
}
