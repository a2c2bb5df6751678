//! What the store removes of threads that rest, and that nothing is missed of those that do not.

use rusqlite::Connection;
use rusqlite::types::ValueRef;

use super::splices::splice;
use super::*;
use crate::planner::Splice;
use crate::store::CommitError;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// How long things are kept.
const KEPT_MS: i64 = 5 * DAY_MS;
/// Turns that a sweep of a small store takes, and some more.
const TURNS: usize = 20;

/// What one request adds.
#[derive(Default)]
struct Fresh<'a> {
    decided: &'a [Applied],
    splice: Option<Arc<Splice>>,
}

impl Desk {
    fn place_at(&self, now_ms: i64, request: &Conversation) -> Place {
        let id = || {
            self.ids.set(self.ids.get() + 1);
            format!("thread-{}", self.ids.get())
        };
        self.lineage.place(request, (self.root, self.root), &session("s"), &id, now_ms).unwrap()
    }

    /// A request leaves as the gateway has it leave.
    fn send_at(&self, now_ms: i64, request: &Conversation, fresh: &Fresh<'_>) -> Result<Place, CommitError> {
        let place = self.place_at(now_ms, request);
        let applied: Arc<[Applied]> = [&place.applied, fresh.decided].concat().into();
        let decides = !fresh.decided.is_empty() || fresh.splice.is_some();
        if decides || place.relation != Relation::Retry {
            let mut batch = self.lineage.batch(&place, &applied, fresh.decided.len(), now_ms);
            let splice = fresh.splice.as_ref();
            if let Some(splice) = splice {
                self.lineage.event_in(&mut batch, request, &place, &[], Some(splice));
            }
            self.try_commit(batch)?;
        } else if let Some(batch) = self.lineage.again(&place, now_ms) {
            self.commit(batch);
        }
        let splice = fresh.splice.clone().or_else(|| place.splice.clone());
        self.lineage.sent(request, &place, applied, splice, now_ms);
        Ok(place)
    }

    fn go_on_at(&self, now_ms: i64, request: &str) -> Place {
        self.send_at(now_ms, &talk(request), &Fresh::default()).unwrap()
    }

    fn try_commit(&self, batch: Batch) -> Result<(), CommitError> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(self.store.commit(batch))
    }

    /// The hourly sweep, and all of it.
    fn sweep_at(&self, now_ms: i64) {
        let late = super::super::NOTED_EVERY.as_millis() as i64;
        let forget_threads = Some(now_ms - KEPT_MS - late);
        self.commit(Batch { forget_threads, at_ms: now_ms, ..Batch::default() });
        (0..TURNS).for_each(|_| self.commit(Batch::default()));
    }

    fn database(&self) -> Connection {
        Connection::open(self.home.as_ref().unwrap().path().join("a.db")).unwrap()
    }

    /// How many rows of each table have a text in one of their columns; of all tables that have any.
    fn rows_with(&self, text: &str) -> Vec<(String, usize)> {
        let database = self.database();
        let mut tables = database.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'").unwrap();
        let tables: Vec<String> =
            tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        let count = |table: &String| {
            let mut rows = database.prepare(&format!("SELECT * FROM {table}")).unwrap();
            let columns = rows.column_count();
            let has = |value: ValueRef<'_>| {
                value.as_bytes().is_ok_and(|bytes| String::from_utf8_lossy(bytes).contains(text))
            };
            let found =
                rows.query_map([], |row| Ok((0..columns).any(|at| row.get_ref(at).is_ok_and(has)))).unwrap();
            found.filter(|found| *found.as_ref().unwrap()).count()
        };
        tables
            .into_iter()
            .map(|table| (table.clone(), count(&table)))
            .filter(|(_, count)| *count > 0)
            .collect()
    }
}

/// What represents a place in comparisons.
fn held(place: &Place) -> (Vec<String>, Option<String>) {
    (texts(place), place.splice.as_ref().map(|splice| splice.text.to_string()))
}

/// The knowledge that nothing was decided is kept as long.
#[test]
fn a_repeated_request_without_decisions_is_not_swept() {
    let desk = Desk::new();
    desk.sweep_at(0);
    for day in 0..4 * KEPT_MS / DAY_MS {
        let now_ms = day * DAY_MS + 10 * HOUR_MS;
        let place = desk.restarted().go_on_at(now_ms, "u c1 r1:long");
        assert_eq!(place.relation == Relation::New, day == 0, "{day}");
        desk.sweep_at(now_ms);
    }
}

