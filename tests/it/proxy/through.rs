//! Upstreams reached through proxies.

use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use plimsoll::upstream::Settings;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::server::TlsStream;

use super::Proxy;
use super::gateway::TestGateway;
use super::tls::{acceptor, acceptor_of, file, listen};
use super::wire::{Closing, Peer, TestUpstream, within};

const ASK: &str = "POST /v1/x?y=z HTTP/1.1\r\nHost: me\r\nContent-Length: 2\r\n\r\n{}";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// The gateway, whose upstream is reached through this proxy, and a client that has sent a request.
async fn asked(settings: Settings, proxy: &str) -> (Proxy, Peer) {
    let proxy = Some(proxy.parse().unwrap());
    let gateway = Proxy::start(TestGateway::with_upstream(Settings { proxy, ..settings }));
    let mut client = gateway.client().await;
    client.send(ASK).await;
    (gateway, client)
}

fn plain(url: &str) -> Settings {
    Settings::new("test", url.parse().unwrap())
}

/// What the client receives if the proxy does not connect.
async fn told(client: &mut Peer, status: u16, at_fault: &str, proxy: &str, says: &str) {
    let (head, body) = client.message().await;
    assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
    let body = String::from_utf8(body).unwrap();
    assert!(body.starts_with(&format!("/v1/x {at_fault}: ")), "{body}");
    assert!(body.contains(&format!("through the proxy {proxy}")) && body.contains(says), "{body}");
    assert!(!body.contains("secret"), "{body}");
}

async fn read(stream: &mut (impl AsyncRead + Unpin), length: usize) -> Vec<u8> {
    let mut read = vec![0; length];
    within(stream.read_exact(&mut read)).await.unwrap();
    read
}

#[tokio::test]
async fn whole_addresses_are_sent_where_nothing_is_encrypted() {
    let told = "proxy-authorization: Basic bWU6cEBzcw==\r\n";
    for (host, login, told) in
        [("api.test", "", ""), ("api.test", "me:p%40ss@", told), ("[fd00::7]:81", "me:p%40ss@", told)]
    {
        let proxy = TestUpstream::bind().await;
        let address = proxy.url().replace("http://", &format!("http://{login}"));
        let (_gateway, mut client) = asked(plain(&format!("http://{host}/base")), &address).await;
        let mut server = proxy.accept().await;
        for _ in 0..2 {
            server
                .expect(format!(
                    "POST http://{host}/base/v1/x?y=z HTTP/1.1\r\nHost: {host}\r\nContent-Length: 2\r\n{told}\r\n{{}}"
                ))
                .await;
            server.send(OK).await;
            client.expect(OK).await;
            client.send(ASK).await;
        }
        assert!(proxy.is_quiet(), "the connection is kept");
    }
}

#[tokio::test]
async fn tunnels_are_asked_for_where_all_is_encrypted() {
    for (login, told) in [("", ""), ("me:p@", "Proxy-Authorization: Basic bWU6cA==\r\n")] {
        let (listener, settings) = listen().await;
        let host = listener.local_addr().unwrap();
        let proxy = format!("http://{login}{host}");
        // Nothing listens at the upstream's address: what arrives came through the proxy.
        let settings = Settings { base_url: "https://127.0.0.1:9".parse().unwrap(), ..settings };
        let (_gateway, mut client) = asked(settings, &proxy).await;
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let expected = format!("CONNECT 127.0.0.1:9 HTTP/1.1\r\nHost: 127.0.0.1:9\r\n{told}\r\n");
            assert_eq!(String::from_utf8(read(&mut stream, expected.len()).await).unwrap(), expected);
            stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
            let mut stream = acceptor(&["http/1.1"]).accept(stream).await.unwrap();
            let expected = ASK.replace("me", "127.0.0.1:9");
            let mut received = vec![0; expected.len()];
            stream.read_exact(&mut received).await.unwrap();
            assert_eq!(String::from_utf8(received).unwrap(), expected);
            stream.write_all(OK.as_bytes()).await.unwrap();
            stream
        };
        let _stream = within(serve).await;
        client.expect(OK).await;
    }
}

