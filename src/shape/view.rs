//! Whether a call shows files as they are.
//!
//! Agents quote such text back to find the place of an edit, so it must not be condensed. A tool counts by its
//! name, or, if it runs commands, by a command that does nothing but print files. In doubt it does not count.

use std::sync::LazyLock;

use serde_json::Value;

use super::command;
use super::settings::{SHELLS, Settings, Tools};

/// Longer arguments are no mere view.
const MAX_ARGUMENTS: usize = 16 * 1024;
/// Where the arguments of shells hold the command, most usual first.
const COMMAND_KEYS: [&str; 4] = ["command", "cmd", "script", "commands"];

static RUNS_COMMANDS: LazyLock<Tools> =
    LazyLock::new(|| Tools::new(SHELLS.iter().copied()).expect("the shipped patterns are globs"));

/// Whether the call shows files: the tool's name is one of `views`, or it is a shell whose command only prints
/// files.
pub fn is_view(tool: Option<&str>, arguments: Option<&str>, settings: &Settings) -> bool {
    let Some(tool) = tool else { return false };
    settings.views.matches(tool)
        || (RUNS_COMMANDS.matches(tool) && arguments.is_some_and(has_viewing_command))
}

fn has_viewing_command(arguments: &str) -> bool {
    if arguments.len() > MAX_ARGUMENTS {
        return false;
    }
    let Ok(Value::Object(arguments)) = serde_json::from_str(arguments) else { return false };
    match COMMAND_KEYS.iter().find_map(|&key| arguments.get(key)) {
        Some(Value::String(script)) => command::only_prints_files(script),
        Some(Value::Array(items)) => {
            let items: Option<Vec<&str>> = items.iter().map(Value::as_str).collect();
            items.is_some_and(|items| {
                // One command as a list of words, or a list of commands.
                command::words_only_print_files(&items)
                    || (!items.is_empty() && items.iter().all(|script| command::only_prints_files(script)))
            })
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_are_told_by_name_or_by_command() {
        let settings = Settings::default();
        for (tool, arguments, expected) in [
            ("Read", "", true),
            ("read_file", "not json", true),
            ("mcp__fs__read_file", "{}", true),
            ("str_replace_editor", "{}", true),
            ("str_replace_based_edit_tool", "{}", true),
            ("Grep", r#"{"command":"cat a"}"#, false),
            ("Bash", r#"{"command":"cat a","description":"x"}"#, true),
            ("Bash", r#"{"command":"cat a | sort"}"#, false),
            ("Bash", r#"{"description":"cat a"}"#, false),
            ("Bash", "cat a", false),
            ("Bash", "[\"cat a\"]", false),
            ("Bash", r#"{"command":7}"#, false),
            ("Bash", r#"{"command":["cat",7]}"#, false),
            ("shell", r#"{"command":["bash","-lc","sed -n '1,200p' src/a.rs"]}"#, true),
            ("shell", r#"{"command":["cat","my file; rm x"]}"#, true),
            ("shell", r#"{"command":["rm","cat a"]}"#, false),
            ("shell", r#"{"command":[]}"#, false),
            ("exec_command", r#"{"cmd":"nl -ba a | sed -n '1,20p'"}"#, true),
            ("run_shell_command", r#"{"commands":["cat a","head b"]}"#, true),
            ("run_shell_command", r#"{"commands":["cat a","make"]}"#, false),
            ("exec", r#"{"script":"cat a\nhead -n 5 b"}"#, true),
        ] {
            assert_eq!(is_view(Some(tool), Some(arguments), &settings), expected, "{tool} {arguments}");
        }
        assert!(!is_view(None, Some(r#"{"command":"cat a"}"#), &settings));
        assert!(!is_view(Some("Bash"), None, &settings));
        let deep = format!("{{\"command\":{}", "[".repeat(10_000));
        assert!(!is_view(Some("Bash"), Some(&deep), &settings));
    }
}
