//! Charges beside tokens, for what a provider does on its side of an answer.
//!
//! Answers show that something was done, and not what is taken for it: providers give some of it away, and ask by the
//! query, by the call or by the time. Such a charge is named, and never guessed.

use serde::{Deserialize, Serialize};

/// What is charged for and has no known price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Charge {
    /// Answers that a search of the provider's stands behind (Gemini).
    Grounding,
    /// Searches whose number is not stated.
    WebSearch,
    /// Searches in stored files.
    FileSearch,
    /// Code that the provider ran.
    CodeExecution,
    /// Images that were made by a tool.
    ImageGeneration,
    /// Tools of the provider's that are not told apart.
    ServerTools,
}

impl Charge {
    /// Its name in the books.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Grounding => "grounding",
            Self::WebSearch => "web_search",
            Self::FileSearch => "file_search",
            Self::CodeExecution => "code_execution",
            Self::ImageGeneration => "image_generation",
            Self::ServerTools => "server_tools",
        }
    }
}
