//! `gateway.toml`: raw in, resolved out.
//!
//! [`Config::from_toml`] reads a file key by key and reports everything that is wrong with it at once, each
//! problem with its key, its line and what was expected. What comes out holds resolved values only: absolute
//! paths, parsed addresses, compiled patterns. A key that is absent has its default; the shipped file
//! ([`SHIPPED`]) writes every default out and explains it.
//!
//! One section, one file: it owns the section's type, its defaults and its checks. Nothing here reads a
//! file, and nothing but an [`Environment`] reaches outside.

mod alerts;
mod budget;
mod clearing;
mod document;
mod environment;
mod fidelity;
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
pub use listen::Listen;
pub use log::{Log, LogFormat};
pub use preset::Preset;
pub use prices::PriceOverride;
pub use problem::{Problem, Problems};
pub use profile::{Matcher, Profile, Request};
pub use size::ByteSize;
pub use state::{Ledger, Lineage, Outputs, Recall, Record, Retention, State};
pub use suggest::{did_you_mean, nearest};
pub use summarize::Summarize;
pub use tuning::Tuning;
pub use upstream::{CacheKey, Protocol, Proxied, Upstream, Upstreams};

use std::net::SocketAddr;

use document::{Document, Source};
use reader::Reader;
use section::Section;
use tuning::{Around, Layer};
use value::Word;

use crate::upstream::{BaseUrl, UnusableProxy, Variables};

/// The shipped file: every key with its default and an explanation.
pub const SHIPPED: &str = include_str!("../../gateway.toml");

/// Everything that can be configured, resolved.
#[derive(Debug, Clone)]
pub struct Config {
    /// Whether requests are changed.
    pub mode: Mode,
    /// The set of defaults that the file starts from.
    pub preset: Preset,
    /// Where clients and the administrator connect.
    pub listen: Listen,
    /// Where state is kept.
    pub state: State,
    /// Where requests go.
    pub upstreams: Upstreams,
    /// What the environment says of proxies.
    pub proxies: Variables,
    /// The bounds on memory, time and concurrency.
    pub limits: Limits,
    /// What is done to conversations.
    pub tuning: Tuning,
    /// What is done to some of them instead; the first one that matches counts.
    pub profiles: Vec<Profile>,
    /// What may be used up.
    pub budget: Budget,
    /// What is done about prompts that turn out too long.
    pub recover: Recover,
    /// The full texts of shortened results.
    pub outputs: Outputs,
    /// The books.
    pub ledger: Ledger,
    /// Prices that go before the catalogue's; the first one that matches counts.
    pub prices: Vec<PriceOverride>,
    /// Who judges rewritten histories.
    pub fidelity: Fidelity,
    /// How threads are told apart.
    pub lineage: Lineage,
    /// What the log tells of conversations.
    pub alerts: Alerts,
    /// What the gateway says about itself.
    pub log: Log,
}

/// Whether requests are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// They are.
    Rewrite,
    /// They are not; what would have been saved is recorded.
    Observe,
}

