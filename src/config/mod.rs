//! `gateway.toml`: reads its text and resolves it.
//!
//! [`Config::from_toml`] reads a file key by key and reports all of its mistakes at once, each with its key, its line
//! and what was expected. The result holds only resolved values: absolute paths, parsed addresses, compiled patterns. A
//! missing key has its default; the shipped file ([`SHIPPED`]) lists and explains all defaults.
//!
//! Each section has a file of its own here, with its type, its defaults and its checks. Nothing here reads a file, and
//! only an [`Environment`] reaches outside.

mod alerts;
mod budget;
mod clearing;
mod document;
mod environment;
mod fidelity;
mod headers;
mod limits;
mod listen;
mod log;
mod path;
mod period;
mod preset;
mod prices;
mod problem;
mod profile;
mod reader;
mod section;
mod shaping;
mod size;
mod state;
mod suggest;
mod summarize;
mod tuning;
mod upstream;
mod value;

#[cfg(test)]
mod tests;

pub use alerts::Alerts;
pub use budget::{Budget, Limits as BudgetLimits, OnExceeded};
pub use environment::{Environment, ProcessEnvironment, WithoutSecrets};
pub use fidelity::Fidelity;
pub use limits::Limits;
pub use listen::{Listen, address};
pub use log::{Log, LogFormat};
pub use preset::Preset;
pub use prices::PriceOverride;
pub use problem::{Problem, Problems};
pub use profile::{Matcher, Profile, Request};
pub use size::ByteSize;
pub use state::{Ledger, Lineage, Outputs, Recall, Record, State};
pub use suggest::{did_you_mean, nearest};
pub use summarize::Summarize;
pub use tuning::Tuning;
pub use upstream::{CacheKey, Protocol, Proxied, Upstream, Upstreams, may_name_upstream};

use std::net::SocketAddr;

use document::{Document, Source};
use reader::Reader;
use section::Section;
use tuning::{Context, Layer};
use value::Word;

use crate::upstream::{BaseUrl, UnusableProxy, Variables};

/// The shipped file: all keys with their defaults and explanations.
pub const SHIPPED: &str = include_str!("../../gateway.toml");

/// The shipped file with the keys of all sections commented out: a file to begin with, in which a preset has an effect.
pub fn template() -> String {
    let mut in_section = false;
    let mut text = String::with_capacity(SHIPPED.len() + 256);
    for line in SHIPPED.split_inclusive('\n') {
        in_section |= line.starts_with('[');
        if in_section && !line.starts_with(['#', '[', '\n']) {
            text.push('#');
        }
        text.push_str(line);
    }
    text
}

/// The whole configuration, resolved.
#[derive(Debug, Clone)]
pub struct Config {
    /// Whether requests are changed.
    pub mode: Mode,
    /// The set of defaults that the file starts from.
    pub preset: Preset,
    /// Where clients and the administrator connect.
    pub listen: Listen,
    /// Where the state is kept.
    pub state: State,
    /// Where requests go.
    pub upstreams: Upstreams,
    /// The proxies that the environment names.
    pub proxies: Variables,
    /// The bounds on memory, time and concurrency.
    pub limits: Limits,
    /// How conversations are edited.
    pub tuning: Tuning,
    /// How some conversations are edited instead; the first profile that matches applies.
    pub profiles: Vec<Profile>,
    /// The spending limits of conversations and days.
    pub budget: Budget,
    /// What happens when a prompt turns out too long.
    pub recover: Recover,
    /// The full texts of shortened results.
    pub outputs: Outputs,
    /// The books.
    pub ledger: Ledger,
    /// Prices that override the catalogue's; the first one that matches applies.
    pub prices: Vec<PriceOverride>,
    /// The model that judges rewritten histories.
    pub fidelity: Fidelity,
    /// How threads are distinguished.
    pub lineage: Lineage,
    /// What the log reports about conversations.
    pub alerts: Alerts,
    /// The gateway's own log.
    pub log: Log,
    /// Notes of keys in the file that have no effect.
    pub without_effect: Vec<String>,
}

