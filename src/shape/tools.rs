//! Which tools read files and which run commands, judging by their names and arguments.
//!
//! These lists are the only ones, so that decisions on what may be condensed and on what is worth keeping agree. They
//! are a guess in any case. Nothing here looks at the answer of a tool.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::settings::{NamePatterns, PROCESSES, SHELLS, VIEWS};
use crate::conversation::files::{PATH_LISTS, PATHS};

/// Arguments that contain the command for a shell, most usual first.
pub const COMMANDS: &[&str] = &["command", "cmd", "script", "commands", "input", "code"];
/// Arguments that say at which line of a file to begin.
pub const FIRST: &[&str] = &[
    "offset",
    "start_line",
    "startLine",
    "line_start",
    "lineStart",
    "from_line",
    "fromLine",
    "start_line_number",
    "startLineNumber",
    "startLineNumberBaseZero",
    "start_line_one_indexed",
    "startRow",
    "start",
    "from",
    "begin",
];
/// Arguments that say at which line to end.
pub const LAST: &[&str] = &[
    "end_line",
    "endLine",
    "line_end",
    "lineEnd",
    "to_line",
    "toLine",
    "end_line_number",
    "endLineNumber",
    "endLineNumberBaseZero",
    "end_line_one_indexed_inclusive",
    "endRow",
    "end",
    "to",
];
/// Arguments that say how many lines to show.
pub const COUNT: &[&str] = &[
    "limit",
    "length",
    "num_lines",
    "numLines",
    "line_count",
    "max_lines",
    "maxLines",
    "maxLinesCount",
    "lines",
    "count",
    "head",
];
/// Arguments that say how many lines to show from the end.
pub const TAIL: &[&str] = &["tail"];
/// Arguments that say around which line to show a file.
pub const AROUND: &[&str] = &["line_number", "lineNumber", "line"];
/// Arguments with a pair of numbers, the first line and the last.
pub const PAIRS: &[&str] = &["view_range", "line_range", "lineRange", "lines", "range"];
/// Arguments that ask for a part of a file other than by lines.
pub const PARTS: &[&str] = &[
    "name_path",
    "name_path_pattern",
    "symbol",
    "symbol_name",
    "symbolName",
    "pattern",
    "query",
    "regex",
    "section",
    "cell_id",
];
/// Arguments that do not affect which lines are shown.
const IRRELEVANT: &[&str] = &[
    "description",
    "explanation",
    "reason",
    "thought",
    "encoding",
    "should_read_entire_file",
    "isUrl",
    "projectPath",
    "owner",
    "repo",
    "ref",
    "branch",
];

/// Words in the names of tools that do something other than show a file.
const OTHER_USES: &[&str] = &[
    "list",
    "dir",
    "tree",
    "search",
    "find",
    "grep",
    "glob",
    "match",
    "delete",
    "remove",
    "create",
    "new",
    "make",
    "write",
    "edit",
    "insert",
    "replace",
    "patch",
    "update",
    "append",
    "set",
    "add",
    "move",
    "rename",
    "copy",
    "run",
    "exec",
    "test",
    "build",
    "lint",
    "check",
    "format",
    "fix",
    "compile",
    "diagnos",
    "error",
    "problem",
    "stat",
    "info",
    "meta",
    "exist",
    "upload",
    "download",
    "save",
    "send",
    "screenshot",
    "image",
    "photo",
    "picture",
    "video",
    "audio",
    "pdf",
    "render",
    "convert",
    "outline",
    "symbol",
    "reference",
    "definition",
    "hover",
    "navigate",
    "browser",
    "click",
    "git",
    "diff",
    "blame",
    "history",
    "log",
    "hash",
    "analy",
    "summar",
    "index",
    "parse",
    "valid",
    "stage",
    "undo",
    "revert",
    "submit",
    "watch",
];
/// Extensions of files that are not text.
const BINARY_EXTENSIONS: &[&str] =
    &["png", "jpg", "jpeg", "gif", "webp", "bmp", "ico", "svgz", "pdf", "mp3", "mp4", "wav", "mov", "zip"];

static READERS: LazyLock<NamePatterns> = LazyLock::new(|| patterns(VIEWS));
static RUNNERS: LazyLock<NamePatterns> = LazyLock::new(|| patterns(&[SHELLS, PROCESSES].concat()));

fn patterns(globs: &[&str]) -> NamePatterns {
    NamePatterns::new(globs.iter().copied()).expect("the shipped patterns are globs")
}

/// The name of a tool without the prefix of a server or a namespace, in lower case, words joined by `_`.
pub fn bare(tool: &str) -> String {
    let name = tool.to_ascii_lowercase();
    let name = name.rsplit("__").next().unwrap_or(&name);
    let name = name.rsplit(['.', '/', ':']).next().unwrap_or(name);
    name.replace(['-', ' '], "_")
}

/// Whether the tool runs commands that it is given.
pub fn runs_commands(tool: &str) -> bool {
    RUNNERS.matches(tool) || RUNNERS.matches(&bare(tool))
}

/// Whether the call of a tool shows files as they are: by its name or, if that says nothing, because its arguments are
/// a file name and at most which lines to show.
pub fn reads_files(tool: &str, arguments: &Map<String, Value>) -> bool {
    let name = bare(tool);
    if READERS.matches(tool) || READERS.matches(&name) {
        let lists = || PATH_LISTS.iter().any(|key| arguments.contains_key(*key));
        return arguments.is_empty() || lists() || path(arguments).is_some_and(is_text);
    }
    is_given_a_file(&name, arguments)
}

