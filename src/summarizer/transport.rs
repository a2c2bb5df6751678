//! Makes a call to a server and reads its whole answer.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use http_body_util::{BodyExt as _, Full};

use super::retry::Missed;
use super::{Call, Called, Failure, vendor};
use crate::protocol::{Ask, Asked, Framing};
use crate::upstream::{Clients, Upstream};
use crate::usage::{self, Catalogue, Usage};

/// The largest answer that is read, in bytes.
const MAX_ANSWER_BYTES: usize = 4 << 20;

/// Something that carries calls to servers.
pub(super) trait Transport: Sync {
    /// Posts JSON and reads the answer. After an error, another attempt may succeed.
    fn post(
        &self,
        upstream: &Upstream,
        path: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> impl Future<Output = Result<Reply, Lost>> + Send;
}

/// A question in the form in which it is sent.
pub(super) struct Question {
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// An answer.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body: Bytes,
    /// How long the server wants not to be asked again, if it says so.
    pub(super) retry_after: Option<Duration>,
}

/// Why there is no answer.
#[derive(Debug, Clone)]
pub(super) enum Lost {
    /// The question did not reach the server.
    Unsent(String),
    /// The question reached the server, or may have: the server may have worked on it.
    Unanswered(String),
}

impl Question {
    /// A text for a model. The answer may have at most `max_output` tokens, and at most a quarter of the window.
    pub(super) fn new(call: &Call, text: &str, max_output: u64) -> Self {
        let max_tokens = max_output.min(call.window / 4).max(1);
        let ask = Ask { model: &call.model, text, max_tokens, like: call.like.as_deref() };
        let asked = call.protocol.ask(&ask);
        let headers = headers(&call.headers, &asked);
        Self { path: asked.path, headers, body: asked.body.into() }
    }
}

impl Reply {
    /// Whether the reply has a good status.
    pub(super) fn is_good(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// What is wrong with a reply that has no good status, and whether another attempt may succeed.
    pub(super) fn refusal(&self) -> Missed {
        let failure = Failure::Call(format!("status {}", self.status));
        match self.status {
            408 | 409 | 425 | 429 | 500.. => Missed::Retryable(failure, self.retry_after),
            _ => Missed::Permanent(failure),
        }
    }

    /// A call with this answer. Reads the figures, and works out what they cost.
    pub(super) fn called(&self, call: &Call, prices: &Catalogue) -> Called {
        let mut reader = call.protocol.answer(Framing::Document);
        reader.push(&self.body);
        let answer = reader.finish();
        let usage = answer.usage.map(|usage| usage.at(call.like.as_deref().unwrap_or_default()));
        let (asked, answered) = (Some(&*call.model), answer.model.as_deref());
        let billed = prices.billed_name(asked, answered, vendor(call)).unwrap_or_default();
        let bill = |usage: &Usage| usage::bill(prices, usage, billed, vendor(call));
        let min_cost = |usage: &Usage| match bill(usage) {
            Some(bill) => Some(bill.total),
            None => usage::min_cost(prices, usage, billed, vendor(call)),
        };
        Called {
            answer: answer.id,
            model: Some(billed.to_owned()),
            status: Some(self.status),
            bill: usage.as_ref().and_then(bill),
            min_cost: usage.as_ref().and_then(min_cost),
            usage,
            ..Called::default()
        }
    }
}

/// The headers of a question: the caller's own, and those that the server requires in addition.
fn headers(own: &HeaderMap, asked: &Asked) -> HeaderMap {
    let mut headers = own.clone();
    for (name, value) in asked.headers {
        let name = HeaderName::from_static(name);
        headers.entry(name).or_insert_with(|| HeaderValue::from_static(value));
    }
    headers
}

/// The summariser's own connections.
pub(super) type Https = Clients<Full<Bytes>>;

impl Transport for Https {
    async fn post(
        &self,
        upstream: &Upstream,
        path: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Reply, Lost> {
        let request = request(upstream, path, headers, body).map_err(Lost::Unsent)?;
        let answer = self.send(upstream, request).await.map_err(|error| {
            let lost = if error.is_unsent() { Lost::Unsent } else { Lost::Unanswered };
            lost(error.to_string())
        })?;
        let (head, mut body) = answer.into_parts();
        let mut whole = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let broken = |error| Lost::Unanswered(format!("the answer broke off: {error}"));
            let frame = frame.map_err(broken)?;
            if let Ok(data) = frame.into_data() {
                if whole.len() + data.len() > MAX_ANSWER_BYTES {
                    return Err(Lost::Unanswered("the answer is too large".to_owned()));
                }
                whole.extend_from_slice(&data);
            }
        }
        let (status, retry_after) = (head.status.as_u16(), retry_after(&head.headers));
        Ok(Reply { status, body: whole.freeze(), retry_after })
    }
}

/// How long a server wants not to be asked again. A date is ignored.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let seconds = number("retry-after-ms").map(|ms| ms / 1000.0).or_else(|| number("retry-after"))?;
    Duration::try_from_secs_f64(seconds).ok()
}

fn request(
    upstream: &Upstream,
    path: &str,
    headers: &HeaderMap,
    body: Bytes,
) -> Result<Request<Full<Bytes>>, String> {
    let path: PathAndQuery = path.parse().map_err(|_| "the path cannot be written".to_owned())?;
    let uri = upstream.base_url().join(&path).map_err(|_| "the path is too long".to_owned())?;
    let length = body.len();
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri;
    let sent = request.headers_mut();
    sent.clone_from(headers);
    sent.insert(HOST, upstream.base_url().host().clone());
    sent.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    sent.insert(CONTENT_LENGTH, HeaderValue::from(length));
    sent.insert(USER_AGENT, HeaderValue::from_static(concat!("plimsoll/", env!("CARGO_PKG_VERSION"))));
    for name in upstream.headers().keys() {
        sent.remove(name);
    }
    for (name, value) in upstream.headers() {
        sent.append(name, value.clone());
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol;

    #[test]
    fn retry_after_headers_are_read() {
        for (name, value, expected) in [
            ("retry-after", "60", Some(60_000)),
            ("retry-after", " 1.5", Some(1500)),
            ("retry-after-ms", "250", Some(250)),
            ("retry-after", "Fri, 31 Dec 1999 23:59:59 GMT", None),
            ("retry-after", "-1", None),
            ("retry-after", "NaN", None),
            ("x", "60", None),
        ] {
            let headers =
                HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static(value))]);
            assert_eq!(retry_after(&headers), expected.map(Duration::from_millis), "{name}: {value}");
        }
    }

    #[test]
    fn required_version_headers_are_sent() {
        const VERSION: &str = "anthropic-version";
        for (dialect, own, expected) in [
            ("anthropic", None, Some("2023-06-01")),
            ("anthropic", Some("2099-01-01"), Some("2099-01-01")),
            ("openai-chat", None, None),
            ("gemini", None, None),
        ] {
            let own = own.map(|own| (HeaderName::from_static(VERSION), HeaderValue::from_static(own)));
            let asked = protocol::named(dialect).unwrap().ask(&Ask {
                model: "m",
                text: "x",
                max_tokens: 9,
                like: None,
            });
            let sent = headers(&own.into_iter().collect(), &asked);
            let said: Vec<_> = sent.get_all(VERSION).iter().map(|value| value.to_str().unwrap()).collect();
            assert_eq!(said, expected.into_iter().collect::<Vec<_>>(), "{dialect}");
        }
    }
}
