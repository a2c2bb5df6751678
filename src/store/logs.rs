//! One file of records per conversation, made to be read with `less` and `jq`.

use std::collections::HashMap;
use std::fs::{self, DirEntry, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Deserialize;

use super::outputs::create_private;
use super::place::Place;
use crate::conversation::Digest;

/// Files that are kept open at most.
const OPEN: usize = 64;

/// Bytes that are written at once, if no single line has more.
const TOGETHER: usize = 64 << 10;

/// What the names of the files end with.
const ENDING: &str = ".jsonl";

/// How far into a file a record is looked for, in bytes. Lines are far shorter.
const LOOKED_AT: u64 = 64 << 10;

/// The folder of the logs.
pub(super) struct Logs {
    dir: PathBuf,
    open: HashMap<String, (File, Place)>,
}

impl Logs {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir, open: HashMap::new() }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Appends lines without their ends, a record each, to their conversation's file.
    pub(super) fn append(&mut self, conversation: &str, lines: &[&str]) -> io::Result<()> {
        let name = file_name(conversation);
        let written = self.file(&name).and_then(|file| write(file, lines));
        if written.is_err() {
            self.open.remove(&name);
        }
        written
    }

    /// Logs are removed and rotated while they are written: what was opened goes on only while it has its name.
    fn file(&mut self, name: &str) -> io::Result<&mut File> {
        if self.open.get(name).is_some_and(|(_, place)| place.is_left()) {
            self.open.remove(name);
        }
        if !self.open.contains_key(name) {
            if self.open.len() >= OPEN {
                self.open.clear();
            }
            let path = self.dir.join(name);
            let mut options = OpenOptions::new();
            options.create(true).read(true).append(true).mode(0o600);
            let mut file = match options.open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    create_private(&self.dir)?;
                    options.open(&path)?
                }
                opened => opened?,
            };
            if is_torn(&file)? {
                file.write_all(b"\n")?;
            }
            self.open.insert(name.to_owned(), (file, Place::of(&path)?));
        }
        self.open.get_mut(name).map(|(file, _)| file).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Writes lines, each with its end and none in pieces: other gateways may write to the same file.
fn write(file: &mut File, lines: &[&str]) -> io::Result<()> {
    let len: usize = lines.iter().map(|line| line.len() + 1).sum();
    let mut together = Vec::with_capacity(len.min(TOGETHER));
    for line in lines {
        if !together.is_empty() && together.len() + line.len() >= TOGETHER {
            file.write_all(&together)?;
            together.clear();
        }
        together.extend_from_slice(line.as_bytes());
        together.push(b'\n');
    }
    file.write_all(&together)
}

/// Removes what stands in the folder, if it is a log to which nothing was added since a time. Whoever has it open notices
/// and begins it again.
pub(super) fn remove_old(entry: &DirEntry, before: SystemTime) -> io::Result<()> {
    let found = entry.metadata()?;
    if found.is_file() && found.modified()? < before && is_log(entry)? {
        fs::remove_file(entry.path())?;
    }
    Ok(())
}

/// Whether a file is called what the log of the conversation in it is called: the folder may be anyone's.
fn is_log(entry: &DirEntry) -> io::Result<bool> {
    let name = entry.file_name();
    let Some(name) = name.to_str().filter(|name| name.ends_with(ENDING)) else { return Ok(false) };
    let mut beginning = Vec::new();
    File::open(entry.path())?.take(LOOKED_AT).read_to_end(&mut beginning)?;
    let mut records =
        beginning.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
    Ok(records.any(|Booked { conversation }| file_name(&conversation) == name))
}

/// What a line says about where it belongs.
#[derive(Deserialize)]
struct Booked {
    conversation: String,
}

/// Whether the last line was not written to its end: what follows must not be taken for a part of it.
fn is_torn(file: &File) -> io::Result<bool> {
    let Some(last) = file.metadata()?.len().checked_sub(1) else { return Ok(false) };
    let mut byte = [0];
    Ok(file.read_at(&mut byte, last)? == 1 && byte != *b"\n")
}

/// The file of a conversation.
pub fn file_name(conversation: &str) -> String {
    format!("{}{ENDING}", stem(conversation))
}

