//! Summaries: which part of a history one may stand for, what its writer is told, and what is taken from it.
//!
//! Pure: a summary is written by a model, elsewhere. What comes back is data of doubtful origin: it is parsed,
//! judged and measured here before it may stand for anything, and what the user said is carried word for word
//! from the history itself. Nothing here sends, stores or decides when.

pub mod checkpoint;
pub mod cut;
mod facts;
pub mod fidelity;
pub mod outline;
pub mod probe;
pub mod prompt;
mod settings;
pub mod split;
pub mod text;
pub mod transcript;
pub mod wrapper;

pub use checkpoint::Checkpoint;
pub use cut::{Demand, Place};
pub use fidelity::Fidelity;
pub use outline::{Outline, Section, Useless};
pub use settings::{Settings, Template};
pub use split::Split;

#[cfg(test)]
mod tests;
