//! What a call does whose tool has a name that says nothing, told from the values of its arguments.
//!
//! Tools of servers are called as their makers like, and so are their arguments. What they are given looks alike all the
//! same: a file and perhaps numbers for one that shows it, a file and texts for one that changes it, a command line for a
//! shell.

use serde_json::{Map, Value};

use crate::conversation::boundary;
use crate::shape::command::{self, NEUTRAL, Script, VIEWERS};
use crate::shape::tools;
use crate::strategy::{Action, Class, View};

use super::{paths, shell};

/// Arguments that say what to look for.
const SOUGHT: &[&str] = &["pattern", "query", "regex", "glob", "search", "q"];

/// What the arguments look like; `None`: like nothing that is known.
pub(super) fn action(tool: &str, arguments: &Map<String, Value>) -> Option<Action> {
    let texts = || arguments.values().filter_map(Value::as_str).filter(|text| !text.is_empty());
    let patched: Vec<Box<str>> = texts().flat_map(paths::patched).collect();
    if !patched.is_empty() {
        return Some(edit(patched));
    }
    let (files, others): (Vec<&str>, Vec<&str>) = texts().partition(|text| is_file(text));
    let files: Vec<Box<str>> = files.into_iter().map(paths::normal).collect();
    if SOUGHT.iter().any(|key| arguments.contains_key(*key)) {
        return Some(Action { class: Class::Search, mentions: files.into(), ..Action::default() });
    }
    match (files.as_slice(), others.as_slice()) {
        ([file], []) if !tools::does_otherwise(tool) => Some(Action {
            class: Class::View,
            views: [View::of(file.clone(), lines(arguments))].into(),
            mentions: files.into(),
            ..Action::default()
        }),
        ([_], [one]) if one.contains('\n') => Some(edit(files)),
        ([_], [_, _, ..]) => Some(edit(files)),
        _ => others.into_iter().find(|text| is_script(text)).map(shell::action),
    }
}

fn edit(files: Vec<Box<str>>) -> Action {
    Action { class: Class::Edit, mentions: files.clone().into(), edits: files.into(), ..Action::default() }
}

/// A number beside the file is taken for a line of it.
fn lines(arguments: &Map<String, Value>) -> (u32, u32) {
    let is_number = |value: &Value| value.is_number() || value.is_array();
    if arguments.values().any(is_number) { View::PART } else { View::ALL }
}

fn is_file(text: &str) -> bool {
    paths::is_path(text) && paths::has_ending(text)
}

/// Whether a text is a command that is known, or several of which one is.
fn is_script(text: &str) -> bool {
    let text = &text[..boundary::floor(text, shell::MAX_SCRIPT)];
    let pipelines = Script::read(text.split("<<").next().unwrap_or(text)).pipelines;
    let mut programs = pipelines.iter().filter_map(|stages| Some(command::name(stages.first()?.first()?)));
    programs.any(|program| {
        let program = program.as_str();
        VIEWERS.contains(&program) || NEUTRAL.contains(&program) || shell::is_known(program)
    })
}