/// A thread that is used for longer than the retention, by gateways that remember it and by others, keeps all that it
/// relies on; so does one that only makes the same request again and again, and one that branched from an idle thread.
#[test]
fn threads_in_use_keep_their_decisions_and_splices() {
    let first = Desk::new();
    first.sweep_at(0);
    let step = "u c1 r1:long c2 r2:long c3 r3";
    let request = talk(step);
    let new = [decided(&request, 2, "new"), decided(&request, 4, "first")];
    first.send_at(0, &request, &Fresh { decided: &new, splice: None }).unwrap();
    let again = talk("u:again c1 r1:long");
    first.send_at(0, &again, &Fresh { decided: &[decided(&again, 2, "again")], splice: None }).unwrap();
    let event = format!("{step} a u:more");
    let body = talk(&event);
    first.send_at(1, &body, &Fresh { decided: &[decided(&body, 4, "event")], splice: None }).unwrap();
    let mut main = format!("{event} a u:on a u:on");
    let cut = Fresh { decided: &[], splice: Some(splice(4, "note")) };
    first.send_at(2, &talk(&main), &cut).unwrap();
    // It branches before the splice, and has events of its own.
    let mut branch = format!("{event} b u:branch");
    let body = talk(&branch);
    first.send_at(3, &body, &Fresh { decided: &[decided(&body, 6, "branch")], splice: None }).unwrap();
    let mut rests = String::new();
    for day in 0..4 * KEPT_MS / DAY_MS {
        let now_ms = day * DAY_MS + 10 * HOUR_MS;
        let anew = first.restarted();
        for desk in [&first, &anew] {
            if now_ms < 2 * KEPT_MS {
                assert_eq!(held(&desk.go_on_at(now_ms, &main)).1.as_deref(), Some("note"), "{day}");
                rests.clone_from(&main);
                main.push_str(" a u:on");
            }
            let place = desk.go_on_at(now_ms, &branch);
            branch.push_str(" a u:on");
            let expected = ["2:new", "4:event", "6:branch"].map(str::to_owned);
            assert_eq!(held(&place), (expected.to_vec(), None), "{day}");
            assert!(place.relation != Relation::New && place.sent > 7, "{day}");
            let place = desk.go_on_at(now_ms, "u:again c1 r1:long");
            assert_eq!(
                (place.relation, held(&place).0),
                (Relation::Retry, vec!["2:again".to_owned()]),
                "{day}"
            );
        }
        first.sweep_at(now_ms);
        first.sweep_at(now_ms + HOUR_MS);
    }
    // What only the idle one had is gone, and both continue.
    assert_eq!(first.rows_with("note"), []);
    let now_ms = 4 * KEPT_MS;
    for desk in [&first.restarted(), &first] {
        let place = desk.place_at(now_ms, &talk(&rests));
        assert_eq!(place.splice, None);
        assert_eq!(texts(&desk.place_at(now_ms, &talk(&branch))), ["2:new", "4:event", "6:branch"]);
        // A client that goes back to the event is sent what the branch still is.
        let back = desk.place_at(now_ms, &talk(&format!("{event} c u:else")));
        assert_eq!(texts(&back), ["2:new", "4:event"]);
    }
}

/// A thread that was idle for longer than the retention is forgotten, whatever the gateway remembers of it: its next
/// request begins a new thread half-way, which then is a thread like any other.
#[test]
fn idle_threads_are_swept_after_the_retention() {
    for restarts in [false, true] {
        for until in [KEPT_MS - HOUR_MS, KEPT_MS + 3 * DAY_MS] {
            let first = Desk::new();
            first.sweep_at(0);
            let request = talk("u:secret c1 r1:long c2 r2:long a u:more");
            let new = [decided(&request, 2, "new secret"), decided(&request, 4, "other secret")];
            first.send_at(1, &request, &Fresh { decided: &new, splice: None }).unwrap();
            let longer = "u:secret c1 r1:long c2 r2:long a u:more a u:on";
            let cut = Fresh { decided: &[], splice: Some(splice(4, "secret note")) };
            first.send_at(2, &talk(longer), &cut).unwrap();
            // Another thread keeps the store busy.
            for day in 0..=until / DAY_MS {
                first.go_on_at(day * DAY_MS, &format!("u:other{}", " a u:on".repeat(day as usize)));
                first.sweep_at(day * DAY_MS);
            }
            let anew = first.restarted();
            let desk = if restarts { &anew } else { &first };
            let next = talk(&format!("{longer} a u:late"));
            if until < KEPT_MS {
                let place = desk.place_at(until, &next);
                assert_eq!(
                    held(&place),
                    (
                        vec!["2:new secret".to_owned(), "4:other secret".to_owned()],
                        Some("secret note".to_owned())
                    )
                );
                continue;
            }
            assert_eq!(first.rows_with("secret"), [], "{restarts}");
            // The session's other thread names it as its parent.
            assert_eq!(first.rows_with("thread-1"), [("threads".to_owned(), 1)]);
            let fresh = [decided(&next, 2, "again")];
            let place = desk.send_at(until, &next, &Fresh { decided: &fresh, splice: None }).unwrap();
            assert_eq!((place.relation, place.sent, held(&place)), (Relation::New, 0, (vec![], None)));
            for desk in [desk, &desk.restarted()] {
                let place = desk.place_at(until + 1, &talk(&format!("{longer} a u:late a u:more")));
                assert_eq!(
                    (place.relation, held(&place)),
                    (Relation::Continue, (vec!["2:again".to_owned()], None))
                );
            }
        }
    }
}

