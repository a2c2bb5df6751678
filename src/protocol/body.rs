//! Reads what all dialects have in common: the outermost object and the list of messages, with the help of the memo.
//!
//! If a body was edited within some of its messages, only these messages are read again.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use memchr::{memchr, memrchr};

use super::trail::{MIN_MESSAGES, Walk};
use crate::conversation::{Conversation, Memo, Message, MessageIndex, NoMemo, Slots, Step};
use crate::json::scan::{self, Kind, Listing, Member, Value};
use crate::json::{Edit, Edits, ScanError, Span, string};

/// Why a body is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unread {
    /// Its JSON is malformed, ambiguous or beyond a bound.
    #[error("odd JSON: {0}")]
    Json(ScanError),
    /// It is not UTF-8.
    #[error("not UTF-8")]
    NotText,
    /// It is JSON, but not a request of this dialect.
    #[error("not the shape of a request")]
    Shape,
}

/// A body, and the positions of its outermost values.
#[derive(Debug, Clone)]
pub struct Document {
    /// The body.
    pub(crate) bytes: Bytes,
    /// The members of the outermost object.
    pub(crate) members: Vec<Member>,
    items: Option<Vec<Item>>,
    /// Whether the list of messages is remembered for later requests. Clients do not continue an edited one.
    is_followed: bool,
}

/// Whether a member of the outermost object is a list of tools with anything in it. All dialects name it alike;
/// `functions` is an older name.
fn declares_tools(member: &Member, body: &[u8]) -> bool {
    matches!(member.name(body), b"tools" | b"functions")
        && member.value.kind == Kind::Array
        && member.value.span.of(body).iter().skip(1).any(|byte| !byte.is_ascii_whitespace() && *byte != b']')
}

/// An item of the list of messages.
#[derive(Debug, Clone)]
struct Item {
    span: Span,
    /// The index of a message with the same bytes, if one was read before.
    known: Option<Arc<MessageIndex>>,
    /// The key of the bytes in the memo, if it was computed already.
    key: Option<u128>,
}

impl Document {
    /// Reads the outermost object and finds the items of its member `list`. Items that `memo` knows in this dialect are
    /// not scanned.
    ///
    /// # Errors
    /// [`Unread`] if the body is not one object of plain JSON.
    pub fn read(bytes: &Bytes, list: &str, dialect: &str, memo: &dyn Memo) -> Result<Self, Unread> {
        let mut walk = Walk::new(bytes, dialect, memo);
        let found = scan::listing(bytes, list, &mut |before, at| walk.step(before, at));
        let Listing { members, items } = match found {
            Ok(found) => found,
            Err(error) => return Err(check_text(bytes).err().unwrap_or(Unread::Json(error))),
        };
        let item = |(item, step): (Value, Option<Step>)| {
            let (known, key) = step.map(|step| (step.index, step.key)).unzip();
            Item { span: item.span, known, key }
        };
        let items = items.map(|items| items.into_iter().zip(walk.into_steps()).map(item).collect());
        check_text_outside_known(bytes, items.as_deref().unwrap_or_default())?;
        Ok(Self { bytes: bytes.clone(), members, items, is_followed: true })
    }

