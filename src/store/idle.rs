//! Removes what was decided about threads that have been idle for long.
//!
//! Once a day a pass goes through all tables, some rows at a time. It removes:
//!
//! - threads whose last request is older than the limit;
//! - decisions and splices that are older than the limit, if no thread has relied on their history since, and no
//!   remaining thread has sent it;
//! - the texts of these decisions, if no other decision refers to them;
//! - from the other tables, everything that belongs to no remaining thread.
//!
//! A decision never outlives the record that its history was sent ([`super::Boundary`]). Otherwise whoever sends the
//! history again would decide about it again, and that decision would be rejected each time because there is one.
//!
//! What threads rely on is known only as far back as gateways have recorded it ([`uses`]). In a store that is new, or
//! that only older versions have used for about as long as things are kept, nothing is removed until gateways have
//! recorded it for that long.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};

use super::{StoreError, uses};

/// The most rows that a turn examines.
const ROWS_PER_TURN: i64 = 500;
/// How long after one pass the next is due, in milliseconds: about a day, as this is checked every hour.
const DAY_MS: i64 = 23 * 3_600_000;

/// A table, and how to go through it. The statements apply to the rows with keys after `?1` up to `?2`; `?3` is the
/// time before which rows are old.
struct Table {
    /// The first column of its key, which determines the order.
    key: &'static str,
    key_type: KeyType,
    name: &'static str,
    /// Removes old rows; for decisions, returns the ids of their replacements.
    remove: &'static str,
    /// Marks what the remaining rows rely on as in use, so that it stays too.
    keep: Option<&'static str>,
}

enum KeyType {
    Text,
    Digest,
}

impl KeyType {
    /// Sorts before all keys. SQLite sorts every text before every digest, so each type has a value of its own. The
    /// rows of `uses` that are not histories come before all others, and are skipped.
    fn start(&self) -> Value {
        match self {
            Self::Text => Value::Text(String::new()),
            Self::Digest => Value::Blob(uses::SEEN.to_vec()),
        }
    }
}

/// The tables in the order in which they are gone through: each comes after those whose rows keep its own.
const TABLES: &[Table] = &[
    Table {
        key: "id",
        key_type: KeyType::Text,
        name: "threads",
        remove: "DELETE FROM threads WHERE id > ?1 AND id <= ?2 AND at_ms < ?3",
        keep: None,
    },
    Table {
        key: "thread",
        key_type: KeyType::Text,
        name: "refusals",
        remove: "DELETE FROM refusals WHERE thread > ?1 AND thread <= ?2
                 AND NOT EXISTS (SELECT 1 FROM threads WHERE threads.id = refusals.thread AND threads.at_ms >= ?3)",
        keep: None,
    },
    Table {
        key: "chain",
        key_type: KeyType::Digest,
        name: "decisions",
        remove: "DELETE FROM decisions WHERE chain > ?1 AND chain <= ?2 AND at_ms < ?3
                 AND NOT EXISTS (SELECT 1 FROM uses WHERE uses.chain = decisions.chain AND uses.at_ms >= ?3)
                 AND NOT EXISTS (SELECT 1 FROM boundaries JOIN threads ON threads.id = boundaries.thread
                                 WHERE boundaries.chain = decisions.chain)
                 RETURNING replacement",
        keep: Some(
            "INSERT INTO uses (chain, at_ms) SELECT since, max(
               ?3, at_ms, coalesce((SELECT at_ms FROM uses WHERE uses.chain = decisions.chain), 0))
             FROM decisions WHERE chain > ?1 AND chain <= ?2 AND since <> chain
             ON CONFLICT (chain) DO UPDATE SET at_ms = excluded.at_ms WHERE at_ms < ?3",
        ),
    },
    Table {
        key: "chain",
        key_type: KeyType::Digest,
        name: "splices",
        remove: "DELETE FROM splices WHERE chain > ?1 AND chain <= ?2 AND at_ms < ?3
                 AND NOT EXISTS (SELECT 1 FROM uses WHERE uses.chain = splices.chain AND uses.at_ms >= ?3)
                 AND NOT EXISTS (SELECT 1 FROM boundaries JOIN threads ON threads.id = boundaries.thread
                                 WHERE boundaries.chain = splices.chain)",
        keep: Some(
            "INSERT INTO uses (chain, at_ms) SELECT since, max(
               ?3, at_ms, coalesce((SELECT at_ms FROM uses WHERE uses.chain = splices.chain), 0))
             FROM splices WHERE chain > ?1 AND chain <= ?2
             ON CONFLICT (chain) DO UPDATE SET at_ms = excluded.at_ms WHERE at_ms < ?3",
        ),
    },
    Table {
        key: "chain",
        key_type: KeyType::Digest,
        name: "uses",
        remove: "DELETE FROM uses WHERE chain > ?1 AND chain <= ?2 AND at_ms < ?3",
        keep: None,
    },
    Table {
        key: "chain",
        key_type: KeyType::Digest,
        name: "boundaries",
        remove: "DELETE FROM boundaries WHERE chain > ?1 AND chain <= ?2 AND at_ms < ?3
                 AND NOT EXISTS (SELECT 1 FROM threads WHERE threads.id = boundaries.thread)
                 AND NOT EXISTS (SELECT 1 FROM uses WHERE uses.chain = boundaries.chain)
                 AND NOT EXISTS (SELECT 1 FROM decisions WHERE decisions.chain = boundaries.chain)",
        keep: None,
    },
    Table {
        key: "chain",
        key_type: KeyType::Digest,
        name: "summaries",
        remove: "DELETE FROM summaries WHERE chain > ?1 AND chain <= ?2 AND at_ms < ?3
                 AND NOT EXISTS (SELECT 1 FROM threads WHERE threads.id = summaries.thread)
                 AND NOT EXISTS (SELECT 1 FROM uses WHERE uses.chain = summaries.chain)",
        keep: None,
    },
];

