//! Integration tests: one binary, loopback only.

mod config;
mod source;
mod tidy;
