//! `[upstream.NAME]`: where requests are sent.
//!
//! The providers' own addresses are built in. An entry of the file with a built-in name overrides the fields it gives;
//! any other name adds an upstream. Values of headers never appear in debug output.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderMap;
use http::header::{self, HeaderValue};
use toml::de::DeValue;

use super::Listen;
use super::environment::Environment;
use super::headers::{headers, resolve};
use super::period::{DAY, SECOND};
use super::section::Section;
use super::value::{Fault, FromValue, Word, alternatives, chosen};
use crate::protocol::dialect::Server;
use crate::protocol::{self, Ask, Dialect};
use crate::upstream::{BaseUrl, Proxy, ProxyError, Timeouts, UnusableProxy, Variables};

/// A server that requests are sent to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// Its name. A path that begins with `/NAME/` selects it.
    pub name: String,
    /// Its address.
    pub base_url: BaseUrl,
    /// The protocols whose requests are read; all other requests are streamed through.
    pub protocols: Vec<Protocol>,
    /// Headers set on every request, replacing the client's of the same name. Marked sensitive.
    pub headers: HeaderMap,
    /// How long to wait for it.
    pub timeouts: Timeouts,
    /// Whether streams are asked for their usage if the client did not ask.
    pub include_usage: bool,
    /// Which key for the provider's cache is added to requests without one.
    pub cache_key: CacheKey,
    /// Whether it passes marks for the provider's cache on to Claude's; `None` to go by what is known about it.
    pub cache_marks: Option<bool>,
    /// The file of certificates (PEM) that are trusted in addition to the system's.
    pub ca_file: Option<PathBuf>,
    /// Which proxy connections to it use.
    pub proxy: Proxied,
    /// Whether HTTP/2 is offered to it.
    pub http2: bool,
}

/// Which proxy is used for an upstream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Proxied {
    /// The one that the environment names for it, if any.
    #[default]
    ByEnvironment,
    /// None.
    Never,
    /// This one.
    By(Proxy),
}

/// A key for the provider's cache, which the provider uses when it chooses the machine for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheKey {
    /// Requests are sent without a key.
    None,
    /// One key for all requests: those with the same beginning reach the same machine, as they do without a key.
    Shared,
    /// A different key for each conversation.
    Conversation,
}

/// A wire dialect, by its name in the configuration and the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Protocol(&'static str);

impl Upstream {
    /// An upstream with the default settings.
    fn usual(name: &str, base_url: BaseUrl, protocols: Vec<Protocol>) -> Self {
        Self {
            name: name.to_owned(),
            cache_key: usual_key(&base_url),
            cache_marks: None,
            base_url,
            protocols,
            headers: HeaderMap::new(),
            timeouts: Timeouts::default(),
            include_usage: false,
            ca_file: None,
            proxy: Proxied::default(),
            http2: true,
        }
    }

    /// The key (`base_url` or `proxy`) by which requests to this upstream would come back to the gateway in an endless
    /// loop, and its value; `None` if they would not.
    pub fn looped(&self, listen: &Listen) -> Option<(&'static str, String)> {
        match &self.proxy {
            _ if listen.is_at(&self.base_url) => Some(("base_url", self.base_url.to_string())),
            Proxied::By(proxy) if listen.is_proxy(proxy) => Some(("proxy", proxy.to_string())),
            _ => None,
        }
    }

    /// Whether requests of `protocol` to this upstream are read: if it speaks that protocol, or one that a built-in
    /// server speaks along with it, since clients send either dialect to the paths of the other.
    pub(super) fn reads(&self, protocol: Protocol) -> bool {
        let servers = protocol::servers();
        let together = |one: Protocol, other: Protocol| {
            let speaks =
                |all: &[&dyn protocol::Protocol], it: Protocol| all.iter().any(|own| own.name() == it.0);
            servers.iter().any(|(_, all)| speaks(all, one) && speaks(all, other))
        };
        self.protocols.iter().any(|spoken| *spoken == protocol || together(*spoken, protocol))
    }

    /// A description of the resulting address if `base_url` ends with the segment that the paths of requests begin
    /// with, such as `/v1`, or is itself the address of requests; otherwise `None`. Such an address is right only for
    /// clients that omit that segment, or for none.
    pub(super) fn repeated_path(&self) -> Option<String> {
        let base = self.base_url.path();
        let end = base.rsplit('/').next()?;
        let ask = Ask { model: "MODEL", text: "", max_tokens: 1, like: None };
        let repeated = |spoken: &Protocol| {
            let spoken = protocol::named(spoken.0)?;
            let path = spoken.ask(&ask).path;
            if path.split('/').nth(1) == Some(end) {
                return Some((path, format!("/{end}")));
            }
            let whole = spoken.dialect().paths.iter().find(|row| row.fits(base))?;
            Some((path, whole.end().to_owned()))
        };
        let (path, end) = self.protocols.iter().find_map(repeated)?;
        Some(format!("ends in `{end}`, and whole paths are appended: `{path}` to {}{path}", self.base_url))
    }

