//! Routes requests to their answers, for visitors that may get them.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;
use tokio::sync::Semaphore;

use super::api::{self, Question, Refusal};
use super::{Pages, page, visitor};

/// The maximum number of concurrent reads of the books.
const MAX_READERS: usize = 2;
/// The maximum number of visitors that read the books or wait to do so. It is far below the number of connections, so
/// that one is always left for `/health`.
const MAX_ASKING: usize = 8;

type Answer = Response<Full<Bytes>>;

/// Headers of all answers, for browsers.
const COMMON_HEADERS: [(HeaderName, &str); 4] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

const UNKNOWN_HOST: &str = "requested by a host name that anyone may own; use an IP address, localhost or a name of `listen.admin_names`";
const FOREIGN_ORIGIN: &str = "requested by a page of another origin";

/// Routes requests to their answers, for visitors that may get them.
pub(super) struct Router {
    pages: Pages,
    listening: SocketAddr,
    readers: Arc<Semaphore>,
    asking: Semaphore,
}

impl Router {
    /// A router for a listener at this address.
    pub(super) fn new(pages: Pages, listening: SocketAddr) -> Self {
        Self {
            pages,
            listening,
            readers: Arc::new(Semaphore::new(MAX_READERS)),
            asking: Semaphore::new(MAX_ASKING),
        }
    }

    /// The answer to a request, whose body is ignored.
    pub(super) async fn answer(&self, head: &Parts) -> Answer {
        let mut answer = self.route(head).await;
        for (name, value) in COMMON_HEADERS {
            answer.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        answer
    }

    async fn route(&self, head: &Parts) -> Answer {
        if !matches!(head.method, Method::GET | Method::HEAD) {
            let mut refusal = refusal_answer(&Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "only GET"));
            refusal.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refusal;
        }
        let is_link = visitor::is_link(&head.headers);
        match head.uri.path() {
            "/health" => answer(StatusCode::OK, "application/json", "{\"status\":\"ok\"}\n"),
            "/metrics" => answer(StatusCode::OK, "text/plain; version=0.0.4", (self.pages.metrics)()),
            // The page contains no figures, so links from anywhere may lead to it.
            "/" => self.check_visitor(head, is_link).map_or_else(forbidden, |()| dashboard()),
            path => match (path.strip_prefix("/outputs/"), path.strip_prefix("/api/")) {
                (Some(id), _) => {
                    self.check_visitor(head, is_link).map_or_else(forbidden, |()| self.output(id))
                }
                (_, Some(path)) => {
                    let document = match self.check_visitor(head, false) {
                        Ok(()) => self.document(path, head.uri.query().unwrap_or_default()).await,
                        Err(why) => Err(Refusal::new(StatusCode::FORBIDDEN, why)),
                    };
                    document.map_or_else(
                        |refusal| refusal_answer(&refusal),
                        |json| answer(StatusCode::OK, JSON, json),
                    )
                }
                (None, None) => {
                    let paths =
                        format!("not found; there are /, {}, /health, /metrics, /outputs/ID", api::PATHS);
                    refusal_answer(&Refusal::new(StatusCode::NOT_FOUND, paths))
                }
            },
        }
    }

    /// Checks that the visitor may see what is only for the user's own programs. The error says why not.
    fn check_visitor(&self, head: &Parts, is_link: bool) -> Result<(), &'static str> {
        if !visitor::is_addressed_here(head, self.listening, &self.pages.is_own_name) {
            return Err(UNKNOWN_HOST);
        }
        if visitor::is_foreign(&head.headers) && !is_link { Err(FOREIGN_ORIGIN) } else { Ok(()) }
    }

    fn output(&self, id: &str) -> Answer {
        let (status, why) = match self.pages.outputs.read(id) {
            Ok(Some(full)) => return answer(StatusCode::OK, "text/plain; charset=utf-8", full),
            Ok(None) => (StatusCode::NOT_FOUND, "no such output; it may have been removed with age"),
            Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "the output cannot be read"),
        };
        refusal_answer(&Refusal::new(status, why))
    }

    async fn document(&self, path: &str, query: &str) -> Result<Vec<u8>, Refusal> {
        let question = Question::new(path, query)?;
        let busy = || {
            Refusal::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many requests are reading the books; try again",
            )
        };
        let _asking = self.asking.try_acquire().map_err(|_| busy())?;
        let reading = Arc::clone(&self.readers).acquire_owned().await.map_err(|_| busy())?;
        let books = self.pages.books.clone();
        let read = tokio::task::spawn_blocking(move || {
            // The visitor may have left: the read counts until it ends.
            let _reading = reading;
            question.answer(&books)
        });
        let broken = |_| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the books could not be read");
        read.await.map_err(broken)?
    }
}

const JSON: &str = "application/json";

fn dashboard() -> Answer {
    let mut answer = answer(StatusCode::OK, "text/html; charset=utf-8", page::HTML);
    if let Ok(policy) = page::policy().try_into() {
        answer.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    answer
}

fn forbidden(why: &str) -> Answer {
    refusal_answer(&Refusal::new(StatusCode::FORBIDDEN, why))
}

fn refusal_answer(refusal: &Refusal) -> Answer {
    let mut answer = answer(refusal.status, JSON, refusal.to_json());
    if refusal.status == StatusCode::SERVICE_UNAVAILABLE {
        answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    answer
}

fn answer(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

#[cfg(test)]
mod tests {
    use tokio::task::{JoinSet, yield_now};

    use super::*;
    use crate::store::Outputs;

    fn get(path: &str) -> Parts {
        let request = http::Request::get(path).header("host", "127.0.0.1").body(());
        request.unwrap().into_parts().0
    }

    /// Readers of the books delay only each other, and only up to a number.
    #[tokio::test]
    async fn queued_reports_are_limited_and_block_no_other_request() {
        let home = tempfile::tempdir().unwrap();
        let pages = Pages {
            outputs: Outputs::new(home.path()),
            books: home.path().join("none.db"),
            metrics: Box::new(String::new),
            is_own_name: Box::new(|_| false),
        };
        let router = Arc::new(Router::new(pages, "127.0.0.1:1".parse().unwrap()));
        let reading = Arc::clone(&router.readers).acquire_many_owned(MAX_READERS as u32).await.unwrap();
        let mut waiting = JoinSet::new();
        for _ in 0..MAX_ASKING {
            let router = Arc::clone(&router);
            waiting.spawn(async move { router.answer(&get("/api/report")).await.status() });
        }
        while router.asking.available_permits() > 0 {
            yield_now().await;
        }
        assert_eq!(router.answer(&get("/health")).await.status(), StatusCode::OK);
        let refused = router.answer(&get("/api/report")).await;
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(refused.headers()[header::RETRY_AFTER], "1");
        drop(reading);
        assert_eq!(waiting.join_all().await, [StatusCode::OK; MAX_ASKING]);
        assert_eq!(router.answer(&get("/api/report")).await.status(), StatusCode::OK);
    }
}
