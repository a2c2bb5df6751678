//! The table of Anthropic's dialect.

use super::index::MARKS;
use crate::protocol::Cause;
use crate::protocol::Purpose::{Count, Generate};
use crate::protocol::dialect::{Dialect, Path, Server, Sign, SignKind};
use crate::protocol::prelude::Bind;
use crate::protocol::prompt::Layout;
use crate::protocol::valid::{Blanks, Results, Rules};

pub(super) static DIALECT: Dialect = Dialect {
    name: "anthropic",
    list: "messages",
    paths: &[
        Path::new("/v1/messages", Generate),
        Path::new("/v1/messages/count_tokens", Count),
        // As resellers offer it.
        Path::new("/count-tokens:rawPredict", Count).within("/models/"),
        Path::new(":rawPredict", Generate).within("/publishers/anthropic/models/"),
        Path::new(":streamRawPredict", Generate).within("/publishers/anthropic/models/"),
        Path::new("/invoke", Generate).within("/model/"),
        Path::new("/invoke-with-response-stream", Generate).within("/model/"),
    ],
    prefixes: &[],
    later: &[],
    segments: &["api", "messages", "model", "models"],
    signs: &[
        Sign { kind: SignKind::Login, header: "authorization", begins: "Bearer sk-ant-" },
        Sign { kind: SignKind::Program, header: "user-agent", begins: "claude-cli/" },
        Sign { kind: SignKind::Program, header: "user-agent", begins: "claude-code/" },
        Sign { kind: SignKind::Own, header: "anthropic-version", begins: "" },
        Sign { kind: SignKind::Own, header: "x-api-key", begins: "" },
    ],
    credentials: &["x-api-key"],
    cuts: &[("max_tokens", Cause::Length), ("model_context_window_exceeded", Cause::Window)],
    servers: &[Server {
        name: "anthropic",
        base_url: "https://api.anthropic.com",
        rank: 0,
        variables: &[("ANTHROPIC_BASE_URL", ""), ("ANTHROPIC_API_BASE", ""), ("ANTHROPIC_HOST", "")],
    }],
    keyed: &[],
    layout: Layout {
        before: &["tools", "system"],
        binds: &[
            Bind::messages("tool_choice"),
            Bind::messages("thinking"),
            Bind::messages("output_config"),
            Bind::system("speed"),
        ],
        names: &[],
        names_caches: false,
        marks: MARKS,
        sealed: true,
        keeps_users: false,
    },
    rules: Rules {
        begins_with_user: true,
        ends_with_client: true,
        results: Results::First,
        unique_ids: true,
        blanks: Blanks::All,
        instructions_before_answers: true,
        reasoning_apart: true,
        reasoning_followed: false,
    },
};