    /// Whether its `authorization` is a bare value, such as a key, without the scheme that comes before one.
    pub(super) fn has_bare_authorization(&self) -> bool {
        let value = self.headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        value.is_some_and(|value| !value.contains(&b' '))
    }

    /// Whether it is at the host of a built-in provider.
    pub fn is_at_provider(&self) -> bool {
        let host = format!("//{}", self.base_url.domain());
        protocol::servers().iter().any(|(server, _)| server.base_url.ends_with(&host))
    }

    /// The keys in which it differs from `other`, except `base_url`.
    fn changed_keys(&self, other: &Self) -> Vec<&'static str> {
        let (own, others) = (&self.timeouts, &other.timeouts);
        let keys = [
            ("protocols", self.protocols != other.protocols),
            ("headers", self.headers != other.headers),
            ("connect_timeout", own.connect != others.connect),
            ("idle_timeout", own.idle != others.idle),
            ("response_timeout", own.response != response_timeout(own.idle)),
            ("include_usage", self.include_usage != other.include_usage),
            ("cache_key", self.cache_key != usual_key(&self.base_url)),
            ("cache_marks", self.cache_marks != other.cache_marks),
            ("ca_file", self.ca_file != other.ca_file),
            ("proxy", self.proxy != other.proxy),
            ("http2", self.http2 != other.http2),
        ];
        keys.into_iter().filter(|(_, is_changed)| *is_changed).map(|(key, _)| key).collect()
    }

    /// The keys that a file sets for it: `base_url` if it is built in and was moved, and the others.
    fn keys_set(&self) -> (Option<String>, Vec<String>) {
        let name = &self.name;
        let Some(built_in) = built_in().into_iter().find(|known| known.name == *name) else {
            return (None, vec![format!("upstream.{name}")]);
        };
        let is_moved = self.base_url != built_in.base_url;
        let keys = self.changed_keys(&built_in).into_iter().map(|key| format!("upstream.{name}.{key}"));
        (is_moved.then(|| format!("upstream.{name}.base_url")), keys.collect())
    }

    /// The proxy for it, given the proxies that the environment names and the addresses that the gateway listens at.
    ///
    /// # Errors
    /// If the environment names a proxy that cannot be used; then none is used.
    pub fn proxy(
        &self,
        proxies: &Variables,
        listeners: &[SocketAddr],
    ) -> Result<Option<Proxy>, UnusableProxy> {
        match &self.proxy {
            Proxied::ByEnvironment => Proxy::from_environment(proxies, &self.base_url, listeners),
            Proxied::Never => Ok(None),
            Proxied::By(proxy) => Ok(Some(proxy.clone())),
        }
    }
}

/// How the upstream of a request is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Upstreams {
    /// By the `/NAME/` that its path begins with, or else the first that speaks its protocol. The built-in ones come
    /// first, then those of the file in its order.
    Named(Vec<Upstream>),
    /// All requests go to this one, whatever their path, from which no name is removed.
    Single(Box<Upstream>),
}

impl Upstreams {
    /// All upstreams.
    pub fn as_slice(&self) -> &[Upstream] {
        match self {
            Self::Named(list) => list,
            Self::Single(only) => std::slice::from_ref(&**only),
        }
    }

    /// The upstream of that name.
    pub fn named(&self, name: &str) -> Option<&Upstream> {
        self.as_slice().iter().find(|upstream| upstream.name == name)
    }

    /// Why the gateway cannot send requests of its own to the upstream of that name; `None` if it can.
    pub(super) fn cannot_be_asked(&self, name: &str) -> Option<String> {
        match self.named(name) {
            None => Some(format!("there is no upstream `{name}`")),
            Some(upstream) if upstream.protocols.is_empty() => Some(format!(
                "`upstream.{name}.protocols` is empty, so the gateway itself cannot send requests to it"
            )),
            Some(_) => None,
        }
    }

    /// The keys that a file sets for upstreams, except addresses of the built-in ones: those without effect if all
    /// requests go to one address.
    pub(super) fn keys_set(&self) -> Vec<String> {
        self.as_slice().iter().flat_map(|upstream| upstream.keys_set().1).collect()
    }

