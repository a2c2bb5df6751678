//! Answers as they reach the client.

use std::fmt::Write;

use super::stage;
use super::wire::Closing;

/// Sends a request with `method`, answers it with `answer`, and compares what the client receives.
async fn check(method: &str, answer: &str, expected: &str) {
    let (_proxy, upstream, mut client) = stage().await;
    client.send(format!("{method} /x HTTP/1.1\r\nhost: me\r\n\r\n")).await;
    let mut server = upstream.accept().await;
    server.head().await;
    server.send(answer).await;
    client.expect(expected).await;
    // After any answer the connection can be used for another request with the same answer.
    client.send(format!("{method} /next HTTP/1.1\r\nhost: me\r\n\r\n")).await;
    assert!(server.head().await.starts_with(&format!("{method} /next ")));
    server.send(answer).await;
    client.expect(expected).await;
}

#[tokio::test]
async fn come_back_byte_for_byte() {
    for (method, answer, expected) in [
        (
            "GET",
            "HTTP/1.1 200 OK\r\nX-Request-ID: 7\r\nset-cookie: a\r\nSet-Cookie: b\r\nContent-Length: 3\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nX-Request-ID: 7\r\nset-cookie: a\r\nSet-Cookie: b\r\nContent-Length: 3\r\n\r\nabc",
        ),
        // Any status, any reason phrase.
        (
            "GET",
            "HTTP/1.1 529 Site is overloaded (really)\r\nretry-after: 2\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 529 Site is overloaded (really)\r\nretry-after: 2\r\ncontent-length: 0\r\n\r\n",
        ),
        // Headers of the upstream's connection are removed; the others keep their order.
        (
            "GET",
            "HTTP/1.1 200 OK\r\nA: 1\r\nConnection: keep-alive, x-hop\r\nKeep-Alive: timeout=5\r\nX-Hop: h\r\n\
             B: 2\r\nProxy-Authenticate: x\r\nProxy-Authentication-Info: x\r\nProxy-Status: y\r\ncontent-length: 1\r\nC: 3\r\n\r\nz",
            "HTTP/1.1 200 OK\r\nA: 1\r\nB: 2\r\nProxy-Status: y\r\ncontent-length: 1\r\nC: 3\r\n\r\nz",
        ),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX: 1\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX: 1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        ),
        // The transfer coding inside the chunks is passed on.
        (
            "GET",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\nX: 1\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\nX: 1\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        ),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        ),
        // A `content-length` next to a transfer coding does not apply to the body.
        (
            "GET",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        ),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        ),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\nContent-Length: 9\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        ),
        // The coding `identity` changes nothing: the length or the chunks are passed on.
        (
            "GET",
            "HTTP/1.1 200 OK\r\nX: 1\r\nTransfer-Encoding: identity\r\nContent-Length: 3\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nX: 1\r\nContent-Length: 3\r\n\r\nabc",
        ),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        ),
        // Malformed header lines do not make an answer fail.
        (
            "GET",
            "HTTP/1.1 200 OK\r\nX-Id : 7\r\nno line\r\nX Y: 1\r\nZ: a\u{1}b\r\nContent-Length : 3\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nX-Id: 7\r\nContent-Length: 3\r\n\r\nabc",
        ),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding : chunked\r\n: 1\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        ),
        // Answers that have no body.
        (
            "HEAD",
            "HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n",
        ),
        ("HEAD", "HTTP/1.1 200 OK\r\nx: 1\r\n\r\n", "HTTP/1.1 200 OK\r\nx: 1\r\n\r\n"),
        ("DELETE", "HTTP/1.1 204 No Content\r\nx: 1\r\n\r\n", "HTTP/1.1 204 No Content\r\nx: 1\r\n\r\n"),
        (
            "GET",
            "HTTP/1.1 304 Not Modified\r\nETag: \"e\"\r\n\r\n",
            "HTTP/1.1 304 Not Modified\r\nETag: \"e\"\r\n\r\n",
        ),
        // An interim answer is for this hop only.
        (
            "GET",
            "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        ),
    ] {
        check(method, answer, expected).await;
    }
}

#[tokio::test]
async fn carry_many_header_lines() {
    for lines in [101, 250] {
        let mut answer = "HTTP/1.1 200 OK\r\n".to_owned();
        for index in 0..lines {
            write!(answer, "X-Line-{index}: {index}\r\n").unwrap();
        }
        answer.push_str("Content-Length: 2\r\n\r\nok");
        check("GET", &answer, &answer).await;
    }
}

