//! Full texts of what was cut, as plain files that an agent's own tools can read and search.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, DirEntry, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use uuid::Uuid;

/// The ending of the files' names.
const ENDING: &str = ".txt";

/// The folder of full texts. Files are named by a digest of their content, so that each text is stored once.
#[derive(Debug, Clone)]
pub struct Outputs {
    dir: PathBuf,
}

impl Outputs {
    /// The outputs in a folder, which need not exist yet.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// The folder.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The file of an output.
    pub fn path(&self, id: &str) -> PathBuf {
        self.dir.join(format!("{id}{ENDING}"))
    }

    /// Saves a text, unless it is saved already. A reader never sees half a file.
    pub fn save(&self, id: &str, text: &str) -> io::Result<()> {
        let path = self.path(id);
        if fs::metadata(&path).is_ok_and(|found| found.len() == text.len() as u64) {
            return Ok(());
        }
        write_private(&path, |mut file| file.write_all(text.as_bytes()))
    }

    /// Reads an output; `None` if there is none with this id.
    pub fn read(&self, id: &str) -> io::Result<Option<Vec<u8>>> {
        if !is_id(id) {
            return Ok(None);
        }
        match fs::read(self.path(id)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The ids of all outputs in the folder, with their sizes in bytes. Other files in the folder are ignored.
    ///
    /// # Errors
    /// Returns any error of the file system, except that there is no folder yet.
    pub fn sizes(&self) -> io::Result<BTreeMap<String, u64>> {
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            entries => entries?,
        };
        let mut sizes = BTreeMap::new();
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let id = name.to_str().and_then(|name| name.strip_suffix(ENDING)).filter(|id| is_id(id));
            let Some(id) = id else { continue };
            match entry.metadata() {
                Ok(found) if found.is_file() => sizes.insert(id.to_owned(), found.len()),
                // It was removed in the meantime.
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => None,
            };
        }
        Ok(sizes)
    }

    /// Removes an output, if it is there.
    pub fn remove(&self, id: &str) -> io::Result<()> {
        match fs::remove_file(self.path(id)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }
}

/// Creates a folder that only this user may enter, and its parents.
pub fn create_private(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Creates an empty file that only this user may read, unless it exists.
pub(super) fn create_private_file(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        done => done.map(drop),
    }
}

fn is_id(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Writes a file that only this user may read, and creates the folder if necessary. Nobody ever sees half of the file.
pub(super) fn write_private(path: &Path, fill: impl Fn(File) -> io::Result<()>) -> io::Result<()> {
    match write_once(path, &fill) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            path.parent().map_or(Ok(()), create_private)?;
            write_once(path, &fill)
        }
        done => done,
    }
}

fn write_once(path: &Path, fill: impl Fn(File) -> io::Result<()>) -> io::Result<()> {
    // A process id would not do: processes in different containers may have the same one.
    let draft = path.with_extension(format!("{}.part", Uuid::now_v7().as_u128()));
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft);
    let written = opened.and_then(fill).and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        // The next sweep that finds it is days away.
        let _ = fs::remove_file(&draft);
    }
    written
}

/// Removes a file of the folder if it is a text that was begun before a time and never finished: the process that wrote
/// it is gone.
pub(super) fn remove_old_draft(entry: &DirEntry, before: SystemTime) -> io::Result<()> {
    let found = entry.metadata()?;
    if found.is_file() && found.modified()? < before && is_draft(&entry.file_name()) {
        fs::remove_file(entry.path())?;
    }
    Ok(())
}

fn is_draft(name: &OsStr) -> bool {
    let name = name.to_str().and_then(|name| name.strip_suffix(".part")?.split_once('.'));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    name.is_some_and(|(id, draft)| is_id(id) && is_number(draft))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_texts_are_read_only_by_their_exact_id() {
        let home = tempfile::tempdir().unwrap();
        let outputs = Outputs::new(home.path().join("a/b"));
        let id = "0123456789abcdef0123456789abcdef";
        assert_eq!(outputs.read(id).unwrap(), None);
        outputs.save(id, "text\n").unwrap();
        outputs.save(id, "text\n").unwrap();
        assert_eq!(outputs.read(id).unwrap().as_deref(), Some(&b"text\n"[..]));
        for other in ["../a", "", "0123", "0123456789abcdef0123456789abcdeg"] {
            assert_eq!(outputs.read(other).unwrap(), None, "{other}");
        }
        outputs.remove(id).unwrap();
        outputs.remove(id).unwrap();
        assert_eq!(outputs.read(id).unwrap(), None);
    }

    #[test]
    fn only_output_files_are_listed() {
        let home = tempfile::tempdir().unwrap();
        let outputs = Outputs::new(home.path().join("outputs"));
        assert!(outputs.sizes().unwrap().is_empty());
        let ids = ["0123456789abcdef0123456789abcdef", "ffffffffffffffffffffffffffffffff"];
        outputs.save(ids[1], "").unwrap();
        outputs.save(ids[0], "text\n").unwrap();
        let elsewhere = home.path().join("elsewhere");
        fs::write(&elsewhere, "secret").unwrap();
        std::os::unix::fs::symlink(&elsewhere, outputs.path("00000000000000000000000000000000")).unwrap();
        fs::create_dir(outputs.path("11111111111111111111111111111111")).unwrap();
        fs::write(outputs.path("notes"), "x").unwrap();
        fs::write(outputs.path(ids[0]).with_extension("7.part"), "x").unwrap();
        let expected = [(ids[0].to_owned(), 5), (ids[1].to_owned(), 0)];
        assert!(outputs.sizes().unwrap().into_iter().eq(expected));
        assert!(Outputs::new(&elsewhere).sizes().is_err(), "a folder that is a file is not an empty one");
    }

    #[test]
    fn a_failed_save_leaves_nothing_behind() {
        let home = tempfile::tempdir().unwrap();
        let outputs = Outputs::new(home.path());
        let id = "0123456789abcdef0123456789abcdef";
        // The name is taken by a folder.
        fs::create_dir_all(outputs.path(id).join("x")).unwrap();
        assert!(outputs.save(id, "text").is_err());
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    }

    /// The writers may be processes with the same id, such as two containers that share a volume.
    #[test]
    fn a_text_that_two_write_at_once_is_never_half_there() {
        use std::sync::mpsc::channel;
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("0123456789abcdef0123456789abcdef.txt");
        let (begin, begun) = channel();
        let (go_on, gone_on) = channel::<()>();
        let (opened, is_open) = channel();
        let path = path.as_path();
        std::thread::scope(|scope| {
            let other = scope.spawn(move || {
                begun.recv().unwrap();
                write_private(path, |mut file| {
                    opened.send(()).unwrap();
                    gone_on.recv().unwrap();
                    file.write_all(b"text")
                })
            });
            let written = write_private(path, |mut file| {
                file.write_all(b"text")?;
                begin.send(()).unwrap();
                is_open.recv().unwrap();
                Ok(())
            });
            let found = fs::read(path);
            go_on.send(()).unwrap();
            drop(go_on);
            assert!(written.is_ok() && other.join().unwrap().is_ok());
            assert_eq!(found.unwrap(), b"text");
        });
    }

    #[test]
    fn output_files_are_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let home = tempfile::tempdir().unwrap();
        let outputs = Outputs::new(home.path().join("outputs"));
        let id = "0123456789abcdef0123456789abcdef";
        outputs.save(id, "x").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&home.path().join("outputs")), mode(&outputs.path(id))), (0o700, 0o600));
    }
}
