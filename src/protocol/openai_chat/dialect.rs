//! The table of the dialect of Chat Completions.

use super::index::MARKS;
use crate::protocol::Cause;
use crate::protocol::Purpose::{Generate, Other};
use crate::protocol::dialect::{Dialect, Path, Sign, SignKind};
use crate::protocol::openai;
use crate::protocol::prelude::Bind;
use crate::protocol::prompt::Layout;
use crate::protocol::valid::{Blanks, Results, Rules};

pub(super) static DIALECT: Dialect = Dialect {
    name: "openai-chat",
    list: "messages",
    paths: &[
        Path::new("/chat/completions", Generate),
        // Those of texts alone.
        Path::new("/completions", Other),
        Path::new("/embeddings", Other),
    ],
    prefixes: &[],
    later: &[],
    segments: &["chat", "completions", "embeddings", "models"],
    signs: &[
        Sign { kind: SignKind::Common, header: "openai-organization", begins: "" },
        Sign { kind: SignKind::Common, header: "authorization", begins: "" },
    ],
    // Azure's.
    credentials: &["api-key"],
    cuts: &[("length", Cause::Length)],
    servers: &[openai::SERVER],
    keyed: openai::KEYED,
    // The provider's own cache needs no marks; routers pass them on to other providers.
    layout: Layout {
        before: &["tools"],
        binds: &[
            Bind::messages("reasoning_effort"),
            Bind::messages("verbosity"),
            Bind::messages("response_format"),
            Bind::messages("service_tier"),
            // Routers translate these into other requests to Claude's provider, or choose another provider by them.
            Bind::messages("tool_choice").of_marks(),
            Bind::messages("parallel_tool_calls").of_marks(),
            Bind::messages("reasoning").of_marks(),
            Bind::messages("provider").of_marks(),
        ],
        names: &[],
        names_caches: false,
        marks: MARKS,
        sealed: false,
        keeps_users: false,
    },
    rules: Rules {
        begins_with_user: false,
        ends_with_client: false,
        results: Results::First,
        unique_ids: false,
        blanks: Blanks::Blocks,
        instructions_before_answers: false,
        reasoning_apart: false,
        reasoning_followed: false,
    },
};
