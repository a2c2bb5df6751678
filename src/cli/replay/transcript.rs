//! Recorded conversations: a header, then one message a line.
//!
//! Messages are kept as they were written and never printed anew. Files may be compressed with gzip.

use std::fs::File;
use std::io::{BufReader, Read as _};
use std::ops::Range;
use std::path::Path;

use flate2::read::MultiGzDecoder;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The largest file that is read, in bytes, unpacked.
const MAX_FILE: u64 = 1 << 30;

/// A recorded conversation.
pub(super) struct Transcript {
    pub(super) header: Header,
    text: String,
    lines: Vec<Range<usize>>,
}

/// The first line.
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
    /// Tokens of instructions and tools that the recording lacks.
    #[serde(default)]
    pub(super) hidden_prefix_tokens_est: Option<u64>,
}

/// A request: the first `n` messages; the next `resp` ones are the answer.
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

/// The content of a file, unpacked.
///
/// # Errors
/// What is wrong with it, without its name.
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
    /// Reads a text.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(text: String) -> Result<Self, String> {
        let mut lines = Vec::new();
        let mut at = 0;
        for line in text.split_inclusive('\n') {
            let trimmed = line.trim();
            if !trimmed.is_empty() {
                let start = at + (line.len() - line.trim_start().len());
                lines.push(start..start + trimmed.len());
            }
            at += line.len();
        }
        if lines.is_empty() {
            return Err("empty".to_owned());
        }
        let first = lines.remove(0);
        let header: Header = serde_json::from_str(&text[first])
            .map_err(|error| format!("not a recorded conversation: its first line: {error}"))?;
        let mut from = 0;
        for request in &header.requests {
            if request.n < from || request.n.saturating_add(request.resp) > lines.len() {
                return Err("its requests do not fit its messages".to_owned());
            }
            from = request.n;
        }
        Ok(Self { header, text, lines })
    }

    /// The messages as they were written.
    pub(super) fn messages(&self) -> impl ExactSizeIterator<Item = &str> {
        self.lines.iter().map(|line| &self.text[line.clone()])
    }

    /// Bytes of the answer to a request.
    pub(super) fn answer_bytes(&self, request: &Request) -> usize {
        let answer = self.lines.get(request.n..request.n + request.resp).unwrap_or_default();
        answer.iter().map(Range::len).sum()
    }
}
