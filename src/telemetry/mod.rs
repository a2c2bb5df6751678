//! What the gateway says about itself, on standard error. Never bodies, never credentials.

use std::io;

use tracing_subscriber::EnvFilter;

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
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_target(false);
    let _ = match format {
        Format::Text => builder.try_init(),
        Format::Json => builder.json().try_init(),
    };
}
