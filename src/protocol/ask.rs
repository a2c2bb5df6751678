//! Questions of the gateway's own: one text, answered by one text.
//!
//! Plain and alike in every dialect: no tools, no stream, no settings that some model refuses. An answer counts
//! only when it came to its natural end.

use std::borrow::Cow;

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

/// A path with another model in the place of the one that it names, which is a part of that very text: others in it may
/// have the same name, or one that begins so.
pub(super) fn with_model(path: &str, named: Option<&str>, model: &str) -> String {
    let around = named.and_then(|named| {
        let start = named.as_ptr().addr().checked_sub(path.as_ptr().addr())?;
        let end = start.checked_add(named.len())?;
        Some((path.get(..start)?, path.get(end..)?))
    });
    // A name that has segments of its own stands as one in the path, where that one did.
    let is_one = named.is_some_and(|named| named.to_ascii_uppercase().contains("%2F"));
    let model = if is_one { Cow::Owned(model.replace('/', "%2F")) } else { Cow::Borrowed(model) };
    around.map_or_else(|| path.to_owned(), |(before, behind)| [before, &*model, behind].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol;

    #[test]
    fn nothing_but_the_model_is_another() {
        const LAB: &str = "/v1/projects/claude-x-lab/publishers/anthropic/models";
        const SAME: &str = "/claude-x/publishers/claude-x/models";
        for (dialect, like, expected) in [
            ("anthropic", format!("{LAB}/claude-x:streamRawPredict"), format!("{LAB}/another:rawPredict")),
            (
                "anthropic",
                format!("{SAME}/claude-x:rawPredict?models/claude-x:a"),
                format!("{SAME}/another:rawPredict?models/claude-x:a"),
            ),
            ("anthropic", "/claude/model/claude/invoke".into(), "/claude/model/another/invoke".into()),
            ("anthropic", "/invoke/model/invoke/invoke".into(), "/invoke/model/another/invoke".into()),
            ("anthropic", "/v1/messages/another".into(), "/v1/messages/another".into()),
            ("gemini", "/g/models/g:generateContent".into(), "/g/models/another:generateContent".into()),
            ("gemini", "/another/models/g-1:x".into(), "/another/models/another:x".into()),
        ] {
            let protocol = protocol::named(dialect).unwrap();
            let asked = protocol.ask(&Ask { model: "another", text: "x", max_tokens: 9, like: Some(&like) });
            assert_eq!(asked.path, expected);
        }
    }
}
