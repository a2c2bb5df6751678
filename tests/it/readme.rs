//! The commands in the README agree with the rest of the repository.

use crate::cli::plimsoll;

const README: &str = include_str!("../../README.md");
const DOCKERFILE: &str = include_str!("../../Dockerfile");

/// The lines of a text with this prefix, without it.
fn lines<'t>(text: &'t str, margin: &str, start: &str) -> Vec<&'t str> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(margin));
    lines.filter(|line| line.starts_with(start)).collect()
}

#[test]
fn the_readme_builds_and_runs_the_image_of_the_dockerfile() {
    for start in ["docker build ", "docker run "] {
        let typed = lines(README, "    ", start);
        assert_eq!((typed.len(), &typed), (1, &lines(DOCKERFILE, "#   ", start)));
    }
}

/// The repository contains no recordings.
#[test]
fn the_readme_replays_the_readers_own_recordings() {
    let typed = lines(README, "    ", "plimsoll replay ");
    let of_home = |line: &&str| line.split(' ').next_back().is_some_and(|path| path.starts_with("~/"));
    assert!(typed.len() == 3 && typed.iter().all(of_home), "{typed:?}");
}

#[test]
fn the_readme_shows_the_bill_of_the_demonstration() {
    let home = tempfile::tempdir().expect("a directory");
    let output = plimsoll(home.path(), &["demo"]).output().expect("the binary runs");
    let printed = String::from_utf8(output.stdout).expect("text");
    let has_headings = |line: &&str| line.trim_start().starts_with("tokens  without");
    let bill: Vec<&str> = printed.lines().skip_while(|line| !has_headings(line)).collect();
    let indented = README.lines().filter_map(|line| line.strip_prefix("    "));
    let shown: Vec<&str> = indented.skip_while(|line| !has_headings(line)).take(bill.len()).collect();
    assert!(bill.len() == 6 && bill == shown, "{printed}");
}
