//! Answers: no input makes reading them fail, and where one is split makes no difference.

#![no_main]

#[path = "../judges/answers.rs"]
mod judge;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| judge::check(bytes));
