//! Errors that the gateway itself reports.

use crate::json::string;
use crate::protocol::answer::Fault;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::AtFault;

    #[test]
    fn faults_have_the_shape_of_the_providers_errors() {
        let fault = Fault { status: 502, at_fault: AtFault::Upstream, message: "no \"answer\"" };
        let expected = r#"{"error":{"code":502,"message":"no \"answer\"","status":"UNAVAILABLE"}}"#;
        assert_eq!(body(&fault), expected);
    }
}
