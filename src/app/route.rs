//! Which paths are of which dialect, and where requests go. The one table that names dialects by path.

use std::borrow::Cow;
use std::sync::Arc;

use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};

use crate::config::CacheKey;
use crate::protocol::{self, Protocol};
use crate::server::{Fault, Route, Target};
use crate::upstream::Upstream;

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// An answer of the model.
    Generate,
    /// The history in a form that the client goes on from in its place.
    Compact,
    /// The length of the prompt.
    Count,
}

/// Paths, by what they hold and how they end, and what they are. The first match holds.
const PATHS: &[(&str, &str, &str, Purpose)] = &[
    ("", "/v1/messages", "anthropic", Purpose::Generate),
    ("", "/v1/messages/count_tokens", "anthropic", Purpose::Count),
    // As resellers offer it.
    ("/models/", "/count-tokens:rawPredict", "anthropic", Purpose::Count),
    ("/publishers/anthropic/models/", ":rawPredict", "anthropic", Purpose::Generate),
    ("/publishers/anthropic/models/", ":streamRawPredict", "anthropic", Purpose::Generate),
    ("/model/", "/invoke", "anthropic", Purpose::Generate),
    ("/model/", "/invoke-with-response-stream", "anthropic", Purpose::Generate),
    ("", "/chat/completions", "openai-chat", Purpose::Generate),
    ("", "/responses", "openai-responses", Purpose::Generate),
    ("", "/responses/compact", "openai-responses", Purpose::Compact),
    ("", "/responses/input_tokens", "openai-responses", Purpose::Count),
    ("/models/", ":generateContent", "gemini", Purpose::Generate),
    ("/models/", ":streamGenerateContent", "gemini", Purpose::Generate),
    ("/models/", ":countTokens", "gemini", Purpose::Count),
    // Code Assist: Google's own clients with a login.
    ("", "/v1internal:generateContent", "gemini", Purpose::Generate),
    ("", "/v1internal:streamGenerateContent", "gemini", Purpose::Generate),
    ("", "/v1internal:countTokens", "gemini", Purpose::Count),
];

/// What other paths of a dialect begin with, and which of the upstreams that speak it they are for, if not the first.
/// They are not read, but have to find their way.
const PLACES: &[(&str, &str, &str)] = &[
    ("/v1/responses", "openai-responses", ""),
    ("/v1beta/", "gemini", ""),
    ("/v1internal", "gemini", "code-assist"),
];

/// Headers that are a digest of the body, or say what a signature is of.
static SEALS: [HeaderName; 6] = [
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("signature-input"),
    HeaderName::from_static("x-amz-content-sha256"),
];

/// How an `authorization` begins that signs the body.
const SIGNING: &[&str] = &["AWS4-", "Signature "];

/// Headers that tell whose client it is where the path does not.
const HEADERS: &[(&str, &str)] = &[
    ("anthropic-version", "anthropic"),
    ("x-api-key", "anthropic"),
    ("x-goog-api-key", "gemini"),
    ("openai-organization", "openai-chat"),
    ("authorization", "openai-chat"),
];

/// How values of headers begin that tell it first: a login of one provider's is not for another, in whatever header it
/// stands.
const VALUES: &[(&str, &str, &str)] = &[
    ("authorization", "Bearer sk-ant-", "anthropic"),
    ("authorization", "Bearer ya29.", "gemini"),
    ("user-agent", "claude-cli/", "anthropic"),
    ("user-agent", "claude-code/", "anthropic"),
];

/// The dialect and purpose of a path.
pub(super) fn dialect(method: &Method, path: &str) -> Option<(&'static dyn Protocol, Purpose)> {
    if method != Method::POST {
        return None;
    }
    let (name, purpose) = entry(path)?;
    Some((protocol::named(name)?, purpose))
}

fn entry(path: &str) -> Option<(&'static str, Purpose)> {
    let path = path.strip_suffix('/').unwrap_or(path);
    let found = PATHS.iter().find(|(part, end, _, _)| path.ends_with(end) && path.contains(part));
    found.map(|(_, _, name, purpose)| (*name, *purpose))
}

