//! What the OpenAI dialects share: the form of errors, the keys and lifetimes of the provider's cache, charges for its
//! tools.

use memchr::memmem;

use super::answer::{AtFault, Fault};
use super::body::Object;
use super::dialect::Server;
use super::pruned::Value;
use crate::json::{Edit, string};
use crate::usage::Charge;

/// The provider's own server, at which both dialects are spoken.
pub(super) const SERVER: Server = Server {
    name: "openai",
    base_url: "https://api.openai.com",
    rank: 0,
    variables: &[("OPENAI_BASE_URL", "/v1"), ("OPENAI_API_BASE", "/v1"), ("OPENAI_HOST", "")],
};

/// Hosts that are known to accept a cache key.
pub(super) const KEYED: &[&str] = &["api.openai.com"];

/// The edit that adds a cache key; `None` if the request has one.
pub(super) fn add_cache_key(frame: &Object<'_>, list: &str, key: &str) -> Option<Edit> {
    const NAME: &str = "prompt_cache_key";
    if frame.get(list).is_none() || frame.get(NAME).is_some() {
        return None;
    }
    Some(frame.append(&format!(r#""{NAME}":{}"#, string::encode(key))))
}

/// The names that xAI has for its counts of calls by tool, and for their sum.
const BY_TOOL: [&str; 2] = ["server_side_tool_usage_details", "server_side_tool_usage"];
const TOOLS_USED: &str = "num_server_side_tools_used";

/// Charges for tools that the provider ran, according to the figures. Tools on other servers (MCP) are not charged for.
pub(super) fn unpriced(figures: &Value<'_>) -> Vec<Charge> {
    let any = |key| figures.get(key).is_some_and(is_some);
    let has_run = match BY_TOOL.into_iter().find_map(|key| figures.get(key).filter(|tools| tools.is_object()))
    {
        Some(tools) => tools.names().any(|tool| tools.get(tool).is_some_and(is_some) && !is_mcp(tool)),
        None => any(TOOLS_USED),
    };
    let shown = [(has_run, Charge::ServerTools), (any("num_sources_used"), Charge::WebSearch)];
    shown.into_iter().filter_map(|(is_shown, charge)| is_shown.then_some(charge)).collect()
}

/// Whether the provider ran tools, on whatever server, according to the figures of xAI or OpenRouter: these are then a
/// sum over several calls of the model.
pub(super) fn has_run_tools(figures: &Value<'_>) -> bool {
    let counts = BY_TOOL.iter().chain(&["server_tool_use", "server_tool_use_details"]);
    let mut counts = counts.filter_map(|key| figures.get(key));
    figures.get(TOOLS_USED).is_some_and(is_some)
        || counts.any(|tools| tools.names().any(|tool| tools.get(tool).is_some_and(is_some)))
}

/// Whether a figure counts anything.
fn is_some(calls: &Value<'_>) -> bool {
    calls.as_f64().is_some_and(|calls| calls > 0.0)
}

/// Whether a tool is on an MCP server that the caller has named.
pub(super) fn is_mcp(tool: &str) -> bool {
    memmem::find(tool.to_ascii_lowercase().as_bytes(), b"mcp").is_some()
}

/// How long a request asks for its prompt to be kept in the cache, in milliseconds: by `"ttl": "12h"`, or by the older
/// `"24h"`.
pub(super) fn requested_ttl_ms(frame: &Object<'_>) -> Option<u64> {
    let stated = frame.inner_text("prompt_cache_options", "ttl").ok().flatten();
    let stated = stated.or_else(|| frame.text("prompt_cache_retention"))?;
    let (number, unit) = stated.split_at_checked(stated.len().checked_sub(1)?)?;
    let minutes = match unit {
        "m" => 1,
        "h" => 60,
        "d" => 24 * 60,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(minutes * 60_000)
}

/// The JSON body of an error that the gateway itself reports.
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::json::Edits;

    #[test]
    fn a_cache_key_is_added_if_absent() {
        for (body, expected) in [
            (r#"{"input":"x"}"#, Some(r#"{"input":"x","prompt_cache_key":"k\"1"}"#)),
            ("{\"input\":[] }\n", Some("{\"input\":[] ,\"prompt_cache_key\":\"k\\\"1\"}\n")),
            (r#"{"input":"x","prompt_cache_key":"own"}"#, None),
            (r#"{"input":"x","prompt_cache_key":null}"#, None),
            (r#"{"messages":[]}"#, None),
            (r#"{"input":"x","input":"y"}"#, None),
            ("[]", None),
        ] {
            let document = crate::protocol::Document::outermost(&Bytes::from(body), "input");
            let edit = document.ok().and_then(|it| add_cache_key(&it.object(), "input", "k\"1"));
            let found = edit.map(|edit| Edits::new(vec![edit]).unwrap().apply(body.as_bytes()));
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{body}");
        }
    }
}
