//! `plimsoll run`: an agent with a gateway of its own.
//!
//! The terminal belongs to the agent, with all its input. While it runs, nothing else is printed: warnings come before
//! it starts and its bill when it has ended, both on standard error, and its exit code is passed on.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use tokio::runtime::{self, Runtime};
use tokio::signal::unix::SignalKind;
use tokio::sync::oneshot;

use super::signals::{self, Caught};
use super::table::{Table, printable};
use super::{Failure, Run, books, serve};
use crate::app::App;
use crate::config::{Config, Recall, Rerouted};
use crate::ledger::Totals;
use crate::protocol;
use crate::store;
use crate::upstream::{BaseUrl, BaseUrlError};

/// How the agent and its gateway are set up.
struct Setup {
    config: Config,
    /// The agent's variables for addresses, each with the path that follows the gateway's address in it.
    addresses: Vec<(&'static str, String)>,
    /// Whether some of its variables lead to another gateway with the same books, and are left as they are.
    asks_another: bool,
    /// The notes to print before the agent starts.
    notes: Vec<String>,
}

/// The placeholder for the gateway's address in the agent's arguments.
const URL_PLACEHOLDER: &str = "{url}";

/// The message if there is nothing to bill.
const NO_REQUESTS: &str = "no request to a model came through the gateway; if the agent does not read its address from a variable, \
                    {url} in its arguments stands for the gateway's";

/// The same if the agent was to ask another gateway.
const NOT_HERE: &str =
    "no request to a model came through this gateway; `plimsoll report` has those to the other";

/// The exit codes of shells for a program that does not exist, and for one that cannot be run.
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;

/// Hosts for which the agent must not use a proxy.
const LOOPBACK_HOSTS: &str = "127.0.0.1,localhost";

/// Runs the agent, and prints at the end what it cost.
pub(super) fn run(options: &Run) -> Result<(), Failure> {
    let [program, arguments @ ..] = &*options.agent else {
        return Err(Failure::Usage("no agent was given".to_owned()));
    };
    let Setup { mut config, addresses, asks_another, notes } = set_up(options)?;
    serve::fit_to_file_limit(&mut config.limits);
    let runtime = runtime::Builder::new_current_thread().enable_io().build().map_err(Failure::said)?;
    signals::outlive_file_limit(&runtime).map_err(Failure::said)?;
    let app = App::start(&config).map_err(Failure::said)?;
    for note in notes {
        tell(&format!("plimsoll: {note}"));
    }
    for unusable in config.unusable_proxies() {
        tell(&format!("plimsoll: {unusable}"));
    }
    let url = format!("http://{}", app.address());
    let mut command = Command::new(program);
    command.args(arguments.iter().map(|argument| with_url(argument, &url)));
    command.envs(addresses.iter().map(|(variable, path)| (*variable, format!("{url}{path}"))));
    for (variable, other) in [("NO_PROXY", "no_proxy"), ("no_proxy", "NO_PROXY")] {
        let set = |name| env::var_os(name).filter(|hosts| !hosts.is_empty());
        command.env(variable, with_here(set(variable).or_else(|| set(other))));
    }
    let ended = attend(&runtime, &mut command).map_err(|error| Failure::Unrun {
        code: if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUN },
        said: format!("cannot run {}: {error}", program.to_string_lossy()),
    });
    let totals = app.close();
    let ended = ended?;
    let nothing = if asks_another { NOT_HERE } else { NO_REQUESTS };
    for line in bill(&totals, nothing) {
        tell(&line);
    }
    match ended.code() {
        Some(0) => Ok(()),
        code => Err(Failure::Ended(exit_code(code, ended.signal()))),
    }
}

/// Reads the configuration, and determines the addresses for the agent.
fn set_up(options: &Run) -> Result<Setup, Failure> {
    let (mut config, unused) = serve::configuration(&options.gateway)?;
    let mut notes: Vec<String> = unused.into_iter().collect();
    config.listen.address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    // URLs of full texts stay in histories for longer than this gateway runs.
    if config.outputs.recall != Recall::Http
        && let Some(admin) = &mut config.listen.admin
    {
        admin.set_port(0);
    }
    // Before variables add upstreams, which are addressed in the same way as the agent addressed them.
    notes.extend(serve::repeated_paths(&config).into_iter().map(|(_, said)| said));
    notes.extend(serve::booked_twice(&config).into_iter().chain(config.doubts()));
    let running = store::listening(&config.state.dir);
    let (mut addresses, mut kept) = (Vec::new(), Vec::new());
    let own = |variable: &str| {
        env::var(variable).ok().filter(|url| !url.is_empty() && options.gateway.upstream.is_none())
    };
    for (server, _) in protocol::servers() {
        let mut leads_elsewhere = false;
        for (variable, _) in server.variables {
            // The agent would have sent everything there, so the gateway does the same, with the same paths.
            let Some(url) = own(variable) else { continue };
            let url = address(&url).map_err(|error| Failure::Usage(format!("`{variable}`: {error}")))?;
            // Through both, each request would be booked twice. Only the other one knows where it sends them.
            if running.iter().any(|gateway| url.leads_to(*gateway)) {
                leads_elsewhere = true;
                kept.push(*variable);
                continue;
            }
            let name = variable.to_ascii_lowercase();
            let Rerouted { config: with_it, path, unused } = config.leading_to(url, server.name, &name);
            config = with_it;
            leads_elsewhere |= path == format!("/{name}");
            if !unused.is_empty() {
                let keys = unused.join("`, `");
                notes.push(format!(
                    "`{variable}` is set, so requests go to that address, ignoring `{keys}` of the file"
                ));
            }
            addresses.push((*variable, path));
        }
        // An agent that reads several may prefer one that is not set, and would get past the server of the others.
        if !leads_elsewhere {
            let unset = server.variables.iter().filter(|(variable, _)| own(variable).is_none());
            addresses.extend(unset.map(|(variable, path)| (*variable, (*path).to_owned())));
        }
    }
    if !kept.is_empty() {
        notes.push(format!(
            "`{}`: the address of a running gateway with the same books, which the agent is left to ask; the bill below \
             has none of these requests, `plimsoll report` has them",
            kept.join("`, `")
        ));
    }
    Ok(Setup { config, addresses, asks_another: !kept.is_empty(), notes })
}

