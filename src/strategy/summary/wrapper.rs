//! Recognises text that clients put next to the user's words, by the tags around it.
//!
//! This is the only list of such tags. Text in any other tags counts as the user's, because editors also put tags
//! around the user's words (`user_query`, `task`, `feedback`), and so do users.

/// Names of tags around what clients say, in lower case, words joined by `_`.
const NAMES: &[&str] = &[
    "collaboration_mode",
    "environment_info",
    "git_status",
    "ide_opened_file",
    "ide_selection",
    "local_command_caveat",
    "local_command_stderr",
    "local_command_stdout",
    "multi_agent_mode",
    "open_and_recently_viewed_files",
    "personality_spec",
    "project_layout",
    "recommended_plugins",
    "subagent_notification",
    "task_notification",
    "turn_aborted",
    "user_info",
    "workspace_info",
];
/// Parts of other such names: `system-reminder`, `environment_context`, `environment_details`, `user_instructions`.
const PARTS: &[&str] = &["instructions", "reminder", "context", "details"];

/// Whether a whole text is inside such tags: in one pair, or in several consecutive ones.
pub fn is_wrapped(text: &str) -> bool {
    let mut rest = text.trim();
    while let Some(tag) = opening(rest).filter(|tag| is_of_client(tag)) {
        match behind(rest, tag) {
            // A tag of this name inside is not closed, for example because it is only mentioned.
            None => return rest.ends_with(&format!("</{tag}>")),
            Some("") => return true,
            Some(behind) => rest = behind,
        }
    }
    false
}

/// Whether this is the name of a tag around what clients say.
fn is_of_client(tag: &str) -> bool {
    let name = tag.to_ascii_lowercase().replace('-', "_");
    NAMES.contains(&name.as_str()) || PARTS.iter().any(|part| name.contains(part))
}

/// The characters that end the name of a tag.
const ENDS: [char; 3] = ['>', ' ', '\n'];

/// The name of the tag that a text begins with.
fn opening(text: &str) -> Option<&str> {
    text.strip_prefix('<')?.split(ENDS).next().filter(|tag| !tag.is_empty())
}

/// What follows the pair of tags that a text begins with; `None` if it is not closed.
fn behind<'t>(text: &'t str, tag: &str) -> Option<&'t str> {
    let (open, close) = (format!("<{tag}"), format!("</{tag}>"));
    let (mut depth, mut rest) = (0, text);
    loop {
        let end = rest.find(&close)?;
        let inside = &rest[..end];
        depth +=
            inside.match_indices(&open).filter(|(at, _)| inside[at + open.len()..].starts_with(ENDS)).count();
        rest = &rest[end + close.len()..];
        if depth <= 1 {
            return Some(rest.trim_start());
        }
        depth -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_context_tags_are_distinguished_from_user_words() {
        for (text, expected) in [
            ("<system-reminder>\nx\n</system-reminder>", true),
            ("\n<system_reminder>x</system_reminder>\n", true),
            ("<SYSTEM-REMINDER id=\"1\">x</SYSTEM-REMINDER>", true),
            ("<environment_context><cwd>/w</cwd></environment_context>", true),
            ("<environment_details>\n# VSCode Visible Files\n</environment_details>", true),
            ("<reminderInstructions>x</reminderInstructions>", true),
            ("<user_instructions>x</user_instructions>", true),
            ("<task-notification>x</task-notification>", true),
            ("<local-command-stdout></local-command-stdout>", true),
            ("<turn_aborted>\nx\n</turn_aborted>", true),
            ("<git_status>x</git_status>\n\n<user_info>y</user_info>", true),
            ("<system-reminder>a <system-reminder>b</system-reminder> c</system-reminder>", true),
            ("<system-reminder>a `<system-reminder>` is read</system-reminder>", true),
            // The user's words, in tags or not.
            ("<user_query>x</user_query>", false),
            ("<task>x</task>", false),
            ("<feedback>x</feedback>", false),
            ("<user_message>x</user_message>", false),
            ("<div>x</div>", false),
            ("<system-reminder>a</system-reminder> go on", false),
            ("<system-reminder>a</system-reminder> go on <system-reminder>b</system-reminder>", false),
            ("<system-reminder>a</system-reminder><user_query>b</user_query>", false),
            ("<system-reminder> is never closed", false),
            ("<system-reminder", false),
            ("go on", false),
            ("<", false),
            ("<>x</>", false),
            ("", false),
        ] {
            assert_eq!(is_wrapped(text), expected, "{text}");
        }
    }
}
