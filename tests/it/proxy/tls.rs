//! Upstreams reached over TLS, with their own certificate authority.
//!
//! The certificate and its key in `tls/` are for these tests: for `127.0.0.1`, signed by an authority whose key was
//! discarded. The self-signed one was made by `openssl req -x509`.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use plimsoll::upstream::Settings;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::Proxy;
use super::gateway::TestGateway;
use super::wire::{Peer, header, within};
use crate::cli::plimsoll;

const ASK: &str = "POST /v1/x HTTP/1.1\r\nHost: me\r\nX-Key: k\r\nContent-Length: 2\r\n\r\n{}";

pub(super) fn file(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests/it/proxy/tls", name].iter().collect()
}

pub(super) fn acceptor(protocols: &[&str]) -> TlsAcceptor {
    acceptor_of("server", protocols)
}

pub(super) fn acceptor_of(name: &str, protocols: &[&str]) -> TlsAcceptor {
    let certificates = CertificateDer::pem_file_iter(file(&format!("{name}.pem"))).unwrap();
    let certificates = certificates.map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(file(&format!("{name}.key"))).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

pub(super) async fn listen() -> (TcpListener, Settings) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    (
        listener,
        Settings { ca_file: Some(file("authority.pem")), ..Settings::new("test", url.parse().unwrap()) },
    )
}

/// This holds for a kept connection as well: data of TLS itself is not its end.
#[tokio::test]
async fn http_1_goes_through() {
    const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    for (offers_http2, protocols) in
        [(true, &["http/1.1"][..]), (true, &[]), (false, &["h2", "http/1.1"]), (false, &[])]
    {
        let (listener, mut settings) = listen().await;
        settings.http2 = offers_http2;
        let expected = ASK.replace("me", &listener.local_addr().unwrap().to_string());
        let proxy = Proxy::start(TestGateway::with_upstream(settings));
        let mut client = proxy.client().await;
        client.send(ASK).await;
        let accept = async { acceptor(protocols).accept(listener.accept().await.unwrap().0).await.unwrap() };
        let mut stream = within(accept).await;
        let chosen = (!protocols.is_empty()).then_some(&b"http/1.1"[..]);
        assert_eq!(stream.get_ref().1.alpn_protocol(), chosen);
        for is_last in [false, true] {
            let mut received = vec![0; expected.len()];
            within(stream.read_exact(&mut received)).await.unwrap();
            assert_eq!(String::from_utf8(received).unwrap(), expected);
            stream.write_all(OK.as_bytes()).await.unwrap();
            client.expect(OK).await;
            if !is_last {
                client.send(ASK).await;
            }
        }
    }
}

/// Only an answer that does not say how long it is ends with the connection.
#[tokio::test]
async fn answers_end_where_the_server_closes_without_an_end_of_tls() {
    for (fields, sent, expected) in [
        ("", "data: x\n\n", Some("data: x\n\n")),
        ("connection: close\r\n", "", Some("")),
        ("content-length: 2\r\n", "ok", Some("ok")),
        ("content-length: 3\r\n", "ok", None),
        ("transfer-encoding: chunked\r\n", "2\r\nok\r\n0\r\n\r\n", Some("ok")),
        ("transfer-encoding: chunked\r\n", "2\r\nok\r\n", None),
        ("transfer-encoding: chunked\r\n", "3\r\nok", None),
    ] {
        let (listener, settings) = listen().await;
        let proxy = Proxy::start(TestGateway::with_upstream(settings));
        let mut client = proxy.client().await;
        client.send(ASK).await;
        within(async {
            let mut stream =
                acceptor(&["http/1.1"]).accept(listener.accept().await.unwrap().0).await.unwrap();
            let mut received = Vec::new();
            while !received.ends_with(b"\r\n\r\n{}") {
                stream.read_buf(&mut received).await.unwrap();
            }
            let answer = format!("HTTP/1.1 200 OK\r\n{fields}\r\n{sent}");
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.flush().await.unwrap();
            // The stream is dropped without a shutdown, which would send `close_notify`.
        })
        .await;
        let head = client.head().await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{fields} {head}");
        let is_counted = header(&head, "content-length").is_some();
        match (expected, is_counted) {
            (Some(body), true) => client.expect(body).await,
            (Some(body), false) => assert_eq!(client.chunked().await, body.as_bytes(), "{fields}"),
            (None, true) => {
                assert_eq!(client.bytes(sent.len()).await, sent.as_bytes());
                client.closed().await;
            }
            (None, false) => {
                assert_eq!(client.chunk().await, b"ok");
                client.closed().await;
            }
        }
        assert_eq!(proxy.stats.upstream_breaks.value(), u64::from(expected.is_none()), "{fields} {sent}");
    }
}

/// An interrupted head is no answer.
#[tokio::test]
async fn heads_do_not_end_where_the_server_closes_without_an_end_of_tls() {
    let (listener, settings) = listen().await;
    let proxy = Proxy::start(TestGateway::with_upstream(settings));
    let mut client = proxy.client().await;
    client.send(ASK).await;
    within(async {
        let mut stream = acceptor(&[]).accept(listener.accept().await.unwrap().0).await.unwrap();
        let mut received = Vec::new();
        while !received.ends_with(b"\r\n\r\n{}") {
            stream.read_buf(&mut received).await.unwrap();
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\n").await.unwrap();
        stream.flush().await.unwrap();
    })
    .await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
}

#[tokio::test]
async fn http_2_is_spoken_where_it_is_offered_and_one_connection_is_shared() {
    let (listener, settings) = listen().await;
    let host = listener.local_addr().unwrap().to_string();
    let proxy = Proxy::start(TestGateway::with_upstream(settings));
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let stream = acceptor(&["h2", "http/1.1"]).accept(stream).await.unwrap();
        let service = service_fn(|request| echo(request, host.clone()));
        let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        served.serve_connection(TokioIo::new(stream), service).await.unwrap();
    });
    for _ in 0..2 {
        let mut clients = [proxy.client().await, proxy.client().await];
        for client in &mut clients {
            client.send(ASK).await;
            let (head, body) = client.message().await;
            assert!(head.starts_with("HTTP/1.1 201 Created\r\nx-key: k\r\n"), "{head}");
            assert_eq!(body, b"{}");
        }
    }
}

