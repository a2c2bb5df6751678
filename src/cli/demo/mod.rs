//! `plimsoll demo`: a scripted session through a real gateway, and the bill with and without it.
//!
//! It needs no key and no network: agent, gateway and provider are all in this process, on loopback sockets. The
//! gateway is the one that `serve` runs. Its cost is read from its own books, and checked against the provider's count
//! to the last digit.

mod agent;
mod bill;
mod home;
mod outputs;
mod prompt;
mod provider;
mod session;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use tokio::net::TcpListener;
use tokio::runtime;

use super::books::{WIDTH, width};
use super::table::wrapped;
use super::{Failure, say, say_lines};
use crate::app::App;
use crate::config::{Config, ProcessEnvironment};
use crate::ledger::{Costs, Record, Report};
use crate::server::Drained;
use crate::store::{Books, LedgerFilter, ledger};
use crate::usage::{self, CATALOGUE_DATE, Catalogue, Money, Tokens, Usage};

use agent::{Agent, Played};
use bill::Side;
use home::Home;
use prompt::Counter;
use provider::Provider;
use session::Session;

/// The model whose prices are used.
const MODEL: &str = "claude-sonnet-5-5";
/// The agent's key when it uses the gateway, by which the provider distinguishes the accounts.
const WITH: &str = "demo-with";
/// The agent's key when it does not.
const WITHOUT: &str = "demo-without";

/// The options of `plimsoll demo`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Keep the gateway's state in this directory afterwards: logs, full outputs, database
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

/// The results of both sessions.
struct Outcome {
    with: Played,
    without: Played,
    records: Vec<Record>,
    report: Report,
}

/// Plays the session twice and prints the bill.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let home = Home::new(options.keep.as_deref()).map_err(Failure::said)?;
    let session = Arc::new(Session::new());
    say_paragraph(&introduction(session.steps.len()));
    let price =
        Catalogue::embedded().find(MODEL, None).ok_or_else(|| Failure::said("no price for the model"))?;
    let cache_min = price.price.cache_min.unwrap_or(0);
    let provider = Arc::new(Provider::new(Arc::clone(&session), MODEL, cache_min, Counter::new(home.path())));
    let outcome = play(&home, &session, &provider)?;
    say_lines(bill::steps(&session, &outcome.without.usage, &outcome.records).lines_within(width()));
    let (with, without) = sides(&outcome, &provider)?;
    say("");
    say_kept(&home);
    say_paragraph(&heading());
    say_lines(bill::bill(&without, &with).lines_within(width()));
    Ok(())
}

/// Prints a text in lines that fit the terminal, and an empty line.
fn say_paragraph(text: &str) {
    say_lines(wrapped(text, width().min(WIDTH)));
    say("");
}

fn introduction(calls: usize) -> String {
    format!(
        "A scripted agent finds and fixes a bug in {calls} model calls, once through the gateway and once without. \
         No key, no network: the provider is built in. It caches prompts as documented, and takes four bytes \
         for a token. The session was made to hold what Plimsoll shortens: yours will save more, or less."
    )
}

fn heading() -> String {
    format!(
        "The bill, at the prices of {MODEL} as of {CATALOGUE_DATE}. What it came to with Plimsoll is what \
         the gateway's own books say, and they agree with the provider's count to the pico-dollar."
    )
}

/// Plays the session through a gateway, then directly, and reads the gateway's books.
fn play(home: &Home, session: &Session, provider: &Arc<Provider>) -> Result<Outcome, Failure> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::said)?;
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = runtime.block_on(TcpListener::bind(local)).map_err(Failure::said)?;
    let direct = listener.local_addr().map_err(Failure::said)?;
    let gateway = App::start(&configuration(home, direct)?).map_err(Failure::said)?;
    let agent = |server, key| Agent { session, model: MODEL, server, key };
    let played = runtime.block_on(async {
        let both = async {
            let with = agent(gateway.address(), WITH).play().await?;
            let without = agent(direct, WITHOUT).play().await?;
            Ok::<_, String>((with, without))
        };
        tokio::select! {
            both = both => both,
            () = Arc::clone(provider).serve(listener) => Err("the provider ended".to_owned()),
        }
    });
    let drained = gateway.stop();
    let (with, without) = played.map_err(Failure::said)?;
    if drained != Drained::Completely {
        return Err(Failure::said("the gateway did not end in order"));
    }
    let (records, report) = books(home)?;
    Ok(Outcome { with, without, records, report })
}

