//! Gateways without sockets, on stores in real files.

use std::cell::Cell;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::app::books::{Books, Means};
use crate::app::budget::Budget;
use crate::app::context::RequestContext;
use crate::app::learned::{Learned, PerModel};
use crate::app::memo::MessageMemo;
use crate::app::origin_policy::OriginPolicy;
use crate::app::recall::FullTexts;
use crate::app::rewritten::Rewritten;
use crate::app::route::Routes;
use crate::app::slips::Slips;
use crate::app::summaries::{Summaries, Terms};
use crate::app::tally::Tally;
use crate::app::tuning::{Tuning, Tunings};
use crate::app::windows::Windows;
use crate::app::{Core, Recall, Settings, storing};
use crate::config::{self, Preset, Recover};
use crate::lineage::{Lineage, Memory, NotedUses};
use crate::planner::Policy;
use crate::protocol::Protocol;
use crate::shape::settings::{Keep, NamePatterns};
use crate::shape::{self};
use crate::store::{Batch, Checkpoints, Outputs, Sqlite, Store};
use crate::strategy::gate::Reason;
use crate::strategy::{clear, ladder, marks, window};
use crate::summarizer::Limits;
use crate::usage::cache_model::{Pause, Pauses};
use crate::usage::{Catalogue, Rate, Stated, Vendor};

/// The number of different [`settings`].
pub(super) const SETTINGS: u8 = 8;

thread_local! {
    /// The clock of this thread's gateways, in milliseconds since 1970.
    static NOW: Cell<i64> = const { Cell::new(0) };
}

/// Sets the clock.
pub(super) fn set_clock(now_ms: i64) {
    NOW.set(now_ms);
}

/// The time of the clock.
pub(super) fn clock() -> i64 {
    NOW.get()
}

/// Advances the clock.
pub(super) fn wait(ms: i64) {
    NOW.set(NOW.get() + ms);
}

/// A folder for a store and for the outputs.
pub(super) struct Rig {
    home: TempDir,
    runtime: Runtime,
}