/// An upstream and the dialects it answers.
#[derive(Debug, Clone)]
pub(super) struct Served {
    pub(super) upstream: Arc<Upstream>,
    pub(super) dialects: Vec<String>,
    /// Streams are asked for their usage.
    pub(super) include_usage: bool,
    /// The key of the provider's cache that requests are given.
    pub(super) cache_key: CacheKey,
}

impl Served {
    fn speaks(&self, dialect: &str) -> bool {
        self.dialects.iter().any(|name| name == dialect)
    }
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
    /// Whether streams of this upstream are asked for their usage.
    pub(super) fn include_usage(&self, upstream: &Upstream) -> bool {
        self.served(upstream).is_some_and(|served| served.include_usage)
    }

    /// The key of its cache that requests to this upstream are given.
    pub(super) fn cache_key(&self, upstream: &Upstream) -> CacheKey {
        self.served(upstream).map_or(CacheKey::None, |served| served.cache_key)
    }

    fn served(&self, upstream: &Upstream) -> Option<&Served> {
        self.named(upstream.name())
    }

    /// The upstream with a name.
    pub(super) fn named(&self, name: &str) -> Option<&Served> {
        self.all().iter().find(|served| served.upstream.name() == name)
    }

    fn all(&self) -> &[Served] {
        match self {
            Self::Single(served) => std::slice::from_ref(served),
            Self::Named(all) => all,
        }
    }

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
            Some((protocol, _)) if served.speaks(protocol.name()) && !is_signed(&head.headers) => {
                Route::Read(target)
            }
            _ => Route::Forward(target),
        }
    }

    /// The dialect of an answer in place of an upstream's: that of the path, whatever the method; else the one of
    /// the upstream's that the headers speak for, else its first.
    pub(super) fn spoken(&self, head: &Parts) -> &'static dyn Protocol {
        let (served, path) = match self {
            Self::Single(served) => (Some(served), None),
            Self::Named(all) => by_prefix(all, head).unzip(),
        };
        let path = path.as_ref().map_or_else(|| head.uri.path(), PathAndQuery::path);
        let of_path = || entry(path).map(|(name, _)| name).or_else(|| place(path).map(|(name, _)| name));
        let of_headers = || sender(head).filter(|name| served.is_none_or(|served| served.speaks(name)));
        let of_upstream = || served.and_then(|served| served.dialects.first()).map(String::as_str);
        let name = of_path().or_else(of_headers).or_else(of_upstream);
        name.and_then(protocol::named).unwrap_or(protocol::ALL[0])
    }

    fn unknown(&self, path: &str) -> Fault {
        let names: Vec<&str> = self.all().iter().map(|served| served.upstream.name()).collect();
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
    let path = head.uri.path();
    let read = || Some(dialect(&head.method, path)?.0.name());
    // First the place: a provider may take another dialect than its own below its own paths.
    let (place, upstream) = place(path).unzip();
    let name = place.or_else(read).or_else(|| sender(head))?;
    let named = all.iter().find(|served| Some(served.upstream.name()) == upstream);
    named.or_else(|| all.iter().find(|served| served.speaks(name)))
}

/// Whether a header holds for the very bytes of the body, as a signature or a digest of it does.
fn is_signed(headers: &HeaderMap) -> bool {
    let scheme = headers.get(header::AUTHORIZATION).map_or(&b""[..], HeaderValue::as_bytes);
    SEALS.iter().any(|name| headers.contains_key(name))
        || SIGNING.iter().any(|start| {
            scheme.get(..start.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(start.as_bytes()))
        })
}

/// The dialect and the upstream of a path that is below a provider's own.
fn place(path: &str) -> Option<(&'static str, &'static str)> {
    let found = PLACES.iter().find(|(start, _, _)| path.starts_with(start));
    found.map(|(_, name, upstream)| (*name, *upstream))
}

