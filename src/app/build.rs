//! Builds a running gateway from a configuration.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::watch;

use super::books::{Books, Means};
use super::budget::Budget;
use super::learned::Learned;
use super::memo::MessageMemo;
use super::origin_policy::OriginPolicy;
use super::recall::{FullTexts, reachable_address};
use super::route::{Routes, Served};
use super::shadow::Shadow;
use super::slips::Slips;
use super::summaries::{Summaries, Terms};
use super::tally::Tally;
use super::tuning::{Tuning, Tunings};
use super::windows::Windows;
use super::{Core, Recall, Settings, Sidecar, clock, housekeeping, storing};
use crate::admin;
use crate::config::{self, Config, Loop};
use crate::ledger::Totals;
use crate::lineage::{Lineage, Memory, NotedUses};
use crate::server::{self, Drained, Haste, Listener, Running, Server, Stats};
use crate::store::ledger::FILE_NAME;
use crate::store::{Bodies, Checkpoints, Listening, Outputs, Sqlite, Store, StoreError};
use crate::upstream::{self, Upstream, Variables};
use crate::usage::Catalogue;

/// Memory for the decisions of active threads, in bytes: enough for several that fill the largest windows.
const DECISION_BYTES: u64 = 16 << 20;

/// A request waits for its decisions to be stored for at most its time-out divided by this.
const STORING_DIVISOR: u32 = 4;

/// A decoded request body may be this many times as long as `limits.max_body`.
const DECODED_FACTOR: usize = 2;

const EXPOSED: &str = "other machines may reach this address and send requests; hint: `listen.address` on 127.0.0.1 is reached \
                       from this machine alone; in a container, the port can be published on 127.0.0.1 instead";
const EXPOSED_WITH_KEYS: &str = "other machines may reach this address and send requests, to which the configuration adds headers, perhaps keys; \
                                 hint: `listen.address` on 127.0.0.1 is reached from this machine alone; in a container, the port \
                                 can be published on 127.0.0.1 instead";
const ADMIN_EXPOSED: &str = "other machines may reach this address and read what is recorded, as there is no login; \
                             hint: `listen.admin` on 127.0.0.1 is reached from this machine alone, \"off\" from none";
const ADMIN_TAKEN: &str = "the admin address is taken: no admin listener; hint: `listen.admin` names another address, port 0 any \
                     free port, \"off\" none";

/// Why a gateway could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {cause}{}", hint(cause, address.port()))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system reports.
        cause: io::Error,
    },
    /// The state directory cannot be opened.
    #[error("cannot open the store {}: {cause}{}", path.display(), cause.hint())]
    Store {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: StoreError,
    },
    /// An upstream leads back to the gateway itself.
    #[error("`upstream.{upstream}.{key}`: {place} is the gateway itself")]
    Loop {
        /// The name of the upstream.
        upstream: String,
        /// The configuration key responsible.
        key: &'static str,
        /// The value of that key.
        place: String,
    },
    /// A price override whose model name is not a valid pattern.
    #[error("`prices.model`: {0}")]
    Price(glob::PatternError),
    /// A thread could not be started.
    #[error("cannot start: {0}")]
    Start(#[from] io::Error),
}

/// The ports below this one need a privilege.
const FIRST_FREE_PORT: u16 = 1024;

/// A hint for an address with this port that cannot be bound; empty if there is none to give.
fn hint(cause: &io::Error, port: u16) -> &'static str {
    match cause.kind() {
        io::ErrorKind::AddrInUse => {
            "\n  hint: another gateway may be running; `listen.address` or `--listen` names another address, port 0 any \
             free port"
        }
        io::ErrorKind::PermissionDenied if port < FIRST_FREE_PORT => {
            "\n  hint: ports below 1024 need a privilege; name another one, such as 8787"
        }
        io::ErrorKind::AddrNotAvailable => {
            "\n  hint: this machine has no such address; 127.0.0.1 is reached from this machine alone, 0.0.0.0 from others \
             as well"
        }
        _ => "",
    }
}

/// A running gateway.
pub struct App {
    address: SocketAddr,
    admin: Option<SocketAddr>,
    running: Running,
    housekeeping: JoinHandle<()>,
    shutdown: watch::Sender<bool>,
    stats: Arc<Stats>,
    tally: Arc<Tally>,
    /// `None` if other gateways cannot be notified that this one runs.
    listening: Option<Listening>,
}

