//! Integration tests: one binary, loopback only.
