//! Request bodies, if the configuration asks for them: one folder per conversation, compressed, private.
//!
//! Bodies only: headers, and credentials with them, are never stored here.

use std::fs::{self, DirEntry};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use super::logs;
use super::outputs::write_private;

/// The folder below the state directory.
pub const FOLDER: &str = "bodies";

/// The longest body that is read back, in bytes.
const MAX_LEN: u64 = 1 << 30;

/// The folder of bodies, which need not exist yet.
#[derive(Debug, Clone)]
pub struct Bodies {
    dir: PathBuf,
}

/// The form of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As the client sent it, decoded.
    Came,
    /// As it was sent upstream, if that was different.
    Sent,
}

impl Bodies {
    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The bodies below the state directory.
    pub fn below(state: &Path) -> Self {
        Self { dir: state.join(FOLDER) }
    }

    /// The file of a body.
    pub fn path(&self, conversation: &str, record: &str, form: Form) -> PathBuf {
        let form = match form {
            Form::Came => "in",
            Form::Sent => "out",
        };
        self.dir.join(logs::stem(conversation)).join(format!("{record}.{form}.json.gz"))
    }

    /// Saves a body. A reader never sees half a file.
    pub fn save(&self, conversation: &str, record: &str, form: Form, body: &[u8]) -> io::Result<()> {
        write_private(&self.path(conversation, record, form), |file| {
            let mut encoder = GzEncoder::new(file, Compression::fast());
            encoder.write_all(body)?;
            encoder.finish().map(drop)
        })
    }

    /// Reads a body; `None` if there is none.
    ///
    /// # Errors
    /// Returns any error of the file system, or one for a damaged file.
    pub fn read(&self, conversation: &str, record: &str, form: Form) -> io::Result<Option<Vec<u8>>> {
        let file = match fs::File::open(self.path(conversation, record, form)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut body = Vec::new();
        GzDecoder::new(file).take(MAX_LEN).read_to_end(&mut body)?;
        Ok(Some(body))
    }

    /// Removes the bodies of conversations whose last one was saved before a time. A folder that cannot be removed does
    /// not keep others, and anything other than a folder is left alone.
    ///
    /// # Errors
    /// Returns the first error of the file system; all other folders are removed nevertheless.
    pub fn sweep(&self, before: SystemTime) -> io::Result<()> {
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        let mut done = Ok(());
        for entry in entries {
            let removed = entry.and_then(|entry| remove_old(&entry, before));
            done = done.and(removed);
        }
        done
    }
}

fn remove_old(entry: &DirEntry, before: SystemTime) -> io::Result<()> {
    let folder = entry.path();
    if entry.file_type()?.is_dir() && newest(&folder)?.is_some_and(|newest| newest < before) {
        fs::remove_dir_all(&folder)?;
    }
    Ok(())
}

/// When the last body of a folder was saved; `None` if it is empty.
fn newest(folder: &Path) -> io::Result<Option<SystemTime>> {
    let mut newest = None;
    for file in fs::read_dir(folder)? {
        newest = newest.max(Some(file?.metadata()?.modified()?));
    }
    Ok(newest)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    use super::*;

    #[test]
    fn bodies_round_trip_and_are_private() {
        let home = tempfile::tempdir().unwrap();
        let bodies = Bodies::below(home.path());
        assert_eq!(bodies.read("c", "1", Form::Came).unwrap(), None);
        for conversation in ["c", "../../etc", ""] {
            bodies.save(conversation, "1", Form::Came, b"{}").unwrap();
            bodies.save(conversation, "1", Form::Sent, b"[]").unwrap();
            assert_eq!(bodies.read(conversation, "1", Form::Came).unwrap().as_deref(), Some(&b"{}"[..]));
            assert_eq!(bodies.read(conversation, "1", Form::Sent).unwrap().as_deref(), Some(&b"[]"[..]));
            let path = bodies.path(conversation, "1", Form::Came);
            assert!(path.starts_with(home.path().join(FOLDER)) && !path.to_string_lossy().contains(".."));
            let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        }
    }

    #[test]
    fn bodies_of_a_conversation_are_swept_together_by_age() {
        let home = tempfile::tempdir().unwrap();
        let bodies = Bodies::below(home.path());
        bodies.sweep(SystemTime::now()).unwrap();
        bodies.save("c", "1", Form::Came, b"{}").unwrap();
        let now = SystemTime::now();
        bodies.sweep(now - Duration::from_secs(60)).unwrap();
        assert!(bodies.path("c", "1", Form::Came).exists());
        bodies.sweep(now + Duration::from_secs(60)).unwrap();
        assert_eq!(fs::read_dir(home.path().join(FOLDER)).unwrap().count(), 0);
    }

    #[test]
    fn a_failed_save_leaves_nothing_behind() {
        let home = tempfile::tempdir().unwrap();
        let bodies = Bodies::below(home.path());
        let path = bodies.path("c", "1", Form::Came);
        // The name is taken by a folder.
        fs::create_dir_all(path.join("x")).unwrap();
        assert!(bodies.save("c", "1", Form::Came, b"{}").is_err());
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn unremovable_entries_do_not_stop_a_sweep() {
        let home = tempfile::tempdir().unwrap();
        let bodies = Bodies::below(home.path());
        let conversations = ["a", "b", "c", "d"];
        for conversation in conversations {
            bodies.save(conversation, "1", Form::Came, b"{}").unwrap();
        }
        let dir = home.path().join(FOLDER);
        let elsewhere = home.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        fs::write(elsewhere.join("mine"), "").unwrap();
        for stray in ["a file", "z"] {
            fs::write(dir.join(stray), "").unwrap();
        }
        for (link, target) in [("a link", &elsewhere), ("y", &home.path().join("nowhere"))] {
            std::os::unix::fs::symlink(target, dir.join(link)).unwrap();
        }
        let now = SystemTime::now();
        bodies.sweep(now - Duration::from_secs(60)).unwrap();
        assert!(conversations.iter().all(|one| bodies.path(one, "1", Form::Came).exists()));
        bodies.sweep(now + Duration::from_secs(60)).unwrap();
        assert!(!conversations.iter().any(|one| bodies.path(one, "1", Form::Came).exists()));
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 4, "what is no folder stays");
        assert!(elsewhere.join("mine").exists());
        assert!(Bodies::below(&dir.join("z")).sweep(now).is_err());
    }
}