impl App {
    /// Binds the addresses, opens the store and starts the workers.
    ///
    /// # Errors
    /// [`StartError`], and nothing is left running.
    pub fn start(config: &Config) -> Result<Self, StartError> {
        let address = config.listen.address;
        let listener = Listener::bind(address).map_err(|cause| StartError::Listen { address, cause })?;
        let admin = config.listen.admin.map(bind_admin).transpose()?.flatten();
        let config =
            &config.clone().listening_at(listener.address(), admin.as_ref().map(admin::Listener::address));
        if let Some(Loop { upstream, key, place }) = config.looped() {
            return Err(StartError::Loop { upstream: upstream.name.clone(), key, place });
        }
        for unusable in config.unusable_proxies() {
            tracing::warn!("{unusable}");
        }
        for (address, what) in exposed(config) {
            tracing::warn!(%address, "{what}");
        }
        let core = Arc::new(core(config)?);
        let tally = Arc::clone(&core.tally);
        let (shutdown, shuts_down) = watch::channel(false);
        let server = Server::new(Arc::new(Sidecar { core: Arc::clone(&core) }), settings(&config.limits));
        let stats = server.stats();
        let housekeeping = housekeeping::start(core, Arc::clone(&stats), admin, config, shuts_down.clone())?;
        let running = server.start(listener, &shuts_down)?;
        let config::Listen { address, admin, .. } = config.listen;
        let listening = Listening::at(address, &config.state.dir);
        let listening = listening
            .inspect_err(
                |error| tracing::debug!(%error, "gateways with the same books will not know this one"),
            )
            .ok();
        Ok(Self { address, admin, running, housekeeping, shutdown, stats, tally, listening })
    }

    /// The address that clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of the admin listener; `None` if there is none.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.map(reachable_address)
    }

    /// The number of requests that have not been answered completely.
    pub fn under_way(&self) -> u64 {
        self.stats.open_requests.value()
    }

    /// A handle that makes [`stop`](Self::stop) wait no longer for requests in flight.
    pub fn haste(&self) -> Haste {
        self.running.haste()
    }

    /// Stops accepting, finishes the requests in flight and stores what is queued.
    pub fn stop(self) -> Drained {
        let _ = self.shutdown.send(true);
        let drained = self.running.join();
        let _ = self.housekeeping.join();
        drop(self.listening);
        drained
    }

    /// Stops, and returns the totals of all requests.
    pub fn close(self) -> Totals {
        let tally = Arc::clone(&self.tally);
        self.stop();
        tally.sums().totals
    }
}

/// The listeners that other machines can reach, each with a warning.
fn exposed(config: &Config) -> impl Iterator<Item = (SocketAddr, &'static str)> {
    let listen = &config.listen;
    let admin = listen.admin.map(|admin| (admin, ADMIN_EXPOSED));
    let adds_headers = config.upstreams.as_slice().iter().any(|upstream| !upstream.headers.is_empty());
    let what = if adds_headers { EXPOSED_WITH_KEYS } else { EXPOSED };
    let all = [Some((listen.address, what)), admin].into_iter().flatten();
    all.filter(|(address, _)| !address.ip().to_canonical().is_loopback())
}

/// Binds the admin listener. If its address is taken, the gateway runs without one, since several gateways may run on
/// one machine.
fn bind_admin(address: SocketAddr) -> Result<Option<admin::Listener>, StartError> {
    match admin::Listener::bind(address) {
        Ok(listener) => Ok(Some(listener)),
        Err(cause) if cause.kind() == io::ErrorKind::AddrInUse => {
            tracing::warn!(%address, "{ADMIN_TAKEN}");
            Ok(None)
        }
        Err(cause) => Err(StartError::Listen { address, cause }),
    }
}

