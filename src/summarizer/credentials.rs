//! Decides which headers of a client's request are reused for the gateway's own calls.
//!
//! Only headers are reused that identify who pays, or that the server needs to accept those; none about a session, a
//! stream or the client program. Credentials that a provider gives to a single program, such as the login of a
//! subscription, are never reused.

use http::{HeaderMap, HeaderName, HeaderValue};

/// The name of a reused header contains one of these words.
const REUSED_WORDS: &[&str] = &["auth", "key", "token", "organization", "project", "version", "tenant"];

/// A header whose name contains one of these words is never reused.
const EXCLUDED_WORDS: &[&str] = &[
    "idempotency",
    "session",
    "websocket",
    "stainless",
    "package",
    "proxy-auth",
    "user-agent",
    "beta",
    "thread",
];

/// Prefixes of tokens that are for certain client programs only: those of Claude's subscription, Copilot, Kimi, and
/// Alibaba's Coding Plan.
const PERSONAL_TOKENS: &[&str] = &["sk-ant-oat", "tid=", "sk-kimi-", "sk-sp-"];

/// Headers that accompany a person's login.
const PERSONAL_HEADERS: &[&str] = &["chatgpt-account-id", "copilot-integration-id"];

/// Domains of servers that are for the programs of a subscription only, whatever their tokens look like.
const PERSONAL_DOMAINS: &[&str] = &["githubcopilot.com", "api.kimi.com"];

/// The headers for calls to `host`; `None` if the client's credentials must not be reused.
pub fn of(headers: &HeaderMap, host: &str) -> Option<HeaderMap> {
    let is_personal = PERSONAL_HEADERS.iter().any(|name| headers.contains_key(*name))
        || PERSONAL_DOMAINS.iter().any(|domain| is_within(host, domain))
        || headers.iter().any(|(name, value)| is_reused(name) && is_personal_token(value));
    if is_personal {
        return None;
    }
    let mut kept = HeaderMap::new();
    for (name, value) in headers.iter().filter(|(name, _)| is_reused(name)) {
        let mut value = value.clone();
        value.set_sensitive(true);
        kept.append(name, value);
    }
    Some(kept)
}

fn is_within(host: &str, domain: &str) -> bool {
    let host = host.to_ascii_lowercase();
    let rest = host.trim_end_matches('.').strip_suffix(domain);
    rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Whether a header's value is a token for certain client programs only, with or without a scheme before it.
fn is_personal_token(value: &HeaderValue) -> bool {
    let token = value.to_str().unwrap_or_default().rsplit(' ').next().unwrap_or_default();
    PERSONAL_TOKENS.iter().any(|start| token.starts_with(start))
}

/// Whether a header is reused.
fn is_reused(name: &HeaderName) -> bool {
    let has = |words: &[&str]| words.iter().any(|word| name.as_str().contains(word));
    has(REUSED_WORDS) && !has(EXCLUDED_WORDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(lines: &[(&'static str, &'static str)]) -> Option<Vec<String>> {
        let headers = lines
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let kept = of(&headers.collect(), "api.example.com")?;
        Some(kept.keys().map(ToString::to_string).collect())
    }

    #[test]
    fn only_credential_and_version_headers_are_kept() {
        let lines = [
            ("x-api-key", "k"),
            ("anthropic-version", "2023-06-01"),
            ("anthropic-beta", "x"),
            ("idempotency-key", "1"),
            ("content-type", "application/json"),
            ("x-claude-code-session-id", "s"),
            ("x-stainless-package-version", "1"),
            ("sec-websocket-key", "1"),
            ("cf-aig-authorization", "a"),
            ("accept-encoding", "gzip"),
        ];
        let mut names = kept(&lines).unwrap();
        names.sort();
        assert_eq!(names, ["anthropic-version", "cf-aig-authorization", "x-api-key"]);
    }

    #[test]
    fn subscription_logins_are_not_used_for_own_calls() {
        for (lines, expected) in [
            (&[("authorization", "Bearer sk-proj-1")][..], true),
            (&[("authorization", "Bearer sk-ant-oat01-x")], false),
            (&[("authorization", "bearer  sk-ant-oat01-x")], false),
            (&[("authorization", "Bearer eyJ"), ("chatgpt-account-id", "1")], false),
            (&[("authorization", "Bearer tid=1;exp=2;sku=monthly_subscriber;proxy-ep=x:3")], false),
            (&[("authorization", "Bearer gho_1"), ("copilot-integration-id", "vscode-chat")], false),
            (&[("authorization", "Bearer sk-kimi-1")], false),
            (&[("x-api-key", "sk-kimi-1")], false),
            (&[("x-api-key", "sk-sp-1")], false),
            (&[("x-api-key", "sk-1")], true),
            (&[], true),
        ] {
            assert_eq!(kept(lines).is_some(), expected, "{lines:?}");
        }
        for (host, expected) in [
            ("api.githubcopilot.com", false),
            ("API.individual.GitHubCopilot.com.", false),
            ("api.kimi.com", false),
            ("notgithubcopilot.com", true),
            ("api.moonshot.ai", true),
            ("", true),
        ] {
            assert_eq!(of(&HeaderMap::new(), host).is_some(), expected, "{host}");
        }
    }
}
