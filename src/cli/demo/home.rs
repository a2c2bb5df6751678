//! Where the demonstration's gateway keeps its state: a directory that goes when the demonstration ends, or
//! one that stays.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::json::string;
use crate::store::ledger;
use crate::store::outputs::create_private;

/// The configuration in a directory that stays.
pub(super) const CONFIGURATION: &str = "gateway.toml";

/// A directory for state.
#[derive(Debug)]
pub(super) struct Home {
    path: PathBuf,
    keep: bool,
}

impl Home {
    /// The directory to keep, or a new one that is removed with this value.
    ///
    /// # Errors
    /// When it cannot be made, or holds a store already.
    pub(super) fn new(keep: Option<&Path>) -> io::Result<Self> {
        let Some(dir) = keep else {
            let path = std::env::temp_dir().join(format!("plimsoll-demo-{}", Uuid::now_v7()));
            // Not recursive: in a directory that all may write to, nobody else may have made it.
            DirBuilder::new().mode(0o700).create(&path).map_err(|error| about(&path, &error))?;
            return Ok(Self { path, keep: false });
        };
        let path = std::path::absolute(dir)?;
        if path.join(ledger::FILE_NAME).exists() {
            let message = "holds a store already; it was left as it is";
            return Err(about(&path, &io::Error::new(io::ErrorKind::AlreadyExists, message)));
        }
        create_private(&path).map_err(|error| about(&path, &error))?;
        let home = Self { path, keep: true };
        fs::write(home.path.join(CONFIGURATION), home.configuration()?)
            .map_err(|error| about(&home.path, &error))?;
        Ok(home)
    }

    /// The directory, absolute.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory, if it stays.
    pub(super) fn kept(&self) -> Option<&Path> {
        self.keep.then_some(&*self.path)
    }

    /// A configuration whose state is here.
    ///
    /// # Errors
    /// When the directory's name is no text.
    pub(super) fn configuration(&self) -> io::Result<String> {
        let text = self.path.to_str().ok_or_else(|| {
            about(&self.path, &io::Error::new(io::ErrorKind::InvalidFilename, "the name is not UTF-8"))
        })?;
        // What JSON writes as a string, TOML reads as one.
        Ok(format!("[state]\ndir = {}\n", string::encode(text)))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if !self.keep {
            // A directory left behind in the system's place for such is no failure.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

fn about(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_goes_unless_it_is_kept() {
        let gone = Home::new(None).unwrap();
        let path = gone.path().to_owned();
        assert!(path.is_dir() && gone.kept().is_none());
        drop(gone);
        assert!(!path.exists());

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a \"b\"/c");
        let kept = Home::new(Some(&path)).unwrap();
        assert!(fs::read_to_string(path.join(CONFIGURATION)).unwrap().contains(r#"a \"b\"/c"#));
        drop(kept);
        assert!(path.is_dir());
        fs::write(path.join(ledger::FILE_NAME), "").unwrap();
        assert!(Home::new(Some(&path)).is_err());
    }
}