fn core(config: &Config) -> Result<Core, StartError> {
    let outputs = Outputs::new(&config.outputs.dir);
    let path = config.state.dir.join(FILE_NAME);
    let store = Sqlite::open(&path, outputs.clone(), config.ledger.dir.clone(), config.limits.queue);
    let store: Arc<dyn Store> = Arc::new(store.map_err(|cause| StartError::Store { path, cause })?);
    let prices = Arc::new(prices(&config.prices)?);
    let tools = config.tuning.policy.shape.truncate.tools.iter().map(|(tools, _)| tools);
    let tally = Arc::new(Tally::of(tools, config.alerts));
    let budget = Arc::new(Budget::new(config.budget.clone(), Arc::clone(&store)));
    budget.warm(clock::now_ms());
    let routes = routes(config);
    let tunings = tunings(config, &routes);
    let summaries = summaries(config, &store, &prices, &tally, &budget)?;
    let means = Means {
        store: Arc::clone(&store),
        prices: Arc::clone(&prices),
        bodies: (config.ledger.record == config::Record::Full).then(|| Bodies::below(&config.state.dir)),
        tally: Arc::clone(&tally),
        budget: Arc::clone(&budget),
        counts: config.ledger.count_tokens,
        observes: config.mode == config::Mode::Observe,
    };
    let shadow = (config.mode == config::Mode::Observe).then(|| Shadow::over(&store, DECISION_BYTES));
    let learned = Learned::of(windows(config, &*store, &routes));
    Ok(Core {
        settings: Settings {
            tunings,
            recover: config.recover,
            isolate: config.lineage.isolate,
            patience: Some(config.limits.rewrite_timeout / STORING_DIVISOR),
            dashboard: config.listen.admin.map(reachable_address),
        },
        routes,
        origins: OriginPolicy::new(config.listen.origins.clone(), config.listen.address.ip()),
        slips: Slips::default(),
        memo: MessageMemo::new(config.limits.memo.bytes() as u64),
        prices,
        lineage: Lineage::new(Arc::clone(&store), Memory::new(DECISION_BYTES)),
        store,
        storing: storing(),
        checkpoints: Checkpoints::below(&config.state.dir),
        full_texts: FullTexts {
            outputs,
            recall: Recall::new(config.outputs.recall, config.listen.admin),
            uses: NotedUses::default(),
        },
        learned,
        summaries,
        books: Books::start(means, config.limits.queue)?,
        budget,
        shadow,
        tally,
        now_ms: clock::now_ms,
    })
}

/// The windows learned so far, if anything makes use of them.
fn windows(config: &Config, store: &dyn Store, routes: &Routes) -> Windows {
    if !config.recover.enabled || config.mode == config::Mode::Observe {
        return Windows::new();
    }
    let stored = store.windows(clock::now_ms()).unwrap_or_else(|error| {
        tracing::warn!(%error, "the stored context windows could not be read");
        Vec::new()
    });
    let served = routes.all().iter().map(|served| &served.upstream);
    let served: Vec<_> = served.map(|upstream| (upstream.name(), upstream.base_url().to_string())).collect();
    Windows::stored(&stored, &served)
}

/// The settings of the file and of its profiles.
fn tunings(config: &Config, routes: &Routes) -> Tunings {
    let tuning = |name: Option<&str>, preset: config::Preset, tuning: &config::Tuning| {
        let config::Tuning { policy, summarize } = tuning;
        let writer = summarize.upstream.as_deref().and_then(|name| routes.named(name)).cloned();
        let terms = Terms::new(&summary_settings(summarize, writer.is_some(), name), writer, policy);
        Tuning::new(name.map(str::to_owned), preset, policy.clone(), terms)
    };
    let profiles = config.profiles.iter();
    let profiles = profiles.map(|profile| {
        let config::Profile { name, matcher, preset, tuning: own } = profile;
        (matcher.clone(), tuning(Some(name), preset.unwrap_or(config.preset), own))
    });
    Tunings::new(tuning(None, config.preset, &config.tuning), profiles.collect())
}

/// The settings for summaries. If the upstream that is to write them is not served, no summaries are made: the
/// request's own upstream was not meant, and may not have the model.
fn summary_settings(
    summarize: &config::Summarize,
    has_writer: bool,
    profile: Option<&str>,
) -> config::Summarize {
    let mut summarize = summarize.clone();
    let upstream = summarize.upstream.as_deref().filter(|_| !has_writer && summarize.settings.enabled);
    if let Some(upstream) = upstream {
        tracing::warn!(
            upstream,
            profile,
            "`summarize.upstream` is not served, as everything goes to one upstream: no summaries are made"
        );
        summarize.settings.enabled = false;
    }
    summarize
}

/// The summariser, unless summaries are turned off or the gateway only observes.
fn summaries(
    config: &Config,
    store: &Arc<dyn Store>,
    prices: &Arc<Catalogue>,
    tally: &Arc<Tally>,
    budget: &Arc<Budget>,
) -> io::Result<Option<Summaries>> {
    let profiles = config.profiles.iter().map(|profile| &profile.tuning);
    let mut all = std::iter::once(&config.tuning).chain(profiles);
    if config.mode == config::Mode::Observe || !all.any(|tuning| tuning.summarize.settings.enabled) {
        return Ok(None);
    }
    let limits = config.tuning.summarize.limits;
    let (store, prices) = (Arc::clone(store), Arc::clone(prices));
    Summaries::start(limits, store, prices, Arc::clone(tally), Arc::clone(budget)).map(Some)
}

fn routes(config: &Config) -> Routes {
    let listeners = config.listen.addresses();
    let served = |upstream| served(upstream, &config.proxies, &listeners);
    match &config.upstreams {
        config::Upstreams::Single(only) => Routes::Single(served(only)),
        config::Upstreams::Named(all) => Routes::Named(all.iter().map(served).collect()),
    }
}

