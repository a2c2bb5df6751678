//! Request bodies: whatever is read can be edited, and the edit is what was planned.

#![no_main]

#[path = "index.rs"]
mod index;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| index::check(&plimsoll::protocol::gemini::Gemini, body));
