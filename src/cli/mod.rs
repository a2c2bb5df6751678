//! The command line.
//!
//! Standard output is for the results, standard error for everything else. Exit codes: 0 for success, 1 for failure, 2
//! for a wrong command line or configuration. Only `run` exits with the agent's code.

mod books;
mod checkpoint;
mod conversations;
mod demo;
mod diff;
mod fidelity;
mod files;
mod history;
mod inspect;
mod outputs;
mod prices;
mod range;
mod replay;
mod report;
mod serve;
mod signals;
mod table;
mod wrap;

use std::env;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::OnceLock;

use clap::builder::Resettable;
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::config::{self, Problems};
use crate::ledger::figures;

/// The variable that names the configuration file if the command line does not.
const CONFIG_VARIABLE: &str = "PLIMSOLL_CONFIG";

/// A sidecar gateway for LLM agents: shortens prompts, keeps the provider's cache intact, and accounts for the cost
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, about, propagate_version = true)]
struct Command {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Run the gateway until it is told to stop
    Serve(Serve),
    /// Run an agent with a gateway of its own, and print at the end what it cost
    Run(Run),
    /// Report all mistakes in a configuration file
    Check {
        /// The file; without one, the one that `PLIMSOLL_CONFIG` names, or else gateway.toml
        file: Option<PathBuf>,
        /// The file, given as for other commands
        #[arg(long, short, value_name = "FILE", conflicts_with = "file")]
        config: Option<PathBuf>,
    },
    /// Write a configuration file that explains every key
    Init {
        /// Where to write it, or `-` for standard output; an existing file is left alone
        #[arg(default_value = files::USUAL)]
        file: PathBuf,
    },
    /// Show what was used, what it cost and what was saved, by day, model, client or conversation
    Report(report::Options),
    /// List the conversations, the newest first
    Conversations(conversations::Options),
    /// Show a conversation request by request: what was sent, why, what it cost and what it would have cost
    Inspect(inspect::Options),
    /// Show how a request was changed before it was sent
    Diff(diff::Options),
    /// List the full texts of results that were shortened or cleared, or print one
    Outputs(outputs::Options),
    /// Show the prices that models are billed at, in US dollars per million tokens
    Prices(prices::Options),
    /// Write the state of a conversation (goal, progress, decisions) to files from which a new one can start
    Checkpoint(checkpoint::Options),
    /// Show how much the summaries of a conversation keep of the messages that they replace
    Fidelity(fidelity::Options),
    /// Show what the gateway would have done to recorded conversations, and what that would have saved
    Replay(replay::Options),
    /// Play a scripted session and print the bill with and without the gateway; needs no key
    Demo(demo::Options),
}

/// Where the configuration comes from.
#[derive(Debug, Args)]
struct Source {
    /// The configuration file. Without one the defaults apply, even if the directory has a gateway.toml
    #[arg(long, short, value_name = "FILE", env = CONFIG_VARIABLE)]
    config: Option<PathBuf>,
}

/// The options of commands that print results.
#[derive(Debug, Args)]
struct Output {
    /// Print JSON; `--help` describes its fields
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    source: Source,
}

/// The options of commands that print results with times.
#[derive(Debug, Args)]
struct TimedOutput {
    /// Use UTC instead of the local time zone
    #[arg(long)]
    utc: bool,
    /// Print JSON; `--help` describes its fields
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    source: Source,
}

/// The options of commands that run a gateway.
#[derive(Debug, Args)]
struct Gateway {
    #[command(flatten)]
    source: Source,
    /// Send all requests to this server, whatever their paths, instead of the configured upstreams
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,
    /// Change no requests, only estimate what would have been saved; as `mode = "observe"`
    #[arg(long)]
    observe: bool,
}

#[derive(Debug, Args)]
struct Serve {
    /// The address for clients, instead of `listen.address`; port 0 takes any free port
    #[arg(long, value_name = "ADDR", value_parser = config::address)]
    listen: Option<SocketAddr>,
    /// Write the port to this file once the gateway listens
    #[arg(long, value_name = "FILE")]
    port_file: Option<PathBuf>,
    #[command(flatten)]
    gateway: Gateway,
}

