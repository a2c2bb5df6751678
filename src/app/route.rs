//! Routing: decides where requests go, by the dialects' tables of paths and headers. No dialect is named here.

use std::borrow::Cow;
use std::sync::Arc;

use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};

use crate::config::{self, CacheKey};
use crate::protocol::dialect::{Dialect, Sign, SignKind};
use crate::protocol::{self, Protocol, Purpose};
use crate::server::{Fault, Route, Target};
use crate::upstream::Upstream;

/// Headers that hold a digest of the body, or say what a signature covers.
static DIGEST_HEADERS: [HeaderName; 6] = [
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("signature-input"),
    HeaderName::from_static("x-amz-content-sha256"),
];

/// The most headers of an announced request that are looked at: a map of headers has a limit.
const MAX_ANNOUNCED: usize = 100;

/// The shortest first segment that can be a misspelt name: any two shorter ones are alike.
const MIN_MISSPELT: usize = 3;

/// The query parameter that holds a signature of the body.
const SIGNATURE_PARAMETER: &str = "x-amz-signature";

/// The beginnings of `authorization` headers that hold a signature of the body.
const SIGNATURE_SCHEMES: &[&str] = &["AWS4-", "Signature "];

/// The dialect and purpose of a path.
pub(super) fn dialect(method: &Method, path: &str) -> Option<(&'static dyn Protocol, Purpose)> {
    if method == Method::POST { entry(path) } else { None }
}

fn entry(path: &str) -> Option<(&'static dyn Protocol, Purpose)> {
    let path = path.strip_suffix('/').unwrap_or(path);
    first(|dialect| Some(dialect.paths.iter().find(|row| row.fits(path))?.purpose))
}

/// The first protocol of whose dialect something is found, and what that is.
fn first<T>(find: impl Fn(&'static Dialect) -> Option<T>) -> Option<(&'static dyn Protocol, T)> {
    protocol::ALL.iter().find_map(|protocol| Some((*protocol, find(protocol.dialect())?)))
}

/// The dialect of a path that fetches an answer begun by an earlier request, and that answer's id.
pub(super) fn later_answer(path: &str) -> Option<(&'static dyn Protocol, &str)> {
    let path = path.strip_suffix('/').unwrap_or(path);
    first(|dialect| dialect.later.iter().find_map(|row| row.id(path)))
}

/// An upstream and the dialects it speaks.
#[derive(Debug, Clone)]
pub(super) struct Served {
    pub(super) upstream: Arc<Upstream>,
    pub(super) dialects: Vec<String>,
    /// Whether the gateway asks for usage in streams.
    pub(super) include_usage: bool,
    /// The cache key to add to requests.
    pub(super) cache_key: CacheKey,
    /// Whether it passes cache marks on to Claude's provider, if the configuration says so.
    pub(super) cache_marks: Option<bool>,
}

impl Served {
    fn speaks(&self, dialect: &str) -> bool {
        self.dialects.iter().any(|name| name == dialect)
    }
}

/// All upstreams.
#[derive(Debug)]
pub(super) enum Routes {
    /// Every request goes to this upstream, with its path as it came.
    Single(Served),
    /// A request goes to the upstream that the first segment of its path names, else to one that speaks its dialect.
    Named(Vec<Served>),
}

impl Routes {
    /// The upstream with this name.
    pub(super) fn named(&self, name: &str) -> Option<&Served> {
        self.all().iter().find(|served| served.upstream.name() == name)
    }

    pub(super) fn all(&self) -> &[Served] {
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
            Some((protocol, _)) if served.speaks(protocol.name()) && !is_signed(head) => Route::Read(target),
            _ => Route::Forward(target),
        }
    }

    /// The dialect of an answer that the gateway itself gives: that of the path, whatever the method; else the one that
    /// the headers indicate, if the upstream speaks it; else the first one that the upstream speaks.
    pub(super) fn spoken(&self, head: &Parts) -> &'static dyn Protocol {
        let (served, path) = match self {
            Self::Single(served) => (Some(served), None),
            Self::Named(all) => by_prefix(all, head).unzip(),
        };
        let path = path.as_ref().map_or_else(|| head.uri.path(), PathAndQuery::path);
        let of_path = || {
            entry(path).map(|(protocol, _)| protocol).or_else(|| owner(path).map(|(protocol, _)| protocol))
        };
        let of_headers = || {
            let is_spoken =
                |protocol: &&dyn Protocol| served.is_none_or(|served| served.speaks(protocol.name()));
            indicated(&head.headers).filter(is_spoken)
        };
        let of_upstream = || protocol::named(served?.dialects.first()?);
        of_path().or_else(of_headers).or_else(of_upstream).unwrap_or(protocol::ALL[0])
    }

    /// The first segment of a path that names no upstream, and the name that it resembles.
    pub(super) fn misspelt<'a>(&'a self, head: &'a Parts) -> Option<(&'a str, &'a str)> {
        let Self::Named(all) = self else { return None };
        let (_, segment) = first_segment(head)?;
        if segment.len() < MIN_MISSPELT
            || !config::may_name_upstream(&segment.to_ascii_lowercase())
            || by_prefix(all, head).is_some()
        {
            return None;
        }
        let names: Vec<&str> = all.iter().map(|served| served.upstream.name()).collect();
        Some((segment, config::nearest(segment, &names)?))
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
    let (whole, segment) = first_segment(head)?;
    let named =
        |is_it: fn(&str, &str) -> bool| all.iter().find(|served| is_it(served.upstream.name(), segment));
    let served = named(|name, segment| name == segment).or_else(|| named(str::eq_ignore_ascii_case))?;
    let rest = &whole[segment.len()..];
    let rest = if rest.starts_with('/') { rest.parse() } else { format!("/{rest}").parse() };
    Some((served, rest.ok()?))
}

