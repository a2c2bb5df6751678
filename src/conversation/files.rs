//! Files named in the arguments of calls: in members, in lists, in patches.
//!
//! The only list of such members, so that everything about files is based on the same ones. In any case a guess; no
//! tool is recognised by its name here.

use serde_json::{Map, Value};

/// Arguments that name a file.
pub const PATHS: &[&str] = &[
    "file_path",
    "path",
    "filepath",
    "filePath",
    "notebook_path",
    "filename",
    "file",
    "target_file",
    "absolute_path",
    "relative_path",
    "absolutePath",
    "relativePath",
    "pathInProject",
    "abs_path",
];
/// Arguments that name several files, each as a string or an object.
pub const PATH_LISTS: &[&str] = &["paths", "file_paths", "filePaths", "files", "include"];

/// The most items taken from a list, and the most files of one kind from a patch.
pub const MAX_FILES: usize = 32;
/// The longest path, in bytes.
pub const MAX_PATH: usize = 300;

/// Whether a name may be that of a file: it is not blank, and no longer than paths are.
pub fn is_path(name: &str) -> bool {
    name.len() <= MAX_PATH && !name.trim().is_empty()
}

/// The values of all arguments that may name a file, as spelled.
pub fn spelled(arguments: &Map<String, Value>) -> impl Iterator<Item = &str> {
    let named = PATHS.iter().filter_map(|key| arguments.get(*key)?.as_str());
    named.filter(|path| !path.is_empty())
}

/// The files that arguments name, as spelled. If there is another name, `file` is taken for the contents.
pub fn named(arguments: &Map<String, Value>) -> Vec<&str> {
    let named: Vec<&str> = spelled(arguments).filter(|path| !path.contains('\n')).collect();
    let content = arguments.get("file").and_then(Value::as_str).filter(|_| named.len() > 1);
    named.into_iter().filter(|path| Some(*path) != content).collect()
}

/// The items of all lists of files in arguments.
pub fn items(arguments: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    PATH_LISTS.iter().filter_map(|key| arguments.get(*key)?.as_array()).flatten().take(MAX_FILES)
}

/// The files that a call with these arguments is about, as spelled: those named directly, otherwise those in lists and
/// patches.
pub fn concerned(arguments: &str) -> Vec<String> {
    let Ok(map) = serde_json::from_str::<Map<String, Value>>(arguments) else {
        return after_patch(arguments);
    };
    let named = named(&map);
    if !named.is_empty() {
        return named.into_iter().map(str::to_owned).collect();
    }
    let is_file = |path: &&str| !path.is_empty() && !path.contains(['\n', '*']);
    let listed = items(&map).filter_map(|item| match item {
        Value::String(path) => Some(path.as_str()),
        Value::Object(own) => spelled(own).next(),
        _ => None,
    });
    listed.filter(is_file).map(str::to_owned).chain(after_patches(&map)).collect()
}

/// The first line of a patch.
const BEGIN: &str = "*** Begin Patch";
/// The beginnings of the lines of a patch that name a file.
const CHANGES: [&str; 3] = ["*** Update File: ", "*** Add File: ", DELETE];
const DELETE: &str = "*** Delete File: ";
/// The beginning of a line that gives the file in the line before it a new name.
const MOVE: &str = "*** Move to: ";

/// The files that a patch changes, as spelled.
pub fn changed(text: &str) -> impl Iterator<Item = &str> {
    CHANGES.into_iter().flat_map(|verb| behind(text, verb))
}

/// The files that exist after the patches in arguments: a patch is one of the texts, or a word of a command line.
pub fn after_patches(arguments: &Map<String, Value>) -> Vec<String> {
    let words = arguments
        .values()
        .flat_map(|value| value.as_array().map_or_else(|| std::slice::from_ref(value), Vec::as_slice));
    words.filter_map(Value::as_str).flat_map(after_patch).collect()
}

/// The files that exist after a patch, as spelled, in the order of the patch.
pub fn after_patch(text: &str) -> Vec<String> {
    let Some(begin) = text.find(BEGIN) else { return Vec::new() };
    let verbs = CHANGES.into_iter().filter(|verb| *verb != DELETE).chain([MOVE]);
    let mut found: Vec<&str> = verbs.flat_map(|verb| behind(&text[begin..], verb)).collect();
    found.sort_by_key(|path| path.as_ptr());
    found.into_iter().map(|path| path.trim_matches(['\'', '"']).to_owned()).collect()
}

/// What follows a verb on each of its lines.
fn behind<'t>(text: &'t str, verb: &'static str) -> impl Iterator<Item = &'t str> {
    text.split(verb).skip(1).take(MAX_FILES).map(|rest| {
        // The patch may be inside a JSON string, where a line ends with an escape.
        let end = rest.find(['\n', '"']).unwrap_or(rest.len());
        let line = &rest[..end];
        line.split("\\n").next().unwrap_or(line).trim()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_calls_are_found_in_arguments_and_patches() {
        let patch = r"*** Begin Patch\n*** Update File: B.rs\n*** Move to: C.rs\n@@\n-x\n+y\n*** Delete File: d.rs\n*** Add File: a.rs\n+x";
        for (arguments, expected) in [
            (r#"{"file_path":"/w/A.rs","content":"x"}"#, "/w/A.rs"),
            (r#"{"relative_path":"a.rs","name_path":"A/b"}"#, "a.rs"),
            (r#"{"pathInProject":"a.rs"}"#, "a.rs"),
            (r#"{"filepath":"a.rs"}"#, "a.rs"),
            (r#"{"path":"a.rs","absolutePath":"/w/b.rs"}"#, "a.rs, /w/b.rs"),
            (r#"{"filename":"n.txt","file":"what it says"}"#, "n.txt"),
            (r#"{"paths":["a.rs","B.rs"]}"#, "a.rs, B.rs"),
            (r#"{"files":[{"path":"a.rs","start_line":2},{"id":1},7]}"#, "a.rs"),
            (r#"{"include":["*.rs"]}"#, ""),
            (&patch.replace(r"\n", "\n"), "B.rs, C.rs, a.rs"),
            (&format!(r#"{{"input":"{patch}"}}"#), "B.rs, C.rs, a.rs"),
            (&format!(r#"{{"command":["apply_patch","{patch}"],"workdir":"/w"}}"#), "B.rs, C.rs, a.rs"),
            (&format!(r#"await tools.apply_patch("{patch}")"#), "B.rs, C.rs, a.rs"),
            // A file that contains a patch is not one.
            (&format!(r#"{{"path":"p.diff","content":"{patch}"}}"#), "p.diff"),
            (r#"{"command":"cat a.rs"}"#, ""),
            (r#"{"path":""}"#, ""),
            ("[1]", ""),
            ("", ""),
        ] {
            assert_eq!(concerned(arguments).join(", "), expected, "{arguments}");
        }
    }
}
