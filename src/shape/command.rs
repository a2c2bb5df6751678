//! Splits shell scripts into commands, and determines whether they do nothing but print files.
//!
//! This is not a shell: it understands words, quotes, pipes, lists and harmless redirections. A script that contains
//! anything else is read as far as possible, and is assumed to do anything.

/// Commands that print files as they are, in lower case.
pub const VIEWERS: &[&str] =
    &["cat", "head", "tail", "nl", "bat", "batcat", "less", "more", "tac", "get-content", "gc"];
/// Commands that neither print files nor change what others print.
pub const NEUTRAL: &[&str] = &["cd", "pushd", "popd", "pwd", "echo", "printf", "true", ":", "export", "set"];
/// The word in a command that stands for redirecting its output to a file; the next word is the file.
pub const TO_FILE: &str = ">";
/// Commands that run a script given after `-c`.
const SHELLS: &[&str] = &["sh", "bash", "zsh", "dash", "ash", "ksh"];
/// Longer scripts are not examined, in bytes.
const MAX_SCRIPT: usize = 4096;
/// How deep scripts within scripts are followed.
const MAX_DEPTH: usize = 2;

/// Whether a script prints at least one file and does nothing else.
pub(super) fn only_prints_files(script: &str) -> bool {
    script_effect(script, MAX_DEPTH) == Effect::Prints
}

/// The same for a single command given as words.
pub(super) fn words_only_print_files(words: &[&str]) -> bool {
    let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
    command_effect(&words, MAX_DEPTH) == Effect::Prints
}

/// What a command or a script does; the greatest of several effects counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Effect {
    /// Nothing relevant.
    Nothing,
    /// Prints files as they are.
    Prints,
    /// May do anything.
    Unknown,
}

fn script_effect(script: &str, depth: usize) -> Effect {
    if script.len() > MAX_SCRIPT {
        return Effect::Unknown;
    }
    let script = Script::read(script);
    if !script.is_plain {
        return Effect::Unknown;
    }
    let effects = script.pipelines.iter().flatten().map(|words| command_effect(words, depth));
    effects.max().unwrap_or(Effect::Nothing)
}

/// The name of a command: its first word without directories, in lower case.
pub fn name(program: &str) -> String {
    program.rsplit('/').next().unwrap_or(program).to_ascii_lowercase()
}

fn command_effect(words: &[String], depth: usize) -> Effect {
    let Some((program, arguments)) = words.split_first() else { return Effect::Nothing };
    let name = name(program);
    let name = name.as_str();
    let prints = match name {
        "sed" => sed_only_prints(arguments),
        "git" => git_shows_a_file(arguments),
        _ => VIEWERS.contains(&name),
    };
    if prints {
        return Effect::Prints;
    }
    if NEUTRAL.contains(&name) {
        return Effect::Nothing;
    }
    match arguments {
        [flags, script, ..]
            if SHELLS.contains(&name) && flags.starts_with('-') && flags.ends_with('c') && depth > 0 =>
        {
            script_effect(script, depth - 1)
        }
        _ => Effect::Unknown,
    }
}

/// Whether `sed` only prints ranges of lines: `sed -n` with a script of nothing else.
fn sed_only_prints(arguments: &[String]) -> bool {
    let is_quiet = |flag: &String| matches!(flag.as_str(), "-n" | "--quiet" | "--silent");
    let prints = |word: &String| {
        let script = word.trim_end_matches(['p', ' ', ';']);
        script.len() < word.len()
            && script
                .chars()
                .all(|letter| letter.is_ascii_digit() || matches!(letter, ',' | '$' | ' ' | 'p' | ';'))
    };
    let (flags, words): (Vec<_>, Vec<_>) = arguments.iter().partition(|word| word.starts_with('-'));
    flags.iter().any(|flag| is_quiet(flag))
        && flags.iter().all(|flag| is_quiet(flag) || matches!(flag.as_str(), "-e" | "-E" | "-r"))
        && words.first().is_some_and(|script| prints(script))
}

/// Whether `git` is called as `git show REVISION:PATH`.
fn git_shows_a_file(arguments: &[String]) -> bool {
    let is_file = |word: &String| !word.starts_with('-') && word.contains(':');
    matches!(arguments, [show, file] if show == "show" && is_file(file))
}

/// A script, read as far as possible without a shell.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Script {
    /// Its pipelines in order; each is a list of commands, each of which is a list of words.
    pub pipelines: Vec<Vec<Vec<String>>>,
    /// Whether it contains nothing but lists and pipes of commands, and no redirection that writes or reads a file.
    pub is_plain: bool,
}

