//! The state of reading a document: the problems found and the keys that are known.
//!
//! The list of known keys comes from the calls that read them, so it cannot become outdated.

use toml::Spanned;
use toml::de::{DeString, DeValue};

use super::document::{Document, join};
use super::environment::Environment;
use super::problem::Problem;
use super::section::Section;
use super::suggest::{did_you_mean, nearest};

/// The state of reading a document.
pub(super) struct Reader<'t> {
    pub(super) document: &'t Document<'t>,
    pub(super) environment: &'t dyn Environment,
    problems: Vec<Problem>,
    strays: Vec<Stray>,
    known: Vec<String>,
    /// Whether entries of named tables are visited once more under a placeholder, so that their keys become known.
    pub(super) probing: bool,
}

/// A key that no section asked for.
struct Stray {
    path: Path,
    key: String,
    line: usize,
    siblings: Vec<&'static str>,
}

impl<'t> Reader<'t> {
    /// Reads a document. The value is complete only if there are no problems.
    pub(super) fn read<T>(
        document: &'t Document<'t>,
        environment: &'t dyn Environment,
        read: impl FnOnce(&mut Section<'_, 't>) -> T,
    ) -> (T, Vec<Problem>) {
        let mut reader = Self::new(document, environment, false);
        let value = Section::root(&mut reader, read);
        let mut problems = reader.problems;
        problems.extend(document.problems.iter().cloned());
        problems.extend(reader.strays.iter().map(|stray| stray.problem(&reader.known)));
        (value, problems)
    }

    /// The keys that `read` asks for, in the order in which it does; names chosen by the user appear as placeholders in
    /// capitals.
    pub(super) fn keys<T>(
        document: &'t Document<'t>,
        environment: &'t dyn Environment,
        read: impl FnOnce(&mut Section<'_, 't>) -> T,
    ) -> Vec<String> {
        let mut reader = Self::new(document, environment, true);
        Section::root(&mut reader, read);
        reader.known
    }

    fn new(document: &'t Document<'t>, environment: &'t dyn Environment, probing: bool) -> Self {
        let (problems, strays, known) = (Vec::new(), Vec::new(), Vec::new());
        Self { document, environment, problems, strays, known, probing }
    }

    /// Records that a key is known.
    pub(super) fn know(&mut self, pattern: String) {
        if !self.known.contains(&pattern) {
            self.known.push(pattern);
        }
    }

    /// Records a key that no section asked for, and the keys that its section did ask for. It is reported when all keys
    /// are known.
    pub(super) fn stray(&mut self, path: Path, key: &Spanned<DeString<'_>>, siblings: &[&'static str]) {
        let line = self.document.line(key.span().start);
        if !self.document.is_broken(line) {
            let (key, siblings) = (key.get_ref().to_string(), siblings.to_vec());
            self.strays.push(Stray { path, key, line, siblings });
        }
    }

    /// Records a problem, unless the syntax of its line is wrong anyway.
    pub(super) fn report(
        &mut self,
        path: String,
        line: Option<usize>,
        message: String,
        hint: Option<String>,
    ) {
        if line.is_none_or(|line| !self.document.is_broken(line)) {
            self.problems.push(Problem { path, line, message, hint });
        }
    }

    /// The line of a value; `None` for a value that recovery made up, since it has no place.
    pub(super) fn line_of(&self, value: &Spanned<DeValue<'_>>) -> Option<usize> {
        let span = value.span();
        (span.end > 0).then(|| self.document.line(span.start))
    }
}

impl Stray {
    fn problem(&self, known: &[String]) -> Problem {
        let (path, line) = (self.path.shown.clone(), Some(self.line));
        if let Some(whole) = self.outside_profiles(known) {
            let hint = format!("`{whole}` can only be set outside of profiles, for all conversations");
            return Problem {
                path,
                line,
                message: "this cannot be set in a profile".to_owned(),
                hint: Some(hint),
            };
        }
        let elsewhere = known.iter().find(|path| path.rsplit('.').next() == Some(&self.key));
        let hint = match (nearest(&self.key, &self.siblings), elsewhere) {
            (Some(sibling), _) => Some(did_you_mean(sibling)),
            (None, Some(path)) => Some(did_you_mean(path)),
            (None, None) => None,
        };
        Problem { path, line, message: "unknown key".to_owned(), hint }
    }

    /// The path of the same key or section outside of profiles, if there is one.
    fn outside_profiles(&self, known: &[String]) -> Option<&str> {
        let whole = self.path.pattern.strip_prefix("profile.NAME.")?;
        let is_it = |path: &str| {
            path.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        known.iter().any(|path| is_it(path)).then_some(whole)
    }
}

/// A key path as it is shown to the user, and with placeholders for the names that the user chose.
#[derive(Debug, Clone, Default)]
pub(super) struct Path {
    pub(super) shown: String,
    pub(super) pattern: String,
}

impl Path {
    pub(super) fn key(&self, key: &str) -> Self {
        self.named(key, key)
    }

    pub(super) fn named(&self, name: &str, placeholder: &str) -> Self {
        Self { shown: join(&self.shown, name), pattern: join(&self.pattern, placeholder) }
    }
}
