//! Makes connections: TCP, TLS for `https`, and the HTTP version that TLS has negotiated.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Uri};
use hyper::client::conn::{http1, http2};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::client::legacy::connect::Connection as _;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;

use super::client::is_refused_offer;
use super::http1::Http1Connection;
use super::http2::{CONNECTION_WINDOW, Findings, Http2Connection, STREAM_WINDOW};
use super::loop_check;
use super::opening::{Hearing, Opening};
use super::proxy::Proxy;
use super::resend::RequestBody;
use super::resolver::{Resolver, Tcp};
use super::route::Route;
use super::tls::Offer;
use super::way::Way;
use super::write_first::{Signals, WriteFirst};
use super::{BoxError, SendError, Upstream};

/// The most header fields accepted in a response. hyper's default is 100.
const MAX_HEADERS: usize = 256;
/// The most bytes of header fields accepted in an HTTP/2 response.
const MAX_HEADER_BYTES: u32 = 64 * 1024;
/// How long an HTTP/2 connection with open streams may be silent before it is sent a ping.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// How long the upstream may take to answer the ping. The network may be away for a while: what was lost is sent again
/// only after up to twice as long.
const PING_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a connection may be silent before the system probes it, how long it waits between probes, and how many
/// probes may fail before the connection is given up. A network outage of two minutes must not cost an answer.
const TCP_KEEP_ALIVE: (Duration, Duration, u32) = (Duration::from_secs(30), Duration::from_secs(15), 8);

/// A byte stream to the server that is connected to first: the upstream, or a proxy.
pub(super) type FirstStream = MaybeHttpsStream<TokioIo<TcpStream>>;
/// A new byte stream to an upstream. Only in a tunnel through an HTTP proxy is TLS with the upstream the outer layer:
/// then the inner one belongs to the proxy.
pub(super) type NewStream = MaybeHttpsStream<FirstStream>;
/// The stream of an HTTP/1 connection.
pub(super) type Stream = WriteFirst<NewStream>;
/// The stream of an HTTP/2 connection.
pub(super) type SharedStream = Opening<NewStream>;

/// Makes connections to one upstream.
#[derive(Clone)]
pub(super) struct Connector {
    /// The route by which the versions of HTTP are offered that the settings name.
    route: Route,
    /// The route by which HTTP/1.1 alone is offered.
    http1_route: Route,
    /// All connectors of an upstream share these.
    http2: Arc<Findings>,
    proxy: Option<Proxy>,
    listeners: Arc<[SocketAddr]>,
    timeout: Duration,
}

/// A new connection.
pub(super) enum Connected<B: RequestBody> {
    Http1(Box<Http1Connection<B>>),
    Http2(Box<Http2Connection<B>>),
}

impl Connector {
    pub(super) fn new(upstream: &Upstream) -> Result<Self, SendError> {
        let timeout = upstream.timeouts().connect;
        let mut tcp = Tcp::new_with_resolver(Resolver::new());
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let (idle, interval, retries) = TCP_KEEP_ALIVE;
        tcp.set_keepalive(Some(idle));
        tcp.set_keepalive_interval(Some(interval));
        tcp.set_keepalive_retries(Some(retries));
        // hyper-util divides it among the addresses of a name, so that a dead first one leaves time for the second.
        tcp.set_connect_timeout(Some(timeout));
        let offer = if upstream.settings.http2 { Offer::Both } else { Offer::Http1 };
        Ok(Self {
            route: Route::to(upstream, tcp.clone(), offer)?,
            http1_route: Route::to(upstream, tcp, Offer::Http1)?,
            http2: Arc::clone(&upstream.http2),
            proxy: upstream.proxy().cloned(),
            listeners: upstream.settings.listeners.as_slice().into(),
            timeout,
        })
    }

    /// What has been found of the upstream's HTTP/2, and decides whether it is offered.
    pub(super) fn http2(&self) -> &Findings {
        &self.http2
    }

    /// The header fields that requests carry for a forwarding proxy (see [`Route::Forwarded`]); `None` without one.
    pub(super) fn proxy_headers(&self) -> Option<&HeaderMap> {
        self.route.proxy_headers()
    }

