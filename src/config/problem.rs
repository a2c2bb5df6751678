//! The mistakes of a configuration, in words for the person who wrote it.
//!
//! A problem names the key, the line and what was expected. It never quotes the value of a header, since those are
//! often secrets.

use std::fmt;
use std::str::Utf8Error;

/// A mistake in a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The path of the key from the root: `truncate.max_bytes`. Empty if the text itself cannot be read.
    pub path: String,
    /// The line, counted from 1; `None` if the file does not mention the key.
    pub line: Option<usize>,
    /// What is wrong, in one sentence without a final period.
    pub message: String,
    /// How to mend it.
    pub hint: Option<String>,
}

/// All mistakes of a configuration, ordered by line; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems {
    file: String,
    list: Vec<Problem>,
}

impl Problems {
    /// Sorts the problems by line, those without a line last.
    pub(super) fn new(mut list: Vec<Problem>) -> Self {
        list.sort_by_key(|problem| problem.line.unwrap_or(usize::MAX));
        Self { file: "gateway.toml".to_owned(), list }
    }

    /// The problem of a file that is not UTF-8 from some byte on.
    pub fn not_utf8(file: &[u8], error: Utf8Error) -> Self {
        let before = file.get(..error.valid_up_to()).unwrap_or(file);
        let line = 1 + memchr::memchr_iter(b'\n', before).count();
        let message = "this is not UTF-8, as a configuration must be".to_owned();
        Self::new(vec![Problem { path: String::new(), line: Some(line), message, hint: None }])
    }

    /// Returns the same problems, shown under the name that the user gave for the file.
    #[must_use]
    pub fn named(self, file: impl Into<String>) -> Self {
        Self { file: file.into(), ..self }
    }

    /// The problems, ordered by line.
    pub fn as_slice(&self) -> &[Problem] {
        &self.list
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.list.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{}", self.file)?;
            if let Some(line) = problem.line {
                write!(f, ":{line}")?;
            }
            write!(f, ": {problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "`{}`: ", self.path)?;
        }
        write!(f, "{}", self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, "\n  hint: {hint}")?;
        }
        Ok(())
    }
}
