//! Patterns for the names of tools, models, clients and origins.

use glob::{MatchOptions, Pattern, PatternError};

/// A set of patterns for names (globs, case-insensitive).
#[derive(Clone, Default, PartialEq)]
pub struct NamePatterns {
    patterns: Vec<String>,
    compiled: Vec<Pattern>,
}

impl NamePatterns {
    /// Compiles the patterns.
    ///
    /// # Errors
    /// Returns the first pattern that is not a glob, with what is wrong with it.
    pub fn new<I: IntoIterator<Item = S>, S: Into<String>>(patterns: I) -> Result<Self, PatternError> {
        let patterns: Vec<String> = patterns.into_iter().map(Into::into).collect();
        let compiled = patterns.iter().map(|pattern| Pattern::new(pattern)).collect::<Result<_, _>>()?;
        Ok(Self { patterns, compiled })
    }

    /// Whether one of the patterns matches the name.
    pub fn matches(&self, name: &str) -> bool {
        let options = MatchOptions { case_sensitive: false, ..MatchOptions::new() };
        self.compiled.iter().any(|pattern| pattern.matches_with(name, options))
    }

    /// The patterns as written.
    pub fn patterns(&self) -> &[String] {
        &self.patterns
    }
}

impl std::fmt::Debug for NamePatterns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.patterns.fmt(f)
    }
}