fn sender(head: &Parts) -> Option<&'static str> {
    let begins = |(header, start, _): &&(&str, &str, &str)| {
        let value = head.headers.get(*header).and_then(|value| value.as_bytes().get(..start.len()));
        value.is_some_and(|value| value.eq_ignore_ascii_case(start.as_bytes()))
    };
    if let Some((_, _, name)) = VALUES.iter().find(begins) {
        return Some(name);
    }
    HEADERS.iter().find(|(header, _)| head.headers.contains_key(*header)).map(|(_, name)| *name)
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
            include_usage: false,
            cache_key: CacheKey::None,
        }
    }

    fn head(method: &str, uri: &str, header: &str) -> Parts {
        let mut request = http::Request::builder().method(method).uri(uri);
        if !header.is_empty() {
            let (name, value) = header.split_once(": ").unwrap_or((header, "x"));
            request = request.header(name, value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn check(routes: &Routes, method: &str, uri: &str, header: &str, expected: &str) {
        let head = head(method, uri, header);
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
            served("openai", &["openai-chat", "openai-responses"]),
            served("gemini", &["gemini"]),
            served("code-assist", &["gemini"]),
            served("local", &["openai-chat"]),
        ]);
        for (method, uri, header, expected) in [
            ("POST", "/v1/messages?beta=true", "", "read anthropic /v1/messages?beta=true"),
            ("POST", "/v1/messages/count_tokens", "", "read anthropic /v1/messages/count_tokens"),
            ("POST", "/v1/messages/batches", "x-api-key", "forward anthropic /v1/messages/batches"),
            ("GET", "/v1/messages", "anthropic-version", "forward anthropic /v1/messages"),
            ("POST", "/v1/chat/completions", "", "read openai /v1/chat/completions"),
            ("POST", "/v1/responses", "", "read openai /v1/responses"),
            ("POST", "/v1/responses/input_tokens", "", "read openai /v1/responses/input_tokens"),
            ("POST", "/v1/responses/compact", "", "read openai /v1/responses/compact"),
            ("GET", "/v1/responses/resp_1", "", "forward openai /v1/responses/resp_1"),
            ("POST", "/v1/models/m:generateContent", "", "read gemini /v1/models/m:generateContent"),
            (
                "POST",
                "/v1beta/models/m:streamGenerateContent?alt=sse&key=k",
                "",
                "read gemini /v1beta/models/m:streamGenerateContent?alt=sse&key=k",
            ),
            ("POST", "/v1beta/models/m:countTokens", "", "read gemini /v1beta/models/m:countTokens"),
            ("POST", "/v1beta/models/m:embedContent", "", "forward gemini /v1beta/models/m:embedContent"),
            ("POST", "/v1beta/cachedContents", "", "forward gemini /v1beta/cachedContents"),
            (
                "POST",
                "/v1beta/openai/chat/completions",
                "authorization",
                "forward gemini /v1beta/openai/chat/completions",
            ),
            ("POST", "/v1internal:generateContent", "", "read code-assist /v1internal:generateContent"),
            (
                "POST",
                "/v1internal:streamGenerateContent?alt=sse",
                "",
                "read code-assist /v1internal:streamGenerateContent?alt=sse",
            ),
            ("POST", "/v1internal:countTokens", "", "read code-assist /v1internal:countTokens"),
            ("POST", "/v1internal:loadCodeAssist", "", "forward code-assist /v1internal:loadCodeAssist"),
            ("GET", "/v1internal/operations/x", "", "forward code-assist /v1internal/operations/x"),
            ("POST", "/gemini/v1internal:generateContent", "", "read gemini /v1internal:generateContent"),
            ("POST", "/local/v1/chat/completions?x=%2F", "", "read local /v1/chat/completions?x=%2F"),
            ("POST", "/local/v1/messages", "", "forward local /v1/messages"),
            ("GET", "/local?x=1", "", "forward local /?x=1"),
            ("GET", "/v1/models", "authorization", "forward openai /v1/models"),
            ("GET", "/v1/models", "authorization: Bearer sk-proj-1", "forward openai /v1/models"),
            ("GET", "/v1/models", "authorization: Bearer sk-ant-oat01-1", "forward anthropic /v1/models"),
            ("GET", "/v1/models", "authorization: bearer ya29.1", "forward gemini /v1/models"),
            (
                "HEAD",
                "/api/hello",
                "user-agent: claude-cli/2.1.329 (external, cli)",
                "forward anthropic /api/hello",
            ),
            ("GET", "/v1/models", "", "refuse 404"),
            ("HEAD", "/", "", "refuse 404"),
        ] {
            check(&routes, method, uri, header, expected);
        }
    }

    #[test]
    fn answers_of_the_gateways_own_are_in_the_callers_dialect() {
        let named = Routes::Named(vec![
            served("anthropic", &["anthropic"]),
            served("openai", &["openai-chat", "openai-responses"]),
            served("gemini", &["gemini"]),
            served("bare", &[]),
        ]);
        let single = Routes::Single(served("up", &["anthropic", "openai-chat"]));
        for (routes, method, uri, header, expected) in [
            (&named, "POST", "/v1/messages", "", "anthropic"),
            (&named, "POST", "/v1/messages", "authorization", "anthropic"),
            (&named, "GET", "/v1/chat/completions", "", "openai-chat"),
            (&named, "GET", "/v1/responses", "upgrade", "openai-responses"),
            (&named, "GET", "/v1/responses/resp_1", "", "openai-responses"),
            (&named, "POST", "/openai/v1/responses/compact", "", "openai-responses"),
            (&named, "POST", "/v1beta/models/m:embedContent", "", "gemini"),
            (&named, "GET", "/gemini/v1beta/models", "", "gemini"),
            (&named, "GET", "/gemini/v1/models", "", "gemini"),
            (&named, "GET", "/gemini/v1/models", "authorization", "gemini"),
            (&named, "GET", "/openai/v1/models", "", "openai-chat"),
            (&named, "GET", "/bare/v1/models", "", "anthropic"),
            (&named, "GET", "/v1/models", "authorization", "openai-chat"),
            (&named, "GET", "/v1/models", "x-goog-api-key", "gemini"),
            (&named, "GET", "/v1/models", "", "anthropic"),
            (&single, "GET", "/v1/models", "authorization", "openai-chat"),
            (&single, "GET", "/v1/models", "x-goog-api-key", "anthropic"),
            (&single, "POST", "/gw/v1/responses", "", "openai-responses"),
        ] {
            let spoken = routes.spoken(&head(method, uri, header));
            assert_eq!(spoken.name(), expected, "{method} {uri} {header}");
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

    #[test]
    fn resellers() {
        let routes = Routes::Single(served("up", &["anthropic"]));
        let vertex = "/v1/projects/p/locations/l/publishers/anthropic/models";
        let signed = "authorization: AWS4-HMAC-SHA256 Credential=x";
        for (path, header, how) in [
            (format!("{vertex}/claude-x@20260101:streamRawPredict"), "authorization: Bearer ya29.x", "read"),
            (format!("{vertex}/claude-x:rawPredict"), "", "read"),
            (format!("{vertex}/count-tokens:rawPredict"), "", "read"),
            ("/v1/projects/p/publishers/mistralai/models/m:rawPredict".to_owned(), "", "forward"),
            ("/model/anthropic.claude-x-v1%3A0/invoke".to_owned(), "authorization: Bearer x", "read"),
            ("/model/anthropic.claude-x-v1%3A0/invoke-with-response-stream".to_owned(), "", "read"),
            ("/model/anthropic.claude-x-v1%3A0/invoke".to_owned(), signed, "forward"),
            ("/model/anthropic.claude-x-v1%3A0/converse".to_owned(), "", "forward"),
            ("/v1/messages".to_owned(), "authorization: signature keyId=x", "forward"),
            ("/v1/messages".to_owned(), "authorization: Signatures", "read"),
            ("/v1/messages".to_owned(), "content-digest: sha-256=:eA==:", "forward"),
            ("/v1/messages".to_owned(), "Repr-Digest: sha-256=:eA==:", "forward"),
            ("/v1/messages".to_owned(), "digest: SHA-256=eA==", "forward"),
            ("/v1/messages".to_owned(), "content-md5: eA==", "forward"),
            ("/v1/messages".to_owned(), "signature-input: x=()", "forward"),
            ("/v1/messages".to_owned(), "x-amz-content-sha256: UNSIGNED-PAYLOAD", "forward"),
        ] {
            check(&routes, "POST", &path, header, &format!("{how} up {path}"));
        }
    }
}
