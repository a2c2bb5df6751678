//! The session of the demonstration: an agent finds and fixes a bug.
//!
//! It is made up, and always the same. It contains what the shapers are for: colours and progress bars, thousands of
//! equal lines, white space in JSON, an image as text, outputs of a hundred kilobytes, a file that is read twice.

use serde_json::{Value, json};

use super::outputs;

/// The whole script.
#[derive(Debug)]
pub(super) struct Session {
    /// The system prompt.
    pub(super) system: &'static str,
    /// The tool definitions, as they are sent.
    pub(super) tools: Value,
    /// The user's task.
    pub(super) task: &'static str,
    /// One step per model call.
    pub(super) steps: Vec<Step>,
}

/// One answer of the model.
#[derive(Debug)]
pub(super) struct Step {
    /// Its text.
    pub(super) say: &'static str,
    /// The tool calls; none in the last step.
    pub(super) calls: Vec<Call>,
}

/// A tool call and its result.
#[derive(Debug)]
pub(super) struct Call {
    /// Its id.
    pub(super) id: String,
    /// The name of the tool.
    pub(super) tool: &'static str,
    /// Its arguments.
    pub(super) input: Value,
    /// Its result.
    pub(super) result: String,
    /// Whether the result is an error.
    pub(super) is_error: bool,
}

impl Session {
    /// The session.
    pub(super) fn new() -> Self {
        let mut steps = steps();
        for (at, call) in steps.iter_mut().flat_map(|step| &mut step.calls).enumerate() {
            call.id = format!("toolu_demo_{at:02}");
        }
        Self { system: SYSTEM, tools: tools(), task: TASK, steps }
    }

    /// The call with this id.
    pub(super) fn call(&self, id: &str) -> Option<&Call> {
        self.steps.iter().flat_map(|step| &step.calls).find(|call| call.id == id)
    }
}

impl Call {
    /// The call in a few words: `Bash: cargo test`.
    pub(super) fn title(&self) -> String {
        let main = ["command", "file_path", "pattern"];
        let words = main.iter().find_map(|key| self.input.get(key)?.as_str()).unwrap_or_default();
        format!("{}: {words}", self.tool)
    }

    fn failing(self) -> Self {
        Self { is_error: true, ..self }
    }
}

fn step(say: &'static str, calls: Vec<Call>) -> Step {
    Step { say, calls }
}

fn call(tool: &'static str, input: Value, result: impl Into<String>) -> Call {
    Call { id: String::new(), tool, input, result: result.into(), is_error: false }
}

fn bash(command: &str, result: impl Into<String>) -> Call {
    call("Bash", json!({ "command": command }), result)
}

fn read(path: &str, text: &str) -> Call {
    call("Read", json!({ "file_path": path }), outputs::numbered(text))
}

fn edit(old: &str, new: &str, result: &str) -> Call {
    call("Edit", json!({ "file_path": WINDOW, "old_string": old, "new_string": new }), result)
}

fn steps() -> Vec<Step> {
    let window = outputs::window_source();
    vec![
        step(
            "I'll look at the repository first.",
            vec![bash("ls -R src tests fixtures", outputs::listing())],
        ),
        step(
            "Now the test suite, to see what fails.",
            vec![bash("cargo test --color always 2>&1", outputs::test_log(outputs::Run::Red))],
        ),
        step(
            "One test fails: a prediction at midnight is imported twice. Two files look responsible.",
            vec![read("src/import/parser.rs", &outputs::parser_source()), read(WINDOW, &window)],
        ),
        step(
            "What does the service really send around midnight?",
            vec![bash(
                "curl -s 'http://localhost:9090/v2/predictions?station=9414290&days=30'",
                outputs::predictions(),
            )],
        ),
        step(
            "The series has a value at 00:00 exactly. Who else uses the window's end?",
            vec![call(
                "Grep",
                json!({ "pattern": "window_end", "output_mode": "content", "path": "." }),
                outputs::matches(),
            )],
        ),
        step(
            "The generated fixtures are noise. The chart of the failing day may show the duplicate.",
            vec![bash("cargo run -q --bin chart -- --day 2026-11-02 --inline", outputs::chart())],
        ),
        step(
            "Two points lie on each other at midnight. The window must be half-open.",
            vec![
                edit(
                    "        at >= self.start && at <= self.end",
                    "        at >= self.start && at < self.end",
                    "String to replace not found in file. The file has been left unchanged.",
                )
                .failing(),
            ],
        ),
        step("The text differs from what I remember; I'll read the file again.", vec![read(WINDOW, &window)]),
        step(
            "It compares with a method of the range.",
            vec![edit(
                "        (self.start..=self.end).contains(&at)",
                "        (self.start..self.end).contains(&at)",
                "The file src/import/window.rs has been updated.",
            )],
        ),
        step(
            "Once more, the whole suite.",
            vec![bash("cargo test --color always 2>&1", outputs::test_log(outputs::Run::Green))],
        ),
        step(
            "All green. A last look at the change and at the lints.",
            vec![
                bash("git diff", outputs::diff()),
                bash("cargo clippy --color always --all-targets 2>&1", outputs::lints()),
            ],
        ),
        step(
            "Nothing to complain about. I'll commit it.",
            vec![bash(
                "git commit -qam 'Import windows are half-open' && git log --oneline -1",
                "4c1f0e2 Import windows are half-open\n",
            )],
        ),
        step(ANSWER, vec![]),
    ]
}