/// Whether requests are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// They are changed.
    Rewrite,
    /// They are not; what rewriting would have saved is recorded.
    Observe,
}

/// What happens when a prompt turns out too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recover {
    /// Whether it is shortened and sent again.
    pub enabled: bool,
    /// The maximum number of times that a request is sent again.
    pub max_attempts: u32,
}

impl Default for Recover {
    fn default() -> Self {
        Self { enabled: true, max_attempts: 3 }
    }
}

impl Word for Mode {
    const WORDS: &'static [(&'static str, Self)] = &[("rewrite", Self::Rewrite), ("observe", Self::Observe)];
}

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// All mistakes of the file, including those of syntax.
    pub fn from_toml(text: &str, environment: &dyn Environment) -> Result<Self, Problems> {
        Self::parse(text, environment, Rules::Reading)
    }

    /// Reads a configuration file that must be valid as it is, without the command line. In addition, no upstream of
    /// its own may be where the gateway listens, and if URLs lead to the admin listener, its port must be fixed.
    ///
    /// # Errors
    /// As for [`Config::from_toml`].
    pub fn checked(text: &str, environment: &dyn Environment) -> Result<Self, Problems> {
        Self::parse(text, environment, Rules::AsItStands)
    }

    fn parse(text: &str, environment: &dyn Environment, rules: Rules) -> Result<Self, Problems> {
        let source = Source::new(text);
        let document = Document::parse(&source);
        let (config, problems) = Reader::read(&document, environment, |root| read(root, rules));
        if problems.is_empty() { Ok(config) } else { Err(Problems::new(problems)) }
    }

    /// The keys of upstreams in the file that have no effect if all requests go to one address.
    pub fn unused_with_single_upstream(&self) -> Vec<String> {
        self.upstreams.keys_set()
    }

    /// Returns this configuration with all requests going to one address, whatever their path or protocol.
    #[must_use]
    pub fn with_single_upstream(self, base_url: BaseUrl) -> Self {
        Self { upstreams: Upstreams::single(base_url), ..self }
    }

    /// Adds a route to a server that an agent would have asked directly, in place of the upstream `like`. `name` is its
    /// name if it is not an upstream of the file.
    #[must_use]
    pub fn leading_to(mut self, url: BaseUrl, like: &str, name: &str) -> Rerouted {
        let (path, mut unused) = self.upstreams.leading_to(url, like, name);
        if self.upstreams.named(name).is_some() {
            let lost = self.profiles.iter().filter(|profile| profile.matcher.is_for_upstream(like, name));
            unused.extend(lost.map(|profile| format!("profile.{}", profile.name)));
        }
        Rerouted { config: self, path, unused }
    }

    /// Returns this configuration with the addresses that the gateway actually listens at.
    #[must_use]
    pub fn listening_at(mut self, address: SocketAddr, admin: Option<SocketAddr>) -> Self {
        self.listen = Listen { address, admin, ..self.listen };
        self
    }

    /// The upstream that leads back to the gateway, if there is one.
    pub fn looped(&self) -> Option<Loop<'_>> {
        self.upstreams.as_slice().iter().find_map(|upstream| {
            let (key, place) = upstream.looped(&self.listen)?;
            Some(Loop { upstream, key, place })
        })
    }

    /// The upstreams whose `base_url` ends with the segment that the paths of requests begin with, each with an example
    /// of the resulting address.
    pub fn repeated_paths(&self) -> impl Iterator<Item = (&Upstream, String)> {
        self.upstreams.as_slice().iter().filter_map(|upstream| Some((upstream, upstream.repeated_path()?)))
    }

    /// Settings that no rule forbids but that are hardly ever meant.
    pub fn doubts(&self) -> Vec<String> {
        let bare = self.upstreams.as_slice().iter().filter(|upstream| upstream.has_bare_authorization());
        let bare = bare.map(|upstream| {
            let name = &upstream.name;
            format!(
                "`upstream.{name}.headers.authorization` has no scheme before its value, as \"Bearer env:NAME\" has"
            )
        });
        bare.chain(self.without_effect.iter().cloned()).collect()
    }

    /// The proxies that the environment names for these upstreams and that cannot be used, without duplicates.
    pub fn unusable_proxies(&self) -> Vec<UnusableProxy> {
        let listeners = self.listen.addresses();
        let mut unusable: Vec<UnusableProxy> = Vec::new();
        for upstream in self.upstreams.as_slice() {
            let found = upstream.proxy(&self.proxies, &listeners).err();
            unusable.extend(found.filter(|found| !unusable.contains(found)));
        }
        unusable
    }

    /// The paths of all keys that a file may set. Names that the file chooses appear as capitals:
    /// `upstream.NAME.base_url`.
    pub fn keys() -> Vec<String> {
        Reader::keys(&Document::parse(&Source::new("")), &|_: &str| None, |root| read(root, Rules::Reading))
    }
}

