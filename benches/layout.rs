//! Determines which functions a start and the first requests run, for the order of the program's code:
//! `CARGO_PROFILE_BENCH_STRIP=none cargo bench --bench layout` writes `benches/layout.txt`, which `build.rs` reads.
//!
//! Neighbouring code is mapped into memory together: code that every process runs is a third of the program, and
//! scattered over all of it, it would keep nearly all of it in memory. Runs the gateway under `valgrind
//! --tool=callgrind`; with `-- --test` without valgrind and without writing the file. Names that are gone and functions
//! that are new do no harm: the former match nothing, the latter are placed with the rest. So the list need not follow
//! each change.

#![expect(clippy::print_stdout, reason = "it says what it wrote")]
#![expect(dead_code, reason = "of what benches share it needs a part")]

#[path = "support/loopback.rs"]
mod loopback;
#[path = "support/session.rs"]
mod session;
#[path = "support/text.rs"]
mod text;

use std::collections::{BTreeSet, HashMap};
use std::error::Error;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use bytes::Bytes;

use loopback::{Client, Kind};
use session::{Dialect, Session};

type Failure = Box<dyn Error + Send + Sync>;

const PROGRAM: &str = env!("CARGO_BIN_EXE_plimsoll");

const LIST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/layout.txt");

/// How valgrind calls an object whose code it does not know, other than that of `.text`.
const UNKNOWN: &str = "???";

/// How long a start may take, under valgrind on a busy machine.
const START: Duration = Duration::from_secs(60);

/// Bytes of the longer requests.
const SESSION: usize = 30_000;

fn main() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let profile = folder.path().join("callgrind.out");
    let mut command = if std::env::args().any(|argument| argument == "--test") {
        Command::new(PROGRAM)
    } else {
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--tool=callgrind", "--demangle=no", "--fair-sched=yes", "--quiet"]);
        valgrind.arg(format!("--callgrind-out-file={}", profile.display())).arg(PROGRAM);
        valgrind
    };
    let (port_file, config) = (folder.path().join("port"), folder.path().join("gateway.toml"));
    let text = format!(
        "listen = {{ address = \"127.0.0.1:0\", admin = \"127.0.0.1:0\" }}\nstate.dir = \"{}\"\n\
         [upstream.all]\nbase_url = \"http://{}\"\nprotocols = [\"anthropic\", \"openai-chat\"]\n",
        folder.path().display(),
        loopback::upstream()?
    );
    fs::write(&config, text)?;
    command.arg("serve").arg("--config").arg(&config).arg("--port-file").arg(&port_file);
    let mut gateway = command.spawn()?;
    let served = serve(&mut gateway, &port_file);
    Command::new("kill").arg("-INT").arg(gateway.id().to_string()).status()?;
    gateway.wait()?;
    let count = served?;
    let Ok(profile) = fs::read_to_string(profile) else {
        println!("{count} requests");
        return Ok(());
    };
    let names = functions(&profile);
    if names.iter().filter(|name| name.contains("plimsoll")).count() < 100 {
        return Err("the program has no names: set CARGO_PROFILE_BENCH_STRIP=none".into());
    }
    let lines: Vec<&str> = names.iter().map(String::as_str).collect();
    fs::write(LIST, lines.join("\n") + "\n")?;
    println!("{} names of functions in {LIST}", lines.len());
    Ok(())
}

/// Waits for the gateway and sends it requests; returns their number.
fn serve(gateway: &mut Child, port_file: &Path) -> Result<usize, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let port = port(gateway, port_file).await?;
        ask(SocketAddr::from(([127, 0, 0, 1], port))).await
    })
}

/// Waits for the gateway to write the number of its port.
async fn port(gateway: &mut Child, port_file: &Path) -> Result<u16, Failure> {
    let begun = Instant::now();
    loop {
        // It is written whole, or not at all.
        if let Ok(port) = fs::read_to_string(port_file) {
            return Ok(port.trim().parse()?);
        }
        if gateway.try_wait()?.is_some() || begun.elapsed() > START {
            return Err("the gateway does not start".into());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Sends requests of both dialects, short ones and ones with tool results, each answered whole and as a stream.
async fn ask(gateway: SocketAddr) -> Result<usize, Failure> {
    let mut client = Client::connect(gateway).await?;
    let mut count = 0;
    for (dialect, path) in
        [(Dialect::Anthropic, "/all/v1/messages"), (Dialect::OpenAiChat, "/all/v1/chat/completions")]
    {
        let short =
            r#"{"model":"claude-sonnet-4-5","max_tokens":100,"messages":[{"role":"user","content":"Hi"}]}"#;
        for body in [Bytes::from(short), Session::grown(dialect, SESSION, 1).body()] {
            for kind in [Kind::Whole, Kind::Stream] {
                client.send(path, kind, body.clone()).await?;
                count += 1;
            }
        }
    }
    Ok(count)
}

/// The functions of the program that a profile counts, as patterns that match them in the next build.
fn functions(profile: &str) -> BTreeSet<String> {
    let (mut names, mut run, mut is_ours) = (HashMap::new(), Vec::new(), false);
    let mut objects = HashMap::new();
    for line in profile.lines() {
        // A name is written out at its first use, and is a number from then on.
        let Some((kind, value)) = line.split_once('=') else { continue };
        let (id, name) = value.split_once(' ').map_or((value, None), |(id, name)| (id, Some(name)));
        match kind {
            "ob" | "cob" => {
                if let Some(name) = name {
                    objects.insert(id, name);
                }
                if kind == "ob" {
                    is_ours = objects.get(id).is_some_and(|name| [PROGRAM, UNKNOWN].contains(name));
                }
            }
            "fn" | "cfn" => {
                if let Some(name) = name {
                    names.insert(id, name);
                }
                if kind == "fn" && is_ours {
                    run.push(id);
                }
            }
            _ => {}
        }
    }
    let is_symbol =
        |name: &&&str| name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    run.into_iter().filter_map(|id| names.get(id)).filter(is_symbol).map(|name| pattern(name)).collect()
}

/// A name without what differs in another build: hashes and numbers. A quote after it marks recursion.
fn pattern(name: &str) -> String {
    let name = name.split('\'').next().unwrap_or_default();
    if name.starts_with("_ZN")
        && let Some((path, _)) = name.rsplit_once("17h")
    {
        return format!("{path}17h*");
    }
    let (name, rest) = name.split_once('.').map_or((name, ""), |(name, _)| (name, ".*"));
    let mut pieces = name.split("Cs");
    let mut pattern = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        // The hash of a crate ends with the first underscore.
        match piece.split_once('_').filter(|(hash, _)| name.starts_with("_R") && hash.len() > 8) {
            Some((_, after)) => pattern.extend(["Cs*_", after]),
            None => pattern.extend(["Cs", piece]),
        }
    }
    pattern + rest
}