#[derive(Debug, Args)]
struct Run {
    #[command(flatten)]
    gateway: Gateway,
    /// The agent's command and its arguments; {url} in an argument is replaced by the gateway's address
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "AGENT")]
    agent: Vec<OsString>,
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// The configuration is wrong.
    #[error("{0}")]
    Config(Problems),
    /// The command line is wrong.
    #[error("{0}")]
    Usage(String),
    /// Anything else, as a complete message.
    #[error("{0}")]
    Message(String),
    /// The agent could not be run.
    #[error("{said}")]
    Unrun {
        /// The exit code, as shells have it.
        code: u8,
        /// The reason.
        said: String,
    },
    /// The agent ended with this exit code; it has reported its error itself.
    #[error("")]
    Ended(u8),
}

impl Failure {
    /// The message of an error.
    fn said(error: impl Display) -> Self {
        Self::Message(error.to_string())
    }

    /// The message of an error about a file.
    fn about(file: &Path, error: impl Display) -> Self {
        Self::Message(format!("{}: {error}", file.display()))
    }
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let command = match parse() {
        Ok(command) => command,
        Err(error) => {
            let code = if error.use_stderr() { 2 } else { 0 };
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let done = match command.action {
        Action::Serve(options) => serve::run(&options),
        Action::Run(options) => wrap::run(&options),
        Action::Check { file, config } => files::check(config.or(file)),
        Action::Init { file } => files::init(&file),
        Action::Report(options) => report::run(&options),
        Action::Conversations(options) => conversations::run(&options),
        Action::Inspect(options) => inspect::run(&options),
        Action::Diff(options) => diff::run(&options),
        Action::Outputs(options) => outputs::run(&options),
        Action::Prices(options) => prices::run(&options),
        Action::Checkpoint(options) => checkpoint::run(&options),
        Action::Fidelity(options) => fidelity::run(&options),
        Action::Replay(options) => replay::run(&options),
        Action::Demo(options) => demo::run(&options),
    };
    match done {
        Ok(()) => match UNWRITTEN.get() {
            Some(error) => {
                let _ = writeln!(std::io::stderr(), "some of the output could not be written: {error}");
                ExitCode::FAILURE
            }
            None => ExitCode::SUCCESS,
        },
        Err(failure) => {
            for line in failure.to_string().lines() {
                let _ = writeln!(std::io::stderr(), "{}", table::printable(line));
            }
            ExitCode::from(match failure {
                Failure::Config(_) | Failure::Usage(_) => 2,
                Failure::Message(_) => 1,
                Failure::Unrun { code, .. } | Failure::Ended(code) => code,
            })
        }
    }
}

/// Parses the command line. A `PLIMSOLL_CONFIG` that is empty counts as not set.
fn parse() -> Result<Command, clap::Error> {
    let mut command = Command::command();
    if env::var_os(CONFIG_VARIABLE).is_some_and(|value| value.is_empty()) {
        let without = |arg: clap::Arg| arg.env(Resettable::Reset);
        command = command.mut_subcommands(|one| one.mut_args(without));
    }
    Command::from_arg_matches_mut(&mut command.try_get_matches()?)
}

/// Why some output could not be written, if so.
static UNWRITTEN: OnceLock<io::Error> = OnceLock::new();

/// Prints a line of output, without control characters, since ids, names and answers come from outside.
fn say(line: &str) {
    say_document(&table::printable(line));
}

/// Prints lines of output.
fn say_lines(lines: impl IntoIterator<Item = String>) {
    lines.into_iter().for_each(|line| say(&line));
}

/// Prints a document unchanged.
fn say_document(text: &str) {
    note_result(writeln!(std::io::stdout(), "{text}"));
}

/// Prints a text byte for byte, without anything else.
fn say_bytes(text: &[u8]) {
    let mut out = std::io::stdout();
    note_result(out.write_all(text).and_then(|()| out.flush()));
}

/// Remembers whether some output could not be written. It is no failure if the reader has closed the pipe.
fn note_result(written: io::Result<()>) {
    if let Err(error) = written
        && error.kind() != ErrorKind::BrokenPipe
    {
        // The first cause is the one to report.
        let _ = UNWRITTEN.set(error);
    }
}