/// Whether the name does not suggest anything else, and the arguments are a file and at most which lines of it to show.
pub(super) fn is_given_a_file(name: &str, arguments: &Map<String, Value>) -> bool {
    let is_range = |key: &str| {
        [FIRST, LAST, COUNT, TAIL, AROUND, PAIRS, IRRELEVANT].iter().any(|keys| keys.contains(&key))
    };
    let mut others = arguments.keys().filter(|key| !is_range(key.as_str()));
    others.next().is_some_and(|key| PATHS.contains(&key.as_str()))
        && others.next().is_none()
        && path(arguments).is_some_and(|path| is_text(path) && has_ending(path))
        && !OTHER_USES.iter().any(|word| name.contains(word))
        && !runs_commands(name)
}

/// Whether the name of a tool suggests that it does something other than show a file.
pub fn suggests_other_use(tool: &str) -> bool {
    let name = bare(tool);
    OTHER_USES.iter().any(|word| name.contains(word))
}

fn path(arguments: &Map<String, Value>) -> Option<&str> {
    PATHS.iter().find_map(|key| arguments.get(*key)?.as_str()).filter(|path| !path.is_empty())
}

fn ending(path: &str) -> Option<&str> {
    let name = path.rsplit(['/', '\\']).next()?;
    name.rsplit_once('.').filter(|(stem, _)| !stem.is_empty()).map(|(_, ending)| ending)
}

/// Whether a file may contain text, by the ending of its name.
pub fn is_text(path: &str) -> bool {
    !ending(path).is_some_and(|ending| BINARY_EXTENSIONS.contains(&ending.to_ascii_lowercase().as_str()))
}

/// Whether the name of a file has an ending.
pub fn has_ending(path: &str) -> bool {
    !path.contains("://")
        && ending(path).is_some_and(|ending| {
            ending.len() <= 10
                && ending.starts_with(|c: char| c.is_ascii_alphabetic())
                && ending.chars().all(char::is_alphanumeric)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_reading_tools_are_recognised() {
        for (tool, arguments, expected) in [
            ("Read", r#"{"file_path":"a"}"#, true),
            ("Read", "{}", true),
            ("mcp__filesystem__read_text_file", r#"{"path":"a.json","head":3}"#, true),
            ("filesystem_read_text_file", r#"{"path":"a.json"}"#, true),
            ("read_multiple_files", r#"{"paths":["a","b"]}"#, true),
            ("mcp__jetbrains__get_file_text_by_path", r#"{"pathInProject":"a.rs"}"#, true),
            ("mcp__github__get_file_contents", r#"{"owner":"o","repo":"r","path":"LICENSE"}"#, true),
            ("readFiles", r#"{"files":[{"path":"a"}]}"#, true),
            ("readFile", r#"{"filePath":"a","startLine":3,"endLine":9}"#, true),
            ("Read File", r#"{"path":"a"}"#, true),
            ("fs.read_text", r#"{"path":"a"}"#, true),
            ("read-file", r#"{"path":"a"}"#, true),
            ("builtin_read_file", r#"{"path":"a"}"#, true),
            ("file_read", r#"{"path":"a"}"#, true),
            ("text_editor", r#"{"command":"view","path":"a"}"#, true),
            ("Get-Content", r#"{"path":"a"}"#, true),
            ("open", r#"{"path":"a","line_number":3}"#, true),
            ("mcp__serena__find_symbol", r#"{"name_path":"A/b","relative_path":"a.rs"}"#, true),
            ("get_symbols_overview", r#"{"relative_path":"a.rs"}"#, true),
            ("show_file", r#"{"path":"a.rs","from":1,"to":2}"#, true),
            ("getFile", r#"{"file":"a.rs"}"#, true),
            // A tool whose arguments name no file reads none, whatever its name.
            ("read_graph", r#"{"id":1}"#, false),
            ("open", r#"{"url":"https://e.org"}"#, false),
            ("view_image", r#"{"path":"a.png"}"#, false),
            ("getFile", r#"{"file":"a.PNG"}"#, false),
            ("getFile", r#"{"file":"src"}"#, false),
            ("getFile", r#"{"file":"https://e.org/a.rs"}"#, false),
            ("getFile", r#"{"file":"a.rs","mode":"x"}"#, false),
            ("getFile", r#"{"file":"a.rs","path":"b.rs"}"#, false),
            ("delete_file", r#"{"path":"a.rs"}"#, false),
            ("get_diagnostics", r#"{"path":"a.rs"}"#, false),
            ("run_tests", r#"{"path":"a.rs"}"#, false),
            ("list_directory", r#"{"path":"a.d"}"#, false),
            ("shell", r#"{"path":"a.rs"}"#, false),
            ("Grep", r#"{"path":"a.rs"}"#, false),
            ("x", "{}", false),
        ] {
            let arguments = serde_json::from_str(arguments).unwrap();
            assert_eq!(reads_files(tool, &arguments), expected, "{tool} {arguments:?}");
        }
    }

    #[test]
    fn command_tools_are_recognised() {
        for tool in [
            "Bash",
            "executeBash",
            "run_in_terminal",
            "shell_command",
            "unified_exec",
            "exec_command",
            "PowerShell",
            "mcp__desktop-commander__start_process",
            "interact_with_process",
            "write_stdin",
            "local_shell",
            "run_command",
        ] {
            assert!(runs_commands(tool), "{tool}");
        }
        for tool in ["Read", "Grep", "process_payment", "Task"] {
            assert!(!runs_commands(tool), "{tool}");
        }
    }
}