async fn echo(request: Request<Incoming>, host: String) -> Result<Response<Full<Bytes>>, hyper::Error> {
    assert_eq!(request.uri().to_string(), format!("https://{host}/v1/x"));
    assert!(!request.headers().contains_key("host"));
    let key = request.headers()["x-key"].clone();
    let body = request.into_body().collect().await?.to_bytes();
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = http::StatusCode::CREATED;
    response.headers_mut().insert("x-key", key);
    Ok(response)
}

#[tokio::test]
async fn strangers_are_not_trusted() {
    for (ca_file, at_fault, says) in [
        (None, "Tls", "UnknownIssuer; if whoever has signed that is to be trusted, "),
        (Some(file("missing.pem")), "Gateway", "cannot use `ca_file` /"),
        (Some(file("server.key")), "Gateway", "no certificate in it"),
    ] {
        let (listener, settings) = listen().await;
        let proxy =
            Proxy::start(TestGateway::with_upstream(Settings { ca_file: ca_file.clone(), ..settings }));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            drop(acceptor(&[]).accept(stream).await);
        });
        let mut client = proxy.client().await;
        client.send(ASK).await;
        let (head, body) = client.message().await;
        let body = String::from_utf8(body).unwrap();
        assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
        assert!(body.starts_with(&format!("/v1/x {at_fault}: ")), "{ca_file:?} {body}");
        assert!(body.contains(says) && body.contains("`ca_file`"), "{ca_file:?} {body}");
    }
}

/// A file that cannot be used is not an error.
#[tokio::test]
async fn certificates_that_node_is_told_to_trust_are_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let made = |name: &str| folder.path().join(name);
    let authority = fs::read_to_string(file("authority.pem")).unwrap();
    fs::write(made("marked.pem"), format!("\u{feff}{authority}")).unwrap();
    fs::write(made("cut.pem"), format!("{authority}-----BEGIN CERTIFICATE-----\nMIIB")).unwrap();
    assert!(Command::new("mkfifo").arg(made("pipe")).status().unwrap().success());
    for (extra, status, warnings) in [
        (file("authority.pem"), 200, 0),
        (made("marked.pem"), 200, 0),
        (made("cut.pem"), 200, 1),
        (file("server.key"), 502, 1),
        (made("missing.pem"), 502, 1),
        (made("pipe"), 502, 1),
    ] {
        let (listener, _) = listen().await;
        let home = tempfile::tempdir().unwrap();
        let config = format!(
            "listen.admin = 'off'\nupstream.anthropic.base_url = 'https://{}'",
            listener.local_addr().unwrap()
        );
        fs::write(home.path().join("gateway.toml"), config).unwrap();
        let mut command = plimsoll(home.path(), &["serve", "-c", "gateway.toml", "--listen", "127.0.0.1:0"]);
        command.env("NODE_EXTRA_CA_CERTS", &extra);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("listening on http://").unwrap().parse().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            for _ in 0..2 {
                let (stream, _) = listener.accept().await.unwrap();
                let Ok(mut stream) = acceptor(&["http/1.1"]).accept(stream).await else { continue };
                let mut received = Vec::new();
                while !received.ends_with(b"\r\n\r\n{}") {
                    stream.read_buf(&mut received).await.unwrap();
                }
                let answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";
                stream.write_all(answer).await.unwrap();
                stream.shutdown().await.unwrap();
            }
        });
        for _ in 0..2 {
            let mut client = Peer::connect(address).await;
            client.send(&ASK.replace("/v1/x", "/anthropic/v1/x")).await;
            let (head, body) = client.message().await;
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{extra:?} {head} {body:?}");
        }
        child.kill().unwrap();
        let mut log = String::new();
        child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        child.wait().unwrap();
        assert_eq!(log.matches("of `NODE_EXTRA_CA_CERTS` can be used").count(), warnings, "{extra:?} {log}");
    }
}

/// A server that does not speak TLS, and a certificate as `openssl req -x509` makes it by default.
#[tokio::test]
async fn what_to_do_about_certificates_and_plain_servers_is_said() {
    for (is_plain, at_fault, says) in [
        (true, "Tls", "`http://` may be meant"),
        (false, "Upstream", "that certificate is an authority's, which no server may show as its own: "),
    ] {
        let (listener, settings) = listen().await;
        let settings = Settings { ca_file: Some(file("self-signed.pem")), ..settings };
        let proxy = Proxy::start(TestGateway::with_upstream(settings));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            if is_plain {
                let mut hello = [0];
                stream.read_exact(&mut hello).await.unwrap();
                stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
            } else {
                drop(acceptor_of("self-signed", &[]).accept(stream).await);
            }
        });
        let mut client = proxy.client().await;
        client.send(ASK).await;
        let (head, body) = client.message().await;
        let body = String::from_utf8(body).unwrap();
        assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
        assert!(body.starts_with(&format!("/v1/x {at_fault}: ")) && body.contains(says), "{body}");
    }
}
