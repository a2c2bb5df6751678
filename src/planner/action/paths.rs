//! Paths in arguments, patches and command lines, normalised for comparison.

use serde_json::{Map, Value};

use crate::conversation::files;
use crate::shape::{command, tools};

/// The spelling by which paths are compared.
pub(super) fn normal(path: &str) -> Box<str> {
    let path = path.trim_matches(|c| c == '\'' || c == '"').replace('\\', "/");
    path.trim_end_matches('/').to_lowercase().into()
}

/// The files that arguments name.
pub(super) fn named(arguments: &Map<String, Value>) -> Vec<Box<str>> {
    files::spelled(arguments).map(normal).collect()
}

/// The files in the lists of arguments, each with the object that names it.
pub(super) fn listed(arguments: &Map<String, Value>) -> Vec<(Box<str>, Map<String, Value>)> {
    let file = |item: &Value| match item {
        Value::String(path) => Some((normal(path), Map::new())),
        Value::Object(own) => Some((named(own).into_iter().next()?, own.clone())),
        _ => None,
    };
    files::items(arguments).filter_map(file).collect()
}

/// The files that a patch changes.
pub(super) fn patched(text: &str) -> Vec<Box<str>> {
    files::changed(text).map(normal).collect()
}

/// The literals after a key, one per line, in code that is not JSON: `tools.exec_command({cmd: "cat a"})`.
pub(super) fn literals_after(text: &str, key: &str) -> Option<String> {
    let mut found = String::new();
    for literal in text.split(key).skip(1).filter_map(command::literal) {
        found.push_str(&literal.text);
        found.push('\n');
    }
    (!found.is_empty()).then_some(found)
}

/// Whether a word of a command line looks like a file: it has a directory, or a name with an extension.
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
    tools::has_ending(word)
        || (word.contains('/') && word.chars().all(|c| c.is_alphanumeric() || "/~.-_+*".contains(c)))
}

/// The files among the words of a command line.
pub(super) fn among<'a>(words: impl Iterator<Item = &'a str>) -> Vec<Box<str>> {
    words.filter(|word| is_path(word)).take(files::MAX_FILES).map(normal).collect()
}
