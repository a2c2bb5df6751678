//! The answers that the gateway gives itself, in place of an upstream.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, UPGRADE};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use http_body::Body;

use crate::upstream::SendError;

use super::body;
use super::client::Upload;
use super::exchange::{Fault, Gateway, Party, Refusal, Target};
use super::guard::guard;
use super::handler::Handler;
use super::relay::Answer;

/// How long the rest of a refused request is read.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

impl<G: Gateway> Handler<G> {
    /// Answers in place of an upstream.
    pub(super) fn refuse(&self, head: &Parts, fault: &Fault) -> Response<Answer> {
        let refusal = self.error_body(head, fault);
        let mut response = Response::new(Answer::own(refusal.body));
        *response.status_mut() = fault.status;
        response.headers_mut().insert(CONTENT_TYPE, refusal.content_type);
        if fault.status == StatusCode::UPGRADE_REQUIRED {
            // The protocol to use instead must be named (RFC 9110, 15.5.22), as a hop-by-hop field (7.8).
            response.headers_mut().insert(UPGRADE, HeaderValue::from_static("HTTP/1.1"));
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
        }
        response
    }

    /// Answers a request whose body is framed wrongly. Nothing more can be read from its connection.
    pub(super) fn refuse_unframed(&self, head: &Parts, fault: &io::Error) -> Response<Answer> {
        let why = format!("the body of the request is framed wrongly: {fault}");
        self.refuse_unfinished(head, &Fault::client(StatusCode::BAD_REQUEST, why))
    }

    /// Answers a request that was not read to its end, and closes its connection.
    pub(super) fn refuse_unfinished(&self, head: &Parts, fault: &Fault) -> Response<Answer> {
        let mut response = self.refuse(head, fault);
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        response
    }

    /// The body of an error answer, in the client's dialect. Counts and logs the error.
    pub(super) fn error_body(&self, head: &Parts, fault: &Fault) -> Refusal {
        self.stats.refusals.increment();
        let (status, why) = (fault.status.as_u16(), &fault.message);
        match fault.at_fault {
            Party::Client => tracing::debug!(status, %why, "refused"),
            _ => tracing::warn!(status, %why, "not answered"),
        }
        let worded = guard(&self.stats, || self.gateway.refuse(head, fault));
        worded.unwrap_or_else(|| Refusal {
            content_type: HeaderValue::from_static("text/plain; charset=utf-8"),
            body: Bytes::from(fault.message.clone().into_owned()),
        })
    }

    /// Reads and drops a request body, so that the client can read the answer and the connection can be kept.
    pub(super) async fn discard(&self, body: Upload) {
        if !body.is_end_stream() {
            let reading = body::discard(body, self.settings.max_body);
            drop(tokio::time::timeout(DISCARD_TIMEOUT, reading).await);
        }
    }
}

/// The fault to report for a request that got no answer.
pub(super) fn describe(error: &SendError, target: &Target) -> Fault {
    let upstream = &target.upstream;
    let status = match error {
        SendError::Loop | SendError::ProxyLoop(_) => StatusCode::LOOP_DETECTED,
        SendError::Descriptors => StatusCode::SERVICE_UNAVAILABLE,
        SendError::Address => StatusCode::URI_TOO_LONG,
        SendError::Stalled => StatusCode::REQUEST_TIMEOUT,
        SendError::TimedOut | SendError::Unreached | SendError::ProxyTimedOut(_) => {
            StatusCode::GATEWAY_TIMEOUT
        }
        SendError::Tls(_)
        | SendError::Connect(_)
        | SendError::Broken(_)
        | SendError::Unread(_)
        | SendError::Encoded(_)
        | SendError::RequestBody => StatusCode::BAD_GATEWAY,
    };
    let at_fault = error.at_fault(upstream.is_proxied());
    let message = format!("upstream `{}` ({}): {error}", upstream.name(), upstream.base_url());
    Fault { status, at_fault, message: message.into() }
}