#[tokio::test]
async fn keep_their_trailers() {
    let (_proxy, upstream, mut client) = stage().await;
    client.send("GET /x HTTP/1.1\r\nhost: me\r\nte: trailers\r\nconnection: te\r\n\r\n").await;
    let mut server = upstream.accept().await;
    server.head().await;
    server.send("HTTP/1.1 200 OK\r\ntrailer: sum\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nsum: 1\r\n\r\n").await;
    client
        .expect("HTTP/1.1 200 OK\r\ntrailer: sum\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nsum: 1\r\n\r\n")
        .await;
}

#[tokio::test]
async fn that_end_with_the_connection_end_well() {
    let (_proxy, upstream, mut client) = stage().await;
    client.send("GET /x HTTP/1.1\r\nhost: me\r\n\r\n").await;
    let mut server = upstream.accept().await;
    server.head().await;
    server.send("HTTP/1.0 200 OK\r\n\r\nall of it").await;
    server.finish().await;
    client.expect("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
    assert_eq!(client.chunked().await, b"all of it");
}

/// HTTP/1.0 has no transfer codings.
#[tokio::test]
async fn encoded_for_their_connection_are_none_to_old_clients() {
    let (_proxy, upstream, mut client) = stage().await;
    client.send("GET /x HTTP/1.0\r\nhost: me\r\n\r\n").await;
    let mut server = upstream.accept().await;
    server.head().await;
    server.send("HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n").await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.0 502 "), "{head}");
}

/// A chunked body is read as such, whatever version the answer has.
#[tokio::test]
async fn of_old_upstreams_are_whole_in_chunks() {
    for (head, expected) in [
        ("HTTP/1.0 200 OK\r\nX: 1\r\n", "HTTP/1.1 200 OK\r\nX: 1\r\n"),
        ("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nX: 1\r\n", "HTTP/1.1 200 OK\r\nX: 1\r\n"),
        ("HTTP/1.0 429 Later\r\n", "HTTP/1.1 429 Later\r\n"),
        ("HTTP/1.0 100 Continue\r\n\r\nHTTP/1.0 200\r\n", "HTTP/1.1 200 \r\n"),
        ("\r\nHTTP/1.0 200 OK\n", "HTTP/1.1 200 OK\r\n"),
    ] {
        let (_proxy, upstream, mut client) = stage().await;
        for is_in_pieces in [true, false] {
            client.send("GET /x HTTP/1.1\r\nhost: me\r\n\r\n").await;
            // Upstream connections of HTTP/1.0 are closed, or not used again.
            let mut server = upstream.accept().await;
            server.head().await;
            let answer = format!("{head}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
            for piece in answer.as_bytes().chunks(if is_in_pieces { 1 } else { answer.len() }) {
                server.send(piece).await;
                tokio::task::yield_now().await;
            }
            client.expect(expected).await;
            client.expect("Transfer-Encoding: chunked\r\n\r\n").await;
            assert_eq!(client.chunked().await, b"abc");
            assert_eq!(server.closed().await, Closing::Finished);
        }
    }
}

#[tokio::test]
async fn to_old_clients_end_with_the_connection() {
    let (_proxy, upstream, mut client) = stage().await;
    client.send("GET /x HTTP/1.0\r\nhost: me\r\n\r\n").await;
    let mut server = upstream.accept().await;
    assert!(server.head().await.starts_with("GET /x HTTP/1.1\r\n"));
    server.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n").await;
    client.expect("HTTP/1.0 200 OK\r\n\r\nabc").await;
    assert_eq!(client.closed().await, Closing::Finished);
}

#[tokio::test]
async fn are_failures_where_nobody_can_tell_how_long_they_are() {
    for lines in [
        "content-length: x\r\n",
        "content-length : x\r\n",
        "content-length: 3\r\ncontent-length: 4\r\n",
        "content-length: 3\r\ncontent-length : 4\r\n",
    ] {
        let (_proxy, upstream, mut client) = stage().await;
        client.send("GET /x HTTP/1.1\r\nhost: me\r\n\r\n").await;
        let mut server = upstream.accept().await;
        server.head().await;
        server.send(format!("HTTP/1.1 200 OK\r\n{lines}\r\nabcd")).await;
        let head = client.head().await;
        assert!(head.starts_with("HTTP/1.1 502 "), "{lines}: {head}");
    }
}
