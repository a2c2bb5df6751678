//! What all dialects read alike: the outermost object, the list of messages, the memo.

use std::sync::Arc;

use bytes::Bytes;

use crate::conversation::{Memo, Message, MessageIndex};
use crate::json::scan::{self, Kind, Listing, Member, Value};
use crate::json::{Odd, string};

/// Why a body is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unread {
    /// Its JSON is odd.
    #[error("odd JSON: {0}")]
    Odd(Odd),
    /// It is not UTF-8.
    #[error("not UTF-8")]
    NotText,
    /// It is JSON, but not a request of this dialect.
    #[error("not the shape of a request")]
    Shape,
}

/// The outermost object of a body.
pub(crate) struct Frame<'a> {
    bytes: &'a [u8],
    members: Vec<Member>,
    /// The items of the list of messages, if there is one.
    pub(crate) items: Option<Vec<Value>>,
}

impl<'a> Frame<'a> {
    /// Reads the object and finds the items of the list that is named `list`.
    pub(crate) fn read(bytes: &'a [u8], list: &str) -> Result<Self, Unread> {
        if std::str::from_utf8(bytes).is_err() {
            return Err(Unread::NotText);
        }
        let Listing { members, items } = scan::listing(bytes, list)?;
        Ok(Self { bytes, members, items })
    }

    pub(crate) fn get(&self, key: &str) -> Option<Value> {
        scan::get(self.bytes, &self.members, key)
    }

    pub(crate) fn text(&self, key: &str) -> Option<Box<str>> {
        text(self.bytes, self.get(key)?)
    }

    pub(crate) fn is_true(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| value.span.of(self.bytes) == b"true")
    }

    /// A whole number.
    pub(crate) fn number(&self, key: &str) -> Option<u64> {
        number(self.bytes, self.get(key)?)
    }

    /// A whole number in an object in the frame, under either of two names. One that can be read in two ways is
    /// none.
    pub(crate) fn inner_number(&self, keys: [&str; 2], inner: [&str; 2]) -> Option<u64> {
        let object = keys.iter().find_map(|key| self.get(key)).filter(|value| value.kind == Kind::Object)?;
        let object = Object::read(self.bytes, object).ok()?;
        inner.iter().find_map(|key| number(self.bytes, object.get(key)?))
    }

    /// A text in an object in the frame.
    ///
    /// # Errors
    /// When the object can be read in two ways.
    pub(crate) fn inner_text(&self, key: &str, inner: &str) -> Result<Option<Box<str>>, Unread> {
        match self.get(key) {
            Some(value) if value.kind == Kind::Object => Ok(Object::read(self.bytes, value)?.text(inner)),
            _ => Ok(None),
        }
    }
}

fn number(bytes: &[u8], value: Value) -> Option<u64> {
    std::str::from_utf8(value.span.of(bytes)).ok()?.parse().ok()
}

/// The text of a string value.
pub(crate) fn text(bytes: &[u8], value: Value) -> Option<Box<str>> {
    if value.kind != Kind::String {
        return None;
    }
    string::decode(value.span.of(bytes)).map(Box::from)
}

/// Reads the list of messages, those seen before from the memo. `index` reads one message from its own bytes.
pub(crate) fn messages(
    dialect: &str,
    body: &Bytes,
    items: &[Value],
    memo: &dyn Memo,
    index: &dyn Fn(&[u8]) -> Result<MessageIndex, Unread>,
) -> Result<Vec<Message>, Unread> {
    let mut messages = Vec::with_capacity(items.len());
    for item in items {
        let raw = item.span.of(body);
        let key = memo.key(dialect, raw);
        let known = memo.get(key);
        let index = match known {
            Some(index) => index,
            None => {
                let index = Arc::new(index(raw)?);
                memo.put(key, &index);
                index
            }
        };
        messages.push(Message { span: item.span, index });
    }
    Ok(messages)
}

/// The members of one message or block, which must be an object.
pub(crate) struct Object<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) value: Value,
    members: Vec<Member>,
}

impl<'a> Object<'a> {
    pub(crate) fn read(bytes: &'a [u8], value: Value) -> Result<Self, Unread> {
        if value.kind != Kind::Object {
            return Err(Unread::Shape);
        }
        Ok(Self { bytes, value, members: scan::members(bytes, value.span)? })
    }

    pub(crate) fn get(&self, key: &str) -> Option<Value> {
        scan::get(self.bytes, &self.members, key)
    }

    /// The values of its members in the order of their names: clients may write members in any order.
    pub(crate) fn values(&self) -> impl Iterator<Item = Value> {
        let mut members: Vec<&Member> = self.members.iter().collect();
        members.sort_by_key(|member| member.name(self.bytes));
        members.into_iter().map(|member| member.value)
    }

    pub(crate) fn of_kind(&self, key: &str, kind: Kind) -> Option<Value> {
        self.get(key).filter(|value| value.kind == kind)
    }

    pub(crate) fn text(&self, key: &str) -> Option<Box<str>> {
        text(self.bytes, self.get(key)?)
    }

    /// Whether its `type` is one of some words.
    pub(crate) fn is_one_of(&self, types: &[&str]) -> bool {
        types.iter().any(|expected| self.says("type", expected))
    }

    /// Whether the member is the string `text`, however it is spelled.
    pub(crate) fn says(&self, key: &str, expected: &str) -> bool {
        self.of_kind(key, Kind::String)
            .and_then(|value| string::decode(value.span.of(self.bytes)))
            .is_some_and(|text| text == expected)
    }

    pub(crate) fn is_true(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| value.span.of(self.bytes) == b"true")
    }
}
