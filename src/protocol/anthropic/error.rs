//! Errors: reading the provider's, writing our own.

use crate::json::string;
use crate::protocol::answer::{Fault, Refused};
use crate::protocol::refusal::{self, Counts, Wording};

pub(super) fn body(fault: &Fault<'_>) -> String {
    let kind = match fault.status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        529 => "overloaded_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    };
    format!(r#"{{"type":"error","error":{{"type":"{kind}","message":{}}}}}"#, string::encode(fault.message))
}

/// `prompt is too long: N tokens > M maximum`, and the wordings of older models and of resellers.
const OVERFLOW: &[Wording] = &[
    Wording {
        says: "prompt is too long",
        limit: &["tokens > ", "token > "],
        prompt: &["prompt is too long: "],
        counts: Counts::Request,
    },
    Wording {
        says: "input length and `max_tokens` exceed context limit",
        limit: &[" > "],
        prompt: &["exceed context limit: "],
        counts: Counts::Prompt,
    },
    Wording {
        says: "Input is too long for requested model",
        limit: &[],
        prompt: &[],
        counts: Counts::Request,
    },
];

pub(super) fn refused(status: u16, body: &[u8]) -> Refused {
    refusal::read(status, body, OVERFLOW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overflow_is_told_from_other_refusals() {
        let overflow = |prompt, limit| Refused::Overflow { limit, prompt };
        let wrap = |message: &str| format!(r#"{{"type":"error","error":{{"message":"{message}"}}}}"#);
        for (status, message, expected) in [
            (
                400,
                "prompt is too long: 210000 tokens > 200000 maximum",
                overflow(Some(210_000), Some(200_000)),
            ),
            (
                400,
                "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length",
                overflow(Some(190_000), Some(200_000)),
            ),
            (
                400,
                "input length and `max_tokens` exceed context limit: 73000 + 128000 > 200000, decrease input length",
                Refused::Answer,
            ),
            (400, "prompt is too long", overflow(None, None)),
            (400, "Input is too long for requested model.", overflow(None, None)),
            (
                400,
                "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation.",
                Refused::Other,
            ),
            (400, "messages: text content blocks must be non-empty", Refused::Other),
            (400, "A maximum of 4 blocks with cache_control may be provided. Found 5.", Refused::Other),
            (400, "You have reached your specified API usage limits", Refused::Other),
            (413, "Request exceeds the maximum size", Refused::Other),
            (400, "max_tokens: 5 > 4, which is the maximum", Refused::Other),
            (429, "prompt is too long: 2 tokens > 1 maximum", Refused::Other),
        ] {
            assert_eq!(refused(status, wrap(message).as_bytes()), expected, "{message}");
        }
    }
}
