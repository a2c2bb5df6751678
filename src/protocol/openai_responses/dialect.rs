//! The table of the dialect of Responses.

use super::index::MARKS;
use crate::protocol::Cause;
use crate::protocol::Purpose::{Compact, Count, Generate};
use crate::protocol::dialect::{Dialect, Later, Path, PathPrefix, Server};
use crate::protocol::openai;
use crate::protocol::prelude::Bind;
use crate::protocol::prompt::Layout;
use crate::protocol::valid::{Blanks, Results, Rules};

pub(super) static DIALECT: Dialect = Dialect {
    name: "openai-responses",
    list: "input",
    paths: &[
        Path::new("/responses", Generate),
        Path::new("/responses/compact", Compact),
        Path::new("/responses/input_tokens", Count),
    ],
    prefixes: &[PathPrefix { start: "/v1/responses", server: None }],
    later: &[Later { before: "/responses/", behind: "" }, Later { before: "/responses/", behind: "/cancel" }],
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
    layout: Layout {
        before: &["tools", "instructions"],
        binds: &[
            Bind::within("reasoning", "effort"),
            Bind::within("text", "verbosity"),
            Bind::within("text", "format"),
            Bind::messages("service_tier"),
        ],
        names: &[Bind::within("prompt", "id"), Bind::within("prompt", "version")],
        names_caches: false,
        marks: MARKS,
        sealed: true,
        keeps_users: true,
    },
    rules: Rules {
        begins_with_user: false,
        ends_with_client: false,
        results: Results::Later,
        unique_ids: false,
        blanks: Blanks::Blocks,
        instructions_before_answers: false,
        reasoning_apart: false,
        reasoning_followed: true,
    },
};
