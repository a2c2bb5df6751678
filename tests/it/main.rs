//! Integration tests: one binary, loopback only.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod admin;
mod books;
mod bound;
mod budget;
mod checkpoints;
mod cli;
mod config;
mod continued;
mod endless;
mod envelope;
mod fuzz;
mod gateway;
mod hosted;
mod inspected;
mod judged;
mod loops;
mod marks;
mod mechanisms;
mod observed;
mod outputs;
mod pages;
mod presets;
mod prices;
mod proxy;
mod readme;
mod recovery;
mod redirects;
mod replay;
mod source;
mod split;
mod support;
mod tidy;
mod told;
mod unwritable;
mod wrapped;
