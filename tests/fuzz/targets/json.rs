//! Raw JSON: spans, strings and splices agree with `serde_json` wherever both accept a text.

#![no_main]

#[path = "../judges/json.rs"]
mod judge;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| judge::check(bytes));
