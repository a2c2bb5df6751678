//! An upstream that answers at once, a client that measures times, and the gateway's processor time.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response, header};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The header with which a request asks for a stream.
const STREAM: &str = "x-bench-stream";

/// The number of chunks of a stream.
const CHUNKS: usize = 50;

const ANSWER: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[{"type":"text","text":"Done."}],"stop_reason":"end_turn","usage":{"input_tokens":12,"cache_read_input_tokens":3400,"cache_creation_input_tokens":560,"output_tokens":7}}"#;

/// How an answer is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Whole,
    Stream,
}

/// Starts the upstream on a thread of its own, which ends with the process.
pub(crate) fn upstream() -> io::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("upstream".to_owned()).spawn(move || runtime.block_on(accept(listener)))?;
    Ok(address)
}

async fn accept(listener: std::net::TcpListener) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        connections.spawn(server::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer)));
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Answer>, Infallible> {
    let streamed = request.headers().contains_key(STREAM);
    let mut body = request.into_body();
    while let Some(Ok(_)) = body.frame().await {}
    let (kind, answer) = if streamed {
        ("text/event-stream", Answer::Stream(0))
    } else {
        ("application/json", Answer::Whole(Full::from(ANSWER)))
    };
    let mut response = Response::new(answer);
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    Ok(response)
}

/// The body of an answer.
enum Answer {
    Whole(Full<Bytes>),
    /// The number of chunks sent so far.
    Stream(usize),
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(body) => Pin::new(body).poll_frame(context),
            Self::Stream(CHUNKS) => Poll::Ready(None),
            Self::Stream(sent) => {
                let event = match *sent {
                    0 => {
                        r#"{"type":"message_start","message":{"id":"msg_1","model":"claude-sonnet-4-5","usage":{"input_tokens":12,"cache_read_input_tokens":3400,"cache_creation_input_tokens":560,"output_tokens":1}}}"#
                    }
                    48 => {
                        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":80}}"#
                    }
                    49 => r#"{"type":"message_stop"}"#,
                    _ => {
                        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a few words"}}"#
                    }
                };
                *sent += 1;
                Poll::Ready(Some(Ok(Frame::data(format!("event: e\ndata: {event}\n\n").into()))))
            }
        }
    }
}

/// The times of an exchange.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Took {
    /// From the request to the first byte of the answer's body.
    pub(crate) first: Duration,
    /// From the request to the end of the answer.
    pub(crate) whole: Duration,
    /// Processor time of the gateway during the exchange, if the system provides it.
    pub(crate) gateway: Option<Duration>,
}

/// One connection.
pub(crate) struct Client {
    sender: SendRequest<Full<Bytes>>,
    /// The connection; it ends with the client.
    _connection: JoinSet<()>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        let mut task = JoinSet::new();
        task.spawn(async move { drop(connection.await) });
        Ok(Self { sender, _connection: task })
    }

    /// Sends a request and reads its answer to the end.
    pub(crate) async fn send(&mut self, path: &str, kind: Kind, body: Bytes) -> io::Result<Took> {
        let mut request = Request::post(path)
            .header(header::HOST, "localhost")
            .header(header::CONTENT_TYPE, "application/json")
            .header("x-api-key", "none");
        if kind == Kind::Stream {
            request = request.header(STREAM, "1");
        }
        let request = request.body(Full::new(body)).map_err(io::Error::other)?;
        let start = Instant::now();
        self.sender.ready().await.map_err(io::Error::other)?;
        let response = self.sender.send_request(request).await.map_err(io::Error::other)?;
        if !response.status().is_success() {
            return Err(io::Error::other(format!("{path}: {}", response.status())));
        }
        let (mut body, mut first) = (response.into_body(), None);
        while let Some(frame) = body.frame().await {
            frame.map_err(io::Error::other)?;
            first.get_or_insert_with(|| start.elapsed());
        }
        let whole = start.elapsed();
        Ok(Took { first: first.unwrap_or(whole), whole, gateway: None })
    }
}

/// Processor time of the gateway's threads so far; `None` if the system does not provide it.
pub(crate) fn gateway_cpu() -> Option<Duration> {
    let mut total = Duration::ZERO;
    for task in fs::read_dir("/proc/self/task").ok()?.flatten() {
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        if name.starts_with("plimsoll") {
            let times = fs::read_to_string(task.path().join("schedstat")).ok()?;
            total += Duration::from_nanos(times.split(' ').next()?.parse().ok()?);
        }
    }
    Some(total)
}
