//! Summaries: which part of a history one may replace, the prompt for its writer, and what is accepted from the answer.
//!
//! Pure: a model writes the summary, elsewhere. What comes back is untrusted data: it is parsed, judged and measured
//! here before it may replace anything, and the user's words are carried over verbatim from the history itself. Nothing
//! here sends, stores or decides when.

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
pub use cut::{CutPoint, Demand};
pub use outline::{Outline, Section, Useless};
pub use settings::{Settings, Template};
pub use split::Split;

#[cfg(test)]
mod tests;
