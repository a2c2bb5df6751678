//! What the gateway says about itself, on standard error. Never bodies, never credentials.

use std::io;

use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};

/// Starts logging as configured. A second call changes nothing.
pub fn start(log: &Log) {
    let filter = EnvFilter::try_new(&log.level).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_target(false);
    let _ = match log.format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}
