//! `plimsoll serve`.

use std::fs;
use std::io;
use std::path::Path;
use std::process;
use std::thread;
use std::time::Duration;

use tokio::runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use super::signals::{self, Caught};
use super::{Failure, Gateway, Serve, files, say};
use crate::app::App;
use crate::config::{Config, Limits, LogFormat, Loop, Mode, Upstream, Upstreams};
use crate::server::{self, Drained};
use crate::store;
use crate::telemetry;

/// A signal that follows another within this time counts as the same one.
const ECHO: Duration = Duration::from_millis(500);

/// The signals to stop: an interrupt, a request to terminate, or the end of the terminal it was started from.
struct Stop {
    interrupt: Signal,
    terminate: Signal,
    hangup: Caught,
}

/// The signal that came first.
enum First {
    /// The end of the terminal.
    Hangup,
    /// An interrupt or a request to terminate.
    Other,
}

/// Runs the gateway until it is asked to stop.
pub(super) fn run(options: &Serve) -> Result<(), Failure> {
    let (mut config, unused) = configuration(&options.gateway)?;
    if let Some(address) = options.listen {
        config.listen.address = address;
    }
    check_for_loop(&config, options)?;
    let format = match config.log.format {
        LogFormat::Text => telemetry::Format::Text,
        LogFormat::Json => telemetry::Format::Json,
    };
    let _log = telemetry::start(&config.log.level, format).map_err(Failure::said)?;
    if let Some(unused) = unused {
        tracing::warn!("{unused}");
    }
    for (is_known, said) in repeated_paths(&config) {
        if is_known { tracing::warn!("{said}") } else { tracing::info!("{said}") }
    }
    for said in booked_twice(&config).into_iter().chain(config.doubts()) {
        tracing::warn!("{said}");
    }
    fit_to_file_limit(&mut config.limits);
    if options.gateway.source.config.is_none() && Path::new(files::USUAL).exists() {
        tracing::warn!(
            "`{0}` is here but is not read: give it with `-c {0}` or `PLIMSOLL_CONFIG`",
            files::USUAL
        );
    }
    let runtime = runtime::Builder::new_current_thread().enable_io().build().map_err(Failure::said)?;
    // Signals are caught before the first client can connect, so that a stop is never abrupt.
    let mut stop = runtime.block_on(async { Stop::catch() }).map_err(Failure::said)?;
    signals::outlive_file_limit(&runtime).map_err(Failure::said)?;
    let app = App::start(&config).map_err(Failure::said)?;
    if let Some(file) = &options.port_file {
        let written = write_port(file, app.address().port());
        written.map_err(|error| Failure::Message(format!("`--port-file {}`: {error}", file.display())))?;
    }
    say(&format!("listening on http://{}", app.address()));
    let admin = app.admin_address().map(|address| format!("http://{address}"));
    if let Some(admin) = &admin {
        say(&format!("dashboard on {admin}"));
    }
    let admin = admin.unwrap_or_else(|| "off".to_owned());
    tracing::info!(address = %format!("http://{}", app.address()), admin, "listening");
    let first = runtime.block_on(stop.first_signal());
    let (requests, at_most) = (app.under_way(), format!("{:?}", config.limits.drain_timeout));
    match first {
        // There is no terminal left to send another.
        First::Hangup => tracing::info!(requests, at_most, "stopping when these are answered"),
        First::Other => tracing::info!(
            requests,
            at_most,
            "stopping when these are answered; another SIGINT or SIGTERM, after half a second, ends it at once"
        ),
    }
    match runtime.block_on(stop_and_drain(app, &mut stop)).map_err(Failure::said)? {
        Drained::Completely => tracing::info!("stopped"),
        Drained::Cut(connections) => tracing::warn!(connections, "stopped; some requests were cut off"),
    }
    Ok(())
}

/// The configuration, and a note about the parts of it that have no effect.
pub(super) fn configuration(options: &Gateway) -> Result<(Config, Option<String>), Failure> {
    let mut unused = None;
    let mut config = files::load(&options.source)?;
    if let Some(url) = &options.upstream {
        (config, unused) = to_single(config, url)?;
    }
    if options.observe {
        config.mode = Mode::Observe;
    }
    Ok((config, unused))
}

/// The configuration with all requests going to one server, and a note about the keys that have no effect then.
fn to_single(config: Config, url: &str) -> Result<(Config, Option<String>), Failure> {
    // A URL that may contain a password or a key is not repeated.
    let said = if url.contains(['@', '?', '#']) { "--upstream" } else { &*format!("--upstream {url}") };
    let base = url.parse().map_err(|error| Failure::Usage(format!("`{said}`: {error}")))?;
    let keys = config.unused_with_single_upstream();
    let unused = (!keys.is_empty())
        .then(|| format!("all requests go to `--upstream`, ignoring `{}` of the file", keys.join("`, `")));
    Ok((config.with_single_upstream(base), unused))
}

/// Checks that no upstream is the gateway itself, which would send requests to itself forever.
fn check_for_loop(config: &Config, options: &Serve) -> Result<(), Failure> {
    let Some(Loop { upstream, key, place }) = config.looped() else { return Ok(()) };
    let said = match &options.gateway.upstream {
        Some(_) => "--upstream".to_owned(),
        None => format!("upstream.{}.{key}", upstream.name),
    };
    Err(Failure::Usage(format!("`{said}`: {place} is the gateway itself")))
}

