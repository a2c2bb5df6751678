//! Tools by their names.

use serde_json::{Map, Value};

use crate::strategy::Class;

/// What a name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A shell: its command says more.
    Shell,
    /// A tool of that class.
    Of(Class),
}

/// Names of tools, without what a server or a namespace puts before them, in lower case.
const TOOLS: &[(Kind, &[&str])] = &[
    (
        Kind::Of(Class::View),
        &[
            "read",
            "read_file",
            "readfile",
            "view",
            "view_file",
            "cat",
            "open_file",
            "notebookread",
            "read_many_files",
            "get_file_contents",
            "fs_read",
        ],
    ),
    (
        Kind::Of(Class::Edit),
        &[
            "edit",
            "multiedit",
            "write",
            "write_file",
            "create_file",
            "str_replace",
            "str_replace_based_edit_tool",
            "str_replace_editor",
            "apply_patch",
            "replace",
            "edit_file",
            "notebookedit",
            "search_replace",
            "insert_edit_into_file",
            "fs_write",
            "patch",
        ],
    ),
    (
        Kind::Of(Class::Search),
        &[
            "grep",
            "glob",
            "ls",
            "find",
            "list_dir",
            "list_directory",
            "search_file_content",
            "codebase_search",
            "file_search",
            "grep_search",
            "search_files",
            "toolsearch",
        ],
    ),
    (Kind::Of(Class::Delegate), &["task", "agent", "subtask", "spawn_agent"]),
    (Kind::Of(Class::Fetch), &["webfetch", "websearch", "web_fetch", "web_search"]),
    (
        Kind::Shell,
        &[
            "bash",
            "shell",
            "exec_command",
            "exec",
            "execute_bash",
            "run_terminal_cmd",
            "run_shell_command",
            "local_shell",
            "terminal",
            "execute_command",
            "run_command",
        ],
    ),
];

/// Tools that show or change files, as their `command` says.
const EDITORS: &[&str] = &["str_replace_editor", "str_replace_based_edit_tool"];

/// The kind of a tool.
pub(super) fn kind(tool: &str, arguments: &Map<String, Value>) -> Kind {
    let name = tool.to_ascii_lowercase();
    let name = name.rsplit("__").next().unwrap_or(&name);
    let name = name.rsplit('.').next().unwrap_or(name);
    if EDITORS.contains(&name) && arguments.get("command").and_then(Value::as_str) == Some("view") {
        return Kind::Of(Class::View);
    }
    let row = TOOLS.iter().find(|(_, names)| names.contains(&name));
    row.map_or(Kind::Of(Class::Other), |(kind, _)| *kind)
}
