//! Transcripts: a header, then one message per line.
//!
//! Messages are kept as they were written, and never serialised again. Files may be compressed with gzip.

use std::fs::File;
use std::io::{BufReader, Read as _};
use std::ops::Range;
use std::path::Path;

use flate2::read::MultiGzDecoder;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::damage::Damage;
use crate::json::scan::{self, Kind, ScanError};

/// The size of the largest file that is read, in bytes, after decompression.
const MAX_FILE: u64 = 1 << 30;

/// A recorded conversation.
pub(super) struct Transcript {
    pub(super) header: Header,
    text: String,
    lines: Vec<Range<usize>>,
    pub(super) damage: Damage,
}

/// The lines of a file that are not empty, with their numbers; `None` for damaged ones.
#[derive(Default)]
struct Lines {
    all: Vec<Option<Range<usize>>>,
    numbers: Vec<usize>,
}

/// The header, which is the first line.
#[derive(Debug, Deserialize)]
pub(super) struct Header {
    pub(super) id: String,
    /// The dialect of the messages.
    pub(super) protocol: String,
    #[serde(default)]
    pub(super) model: Option<String>,
    #[serde(default)]
    pub(super) system: Option<String>,
    #[serde(default)]
    pub(super) tools: Option<Box<RawValue>>,
    pub(super) requests: Vec<Request>,
    /// The tokens of instructions and tools that the recording lacks.
    #[serde(default)]
    pub(super) hidden_prefix_tokens_est: Option<u64>,
}

/// A request with the first `n` messages; the next `resp` messages are the answer.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Request {
    pub(super) n: usize,
    #[serde(default)]
    pub(super) resp: usize,
    #[serde(default)]
    pub(super) usage: Option<Usage>,
}

/// What the provider billed.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Usage {
    #[serde(default)]
    pub(super) output: Option<u64>,
}

impl Lines {
    fn add(&mut self, number: usize, line: Option<Range<usize>>) {
        self.all.push(line);
        self.numbers.push(number);
    }

    /// Removes lines that are not messages, and adapts the requests to those that are left.
    fn check(&mut self, text: &[u8], requests: &mut Vec<Request>) -> Result<Damage, String> {
        let numbers = &self.numbers[self.numbers.len() - self.all.len()..];
        let mut damage = Damage::default();
        // The number of messages among the first lines, for each number of lines.
        let mut whole = vec![0];
        for (line, number) in self.all.iter_mut().zip(numbers) {
            if !line.as_ref().is_some_and(|line| is_message(&text[line.clone()])) {
                damage.lines.push(*number);
                *line = None;
            }
            whole.push(whole.last().unwrap_or(&0) + usize::from(line.is_some()));
        }
        if requests.windows(2).any(|pair| pair[1].n < pair[0].n) {
            return Err("the requests in its header do not fit its messages".to_owned());
        }
        let (asked, all) = (requests.len(), self.all.len());
        let end = requests.iter().map(|request| request.n.saturating_add(request.resp)).max();
        damage.missing = end.unwrap_or(0).saturating_sub(all);
        requests.retain(|request| request.n <= all);
        damage.unplayed = asked - requests.len();
        if requests.is_empty() && damage.unplayed > 0 {
            return Err("the requests in its header do not fit its messages".to_owned());
        }
        for request in requests {
            let end = request.n.saturating_add(request.resp).min(all);
            (request.n, request.resp) = (whole[request.n], whole[end] - whole[request.n]);
        }
        Ok(damage)
    }
}

/// Whether a line is a JSON object, as messages are.
fn is_message(line: &[u8]) -> bool {
    match scan::document(line) {
        Ok(value) => value.kind == Kind::Object,
        Err(error) => !matches!(error, ScanError::Syntax | ScanError::TrailingText),
    }
}

/// The content of a file, decompressed.
///
/// # Errors
/// What is wrong with the file, without its name.
pub(super) fn content(path: &Path) -> Result<Vec<u8>, String> {
    let said = |error: std::io::Error| error.to_string();
    let mut file = BufReader::new(File::open(path).map_err(said)?);
    let mut magic = Vec::with_capacity(2);
    file.by_ref().take(2).read_to_end(&mut magic).map_err(said)?;
    let is_packed = magic == [0x1f, 0x8b];
    let file = std::io::Cursor::new(magic).chain(file);
    let mut content = Vec::new();
    let read = if is_packed {
        MultiGzDecoder::new(file).take(MAX_FILE).read_to_end(&mut content)
    } else {
        file.take(MAX_FILE).read_to_end(&mut content)
    };
    match read {
        Ok(bytes) if bytes as u64 == MAX_FILE => Err("too large".to_owned()),
        Ok(_) => Ok(content),
        Err(error) => Err(said(error)),
    }
}

impl Transcript {
    /// Parses a transcript. Lines that are not messages are left out, and so are requests for messages after the last
    /// line, since a file may be cut off.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub(super) fn parse(content: &[u8]) -> Result<Self, String> {
        let mut text = String::with_capacity(content.len());
        let mut lines = Lines::default();
        for (at, line) in content.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            let start = text.len();
            let is_whole = str::from_utf8(line).map(|line| text.push_str(line)).is_ok();
            lines.add(at + 1, is_whole.then_some(start..text.len()));
        }
        let first = lines.all.first().ok_or("empty")?.clone().ok_or("not UTF-8")?;
        let mut header: Header = serde_json::from_str(&text[first])
            .map_err(|error| format!("not a recorded conversation: its first line: {error}"))?;
        lines.all.remove(0);
        let damage = lines.check(text.as_bytes(), &mut header.requests)?;
        Ok(Self { header, text, lines: lines.all.into_iter().flatten().collect(), damage })
    }

    /// The messages as they were written.
    pub(super) fn messages(&self) -> impl ExactSizeIterator<Item = &str> {
        self.lines.iter().map(|line| &self.text[line.clone()])
    }

    /// The size of the answer to a request, in bytes.
    pub(super) fn answer_bytes(&self, request: &Request) -> usize {
        let answer = self.lines.get(request.n..request.n + request.resp).unwrap_or_default();
        answer.iter().map(Range::len).sum()
    }
}
