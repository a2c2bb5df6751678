//! Rules about the sources that no lint checks: who may use whom, how long things may be, which words may occur where.
//!
//! A rule is a row of a table if possible. Every check is also run on a snippet that breaks it, to prove that it can
//! fail.

use std::collections::BTreeSet;

use plimsoll::protocol;
use plimsoll::protocol::dialect::{Dialect, Path};

use crate::source::{NamedPath, Source, functions, line_of, paths};

/// Who may use whom: a module, and the other modules of the crate that its code may name. A star means every
/// module above.
const LAYERS: &[(&str, &str)] = &[
    ("json", ""),
    ("sse", ""),
    ("usage", ""),
    ("conversation", "json"),
    ("plan", "conversation json"),
    ("shape", "conversation plan"),
    ("strategy", "conversation plan"),
    ("protocol", "json conversation plan sse usage"),
    ("planner", "*"),
    // The shell. It moves the core's values; none of these knows how another one does its part.
    ("url", ""),
    ("upstream", "url"),
    ("server", "sse upstream"),
    ("telemetry", ""),
    ("store", "conversation plan planner"),
    ("lineage", "conversation planner protocol store"),
    ("ledger", "usage store"),
    ("summarizer", "conversation plan protocol strategy usage store upstream"),
    ("admin", "url store ledger"),
    // It fills types that belong to those who use them; none of those knows where they come from.
    ("config", "usage shape strategy protocol planner upstream summarizer"),
    ("app", "*"),
    ("cli", "*"),
];

/// The pure modules.
const CORE: &[&str] =
    &["json", "sse", "usage", "conversation", "plan", "shape", "strategy", "protocol", "planner"];

/// What the core must not name: the beginning of a path.
const IMPURE: &[&str] = &[
    "hyper",
    "hyper_rustls",
    "hyper_util",
    "moka",
    "rusqlite",
    "std::env",
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
    "tokio",
    "tracing",
];

/// What the core must not name: any part of a path. Clocks and sources of randomness.
const IMPURE_NAMES: &[&str] = &["Instant", "SystemTime", "now", "now_v7", "RandomState"];

/// The folders of the repository whose sources are tidy.
const FOLDERS: &[&str] = &["src", "tests/it", "tests/fuzz/judges", "tests/fuzz/targets", "benches"];

/// The most lines of a file, not counting tests.
const FILE_LINES: usize = 500;
/// The most lines of a function.
const FUNCTION_LINES: usize = 100;

/// The most columns of a comment, which rustfmt does not wrap. Rows of tables cannot be.
const COMMENT_COLUMNS: usize = 120;

/// The view of a file in which a word is looked for.
type View = fn(&Source) -> &str;
const COMMENTS: View = |source| &source.without_strings;
const CODE: View = |source| &source.code;
const PRODUCT: View = |source| &source.product;

/// Words that must not occur in the sources, where, and why.
const BANNED: &[(&str, View, &str)] = &[
    ("todo!", CODE, "finish it, or leave it out"),
    ("unimplemented!", CODE, "finish it, or leave it out"),
    ("dbg!", CODE, "a debugging aid"),
    ("FIXME", COMMENTS, "what is known to be wrong is an issue, not a comment"),
    ("XXX", COMMENTS, "what is known to be wrong is an issue, not a comment"),
    (".unwrap()", PRODUCT, "say with `expect` which invariant makes it impossible"),
    ("dearer", COMMENTS, "more expensive, or costs more"),
    ("in vain", COMMENTS, "say that it was wasted, or that it failed"),
    ("for ever", COMMENTS, "forever"),
    ("told of", COMMENTS, "say who is notified of what, or that it is reported"),
    ("tells of", COMMENTS, "reports, or says"),
    ("that which", COMMENTS, "name it"),
    ("%message", CODE, "a line of the log has a `message` of its own: give the field another name"),
    ("thread::sleep", CODE, "wait for the thing itself"),
    ("#[ignore", CODE, "a test that does not run tests nothing"),
    ("#[should_panic", CODE, "compare the error"),
    ("#[allow(", CODE, "use `#[expect(…, reason = \"…\")]`"),
    ("#![allow(", CODE, "use `#[expect(…, reason = \"…\")]`"),
];

