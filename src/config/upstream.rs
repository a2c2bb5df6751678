//! `[upstream.NAME]`: where requests go.
//!
//! The providers' own addresses are built in. An entry of the file with a built-in name changes the fields it
//! gives; any other name adds an upstream. Header values never appear in debug output.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::header::{self, HeaderName, HeaderValue};
use toml::de::DeValue;

use super::Listen;
use super::environment::Environment;
use super::section::Section;
use super::value::{Fault, FromValue, Word, alternatives, chosen};
use crate::protocol::dialect::Server;
use crate::protocol::{self, Ask, Dialect};
use crate::upstream::{BaseUrl, Proxy, ProxyError, Timeouts, UnusableProxy, Variables};

/// A server that requests are sent to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// Its name: selected by a path that begins with `/NAME/`.
    pub name: String,
    /// Where it is.
    pub base_url: BaseUrl,
    /// The protocols whose requests are read; everything else streams through.
    pub protocols: Vec<Protocol>,
    /// Headers of every request, in place of the client's own of that name. Marked sensitive.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// How long connecting to one of its addresses may take.
    pub connect_timeout: Duration,
    /// How long it may send nothing within an answer.
    pub idle_timeout: Duration,
    /// How long the head of an answer may take, from the last piece of the request on, and the next piece of that.
    pub response_timeout: Duration,
    /// Whether streams are asked for their usage where the client did not ask.
    pub include_usage: bool,
    /// What key of the provider's cache is given to requests without one.
    pub cache_key: CacheKey,
    /// Whether it passes marks for the provider's cache on to Claude's; `None`: where that is known of it.
    pub cache_marks: Option<bool>,
    /// Certificates (PEM) that are trusted besides the system's.
    pub ca_file: Option<PathBuf>,
    /// What connections to it go through.
    pub proxy: Proxied,
}

/// Whether there is a proxy on the way to an upstream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Proxied {
    /// The one that the environment names for it, if any.
    #[default]
    ByEnvironment,
    /// There is none.
    Never,
    /// This one.
    By(Proxy),
}

/// A key of the provider's cache: it goes into the choice of the machine that a request is brought to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheKey {
    /// Requests are left without.
    None,
    /// The same for all: what begins alike comes to the same machine, as it does without.
    Shared,
    /// Another one for each conversation.
    Conversation,
}

/// A wire dialect, by the name that it has in the configuration and the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Protocol(&'static str);

impl Upstream {
    /// What of it leads back to who listens there, and so is asked without end: the key, and where that leads.
    pub fn looped(&self, listen: &Listen) -> Option<(&'static str, String)> {
        match &self.proxy {
            _ if listen.is_at(&self.base_url) => Some(("base_url", self.base_url.to_string())),
            Proxied::By(proxy) if listen.is_proxy(proxy) => Some(("proxy", proxy.to_string())),
            _ => None,
        }
    }

    /// Whether requests of a protocol may be read on their way there: it speaks it, or one that is spoken by the same servers.
    /// Clients send such dialects to each other's paths.
    pub(super) fn may_get(&self, protocol: Protocol) -> bool {
        let servers = protocol::servers();
        let together = |one: Protocol, other: Protocol| {
            let speaks =
                |all: &[&dyn protocol::Protocol], it: Protocol| all.iter().any(|own| own.name() == it.0);
            servers.iter().any(|(_, all)| speaks(all, one) && speaks(all, other))
        };
        self.protocols.iter().any(|spoken| *spoken == protocol || together(*spoken, protocol))
    }

    /// What becomes of requests where its address ends as their paths begin. It is right only for clients that leave that
    /// out.
    pub(super) fn repeats(&self) -> Option<String> {
        let end = self.base_url.path().rsplit('/').next()?;
        let ask = Ask { model: "MODEL", text: "", max_tokens: 1, like: None };
        let asked = |spoken: &Protocol| Some(protocol::named(spoken.0)?.ask(&ask).path);
        let path =
            self.protocols.iter().filter_map(asked).find(|path| path.split('/').nth(1) == Some(end))?;
        Some(format!("ends in `/{end}`, and whole paths go behind it: `{path}` to {}{path}", self.base_url))
    }

    /// Whether it is at the host of a provider that is built in.
    pub fn is_at_provider(&self) -> bool {
        let host = format!("//{}", self.base_url.domain());
        protocol::servers().iter().any(|(server, _)| server.base_url.ends_with(&host))
    }

