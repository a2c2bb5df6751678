//! Directories and files: absolute paths, paths below the home directory, or paths below another directory.
//!
//! A path is never relative to the working directory: the same file must mean the same state wherever the gateway is
//! started, or earlier decisions would be lost.

use std::path::{Path, PathBuf};

use super::environment::{Environment, home};
use super::section::Section;
use super::value::Fault;

impl Section<'_, '_> {
    /// A path that is absolute or begins with `~/`.
    pub(super) fn path(&mut self, key: &'static str) -> Option<PathBuf> {
        let expected = || "an absolute path, or one that begins with \"~/\"".into();
        self.parse(key, expected, |value, environment| {
            let text = value.as_str().ok_or(Fault::UNEXPECTED)?;
            expand(text, environment)?.ok_or(Fault::UNEXPECTED)
        })
    }

    /// A path that may also be relative, in which case it is below `base`.
    pub(super) fn path_below(&mut self, key: &'static str, base: &Path, default: &str) -> PathBuf {
        let read = self.parse(
            key,
            || "a path".into(),
            |value, environment| {
                let text = value.as_str().filter(|text| !text.is_empty()).ok_or(Fault::UNEXPECTED)?;
                Ok(expand(text, environment)?.unwrap_or_else(|| base.join(text)))
            },
        );
        read.unwrap_or_else(|| base.join(default))
    }
}

/// Makes a path absolute; `None` if it is relative.
fn expand(text: &str, environment: &dyn Environment) -> Result<Option<PathBuf>, Fault> {
    let rest = match text.strip_prefix('~') {
        None => return Ok(Some(PathBuf::from(text)).filter(|path| path.is_absolute())),
        Some("") => "",
        Some(rest) => {
            rest.strip_prefix('/').ok_or_else(|| Fault::hint("\"~\" can only stand for this user's home"))?
        }
    };
    let home = home(environment)
        .ok_or_else(|| Fault::Message("`HOME` is not set, so \"~\" cannot be resolved".into()))?;
    Ok(Some(home.join(rest.trim_start_matches('/'))))
}