/// The warnings about addresses that end as the paths of requests begin, each with whether the upstream is known not to
/// expect that.
pub(super) fn repeated_paths(config: &Config) -> Vec<(bool, String)> {
    let note = |(upstream, said): (&Upstream, String)| {
        (upstream.is_at_provider(), format!("`{}` {said}", address_key(config, upstream)))
    };
    config.repeated_paths().map(note).collect()
}

/// The warnings about upstreams that are running gateways with the same books.
pub(super) fn booked_twice(config: &Config) -> Vec<String> {
    let running = store::listening(&config.state.dir);
    let leads_there = |upstream: &&Upstream| running.iter().any(|at| upstream.base_url.leads_to(*at));
    let said = |upstream: &Upstream| {
        let key = address_key(config, upstream);
        format!("`{key}` is a running gateway with the same books, in which each request will be twice")
    };
    config.upstreams.as_slice().iter().filter(leads_there).map(said).collect()
}

/// The option or the key of the file that gives the address of an upstream.
fn address_key(config: &Config, upstream: &Upstream) -> String {
    match &config.upstreams {
        Upstreams::Single(_) => "--upstream".to_owned(),
        Upstreams::Named(_) => format!("upstream.{}.base_url", upstream.name),
    }
}

/// Limits the connections to what the limit of open files allows: those beyond would break instead of waiting.
pub(super) fn fit_to_file_limit(limits: &mut Limits) {
    let wanted = limits.max_connections;
    limits.max_connections = server::raise_file_limit(wanted);
    if limits.max_connections < wanted {
        tracing::warn!(
            wanted,
            connections = limits.max_connections,
            "the system's hard limit of open files is too low for `limits.max_connections`, which is lowered"
        );
    }
}

impl Stop {
    /// Catches the signals from now on. Must be called on a runtime.
    fn catch() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: Caught::new(SignalKind::hangup())?,
        })
    }

    /// Waits for the first signal.
    async fn first_signal(&mut self) -> First {
        tokio::select! {
            _ = self.interrupt.recv() => First::Other,
            _ = self.terminate.recv() => First::Other,
            () = self.hangup.next() => First::Hangup,
        }
    }

    /// Waits for another signal. The end of the terminal does not count, since both the system and a shell report it.
    /// Nor does a signal that follows at once: the terminal sends a signal to all its processes, and the one that
    /// started the gateway may pass it on.
    async fn second_signal(&mut self) {
        let begun = tokio::time::Instant::now();
        while begun.elapsed() < ECHO {
            self.interrupt_or_terminate().await;
        }
    }

    async fn interrupt_or_terminate(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Stops the gateway, and waits for requests in flight until another signal comes.
async fn stop_and_drain(app: App, stop: &mut Stop) -> io::Result<Drained> {
    let haste = app.haste();
    let (told, mut ended) = oneshot::channel();
    thread::Builder::new().name("plimsoll-stop".to_owned()).spawn(move || told.send(app.stop()))?;
    let drained = tokio::select! {
        drained = &mut ended => drained,
        () = stop.second_signal() => {
            haste.hurry();
            ended.await
        }
    };
    drained.map_err(|_| io::Error::other("its end was missed"))
}

/// Writes the port so that whoever waits for the file never reads half a number.
fn write_port(file: &Path, port: u16) -> io::Result<()> {
    // A pipe or a terminal is written to, never replaced.
    if fs::metadata(file).is_ok_and(|found| !found.is_file()) {
        return fs::write(file, port.to_string());
    }
    // The draft must not be a file of someone else's, or of another gateway, whose name may differ only in its
    // extension.
    let mut draft = file.as_os_str().to_owned();
    draft.push(format!(".{}.part", process::id()));
    let written = fs::write(&draft, port.to_string()).and_then(|()| fs::rename(&draft, file));
    if written.is_err() {
        // The draft may not exist.
        let _ = fs::remove_file(&draft);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_file_is_replaced_without_touching_other_files() {
        for (names, others) in [
            (&["gw.0", "gw.1"][..], &["gw.part", "gw"][..]),
            (&["gw", "gw.part"], &[]),
            (&["port"], &["port.part"]),
        ] {
            let home = tempfile::tempdir().unwrap();
            for other in others {
                fs::write(home.path().join(other), "mine").unwrap();
            }
            for (port, name) in (1..).zip(names).chain((7..).zip(names)) {
                write_port(&home.path().join(name), port).unwrap();
            }
            let ports = (7..).zip(names).map(|(port, name)| ((*name).to_owned(), port.to_string()));
            let kept = others.iter().map(|name| ((*name).to_owned(), "mine".to_owned()));
            let mut expected: Vec<_> = ports.chain(kept).collect();
            expected.sort();
            let read = |file: io::Result<fs::DirEntry>| {
                let file = file.unwrap();
                (file.file_name().into_string().unwrap(), fs::read_to_string(file.path()).unwrap())
            };
            let mut found: Vec<_> = fs::read_dir(home.path()).unwrap().map(read).collect();
            found.sort();
            assert_eq!(found, expected, "{names:?}");
        }
        let home = tempfile::tempdir().unwrap();
        assert!(write_port(&home.path().join("none/port"), 1).is_err());
    }
}
