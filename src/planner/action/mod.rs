//! What a tool call does, inferred from its name and arguments: shows a file, changes one, searches, runs something.
//!
//! This is a guess, used only as a hint of what is worth keeping: no edit depends on it. A shell command that is not
//! understood counts as running something.

mod guess;
mod names;
mod paths;
mod ranges;
mod shell;

use serde_json::{Map, Value};
use xxhash_rust::xxh3::Xxh3;

use crate::conversation::{boundary, files};
use crate::shape::tools;
use crate::strategy::{Action, Class, View};

use names::Kind;

/// Arguments are inspected up to this many bytes.
const MAX_ARGUMENTS: usize = 64 * 1024;

/// If a single line is asked for, this many lines on either side are assumed to be shown too.
const LINES_AROUND: u32 = 50;

/// What a call of `tool` with these arguments does.
pub(super) fn of(tool: &str, arguments: &str) -> Action {
    let call = digest(tool, arguments);
    let text = &arguments[..boundary::floor(arguments, MAX_ARGUMENTS)];
    let map = match serde_json::from_str(text) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    };
    let named: Vec<Box<str>> = paths::named(&map);
    let action = match names::kind(tool, &map) {
        Kind::Shell => shell::action(&script(&map, text)),
        Kind::Of(Class::View) => {
            Action { class: Class::View, views: views(&named, &map), ..Action::default() }
        }
        Kind::Of(Class::Edit) => Action {
            class: Class::Edit,
            edits: if named.is_empty() { paths::patched(text) } else { named.clone() }.into(),
            all_or_nothing: true,
            ..Action::default()
        },
        Kind::Of(class) => Action { class, ..Action::default() },
        Kind::Unknown => guess::action(tool, &map).unwrap_or_default(),
    };
    let mentions = if !action.mentions.is_empty() {
        action.mentions
    } else if named.is_empty() {
        action.views.iter().map(|view| view.path.clone()).collect()
    } else {
        named.into()
    };
    Action { mentions, call, ..action }
}

/// Whether a call of `tool` may have run something. If it has not, an exit status in its result is not its own.
pub(super) fn may_run(tool: &str, arguments: &str) -> bool {
    let map = serde_json::from_str::<Map<String, Value>>(arguments).unwrap_or_default();
    !matches!(names::kind(tool, &map), Kind::Of(Class::View | Class::Search))
}

/// The files that a call of `tool` with these arguments writes, as it spells them, in order. For shells, only those
/// named by a patch: anything else a script writes would be a guess.
pub fn written(tool: &str, arguments: &str) -> Vec<String> {
    let may_write = |kind: Kind| matches!(kind, Kind::Shell | Kind::Of(Class::Edit));
    if !may_write(names::kind(tool, &Map::new())) {
        return Vec::new();
    }
    let Ok(map) = serde_json::from_str::<Map<String, Value>>(arguments) else {
        return files::after_patch(arguments);
    };
    let kind = names::kind(tool, &map);
    if !may_write(kind) {
        return Vec::new();
    }
    let named = files::named(&map);
    if kind != Kind::Shell && !named.is_empty() {
        return named.into_iter().map(str::to_owned).collect();
    }
    files::after_patches(&map)
}

/// A hash that is the same in every run and on every machine. It is not stored.
fn digest(tool: &str, arguments: &str) -> u64 {
    let mut hasher = Xxh3::new();
    // A separator that no text contains.
    for piece in [tool.as_bytes(), &[0xff], arguments.as_bytes()] {
        hasher.update(piece);
    }
    hasher.digest()
}

/// The script that a shell is given: a string, a list of words, or code with the script in a literal.
fn script(map: &Map<String, Value>, text: &str) -> String {
    match tools::COMMANDS.iter().find_map(|key| map.get(*key)) {
        Some(Value::String(script)) => script.clone(),
        Some(Value::Array(words)) => {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            match words.as_slice() {
                [_, "-c" | "-lc", script, ..] => (*script).to_owned(),
                words => words.join(" "),
            }
        }
        _ if map.is_empty() => paths::literals_after(text, "cmd").unwrap_or_else(|| text.to_owned()),
        _ => String::new(),
    }
}

/// The views that a reading tool is asked for; none if it is asked for a part of a file that is not given in lines.
fn views(named: &[Box<str>], map: &Map<String, Value>) -> Box<[View]> {
    if tools::PARTS.iter().any(|key| map.contains_key(*key)) {
        return Box::default();
    }
    match named.first() {
        Some(path) => [view(path.clone(), map)].into(),
        None => paths::listed(map).into_iter().map(|(path, own)| view(path, &own)).collect(),
    }
}

/// The lines of a file that are asked for.
fn view(path: Box<str>, map: &Map<String, Value>) -> View {
    let number = |keys: &[&str]| keys.iter().find_map(|key| whole(map.get(*key)?));
    let line = |number: i64| u32::try_from(number).unwrap_or(if number < 0 { 0 } else { u32::MAX });
    // A negative number counts from the end.
    let from_end = number(tools::FIRST)
        .filter(|first| *first < 0)
        .map(i64::saturating_neg)
        .or_else(|| number(tools::TAIL));
    if let Some(count) = from_end {
        return View::of(path, (u32::MAX - line(count), u32::MAX));
    }
    let given = number(tools::FIRST).map(line);
    let (mut first, mut last) = (given.unwrap_or(1).max(1), u32::MAX);
    if let Some(end) = number(tools::LAST) {
        last = if end > 0 { line(end) } else { u32::MAX };
    } else if let Some(count) = number(tools::COUNT) {
        last = first.saturating_add(line(count)).saturating_sub(1);
    } else if let Some(middle) = number(tools::AROUND).map(line).filter(|_| given.is_none()) {
        (first, last) = (middle.saturating_sub(LINES_AROUND).max(1), middle.saturating_add(LINES_AROUND));
    }
    let pair = tools::PAIRS.iter().find_map(|key| map.get(*key)?.as_array());
    if let Some([from, to]) = pair.map(Vec::as_slice) {
        first = whole(from).map_or(1, line);
        last = whole(to).filter(|last| *last > 0).map_or(u32::MAX, line);
    }
    View::of(path, (first, last))
}

/// An integer, or a text that is one.
fn whole(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.trim().parse().ok())
}

#[cfg(test)]
mod tests;
