//! The request bodies that an agent would have sent, each with the whole history up to that point.

use bytes::Bytes;

use super::transcript::Transcript;
use crate::json::scan::{self, Kind};
use crate::json::string;

/// Replaces instructions that were not recorded.
const PLACEHOLDER: &str =
    "You are a coding agent. (The original system prompt is not part of this recording.)";

const MARK: &str = r#""cache_control":{"type":"ephemeral"}"#;

/// The number of the user's last messages that clients mark.
const MARKED_MESSAGES: usize = 2;

/// Where an agent puts cache marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Marks {
    /// On the last system block and the last two messages of the user, if the protocol has marks (anthropic)
    Placed,
    /// Nowhere
    None,
}

/// The pieces from which bodies are built.
pub(super) struct Bodies {
    head: String,
    /// The head contains a message, so a comma follows it if there are others.
    has_message: bool,
    tail: String,
    messages: Vec<Message>,
    marked: usize,
}

struct Message {
    plain: String,
    /// The same message with a cache mark, if it can have one.
    marked: Option<String>,
}

impl Bodies {
    /// The bodies of a conversation, in its own dialect.
    ///
    /// # Errors
    /// If transcripts of the dialect cannot be replayed.
    pub(super) fn new(transcript: &Transcript, marks: Marks) -> Result<Self, String> {
        let header = &transcript.header;
        let system = string::encode(header.system.as_deref().unwrap_or(PLACEHOLDER));
        let model = string::encode(header.model.as_deref().unwrap_or("unknown"));
        let tools = header.tools.as_deref().map_or("[]", |tools| tools.get());
        let tools = if tools == "[]" { String::new() } else { format!(r#","tools":{tools}"#) };
        let marks = marks == Marks::Placed && header.protocol == "anthropic";
        let (head, tail) = match header.protocol.as_str() {
            "anthropic" => {
                let mark = if marks { format!(",{MARK}") } else { String::new() };
                let system = format!(r#"[{{"type":"text","text":{system}{mark}}}]"#);
                let head = format!(r#"{{"model":{model},"max_tokens":8192,"system":{system},"messages":["#);
                (head, format!(r#"],"stream":true{tools}}}"#))
            }
            "openai-chat" => {
                let system = format!(r#"{{"role":"system","content":{system}}}"#);
                let head = format!(r#"{{"model":{model},"messages":[{system}"#);
                (head, format!(r#"],"stream":true{tools}}}"#))
            }
            "openai-responses" => {
                let head = format!(r#"{{"model":{model},"instructions":{system},"input":["#);
                (head, format!(r#"]{tools},"store":false,"stream":true}}"#))
            }
            other => {
                let known = "anthropic, openai-chat and openai-responses";
                return Err(format!(
                    "transcripts of protocol `{other}` cannot be replayed, only those of {known}"
                ));
            }
        };
        let messages = transcript
            .messages()
            .map(|line| Message { plain: line.to_owned(), marked: if marks { marked(line) } else { None } });
        let marked = if marks { MARKED_MESSAGES } else { 0 };
        let has_message = header.protocol == "openai-chat";
        Ok(Self { head, has_message, tail, messages: messages.collect(), marked })
    }

    /// The body with the first `count` messages.
    pub(super) fn body(&self, count: usize) -> Bytes {
        let messages = &self.messages[..count.min(self.messages.len())];
        let users = messages.iter().enumerate().rev().filter(|(_, message)| message.marked.is_some());
        let marked: Vec<usize> = users.take(self.marked).map(|(at, _)| at).collect();
        let size: usize = messages.iter().map(|message| message.plain.len() + 1).sum();
        let mut body = Vec::with_capacity(size + self.head.len() + self.tail.len() + 128);
        body.extend_from_slice(self.head.as_bytes());
        for (at, message) in messages.iter().enumerate() {
            if at > 0 || self.has_message {
                body.push(b',');
            }
            let text = message.marked.as_ref().filter(|_| marked.contains(&at)).unwrap_or(&message.plain);
            body.extend_from_slice(text.as_bytes());
        }
        body.extend_from_slice(self.tail.as_bytes());
        body.into()
    }
}

/// A message of the user with a mark on its last block; `None` for any other message.
fn marked(line: &str) -> Option<String> {
    let bytes = line.as_bytes();
    let root = scan::document(bytes).ok()?;
    let members = scan::members(bytes, root.span).ok()?;
    if scan::get(bytes, &members, "role")?.span.of(bytes) != br#""user""# {
        return None;
    }
    let content = scan::get(bytes, &members, "content")?;
    let (head, tail) = (&line[..content.span.start as usize], &line[content.span.end as usize..]);
    match content.kind {
        Kind::String => {
            let text = &line[content.span.range()];
            Some(format!(r#"{head}[{{"type":"text","text":{text},{MARK}}}]{tail}"#))
        }
        Kind::Array => {
            let last = scan::items(bytes, content.span).ok()?.into_iter().next_back()?;
            let end = last.span.end as usize - 1;
            (last.kind == Kind::Object).then(|| format!("{},{MARK}{}", &line[..end], &line[end..]))
        }
        _ => None,
    }
}
