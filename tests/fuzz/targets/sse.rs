//! Event streams: where a stream is split makes no difference.

#![no_main]

#[path = "../judges/sse.rs"]
mod judge;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| judge::check(bytes));
