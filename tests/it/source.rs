//! Just enough of Rust's grammar to check rules on source files: what is code, text, comment or test, and which paths
//! the code names. It reads the output of rustfmt; it is not a parser.

use std::fs;
use std::ops::Range;
use std::path::Path;

/// A source file, and views of it in which everything else is blank. All views have the same lines.
pub(crate) struct Source {
    /// The path from the repository's root, with `/`.
    pub(crate) path: String,
    /// The whole text.
    pub(crate) text: String,
    /// Code and comments, without strings.
    pub(crate) without_strings: String,
    /// Code, without strings and comments.
    pub(crate) code: String,
    /// Code outside tests, without strings and comments.
    pub(crate) product: String,
    /// Code outside tests, with strings, without comments.
    pub(crate) product_with_strings: String,
    /// The number of lines outside tests.
    pub(crate) product_lines: usize,
    /// The modules that exist only for tests, as `folder/name`.
    test_modules: Vec<String>,
}

/// A path that the code names, such as `crate::json::Span`, and where.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NamedPath {
    pub(crate) line: usize,
    pub(crate) segments: Vec<String>,
    /// How many modules deep it is within the file.
    pub(crate) inside: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Text,
    Comment,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let kinds = classify(text);
        let code = mask(text, &kinds, &[Kind::Code]);
        let without_strings = mask(text, &kinds, &[Kind::Code, Kind::Comment]);
        let everything = std::iter::once(0..text.len());
        let tests = if is_test_file(path) { everything.collect() } else { test_items(&code) };
        let product = blank(&code, &tests);
        let product_with_strings = blank(&mask(text, &kinds, &[Kind::Code, Kind::Text]), &tests);
        let in_tests: usize = tests.iter().map(|range| text[range.clone()].lines().count()).sum();
        let test_modules = tests.iter().filter_map(|range| test_module(path, &code[range.clone()])).collect();
        let (path, text) = (path.to_owned(), text.to_owned());
        let product_lines = text.lines().count().saturating_sub(in_tests);
        Self { path, text, without_strings, code, product, product_with_strings, product_lines, test_modules }
    }

    /// All Rust files below a folder of the repository, in a fixed order.
    pub(crate) fn all(folder: &str) -> Vec<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut files = Vec::new();
        collect(&root.join(folder), &mut |path, text| {
            let path = path.strip_prefix(root).expect("found below the root");
            files.push(Self::new(&path.to_string_lossy().replace('\\', "/"), &text));
        });
        assert!(!files.is_empty(), "no sources below {folder}");
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let test_modules: Vec<String> = files.iter().flat_map(|file| file.test_modules.clone()).collect();
        for file in &mut files {
            let module = |name: &String| {
                file.path == format!("{name}.rs") || file.path.starts_with(&format!("{name}/"))
            };
            if test_modules.iter().any(module) {
                file.product = blank(&file.code, std::slice::from_ref(&(0..file.code.len())));
                file.product_with_strings.clone_from(&file.product);
                file.product_lines = 0;
            }
        }
        files
    }

    /// How many modules deep the file's own items are: 1 for `src/a.rs` and `src/a/mod.rs`.
    pub(crate) fn depth(&self) -> usize {
        let parts = self.path.trim_start_matches("src/").split('/').count();
        if self.path.ends_with("/mod.rs") { parts - 1 } else { parts }
    }

    /// The module of the crate that the file belongs to.
    pub(crate) fn module(&self) -> &str {
        let path = self.path.trim_start_matches("src/");
        path.split('/').next().unwrap_or(path).trim_end_matches(".rs")
    }
}

fn collect(folder: &Path, found: &mut impl FnMut(&Path, String)) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("a directory can be read to its end").path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found(&path, fs::read_to_string(&path).expect("source files are UTF-8"));
        }
    }
}

fn is_test_file(path: &str) -> bool {
    path.starts_with("tests/") || path.ends_with("/tests.rs") || path.contains("/tests/")
}

/// The line of an offset, counted from 1.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