/// A configured upstream, with the proxy that the environment names for it. `listeners` are the gateway's own
/// addresses, which cannot serve as proxies.
pub fn upstream(upstream: &config::Upstream, proxies: &Variables, listeners: &[SocketAddr]) -> Upstream {
    let mut settings = upstream::Settings::new(&upstream.name, upstream.base_url.clone());
    settings.headers.clone_from(&upstream.headers);
    settings.timeouts = upstream.timeouts;
    settings.ca_file.clone_from(&upstream.ca_file);
    settings.http2 = upstream.http2;
    // An unusable proxy in the environment is ignored.
    settings.proxy = upstream.proxy(proxies, listeners).unwrap_or_default();
    settings.listeners = listeners.to_vec();
    Upstream::new(settings)
}

fn served(upstream: &config::Upstream, proxies: &Variables, listeners: &[SocketAddr]) -> Served {
    let dialects = upstream.protocols.iter().map(|protocol| protocol.as_str().to_owned()).collect();
    Served {
        upstream: Arc::new(self::upstream(upstream, proxies, listeners)),
        dialects,
        include_usage: upstream.include_usage,
        cache_key: upstream.cache_key,
        cache_marks: upstream.cache_marks,
    }
}

fn settings(limits: &config::Limits) -> server::Settings {
    server::Settings {
        workers: NonZeroUsize::new(limits.workers).unwrap_or_else(server::usual_workers),
        max_connections: limits.max_connections,
        max_body: limits.max_body.bytes(),
        max_decoded: limits.max_body.bytes().saturating_mul(DECODED_FACTOR),
        rewrite_timeout: limits.rewrite_timeout,
        drain_timeout: limits.drain_timeout,
        idle_timeout: limits.idle_timeout,
    }
}

/// The effective prices: those of the configuration override the catalogue's.
///
/// # Errors
/// If the model name of an override is not a valid pattern.
pub fn prices(overrides: &[config::PriceOverride]) -> Result<Catalogue, StartError> {
    let prices = overrides.iter().map(|given| (given.pattern.clone(), given.stated));
    Catalogue::with_overrides(prices.collect()).map_err(StartError::Price)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn non_loopback_listeners_are_warned_about() {
        for (address, admin, headers, expected) in [
            ("127.0.0.1:1", "[::1]:2", "x-key = '1'", &[][..]),
            ("127.0.0.9:1", "off", "", &[]),
            ("0.0.0.0:1", "127.0.0.1:2", "", &[EXPOSED]),
            ("0.0.0.0:1", "127.0.0.1:2", "x-key = '1'", &[EXPOSED_WITH_KEYS]),
            ("[::]:1", "off", "", &[EXPOSED]),
            ("[::ffff:127.0.0.1]:1", "0.0.0.0:2", "", &[ADMIN_EXPOSED]),
            ("192.0.2.1:1", "[::]:2", "", &[EXPOSED, ADMIN_EXPOSED]),
        ] {
            let text = format!(
                "listen = {{ address = '{address}', admin = '{admin}' }}\nupstream.openai.headers = {{ {headers} }}"
            );
            let home = |name: &str| (name == "HOME").then(|| "/home/me".to_owned());
            let config = Config::from_toml(&text, &home).unwrap();
            assert!(exposed(&config).map(|(_, what)| what).eq(expected.iter().copied()), "{text}");
        }
    }

    #[test]
    fn errors_of_binding_have_hints() {
        for (kind, port, expected) in [
            (io::ErrorKind::AddrInUse, 8787, "port 0"),
            (io::ErrorKind::PermissionDenied, 1023, "ports below 1024"),
            (io::ErrorKind::AddrNotAvailable, 8787, "no such address"),
        ] {
            let hint = hint(&kind.into(), port);
            assert!(hint.starts_with("\n  hint: ") && hint.contains(expected), "{kind}: {hint}");
        }
        // A sandbox or a security module forbids any port.
        assert_eq!(hint(&io::ErrorKind::PermissionDenied.into(), 1024), "");
    }

    #[test]
    fn summaries_are_off_if_their_configured_upstream_is_missing() {
        for (upstream, has_writer, expected) in
            [(None, false, true), (Some("local"), true, true), (Some("local"), false, false)]
        {
            let mut summarize =
                config::Summarize { upstream: upstream.map(str::to_owned), ..config::Summarize::default() };
            summarize.settings.enabled = true;
            assert_eq!(
                summary_settings(&summarize, has_writer, None).settings.enabled,
                expected,
                "{upstream:?}"
            );
        }
    }
}
