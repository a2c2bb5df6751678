//! What the dialect of Responses is known by.

use crate::protocol::Cause;
use crate::protocol::Purpose::{Compact, Count, Generate};
use crate::protocol::dialect::{Dialect, Path, Place, Server};
use crate::protocol::openai;

pub(super) static DIALECT: Dialect = Dialect {
    name: "openai-responses",
    list: "input",
    paths: &[
        Path::new("/responses", Generate),
        Path::new("/responses/compact", Compact),
        Path::new("/responses/input_tokens", Count),
    ],
    places: &[Place { start: "/v1/responses", server: None }],
    segments: &["backend-api", "responses"],
    signs: &[],
    credentials: &["chatgpt-account-id"],
    cuts: &[("max_output_tokens", Cause::Length)],
    servers: &[
        openai::SERVER,
        // Codex with a login of ChatGPT.
        Server {
            name: "chatgpt",
            base_url: "https://chatgpt.com/backend-api/codex",
            rank: 2,
            variables: &[],
        },
    ],
    keyed: openai::KEYED,
};
