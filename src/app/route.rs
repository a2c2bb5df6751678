//! Which paths are of which dialect, and where requests go. The one table that names dialects by path.

use std::borrow::Cow;
use std::sync::Arc;

use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode};

use crate::protocol::{self, Protocol};
use crate::server::{Fault, Route, Target};
use crate::upstream::Upstream;

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// An answer of the model.
    Generate,
    /// The length of the prompt.
    Count,
}

/// Paths, by how they end, and what they are. The first match holds.
const PATHS: &[(&str, &str, Purpose)] = &[
    ("/v1/messages", "anthropic", Purpose::Generate),
    ("/v1/messages/count_tokens", "anthropic", Purpose::Count),
    ("/chat/completions", "openai-chat", Purpose::Generate),
];

/// Headers that tell whose client it is where the path does not.
const HEADERS: &[(&str, &str)] = &[
    ("anthropic-version", "anthropic"),
    ("x-api-key", "anthropic"),
    ("x-goog-api-key", "gemini"),
    ("openai-organization", "openai-chat"),
    ("authorization", "openai-chat"),
];

/// The dialect and purpose of a path.
pub(super) fn dialect(method: &Method, path: &str) -> Option<(&'static dyn Protocol, Purpose)> {
    if method != Method::POST {
        return None;
    }
    let path = path.strip_suffix('/').unwrap_or(path);
    let (_, name, purpose) = PATHS.iter().find(|(end, _, _)| path.ends_with(end))?;
    Some((protocol::named(name)?, *purpose))
}

/// An upstream and the dialects it answers.
#[derive(Debug, Clone)]
pub(super) struct Served {
    pub(super) upstream: Arc<Upstream>,
    pub(super) dialects: Vec<String>,
}

/// All upstreams.
#[derive(Debug)]
pub(super) enum Routes {
    /// Everything goes to one, with its path as it came.
    Single(Served),
    /// By the first segment of the path, else by dialect.
    Named(Vec<Served>),
}

impl Routes {
    pub(super) fn route(&self, head: &Parts) -> Route {
        let path = head.uri.path();
        let found = match self {
            Self::Single(served) => Some((served, path_and_query(head))),
            Self::Named(all) => {
                by_prefix(all, head).or_else(|| Some((by_dialect(all, head)?, path_and_query(head))))
            }
        };
        let Some((served, path_and_query)) = found else { return Route::Refuse(self.unknown(path)) };
        let target = Target { upstream: Arc::clone(&served.upstream), path_and_query };
        match dialect(&head.method, path) {
            Some((protocol, _)) if served.dialects.iter().any(|name| name == protocol.name()) => {
                Route::Read(target)
            }
            _ => Route::Forward(target),
        }
    }

    fn unknown(&self, path: &str) -> Fault {
        let names = match self {
            Self::Single(served) => vec![served.upstream.name()],
            Self::Named(all) => all.iter().map(|served| served.upstream.name()).collect(),
        };
        let message =
            format!("no upstream for {path}; a path may begin with the name of one: /{}", names.join(", /"));
        Fault::client(StatusCode::NOT_FOUND, Cow::Owned(message))
    }
}

fn path_and_query(head: &Parts) -> PathAndQuery {
    head.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"))
}

/// `/NAME/rest` goes to the upstream NAME as `/rest`.
fn by_prefix<'a>(all: &'a [Served], head: &Parts) -> Option<(&'a Served, PathAndQuery)> {
    let whole = head.uri.path_and_query()?.as_str();
    let segment = whole.strip_prefix('/')?.split(['/', '?']).next()?;
    let served = all.iter().find(|served| served.upstream.name() == segment)?;
    let rest = &whole[1 + segment.len()..];
    let rest = if rest.starts_with('/') { rest.parse() } else { format!("/{rest}").parse() };
    Some((served, rest.ok()?))
}

fn by_dialect<'a>(all: &'a [Served], head: &Parts) -> Option<&'a Served> {
    let speaks = |name: &str| all.iter().find(|served| served.dialects.iter().any(|dialect| dialect == name));
    if let Some((protocol, _)) = dialect(&head.method, head.uri.path()) {
        return speaks(protocol.name());
    }
    hint(&head.headers).and_then(speaks).or_else(|| if all.len() == 1 { all.first() } else { None })
}

fn hint(headers: &HeaderMap) -> Option<&'static str> {
    HEADERS.iter().find(|(header, _)| headers.contains_key(*header)).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::{BaseUrl, Settings};

    fn served(name: &str, dialects: &[&str]) -> Served {
        let base: BaseUrl = format!("http://{name}.test").parse().unwrap();
        Served {
            upstream: Arc::new(Upstream::new(Settings::new(name, base))),
            dialects: dialects.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    fn check(routes: &Routes, method: &str, uri: &str, header: &str, expected: &str) {
        let mut request = http::Request::builder().method(method).uri(uri);
        if !header.is_empty() {
            request = request.header(header, "x");
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        let got = match routes.route(&head) {
            Route::Read(target) => format!("read {} {}", target.upstream.name(), target.path_and_query),
            Route::Forward(target) => format!("forward {} {}", target.upstream.name(), target.path_and_query),
            Route::Refuse(fault) => format!("refuse {}", fault.status.as_u16()),
        };
        assert_eq!(got, expected, "{method} {uri} {header}");
    }

    #[test]
    fn named_upstreams() {
        let routes = Routes::Named(vec![
            served("anthropic", &["anthropic"]),
            served("openai", &["openai-chat"]),
            served("local", &["openai-chat"]),
        ]);
        for (method, uri, header, expected) in [
            ("POST", "/v1/messages?beta=true", "", "read anthropic /v1/messages?beta=true"),
            ("POST", "/v1/messages/count_tokens", "", "read anthropic /v1/messages/count_tokens"),
            ("POST", "/v1/messages/batches", "x-api-key", "forward anthropic /v1/messages/batches"),
            ("GET", "/v1/messages", "anthropic-version", "forward anthropic /v1/messages"),
            ("POST", "/v1/chat/completions", "", "read openai /v1/chat/completions"),
            ("POST", "/local/v1/chat/completions?x=%2F", "", "read local /v1/chat/completions?x=%2F"),
            ("POST", "/local/v1/messages", "", "forward local /v1/messages"),
            ("GET", "/local?x=1", "", "forward local /?x=1"),
            ("GET", "/v1/models", "authorization", "forward openai /v1/models"),
            ("GET", "/v1/models", "", "refuse 404"),
            ("HEAD", "/", "", "refuse 404"),
        ] {
            check(&routes, method, uri, header, expected);
        }
    }

    #[test]
    fn a_single_upstream_takes_everything() {
        let routes = Routes::Single(served("up", &["anthropic", "openai-chat"]));
        for (method, uri, expected) in [
            ("POST", "/gw/team-a/v1/messages?beta=true", "read up /gw/team-a/v1/messages?beta=true"),
            ("POST", "/chat/completions/", "read up /chat/completions/"),
            ("POST", "/v1/responses", "forward up /v1/responses"),
            ("HEAD", "/", "forward up /"),
        ] {
            check(&routes, method, uri, "", expected);
        }
    }
}
