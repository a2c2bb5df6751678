//! Whether a call shows files as they are.
//!
//! Agents quote such text to locate an edit, so it must not be condensed. A tool is recognised by its name or, if it
//! runs commands, by a command that does nothing but print files. In doubt it does not count. Nothing is run, and no
//! argument is ever changed.

use serde_json::{Map, Value};

use super::command;
use super::settings::Settings;
use super::tools;

/// Calls with longer arguments, in bytes, are not mere views.
const MAX_ARGUMENTS: usize = 16 * 1024;

/// Whether the call shows files: the tool's name is one of `views`, it is a shell whose command only prints files, or
/// its arguments are a file and at most which lines of it to show.
pub fn is_view(tool: Option<&str>, arguments: Option<&str>, settings: &Settings) -> bool {
    let Some(tool) = tool else { return false };
    let name = tools::bare(tool);
    if settings.views.matches(tool) || settings.views.matches(&name) {
        return true;
    }
    let Some(arguments) = arguments.filter(|arguments| arguments.len() <= MAX_ARGUMENTS) else {
        return false;
    };
    if tools::runs_commands(tool) {
        return has_viewing_command(arguments);
    }
    let map = serde_json::from_str::<Map<String, Value>>(arguments);
    map.is_ok_and(|map| tools::is_given_a_file(&name, &map))
}

fn has_viewing_command(arguments: &str) -> bool {
    match serde_json::from_str(arguments) {
        Ok(Value::Object(arguments)) => {
            tools::COMMANDS.iter().find_map(|&key| arguments.get(key)).is_some_and(only_prints_files)
        }
        Ok(Value::String(code)) => code_only_prints_files(&code),
        Ok(_) => false,
        Err(_) => code_only_prints_files(arguments),
    }
}

fn only_prints_files(command: &Value) -> bool {
    match command {
        Value::String(script) => command::only_prints_files(script),
        Value::Array(items) => {
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

/// Whether all that a piece of code does is to call a shell tool: `tools.exec_command({cmd: "cat a"})`.
fn code_only_prints_files(code: &str) -> bool {
    let mut calls = code.split("tools.").skip(1).peekable();
    calls.peek().is_some()
        && calls.all(|call| command_in_call(call).is_some_and(|script| command::only_prints_files(&script)))
}

/// The literal after the `cmd` key of a call's argument; `None` if it is not that simple.
fn command_in_call(call: &str) -> Option<String> {
    let (_, behind) = call.strip_prefix("exec_command(")?.split_once("cmd")?;
    command::literal(behind).filter(|literal| literal.is_plain).map(|literal| literal.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_are_recognised_by_tool_name_or_command() {
        let settings = Settings::default();
        for (tool, arguments, expected) in [
            ("Read", "", true),
            ("read_file", "not json", true),
            ("mcp__fs__read_file", "{}", true),
            ("str_replace_editor", "{}", true),
            ("str_replace_based_edit_tool", "{}", true),
            ("mcp__fs__read_text_file", "{}", true),
            ("mcp__ide__showFile", r#"{"path":"package.json"}"#, true),
            ("mcp__ide__deleteFile", r#"{"path":"package.json"}"#, false),
            ("mcp__desktop-commander__start_process", r#"{"command":"cat a"}"#, true),
            ("Grep", r#"{"command":"cat a"}"#, false),
            ("Bash", r#"{"command":"cat a","description":"x"}"#, true),
            ("Bash", r#"{"command":"cat a | sort"}"#, false),
            ("Bash", r#"{"description":"cat a"}"#, false),
            ("Bash", "cat a", false),
            ("Bash", "[\"cat a\"]", false),
            ("Bash", r#"{"command":7}"#, false),
            ("run_command", r#"{"input":"cat a"}"#, true),
            ("run_command", r#"{"code":"cat a; make"}"#, false),
            ("Bash", r#"{"command":["cat",7]}"#, false),
            ("shell", r#"{"command":["bash","-lc","sed -n '1,200p' src/a.rs"]}"#, true),
            ("shell", r#"{"command":["cat","my file; rm x"]}"#, true),
            ("shell", r#"{"command":["rm","cat a"]}"#, false),
            ("shell", r#"{"command":[]}"#, false),
            ("exec_command", r#"{"cmd":"nl -ba a | sed -n '1,20p'"}"#, true),
            ("run_shell_command", r#"{"commands":["cat a","head b"]}"#, true),
            ("run_shell_command", r#"{"commands":["cat a","make"]}"#, false),
            ("exec", r#"{"script":"cat a\nhead -n 5 b"}"#, true),
            (
                "exec",
                r#"const r = await tools.exec_command({cmd: "sed -n '1,9p' \"a b\"", x: 1}); text(r.output);"#,
                true,
            ),
            ("exec", r#""text((await tools.exec_command({\"cmd\":\"cat a\"})).output)""#, true),
            ("exec", "tools.exec_command({cmd:'cat a'}); tools.exec_command({cmd:`head b\n`})", true),
            ("exec", "tools.exec_command({cmd:'cat a'}); tools.exec_command({cmd:'make'})", false),
            ("exec", "tools.exec_command({cmd:`cat ${f}`})", false),
            ("exec", "tools.exec_command({cmd: script})", false),
            ("exec", r#"tools.exec_command({cmd: "cat \x61"})"#, false),
            ("exec", "tools.exec_command({cmd: 'cat a", false),
            ("exec", "tools.write_stdin({cmd: 'cat a'})", false),
            ("exec", "text('cat a')", false),
        ] {
            assert_eq!(is_view(Some(tool), Some(arguments), &settings), expected, "{tool} {arguments}");
        }
        assert!(!is_view(None, Some(r#"{"command":"cat a"}"#), &settings));
        assert!(!is_view(Some("Bash"), None, &settings));
        let deep = format!("{{\"command\":{}", "[".repeat(10_000));
        assert!(!is_view(Some("Bash"), Some(&deep), &settings));
    }
}
