//! The gateway's own log, on standard error. It never contains bodies or credentials.

mod lines;

use std::io;
use std::sync::Arc;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

use lines::Lines;

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For human readers.
    Text,
    /// One JSON object per line.
    Json,
}

/// Log lines that may still wait to be written. Dropping it waits for them, for at most a second.
#[must_use]
pub struct Log(Arc<Lines>);

impl Drop for Log {
    fn drop(&mut self) {
        self.0.finish();
    }
}

/// Starts logging whatever passes `filter` (a level, or a list such as `info,plimsoll::store=debug`). A second call
/// changes nothing. Lines are dropped while standard error is not read; their number is logged when it is read again.
///
/// # Errors
/// Returns an error if the writing thread cannot be started.
pub fn start(filter: &str, format: Format) -> io::Result<Log> {
    let filter = filter.parse().unwrap_or_else(|_| Targets::new().with_default(LevelFilter::INFO));
    let lost = match format {
        Format::Text => |lost| format!("WARN standard error was not read: {lost} log lines are lost\n"),
        Format::Json => |lost| {
            let message = "standard error was not read: log lines are lost";
            format!("{{\"level\":\"WARN\",\"fields\":{{\"message\":\"{message}\",\"lines\":{lost}}}}}\n")
        },
    };
    let written = Arc::new(Lines::to(io::stderr(), lost)?);
    let lines = tracing_subscriber::fmt::layer().with_writer(Arc::clone(&written)).with_target(false);
    let registry = tracing_subscriber::registry().with(filter);
    let _ = match format {
        Format::Text => registry.with(lines).try_init(),
        Format::Json => registry.with(lines.json()).try_init(),
    };
    Ok(Log(written))
}
