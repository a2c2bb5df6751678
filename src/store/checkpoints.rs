//! Checkpoints on disk: files below the state directory that a person may read, copy and remove.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::logs::stem;
use super::outputs::write_private;

/// A directory of checkpoints.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    dir: PathBuf,
}

impl Checkpoints {
    /// The checkpoints below a state directory.
    pub fn below(state: &Path) -> Self {
        Self { dir: state.join("checkpoints") }
    }

    /// The checkpoints in a directory of their own.
    pub fn within(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// The file of a conversation's checkpoint; `ending` is `json` or `md`. Whatever the id is, the file is inside the
    /// directory and belongs to no other conversation.
    pub fn path(&self, id: &str, ending: &str) -> PathBuf {
        self.dir.join(format!("{}.checkpoint.{ending}", stem(id)))
    }

    /// Writes a file, and creates the directory if necessary. Returns the path.
    pub fn write(&self, id: &str, ending: &str, text: &str) -> io::Result<PathBuf> {
        let path = self.path(id, ending);
        write_private(&path, |mut file| file.write_all(text.as_bytes()))?;
        Ok(path)
    }

    /// Reads the JSON of a conversation's checkpoint.
    ///
    /// # Errors
    /// Returns an error if there is none, or if it cannot be read.
    pub fn read(&self, id: &str) -> io::Result<String> {
        std::fs::read_to_string(self.path(id, "json"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn checkpoints_round_trip_within_their_directory() {
        let state = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::below(state.path());
        assert_eq!(checkpoints.read("a").unwrap_err().kind(), io::ErrorKind::NotFound);
        let (long, longer) = ("x".repeat(300), "x".repeat(301));
        let ids = ["a", "team:a", "team.a", "team_a", "../../a b/é", "../../a b/è", "", &long, &longer];
        for id in ids {
            let path = checkpoints.write(id, "json", id).unwrap();
            assert_eq!(path.parent(), Some(&*state.path().join("checkpoints")));
            assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        for id in ids {
            assert_eq!(checkpoints.read(id).unwrap(), id);
        }
    }
}
