//! Requests that the gateway itself makes, to have summaries written or judged: one text in, one text out.
//!
//! In every dialect they are simple: no tools, no stream, no settings that some models refuse. An answer counts only if
//! it ended naturally.

use std::borrow::Cow;

use serde_json::Value;

/// A request that the gateway itself makes.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// The model.
    pub model: &'a str,
    /// The prompt.
    pub text: &'a str,
    /// The limit for the answer in tokens; ignored in dialects whose servers disagree about its name.
    pub max_tokens: u64,
    /// Path and query of a client's request to the same server, to be imitated; `None` for the provider's usual path.
    pub like: Option<&'a str>,
}

/// A request of the gateway's own in wire form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Path and query.
    pub path: String,
    /// The JSON body.
    pub body: String,
    /// Headers that the server requires: their names in lower case, with the values to use if no others are set.
    pub headers: &'static [(&'static str, &'static str)],
}

/// Concatenates the texts of blocks; `None` if there are none.
pub(super) fn joined<'v>(texts: impl Iterator<Item = &'v Value>) -> Option<String> {
    let text: String = texts.filter_map(Value::as_str).collect();
    (!text.trim().is_empty()).then_some(text)
}

/// The items of the array in a member of a value; none if the member is no array.
pub(super) fn items<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Replaces the model in a path. `named` must be a slice of `path` itself: other segments may have the same name, or
/// one that begins with it.
pub(super) fn with_model(path: &str, named: Option<&str>, model: &str) -> String {
    let around = named.and_then(|named| {
        let start = named.as_ptr().addr().checked_sub(path.as_ptr().addr())?;
        let end = start.checked_add(named.len())?;
        Some((path.get(..start)?, path.get(end..)?))
    });
    // A name with slashes is escaped, so that it is one segment of the path, if the old one was.
    let is_escaped = named.is_some_and(|named| named.to_ascii_uppercase().contains("%2F"));
    let model = if is_escaped { Cow::Owned(model.replace('/', "%2F")) } else { Cow::Borrowed(model) };
    around.map_or_else(|| path.to_owned(), |(before, after)| [before, &*model, after].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol;

    #[test]
    fn only_the_model_in_a_path_is_replaced() {
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