/// Names of protocols and their owners.
const PROTOCOL_NAMES: &[&str] = &["anthropic", "openai", "gemini"];

/// Where those names may occur. Presets are named after clients, and some commands act as a client or a provider;
/// everything else does without.
const PROTOCOL_PLACES: &[&str] =
    &["src/protocol/", "src/config/preset", "src/usage/", "src/cli/demo/", "src/cli/replay/"];

/// Parts of the shell that act as a client or a provider, and the keys of our own file.
const SPEAKERS: &[&str] = &["src/cli/demo/", "src/cli/replay/", "src/config/"];

/// Headers that belong to no single dialect.
const COMMON: &[&str] = &["authorization", "user-agent"];

/// The words of the dialects that the shell must not know.
fn protocol_words() -> BTreeSet<&'static str> {
    let dialects = protocol::ALL.iter().map(|protocol| protocol.dialect());
    let words = |dialect: &'static Dialect| {
        let cuts = dialect.cuts.iter().map(|(word, _)| *word);
        let paths = dialect.paths.iter().map(Path::end);
        let prefixes = dialect.prefixes.iter().map(|prefix| prefix.start);
        let signs = dialect.signs.iter().map(|sign| sign.header).filter(|header| !COMMON.contains(header));
        cuts.chain(paths).chain(prefixes).chain(signs)
    };
    dialects.flat_map(words).collect()
}

/// A rule: its name, and what it finds in a file.
type Check = fn(&Source) -> Vec<String>;

const CHECKS: &[(&str, Check)] = &[
    ("brackets", brackets),
    ("layers", layers),
    ("purity", purity),
    ("file length", file_length),
    ("function length", function_length),
    ("comment width", comment_width),
    ("module docs", module_docs),
    ("banned words", banned_words),
    ("protocol names", protocol_names),
    ("protocol words", shell_words),
];

/// If this is wrong, everything else is: text was taken for code, or code for text.
fn brackets(source: &Source) -> Vec<String> {
    let mut open = Vec::new();
    for (at, c) in source.code.char_indices() {
        match c {
            '(' | '[' | '{' => open.push(c),
            ')' | ']' | '}'
                if !matches!((open.pop(), c), (Some('('), ')') | (Some('['), ']') | (Some('{'), '}')) =>
            {
                return vec![format!("{}:{}: `{c}` closes nothing", source.path, line_of(&source.code, at))];
            }
            _ => {}
        }
    }
    open.first().map(|c| format!("{}: a `{c}` is never closed", source.path)).into_iter().collect()
}

/// The modules that a module may use; `None` if it has no row.
fn layers_below(module: &str) -> Option<BTreeSet<&'static str>> {
    let row = LAYERS.iter().position(|(name, _)| *name == module)?;
    match LAYERS[row].1 {
        "*" => Some(LAYERS[..row].iter().map(|(name, _)| *name).collect()),
        names => Some(names.split_whitespace().collect()),
    }
}

fn layers(source: &Source) -> Vec<String> {
    let module = source.module();
    if !source.path.starts_with("src/") || ["lib", "main"].contains(&module) {
        return Vec::new();
    }
    let Some(allowed) = layers_below(module) else {
        return vec![format!("{}: `{module}` has no row in `LAYERS` of tests/it/tidy.rs", source.path)];
    };
    let mut findings = Vec::new();
    for NamedPath { line, segments, inside } in paths(&source.product) {
        let ups = segments.iter().take_while(|segment| *segment == "super").count();
        if ups > 0 && ups >= source.depth() + inside {
            findings
                .push(format!("{}:{line}: `super` leads to the crate's root, write `crate::`", source.path));
        }
        let [root, used, ..] = &segments[..] else { continue };
        if root == "crate" && used != module && !allowed.contains(used.as_str()) {
            let allowed: Vec<&str> = allowed.iter().copied().collect();
            let allowed = if allowed.is_empty() { "nothing of ours".to_owned() } else { allowed.join(", ") };
            findings
                .push(format!("{}:{line}: `{module}` may not use `{used}`, only: {allowed}", source.path));
        }
    }
    findings
}

