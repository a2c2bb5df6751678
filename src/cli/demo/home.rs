//! The directory for the state of the demonstration's gateway, which is removed at the end or kept.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::json::string;
use crate::store::ledger;
use crate::store::outputs::create_private;

/// The name of the configuration in a directory that is kept.
pub(super) const CONFIGURATION: &str = "gateway.toml";

/// A directory for the state.
#[derive(Debug)]
pub(super) struct Home {
    path: PathBuf,
    keep: bool,
}

impl Home {
    /// The directory to keep, or a new one that is removed with this value.
    ///
    /// # Errors
    /// If it cannot be created, or contains a store already.
    pub(super) fn new(keep: Option<&Path>) -> io::Result<Self> {
        let Some(dir) = keep else {
            let path = std::env::temp_dir().join(format!("plimsoll-demo-{}", Uuid::now_v7()));
            // Not recursive: in a directory that everyone can write to, it must not be someone else's.
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

    /// The absolute path of the directory.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory, if it is kept.
    pub(super) fn kept(&self) -> Option<&Path> {
        self.keep.then_some(&*self.path)
    }

    /// A configuration with its state in this directory.
    ///
    /// # Errors
    /// If the directory's name is not UTF-8.
    pub(super) fn configuration(&self) -> io::Result<String> {
        let text = self.path.to_str().ok_or_else(|| {
            about(&self.path, &io::Error::new(io::ErrorKind::InvalidFilename, "the name is not UTF-8"))
        })?;
        // A JSON string is also a TOML string.
        Ok(format!("[state]\ndir = {}\n", string::encode(text)))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if !self.keep {
            // It is no failure if a directory is left behind in the system's directory for temporary files.
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
    fn a_temporary_home_is_removed_and_a_given_one_is_kept() {
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
