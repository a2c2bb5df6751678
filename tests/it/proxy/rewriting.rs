//! Requests whose bodies are read: what the gateway is shown, and what is sent.

use std::io::{Read, Write};
use std::time::Duration;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use plimsoll::server::{Remedy, Settings};

use super::gateway::{Preparing, TestGateway, Watching};
use super::wire::{Peer, TestUpstream, eventually, header, show};
use super::{Proxy, settings};

const TEXT: &str = "{\"messages\":[{\"role\":\"user\",\"content\":\"h\u{e9}llo \u{1f6a2}\"}]}";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

struct Scene {
    proxy: Proxy,
    upstream: TestUpstream,
    client: Peer,
}

async fn scene(preparing: Preparing) -> Scene {
    scene_with(preparing, Remedy::Deliver, settings()).await
}

async fn scene_with(preparing: Preparing, remedy: Remedy, settings: Settings) -> Scene {
    let upstream = TestUpstream::bind().await;
    let gateway = TestGateway::reading(upstream.url(), preparing).remedying(remedy);
    let proxy = Proxy::with_settings(gateway, settings);
    let client = proxy.client().await;
    Scene { proxy, upstream, client }
}

/// A request as sent and, except for the host, as received.
fn request(host: &str, lines: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST /v1/x HTTP/1.1\r\nHost: {host}\r\n{lines}Content-Length: {}\r\nX: 1\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

impl Scene {
    async fn send(&mut self, lines: &str, body: &[u8]) -> Peer {
        self.client.send(request("me", lines, body)).await;
        self.upstream.accept().await
    }

    /// The request is received unchanged.
    async fn untouched(mut self, lines: &str, body: &[u8]) -> Self {
        let mut server = self.send(lines, body).await;
        server.expect(request(&self.upstream.address().to_string(), lines, body)).await;
        server.send(OK).await;
        self.client.expect(OK).await;
        self
    }
}

fn encodings() -> Vec<(&'static str, Vec<u8>)> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
    let mut bare = DeflateEncoder::new(Vec::new(), Compression::default());
    for encoder in [&mut gzip as &mut dyn Write, &mut zlib, &mut bare] {
        encoder.write_all(TEXT.as_bytes()).unwrap();
    }
    let members = TEXT.as_bytes().chunks(9).flat_map(|piece| {
        let mut member = GzEncoder::new(Vec::new(), Compression::default());
        member.write_all(piece).unwrap();
        member.finish().unwrap()
    });
    vec![
        ("gzip", gzip.finish().unwrap()),
        ("gzip", members.collect()),
        ("deflate", zlib.finish().unwrap()),
        ("deflate", bare.finish().unwrap()),
        ("zstd", zstd::encode_all(TEXT.as_bytes(), 3).unwrap()),
        ("br", brotli(TEXT.as_bytes())),
        ("identity", TEXT.as_bytes().to_vec()),
    ]
}

fn gunzip(encoded: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    GzDecoder::new(encoded).read_to_end(&mut plain).unwrap();
    plain
}

/// A brotli stream without compression: one uncompressed block.
fn brotli(text: &[u8]) -> Vec<u8> {
    let length = u32::try_from(text.len() - 1).unwrap();
    assert!(length < 1 << 16);
    // Window bits (1), last (0), nibbles (00), length, uncompressed (1); then the text, then an empty last block.
    let header = length << 4 | 1 << 20;
    let mut stream = header.to_le_bytes()[..3].to_vec();
    stream.extend(text);
    stream.push(0b11);
    stream
}

/// A body with a transfer coding cannot be read, and cannot be sent on without that coding.
#[tokio::test]
async fn bodies_in_a_transfer_coding_go_through_and_are_followed() {
    for coding in ["gzip, chunked", "GZIP,chunked"] {
        let mut scene = scene(Preparing::Edited("[]")).await;
        let request = |host: String| {
            format!(
                "POST /v1/x HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: {coding}\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
            )
        };
        scene.client.send(request("me".to_owned())).await;
        let mut server = scene.upstream.accept().await;
        server.expect(request(scene.upstream.address().to_string())).await;
        server.send(OK).await;
        scene.client.expect(OK).await;
        assert!(scene.proxy.gateway.shown().is_empty());
        assert_eq!(scene.proxy.stats.unread_bodies.value(), 1);
        assert_eq!(scene.proxy.gateway.events()[..3], UNDECODED);
    }
}

#[tokio::test]
async fn plain_bodies_are_shown_and_sent_as_they_are() {
    let scene = scene(Preparing::Untouched).await.untouched("", TEXT.as_bytes()).await;
    assert_eq!(scene.proxy.gateway.shown(), [TEXT]);
}

#[tokio::test]
async fn large_bodies_are_shown_whole() {
    let body = super::streaming::pattern(8 << 20);
    let mut scene = scene(Preparing::Untouched).await;
    let request = request("me", "", &body);
    let ((), mut server) = tokio::join!(scene.client.send(&request), scene.upstream.accept());
    let (_, received) = server.message().await;
    assert!(received == body && scene.proxy.gateway.shown() == [body]);
}

#[tokio::test]
async fn encoded_bodies_are_shown_decoded_and_sent_encoded() {
    for (coding, body) in encodings() {
        let lines = format!("Content-Encoding: {coding}\r\n");
        let scene = scene(Preparing::Untouched).await.untouched(&lines, &body).await;
        assert_eq!(scene.proxy.gateway.shown(), [TEXT], "{coding}");
    }
}

#[tokio::test]
async fn edited_bodies_are_sent_in_the_encoding_that_they_came_in_or_plain() {
    const EDITED: &str = "{\"edited\":true}";
    for (coding, body) in encodings() {
        let mut scene = scene(Preparing::Edited(EDITED)).await;
        let mut server = scene.send(&format!("Content-Encoding: {coding}\r\n"), &body).await;
        let (head, sent) = server.message().await;
        let (said, plain) = match coding {
            "gzip" => (Some(coding), gunzip(&sent)),
            "zstd" => (Some(coding), zstd::decode_all(&*sent).unwrap()),
            _ => (None, sent.clone()),
        };
        assert_eq!((header(&head, "content-encoding"), show(&plain).as_str()), (said, EDITED));
        assert_eq!(header(&head, "content-length"), Some(sent.len().to_string().as_str()), "{coding}");
        assert_eq!(header(&head, "x"), Some("1"));
        assert_eq!(scene.proxy.gateway.shown(), [TEXT], "{coding}");
        assert_eq!(scene.proxy.stats.edited.value(), 1);
    }
}

#[tokio::test]
async fn chunked_bodies_get_a_length() {
    for (preparing, expected) in [(Preparing::Untouched, "abcdef"), (Preparing::Edited("[]"), "[]")] {
        let mut scene = scene(preparing).await;
        scene
            .client
            .send("POST /x HTTP/1.1\r\nhost: me\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n")
            .await;
        let (head, body) = scene.upstream.accept().await.message().await;
        assert_eq!((header(&head, "transfer-encoding"), show(&body).as_str()), (None, expected));
        assert_eq!(scene.proxy.gateway.shown(), ["abcdef"]);
    }
}

/// What is heard of a request whose body is not decoded.
const UNDECODED: [&str; 3] = ["unprepared Undecoded", "sent Original", "response 200"];

#[tokio::test]
async fn bodies_that_cannot_be_read_are_sent_unread_and_followed() {
    let gzip = &encodings()[0].1;
    let longer = [gzip.as_slice(), b"\0"].concat();
    let bomb = zstd::encode_all(vec![0; 1 << 20].as_slice(), 19).unwrap();
    for (lines, body) in [
        ("Content-Encoding: compress\r\n", &b"abc"[..]),
        ("Content-Encoding: gzip, zstd\r\n", b"abc"),
        ("Content-Encoding: gzip\r\nContent-Encoding: zstd\r\n", b"abc"),
        ("Content-Encoding: gzip\r\n", b"not gzip at all"),
        ("Content-Encoding: gzip\r\n", &gzip[..gzip.len() - 1]),
        ("Content-Encoding: gzip\r\n", &longer),
        ("Content-Encoding: zstd\r\n", &bomb),
    ] {
        let small = Settings { max_decoded: 1 << 16, ..settings() };
        let scene = scene_with(Preparing::Edited("never"), Remedy::Deliver, small).await;
        let scene = scene.untouched(lines, body).await;
        assert_eq!(
            (scene.proxy.gateway.shown().len(), scene.proxy.stats.unread_bodies.value()),
            (0, 1),
            "{lines}"
        );
        assert_eq!(scene.proxy.gateway.events()[..3], UNDECODED, "{lines}");
    }
}

#[tokio::test]
async fn bodies_beyond_the_limit_stream_through() {
    let small = || Settings { max_body: 1_000, ..settings() };
    let body = "b".repeat(1_001);
    let scene = scene_with(Preparing::Edited("never"), Remedy::Deliver, small()).await;
    let scene = scene.untouched("", body.as_bytes()).await;
    assert_eq!(scene.proxy.gateway.shown().len(), 0);
    assert_eq!(scene.proxy.gateway.events(), [""; 0]);

    // Without a declared length, the excess is found while reading.
    let mut scene = scene_with(Preparing::Edited("never"), Remedy::Deliver, small()).await;
    scene.client.send("POST /x HTTP/1.1\r\nhost: me\r\ntransfer-encoding: chunked\r\n\r\n").await;
    scene.client.send(format!("258\r\n{}\r\n258\r\n{}\r\n", "c".repeat(600), "d".repeat(600))).await;
    let mut server = scene.upstream.accept().await;
    server.head().await;
    let mut received = Vec::new();
    while received.len() < 1_200 {
        received.extend(server.chunk().await);
    }
    assert!(received == ["c".repeat(600), "d".repeat(600)].concat().as_bytes());
    scene.client.send("1\r\ne\r\n0\r\n\r\n").await;
    assert_eq!(show(&server.chunked().await), "e");
    assert_eq!(scene.proxy.gateway.shown().len(), 0);

    // Bodies of exactly the limit are read.
    let scene = scene_with(Preparing::Untouched, Remedy::Deliver, small()).await;
    let scene = scene.untouched("", "f".repeat(1_000).as_bytes()).await;
    assert_eq!(scene.proxy.gateway.shown().len(), 1);
}

#[tokio::test]
async fn a_body_with_trailers_is_sent_unread_and_followed() {
    let mut scene = scene(Preparing::Edited("never")).await;
    let chunks = "transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nsum: 1\r\n\r\n";
    scene.client.send(format!("POST /x HTTP/1.1\r\nhost: me\r\ntrailer: sum\r\n{chunks}")).await;
    let host = scene.upstream.address();
    let mut server = scene.upstream.accept().await;
    server.expect(format!("POST /x HTTP/1.1\r\nhost: {host}\r\ntrailer: sum\r\n{chunks}")).await;
    server.send(OK).await;
    scene.client.expect(OK).await;
    assert_eq!(scene.proxy.gateway.shown().len(), 0);
    assert_eq!(scene.proxy.gateway.events()[..3], UNDECODED);
}

#[tokio::test]
async fn a_gateway_that_fails_changes_nothing() {
    let impatient = || Settings { rewrite_timeout: Duration::from_millis(1), ..settings() };
    let scene = scene_with(Preparing::Hanging, Remedy::Deliver, impatient()).await;
    let scene = scene.untouched("", TEXT.as_bytes()).await;
    assert_eq!(scene.proxy.stats.prepare_timeouts.value(), 1);
    let scene = scene_with(Preparing::Panicking, Remedy::Deliver, settings())
        .await
        .untouched("", TEXT.as_bytes())
        .await;
    assert_eq!(scene.proxy.stats.panics.value(), 1);
}

/// The size of a body that is processed on another thread.
const LARGE: usize = 1 << 20;

/// There is one worker.
#[tokio::test]
async fn a_large_body_keeps_nobody_waiting() {
    let mut scene = scene(Preparing::Slow(LARGE, "[]")).await;
    scene.client.send(request("me", "", &vec![b'x'; LARGE])).await;
    let mut other = scene.proxy.client().await;
    other.send(request("me", "", b"small")).await;
    let mut server = scene.upstream.accept().await;
    server.expect(request(&scene.upstream.address().to_string(), "", b"small")).await;
    server.send(OK).await;
    other.expect(OK).await;
    scene.proxy.gateway.release();
    server.expect(request(&scene.upstream.address().to_string(), "", b"[]")).await;
    server.send(OK).await;
    scene.client.expect(OK).await;
}

#[tokio::test]
async fn what_takes_too_long_leaves_as_it_came_and_is_followed() {
    let impatient = || Settings { rewrite_timeout: Duration::from_millis(1), ..settings() };
    let large = "x".repeat(LARGE);
    for (preparing, settings, body, why) in [
        (Preparing::Hanging, impatient(), TEXT, "TimedOut"),
        (Preparing::Hanging, impatient(), &large, "TimedOut"),
        (Preparing::Slow(LARGE, "[]"), impatient(), &large, "TimedOut"),
        (Preparing::Panicking, settings(), TEXT, "Panicked"),
        (Preparing::Panicking, settings(), &large, "Panicked"),
    ] {
        let scene = scene_with(preparing, Remedy::Deliver, settings).await;
        let scene = scene.untouched("", body.as_bytes()).await;
        let events = scene.proxy.gateway.events();
        let unprepared = format!("unprepared {why}");
        assert_eq!(events[..3], [unprepared.as_str(), "sent Original", "response 200"], "{why}");
        scene.proxy.gateway.release();
    }
}

const REJECTION: &str = "HTTP/1.1 400 Bad Request\r\nX-Id: 1\r\nContent-Length: 7\r\n\r\nno good";

#[tokio::test]
async fn a_rejected_edit_is_replaced_by_the_original_once() {
    const OTHER: &str = "HTTP/1.1 422 Unprocessable Entity\r\nContent-Length: 7\r\n\r\nno more";
    let again = REJECTION.replace("no good", "no more");
    for (answer, expected) in [
        // Everything from here on is the answer.
        (again.as_str(), again.as_str()),
        (OTHER, OTHER),
        (OK, OK),
        (
            "HTTP/1.1 429 Slow\r\nContent-Length: 1\r\n\r\n!",
            "HTTP/1.1 429 Slow\r\nContent-Length: 1\r\n\r\n!",
        ),
        ("HTTP/1.1 500 Oh\r\nContent-Length: 1\r\n\r\n!", "HTTP/1.1 500 Oh\r\nContent-Length: 1\r\n\r\n!"),
    ] {
        let mut scene = scene_with(Preparing::Edited("[]"), Remedy::SendOriginal, settings()).await;
        let zstd = zstd::encode_all(TEXT.as_bytes(), 3).unwrap();
        let lines = "Content-Encoding: zstd\r\n";
        let mut server = scene.send(lines, &zstd).await;
        server.message().await;
        server.send(REJECTION).await;
        server.expect(request(&scene.upstream.address().to_string(), lines, &zstd)).await;
        server.send(answer).await;
        scene.client.expect(expected).await;
        let events = scene.proxy.gateway.events();
        let delivered = format!("response {}", &expected[9..12]);
        assert_eq!(events[..4], ["sent Edited", "rejected 400 no good", "sent Original", &delivered]);
        assert_eq!(scene.proxy.stats.originals_resent.value(), 1);
    }
}

#[tokio::test]
async fn a_final_rejection_is_delivered_byte_for_byte() {
    let mut scene = scene(Preparing::Edited("[]")).await;
    let mut server = scene.send("", TEXT.as_bytes()).await;
    server.message().await;
    server.send(REJECTION).await;
    scene.client.expect(REJECTION).await;
    assert!(scene.upstream.is_quiet());
}

#[tokio::test]
async fn a_rejected_original_is_not_sent_again() {
    let mut scene = scene_with(Preparing::Untouched, Remedy::SendOriginal, settings()).await;
    let mut server = scene.send("", TEXT.as_bytes()).await;
    server.message().await;
    server.send(REJECTION).await;
    scene.client.expect(REJECTION).await;
    assert!(scene.upstream.is_quiet());
    assert_eq!(scene.proxy.gateway.events()[..2], ["sent Original", "rejected 400 no good"]);
}

/// What was prepared anew may have stored decisions: it is told that it was not sent.
#[tokio::test]
async fn a_form_that_may_not_be_sent_in_place_of_a_rejected_one_is_told_so() {
    let mut scene = scene_with(Preparing::Edited("[]"), Remedy::Again, settings()).await;
    let mut server = scene.send("", TEXT.as_bytes()).await;
    server.message().await;
    server.send(REJECTION).await;
    scene.client.expect(REJECTION).await;
    assert!(scene.upstream.is_quiet());
    let is_told = || scene.proxy.gateway.events().contains(&"end Failed 402".to_owned());
    eventually("the end of the form that was not sent", is_told).await;
}

#[tokio::test]
async fn only_rejections_are_held_back() {
    let mut scene = scene_with(Preparing::Edited("[]"), Remedy::SendOriginal, settings()).await;
    let mut server = scene.send("", TEXT.as_bytes()).await;
    server.message().await;
    server.send("HTTP/1.1 503 Oh No\r\nContent-Length: 4\r\n\r\nab").await;
    scene.client.expect("HTTP/1.1 503 Oh No\r\nContent-Length: 4\r\n\r\nab").await;
    server.send("cd").await;
    scene.client.expect("cd").await;
}

/// Some servers report errors of a request as server errors.
#[tokio::test]
async fn a_server_error_can_be_a_rejection_too() {
    let mut scene = scene_with(Preparing::Edited("[]"), Remedy::SendOriginal, settings()).await;
    let mut server = scene.send("", TEXT.as_bytes()).await;
    server.message().await;
    server.send("HTTP/1.1 500 Oh No\r\nContent-Length: 2\r\n\r\nab").await;
    server.expect(request(&scene.upstream.address().to_string(), "", TEXT.as_bytes())).await;
    server.send(REJECTION).await;
    scene.client.expect(REJECTION).await;
    assert!(scene.proxy.gateway.events().contains(&"rejected 500 ab".to_owned()));
}

/// A refusal may be inside an answer with a good status, whatever the encoding.
#[tokio::test]
async fn an_encoded_answer_is_checked_decoded() {
    let upstream = TestUpstream::bind().await;
    let gateway = TestGateway::reading(upstream.url(), Preparing::Edited("[]"))
        .remedying(Remedy::SendOriginal)
        .watching(Watching::Holding);
    let proxy = Proxy::with_settings(gateway, settings());
    let client = proxy.client().await;
    let mut scene = Scene { proxy, upstream, client };
    let mut server = scene.send("", TEXT.as_bytes()).await;
    server.message().await;
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(b"too long").unwrap();
    let body = gzip.finish().unwrap();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n", body.len());
    server.send([head.as_bytes(), &body].concat()).await;
    server.expect(request(&scene.upstream.address().to_string(), "", TEXT.as_bytes())).await;
    server.send(OK).await;
    scene.client.expect(OK).await;
    let events = scene.proxy.gateway.events();
    assert_eq!(events[..3], ["sent Edited", "checked too long", "sent Original"]);
}

#[tokio::test]
async fn a_rejection_may_be_endless_or_broken() {
    // The answer is too long to be held back completely: it is judged by its beginning, and streamed.
    let long = "r".repeat(plimsoll::server::REJECTION_LIMIT + 1_000);
    let head = format!("HTTP/1.1 400 Bad Request\r\nContent-Length: {}\r\n\r\n", long.len() + 3);
    let mut scene1 = scene(Preparing::Edited("[]")).await;
    let mut server = scene1.send("", TEXT.as_bytes()).await;
    server.message().await;
    server.send(format!("{head}{long}")).await;
    scene1.client.expect(format!("{head}{long}")).await;
    server.send("end").await;
    scene1.client.expect("end").await;

    let mut scene2 = scene(Preparing::Edited("[]")).await;
    let mut server = scene2.send("", TEXT.as_bytes()).await;
    server.message().await;
    server.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 9\r\n\r\nhalf").await;
    drop(server);
    scene2.client.expect("HTTP/1.1 400 Bad Request\r\nContent-Length: 9\r\n\r\nhalf").await;
    scene2.client.closed().await;

    // A slow answer is passed on in the end, long before the upstream's timeout.
    let mut scene3 = scene(Preparing::Edited("[]")).await;
    let mut server = scene3.send("", TEXT.as_bytes()).await;
    server.message().await;
    server.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 9\r\n\r\nhalf").await;
    scene3.client.expect("HTTP/1.1 400 Bad Request\r\nContent-Length: 9\r\n\r\nhalf").await;
    server.send("-time").await;
    scene3.client.expect("-time").await;
}

#[tokio::test]
async fn an_encoded_rejection_is_shown_decoded() {
    let mut scene = scene(Preparing::Edited("[]")).await;
    let mut server = scene.send("", TEXT.as_bytes()).await;
    server.message().await;
    let body = zstd::encode_all(&b"too long"[..], 3).unwrap();
    let head =
        format!("HTTP/1.1 413 Too Large\r\nContent-Encoding: zstd\r\nContent-Length: {}\r\n\r\n", body.len());
    server.send([head.as_bytes(), &body].concat()).await;
    scene.client.expect([head.as_bytes(), &body].concat()).await;
    assert!(scene.proxy.gateway.events().contains(&"rejected 413 too long".to_owned()));
}