    /// The keys in which it differs from another one, `base_url` apart.
    fn changed(&self, other: &Self) -> Vec<&'static str> {
        let keys = [
            ("protocols", self.protocols != other.protocols),
            ("headers", self.headers != other.headers),
            ("connect_timeout", self.connect_timeout != other.connect_timeout),
            ("idle_timeout", self.idle_timeout != other.idle_timeout),
            ("response_timeout", self.response_timeout != response_timeout(self.idle_timeout)),
            ("include_usage", self.include_usage != other.include_usage),
            ("cache_key", self.cache_key != usual_key(&self.base_url)),
            ("cache_marks", self.cache_marks != other.cache_marks),
            ("ca_file", self.ca_file != other.ca_file),
            ("proxy", self.proxy != other.proxy),
        ];
        keys.into_iter().filter(|(_, is_changed)| *is_changed).map(|(key, _)| key).collect()
    }

    /// What a file says of it, by its keys: where it is, if it is built in, and the rest.
    fn said(&self) -> (Option<String>, Vec<String>) {
        let name = &self.name;
        let Some((server, protocols)) =
            protocol::servers().into_iter().find(|(server, _)| server.name == *name)
        else {
            return (None, vec![format!("upstream.{name}")]);
        };
        let built_in = Entry::default().at(server, &protocols);
        let is_moved = self.base_url != built_in.base_url;
        let keys = self.changed(&built_in).into_iter().map(|key| format!("upstream.{name}.{key}"));
        (is_moved.then(|| format!("upstream.{name}.base_url")), keys.collect())
    }

    /// The proxy on the way to it, where the environment says that of proxies and the gateway listens there.
    ///
    /// # Errors
    /// When the environment names one that cannot be used: there is none then.
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

/// How requests find their upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Upstreams {
    /// By the `/NAME/` that a path begins with, else the first one that speaks the request's protocol. The
    /// built-in ones come first, then those of the file in its order.
    Named(Vec<Upstream>),
    /// All requests, whatever their path, go to this one; no path has a name taken off.
    Single(Box<Upstream>),
}

impl Upstreams {
    /// All of them.
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

    /// Why the gateway cannot ask the upstream of that name anything of its own.
    pub(super) fn cannot_be_asked(&self, name: &str) -> Option<String> {
        match self.named(name) {
            None => Some(format!("there is no upstream `{name}`")),
            Some(upstream) if upstream.protocols.is_empty() => {
                Some(format!("`upstream.{name}.protocols` is empty: it cannot be asked"))
            }
            Some(_) => None,
        }
    }

    /// What a file says of them besides where the built-in ones are, by its keys: what does not hold where everything goes
    /// to one address.
    pub(super) fn said(&self) -> Vec<String> {
        self.as_slice().iter().flat_map(|upstream| upstream.said().1).collect()
    }

    /// The path below which the gateway asks `url` as the upstream `like` is asked, which an agent was to ask itself, and
    /// the keys of the file that do not hold there. What is at the upstream's own server has its settings, and its name
    /// where it is below its address. Any other one, called `name`, speaks what that speaks, and has nothing else of it:
    /// headers may be keys.
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
            let (place, keys) = own.said();
            let unused = place.into_iter().chain(keys).collect();
            (Entry::default().resolve(name, url, own.protocols.clone()), unused)
        };
        list.push(other);
        (path, unused)
    }

    /// Everything to one address, with default timeouts.
    pub(super) fn single(base_url: BaseUrl) -> Self {
        let protocols = Protocol::all().collect();
        Self::Single(Box::new(Entry::default().resolve("upstream", base_url, protocols)))
    }
}

impl Word for CacheKey {
    const WORDS: &'static [(&'static str, Self)] =
        &[("none", Self::None), ("shared", Self::Shared), ("conversation", Self::Conversation)];
}

impl Protocol {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> + Clone {
        protocol::ALL.iter().map(|protocol| Self(protocol.name()))
    }