#[tokio::test]
async fn http_2_is_spoken_through_tunnels_and_one_of_them_is_shared() {
    let (listener, settings) = listen().await;
    let host = listener.local_addr().unwrap().to_string();
    let settings = Settings { base_url: "https://127.0.0.1:9".parse().unwrap(), ..settings };
    let (gateway, mut client) = asked(settings, &format!("http://{host}")).await;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let expected = b"CONNECT 127.0.0.1:9 HTTP/1.1\r\nHost: 127.0.0.1:9\r\n\r\n";
        assert_eq!(read(&mut stream, expected.len()).await, expected);
        stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n").await.unwrap();
        let stream = acceptor(&["h2", "http/1.1"]).accept(stream).await.unwrap();
        let service = service_fn(async |request: Request<Incoming>| {
            assert_eq!(request.uri(), "https://127.0.0.1:9/v1/x?y=z");
            Ok::<_, hyper::Error>(Response::new(request.into_body()))
        });
        let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        served.serve_connection(TokioIo::new(stream), service).await.unwrap();
    });
    for _ in 0..2 {
        let (head, body) = client.message().await;
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert_eq!(body, b"{}");
        client = gateway.client().await;
        client.send(ASK).await;
    }
}

/// A proxy that is reached over TLS is offered HTTP/1.1 alone.
async fn accept_encrypted(listener: &TcpListener) -> TlsStream<TcpStream> {
    let accept = async { acceptor(&["h2", "http/1.1"]).accept(listener.accept().await.unwrap().0).await };
    let stream = within(accept).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    stream
}

#[tokio::test]
async fn whole_addresses_are_sent_to_a_proxy_that_is_reached_over_tls() {
    let (listener, settings) = listen().await;
    let settings = Settings { base_url: "http://api.test/base".parse().unwrap(), ..settings };
    let proxy = format!("https://me:p%40ss@{}", listener.local_addr().unwrap());
    let (_gateway, mut client) = asked(settings, &proxy).await;
    let mut stream = accept_encrypted(&listener).await;
    let expected = "POST http://api.test/base/v1/x?y=z HTTP/1.1\r\nHost: api.test\r\nContent-Length: 2\r\n\
                    proxy-authorization: Basic bWU6cEBzcw==\r\n\r\n{}";
    // The connection is kept.
    for _ in 0..2 {
        assert_eq!(String::from_utf8(read(&mut stream, expected.len()).await).unwrap(), expected);
        stream.write_all(OK.as_bytes()).await.unwrap();
        client.expect(OK).await;
        client.send(ASK).await;
    }
}

/// The certificate of the proxy is checked against its own name, that of the upstream against the upstream's.
#[tokio::test]
async fn tunnels_are_made_within_tls_through_a_proxy_that_is_reached_over_it() {
    const CONNECT: &[u8] = b"CONNECT 127.0.0.1:9 HTTP/1.1\r\nHost: 127.0.0.1:9\r\n\
                             Proxy-Authorization: Basic bWU6cA==\r\n\r\n";
    let (listener, settings) = listen().await;
    let settings = Settings { base_url: "https://127.0.0.1:9".parse().unwrap(), ..settings };
    let proxy = format!("https://me:p@{}", listener.local_addr().unwrap());
    let (_gateway, mut client) = asked(settings, &proxy).await;
    let mut stream = accept_encrypted(&listener).await;
    assert_eq!(read(&mut stream, CONNECT.len()).await, CONNECT);
    stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
    let mut stream = within(acceptor(&["http/1.1"]).accept(stream)).await.unwrap();
    let expected = ASK.replace("me", "127.0.0.1:9");
    for _ in 0..2 {
        assert_eq!(String::from_utf8(read(&mut stream, expected.len()).await).unwrap(), expected);
        stream.write_all(OK.as_bytes()).await.unwrap();
        client.expect(OK).await;
        client.send(ASK).await;
    }
}

#[tokio::test]
async fn http_2_is_spoken_through_tunnels_within_tls() {
    let (listener, settings) = listen().await;
    let settings = Settings { base_url: "https://127.0.0.1:9".parse().unwrap(), ..settings };
    let proxy = format!("https://{}", listener.local_addr().unwrap());
    let (gateway, mut client) = asked(settings, &proxy).await;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut stream = accept_encrypted(&listener).await;
        let expected = b"CONNECT 127.0.0.1:9 HTTP/1.1\r\nHost: 127.0.0.1:9\r\n\r\n";
        assert_eq!(read(&mut stream, expected.len()).await, expected);
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        let stream = acceptor(&["h2", "http/1.1"]).accept(stream).await.unwrap();
        let service = service_fn(async |request: Request<Incoming>| {
            assert_eq!(request.uri(), "https://127.0.0.1:9/v1/x?y=z");
            Ok::<_, hyper::Error>(Response::new(request.into_body()))
        });
        let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        served.serve_connection(TokioIo::new(stream), service).await.unwrap();
    });
    for _ in 0..2 {
        let (head, body) = client.message().await;
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert_eq!(body, b"{}");
        client = gateway.client().await;
        client.send(ASK).await;
    }
}

