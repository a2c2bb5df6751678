//! Charges besides tokens, for what a provider itself does for an answer, such as a search.
//!
//! Answers show that something was done, but not what it costs: providers give some of it away, and charge by the
//! query, by the call or by the time. The books name such a charge, and never guess its amount.

use serde::{Deserialize, Serialize};

/// What is charged for and has no known price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Charge {
    /// Answers that the provider based on a search of its own (Gemini).
    Grounding,
    /// Searches whose number is not stated.
    WebSearch,
    /// Searches in stored files.
    FileSearch,
    /// Code that the provider ran.
    CodeExecution,
    /// Images that were made by a tool.
    ImageGeneration,
    /// Tools of the provider that the answer does not tell apart.
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
