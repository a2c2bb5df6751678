//! The whole gateway over loopback: `cargo bench --bench loopback`; a single pass with `-- --test`.
//!
//! An upstream that answers at once, the gateway and a driver share this process, so that only the additional cost of a
//! request is seen. The three ways (straight to the upstream, through the gateway unread, through it rewritten)
//! alternate request by request. Nothing is judged: sub-millisecond figures depend on the machine; their differences
//! within one run do so less.

#![expect(clippy::print_stdout, reason = "its output is a table")]

#[path = "support/loopback.rs"]
mod loopback;
#[path = "support/session.rs"]
mod session;
#[path = "support/text.rs"]
mod text;

use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use plimsoll::app::App;
use plimsoll::config::Config;
use tokio::task::JoinSet;

use loopback::{Client, Kind, Took};
use session::{Dialect, Session};

type Failure = Box<dyn Error + Send + Sync>;

const MESSAGES: &str = "/v1/messages";

/// Connections for counting requests per second.
const CONNECTIONS: usize = 64;

/// How many times things are done.
struct Effort {
    small: usize,
    large: usize,
    bursts: u64,
    session: usize,
    load: Duration,
}

const USUAL: Effort =
    Effort { small: 2000, large: 300, bursts: 8, session: 800_000, load: Duration::from_millis(1500) };
const SMOKE: Effort =
    Effort { small: 3, large: 2, bursts: 1, session: 30_000, load: Duration::from_millis(50) };

/// The ways to the upstream, which alternate.
struct Ways {
    /// The name of each, the address that it connects to, and the prefix of its paths.
    all: [(&'static str, SocketAddr, &'static str); 3],
    clients: Vec<Client>,
}

/// Times of one kind of request, by way.
#[derive(Default)]
struct Times([Vec<Took>; 3]);

fn main() -> Result<(), Failure> {
    let effort = if std::env::args().any(|argument| argument == "--test") { SMOKE } else { USUAL };
    let state = tempfile::tempdir()?;
    let upstream = loopback::upstream()?;
    let text = format!(
        "listen = {{ address = \"127.0.0.1:0\", admin = \"off\" }}\n\
         state.dir = \"{}\"\n\
         [upstream.unread]\nbase_url = \"http://{upstream}\"\nprotocols = []\n\
         [upstream.read]\nbase_url = \"http://{upstream}\"\nprotocols = [\"anthropic\", \"openai-chat\"]\n",
        state.path().display()
    );
    let app = App::start(&Config::from_toml(&text, &|_: &str| None)?)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let gateway = app.address();
    let all = [("direct", upstream, ""), ("unread", gateway, "/unread"), ("rewritten", gateway, "/read")];
    runtime.block_on(measure(all, &effort))?;
    drop(runtime);
    app.stop();
    Ok(())
}

async fn measure(all: [(&'static str, SocketAddr, &'static str); 3], effort: &Effort) -> Result<(), Failure> {
    let mut ways = Ways { all, clients: Vec::new() };
    for (_, address, _) in all {
        ways.clients.push(Client::connect(address).await?);
    }
    println!("{:<38} {:>11} {:>20} {:>20}", "time of a request, p50", "direct", "unread", "rewritten");
    ways.one_kind("small (1 KB), each a new thread", Kind::Whole, effort.small, small).await?;
    ways.one_kind("stream of 50 events", Kind::Stream, effort.small / 4, small).await?;
    let large = Session::grown(Dialect::Anthropic, effort.session, 1).body();
    ways.one_kind("large, sent again", Kind::Whole, effort.large, |_| large.clone()).await?;
    for dialect in [Dialect::Anthropic, Dialect::OpenAiChat] {
        ways.growing(dialect, effort).await?;
    }
    let bursts: Vec<Bytes> = (0..effort.bursts)
        .map(|seed| Session::burst(Dialect::Anthropic, effort.session, 100 + seed).body())
        .collect();
    ways.one_kind("large, never seen, all results new", Kind::Whole, bursts.len(), |at| bursts[at].clone())
        .await?;
    println!(
        "\n{:<38} {:>11} {:>20}",
        format!("{CONNECTIONS} connections, small"),
        "requests/s",
        "gateway CPU each"
    );
    for (name, address, prefix) in all {
        let (count, busy) = load(address, prefix, effort.load).await?;
        let rate = count as f64 / effort.load.as_secs_f64();
        let each =
            busy.map_or_else(String::new, |busy| micros(busy / u32::try_from(count.max(1)).unwrap_or(1)));
        println!("{name:<38} {rate:>11.0} {each:>20}");
    }
    Ok(())
}

