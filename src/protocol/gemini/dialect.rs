//! The table of Gemini's dialect.

use crate::protocol::Cause;
use crate::protocol::Purpose::{Count, Generate};
use crate::protocol::dialect::{Dialect, Path, PathPrefix, Server, Sign, SignKind};
use crate::protocol::prelude::Bind;
use crate::protocol::prompt::Layout;
use crate::protocol::valid::{Blanks, Results, Rules};

pub(super) static DIALECT: Dialect = Dialect {
    name: "gemini",
    list: "contents",
    paths: &[
        Path::new(":generateContent", Generate).within("/models/"),
        Path::new(":streamGenerateContent", Generate).within("/models/"),
        Path::new(":countTokens", Count).within("/models/"),
        // Vertex: models that users have tuned or deployed.
        Path::new(":generateContent", Generate).within("/endpoints/"),
        Path::new(":streamGenerateContent", Generate).within("/endpoints/"),
        Path::new(":countTokens", Count).within("/endpoints/"),
        // Code Assist: Google's own clients with a login.
        Path::new("/v1internal:generateContent", Generate),
        Path::new("/v1internal:streamGenerateContent", Generate),
        Path::new("/v1internal:countTokens", Count),
    ],
    prefixes: &[
        PathPrefix { start: "/v1beta/", server: None },
        PathPrefix { start: "/v1internal", server: Some(CODE_ASSIST.name) },
    ],
    later: &[],
    segments: &["models"],
    signs: &[
        Sign { kind: SignKind::Login, header: "authorization", begins: "Bearer ya29." },
        Sign { kind: SignKind::Own, header: "x-goog-api-key", begins: "" },
    ],
    credentials: &["x-goog-api-key"],
    cuts: &[("MAX_TOKENS", Cause::Length)],
    servers: &[
        Server {
            name: "gemini",
            base_url: "https://generativelanguage.googleapis.com",
            rank: 0,
            variables: &[("GOOGLE_GEMINI_BASE_URL", ""), ("GEMINI_API_BASE", "/v1beta")],
        },
        CODE_ASSIST,
    ],
    keyed: &[],
    layout: Layout {
        before: &["systemInstruction", "system_instruction", "tools"],
        binds: &[],
        names: &[Bind::messages("cachedContent"), Bind::messages("cached_content")],
        names_caches: true,
        marks: &[],
        sealed: false,
        keeps_users: false,
    },
    rules: Rules {
        begins_with_user: true,
        ends_with_client: false,
        results: Results::Together,
        unique_ids: false,
        blanks: Blanks::Blocks,
        instructions_before_answers: false,
        reasoning_apart: false,
        reasoning_followed: false,
    },
};

const CODE_ASSIST: Server = Server {
    name: "code-assist",
    base_url: "https://cloudcode-pa.googleapis.com",
    rank: 1,
    variables: &[("CODE_ASSIST_ENDPOINT", "")],
};
