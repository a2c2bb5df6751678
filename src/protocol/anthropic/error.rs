//! Errors that the gateway itself reports.

use crate::json::string;
use crate::protocol::answer::Fault;

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
