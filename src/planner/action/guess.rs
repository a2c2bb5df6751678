//! Guesses what a call does from the values of its arguments, if the name of its tool says nothing.
//!
//! MCP servers name tools and arguments as they like, but the values look alike: a file, perhaps with numbers, for a
//! tool that shows it; a file and texts for a tool that changes it; a command line for a shell.

use serde_json::{Map, Value};

use crate::conversation::boundary;
use crate::shape::command::{NEUTRAL, Script, VIEWERS};
use crate::shape::tools;
use crate::strategy::{Action, Class, View};

use super::{paths, shell};

/// Arguments that state what to search for. A tool with one of these does not show a file.
const SEARCH_ARGUMENTS: &[&str] = &["pattern", "query", "regex", "glob", "search", "q"];
/// Extensions of source files, documents and data. Other words with a dot may be hosts or tables.
const EXTENSIONS: &[&str] = &[
    "rs", "py", "js", "jsx", "ts", "tsx", "mjs", "cjs", "go", "java", "kt", "kts", "c", "h", "cc", "cpp",
    "hpp", "cs", "rb", "php", "swift", "scala", "sh", "sql", "html", "css", "scss", "vue", "svelte", "md",
    "mdx", "txt", "rst", "json", "yaml", "yml", "toml", "lock", "log", "csv", "xml", "ini", "cfg", "lua",
    "ex", "exs", "hs", "dart", "tf", "ipynb", "proto",
];

/// The action that the arguments suggest; `None` if they suggest none.
pub(super) fn action(tool: &str, arguments: &Map<String, Value>) -> Option<Action> {
    // Numbers may be written as strings.
    let says = |text: &&str| !text.is_empty() && text.parse::<f64>().is_err();
    let texts = || arguments.values().filter_map(Value::as_str).filter(says);
    let patched: Vec<Box<str>> = texts().flat_map(paths::patched).collect();
    if !patched.is_empty() {
        return Some(edit(patched));
    }
    if SEARCH_ARGUMENTS.iter().any(|key| arguments.contains_key(*key)) {
        return None;
    }
    let (files, others): (Vec<&str>, Vec<&str>) = texts().partition(|text| is_file(text));
    let files: Vec<Box<str>> = files.into_iter().map(paths::normal).collect();
    match (files.as_slice(), others.as_slice()) {
        ([_], _) if tools::suggests_other_use(tool) => None,
        // The lines shown are unknown, so this view never counts as containing another one.
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
    let is_known = ending.is_some_and(|ending| EXTENSIONS.contains(&ending.as_str()));
    paths::is_path(text)
        && tools::is_text(text)
        && (is_known || (text.contains('/') && tools::has_ending(text)))
}

/// Whether a text is a script with at least one known command. Prose may begin with the same words, but has punctuation
/// after words, and neither options nor paths.
fn is_script(text: &str) -> bool {
    let text = &text[..boundary::floor(text, shell::MAX_SCRIPT)];
    let pipelines = Script::read(text.split("<<").next().unwrap_or(text)).pipelines;
    let words = || pipelines.iter().flatten().flatten();
    if words().any(|word| ends_a_phrase(word)) {
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

/// Whether a word is followed by punctuation. Quoted phrases are not considered.
fn ends_a_phrase(word: &str) -> bool {
    let phrase_end = word.strip_suffix(['.', ',', ':', '?', '!']);
    phrase_end.is_some_and(|end| end.ends_with(char::is_alphanumeric) && !end.contains(' '))
}
