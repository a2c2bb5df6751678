//! Upstreams that speak HTTP/2: requests share connections without affecting each other.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use plimsoll::upstream::Timeouts;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Barrier, Semaphore};
use tokio::task::JoinSet;
use tokio_rustls::server::TlsStream;

use super::Proxy;
use super::gateway::{Preparing, TestGateway};
use super::tls::{acceptor, listen};
use super::wire::{Closing, Peer, eventually, header};

type Given = UnsyncBoxBody<Bytes, Infallible>;

const PIECE: Bytes = Bytes::from_static(&[b'x'; 16 * 1024]);

/// What the upstream does, by path.
struct Service {
    /// The number of streams allowed per connection.
    allowed: u32,
    /// `/together` is answered when this many requests for it are there.
    together: Barrier,
    /// The number of bytes that the bodies of `/endless` have produced.
    given: Arc<AtomicUsize>,
}

/// A body without end.
struct Endless(Arc<AtomicUsize>);

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.fetch_add(PIECE.len(), Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(PIECE))))
    }
}

/// Two bytes, with an end that arrives later.
struct EndsLater(Option<Bytes>);

impl Body for EndsLater {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.take().map_or(Poll::Pending, |bytes| Poll::Ready(Some(Ok(Frame::data(bytes)))))
    }
}

impl Service {
    fn new(allowed: u32, together: usize) -> Self {
        Self { allowed, together: Barrier::new(together), given: Arc::default() }
    }

    /// Waits until the bodies of `/endless` have produced nothing for a while.
    async fn stuck(&self) {
        loop {
            let given = self.given.load(Ordering::Relaxed);
            let more = eventually("more", || self.given.load(Ordering::Relaxed) > given);
            if tokio::time::timeout(Duration::from_millis(200), more).await.is_err() {
                break;
            }
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Given>, Infallible> {
        let body = match request.uri().path() {
            "/ends-later" => {
                let body = EndsLater(Some(Bytes::from_static(b"ok"))).boxed_unsync();
                return Ok(Response::builder().header(CONTENT_LENGTH, 2).body(body).unwrap());
            }
            "/endless" => Endless(Arc::clone(&self.given)).boxed_unsync(),
            "/together" => {
                self.together.wait().await;
                Full::from("ok").boxed_unsync()
            }
            _ => Full::from("ok").boxed_unsync(),
        };
        Ok(Response::new(body))
    }
}

async fn accept(listener: &TcpListener) -> TlsStream<TcpStream> {
    let (stream, _) = listener.accept().await.unwrap();
    acceptor(&["h2"]).accept(stream).await.unwrap()
}

async fn serve(stream: TlsStream<TcpStream>, service: Arc<Service>) {
    let allowed = service.allowed;
    let service = service_fn(|request| {
        let service = Arc::clone(&service);
        async move { service.answer(request).await }
    });
    let mut server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    server.max_concurrent_streams(allowed);
    drop(server.serve_connection(TokioIo::new(stream), service).await);
}

/// A proxy to such an upstream.
async fn stage(allowed: u32, together: usize, tasks: &mut JoinSet<()>) -> (Proxy, Arc<Service>) {
    let (listener, settings) = listen().await;
    let service = Arc::new(Service::new(allowed, together));
    let serving = Arc::clone(&service);
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            connections.spawn(serve(accept(&listener).await, Arc::clone(&serving)));
        }
    });
    (Proxy::start(TestGateway::with_upstream(settings)), service)
}

async fn ask(client: &mut Peer, path: &str) {
    client.send(format!("GET {path} HTTP/1.1\r\nhost: me\r\n\r\n")).await;
}

#[tokio::test]
async fn are_given_no_more_streams_than_they_take() {
    let mut tasks = JoinSet::new();
    let (proxy, _) = stage(2, 7, &mut tasks).await;
    let mut client = proxy.client().await;
    // The first answer follows the upstream's settings.
    ask(&mut client, "/x").await;
    assert_eq!(client.message().await.1, b"ok");
    let mut clients = Vec::new();
    for _ in 0..7 {
        let mut client = proxy.client().await;
        ask(&mut client, "/together").await;
        clients.push(client);
    }
    for client in &mut clients {
        assert_eq!(client.message().await.1, b"ok");
    }
}