/// An error of TLS with the proxy is not taken for one of TLS with the upstream.
#[tokio::test]
async fn proxies_without_a_usable_encrypted_connection_are_named() {
    const ITSELF: &str = "no encrypted connection to the proxy itself: ";
    for base_url in ["http://api.test", "https://api.test"] {
        for (ca_file, shown, at_fault, says) in [
            (None, Some("server"), "Tls", "UnknownIssuer; if whoever has signed that is to be trusted, "),
            (Some("self-signed.pem"), Some("self-signed"), "Proxy", "that certificate is an authority's"),
            (Some("authority.pem"), None, "Tls", "`http://` may be meant"),
        ] {
            let (listener, settings) = listen().await;
            let settings =
                Settings { ca_file: ca_file.map(file), base_url: base_url.parse().unwrap(), ..settings };
            let address = listener.local_addr().unwrap();
            let (_gateway, mut client) = asked(settings, &format!("https://me:secret@{address}")).await;
            let mut tasks = JoinSet::new();
            tasks.spawn(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                match shown {
                    Some(shown) => drop(acceptor_of(shown, &[]).accept(stream).await),
                    None => {
                        read(&mut stream, 1).await;
                        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
                    }
                }
            });
            let (head, body) = client.message().await;
            let body = String::from_utf8(body).unwrap();
            assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
            assert!(body.starts_with(&format!("/v1/x {at_fault}: ")), "{base_url} {body}");
            assert!(body.contains(&format!("through the proxy https://{address}: {ITSELF}")), "{body}");
            assert!(body.contains(says) && !body.contains("secret"), "{body}");
        }
    }
}

/// An upstream that is not trusted is not taken for the proxy.
#[tokio::test]
async fn what_proxies_reached_over_tls_refuse_is_said() {
    for (answer, at_fault, says) in [
        ("HTTP/1.1 407 Who\r\n\r\n", "Proxy", "it answered 407 Proxy Authentication Required"),
        ("HTTP/1.1 200 OK\r\n\r\n", "Way", "certificate not valid for name \"api.test\""),
    ] {
        let (listener, settings) = listen().await;
        let settings = Settings { base_url: "https://api.test".parse().unwrap(), ..settings };
        let proxy = format!("https://{}", listener.local_addr().unwrap());
        let (_gateway, mut client) = asked(settings, &proxy).await;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut stream = accept_encrypted(&listener).await;
            read(&mut stream, b"CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\n\r\n".len()).await;
            stream.write_all(answer.as_bytes()).await.unwrap();
            drop(acceptor(&[]).accept(stream).await);
        });
        told(&mut client, 502, at_fault, &format!("{proxy}: "), says).await;
    }
}

