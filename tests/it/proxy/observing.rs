//! The events that an exchange is notified of, which must not change anything.

use std::io::Write;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};

use super::gateway::{Preparing, TestGateway, Watching};
use super::wire::{Peer, TestUpstream, eventually};
use super::{Proxy, settings};

const ASK: &str = "POST /x HTTP/1.1\r\nhost: me\r\ncontent-length: 2\r\n\r\n{}";

async fn asked(watching: Watching) -> (Proxy, Peer, Peer) {
    let upstream = TestUpstream::bind().await;
    let gateway = TestGateway::reading(upstream.url(), Preparing::Untouched).watching(watching);
    let proxy = Proxy::with_settings(gateway, settings());
    let mut client = proxy.client().await;
    client.send(ASK).await;
    let mut server = upstream.accept().await;
    server.message().await;
    (proxy, client, server)
}

async fn ended(proxy: &Proxy) -> Vec<String> {
    eventually("the end of the exchange", || proxy.gateway.has_ended()).await;
    proxy.gateway.events()
}

/// The events, with adjacent pieces of data joined.
async fn told(proxy: &Proxy) -> (String, String) {
    let mut data = String::new();
    let mut others = Vec::new();
    for event in ended(proxy).await {
        match event.strip_prefix("data ") {
            Some(piece) => data.push_str(piece),
            None => others.push(event),
        }
    }
    (others.join(", "), data)
}

#[tokio::test]
async fn an_exchange_is_told_everything_in_order() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nabcdef",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n6\r\nabcdef\r\n0\r\n\r\n",
    ] {
        let (proxy, mut client, mut server) = asked(Watching::Quietly).await;
        server.send(answer).await;
        client.expect(answer).await;
        let expected = "sent Original, response 200, end Complete";
        assert_eq!(told(&proxy).await, (expected.to_owned(), "abcdef".to_owned()));
    }
}

#[tokio::test]
async fn encoded_streams_are_shown_decoded_as_they_come() {
    let events: Vec<String> = (0..50).map(|index| format!("data: {{\"n\":{index}}}\n\n")).collect();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
    let mut zstd = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
    let mut pieces: [Vec<Vec<u8>>; 3] = Default::default();
    for event in &events {
        gzip.write_all(event.as_bytes()).unwrap();
        gzip.flush().unwrap();
        pieces[0].push(std::mem::take(gzip.get_mut()));
        zlib.write_all(event.as_bytes()).unwrap();
        zlib.flush().unwrap();
        pieces[1].push(std::mem::take(zlib.get_mut()));
        zstd.write_all(event.as_bytes()).unwrap();
        zstd.flush().unwrap();
        pieces[2].push(std::mem::take(zstd.get_mut()));
    }
    pieces[0].push(gzip.finish().unwrap());
    pieces[1].push(zlib.finish().unwrap());
    pieces[2].push(zstd.finish().unwrap());
    for (coding, pieces) in ["gzip", "deflate", "zstd"].into_iter().zip(pieces) {
        let (proxy, mut client, mut server) = asked(Watching::Quietly).await;
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-encoding: {coding}\r\ntransfer-encoding: chunked\r\n\r\n");
        server.send(&head).await;
        client.expect(&head).await;
        for piece in pieces {
            let chunk = [format!("{:x}\r\n", piece.len()).as_bytes(), &piece, b"\r\n"].concat();
            server.send(&chunk).await;
            assert_eq!(client.chunk().await, piece);
        }
        server.send("0\r\n\r\n").await;
        client.expect("0\r\n\r\n").await;
        assert_eq!(told(&proxy).await.1, events.concat(), "{coding}");
    }
}

#[tokio::test]
async fn what_is_not_understood_is_not_shown_and_not_touched() {
    for coding in ["compress", "gzip, br", "gzip", "zstd", "br", "deflate"] {
        let (proxy, mut client, mut server) = asked(Watching::Quietly).await;
        let body = "this is certainly none of them \x7f\x7f\x7f";
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-encoding: {coding}\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        server.send(&answer).await;
        client.expect(&answer).await;
        assert_eq!(told(&proxy).await.0, "sent Original, response 200, end Complete", "{coding}");
        assert_eq!(proxy.stats.undecodable.value() + proxy.stats.panics.value(), 1, "{coding}");
    }
}

#[tokio::test]
async fn an_observer_that_panics_is_dropped_and_nothing_else() {
    let (proxy, mut client, mut server) = asked(Watching::Panicking).await;
    server.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
    client.head().await;
    for _ in 0..3 {
        server.send("3\r\nabc\r\n").await;
        client.expect("3\r\nabc\r\n").await;
    }
    server.send("0\r\n\r\n").await;
    client.expect("0\r\n\r\n").await;
    assert_eq!(proxy.stats.panics.value(), 1);
    assert_eq!(proxy.gateway.events(), ["sent Original", "response 200"]);
}

#[tokio::test]
async fn the_end_says_who_ended_it() {
    let (proxy, mut client, mut server) = asked(Watching::Quietly).await;
    server.send("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nabc").await;
    client.expect("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nabc").await;
    drop(server);
    client.closed().await;
    assert_eq!(
        told(&proxy).await,
        ("sent Original, response 200, end UpstreamBroke".to_owned(), "abc".to_owned())
    );

    let (proxy, mut client, mut server) = asked(Watching::Quietly).await;
    server.send("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nabc").await;
    client.expect("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nabc").await;
    drop(client);
    assert_eq!(
        told(&proxy).await,
        ("sent Original, response 200, end ClientGone".to_owned(), "abc".to_owned())
    );

    let (proxy, client, _server) = asked(Watching::Quietly).await;
    drop(client);
    assert_eq!(told(&proxy).await.0, "sent Original, end ClientGone");

    let (proxy, mut client, server) = asked(Watching::Quietly).await;
    drop(server);
    assert!(client.head().await.starts_with("HTTP/1.1 502 "));
    assert_eq!(told(&proxy).await.0, "sent Original, end Failed 502");

    let (proxy, mut client, mut server) = asked(Watching::Quietly).await;
    server.send("HTTP/1.1 204 No Content\r\n\r\n").await;
    client.expect("HTTP/1.1 204 No Content\r\n\r\n").await;
    assert_eq!(told(&proxy).await.0, "sent Original, response 204, end Complete");
}

#[tokio::test]
async fn endings_are_told_before_the_server_is_gone() {
    let (mut proxy, mut client, mut server) = asked(Watching::Quietly).await;
    server.send("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nabc").await;
    client.expect("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nabc").await;
    proxy.stop().await;
    assert_eq!(proxy.gateway.events().last().unwrap(), "end Stopped");
}
