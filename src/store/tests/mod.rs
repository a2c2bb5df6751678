//! The SQLite store: what is stored is found again, whoever else uses the store and whatever fails. This file is about
//! decisions.

mod opening;
mod overlay;
mod queue;
mod records;
mod splices;

use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use tempfile::TempDir;

use super::*;
use crate::conversation::{Digest, PartId};
use crate::plan::LeafEdit;
use crate::planner::{Cause, Decision, Layout, Save, Splice};

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

    /// Another connection to the store's database.
    fn database(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }
}

/// What is logged by this thread.
pub(super) fn logged(level: tracing::Level, work: impl FnOnce()) -> String {
    let log = tempfile::NamedTempFile::new().unwrap();
    let file = Arc::new(log.reopen().unwrap());
    let subscriber = tracing_subscriber::fmt().with_max_level(level).with_ansi(false).with_writer(file);
    tracing::subscriber::with_default(subscriber.finish(), work);
    std::fs::read_to_string(log.path()).unwrap()
}

fn wait(stored: Stored) -> Result<(), CommitError> {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(stored)
}

fn chain(name: &str) -> Chain {
    Chain(Digest::of(&[name.as_bytes()]))
}

fn decision(text: &str, key: Option<&str>) -> Decision {
    let content = Digest::of(&[b"content"]);
    Decision {
        cause: Cause::parse("escapes+truncate"),
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
        refused: None,
        at_ms,
    }
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
        output: None,
    };
    StoredSplice { chain: chain(at), since: chain(since), root: chain("root"), splice: splice.into() }
}

#[test]
fn rows_round_trip() {
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
    let found = [("t1", &given.threads[0]), ("t2", &given.threads[1])];
    let found = found.map(|(id, thread)| (boundary("m", id), Some(thread.clone())));
    assert_eq!(store.boundaries(&[chain("n"), chain("m")], None).unwrap(), found);
    assert_eq!(store.boundaries(&[chain("n")], None).unwrap(), []);
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
    put(Thread { observe: true, refused: Some(chain("edited")), ..thread("t", "two", 7) });
    put(thread("t", "three", 6));
    for found in [store.thread("t"), store.session("s")] {
        let found = found.unwrap().unwrap();
        assert_eq!((found.head, found.observe, found.at_ms), (chain("three"), true, 7));
        assert_eq!(found.refused, Some(chain("edited")));
    }
}

/// A decision is made once. A later one about the same part applies from another request on, or comes too late.
#[test]
fn the_first_decision_about_a_part_is_kept() {
    let bench = Bench::new();
    let (one, two) = (bench.open(), bench.open());
    wait(one.commit(decided(vec![stored("m", 0, "m", "first")], 1))).unwrap();
    let raced =
        wait(two.commit(decided(vec![stored("x", 0, "x", "lost"), stored("m", 0, "m", "second")], 2)));
    assert!(matches!(raced, Err(CommitError::Raced)), "{raced:?}");
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
    assert_eq!(store.known_decisions(chain("root"), &[key]).unwrap(), [None]);
    wait(store.commit(decided(vec![stored("m", 0, "m", "old")], 1))).unwrap();
    wait(store.commit(decided(vec![stored("n", 0, "n", "new")], 2))).unwrap();
    let keyless = Arc::new(decision("keyless", None));
    wait(store.commit(decided(vec![StoredDecision { decision: keyless, ..stored("o", 0, "o", "") }], 3)))
        .unwrap();
    let new = || Some(stored("n", 0, "n", "new"));
    assert_eq!(store.known_decisions(chain("root"), &[key, other, key]).unwrap(), [new(), None, new()]);
    assert_eq!(store.known_decisions(chain("other root"), &[key]).unwrap(), [None]);
    assert_eq!(store.known_decisions(chain("root"), &[]).unwrap(), []);
}

/// A row that cannot be read does not hide others.
#[test]
fn a_damaged_row_does_not_hide_other_known_decisions() {
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
    assert_eq!(store.known_decisions(chain("root"), &keys).unwrap(), rows());
    let damage = "UPDATE decisions SET rules = x'ff' WHERE chain = ?1";
    assert_eq!(bench.database().execute(damage, [chain("m").0.0]).unwrap(), 1);
    let [_, second] = rows();
    assert_eq!(store.known_decisions(chain("root"), &keys).unwrap(), [None, second]);
}

/// What was rejected can be decided again; otherwise the first decision is kept.
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
    assert!(matches!(wait(store.commit(decided(shorter.clone(), 2))), Err(CommitError::Raced)));
    wait(store.commit(Batch { overrule: true, ..decided(shorter.clone(), 2) })).unwrap();
    assert_eq!((texts(&store), kept()), (shorter.clone(), 1), "nothing is left of what was refused");
    // The same text again, and one that another decision is sent as too.
    wait(store.commit(Batch { overrule: true, ..decided(shorter.clone(), 3) })).unwrap();
    assert_eq!((texts(&store), kept()), (shorter, 1));
    wait(store.commit(decided(vec![stored("n", 0, "n", "short")], 4))).unwrap();
    let shortest = vec![stored("m", 0, "m", "")];
    wait(store.commit(Batch { overrule: true, ..decided(shortest.clone(), 5) })).unwrap();
    assert_eq!((texts(&store), kept()), (shortest, 2));
    assert_eq!(store.decisions(&[chain("n")]).unwrap(), [stored("n", 0, "n", "short")]);
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
    // The clock was set back: what is stored last is the newest, and so is what replaces it.
    let late = Summary { at_ms: 4, ..summary("d", "t", 1) };
    for at_ms in [1, 0, 4] {
        wait(store.commit(Batch { summaries: vec![summary("d", "t", at_ms)], ..Batch::default() })).unwrap();
        assert_eq!(store.summary("t").unwrap(), Some(late.clone()), "{at_ms}");
    }
    bench.database().execute_batch("UPDATE summaries SET chain = x'00' || hex(chain)").unwrap();
    assert!(store.summary("t").is_err());
}
