//! Words in records that code compares with, as types: a misspelt one does not compile.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::de::value::{Error, StrDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How a request was changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It could not be read.
    #[default]
    Unread,
    /// Nothing had to be changed.
    Unchanged,
    /// It was edited.
    Edited,
    /// It would have been edited, but the gateway only observes.
    Observed,
    /// Nothing in its thread is edited, since the provider refused an edit before.
    SetAside,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Its answer was complete.
    Complete,
    /// Its answer broke off, or never came, although the upstream may have produced it.
    UpstreamBroke,
    /// The client left before the end of the answer.
    ClientGone,
    /// The gateway was stopped.
    Stopped,
    /// It got no answer, because it never reached an upstream.
    Failed,
    /// The provider accepted it, and answers it later to another request.
    Pending,
}

/// How the prompt relates to what was sent before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prefix {
    /// It begins with what was sent before.
    Kept,
    /// It begins differently.
    Broken,
}

/// How far a limit is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Used {
    /// Nearly.
    Near,
    /// Entirely.
    Spent,
}

/// A known word, or any other text in its place: an empty one, or a word of another version. It is written as it was
/// read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Term<T> {
    /// A known word.
    Known(T),
    /// Any other text.
    Other(Box<str>),
}

impl<T> Default for Term<T> {
    fn default() -> Self {
        Self::Other(Box::default())
    }
}

impl<T> From<T> for Term<T> {
    fn from(word: T) -> Self {
        Self::Known(word)
    }
}

impl<T: PartialEq> PartialEq<T> for Term<T> {
    fn eq(&self, other: &T) -> bool {
        matches!(self, Self::Known(word) if word == other)
    }
}

impl<T: Serialize> fmt::Display for Term<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl<T: Serialize> Serialize for Term<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Known(word) => word.serialize(serializer),
            Self::Other(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Term<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<str>::deserialize(deserializer)?;
        let word = T::deserialize(StrDeserializer::<Error>::new(&text));
        Ok(word.map_or_else(|_| Self::Other(text), Self::Known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T>(words: &[(T, &str)])
    where
        T: Copy + fmt::Debug + PartialEq + Serialize + DeserializeOwned,
    {
        for (word, name) in words {
            let (term, json) = (Term::from(*word), format!("\"{name}\""));
            assert_eq!((term.to_string(), serde_json::to_string(&term).unwrap()), ((*name).to_owned(), json));
        }
        let known = words.iter().map(|(word, name)| (Term::Known(*word), *name));
        let others = ["", "Edited", "a \"new\" one"].map(|text| (Term::Other(text.into()), text));
        for (term, name) in known.chain(others) {
            let json = serde_json::to_string(name).unwrap();
            let read: Term<T> = serde_json::from_str(&json).unwrap();
            assert_eq!((&read, serde_json::to_string(&read).unwrap()), (&term, json));
        }
    }

    /// As existing books have them.
    #[test]
    fn words_are_stable_and_unknown_ones_round_trip() {
        check(&[
            (State::Unread, "unread"),
            (State::Unchanged, "unchanged"),
            (State::Edited, "edited"),
            (State::Observed, "observed"),
            (State::SetAside, "set_aside"),
        ]);
        check(&[
            (Outcome::Complete, "complete"),
            (Outcome::UpstreamBroke, "upstream_broke"),
            (Outcome::ClientGone, "client_gone"),
            (Outcome::Pending, "pending"),
            (Outcome::Stopped, "stopped"),
            (Outcome::Failed, "failed"),
        ]);
        check(&[(Prefix::Kept, "kept"), (Prefix::Broken, "broken")]);
        check(&[(Used::Near, "near"), (Used::Spent, "spent")]);
    }

    #[test]
    fn a_term_equals_only_its_own_known_word() {
        let edited = Term::from(State::Edited);
        assert!(edited == State::Edited && edited != State::Observed);
        assert!(Term::Other("edited".into()) != State::Edited);
        assert!(Term::default() != State::Unread);
    }
}
