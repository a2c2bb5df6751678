//! What a shell script does. This is not a shell: the script is split into commands and words, and commands are
//! recognised by their first words.

use crate::conversation::boundary;
use crate::shape::command::{self, NEUTRAL, Script, VIEWERS};
use crate::strategy::{Action, Class, View};

use super::{paths, ranges};

/// Only this many bytes of a script are looked at.
pub(super) const MAX_SCRIPT: usize = 4096;
/// Commands that may show parts of files, besides those that show files as they are.
const PRINTERS: &[&str] = &["sed", "awk"];
/// Commands that list and search.
const SEARCHERS: &[&str] = &["grep", "rg", "egrep", "fgrep", "ag", "find", "fd", "ls", "tree"];
/// Commands that query or change a repository.
const VERSIONS: &[&str] = &["git", "gh", "glab"];
/// Subcommands of these that show changes line by line, unless an option asks for less.
const DIFFS: &[&str] = &["diff", "show", "blame"];
/// Options that ask for less than the changed lines.
const BRIEF_OPTIONS: &[&str] =
    &["--stat", "--name-only", "--name-status", "--numstat", "--shortstat", "--check", "--quiet"];
/// Options that ask for the changed lines.
const PATCH_OPTIONS: &[&str] = &["-p", "-u", "--patch"];
/// Words that may precede the command itself.
const PREFIXES: &[&str] = &["sudo", "rtk", "time", "command"];
/// Options of git before its subcommand that take a value.
const GIT_VALUES: &[&str] = &["-C", "-c", "--git-dir", "--work-tree", "--namespace"];
/// Subcommands of git that change files.
const GIT_EDITS: &[&str] =
    &["checkout", "restore", "reset", "stash", "merge", "rebase", "cherry-pick", "pull", "apply", "switch"];
/// Commands that change files.
const EDITORS: &[&str] = &["tee", "apply_patch", "patch", "mv"];
/// Options that make a tool rewrite files.
const EDIT_OPTIONS: &[&str] = &["--fix", "--write", "-w"];

/// What the script does.
pub(super) fn action(script: &str) -> Action {
    let patched = paths::patched(script);
    if !patched.is_empty() {
        return Action {
            class: Class::Edit,
            mentions: patched.clone().into(),
            edits: patched.into(),
            ..Action::default()
        };
    }
    let script = &script[..boundary::floor(script, MAX_SCRIPT)];
    // What follows a `<<` belongs to a file or a program, not to the command line.
    let (line, has_document) = script.split_once("<<").map_or((script, false), |(line, _)| (line, true));
    let pipelines = Script::read(line).pipelines;
    let mentions = paths::among(pipelines.iter().flatten().flatten().map(String::as_str));
    let writes =
        has_document && (line.contains('>') || script.lines().next().is_some_and(|l| l.contains('>')));
    if writes || pipelines.iter().any(|stages| changes_files(stages)) {
        return Action {
            class: Class::Edit,
            edits: mentions.clone().into(),
            mentions: mentions.into(),
            ..Action::default()
        };
    }
    let (mut views, mut class) = (Vec::new(), None);
    for stages in &pipelines {
        let Some((kind, shown)) = kind(stages) else { continue };
        views.extend(shown);
        class = Some(class.map_or(kind, |other| heavier(other, kind)));
    }
    Action {
        class: class.unwrap_or(Class::Run),
        views: views.into(),
        mentions: mentions.into(),
        ..Action::default()
    }
}

/// Whether a command is one that shows, searches, compares or changes files.
pub(super) fn is_known(program: &str) -> bool {
    [PRINTERS, SEARCHERS, VERSIONS, EDITORS].iter().any(|known| known.contains(&program))
}

/// The class that counts for a script that has both. A script that shows code is for that, whatever else it does;
/// otherwise running something counts most.
fn heavier(a: Class, b: Class) -> Class {
    let order = [Class::View, Class::Diff, Class::Run, Class::Search];
    order.into_iter().find(|class| *class == a || *class == b).unwrap_or(a)
}

