//! A break on one side becomes a break on the other side, never a regular end.

use std::time::Duration;

use plimsoll::upstream::{Settings, Timeouts};

use super::gateway::{Preparing, TestGateway};
use super::wire::{Closing, Peer, TestUpstream, eventually, header};
use super::{Proxy, stage};

/// How an upstream breaks off.
#[derive(Clone, Copy, Debug)]
enum Break {
    Finish,
    Reset,
}

#[tokio::test]
async fn a_broken_answer_arrives_broken_and_with_all_that_came_before() {
    for (head, body) in [
        ("transfer-encoding: chunked\r\n\r\n", "3\r\nabc\r\n"),
        ("transfer-encoding: chunked\r\n\r\n", "6\r\nabc"),
        ("content-length: 6\r\n\r\n", "abc"),
    ] {
        for how in [Break::Finish, Break::Reset] {
            let (proxy, upstream, mut client) = stage().await;
            client.send("GET /x HTTP/1.1\r\nhost: me\r\n\r\n").await;
            let mut server = upstream.accept().await;
            server.head().await;
            server.send(format!("HTTP/1.1 200 OK\r\n{head}")).await;
            client.expect(format!("HTTP/1.1 200 OK\r\n{head}")).await;
            server.send(body).await;
            if head.starts_with('t') {
                client.expect("3\r\nabc\r\n").await;
            } else {
                client.expect("abc").await;
            }
            match how {
                Break::Finish => drop(server),
                Break::Reset => server.reset(),
            }
            // No last chunk, no missing bytes.
            client.closed().await;
            assert_eq!(proxy.stats.upstream_breaks.value(), 1, "{head} {how:?}");
        }
    }
}

#[tokio::test]
async fn a_broken_answer_to_an_old_client_ends_with_a_reset() {
    for (head, what_else) in [
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n", ""),
        ("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nabc", "content-length: 6\r\n"),
    ] {
        for how in [Break::Finish, Break::Reset] {
            let (_proxy, upstream, mut client) = stage().await;
            client.send("GET /x HTTP/1.0\r\nhost: me\r\n\r\n").await;
            let mut server = upstream.accept().await;
            server.head().await;
            server.send(head).await;
            client.expect(format!("HTTP/1.0 200 OK\r\n{what_else}\r\nabc")).await;
            match how {
                Break::Finish => drop(server),
                Break::Reset => server.reset(),
            }
            assert_eq!(client.closed().await, Closing::Reset, "{head} {how:?}");
        }
    }
}

#[tokio::test]
async fn an_answer_to_an_old_client_that_is_cut_ends_with_a_reset() {
    let (mut proxy, upstream, mut client) = stage().await;
    client.send("GET /x HTTP/1.0\r\nhost: me\r\n\r\n").await;
    let mut server = upstream.accept().await;
    server.head().await;
    server.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n").await;
    client.expect("HTTP/1.0 200 OK\r\n\r\nabc").await;
    proxy.stop().await;
    assert_eq!(client.closed().await, Closing::Reset);
}

#[tokio::test]
async fn what_came_with_the_break_arrives_too() {
    let (_proxy, upstream, mut client) = stage().await;
    client.send("GET /x HTTP/1.1\r\nhost: me\r\n\r\n").await;
    let mut server = upstream.accept().await;
    server.head().await;
    server.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n3\r\nde").await;
    drop(server);
    client.head().await;
    let mut arrived = client.chunk().await;
    while arrived.len() < 5 {
        arrived.extend(client.chunk().await);
    }
    assert_eq!(arrived, b"abcde");
    client.closed().await;
}

#[tokio::test]
async fn a_client_that_leaves_while_waiting_cancels_the_request() {
    let (_proxy, upstream, mut client) = stage().await;
    client.send("POST /x HTTP/1.1\r\nhost: me\r\ncontent-length: 2\r\n\r\n{}").await;
    let mut server = upstream.accept().await;
    server.message().await;
    drop(client);
    server.closed().await;
}

/// If a request is held for something that may be stored and known to other gateways, its preparation is completed.
#[tokio::test]
async fn a_client_that_leaves_before_a_request_is_prepared_cancels_it_unless_it_is_held() {
    for (holds, told) in [(false, "dropped"), (true, "end ClientGone")] {
        for length in [2, 1 << 20] {
            let upstream = TestUpstream::bind().await;
            let gateway = TestGateway::reading(upstream.url(), Preparing::Waiting(holds, "[]"));
            let proxy = Proxy::start(gateway);
            let mut client = proxy.client().await;
            let body = "x".repeat(length);
            client
                .send(format!("POST /x HTTP/1.1\r\nhost: me\r\ncontent-length: {length}\r\n\r\n{body}"))
                .await;
            eventually("the request", || !proxy.gateway.shown().is_empty()).await;
            drop(client);
            eventually("the client to be gone", || proxy.stats.open_connections.value() == 0).await;
            if holds {
                assert_eq!(proxy.gateway.events(), [""; 0], "{length}");
                proxy.gateway.go_on();
            }
            eventually("the end of it", || !proxy.gateway.events().is_empty()).await;
            assert_eq!(proxy.gateway.events(), [told], "{length}");
            assert!(upstream.is_quiet(), "{length}");
        }
    }
}

