//! What may be done with old parts, and when it pays.
//!
//! | module | what it tells |
//! |---|---|
//! | [`clear`] | which old tool results may be cleared, and in what order |
//! | [`compaction`] | whether the client compacts the history itself |
//! | [`debt`] | what marks have cost a sender's threads |
//! | [`doom`] | whether the agent repeats itself |
//! | [`estimate`] | how many tokens known agents estimate a prompt to have |
//! | [`findings`] | what was found in the provider's cache |
//! | [`gate`] | whether an event is due, and how deep it cuts |
//! | [`ladder`] | what else makes room |
//! | [`lines`] | whether one text is contained in another |
//! | [`marks`] | where the prompt is marked for the provider's cache |
//! | [`summary`] | which messages a summary may replace, and whether a text is a summary |
//! | [`system`] | where instructions stop being the same |
//! | [`window`] | how full the model's window is |
//!
//! All of it is arithmetic on a [`History`], on the index of a request, or on texts: nothing here knows a wire format,
//! reads a clock (the caller passes the time), or changes a request.

pub mod clear;
pub mod compaction;
pub mod debt;
pub mod doom;
pub mod estimate;
pub mod findings;
pub mod gate;
pub mod history;
pub mod ladder;
pub mod lines;
pub mod marks;
pub mod summary;
pub mod system;
pub mod window;

pub use history::{Action, Class, History, Item, ToolResult, View};
pub use lines::Lines;
