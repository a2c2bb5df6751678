//! What the OpenAI dialects share: the shape of errors.
//!
//! Many servers speak these dialects, each with sentences of its own; only those that certainly mean a prompt
//! that is too long are taken for it.

use super::answer::{AtFault, Fault, Refused};
use super::content::leading_number;
use crate::json::string;

pub(super) fn fault(fault: &Fault<'_>) -> String {
    let (kind, code) = match (fault.status, fault.at_fault) {
        (401, _) => ("invalid_request_error", "invalid_api_key"),
        (402, _) => ("insufficient_quota", "insufficient_quota"),
        (404, _) => ("invalid_request_error", "not_found"),
        (413, _) => ("invalid_request_error", "request_too_large"),
        (429, _) => ("rate_limit_error", "rate_limit_exceeded"),
        (_, AtFault::Client) => ("invalid_request_error", "bad_request"),
        (504, _) => ("server_error", "upstream_timeout"),
        (_, AtFault::Upstream) => ("server_error", "upstream_error"),
        (_, AtFault::Gateway) => ("server_error", "gateway_error"),
    };
    format!(
        r#"{{"error":{{"message":{},"type":"{kind}","param":null,"code":"{code}"}}}}"#,
        string::encode(fault.message)
    )
}

/// What means that the prompt is too long: the code where there is one, else the sentence.
const OVERFLOW: &[&str] = &[
    "\"context_length_exceeded\"",
    "\"exceed_context_size_error\"",
    "maximum context length is",
    "exceeds the context window of this model",
];

/// What a refusal is about.
pub(super) fn refused(status: u16, body: &[u8]) -> Refused {
    let text = String::from_utf8_lossy(body);
    if status != 400 || !OVERFLOW.iter().any(|words| text.contains(words)) {
        return Refused::Other;
    }
    let limit = ["maximum context length is ", "available context size (", "\"n_ctx\":"];
    let limit =
        limit.iter().find_map(|words| text.split_once(words).and_then(|(_, rest)| leading_number(rest)));
    Refused::Overflow { limit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overflow_is_told_from_other_refusals() {
        for (status, body, expected) in [
            (
                400,
                r#"{"error":{"message":"This model's maximum context length is 128000 tokens. However, …","code":"context_length_exceeded"}}"#,
                Refused::Overflow { limit: Some(128_000) },
            ),
            (
                400,
                r#"{"error":{"code":400,"type":"exceed_context_size_error","message":"request (4476 tokens) exceeds the available context size (4096 tokens)","n_ctx":4096}}"#,
                Refused::Overflow { limit: Some(4096) },
            ),
            (400, r#"{"error":{"code":"context_length_exceeded"}}"#, Refused::Overflow { limit: None }),
            (
                400,
                r#"{"error":{"message":"Your input exceeds the context window of this model. Please adjust your input and try again.","param":"input"}}"#,
                Refused::Overflow { limit: None },
            ),
            (400, r#"{"error":{"message":"max_tokens is too large","code":null}}"#, Refused::Other),
            (429, r#"{"error":{"message":"tokens per min","code":"rate_limit_exceeded"}}"#, Refused::Other),
        ] {
            assert_eq!(refused(status, body.as_bytes()), expected, "{body}");
        }
    }
}
