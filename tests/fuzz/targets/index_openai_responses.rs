//! Request bodies: whatever can be read can be edited, and the edit is what was planned.

#![no_main]

#[path = "../judges/index.rs"]
mod judge;

libfuzzer_sys::fuzz_target!(|body: &[u8]| judge::check(
    &plimsoll::protocol::openai_responses::OpenAiResponses,
    body
));
