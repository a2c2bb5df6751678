//! Errors: reading the provider's, writing our own.

use crate::json::string;
use crate::protocol::answer::{Fault, Refused};
use crate::protocol::content::leading_number;

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
pub(super) fn refused(status: u16, body: &[u8]) -> Refused {
    let text = String::from_utf8_lossy(body);
    if status != 400 {
        return Refused::Other;
    }
    if let Some((_, rest)) = text.split_once("prompt is too long") {
        return Refused::Overflow {
            limit: rest.split_once('>').and_then(|(_, limit)| leading_number(limit)),
        };
    }
    let worded =
        ["input length and `max_tokens` exceed context limit", "Input is too long for requested model"];
    if worded.iter().any(|words| text.contains(words)) {
        Refused::Overflow { limit: None }
    } else {
        Refused::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overflow_is_told_from_other_refusals() {
        let wrap = |message: &str| format!(r#"{{"type":"error","error":{{"message":"{message}"}}}}"#);
        for (status, message, expected) in [
            (
                400,
                "prompt is too long: 210000 tokens > 200000 maximum",
                Refused::Overflow { limit: Some(200_000) },
            ),
            (400, "prompt is too long", Refused::Overflow { limit: None }),
            (400, "Input is too long for requested model.", Refused::Overflow { limit: None }),
            (400, "max_tokens: 5 > 4, which is the maximum", Refused::Other),
            (429, "prompt is too long: 2 tokens > 1 maximum", Refused::Other),
        ] {
            assert_eq!(refused(status, wrap(message).as_bytes()), expected, "{message}");
        }
    }
}
