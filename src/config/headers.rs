//! `headers` of `[upstream.NAME]`. Values may be keys: no message quotes one.

use http::HeaderMap;
use http::header::{self, HeaderName, HeaderValue};
use toml::de::DeValue;

use super::environment::Environment;
use super::section::Section;
use super::value::Fault;

/// Headers that belong to a connection or to a single message.
const NOT_SETTABLE: &[HeaderName] = &[
    header::CONNECTION,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::HOST,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

pub(super) fn headers(section: &mut Section<'_, '_>) -> HeaderMap {
    let mut seen = Vec::new();
    let headers = section.pairs("headers", |name, value, environment| {
        let value = header_value(value, environment)?;
        let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else {
            return Err(Fault::Message("this is not a valid header name".to_owned()));
        };
        if NOT_SETTABLE.contains(&name) {
            return Err(Fault::Message("this header is managed by the gateway itself".to_owned()));
        }
        if seen.contains(&name) {
            return Err(Fault::Message("set twice: the case of a header's name does not matter".to_owned()));
        }
        seen.push(name.clone());
        Ok((name, value))
    });
    headers.into_iter().flatten().collect()
}

/// The text itself, or the value of the variable that it names, with the variable.
pub(super) fn resolve<'t>(
    text: &'t str,
    environment: &dyn Environment,
) -> Result<(String, Option<&'t str>), Fault> {
    let Some(variable) = text.strip_prefix("env:") else { return Ok((text.to_owned(), None)) };
    let unset = || Fault::Message(format!("the environment variable `{variable}` is not set"));
    Ok((environment.secret(variable).ok_or_else(unset)?, Some(variable)))
}

/// The value of a header, or of the variable that holds it, which may follow a scheme: `Bearer env:NAME`. An empty
/// variable is a mistake: it would remove the client's own header, or leave the scheme alone.
fn header_value(value: &DeValue<'_>, environment: &dyn Environment) -> Result<HeaderValue, Fault> {
    let text = value.as_str().ok_or_else(|| Fault::not_a_string(value))?;
    let (scheme, text) = with_scheme(text).unwrap_or(("", text));
    let (text, variable) = resolve(text, environment)?;
    if let Some(variable) = variable.filter(|_| text.trim().is_empty() && environment.tells_secrets()) {
        return Err(Fault::Message(format!("the environment variable `{variable}` is empty")));
    }
    let source =
        variable.map_or_else(|| "this".to_owned(), |variable| format!("the content of `{variable}`"));
    let mut value = HeaderValue::from_str(format!("{scheme} {}", text.trim()).trim())
        .map_err(|_| Fault::Message(format!("{source} is not a valid header value")))?;
    value.set_sensitive(true);
    Ok(value)
}

/// The scheme and the `env:NAME` of a value such as `Bearer env:NAME`.
fn with_scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.trim().split_once(' ')?;
    let rest = rest.trim_start();
    let is_scheme = scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    (is_scheme && rest.starts_with("env:") && !rest.contains(' ')).then_some((scheme, rest))
}
