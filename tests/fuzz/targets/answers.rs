//! Answers: whatever comes, something is learned of it or nothing, and where it is split makes no difference.

#![no_main]

#[path = "../judges/answers.rs"]
mod judge;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| judge::check(bytes));
