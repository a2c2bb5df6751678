//! Where an upstream sends a client to: its own address is one below the gateway.
//!
//! A client that went there would leave the gateway, without the credentials that it has for it. Or it would come back,
//! where a path alone is named, and ask another upstream, with the credentials for this one.

use http::header::LOCATION;
use http::request::Parts;
use http::{HeaderValue, Response, Uri};

use super::exchange::{Gateway, Route, Target};
use super::handler::Handler;
use super::relay::Answer;

impl<G: Gateway> Handler<G> {
    /// The answer with the location that leads to the same upstream through here.
    pub(super) fn redirected(
        &self,
        head: &Parts,
        target: &Target,
        mut answer: Response<Answer>,
    ) -> Response<Answer> {
        let location = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        if let Some(here) = location.and_then(|location| self.here(head, target, location)) {
            answer.headers_mut().insert(LOCATION, here);
        }
        answer
    }

    /// The path by which the upstream is asked for what `location` names, if it is the upstream's and not that path. A path
    /// beside those that the gateway asks for is the upstream's alone.
    fn here(&self, head: &Parts, target: &Target, location: &str) -> Option<HeaderValue> {
        let base = target.upstream.base_url();
        let Some(below) = base.below(location) else {
            return HeaderValue::try_from(base.beside(location)?).ok();
        };
        let asked = head.uri.path_and_query()?.as_str();
        let prefix = asked.strip_suffix(target.path_and_query.as_str()).unwrap_or_default();
        let named = format!("/{}", target.upstream.name());
        let mut paths = [prefix, &named].into_iter().map(|prefix| [prefix, below].concat());
        let path = paths.find(|path| self.leads_to(head, target, path, below))?;
        if path == location { None } else { HeaderValue::try_from(path).ok() }
    }

    /// Whether a request like this one, for this path, asks the same upstream for what is `below` its address.
    fn leads_to(&self, head: &Parts, target: &Target, path: &str, below: &str) -> bool {
        let Ok(uri) = path.parse::<Uri>() else { return false };
        let mut head = head.clone();
        head.uri = uri;
        match self.route(&head) {
            Route::Forward(to) | Route::Read(to) => {
                let (asked, _) = below.split_once('#').unwrap_or((below, ""));
                to.upstream.name() == target.upstream.name() && to.path_and_query.as_str() == asked
            }
            Route::Refuse(_) => false,
        }
    }
}