    /// The name it has in the configuration and the ledger.
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

/// Names that would swallow paths that clients send to servers of any dialect. What each dialect's own begin with is
/// reserved too.
const RESERVED: &[&str] = &["health", "metrics"];

/// Headers that belong to one connection or one message.
const NOT_SETTABLE: &[HeaderName] = &[
    header::CONNECTION,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::HOST,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// What is expected of `proxy`.
const PROXY: &str = "\"environment\", \"none\", or a proxy such as \"http://proxy.example:3128\"";

const SECOND: Duration = Duration::from_secs(1);

/// An entry as it was written.
#[derive(Default)]
struct Entry {
    base_url: Option<BaseUrl>,
    protocols: Option<Vec<Protocol>>,
    headers: Option<Vec<(HeaderName, HeaderValue)>>,
    connect_timeout: Option<Duration>,
    idle_timeout: Option<Duration>,
    response_timeout: Option<Duration>,
    include_usage: bool,
    cache_key: Option<CacheKey>,
    cache_marks: Option<bool>,
    ca_file: Option<PathBuf>,
    proxy: Option<Proxied>,
}

impl Entry {
    /// On top of a server that is built in.
    fn at(self, server: &Server, protocols: &[&dyn protocol::Protocol]) -> Upstream {
        let base_url = server.base_url.parse().expect("the built-in base URLs are URLs");
        let protocols = protocols.iter().map(|protocol| Protocol(protocol.name())).collect();
        self.resolve(server.name, base_url, protocols)
    }

    fn resolve(self, name: &str, base_url: BaseUrl, protocols: Vec<Protocol>) -> Upstream {
        let base_url = self.base_url.unwrap_or(base_url);
        let usual = Timeouts::default();
        let idle_timeout = self.idle_timeout.unwrap_or(usual.idle);
        Upstream {
            name: name.to_owned(),
            cache_key: self.cache_key.unwrap_or_else(|| usual_key(&base_url)),
            cache_marks: self.cache_marks,
            base_url,
            protocols: self.protocols.unwrap_or(protocols),
            headers: self.headers.unwrap_or_default(),
            connect_timeout: self.connect_timeout.unwrap_or(usual.connect),
            idle_timeout,
            response_timeout: self.response_timeout.unwrap_or_else(|| response_timeout(idle_timeout)),
            include_usage: self.include_usage,
            ca_file: self.ca_file,
            proxy: self.proxy.unwrap_or_default(),
        }
    }
}

/// A shared key costs no conversation what another one has left in the cache.
fn usual_key(base_url: &BaseUrl) -> CacheKey {
    let takes_keys = |dialect: &Dialect| dialect.keyed.contains(&base_url.domain());
    let is_known = protocol::ALL.iter().any(|protocol| takes_keys(protocol.dialect()));
    if is_known { CacheKey::Shared } else { CacheKey::None }
}

/// Reads the table of upstreams, which is a key of the root. None may be where the gateway listens, if that is known.
pub(super) fn read(root: &mut Section<'_, '_>, listen: Option<&Listen>) -> Upstreams {
    let mut written =
        root.entries("upstream", "NAME", |name, section| (name.to_owned(), entry(name, section, listen)));
    let mut list = Vec::new();
    for (server, protocols) in protocol::servers() {
        let at = written.iter().position(|(written, _)| written == server.name);
        let entry = at.map(|at| written.remove(at).1).unwrap_or_default();
        list.push(entry.at(server, &protocols));
    }
    for (name, mut entry) in written {
        // Without a base URL a problem is on record, and the list is not used.
        if let Some(base_url) = entry.base_url.take() {
            list.push(entry.resolve(&name, base_url, Vec::new()));
        }
    }
    Upstreams::Named(list)
}

fn entry(name: &str, section: &mut Section<'_, '_>, listen: Option<&Listen>) -> Entry {
    if let Err((message, hint)) = check_name(name) {
        section.problem_here(message, Some(hint));
    }
    let is_built_in = |dialect: &Dialect| dialect.servers.iter().any(|server| server.name == name);
    if !protocol::ALL.iter().any(|protocol| is_built_in(protocol.dialect())) {
        section.require("base_url", "missing, a new upstream must say where it is");
        section.require("protocols", "missing, a new upstream must say what it speaks");
    }
    let usual = Timeouts::default();
    let connect_timeout = section.within("connect_timeout", SECOND / 1000..=600 * SECOND, usual.connect);
    let idle_timeout = section.within("idle_timeout", SECOND..=86_400 * SECOND, usual.idle);
    let head = response_timeout(idle_timeout);
    let response_timeout = section.within("response_timeout", SECOND..=2 * 86_400 * SECOND, head);
    let base_url = section.optional::<BaseUrl>("base_url");
    if let Some(url) = base_url.as_ref().filter(|url| listen.is_some_and(|listen| listen.is_at(url))) {
        section.problem("base_url", format!("{url} is the gateway itself"), None);
    }
    let proxy = section.parse("proxy", || PROXY.into(), proxied);
    if let Some(Proxied::By(own)) = proxy.as_ref()
        && listen.is_some_and(|listen| listen.is_proxy(own))
    {
        section.problem("proxy", format!("{own} is the gateway itself"), None);
    }
    Entry {
        base_url,
        protocols: section.list("protocols"),
        headers: headers(section),
        connect_timeout: Some(connect_timeout),
        idle_timeout: Some(idle_timeout),
        response_timeout: Some(response_timeout),
        include_usage: section.value("include_usage", false),
        cache_key: section.optional("cache_key"),
        cache_marks: section.optional("cache_marks"),
        ca_file: ca_file(section),
        proxy,
    }
}

/// The value of a key, or the content of the variable that it names. No message quotes either.
fn proxied(value: &DeValue<'_>, environment: &dyn Environment) -> Result<Proxied, Fault> {
    let (text, variable) = match value.as_str().ok_or(Fault::UNEXPECTED)? {
        "environment" => return Ok(Proxied::ByEnvironment),
        "none" => return Ok(Proxied::Never),
        text => content(text, environment)?,
    };
    if text.is_empty() {
        return Ok(Proxied::Never);
    }
    let said = |error: ProxyError| match variable {
        None => error.to_string(),
        Some(variable) => format!("the content of `{variable}`: {error}"),
    };
    text.parse().map(Proxied::By).map_err(|error| Fault::Said(said(error)))
}

/// What the environment says of proxies.
pub(super) fn proxies(environment: &dyn Environment) -> Variables {
    // One that is empty is as if it were not set.
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
        section.problem("ca_file", reason, None);
    }
    Some(file)
}

/// What holds for the head of an answer where only the silence within one is set: an answer that is not streamed is
/// made in silence as a whole.
fn response_timeout(idle_timeout: Duration) -> Duration {
    idle_timeout * 3 / 2
}

/// Names stand in paths: `/NAME/v1/messages`. The error is a message and a hint.
fn check_name(name: &str) -> Result<(), (String, String)> {
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
    if name.is_empty() || !name.bytes().all(fits) {
        let hint = "names are made of a-z, 0-9, `_` and `-`";
        return Err(("this name cannot stand in a path".to_owned(), hint.to_owned()));
    }
    let version = name.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let begins_paths = |dialect: &Dialect| dialect.segments.contains(&name);
    let reserved =
        RESERVED.contains(&name) || protocol::ALL.iter().any(|protocol| begins_paths(protocol.dialect()));
    if version || reserved {
        let message = format!("this name is reserved: clients send paths that begin with `/{name}/`");
        return Err((message, "give it another name".to_owned()));
    }
    Ok(())
}

fn headers(section: &mut Section<'_, '_>) -> Option<Vec<(HeaderName, HeaderValue)>> {
    let mut seen = Vec::new();
    section.pairs("headers", |name, value, environment| {
        let value = header_value(value, environment)?;
        let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else {
            return Err(Fault::Said("this is no header name".to_owned()));
        };
        if NOT_SETTABLE.contains(&name) {
            return Err(Fault::Said("this header is the gateway's own business".to_owned()));
        }
        if seen.contains(&name) {
            return Err(Fault::Said("set twice: the case of a header's name does not matter".to_owned()));
        }
        seen.push(name.clone());
        Ok((name, value))
    })
}

/// A text itself, or the content of the variable that it names.
fn content<'t>(text: &'t str, environment: &dyn Environment) -> Result<(String, Option<&'t str>), Fault> {
    let Some(variable) = text.strip_prefix("env:") else { return Ok((text.to_owned(), None)) };
    let unset = || Fault::Said(format!("the environment variable `{variable}` is not set"));
    Ok((environment.secret(variable).ok_or_else(unset)?, Some(variable)))
}

/// A header's value, or the variable that holds it. No message quotes either. A variable that is empty is a mistake: it
/// would take away the client's own.
fn header_value(value: &DeValue<'_>, environment: &dyn Environment) -> Result<HeaderValue, Fault> {
    let text = value.as_str().ok_or_else(|| Fault::no_string(value))?;
    let (text, variable) = content(text, environment)?;
    if let Some(variable) = variable.filter(|_| text.trim().is_empty() && environment.tells_secrets()) {
        return Err(Fault::Said(format!("the environment variable `{variable}` is empty")));
    }
    let source =
        variable.map_or_else(|| "this".to_owned(), |variable| format!("the content of `{variable}`"));
    let mut value = HeaderValue::from_str(text.trim())
        .map_err(|_| Fault::Said(format!("{source} cannot be a header's value")))?;
    value.set_sensitive(true);
    Ok(value)
}
