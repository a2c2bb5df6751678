//! Paths in arguments, patches and command lines.

use serde_json::{Map, Value};

use crate::shape::command;
use crate::shape::tools::{PATH_LISTS, PATHS};

/// The most paths taken of one text.
const MOST: usize = 32;

/// The spelling that paths are compared by.
pub(super) fn normal(path: &str) -> Box<str> {
    let path = path.trim_matches(|c| c == '\'' || c == '"').replace('\\', "/");
    path.trim_end_matches('/').to_lowercase().into()
}

/// The files that arguments name.
pub(super) fn named(arguments: &Map<String, Value>) -> Vec<Box<str>> {
    spelled(arguments).map(normal).collect()
}

/// The files that a list in arguments names, each with what is said of it.
pub(super) fn listed(arguments: &Map<String, Value>) -> Vec<(Box<str>, Map<String, Value>)> {
    let items = PATH_LISTS.iter().filter_map(|key| arguments.get(*key)?.as_array()).flatten().take(MOST);
    let file = |item: &Value| match item {
        Value::String(path) => Some((normal(path), Map::new())),
        Value::Object(own) => Some((named(own).into_iter().next()?, own.clone())),
        _ => None,
    };
    items.filter_map(file).collect()
}

/// What names them, as it is spelled.
fn spelled(arguments: &Map<String, Value>) -> impl Iterator<Item = &str> {
    let named = PATHS.iter().filter_map(|key| arguments.get(*key)?.as_str());
    named.filter(|path| !path.is_empty())
}

/// The file that an edit is of, as it is spelled. Beside another name, what is called a file is what it says.
pub(super) fn edited(arguments: &Map<String, Value>) -> Vec<String> {
    let named: Vec<&str> = spelled(arguments).filter(|path| !path.contains('\n')).collect();
    let content = arguments.get("file").and_then(Value::as_str).filter(|_| named.len() > 1);
    named.into_iter().filter(|path| Some(*path) != content).map(str::to_owned).collect()
}

/// The first line of a patch.
const BEGIN: &str = "*** Begin Patch";
/// What a line of one begins with that names a file.
const CHANGES: [&str; 3] = ["*** Update File: ", "*** Add File: ", DELETE];
const DELETE: &str = "*** Delete File: ";
/// What one begins with that names another file for what the line before it names.
const MOVE: &str = "*** Move to: ";

/// The files that a patch changes.
pub(super) fn patched(text: &str) -> Vec<Box<str>> {
    CHANGES.into_iter().flat_map(|verb| behind(text, verb)).map(normal).collect()
}

/// The files that a patch leaves, as they are spelled, in its order.
pub(super) fn patches(text: &str) -> Vec<String> {
    let Some(begin) = text.find(BEGIN) else { return Vec::new() };
    let verbs = CHANGES.into_iter().filter(|verb| *verb != DELETE).chain([MOVE]);
    let mut found: Vec<&str> = verbs.flat_map(|verb| behind(&text[begin..], verb)).collect();
    found.sort_by_key(|path| path.as_ptr());
    found.into_iter().map(|path| path.trim_matches(['\'', '"']).to_owned()).collect()
}

/// What stands behind a verb on its lines.
fn behind<'t>(text: &'t str, verb: &'static str) -> impl Iterator<Item = &'t str> {
    text.split(verb).skip(1).take(MOST).map(|rest| {
        // The patch may be inside of a JSON string, where a line ends with an escape.
        let end = rest.find(['\n', '"']).unwrap_or(rest.len());
        let line = &rest[..end];
        line.split("\\n").next().unwrap_or(line).trim()
    })
}

/// The literals after a key, in code that is no JSON: `tools.exec_command({cmd: "cat a"})`.
pub(super) fn literals_after(text: &str, key: &str) -> Option<String> {
    let mut found = String::new();
    for literal in text.split(key).skip(1).filter_map(command::literal) {
        found.push_str(&literal.text);
        found.push('\n');
    }
    (!found.is_empty()).then_some(found)
}

/// Whether a word of a command line looks like a file: it has a directory, or a name with an ending.
pub(super) fn is_path(word: &str) -> bool {
    let word = word.trim_matches(|c| c == '\'' || c == '"');
    if word.is_empty()
        || word.starts_with('-')
        || (word.starts_with("s/") && word.matches('/').count() > 2)
        || word.contains("://")
        || word.contains(['$', '`', '(', ')', '{', '}', '=', '<', '>', '|', ' ', '\n', '@'])
    {
        return false;
    }
    let name = word.rsplit('/').next().unwrap_or(word);
    let ending = name.rsplit_once('.').filter(|(stem, _)| !stem.is_empty()).map(|(_, ending)| ending);
    let has_ending = ending.is_some_and(|ending| {
        ending.len() <= 10
            && ending.starts_with(|c: char| c.is_ascii_alphabetic())
            && ending.chars().all(char::is_alphanumeric)
    });
    has_ending || (word.contains('/') && word.chars().all(|c| c.is_alphanumeric() || "/~.-_+*".contains(c)))
}

/// The files among the words of a command line.
pub(super) fn among<'a>(words: impl Iterator<Item = &'a str>) -> Vec<Box<str>> {
    words.filter(|word| is_path(word)).take(MOST).map(normal).collect()
}
