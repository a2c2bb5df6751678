//! Shapers: what a newborn tool result is shortened to.
//!
//! Each shaper is one file and a pure function of the text. [`shape`] runs them in a fixed order. Nothing here
//! knows a protocol, a store or a clock; the same input and settings always give the same output.

pub mod settings;

pub use settings::Settings;