fn tools() -> Value {
    let tool = |name: &str, description: &str, required: &[&str], optional: &[&str]| {
        let property = |name: &&str| ((*name).to_owned(), json!({ "type": "string" }));
        let properties: serde_json::Map<String, Value> =
            required.iter().chain(optional).map(property).collect();
        json!({
            "name": name,
            "description": description,
            "input_schema": { "type": "object", "properties": properties, "required": required },
        })
    };
    json!([
        tool("Bash", BASH, &["command"], &["description", "timeout"]),
        tool("Read", READ, &["file_path"], &["offset", "limit"]),
        tool("Edit", EDIT, &["file_path", "old_string", "new_string"], &["replace_all"]),
        tool("Grep", GREP, &["pattern"], &["path", "glob", "output_mode"]),
    ])
}

const WINDOW: &str = "src/import/window.rs";

const TASK: &str = "The nightly import counts some tide predictions twice, and since Tuesday `cargo test` is red. \
Find the reason, fix it, and commit the fix.";

const ANSWER: &str = "Fixed and committed as 4c1f0e2. `Window::holds` treated its end as inside, so a prediction \
at midnight belonged to two days and was imported with both. The window is half-open now. All 212 tests pass; \
clippy has nothing to say.";

const SYSTEM: &str = "You are a careful software engineer who works in the user's repository through tools.

# How you work
- Read before you change. Never guess what a file contains; if an edit does not apply, read the file again.
- Run the tests before and after a change. A change is finished when the whole suite passes, not when one test does.
- Make the smallest change that removes the cause. Do not reformat, rename or tidy up what you were not asked about.
- Prefer the repository's own conventions to your own. Look at neighbouring code before you add any.
- Explain in one sentence what you are about to do, then do it. No summaries of what the user can see.
- If something is unclear and the answer changes what you would do, ask; otherwise decide, and say what you decided.

# What you never do
- You never delete files that you did not create, rewrite history, or push.
- You never disable, skip or weaken a test to make it pass.
- You never print credentials, and you never send the repository's contents anywhere.

# Environment
Working directory: /home/you/tidewatch (a git repository, branch main). Platform: linux. Shell: bash.
The project is a Rust service that imports tide predictions every night and serves them over HTTP. `cargo test` needs
the mock server on port 9090, which is running. Commits are one line, imperative, without a final period.";

const BASH: &str = "Runs a command in the user's shell and returns what it prints, standard error included. The \
working directory stays between calls, other state does not. Do not use it to read or search files when there is a \
tool for that. Commands that wait for input hang until the timeout. Quote paths with spaces.";

const READ: &str = "Returns a file with line numbers. Reads up to 2000 lines unless told otherwise; give `offset` \
and `limit` for longer files. Relative paths are below the working directory. Images are shown as images.";

const EDIT: &str = "Replaces text in a file. `old_string` must occur exactly once, white space included, unless \
`replace_all` is set; take it from what Read returned, without the line numbers. Fails if it is not found.";

const GREP: &str = "Searches file contents with a regular expression and returns the matching lines as \
`path:line:text`, or only the paths. Respects .gitignore. Use it instead of running grep in a shell.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_session_has_realistic_steps_calls_and_sizes() {
        let session = Session::new();
        assert!((12..=16).contains(&session.steps.len()));
        let (last, before) = session.steps.split_last().unwrap();
        assert!(last.calls.is_empty() && before.iter().all(|step| !step.calls.is_empty()));
        let calls: Vec<&Call> = before.iter().flat_map(|step| &step.calls).collect();
        assert!(calls.iter().all(|call| session.call(&call.id).is_some_and(|found| found.id == call.id)));
        assert_eq!(calls.iter().filter(|call| call.is_error).count(), 1);
        let reads: Vec<&&Call> =
            calls.iter().filter(|call| call.title() == format!("Read: {WINDOW}")).collect();
        assert_eq!(reads.len(), 2);
        assert_eq!(reads[0].result, reads[1].result);
        let bytes: usize = calls.iter().map(|call| call.result.len()).sum();
        assert!((400_000..900_000).contains(&bytes), "{bytes}");
    }

    #[test]
    fn the_demo_edit_applies_to_its_file() {
        let window = outputs::window_source();
        assert!(window.contains("        (self.start..=self.end).contains(&at)\n"));
        assert!(!window.contains("at <= self.end"));
    }
}
