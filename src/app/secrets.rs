//! Keeps credentials out of the logs and books: some servers repeat the key that they refuse.

use http::{HeaderMap, Uri};

use crate::url;

/// A header whose name contains one of these words carries credentials.
const HEADER_WORDS: &[&str] = &["auth", "key", "token", "cookie", "secret"];
/// The shortest credential that is recognised, in bytes. Anything shorter may be an ordinary word.
const MIN_BYTES: usize = 12;
/// The replacement for a credential.
const HIDDEN: &str = "[credential]";

/// Removes the credentials of a request from a text about it. `uri` is the one that the client sent; `headers` are the
/// client's, and those that the gateway set in their place.
pub(super) fn redact(text: String, uri: &Uri, headers: [&HeaderMap; 2]) -> String {
    let carries = |name: &str| HEADER_WORDS.iter().any(|word| name.contains(word));
    let values = headers.into_iter().flatten().filter(|(name, _)| carries(name.as_str()));
    let values = values.filter_map(|(_, value)| value.to_str().ok());
    let parameters = url::credentials(uri.query().unwrap_or_default());
    // A scheme may precede a credential, and one header may hold several.
    let words = values.flat_map(|value| value.split([' ', ',', ';', '"'])).chain(parameters);
    let mut secrets: Vec<&str> = words.filter(|word| word.len() >= MIN_BYTES).collect();
    // Longer ones first: a credential may be the beginning of another.
    secrets.sort_unstable_by_key(|secret| std::cmp::Reverse(secret.len()));
    secrets.iter().fold(
        text,
        |text, secret| {
            if text.contains(secret) { text.replace(secret, HIDDEN) } else { text }
        },
    )
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn only_the_requests_own_credentials_are_redacted() {
        let none = HeaderMap::new();
        for (headers, query, text, expected) in [
            (
                &[("x-api-key", "sk-ant-0123456789")][..],
                "",
                "invalid x-api-key: sk-ant-0123456789 (sk-ant-0123456789)",
                "invalid x-api-key: [credential] ([credential])",
            ),
            (
                &[("authorization", "Bearer abcdefghijkl")],
                "",
                "'abcdefghijkl' is not Bearer",
                "'[credential]' is not Bearer",
            ),
            (&[("authorization", "Bearer short")], "", "short of quota", "short of quota"),
            (
                &[("api-key", "0123456789ab"), ("x-token", "0123456789abcd")],
                "",
                "0123456789abcd",
                "[credential]",
            ),
            (&[("x-request-id", "req_0123456789")], "", "req_0123456789 failed", "req_0123456789 failed"),
            (
                &[],
                "alt=sse&key=AIza0123456789",
                "AIza0123456789 is not valid, sse",
                "[credential] is not valid, sse",
            ),
            (&[], "key", "key", "key"),
        ] {
            let headers = headers
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
                .collect();
            let uri: Uri = format!("/v1/x?{query}").parse().unwrap();
            for headers in [[&headers, &none], [&none, &headers]] {
                assert_eq!(redact(text.to_owned(), &uri, headers), expected);
            }
        }
    }
}