/// A path and its query, without the slash in front, and the first segment of it.
fn first_segment(head: &Parts) -> Option<(&str, &str)> {
    // A slip, such as a slash that is there twice, must not send a prompt to another provider.
    let whole = head.uri.path_and_query()?.as_str().trim_start_matches('/');
    Some((whole, whole.split(['/', '?']).next()?))
}

fn by_dialect<'a>(all: &'a [Served], head: &Parts) -> Option<&'a Served> {
    let path = head.uri.path();
    let preflight = announced(head);
    let (method, headers) =
        preflight.as_ref().map_or((&head.method, &head.headers), |(method, headers)| (method, headers));
    let read = || Some(dialect(method, path)?.0);
    // The owner of the path comes first: below its own paths, a provider may speak another dialect than its own.
    let (owner, server) = owner(path).unzip();
    let protocol = owner.or_else(read).or_else(|| indicated(headers))?;
    let named = server.flatten().and_then(|name| all.iter().find(|served| served.upstream.name() == name));
    named.or_else(|| all.iter().find(|served| served.speaks(protocol.name())))
}

/// The method and the headers, without their values, of the request that a browser's preflight asks leave for; `None`
/// if this is no preflight. Only the server of that request can answer.
fn announced(head: &Parts) -> Option<(Method, HeaderMap)> {
    let method = head.headers.get(header::ACCESS_CONTROL_REQUEST_METHOD);
    let method = method.filter(|_| head.method == Method::OPTIONS)?;
    let lists = head.headers.get_all(header::ACCESS_CONTROL_REQUEST_HEADERS).iter();
    let names = lists.flat_map(|list| list.as_bytes().split(|byte| *byte == b','));
    let names = names.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok());
    let headers = names.take(MAX_ANNOUNCED).map(|name| (name, HeaderValue::from_static(""))).collect();
    Some((Method::from_bytes(method.as_bytes()).ok()?, headers))
}

/// Whether a header or the query authenticates the exact bytes of the body, by a signature or a digest.
fn is_signed(head: &Parts) -> bool {
    let (headers, query) = (&head.headers, head.uri.query().unwrap_or_default());
    let scheme = headers.get(header::AUTHORIZATION).map_or(&b""[..], HeaderValue::as_bytes);
    let is_signature = |pair: &str| {
        pair.split('=').next().is_some_and(|name| name.eq_ignore_ascii_case(SIGNATURE_PARAMETER))
    };
    query.split('&').any(is_signature)
        || DIGEST_HEADERS.iter().any(|name| headers.contains_key(name))
        || SIGNATURE_SCHEMES.iter().any(|start| {
            scheme.get(..start.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(start.as_bytes()))
        })
}