/// Removes a replacement if no decision refers to it any more.
const ORPHAN: &str = "DELETE FROM replacements WHERE id = ?1
                      AND NOT EXISTS (SELECT 1 FROM decisions WHERE decisions.replacement = replacements.id)";

/// Removes the replacements of removed decisions, unless others refer to them.
pub(super) fn forget_texts(connection: &Connection, replacements: &[Value]) -> rusqlite::Result<()> {
    if replacements.is_empty() {
        return Ok(());
    }
    let mut orphan = connection.prepare_cached(ORPHAN)?;
    replacements.iter().try_for_each(|replacement| orphan.execute([replacement]).map(drop))
}

/// A pass that removes what was decided about threads whose last request came before a time.
pub(super) struct Idle {
    /// The time before which rows are old, in milliseconds since 1970.
    before: i64,
    /// The time of the pass, in milliseconds since 1970.
    now: i64,
    /// The index of the current table in [`TABLES`]; `None` until it is known that a pass is due.
    table: Option<usize>,
    /// The key of the last row that was examined.
    after: Value,
}

impl Idle {
    pub(super) fn new(before: i64, now: i64) -> Self {
        Self { before, now, table: None, after: Value::Null }
    }

    /// Examines some rows. Returns whether there may be more.
    pub(super) fn turn(&mut self, connection: &mut Connection) -> Result<bool, StoreError> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let has_more = self.advance(&transaction)?;
        transaction.commit()?;
        Ok(has_more)
    }

    fn advance(&mut self, transaction: &Transaction<'_>) -> Result<bool, StoreError> {
        let Some(index) = self.table else {
            let is_due = self.is_due(transaction)?;
            if is_due {
                self.enter(0);
            }
            return Ok(is_due);
        };
        let Some(table) = TABLES.get(index) else {
            uses::set_mark(transaction, uses::LAST, self.now)?;
            return Ok(false);
        };
        match self.look_through(transaction, table)? {
            Some(last) => self.after = last,
            None => self.enter(index + 1),
        }
        Ok(true)
    }

    /// Begins a table.
    fn enter(&mut self, index: usize) {
        self.after = TABLES.get(index).map_or(Value::Null, |table| table.key_type.start());
        self.table = Some(index);
    }

    /// Whether a pass is due: the last one was a day ago, and uses have been recorded for as long as things are kept.
    fn is_due(&self, connection: &Connection) -> Result<bool, StoreError> {
        let begun = uses::mark(connection, uses::BEGUN)?;
        let last = uses::mark(connection, uses::LAST)?.or(begun);
        let seen = uses::mark(connection, uses::SEEN)?;
        uses::set_mark(connection, uses::SEEN, self.now)?;
        // Clocks are set back, too.
        let since = |at: i64| self.now.saturating_sub(at).saturating_abs();
        let kept = self.now.saturating_sub(self.before);
        let pause = last.into_iter().chain(seen).map(since).min();
        let Some(begun) = begun.filter(|_| pause.is_some_and(|pause| pause < kept / 4 * 3)) else {
            // The store is new, or for most of that time no gateway has recorded uses.
            uses::set_mark(connection, uses::BEGUN, self.now)?;
            uses::set_mark(connection, uses::LAST, self.now)?;
            return Ok(false);
        };
        if last.is_some_and(|last| since(last) < DAY_MS) {
            return Ok(false);
        }
        let is_due = begun < self.before;
        if !is_due {
            uses::set_mark(connection, uses::LAST, self.now)?;
        }
        Ok(is_due)
    }

    /// Examines some rows of a table. Returns the key of the last one, or `None` if there are no more.
    fn look_through(
        &self,
        transaction: &Transaction<'_>,
        table: &Table,
    ) -> Result<Option<Value>, StoreError> {
        let last: Option<Value> = transaction
            .prepare_cached(&page(table))?
            .query_row(params![self.after, ROWS_PER_TURN - 1], |row| row.get(0))
            .optional()?;
        // Greater than every text and every digest.
        let end = last.clone().unwrap_or_else(|| Value::Blob(vec![u8::MAX; 17]));
        let range = params![self.after, end, self.before];
        let mut remove = transaction.prepare_cached(table.remove)?;
        let mut removed = remove.query(range)?;
        let mut replacements: Vec<Value> = Vec::new();
        while let Some(row) = removed.next()? {
            replacements.push(row.get(0)?);
        }
        forget_texts(transaction, &replacements)?;
        if let Some(keep) = table.keep {
            transaction.prepare_cached(keep)?.execute(range)?;
        }
        Ok(last)
    }
}

