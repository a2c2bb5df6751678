//! What a call does whose tool has a name that says nothing, told from the values of its arguments.
//!
//! Tools of servers are called as their makers like, and so are their arguments. What they are given looks alike all the
//! same: a file and perhaps numbers for one that shows it, a file and texts for one that changes it, a command line for a
//! shell.

use serde_json::{Map, Value};

use crate::conversation::boundary;
use crate::shape::command::{NEUTRAL, Script, VIEWERS};
use crate::shape::tools;
use crate::strategy::{Action, Class, View};

use super::{paths, shell};

/// Arguments that say what to look for, of tools that show no file.
const SOUGHT: &[&str] = &["pattern", "query", "regex", "glob", "search", "q"];
/// How the names of files end that are code, or documents and data beside it: what else has a dot in it may be a host or a
/// table.
const ENDINGS: &[&str] = &[
    "rs", "py", "js", "jsx", "ts", "tsx", "mjs", "cjs", "go", "java", "kt", "kts", "c", "h", "cc", "cpp",
    "hpp", "cs", "rb", "php", "swift", "scala", "sh", "sql", "html", "css", "scss", "vue", "svelte", "md",
    "mdx", "txt", "rst", "json", "yaml", "yml", "toml", "lock", "log", "csv", "xml", "ini", "cfg", "lua",
    "ex", "exs", "hs", "dart", "tf", "ipynb", "proto",
];

/// What the arguments look like; `None`: like nothing that is known.
pub(super) fn action(tool: &str, arguments: &Map<String, Value>) -> Option<Action> {
    // A number may be written as a text.
    let says = |text: &&str| !text.is_empty() && text.parse::<f64>().is_err();
    let texts = || arguments.values().filter_map(Value::as_str).filter(says);
    let patched: Vec<Box<str>> = texts().flat_map(paths::patched).collect();
    if !patched.is_empty() {
        return Some(edit(patched));
    }
    if SOUGHT.iter().any(|key| arguments.contains_key(*key)) {
        return None;
    }
    let (files, others): (Vec<&str>, Vec<&str>) = texts().partition(|text| is_file(text));
    let files: Vec<Box<str>> = files.into_iter().map(paths::normal).collect();
    match (files.as_slice(), others.as_slice()) {
        ([_], _) if tools::does_otherwise(tool) => None,
        // Which lines of it are shown is not known, so that no other view stands in this one.
        ([file], []) => Some(Action {
            class: Class::View,
            views: [View::of(file.clone(), View::PART)].into(),
            mentions: files.into(),
            ..Action::default()
        }),
        ([_], [one]) if one.contains('\n') => Some(edit(files)),
        ([_], [_, _, ..]) if others.iter().any(|text| text.contains([' ', '\n'])) => Some(edit(files)),
        _ => others.into_iter().find(|text| is_script(text)).map(shell::action),
    }
}

fn edit(files: Vec<Box<str>>) -> Action {
    Action { class: Class::Edit, mentions: files.clone().into(), edits: files.into(), ..Action::default() }
}

fn is_file(text: &str) -> bool {
    let ending = text.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    let is_known = ending.is_some_and(|ending| ENDINGS.contains(&ending.as_str()));
    paths::is_path(text)
        && tools::is_text(text)
        && (is_known || (text.contains('/') && paths::has_ending(text)))
}

/// Whether a text is a command that is known, or several of which one is. Prose may begin as commands do: it has marks at
/// the ends of its words, and is given no option and no path.
fn is_script(text: &str) -> bool {
    let text = &text[..boundary::floor(text, shell::MAX_SCRIPT)];
    let pipelines = Script::read(text.split("<<").next().unwrap_or(text)).pipelines;
    let words = || pipelines.iter().flatten().flatten();
    if words().any(|word| word.len() > 1 && word.ends_with(['.', ',', ':', '?', '!'])) {
        return false;
    }
    let programs = || pipelines.iter().filter_map(|stages| stages.first()?.first());
    let is_known = |program: &String| {
        let program = program.as_str();
        VIEWERS.contains(&program) || NEUTRAL.contains(&program) || shell::is_known(program)
    };
    let says_how = || words().any(|word| word.starts_with('-') || paths::is_path(word));
    let is_git = || programs().any(|program| program == "git");
    programs().any(is_known) && (is_git() || says_how() || pipelines.len() > 1)
}