    /// Adds a route to `url`, which an agent would have asked directly instead of the upstream `like`. Returns the path
    /// below which it is reached, and the keys of the file that do not apply to it. If the address of `like` is below
    /// `url`, that upstream is used; if it is at the same server, the new upstream has its settings. Otherwise the new
    /// one, called `name`, only speaks the same protocols and inherits nothing else: headers may be keys.
    pub(super) fn leading_to(&mut self, url: BaseUrl, like: &str, name: &str) -> (String, Vec<String>) {
        let path = format!("/{name}");
        let Self::Named(list) = self else { return (path, Vec::new()) };
        let Some(own) = list.iter().find(|upstream| upstream.name == like) else { return (path, Vec::new()) };
        if let Some(below) = own.base_url.below(&format!("{url}/")) {
            return (format!("/{like}{}", below.trim_end_matches('/')), Vec::new());
        }
        let (other, unused) = if own.base_url.is_at_server_of(&url) {
            (Upstream { name: name.to_owned(), base_url: url, ..own.clone() }, Vec::new())
        } else {
            let (place, keys) = own.keys_set();
            let unused = place.into_iter().chain(keys).collect();
            (Upstream::usual(name, url, own.protocols.clone()), unused)
        };
        list.push(other);
        (path, unused)
    }

    /// All requests go to one address, with default timeouts.
    pub(super) fn single(base_url: BaseUrl) -> Self {
        Self::Single(Box::new(Upstream::usual("upstream", base_url, Protocol::all().collect())))
    }
}

impl Word for CacheKey {
    const WORDS: &'static [(&'static str, Self)] =
        &[("none", Self::None), ("shared", Self::Shared), ("conversation", Self::Conversation)];
}

impl Protocol {
    /// All protocols.
    pub fn all() -> impl Iterator<Item = Self> {
        protocol::ALL.iter().map(|protocol| Self(protocol.name()))
    }

    /// Its name in the configuration and the ledger.
    pub fn as_str(self) -> &'static str {
        self.0
    }
}

impl FromValue for Protocol {
    fn expected() -> Cow<'static, str> {
        alternatives(&Self::all().map(Self::as_str).collect::<Vec<_>>()).into()
    }

    fn from_value(value: &DeValue<'_>) -> Result<Self, Fault> {
        chosen(value, Self::all().map(|protocol| (protocol.as_str(), protocol)))
    }
}

/// Names that would capture paths that clients send to servers of any dialect. The first segments of each dialect's own
/// paths are reserved, too.
const RESERVED: &[&str] = &["health", "metrics"];

/// What is expected as the value of `proxy`.
const EXPECTED_PROXY: &str = "\"environment\", \"none\", or a proxy such as \"http://proxy.example:3128\"";

/// The upstreams of the providers, with the default settings.
fn built_in() -> Vec<Upstream> {
    let upstream = |(server, protocols): (&Server, Vec<&dyn protocol::Protocol>)| {
        let base_url = server.base_url.parse().expect("the built-in base URLs are URLs");
        let protocols = protocols.iter().map(|protocol| Protocol(protocol.name())).collect();
        Upstream::usual(server.name, base_url, protocols)
    };
    protocol::servers().into_iter().map(upstream).collect()
}

/// The default key: a shared one, if the provider takes keys, since it takes nothing away from a conversation that
/// another one has left in the cache.
fn usual_key(base_url: &BaseUrl) -> CacheKey {
    let takes_keys = |dialect: &Dialect| dialect.keyed.contains(&base_url.domain());
    let is_known = protocol::ALL.iter().any(|protocol| takes_keys(protocol.dialect()));
    if is_known { CacheKey::Shared } else { CacheKey::None }
}

/// Reads the table of upstreams, which is a key of the root. If `listen` is given, none may lead to the gateway.
pub(super) fn read(root: &mut Section<'_, '_>, listen: Option<&Listen>) -> Upstreams {
    let mut list = built_in();
    let written = root.entries("upstream", "NAME", |name, section| {
        let built_in = list.iter().find(|known| known.name == name);
        entry(name, section, built_in, listen)
    });
    for upstream in written.into_iter().flatten() {
        match list.iter_mut().find(|known| known.name == upstream.name) {
            Some(known) => *known = upstream,
            None => list.push(upstream),
        }
    }
    Upstreams::Named(list)
}