#[tokio::test]
async fn are_read_by_all_clients_but_those_that_stop_reading() {
    let mut tasks = JoinSet::new();
    let (proxy, service) = stage(100, 1, &mut tasks).await;
    // There is a connection for all later requests.
    let mut first = proxy.client().await;
    ask(&mut first, "/x").await;
    assert_eq!(first.message().await.1, b"ok");
    let mut paused = Vec::new();
    for _ in 0..7 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut client = socket.connect(proxy.address).await.unwrap();
        client.write_all(b"GET /endless HTTP/1.1\r\nhost: me\r\n\r\n").await.unwrap();
        paused.push(client);
    }
    eventually("something", || service.given.load(Ordering::Relaxed) > 7 << 20).await;
    service.stuck().await;
    for _ in 0..3 {
        let mut client = proxy.client().await;
        ask(&mut client, "/x").await;
        assert_eq!(client.message().await.1, b"ok");
    }
}

#[tokio::test]
async fn are_not_asked_on_a_connection_that_was_kept_for_too_long() {
    for (keep_alive, expected) in [(Duration::ZERO, 2), (Timeouts::default().keep_alive, 1)] {
        let (listener, mut settings) = listen().await;
        settings.timeouts.keep_alive = keep_alive;
        let accepted = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&accepted);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let stream = accept(&listener).await;
                counted.fetch_add(1, Ordering::Relaxed);
                connections.spawn(serve(stream, Arc::new(Service::new(100, 1))));
            }
        });
        let proxy = Proxy::start(TestGateway::with_upstream(settings));
        let mut client = proxy.client().await;
        for _ in 0..2 {
            ask(&mut client, "/x").await;
            assert_eq!(client.message().await.1, b"ok");
        }
        assert_eq!(accepted.load(Ordering::Relaxed), expected, "{keep_alive:?}");
    }
}

/// An answer of a known length is complete with its last byte, whenever its end is signalled.
#[tokio::test]
async fn have_answered_when_all_bytes_are_there() {
    let (listener, settings) = listen().await;
    let proxy = Proxy::start(TestGateway::with_upstream(settings).preparing(Preparing::Untouched));
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { serve(accept(&listener).await, Arc::new(Service::new(100, 1))).await });
    let mut client = proxy.client().await;
    ask(&mut client, "/ends-later").await;
    assert_eq!(client.message().await.1, b"ok");
    eventually("the end of the exchange", || proxy.gateway.has_ended()).await;
    assert_eq!(proxy.gateway.events().last().unwrap(), "end Complete");
}

/// How the upstream refuses a request that it has received completely.
#[derive(Clone, Copy, Debug)]
enum Refusal {
    /// `RST_STREAM`, with this code.
    Reset(u32),
    /// `GOAWAY`, with the last stream processed and this code, and the end of the connection.
    GoAway(u32, u32),
}

/// What a server sends first.
const EMPTY_SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

const NO_ERROR: u32 = 0;
const INTERNAL_ERROR: u32 = 2;
const REFUSED_STREAM: u32 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;
const HTTP_1_1_REQUIRED: u32 = 13;

impl Refusal {
    fn frame(self) -> Vec<u8> {
        match self {
            Self::Reset(code) => [&[0, 0, 4, 3, 0, 0, 0, 0, 1][..], &code.to_be_bytes()].concat(),
            Self::GoAway(last, code) => {
                [&[0, 0, 8, 7, 0, 0, 0, 0, 0][..], &last.to_be_bytes(), &code.to_be_bytes()].concat()
            }
        }
    }
}

/// A minimal HTTP/2 server that sends `frames` in answer to the first request of a connection.
async fn say(stream: &mut TlsStream<TcpStream>, whole: bool, frames: &[u8]) {
    const PREFACE: usize = 24;
    stream.write_all(EMPTY_SETTINGS).await.unwrap();
    stream.read_exact(&mut [0; PREFACE]).await.unwrap();
    hear(stream, whole).await;
    stream.write_all(frames).await.unwrap();
}

