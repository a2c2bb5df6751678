//! One file of records per conversation, made to be read with `less` and `jq`.
//!
//! Other gateways may write to the same files at the same time, and people may rotate and remove them. So each line is
//! written in one piece, and a file that was removed is created again.

use std::collections::HashMap;
use std::fs::{self, DirEntry, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::SystemTime;

use rustix::process::{Resource, getrlimit};
use serde::Deserialize;

use super::file_identity::FileIdentity;
use super::outputs::create_private;
use crate::conversation::Digest;

/// The most files that are kept open; fewer if the process may have few.
const MAX_OPEN: u64 = 64;

/// The most bytes that are written at once, unless a single line has more.
const MAX_WRITE: usize = 64 << 10;

/// The file name extension, with its dot.
const ENDING: &str = ".jsonl";
/// How often an incomplete last line is looked at before it counts as abandoned: about two milliseconds in all.
const TORN_LOOKS: u32 = 1000;

/// How far from the beginning or the end of a file a record is looked for, in bytes. A line is far shorter.
const SEARCHED_LEN: u64 = 64 << 10;

/// The folder of the logs, and the files in it that are open.
pub(super) struct Logs {
    dir: PathBuf,
    open: HashMap<String, (File, FileIdentity)>,
    max_open: usize,
}

impl Logs {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir, open: HashMap::new(), max_open: max_open(getrlimit(Resource::Nofile).maximum) }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Appends records to their conversation's file, one on each line. `lines` are given without line ends.
    pub(super) fn append(&mut self, conversation: &str, lines: &[&str]) -> Result<(), Cut> {
        let name = file_name(conversation);
        let file = self.file(&name).map_err(|error| Cut { whole: 0, error });
        let written = file.and_then(|file| write(file, lines));
        if written.is_err() {
            self.open.remove(&name);
        }
        written
    }

    /// Appends lines of which the first ones may be in the file already, near its end; these are left out, and count as
    /// appended.
    pub(super) fn append_missing(&mut self, conversation: &str, lines: &[&str]) -> Result<(), Cut> {
        let len = lines.iter().map(|line| line.len() as u64 + 1).sum();
        let end = self.file(&file_name(conversation)).and_then(|file| read_end(file, len));
        let end = end.map_err(|error| Cut { whole: 0, error })?;
        let present = lines.iter().take_while(|line| has_line(&end, line)).count();
        self.append(conversation, &lines[present..]).map_err(|cut| cut.behind(present))
    }

    /// Returns the open file with this name. A file that was removed or renamed since it was opened is opened, or
    /// created, again. An abandoned last line is ended, so that nothing is appended to it.
    fn file(&mut self, name: &str) -> io::Result<&mut File> {
        if self.open.get(name).is_some_and(|(_, file)| file.is_left()) {
            self.open.remove(name);
        }
        if !self.open.contains_key(name) {
            if self.open.len() >= self.max_open {
                self.open.clear();
            }
            let path = self.dir.join(name);
            let mut options = OpenOptions::new();
            options.create(true).read(true).append(true).mode(0o600);
            let file = match options.open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    create_private(&self.dir)?;
                    options.open(&path)?
                }
                opened => opened?,
            };
            self.open.insert(name.to_owned(), (file, FileIdentity::of(&path)?));
        }
        let (file, _) = self.open.get_mut(name).ok_or(io::ErrorKind::NotFound)?;
        // Another gateway may have been killed while it wrote.
        if is_torn(file, thread::yield_now)? {
            file.write_all(b"\n")?;
        }
        Ok(file)
    }
}

/// The most files to keep open where a process may have `limit` open files, most of which connections need.
fn max_open(limit: Option<u64>) -> usize {
    limit.map_or(MAX_OPEN, |limit| (limit / 16).clamp(1, MAX_OPEN)) as usize
}

/// Why only some of the lines were appended.
#[derive(Debug)]
pub(super) struct Cut {
    /// The number of lines that were appended completely.
    pub(super) whole: usize,
    /// Why the next line was not.
    pub(super) error: io::Error,
}

/// Writes lines with their ends. No line is divided between two writes, since other gateways may write to the same
/// file.
fn write(file: &mut File, lines: &[&str]) -> Result<(), Cut> {
    let len: usize = lines.iter().map(|line| line.len() + 1).sum();
    let mut together = Vec::with_capacity(len.min(MAX_WRITE));
    let mut whole = 0;
    for (at, line) in lines.iter().enumerate() {
        if !together.is_empty() && together.len() + line.len() >= MAX_WRITE {
            write_whole(file, &together).map_err(|cut| cut.behind(whole))?;
            together.clear();
            whole = at;
        }
        together.extend_from_slice(line.as_bytes());
        together.push(b'\n');
    }
    write_whole(file, &together).map_err(|cut| cut.behind(whole))
}

