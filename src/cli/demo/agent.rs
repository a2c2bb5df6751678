//! The demonstration's agent: plays the session against a server, with or without the gateway in between.
//!
//! It behaves like other agents: it sends the whole history with each call, marks the system prompt and the last
//! message for the cache, and uses what the stream contains, whoever sent it.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::session::Session;
use crate::protocol::{self, Framing};
use crate::sse::Framer;
use crate::usage::Usage;

/// The session id, by which the gateway books it.
pub(super) const SESSION_ID: &str = "demo";

/// The results of a session.
#[derive(Debug)]
pub(super) struct Played {
    /// The usage of each call, as the answers report it.
    pub(super) usage: Vec<Usage>,
    /// The last text of the model.
    pub(super) answer: String,
}

/// An agent, and where it sends its requests.
#[derive(Debug)]
pub(super) struct Agent<'a> {
    pub(super) session: &'a Session,
    pub(super) model: &'static str,
    pub(super) server: SocketAddr,
    pub(super) key: &'static str,
}

/// One answer.
#[derive(Debug)]
struct Answer {
    content: Vec<Value>,
    usage: Usage,
}

impl Agent<'_> {
    /// Plays the session to its end.
    ///
    /// # Errors
    /// What went wrong, for human readers.
    pub(super) async fn play(&self) -> Result<Played, String> {
        let mut messages = vec![json!({ "role": "user", "content": text_blocks(self.session.task) })];
        let mut usage = Vec::new();
        loop {
            let answer = self.ask(&messages).await?;
            usage.push(answer.usage);
            let results: Vec<Value> = answer.content.iter().filter_map(|block| self.result(block)).collect();
            if results.is_empty() {
                let said = answer.content.iter().filter_map(|block| block["text"].as_str());
                return Ok(Played { usage, answer: said.collect() });
            }
            messages.push(json!({ "role": "assistant", "content": answer.content }));
            messages.push(json!({ "role": "user", "content": results }));
        }
    }

    /// The result of a tool call; `None` if the block is not a call.
    fn result(&self, block: &Value) -> Option<Value> {
        let id = block.get("id")?.as_str()?;
        let (content, is_error) = match self.session.call(id) {
            Some(call) => (call.result.as_str(), call.is_error),
            None => ("no such call", true),
        };
        let mut result = json!({ "type": "tool_result", "tool_use_id": id, "content": content });
        if is_error {
            result["is_error"] = true.into();
        }
        Some(result)
    }

    async fn ask(&self, messages: &[Value]) -> Result<Answer, String> {
        let request = Request::post("/v1/messages?beta=true")
            .header("host", self.server.to_string())
            .header("content-type", "application/json")
            .header("user-agent", concat!("plimsoll-demo/", env!("CARGO_PKG_VERSION")))
            .header("anthropic-version", "2023-06-01")
            .header("x-api-key", self.key)
            .header("x-claude-code-session-id", SESSION_ID)
            .body(Full::new(self.body(messages)))
            .map_err(|error| error.to_string())?;
        let stream = TcpStream::connect(self.server).await.map_err(|error| error.to_string())?;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
        let exchange = async move {
            let response = sender.send_request(request).await?;
            let (head, body) = response.into_parts();
            Ok::<_, hyper::Error>((head.status, body.collect().await?.to_bytes()))
        };
        // The connection ends with the exchange, and an error of one is an error of the other.
        let (exchanged, _) = tokio::join!(exchange, connection);
        let (status, body) = exchanged.map_err(|error| error.to_string())?;
        if status != StatusCode::OK {
            return Err(format!("{status}: {}", String::from_utf8_lossy(&body)));
        }
        Answer::read(&body).ok_or_else(|| "an answer without usage".to_owned())
    }

    /// The body of a request, with cache marks.
    fn body(&self, messages: &[Value]) -> Bytes {
        let mut messages = messages.to_vec();
        let last = messages.last_mut().and_then(|message| message["content"].as_array_mut()?.last_mut());
        if let Some(block) = last {
            mark(block);
        }
        let mut system = text_blocks(self.session.system);
        mark(&mut system[0]);
        let body = json!({
            "model": self.model,
            "max_tokens": 8192,
            "stream": true,
            "system": system,
            "tools": self.session.tools,
            "messages": messages,
        });
        body.to_string().into()
    }
}

fn text_blocks(text: &str) -> Value {
    json!([{ "type": "text", "text": text }])
}

fn mark(block: &mut Value) {
    block["cache_control"] = json!({ "type": "ephemeral" });
}

impl Answer {
    fn read(stream: &[u8]) -> Option<Self> {
        let mut reader = protocol::named("anthropic")?.answer(Framing::Events);
        reader.push(stream);
        let usage = reader.finish().usage?;
        let mut content = Content::default();
        let mut framer = Framer::default();
        framer.push(stream, &mut |event| content.event(event));
        Some(Self { content: content.blocks, usage })
    }
}

/// The blocks of an answer, as they arrive.
#[derive(Debug, Default)]
struct Content {
    blocks: Vec<Value>,
    arguments: String,
}

impl Content {
    fn event(&mut self, event: &[u8]) {
        let Ok(event) = serde_json::from_slice::<Value>(event) else { return };
        match event["type"].as_str() {
            Some("content_block_start") => self.blocks.push(event["content_block"].clone()),
            Some("content_block_delta") => {
                let piece = |field: &str| event["delta"][field].as_str().unwrap_or_default();
                self.arguments.push_str(piece("partial_json"));
                if let Some(Value::String(text)) =
                    self.blocks.last_mut().and_then(|block| block.get_mut("text"))
                {
                    text.push_str(piece("text"));
                }
            }
            Some("content_block_stop") => {
                let arguments = std::mem::take(&mut self.arguments);
                if let Some(input) = self.blocks.last_mut().and_then(|block| block.get_mut("input")) {
                    *input = serde_json::from_str(&arguments).unwrap_or_default();
                }
            }
            _ => {}
        }
    }
}