/// What a pipeline does, judging by its first command; `None` if it does nothing relevant.
fn kind(stages: &[Vec<String>]) -> Option<(Class, Vec<View>)> {
    let words = without_prefixes(stages.first()?);
    let (program, arguments) = words.split_first()?;
    let program = command::name(program);
    let program = program.as_str();
    let shows_revision = program == "git"
        && subcommand(program, arguments) == Some("show")
        && arguments.iter().any(|word| word.contains(':'));
    if VIEWERS.contains(&program) || PRINTERS.contains(&program) || shows_revision {
        return Some((Class::View, views(words, &stages[1..], shows_revision)));
    }
    if NEUTRAL.contains(&program) {
        return None;
    }
    let searches = SEARCHERS.contains(&program)
        || (program == "git" && matches!(subcommand(program, arguments), Some("grep" | "ls-files")));
    let class = if searches {
        Class::Search
    } else if program == "diff" || (VERSIONS.contains(&program) && shows_lines(program, arguments)) {
        Class::Diff
    } else {
        Class::Run
    };
    Some((class, Vec::new()))
}

/// The views of the files that a command, given as words, shows through the commands that follow it in its pipeline.
fn views(words: &[String], following: &[Vec<String>], shows_revision: bool) -> Vec<View> {
    // A file that output is redirected to is not shown.
    let shown = words[1..].split(|word| word == command::TO_FILE).next().unwrap_or_default();
    let files = paths::among(shown.iter().map(String::as_str));
    let stages: Vec<&[String]> = std::iter::once(words).chain(following.iter().map(Vec::as_slice)).collect();
    let range = ranges::printed(&stages, files.len());
    let view = |file: Box<str>| match file.rsplit_once(':') {
        Some((revision, path)) if shows_revision => {
            View { revision: revision.into(), ..View::of(path.into(), range) }
        }
        // A drive letter.
        Some((_, path)) => View::of(path.into(), range),
        None => View::of(file, range),
    };
    files.into_iter().map(view).collect()
}

/// The subcommand for a version control system: `diff` in `git -C /w diff src` and in `gh pr diff 39`.
fn subcommand<'w>(program: &str, words: &'w [String]) -> Option<&'w str> {
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        if program == "git" && GIT_VALUES.contains(&word) {
            words.next();
        } else if !word.starts_with('-') {
            // Other programs take a topic first.
            return if program == "git" { Some(word) } else { words.find(|word| !word.starts_with('-')) };
        }
    }
    None
}

/// Whether a version control command prints changed lines.
fn shows_lines(program: &str, words: &[String]) -> bool {
    let has = |known: &[&str]| {
        words.iter().any(|word| known.contains(&word.split_once('=').map_or(word.as_str(), |(name, _)| name)))
    };
    match subcommand(program, words) {
        Some("log") => has(PATCH_OPTIONS),
        Some(word) => DIFFS.contains(&word) && (has(PATCH_OPTIONS) || !has(BRIEF_OPTIONS)),
        None => false,
    }
}

/// The words of a command without those that may precede it.
fn without_prefixes(words: &[String]) -> &[String] {
    let skip = words.iter().take_while(|word| PREFIXES.contains(&word.as_str())).count();
    &words[skip..]
}

/// Whether a pipeline changes files. The meaning of options depends on the command; only those of the first command are
/// examined closely.
fn changes_files(stages: &[Vec<String>]) -> bool {
    let words = stages.first().map(|words| without_prefixes(words)).unwrap_or_default();
    let Some((program, arguments)) = words.split_first() else { return false };
    let program = command::name(program);
    let program = program.as_str();
    let option = |letter: char| {
        arguments.iter().any(|word| {
            word.starts_with('-') && !word.starts_with("--") && word[1..].chars().take(4).any(|c| c == letter)
        })
    };
    match program {
        "sed" | "perl" => option('i'),
        "git" => subcommand(program, arguments).is_some_and(|word| GIT_EDITS.contains(&word)),
        _ => {
            EDITORS.contains(&program)
                || stages.iter().flatten().any(|word| EDIT_OPTIONS.contains(&word.as_str()))
                || stages[1..].iter().any(|words| words.first().is_some_and(|word| word == "tee"))
        }
    }
}
