//! Routes that lead back to the gateway: what is sent there must not circulate forever. Two gateways in a row are not
//! a loop.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::cli::{plimsoll, ran};
use crate::support::{Gateway, Upstream, send};

const MESSAGE: &str =
    r#"{"model":"claude-sonnet-4-5","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}"#;
const CONFIG: &str = "listen.admin = 'off'\n";

/// A gateway at an address chosen in advance, and its log.
struct Serving {
    child: Child,
    address: SocketAddr,
}

/// An address on which nothing listens.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn command(home: &Path, config: &str, address: SocketAddr, variables: &[(&str, String)]) -> Command {
    fs::write(home.join("gateway.toml"), format!("{CONFIG}{config}")).unwrap();
    let mut command = plimsoll(home, &["serve", "-c", "gateway.toml", "--listen", &address.to_string()]);
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    command
}

impl Serving {
    /// Starts the command for an address. Another program may take the address first.
    fn start(command: impl Fn(SocketAddr) -> Command) -> Self {
        let mut log = String::new();
        for _ in 0..5 {
            let address = free();
            let mut command = command(address);
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let mut line = String::new();
            BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
            let serving = Self { child, address };
            if line == format!("listening on http://{address}\n") {
                return serving;
            }
            log = serving.end();
        }
        panic!("it does not start: {log}");
    }

    fn ask(&self) -> (u16, String) {
        let (status, body) = send(self.address, "POST", "/v1/messages", &[], MESSAGE);
        (status, String::from_utf8(body).unwrap())
    }

    /// Stops it and returns its log.
    fn end(mut self) -> String {
        self.child.kill().unwrap();
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        self.child.wait().unwrap();
        log
    }
}

/// A name of this machine for an address, which only a resolver knows.
fn named(address: SocketAddr) -> String {
    format!("http://127.1:{}", address.port())
}

#[test]
fn a_proxy_variable_that_names_the_gateway_is_ignored() {
    let home = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(|_| (200, "{}".to_owned()));
    let config = format!("upstream.anthropic.base_url = '{}'", named(upstream.address));
    let gateway = Serving::start(|own| {
        let variables =
            [("HTTP_PROXY", format!("http://{own}")), ("https_proxy", format!("localhost:{}", own.port()))];
        command(home.path(), &config, own, &variables)
    });
    assert_eq!(gateway.ask().0, 200);
    assert_eq!(upstream.received()[0].line, "POST /v1/messages HTTP/1.1");
    let log = gateway.end();
    for variable in ["HTTP_PROXY", "HTTPS_PROXY"] {
        let says = format!(
            "`{variable}` names a proxy that cannot be used, connections are made without one: it is the gateway itself"
        );
        assert_eq!(log.matches(&says).count(), 1, "{log}");
    }
}

/// A loop through a name that only a resolver knows is noticed at the first request, which does not circulate.
#[test]
fn a_loop_through_another_name_is_an_error() {
    for (base_url, proxy, says) in [
        ("OWN", "", "(OWN): this is the gateway itself (gateway at fault)"),
        (
            "http://api.test",
            "OWN",
            "(http://api.test): the proxy OWN is the gateway itself (gateway at fault)",
        ),
    ] {
        let home = tempfile::tempdir().unwrap();
        let own = |text: &str, address| text.replace("OWN", &named(address));
        let gateway = Serving::start(|address| {
            let config = format!("upstream.anthropic.base_url = '{}'", own(base_url, address));
            command(home.path(), &config, address, &[("HTTP_PROXY", own(proxy, address))])
        });
        let (status, body) = gateway.ask();
        assert_eq!(status, 508, "{body}");
        assert!(body.contains(&own(says, gateway.address)), "{body}");
        gateway.end();
    }
}

#[test]
fn a_configured_proxy_that_is_the_gateway_is_a_mistake() {
    let home = tempfile::tempdir().unwrap();
    let own = free();
    let config = format!("listen.address = '{own}'\nupstream.openai.proxy = 'socks5://me:secret@{own}'");
    let says = format!("`upstream.openai.proxy`: socks5://{own} is the gateway itself\n");
    let served = ran(command(home.path(), &config, own, &[]));
    assert_eq!((served.code, &*served.err), (Some(2), &*says));
    let checked = ran(plimsoll(home.path(), &["check"]));
    assert_eq!((checked.code, checked.err), (Some(2), format!("gateway.toml:3: {says}")));
}

#[test]
fn two_gateways_in_a_row_are_no_loop() {
    let homes = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let upstream = Upstream::start(|_| (200, "{}".to_owned()));
    let second = Gateway::start(homes[1].path(), CONFIG, &upstream.url());
    let first = format!("upstream.anthropic.base_url = 'http://{}'", second.address);
    let through = "upstream.anthropic.base_url = 'http://api.test'";
    let proxy = [("HTTP_PROXY", format!("http://{}", second.address))];
    for (config, variables) in [(&*first, &[][..]), (through, &proxy)] {
        let gateway = Serving::start(|own| command(homes[0].path(), config, own, variables));
        assert_eq!(gateway.ask().0, 200, "{config}");
        gateway.end();
    }
    assert_eq!(upstream.received().len(), 2);
}
