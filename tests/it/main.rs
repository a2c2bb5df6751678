//! Integration tests: one binary, loopback only.

mod cli;
mod config;
mod gateway;
mod source;
mod support;
mod tidy;
