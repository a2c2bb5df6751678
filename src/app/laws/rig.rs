//! Gateways without sockets, on stores that are real files.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::app::books::{Books, Means};
use crate::app::memo::Indexes;
use crate::app::meter::Meter;
use crate::app::rewrite::Rewritten;
use crate::app::route::Routes;
use crate::app::touched::Touched;
use crate::app::{Core, Recall};
use crate::lineage::{Lineage, Memory};
use crate::planner::Policy;
use crate::protocol::Protocol;
use crate::shape::Settings;
use crate::shape::settings::{Keep, Tools};
use crate::store::{Batch, Outputs, Sqlite, Store};
use crate::usage::Catalogue;

/// How many different [`settings`] there are.
pub(super) const SETTINGS: u8 = 4;

/// A folder for a store and for the outputs.
pub(super) struct Rig {
    home: TempDir,
    runtime: Runtime,
}

impl Rig {
    pub(super) fn new() -> Self {
        let runtime = Builder::new_current_thread().build().unwrap();
        Self { home: tempfile::tempdir().unwrap(), runtime }
    }

    /// The store in the file with this name. A file may be open in several processes.
    pub(super) fn store(&self, file: &str) -> Arc<dyn Store> {
        let (outputs, logs) = (self.outputs(), self.home.path().join("logs"));
        Arc::new(Sqlite::open(&self.home.path().join(file), outputs, logs, 1024).unwrap())
    }

    /// What two gateways on one file have.
    pub(super) fn two_stores(&self, file: &str) -> [Arc<dyn Store>; 2] {
        [self.store(file), self.store(file)]
    }

    /// A gateway that has just started.
    pub(super) fn core(&self, store: Arc<dyn Store>, settings: Settings) -> Core {
        let (memo, prices) = (Indexes::new(1 << 20), Arc::new(Catalogue::embedded()));
        let lost: Arc<AtomicU64> = Arc::default();
        let means = Means {
            store: Arc::clone(&store),
            memo: memo.clone(),
            prices: Arc::clone(&prices),
            bodies: None,
            lost: Arc::clone(&lost),
        };
        Core {
            routes: Routes::Named(Vec::new()),
            memo,
            lineage: Lineage::new(Arc::clone(&store), Memory::new(1 << 20)),
            store,
            outputs: self.outputs(),
            touched: Touched::new(),
            policy: Policy { shape: settings.clone(), ..Policy::default() },
            counting: Policy { shape: settings, ..Policy::default() },
            meter: Meter::new(),
            recall: Recall::Path,
            prices,
            books: Books::start(means, 16).unwrap(),
            observe: false,
            isolate: true,
            lost,
        }
    }

    pub(super) fn outputs(&self) -> Outputs {
        Outputs::new(self.home.path().join("outputs"))
    }

    /// Sends a request through a gateway, and waits until all is written down, as the model's answer takes
    /// longer than that.
    pub(super) fn send(
        &self,
        core: &Core,
        protocol: &'static dyn Protocol,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Rewritten {
        self.runtime.block_on(async {
            let rewritten = core.rewrite(protocol, headers, body, None).await;
            let _ = core.store.commit(Batch::default()).await;
            rewritten
        })
    }
}

/// The headers of one principal's session.
pub(super) fn headers(key: &str, session: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("x-api-key", HeaderValue::from_str(key).unwrap());
    headers.insert("x-session-id", HeaderValue::from_str(session).unwrap());
    headers
}

/// Settings under which many results of a few hundred bytes are changed, each variant in its own way.
pub(super) fn settings(variant: u8) -> Settings {
    let mut settings = Settings { repeat_min_bytes: 220, ..Settings::default() };
    settings.truncate.error_max_bytes = 600;
    settings.truncate.tools = Vec::new();
    let base = &mut settings.truncate.base;
    (base.max_bytes, base.max_lines, base.keep) = match variant % SETTINGS {
        0 => (300, 20, Keep::Head),
        1 => (400, 12, Keep::Both),
        2 => (350, 30, Keep::Tail),
        _ => (1 << 20, 1 << 20, Keep::Head),
    };
    match variant % SETTINGS {
        0 => {}
        1 => settings.repeat = false,
        2 => (settings.minify, settings.fold) = (false, false),
        _ => {
            (settings.escapes, settings.repeat) = (false, false);
            settings.truncate.exempt = Tools::new(["*"]).unwrap();
        }
    }
    settings
}
