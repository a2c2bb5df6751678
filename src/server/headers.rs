//! Decides which header fields are forwarded, in both directions.
//!
//! Hop-by-hop fields are removed. All others keep their value and their place, except a `Location` on the upstream's
//! own server (see [`super::redirect`]). Only what the next hop needs (`Host`, the framing of the body) and the fields
//! that the upstream's settings name are added.

use http::header::{
    CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, COOKIE, EXPECT, HOST, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Version};

use crate::upstream::Upstream;

/// How the body of a request is framed when it is sent upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// As it was received, with its declared length or without one.
    Streamed {
        /// Whether the body has no declared length.
        open_ended: bool,
    },
    /// By its length: all of it is there.
    Whole {
        /// Bytes.
        length: usize,
        /// Whether it is no longer in the content encoding that was received.
        is_decoded: bool,
    },
}

/// The header fields of `head` as they are sent to `upstream`.
pub(super) fn to_upstream(head: &Parts, upstream: &Upstream, framing: Framing) -> HeaderMap {
    let received = &head.headers;
    let named = named_by_connection(received);
    let extra = upstream.headers();
    let mut sent = HeaderMap::with_capacity(received.len() + extra.len() + 2);
    if !received.contains_key(HOST) {
        sent.insert(HOST, upstream.base_url().host().clone());
    }
    for (name, value) in received {
        match *name {
            HOST => drop(sent.insert(HOST, upstream.base_url().host().clone())),
            CONTENT_LENGTH | TRANSFER_ENCODING => frame(&mut sent, name, value, framing),
            CONTENT_ENCODING if matches!(framing, Framing::Whole { is_decoded: true, .. }) => {}
            // The gateway has met the expectation (`100-continue`) by reading the body.
            EXPECT => {}
            TRAILER if matches!(framing, Framing::Streamed { open_ended: true }) => {
                sent.append(name, value.clone());
            }
            TE if head.version == Version::HTTP_2 && is_token(value, "trailers") => {
                sent.append(name, value.clone());
            }
            COOKIE if head.version == Version::HTTP_2 => join_cookies(&mut sent, value),
            _ if is_hop_by_hop(name) || named.iter().any(|named| named == name.as_str()) => {}
            _ => drop(sent.append(name, value.clone())),
        }
    }
    complete_framing(&mut sent, framing);
    for name in extra.keys() {
        sent.remove(name);
    }
    for (name, value) in extra {
        sent.append(name, value.clone());
    }
    sent
}

/// The header fields of an answer as they are sent to the client.
pub(super) fn to_client(received: HeaderMap) -> HeaderMap {
    // A transfer coding other than `chunked` is not decoded here, so it must be declared to the client.
    let is_encoded = has_transfer_coding(&received);
    // `Transfer-Encoding` overrides `Content-Length`, which may then be wrong (RFC 9112, 6.3).
    let has_coding = received.contains_key(TRANSFER_ENCODING);
    let is_dropped = |name: &HeaderName| match *name {
        TRAILER => false,
        TRANSFER_ENCODING => !is_encoded,
        CONTENT_LENGTH => has_coding,
        _ => is_hop_by_hop(name),
    };
    if !received.keys().any(is_dropped) {
        return received;
    }
    let named = named_by_connection(&received);
    let mut sent = HeaderMap::with_capacity(received.len());
    let mut current = None;
    for (name, value) in received {
        if let Some(name) = name {
            let is_named = named.iter().any(|named| named == name.as_str());
            current = (!is_named && !is_dropped(&name)).then_some(name);
        }
        if let Some(name) = &current {
            sent.append(name, value);
        }
    }
    sent
}

/// Whether a body has a transfer coding other than `chunked` and `identity`.
pub(super) fn has_transfer_coding(headers: &HeaderMap) -> bool {
    transfer_coding(headers).is_some()
}

/// The first transfer coding of a body other than `chunked` and `identity`.
pub(super) fn transfer_coding(headers: &HeaderMap) -> Option<String> {
    let is_plain =
        |token: &str| ["chunked", "identity"].iter().any(|plain| token.eq_ignore_ascii_case(plain));
    tokens(headers, &TRANSFER_ENCODING).find(|token| !is_plain(token)).map(str::to_owned)
}

