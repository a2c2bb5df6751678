//! How values of each type are read from TOML, and how invalid values are described.
//!
//! Nothing here knows keys: a [`Fault`] becomes a problem where the key and its line are known.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::Duration;

use toml::de::{DeFloat, DeInteger, DeValue};

use super::size::ByteSize;
use super::suggest::nearest;
use super::{period, suggest};
use crate::shape::settings::NamePatterns;
use crate::upstream::{BaseUrl, BaseUrlError};

/// A type of value.
pub(super) trait FromValue: Sized {
    /// What is expected, as it reads after "expected".
    fn expected() -> Cow<'static, str>;

    fn from_value(value: &DeValue<'_>) -> Result<Self, Fault>;
}

/// A type whose values can be limited to a range.
pub(super) trait Ranged: FromValue + PartialOrd {
    /// The value as a user would write it.
    fn show(&self) -> String;
}

/// A type whose values are words.
pub(super) trait Word: Copy + 'static {
    /// All words, with their meanings.
    const WORDS: &'static [(&'static str, Self)];
}

/// Why a value is invalid.
#[derive(Debug)]
pub(super) enum Fault {
    /// It does not have the expected form; with an optional hint.
    Unexpected(Option<String>),
    /// Another reason, as the complete message.
    Message(String),
}

impl Fault {
    pub(super) const UNEXPECTED: Self = Self::Unexpected(None);

    pub(super) fn hint(hint: impl Into<String>) -> Self {
        Self::Unexpected(Some(hint.into()))
    }

    /// The fault of a value that is not a string although the key may hold a secret: it names the value's type, not its
    /// content.
    pub(super) fn not_a_string(value: &DeValue<'_>) -> Self {
        Self::Message(format!("expected a string, got {}", kind(value)))
    }

    /// The message and the hint; `expected` is what the key accepts.
    pub(super) fn into_message(self, expected: &str, value: &DeValue<'_>) -> (String, Option<String>) {
        match self {
            Self::Unexpected(hint) => (format!("expected {expected}, got {}", describe(value)), hint),
            Self::Message(message) => (message, None),
        }
    }
}

/// The longest text, in characters, that a message quotes in full.
const MAX_QUOTED: usize = 60;

/// A value as it reads after "got".
pub(super) fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) if text.chars().count() <= MAX_QUOTED => format!("{text:?}"),
        DeValue::String(text) => {
            format!("{:?} and more", text.chars().take(MAX_QUOTED).collect::<String>())
        }
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        _ => kind(value).to_owned(),
    }
}

/// The type of a value, without its content.
fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

fn text<'v>(value: &'v DeValue<'_>) -> Result<&'v str, Fault> {
    value.as_str().ok_or(Fault::UNEXPECTED)
}

/// The text of a plain decimal number, from which an amount is parsed exactly.
pub(super) fn number<'v>(value: &'v DeValue<'_>) -> Option<&'v str> {
    match value {
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str()),
        DeValue::Float(number) => Some(number.as_str()),
        _ => None,
    }
}

/// Joins words to `"a", "b" or "c"`.
pub(super) fn alternatives(words: &[&str]) -> String {
    let mut quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
    let last = quoted.pop().unwrap_or_default();
    if quoted.is_empty() { last } else { format!("{} or {last}", quoted.join(", ")) }
}

impl FromValue for bool {
    fn expected() -> Cow<'static, str> {
        "true or false".into()
    }

    fn from_value(value: &DeValue<'_>) -> Result<Self, Fault> {
        value.as_bool().ok_or_else(|| match value.as_str() {
            Some("true" | "false") => Fault::hint("write it without quotes"),
            _ => Fault::UNEXPECTED,
        })
    }
}

impl FromValue for String {
    fn expected() -> Cow<'static, str> {
        "a string".into()
    }

    fn from_value(value: &DeValue<'_>) -> Result<Self, Fault> {
        text(value).map(str::to_owned)
    }
}