/// What the client sent after its request is not read before the answer, and hides the client's end.
#[tokio::test]
async fn a_client_that_leaves_after_sending_more_than_a_request_is_gone_too() {
    let mores = ["\r\n", "\n", "GET /y HTTP/1.1\r\nhost: me\r\n\r\n", "GET /y HT"];
    for (more, is_reset) in mores.into_iter().flat_map(|more| [(more, false), (more, true)]) {
        for answer in ["", "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nab"] {
            let (_proxy, upstream, mut client) = stage().await;
            let request = "POST /x HTTP/1.1\r\nhost: me\r\ncontent-length: 2\r\n\r\n{}";
            client.send([request, more].concat()).await;
            let mut server = upstream.accept().await;
            server.message().await;
            server.send(answer).await;
            client.expect(answer).await;
            if is_reset {
                client.reset();
            } else {
                drop(client);
            }
            server.closed().await;
        }
    }
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_cancels_the_answer() {
    let (_proxy, upstream, mut client) = stage().await;
    client.send("GET /x HTTP/1.1\r\nhost: me\r\n\r\n").await;
    let mut server = upstream.accept().await;
    server.head().await;
    server.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n").await;
    client.head().await;
    client.expect("3\r\nabc\r\n").await;
    drop(client);
    server.closed().await;
}

/// An answer whose content is complete but whose end has not arrived, after its client has left.
async fn left() -> (Proxy, TestUpstream, Peer) {
    const OVER: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nB\r\nthat is all\r\n";
    let upstream = TestUpstream::bind().await;
    let proxy = Proxy::start(TestGateway::reading(upstream.url(), Preparing::Untouched));
    let mut client = proxy.client().await;
    client.send("POST /x HTTP/1.1\r\nhost: me\r\ncontent-length: 2\r\n\r\n{}").await;
    let mut server = upstream.accept().await;
    server.message().await;
    server.send(OVER).await;
    client.expect(OVER).await;
    drop(client);
    eventually("the client to be gone", || proxy.stats.open_connections.value() == 0).await;
    (proxy, upstream, server)
}

/// The rest of the answer is not cancelled: it costs nothing and may contain usage figures.
#[tokio::test]
async fn a_client_that_leaves_after_the_final_event_cancels_nothing() {
    let (proxy, upstream, mut server) = left().await;
    server.send("2\r\n: \r\n").await;
    server.send("0\r\n\r\n").await;
    eventually("the end of the exchange", || proxy.gateway.has_ended()).await;
    let events = proxy.gateway.events();
    assert_eq!(events[2..], ["data that is all", "data : ", "end Complete"]);
    let mut client = proxy.client().await;
    client.send("POST /x HTTP/1.1\r\nhost: me\r\ncontent-length: 2\r\n\r\n{}").await;
    server.message().await;
    assert!(upstream.is_quiet(), "the connection was kept");
}

#[tokio::test]
async fn what_was_said_to_be_over_and_goes_on_is_cancelled() {
    let piece = format!("4000\r\n{}\r\n", "x".repeat(0x4000));
    for pieces in [0, 4] {
        let (proxy, _upstream, mut server) = left().await;
        for _ in 0..pieces {
            server.send(&piece).await;
        }
        server.closed().await;
        eventually("the end of the exchange", || proxy.gateway.has_ended()).await;
        assert_eq!(proxy.gateway.events().last().unwrap(), "end ClientGone");
    }
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_of_its_request_cancels_it() {
    let (_proxy, upstream, mut client) = stage().await;
    client.send("POST /x HTTP/1.1\r\nhost: me\r\ncontent-length: 4\r\n\r\nab").await;
    let mut server = upstream.accept().await;
    server.head().await;
    server.expect("ab").await;
    drop(client);
    server.closed().await;
}

#[tokio::test]
async fn an_upstream_that_cannot_be_reached_is_named() {
    // The port is bound but not listening: connections are refused, and no other test can take it.
    let nobody = tokio::net::TcpSocket::new_v4().unwrap();
    nobody.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}", nobody.local_addr().unwrap());
    let proxy = Proxy::start(TestGateway::forwarding(&url));
    let mut client = proxy.client().await;
    client.send("POST /x HTTP/1.1\r\nhost: me\r\ncontent-length: 2\r\n\r\n{}").await;
    let (head, body) = client.message().await;
    let body = String::from_utf8(body).unwrap();
    assert!(head.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{head}");
    assert_eq!(header(&head, "content-type"), Some("text/x-refusal"));
    assert!(body.starts_with(&format!("/x Upstream: upstream `test` ({url}): cannot connect")), "{body}");
    assert_eq!(proxy.stats.upstream_failures.value(), 1);
}

/// A label of more than 63 bytes is in no name, so no name server is asked.
#[tokio::test]
async fn a_name_that_cannot_be_looked_up_is_not_the_upstreams_fault() {
    let url = format!("http://{}.test", "x".repeat(64));
    let proxy = Proxy::start(TestGateway::forwarding(&url));
    let mut client = proxy.client().await;
    client.send("GET /x HTTP/1.1\r\nhost: me\r\n\r\n").await;
    let (head, body) = client.message().await;
    let body = String::from_utf8(body).unwrap();
    assert!(head.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{head}");
    let expected = "cannot connect: failed to lookup address information: ";
    assert!(body.starts_with("/x Network: ") && body.contains(expected), "{body}");
}

#[tokio::test]
async fn an_upstream_that_hangs_up_before_answering_is_not_asked_again() {
    let (_proxy, upstream, mut client) = stage().await;
    client.send("POST /x HTTP/1.1\r\nhost: me\r\ncontent-length: 2\r\n\r\n{}").await;
    let mut server = upstream.accept().await;
    server.message().await;
    drop(server);
    let (head, _) = client.message().await;
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    assert!(upstream.is_quiet());
}

#[tokio::test]
async fn an_answer_that_is_not_http_is_the_upstreams_fault() {
    let (_proxy, upstream, mut client) = stage().await;
    client.send("GET /x HTTP/1.1\r\nhost: me\r\n\r\n").await;
    let mut server = upstream.accept().await;
    server.head().await;
    server.send("SSH-2.0-OpenSSH\r\n\r\n").await;
    let (head, body) = client.message().await;
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    assert!(String::from_utf8(body).unwrap().contains("Upstream"));
}

fn impatient(upstream: &TestUpstream, timeouts: Timeouts) -> TestGateway {
    let mut settings = Settings::new("test", upstream.url().parse().unwrap());
    settings.timeouts = timeouts;
    TestGateway::with_upstream(settings)
}

#[tokio::test]
async fn an_upstream_that_does_not_answer_in_time_is_given_up() {
    let upstream = TestUpstream::bind().await;
    let timeouts = Timeouts { response: Duration::from_millis(1), ..Timeouts::default() };
    let proxy = Proxy::start(impatient(&upstream, timeouts));
    let mut client = proxy.client().await;
    client.send("GET /x HTTP/1.1\r\nhost: me\r\n\r\n").await;
    let (head, body) = client.message().await;
    assert!(head.starts_with("HTTP/1.1 504 Gateway Timeout\r\n"), "{head}");
    assert!(body.starts_with(b"/x Way: "), "{}", body.escape_ascii());
}

#[tokio::test]
async fn a_client_that_falls_silent_while_its_request_is_read_gets_an_error() {
    let upstream = TestUpstream::bind().await;
    let timeouts = Timeouts { response: Duration::from_millis(1), ..Timeouts::default() };
    let proxy = Proxy::start(impatient(&upstream, timeouts).preparing(Preparing::Untouched));
    let mut client = proxy.client().await;
    client.send("POST /x HTTP/1.1\r\nhost: me\r\ncontent-length: 4\r\n\r\nab").await;
    let (head, body) = client.message().await;
    assert!(head.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{head}");
    assert!(body.starts_with(b"/x Client: "), "{}", String::from_utf8_lossy(&body));
    assert_eq!(client.closed().await, Closing::Finished);
    assert!(upstream.is_quiet());
}

#[tokio::test]
async fn an_answer_that_falls_silent_breaks() {
    let upstream = TestUpstream::bind().await;
    let timeouts = Timeouts { idle: Duration::from_millis(1), ..Timeouts::default() };
    let proxy = Proxy::start(impatient(&upstream, timeouts));
    let mut client = proxy.client().await;
    client.send("GET /x HTTP/1.1\r\nhost: me\r\n\r\n").await;
    let mut server = upstream.accept().await;
    server.head().await;
    server.send("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nabc").await;
    client.head().await;
    client.expect("abc").await;
    assert_eq!(client.closed().await, Closing::Finished);
    server.closed().await;
    eventually("the count of stalls", || proxy.stats.upstream_stalls.value() == 1).await;
}
