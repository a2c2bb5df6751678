//! Bodies pass through as they arrive: piece by piece, and no faster than they are read.

use std::fmt::Write;

use super::stage;
use super::wire::show;

const EMOJI: &str = "data: {\"text\":\"\u{1f6a2}\u{fe0f} pl\u{e9}nty\"}\n\n";

#[tokio::test]
async fn each_piece_of_an_answer_arrives_before_the_next_is_sent() {
    let (_proxy, upstream, mut client) = stage().await;
    client.send("POST /x HTTP/1.1\r\nhost: me\r\ncontent-length: 2\r\n\r\n{}").await;
    let mut server = upstream.accept().await;
    server.message().await;
    server
        .send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        .await;
    client
        .expect("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        .await;
    // Whole events, comments, and single bytes of four-byte characters.
    let whole = [": ping\n\n".as_bytes(), b"event: x\r", b"\ndata: 1\n\n"];
    let single = EMOJI.as_bytes().iter().map(std::slice::from_ref);
    for piece in whole.into_iter().chain(single) {
        server.send(format!("{:x}\r\n", piece.len())).await;
        server.send(piece).await;
        server.send("\r\n").await;
        let mut arrived = client.chunk().await;
        while arrived.len() < piece.len() {
            arrived.extend(client.chunk().await);
        }
        assert_eq!(show(&arrived), show(piece));
    }
    server.send("0\r\n\r\n").await;
    assert_eq!(client.chunked().await, b"");
}

#[tokio::test]
async fn each_piece_of_a_request_arrives_before_the_next_is_sent() {
    let (_proxy, upstream, mut client) = stage().await;
    client.send("POST /x HTTP/1.1\r\nhost: me\r\ntransfer-encoding: chunked\r\n\r\n").await;
    let mut server = upstream.accept().await;
    server.head().await;
    for piece in ["one", "two", EMOJI] {
        client.send(format!("{:x}\r\n{piece}\r\n", piece.len())).await;
        assert_eq!(show(&server.chunk().await), piece);
    }
    client.send("0\r\n\r\n").await;
    assert_eq!(server.chunked().await, b"");
    // With a declared length, before the whole body is there.
    server.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    client.head().await;
    client.send("POST /x HTTP/1.1\r\nhost: me\r\ncontent-length: 4\r\n\r\nab").await;
    server.head().await;
    server.expect("ab").await;
    client.send("cd").await;
    server.expect("cd").await;
}

#[tokio::test]
async fn pieces_that_are_there_together_are_all_passed_on() {
    let (_proxy, upstream, mut client) = stage().await;
    client.send("GET /x HTTP/1.1\r\nhost: me\r\n\r\n").await;
    let mut server = upstream.accept().await;
    server.head().await;
    let mut answer = String::from("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
    let mut expected = String::new();
    for index in 0..2_000 {
        let piece = "x".repeat(index % 300 + 1) + &index.to_string();
        write!(answer, "{:x}\r\n{piece}\r\n", piece.len()).unwrap();
        expected.push_str(&piece);
    }
    answer.push_str("0\r\n\r\n");
    let ((), arrived) = tokio::join!(server.send(&answer), async {
        client.head().await;
        client.chunked().await
    });
    assert!(arrived == expected.as_bytes());
}

#[tokio::test]
async fn large_answers_go_no_faster_than_they_are_read() {
    let (_proxy, upstream, mut client) = stage().await;
    client.send("GET /x HTTP/1.1\r\nhost: me\r\n\r\n").await;
    let mut server = upstream.accept().await;
    server.head().await;
    let body = pattern(48 << 20);
    server.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len())).await;
    let taken = server.send_until_stuck(&body).await;
    assert!(taken < body.len() / 2, "{taken} bytes were taken without a reader");
    client.head().await;
    let ((), arrived) = tokio::join!(server.send(&body[taken..]), client.bytes(body.len()));
    assert!(arrived == body);
}

#[tokio::test]
async fn large_requests_go_no_faster_than_they_are_read() {
    let (_proxy, upstream, mut client) = stage().await;
    let body = pattern(48 << 20);
    client.send(format!("POST /x HTTP/1.1\r\nhost: me\r\ncontent-length: {}\r\n\r\n", body.len())).await;
    let mut server = upstream.accept().await;
    let taken = client.send_until_stuck(&body).await;
    assert!(taken < body.len() / 2, "{taken} bytes were taken without a reader");
    server.head().await;
    let ((), arrived) = tokio::join!(client.send(&body[taken..]), server.bytes(body.len()));
    assert!(arrived == body);
}

/// Bytes in which lost, repeated or moved pieces are noticed.
pub(super) fn pattern(length: usize) -> Vec<u8> {
    (0..length.div_ceil(4)).flat_map(|index| (index as u32).to_le_bytes()).take(length).collect()
}
