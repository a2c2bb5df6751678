//! Determines who sends a request: the user or a program, or a web page that must not read anything here.
//!
//! No answer permits other origins to read it. But to a browser, a page whose name was made to lead to this machine
//! (DNS rebinding) is not of another origin, and its requests still carry that name. So books and texts are only served
//! for requests by an IP address, by a name that nobody else can own, or by one that the user has listed. `/health` and
//! `/metrics` answer to any name, since probes and Prometheus use the names of services; they contain sums, and nothing
//! about single conversations. Programs can send any name, but they could also read the files.

use std::net::{IpAddr, SocketAddr};

use http::header::{HOST, HeaderName, ORIGIN};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue};

use crate::url::HostName;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Whether the request names an address or host that can only mean a listener at this address: an IP address;
/// `localhost`; if other machines may connect, also a name that nobody can register, such as a container's; or one that
/// is `named`.
pub(super) fn is_addressed_here(head: &Parts, listening: SocketAddr, named: &dyn Fn(&str) -> bool) -> bool {
    let mut hosts = head.headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    let Ok(host) = Authority::try_from(host.as_bytes()) else { return false };
    [Some(&host), head.uri.authority()].into_iter().flatten().all(|name| is_own(name, listening.ip(), named))
}

fn is_own(name: &Authority, listening: IpAddr, named: &dyn Fn(&str) -> bool) -> bool {
    let is_named = || {
        let host = name.host();
        let host = host.strip_suffix('.').unwrap_or(host);
        !name.as_str().contains('@') && named(&host.to_ascii_lowercase())
    };
    match HostName::of(name) {
        HostName::Address | HostName::Localhost => true,
        HostName::Private => !listening.is_loopback() || is_named(),
        HostName::Public => is_named(),
    }
}

/// Whether a page of another origin sent the request.
pub(super) fn is_foreign(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let is_own = |origin: &HeaderValue| {
        let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        origin.is_some_and(|(_, origin)| origin.eq_ignore_ascii_case(host))
    };
    let is_same = |site: &HeaderValue| site == "same-origin" || site == "none";
    !headers.get_all(ORIGIN).iter().all(is_own) || !headers.get_all(FETCH_SITE).iter().all(is_same)
}

/// Whether the request follows a link, from whatever page: the answer is shown in a window that the page cannot read.
pub(super) fn is_link(headers: &HeaderMap) -> bool {
    headers.get(FETCH_DEST).is_some_and(|destination| destination == "document")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::get(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn host_headers_with_foreign_names_are_rejected() {
        let (own, network) = ("127.0.0.1:8788".parse().unwrap(), "0.0.0.0:8788".parse().unwrap());
        for (host, here, on_a_network) in [
            ("127.0.0.1:8788", true, true),
            ("127.0.0.1", true, true),
            ("10.1.2.3:8788", true, true),
            ("[::1]:8788", true, true),
            ("[fe80::1]", true, true),
            ("localhost:8788", true, true),
            ("LocalHost", true, true),
            ("localhost.", true, true),
            ("plimsoll.localhost:8788", true, true),
            ("plimsoll:8788", false, true),
            ("host.docker.internal:8788", false, true),
            ("[::ffff:127.0.0.1]:8788", true, true),
            ("127.0.0.1.", true, true),
            ("evil.example:8788", false, false),
            ("127.0.0.1.evil.example", false, false),
            ("localhost.evil.example", false, false),
            ("notlocalhost.example", false, false),
            ("evil.example.", false, false),
            ("127.0.0.1@evil.example", false, false),
            ("evil.example@127.0.0.1", false, false),
            ("[::1", false, false),
            ("a b", false, false),
            (":8788", false, false),
            ("", false, false),
        ] {
            for (listening, expected) in [(own, here), (network, on_a_network)] {
                let head = head("/", &[("host", host)]);
                assert_eq!(
                    is_addressed_here(&head, listening, &|_| false),
                    expected,
                    "{host} at {listening}"
                );
            }
        }
        for (uri, headers) in [
            ("/", &[][..]),
            ("/", &[("host", "127.0.0.1"), ("host", "evil.example")]),
            ("http://evil.example/", &[("host", "127.0.0.1")]),
        ] {
            assert!(!is_addressed_here(&head(uri, headers), own, &|_| false), "{uri} {headers:?}");
        }
        assert!(is_addressed_here(&head("http://127.0.0.1/", &[("host", "127.0.0.1")]), own, &|_| false));
        let named = |name: &str| name == "books.example" || name == "plimsoll";
        for (host, expected) in [
            ("books.example", true),
            ("Books.Example.:8788", true),
            ("plimsoll:8788", true),
            ("evil.books.example", false),
            ("books.example.evil.example", false),
            ("evil.example@books.example", false),
            ("books.example@evil.example", false),
        ] {
            assert_eq!(is_addressed_here(&head("/", &[("host", host)]), own, &named), expected, "{host}");
        }
    }

    #[test]
    fn cross_origin_requests_are_foreign() {
        const HOST: (&str, &str) = ("host", "127.0.0.1:8788");
        for (headers, foreign) in [
            (&[HOST][..], false),
            (&[HOST, ("origin", "http://127.0.0.1:8788")], false),
            (&[HOST, ("origin", "https://127.0.0.1:8788")], false),
            (&[HOST, ("origin", "http://127.0.0.1:3000")], true),
            (&[HOST, ("origin", "http://127.0.0.1:8788.evil.example")], true),
            (&[HOST, ("origin", "null")], true),
            (&[HOST, ("origin", "")], true),
            (&[HOST, ("origin", "http://127.0.0.1:8788"), ("origin", "http://evil.example")], true),
            (&[HOST, ("sec-fetch-site", "same-origin")], false),
            (&[HOST, ("sec-fetch-site", "none")], false),
            (&[HOST, ("sec-fetch-site", "same-site")], true),
            (&[HOST, ("sec-fetch-site", "cross-site")], true),
            (&[HOST, ("sec-fetch-site", "cross-site"), ("origin", "http://127.0.0.1:8788")], true),
        ] {
            assert_eq!(is_foreign(&head("/", headers).headers), foreign, "{headers:?}");
        }
    }
}
