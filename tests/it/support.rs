//! A scripted upstream and a client, over raw sockets on loopback.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
#[cfg(target_os = "linux")]
use rustix::event::{PollFd, PollFlags, Timespec};
#[cfg(target_os = "linux")]
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use serde_json::Value;

/// A request as received.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    /// The first line: method, path, version.
    pub(crate) line: String,
    pub(crate) body: Vec<u8>,
}

impl Received {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("the bodies of these tests are text")
    }
}

/// Answers each request by a function of it, and remembers the requests.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
}

/// An answer: status and body. A body that starts with `event:` or `data:` is a stream, and lines that start with
/// `chunk:` are frames of Amazon's binary stream, with one event each.
pub(crate) type Answer = (u16, String);

impl Upstream {
    pub(crate) fn start(answer: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let received: Arc<Mutex<Vec<Received>>> = Arc::default();
        let (seen, answer) = (Arc::clone(&received), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                thread::spawn(move || serve(stream.unwrap(), &seen, &*answer));
            }
        });
        Self { address, received }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }
}

fn serve(stream: TcpStream, seen: &Mutex<Vec<Received>>, answer: &dyn Fn(&Received) -> Answer) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    while let Some((head, body)) = read_message(&mut reader) {
        let request = Received { line: head.lines().next().unwrap_or_default().to_owned(), body };
        seen.lock().unwrap().push(request.clone());
        let (status, body) = answer(&request);
        let (kind, body) = match body.split_once(':') {
            Some(("event" | "data", _)) => ("text/event-stream", body.into_bytes()),
            Some(("chunk", _)) => {
                let events = body.lines().filter_map(|line| line.strip_prefix("chunk:"));
                ("application/vnd.amazon.eventstream", events.flat_map(frame).collect())
            }
            _ => ("application/json", body.into_bytes()),
        };
        let head =
            format!("HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n", body.len());
        if stream.write_all(&[head.as_bytes(), &body].concat()).is_err() {
            return;
        }
    }
}

/// An event as Bedrock sends it.
fn frame(event: &str) -> Vec<u8> {
    let mut headers = Vec::new();
    for (name, value) in [(":event-type", "chunk"), (":message-type", "event")] {
        headers.extend(
            [&[name.len() as u8], name.as_bytes(), &[7, 0, value.len() as u8], value.as_bytes()].concat(),
        );
    }
    let payload =
        format!(r#"{{"bytes":"{}"}}"#, base64::engine::general_purpose::STANDARD.encode(event.trim()));
    let length = (16 + headers.len() + payload.len()) as u32;
    let with_checksum = |mut bytes: Vec<u8>| {
        let mut checksum = flate2::Crc::new();
        checksum.update(&bytes);
        bytes.extend(checksum.sum().to_be_bytes());
        bytes
    };
    let prelude = with_checksum([length.to_be_bytes(), (headers.len() as u32).to_be_bytes()].concat());
    with_checksum([&prelude, &*headers, payload.as_bytes()].concat())
}

/// The records of all conversations, log by log in the order of their names.
pub(crate) fn records(home: &Path) -> Vec<Value> {
    let logs = fs::read_dir(home.join("plimsoll/conversations")).unwrap();
    let mut logs: Vec<_> = logs.map(|log| log.unwrap().path()).collect();
    logs.sort();
    let text: String = logs.iter().map(|log| fs::read_to_string(log).unwrap()).collect();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Waits until this many requests are booked: what is stored after a request is sent, such as what is known of a
/// history from its middle on, or what becomes of an answer after its beginning, is stored before that.
pub(crate) fn booked(home: &Path, requests: usize) {
    let is_booked = logged(home, |logs| logs.matches('\n').count() == requests);
    assert!(is_booked, "{requests} requests are not booked");
}

/// Waits until the logs of all conversations together are as expected, for at most a minute. Returns whether they are.
fn logged(home: &Path, is_expected: impl Fn(&str) -> bool) -> bool {
    let (state, began) = (home.join("plimsoll"), Instant::now());
    let folder = state.join("conversations");
    let changes = Changes::of([state, folder.clone()]);
    let text = |log: std::io::Result<fs::DirEntry>| fs::read_to_string(log.unwrap().path()).unwrap();
    loop {
        // The folder is made with the first log. It is watched before it is read, so that nothing is missed in between.
        changes.watch();
        let logs: String = fs::read_dir(&folder).into_iter().flatten().map(text).collect();
        let left = Duration::from_secs(60).saturating_sub(began.elapsed());
        if is_expected(&logs) || left.is_zero() {
            return is_expected(&logs);
        }
        changes.wait(left);
    }
}

/// Changes in folders, of which some may not exist yet.
struct Changes {
    folders: [PathBuf; 2],
    #[cfg(target_os = "linux")]
    queue: rustix::fd::OwnedFd,
}

#[cfg(target_os = "linux")]
impl Changes {
    fn of(folders: [PathBuf; 2]) -> Self {
        Self { folders, queue: inotify::init(CreateFlags::CLOEXEC).unwrap() }
    }

    /// Watches the folders that exist.
    fn watch(&self) {
        for folder in self.folders.iter().filter(|folder| folder.exists()) {
            let what = WatchFlags::CREATE | WatchFlags::MODIFY | WatchFlags::MOVED_TO;
            inotify::add_watch(&self.queue, folder, what).unwrap();
        }
    }

    /// Waits for a change since the folders are watched.
    fn wait(&self, at_most: Duration) {
        let time = Timespec::try_from(at_most).unwrap();
        let mut ready = [PollFd::new(&self.queue, PollFlags::IN)];
        if rustix::event::poll(&mut ready, Some(&time)).unwrap() > 0 {
            rustix::io::read(&self.queue, &mut [0; 4096]).unwrap();
        }
    }
}

/// Without notifications of changes, whoever waits looks again.
#[cfg(not(target_os = "linux"))]
impl Changes {
    fn of(folders: [PathBuf; 2]) -> Self {
        Self { folders }
    }

    fn watch(&self) {
        assert!(!self.folders.is_empty());
    }

    #[expect(clippy::unused_self, reason = "the same signature as on Linux")]
    fn wait(&self, _at_most: Duration) {
        thread::yield_now();
    }
}

/// Reads a head and a body of the declared length.
pub(crate) fn read_message(reader: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>)> {
    let mut head = String::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok()?;
        }
        if line == "\r\n" {
            break;
        }
        head += &line;
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((head, body))
}

/// Sends a request on a connection of its own and reads the whole answer: status and body.
pub(crate) fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, Vec<u8>) {
    let (status, _, body) = exchange(address, method, path, headers, body);
    (status, body)
}

