//! Integration tests: one binary, loopback only.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod admin;
mod books;
mod bound_reasoning;
mod budget;
mod cache_marks;
mod checkpoints;
mod cli;
mod compactions;
mod config;
#[cfg(target_os = "linux")]
mod descriptors;
mod endless_conversations;
mod envelope;
mod fuzz;
mod gateway;
mod held_history;
mod hosted_tools;
mod inspect;
mod judge;
mod logging;
mod mechanisms;
mod observe;
mod origins;
mod outputs;
mod overflow;
mod presets;
mod prices;
mod proxy;
mod readme;
mod redirects;
mod replay;
mod routing_loops;
mod run;
mod source;
mod support;
mod system_split;
mod tidy;
mod unwritable_store;
