//! What the dialect of Chat Completions is known by.

use crate::protocol::Cause;
use crate::protocol::Purpose::{Generate, Other};
use crate::protocol::dialect::{Dialect, Path, Sign, SignKind};
use crate::protocol::openai;

pub(super) static DIALECT: Dialect = Dialect {
    name: "openai-chat",
    list: "messages",
    paths: &[
        Path::new("/chat/completions", Generate),
        // Those of texts alone.
        Path::new("/completions", Other),
        Path::new("/embeddings", Other),
    ],
    places: &[],
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
};
