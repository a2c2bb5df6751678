//! Plimsoll: a sidecar gateway for LLM agents.
//!
//! An agent's base URL points at it. It reads each chat-completion request, rewrites the message array so
//! that less is paid for and nothing overflows, forwards it, streams the answer back untouched, and keeps an
//! exact account of tokens and money per conversation.
//!
//! # The central rule
//!
//! An old part is sent as its stored decision says, else untouched. A newborn part is decided once, stored,
//! then sent. Old parts get new decisions only in a planned, priced, recorded event.
//!
//! # Layers
//!
//! The core is pure: bytes in, values out; no IO, clock, environment, logging or async. It asks (which
//! decisions are stored?), the shell fetches, then calls again.
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
//! The shell: [`server`] and [`upstream`] move bytes; [`url`] says what parts of URLs mean; [`lineage`] finds the thread
//! that a request continues; [`store`] keeps decisions; [`summarizer`] has summaries written in the background; [`ledger`]
//! keeps the books; [`config`] reads `gateway.toml`; [`admin`], [`telemetry`] and [`cli`] are the faces, of which the first
//! and the last show the same books; [`app`] puts them together.
//!
//! # The way of a request
//!
//! 1. [`server`] takes it, finds its upstream and its protocol by the path ([`app`]), and collects the body up to a
//!    limit. What is of no known kind, or too long, streams through unread.
//! 2. [`protocol`] indexes the body: a [`conversation::Conversation`] of messages and parts, each a span of the bytes. A
//!    request that stands in another body is taken out of it, and put back before it leaves.
//! 3. [`lineage`] finds the thread that it continues, and what was decided in it, in [`store`].
//! 4. [`planner`] applies that, has [`shape`] shorten what is new, and asks [`strategy`] whether an event is due. What
//!    comes of it is a [`plan::Plan`]. Where the gateway only observes, the same is done beside what is stored, in memory
//!    alone, and the request leaves as before.
//! 5. New decisions and full texts are stored; a request whose time is up leaves without them, and they are taken out again.
//!    Only then is the plan lowered to edits of the bytes ([`protocol`], [`json`]), and the result read again and compared;
//!    where that fails, the original goes.
//! 6. [`upstream`] sends it; the answer streams back while a copy of it is read for its usage ([`sse`], [`protocol`]).
//!    A refusal for the prompt's length makes room and sends it again.
//! 7. [`ledger`] books it, off the request's path: with its cost, and what it would have cost untouched ([`usage`]).
//!    Where the window is filling up, [`summarizer`] begins a summary.
//!
//! # Invariants
//!
//! - Nothing is ever serialised from a [`conversation::Conversation`]: output is edits over the original bytes.
//! - No plan, same bytes: what is not edited goes upstream as the very same buffer.
//! - Protocols know bytes, shapers know text, neither imports the other.
//! - Whatever cannot be read or verified passes through; a panic or a store error sends the original.
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