    /// Connects to the scheme and authority of `address`.
    pub(super) async fn connect<B: RequestBody>(mut self, address: Uri) -> Result<Connected<B>, SendError> {
        let stream = tokio::time::timeout(self.timeout, self.open(address))
            .await
            .map_err(|_elapsed| SendError::Unreached)
            .and_then(|made| made.map_err(|error| SendError::from_connecting(error.as_ref())))
            .and_then(|made| if self.is_loop(&made) { Err(SendError::Loop) } else { Ok(made) })
            .map_err(|error| error.through(self.proxy.as_ref()))?;
        if stream.connected().is_negotiated_h2() { http2(stream).await } else { http1(stream).await }
    }

    /// Makes the stream of a connection. HTTP/2 is offered once more to a server that speaks nothing else.
    async fn open(&mut self, address: Uri) -> Result<NewStream, BoxError> {
        if self.http2.is_given_up() {
            match self.http1_route.connect(address.clone()).await {
                Err(error) if is_refused_offer(error.as_ref()) => {
                    self.http2.take_up();
                }
                made => return made,
            }
        }
        self.route.connect(address).await
    }

    /// Whether the connection leads to one of the gateway's own listeners. An encrypted one cannot: the gateway would
    /// not have completed the handshake.
    fn is_loop(&self, made: &NewStream) -> bool {
        let MaybeHttpsStream::Http(MaybeHttpsStream::Http(tcp)) = made else { return false };
        self.listeners.iter().any(|listener| loop_check::is_at(tcp.inner(), *listener))
    }
}

/// The TCP connection below a stream.
pub(super) fn tcp_of(stream: &NewStream) -> &TcpStream {
    let first = match stream {
        MaybeHttpsStream::Http(first) => first,
        MaybeHttpsStream::Https(tls) => tls.inner().get_ref().0.inner(),
    };
    match first {
        MaybeHttpsStream::Http(tcp) => tcp.inner(),
        MaybeHttpsStream::Https(tls) => tls.inner().get_ref().0.inner().inner(),
    }
}

async fn http1<B: RequestBody>(stream: NewStream) -> Result<Connected<B>, SendError> {
    let (signals, way) = (Signals::default(), Way::of(tcp_of(&stream)));
    let (sender, connection) = http1::Builder::new()
        .preserve_header_case(true)
        .max_headers(MAX_HEADERS)
        // A response is paid for, so header fields that other clients accept or ignore must not fail it.
        .allow_obsolete_multiline_headers_in_responses(true)
        .allow_spaces_after_header_name_in_responses(true)
        .ignore_invalid_headers_in_responses(true)
        .handshake(WriteFirst::new(stream, signals.clone()))
        .await
        .map_err(|error| SendError::from_connecting(&error))?;
    Ok(Connected::Http1(Box::new(Http1Connection::new(sender, connection, signals, way))))
}

