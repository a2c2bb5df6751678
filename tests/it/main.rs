//! Integration tests: one binary, loopback only.

mod proxy;
