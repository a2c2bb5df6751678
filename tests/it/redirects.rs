//! Redirects: an address of the upstream is replaced by one below the gateway, so that following it reaches the same
//! upstream.

use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use crate::support::{Gateway, exchange, read_message};

/// A server that redirects every request to the URL in its body.
fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || serve(stream.unwrap()));
        }
    });
    address
}

fn serve(mut stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Some((_, body)) = read_message(&mut reader) {
        let location = String::from_utf8(body).unwrap();
        let head = format!("HTTP/1.1 307 X\r\nLocation: {location}\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
    }
}

#[test]
fn redirects_are_rewritten_to_stay_behind_the_gateway() {
    let home = tempfile::tempdir().unwrap();
    let own = format!("http://{}", upstream());
    let config = format!(
        "[listen]\nadmin = 'off'\n[upstream.local]\nbase_url = '{own}/pre'\nprotocols = ['openai-chat']\n\
         [upstream.openai]\nbase_url = '{own}'\n[upstream.anthropic]\nbase_url = 'http://127.0.0.1:1'\n"
    );
    let gateway = Gateway::configured(home.path(), &config);
    for (path, location, expected) in [
        ("/local/v1/models", format!("{own}/pre/v1/models/"), "/local/v1/models/"),
        ("/local/v1/chat/completions", format!("{own}/pre/v1/x"), "/local/v1/x"),
        ("/local/v1/models?a=b", "/pre/v1/models/?a=%2F".to_owned(), "/local/v1/models/?a=%2F"),
        ("/local/v1/models", own.replace("http://", "//") + "/pre/a", "/local/a"),
        ("/local/v1/models", own.replace("http", "HTTP") + "/pre/a", "/local/a"),
        ("/v1/chat/completions", format!("{own}/v1/chat/completions/"), "/v1/chat/completions/"),
        // Without the upstream's name, the path would lead to another upstream, or its beginning would be taken for a
        // name.
        ("/v1/chat/completions", "/v1/messages".to_owned(), "/openai/v1/messages"),
        ("/v1/responses", format!("{own}/openai/v1/responses/"), "/openai/openai/v1/responses/"),
        // A path outside the base path belongs to the server itself.
        ("/local/v1/models", "/elsewhere".to_owned(), &*format!("{own}/elsewhere")),
        ("/local/v1/models", "/prefix/a".to_owned(), &*format!("{own}/prefix/a")),
        ("/local/v1/models", "/pre/../v1/messages".to_owned(), &*format!("{own}/pre/../v1/messages")),
    ] {
        let (status, head, _) = exchange(gateway.address, "POST", path, &[], &location);
        assert!(status == 307 && head.contains(&format!("Location: {expected}\r\n")), "{location}: {head}");
    }
    for (path, location) in [
        ("/v1/chat/completions", "/v1/chat/completions/".to_owned()),
        ("/local/v1/models", "models/".to_owned()),
        ("/local/v1/models", format!("{own}/pre/../other")),
        ("/local/v1/models", format!("{own}/other")),
        ("/local/v1/models", format!("{own}0/pre/a")),
        ("/local/v1/models", "https://example.com/pre/v1".to_owned()),
        ("/local/v1/models", format!("{own}.example.com/pre/v1")),
    ] {
        let (status, head, _) = exchange(gateway.address, "POST", path, &[], &location);
        assert!(status == 307 && head.contains(&format!("Location: {location}\r\n")), "{location}: {head}");
    }
    gateway.stop();
}