/// Reads up to the head of a request, or to its end.
async fn hear(stream: &mut TlsStream<TcpStream>, whole: bool) {
    const HEADERS: u8 = 1;
    const END_STREAM: u8 = 1;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        stream.read_exact(&mut vec![0; length as usize]).await.unwrap();
        let carries_a_message = head[3] <= HEADERS;
        if carries_a_message && (head[4] & END_STREAM != 0 || !whole) {
            break;
        }
    }
}

async fn refuse(mut stream: TlsStream<TcpStream>, refusal: Refusal) {
    say(&mut stream, true, &refusal.frame()).await;
    if let Refusal::GoAway(..) = refusal {
        stream.shutdown().await.unwrap();
    }
    // Until the other side closes.
    drop(stream.read_to_end(&mut Vec::new()).await);
}

/// `NO_ERROR` does not make an incomplete answer complete.
#[tokio::test]
async fn have_broken_off_where_they_close_a_stream_before_its_end() {
    const WHOLE: &str = "POST /x HTTP/1.1\r\nhost: me\r\ncontent-length: 2\r\n\r\n{}";
    const HALF: &str = "POST /x HTTP/1.1\r\nhost: me\r\ncontent-length: 2\r\n\r\n";
    // `:status: 200` of the static table; END_HEADERS.
    const OK: &[u8] = &[0, 0, 1, 1, 4, 0, 0, 0, 1, 0x88];
    // The same with `content-length: 2`.
    const OK_2: &[u8] = &[0, 0, 5, 1, 4, 0, 0, 0, 1, 0x88, 0x0f, 0x0d, 1, b'2'];
    const DATA: &[u8] = &[0, 0, 2, 0, 0, 0, 0, 0, 1, b'h', b'i'];
    const LAST: &[u8] = &[0, 0, 2, 0, 1, 0, 0, 0, 1, b'h', b'i'];
    let reset = Refusal::Reset(NO_ERROR).frame();
    for (ask, head, data, is_whole) in [
        (WHOLE, OK, DATA, false),
        (WHOLE, OK, LAST, true),
        (WHOLE, OK_2, DATA, true),
        // The rest of a request that has been answered is not awaited.
        (HALF, OK, LAST, true),
        (HALF, OK, DATA, false),
    ] {
        let (listener, settings) = listen().await;
        let proxy = Proxy::start(TestGateway::with_upstream(settings));
        let frames = [head, data, &reset].concat();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut stream = accept(&listener).await;
            say(&mut stream, ask == WHOLE, &frames).await;
            drop(stream.read_to_end(&mut Vec::new()).await);
        });
        let mut client = proxy.client().await;
        client.send(ask).await;
        let head = client.head().await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        match header(&head, "content-length") {
            Some(length) => assert_eq!((length, client.bytes(2).await), ("2", b"hi".to_vec())),
            None => assert_eq!(client.chunk().await, b"hi"),
        }
        match (is_whole, header(&head, "content-length")) {
            (true, Some(_)) => {}
            (true, None) => client.expect("0\r\n\r\n").await,
            (false, _) => assert_eq!(client.closed().await, Closing::Finished),
        }
        assert_eq!(proxy.stats.upstream_breaks.value(), u64::from(!is_whole), "{ask} {data:?}");
    }
}

/// A gateway that prepares requests as given, and the listener of its upstream.
async fn staged(preparing: Option<Preparing>) -> (TcpListener, Proxy) {
    let (listener, settings) = listen().await;
    let gateway = TestGateway::with_upstream(settings);
    let proxy = Proxy::start(match preparing {
        None => gateway,
        Some(preparing) => gateway.preparing(preparing),
    });
    (listener, proxy)
}

/// Refuses the requests of the first `times` connections, then answers.
async fn check(
    ask: &str,
    preparing: Option<Preparing>,
    refusal: Refusal,
    times: usize,
    expected: StatusCode,
) {
    let (listener, proxy) = staged(preparing).await;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        for _ in 0..times {
            connections.spawn(refuse(accept(&listener).await, refusal));
        }
        let service = Arc::new(Service::new(100, 1));
        serve(accept(&listener).await, service).await;
    });
    let mut client = proxy.client().await;
    client.send(ask).await;
    let (head, _) = client.message().await;
    assert!(
        head.starts_with(&format!("HTTP/1.1 {} ", expected.as_u16())),
        "{ask} {refusal:?} {times}: {head}"
    );
}

