//! What hyper refuses by itself, since it is no request that it can read: in words of the gateway's.
//!
//! hyper answers with a status and nothing else, and asks nobody. Who sent such a request should be told what is wrong
//! with it, in the dialect of its path; so where that bare answer is about to be written, another one is.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, StatusCode};

use super::exchange::{Fault, Gateway};
use super::handler::Handler;

/// Bytes that are kept of what a client has begun to say.
pub(super) const KEPT: usize = 2048;

/// Makes the answer to a request that begins so.
pub(super) type Reply = Arc<dyn Fn(StatusCode, &[u8]) -> Bytes + Send + Sync>;

/// The replies of a handler.
pub(super) fn reply<G: Gateway>(handler: &Arc<Handler<G>>) -> Reply {
    let handler = Arc::clone(handler);
    Arc::new(move |status, said| {
        let line = Line::of(said);
        let refusal = handler.word(&line.head(), &Fault::client(status, line.wrong(status)));
        let kind = refusal.content_type.to_str().unwrap_or("text/plain");
        let reason = status.canonical_reason().unwrap_or_default();
        let head = format!(
            "HTTP/1.1 {} {reason}\r\ncontent-type: {kind}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            status.as_u16(),
            refusal.body.len()
        );
        let body = if line.method == b"HEAD" { &[][..] } else { &refusal.body };
        [head.as_bytes(), body].concat().into()
    })
}

/// The status of an answer that says nothing else, as hyper gives it.
pub(super) fn bare(written: &[u8]) -> Option<StatusCode> {
    const END: &[u8] = b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let line = written.strip_suffix(END)?;
    let status = line.strip_prefix(b"HTTP/1.1 ").or_else(|| line.strip_prefix(b"HTTP/1.0 "))?;
    let is_line = !status.contains(&b'\n');
    StatusCode::from_bytes(status.get(..3)?).ok().filter(|status| is_line && status.is_client_error())
}

/// The first line of a request, as far as it is known.
struct Line<'a> {
    method: &'a [u8],
    target: &'a [u8],
}

impl<'a> Line<'a> {
    fn of(said: &'a [u8]) -> Self {
        let line = said.trim_ascii_start().split(|byte| *byte == b'\n').next().unwrap_or_default();
        let (method, rest) = line.split_at(line.iter().position(|byte| *byte == b' ').unwrap_or(line.len()));
        let rest = rest.trim_ascii();
        // What is behind the last space is the version, if it is there.
        let version = rest.iter().rposition(|byte| *byte == b' ');
        let end = version.filter(|at| rest[at + 1..].starts_with(b"HTTP/")).unwrap_or(rest.len());
        Self { method, target: &rest[..end] }
    }

    /// A head that says as much of it as can be said.
    fn head(&self) -> Parts {
        let mut request = http::Request::new(());
        *request.method_mut() = Method::from_bytes(self.method).unwrap_or_default();
        let path = self.target.split(|byte| *byte == b'?').next().unwrap_or_default();
        let path: String = path.iter().map(|byte| escaped(*byte)).collect();
        *request.uri_mut() = path.parse().unwrap_or_default();
        request.into_parts().0
    }

    /// What is wrong with the request.
    fn wrong(&self, status: StatusCode) -> Cow<'static, str> {
        match status {
            StatusCode::URI_TOO_LONG => "the path is too long".into(),
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
                "there are too many header lines, or too long ones".into()
            }
            _ => match self.odd() {
                Some(byte) => {
                    let is_seen = byte == b' ' || byte.is_ascii_graphic();
                    let shown =
                        if is_seen { char::from(byte).into() } else { byte.escape_ascii().to_string() };
                    format!("the path holds `{shown}`, which has to be written as `%{byte:02X}`").into()
                }
                None => "this is no request of HTTP".into(),
            },
        }
    }

    /// The first byte that may not stand where it does in a path or behind its question mark.
    fn odd(&self) -> Option<u8> {
        let text = match std::str::from_utf8(self.target) {
            Ok(text) => text,
            Err(error) => return self.target.get(error.valid_up_to()).copied(),
        };
        let (path, query) = text.split_once('?').unwrap_or((text, ""));
        let is_odd =
            |before: &str, letter: char| format!("{before}{letter}").parse::<PathAndQuery>().is_err();
        let odd = path.chars().find(|letter| is_odd("/", *letter));
        odd.or_else(|| query.chars().find(|letter| is_odd("/?", *letter)))
            .and_then(|odd| u8::try_from(odd).ok())
    }
}

/// A byte of a path, such that it can be read.
fn escaped(byte: u8) -> String {
    if byte.is_ascii_alphanumeric() || b"/-._~:%@".contains(&byte) {
        char::from(byte).to_string()
    } else {
        format!("%{byte:02X}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_answers_that_say_nothing_are_replaced() {
        for (written, expected) in [
            ("HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n", Some(400)),
            ("HTTP/1.0 414 URI Too Long\r\nconnection: close\r\ncontent-length: 0\r\n\r\n", Some(414)),
            ("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n", None),
            ("HTTP/1.1 400 Bad Request\r\nx: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n", None),
            ("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n", None),
            ("HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\nx", None),
            ("HTTP/1.1 \r\nconnection: close\r\ncontent-length: 0\r\n\r\n", None),
        ] {
            assert_eq!(bare(written.as_bytes()).map(|status| status.as_u16()), expected, "{written}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (said, path, wrong) in [
            (
                &b"GET /v1/<m> HTTP/1.1\r\n"[..],
                "/v1/%3Cm%3E",
                "the path holds `<`, which has to be written as `%3C`",
            ),
            (b"GET /a?b=\"c\" HTTP/1.1\r\n", "/a", "the path holds `\"`, which has to be written as `%22`"),
            (b"GET /a b HTTP/1.1\r\n", "/a%20b", "the path holds ` `, which has to be written as `%20`"),
            (
                b"GET /\xc3\xa9\xff HTTP/1.1\r\n",
                "/%C3%A9%FF",
                "the path holds `\\xff`, which has to be written as `%FF`",
            ),
            (b"GET /a\x7f", "/a%7F", "the path holds `\\x7f`, which has to be written as `%7F`"),
            (b"GET /a HTTP/9\r\n", "/a", "this is no request of HTTP"),
            (b"\x16\x03\x01", "/", "this is no request of HTTP"),
            (b"", "/", "this is no request of HTTP"),
        ] {
            let line = Line::of(said);
            let found = (line.head().uri.path().to_owned(), line.wrong(StatusCode::BAD_REQUEST));
            assert_eq!((&*found.0, &*found.1), (path, wrong), "{}", said.escape_ascii());
        }
    }
}