impl Ways {
    /// Sends the same request each way; the order rotates, so that none is always the first.
    async fn all_ways(
        &mut self,
        turn: usize,
        path: &str,
        kind: Kind,
        body: &Bytes,
        times: &mut Times,
    ) -> Result<(), Failure> {
        for step in 0..self.clients.len() {
            let way = (turn + step) % self.clients.len();
            let path = format!("{}{path}", self.all[way].2);
            let before = loopback::gateway_cpu();
            let mut took = self.clients[way].send(&path, kind, body.clone()).await?;
            took.gateway =
                loopback::gateway_cpu().zip(before).map(|(now, before)| now.saturating_sub(before));
            times.0[way].push(took);
        }
        Ok(())
    }

    async fn one_kind(
        &mut self,
        name: &str,
        kind: Kind,
        count: usize,
        body: impl Fn(usize) -> Bytes,
    ) -> Result<(), Failure> {
        let mut times = Times::default();
        for turn in 0..count {
            self.all_ways(turn, MESSAGES, kind, &body(turn), &mut times).await?;
        }
        times.print(name);
        if kind == Kind::Stream {
            times.print_first("    to its first byte");
        }
        Ok(())
    }

    /// One conversation, step by step, reported in quarters.
    async fn growing(&mut self, dialect: Dialect, effort: &Effort) -> Result<(), Failure> {
        let (label, path) = match dialect {
            Dialect::Anthropic => ("Anthropic", MESSAGES),
            Dialect::OpenAiChat => ("OpenAI Chat", "/v1/chat/completions"),
        };
        let mut session = Session::new(dialect, effort.session, 2);
        let mut times = Times::default();
        let (mut turn, mut quarter) = (0, 1);
        while quarter <= 4 {
            session.step();
            self.all_ways(turn, path, Kind::Whole, &session.body(), &mut times).await?;
            turn += 1;
            if session.len() >= effort.session * quarter / 4 {
                std::mem::take(&mut times).print(&format!("{label} session, to {} KB", session.len() / 1000));
                quarter += 1;
            }
        }
        Ok(())
    }
}

impl Times {
    fn print(&self, name: &str) {
        self.line(name, |took| took.whole);
        let busy: Vec<Duration> =
            self.0[1..].iter().filter_map(|way| median(way.iter().filter_map(|took| took.gateway))).collect();
        if let [unread, read] = busy[..] {
            println!("{:<38} {:>11} {:>20} {:>20}", "    gateway CPU", "", micros(unread), micros(read));
        }
    }

    fn print_first(&self, name: &str) {
        self.line(name, |took| took.first);
    }

    fn line(&self, name: &str, of: impl Fn(&Took) -> Duration) {
        let p50 = |way: &Vec<Took>| median(way.iter().map(&of)).unwrap_or_default();
        let [direct, unread, read] = [p50(&self.0[0]), p50(&self.0[1]), p50(&self.0[2])];
        let added = |way: Duration| {
            let added = (way.as_secs_f64() - direct.as_secs_f64()) * 1e6;
            format!("{} ({added:+.0})", micros(way))
        };
        println!("{name:<38} {:>11} {:>20} {:>20}", micros(direct), added(unread), added(read));
    }
}

/// A small request: each is different, or the gateway would take it for a retry.
fn small(number: usize) -> Bytes {
    let task = text::prose(&mut text::Random::new(number as u64), 850);
    format!(
        r#"{{"model":"claude-sonnet-4-5","max_tokens":1000,"messages":[{{"role":"user","content":"{number} {}"}}]}}"#,
        task.replace('\n', " ")
    )
    .into()
}

/// How many requests are answered in a given time, and the processor time of the gateway.
async fn load(
    address: SocketAddr,
    prefix: &str,
    time: Duration,
) -> Result<(usize, Option<Duration>), Failure> {
    let path = format!("{prefix}{MESSAGES}");
    let (before, end) = (loopback::gateway_cpu(), Instant::now() + time);
    let mut tasks = JoinSet::new();
    for connection in 0..CONNECTIONS {
        let path = path.clone();
        tasks.spawn(async move {
            let mut client = Client::connect(address).await?;
            let mut count = 0;
            while Instant::now() < end {
                client.send(&path, Kind::Whole, small(connection << 32 | count)).await?;
                count += 1;
            }
            Ok::<_, Failure>(count)
        });
    }
    let mut count = 0;
    while let Some(done) = tasks.join_next().await {
        count += done??;
    }
    Ok((count, loopback::gateway_cpu().zip(before).map(|(now, before)| now.saturating_sub(before))))
}

fn median(times: impl Iterator<Item = Duration>) -> Option<Duration> {
    let mut times: Vec<Duration> = times.collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

fn micros(time: Duration) -> String {
    format!("{:.0} us", time.as_secs_f64() * 1e6)
}