fn page(Table { key, name, .. }: &Table) -> String {
    format!("SELECT {key} FROM {name} WHERE {key} > ?1 ORDER BY {key} LIMIT 1 OFFSET ?2")
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;
    use crate::store::schema;

    fn connection() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        schema::prepare(&connection).unwrap();
        connection
    }

    /// No table is read as a whole, neither once per turn nor once per row.
    #[test]
    fn sweeps_never_scan_a_whole_table() {
        let connection = connection();
        let pages: Vec<String> = TABLES.iter().map(page).collect();
        let statements = TABLES.iter().flat_map(|table| iter::once(table.remove).chain(table.keep));
        for statement in statements.chain(pages.iter().map(String::as_str)).chain([ORPHAN]) {
            let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {statement}")).unwrap();
            let none = rusqlite::params_from_iter(vec![Value::Null; plan.parameter_count()]);
            let steps = plan.query_map(none, |row| row.get("detail")).unwrap();
            let steps: Vec<String> = steps.map(Result::unwrap).collect();
            assert!(steps.iter().any(|step| step.starts_with("SEARCH")), "{statement}: {steps:?}");
            assert!(!steps.iter().any(|step| step.starts_with("SCAN")), "{statement}: {steps:?}");
        }
    }

    /// A turn examines a part of one table, and between two turns whatever waits can be written.
    #[test]
    fn tables_are_swept_in_bounded_turns_once_a_day() {
        let mut connection = connection();
        let rows = 3 * ROWS_PER_TURN;
        for n in 0..rows {
            let chain = [&[0; 8], &n.to_be_bytes()[..]].concat();
            connection
                .execute(
                    "INSERT INTO boundaries (chain, thread, at_ms) VALUES (?1, 't', ?2)",
                    params![chain, n % 2],
                )
                .unwrap();
        }
        uses::set_mark(&connection, uses::BEGUN, 0).unwrap();
        uses::set_mark(&connection, uses::LAST, 4 * DAY_MS).unwrap();
        let mut idle = Idle { before: 1, now: 5 * DAY_MS, table: None, after: Value::Null };
        let mut left = vec![rows];
        while idle.turn(&mut connection).unwrap() {
            left.push(connection.query_row("SELECT COUNT(*) FROM boundaries", [], |row| row.get(0)).unwrap());
        }
        assert!(left.windows(2).all(|pair| pair[0] - pair[1] <= ROWS_PER_TURN / 2), "{left:?}");
        assert_eq!(left.last(), Some(&(rows / 2)));
        let mut again = Idle::new(1, 5 * DAY_MS + 1);
        assert!(!again.turn(&mut connection).unwrap(), "once a day");
    }

    /// The first pass comes when uses have been recorded for as long as things are kept, however little that is, unless
    /// gateways pause for most of it.
    #[test]
    fn the_first_pass_comes_unless_gateways_pause_for_long() {
        const HOUR_MS: i64 = 3_600_000;
        let always: fn(i64) -> bool = |_| true;
        let by_day: fn(i64) -> bool = |hour| hour % 24 < 10;
        let daily: fn(i64) -> bool = |hour| hour % 24 == 0;
        let every_fourth_day: fn(i64) -> bool = |hour| hour % 96 == 0;
        for (kept, runs, expected) in [
            (25, always, Some(46)),
            (25, by_day, Some(48)),
            (25, daily, None),
            (121, always, Some(138)),
            (121, daily, Some(144)),
            (121, every_fourth_day, None),
        ] {
            let mut connection = connection();
            let is_due = |hour: &i64| {
                let now = (1_000 + hour) * HOUR_MS;
                Idle::new(now - kept * HOUR_MS, now).turn(&mut connection).unwrap()
            };
            assert_eq!((0..1_000).filter(|hour| runs(*hour)).find(is_due), expected, "{kept}");
        }
    }

    /// Every table, whatever the type of its key.
    #[test]
    fn old_rows_of_every_table_are_removed() {
        let mut connection = connection();
        let rows = [
            "threads (id, conversation, head, at_ms) VALUES ('old', 'c', x'01', 1), ('new', 'c', x'02', 9)",
            "refusals (thread, since) VALUES ('old', x''), ('new', x'')",
            "uses (chain, at_ms) VALUES (x'11', 1), (x'12', 9)",
            "boundaries (chain, thread, at_ms) VALUES (x'21', 'old', 1), (x'22', 'new', 9)",
        ];
        for row in rows {
            connection.execute_batch(&format!("INSERT INTO {row}")).unwrap();
        }
        uses::set_mark(&connection, uses::BEGUN, 0).unwrap();
        uses::set_mark(&connection, uses::LAST, 4 * DAY_MS).unwrap();
        let mut idle = Idle::new(5, 5 * DAY_MS);
        while idle.turn(&mut connection).unwrap() {}
        for (table, marks) in [("threads", 0), ("refusals", 0), ("uses", 3), ("boundaries", 0)] {
            let count = format!("SELECT COUNT(*) FROM {table}");
            let left: u32 = connection.query_row(&count, [], |row| row.get(0)).unwrap();
            assert_eq!(left, 1 + marks, "{table}");
        }
    }

    /// A text that several decisions share is removed with the last of them.
    #[test]
    fn shared_texts_are_removed_with_their_last_decision() {
        let mut connection = connection();
        connection.execute("INSERT INTO replacements (id, leaves) VALUES (x'01', 'text')", []).unwrap();
        for (chain, at_ms) in [("1", 5), ("2", 15)] {
            connection
                .execute(
                    "INSERT INTO decisions VALUES (CAST(?1 AS BLOB), 0, CAST(?1 AS BLOB), x'', NULL, x'', '', x'01', 0, 0, NULL, ?2)",
                    params![chain, at_ms],
                )
                .unwrap();
        }
        uses::set_mark(&connection, uses::BEGUN, 0).unwrap();
        for (before, expected) in [(4, (2, 1)), (10, (1, 1)), (20, (0, 0))] {
            uses::set_mark(&connection, uses::LAST, 99 * DAY_MS).unwrap();
            let mut idle = Idle { before, now: 100 * DAY_MS, table: None, after: Value::Null };
            while idle.turn(&mut connection).unwrap() {}
            let count = |table: &str| -> i64 {
                connection.query_row(&format!("SELECT COUNT(*) FROM {table}"), [], |row| row.get(0)).unwrap()
            };
            assert_eq!((count("decisions"), count("replacements")), expected, "{before}");
        }
    }
}
