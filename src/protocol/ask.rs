//! Questions of the gateway's own: one text, answered by one text.
//!
//! Plain and alike in every dialect: no tools, no stream, no settings that some model refuses. An answer counts
//! only when it came to its natural end.

use serde_json::Value;

/// A question.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// The model.
    pub model: &'a str,
    /// What is asked.
    pub text: &'a str,
    /// The most tokens that the answer may have, where the dialect has one word for it.
    pub max_tokens: u64,
    /// Path and query of a client's request that went to the same place; `None`: the provider's own path.
    pub like: Option<&'a str>,
}

/// A question as it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Path and query.
    pub path: String,
    /// The body, JSON.
    pub body: String,
    /// Headers that the server demands of every call: names in lower case, and what to say where nobody says it.
    pub headers: &'static [(&'static str, &'static str)],
}

/// The texts of blocks, put together; `None` when there is none.
pub(super) fn joined<'v>(texts: impl Iterator<Item = &'v Value>) -> Option<String> {
    let text: String = texts.filter_map(Value::as_str).collect();
    (!text.trim().is_empty()).then_some(text)
}

/// The items at a member of a value.
pub(super) fn items<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// A path with another model in the place of the one that it names.
pub(super) fn with_model(path: &str, named: Option<&str>, model: &str) -> String {
    match named.filter(|named| *named != model) {
        Some(named) => path.replacen(&format!("/{named}"), &format!("/{model}"), 1),
        None => path.to_owned(),
    }
}
