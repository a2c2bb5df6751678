//! Answers that come before the request has been read: all of them arrive, whatever the client continues to send.

use super::gateway::{Preparing, TestGateway};
use super::wire::{Closing, TestUpstream, header};
use super::{Proxy, stage};

/// Enough to fill every buffer on the way.
const UPLOAD: usize = 16 << 20;

#[tokio::test]
async fn an_answer_arrives_although_the_client_goes_on_sending() {
    for answer in [
        "HTTP/1.1 413 Content Too Large\r\ncontent-length: 5\r\n\r\nlarge",
        "HTTP/1.1 413 Content Too Large\r\ncontent-length: 5\r\nconnection: close\r\n\r\nlarge",
        "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 429 Too Many Requests\r\ntransfer-encoding: chunked\r\n\r\n5\r\nlater\r\n0\r\n\r\n",
    ] {
        for framing in [format!("content-length: {UPLOAD}"), "transfer-encoding: chunked".to_owned()] {
            let (_proxy, upstream, mut client) = stage().await;
            client.send(format!("POST /x HTTP/1.1\r\nhost: me\r\n{framing}\r\n\r\n")).await;
            if framing.starts_with('t') {
                client.send(format!("{UPLOAD:x}\r\n")).await;
            }
            let mut server = upstream.accept().await;
            server.head().await;
            server.send(answer).await;
            // The exchange is given up, but the client does not know that yet.
            server.closed().await;
            client.send(vec![b'x'; UPLOAD]).await;
            client.expect(answer.replace("connection: close\r\n", "")).await;
            assert_eq!(client.closed().await, Closing::Finished, "{answer} {framing}");
        }
    }
}

/// A malformed chunked body is refused by the gateway if it reads the body, even while the client is still sending.
#[tokio::test]
async fn a_request_in_broken_chunks_is_refused_in_words() {
    for (body, more, why) in [
        ("zz\r\n", 0, "chunk size"),
        ("3\r\nabcd\r\n", 0, "chunk body"),
        ("\r\n", UPLOAD, "chunk size"),
        ("0\r\nno trailer\r\n\r\n", 0, ""),
    ] {
        let upstream = TestUpstream::bind().await;
        let proxy = Proxy::start(TestGateway::reading(upstream.url(), Preparing::Untouched));
        let mut client = proxy.client().await;
        client.send("POST /x HTTP/1.1\r\nhost: me\r\ntransfer-encoding: chunked\r\n\r\n").await;
        client.send(body).await;
        client.send(vec![b'x'; more]).await;
        let (head, said) = client.message().await;
        let said = String::from_utf8(said).unwrap();
        assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{body:?}: {head}");
        assert_eq!(header(&head, "connection"), Some("close"), "{body:?}");
        assert!(
            said.starts_with("/x Client: the body of the request is framed wrongly: "),
            "{body:?}: {said}"
        );
        assert!(said.to_lowercase().contains(why), "{body:?}: {said}");
        assert_eq!(client.closed().await, Closing::Finished, "{body:?}");
        assert!(upstream.is_quiet());
        assert_eq!(proxy.stats.refusals.value(), 1);
    }
}

#[tokio::test]
async fn an_answer_to_an_old_client_ends_well_although_it_goes_on_sending() {
    let (_proxy, upstream, mut client) = stage().await;
    client.send(format!("POST /x HTTP/1.0\r\nhost: me\r\ncontent-length: {UPLOAD}\r\n\r\n")).await;
    let mut server = upstream.accept().await;
    server.head().await;
    server
        .send("HTTP/1.1 413 Content Too Large\r\ntransfer-encoding: chunked\r\n\r\n5\r\nlarge\r\n0\r\n\r\n")
        .await;
    server.closed().await;
    client.send(vec![b'x'; UPLOAD]).await;
    client.expect("HTTP/1.0 413 Content Too Large\r\n\r\nlarge").await;
    assert_eq!(client.closed().await, Closing::Finished);
}

/// The gateway's own answers arrive too.
#[tokio::test]
async fn a_broken_upload_is_reported() {
    let (_proxy, upstream, mut client) = stage().await;
    client.send(format!("POST /x HTTP/1.1\r\nhost: me\r\ncontent-length: {UPLOAD}\r\n\r\n")).await;
    let mut server = upstream.accept().await;
    server.head().await;
    drop(server);
    client.send(vec![b'x'; UPLOAD]).await;
    let (head, _) = client.message().await;
    assert!(head.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{head}");
    assert_eq!(client.closed().await, Closing::Finished);
}