#[tokio::test]
async fn get_what_they_refused_unread_once_more() {
    const GET: &str = "GET /x HTTP/1.1\r\nhost: me\r\n\r\n";
    const POST: &str = "POST /x HTTP/1.1\r\nhost: me\r\ncontent-length: 2\r\n\r\n{}";
    let (answered, failed) = (StatusCode::OK, StatusCode::BAD_GATEWAY);
    let (untouched, edited) = (Some(Preparing::Untouched), Some(Preparing::Edited("[]")));
    for (ask, preparing, refusal, times, expected) in [
        (GET, None, Refusal::Reset(REFUSED_STREAM), 1, answered),
        (GET, None, Refusal::GoAway(0, NO_ERROR), 1, answered),
        (POST, untouched, Refusal::Reset(REFUSED_STREAM), 1, answered),
        (POST, untouched, Refusal::GoAway(0, NO_ERROR), 1, answered),
        (POST, edited, Refusal::GoAway(0, NO_ERROR), 1, answered),
        // Not forever.
        (POST, untouched, Refusal::Reset(REFUSED_STREAM), 2, answered),
        (POST, untouched, Refusal::Reset(REFUSED_STREAM), 3, failed),
        // A body that was streamed is no longer available.
        (POST, None, Refusal::Reset(REFUSED_STREAM), 1, failed),
        // The upstream may have processed it.
        (POST, untouched, Refusal::Reset(INTERNAL_ERROR), 1, failed),
        (POST, untouched, Refusal::GoAway(1, NO_ERROR), 1, failed),
        // The upstream asked for fewer requests.
        (POST, untouched, Refusal::GoAway(0, ENHANCE_YOUR_CALM), 1, failed),
    ] {
        check(ask, preparing, refusal, times, expected).await;
    }
}

/// Answers the first request on a connection, which takes one at a time; if it `holds` one, reports the second, and
/// answers it when it may; refuses the next unread.
async fn take_few(mut stream: TlsStream<TcpStream>, holds: bool, [held, may_answer]: [Arc<Semaphore>; 2]) {
    const ONE_STREAM: &[u8] = &[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1];
    // `:status: 204` of the static table; END_HEADERS and END_STREAM.
    let no_content = |stream| [0, 0, 1, 1, 5, 0, 0, 0, stream, 0x89];
    stream.write_all(ONE_STREAM).await.unwrap();
    stream.read_exact(&mut [0; 24]).await.unwrap();
    hear(&mut stream, true).await;
    stream.write_all(&no_content(1)).await.unwrap();
    if holds {
        hear(&mut stream, true).await;
        held.add_permits(1);
        may_answer.acquire().await.unwrap().forget();
        stream.write_all(&no_content(3)).await.unwrap();
    }
    hear(&mut stream, true).await;
    let last = if holds { 3 } else { 1 };
    stream.write_all(&Refusal::GoAway(last, NO_ERROR).frame()).await.unwrap();
    drop(stream.read_to_end(&mut Vec::new()).await);
}

/// Each kept connection may have had its last request.
#[tokio::test]
async fn get_what_they_refuse_everywhere_on_a_connection_of_its_own() {
    const GET: &str = "GET /x HTTP/1.1\r\nhost: me\r\n\r\n";
    const POST: &str = "POST /x HTTP/1.1\r\nhost: me\r\ncontent-length: 2\r\n\r\n{}";
    let (listener, proxy) = staged(Some(Preparing::Untouched)).await;
    let [held, may_answer] = [0; 2].map(|none| Arc::new(Semaphore::new(none)));
    let signals = [Arc::clone(&held), Arc::clone(&may_answer)];
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        for holds in [true, true, false] {
            connections.spawn(take_few(accept(&listener).await, holds, signals.clone()));
        }
        serve(accept(&listener).await, Arc::new(Service::new(100, 1))).await;
    });
    let mut clients = [proxy.client().await, proxy.client().await, proxy.client().await];
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(GET).await;
        assert!(client.head().await.starts_with("HTTP/1.1 204 "));
        if number < 2 {
            // Keeps the connection busy, so that the next client is given another one.
            client.send(GET).await;
            held.acquire().await.unwrap().forget();
        }
    }
    may_answer.add_permits(2);
    for client in &mut clients[..2] {
        assert!(client.head().await.starts_with("HTTP/1.1 204 "));
    }
    clients[0].send(POST).await;
    let (head, _) = clients[0].message().await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
}

