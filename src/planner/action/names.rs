//! Recognises tools by their names.

use serde_json::{Map, Value};

use crate::shape::tools;
use crate::strategy::Class;

/// What a name says about a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It is a shell: its command says more.
    Shell,
    /// It has this class.
    Of(Class),
    /// Nothing: its arguments may say more.
    Unknown,
}

/// Names of tools that neither read files nor run commands, in lower case, without the prefix of a server or a
/// namespace.
const TOOLS: &[(Class, &[&str])] = &[
    (
        Class::Edit,
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
            "text_editor",
            "replace_string_in_file",
            "multi_replace_string_in_file",
            "edit_block",
            "write_to_file",
            "replace_in_file",
            "apply_diff",
            "insert_content",
            "create_text_file",
            "replace_symbol_body",
            "insert_after_symbol",
            "insert_before_symbol",
        ],
    ),
    (
        Class::Search,
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
            "list_files",
            "directory_tree",
            "find_file",
            "search_for_pattern",
            "semantic_search",
            "find_referencing_symbols",
        ],
    ),
    (
        Class::Other,
        &["task", "agent", "subtask", "spawn_agent", "webfetch", "websearch", "web_fetch", "web_search"],
    ),
];

/// Tools that show or change files, depending on their `command`.
const EDITORS: &[&str] = &["str_replace_editor", "str_replace_based_edit_tool", "text_editor"];

/// The kind of a tool.
pub(super) fn kind(tool: &str, arguments: &Map<String, Value>) -> Kind {
    let name = tools::bare(tool);
    let name = name.as_str();
    if EDITORS.contains(&name) && arguments.get("command").and_then(Value::as_str) == Some("view") {
        return Kind::Of(Class::View);
    }
    if let Some((class, _)) = TOOLS.iter().find(|(_, names)| names.contains(&name)) {
        return Kind::Of(*class);
    }
    if tools::reads_files(tool, arguments) {
        return Kind::Of(Class::View);
    }
    if tools::runs_commands(tool) { Kind::Shell } else { Kind::Unknown }
}
