//! Raw sockets on both sides of the proxy.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::PATIENCE;

/// One end of a connection, played by a test.
pub(super) struct Peer {
    stream: TcpStream,
    /// Bytes that were received but not consumed yet.
    received: Vec<u8>,
}

/// How a connection ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Closing {
    Finished,
    Reset,
}

/// An upstream's listening socket.
pub(super) struct TestUpstream {
    listener: TcpListener,
}

impl Peer {
    pub(super) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, received: Vec::new() }
    }

    pub(super) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        within(self.stream.write_all(bytes.as_ref())).await.unwrap();
    }

    /// Expects exactly these bytes next.
    pub(super) async fn expect(&mut self, expected: impl AsRef<[u8]>) {
        let expected = expected.as_ref();
        while self.received.len() < expected.len() && expected.starts_with(&self.received) {
            assert!(
                self.read_more().await,
                "ended after {}, expected {}",
                show(&self.received),
                show(expected)
            );
        }
        let length = expected.len().min(self.received.len());
        assert!(
            self.received[..length] == *expected,
            "got {}, expected {}",
            show(&self.received),
            show(expected)
        );
        self.received.drain(..length);
    }

    /// Expects a head next; returns its text, including the empty line.
    pub(super) async fn head(&mut self) -> String {
        loop {
            if let Some(end) = self.received.windows(4).position(|window| window == b"\r\n\r\n") {
                let head = self.received.drain(..end + 4).collect();
                return String::from_utf8(head).unwrap();
            }
            assert!(self.read_more().await, "ended in the middle of a head: {}", show(&self.received));
        }
    }

    /// Reads a head and a body of the length that it declares.
    pub(super) async fn message(&mut self) -> (String, Vec<u8>) {
        let head = self.head().await;
        let length = header(&head, "content-length").map_or(0, |length| length.parse().unwrap());
        let body = self.bytes(length).await;
        (head, body)
    }

    pub(super) async fn bytes(&mut self, length: usize) -> Vec<u8> {
        while self.received.len() < length {
            assert!(self.read_more().await, "ended after {} of {length} bytes", self.received.len());
        }
        self.received.drain(..length).collect()
    }

    /// Reads the data of a chunked body up to and including its last chunk, however it is divided into chunks.
    pub(super) async fn chunked(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let chunk = self.chunk().await;
            if chunk.is_empty() {
                self.expect("\r\n").await;
                return body;
            }
            body.extend(chunk);
        }
    }

    /// Reads the data of the next chunk; the last one is empty and may be followed by trailers.
    pub(super) async fn chunk(&mut self) -> Vec<u8> {
        let line = self.line().await;
        let length = usize::from_str_radix(&line, 16).unwrap();
        let data = self.bytes(length).await;
        if length > 0 {
            self.expect("\r\n").await;
        }
        data
    }

    pub(super) async fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.received.windows(2).position(|window| window == b"\r\n") {
                let line = self.received.drain(..end).collect();
                self.received.drain(..2);
                return String::from_utf8(line).unwrap();
            }
            assert!(self.read_more().await, "ended in the middle of a line");
        }
    }

    /// Expects the end of the connection, with nothing left unread.
    pub(super) async fn closed(&mut self) -> Closing {
        let mut more = [0; 1024];
        assert_eq!(show(&self.received), "");
        match within(self.stream.read(&mut more)).await {
            Ok(0) => Closing::Finished,
            Ok(length) => panic!("got {} instead of an end", show(&more[..length])),
            Err(_) => Closing::Reset,
        }
    }

    /// Resets the connection.
    pub(super) fn reset(self) {
        self.stream.set_zero_linger().unwrap();
    }

    /// Closes the connection. When this returns, the other side has been informed: otherwise, under load, the system
    /// may deliver what others send later before that.
    pub(super) fn hang_up(self) {
        #[expect(deprecated, reason = "it is asked for because it waits")]
        self.stream.set_linger(Some(PATIENCE)).unwrap();
    }

    /// Ends sending; answers can still be read.
    pub(super) async fn finish(&mut self) {
        self.stream.shutdown().await.unwrap();
    }

    /// Sends as much of `bytes` as is accepted until nothing moves for a while.
    pub(super) async fn send_until_stuck(&mut self, bytes: &[u8]) -> usize {
        let mut sent = 0;
        while sent < bytes.len() {
            let write = self.stream.write(&bytes[sent..]);
            match tokio::time::timeout(Duration::from_millis(200), write).await {
                Ok(written) => sent += written.unwrap(),
                Err(_elapsed) => break,
            }
        }
        sent
    }

    async fn read_more(&mut self) -> bool {
        let read = within(self.stream.read_buf(&mut self.received)).await;
        read.unwrap_or_else(|error| panic!("{error} after {}", show(&self.received))) > 0
    }
}

impl TestUpstream {
    pub(super) async fn bind() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").await.unwrap() }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    pub(super) async fn accept(&self) -> Peer {
        let (stream, _) = within(self.listener.accept()).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Peer { stream, received: Vec::new() }
    }

    /// Whether no connection is waiting to be accepted.
    pub(super) fn is_quiet(&self) -> bool {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        self.listener.poll_accept(&mut cx).is_pending()
    }
}

/// The value of a header line in a head.
pub(super) fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines()
        .filter_map(|line| line.split_once(": "))
        .find(|(key, _)| key.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
}

pub(super) async fn within<T>(step: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, step).await.expect("a step takes too long")
}

/// Waits for a condition that another thread will make true.
pub(super) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("{what} never comes"));
}

pub(super) fn show(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(2000)]).into_owned();
    if bytes.len() > 2000 { format!("{text}… ({} bytes)", bytes.len()) } else { text }
}