fn purity(source: &Source) -> Vec<String> {
    if !source.path.starts_with("src/") || !CORE.contains(&source.module()) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for NamedPath { line, segments, .. } in paths(&source.product) {
        let path = segments.join("::");
        let begins = |banned: &&&str| {
            path.strip_prefix(**banned).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        let impure = IMPURE.iter().any(|banned| begins(&banned));
        let named = segments.len() > 1
            && IMPURE_NAMES.iter().any(|name| segments.iter().any(|segment| segment == name));
        if impure || named {
            findings.push(format!("{}:{line}: the core is pure, it may not name `{path}`", source.path));
        }
    }
    findings
}

fn file_length(source: &Source) -> Vec<String> {
    if source.product_lines <= FILE_LINES {
        return Vec::new();
    }
    vec![format!("{}: {} lines, tests aside; at most {FILE_LINES}", source.path, source.product_lines)]
}

fn function_length(source: &Source) -> Vec<String> {
    functions(&source.product)
        .into_iter()
        .filter(|(_, _, lines)| *lines > FUNCTION_LINES)
        .map(|(name, line, lines)| {
            format!("{}:{line}: `{name}` has {lines} lines, at most {FUNCTION_LINES}", source.path)
        })
        .collect()
}

fn comment_width(source: &Source) -> Vec<String> {
    let is_long = |line: &str| {
        let is_comment = line.trim_start().starts_with("//");
        is_comment
            && !line.trim_start_matches(['/', '!', ' ']).starts_with('|')
            && line.chars().count() > COMMENT_COLUMNS
    };
    let lines = source.without_strings.lines().enumerate().filter(|(_, line)| is_long(line));
    lines.map(|(at, _)| format!("{}:{}: more than {COMMENT_COLUMNS} columns", source.path, at + 1)).collect()
}

fn module_docs(source: &Source) -> Vec<String> {
    if source.text.starts_with("//! ") {
        return Vec::new();
    }
    vec![format!("{}:1: a file opens with `//!`: what it is, and what it must never do", source.path)]
}

fn banned_words(source: &Source) -> Vec<String> {
    let mut findings = Vec::new();
    for (word, view, why) in BANNED {
        let text = view(source);
        let inside_a_word = |at: usize, letters: &str| {
            let beside = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
            let starts = letters.starts_with(char::is_alphabetic) && beside(text[..at].chars().next_back());
            let ends =
                letters.ends_with(char::is_alphabetic) && beside(text[at + letters.len()..].chars().next());
            starts || ends
        };
        for (at, found) in text.match_indices(word).filter(|(at, found)| !inside_a_word(*at, found)) {
            findings.push(format!("{}:{}: `{found}`: {why}", source.path, line_of(text, at)));
        }
    }
    findings
}

fn protocol_names(source: &Source) -> Vec<String> {
    if !source.path.starts_with("src/") || PROTOCOL_PLACES.iter().any(|place| source.path.starts_with(place))
    {
        return Vec::new();
    }
    let lower = source.product_with_strings.to_lowercase();
    let mut findings = Vec::new();
    for name in PROTOCOL_NAMES {
        for (at, _) in lower.match_indices(name) {
            let line = line_of(&lower, at);
            findings.push(format!("{}:{line}: `{name}` is the business of `protocol` only", source.path));
        }
    }
    findings
}

/// Code that depends on such a word would have to be written again for the next dialect.
fn shell_words(source: &Source) -> Vec<String> {
    let is_shell = source.path.starts_with("src/") && !CORE.contains(&source.module());
    if !is_shell || SPEAKERS.iter().any(|place| source.path.starts_with(place)) {
        return Vec::new();
    }
    let text = &source.product_with_strings;
    let mut findings = Vec::new();
    for word in protocol_words() {
        for (at, _) in text.match_indices(&format!("\"{word}\"")) {
            findings.push(format!(
                "{}:{}: `{word}` is a word of a dialect's",
                source.path,
                line_of(text, at)
            ));
        }
    }
    findings
}

#[test]
fn the_sources_are_tidy() {
    let sources: Vec<Source> = FOLDERS.iter().flat_map(|folder| Source::all(folder)).collect();
    let mut findings = Vec::new();
    for (name, check) in CHECKS {
        findings.extend(sources.iter().flat_map(check).map(|finding| format!("{finding} ({name})")));
    }
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

/// The table in the crate's documentation is the one that is enforced.
#[test]
fn the_documented_layers_are_the_enforced_ones() {
    let sources = Source::all("src");
    let lib = sources.iter().find(|source| source.path == "src/lib.rs").expect("the crate has a root");
    let rows = documented_layers(&lib.text);
    let documented: BTreeSet<&str> = rows.iter().map(|(module, _)| module.as_str()).collect();
    let present: BTreeSet<&str> =
        sources.iter().map(Source::module).filter(|module| CORE.contains(module)).collect();
    assert_eq!(documented, present, "modules of the core in the table of src/lib.rs, and in src");
    for (module, used) in &rows {
        let mut allowed = layers_below(module).expect("the core has rows");
        allowed.retain(|name| documented.contains(name));
        let used: BTreeSet<&str> = used.iter().map(String::as_str).collect();
        assert_eq!(used, allowed, "what `{module}` may use, by src/lib.rs and by `LAYERS`");
    }
}

/// Everything that a row allows is actually done, so that whoever needs more has to allow it. The core's rows are the
/// design, and stay.
#[test]
fn no_exception_is_unused() {
    let sources = Source::all("src");
    let mut unused = Vec::new();
    for (module, allowed) in LAYERS {
        let own = || sources.iter().filter(|source| source.module() == *module);
        let used: BTreeSet<String> =
            own().flat_map(|source| paths(&source.product)).filter_map(|path| used_by(&path)).collect();
        let allowed = allowed.split_whitespace().filter(|name| *name != "*" && !CORE.contains(module));
        unused.extend(allowed.filter(|name| !used.contains(*name)).map(|name| format!("{module}: {name}")));
        unused.extend(own().next().is_none().then(|| (*module).to_owned()));
    }
    for place in PROTOCOL_PLACES {
        let names = |source: &Source| {
            let text = source.product_with_strings.to_lowercase();
            source.path.starts_with(place) && PROTOCOL_NAMES.iter().any(|name| text.contains(name))
        };
        unused.extend((!sources.iter().any(names)).then(|| (*place).to_owned()));
    }
    assert_eq!(unused, <Vec<String>>::new(), "rows and places that allow what nobody does");
}

/// The module of the crate that a path leads into.
fn used_by(path: &NamedPath) -> Option<String> {
    let [root, used, ..] = &path.segments[..] else { return None };
    (root == "crate").then(|| used.clone())
}

/// The rows of the table: a module, and the modules that it may use.
fn documented_layers(text: &str) -> Vec<(String, Vec<String>)> {
    let mut rows: Vec<(String, Vec<String>)> = Vec::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.trim_start_matches("//!").split('|').map(str::trim).collect();
        let ["", module, _, used, ""] = cells[..] else { continue };
        let Some(module) = module.strip_prefix("[`").and_then(|rest| rest.strip_suffix("`]")) else {
            continue;
        };
        let used = match used {
            "all above" => rows.iter().map(|(module, _)| module.clone()).collect(),
            used => used.split('`').skip(1).step_by(2).map(str::to_owned).collect(),
        };
        rows.push((module.to_owned(), used));
    }
    rows
}

#[test]
fn the_documented_layers_can_be_read() {
    let text = "//! | module | what | may use |\n//! |---|---|---|\n//! | [`a`] | x | nothing of ours |\n\
                //! | [`b`] | y | `a`, `c` |\n//! | [`d`] | z | all above |\n";
    let row = |module: &str, used: &[&str]| {
        (module.to_owned(), used.iter().map(|name| (*name).to_owned()).collect())
    };
    assert_eq!(documented_layers(text), [row("a", &[]), row("b", &["a", "c"]), row("d", &["a", "b"])]);
}

/// A file's path, its text, and what is found in it.
type Breach = (&'static str, &'static str, &'static [Finding]);
/// The line, as in `:5`, and part of the message.
type Finding = (&'static str, &'static str);

const BREACHES: &[Breach] = &[
    ("src/app/mod.rs", "fn a() {\n    (b]\n}", &[(":2", "`]` closes nothing")]),
    ("src/app/mod.rs", "fn a() {", &[("", "never closed")]),
    ("src/app/mod.rs", "fn a() { '{' == '\\'' || b\"{\\\"\" == br#\"{\"# }", &[]),
    ("src/shape/fold.rs", "use crate::store::Store;", &[(":1", "`shape` may not use `store`")]),
    (
        "src/json/mod.rs",
        "fn a() {\n    crate::{plan::Plan, sse}\n}",
        &[(":2", "may not use `plan`"), (":2", "may not use `sse`")],
    ),
    (
        "src/server/tap.rs",
        "use crate::config::Config;",
        &[(":1", "`server` may not use `config`, only: sse, upstream")],
    ),
    ("src/plan/mod.rs", "use crate::conversation::Part;\nuse crate::plan::Op;", &[]),
    ("src/plan/mod.rs", "// crate::store\nconst A: &str = \"crate::store\";", &[]),
    ("src/plan/mod.rs", "#[cfg(test)]\nmod tests {\n    use crate::protocol::X;\n}", &[]),
    ("src/plan/check.rs", "use super::super::store::Store;", &[(":1", "write `crate::`")]),
    ("src/plan/mod.rs", "use super::store::Store;", &[(":1", "write `crate::`")]),
    ("src/plan/mod.rs", "mod a {\n    use super::B;\n}", &[]),
    ("src/plan/check.rs", "use super::Plan;", &[]),
    ("src/helpers/mod.rs", "", &[("", "`helpers` has no row")]),
    ("src/usage/price.rs", "use std::{env, fs::File};", &[(":1", "`std::env`"), (":1", "`std::fs::File`")]),
    ("src/sse.rs", "fn a() {\n    std::time::Instant::now()\n}", &[(":2", "`std::time::Instant::now`")]),
    ("src/sse.rs", "tokio::spawn(tracing::info)", &[(":1", "`tokio::spawn`"), (":1", "`tracing::info`")]),
    (
        "src/sse.rs",
        "let now = hyperion::now; let tokio = 1;",
        &[(":1", "`hyperion::now`"), (":1", "`tokio`")],
    ),
    ("src/store/mod.rs", "use std::fs;", &[]),
    ("src/app/mod.rs", "fn a() {\n    todo!()\n}", &[(":2", "`todo!`")]),
    ("src/app/mod.rs", "unimplemented!(); dbg!(1);", &[(":1", "`unimplemented!`"), (":1", "`dbg!`")]),
    ("src/app/mod.rs", "// FIXME and XXX but not XXXL", &[(":1", "`FIXME`"), (":1", "`XXX`")]),
    (
        "src/app/mod.rs",
        "a.unwrap();\n#[cfg(test)]\nmod tests { fn a() { b.unwrap() } }",
        &[(":1", "`.unwrap()`")],
    ),
    (
        "src/app/mod.rs",
        "#[cfg(test)]\nmod tests { fn a() { std::thread::sleep(x) } }",
        &[(":2", "`thread::sleep`")],
    ),
    (
        "tests/it/a.rs",
        "#[ignore]\n#[should_panic(expected = \"x\")]",
        &[(":1", "`#[ignore`"), (":2", "`#[should_panic`")],
    ),
    (
        "src/app/mod.rs",
        "#![allow(dead_code)]\n#[allow(unused)]",
        &[(":2", "`#[allow(`"), (":1", "`#![allow(`")],
    ),
    ("src/app/mod.rs", "const A: &str = \"todo! .unwrap() #[allow(\"; // todo!", &[]),
    (
        "src/server/mod.rs",
        "const A: &str = \"x-Anthropic\"; // openai",
        &[(":1", "`anthropic` is the business")],
    ),
    ("src/store/mod.rs", "enum A {\n    OpenAiChat,\n}", &[(":2", "`openai`")]),
    ("src/protocol/mod.rs", "enum A { OpenAi }", &[]),
    ("src/app/route_table.rs", "enum A { OpenAi }", &[(":1", "`openai`")]),
    ("src/config/upstream.rs", "enum A { Gemini }", &[(":1", "`gemini`")]),
    ("src/config/preset.rs", "enum A { Gemini }", &[]),
    ("src/app/a.rs", "x(\"x-goog-api-key\", \"authorization\")", &[(":1", "`x-goog-api-key`")]),
    ("src/server/a.rs", "path.ends_with(\"/responses/compact\")", &[(":1", "`/responses/compact`")]),
    ("src/app/a.rs", "a == \"MAX_TOKENS\" || b == \"MAX_TOKENS_2\"", &[(":1", "`MAX_TOKENS`")]),
    ("src/ledger/a.rs", "matches!(a, \"length\" | \"stop\")", &[(":1", "`length`")]),
    ("src/cli/demo/a.rs", "const A: &str = \"max_tokens\";", &[]),
    ("src/plan/a.rs", "const A: &str = \"length\";", &[]),
];

#[test]
fn every_check_can_fail() {
    let mut failed = BTreeSet::new();
    for (path, text, expected) in BREACHES {
        let source = Source::new(path, &format!("//! Docs. {text}"));
        let source = if text.starts_with("//") { source } else { Source::new(path, text) };
        let mut findings = Vec::new();
        for (name, check) in CHECKS.iter().filter(|(name, _)| *name != "module docs") {
            let found = check(&source);
            failed.extend((!found.is_empty()).then_some(*name));
            findings.extend(found);
        }
        assert_eq!(findings.len(), expected.len(), "{path}\n{text}\n{findings:?}");
        for (finding, (line, message)) in findings.iter().zip(*expected) {
            assert!(
                finding.starts_with(&format!("{path}{line}: ")) && finding.contains(message),
                "{finding}"
            );
        }
    }
    let long_file =
        Source::new("src/app/mod.rs", &format!("//! Docs.\n{}", "const A: u8 = 1;\n".repeat(FILE_LINES)));
    let long_function =
        Source::new("src/app/mod.rs", &format!("fn a() {{\n{}}}\n", "b();\n".repeat(FUNCTION_LINES)));
    let no_docs = Source::new("src/app/mod.rs", "use a;\n//! Late.");
    let wide = Source::new("src/app/mod.rs", &format!("//! Docs.\n    // {}\n", "x".repeat(COMMENT_COLUMNS)));
    for (source, name) in [
        (long_file, "file length"),
        (long_function, "function length"),
        (wide, "comment width"),
        (no_docs, "module docs"),
    ] {
        let (_, check) = CHECKS.iter().find(|(check, _)| *check == name).expect("a check of that name");
        assert_eq!(check(&source).len(), 1, "{name}");
        failed.insert(name);
    }
    let all: BTreeSet<&str> = CHECKS.iter().map(|(name, _)| *name).collect();
    assert_eq!(failed, all, "checks that were seen to fail, and all checks");
}