/// After the clock is set back, uses noted at what is now a later time do not count.
#[test]
fn uses_are_noted_after_the_clock_is_set_back() {
    let desk = Desk::new();
    let request = talk("u c1 r1:long");
    let fresh = [decided(&request, 2, "new")];
    desk.send_at(100 * DAY_MS, &request, &Fresh { decided: &fresh, splice: None }).unwrap();
    for (ago, expected) in [(HOUR_MS / 2, false), (2 * HOUR_MS, true), (90 * DAY_MS, true)] {
        let now_ms = 100 * DAY_MS - ago;
        let place = desk.place_at(now_ms, &request);
        assert_eq!(desk.lineage.again(&place, now_ms).is_some(), expected, "{ago}");
    }
}

/// Nothing is removed until it is known what is in use, that is until uses have been noted for as long as the
/// retention.
#[test]
fn sweeps_remove_nothing_until_uses_were_noted_for_the_retention() {
    let first = Desk::new();
    let request = talk("u c1 r1:long");
    first.send_at(0, &request, &Fresh { decided: &[decided(&request, 2, "old")], splice: None }).unwrap();
    let days = |from: i64, to: i64| (from..to).for_each(|day| first.sweep_at(day * DAY_MS));
    // The first sweep, long after; and again after nearly the retention without one.
    for from in [100, 200] {
        days(from, from + 6);
        assert_eq!(first.rows_with("old").len(), 1);
    }
    days(206, 208);
    assert_eq!(first.rows_with("old"), []);
}

/// An older gateway on the same store does not note uses; a thread that it continues is kept all the same.
#[test]
fn threads_continued_by_older_gateways_are_not_swept() {
    let first = Desk::new();
    first.sweep_at(0);
    let mut said = "u c1 r1:long".to_owned();
    let request = talk(&said);
    first.send_at(0, &request, &Fresh { decided: &[decided(&request, 2, "new")], splice: None }).unwrap();
    for day in 0..3 * KEPT_MS / DAY_MS {
        let older = first.restarted();
        said.push_str(" a u:on");
        let request = talk(&said);
        let place = older.place_at(day * DAY_MS, &request);
        assert_eq!(texts(&place), ["2:new"], "{day}");
        let batch = older.lineage.batch(&place, &place.applied, 0, day * DAY_MS);
        older.commit(Batch { used: None, ..batch });
        first.sweep_at(day * DAY_MS);
    }
}

/// What a branch shares with a removed thread is still known to have been sent: a client that goes back there gets it
/// unchanged.
#[test]
fn the_shared_prefix_of_a_branch_survives_its_swept_parent() {
    let first = Desk::new();
    first.sweep_at(0);
    let shared = "u c1 r1:long a u:more";
    for request in ["u", "u c1 r1:long", shared, &format!("{shared} a u:end")] {
        first.go_on_at(0, request);
    }
    let mut branch = format!("{shared} b u:else");
    let mut now_ms = 0;
    for day in 0..2 * KEPT_MS / DAY_MS {
        now_ms = day * DAY_MS + 10 * HOUR_MS;
        first.go_on_at(now_ms, &branch);
        branch.push_str(" a u:on");
        first.sweep_at(now_ms);
    }
    assert_eq!(first.store.thread("thread-1").unwrap(), None);
    for back in ["u c1 r1:long", shared] {
        let body = talk(&format!("{back} c u:back"));
        let event = [decided(&body, 2, "event")];
        let desk = first.restarted();
        let place = desk.send_at(now_ms, &body, &Fresh { decided: &event, splice: None }).unwrap();
        assert_eq!(place.sent, talk(back).messages.len(), "{back}");
        assert_eq!(texts(&first.restarted().place_at(now_ms, &talk(&branch))), [""; 0], "{back}");
    }
}
