//! Replaces hyper's bare error answers to malformed requests by errors in the client's dialect.
//!
//! hyper itself answers a request that it cannot parse, with a status and no body. When such an answer is about to be
//! written, the socket instead writes one that says what is wrong, in the dialect of the request's path.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, StatusCode};

use super::exchange::{Fault, Gateway};
use super::handler::Handler;

/// How many bytes are kept of the beginning of a request.
pub(super) const KEPT_BYTES: usize = 2048;

/// Makes the answer to a malformed request from the status and the beginning of the request.
pub(super) type Reply = Arc<dyn Fn(StatusCode, &[u8]) -> Bytes + Send + Sync>;

/// Makes the replies of a handler.
pub(super) fn reply<G: Gateway>(handler: &Arc<Handler<G>>) -> Reply {
    let handler = Arc::clone(handler);
    Arc::new(move |status, received| {
        let line = Line::of(received);
        let refusal = handler.error_body(&line.head(), &Fault::client(status, line.fault(status)));
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

/// The status of `written`, if that is a whole error answer of hyper's own making; else `None`.
pub(super) fn bare_error(written: &[u8]) -> Option<StatusCode> {
    const END: &[u8] = b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let line = written.strip_suffix(END)?;
    let status = line.strip_prefix(b"HTTP/1.1 ").or_else(|| line.strip_prefix(b"HTTP/1.0 "))?;
    let is_line = !status.contains(&b'\n');
    StatusCode::from_bytes(status.get(..3)?).ok().filter(|status| is_line && status.is_client_error())
}

/// The first line of a request, as far as it was kept.
struct Line<'a> {
    method: &'a [u8],
    target: &'a [u8],
}

impl<'a> Line<'a> {
    fn of(received: &'a [u8]) -> Self {
        let line = received.trim_ascii_start().split(|byte| *byte == b'\n').next().unwrap_or_default();
        let (method, rest) = line.split_at(line.iter().position(|byte| *byte == b' ').unwrap_or(line.len()));
        let rest = rest.trim_ascii();
        // The version, if there is one, follows the last space.
        let version = rest.iter().rposition(|byte| *byte == b' ');
        let end = version.filter(|at| rest[at + 1..].starts_with(b"HTTP/")).unwrap_or(rest.len());
        Self { method, target: &rest[..end] }
    }

    /// A request head with the method and path of the line; defaults where they cannot be parsed.
    fn head(&self) -> Parts {
        let mut request = http::Request::new(());
        *request.method_mut() = Method::from_bytes(self.method).unwrap_or_default();
        let path = self.target.split(|byte| *byte == b'?').next().unwrap_or_default();
        let path: String = path.iter().map(|byte| escaped(*byte)).collect();
        *request.uri_mut() = path.parse().unwrap_or_default();
        request.into_parts().0
    }

    /// A message that says what is wrong with the request.
    fn fault(&self, status: StatusCode) -> Cow<'static, str> {
        match status {
            StatusCode::URI_TOO_LONG => "the path is too long".into(),
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
                "there are too many header fields, or too long ones".into()
            }
            _ => match self.forbidden_byte() {
                Some(byte) => {
                    let is_seen = byte == b' ' || byte.is_ascii_graphic();
                    let shown =
                        if is_seen { char::from(byte).into() } else { byte.escape_ascii().to_string() };
                    format!("the path contains `{shown}`, which must be written as `%{byte:02X}`").into()
                }
                None => "this is not an HTTP request".into(),
            },
        }
    }

    /// The first byte that is not allowed in the path or the query. `None` if there is none or it cannot be named.
    fn forbidden_byte(&self) -> Option<u8> {
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

/// A byte of a path, percent-encoded unless it is allowed there.
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
    fn only_bare_error_answers_are_replaced() {
        for (written, expected) in [
            ("HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n", Some(400)),
            ("HTTP/1.0 414 URI Too Long\r\nconnection: close\r\ncontent-length: 0\r\n\r\n", Some(414)),
            ("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n", None),
            ("HTTP/1.1 400 Bad Request\r\nx: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n", None),
            ("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n", None),
            ("HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\nx", None),
            ("HTTP/1.1 \r\nconnection: close\r\ncontent-length: 0\r\n\r\n", None),
        ] {
            assert_eq!(bare_error(written.as_bytes()).map(|status| status.as_u16()), expected, "{written}");
        }
    }

    #[test]
    fn the_fault_of_an_unreadable_request_line_is_named() {
        for (received, path, wrong) in [
            (
                &b"GET /v1/<m> HTTP/1.1\r\n"[..],
                "/v1/%3Cm%3E",
                "the path contains `<`, which must be written as `%3C`",
            ),
            (b"GET /a?b=\"c\" HTTP/1.1\r\n", "/a", "the path contains `\"`, which must be written as `%22`"),
            (b"GET /a b HTTP/1.1\r\n", "/a%20b", "the path contains ` `, which must be written as `%20`"),
            (
                b"GET /\xc3\xa9\xff HTTP/1.1\r\n",
                "/%C3%A9%FF",
                "the path contains `\\xff`, which must be written as `%FF`",
            ),
            (b"GET /a\x7f", "/a%7F", "the path contains `\\x7f`, which must be written as `%7F`"),
            (b"GET /a HTTP/9\r\n", "/a", "this is not an HTTP request"),
            (b"\x16\x03\x01", "/", "this is not an HTTP request"),
            (b"", "/", "this is not an HTTP request"),
        ] {
            let line = Line::of(received);
            let found = (line.head().uri.path().to_owned(), line.fault(StatusCode::BAD_REQUEST));
            assert_eq!((&*found.0, &*found.1), (path, wrong), "{}", received.escape_ascii());
        }
    }
}
