//! Shell commands that do nothing but print files.
//!
//! No shell: a few plain forms are understood (words, quotes, pipes, lists, harmless redirections), and
//! whatever else a script holds makes it unknown.

/// Commands that print files as they are.
const VIEWERS: &[&str] =
    &["cat", "head", "tail", "nl", "bat", "batcat", "less", "more", "tac", "get-content", "gc"];
/// Commands that neither print files nor change what others print.
const NEUTRAL: &[&str] = &["cd", "pushd", "popd", "pwd", "echo", "printf", "true", ":"];
/// Commands that run a script given after `-c`.
const SHELLS: &[&str] = &["sh", "bash", "zsh", "dash", "ash", "ksh"];
/// Longer scripts are not looked at.
const MAX_SCRIPT: usize = 4096;
/// How deep scripts in scripts are followed.
const MAX_DEPTH: usize = 2;

/// Whether a script prints at least one file, and does nothing else.
pub(super) fn only_prints_files(script: &str) -> bool {
    script_effect(script, MAX_DEPTH) == Effect::Prints
}

/// The same for one command that is given as its words.
pub(super) fn words_only_print_files(words: &[&str]) -> bool {
    let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
    command_effect(&words, MAX_DEPTH) == Effect::Prints
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Effect {
    /// Nothing that matters.
    Nothing,
    /// Files are printed as they are.
    Prints,
    /// Anything.
    Unknown,
}

fn script_effect(script: &str, depth: usize) -> Effect {
    if script.len() > MAX_SCRIPT {
        return Effect::Unknown;
    }
    let Some(commands) = Scanner::new(script).commands() else { return Effect::Unknown };
    let effects = commands.iter().map(|words| command_effect(words, depth));
    effects.max().unwrap_or(Effect::Nothing)
}

fn command_effect(words: &[String], depth: usize) -> Effect {
    let Some((program, arguments)) = words.split_first() else { return Effect::Nothing };
    let name = program.rsplit('/').next().unwrap_or(program).to_ascii_lowercase();
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

/// `sed -n`, and nothing that writes: ranges of lines, printed.
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

/// `git show REVISION:PATH`.
fn git_shows_a_file(arguments: &[String]) -> bool {
    let is_file = |word: &String| !word.starts_with('-') && word.contains(':');
    matches!(arguments, [show, file] if show == "show" && is_file(file))
}

/// Splits a script into commands, and these into words.
struct Scanner<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    commands: Vec<Vec<String>>,
    words: Vec<String>,
    /// The word being read; a quoted one may be empty.
    word: Option<String>,
}

impl<'a> Scanner<'a> {
    fn new(script: &'a str) -> Self {
        Self { rest: script.chars().peekable(), commands: Vec::new(), words: Vec::new(), word: None }
    }

    /// All commands, in lists and pipes; `None` if the script holds anything else.
    fn commands(mut self) -> Option<Vec<Vec<String>>> {
        while let Some(next) = self.rest.next() {
            match next {
                ' ' | '\t' => self.end_word(),
                '\n' | ';' | '|' => self.end_command(),
                '&' if self.rest.next_if_eq(&'&').is_some() => self.end_command(),
                '>' => self.skip_redirection()?,
                '#' if self.word.is_none() => while self.rest.next_if(|&next| next != '\n').is_some() {},
                '\\' => match self.rest.next()? {
                    '\n' => {}
                    escaped => self.push(escaped),
                },
                '\'' => self.quoted('\'')?,
                '"' => self.quoted('"')?,
                '&' | '<' | '(' | ')' | '`' => return None,
                '$' if matches!(self.rest.peek(), Some('(' | '{' | '\'')) => return None,
                other => self.push(other),
            }
        }
        self.end_command();
        Some(self.commands)
    }

    fn push(&mut self, letter: char) {
        self.word.get_or_insert_default().push(letter);
    }

    fn quoted(&mut self, quote: char) -> Option<()> {
        self.word.get_or_insert_default();
        loop {
            match self.rest.next()? {
                end if end == quote => return Some(()),
                '`' if quote == '"' => return None,
                '$' if quote == '"' && self.rest.peek() == Some(&'(') => return None,
                '\\' if quote == '"' => {
                    let escaped = self.rest.next()?;
                    self.push(escaped);
                }
                other => self.push(other),
            }
        }
    }

    /// `2>/dev/null`, `2>&1` and the like print nothing else; any other redirection writes a file.
    fn skip_redirection(&mut self) -> Option<()> {
        // The number of the stream is no word.
        match self.word.take() {
            Some(word) if word.chars().all(|digit| digit.is_ascii_digit()) => {}
            Some(word) => self.words.push(word),
            None => {}
        }
        if self.rest.next_if_eq(&'&').is_some() {
            self.rest.next_if(char::is_ascii_digit)?;
            return Some(());
        }
        while self.rest.next_if_eq(&' ').is_some() {}
        "/dev/null".chars().all(|letter| self.rest.next_if_eq(&letter).is_some()).then_some(())
    }

    fn end_word(&mut self) {
        self.words.extend(self.word.take());
    }

    fn end_command(&mut self) {
        self.end_word();
        if !self.words.is_empty() {
            self.commands.push(std::mem::take(&mut self.words));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_that_print_files() {
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
        ] {
            assert!(only_prints_files(script), "{script}");
        }
    }

    #[test]
    fn scripts_that_do_anything_else() {
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
}