impl Rig {
    pub(super) fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        Self { home: tempfile::tempdir().unwrap(), runtime }
    }

    /// The store in the file with this name. Several processes may have a file open.
    pub(super) fn store(&self, file: &str) -> Arc<dyn Store> {
        let (outputs, logs) = (self.outputs(), self.home.path().join("logs"));
        Arc::new(Sqlite::open(&self.home.path().join(file), outputs, logs, 1024).unwrap())
    }

    /// The path of the store with this name.
    pub(super) fn path(&self, file: &str) -> std::path::PathBuf {
        self.home.path().join(file)
    }

    /// Two stores on the same file, for two gateways.
    pub(super) fn two_stores(&self, file: &str) -> [Arc<dyn Store>; 2] {
        [self.store(file), self.store(file)]
    }

    /// A gateway that has just started and makes no summaries.
    pub(super) fn core(&self, store: Arc<dyn Store>, policy: Policy, prices: Catalogue) -> Core {
        self.summarising(store, policy, prices, &config::Summarize::default(), None)
    }

    /// A gateway that has just started, and that makes and uses summaries as given.
    pub(super) fn summarising(
        &self,
        store: Arc<dyn Store>,
        policy: Policy,
        prices: Catalogue,
        terms: &config::Summarize,
        limits: Option<Limits>,
    ) -> Core {
        let prices = Arc::new(prices);
        let terms = Terms::new(terms, None, &policy);
        let tally: Arc<Tally> = Arc::default();
        let budget = Arc::new(Budget::new(config::Budget::default(), Arc::clone(&store)));
        let summaries = limits.map(|limits| {
            let (store, prices) = (Arc::clone(&store), Arc::clone(&prices));
            Summaries::start(limits, store, prices, Arc::clone(&tally), Arc::clone(&budget)).unwrap()
        });
        let means = Means {
            store: Arc::clone(&store),
            prices: Arc::clone(&prices),
            bodies: None,
            tally: Arc::clone(&tally),
            budget: Arc::clone(&budget),
            counts: false,
            observes: false,
        };
        let mut learned = Learned::of(Windows::new());
        learned.pauses = dropping();
        Core {
            settings: Settings {
                tunings: Tunings::new(Tuning::new(None, Preset::Default, policy, terms), Vec::new()),
                recover: Recover::default(),
                isolate: true,
                patience: None,
                dashboard: None,
            },
            routes: Routes::Named(Vec::new()),
            origins: OriginPolicy::new(NamePatterns::default(), std::net::Ipv4Addr::LOCALHOST.into()),
            slips: Slips::default(),
            memo: MessageMemo::new(1 << 20),
            prices,
            lineage: Lineage::new(Arc::clone(&store), Memory::new(1 << 20)),
            store,
            storing: storing(),
            checkpoints: Checkpoints::below(self.home.path()),
            full_texts: FullTexts {
                outputs: self.outputs(),
                recall: Recall::Path,
                uses: NotedUses::default(),
            },
            learned,
            summaries,
            books: Books::start(means, 16).unwrap(),
            budget,
            shadow: None,
            tally,
            now_ms: || NOW.get(),
        }
    }

    pub(super) fn outputs(&self) -> Outputs {
        Outputs::new(self.home.path().join("outputs"))
    }

    /// Sends a request through a gateway, and waits until everything is stored, because the model's answer takes longer
    /// than that.
    pub(super) fn send(
        &self,
        core: &Core,
        protocol: &'static dyn Protocol,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Rewritten {
        self.send_to("", core, protocol, headers, body)
    }

    /// The same, to a given upstream.
    pub(super) fn send_to(
        &self,
        upstream: &str,
        core: &Core,
        protocol: &'static dyn Protocol,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Rewritten {
        let asked = RequestContext { upstream, ..Self::asked() };
        let rewritten = self.runtime.block_on(core.rewrite(protocol, headers, body, asked));
        let _ = self.runtime.block_on(core.store.commit(Batch::default()));
        rewritten
    }

    /// The same without waiting for everything to be stored. For gateways that have the store to themselves.
    pub(super) fn rewrite(
        &self,
        core: &Core,
        protocol: &'static dyn Protocol,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Rewritten {
        self.runtime.block_on(core.rewrite(protocol, headers, body, Self::asked()))
    }

    /// Runs a future to its end.
    pub(super) fn within<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// The context of requests to a router that passes marks on.
    pub(super) fn asked() -> RequestContext<'static> {
        let vendor = Some(Vendor::OpenRouter);
        RequestContext { vendor, model: Some("gemini-2.5-pro"), ..RequestContext::default() }
    }

    /// Stores a batch, and waits until that is done.
    pub(super) fn store_now(&self, store: &dyn Store, batch: Batch) {
        self.runtime.block_on(store.commit(batch)).unwrap();
    }

    /// Copies a store that nobody has open.
    pub(super) fn copy(&self, from: &str, to: &str) {
        std::fs::copy(self.home.path().join(from), self.home.path().join(to)).unwrap();
    }

    /// Removes a store that nobody has open.
    pub(super) fn remove(&self, file: &str) {
        std::fs::remove_file(self.home.path().join(file)).unwrap();
    }
}

/// Caches without marks whose providers are known to have dropped what was not used for long: no agent of the laws
/// waits for that.
fn dropping() -> PerModel<Pauses> {
    let all = PerModel::<Pauses>::new();
    for model in ["gpt-5", "gpt-6", "gpt-6.2", "gemini-2.5-pro", "anthropic/claude-opus-5.5"] {
        all.update("", model, |pauses| pauses.ended(Pause { ms: 1, kept: 1, read: 0 }));
    }
    all
}

/// The headers of a principal's session.
pub(super) fn headers(key: &str, session: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("x-api-key", HeaderValue::from_str(key).unwrap());
    headers.insert("x-session-id", HeaderValue::from_str(session).unwrap());
    headers
}