impl Script {
    /// Reads a script.
    pub fn read(script: &str) -> Self {
        let scanner = Scanner {
            rest: script.chars().peekable(),
            read: Self { is_plain: true, ..Self::default() },
            stages: Vec::new(),
            words: Vec::new(),
            word: None,
        };
        scanner.read()
    }
}

/// Splits a script into pipelines, these into commands, and these into words.
struct Scanner<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    read: Script,
    /// The pipeline being read.
    stages: Vec<Vec<String>>,
    /// The command being read.
    words: Vec<String>,
    /// The word being read; a quoted one may be empty.
    word: Option<String>,
}

impl Scanner<'_> {
    fn read(mut self) -> Script {
        while let Some(next) = self.rest.next() {
            match next {
                '\n' | ';' => self.end_pipeline(),
                space if space.is_whitespace() => self.end_word(),
                '|' if self.rest.next_if_eq(&'|').is_some() => self.end_pipeline(),
                '|' => {
                    self.end_command();
                    // `|&`: error output goes into the pipe too.
                    self.read.is_plain &= self.rest.next_if_eq(&'&').is_none();
                }
                '&' if self.rest.next_if_eq(&'&').is_some() => self.end_pipeline(),
                '&' if self.rest.next_if_eq(&'>').is_some() => {
                    self.read.is_plain = false;
                    self.redirection();
                }
                '&' => {
                    self.read.is_plain = false;
                    self.end_pipeline();
                }
                '>' => self.redirection(),
                '#' if self.word.is_none() => while self.rest.next_if(|&next| next != '\n').is_some() {},
                '\\' => match self.rest.next() {
                    Some('\n') => {}
                    Some(escaped) => self.push(escaped),
                    None => self.read.is_plain = false,
                },
                '\'' | '"' => self.quoted(next),
                other => {
                    let opens = other == '$' && matches!(self.rest.peek(), Some('(' | '{' | '\''));
                    self.read.is_plain &= !opens && !matches!(other, '<' | '(' | ')' | '`');
                    self.push(other);
                }
            }
        }
        self.end_pipeline();
        self.read
    }

    fn push(&mut self, letter: char) {
        self.word.get_or_insert_default().push(letter);
    }

    fn quoted(&mut self, quote: char) {
        self.word.get_or_insert_default();
        while let Some(next) = self.rest.next() {
            match next {
                end if end == quote => return,
                '\\' if quote == '"' => {
                    let escaped = self.rest.next();
                    self.word.get_or_insert_default().extend(escaped);
                }
                other => {
                    let opens = other == '`' || (other == '$' && self.rest.peek() == Some(&'('));
                    self.read.is_plain &= quote == '\'' || !opens;
                    self.push(other);
                }
            }
        }
        // The quote is never closed.
        self.read.is_plain = false;
    }

    /// `2>/dev/null`, `2>&1` and the like print nothing else; any other redirection writes a file.
    fn redirection(&mut self) {
        // The number of the stream is not a word.
        match self.word.take() {
            Some(word) if !word.is_empty() && word.chars().all(|digit| digit.is_ascii_digit()) => {}
            word => self.words.extend(word),
        }
        if self.rest.next_if_eq(&'&').is_some() {
            self.read.is_plain &= self.rest.next_if(|&next| next.is_ascii_digit() || next == '-').is_some();
            return;
        }
        self.rest.next_if(|next| matches!(next, '>' | '|'));
        while self.rest.next_if_eq(&' ').is_some() {}
        let mut behind = self.rest.clone();
        let is_nowhere = "/dev/null".chars().all(|letter| behind.next_if_eq(&letter).is_some());
        if is_nowhere && behind.peek().is_none_or(|next| next.is_whitespace() || ";|&>".contains(*next)) {
            self.rest = behind;
        } else {
            self.read.is_plain = false;
            self.words.push(TO_FILE.to_owned());
        }
    }

    fn end_word(&mut self) {
        self.words.extend(self.word.take());
    }

    fn end_command(&mut self) {
        self.end_word();
        if !self.words.is_empty() {
            self.stages.push(std::mem::take(&mut self.words));
        }
    }

    fn end_pipeline(&mut self) {
        self.end_command();
        if !self.stages.is_empty() {
            self.read.pipelines.push(std::mem::take(&mut self.stages));
        }
    }
}

/// A string literal in code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Literal {
    /// Its text, as far as it can be decoded.
    pub text: String,
    /// Whether it is closed and contains nothing that only a parser of the language could decode.
    pub is_plain: bool,
}