#[tokio::test]
async fn get_what_does_no_harm_once_more_when_a_connection_breaks() {
    const GET: &str = "GET /x HTTP/1.1\r\nhost: me\r\n\r\n";
    const POST: &str = "POST /x HTTP/1.1\r\nhost: me\r\ncontent-length: 2\r\n\r\n{}";
    // `:status: 204` of the static table; END_HEADERS and END_STREAM.
    const NO_CONTENT: &[u8] = &[0, 0, 1, 1, 5, 0, 0, 0, 1, 0x89];
    for (ask, preparing, expected) in [
        (GET, None, "HTTP/1.1 200 "),
        (POST, None, "HTTP/1.1 502 "),
        (POST, Some(Preparing::Untouched), "HTTP/1.1 502 "),
    ] {
        for is_reset in [false, true] {
            let (listener, proxy) = staged(preparing).await;
            let mut tasks = JoinSet::new();
            tasks.spawn(async move {
                let mut stream = accept(&listener).await;
                say(&mut stream, true, NO_CONTENT).await;
                hear(&mut stream, true).await;
                if is_reset {
                    stream.get_ref().0.set_zero_linger().unwrap();
                }
                drop(stream);
                serve(accept(&listener).await, Arc::new(Service::new(100, 1))).await;
            });
            let mut client = proxy.client().await;
            client.send(GET).await;
            assert!(client.head().await.starts_with("HTTP/1.1 204 "));
            client.send(ask).await;
            let head = client.head().await;
            assert!(head.starts_with(expected), "{ask} {is_reset}: {head}");
        }
    }
}

/// An answer with a field that HTTP/2 forbids: `:status: 200` of the static table, `connection: keep-alive`.
const FORBIDDEN: &[u8] = b"\0\0\x18\x01\x05\0\0\0\x01\x88\0\x0aconnection\x0akeep-alive";

/// Answers with `frames` on the first connection, where HTTP/2 is spoken.
async fn answer_over_http2(listener: &TcpListener, frames: &[u8]) {
    let (stream, _) = listener.accept().await.unwrap();
    let mut stream = acceptor(&["h2", "http/1.1"]).accept(stream).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    say(&mut stream, true, frames).await;
    drop(stream.read_to_end(&mut Vec::new()).await);
}

/// Answers a request on a connection where HTTP/1.1 is spoken, although HTTP/2 is possible.
async fn answer_over_http1(listener: &TcpListener) {
    let (stream, _) = listener.accept().await.unwrap();
    let mut stream = acceptor(&["h2", "http/1.1"]).accept(stream).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let mut received = Vec::new();
    while !received.ends_with(b"\r\n\r\n{}") {
        assert!(stream.read_buf(&mut received).await.unwrap() > 0);
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
    drop(stream.read_to_end(&mut Vec::new()).await);
}

/// What the upstream has answered is not asked for again.
#[tokio::test]
async fn are_asked_with_http_1_once_they_break_the_rules() {
    const POST: &str = "POST /x HTTP/1.1\r\nhost: me\r\ncontent-length: 2\r\n\r\n{}";
    let required = Refusal::Reset(HTTP_1_1_REQUIRED).frame();
    let (untouched, edited) = (Some(Preparing::Untouched), Some(Preparing::Edited("{}")));
    for (preparing, frames, fails) in [
        (untouched, FORBIDDEN, true),
        (None, FORBIDDEN, true),
        (untouched, &required, false),
        (edited, &required, false),
        (None, &required, true),
        (untouched, &Refusal::GoAway(0, HTTP_1_1_REQUIRED).frame(), true),
    ] {
        let (listener, proxy) = staged(preparing).await;
        let sent = frames.to_vec();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            answer_over_http2(&listener, &sent).await;
            answer_over_http1(&listener).await;
        });
        let mut client = proxy.client().await;
        client.send(POST).await;
        let (mut head, body) = client.message().await;
        if fails {
            assert!(head.starts_with("HTTP/1.1 502 "), "{frames:?} {head}");
            let body = String::from_utf8(body).unwrap();
            assert!(body.contains("with `http2 = false` for the upstream"), "{frames:?} {body}");
            client.send(POST).await;
            (head, _) = client.message().await;
        }
        assert!(head.starts_with("HTTP/1.1 200 "), "{frames:?} {fails} {head}");
    }
}