/// Different policies: many results of a few hundred bytes are changed, and events are frequent, each variant in its
/// own way. One of them, [`QUIET`], changes nothing.
pub(super) fn policy(variant: u8) -> Policy {
    let variant = variant % SETTINGS;
    let marks = marks::Settings {
        marks: variant % 3 != 1 && variant != QUIET,
        anchors: variant != QUIET,
        keys: true,
        split: true,
    };
    Policy {
        shape: shaping(variant),
        clear: clearing(variant),
        window: window::Settings::default(),
        ladder: LADDER,
        marks,
    }
}

/// The variant that changes nothing.
pub(super) const QUIET: u8 = 3;
/// The variant whose models have a small window.
const NARROW: u8 = 2;
/// Tokens of the shortest prompt that providers cache: the agents of the laws send short ones.
const LEAST: u64 = 64;
/// The variant whose models have no cache.
const UNCACHED: u8 = 4;

/// The prices and windows of models in a variant.
pub(super) fn prices(variant: u8) -> Catalogue {
    let rate = |micros: u64| Some(Rate::from_picodollars(micros));
    let (cache_read, cache_write_5m) = match variant % SETTINGS {
        UNCACHED => (rate(1_000_000), rate(1_000_000)),
        _ => (rate(100_000), rate(1_250_000)),
    };
    let price = Stated {
        input: rate(1_000_000),
        output: rate(5_000_000),
        cache_read,
        cache_write_5m,
        context_window: (variant % SETTINGS == NARROW).then_some(2_000),
        cache_min: Some(LEAST),
        ..Stated::default()
    };
    Catalogue::with_overrides(vec![("*".to_owned(), price)]).unwrap()
}

const LADDER: ladder::Settings =
    ladder::Settings { enabled: false, keep_turns: 1, least: 0.15, from: 0.0, messages: None };

fn shaping(variant: u8) -> shape::Settings {
    let mut settings = shape::Settings { repeat_min_bytes: 220, ..shape::Settings::default() };
    settings.truncate.error_max_bytes = 600;
    settings.truncate.tools = Vec::new();
    let base = &mut settings.truncate.base;
    (base.max_bytes, base.max_lines, base.keep) = match variant % 4 {
        0 => (300, 20, Keep::Head),
        1 => (400, 12, Keep::Both),
        2 => (350, 30, Keep::Tail),
        _ => (1 << 20, 1 << 20, Keep::Head),
    };
    match variant % 4 {
        0 => {}
        1 => settings.repeat = false,
        2 => (settings.minify, settings.fold) = (false, false),
        _ => {
            (settings.escapes, settings.repeat) = (false, false);
            settings.truncate.exempt = NamePatterns::new(["*"]).unwrap();
        }
    }
    settings
}

/// The tools whose results are never cleared.
pub(super) const PROTECTED: &str = "gr*";

fn clearing(variant: u8) -> clear::Settings {
    let usual = clear::Settings {
        policy: clear::Policy::Oldest,
        protect: clear::Protect { view_tokens: 0, other_tokens: 0, turns: 0 },
        protected_tools: NamePatterns::new([PROTECTED]).unwrap(),
        smallest: 0,
        patience: 0.01,
        settle: 0,
        most_loss: 1.0,
        ..clear::Settings::default()
    };
    let gate = |reason| vec![reason];
    match variant {
        0 => clear::Settings { gate: gate(Reason::Eager), ..usual },
        1 => clear::Settings {
            policy: clear::Policy::Worth,
            regret_tokens: 1,
            gate: gate(Reason::BreakEven),
            ..usual
        },
        NARROW => clear::Settings { policy: clear::Policy::Lru, gate: gate(Reason::Window), ..usual },
        QUIET => clear::Settings { enabled: false, ..usual },
        UNCACHED => clear::Settings { gate: gate(Reason::Uncached), at_turns: true, ..usual },
        5 => clear::Settings { gate: gate(Reason::Cold), ..usual },
        6 => clear::Settings {
            policy: clear::Policy::Hybrid,
            gate: vec![Reason::Cold, Reason::BreakEven],
            protect: clear::Protect { view_tokens: 100, other_tokens: 50, turns: 1 },
            ..usual
        },
        _ => clear::Settings { policy: clear::Policy::Oldest, gate: gate(Reason::BreakEven), ..usual },
    }
}
