//! Shapers: what a newborn tool result is shortened to.
//!
//! Each shaper is one file and a pure function of the text. [`shape`] runs them in a fixed order. Nothing here
//! knows a protocol, a store or a clock; the same input and settings always give the same output, the output
//! is shorter, and it is left alone when it comes back.

mod base64;
mod command;
mod escapes;
mod estimate;
mod fold;
mod marker;
mod minify;
mod repeat;
mod rules;
pub mod settings;
mod view;

pub use repeat::pointer;
pub use rules::{Rule, Rules};
pub use settings::Settings;
pub use view::is_view;