/// What breaks the rules of HTTP/2 otherwise than by what an answer says: a window beyond its limit, a frame beyond the
/// largest, settings out of range.
#[tokio::test]
async fn are_asked_with_http_1_once_they_break_the_rules_in_any_way() {
    const POST: &str = "POST /x HTTP/1.1\r\nhost: me\r\ncontent-length: 2\r\n\r\n{}";
    const WINDOW: &[u8] = b"\0\0\x04\x08\0\0\0\0\0\x7f\xff\xff\xff";
    const OVERSIZE: &[u8] = b"\0\x80\0\0\0\0\0\0\x01x";
    const SETTINGS: &[u8] = b"\0\0\x06\x04\0\0\0\0\0\0\x04\xff\xff\xff\xff";
    for frames in [WINDOW, OVERSIZE, SETTINGS] {
        let (listener, proxy) = staged(Some(Preparing::Untouched)).await;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            answer_over_http2(&listener, frames).await;
            answer_over_http1(&listener).await;
        });
        let mut client = proxy.client().await;
        client.send(POST).await;
        let (head, body) = client.message().await;
        assert!(head.starts_with("HTTP/1.1 502 "), "{frames:?} {head}");
        let body = String::from_utf8(body).unwrap();
        assert!(body.contains("with `http2 = false` for the upstream"), "{frames:?} {body}");
        client.send(POST).await;
        assert!(client.message().await.0.starts_with("HTTP/1.1 200 "), "{frames:?}");
    }
}

/// Agrees on HTTP/2, and answers to its preface with `answer` and the end of the connection.
async fn answer_to_the_preface(listener: &TcpListener, answer: &[u8]) {
    let (stream, _) = listener.accept().await.unwrap();
    let mut stream = acceptor(&["h2", "http/1.1"]).accept(stream).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut received = Vec::new();
    while received.len() < 24 {
        assert!(stream.read_buf(&mut received).await.unwrap() > 0);
    }
    assert!(received.starts_with(b"PRI * HTTP/2.0\r\n"));
    stream.write_all(answer).await.unwrap();
    stream.shutdown().await.unwrap();
    // Until the other side closes.
    drop(stream.read_to_end(&mut Vec::new()).await);
}

/// An answer of HTTP/1.1 shows that the request was not read, a mere end does not.
#[tokio::test]
async fn are_asked_with_http_1_if_they_do_not_answer_with_http_2() {
    const POST: &str = "POST /x HTTP/1.1\r\nhost: me\r\ncontent-length: 2\r\n\r\n{}";
    const BAD: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let (untouched, edited) = (Some(Preparing::Untouched), Some(Preparing::Edited("{}")));
    for (answer, preparing, fails) in [
        (BAD, untouched, false),
        (BAD, edited, false),
        // A body that was streamed is no longer available.
        (BAD, None, true),
        (b"", untouched, true),
    ] {
        let (listener, proxy) = staged(preparing).await;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            answer_to_the_preface(&listener, answer).await;
            answer_over_http1(&listener).await;
        });
        let mut client = proxy.client().await;
        client.send(POST).await;
        let (mut head, body) = client.message().await;
        if fails {
            assert!(head.starts_with("HTTP/1.1 502 "), "{} {head}", answer.escape_ascii());
            let body = String::from_utf8(body).unwrap();
            assert!(body.contains("with `http2 = false` for the upstream"), "{body}");
            client.send(POST).await;
            (head, _) = client.message().await;
        }
        assert!(head.starts_with("HTTP/1.1 200 "), "{} {fails} {head}", answer.escape_ascii());
    }
}

