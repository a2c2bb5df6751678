//! Connections: kept, refused, replaced, limited and drained.

use std::num::NonZeroUsize;
use std::time::Duration;

use plimsoll::server::{Drained, Settings};
use tokio::time::timeout;

use super::gateway::{Preparing, TestGateway};
use super::wire::{Closing, Peer, TestUpstream, eventually, header};
use super::{Proxy, settings, stage};

const ASK: &str = "POST /x HTTP/1.1\r\nhost: me\r\ncontent-length: 2\r\n\r\n{}";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

async fn ask(client: &mut Peer, server: &mut Peer) {
    client.send(ASK).await;
    server.message().await;
    server.send(OK).await;
    client.expect(OK).await;
}

/// The upstream's side of a connection that has carried a request.
async fn carried(upstream: &TestUpstream, client: &mut Peer) -> Peer {
    client.send(ASK).await;
    let mut server = upstream.accept().await;
    server.message().await;
    server.send(OK).await;
    client.expect(OK).await;
    server
}

#[tokio::test]
async fn are_kept_on_both_sides() {
    let (proxy, upstream, mut client) = stage().await;
    let mut server = carried(&upstream, &mut client).await;
    for _ in 0..3 {
        ask(&mut client, &mut server).await;
    }
    let mut other = proxy.client().await;
    ask(&mut other, &mut server).await;
    assert!(upstream.is_quiet());
}

/// Whatever an old upstream answers, the next request is sent with its body.
#[tokio::test]
async fn to_old_upstreams_are_not_kept() {
    const CHUNKED: &str =
        "POST /x HTTP/1.1\r\nhost: me\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let (_proxy, upstream, mut client) = stage().await;
    for _ in 0..2 {
        client.send(CHUNKED).await;
        let mut server = upstream.accept().await;
        server.head().await;
        assert_eq!(server.chunked().await, b"hello");
        server.send("HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok").await;
        client.expect(OK).await;
    }
}

#[tokio::test]
async fn closed_by_the_upstream_are_replaced_unnoticed() {
    for preparing in [None, Some(Preparing::Untouched), Some(Preparing::Edited("[]"))] {
        let upstream = TestUpstream::bind().await;
        let proxy = Proxy::start(match preparing {
            None => TestGateway::forwarding(upstream.url()),
            Some(preparing) => TestGateway::reading(upstream.url(), preparing),
        });
        let mut client = proxy.client().await;
        for _ in 0..10 {
            carried(&upstream, &mut client).await.hang_up();
        }
    }
}

#[tokio::test]
async fn that_break_under_a_request_are_replaced_unnoticed_where_it_does_no_harm() {
    for (request, is_harmless) in [
        ("GET /x?y HTTP/1.1\r\nHost: me\r\nX-Key: k\r\n\r\n", true),
        ("HEAD /x HTTP/1.1\r\nHost: me\r\n\r\n", true),
        ("GET /x HTTP/1.1\r\nHost: me\r\nContent-Length: 2\r\n\r\n{}", false),
        ("DELETE /x HTTP/1.1\r\nHost: me\r\n\r\n", false),
        ("POST /x HTTP/1.1\r\nHost: me\r\n\r\n", false),
        (ASK, false),
    ] {
        for is_reset in [false, true] {
            let (_proxy, upstream, mut client) = stage().await;
            let mut kept = carried(&upstream, &mut client).await;
            client.send(request).await;
            let first = kept.message().await;
            if is_reset {
                kept.reset();
            } else {
                kept.hang_up();
            }
            if is_harmless {
                let mut server = upstream.accept().await;
                assert_eq!(server.message().await, first);
                server.send("HTTP/1.1 204 No Content\r\n\r\n").await;
                client.expect("HTTP/1.1 204 No Content\r\n\r\n").await;
            } else {
                let head = client.head().await;
                assert!(head.starts_with("HTTP/1.1 502 "), "{request} {head}");
                assert!(upstream.is_quiet(), "{request}");
            }
        }
    }
}

#[tokio::test]
async fn that_were_not_kept_are_not_replaced() {
    let (_proxy, upstream, mut client) = stage().await;
    let mut kept = carried(&upstream, &mut client).await;
    client.send("GET /x HTTP/1.1\r\nhost: me\r\n\r\n").await;
    kept.head().await;
    kept.hang_up();
    let mut server = upstream.accept().await;
    server.head().await;
    server.hang_up();
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    assert!(upstream.is_quiet());
}

#[tokio::test]
async fn to_upstreams_are_not_used_when_kept_for_too_long() {
    let upstream = TestUpstream::bind().await;
    let mut settings = plimsoll::upstream::Settings::new("test", upstream.url().parse().unwrap());
    settings.timeouts.keep_alive = Duration::ZERO;
    let proxy = Proxy::start(TestGateway::with_upstream(settings));
    let mut client = proxy.client().await;
    let mut kept = Vec::new();
    for _ in 0..3 {
        kept.push(carried(&upstream, &mut client).await);
    }
}

