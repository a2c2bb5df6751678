//! Rewrites a `Location` on the upstream's own server to the path that leads there through the gateway.
//!
//! With an absolute URL, the client would bypass the gateway, although its credentials may be meant for the gateway
//! only. With a path that is not rewritten, it would ask the gateway, but perhaps for another upstream, with the
//! credentials for this one.

use http::header::LOCATION;
use http::request::Parts;
use http::{HeaderValue, Response, Uri};

use super::exchange::{Gateway, Route, Target};
use super::handler::Handler;
use super::relay::Answer;

impl<G: Gateway> Handler<G> {
    /// The answer, with its `Location` rewritten if necessary.
    pub(super) fn rewrite_location(
        &self,
        head: &Parts,
        target: &Target,
        mut answer: Response<Answer>,
    ) -> Response<Answer> {
        let location = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        if let Some(here) = location.and_then(|location| self.location_here(head, target, location)) {
            answer.headers_mut().insert(LOCATION, here);
        }
        answer
    }

    /// The replacement for `location`; `None` if it can stay. A location below the upstream's base URL becomes the path
    /// by which the gateway forwards to it. A path on the upstream's server that is not below the base URL cannot be
    /// reached through the gateway, and becomes an absolute URL.
    fn location_here(&self, head: &Parts, target: &Target, location: &str) -> Option<HeaderValue> {
        let base = target.upstream.base_url();
        let Some(below) = base.below(location) else {
            return HeaderValue::try_from(base.beside(location)?).ok();
        };
        let requested = head.uri.path_and_query()?.as_str();
        let prefix = requested.strip_suffix(target.path_and_query.as_str()).unwrap_or_default();
        let named = format!("/{}", target.upstream.name());
        let mut paths = [prefix, &named].into_iter().map(|prefix| [prefix, below].concat());
        let path = paths.find(|path| self.leads_to(head, target, path, below))?;
        if path == location { None } else { HeaderValue::try_from(path).ok() }
    }

    /// Whether a request like this one, but for `path`, would be forwarded to the same upstream as `below`.
    fn leads_to(&self, head: &Parts, target: &Target, path: &str, below: &str) -> bool {
        let Ok(uri) = path.parse::<Uri>() else { return false };
        let mut head = head.clone();
        head.uri = uri;
        match self.route(&head) {
            Route::Forward(to) | Route::Read(to) => {
                let (expected, _) = below.split_once('#').unwrap_or((below, ""));
                to.upstream.name() == target.upstream.name() && to.path_and_query.as_str() == expected
            }
            Route::Refuse(_) => false,
        }
    }
}
