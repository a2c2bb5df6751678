//! Clients that speak HTTP/2 with prior knowledge.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use plimsoll::server::Settings;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::gateway::{Preparing, TestGateway};
use super::wire::{TestUpstream, eventually, within};
use super::{Proxy, settings};

type Sent = http_body_util::combinators::UnsyncBoxBody<Bytes, std::convert::Infallible>;

/// A body of one piece that is sent when the test says so.
struct Late(Option<oneshot::Receiver<Bytes>>);

impl Body for Late {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Some(piece) = &mut self.0 else { return Poll::Ready(None) };
        let piece = ready!(Pin::new(piece).poll(cx)).unwrap();
        self.0 = None;
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

async fn connect(proxy: &Proxy, tasks: &mut JoinSet<()>) -> SendRequest<Sent> {
    let stream = TokioIo::new(TcpStream::connect(proxy.address).await.unwrap());
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tasks.spawn(async move { drop(connection.await) });
    sender
}

fn ask(body: &'static str) -> Request<Sent> {
    Request::post("http://me/v1/x?y=1")
        .header("x-key", "k")
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .header("te", "trailers")
        .body(Full::new(Bytes::from_static(body.as_bytes())).boxed_unsync())
        .unwrap()
}

async fn read_all(body: Incoming) -> String {
    String::from_utf8(within(body.collect()).await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn speak_to_an_upstream_of_http_1() {
    let upstream = TestUpstream::bind().await;
    let proxy = Proxy::start(TestGateway::forwarding(upstream.url()));
    let mut tasks = JoinSet::new();
    let mut client = connect(&proxy, &mut tasks).await;
    let answer = client.send_request(ask("{}"));
    let play = async {
        let mut server = upstream.accept().await;
        let host = upstream.address();
        server
            .expect(format!(
                "POST /v1/x?y=1 HTTP/1.1\r\nhost: {host}\r\nx-key: k\r\ncookie: a=1; b=2\r\nte: trailers\r\n\
                 content-length: 2\r\n\r\n{{}}"
            ))
            .await;
        server.send("HTTP/1.1 200 OK\r\nConnection: x-hop\r\nX-Hop: 1\r\nX-Id: 7\r\ntrailer: sum\r\n").await;
        server.send("transfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nsum: 9\r\n\r\n").await;
        server
    };
    let (answer, _server) = within(async { tokio::join!(answer, play) }).await;
    let answer = answer.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let names: Vec<_> = answer.headers().keys().map(http::HeaderName::as_str).collect();
    assert_eq!(names, ["x-id", "trailer"]);
    let collected = within(answer.into_body().collect()).await.unwrap();
    assert_eq!(collected.trailers().unwrap().get("sum").unwrap(), "9");
    assert_eq!(collected.to_bytes(), "ok");
}

#[tokio::test]
async fn have_their_bodies_read_and_edited() {
    for (preparing, expected) in [(Preparing::Untouched, "{\"a\":1}"), (Preparing::Edited("[]"), "[]")] {
        let upstream = TestUpstream::bind().await;
        let proxy = Proxy::with_settings(TestGateway::reading(upstream.url(), preparing), settings());
        let mut tasks = JoinSet::new();
        let mut client = connect(&proxy, &mut tasks).await;
        let play = async {
            let mut server = upstream.accept().await;
            let (_, body) = server.message().await;
            server.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
            body
        };
        let (answer, body) =
            within(async { tokio::join!(client.send_request(ask("{\"a\":1}")), play) }).await;
        assert_eq!(
            (read_all(answer.unwrap().into_body()).await.as_str(), body.as_slice()),
            ("ok", expected.as_bytes())
        );
        assert_eq!(proxy.gateway.shown(), ["{\"a\":1}"]);
    }
}

/// An answer of an HTTP/1.1 upstream, and what HTTP/2 can express of it: status, headers, body.
#[tokio::test]
async fn get_what_their_version_can_express() {
    const NONE: &[(&str, &str)] = &[];
    const ENCODED: &str = "/v1/x Upstream: upstream `test` (http://HOST): its answer came with `Transfer-Encoding: \
                           gzip`, and the client speaks a version of HTTP that has none";
    for (method, answer, status, lines, body) in [
        ("GET", "304 Not Modified\r\netag: e\r\n", 304, &[("etag", "e")][..], ""),
        // The length of an unchanged body, or of one that was not requested.
        ("GET", "304 Not Modified\r\ncontent-length: 12\r\n", 304, &[("content-length", "12")], ""),
        ("HEAD", "200 OK\r\ncontent-length: 12\r\n", 200, &[("content-length", "12")], ""),
        ("GET", "304 Not Modified\r\ntransfer-encoding: chunked\r\n", 304, NONE, ""),
        ("GET", "304 Not Modified\r\ntransfer-encoding: gzip, chunked\r\n", 304, NONE, ""),
        // Answers that never have a body have none, whatever their headers say.
        ("GET", "204 No Content\r\ncontent-length: 5\r\n", 204, NONE, ""),
        ("GET", "204 No Content\r\ncontent-length: 0\r\n", 204, NONE, ""),
        ("GET", "200 OK\r\ntransfer-encoding: identity, chunked\r\n\r\n2\r\nok\r\n0\r\n", 200, NONE, "ok"),
        ("GET", "200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n", 502, NONE, ENCODED),
        ("GET", "200 OK\r\ntransfer-encoding: gzip\r\n", 502, NONE, ENCODED),
    ] {
        let upstream = TestUpstream::bind().await;
        let proxy = Proxy::start(TestGateway::forwarding(upstream.url()));
        let mut tasks = JoinSet::new();
        let mut client = connect(&proxy, &mut tasks).await;
        let asked = Request::builder().method(method).uri("http://me/v1/x?y=1");
        let answered = client.send_request(asked.body(Full::default().boxed_unsync()).unwrap());
        let play = async {
            let mut server = upstream.accept().await;
            server.head().await;
            server.send(format!("HTTP/1.1 {answer}\r\n")).await;
            server
        };
        let (answered, _server) = within(async { tokio::join!(answered, play) }).await;
        let answered = answered.unwrap_or_else(|error| panic!("{answer}: {error:?}"));
        assert_eq!(answered.status(), status, "{answer}");
        if status != 502 {
            let told =
                answered.headers().iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap()));
            assert_eq!(told.collect::<Vec<_>>(), lines, "{answer}");
        }
        let expected = body.replace("HOST", &upstream.address().to_string());
        assert_eq!(read_all(answered.into_body()).await, expected, "{answer}");
    }
}

#[tokio::test]
async fn stream_bodies_of_unknown_length() {
    let upstream = TestUpstream::bind().await;
    let proxy = Proxy::start(TestGateway::forwarding(upstream.url()));
    let mut tasks = JoinSet::new();
    let mut client = connect(&proxy, &mut tasks).await;
    let (sender, receiver) = oneshot::channel::<Bytes>();
    let body = Late(Some(receiver)).boxed_unsync();
    let answer = client.send_request(Request::post("http://me/x").body(body).unwrap());
    let play = async {
        let mut server = upstream.accept().await;
        let head = server.head().await;
        assert!(head.contains("transfer-encoding: chunked\r\n"), "{head}");
        sender.send(Bytes::from_static(b"piece")).unwrap();
        assert_eq!(server.chunk().await, b"piece");
        assert_eq!(server.chunked().await, b"");
        server.send("HTTP/1.1 204 No Content\r\n\r\n").await;
        server
    };
    let (answer, _server) = within(async { tokio::join!(answer, play) }).await;
    assert_eq!(answer.unwrap().status(), StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn learn_of_breaks_by_a_reset() {
    for head in ["content-length: 6", "transfer-encoding: chunked"] {
        let upstream = TestUpstream::bind().await;
        let proxy = Proxy::start(TestGateway::forwarding(upstream.url()));
        let mut tasks = JoinSet::new();
        let mut client = connect(&proxy, &mut tasks).await;
        let play = async {
            let mut server = upstream.accept().await;
            server.message().await;
            server.send(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n3\r\nab")).await;
        };
        let (answer, ()) = within(async { tokio::join!(client.send_request(ask("{}")), play) }).await;
        let outcome = within(answer.unwrap().into_body().collect()).await;
        assert!(outcome.is_err(), "{head}");
    }
}

#[tokio::test]
async fn cancel_their_requests_by_a_reset() {
    let upstream = TestUpstream::bind().await;
    let proxy = Proxy::start(TestGateway::forwarding(upstream.url()));
    let mut tasks = JoinSet::new();
    let mut client = connect(&proxy, &mut tasks).await;
    // While waiting for the head of the answer.
    let mut asking = JoinSet::new();
    let answer = client.send_request(ask("{}"));
    asking.spawn(async move { drop(answer.await) });
    let mut server = upstream.accept().await;
    server.message().await;
    asking.abort_all();
    server.closed().await;
    // In the middle of the answer; the connection stays open.
    let play = async {
        let mut server = upstream.accept().await;
        server.message().await;
        server.send("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nabc").await;
        server
    };
    let (answer, mut server) = within(async { tokio::join!(client.send_request(ask("{}")), play) }).await;
    let mut body = answer.unwrap().into_body();
    assert_eq!(within(body.frame()).await.unwrap().unwrap().into_data().unwrap(), "abc");
    drop(body);
    server.closed().await;
}

#[tokio::test]
async fn are_refused_in_the_callers_dialect() {
    let proxy = Proxy::start(TestGateway::forwarding("http://127.0.0.1:1"));
    let mut tasks = JoinSet::new();
    let mut client = connect(&proxy, &mut tasks).await;
    let refused = Request::get("http://me/refused").body(Full::default().boxed_unsync()).unwrap();
    let answer = within(client.send_request(refused)).await.unwrap();
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    assert_eq!(answer.headers(), &HeaderMap::from_iter(refusal_headers()));
    assert_eq!(read_all(answer.into_body()).await, "/refused Client: no such upstream");
}

fn refusal_headers() -> [(http::HeaderName, http::HeaderValue); 2] {
    [
        (http::header::CONTENT_TYPE, http::HeaderValue::from_static("text/x-refusal")),
        (http::header::CONTENT_LENGTH, http::HeaderValue::from_static("33")),
    ]
}

#[tokio::test]
async fn are_let_go_when_they_rest_for_too_long() {
    let impatient = Settings { idle_timeout: Duration::from_secs(1), ..settings() };
    let proxy = Proxy::with_settings(TestGateway::forwarding("http://127.0.0.1:1"), impatient);
    let mut tasks = JoinSet::new();
    let _client = connect(&proxy, &mut tasks).await;
    let mut begun = proxy.client().await;
    begun.send("PRI").await;
    begun.closed().await;
    within(tasks.join_next()).await.unwrap().unwrap();
    eventually("no connection", || proxy.stats.open_connections.value() == 0).await;
}

#[tokio::test]
async fn make_room_for_others_when_they_rest() {
    let upstream = TestUpstream::bind().await;
    let limited = Settings { max_connections: 1, ..settings() };
    let proxy = Proxy::with_settings(TestGateway::forwarding(upstream.url()), limited);
    let mut tasks = JoinSet::new();
    let mut client = connect(&proxy, &mut tasks).await;
    let play = async {
        let mut server = upstream.accept().await;
        server.message().await;
        server.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        server
    };
    let (answer, mut server) = within(async { tokio::join!(client.send_request(ask("{}")), play) }).await;
    assert_eq!(read_all(answer.unwrap().into_body()).await, "ok");
    let mut other = proxy.client().await;
    other.send("GET /y HTTP/1.1\r\nhost: me\r\n\r\n").await;
    assert!(server.head().await.starts_with("GET /y "));
    within(tasks.join_next()).await.unwrap().unwrap();
}