#[tokio::test]
async fn to_upstreams_are_not_used_when_these_are_about_to_close_them() {
    for (seconds, is_used) in [(0, false), (1, false), (60, true)] {
        let (_proxy, upstream, mut client) = stage().await;
        let mut server = None;
        for _ in 0..2 {
            client.send("GET /x HTTP/1.1\r\nhost: me\r\n\r\n").await;
            let mut peer = match server.take() {
                Some(kept) if is_used => kept,
                _ => upstream.accept().await,
            };
            peer.head().await;
            let head = format!("HTTP/1.1 200 OK\r\nKeep-Alive: timeout={seconds}\r\n");
            peer.send(format!("{head}content-length: 2\r\n\r\nok")).await;
            client.expect("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
            server = Some(peer);
        }
    }
}

#[tokio::test]
async fn whose_first_bytes_come_one_by_one_are_understood() {
    let (_proxy, upstream, mut client) = stage().await;
    for byte in ASK.as_bytes() {
        client.send([*byte]).await;
        tokio::task::yield_now().await;
    }
    upstream.accept().await.message().await;
}

#[tokio::test]
async fn refuse_upgrades_and_go_on() {
    let (proxy, upstream, mut client) = stage().await;
    client
        .send(
            "GET /v1/responses HTTP/1.1\r\nhost: me\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
        )
        .await;
    let (head, body) = client.message().await;
    assert!(head.starts_with("HTTP/1.1 426 Upgrade Required\r\n"), "{head}");
    let named = ["upgrade", "connection", "content-type"].map(|name| header(&head, name));
    assert_eq!(named, [Some("HTTP/1.1"), Some("upgrade"), Some("text/x-refusal")]);
    assert!(String::from_utf8(body).unwrap().starts_with("/v1/responses Client: "));
    assert!(upstream.is_quiet());
    carried(&upstream, &mut client).await;
    assert_eq!(proxy.stats.refusals.value(), 1);
}

#[tokio::test]
async fn survive_a_refusal_before_the_body_was_sent() {
    for (path, status) in [("/refused", "404 Not Found"), ("/panic", "500 Internal Server Error")] {
        let (_proxy, upstream, mut client) = stage().await;
        let body = "x".repeat(3 << 20);
        client
            .send(format!("POST {path} HTTP/1.1\r\nhost: me\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
            .await;
        let (head, _) = client.message().await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{head}");
        client.send(ASK).await;
        upstream.accept().await.message().await;
    }
}

#[tokio::test]
async fn carry_requests_one_after_the_other() {
    let (_proxy, upstream, mut client) = stage().await;
    client.send([ASK, ASK].concat()).await;
    let mut server = upstream.accept().await;
    for _ in 0..2 {
        server.message().await;
        server.send(OK).await;
        client.expect(OK).await;
    }
}

#[tokio::test]
async fn do_not_carry_tunnels() {
    let (_proxy, upstream, mut client) = stage().await;
    client.send("CONNECT example.com:443 HTTP/1.1\r\nhost: example.com:443\r\n\r\n").await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 405 Method Not Allowed\r\n"), "{head}");
    assert!(upstream.is_quiet());
}

#[tokio::test]
async fn beyond_the_limit_wait_for_their_turn() {
    let upstream = TestUpstream::bind().await;
    let limited = Settings { max_connections: 1, ..settings() };
    let proxy = Proxy::with_settings(TestGateway::forwarding(upstream.url()), limited);
    let (mut first, mut second) = (proxy.client().await, proxy.client().await);
    second.send(ASK).await;
    let mut server = carried(&upstream, &mut first).await;
    assert_eq!(proxy.stats.connections.value(), 1);
    drop(first);
    server.message().await;
    server.send(OK).await;
    second.expect(OK).await;
    assert_eq!(proxy.stats.open_connections.value(), 1);
}

#[tokio::test]
async fn that_have_rested_longest_make_room_for_others() {
    for workers in [1, 3] {
        let upstream = TestUpstream::bind().await;
        let workers = NonZeroUsize::new(workers).unwrap();
        let limited = Settings { max_connections: 3, workers, ..settings() };
        let proxy = Proxy::with_settings(TestGateway::forwarding(upstream.url()), limited);
        let (mut fresh, mut busy, mut idle) =
            (proxy.client().await, proxy.client().await, proxy.client().await);
        busy.send(ASK).await;
        let mut server = upstream.accept().await;
        server.message().await;
        let mut other = carried(&upstream, &mut idle).await;

        let mut taking = Vec::new();
        for resting in [&mut fresh, &mut idle] {
            let mut next = proxy.client().await;
            next.send(ASK).await;
            assert_eq!(resting.closed().await, Closing::Finished);
            // The worker of the first connection has not contacted the upstream yet.
            let is_first = taking.is_empty() && workers.get() > 1;
            let mut first = if is_first { Some(upstream.accept().await) } else { None };
            let server = first.as_mut().unwrap_or(&mut other);
            server.message().await;
            server.send(OK).await;
            next.expect(OK).await;
            taking.push((next, first));
        }
        server.send(OK).await;
        busy.expect(OK).await;
        ask(&mut busy, &mut server).await;
    }
}

#[tokio::test]
async fn on_which_a_request_has_begun_are_not_closed() {
    let upstream = TestUpstream::bind().await;
    let limited = Settings { max_connections: 1, ..settings() };
    let proxy = Proxy::with_settings(TestGateway::forwarding(upstream.url()), limited);
    let (mut first, mut second) = (proxy.client().await, proxy.client().await);
    let mut server = carried(&upstream, &mut first).await;
    let (begun, rest) = ASK.split_at(10);
    first.send(begun).await;
    second.send(ASK).await;
    // Longer than a connection may be idle before it is closed.
    assert!(timeout(Duration::from_millis(1500), second.head()).await.is_err());
    first.send(rest).await;
    server.message().await;
    server.send(OK).await;
    first.expect(OK).await;
    assert_eq!(first.closed().await, Closing::Finished);
    server.message().await;
    server.send(OK).await;
    second.expect(OK).await;
}

#[tokio::test]
async fn are_shared_out_among_workers() {
    let upstream = TestUpstream::bind().await;
    let several = Settings { workers: NonZeroUsize::new(3).unwrap(), ..settings() };
    let proxy = Proxy::with_settings(TestGateway::forwarding(upstream.url()), several);
    // Upstream connections belong to a worker, so there are as many as workers.
    let mut pairs = Vec::new();
    for _ in 0..3 {
        let mut client = proxy.client().await;
        let server = carried(&upstream, &mut client).await;
        pairs.push((client, server));
    }
    for (client, server) in &mut pairs {
        ask(client, server).await;
    }
    assert!(upstream.is_quiet());
}

#[tokio::test]
async fn that_idle_for_too_long_are_closed() {
    let upstream = TestUpstream::bind().await;
    let impatient = Settings { idle_timeout: Duration::from_millis(1), ..settings() };
    let proxy = Proxy::with_settings(TestGateway::forwarding(upstream.url()), impatient);
    assert_eq!(proxy.client().await.closed().await, Closing::Finished);
}

#[tokio::test]
async fn are_closed_when_idle_and_finished_when_not_at_the_end() {
    let upstream = TestUpstream::bind().await;
    let patient = Settings { drain_timeout: super::PATIENCE, ..settings() };
    let mut proxy = Proxy::with_settings(TestGateway::forwarding(upstream.url()), patient);
    let (mut idle, mut busy, mut fresh) = (proxy.client().await, proxy.client().await, proxy.client().await);
    let mut server = carried(&upstream, &mut idle).await;
    busy.send(ASK).await;
    server.message().await;
    server.send("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nab").await;
    busy.expect("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n").await;
    eventually("three connections", || proxy.stats.open_connections.value() == 3).await;

    let finishing = async {
        assert_eq!(idle.closed().await, Closing::Finished);
        assert_eq!(fresh.closed().await, Closing::Finished);
        server.send("cd").await;
        busy.expect("\r\nabcd").await;
        assert_eq!(busy.closed().await, Closing::Finished);
    };
    let (drained, ()) = tokio::join!(proxy.stop(), finishing);
    assert_eq!(drained, Drained::Completely);
}

#[tokio::test]
async fn that_do_not_finish_are_cut_at_the_end() {
    let (mut proxy, upstream, mut client) = stage().await;
    client.send(ASK).await;
    let mut server = upstream.accept().await;
    server.message().await;
    assert_eq!(proxy.stop().await, Drained::Cut(1));
    assert_eq!(proxy.stats.cut_connections.value(), 1);
    client.closed().await;
    server.closed().await;
}

/// An urgent shutdown cuts connections before the drain timeout is over.
#[tokio::test]
async fn that_do_not_finish_are_cut_in_haste() {
    let upstream = TestUpstream::bind().await;
    let patient = Settings { drain_timeout: Duration::from_secs(3600), ..settings() };
    let mut proxy = Proxy::with_settings(TestGateway::forwarding(upstream.url()), patient);
    let mut client = proxy.client().await;
    client.send(ASK).await;
    let mut server = upstream.accept().await;
    server.message().await;
    assert_eq!(proxy.stats.open_requests.value(), 1);
    proxy.running.as_ref().unwrap().haste().hurry();
    assert_eq!(proxy.stop().await, Drained::Cut(1));
    assert_eq!(proxy.stats.open_requests.value(), 0);
    client.closed().await;
}

/// Data that an upstream sends without a request is no answer to the next one.
#[tokio::test]
async fn on_which_an_upstream_spoke_unasked_are_not_used() {
    const UNASKED: &str = "HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    for stays in [true, false] {
        let (_proxy, upstream, mut client) = stage().await;
        let mut server = carried(&upstream, &mut client).await;
        server.send(UNASKED).await;
        let _kept = stays.then_some(server);
        carried(&upstream, &mut client).await;
    }
}
