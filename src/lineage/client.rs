//! Identifies the sender of a request, as far as the request shows.

use std::sync::LazyLock;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::conversation::Digest;
use crate::protocol;

/// What a request says about its sender.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Caller {
    /// The client's id for its run.
    pub session: Option<String>,
    /// The sub-agent within the run.
    pub agent: Option<String>,
    /// The name of the client program.
    pub client: Option<String>,
}

/// Headers that carry a session id, in order of precedence. The first is our own, for any client.
const SESSION_HEADERS: &[&str] = &[
    "x-plimsoll-session-id",
    "x-claude-code-session-id",
    "x-session-id",
    "x-session-affinity",
    "x-opencode-session",
    "session-id",
    "thread-id",
    "session_id",
    "conversation_id",
    "agent-session-id",
    "x-grok-conv-id",
];

/// Headers that carry a credential or identify its owner: those of every dialect, and the one common to all. Their
/// order is part of a sender's digest in the store.
static CREDENTIAL_HEADERS: LazyLock<Vec<HeaderName>> = LazyLock::new(|| {
    let own = protocol::ALL.iter().flat_map(|protocol| protocol.dialect().credentials);
    own.map(|name| HeaderName::from_static(name)).chain([AUTHORIZATION]).collect()
});

/// Suffixes of headers that carry the id or the kind of a sub-agent.
const AGENT_SUFFIXES: &[&str] = &["-agent-id", "-subagent"];

/// Reads the sender from a request's headers; `body_session` is the session id in the body, which has the lowest
/// precedence.
pub fn caller(headers: &HeaderMap, body_session: Option<&str>) -> Caller {
    let (mut session, mut caller) = (None, Caller::default());
    // One pass over the headers costs less than a look-up for each possible name.
    for (name, value) in headers {
        let (name, Ok(text)) = (name.as_str(), value.to_str()) else { continue };
        let believed = SESSION_HEADERS.iter().position(|known| *known == name).filter(|_| !text.is_empty());
        if let Some(rank) = believed
            && session.is_none_or(|(best, _)| rank < best)
        {
            session = Some((rank, text));
        }
        match name {
            "user-agent" if caller.client.is_none() && !text.is_empty() => {
                caller.client = text.split(' ').next().map(str::to_owned);
            }
            _ if caller.agent.is_none() && names_an_agent(name) => caller.agent = Some(text.to_owned()),
            _ => {}
        }
    }
    caller.session = session.map(|(_, text)| text).or(body_session).map(str::to_owned);
    caller
}

/// Whether a header names the sub-agent that sends the request, and not its parent.
fn names_an_agent(name: &str) -> bool {
    AGENT_SUFFIXES.iter().any(|end| name.ends_with(end)) && !name.contains("parent")
}

/// A digest of the sender's credentials: of lasting keys in headers and in the path's `parameters`, and of the ids of
/// accounts. Histories of different principals are never taken for one. Short-lived tokens do not count: a token that
/// is renewed during a conversation must not start a new one.
pub fn principal<'a>(headers: &'a HeaderMap, parameters: impl Iterator<Item = &'a str>) -> Digest {
    let named = CREDENTIAL_HEADERS.iter().filter_map(|name| headers.get(name));
    let keys = named.map(HeaderValue::as_bytes).chain(parameters.map(str::as_bytes));
    let mut pieces: Vec<&[u8]> = Vec::new();
    for key in keys.map(credential).filter(|key| is_lasting(key)) {
        pieces.push(key);
        pieces.push(b"\0");
    }
    Digest::of(&pieces)
}

/// A credential without the scheme `Bearer`, in upper or lower case.
fn credential(value: &[u8]) -> &[u8] {
    match value.split_at_checked(b"Bearer ".len()) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"Bearer ") => token.trim_ascii(),
        _ => value,
    }
}

