//! The demonstration's provider: a server on the loopback that answers from the script.
//!
//! It implements what the bill depends on: a prompt cache with marks, as documented, and usage figures in its answers.
//! It keeps a count of its own, with which the gateway's books must agree. It understands nothing of what it is asked.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use xxhash_rust::xxh3::xxh3_64;

use super::prompt::{Counter, Prompt};
use super::session::{Session, Step};
use crate::conversation::boundary;
use crate::usage::Tokens;
use crate::usage::cache_model::{CacheKind, CacheModel};

/// The time between two model calls, by the provider's clock.
const PACE_MS: u64 = 20_000;
/// Bytes of text per event of a stream.
const CHUNK: usize = 24;

/// The provider.
#[derive(Debug)]
pub(super) struct Provider {
    session: Arc<Session>,
    model: &'static str,
    counter: Counter,
    state: Mutex<State>,
}

/// The state that changes with each call.
#[derive(Debug)]
struct State {
    cache: CacheModel,
    /// The usage of each account, by its key.
    served: BTreeMap<String, Vec<Tokens>>,
}

impl Provider {
    /// A provider of one model; prompts of fewer than `cache_min` tokens are not cached.
    pub(super) fn new(session: Arc<Session>, model: &'static str, cache_min: u64, counter: Counter) -> Self {
        let cache = CacheModel::new(CacheKind::anthropic(cache_min));
        Self { session, model, counter, state: Mutex::new(State { cache, served: BTreeMap::new() }) }
    }

    /// The usage of an account, call by call.
    pub(super) fn served(&self, account: &str) -> Vec<Tokens> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.served.get(account).cloned().unwrap_or_default()
    }

    /// Serves until dropped.
    pub(super) async fn serve(self: Arc<Self>, listener: TcpListener) {
        let mut connections = JoinSet::new();
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            let provider = Arc::clone(&self);
            connections.spawn(async move {
                let service = service_fn(|request| {
                    let provider = Arc::clone(&provider);
                    async move { Ok::<_, Infallible>(provider.answer(request).await) }
                });
                // A broken connection concerns only the client.
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
            while connections.try_join_next().is_some() {}
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Events> {
        let key = request.headers().get("x-api-key").and_then(|key| key.to_str().ok());
        let account = key.unwrap_or_default().to_owned();
        let done = match request.into_body().collect().await {
            Ok(body) => self.complete(&account, &body.to_bytes()),
            Err(error) => Err(error.to_string()),
        };
        let (status, kind, events) = match done {
            Ok(events) => (StatusCode::OK, "text/event-stream", events),
            Err(message) => {
                let error = json!({ "type": "invalid_request_error", "message": message });
                let body = json!({ "type": "error", "error": error }).to_string();
                (StatusCode::BAD_REQUEST, "application/json", VecDeque::from([Bytes::from(body)]))
            }
        };
        let mut response = Response::new(Events(events));
        *response.status_mut() = status;
        response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
        response
    }

    fn complete(&self, account: &str, body: &[u8]) -> Result<VecDeque<Bytes>, String> {
        let prompt = Prompt::read(body, &self.counter)?;
        let step = self.session.steps.get(prompt.turn).ok_or("the script ends before this call")?;
        let content = content(step);
        let output = self.counter.tokens(&content);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let calls = state.served.get(account).map_or(0, Vec::len);
        let cached = state.cache.observe(xxh3_64(account.as_bytes()), &prompt.shape, calls as u64 * PACE_MS);
        let tokens = cached.with_output(output);
        state.served.entry(account.to_owned()).or_default().push(tokens);
        drop(state);
        Ok(self.stream(&format!("msg_demo_{calls:02}"), &content, &tokens))
    }

    /// The events of an answer.
    fn stream(&self, id: &str, content: &Value, tokens: &Tokens) -> VecDeque<Bytes> {
        let usage = |output: u64| {
            json!({
                "input_tokens": tokens.input,
                "cache_read_input_tokens": tokens.cache_read,
                "cache_creation_input_tokens": tokens.cache_write(),
                "cache_creation": {
                    "ephemeral_5m_input_tokens": tokens.cache_write_5m,
                    "ephemeral_1h_input_tokens": tokens.cache_write_1h,
                },
                "output_tokens": output,
            })
        };
        let blocks = content.as_array().map(Vec::as_slice).unwrap_or_default();
        let calls = blocks.iter().any(|block| block["type"] == "tool_use");
        let mut events = VecDeque::new();
        let message = json!({
            "id": id, "type": "message", "role": "assistant", "model": self.model, "content": [],
            "stop_reason": null, "usage": usage(1),
        });
        events.push_back(event("message_start", json!({ "message": message })));
        for (index, block) in blocks.iter().enumerate() {
            stream_block(index, block, &mut events);
        }
        let stop = if calls { "tool_use" } else { "end_turn" };
        let end = json!({ "delta": { "stop_reason": stop }, "usage": usage(tokens.output) });
        events.push_back(event("message_delta", end));
        events.push_back(event("message_stop", json!({})));
        events
    }
}

fn content(step: &Step) -> Value {
    let say = json!({ "type": "text", "text": step.say });
    let calls = step
        .calls
        .iter()
        .map(|call| json!({ "type": "tool_use", "id": call.id, "name": call.tool, "input": call.input }));
    std::iter::once(say).chain(calls).collect()
}

fn stream_block(index: usize, block: &Value, events: &mut VecDeque<Bytes>) {
    let (start, kind, field, text) = if block["type"] == "tool_use" {
        let start = json!({ "type": "tool_use", "id": block["id"], "name": block["name"], "input": {} });
        (start, "input_json_delta", "partial_json", block["input"].to_string())
    } else {
        let text = block["text"].as_str().unwrap_or_default().to_owned();
        (json!({ "type": "text", "text": "" }), "text_delta", "text", text)
    };
    events.push_back(event("content_block_start", json!({ "index": index, "content_block": start })));
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(boundary::ceil(rest, CHUNK));
        let delta = json!({ "type": kind, field: piece });
        events.push_back(event("content_block_delta", json!({ "index": index, "delta": delta })));
        rest = after;
    }
    events.push_back(event("content_block_stop", json!({ "index": index })));
}

fn event(kind: &str, mut data: Value) -> Bytes {
    data["type"] = kind.into();
    format!("event: {kind}\ndata: {data}\n\n").into()
}

/// A body that is sent in pieces.
#[derive(Debug)]
struct Events(VecDeque<Bytes>);

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }
}