/// A server that has spoken HTTP/2 before does not lack it if it closes a new connection.
#[tokio::test]
async fn are_asked_with_http_2_still_if_they_close_a_later_connection() {
    const POST: &str = "POST /x HTTP/1.1\r\nhost: me\r\ncontent-length: 2\r\n\r\n{}";
    const LAST_ANSWER: &[u8] = b"\0\0\x01\x01\x05\0\0\0\x01\x89\0\0\x08\x07\0\0\0\0\0\0\0\0\x01\0\0\0\0";
    let (listener, proxy) = staged(Some(Preparing::Untouched)).await;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        answer_over_http2(&listener, LAST_ANSWER).await;
        answer_to_the_preface(&listener, b"").await;
        answer_over_http2(&listener, LAST_ANSWER).await;
    });
    let mut client = proxy.client().await;
    for status in ["204", "502", "204"] {
        client.send(POST).await;
        let (head, _) = client.message().await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
    }
}

#[tokio::test]
async fn are_asked_with_http_2_again_if_they_speak_nothing_else() {
    const POST: &str = "POST /x HTTP/1.1\r\nhost: me\r\ncontent-length: 2\r\n\r\n{}";
    let untouched = Some(Preparing::Untouched);
    // The server refuses what is offered, or takes no notice of the offer and speaks HTTP/2.
    for (refuses, preparing, statuses) in [
        (true, None, &[502, 200][..]),
        (true, untouched, &[502, 200]),
        (false, untouched, &[502, 200]),
        // A body that was streamed is no longer available.
        (false, None, &[502, 502, 200]),
    ] {
        let (listener, proxy) = staged(preparing).await;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            answer_over_http2(&listener, FORBIDDEN).await;
            let (stream, _) = listener.accept().await.unwrap();
            if refuses {
                assert!(acceptor(&["h2"]).accept(stream).await.is_err(), "HTTP/2 was offered");
            } else {
                let mut stream = acceptor(&[]).accept(stream).await.unwrap();
                stream.write_all(EMPTY_SETTINGS).await.unwrap();
                drop(stream.read_to_end(&mut Vec::new()).await);
            }
            serve(accept(&listener).await, Arc::new(Service::new(100, 1))).await;
        });
        let mut client = proxy.client().await;
        for status in statuses {
            client.send(POST).await;
            let (head, _) = client.message().await;
            let expected = format!("HTTP/1.1 {status} ");
            assert!(head.starts_with(&expected), "{refuses} {} {head}", preparing.is_some());
        }
    }
}

/// Requests that were on their way when the first of them failed were not read either.
#[tokio::test]
async fn are_sent_all_requests_again_to_which_they_answer_with_http_2() {
    const POST: &str = "POST /x HTTP/1.1\r\nhost: me\r\ncontent-length: 2\r\n\r\n{}";
    let (listener, proxy) = staged(Some(Preparing::Untouched)).await;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        answer_over_http2(&listener, FORBIDDEN).await;
        let mut waiting = Vec::new();
        for _ in 0..2 {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = acceptor(&[]).accept(stream).await.unwrap();
            let mut received = Vec::new();
            while !received.ends_with(b"\r\n\r\n{}") {
                assert!(stream.read_buf(&mut received).await.unwrap() > 0);
            }
            waiting.push(stream);
        }
        for stream in &mut waiting {
            stream.write_all(EMPTY_SETTINGS).await.unwrap();
        }
        let (service, mut connections) = (Arc::new(Service::new(100, 1)), JoinSet::new());
        loop {
            connections.spawn(serve(accept(&listener).await, Arc::clone(&service)));
        }
    });
    let mut clients = [proxy.client().await, proxy.client().await];
    clients[0].send(POST).await;
    assert!(clients[0].message().await.0.starts_with("HTTP/1.1 502 "));
    for client in &mut clients {
        client.send(POST).await;
    }
    for client in &mut clients {
        let (head, _) = client.message().await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    }
}