/// Whether the client asks to switch the connection to WebSocket. Such a client can do nothing else with it.
///
/// Offers of other protocols (`h2c`, `TLS/1.2`), which some HTTP libraries make on every request, are ignored: that is
/// how HTTP declines them (RFC 9110, 7.8).
pub(super) fn asks_for_upgrade(head: &Parts) -> bool {
    head.version == Version::HTTP_11
        && tokens(&head.headers, &CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade"))
        && tokens(&head.headers, &UPGRADE).any(|token| token.eq_ignore_ascii_case("websocket"))
}

/// Copies a framing field that was received or, if the body was read, replaces it by the length.
fn frame(sent: &mut HeaderMap, name: &HeaderName, value: &HeaderValue, framing: Framing) {
    match framing {
        Framing::Streamed { .. } => drop(sent.append(name, value.clone())),
        Framing::Whole { length, .. } => {
            sent.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
    }
}

/// Adds the framing field that the received head did not have (HTTP/2 needs none).
fn complete_framing(sent: &mut HeaderMap, framing: Framing) {
    if sent.contains_key(CONTENT_LENGTH) || sent.contains_key(TRANSFER_ENCODING) {
        return;
    }
    match framing {
        Framing::Streamed { open_ended: true } => {
            sent.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        Framing::Whole { length, .. } if length > 0 => {
            sent.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        _ => {}
    }
}

/// Joins `Cookie` fields to one: HTTP/2 clients may send a field for each cookie, HTTP/1 servers expect one field.
fn join_cookies(sent: &mut HeaderMap, value: &HeaderValue) {
    let joined = match sent.get(COOKIE) {
        None => value.clone(),
        Some(first) => {
            let bytes = [first.as_bytes(), b"; ", value.as_bytes()].concat();
            HeaderValue::from_bytes(&bytes).unwrap_or_else(|_| value.clone())
        }
    };
    sent.insert(COOKIE, joined);
}

fn is_hop_by_hop(name: &HeaderName) -> bool {
    matches!(*name, CONNECTION | TE | TRAILER | TRANSFER_ENCODING | UPGRADE)
        || matches!(
            name.as_str(),
            "keep-alive"
                | "http2-settings"
                | "proxy-connection"
                | "proxy-authenticate"
                | "proxy-authorization"
                | "proxy-authentication-info"
        )
}

/// The fields that `Connection` declares to be hop-by-hop, in lower case; almost always none.
fn named_by_connection(headers: &HeaderMap) -> Vec<String> {
    let is_option = |token: &&str| {
        ["keep-alive", "close", "upgrade"].iter().any(|option| token.eq_ignore_ascii_case(option))
    };
    tokens(headers, &CONNECTION).filter(|token| !is_option(token)).map(str::to_ascii_lowercase).collect()
}

fn tokens<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|line| line.split(','))
        .map(str::trim)
        .filter(|token| !token.is_empty())
}

fn is_token(value: &HeaderValue, token: &str) -> bool {
    value.as_bytes().eq_ignore_ascii_case(token.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(lines: &[(&'static str, &'static str)]) -> Parts {
        let mut request = http::Request::new(());
        for (name, value) in lines {
            request.headers_mut().append(*name, HeaderValue::from_static(value));
        }
        request.into_parts().0
    }

    #[test]
    fn only_websocket_upgrades_are_recognised() {
        for (lines, expected) in [
            (&[][..], false),
            (&[("connection", "Upgrade"), ("upgrade", "websocket")], true),
            (&[("connection", "keep-alive, upgrade"), ("upgrade", "h2c, websocket")], true),
            (&[("connection", "upgrade")], false),
            (&[("connection", "upgrade"), ("upgrade", "")], false),
            (&[("connection", "Upgrade, HTTP2-Settings"), ("upgrade", "h2c")], false),
            (&[("connection", "Upgrade"), ("upgrade", "TLS/1.2")], false),
            (&[("connection", "Upgrade"), ("upgrade", "WebSocket")], true),
            // Without `Connection: upgrade`, the field is not meant for this hop.
            (&[("upgrade", "websocket")], false),
        ] {
            assert_eq!(asks_for_upgrade(&head(lines)), expected, "{lines:?}");
        }
        let mut request = head(&[("connection", "upgrade"), ("upgrade", "websocket")]);
        request.version = Version::HTTP_2;
        assert!(!asks_for_upgrade(&request));
    }

    #[test]
    fn answers_without_connection_headers_pass_unchanged() {
        let headers = head(&[("b", "1"), ("trailer", "x"), ("a", "2"), ("b", "3")]).headers;
        assert_eq!(to_client(headers.clone()), headers);
    }
}
