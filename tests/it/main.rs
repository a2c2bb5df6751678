//! Integration tests: one binary, loopback only.

mod cli;
mod config;
