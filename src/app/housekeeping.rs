//! The thread for work that no request waits for: serving the admin listener, and removing expired data.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, UNIX_EPOCH};

use tokio::runtime;
use tokio::sync::watch;

use super::{Core, metrics};
use crate::admin::{self, Pages};
use crate::config::Config;
use crate::lineage;
use crate::server::Stats;
use crate::store::ledger::FILE_NAME;
use crate::store::{Batch, Bodies};

/// How often expired data is removed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(3600);

/// Starts the thread. It ends when `shutdown` turns true.
pub(super) fn start(
    core: Arc<Core>,
    stats: Arc<Stats>,
    admin: Option<admin::Listener>,
    config: &Config,
    mut shutdown: watch::Receiver<bool>,
) -> io::Result<JoinHandle<()>> {
    let runtime =
        runtime::Builder::new_current_thread().enable_all().thread_name("plimsoll-admin").build()?;
    let ages = Ages::of(config);
    let bodies = Bodies::below(&config.state.dir);
    let counted = Arc::clone(&core);
    let names = config.listen.admin_names.clone();
    let pages = Pages {
        outputs: core.full_texts.outputs.clone(),
        books: config.state.dir.join(FILE_NAME),
        metrics: Box::new(move || metrics::text(&*counted.store, &counted.tally, &stats)),
        is_own_name: Box::new(move |name| names.matches(name)),
    };
    thread::Builder::new().name("plimsoll-house".to_owned()).spawn(move || {
        runtime.block_on(async {
            let admin = serve_forever(admin.map(|listener| listener.serve(pages)));
            tokio::select! {
                _ = shutdown.wait_for(|begun| *begun) => {}
                never = admin => match never {},
                () = sweep(&core, &bodies, ages) => {}
            }
        });
        // Reads of the books may be under way; nobody waits for their results any longer.
        runtime.shutdown_background();
    })
}

/// Serves the admin listener, if there is one. Never returns, so that the other work of the thread goes on if the
/// listener ends.
async fn serve_forever(admin: Option<impl Future<Output = io::Result<()>>>) -> Infallible {
    if let Some(admin) = admin {
        let error = admin.await.err().map(tracing::field::display);
        tracing::error!(error, "the admin listener ended");
    }
    std::future::pending().await
}

/// Removes expired data at regular intervals. Never returns.
async fn sweep(core: &Core, bodies: &Bodies, ages: Ages) {
    let mut due = tokio::time::interval(SWEEP_INTERVAL);
    due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        due.tick().await;
        let now_ms = (core.now_ms)();
        core.tally.stored(core.store.later(ages.batch(now_ms)));
        let now = Duration::from_millis(u64::try_from(now_ms).unwrap_or(0));
        if let Err(error) = bodies.sweep(UNIX_EPOCH + now.saturating_sub(ages.outputs)) {
            tracing::warn!(%error, "old bodies could not be removed");
        }
    }
}

/// How long each kind of data is kept.
#[derive(Clone, Copy)]
struct Ages {
    outputs: Duration,
    ledger: Option<Duration>,
    threads: Option<Duration>,
}

impl Ages {
    fn of(config: &Config) -> Self {
        // The store may learn of a thread's use this much later.
        let threads = config.lineage.retention.map(|period| period + lineage::NOTED_EVERY);
        Self { outputs: config.outputs.retention, ledger: config.ledger.retention, threads }
    }

    /// A batch that removes all data that is older than that.
    fn batch(self, now_ms: i64) -> Batch {
        let before =
            |age: Duration| now_ms.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
        Batch {
            // The store may learn of a text's use this much later.
            forget_outputs: Some(before(self.outputs + lineage::NOTED_EVERY)),
            forget_ledger: self.ledger.map(before),
            forget_threads: self.threads.map(before),
            at_ms: now_ms,
            ..Batch::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// What a request used just within its time stays, even if the last use that was stored is an hour older.
    #[test]
    fn retention_allows_for_late_reports_of_use() {
        let home = |name: &str| (name == "HOME").then(|| "/home/me".to_owned());
        let text = "outputs.retention = '1h'\nlineage.retention = '1d'";
        let ages = Ages::of(&Config::from_toml(text, &home).unwrap());
        let batch = ages.batch(100 * 3_600_000);
        assert_eq!(
            (batch.forget_outputs, batch.forget_threads),
            (Some(98 * 3_600_000), Some(75 * 3_600_000))
        );
    }

    #[test]
    fn an_ended_admin_listener_does_not_stop_the_gateway() {
        for served in [Ok(()), Err(io::ErrorKind::Other.into())] {
            let mut lasting = pin!(serve_forever(Some(std::future::ready(served))));
            let mut context = Context::from_waker(Waker::noop());
            assert_eq!(lasting.as_mut().poll(&mut context), Poll::Pending);
        }
    }
}
