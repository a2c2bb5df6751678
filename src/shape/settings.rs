//! The settings of the shapers. Owned here, filled by `config`.

pub use crate::conversation::NamePatterns;

/// Settings of all shapers.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Strip terminal escapes and carriage-return progress.
    pub escapes: bool,
    /// Fold runs of repeated lines.
    pub fold: bool,
    /// Minify JSON documents.
    pub minify: bool,
    /// Elide long base64 runs.
    pub base64: bool,
    /// Replace a result that is byte-identical to an earlier one still in view by a pointer to it.
    pub repeat: bool,
    /// The smallest result, in bytes, that a pointer may replace.
    pub repeat_min_bytes: usize,
    /// Tools whose results show a file as it is. Their text is quoted in edits, so only truncation and repeat pointers
    /// apply to them.
    pub views: NamePatterns,
    /// Truncation.
    pub truncate: Truncate,
}

/// Settings of truncation.
#[derive(Debug, Clone)]
pub struct Truncate {
    /// What applies if no entry of `tools` matches.
    pub base: TruncateRule,
    /// Per-tool overrides; the first entry whose pattern matches wins.
    pub tools: Vec<(NamePatterns, TruncateRule)>,
    /// Tools whose results are never truncated.
    pub exempt: NamePatterns,
    /// The limit, in bytes, for results that report an error. Longer ones are cut and keep both ends; no limit on lines
    /// applies to them.
    pub error_max_bytes: usize,
    /// Count the empty line after a final newline. Newlines count as bytes in any case.
    pub count_trailing_newline: bool,
    /// The text that is put where bytes were removed: `{removed}`, `{total}` and `{recall}` are filled in,
    /// `{removed_plain}` and `{total_plain}` without separators.
    ///
    /// It comes on top of the limits if it can be recognised later: if it begins with text of its own, contains at
    /// least eight letters, what was removed exactly once, and the other placeholders at most once, all of them
    /// separated. Any other template is deducted from the limits, and is used alone if they leave room for nothing
    /// else.
    pub marker: String,
}

/// Limits and direction of one truncation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TruncateRule {
    /// The most lines that are kept whole, and the most that remain of more.
    pub max_lines: usize,
    /// The most bytes that are kept whole, and the most that remain of more.
    pub max_bytes: usize,
    /// Which end is kept.
    pub keep: Keep,
}

/// Which end of a text survives a cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The beginning.
    Head,
    /// The end.
    Tail,
    /// Both, with half of the budget each.
    Both,
    /// Both, with this many thousandths of the budget at the beginning.
    Parts(u16),
}

/// The default marker of a cut.
pub const MARKER: &str = "[plimsoll: {removed} of {total} bytes removed here; {recall}]";
/// The default tools that show files.
pub const VIEWS: &[&str] = &[
    "read",
    "read_*",
    "readfile*",
    "*_read_file",
    "*_read_text_file",
    "*_read_multiple_files",
    "file_read",
    "view",
    "view_*",
    "open",
    "open_file",
    "cat",
    "notebookread",
    "str_replace*edit*",
    "text_editor",
    "fs_read*",
    "*get_file_contents",
    "*get_file_text*",
    "get_content",
    "*find_symbol",
    "*get_symbols_overview",
];
/// The default tools that run commands: the end of their output matters as much as its beginning.
pub const SHELLS: &[&str] =
    &["*bash*", "*shell*", "*terminal*", "*exec*", "*run_command*", "*execute_command*"];
/// Tools that start processes and write to them.
pub(super) const PROCESSES: &[&str] = &["*start_process", "*interact_with_process", "*write_stdin"];
/// Other default tools whose results matter at the end as much: runs, builds, tests, logs.
pub const RUNS: &[&str] = &[
    "run",
    "run_*",
    "*_run",
    "*_run_*",
    "test",
    "*_test",
    "*tests",
    "*build*",
    "*compile*",
    "*log",
    "*logs",
    "*output",
    "*console*",
    "*process",
    "*stdin",
    "python*",
    "*_python",
    "monitor",
    "wait",
];

impl Default for Settings {
    fn default() -> Self {
        let tools = |patterns: &[&str]| {
            NamePatterns::new(patterns.iter().copied()).expect("the shipped patterns are globs")
        };
        Self {
            escapes: true,
            fold: true,
            minify: true,
            base64: true,
            repeat: true,
            repeat_min_bytes: 1024,
            views: tools(VIEWS),
            truncate: Truncate {
                base: TruncateRule { max_lines: 2000, max_bytes: 50 * 1024, keep: Keep::Head },
                tools: vec![
                    (tools(SHELLS), TruncateRule { max_lines: 4000, max_bytes: 50 * 1024, keep: Keep::Both }),
                    (tools(RUNS), TruncateRule { max_lines: 2000, max_bytes: 50 * 1024, keep: Keep::Both }),
                ],
                exempt: tools(&[]),
                error_max_bytes: 200 * 1024,
                count_trailing_newline: false,
                marker: MARKER.to_owned(),
            },
        }
    }
}
