//! One call to a server, and its whole answer.

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use http_body_util::{BodyExt as _, Full};

use crate::protocol::Asked;
use crate::upstream::{Clients, Upstream};

/// The largest answer that is read, in bytes.
const ANSWER: usize = 4 << 20;

/// Something that carries calls to servers.
pub(super) trait Line: Sync {
    /// Posts JSON and reads the answer: its status and its body. An error is one that may pass.
    fn post(
        &self,
        upstream: &Upstream,
        path: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> impl Future<Output = Result<(u16, Bytes), String>> + Send;
}

/// The headers that a question is asked with: the caller's own, and what the server demands beside them.
pub(super) fn headers(own: &HeaderMap, asked: &Asked) -> HeaderMap {
    let mut headers = own.clone();
    for (name, value) in asked.headers {
        let name = HeaderName::from_static(name);
        headers.entry(name).or_insert_with(|| HeaderValue::from_static(value));
    }
    headers
}

/// Connections of the summariser's own.
pub(super) struct Https(Clients<Full<Bytes>>);

impl Https {
    pub(super) fn new() -> Self {
        Self(Clients::new())
    }

    /// Closes connections that have not been used for long.
    pub(super) fn sweep(&self) {
        self.0.sweep();
    }
}

impl Line for Https {
    async fn post(
        &self,
        upstream: &Upstream,
        path: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<(u16, Bytes), String> {
        let request = request(upstream, path, headers, body)?;
        let answer = self.0.send(upstream, request).await.map_err(|error| error.to_string())?;
        let (head, mut body) = answer.into_parts();
        let mut whole = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| format!("the answer broke off: {error}"))?;
            if let Ok(data) = frame.into_data() {
                if whole.len() + data.len() > ANSWER {
                    return Err("the answer is too large".to_owned());
                }
                whole.extend_from_slice(&data);
            }
        }
        Ok((head.status.as_u16(), whole.freeze()))
    }
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
    use crate::protocol::{self, Ask};

    #[test]
    fn what_servers_demand_is_said() {
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
