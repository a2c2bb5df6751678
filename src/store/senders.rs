//! The threads that have sent a history.
//!
//! Any number of threads may begin with the same messages. The one that a request continues is looked for only among
//! the newest of them, and those of the request's session that were in use last. So the work of a request does not grow
//! with the number of threads. Decisions need no thread to be found: they are stored under the history itself.

use rusqlite::{Connection, params};

use super::StoreError;
use super::row::{Boundary, Thread};
use super::sqlite::thread_with_id;
use crate::conversation::Chain;

/// How many of the newest threads that sent a history are considered.
pub(super) const NEWEST_THREADS: usize = 16;
/// How many of a session's threads are considered, those in use last. The ones that have not sent the history are then
/// left out.
pub(super) const SESSION_THREADS: usize = 32;

/// The newest threads that sent a history: ids of threads begin with the time at which they were made.
const BY_HISTORY: &str = "SELECT thread FROM boundaries WHERE chain = ?1 ORDER BY thread DESC LIMIT ?2";

/// Of a session's threads in use last, those that sent a history. `CROSS JOIN` makes SQLite read the session's threads
/// first: many more may have sent the history.
const BY_SESSION: &str = "SELECT thread
                          FROM (SELECT id FROM threads WHERE session IS ?2 ORDER BY at_ms DESC LIMIT ?3)
                          CROSS JOIN boundaries ON chain = ?1 AND thread = id";

/// See [`super::Store::boundaries`].
pub(super) fn find(
    connection: &Connection,
    chains: &[Chain],
    session: Option<&str>,
) -> Result<Vec<(Boundary, Option<Thread>)>, StoreError> {
    let mut by_history = connection.prepare_cached(BY_HISTORY)?;
    for &chain in chains {
        let newest = by_history.query_map(params![chain.0.0, NEWEST_THREADS as u64], |row| row.get(0))?;
        let mut ids: Vec<String> = newest.collect::<Result<_, _>>()?;
        if ids.is_empty() {
            continue;
        }
        // If there are fewer, these are all.
        if ids.len() == NEWEST_THREADS {
            let mut by_session = connection.prepare_cached(BY_SESSION)?;
            let in_use = by_session
                .query_map(params![chain.0.0, session, SESSION_THREADS as u64], |row| row.get(0))?;
            for id in in_use {
                ids.push(id?);
            }
        }
        ids.sort_unstable();
        ids.dedup();
        let known = |id: String| {
            let thread = thread_with_id(connection, &id)?;
            Ok((Boundary { chain, thread: id }, thread))
        };
        return ids.into_iter().map(known).collect();
    }
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;
    use crate::conversation::Digest;
    use crate::store::schema;

    /// A store in which `threads` threads, each of a session of its own, have sent one history and one of their own.
    /// They were last used in the reverse order of their ids.
    fn crowd(connection: &Connection, threads: usize) -> Chain {
        let shared = Chain(Digest::of(&[b"shared"]));
        for n in 0..threads {
            let id = format!("{n:06}");
            let own = Digest::of(&[id.as_bytes()]);
            let row = params![id, format!("session {n}"), own.0, threads - n];
            connection
                .execute(
                    "INSERT INTO threads (id, conversation, session, head, at_ms) VALUES (?1, ?1, ?2, ?3, ?4)",
                    row,
                )
                .unwrap();
            for chain in [shared.0, own] {
                connection
                    .execute(
                        "INSERT INTO boundaries (chain, thread, at_ms) VALUES (?1, ?2, 0)",
                        params![chain.0, id],
                    )
                    .unwrap();
            }
        }
        shared
    }

    /// However many threads have sent a history, the same number is read, and the newest and the session's own are
    /// among them.
    #[test]
    fn lookup_cost_does_not_depend_on_the_number_of_threads() {
        let steps = |connection: &Connection| -> Vec<i32> {
            let steps = |statement| {
                connection.prepare_cached(statement).unwrap().reset_status(StatementStatus::VmStep)
            };
            vec![steps(BY_HISTORY), steps(BY_SESSION)]
        };
        let mut expected = None;
        for threads in [NEWEST_THREADS + 1, 100, 2000] {
            let connection = Connection::open_in_memory().unwrap();
            schema::prepare(&connection).unwrap();
            let shared = crowd(&connection, threads);
            let found = find(&connection, &[shared], Some("session 0")).unwrap();
            let ids: Vec<&str> = found.iter().map(|(boundary, _)| &*boundary.thread).collect();
            let mut newest: Vec<String> =
                (threads - NEWEST_THREADS..threads).map(|n| format!("{n:06}")).collect();
            newest.insert(0, "000000".to_owned());
            assert_eq!(ids, newest, "{threads}");
            assert!(found.iter().all(|(boundary, thread)| {
                boundary.chain == shared && thread.as_ref().is_some_and(|known| known.id == boundary.thread)
            }));
            let steps = steps(&connection);
            assert_eq!(*expected.get_or_insert_with(|| steps.clone()), steps, "{threads}");
        }
    }

    /// Whose threads are returned, of a hundred that have sent a history.
    #[test]
    fn the_newest_threads_and_those_of_the_session_are_found() {
        let connection = Connection::open_in_memory().unwrap();
        schema::prepare(&connection).unwrap();
        let shared = crowd(&connection, 100);
        let change = |sql: &str| {
            connection.execute(sql, []).unwrap();
        };
        // Nobody's, the first in use last; one that is gone; one that has sent something else.
        change("UPDATE threads SET session = NULL WHERE id < '000050'");
        change("DELETE FROM threads WHERE id = '000099'");
        change("DELETE FROM boundaries WHERE thread = '000003'");
        for (case, session, older) in [
            ("a session that has sent it", Some("session 60"), vec![60]),
            ("a session that has sent something else", Some("session 3"), vec![]),
            ("an unknown session", Some("session"), vec![]),
            ("no session", None, (0..SESSION_THREADS).filter(|n| *n != 3).collect()),
        ] {
            let found = find(&connection, &[shared], session).unwrap();
            let ids: Vec<&str> = found.iter().map(|(boundary, _)| &*boundary.thread).collect();
            let expected: Vec<String> =
                older.into_iter().chain(100 - NEWEST_THREADS..100).map(|n| format!("{n:06}")).collect();
            assert_eq!(ids, expected, "{case}");
            let gone = found.iter().filter(|(_, thread)| thread.is_none());
            assert_eq!(gone.map(|(boundary, _)| &*boundary.thread).collect::<Vec<_>>(), ["000099"], "{case}");
        }
    }
}