/// The value of a key in code, given what follows the key: `cat a` for `: "cat a"`; `None` if it is not a literal.
pub fn literal(behind: &str) -> Option<Literal> {
    let value = behind.trim_start_matches(['"', '\'']).trim_start().strip_prefix(':')?.trim_start();
    let quote = value.chars().next().filter(|quote| matches!(quote, '"' | '\'' | '`'))?;
    let (mut text, mut is_plain) = (String::new(), true);
    let mut letters = value[1..].chars();
    loop {
        match letters.next() {
            Some(end) if end == quote => return Some(Literal { text, is_plain }),
            Some('\\') => match letters.next() {
                Some('n') => text.push('\n'),
                Some('t') => text.push('\t'),
                escaped => {
                    is_plain &= escaped.is_some_and(|escaped| !escaped.is_ascii_alphanumeric());
                    text.extend(escaped);
                }
            },
            Some(letter) => {
                is_plain &= letter != '$' || quote != '`';
                text.push(letter);
            }
            None => return Some(Literal { text, is_plain: false }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_that_only_print_files_are_recognised() {
        for script in [
            "cat src/main.rs",
            "/bin/cat 'a b' \"c d\" e\\ f",
            "cat a 2>/dev/null",
            "cat a 2>&1 | head -n 50",
            "cd /repo && sed -n '10,20p' a.rs; echo ---; tail -5 b",
            "sed -n 1,5p a; sed -n '5p;7,$p' b; sed -n -e 3p a",
            "nl -ba a.rs | sed -n '1,220p'",
            "head -c 100 \"$HOME/x\"\n\n# comment; rm -rf\ncat y",
            "bash -lc \"cat a\"",
            "cat a || cat b",
            "cat a \\\n  b",
            "Get-Content a.txt",
            "git show HEAD~1:src/a.rs | sed -n '448,475p'",
            "export LANG=C; cat a",
        ] {
            assert!(only_prints_files(script), "{script}");
        }
    }

    #[test]
    fn scripts_with_other_effects_do_not_only_print_files() {
        for script in [
            "",
            "cd /repo",
            "echo hi",
            "ls",
            "cat a | sort",
            "cat a; make",
            "cat a && rm a",
            "cat a > b",
            "cat a >> b",
            "cat a >| b",
            "cat a &> b",
            "cat a |& cat",
            "cat a >& b",
            "cat a >/dev/nul",
            "cat <<EOF\nx\nEOF",
            "cat < a",
            "cat $(ls)",
            "cat \"$(ls)\"",
            "cat `ls`",
            "cat \"`ls`\"",
            "cat 'a",
            "cat a &",
            "(cat a)",
            "sed 's/a/b/' f",
            "sed -i -n 5p f",
            "sed -n 's/a/b/p' f",
            "sed -n '1,5w out' f",
            "sed -n -f x f",
            "grep x a",
            "sudo cat a",
            "git show HEAD",
            "git show --stat a:b",
            "git push a:b",
            "bash -lc 'bash -c \"bash -c cat\"'",
            "bash cat",
            "bash -c 'cat a; make'",
        ] {
            assert!(!only_prints_files(script), "{script}");
        }
        assert!(!only_prints_files(&"cat a;".repeat(1000)));
    }

    /// Words are separated by `·`, commands of a pipeline by `|`, and pipelines by `;`.
    #[test]
    fn scripts_are_split_into_pipelines_commands_and_words() {
        for (script, expected, is_plain) in [
            ("grep x f 2>&1 | head", "grep·x·f|head", true),
            ("make >/dev/null 2>&1; cat a", "make;cat·a", true),
            ("cat a | wc -l && b || c & d", "cat·a|wc·-l;b;c;d", false),
            ("a |& b", "a|b", false),
            ("a &> log; b >>log 2> e", "a·>·log;b·>·log·>·e", false),
            ("a 2>&- b", "a·b", true),
            ("a2>/dev/tty", "a2·>·/dev/tty", false),
            ("a 'b c'd \"e\\\"f\" '' g\\ h", "a·b cd·e\"f··g h", true),
            ("a \\\n b # c | d\ne", "a·b;e", true),
            ("a $(b c) `d`", "a·$(b·c)·`d`", false),
            ("a 'b", "a·b", false),
            ("a \\", "a", false),
            ("| ;; &", "", false),
            ("", "", true),
        ] {
            let read = Script::read(script);
            let pipelines = read.pipelines.iter().map(|stages| {
                let stages: Vec<String> = stages.iter().map(|words| words.join("·")).collect();
                stages.join("|")
            });
            let told = pipelines.collect::<Vec<_>>().join(";");
            assert_eq!((told.as_str(), read.is_plain), (expected, is_plain), "{script}");
        }
    }
}