/// The proxy resolves the name, and gets the port even if it is the default one.
#[tokio::test]
async fn socks_proxies_connect_by_name() {
    let hello: [&[u8]; 2] = [b"\x05\x01\x00", b"\x05\x01\x02"];
    for (login, hello) in ["", "me:p@"].into_iter().zip(hello) {
        let (listener, _) = listen().await;
        let proxy = format!("socks5://{login}{}", listener.local_addr().unwrap());
        let (_gateway, mut client) = asked(plain("http://api.test"), &proxy).await;
        let (mut stream, _) = within(listener.accept()).await.unwrap();
        assert_eq!(read(&mut stream, hello.len()).await, hello);
        stream.write_all(&[5, hello[2]]).await.unwrap();
        if !login.is_empty() {
            assert_eq!(read(&mut stream, 6).await, b"\x01\x02me\x01p");
            stream.write_all(b"\x01\x00").await.unwrap();
        }
        assert_eq!(read(&mut stream, 15).await, b"\x05\x01\x00\x03\x08api.test\x00\x50");
        stream.write_all(b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00").await.unwrap();
        let expected = ASK.replace("me", "api.test");
        assert_eq!(String::from_utf8(read(&mut stream, expected.len()).await).unwrap(), expected);
        stream.write_all(OK.as_bytes()).await.unwrap();
        client.expect(OK).await;
    }
}

#[tokio::test]
async fn proxies_that_do_not_connect_are_named() {
    for (answer, at_fault, says) in [
        (
            "HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 99999\r\n\r\nWho",
            "Proxy",
            "it answered 407 Proxy Authentication Required",
        ),
        ("HTTP/1.1 403 Forbidden\r\n\r\n", "Proxy", "it answered 403 Forbidden"),
        ("HTTP/1.1 503 No DNS\r\n\r\n", "Way", "it answered 503 Service Unavailable"),
        ("\u{15}\u{3}\u{3}\0\u{2}\u{2}\u{28}", "Proxy", "not one of HTTP"),
        ("", "Way", "unexpected end of file"),
    ] {
        let proxy = TestUpstream::bind().await;
        let address = proxy.url().replace("http://", "http://me:secret@");
        let (_, settings) = listen().await;
        let (_gateway, mut client) = asked(settings, &address).await;
        let mut server = proxy.accept().await;
        server.head().await;
        server.send(answer).await;
        drop(server);
        told(&mut client, 502, at_fault, &proxy.url(), says).await;
    }
}

#[tokio::test]
async fn socks_proxies_that_do_not_connect_are_named() {
    for (answers, says) in [
        (&[&b"\x05\x00"[..], b"\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00"][..], "connection not allowed"),
        (&[b"\x05\x00", b"\x05\x05\x00\x01\x00\x00\x00\x00\x00\x00"], "connection refused"),
        (&[b"\x05\xff"], "authentication"),
        (&[b"\x05\x00"], "unexpected eof"),
        (&[b"HTTP/1.1 400 Bad Request\r\n\r\n"], "failed parsing"),
    ] {
        let (listener, _) = listen().await;
        let address = listener.local_addr().unwrap();
        let (_gateway, mut client) = asked(plain("http://api.test"), &format!("socks5h://{address}")).await;
        let (mut stream, _) = within(listener.accept()).await.unwrap();
        for (answer, asks) in answers.iter().zip([3, 15]) {
            read(&mut stream, asks).await;
            stream.write_all(answer).await.unwrap();
        }
        // Only the writing side is closed: unread data would turn a full close into a reset.
        if answers.len() == 1 {
            stream.shutdown().await.unwrap();
        }
        told(&mut client, 502, "Way", &format!("socks5h://{address}"), says).await;
    }
}

#[tokio::test]
async fn proxies_that_are_not_there_are_named() {
    for scheme in ["http", "https", "socks5"] {
        for upstream in ["http://api.test", "https://api.test"] {
            // The port is bound, but nothing listens on it.
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let proxy = format!("{scheme}://{}", socket.local_addr().unwrap());
            let (_gateway, mut client) = asked(plain(upstream), &proxy).await;
            told(&mut client, 502, "Proxy", &proxy, "Connection refused").await;
        }
    }
}

/// A loop is recognised by the address that the connection has led to: no name need be known for it.
#[tokio::test]
async fn requests_that_loop_back_are_not_sent() {
    for through in ["", "http://"] {
        let listener = TestUpstream::bind().await;
        let address = listener.url().replace("http://", "");
        let own = plain(&if through.is_empty() { listener.url() } else { "http://api.test".to_owned() });
        let settings = Settings {
            proxy: (!through.is_empty()).then(|| listener.url().parse().unwrap()),
            listeners: vec![address.parse().unwrap()],
            ..own
        };
        let gateway = Proxy::start(TestGateway::with_upstream(settings));
        let mut client = gateway.client().await;
        client.send(ASK).await;
        let (head, body) = client.message().await;
        assert!(head.starts_with("HTTP/1.1 508 Loop Detected\r\n"), "{head}");
        let body = String::from_utf8(body).unwrap();
        let says =
            if through.is_empty() { "this".to_owned() } else { format!("the proxy {}", listener.url()) };
        assert!(
            body.starts_with("/v1/x Gateway: ") && body.ends_with(&format!("{says} is the gateway itself")),
            "{body}"
        );
        // The connection ends without an answer.
        assert_eq!(listener.accept().await.closed().await, Closing::Finished);
    }
}

#[tokio::test]
async fn proxies_that_say_nothing_are_named() {
    for scheme in ["http", "https", "socks5"] {
        let silent = TestUpstream::bind().await;
        let proxy = silent.url().replace("http", scheme);
        let mut settings = plain("https://api.test");
        settings.timeouts.connect = Duration::from_millis(50);
        let (_gateway, mut client) = asked(settings, &proxy).await;
        told(&mut client, 504, "Way", &proxy, "no answer in time").await;
    }
}