/// What is done about prompts that turn out too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recover {
    /// They are shortened and sent again.
    pub enabled: bool,
    /// How often one request is sent again.
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
    /// Everything that is wrong with it, syntax included.
    pub fn from_toml(text: &str, environment: &dyn Environment) -> Result<Self, Problems> {
        Self::parse(text, environment, Rules::Reading)
    }

    /// Reads a configuration file that is to hold as it stands, with nothing said beside it: where it listens is where
    /// no upstream of its own may be, and at the same place each time if URLs lead there.
    ///
    /// # Errors
    /// As [`Config::from_toml`].
    pub fn checked(text: &str, environment: &dyn Environment) -> Result<Self, Problems> {
        Self::parse(text, environment, Rules::AsItStands)
    }

    fn parse(text: &str, environment: &dyn Environment, rules: Rules) -> Result<Self, Problems> {
        let source = Source::new(text);
        let document = Document::parse(&source);
        let (config, problems) = Reader::read(&document, environment, |root| read(root, rules));
        if problems.is_empty() { Ok(config) } else { Err(Problems::new(problems)) }
    }

    /// The configuration of an empty file.
    ///
    /// # Errors
    /// When the environment has no place to keep state in.
    pub fn default_with(environment: &dyn Environment) -> Result<Self, Problems> {
        Self::from_toml("", environment)
    }

    /// What of the file does not hold where every request goes to one address: the keys of upstreams.
    pub fn unused_with_single_upstream(&self) -> Vec<String> {
        self.upstreams.said()
    }

    /// The same, with every request going to one address, whatever its path or protocol.
    #[must_use]
    pub fn with_single_upstream(self, base_url: BaseUrl) -> Self {
        Self { upstreams: Upstreams::single(base_url), ..self }
    }

    /// The same, with a way to a server that an agent was to ask itself, in place of the upstream `like`: the path that it
    /// is asked below, and the keys of the file that do not hold there. `name` is what it is called where it is none of
    /// the file's.
    #[must_use]
    pub fn leading_to(mut self, url: BaseUrl, like: &str, name: &str) -> (Self, String, Vec<String>) {
        let (path, mut unused) = self.upstreams.leading_to(url, like, name);
        if self.upstreams.named(name).is_some() {
            let lost = self.profiles.iter().filter(|profile| profile.matcher.is_for_upstream(like, name));
            unused.extend(lost.map(|profile| format!("profile.{}", profile.name)));
        }
        (self, path, unused)
    }

    /// The same, as it turns out where the gateway listens.
    #[must_use]
    pub fn listening_at(mut self, address: SocketAddr, admin: Option<SocketAddr>) -> Self {
        self.listen = Listen { address, admin, ..self.listen };
        self
    }

    /// The upstream that leads back to where the gateway listens, the key that says so, and what that says.
    pub fn looped(&self) -> Option<(&Upstream, &'static str, String)> {
        self.upstreams.as_slice().iter().find_map(|upstream| {
            let (key, place) = upstream.looped(&self.listen)?;
            Some((upstream, key, place))
        })
    }

    /// The upstreams whose addresses end as the paths of requests begin, and what becomes of those.
    pub fn repeated_paths(&self) -> impl Iterator<Item = (&Upstream, String)> {
        self.upstreams.as_slice().iter().filter_map(|upstream| Some((upstream, upstream.repeats()?)))
    }

    /// What the environment names for proxies of these upstreams and cannot be used, each once.
    pub fn unusable_proxies(&self) -> Vec<UnusableProxy> {
        let listeners = self.listen.addresses();
        let mut unusable: Vec<UnusableProxy> = Vec::new();
        for upstream in self.upstreams.as_slice() {
            let found = upstream.proxy(&self.proxies, &listeners).err();
            unusable.extend(found.filter(|found| !unusable.contains(found)));
        }
        unusable
    }

    /// The path of every key that a file may set. Names that the file chooses stand as capitals:
    /// `upstream.NAME.base_url`.
    pub fn keys() -> Vec<String> {
        Reader::keys(&Document::parse(&Source::new("")), &|_: &str| None, |root| read(root, Rules::Reading))
    }
}

/// What must hold of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rules {
    /// What no command line changes.
    Reading,
    /// And what one may change.
    AsItStands,
}

fn read(root: &mut Section<'_, '_>, rules: Rules) -> Config {
    let mode = root.value("mode", Mode::Rewrite);
    let preset = root.value("preset", Preset::Default);
    let listen = root.section("listen", listen::read);
    let state = root.section("state", state::read);
    let upstreams = upstream::read(root, (rules == Rules::AsItStands).then_some(&listen));
    let limits = root.section("limits", limits::read);
    let around = Around { upstreams: &upstreams, rewrite_timeout: limits.rewrite_timeout, is_profile: false };
    let (base, _) = preset.layer(root.environment(), around);
    let file = Layer::read(root, &base, around);
    let budget = root.section("budget", budget::read);
    let recover = root.section("recover", clearing::recover);
    let outputs = root.section("outputs", |section| {
        let outputs = state::outputs(section, &state.dir);
        if outputs.recall == Recall::Http && listen.admin.is_none() {
            section.problem("recall", "the URLs are served by `listen.admin`, which is off", None);
        }
        // What a command line or the system chooses holds until the gateway ends, and histories hold the URLs for longer.
        let is_free = listen.admin.is_some_and(|admin| admin.port() == 0);
        if rules == Rules::AsItStands && outputs.recall == Recall::Http && is_free {
            let hint = "give it a port of its own".to_owned();
            let message =
                "the URLs die with the gateway: `listen.admin` has port 0, another one at each start";
            section.problem("recall", message, Some(hint));
        }
        outputs
    });
    let ledger = root.section("ledger", |section| state::ledger(section, &state.dir));
    let prices = root.section("prices", prices::read);
    let fidelity = root.section("fidelity", |section| fidelity::read(section, &upstreams));
    let lineage = root.section("lineage", state::lineage);
    let alerts = root.section("alerts", alerts::read);
    let log = root.section("log", log::read);
    let profiles = profile::read(root, &file, Around { is_profile: true, ..around });
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
    }
}
