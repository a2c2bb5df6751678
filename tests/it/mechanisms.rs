//! The table of mechanisms of known systems (`fixtures/mechanisms.tsv`), with the tests that prove each row.
//!
//! A row is `held`, `differs` (done in another way, explained in its note) or `none` (nothing to do here, with the
//! reason).

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::source::Source;

/// A row of the table.
struct Row<'t> {
    id: &'t str,
    status: &'t str,
    tests: Vec<&'t str>,
    note: &'t str,
}

/// The number of rows of each kind, and of worked examples of each system.
const ROWS: &[(&str, usize)] = &[("A", 92), ("B", 67), ("C", 19), ("D", 20), ("E", 22)];
const EXAMPLES: &[usize] = &[5, 5, 5, 7, 3, 3, 3, 3, 4, 4];

fn rows(text: &str) -> Vec<Row<'_>> {
    text.lines().skip(1).map(row).collect()
}

fn row(line: &str) -> Row<'_> {
    let cells: Vec<&str> = line.split('\t').collect();
    let [id, what, status, tests, note] = cells[..] else { panic!("five cells: {line}") };
    assert!(!what.is_empty(), "{line}");
    Row { id, status, tests: tests.split_whitespace().collect(), note }
}

#[test]
fn every_row_names_existing_tests() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/mechanisms.tsv");
    let text = fs::read_to_string(file).unwrap();
    let rows = rows(&text);

    let named = ROWS.iter().flat_map(|(kind, count)| (1..=*count).map(move |at| format!("{kind}{at:02}")));
    let worked = EXAMPLES.iter().enumerate();
    let worked = worked.flat_map(|(at, count)| (1..=*count).map(move |one| format!("2.{}.{one}", at + 1)));
    let expected: Vec<String> = named.chain(worked).collect();
    let found: Vec<&str> = rows.iter().map(|row| row.id).collect();
    assert_eq!(found, expected, "every row once, in order");

    let sources: Vec<Source> = ["src", "tests/it"].iter().flat_map(|folder| Source::all(folder)).collect();
    let mut wrong = Vec::new();
    for Row { id, status, tests, note } in &rows {
        let is_right = match *status {
            "held" => !tests.is_empty(),
            "differs" => !tests.is_empty() && !note.is_empty(),
            "none" => tests.is_empty() && !note.is_empty(),
            _ => false,
        };
        wrong.extend((!is_right).then(|| format!("{id}: {status}, {} tests, {note:?}", tests.len())));
    }
    let tests: BTreeSet<&str> = rows.iter().flat_map(|row| &row.tests).copied().collect();
    for test in tests {
        let definition = format!("fn {test}(");
        let exists =
            |source: &Source| source.code.contains(&definition) && !source.product.contains(&definition);
        wrong.extend((!sources.iter().any(exists)).then(|| format!("there is no test `{test}`")));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
