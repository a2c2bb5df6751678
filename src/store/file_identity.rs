//! Tells whether an open file is still at the path where it was opened: people remove and rename files that programs
//! write to.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A path and the identity of the file that it led to.
pub(super) struct FileIdentity {
    path: PathBuf,
    /// The device and the inode.
    file: (u64, u64),
}

impl FileIdentity {
    /// The identity of the file that a path leads to now.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), file: identity(&fs::metadata(path)?) })
    }

    /// Whether the path led to this open file.
    pub(super) fn is_of(&self, file: &File) -> io::Result<bool> {
        Ok(identity(&file.metadata()?) == self.file)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the path no longer leads to this file.
    pub(super) fn is_left(&self) -> bool {
        match fs::metadata(&self.path) {
            Ok(found) => identity(&found) != self.file,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_and_replaced_files_are_detected() {
        let home = tempfile::tempdir().unwrap();
        let (path, other) = (home.path().join("a"), home.path().join("b"));
        assert!(FileIdentity::of(&path).is_err());
        fs::write(&path, "1").unwrap();
        let file = FileIdentity::of(&path).unwrap();
        fs::write(&path, "2").unwrap();
        assert!(!file.is_left() && file.is_of(&File::open(&path).unwrap()).unwrap());
        fs::rename(&path, &other).unwrap();
        assert!(file.is_left());
        fs::write(&path, "3").unwrap();
        assert!(file.is_left() && !file.is_of(&File::open(&path).unwrap()).unwrap());
        fs::rename(&other, &path).unwrap();
        assert!(!file.is_left());
    }
}