impl Cut {
    /// The same error, with the number of lines that earlier writes appended.
    fn behind(self, lines: usize) -> Self {
        Self { whole: self.whole + lines, ..self }
    }
}

/// Writes lines with their ends. If the last one was written only in part, that part is removed if possible: it would
/// make the line after it unreadable.
fn write_whole(file: &mut (impl io::Write + TakeBack), lines: &[u8]) -> Result<(), Cut> {
    let mut written = 0;
    while written < lines.len() {
        match file.write(&lines[written..]) {
            Ok(0) => return Err(cut(file, &lines[..written], io::ErrorKind::WriteZero.into())),
            Ok(more) => written += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(cut(file, &lines[..written], error)),
        }
    }
    Ok(())
}

/// Removes the incomplete line at the end of `written`, and counts the lines before it.
fn cut(file: &mut impl TakeBack, written: &[u8], error: io::Error) -> Cut {
    let half = memchr::memrchr(b'\n', written).map_or(0, |end| end + 1);
    file.take_back(&written[half..]);
    Cut { whole: memchr::memchr_iter(b'\n', written).count(), error }
}

/// A file from whose end an incomplete line can be removed.
trait TakeBack {
    /// Removes `half` from the end.
    fn take_back(&mut self, half: &[u8]);
}

impl TakeBack for File {
    /// Does nothing if the file no longer ends with `half`, because another gateway has written after it.
    fn take_back(&mut self, half: &[u8]) {
        let mut found = vec![0; half.len()];
        let start = self.metadata().ok().and_then(|file| file.len().checked_sub(half.len() as u64));
        if let Some(start) = start.filter(|_| !half.is_empty())
            && self.read_exact_at(&mut found, start).is_ok()
            && found == half
        {
            // If that fails too, a line end is written before the next line.
            let _ = self.set_len(start);
        }
    }
}

/// Reads the last `len` bytes of a file, and [`SEARCHED_LEN`] more, in case others have written after them.
fn read_end(file: &File, len: u64) -> io::Result<Vec<u8>> {
    let all = file.metadata()?.len();
    let start = all.saturating_sub(len.saturating_add(SEARCHED_LEN));
    let mut text = vec![0; (all - start) as usize];
    file.read_exact_at(&mut text, start)?;
    Ok(text)
}

fn has_line(text: &[u8], line: &str) -> bool {
    text.split(|byte| *byte == b'\n').any(|other| other == line.as_bytes())
}

/// Removes a file of the folder if it is a log to which nothing was added since `before`. A gateway that has it open
/// notices the removal, and creates the file again.
pub(super) fn remove_old(entry: &DirEntry, before: SystemTime) -> io::Result<()> {
    let found = entry.metadata()?;
    if found.is_file() && found.modified()? < before && is_log(entry)? {
        fs::remove_file(entry.path())?;
    }
    Ok(())
}

/// Whether a file holds a record, and has the name of the log of that record's conversation. There may be other files
/// in the folder, which belong to the user.
fn is_log(entry: &DirEntry) -> io::Result<bool> {
    let name = entry.file_name();
    let Some(name) = name.to_str().filter(|name| name.ends_with(ENDING)) else { return Ok(false) };
    let mut beginning = Vec::new();
    File::open(entry.path())?.take(SEARCHED_LEN).read_to_end(&mut beginning)?;
    let mut records =
        beginning.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
    Ok(records.any(|Booked { conversation }| file_name(&conversation) == name))
}

/// The member of a record that says which log it belongs to.
#[derive(Deserialize)]
struct Booked {
    conversation: String,
}