/// A configuration with a route to a server that an agent would have asked directly.
#[derive(Debug)]
pub struct Rerouted {
    /// The configuration with that route.
    pub config: Config,
    /// The path below which the agent reaches the server.
    pub path: String,
    /// The keys of the file that do not apply to the server.
    pub unused: Vec<String>,
}

/// An upstream whose requests would come back to the gateway.
#[derive(Debug)]
pub struct Loop<'a> {
    /// The upstream.
    pub upstream: &'a Upstream,
    /// The key that leads back to the gateway, within the upstream's section.
    pub key: &'static str,
    /// The value of that key.
    pub place: String,
}

/// Which rules a file must meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rules {
    /// Only those that no option of a command can make up for.
    Reading,
    /// All of them, as if no options were given.
    AsItStands,
}

fn read(root: &mut Section<'_, '_>, rules: Rules) -> Config {
    let mode = root.value("mode", Mode::Rewrite);
    let preset = root.value("preset", Preset::Default);
    let listen = root.section("listen", listen::read);
    let state = root.section("state", state::read);
    let upstreams = upstream::read(root, (rules == Rules::AsItStands).then_some(&listen));
    let limits = root.section("limits", limits::read);
    let context =
        Context { upstreams: &upstreams, rewrite_timeout: limits.rewrite_timeout, is_profile: false };
    let (base, _) = preset.layer(root.environment(), context);
    let mut file = Layer::read(root, &base, context);
    file.without_effect.extend(preset.overridden(root));
    let budget = root.section("budget", budget::read);
    let recover = root.section("recover", clearing::recover);
    let outputs = root.section("outputs", |section| {
        let outputs = state::outputs(section, &state.dir);
        if outputs.recall == Recall::Http && listen.admin.is_none() {
            section.problem("recall", "needs `listen.admin`, which serves the URLs and is off");
        }
        // A port that a command line or the system chooses is valid only until the gateway ends; URLs stay in histories
        // for longer.
        let is_free = listen.admin.is_some_and(|admin| admin.port() == 0);
        if rules == Rules::AsItStands && outputs.recall == Recall::Http && is_free {
            let message =
                "the URLs would become invalid: with port 0, `listen.admin` has another port at each start";
            section.problem_with_hint("recall", message, "give it a fixed port");
        }
        outputs
    });
    let ledger = root.section("ledger", |section| state::ledger(section, &state.dir));
    let prices = root.section("prices", prices::read);
    let fidelity = root.section("fidelity", |section| fidelity::read(section, &upstreams));
    let lineage = root.section("lineage", state::lineage);
    let alerts = root.section("alerts", alerts::read);
    let log = root.section("log", log::read);
    let profiles = profile::read(root, &file, Context { is_profile: true, ..context });
    Config {
        mode,
        preset,
        listen,
        state,
        upstreams,
        proxies: upstream::proxies(root.environment()),
        limits,
        tuning: file.tuning,
        profiles,
        budget,
        recover,
        outputs,
        ledger,
        prices,
        fidelity,
        lineage,
        alerts,
        log,
        without_effect: file.without_effect,
    }
}