macro_rules! whole_numbers {
    ($($number:ty),*) => {$(
        impl FromValue for $number {
            fn expected() -> Cow<'static, str> {
                "a whole number".into()
            }

            fn from_value(value: &DeValue<'_>) -> Result<Self, Fault> {
                let Some(number) = value.as_integer() else {
                    let quoted = value.as_str().is_some_and(|text| text.parse::<Self>().is_ok());
                    return Err(if quoted { Fault::hint("write it without quotes") } else { Fault::UNEXPECTED });
                };
                Self::from_str_radix(number.as_str(), number.radix())
                    .map_err(|_| Fault::Message(format!("expected a whole number from 0 on, got {number}")))
            }
        }

        impl Ranged for $number {
            fn show(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

whole_numbers!(usize, u64);

/// More tokens than any window has.
pub(super) const MAX_TOKENS: u64 = 1_000_000_000;

impl FromValue for f64 {
    fn expected() -> Cow<'static, str> {
        "a number such as 0.75".into()
    }

    fn from_value(value: &DeValue<'_>) -> Result<Self, Fault> {
        let text =
            value.as_float().map(DeFloat::as_str).or_else(|| value.as_integer().map(DeInteger::as_str));
        let number = text.and_then(|text| text.parse().ok());
        number.filter(|number: &Self| number.is_finite()).ok_or(Fault::UNEXPECTED)
    }
}

impl Ranged for f64 {
    fn show(&self) -> String {
        self.to_string()
    }
}

impl FromValue for ByteSize {
    fn expected() -> Cow<'static, str> {
        "a size such as \"50KiB\"".into()
    }

    fn from_value(value: &DeValue<'_>) -> Result<Self, Fault> {
        if value.is_integer() {
            return usize::from_value(value).map(Self::new);
        }
        Self::parse(text(value)?).ok_or_else(|| Fault::hint("the units are B, KB, KiB, MB, MiB, GB and GiB"))
    }
}

impl Ranged for ByteSize {
    fn show(&self) -> String {
        self.to_string()
    }
}

impl FromValue for Duration {
    fn expected() -> Cow<'static, str> {
        "a duration such as \"30s\"".into()
    }

    fn from_value(value: &DeValue<'_>) -> Result<Self, Fault> {
        let units = || Fault::hint("the units are ms, s, m, h and d");
        let text = if value.is_integer() { Err(units()) } else { text(value) };
        period::parse(text?).ok_or_else(units)
    }
}

impl Ranged for Duration {
    fn show(&self) -> String {
        period::show(*self)
    }
}

impl FromValue for SocketAddr {
    fn expected() -> Cow<'static, str> {
        "an address such as \"127.0.0.1:8787\"".into()
    }

    fn from_value(value: &DeValue<'_>) -> Result<Self, Fault> {
        let text = text(value)?;
        text.parse().map_err(|_| address_hint(text).map_or(Fault::UNEXPECTED, Fault::hint))
    }
}

/// What to write instead of a text that is no address, if that can be guessed.
pub(super) fn address_hint(text: &str) -> Option<String> {
    match text.rsplit_once(':') {
        Some(("localhost", port)) => Some(format!("write \"127.0.0.1:{port}\"")),
        Some(("" | "*", port)) => Some(format!("write \"0.0.0.0:{port}\" for all interfaces")),
        _ if text.parse::<std::net::IpAddr>().is_ok() => Some("the port is missing".to_owned()),
        _ if text.parse::<u16>().is_ok() => Some(format!("write \"127.0.0.1:{text}\"")),
        _ => None,
    }
}

impl FromValue for BaseUrl {
    fn expected() -> Cow<'static, str> {
        "a URL such as \"https://api.example.com\"".into()
    }

    fn from_value(value: &DeValue<'_>) -> Result<Self, Fault> {
        let text = text(value)?;
        text.parse().map_err(|bad: BaseUrlError| match bad {
            // A text that may contain a secret is not quoted.
            _ if text.contains(['@', '?', '#']) => Fault::Message(bad.to_string()),
            BaseUrlError::Credentials | BaseUrlError::Query => Fault::Message(bad.to_string()),
            BaseUrlError::NotUrl => Fault::UNEXPECTED,
            BaseUrlError::Scheme => Fault::hint("the scheme is https:// or http://"),
        })
    }
}

impl FromValue for NamePatterns {
    fn expected() -> Cow<'static, str> {
        "a pattern such as \"read_*\"".into()
    }

    fn from_value(value: &DeValue<'_>) -> Result<Self, Fault> {
        let text = text(value)?;
        if let Some(reason) = names_nothing(text) {
            return Err(Fault::Message(format!("{} matches nothing: {reason}", describe(value))));
        }
        Self::new([text]).map_err(|error| Fault::Message(bad_pattern(text, &error)))
    }
}

/// Why a pattern cannot match any name, if that is easy to see.
pub(super) fn names_nothing(pattern: &str) -> Option<&'static str> {
    // Brackets match one character, which may be a comma.
    let outside = pattern.split('[').enumerate().map(|(at, piece)| match piece.split_once(']') {
        Some((_, behind)) if at > 0 => behind,
        _ => piece,
    });
    if pattern.trim().is_empty() {
        Some("it is empty")
    } else if outside.into_iter().any(|piece| piece.contains(',')) {
        Some("give each pattern on its own, not several separated by commas")
    } else {
        None
    }
}

/// The message for an invalid glob.
pub(super) fn bad_pattern(pattern: &str, error: &glob::PatternError) -> String {
    format!("{} is not a valid pattern: {}", describe(&DeValue::String(pattern.into())), error.msg)
}

impl<W: Word> FromValue for W {
    fn expected() -> Cow<'static, str> {
        alternatives(&W::WORDS.iter().map(|(word, _)| *word).collect::<Vec<_>>()).into()
    }

    fn from_value(value: &DeValue<'_>) -> Result<Self, Fault> {
        chosen(value, W::WORDS.iter().copied())
    }
}

/// The meaning of the word that the value is, among `choices`.
pub(super) fn chosen<T>(
    value: &DeValue<'_>,
    choices: impl IntoIterator<Item = (&'static str, T)>,
) -> Result<T, Fault> {
    let (words, mut meanings): (Vec<_>, Vec<T>) = choices.into_iter().unzip();
    position(value, &words).map(|at| meanings.swap_remove(at))
}

/// The index of the word that the value is.
fn position(value: &DeValue<'_>, words: &[&str]) -> Result<usize, Fault> {
    let text = text(value)?;
    words.iter().position(|word| *word == text).ok_or_else(|| match nearest(text, words) {
        Some(word) if words.len() > 1 => Fault::hint(suggest::did_you_mean(word)),
        _ => Fault::UNEXPECTED,
    })
}
