//! Errors: reading the provider's, writing our own.

use crate::json::string;
use crate::protocol::answer::{Fault, Refused};
use crate::protocol::refusal::{self, Counts, Wording};

pub(super) fn body(fault: &Fault<'_>) -> String {
    let status = match fault.status {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        402 | 429 => "RESOURCE_EXHAUSTED",
        400..=499 => "INVALID_ARGUMENT",
        502 | 503 => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        _ => "INTERNAL",
    };
    format!(
        r#"{{"error":{{"code":{},"message":{},"status":"{status}"}}}}"#,
        fault.status,
        string::encode(fault.message)
    )
}

/// The sentence tells: the status is the same for all that is wrong with a request.
const OVERFLOW: &[Wording] = &[
    Wording {
        says: "exceeds the maximum number of tokens allowed",
        limit: &["tokens allowed (", "tokens allowed "],
        prompt: &["input token count ("],
        counts: Counts::Request,
    },
    Wording {
        says: "the input token count is",
        limit: &["only supports up to "],
        prompt: &["the input token count is "],
        counts: Counts::Request,
    },
];

pub(super) fn refused(status: u16, body: &[u8]) -> Refused {
    refusal::read(status, body, OVERFLOW)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::AtFault;

    #[test]
    fn overflow_is_told_from_other_refusals() {
        let overflow = |prompt, limit| Refused::Overflow { limit, prompt };
        let wrap = |message: &str| {
            format!(r#"{{"error":{{"code":400,"message":"{message}","status":"INVALID_ARGUMENT"}}}}"#)
        };
        for (status, message, expected) in [
            (
                400,
                "The input token count (1048999) exceeds the maximum number of tokens allowed (1048576).",
                overflow(Some(1_048_999), Some(1_048_576)),
            ),
            (
                400,
                "The input token count exceeds the maximum number of tokens allowed 1048576.",
                overflow(None, Some(1_048_576)),
            ),
            (
                400,
                "Unable to submit request because the input token count is 32821 but model only supports up to 32768. Reduce the input token count and try again.",
                overflow(Some(32_821), Some(32_768)),
            ),
            (400, "Please use a valid role: user, model.", Refused::Other),
            (
                400,
                "Please ensure that function call turn comes immediately after a user turn",
                Refused::Other,
            ),
            (
                429,
                "The input token count (2) exceeds the maximum number of tokens allowed (1).",
                Refused::Other,
            ),
        ] {
            for body in [wrap(message), format!("[{}]", wrap(message))] {
                assert_eq!(refused(status, body.as_bytes()), expected, "{body}");
            }
        }
    }

    #[test]
    fn faults_have_the_shape_of_the_providers_errors() {
        let fault = Fault { status: 502, at_fault: AtFault::Upstream, message: "no \"answer\"" };
        let expected = r#"{"error":{"code":502,"message":"no \"answer\"","status":"UNAVAILABLE"}}"#;
        assert_eq!(body(&fault), expected);
    }
}