/// Determines for every byte whether it is code, the inside of a literal, or a comment.
fn classify(text: &str) -> Vec<Kind> {
    let bytes = text.as_bytes();
    let mut kinds = vec![Kind::Code; bytes.len()];
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let after_word = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
        let (kind, length) = match rest {
            [b'/', b'/', ..] => (Kind::Comment, find(rest, b"\n").unwrap_or(rest.len())),
            [b'/', b'*', ..] => (Kind::Comment, block_comment(rest)),
            [b'"', ..] => (Kind::Text, quoted(rest, b'"')),
            [b'r', b'"' | b'#', ..] if !after_word => match raw_string(rest) {
                Some(length) => (Kind::Text, length),
                None => (Kind::Code, 1),
            },
            [b'b' | b'c', b'r', b'"' | b'#', ..] if !after_word => match raw_string(&rest[1..]) {
                Some(length) => (Kind::Text, length + 1),
                None => (Kind::Code, 1),
            },
            // A lifetime has no closing quote.
            [b'\'', b'\\', ..] => (Kind::Text, quoted(rest, b'\'')),
            [b'\'', ..] => match text[at + 1..].chars().next().map(char::len_utf8) {
                Some(width) if rest.get(1 + width) == Some(&b'\'') => (Kind::Text, width + 2),
                _ => (Kind::Code, 1),
            },
            _ => (Kind::Code, 1),
        };
        let end = (at + length).min(bytes.len());
        kinds[at..end].fill(kind);
        at = end;
    }
    kinds
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}

