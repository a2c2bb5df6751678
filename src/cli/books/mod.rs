//! Reading the books from the command line, for which no gateway needs to run.

mod notes;
mod sums;

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use super::table::{cut, wrapped};
use super::{Failure, say, say_document};
use crate::store::{Books, LedgerEntry, LedgerFilter, Order, StoreError, ledger};

pub(super) use notes::{missing, notes};
pub(super) use sums::{Sums, WOULD, estimate};

/// The width assumed if a terminal does not tell its own.
pub(super) const WIDTH: usize = 100;

/// The indentation of continuation lines.
const INDENT: &str = "  ";

/// The minimum length of a shortened id.
const MIN_ID: usize = 8;

/// The width that tables keep to: the terminal's. If the output is not a terminal, nothing is shortened.
pub(super) fn width() -> usize {
    let out = std::io::stdout();
    if !out.is_terminal() {
        return usize::MAX;
    }
    let columns = rustix::termios::tcgetwinsize(&out).map_or(0, |size| size.ws_col);
    if columns == 0 { WIDTH } else { columns.into() }
}

/// The maximum length of a list or path in a column; unlimited if the output is not a terminal.
pub(super) fn most(length: usize) -> usize {
    if width() == usize::MAX { usize::MAX } else { length }
}

/// The message that there are no records. It names the directory, for users who look in the wrong place.
pub(super) fn nothing(state: &Path) -> String {
    format!("nothing recorded yet in {}", state.display())
}

/// Prints that there are no records in the state directory, or none for the filter, and how many are missing.
pub(super) fn say_nothing(state: &Path, filter: LedgerFilter, missing_records: u64) {
    if filter == LedgerFilter::default() {
        say(&nothing(state));
    } else {
        say("nothing was recorded in that time");
    }
    if let Some(note) = missing(missing_records) {
        say(&note);
    }
}

/// Calls `each` with the rows of the store in a directory; there are none if there is no store yet. Returns the number
/// of missing records.
pub(super) fn read(
    state: &Path,
    filter: LedgerFilter,
    order: Order,
    each: &mut dyn FnMut(LedgerEntry<'_>),
) -> Result<u64, Failure> {
    Books::read(&store(state), filter, order, each).map_err(|error| failed(state, &error))
}

/// The ids of all conversations. Ids are shortened to what is unique among all of them, so that `inspect` finds them.
pub(super) fn all_ids(state: &Path) -> Result<Vec<String>, Failure> {
    let Some(books) = open(state)? else { return Ok(Vec::new()) };
    books.conversations("").map_err(|error| failed(state, &error))
}

/// The books in the state directory; `None` if there is no store yet.
pub(super) fn open(state: &Path) -> Result<Option<Books>, Failure> {
    Books::open(&store(state)).map_err(|error| failed(state, &error))
}

/// The failure for an error of the store in the state directory.
pub(super) fn failed(state: &Path, error: &StoreError) -> Failure {
    Failure::about(&store(state), format_args!("{error}{}", error.hint_to_read()))
}

fn store(state: &Path) -> PathBuf {
    state.join(ledger::FILE_NAME)
}

/// The number of characters that makes all ids distinct, including the ellipsis.
pub(super) fn id_width<S: AsRef<str>>(ids: &[S]) -> usize {
    let longest = ids.iter().map(|id| id.as_ref().chars().count()).max().unwrap_or(0);
    let tells_apart = |width: &usize| {
        let mut seen = BTreeSet::new();
        ids.iter().all(|id| seen.insert(cut(id.as_ref(), *width)))
    };
    (MIN_ID + 1..longest).find(tells_apart).unwrap_or(longest)
}

/// Prints notes below the table that they are about.
pub(super) fn say_notes(notes: &[String]) {
    if !notes.is_empty() {
        say("");
    }
    let most = width().saturating_sub(INDENT.len());
    for note in notes {
        for (at, line) in wrapped(note, most).into_iter().enumerate() {
            say(&if at == 0 { line } else { INDENT.to_owned() + &line });
        }
    }
}

/// Prints a document.
pub(super) fn say_json(document: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(document).map_err(Failure::said)?;
    say_document(&text);
    Ok(())
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_abbreviated_where_they_differ() {
        for (ids, expected) in [
            (&["0198f2c4-1a2b-7000", "0298f2c4-1a2b-7000"][..], 9),
            (&["0198f2c4-1a2b-7000", "0198f2c4-1a2c-7000"], 14),
            (&["demo", "x"], 4),
            (&["0198f2c4-1", "0198f2c4-2"], 10),
            (&[], 0),
        ] {
            assert_eq!(id_width(ids), expected, "{ids:?}");
        }
    }
}
