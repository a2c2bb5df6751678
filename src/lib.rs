//! Plimsoll: a sidecar gateway for LLM agents.
//!
//! An agent's base URL points at it. It reads each request to a model, edits the list of messages so that less is
//! paid for and nothing overflows, forwards it, streams the answer back untouched, and keeps an exact account of
//! tokens and money per conversation.
//!
//! # The central rule
//!
//! An old part, which an earlier request carried, is sent as its stored decision says, else untouched. A newborn part
//! is decided once, stored, then sent. Old parts get new decisions only in a planned, priced, recorded event.
//!
//! # Words
//!
//! | word | meaning |
//! |---|---|
//! | message, part | an element of the history; a text, call, result, reasoning, media or another block in it |
//! | newborn, old | a part that is first seen in this request; one that an earlier request carried upstream |
//! | decision | "this part is sent as that": made once, stored, replaced only by an event ([`planner::Applied`]) |
//! | event | a planned change to old parts, the only thing that may break a cached prefix (not an event of a stream) |
//! | gate | what an event must pass: a reason, and for most of them that it pays ([`strategy::gate`]) |
//! | rung | how an event made room in the window, as the books name it ([`strategy::ladder::Rung`]) |
//! | splice | a note or a summary that replaces a range of messages ([`planner::Splice`]) |
//! | chain | the hash of a history up to a message: it identifies what was sent before ([`conversation::Chain`]) |
//! | thread | a growing list of messages; a fork, a sub-agent or the client's own compaction begins a new one |
//! | place | where a request belongs: its thread, how it continues it, what was decided there ([`lineage::Place`]) |
//! | standing | what a thread's past requests tell the planner ([`planner::Standing`]) |
//! | frame | what a prompt begins with, before its messages: tools and instructions ([`strategy::system::Frame`]) |
//! | prelude | what the provider's entries of messages depend on: the frame, and more ([`conversation::Prelude`]) |
//! | opening | the text of a checkpoint that a conversation begins with ([`planner`]) |
//! | mark | a cache breakpoint: the provider keeps the prompt up to it ([`strategy::marks`]) |
//! | stake | what marks have cost a thread so far, less what they have saved it ([`strategy::marks::Stake`]) |
//! | own call | a request that the gateway itself makes, for a summary for instance |
//!
//! # Layers
//!
//! The core is pure: bytes in, values out; no IO, clock, environment, logging or async. It asks (which decisions are
//! stored?), the shell fetches the answer, then calls again.
//!
//! | module | what it holds | may use |
//! |---|---|---|
//! | [`json`] | spans and splices over raw JSON | nothing of ours |
//! | [`sse`] | incremental framing of event streams | nothing of ours |
//! | [`usage`] | token figures, prices, money | nothing of ours |
//! | [`conversation`] | the neutral, read-only index of a request | `json` |
//! | [`plan`] | operations on it, their checks, their reference meaning | `conversation`, `json` |
//! | [`shape`] | shortening of newborn tool results, one file per shaper | `conversation`, `plan` |
//! | [`strategy`] | what may be done with old parts, and when it pays | `conversation`, `plan` |
//! | [`protocol`] | one folder per wire dialect: bytes to index, plan to edits | `json`, `conversation`, `plan`, `sse`, `usage` |
//! | [`planner`] | stored decisions, shapers and events to a plan | all above |
//!
//! The shell: [`server`] and [`upstream`] move bytes; [`url`] interprets URLs; [`lineage`] finds the thread that a
//! request continues; [`store`] keeps decisions; [`summarizer`] has summaries written in the background; [`ledger`]
//! keeps the books; [`config`] reads `gateway.toml`; [`admin`], [`cli`] and [`telemetry`] are the faces, of which the
//! first two show the same books. [`app`] runs a request through all of them, and holds what the gateway learns from
//! one request for the next: how long prompts turn out to be, which windows and caches providers have, which edits
//! they refuse, what budgets have left.
//!
//! # The way of a request
//!
//! 1. [`server`] accepts it, has [`app`] find its upstream and its protocol by the path, and collects the body up to
//!    a limit. What is of no known kind, or too long, streams through unread.
//! 2. [`protocol`] indexes the body: a [`conversation::Conversation`] of messages and parts, each a span of the
//!    bytes. A request in an envelope is taken out of it, and put back before it leaves.
//! 3. [`lineage`] finds the thread that it continues, and looks up in [`store`] what was decided in it.
//! 4. [`planner`] applies those decisions, has [`shape`] shorten what is new, and asks [`strategy`] whether an event
//!    is due. The result is a [`plan::Plan`]. An observing gateway does the same with decisions that it keeps in
//!    memory alone, and sends the request as it came.
//! 5. The plan is lowered to edits of the bytes ([`protocol`], [`json`]), and the result read again and compared with
//!    the plan; on any difference nothing new is decided, and the request leaves with what was decided before. Only
//!    then are new decisions and full texts stored, before the request leaves. One whose time is up leaves without
//!    them, and they are removed again.
//! 6. [`upstream`] sends it. The answer streams back, while a copy of it is read for its usage ([`sse`],
//!    [`protocol`]). If the provider refuses the prompt as too long, room is made and the request sent again.
//! 7. [`ledger`] books it, off the request's path: with its cost, and with what it would have cost untouched
//!    ([`usage`]). If the window is filling up, [`summarizer`] begins a summary.
//!
//! # Invariants
//!
//! - Nothing is ever serialised from a [`conversation::Conversation`]: output is edits over the original bytes.
//! - No plan, same bytes: an unedited request goes upstream as the very same buffer.
//! - Protocols know bytes, shapers know text, and neither imports the other.
//! - Whatever cannot be read or verified passes through; after a panic or a store error the original is sent.
//! - Observers of a response cannot break it: they see a copy after it was forwarded.
//!
//! `tests/it/tidy.rs` enforces the table.

pub mod admin;
pub mod app;
pub mod cli;
pub mod config;
pub mod conversation;
pub mod json;
pub mod ledger;
pub mod lineage;
pub mod plan;
pub mod planner;
pub mod protocol;
pub mod server;
pub mod shape;
pub mod sse;
pub mod store;
pub mod strategy;
pub mod summarizer;
pub mod telemetry;
pub mod upstream;
pub mod url;
pub mod usage;
