//! What may be done with old parts, and when it pays.
//!
//! [`clear`] says which old tool results could go and what goes first; [`compaction`] what clients do of the kind
//! themselves; [`doom`] whether they go round in circles; [`estimate`] how they guess tokens; [`gate`] whether an event is
//! due and how deep it cuts; [`ladder`] what else makes room; [`lines`] whether one text stands in another; [`marks`] where
//! the prompt is marked for the provider's cache; [`findings`] what was there of it; [`window`] how full the model's window
//! is; [`system`] where instructions stop being the same; [`summary`] which messages a summary may stand for, and whether a
//! text is one. All of it is arithmetic on a [`History`], on the index of a request, or on texts: nothing here knows a wire
//! format, asks a clock what time it is (whoever calls says so), or changes a request.

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