/// Reads an upstream, on top of the built-in one of that name, if there is one. `None` if it has no address, which is
/// reported.
fn entry(
    name: &str,
    section: &mut Section<'_, '_>,
    built_in: Option<&Upstream>,
    listen: Option<&Listen>,
) -> Option<Upstream> {
    if let Err((message, hint)) = check_name(name) {
        section.problem_here_with_hint(message, hint);
    }
    if built_in.is_none() {
        section.require("base_url", "missing; a new upstream needs an address");
        section.require("protocols", "missing; a new upstream needs its protocols");
    }
    let timeouts = timeouts(section);
    let base_url = section.optional::<BaseUrl>("base_url");
    if let Some(url) = base_url.as_ref().filter(|url| listen.is_some_and(|listen| listen.is_at(url))) {
        section.problem("base_url", format!("{url} is the gateway itself"));
    }
    let proxy = section.parse("proxy", || EXPECTED_PROXY.into(), proxied);
    if let Some(Proxied::By(own)) = proxy.as_ref()
        && listen.is_some_and(|listen| listen.is_proxy(own))
    {
        section.problem("proxy", format!("{own} is the gateway itself"));
    }
    let protocols = section.list("protocols");
    let headers = headers(section);
    let include_usage = section.value("include_usage", false);
    let cache_key = section.optional("cache_key");
    let cache_marks = section.optional("cache_marks");
    let ca_file = ca_file(section);
    let http2 = section.value("http2", true);
    let base_url = base_url.or_else(|| Some(built_in?.base_url.clone()))?;
    Some(Upstream {
        name: name.to_owned(),
        cache_key: cache_key.unwrap_or_else(|| usual_key(&base_url)),
        cache_marks,
        base_url,
        protocols: protocols.or_else(|| Some(built_in?.protocols.clone())).unwrap_or_default(),
        headers,
        timeouts,
        include_usage,
        ca_file,
        proxy: proxy.unwrap_or_default(),
        http2,
    })
}

fn timeouts(section: &mut Section<'_, '_>) -> Timeouts {
    let default = Timeouts::default();
    let connect = section.within("connect_timeout", SECOND / 1000..=600 * SECOND, default.connect);
    let idle = section.within("idle_timeout", SECOND..=DAY, default.idle);
    let response = section.within("response_timeout", SECOND..=2 * DAY, response_timeout(idle));
    Timeouts { connect, response, idle, ..default }
}

/// The value of the key, or of the variable that it names. No message quotes either.
fn proxied(value: &DeValue<'_>, environment: &dyn Environment) -> Result<Proxied, Fault> {
    let (text, variable) = match value.as_str().ok_or(Fault::UNEXPECTED)? {
        "environment" => return Ok(Proxied::ByEnvironment),
        "none" => return Ok(Proxied::Never),
        text => resolve(text, environment)?,
    };
    if text.is_empty() {
        return Ok(Proxied::Never);
    }
    let said = |error: ProxyError| match variable {
        None => error.to_string(),
        Some(variable) => format!("the content of `{variable}`: {error}"),
    };
    text.parse().map(Proxied::By).map_err(|error| Fault::Message(said(error)))
}

/// The proxies that the environment names.
pub(super) fn proxies(environment: &dyn Environment) -> Variables {
    // An empty variable counts as not set.
    let set = |name: &&str| environment.variable(name).filter(|value| !value.trim().is_empty());
    let either = |names: [&str; 2]| names.iter().find_map(set);
    Variables {
        https: either(["HTTPS_PROXY", "https_proxy"]),
        http: either(["HTTP_PROXY", "http_proxy"]),
        all: either(["ALL_PROXY", "all_proxy"]),
        none: either(["NO_PROXY", "no_proxy"]),
    }
}

fn ca_file(section: &mut Section<'_, '_>) -> Option<PathBuf> {
    let file = section.path("ca_file")?;
    if let Err(reason) = section.environment().check_ca_file(&file) {
        section.problem("ca_file", reason);
    }
    Some(file)
}

/// The time-out for the head of an answer if only the time-out for silence is set: an answer that is not streamed is
/// generated in silence as a whole.
fn response_timeout(idle_timeout: Duration) -> Duration {
    idle_timeout * 3 / 2
}

/// Whether an upstream may have this name.
pub fn may_name_upstream(name: &str) -> bool {
    check_name(name).is_ok()
}

/// Checks a name, which is used in paths: `/NAME/v1/messages`. The error is a message and a hint.
fn check_name(name: &str) -> Result<(), (String, &'static str)> {
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
    if name.is_empty() || !name.bytes().all(fits) {
        return Err((
            "this name cannot be part of a path".to_owned(),
            "names consist of a-z, 0-9, `_` and `-`",
        ));
    }
    let version = name.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let begins_paths = |dialect: &Dialect| dialect.segments.contains(&name);
    let reserved =
        RESERVED.contains(&name) || protocol::ALL.iter().any(|protocol| begins_paths(protocol.dialect()));
    if version || reserved {
        let message = format!("this name is reserved: clients send paths that begin with `/{name}/`");
        return Err((message, "give it another name"));
    }
    Ok(())
}
