//! A gateway whose every decision is determined by the test.

use std::sync::{Arc, Mutex, mpsc};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use plimsoll::server::{
    Deadline, End, Exchange, Fault, Form, Gateway, Inbound, Prepared, Refusal, Rejection, Remedy, Route,
    Target, Unprepared,
};
use plimsoll::upstream::{Settings, Upstream};
use tokio::sync::Notify;

/// What [`Gateway::prepare`] does.
#[derive(Clone, Copy)]
pub(super) enum Preparing {
    /// Sends the original.
    Untouched,
    /// Sends this.
    Edited(&'static str),
    /// Never ends.
    Hanging,
    /// Panics.
    Panicking,
    /// Keeps its thread until it is released, if the body is this long; then sends this.
    Slow(usize, &'static str),
    /// Waits until it is let go on, and the request for it, if it is held; then sends this.
    Waiting(bool, &'static str),
}

/// What its exchanges do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Watching {
    Quietly,
    /// Panics at the first data.
    Panicking,
    /// Holds good answers back until all is there.
    Holding,
}

pub(super) struct TestGateway {
    upstream: Arc<Upstream>,
    reads: bool,
    preparing: Preparing,
    remedy: Remedy,
    watching: Watching,
    /// The bodies that it was shown.
    shown: Mutex<Vec<Bytes>>,
    released: Mutex<mpsc::Receiver<()>>,
    release: mpsc::Sender<()>,
    go_on: Notify,
    log: Log,
}

/// What exchanges were told, in order.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<String>>>);

struct Watch {
    log: Log,
    remedy: Remedy,
    watching: Watching,
    is_over: bool,
}

impl TestGateway {
    /// Streams everything to `url`.
    pub(super) fn forwarding(url: impl AsRef<str>) -> Self {
        Self::with_upstream(Settings::new("test", url.as_ref().parse().unwrap()))
    }

    /// Sets whether its exchanges panic when data comes.
    pub(super) fn watching(self, watching: Watching) -> Self {
        Self { watching, ..self }
    }

    /// Sets how it answers rejections.
    pub(super) fn remedying(self, remedy: Remedy) -> Self {
        Self { remedy, ..self }
    }

    /// Reads every body on its way to `url`.
    pub(super) fn reading(url: impl AsRef<str>, preparing: Preparing) -> Self {
        Self::forwarding(url).preparing(preparing)
    }

    /// Reads every body.
    pub(super) fn preparing(self, preparing: Preparing) -> Self {
        Self { reads: true, preparing, ..self }
    }

    pub(super) fn with_upstream(settings: Settings) -> Self {
        let (release, released) = mpsc::channel();
        Self {
            release,
            go_on: Notify::new(),
            released: Mutex::new(released),
            upstream: Arc::new(Upstream::new(settings)),
            reads: false,
            preparing: Preparing::Untouched,
            remedy: Remedy::Deliver,
            watching: Watching::Quietly,
            shown: Mutex::default(),
            log: Log::default(),
        }
    }

    /// Releases slow preparations.
    pub(super) fn release(&self) {
        self.release.send(()).unwrap();
    }

    /// Releases one waiting preparation.
    pub(super) fn go_on(&self) {
        self.go_on.notify_one();
    }

    pub(super) fn events(&self) -> Vec<String> {
        self.log.0.lock().unwrap().clone()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.events().last().is_some_and(|event| event.starts_with("end "))
    }

    pub(super) fn shown(&self) -> Vec<Bytes> {
        self.shown.lock().unwrap().clone()
    }
}

impl Gateway for TestGateway {
    fn route(&self, head: &Parts) -> Route {
        let target = Target {
            upstream: Arc::clone(&self.upstream),
            path_and_query: head.uri.path_and_query().unwrap().clone(),
        };
        match head.uri.path() {
            "/refused" => Route::Refuse(Fault::client(StatusCode::NOT_FOUND, "no such upstream")),
            "/panic" => panic!("in route"),
            _ if self.reads => Route::Read(target),
            _ => Route::Forward(target),
        }
    }

    async fn prepare(&self, inbound: Inbound, until: Deadline) -> Prepared {
        let length = inbound.body.len();
        self.shown.lock().unwrap().push(inbound.body);
        let body = match self.preparing {
            Preparing::Untouched => None,
            Preparing::Edited(text) => Some(Bytes::from_static(text.as_bytes())),
            Preparing::Hanging => std::future::pending().await,
            Preparing::Panicking => panic!("in prepare"),
            Preparing::Waiting(holds, text) => {
                assert!(if holds { until.hold() } else { until.release() });
                let mut unfinished = Unfinished(Some(&self.log));
                self.go_on.notified().await;
                unfinished.0 = None;
                Some(Bytes::from_static(text.as_bytes()))
            }
            Preparing::Slow(slow, _) if length != slow => None,
            Preparing::Slow(_, text) => {
                self.released.lock().unwrap().recv().unwrap();
                Some(Bytes::from_static(text.as_bytes()))
            }
        };
        Prepared { body, exchange: Some(self.watch()), ..Prepared::default() }
    }

    fn unprepared(&self, _inbound: Inbound, why: Unprepared) -> Prepared {
        self.log.add(format!("unprepared {why:?}"));
        Prepared { exchange: Some(self.watch()), ..Prepared::default() }
    }

    async fn again(&self, _: Inbound, _: Rejection, _: u32, _: Deadline) -> Option<Prepared> {
        let refusal = Some(Fault::client(StatusCode::PAYMENT_REQUIRED, "the budget is spent"));
        let body = Some(Bytes::from_static(b"shorter"));
        Some(Prepared { body, exchange: Some(self.watch()), refusal, ..Prepared::default() })
    }

    fn refuse(&self, head: &Parts, fault: &Fault) -> Refusal {
        let body = format!("{} {:?}: {}", head.uri.path(), fault.at_fault, fault.message);
        Refusal { content_type: HeaderValue::from_static("text/x-refusal"), body: body.into() }
    }
}

/// Records that a preparation was dropped.
struct Unfinished<'a>(Option<&'a Log>);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(log) = self.0 {
            log.add("dropped".to_owned());
        }
    }
}