    /// Reads the outermost object only.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(crate) fn outermost(bytes: &Bytes, list: &str) -> Result<Self, Unread> {
        Self::read(bytes, list, "", &NoMemo)
    }

    /// The body of a request after edits within its messages. Messages without edits are not read again. `None` if an
    /// edit reaches beyond a message: the body must then be read anew.
    ///
    /// # Errors
    /// [`Unread`] if an edited message is no longer one value of plain JSON.
    pub(crate) fn edited(before: &Conversation, edits: &Edits) -> Option<Result<Self, Unread>> {
        let (items, shift) = shifted_items(before, edits)?;
        let bytes = Bytes::from(edits.apply(&before.body));
        let at = |place: u32| if place >= before.array.end { shift.of(place) } else { Some(place) };
        let span = |span: Span| Some(Span { start: at(span.start)?, end: at(span.end)? });
        let member = |member: &Member| {
            let value = Value { kind: member.value.kind, span: span(member.value.span)? };
            Some(Member { key: span(member.key)?, value })
        };
        let members = before.members.iter().map(member).collect::<Option<_>>()?;
        let fresh = items.iter().filter(|item| item.known.is_none());
        let read = fresh.map(|item| {
            let raw = item.span.of(&bytes);
            check_text(raw)?;
            let whole = scan::document(raw)?.span.len() == raw.len();
            if whole && !raw.is_empty() { Ok(()) } else { Err(Unread::Shape) }
        });
        Some(read.collect::<Result<(), _>>().map(|()| Self {
            bytes,
            members,
            items: Some(items),
            is_followed: false,
        }))
    }

    /// The outermost object.
    pub(crate) fn object(&self) -> Object<'_> {
        Object::outermost(&self.bytes, &self.members)
    }

    /// Reads the list of messages. Messages that were read before come from the memo. `index` reads one message from
    /// its own bytes.
    ///
    /// # Errors
    /// [`Unread::Shape`] without a list, and the errors of `index`.
    pub(crate) fn messages(
        &self,
        dialect: &str,
        memo: &dyn Memo,
        index: &ReadMessage<'_>,
    ) -> Result<Vec<Message>, Unread> {
        let items = self.items.as_ref().ok_or(Unread::Shape)?;
        let message = |item: &Item| match &item.known {
            Some(known) => Ok(Message { span: item.span, index: Arc::clone(known) }),
            None => self.message(item.span, dialect, memo, index),
        };
        let messages: Vec<Message> = items.iter().map(message).collect::<Result<_, _>>()?;
        if self.is_followed && items.len() >= MIN_MESSAGES {
            let step = |(item, message): (&Item, &Message)| Step {
                length: item.span.len() as u32,
                key: item.key.unwrap_or_else(|| memo.key(dialect, item.span.of(&self.bytes))),
                index: Arc::clone(&message.index),
            };
            memo.follow(items.iter().zip(&messages).map(step).collect());
        }
        Ok(messages)
    }

    /// A request with these messages, which are in `list`. Everything else has its default.
    pub(crate) fn into_conversation(self, list: Span, messages: Vec<Message>) -> Conversation {
        let has_tools = self.members.iter().any(|member| declares_tools(member, &self.bytes));
        Conversation {
            body: self.bytes,
            members: self.members,
            has_tools,
            array: list,
            messages,
            ..Conversation::default()
        }
    }

    /// Reads one message, or takes it from the memo.
    pub(crate) fn message(
        &self,
        span: Span,
        dialect: &str,
        memo: &dyn Memo,
        index: &ReadMessage<'_>,
    ) -> Result<Message, Unread> {
        let raw = span.of(&self.bytes);
        let key = memo.key(dialect, raw);
        if let Some(index) = memo.get(key) {
            return Ok(Message { span, index });
        }
        let index = Arc::new(index(raw)?.with_encodings(raw));
        memo.put(key, &index);
        Ok(Message { span, index })
    }
}

/// Reads one message from its own bytes.
type ReadMessage<'r> = dyn Fn(&[u8]) -> Result<MessageIndex, Unread> + 'r;

/// How far the bytes after some edits have moved.
#[derive(Default, Clone, Copy)]
struct Shift {
    added: usize,
    removed: usize,
}

impl Shift {
    /// The new position of a byte; `None` if spans cannot express it.
    fn of(self, place: u32) -> Option<u32> {
        u32::try_from((place as usize + self.added).checked_sub(self.removed)?).ok()
    }
}

/// The positions of a request's messages after edits, and the shift of everything after the last message. `None` if an
/// edit reaches beyond a message.
fn shifted_items(before: &Conversation, edits: &Edits) -> Option<(Vec<Item>, Shift)> {
    let (mut edits, mut shift) = (edits.iter().peekable(), Shift::default());
    let mut items = Vec::with_capacity(before.messages.len());
    for message in &before.messages {
        let (was, mut is_edited) = (message.span, false);
        let start = shift.of(was.start)?;
        while let Some(edit) = edits.next_if(|edit| was.start < edit.at.start && edit.at.end < was.end) {
            shift.added += edit.text.len();
            shift.removed += edit.at.len();
            is_edited = true;
        }
        let known = (!is_edited).then(|| Arc::clone(&message.index));
        items.push(Item { span: Span { start, end: shift.of(was.end)? }, known, key: None });
    }
    shift.of(before.body.len() as u32)?;
    edits.next().is_none().then_some((items, shift))
}

/// Checks that bytes are UTF-8.
fn check_text(bytes: &[u8]) -> Result<(), Unread> {
    std::str::from_utf8(bytes).map(|_| ()).map_err(|_| Unread::NotText)
}

/// Checks that all bytes outside known items are UTF-8. Known items were checked when they were first read. Items begin
/// and end with brackets, so no character crosses their borders.
fn check_text_outside_known(bytes: &[u8], items: &[Item]) -> Result<(), Unread> {
    let mut from = 0;
    for known in items.iter().filter(|item| item.known.is_some()) {
        check_text(&bytes[from..known.span.range().start])?;
        from = known.span.range().end;
    }
    check_text(&bytes[from..])
}

/// An object: a message, a block of one, or the whole body.
#[derive(Debug)]
pub struct Object<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) value: Value,
    members: Cow<'a, [Member]>,
}

impl<'a> Object<'a> {
    /// The object that `bytes` consist of.
    pub(crate) fn of(bytes: &'a [u8]) -> Result<Self, Unread> {
        let (value, members) = scan::object(bytes)?;
        if value.kind != Kind::Object {
            return Err(Unread::Shape);
        }
        Ok(Self { bytes, value, members: members.into() })
    }

    pub(crate) fn read(bytes: &'a [u8], value: Value) -> Result<Self, Unread> {
        if value.kind != Kind::Object {
            return Err(Unread::Shape);
        }
        Ok(Self { bytes, value, members: scan::members(bytes, value.span)?.into() })
    }