/// The same, including the answer's head. The host is the address, unless a header says otherwise.
pub(crate) fn exchange(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).unwrap();
    let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
    if headers.iter().all(|(name, _)| *name != "host") {
        head.extend(["host: ", &address.to_string(), "\r\n"]);
    }
    for (name, value) in headers {
        head.extend([*name, ": ", *value, "\r\n"]);
    }
    head.extend(["content-length: ", &body.len().to_string(), "\r\n\r\n"]);
    stream.write_all((head + body).as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("an answer has a head");
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a head has a status");
    let body = answer[end + 4..].to_vec();
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if chunked { unchunk(&body) } else { body };
    (status, head, body)
}

fn unchunk(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    loop {
        let end = body.windows(2).position(|bytes| bytes == b"\r\n").expect("a chunk has a size");
        let size = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
        if size == 0 {
            return whole;
        }
        whole.extend_from_slice(&body[end + 2..end + 2 + size]);
        body = &body[end + 4 + size..];
    }
}

/// The binary, limited to files of at most this many blocks of 512 bytes.
pub(crate) fn limited(blocks: u32) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -f {blocks} && exec \"$0\" \"$@\"")]);
    command.arg(env!("CARGO_BIN_EXE_plimsoll"));
    command
}

/// The name of a gateway's log in its home.
pub(crate) const LOG: &str = "gateway.log";

/// A gateway as a separate process.
pub(crate) struct Gateway {
    child: Child,
    says: BufReader<ChildStdout>,
    pub(crate) address: SocketAddr,
}

impl Gateway {
    /// Starts the binary with its state in `home` and a configuration, and with all requests going to one upstream.
    pub(crate) fn start(home: &Path, config: &str, upstream: &str) -> Self {
        Self::spawn(home, config, &["--upstream", upstream])
    }

    /// The same, limited to files of at most `blocks` blocks of 512 bytes.
    pub(crate) fn limited(home: &Path, config: &str, upstream: &str, blocks: u32) -> Self {
        Self::of(limited(blocks), home, config, &["--upstream", upstream])
    }

    /// Starts the binary with the upstreams of its configuration.
    pub(crate) fn configured(home: &Path, config: &str) -> Self {
        Self::spawn(home, config, &[])
    }

    fn spawn(home: &Path, config: &str, arguments: &[&str]) -> Self {
        Self::of(Command::new(env!("CARGO_BIN_EXE_plimsoll")), home, config, arguments)
    }

    fn of(mut binary: Command, home: &Path, config: &str, arguments: &[&str]) -> Self {
        let file = home.join("gateway.toml");
        std::fs::write(&file, config).unwrap();
        let log = File::create(home.join(LOG)).unwrap();
        let mut child = binary
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .arg("--config")
            .arg(&file)
            .env("XDG_STATE_HOME", home)
            .env("TZ", "UTC")
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut says = BufReader::new(child.stdout.take().unwrap());
        let address = said(&mut says, "listening on http://");
        Self { child, says, address }
    }

    /// The address of its dashboard, which may only be asked for once.
    pub(crate) fn admin(&mut self) -> SocketAddr {
        said(&mut self.says, "dashboard on http://")
    }

    pub(crate) fn post(&self, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, Vec<u8>) {
        send(self.address, "POST", path, headers, body)
    }

    /// The id of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as a power cut would.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Tells it to stop and waits until it has written everything.
    pub(crate) fn stop(self) {
        self.tell();
        self.ended();
    }

    /// Tells it to stop.
    pub(crate) fn tell(&self) {
        let id = self.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits until it has written everything and ended.
    pub(crate) fn ended(mut self) {
        assert!(self.child.wait().unwrap().success());
    }
}

/// The address that the gateway prints on a line.
fn said(says: &mut BufReader<ChildStdout>, before: &str) -> SocketAddr {
    let mut line = String::new();
    says.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix(before).and_then(|address| address.parse().ok());
    address.expect("the gateway says where it listens")
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