async fn http2<B: RequestBody>(stream: NewStream) -> Result<Connected<B>, SendError> {
    let (executor, hearing, way) = (TokioExecutor::new(), Hearing::default(), Way::of(tcp_of(&stream)));
    let (sender, connection) = http2::Builder::new(executor.clone())
        .timer(TokioTimer::new())
        .max_header_list_size(MAX_HEADER_BYTES)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .handshake(Opening::new(stream, hearing.clone()))
        .await
        .map_err(|error| SendError::from_connecting(&error))?;
    let shared = Http2Connection::start(sender, connection, hearing, way, &executor);
    Ok(Connected::Http2(Box::new(shared)))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::Request;
    use http_body_util::Full;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    /// What an upstream does after its answer.
    #[derive(Clone, Copy, Debug)]
    enum Then {
        Stays,
        Finishes,
        Resets,
    }

    /// The result of a request on a connection on which `answer` was waiting already.
    async fn asked(answer: &str, body: &'static [u8], then: Then) -> (u16, Bytes) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        server.write_all(answer.as_bytes()).await.unwrap();
        let _server = match then {
            Then::Stays => Some(server),
            Then::Finishes => None,
            Then::Resets => {
                server.set_zero_linger().unwrap();
                None
            }
        };
        client.readable().await.unwrap();
        send(&mut *connected(client).await, body).await
    }

    fn plain(tcp: TcpStream) -> NewStream {
        MaybeHttpsStream::Http(MaybeHttpsStream::Http(TokioIo::new(tcp)))
    }

    async fn connected(tcp: TcpStream) -> Box<Http1Connection<Full<Bytes>>> {
        match http1(plain(tcp)).await {
            Ok(Connected::Http1(connection)) => connection,
            _ => panic!("no connection"),
        }
    }

    async fn send(connection: &mut Http1Connection<Full<Bytes>>, body: &'static [u8]) -> (u16, Bytes) {
        let mut request = Request::new(Full::from(body));
        *request.method_mut() = http::Method::POST;
        let answer = connection.send(request).await.unwrap();
        let (head, mut body) = answer.into_parts();
        let mut read = Vec::new();
        while let Some(frame) = std::future::poll_fn(|cx| connection.poll_frame(&mut body, cx)).await {
            read.extend(frame.unwrap().into_data().unwrap());
        }
        (head.status.as_u16(), read.into())
    }

    #[tokio::test]
    async fn an_answer_that_precedes_the_request_is_received() {
        const BUSY: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nbusy";
        const LARGE: &[u8] = &[b'x'; 8 << 20];
        for body in [b"", &b"{}"[..], LARGE] {
            for then in [Then::Stays, Then::Finishes, Then::Resets] {
                let expected = (503, Bytes::from_static(b"busy"));
                assert_eq!(asked(BUSY, body, then).await, expected, "{} bytes, {then:?}", body.len());
            }
        }
    }

    /// Both ends of a connection that was made from this address of the machine. Left to itself, the system would take
    /// 127.0.0.1.
    async fn leaving_from(local: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((local.parse::<std::net::Ipv4Addr>().unwrap(), 0).into()).unwrap();
        let client = socket.connect(listener.local_addr().unwrap()).await.unwrap();
        (client, listener.accept().await.unwrap().0)
    }

    const REST: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn a_kept_connection_that_would_leave_from_another_address_today_is_not_open() {
        for (local, is_open) in [("127.0.0.1", true), ("127.0.0.2", false)] {
            let (client, mut server) = leaving_from(local).await;
            let mut connection = connected(client).await;
            server.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
            assert_eq!(send(&mut connection, b"{}").await, (200, Bytes::from_static(b"ok")));
            assert!(connection.end_exchange() && connection.check_open(), "{local}: just used");
            tokio::time::advance(REST).await;
            assert_eq!(connection.check_open(), is_open, "{local}");

            let (client, _server) = leaving_from(local).await;
            let shared = shared(client).await;
            assert!(shared.slot(Duration::MAX).is_some(), "{local}: just made");
            tokio::time::advance(REST).await;
            assert_eq!(shared.slot(Duration::MAX).is_some(), is_open, "{local}");
            assert_eq!(shared.is_usable(), is_open, "{local}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_shared_connection_on_which_requests_are_given_up_unanswered_takes_no_more() {
        for (is_answered, rest, is_usable) in
            [(false, Duration::ZERO, true), (true, REST, true), (false, REST, false)]
        {
            let (client, _server) = leaving_from("127.0.0.1").await;
            let shared = shared(client).await;
            let (_sender, mut stream) = shared.take_slot();
            if is_answered {
                stream.record_answer();
            }
            tokio::time::advance(rest).await;
            drop(stream);
            assert_eq!(shared.is_usable(), is_usable, "{is_answered} {rest:?}");
        }
    }

    async fn shared(tcp: TcpStream) -> Box<Http2Connection<Full<Bytes>>> {
        match http2(plain(tcp)).await {
            Ok(Connected::Http2(connection)) => connection,
            _ => panic!("no connection"),
        }
    }

    /// Nothing is awaited between the close and the check, so the runtime has not heard of the close.
    #[tokio::test]
    async fn a_kept_connection_closed_by_the_server_is_not_open() {
        const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        for last in [&b""[..], b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n"] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut connection =
                connected(TcpStream::connect(listener.local_addr().unwrap()).await.unwrap()).await;
            let server = listener.accept().await.unwrap().0.into_std().unwrap();
            std::io::Write::write_all(&mut &server, OK).unwrap();
            assert_eq!(send(&mut connection, b"{}").await, (200, Bytes::from_static(b"ok")));
            assert!(connection.park() && connection.check_open(), "nothing has come of it");
            std::io::Write::write_all(&mut &server, last).unwrap();
            server.shutdown(std::net::Shutdown::Write).unwrap();
            assert!(!(0..1_000_000).all(|_| connection.check_open()), "after {}", last.escape_ascii());
        }
    }
}
