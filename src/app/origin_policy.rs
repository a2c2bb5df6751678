//! Decides which web pages may send requests that the configuration adds headers to.
//!
//! Any page can make the user's browser send requests to this machine. A request that goes out as it came is no concern
//! of the gateway's, but a header of the configuration may hold a key. Requests without the headers that browsers send
//! are not restricted.

use std::borrow::Cow;
use std::net::IpAddr;

use http::header::{HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};

use crate::conversation::NamePatterns;
use crate::server::Fault;
use crate::upstream::{BaseUrl, Upstream};
use crate::url::HostName;

/// The header in which browsers say where a request comes from, even for requests without an origin such as those for
/// images and links.
const SITE: &str = "sec-fetch-site";

/// The origin of pages that have none, such as sandboxed ones and files.
const NULL: &str = "null";

/// The pages that may send requests with the configuration's headers.
#[derive(Debug)]
pub(super) struct OriginPolicy {
    named: NamePatterns,
    /// Whether the gateway listens on the loopback interface only.
    is_local: bool,
}

impl OriginPolicy {
    /// Allows pages of this machine and pages whose origin matches a pattern. `listening` is the gateway's address.
    pub(super) fn new(named: NamePatterns, listening: IpAddr) -> Self {
        Self { named, is_local: listening.is_loopback() }
    }

    /// The fault that a request is refused with, if it would reach `upstream` with headers of the configuration and
    /// comes from a page that may not use them.
    pub(super) fn refusal(&self, upstream: &Upstream, head: &Parts) -> Option<Fault> {
        if upstream.headers().is_empty() {
            return None;
        }
        let origin = self.forbidden_origin(&head.headers).or_else(|| self.rebound_origin(head))?;
        let origin = if origin.is_empty() { "not told".to_owned() } else { format!("`{origin}`") };
        let name = upstream.name();
        let message = format!(
            "a web page (origin {origin}) may not use what `upstream.{name}.headers` adds to requests; \
             `listen.origins` of the configuration names pages that may"
        );
        Some(Fault::client(StatusCode::FORBIDDEN, message))
    }

    /// The origin of a page that is not allowed; empty if it sends none.
    fn forbidden_origin<'h>(&self, headers: &'h HeaderMap) -> Option<Cow<'h, str>> {
        let is_named = |origin: &str| self.named.matches(origin);
        if headers.contains_key(ORIGIN) {
            let mut origins = headers.get_all(ORIGIN).iter().map(|origin| origin.to_str().unwrap_or(NULL));
            return origins.find(|origin| is_foreign(origin) && !is_named(origin)).map(Cow::from);
        }
        let is_foreign = headers.get_all(SITE).iter().any(|site| site == "cross-site");
        (is_foreign && !is_named("")).then_some(Cow::from(""))
    }

    /// The origin of a page whose host name was made to resolve to this machine (DNS rebinding). The browser takes the
    /// gateway for the page's own server, and sends no origin. A local program whose request names neither an address
    /// nor `localhost` comes through a proxy, whose name can be allowed.
    fn rebound_origin<'h>(&self, head: &'h Parts) -> Option<Cow<'h, str>> {
        let is_read = matches!(head.method, Method::GET | Method::HEAD) && !head.headers.contains_key(ORIGIN);
        if !is_read || !self.is_local {
            return None;
        }
        let host = head.headers.get(HOST)?.to_str().ok().filter(|host| may_be_registered(host))?;
        let origins = ["http", "https"].map(|scheme| format!("{scheme}://{host}"));
        let [origin, _] = &origins;
        (!origins.iter().any(|origin| self.named.matches(origin))).then(|| origin.clone().into())
    }
}

/// Whether a host is a name that anyone may own.
fn may_be_registered(host: &str) -> bool {
    !host.parse().is_ok_and(|host| HostName::of(&host) != HostName::Public)
}

/// Whether an origin is, or may be, that of a web page on another machine. Schemes other than those below belong to
/// programs that the user has installed: extensions of browsers and editors, desktop applications.
fn is_foreign(origin: &str) -> bool {
    let Some((scheme, _)) = origin.split_once("://") else { return origin.eq_ignore_ascii_case(NULL) };
    match &*scheme.to_ascii_lowercase() {
        "http" | "https" => !origin.parse::<BaseUrl>().is_ok_and(|url| url.is_local()),
        // Any file that was downloaded may be opened.
        "file" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_origins_are_recognised() {
        for (origin, expected) in [
            ("http://localhost", false),
            ("http://localhost:3000", false),
            ("https://LOCALHOST:3000", false),
            ("http://app.localhost:5173", false),
            ("http://127.0.0.1:8787", false),
            ("http://127.1.2.3", false),
            ("http://[::1]:3000", false),
            ("http://[::ffff:7f00:1]:3000", false),
            ("http://evil.test", true),
            ("HTTPS://evil.test", true),
            ("http://evil.test:8787", true),
            ("http://localhost.evil.test", true),
            ("http://evillocalhost", true),
            ("http://127.0.0.1.evil.test", true),
            ("http://localhost@evil.test", true),
            ("http://localhost http://evil.test", true),
            ("http://192.168.1.5:3000", true),
            ("http://[2001:db8::1]", true),
            ("https://", true),
            ("null", true),
            ("file://", true),
            ("chrome-extension://abcdefghijklmnopabcdefghijklmnop", false),
            ("moz-extension://0b1f6c5e-0000-4000-8000-000000000000", false),
            ("safari-web-extension://0B1F6C5E", false),
            ("vscode-webview://1c2d3e4f", false),
            ("tauri://localhost", false),
            ("http://tauri.localhost", false),
            ("app://obsidian.md", false),
            ("capacitor://localhost", false),
            ("", false),
        ] {
            assert_eq!(is_foreign(origin), expected, "{origin}");
        }
    }

    #[test]
    fn publicly_registrable_host_names_are_recognised() {
        for (host, expected) in [
            ("127.0.0.1:8787", false),
            ("192.168.1.5", false),
            ("[::1]:8787", false),
            ("[::ffff:127.0.0.1]", false),
            ("[::ffff:127.0.0.1]:8787", false),
            ("127.0.0.1.:8787", false),
            ("localhost:8787", false),
            ("localhost.", false),
            ("app.LOCALHOST:8787", false),
            ("plimsoll:8787", false),
            ("host.docker.internal:8787", false),
            ("internal.evil.test", true),
            ("evil.test:8787", true),
            ("evil.test.", true),
            ("127.0.0.1.evil.test", true),
            ("localhost.evil.test", true),
            ("evil.test/", true),
        ] {
            assert_eq!(may_be_registered(host), expected, "{host}");
        }
    }
}