fn configuration(home: &Home, provider: SocketAddr) -> Result<Config, Failure> {
    let text = home.configuration().map_err(Failure::said)?;
    let config = Config::from_toml(&text, &ProcessEnvironment).map_err(Failure::Config)?;
    let base = format!("http://{provider}").parse().map_err(Failure::said)?;
    let mut config = config.with_single_upstream(base);
    config.listen.address.set_port(0);
    config.listen.admin = None;
    Ok(config)
}

/// The gateway's records, and their sums.
fn books(home: &Home) -> Result<(Vec<Record>, Report), Failure> {
    let books = Books::open(&home.path().join(ledger::FILE_NAME)).map_err(Failure::said)?;
    let books = books.ok_or_else(|| Failure::said("the gateway has no books"))?;
    let (mut records, mut report) = (Vec::new(), Report::default());
    let read = books.rows(LedgerFilter::default(), &mut |entry| {
        records.extend(serde_json::from_str::<Record>(entry.record));
        report.add(entry, |_, record| record.model.clone());
    });
    read.map_err(Failure::said)?;
    Ok((records, report))
}

/// Both sides of the bill, if everything is as it must be.
fn sides(outcome: &Outcome, provider: &Provider) -> Result<(Side, Side), Failure> {
    if outcome.with.answer != outcome.without.answer {
        return Err(Failure::said("the gateway changed the answer"));
    }
    let with =
        Side::of_books(&outcome.report.total).ok_or_else(|| Failure::said("the books are incomplete"))?;
    let charged = cost_of(&provider.served(WITH)).map(|costs| costs.total);
    if charged != Some(with.costs.total) {
        let charged = charged.map_or_else(|| "nothing".to_owned(), Money::usd);
        return Err(Failure::said(format!(
            "the books say ${}, the provider ${charged}",
            with.costs.total.usd()
        )));
    }
    let tokens: Vec<Tokens> = outcome.without.usage.iter().map(|usage| usage.tokens).collect();
    let costs = cost_of(&tokens).ok_or_else(|| Failure::said("no price for the model"))?;
    Ok((with, Side { tokens: tokens.into_iter().sum(), costs }))
}

/// The cost of calls, computed here and not by the gateway.
fn cost_of(calls: &[Tokens]) -> Option<Costs> {
    let price = Catalogue::embedded().find(MODEL, None)?.price;
    let mut sum = Costs::default();
    for tokens in calls {
        let lines = usage::cost(&Usage { tokens: *tokens, ..Usage::default() }, &price)?;
        sum += Costs {
            input: lines.input,
            cache_read: lines.cache_read,
            cache_write: lines.cache_write,
            output: lines.output,
            searches: lines.searches,
            total: lines.total(),
        };
    }
    Some(sum)
}

/// Prints what was kept, and how to look at it.
fn say_kept(home: &Home) {
    let Some(dir) = home.kept() else { return };
    let path = |name: &str| dir.join(name).display().to_string();
    let log = path(&format!("conversations/{}.jsonl", agent::SESSION_ID));
    say("Kept, to look at:");
    say(&format!("  less -S {log}"));
    say(&format!("  jq -r '[.bytes.received, .bytes.sent, .tokens.cache_read, .cost.usd] | @tsv' {log}"));
    say(&format!("  ls -l {}     # the full texts of what was cut", path("outputs")));
    say(&format!("  plimsoll report --by model -c {}", path(home::CONFIGURATION)));
    say("");
}

#[cfg(test)]
mod tests;
