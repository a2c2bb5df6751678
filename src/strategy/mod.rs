//! What may be done with old parts, and when it pays.
//!
//! [`clear`] says which old tool results may be cleared and in what order; [`compaction`], what clients do of the kind
//! themselves; [`doom`], whether they repeat themselves; [`estimate`], how they estimate tokens; [`gate`], whether an
//! event is due and how deep it cuts; [`ladder`], what else makes room; [`lines`], whether one text is contained in
//! another; [`marks`], where the prompt is marked for the provider's cache; [`findings`], what was found in that cache;
//! [`window`], how full the model's window is; [`system`], where instructions stop being the same; [`summary`], which
//! messages a summary may replace, and whether a text is one. All of it is arithmetic on a [`History`], on the index of
//! a request, or on texts: nothing here knows a wire format, reads a clock (the caller passes the time), or changes a
//! request.

pub mod clear;
pub mod compaction;
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

pub use history::{Action, Class, History, Item, View};
pub use lines::Lines;