    /// The outermost object of a body whose members are known. Only white space is around it.
    pub(super) fn outermost(bytes: &'a [u8], members: &'a [Member]) -> Self {
        let start = memchr(b'{', bytes).unwrap_or(0);
        let end = memrchr(b'}', bytes).map_or(bytes.len(), |last| last + 1);
        let value = Value { kind: Kind::Object, span: Span::new(start, end) };
        Self { bytes, value, members: members.into() }
    }

    pub(crate) fn get(&self, key: &str) -> Option<Value> {
        scan::get(self.bytes, &self.members, key)
    }

    pub(crate) fn of_kind(&self, key: &str, kind: Kind) -> Option<Value> {
        self.get(key).filter(|value| value.kind == kind)
    }

    /// A member that is not null.
    pub(crate) fn given(&self, key: &str) -> Option<Value> {
        self.get(key).filter(|value| value.kind != Kind::Null)
    }

    pub(crate) fn text(&self, key: &str) -> Option<Box<str>> {
        let text = self.of_kind(key, Kind::String)?;
        string::decode(text.span.of(self.bytes)).map(Box::from)
    }

    /// Like [`Self::text`], but `None` if it is empty, since that names nothing.
    pub(crate) fn name(&self, key: &str) -> Option<Box<str>> {
        self.text(key).filter(|name| !name.is_empty())
    }

    /// Whether the member is the string `expected`, with or without escapes.
    pub(crate) fn says(&self, key: &str, expected: &str) -> bool {
        self.of_kind(key, Kind::String)
            .and_then(|value| string::decode(value.span.of(self.bytes)))
            .is_some_and(|text| text == expected)
    }

    /// Whether its `type` is one of `types`.
    pub(crate) fn is_one_of(&self, types: &[&str]) -> bool {
        types.iter().any(|expected| self.says("type", expected))
    }

    pub(crate) fn is_true(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| value.span.of(self.bytes) == b"true")
    }

    pub(crate) fn is_false(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| value.span.of(self.bytes) == b"false")
    }

    /// A member that is a whole number.
    pub(crate) fn number(&self, key: &str) -> Option<u64> {
        std::str::from_utf8(self.get(key)?.span.of(self.bytes)).ok()?.parse().ok()
    }

    /// The text in the member `inner` of the object `key`.
    ///
    /// # Errors
    /// If the object is ambiguous (has duplicate keys).
    pub(crate) fn inner_text(&self, key: &str, inner: &str) -> Result<Option<Box<str>>, Unread> {
        match self.of_kind(key, Kind::Object) {
            Some(object) => Ok(Self::read(self.bytes, object)?.text(inner)),
            None => Ok(None),
        }
    }

    /// Whether one of the objects in a list has a `type` that begins with one of `words`.
    ///
    /// # Errors
    /// If an object is ambiguous (has duplicate keys).
    pub(crate) fn lists_type(&self, list: Option<Value>, words: &[&str]) -> Result<bool, Unread> {
        let Some(list) = list.filter(|list| list.kind == Kind::Array) else { return Ok(false) };
        for item in scan::items(self.bytes, list.span)?.into_iter().filter(|item| item.kind == Kind::Object) {
            let kind = Self::read(self.bytes, item)?.text("type").unwrap_or_default();
            if words.iter().any(|word| kind.starts_with(word)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The edit that appends a member. The object must have at least one.
    pub(super) fn append(&self, member: &str) -> Edit {
        Edit::insert(self.value.span.end - 1, format!(",{member}"))
    }

    /// The positions of the object's members, each from its key to the end of its value.
    pub(crate) fn slots(&self) -> Slots {
        Slots { array: self.value.span, items: self.members.iter().map(|member| member.span()).collect() }
    }

    /// The values of the object's members, sorted by name, since clients may write members in any order.
    pub(crate) fn values(&self) -> impl Iterator<Item = Value> {
        let mut members: Vec<&Member> = self.members.iter().collect();
        members.sort_by_cached_key(|member| match string::decode(member.key.of(self.bytes)) {
            Some(Cow::Owned(name)) => Cow::Owned(name.into_bytes()),
            _ => Cow::Borrowed(member.name(self.bytes)),
        });
        members.into_iter().map(|member| member.value)
    }
}

#[cfg(test)]
mod tests {
    use crate::conversation::NoMemo;
    use crate::protocol;

    #[test]
    fn a_request_has_tools_if_it_declares_some() {
        for (dialect, members, expected) in [
            ("anthropic", r#""tools":[]"#, false),
            ("anthropic", r#""tools":[ {"name":"f"} ]"#, true),
            ("anthropic", r#""tools":[{"name":"f"}],"tool_choice":{"type":"none"}"#, true),
            ("openai-chat", r#""functions":[{}]"#, true),
            ("openai-responses", r#""tools":null"#, false),
            ("gemini", r#""toolConfig":{}"#, false),
        ] {
            let protocol = protocol::named(dialect).unwrap();
            let body = format!(r#"{{"{}":[],{members}}}"#, protocol.list());
            let read = protocol.index(&body.into(), &NoMemo).unwrap();
            assert_eq!(read.has_tools, expected, "{dialect} {members}");
        }
    }
}
