//! Requests as they reach the upstream.

use std::fmt::Write;

use super::gateway::TestGateway;
use super::wire::{Closing, TestUpstream};
use super::{Proxy, stage};

/// Sends `request` and compares what the upstream receives. `{host}` stands for the upstream's address.
async fn check(request: &str, expected: &str) {
    let (_proxy, upstream, mut client) = stage().await;
    client.send(request).await;
    let mut server = upstream.accept().await;
    server.expect(expected.replace("{host}", &upstream.address().to_string())).await;
    server.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    client.expect("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
}

#[tokio::test]
async fn go_through_byte_for_byte() {
    for (request, expected) in [
        // Spelling and order of headers, and a path that must not be normalised.
        (
            "GET /v1//a%2Fb%20/../x?q=%20+&&=;?/ HTTP/1.1\r\nHost: me\r\nX-ApI-kEy: k\r\naccept: */*\r\nB: 2\r\nA: 1\r\n\r\n",
            "GET /v1//a%2Fb%20/../x?q=%20+&&=;?/ HTTP/1.1\r\nHost: {host}\r\nX-ApI-kEy: k\r\naccept: */*\r\nB: 2\r\nA: 1\r\n\r\n",
        ),
        // Characters that should have been escaped, as far as they can be parsed.
        (
            "GET /caf\u{e9}/{x}\"|^?\u{20ac}=`1` HTTP/1.1\r\nhost: me\r\n\r\n",
            "GET /caf\u{e9}/{x}\"|^?\u{20ac}=`1` HTTP/1.1\r\nhost: {host}\r\n\r\n",
        ),
        // Any method, any content type, a body without a known format.
        (
            "FROB /x HTTP/1.1\r\nHOST: me\r\nContent-Type: x/y; z=\"\u{e9}\"\r\nContent-Length: 5\r\n\r\n\0\x01\r\n\x02",
            "FROB /x HTTP/1.1\r\nHOST: {host}\r\nContent-Type: x/y; z=\"\u{e9}\"\r\nContent-Length: 5\r\n\r\n\0\x01\r\n\x02",
        ),
        ("DELETE /x HTTP/1.1\r\nhost: me\r\n\r\n", "DELETE /x HTTP/1.1\r\nhost: {host}\r\n\r\n"),
        ("OPTIONS * HTTP/1.1\r\nhost: me\r\n\r\n", "OPTIONS * HTTP/1.1\r\nhost: {host}\r\n\r\n"),
        ("POST /x HTTP/1.1\r\nhost: me\r\n\r\n", "POST /x HTTP/1.1\r\nhost: {host}\r\n\r\n"),
        (
            "POST /x HTTP/1.1\r\nhost: me\r\nContent-Length: 0\r\n\r\n",
            "POST /x HTTP/1.1\r\nhost: {host}\r\nContent-Length: 0\r\n\r\n",
        ),
        // Several headers of one name stay several, in order.
        (
            "GET / HTTP/1.1\r\nhost: me\r\nBeta: one\r\nbeta: two\r\nBETA: three, four\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: {host}\r\nBeta: one\r\nbeta: two\r\nBETA: three, four\r\n\r\n",
        ),
        // Headers of this connection are removed; the others keep their order.
        (
            "GET / HTTP/1.1\r\na: 1\r\nConnection: keep-alive, X-Private\r\nhost: me\r\nKeep-Alive: 5\r\nx-private: p\r\n\
             Proxy-Authorization: x\r\nProxy-Connection: keep-alive\r\nTE: trailers\r\nTrailer: t\r\nb: 2\r\n\r\n",
            "GET / HTTP/1.1\r\na: 1\r\nhost: {host}\r\nb: 2\r\n\r\n",
        ),
        // An offer to upgrade to HTTP/2 is declined by ignoring it.
        (
            "GET / HTTP/1.1\r\nhost: me\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: {host}\r\n\r\n",
        ),
        // A request in the form for a forward proxy.
        ("GET http://other/x?y HTTP/1.1\r\nhost: other\r\n\r\n", "GET /x?y HTTP/1.1\r\nhost: {host}\r\n\r\n"),
        // Chunked bodies stay chunked, and keep their trailers if those were announced.
        (
            "PUT /x HTTP/1.1\r\nhost: me\r\nTransfer-Encoding: chunked\r\nX: 1\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            "PUT /x HTTP/1.1\r\nhost: {host}\r\nTransfer-Encoding: chunked\r\nX: 1\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        ),
        (
            "PUT /x HTTP/1.1\r\nhost: me\r\nTrailer: sum\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nsum: 6\r\n\r\n",
            "PUT /x HTTP/1.1\r\nhost: {host}\r\nTrailer: sum\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nsum: 6\r\n\r\n",
        ),
        // The transfer coding inside the chunks is passed on.
        (
            "PUT /x HTTP/1.1\r\nhost: me\r\nTransfer-Encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            "PUT /x HTTP/1.1\r\nhost: {host}\r\nTransfer-Encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        ),
        (
            "GET /body HTTP/1.1\r\nhost: me\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            "GET /body HTTP/1.1\r\nhost: {host}\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        ),
    ] {
        check(request, expected).await;
    }
}

#[tokio::test]
async fn carry_large_and_many_header_lines() {
    let large = "v".repeat(3 * 1024);
    let mut request = format!("GET / HTTP/1.1\r\nhost: {{host}}\r\nX-Unknown: {large}\r\n");
    for index in 0..200 {
        write!(request, "X-Line-{index}: {}\r\n", "w".repeat(200)).unwrap();
    }
    request.push_str("\r\n");
    check(&request.replace("{host}", "me"), &request).await;
}

#[tokio::test]
async fn go_below_the_path_of_the_base_url() {
    let upstream = TestUpstream::bind().await;
    let proxy = Proxy::start(TestGateway::forwarding(format!("{}/gw/team-a/", upstream.url())));
    let mut client = proxy.client().await;
    client.send("GET /v1/messages?beta=true HTTP/1.1\r\nhost: me\r\n\r\n").await;
    let head = upstream.accept().await.head().await;
    assert!(head.starts_with("GET /gw/team-a/v1/messages?beta=true HTTP/1.1\r\n"), "{head}");
}

#[tokio::test]
async fn get_the_headers_of_the_upstream_in_place_of_their_own() {
    let upstream = TestUpstream::bind().await;
    let mut settings = plimsoll::upstream::Settings::new("test", upstream.url().parse().unwrap());
    settings.headers.insert("x-key", "configured".parse().unwrap());
    settings.headers.append("x-list", "one".parse().unwrap());
    settings.headers.append("x-list", "two".parse().unwrap());
    let proxy = Proxy::start(TestGateway::with_upstream(settings));
    let mut client = proxy.client().await;
    client.send("GET / HTTP/1.1\r\nhost: me\r\nX-Key: own\r\n\r\n").await;
    let host = upstream.address();
    let mut server = upstream.accept().await;
    server
        .expect(format!(
            "GET / HTTP/1.1\r\nhost: {host}\r\nX-Key: configured\r\nx-list: one\r\nx-list: two\r\n\r\n"
        ))
        .await;
}

#[tokio::test]
async fn are_told_to_continue() {
    let (_proxy, upstream, mut client) = stage().await;
    client.send("POST /x HTTP/1.1\r\nhost: me\r\nExpect: 100-continue\r\ncontent-length: 2\r\n\r\n").await;
    client.expect("HTTP/1.1 100 Continue\r\n\r\n").await;
    client.send("hi").await;
    let (head, body) = upstream.accept().await.message().await;
    assert_eq!((head.contains("xpect"), body.as_slice()), (false, &b"hi"[..]));
}

/// Requests that hyper cannot parse are refused in the caller's dialect, with the reason.
#[tokio::test]
async fn that_cannot_be_read_are_refused_with_a_reason() {
    const WRONG: &str = "which must be written as";
    let proxy = Proxy::start(TestGateway::forwarding("http://127.0.0.1:1"));
    for (request, status, expected) in [
        (
            "GET /v1/<m>?q HTTP/1.1\r\nhost: me\r\n\r\n",
            "400 Bad Request",
            format!("/v1/%3Cm%3E Client: the path contains `<`, {WRONG} `%3C`"),
        ),
        (
            "POST /x?a=>b HTTP/1.1\r\nhost: me\r\ncontent-length: 2\r\n\r\n{}",
            "400 Bad Request",
            format!("/x Client: the path contains `>`, {WRONG} `%3E`"),
        ),
        (
            "GET /x HTTP/1.1\r\nhost: me\r\nx\r\n\r\n",
            "400 Bad Request",
            "/x Client: this is not an HTTP request".to_owned(),
        ),
        (
            "GET /x HTTP/7.1\r\nhost: me\r\n\r\n",
            "400 Bad Request",
            "/x Client: this is not an HTTP request".to_owned(),
        ),
        ("HEAD /< HTTP/1.1\r\nhost: me\r\n\r\n", "400 Bad Request", String::new()),
    ] {
        let mut client = proxy.client().await;
        client.send(request).await;
        let head = client.head().await;
        let begins = format!("HTTP/1.1 {status}\r\ncontent-type: text/x-refusal\r\nconnection: close\r\n");
        assert!(head.starts_with(&begins), "{head}");
        client.expect(&expected).await;
        assert_eq!(client.closed().await, Closing::Finished, "{request}");
    }
}

/// An upstream's refusal without a body is passed on as it is.
#[tokio::test]
async fn that_an_upstream_refuses_without_a_body_are_refused_like_that() {
    let (_proxy, upstream, mut client) = stage().await;
    client.send("GET /x HTTP/1.1\r\nhost: me\r\nconnection: close\r\n\r\n").await;
    let mut server = upstream.accept().await;
    server.head().await;
    server.send("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
    client.expect("HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").await;
}