/// Parses an address as variables have it. Servers on this machine are often given without a scheme; for others that is
/// an error, so that nothing is sent to them unencrypted by mistake.
fn address(text: &str) -> Result<BaseUrl, BaseUrlError> {
    let local = || format!("http://{text}").parse().ok().filter(BaseUrl::is_local);
    text.parse().or_else(|error| local().ok_or(error))
}

/// Prints a line to standard error, since standard output is the agent's.
fn tell(line: &str) {
    let _ = writeln!(io::stderr(), "{}", printable(line));
}

/// An argument for the agent, with its placeholder replaced by the gateway's address.
fn with_url(argument: &OsString, url: &str) -> OsString {
    match argument.to_str() {
        Some(text) if text.contains(URL_PLACEHOLDER) => text.replace(URL_PLACEHOLDER, url).into(),
        _ => argument.clone(),
    }
}

/// The hosts for which no proxy is used, including the gateway. Programs read only one of the two spellings of the
/// variable, so a new one must include what the old one has. `*` means all hosts only if it is the whole value.
fn with_here(hosts: Option<OsString>) -> OsString {
    match hosts {
        None => LOOPBACK_HOSTS.into(),
        Some(all) if all == "*" => all,
        Some(mut hosts) => {
            hosts.push(",");
            hosts.push(LOOPBACK_HOSTS);
            hosts
        }
    }
}

/// Starts the agent and waits for its end. Signals of a terminal reach both, and the agent decides what to do. SIGTERM
/// and SIGHUP, which may be sent to this process alone, are passed on. Signals that were ignored from the start stay
/// ignored, also for the agent.
fn attend(runtime: &Runtime, command: &mut Command) -> io::Result<ExitStatus> {
    runtime.block_on(async {
        let mut interrupt = Caught::new(SignalKind::interrupt())?;
        let mut quit = Caught::new(SignalKind::quit())?;
        let mut hangup = Caught::new(SignalKind::hangup())?;
        let mut terminate = Caught::new(SignalKind::terminate())?;
        let mut child = command.spawn()?;
        let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pass_on = |signal| id.map(|id| kill_process(id, signal));
        let (told, mut ended) = oneshot::channel();
        thread::Builder::new().name("plimsoll-agent".into()).spawn(move || told.send(child.wait()))?;
        loop {
            tokio::select! {
                // Once it has ended, its id may be that of another process.
                biased;
                ended = &mut ended => return ended.unwrap_or_else(|_| Err(io::Error::other("its end was missed"))),
                () = interrupt.next() => {}
                () = quit.next() => {}
                () = hangup.next() => drop(pass_on(Signal::HUP)),
                () = terminate.next() => drop(pass_on(Signal::TERM)),
            }
        }
    })
}

/// The exit code as shells have it: for a signal, 128 plus its number.
fn exit_code(code: Option<i32>, signal: Option<i32>) -> u8 {
    let code = code.or_else(|| Some(128 + signal?)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

/// The bill, in the form of `report`; if there is nothing to bill, the line that says so.
fn bill(totals: &Totals, nothing: &str) -> Vec<String> {
    if totals.requests == 0 {
        return vec![format!("plimsoll: {nothing}")];
    }
    let sums = books::Sums::of(std::iter::once(totals));
    let mut table = Table::new(&sums.columns().collect::<Vec<_>>());
    table.row(&sums.cells(totals));
    let mut lines = table.lines_within(books::width());
    lines.extend(books::notes(totals, 0));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Costs, Saved};
    use crate::usage::{Money, Tokens};

    #[test]
    fn estimates_and_lower_bounds_are_marked_in_the_bill() {
        let dollars = |text: &str| Money::from_usd_str(text).unwrap();
        let totals = Totals {
            requests: 12,
            broken_off: 1,
            tokens: Tokens { input: 1000, output: 234, ..Tokens::default() },
            cost: Some(Costs { total: dollars("0.5"), ..Costs::default() }),
            saved: Saved { net: Some(dollars("-0.25")), net_of: 12, estimated: 12, ..Saved::default() },
            ..Totals::default()
        };
        let expected = [
            "requests  input  cache read  cache write  output     cost    saved",
            "      12  1,000           0            0   ≥ 234  ≥ $0.50  ~-$0.25",
            "≥ lower bound: 1 answer broke off before the provider's last figures",
            "saved: against the same requests without the gateway, an estimate",
        ];
        assert_eq!(bill(&totals, NO_REQUESTS), expected);
        assert_eq!(bill(&Totals::default(), NO_REQUESTS), [format!("plimsoll: {NO_REQUESTS}")]);
    }

    #[test]
    fn exit_codes_are_those_of_the_agent() {
        for (code, signal, expected) in
            [(Some(7), None, 7), (None, Some(15), 143), (None, None, 1), (Some(-1), None, 1)]
        {
            assert_eq!(exit_code(code, signal), expected);
        }
    }
}