impl TestGateway {
    fn watch(&self) -> Box<dyn Exchange> {
        let (log, remedy, watching) = (self.log.clone(), self.remedy, self.watching);
        Box::new(Watch { log, remedy, watching, is_over: false })
    }
}

impl Log {
    fn add(&self, event: String) {
        self.0.lock().unwrap().push(event);
    }
}

impl Exchange for Watch {
    fn sent(&mut self, form: Form) {
        self.log.add(format!("sent {form:?}"));
    }

    fn rejected(&mut self, status: StatusCode, _headers: &HeaderMap, body: &[u8]) -> Remedy {
        self.log.add(format!("rejected {} {}", status.as_u16(), super::wire::show(body)));
        self.remedy
    }

    fn holds(&self, _: StatusCode, _: &HeaderMap) -> bool {
        self.watching == Watching::Holding
    }

    fn check_beginning(&mut self, _: &[u8]) -> Option<Remedy> {
        None
    }

    fn check_whole(&mut self, body: &[u8]) -> Remedy {
        self.log.add(format!("checked {}", super::wire::show(body)));
        self.remedy
    }

    fn response(&mut self, status: StatusCode, _headers: &HeaderMap) {
        self.log.add(format!("response {}", status.as_u16()));
    }

    fn is_over(&self) -> bool {
        self.is_over
    }

    fn data(&mut self, decoded: &[u8]) {
        assert!(self.watching != Watching::Panicking, "in data");
        self.is_over |= decoded.ends_with(b"that is all");
        self.log.add(format!("data {}", super::wire::show(decoded)));
    }

    fn end(self: Box<Self>, how: End) {
        let how = match how {
            End::Failed(fault) | End::Unsent(fault) => format!("Failed {}", fault.status.as_u16()),
            other => format!("{other:?}"),
        };
        self.log.add(format!("end {how}"));
    }
}
