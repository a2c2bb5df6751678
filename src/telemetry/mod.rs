//! What the gateway says about itself, on standard error. Never bodies, never credentials.

use std::io;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

/// How lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text,
    /// A JSON object a line.
    Json,
}

/// Starts logging what passes `filter` (a level, or a list such as `info,plimsoll::store=debug`). A second call
/// changes nothing.
pub fn start(filter: &str, format: Format) {
    let filter = filter.parse().unwrap_or_else(|_| Targets::new().with_default(LevelFilter::INFO));
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_target(false);
    let registry = tracing_subscriber::registry().with(filter);
    let _ = match format {
        Format::Text => registry.with(lines).try_init(),
        Format::Json => registry.with(lines.json()).try_init(),
    };
}
