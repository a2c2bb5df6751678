//! Instruction counts of the gateway's core, the same in every run: `cargo bench --bench instructions`.
//!
//! Runs itself under `valgrind --tool=callgrind` once for each case and only counts what happens in [`measured`]. Words
//! after `--` select cases by name. The profiles stay in `target/tmp/instructions/` for `callgrind_annotate`; with
//! `CARGO_PROFILE_BENCH_DEBUG=line-tables-only CARGO_PROFILE_BENCH_STRIP=none` they include line numbers.
//!
//! The counts are those of a processor without SHA instructions, which valgrind does not know.

#![expect(clippy::print_stdout, reason = "its output is a table")]

mod support;

use std::borrow::Cow;
use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::process::{Command, ExitCode};

use plimsoll::conversation::NoMemo;
use plimsoll::json::scan;
use plimsoll::protocol::openai_chat::OpenAiChat;
use plimsoll::protocol::{self, Leaving, Protocol as _, Wanted};
use plimsoll::shape::{self, Subject};
use plimsoll::sse::Framer;

use support::session::{Dialect, Session};
use support::text::{self, Random};
use support::{Case, Operation, SEED};

const SIZES: [(&str, usize); 3] = [("10KB", 10_000), ("100KB", 100_000), ("1MB", 1_000_000)];

const OPERATIONS: [Operation; 5] =
    [Operation::Pass, Operation::Shape, Operation::MemoWarm, Operation::MemoCache, Operation::MemoCold];

const DIALECTS: [Dialect; 2] = [Dialect::Anthropic, Dialect::OpenAiChat];

/// The argument that tells a process that it is the one being measured.
const CHILD: &str = "--measure";

type Failure = Box<dyn Error>;

/// Something to be measured.
struct Work {
    /// The bytes that it works on.
    bytes: usize,
    /// What these are.
    about: String,
    run: Box<dyn FnMut()>,
}

type Cases = Vec<(String, Box<dyn Fn() -> Work>)>;

fn main() -> Result<ExitCode, Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, name, ..] = &arguments[..]
        && flag == CHILD
    {
        return Ok(child(name));
    }
    let words: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with("--")).collect();
    let chosen = cases().into_iter().filter(|(name, _)| words.iter().all(|word| name.contains(*word)));
    if arguments.iter().any(|argument| argument == "--test") {
        for (name, make) in chosen {
            let mut work = make();
            (work.run)();
            println!("{name}: {}", work.about);
        }
        return Ok(ExitCode::SUCCESS);
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("valgrind is not installed: instructions are not counted");
        return Ok(ExitCode::SUCCESS);
    }
    println!("{:<34} {:>10} {:>14} {:>9}", "case", "bytes", "instructions", "per byte");
    for (name, make) in chosen {
        let (bytes, count) = (make().bytes, count(&name)?);
        println!("{name:<34} {bytes:>10} {count:>14} {:>9.2}", count as f64 / bytes as f64);
    }
    Ok(ExitCode::SUCCESS)
}

/// All cases by name.
fn cases() -> Cases {
    let mut cases = Cases::new();
    for operation in OPERATIONS {
        for dialect in DIALECTS {
            for (label, bytes) in SIZES {
                let name = format!("{operation} {dialect} {label}");
                cases.push((name, Box::new(move || request(dialect, operation, bytes))));
            }
        }
    }
    let large = |dialect| move || request(dialect, Operation::MemoWarm, 800_000);
    for dialect in DIALECTS {
        cases.push((format!("{} {dialect} 800KB", Operation::MemoWarm), Box::new(large(dialect))));
    }
    for (label, bytes) in SIZES {
        cases.push((format!("scan listing {label}"), Box::new(move || scanned(bytes))));
        cases.push((format!("add to frame {label}"), Box::new(move || added(bytes))));
        cases.push((format!("sse framer {label}"), Box::new(move || framed(bytes))));
        for (kind, tool, make) in TEXTS {
            let name = format!("shape::shape {kind} {label}");
            cases.push((name, Box::new(move || shaped(tool, make(&mut Random::new(SEED), bytes)))));
        }
    }
    cases
}