/// The dialect whose provider owns the beginning of this path, and the upstream if that is not the dialect's first.
fn owner(path: &str) -> Option<(&'static dyn Protocol, Option<&'static str>)> {
    first(|dialect| Some(dialect.prefixes.iter().find(|row| path.starts_with(row.start))?.server))
}

/// The dialect indicated by the headers.
fn indicated(headers: &HeaderMap) -> Option<&'static dyn Protocol> {
    let is_there = |sign: &Sign| {
        let value = headers.get(sign.header).and_then(|value| value.as_bytes().get(..sign.begins.len()));
        value.is_some_and(|value| value.eq_ignore_ascii_case(sign.begins.as_bytes()))
    };
    let of_kind =
        |kind| first(|dialect| dialect.signs.iter().find(|sign| sign.kind == kind && is_there(sign)));
    SignKind::ALL.into_iter().find_map(of_kind).map(|(protocol, _)| protocol)
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
            cache_marks: None,
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
    fn named_upstreams_are_chosen_by_path_and_headers() {
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
            ("POST", "/v1/completions", "", "read openai /v1/completions"),
            ("POST", "/v1/embeddings", "authorization", "read openai /v1/embeddings"),
            ("GET", "/v1/embeddings", "authorization", "forward openai /v1/embeddings"),
            (
                "POST",
                "/v1beta/openai/embeddings",
                "authorization",
                "forward gemini /v1beta/openai/embeddings",
            ),
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
            ("POST", "//local/v1/chat/completions", "", "read local /v1/chat/completions"),
            ("POST", "/Local//v1/chat/completions", "", "read local //v1/chat/completions"),
            ("POST", "//v1/messages", "", "read anthropic //v1/messages"),
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
    fn first_segments_that_resemble_an_upstream_are_recognised() {
        let routes = Routes::Named(vec![
            served("anthropic", &["anthropic"]),
            served("code-assist", &["gemini"]),
            served("local", &["openai-chat"]),
            served("w2", &["openai-chat"]),
            served("aip", &["openai-chat"]),
        ]);
        for (uri, expected) in [
            ("/locla/v1/messages", Some(("locla", "local"))),
            ("/Locl/v1/chat/completions?x", Some(("Locl", "local"))),
            ("//antropic//v1/messages", Some(("antropic", "anthropic"))),
            ("/code_assist?x", Some(("code_assist", "code-assist"))),
            ("/local/v1/messages", None),
            ("/LOCAL/v1/messages", None),
            ("/team-a/v1/messages", None),
            // What clients send to servers of some dialect.
            ("/v1/messages", None),
            ("/v2/chat/completions", None),
            ("/api/hello", None),
            // Any two of so few letters are alike.
            ("/w3/v1/messages", None),
            ("/", None),
        ] {
            assert_eq!(routes.misspelt(&head("POST", uri, "")), expected, "{uri}");
        }
        let single = Routes::Single(served("local", &["anthropic"]));
        assert_eq!(single.misspelt(&head("POST", "/locla/v1/messages", "")), None);
    }

    /// A preflight has none of the request's own headers, only their names.
    #[test]
    fn preflights_go_where_the_request_that_they_announce_would_go() {
        let routes = Routes::Named(vec![
            served("anthropic", &["anthropic"]),
            served("openai", &["openai-chat", "openai-responses"]),
            served("gemini", &["gemini"]),
        ]);
        // More than a map of headers holds.
        let many = (0..40_000).map(|at| format!("x{at}")).collect::<Vec<_>>().join(",");
        for (uri, method, headers, expected) in [
            ("/v1/chat/completions", "POST", "authorization,content-type", Some("openai")),
            ("/v1/chat/completions", "POST", "", Some("openai")),
            ("/v1/messages?beta=true", "POST", "x-api-key,anthropic-version", Some("anthropic")),
            ("/v1/messages", "POST", "authorization", Some("anthropic")),
            ("/v1/responses", "POST", "authorization", Some("openai")),
            ("/v1beta/models/m:generateContent", "POST", "", Some("gemini")),
            ("/v1/models", "GET", "authorization,content-type", Some("openai")),
            ("/v1/models", "GET", "Content-Type, X-Api-Key", Some("anthropic")),
            ("/v1/models", "GET", "x-goog-api-key", Some("gemini")),
            // As for a request without any of these.
            ("/v1/models", "GET", "content-type", None),
            ("/v1/models", "GET", "no name, \u{e9}", None),
            ("/v1/chat/completions", "DELETE", "authorization", Some("openai")),
            ("/v1/chat/completions", "DELETE", "", None),
            ("/v1/models", "GET", &many, None),
        ] {
            let request = http::Request::builder()
                .method("OPTIONS")
                .uri(uri)
                .header("origin", "https://app.test")
                .header("access-control-request-method", method)
                .header("access-control-request-headers", headers);
            let got = match routes.route(&request.body(()).unwrap().into_parts().0) {
                Route::Forward(target) => {
                    Some(format!("{} {}", target.upstream.name(), target.path_and_query))
                }
                Route::Refuse(fault) => (fault.status != StatusCode::NOT_FOUND).then(String::new),
                Route::Read(_) => Some("read".to_owned()),
            };
            assert_eq!(got, expected.map(|name| format!("{name} {uri}")), "{uri} {method} {headers}");
        }
        // Any other OPTIONS goes by its own headers.
        check(&routes, "OPTIONS", "/v1/chat/completions", "", "refuse 404");
        check(
            &routes,
            "OPTIONS",
            "/v1/chat/completions",
            "x-api-key",
            "forward anthropic /v1/chat/completions",
        );
        check(&routes, "GET", "/v1/models", "access-control-request-method: POST", "refuse 404");
    }

    /// Clients of one dialect send headers of others along with their own.
    #[test]
    fn the_most_specific_header_determines_the_dialect() {
        for (pairs, expected) in [
            (&[("authorization", "Bearer x"), ("x-goog-api-key", "k")][..], Some("gemini")),
            (&[("openai-organization", "o"), ("x-goog-api-key", "k")], Some("gemini")),
            (&[("openai-organization", "o")], Some("openai-chat")),
            (&[("x-goog-api-key", "k"), ("x-api-key", "k")], Some("anthropic")),
            (&[("x-api-key", "k"), ("authorization", "bearer YA29.x")], Some("gemini")),
            (&[("user-agent", "claude-cli/2"), ("authorization", "Bearer ya29.x")], Some("gemini")),
            (&[("user-agent", "Claude-Code/2"), ("x-goog-api-key", "k")], Some("anthropic")),
            (&[("user-agent", "claude"), ("accept", "*/*")], None),
        ] {
            let headers = pairs
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()));
            let spoken = indicated(&headers.collect());
            assert_eq!(spoken.map(Protocol::name), expected, "{pairs:?}");
        }
    }

    #[test]
    fn own_answers_are_in_the_dialect_of_the_caller() {
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
    fn a_single_upstream_receives_every_path() {
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
    fn paths_of_cloud_resellers_are_read_unless_signed() {
        let own = "/v1/projects/p/locations/l/endpoints/7";
        for (path, how) in [
            (format!("{own}:generateContent"), "read"),
            (format!("{own}:streamGenerateContent?alt=sse"), "read"),
            (format!("{own}:countTokens"), "read"),
            (format!("{own}:predict"), "forward"),
            ("/v1beta1/projects/p/locations/l/endpoints/openapi/chat/completions".to_owned(), "read"),
            ("/openai/deployments/d/chat/completions?api-version=1".to_owned(), "read"),
            ("/openai/v1/responses?api-version=preview".to_owned(), "read"),
        ] {
            let routes = Routes::Single(served("up", &["gemini", "openai-chat", "openai-responses"]));
            check(&routes, "POST", &path, "", &format!("{how} up {path}"));
        }
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
            ("/model/claude-x/invoke?X-Amz-Algorithm=AWS4&X-Amz-Signature=x".to_owned(), "", "forward"),
            ("/model/claude-x/invoke?x=X-Amz-Signature".to_owned(), "", "read"),
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