/// What files and folders of a conversation are called. Clients choose session ids, so only harmless characters are
/// kept, and none is hidden or reads like an option; an id that loses some also gets a digest, so that two conversations
/// never share a file.
pub fn stem(conversation: &str) -> String {
    let harmless =
        |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.');
    let kept: String = conversation.chars().filter(|character| harmless(*character)).take(100).collect();
    let kept = kept.trim_start_matches(['.', '-']);
    if kept == conversation && !kept.is_empty() {
        return kept.to_owned();
    }
    let digest = Digest::of(&[conversation.as_bytes()]).to_string();
    format!("{kept}~{}", &digest[..12])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn file_names_are_harmless_and_distinct() {
        for (conversation, start) in [
            ("0198-ab_c", "0198-ab_c.jsonl"),
            ("../../etc/passwd", "etcpasswd~"),
            ("--follow", "follow~"),
            ("", "~e3b0c44298fc.jsonl"),
            (&"x".repeat(300), &*"x".repeat(100)),
        ] {
            let name = file_name(conversation);
            assert!(name.starts_with(start) && !name.contains('/') && name.len() < 128, "{name}");
        }
        assert_ne!(file_name("a/b"), file_name("ab"));
        assert_ne!(file_name("a/b"), file_name("a\\b"));
    }

    #[test]
    fn records_are_appended() {
        let home = tempfile::tempdir().unwrap();
        let mut logs = Logs::new(home.path().join("logs"));
        logs.append("c", &["1"]).unwrap();
        logs.append("c", &["2"]).unwrap();
        assert_eq!(std::fs::read_to_string(home.path().join("logs/c.jsonl")).unwrap(), "1\n2\n");
    }

    #[test]
    fn many_records_are_appended_in_order_and_whole() {
        let home = tempfile::tempdir().unwrap();
        let mut logs = Logs::new(home.path().to_owned());
        let line = |len: usize| (0..len).map(|at| char::from(b'a' + (at % 26) as u8)).collect::<String>();
        for lens in [vec![], vec![0], vec![10, TOGETHER, 20], vec![TOGETHER - 1, 0], vec![30_000; 7]] {
            let lines: Vec<String> = lens.iter().map(|len| line(*len)).collect();
            let before = fs::read_to_string(home.path().join("c.jsonl")).unwrap_or_default();
            logs.append("c", &lines.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
            let ended: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
            let after = fs::read_to_string(home.path().join("c.jsonl")).unwrap();
            assert!(after == before + &ended, "{lens:?}");
        }
    }

    #[test]
    fn a_log_that_is_gone_is_begun_again() {
        let home = tempfile::tempdir().unwrap();
        let (dir, path) = (home.path().join("logs"), home.path().join("logs/c.jsonl"));
        let mut logs = Logs::new(dir.clone());
        let removals: [&dyn Fn() -> io::Result<()>; 3] =
            [&|| std::fs::remove_file(&path), &|| std::fs::rename(&path, dir.join("c.jsonl.1")), &|| {
                std::fs::remove_dir_all(&dir)
            }];
        for remove in removals {
            logs.append("c", &["1"]).unwrap();
            remove().unwrap();
            logs.append("c", &["2"]).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "2\n");
        }
    }

    #[test]
    fn half_a_line_does_not_swallow_the_next_record() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("c.jsonl");
        for (before, expected) in [("", "3\n4\n"), ("1\n", "1\n3\n4\n"), ("1\n{\"to", "1\n{\"to\n3\n4\n")] {
            std::fs::write(&path, before).unwrap();
            let mut logs = Logs::new(home.path().to_owned());
            logs.append("c", &["3"]).unwrap();
            logs.append("c", &["4"]).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
        }
    }
    /// Old logs go, and nothing that is no log; a conversation that goes on begins its own again.
    #[test]
    fn old_logs_are_removed() {
        let home = tempfile::tempdir().unwrap();
        let mut logs = Logs::new(home.path().to_owned());
        let line =
            |conversation: &str| format!("{{\"time\":\"t\",\"conversation\":\"{conversation}\",\"n\":1}}\n");
        logs.append("a/b", &[line("a/b").trim_end()]).unwrap();
        for (name, text, goes) in [
            ("c.jsonl", line("c"), true),
            ("d.jsonl", format!("{{\"ti\n{}", line("d")), true),
            ("e.jsonl", line("c"), false),
            ("f.jsonl", "{\"mine\":1}\n".to_owned(), false),
            ("g.jsonl", String::new(), false),
            ("h.jsonl.1", line("h"), false),
            ("i.txt", line("i"), false),
        ] {
            let path = home.path().join(name);
            fs::write(&path, text).unwrap();
            let now = SystemTime::now();
            for (before, is_left) in
                [(now - Duration::from_secs(60), true), (now + Duration::from_secs(60), !goes)]
            {
                let entries = fs::read_dir(home.path()).unwrap().map(Result::unwrap);
                entries.for_each(|entry| remove_old(&entry, before).unwrap());
                assert_eq!(path.exists(), is_left, "{name}");
            }
        }
        assert!(!home.path().join(file_name("a/b")).exists());
        logs.append("a/b", &["2"]).unwrap();
        assert_eq!(fs::read_to_string(home.path().join(file_name("a/b"))).unwrap(), "2\n");
    }
}