fn quoted(bytes: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < bytes.len() && bytes[at] != quote {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

/// The length of `r"…"` or `r#"…"#`; `None` for a raw identifier.
fn raw_string(bytes: &[u8]) -> Option<usize> {
    let hashes = bytes[1..].iter().take_while(|b| **b == b'#').count();
    let open = 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let close = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
    let end = find(&bytes[open + 1..], &close).map_or(bytes.len(), |at| open + 1 + at + close.len());
    Some(end)
}

fn block_comment(bytes: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < bytes.len() {
        let step = match &bytes[at..] {
            [b'/', b'*', ..] => 1,
            [b'*', b'/', ..] => -1,
            _ => 0,
        };
        depth += step;
        at += if step == 0 { 1 } else { 2 };
        if depth == 0 {
            break;
        }
    }
    at
}

/// The text with everything of other kinds blank.
fn mask(text: &str, kinds: &[Kind], keep: &[Kind]) -> String {
    let shown = text.bytes().zip(kinds).map(|(b, kind)| match b {
        b if b == b'\n' || (keep.contains(kind) && b.is_ascii()) => b,
        _ => b' ',
    });
    String::from_utf8(shown.collect()).expect("ASCII only")
}

/// The text with these ranges blank.
fn blank(text: &str, ranges: &[Range<usize>]) -> String {
    let hidden = |at: usize| ranges.iter().any(|range| range.contains(&at));
    text.char_indices().map(|(at, c)| if c != '\n' && hidden(at) { ' ' } else { c }).collect()
}

/// The items that are only compiled for tests, each with its attributes.
fn test_items(code: &str) -> Vec<Range<usize>> {
    let mut items: Vec<Range<usize>> = Vec::new();
    for (start, _) in code.match_indices("#[cfg(") {
        if items.last().is_some_and(|item| item.contains(&start)) {
            continue;
        }
        let condition = &code[start..closing(code, start + 1)];
        let words = condition.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        if words.clone().any(|word| word == "test") && !words.clone().any(|word| word == "not") {
            items.push(start..item_end(code, start));
        }
    }
    items
}

/// Where the item or function that begins at `at` ends: after its `;` or its block.
fn item_end(code: &str, mut at: usize) -> usize {
    while at < code.len() {
        match code.as_bytes()[at] {
            b'{' => return closing(code, at),
            b'(' | b'[' => at = closing(code, at),
            b';' => return at + 1,
            _ => at += 1,
        }
    }
    at
}

/// The offset after the bracket that closes the one at `open`.
fn closing(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, b) in code.bytes().enumerate().skip(open) {
        match b {
            b'{' | b'(' | b'[' => depth += 1,
            b'}' | b')' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}

/// The module that an item declares if it is `mod name;`, as a path without extension.
fn test_module(path: &str, item: &str) -> Option<String> {
    let name = item.trim_end().strip_suffix(';')?.rsplit_once("mod ")?.1;
    let (folder, file) = path.rsplit_once('/')?;
    let folder = match file {
        "mod.rs" | "lib.rs" | "main.rs" => folder.to_owned(),
        _ => format!("{folder}/{}", file.trim_end_matches(".rs")),
    };
    Some(format!("{folder}/{}", name.trim()))
}

/// The functions of a code view: name, line and number of lines.
pub(crate) fn functions(code: &str) -> Vec<(String, usize, usize)> {
    let tokens = tokens(code);
    let mut functions = Vec::new();
    for pair in tokens.windows(2) {
        let [start, name] = pair else { continue };
        if start.text == "fn" {
            let lines = code[start.at..item_end(code, start.at)].matches('\n').count() + 1;
            functions.push((name.text.to_owned(), start.line, lines));
        }
    }
    functions
}

/// A word, `::` or another single character.
struct Token<'a> {
    at: usize,
    line: usize,
    text: &'a str,
}

fn tokens(code: &str) -> Vec<Token<'_>> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut tokens = Vec::new();
    let (mut at, mut line) = (0, 1);
    while let Some(c) = code[at..].chars().next() {
        let length = match c {
            c if word(c) => code[at..].find(|c| !word(c)).unwrap_or(code.len() - at),
            ':' if code[at..].starts_with("::") => 2,
            c => c.len_utf8(),
        };
        if !c.is_whitespace() {
            tokens.push(Token { at, line, text: &code[at..at + length] });
        }
        line += usize::from(c == '\n');
        at += length;
    }
    tokens
}

/// All paths in the code, with groups in `use` expanded: `a::{b, c::d}` is `a::b` and `a::c::d`.
pub(crate) fn paths(code: &str) -> Vec<NamedPath> {
    let tokens = tokens(code);
    let mut walk = Walk { tokens: &tokens, at: 0, inside: 0, found: Vec::new() };
    let mut blocks = Vec::new();
    while let Some(token) = walk.token(0) {
        let before =
            |back: usize| walk.at.checked_sub(back).and_then(|at| tokens.get(at)).map(|token| token.text);
        if token == "{" {
            blocks.push(before(2) == Some("mod"));
        } else if token == "}" {
            blocks.pop();
        } else if is_word(token)
            && (before(1) != Some("::") || !before(2).is_some_and(|token| is_word(token) || token == ">"))
        {
            walk.inside = blocks.iter().filter(|is_module| **is_module).count();
            walk.path(&mut Vec::new());
            continue;
        }
        walk.at += 1;
    }
    walk.found
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

struct Walk<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
    inside: usize,
    found: Vec<NamedPath>,
}

impl<'a> Walk<'a> {
    fn token(&self, ahead: usize) -> Option<&'a str> {
        self.tokens.get(self.at + ahead).map(|token| token.text)
    }

    /// Continues from a word, a `*` or a group, and records each path that ends there.
    fn path(&mut self, prefix: &mut Vec<String>) {
        let Some(token) = self.tokens.get(self.at) else { return };
        self.at += 1;
        if token.text == "{" {
            return self.group(prefix);
        }
        prefix.push(token.text.to_owned());
        if self.token(0) == Some("::")
            && self.token(1).is_some_and(|next| is_word(next) || matches!(next, "*" | "{"))
        {
            self.at += 1;
            self.path(prefix);
        } else {
            let segments = prefix.iter().filter(|segment| *segment != "self").cloned().collect();
            self.found.push(NamedPath { line: token.line, segments, inside: self.inside });
        }
        prefix.pop();
    }

    fn group(&mut self, prefix: &mut Vec<String>) {
        while let Some(token) = self.token(0) {
            match token {
                "}" => {
                    self.at += 1;
                    return;
                }
                "as" => self.at += 2,
                token if is_word(token) || matches!(token, "{" | "*") => self.path(prefix),
                _ => self.at += 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views() {
        let text = concat!(
            "//! Doc of \"x\".\n",
            "fn a<'x>(c: &'x str) -> char { /* no /* code */ here */ '\"' }\n",
            "const T: &str = \"a \\\" // text\"; // why\n",
            "const R: &str = r#\"raw \" text\"#; const N: &str = r\"\\\"; const C: char = '\\'';\n",
            "#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn r#for() {}\n",
        );
        let source = Source::new("src/a.rs", text);
        let spaceless = |view: &str| view.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(
            spaceless(&source.product),
            "fn a<'x>(c: &'x str) -> char { } const T: &str = ; const R: &str = ; const N: &str = ; \
             const C: char = ; fn r#for() {}"
        );
        assert!(source.code.contains("fn b()"));
        assert!(
            source.product_with_strings.contains("// text") && !source.product_with_strings.contains("why")
        );
        assert_eq!(source.product_lines, 5);
        assert_eq!(source.code.matches('\n').count(), text.matches('\n').count());
    }

    #[test]
    fn test_items_are_distinguished() {
        let cases: &[(&str, &str)] = &[
            ("#[cfg(test)] mod tests; fn a() {}", "fn a() {}"),
            ("#[cfg(test)] #[path = []] use a::{b}; fn a() {}", "; fn a() {}"),
            ("#[cfg(all(test, unix))] fn b(x: [u8; 2]) { {} } fn a() {}", "fn a() {}"),
            ("#[cfg(not(test))] fn a() {}", "#[cfg(not(test))] fn a() {}"),
            ("#[cfg(unix)] fn test() {}", "#[cfg(unix)] fn test() {}"),
        ];
        for (text, product) in cases {
            assert_eq!(Source::new("src/a.rs", text).product.trim(), *product, "{text}");
        }
        assert_eq!(Source::new("src/a/mod.rs", "#[cfg(test)]\nmod laws;").test_modules, ["src/a/laws"]);
        assert_eq!(Source::new("src/a.rs", "#[cfg(test)]\npub mod laws;").test_modules, ["src/a/laws"]);
        assert_eq!(Source::new("src/a/tests.rs", "fn a() {}").product.trim(), "");
    }

    #[test]
    fn paths_are_taken_apart() {
        let cases: &[(&str, &[&str])] = &[
            ("use crate::json::Span;", &["use", "crate::json::Span"]),
            (
                "use crate::{json, plan::{self, Plan as P}};",
                &["use", "crate::json", "crate::plan", "crate::plan::Plan"],
            ),
            ("use std::{\n fs,\n env::*};", &["use", "std::fs", "std::env::*"]),
            ("::std::fs::read(x)", &["std::fs::read", "x"]),
            ("Vec::<crate::a::B>::new", &["Vec", "crate::a::B"]),
            ("<T as crate::a::B>::c", &["T", "as", "crate::a::B"]),
        ];
        for (code, expected) in cases {
            let actual: Vec<String> = paths(code).iter().map(|path| path.segments.join("::")).collect();
            assert_eq!(actual, *expected, "{code}");
        }
        let inside: Vec<_> =
            paths("use a;\nmod b { fn c() { d } } e").iter().map(|path| (path.line, path.inside)).collect();
        assert_eq!(inside, [(1, 0), (1, 0), (2, 0), (2, 0), (2, 1), (2, 1), (2, 1), (2, 0)]);
    }

    #[test]
    fn functions_are_measured() {
        let code = "trait T { fn a(&self) -> [u8; 3];\n fn b() {}\n}\nfn c<F: Fn(u8)>(f: F)\nwhere F: Send,\n{\n f(1);\n}\n";
        let expected =
            [("a", 1, 1), ("b", 2, 1), ("c", 4, 5)].map(|(name, line, lines)| (name.to_owned(), line, lines));
        assert_eq!(functions(code), expected);
    }
}