type MakeText = fn(&mut Random, usize) -> String;

const TEXTS: [(&str, &str, MakeText); 3] =
    [("code", "Read", text::code), ("log", "Bash", text::log), ("json", "WebFetch", text::json)];

fn request(dialect: Dialect, operation: Operation, bytes: usize) -> Work {
    let case = Case::new(dialect, operation, bytes);
    Work { bytes: case.len(), about: case.to_string(), run: Box::new(move || drop(black_box(case.run()))) }
}

fn scanned(bytes: usize) -> Work {
    let body = Session::grown(Dialect::Anthropic, bytes, SEED).body();
    let bytes = body.len();
    let work = move || {
        let _ = black_box(scan::listing(black_box(&body), "messages", &mut |_, _| None));
    };
    Work { bytes, about: format!("{bytes} bytes"), run: Box::new(work) }
}

/// Adds a cache key and the request for usage to a request that was read.
fn added(bytes: usize) -> Work {
    let body = Session::grown(Dialect::OpenAiChat, bytes, SEED).body();
    let bytes = body.len();
    let read = OpenAiChat.index(&body, &NoMemo).expect("the session is well-formed");
    let wanted = Wanted { cache_key: Some("plimsoll"), usage: true };
    let work = move || drop(black_box(protocol::add(&OpenAiChat, Leaving::Read(black_box(&read)), &wanted)));
    Work { bytes, about: format!("{bytes} bytes"), run: Box::new(work) }
}

fn framed(bytes: usize) -> Work {
    let stream = support::events(bytes);
    let bytes = stream.len();
    let work = move || {
        let (mut framer, mut seen) = (Framer::default(), 0);
        for chunk in stream.as_bytes().chunks(4096) {
            framer.push(chunk, &mut |event| seen += event.len());
        }
        black_box(seen);
    };
    Work { bytes, about: format!("{bytes} bytes"), run: Box::new(work) }
}

fn shaped(tool: &'static str, text: String) -> Work {
    let (settings, bytes) = (shape::Settings::default(), text.len());
    let leaves = [Cow::Owned(text)];
    let work = move || {
        let subject = Subject {
            leaves: &leaves,
            members: false,
            tool: Some(tool),
            arguments: Some(r#"{"command":"cargo test"}"#),
            is_error: false,
            recall: "full output: /home/me/.local/state/plimsoll/outputs/0123456789abcdef",
        };
        drop(black_box(shape::shape(black_box(&subject), &settings)));
    };
    Work { bytes, about: format!("{bytes} bytes"), run: Box::new(work) }
}

/// The process that is measured: one pass to warm up, one to count.
fn child(name: &str) -> ExitCode {
    let Some((_, make)) = cases().into_iter().find(|(other, _)| other == name) else {
        return ExitCode::FAILURE;
    };
    let mut work = make();
    (work.run)();
    measured(&mut *work.run);
    ExitCode::SUCCESS
}

/// Callgrind counts from the entry of this function to its end, and finds it by its name.
#[inline(never)]
fn measured(work: &mut dyn FnMut()) {
    work();
    black_box(());
}

/// Runs one case under callgrind; returns the number of instructions.
fn count(name: &str) -> Result<u64, Failure> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("instructions");
    fs::create_dir_all(&folder)?;
    let out = folder.join(format!("{}.out", name.replace([' ', ':'], "-")));
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no", "--toggle-collect=*instructions*measured*"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(std::env::current_exe()?)
        .args([CHILD, name])
        .output()?;
    let profile = fs::read_to_string(&out).unwrap_or_default();
    let total = profile.lines().find_map(|line| line.strip_prefix("totals: "));
    match total.and_then(|total| total.trim().parse().ok()) {
        Some(count) if run.status.success() && count > 0 => Ok(count),
        _ => Err(format!("{name}: {}", String::from_utf8_lossy(&run.stderr)).into()),
    }
}
