//! Handling of signals, unless they are ignored.

use std::{fs, future, io};

use rustix::process;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// A signal that is caught, unless the process was started with it ignored: `nohup` and starting in the background do
/// so on purpose. A handler would undo that, also for programs that the process starts.
pub(super) struct Caught(Option<Signal>);

impl Caught {
    /// Catches it from now on. Must be called on a runtime.
    pub(super) fn new(kind: SignalKind) -> io::Result<Self> {
        if is_ignored(kind) { Ok(Self(None)) } else { signal(kind).map(|signal| Self(Some(signal))) }
    }

    /// Waits for the next one.
    pub(super) async fn next(&mut self) {
        match &mut self.0 {
            Some(signal) => drop(signal.recv().await),
            None => future::pending().await,
        }
    }
}

/// Makes writes beyond the system's limit for files (`ulimit -f`) fail, as on a full disk, instead of ending the
/// process. For programs that the process starts, the signal is handled as before, since no handler survives `exec`.
pub(super) fn outlive_file_limit(runtime: &Runtime) -> io::Result<()> {
    // A handler stays once it is installed.
    let exceeded = SignalKind::from_raw(process::Signal::XFSZ.as_raw());
    runtime.block_on(async { Caught::new(exceeded) }).map(drop)
}

/// Whether the process was started with the signal ignored, if the system tells.
fn is_ignored(kind: SignalKind) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let signals = ignored.and_then(|signals| u64::from_str_radix(signals.trim(), 16).ok());
    // The lowest bit is signal 1.
    signals.is_some_and(|signals| signals >> (kind.as_raw_value() - 1) & 1 == 1)
}