/// Whether the file ends with an incomplete line that nobody completes. A line that another gateway is writing may be
/// visible in part for a moment, so this looks repeatedly, with a `pause` before each look.
fn is_torn(file: &File, mut pause: impl FnMut()) -> io::Result<bool> {
    let Some(len) = torn_len(file)? else { return Ok(false) };
    for _ in 0..TORN_LOOKS {
        pause();
        if torn_len(file)? != Some(len) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The length of a file that ends with an incomplete line; `None` if its last line is complete, or it is empty.
fn torn_len(file: &File) -> io::Result<Option<u64>> {
    let len = file.metadata()?.len();
    let Some(last) = len.checked_sub(1) else { return Ok(None) };
    let mut byte = [0];
    let is_torn = file.read_at(&mut byte, last)? == 1 && byte != *b"\n";
    Ok(is_torn.then_some(len))
}

/// The name of a conversation's log.
pub fn file_name(conversation: &str) -> String {
    format!("{}{ENDING}", stem(conversation))
}

/// The name of a conversation's files and folders, without an extension. Clients choose session ids, so only harmless
/// characters are kept, and no name is a hidden one or reads like an option. An id that loses characters also gets a
/// digest, so that two conversations never share a file, unless the file system ignores case and only that differs.
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
    fn few_logs_are_kept_open_where_few_files_may_be() {
        for (limit, expected) in
            [(None, 64), (Some(1 << 20), 64), (Some(1024), 64), (Some(128), 8), (Some(8), 1)]
        {
            assert_eq!(max_open(limit), expected, "{limit:?}");
        }
    }

    #[test]
    fn log_file_names_are_safe_and_distinct() {
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
        for lens in [vec![], vec![0], vec![10, MAX_WRITE, 20], vec![MAX_WRITE - 1, 0], vec![30_000; 7]] {
            let lines: Vec<String> = lens.iter().map(|len| line(*len)).collect();
            let before = fs::read_to_string(home.path().join("c.jsonl")).unwrap_or_default();
            logs.append("c", &lines.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
            let ended: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
            let after = fs::read_to_string(home.path().join("c.jsonl")).unwrap();
            assert!(after == before + &ended, "{lens:?}");
        }
    }

    /// A file that takes this many bytes and no more.
    struct Full {
        text: Vec<u8>,
        room: usize,
    }

    impl io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.room - self.text.len());
            if taken == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.text.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl TakeBack for Full {
        fn take_back(&mut self, half: &[u8]) {
            assert!(self.text.ends_with(half));
            self.text.truncate(self.text.len() - half.len());
        }
    }

    #[test]
    fn a_full_disk_leaves_only_whole_lines() {
        for (room, left) in [(0, ""), (2, ""), (3, "ab\n"), (5, "ab\n"), (6, "ab\ncd\n")] {
            let mut full = Full { text: Vec::new(), room };
            let cut = write_whole(&mut full, b"ab\ncd\nef\n").unwrap_err();
            assert_eq!((cut.whole, &*full.text), (left.lines().count(), left.as_bytes()), "{room}");
        }
    }

    #[test]
    fn a_partial_write_is_taken_back_only_at_the_end_of_the_file() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("c.jsonl");
        for (text, half, expected) in [
            ("1\n23", "23", "1\n"),
            ("1\n23", "", "1\n23"),
            ("1\n23\n4\n", "23", "1\n23\n4\n"),
            ("3", "23", "3"),
        ] {
            fs::write(&path, text).unwrap();
            let mut file = OpenOptions::new().read(true).append(true).open(&path).unwrap();
            file.take_back(half.as_bytes());
            assert_eq!(fs::read_to_string(&path).unwrap(), expected, "{text:?} {half:?}");
        }
    }

    #[test]
    fn a_removed_log_is_created_again() {
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
    fn a_partial_line_does_not_swallow_the_next_record() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("c.jsonl");
        for (before, between, expected) in [
            ("", "", "3\n4\n"),
            ("1\n", "", "1\n3\n4\n"),
            ("1\n{\"to", "", "1\n{\"to\n3\n4\n"),
            // Another gateway may be about to write the rest.
            ("1\n{\"time\":", "", "1\n{\"time\":\n3\n4\n"),
            ("1\n", "2\n", "1\n3\n2\n4\n"),
            ("1\n", "{\"to", "1\n3\n{\"to\n4\n"),
        ] {
            std::fs::write(&path, before).unwrap();
            let mut logs = Logs::new(home.path().to_owned());
            logs.append("c", &["3"]).unwrap();
            File::options().append(true).open(&path).unwrap().write_all(between.as_bytes()).unwrap();
            logs.append("c", &["4"]).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
        }
    }

    #[test]
    fn a_line_still_being_written_is_not_torn() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("c.jsonl");
        for (name, before, meanwhile, expected) in [
            ("whole", "1\n", "", false),
            ("half of it, for good", "1\n{\"to", "", true),
            ("the rest comes", "1\n{\"to", "kens\":1}\n", false),
            ("more of it comes", "1\n{\"to", "kens", false),
        ] {
            std::fs::write(&path, before).unwrap();
            let mut file = File::options().append(true).open(&path).unwrap();
            let mut rest = meanwhile.as_bytes();
            let pause = || file.write_all(std::mem::take(&mut rest)).unwrap();
            let found = is_torn(&File::open(&path).unwrap(), pause);
            assert_eq!(found.unwrap(), expected, "{name}");
        }
    }

    /// Old logs are removed, and nothing else; a conversation that continues begins a new one.
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
