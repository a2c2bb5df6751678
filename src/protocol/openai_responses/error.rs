//! Errors of the provider: of an answer with a bad status, and of a stream that began well.

use crate::protocol::answer::Refused;
use crate::protocol::openai;

/// A stream begins with a good status; what is wrong with the prompt is then said in a `response.failed` event.
pub(super) fn refused(status: u16, body: &[u8]) -> Refused {
    openai::refused(status, body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overflow_is_told_from_other_refusals() {
        let failed = r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"context_length_exceeded","message":"Your input exceeds the context window of this model. Please adjust your input and try again."}}}"#;
        let limited = r#"{"type":"response.failed","response":{"error":{"code":"rate_limit_exceeded","message":"try again in 1.3s"}}}"#;
        let refused_at_once = r#"{"error":{"message":"Your input exceeds the context window of this model. Please adjust your input and try again.","type":"invalid_request_error","param":"input","code":"context_length_exceeded"}}"#;
        let unpaired =
            r#"{"error":{"message":"No tool output found for function call call_1.","code":null}}"#;
        for (status, body, expected) in [
            (
                200,
                &*format!("event: response.failed\ndata: {failed}\n\n"),
                Refused::Overflow { limit: None, prompt: None },
            ),
            (200, &format!("data: {limited}\n\n"), Refused::Other),
            (200, r#"data: {"type":"response.completed","text":"context_length_exceeded"}"#, Refused::Other),
            (400, refused_at_once, Refused::Overflow { limit: None, prompt: None }),
            (400, unpaired, Refused::Other),
            (500, refused_at_once, Refused::Other),
        ] {
            assert_eq!(refused(status, body.as_bytes()), expected, "{body}");
        }
    }
}
