//! Integration tests: one binary, loopback only.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod admin;
mod books;
mod bound_reasoning;
mod budget;
mod checkpoints;
mod cli;
mod config;
mod held_history;
mod endless_conversations;
mod envelope;
mod fuzz;
mod gateway;
mod hosted_tools;
mod inspect;
mod judge;
mod routing_loops;
mod cache_marks;
mod mechanisms;
mod observe;
mod outputs;
mod origins;
mod presets;
mod prices;
mod proxy;
mod readme;
mod overflow;
mod redirects;
mod replay;
mod source;
mod system_split;
mod support;
mod tidy;
mod logging;
mod unwritable_store;
mod run;
