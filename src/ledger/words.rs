//! Words that stand in records and are asked for: what is mistyped does not compile.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::de::value::{Error, StrDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What was done to a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It could not be read.
    #[default]
    Unread,
    /// There was nothing to do.
    Unchanged,
    /// It was edited.
    Edited,
    /// It would have been edited.
    Observed,
    /// An edit was refused by the provider before: nothing of its thread is edited.
    SetAside,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Its answer came whole.
    Complete,
    /// Its answer broke off, or never came: the upstream may have made it.
    UpstreamBroke,
    /// Nobody waited for the end of its answer.
    ClientGone,
    /// The gateway itself was stopped.
    Stopped,
    /// It got no answer: it never reached an upstream.
    Failed,
    /// It was taken, and is answered later to another request.
    Pending,
}

/// What became of what was sent before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prefix {
    /// What was sent now begins with it.
    Kept,
    /// What was sent now begins otherwise.
    Broken,
}

/// How much of a limit is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Used {
    /// Nearly all.
    Near,
    /// All.
    Spent,
}

/// One of these words, or what stands there instead: nothing, or a word of another version's. It is written as it was
/// read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Term<T> {
    /// A word that is known.
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

    /// As they stand in books that are there already.
    #[test]
    fn words_are_written_as_ever_and_others_as_they_were() {
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
    fn only_a_known_word_is_one() {
        let edited = Term::from(State::Edited);
        assert!(edited == State::Edited && edited != State::Observed);
        assert!(Term::Other("edited".into()) != State::Edited);
        assert!(Term::default() != State::Unread);
    }
}
