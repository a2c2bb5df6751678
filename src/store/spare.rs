//! Gives free space of the database back to the file system, a little at a time.
//!
//! Removed rows leave free pages, which later writes use. Pages far in excess of what these need are given back.
//! A store that was created without `auto_vacuum` keeps all of them: giving them back would mean writing the whole file
//! anew, and nobody else could write in the meantime.

use rusqlite::Connection;

/// `PRAGMA auto_vacuum` of a store whose pages can be moved.
pub(super) const INCREMENTAL: i64 = 2;

/// The most pages that a step gives back: for each, two or three are written.
const STEP: i64 = 50;
// The next hours' records need some free pages.
/// The fewest free pages that stay.
const MIN_FREE: i64 = 128;
/// One free page stays for this many used ones.
const USED_PER_FREE: i64 = 8;

/// Takes a step. Returns whether there may be more. With the last step the file becomes shorter; if somebody still
/// reads its previous state, that happens later.
pub(super) fn give_back(connection: &Connection) -> rusqlite::Result<bool> {
    let pages = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let excess = || -> rusqlite::Result<i64> {
        let free = pages("freelist_count")?;
        Ok(free - MIN_FREE.max((pages("page_count")? - free) / USED_PER_FREE))
    };
    let before = excess()?;
    if before <= 0 || pages("auto_vacuum")? != INCREMENTAL {
        return Ok(false);
    }
    let mut statement = connection.prepare(&format!("PRAGMA incremental_vacuum({})", before.min(STEP)))?;
    let mut steps = statement.query([])?;
    while steps.next()?.is_some() {}
    drop(steps);
    let after = excess()?;
    let has_more = 0 < after && after < before;
    if !has_more {
        // A passive checkpoint waits for nobody.
        connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
    }
    Ok(has_more)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use rusqlite::params;

    use super::*;
    use crate::store::schema;

    const ROWS: usize = 4000;

    fn open(path: &Path) -> Connection {
        let connection = Connection::open(path).unwrap();
        schema::prepare(&connection).unwrap();
        connection
    }

    fn insert(connection: &Connection, id: usize) {
        connection
            .execute(
                "INSERT INTO ledger (id, at_ms, conversation, record) VALUES (?1, 0, 'c', ?2)",
                params![format!("{id:08}"), "x".repeat(1500)],
            )
            .unwrap();
    }

    fn fill(connection: &Connection) {
        connection.execute_batch("BEGIN").unwrap();
        (0..ROWS).for_each(|id| insert(connection, id));
        connection.execute_batch("COMMIT").unwrap();
    }

    fn count(connection: &Connection) -> usize {
        connection.query_row("SELECT COUNT(*) FROM ledger", [], |row| row.get(0)).unwrap()
    }

    fn is_whole(connection: &Connection) -> bool {
        connection
            .query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0))
            .is_ok_and(|said| said == "ok")
    }

    /// Others read and write in the meantime, and after a crash the work is resumed where it was.
    #[test]
    fn the_file_shrinks_in_steps_despite_other_writers() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("s.db");
        let mut connection = open(&path);
        fill(&connection);
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        let full = fs::metadata(&path).unwrap().len();
        assert!(!give_back(&connection).unwrap(), "nothing is free");
        connection.execute("DELETE FROM ledger WHERE id >= '00000100'", []).unwrap();
        let other = open(&path);
        let (mut steps, mut rows) = (0, 100);
        while give_back(&connection).unwrap() {
            steps += 1;
            if steps % 5 == 0 {
                insert(&other, ROWS + steps);
                rows += 1;
                assert_eq!((count(&connection), count(&other)), (rows, rows));
            }
            if steps == 7 {
                connection = open(&path);
            }
        }
        assert!(steps >= 10, "{steps}");
        drop(connection);
        assert!(is_whole(&other) && count(&other) == rows);
        let left = fs::metadata(&path).unwrap().len();
        assert!(left < full / 4 && left >= MIN_FREE.unsigned_abs() * 8192, "{left} of {full}");
    }

    /// The file is not rewritten for that: free pages are reused.
    #[test]
    fn a_store_without_incremental_vacuum_is_not_shrunk() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("s.db");
        Connection::open(&path)
            .unwrap()
            .execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (a)")
            .unwrap();
        let connection = open(&path);
        fill(&connection);
        connection.execute("DELETE FROM ledger", []).unwrap();
        assert!(!give_back(&connection).unwrap());
        assert!(is_whole(&connection));
    }

    /// Space that is freed and filled again every hour is not given back in between.
    #[test]
    fn moderate_free_space_is_kept_for_reuse() {
        let home = tempfile::tempdir().unwrap();
        let connection = open(&home.path().join("s.db"));
        fill(&connection);
        connection.execute("DELETE FROM ledger WHERE id < '00000400'", []).unwrap();
        assert!(!give_back(&connection).unwrap());
    }
}