/// Whether a token is long-lived, as API keys are. OAuth access tokens (JSON web tokens, Google's, Anthropic's,
/// Copilot's) and Bedrock's short-term keys are renewed within hours, in whatever header they come.
fn is_lasting(token: &[u8]) -> bool {
    let renewed = [&b"eyJ"[..], b"ya29.", b"sk-ant-oat", b"AWS4-HMAC", b"bedrock-api-key-", b"tid="];
    !renewed.iter().any(|renewed| token.starts_with(renewed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn the_session_id_of_highest_precedence_is_taken() {
        for (pairs, body, expected) in [
            (&[("x-session-id", "s"), ("x-claude-code-session-id", "c")][..], Some("b"), Some("c")),
            (&[("x-plimsoll-session-id", "p"), ("x-claude-code-session-id", "c")], None, Some("p")),
            (&[("session-id", "x")], Some("b"), Some("x")),
            (&[("x-session-id", "")], Some("b"), Some("b")),
            (&[("session-id", "x"), ("x-session-id", ""), ("x-session-affinity", "a")], Some("b"), Some("a")),
            (&[("user-agent", "curl/8")], None, None),
        ] {
            assert_eq!(caller(&headers(pairs), body).session.as_deref(), expected, "{pairs:?}");
        }
        let caller = caller(&headers(&[("user-agent", "claude-cli/2.1 (external)")]), None);
        assert_eq!(caller.client.as_deref(), Some("claude-cli/2.1"));
    }

    #[test]
    fn session_and_agent_headers_of_known_clients_are_read() {
        const ORDER: [&str; 11] = [
            "x-plimsoll-session-id",
            "x-claude-code-session-id",
            "x-session-id",
            "x-session-affinity",
            "x-opencode-session",
            "session-id",
            "thread-id",
            "session_id",
            "conversation_id",
            "agent-session-id",
            "x-grok-conv-id",
        ];
        for (rank, name) in ORDER.iter().enumerate() {
            // It comes last, after those that it takes precedence over.
            let pairs: Vec<_> = ORDER[rank..].iter().rev().map(|name| (*name, *name)).collect();
            assert_eq!(caller(&headers(&pairs), Some("body")).session.as_deref(), Some(*name));
        }
        for (name, expected) in [
            ("x-claude-code-agent-id", Some("a")),
            ("x-openai-subagent", Some("a")),
            ("x-claude-code-parent-agent-id", None),
            ("x-agent", None),
        ] {
            assert_eq!(caller(&headers(&[(name, "a")]), None).agent.as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn api_keys_distinguish_principals_and_renewed_tokens_do_not() {
        let of = |pairs: &[(&'static str, &str)]| principal(&headers(pairs), std::iter::empty());
        assert_ne!(of(&[("x-api-key", "a")]), of(&[("x-api-key", "b")]));
        assert_ne!(of(&[("authorization", "Bearer sk-a")]), of(&[("authorization", "Bearer sk-b")]));
        for (name, one, other, same) in [
            ("authorization", "Bearer eyJa.b.c", "Bearer eyJd.e.f", true),
            ("authorization", "bearer eyJa.b.c", "Bearer eyJd.e.f", true),
            ("authorization", "Bearer tid=1;exp=2", "Bearer tid=1;exp=3", true),
            ("authorization", "bearer sk-a", "Bearer sk-a", true),
            ("authorization", "bearer sk-a", "bearer sk-b", false),
            ("x-api-key", "eyJa.b.c", "eyJd.e.f", true),
            ("x-api-key", "sk-ant-oat01-a", "sk-ant-oat01-b", true),
            ("x-api-key", "sk-ant-api03-a", "sk-ant-api03-b", false),
            ("authorization", "Bearer bedrock-api-key-a", "Bearer bedrock-api-key-b", true),
            ("authorization", "Bearer ABSKa", "Bearer ABSKb", false),
        ] {
            assert_eq!(of(&[(name, one)]) == of(&[(name, other)]), same, "{name} {one} {other}");
        }
        assert_ne!(
            of(&[("authorization", "Bearer eyJa"), ("chatgpt-account-id", "1")]),
            of(&[("authorization", "Bearer eyJa"), ("chatgpt-account-id", "2")])
        );
        let asks = |keys: &[&str]| principal(&headers(&[]), keys.iter().copied());
        for (one, other, same) in [("a", "b", false), ("a", "a", true), ("ya29.a", "ya29.b", true)] {
            assert_eq!(asks(&[one]) == asks(&[other]), same, "{one} {other}");
        }
        assert_ne!(asks(&["a"]), asks(&[]));
    }
}
