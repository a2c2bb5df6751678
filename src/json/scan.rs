//! Locates values in raw JSON in one pass.
//!
//! Nothing is decoded or copied. The grammar is checked (separators, literals, numbers, balance), the contents of
//! strings are not: an invalid escape only makes decoding that one string fail later. Nesting is bounded, recursion is
//! not used, and the cost is linear for any input.

use memchr::memchr;

use super::{Span, string};

/// The deepest nesting that is read; anything deeper is rejected.
pub const MAX_DEPTH: u32 = 127;

/// How many members there is room for in a list of them before it grows.
const USUAL_MEMBERS: usize = 8;
/// Up to how many bytes a string is read without a search for its end.
const SHORT: usize = 16;
/// How much longer a literal is than the string that it stands for, if it has no escapes.
const QUOTES: usize = 2;

/// Why a document is not read: it is malformed, ambiguous, or beyond a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// The text is not JSON.
    #[error("not valid JSON")]
    Syntax,
    /// The text continues after the value.
    #[error("text after the JSON value")]
    TrailingText,
    /// Nesting is deeper than [`MAX_DEPTH`].
    #[error("nesting too deep")]
    TooDeep,
    /// An object that is read has the same key twice.
    #[error("duplicate key")]
    DuplicateKey,
    /// An object that is read has a key with unnecessary escapes.
    #[error("key with escapes")]
    EscapedKey,
    /// 4 GiB or more.
    #[error("too large")]
    TooLarge,
}

/// The kind of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `{…}`
    Object,
    /// `[…]`
    Array,
    /// `"…"`
    String,
    /// A number.
    Number,
    /// `true` or `false`
    Bool,
    /// `null`
    Null,
}

/// A value: its kind and its bytes, quotes and brackets included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Value {
    /// Its kind.
    pub kind: Kind,
    /// Its bytes.
    pub span: Span,
}

/// A member of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// The literal of the key, quotes included.
    pub key: Span,
    /// The value.
    pub value: Value,
}

impl Member {
    /// The key without its quotes, as spelled. A key with escapes is not one that is looked for, as [`members`]
    /// guarantees.
    pub fn name(self, document: &[u8]) -> &[u8] {
        let literal = self.key.of(document);
        literal.get(1..literal.len().saturating_sub(1)).unwrap_or_default()
    }

    /// The whole member, from its key to the end of its value.
    pub fn span(self) -> Span {
        Span { start: self.key.start, end: self.value.span.end }
    }
}

/// The single value that a document consists of.
///
/// # Errors
/// Returns [`ScanError`] if the text is anything but one JSON value with optional white space around it.
pub fn document(text: &[u8]) -> Result<Value, ScanError> {
    if u32::try_from(text.len()).is_err() {
        return Err(ScanError::TooLarge);
    }
    let mut cursor = Cursor::new(text);
    cursor.space();
    let value = cursor.value()?;
    cursor.end()?;
    Ok(value)
}

/// The value that a document consists of and, if that is an object, its members. Does in one pass what [`document`] and
/// [`members`] do in two.
///
/// # Errors
/// The same as for these two.
pub fn object(text: &[u8]) -> Result<(Value, Vec<Member>), ScanError> {
    if u32::try_from(text.len()).is_err() {
        return Err(ScanError::TooLarge);
    }
    let mut cursor = Cursor::new(text);
    cursor.space();
    if cursor.peek() != Some(b'{') {
        return Ok((document(text)?, Vec::new()));
    }
    let start = cursor.at;
    cursor.depth = 1;
    let members = cursor.members(&mut |cursor, _| cursor.value())?;
    let value = Value { kind: Kind::Object, span: Span::new(start, cursor.at) };
    cursor.end()?;
    Ok((value, unambiguous(text, members)?))
}

/// The contents of an object document: its members, and the items of one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The members, in order.
    pub members: Vec<Member>,
    /// The items of the requested member; `None` if there is no such member or it is not an array.
    pub items: Option<Vec<Value>>,
}

/// Returns the length of the object at a position, given the items of the array before it, if exactly the same bytes
/// were read as an object before; otherwise `None`.
pub type Known<'k> = &'k mut dyn FnMut(&[Value], usize) -> Option<usize>;

/// Reads a document that is an object, and the items of its member `list` if that is an array. Does in one pass what
/// [`document`], [`members`] and [`items`] do in three. Items that are `known` are skipped.
///
/// # Errors
/// The same as for these three; [`ScanError::Syntax`] if the document is not an object.
pub fn listing(text: &[u8], list: &str, known: Known<'_>) -> Result<Listing, ScanError> {
    if u32::try_from(text.len()).is_err() {
        return Err(ScanError::TooLarge);
    }
    let mut cursor = Cursor::new(text);
    let mut found = None;
    cursor.space();
    let members = cursor.members(&mut |cursor, key| {
        if found.is_some() || key != list.as_bytes() || cursor.peek() != Some(b'[') {
            return cursor.value();
        }
        let start = cursor.at;
        found = Some(cursor.items(known)?);
        Ok(Value { kind: Kind::Array, span: Span::new(start, cursor.at) })
    })?;
    cursor.end()?;
    Ok(Listing { members: unambiguous(text, members)?, items: found })
}

/// The members of an object, in order.
///
/// # Errors
/// Returns [`ScanError::DuplicateKey`] or [`ScanError::EscapedKey`] if two parsers could read the object differently,
/// and [`ScanError::Syntax`] if `object` is not an object.
pub fn members(document: &[u8], object: Span) -> Result<Vec<Member>, ScanError> {
    unambiguous(document, members_unchecked(document, object)?)
}

/// These members, if every parser reads them in the same way.
fn unambiguous(document: &[u8], found: Vec<Member>) -> Result<Vec<Member>, ScanError> {
    let escaped = found.iter().any(|member| member.name(document).contains(&b'\\'));
    let twice =
        if escaped { has_duplicates_decoded(document, &found)? } else { has_duplicates(document, &found) };
    if twice { Err(ScanError::DuplicateKey) } else { Ok(found) }
}

/// Whether two keys are equal once decoded. Escapes are accepted only where they are needed, in words of other
/// alphabets and in paths. Elsewhere they could hide a name that is looked for, none of which needs an escape.
fn has_duplicates_decoded(document: &[u8], members: &[Member]) -> Result<bool, ScanError> {
    let mut names = Vec::with_capacity(members.len());
    for member in members {
        let literal = member.key.of(document);
        let name = string::decode(literal).ok_or(ScanError::EscapedKey)?;
        let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\' | b'/');
        if memchr(b'\\', literal).is_some() && name.bytes().all(is_plain) {
            return Err(ScanError::EscapedKey);
        }
        names.push(name);
    }
    names.sort_unstable();
    Ok(names.windows(2).any(|pair| pair[0] == pair[1]))
}

/// The members of an object, in order, whatever their keys.
///
/// # Errors
/// Returns [`ScanError::Syntax`] if `object` is not an object.
pub fn members_unchecked(document: &[u8], object: Span) -> Result<Vec<Member>, ScanError> {
    Cursor::within(document, object).members(&mut |cursor, _| cursor.value())
}

/// The items of an array, in order.
///
/// # Errors
/// Returns [`ScanError::Syntax`] if `array` is not an array.
pub fn items(document: &[u8], array: Span) -> Result<Vec<Value>, ScanError> {
    Cursor::within(document, array).items(&mut |_, _| None)
}

/// The value of the member named `key`, if there is one.
pub fn get(document: &[u8], members: &[Member], key: &str) -> Option<Value> {
    // A name is compared only with those that are as long.
    let is_as_long = |member: &Member| member.key.len() == key.len() + QUOTES;
    let is_it = |member: &&Member| is_as_long(member) && member.name(document) == key.as_bytes();
    members.iter().find(is_it).map(|member| member.value)
}

fn has_duplicates(document: &[u8], members: &[Member]) -> bool {
    if members.len() <= 16 {
        return members.iter().enumerate().any(|(index, member)| {
            let is_same = |other: &Member| {
                other.key.len() == member.key.len() && other.name(document) == member.name(document)
            };
            members[..index].iter().any(is_same)
        });
    }
    let mut names: Vec<&[u8]> = members.iter().map(|member| member.name(document)).collect();
    names.sort_unstable();
    names.windows(2).any(|pair| pair[0] == pair[1])
}

struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
    /// How many containers around the values that are read count towards [`MAX_DEPTH`].
    depth: u32,
}

/// Reads the value of a member whose key is given, without its quotes.
type ReadValue<'r, 'a> = &'r mut dyn FnMut(&mut Cursor<'a>, &[u8]) -> Result<Value, ScanError>;

impl<'a> Cursor<'a> {
    const fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0, depth: 0 }
    }

    /// A cursor at the start of a span that cannot go beyond its end.
    fn within(document: &'a [u8], span: Span) -> Self {
        let text = &document[..span.range().end.min(document.len())];
        Self { at: span.range().start, ..Self::new(text) }
    }

    fn members(&mut self, value: ReadValue<'_, 'a>) -> Result<Vec<Member>, ScanError> {
        self.expect(b'{')?;
        self.space();
        if self.take(b'}') {
            return Ok(Vec::new());
        }
        let mut found = Vec::with_capacity(USUAL_MEMBERS);
        loop {
            self.space();
            let start = self.at;
            self.string()?;
            let key = Span::new(start, self.at);
            self.space();
            self.expect(b':')?;
            self.space();
            let text = self.text;
            // A string that was read has both quotes.
            let value = value(self, &text[start + 1..key.range().end - 1])?;
            found.push(Member { key, value });
            self.space();
            if self.take(b'}') {
                return Ok(found);
            }
            self.expect(b',')?;
        }
    }

    fn items(&mut self, known: Known<'_>) -> Result<Vec<Value>, ScanError> {
        let mut found = Vec::new();
        self.expect(b'[')?;
        self.space();
        if self.take(b']') {
            return Ok(found);
        }
        loop {
            self.space();
            let start = self.at;
            match known(&found, start) {
                Some(length) => {
                    self.at += length;
                    found.push(Value { kind: Kind::Object, span: Span::new(start, self.at) });
                }
                None => found.push(self.value()?),
            }
            self.space();
            if self.take(b']') {
                return Ok(found);
            }
            self.expect(b',')?;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Result<(), ScanError> {
        if self.take(byte) { Ok(()) } else { Err(ScanError::Syntax) }
    }

    /// Takes the white space at the end of a document.
    fn end(&mut self) -> Result<(), ScanError> {
        self.space();
        if self.at == self.text.len() { Ok(()) } else { Err(ScanError::TrailingText) }
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn value(&mut self) -> Result<Value, ScanError> {
        let start = self.at;
        let kind = match self.peek() {
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            _ => return self.scalar().map(|kind| Value { kind, span: Span::new(start, self.at) }),
        };
        self.container()?;
        Ok(Value { kind, span: Span::new(start, self.at) })
    }

    /// Reads from an opening bracket up to and including the matching one. `open` has a bit per level: 1 for an object.
    fn container(&mut self) -> Result<(), ScanError> {
        let (mut open, mut depth) = (0_u128, 0_u32);
        loop {
            // Invariant: a value is due here.
            let opened = match self.peek() {
                Some(byte @ (b'{' | b'[')) => {
                    if self.depth + depth == MAX_DEPTH {
                        return Err(ScanError::TooDeep);
                    }
                    self.at += 1;
                    depth += 1;
                    open = (open << 1) | u128::from(byte == b'{');
                    self.space();
                    true
                }
                _ => {
                    self.scalar()?;
                    false
                }
            };
            if opened && !self.close(&mut open, &mut depth) {
                self.key(open)?;
                continue;
            }
            loop {
                if depth == 0 {
                    return Ok(());
                }
                self.space();
                if self.take(b',') {
                    self.space();
                    self.key(open)?;
                    break;
                }
                if !self.close(&mut open, &mut depth) {
                    return Err(ScanError::Syntax);
                }
            }
        }
    }

    /// Takes the bracket that closes the innermost container, if it is next.
    fn close(&mut self, open: &mut u128, depth: &mut u32) -> bool {
        let bracket = if *open & 1 == 1 { b'}' } else { b']' };
        let closed = self.take(bracket);
        if closed {
            *open >>= 1;
            *depth -= 1;
        }
        closed
    }

    /// In an object, takes `"key":`; in an array, nothing.
    fn key(&mut self, open: u128) -> Result<(), ScanError> {
        if open & 1 == 1 {
            self.string()?;
            self.space();
            self.expect(b':')?;
            self.space();
        }
        Ok(())
    }

    fn scalar(&mut self) -> Result<Kind, ScanError> {
        match self.peek() {
            Some(b'"') => self.string().map(|()| Kind::String),
            Some(b't') => self.word(b"true").map(|()| Kind::Bool),
            Some(b'f') => self.word(b"false").map(|()| Kind::Bool),
            Some(b'n') => self.word(b"null").map(|()| Kind::Null),
            Some(b'-' | b'0'..=b'9') => self.number().map(|()| Kind::Number),
            _ => Err(ScanError::Syntax),
        }
    }

    fn word(&mut self, word: &[u8]) -> Result<(), ScanError> {
        if self.text[self.at..].starts_with(word) {
            self.at += word.len();
            return Ok(());
        }
        Err(ScanError::Syntax)
    }

    fn number(&mut self) -> Result<(), ScanError> {
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _ = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), ScanError> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at > start { Ok(()) } else { Err(ScanError::Syntax) }
    }

    /// Reads from an opening quote up to and including the closing one: the first quote after an even number of
    /// backslashes.
    fn string(&mut self) -> Result<(), ScanError> {
        self.expect(b'"')?;
        let mut from = self.at;
        // To look at the few bytes of a name takes less than to call a search.
        let near = &self.text[from..self.text.len().min(from + SHORT)];
        if let Some(length) = near.iter().position(|byte| *byte == b'"')
            && !near[..length].ends_with(b"\\")
        {
            self.at = from + length + 1;
            return Ok(());
        }
        while let Some(offset) = memchr(b'"', &self.text[from..]) {
            let quote = from + offset;
            let slashes = self.text[from..quote].iter().rev().take_while(|byte| **byte == b'\\').count();
            from = quote + 1;
            if slashes % 2 == 0 {
                self.at = from;
                return Ok(());
            }
        }
        Err(ScanError::Syntax)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, expected: Result<Kind, ScanError>) {
        assert_eq!(document(text.as_bytes()).map(|value| value.kind), expected, "{text}");
    }

    #[test]
    fn documents_are_scanned_or_refused() {
        for (text, kind) in [
            ("{}", Kind::Object),
            (" [1, 2 , {\"a\" : [ ] } ]\n", Kind::Array),
            ("\"a\\\"b\\\\\"", Kind::String),
            ("-0.5e+10", Kind::Number),
            ("123456789012345678901234567890", Kind::Number),
            ("true", Kind::Bool),
            ("null", Kind::Null),
            ("\"\\ud800\"", Kind::String),
        ] {
            check(text, Ok(kind));
        }
        for text in [
            "",
            "{",
            "}",
            "[1,]",
            "[,1]",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{1:2}",
            "NaN",
            "[NaN]",
            "Infinity",
            "-",
            "01x",
            "1.",
            "1e",
            "\"",
            "\"\\\"",
            "tru",
            "[1 2]",
            "{\"a\":1 \"b\":2}",
            "[}",
            "{]",
            "[1}",
            "'a'",
        ] {
            assert!(document(text.as_bytes()).is_err(), "{text}");
        }
        check("{} {}", Err(ScanError::TrailingText));
        check("01", Err(ScanError::TrailingText));
    }

    #[test]
    fn nesting_depth_is_bounded() {
        for (depth, fine) in [(127, true), (128, false), (300, false), (100_000, false)] {
            let text = "[".repeat(depth) + &"]".repeat(depth);
            assert_eq!(document(text.as_bytes()).is_ok(), fine, "{depth}");
        }
    }

    #[test]
    fn duplicate_and_ambiguous_keys_are_refused() {
        let of = |text: &str| members(text.as_bytes(), Span::new(0, text.len())).map(|found| found.len());
        assert_eq!(of("{\"a\":1,\"b\":{\"a\":1,\"a\":2}}"), Ok(2));
        assert_eq!(of("{\"a\":1,\"a\":2}"), Err(ScanError::DuplicateKey));
        assert_eq!(of("{\"\\u0061\":1}"), Err(ScanError::EscapedKey));
        for (object, expected) in [
            (r#"{"\u540d":1,"b":2}"#, Ok(2)),
            (r#"{"src\\main.rs":1,"a\/b":2,"say \"x\"":3}"#, Ok(3)),
            (r#"{"\u540d":1,"名":2}"#, Err(ScanError::DuplicateKey)),
            (r#"{"a\/b":1,"a/b":2}"#, Err(ScanError::DuplicateKey)),
            (r#"{"\u540d":1,"b":2,"b":3}"#, Err(ScanError::DuplicateKey)),
            (r#"{"\u540d":1,"\u0062":2}"#, Err(ScanError::EscapedKey)),
            (r#"{"call\u005fid":1}"#, Err(ScanError::EscapedKey)),
            (r#"{"x\u002did":1}"#, Err(ScanError::EscapedKey)),
            (r#"{"\u0020":1}"#, Err(ScanError::EscapedKey)),
            (r#"{"\ud800":1}"#, Err(ScanError::EscapedKey)),
            (r#"{"\x":1}"#, Err(ScanError::EscapedKey)),
        ] {
            assert_eq!(of(object), expected, "{object}");
        }
        assert_eq!(of("[1]"), Err(ScanError::Syntax));
        let many: Vec<String> = (0..40).map(|index| format!("\"k{}\":0", index % 39)).collect();
        assert_eq!(of(&format!("{{{}}}", many.join(","))), Err(ScanError::DuplicateKey));
    }

    #[test]
    fn items_and_members_give_exact_spans() {
        let text = br#" { "a" : [ 1 , "x,]" , {} ] , "b" : null } "#;
        let root = document(text).unwrap();
        let found = members(text, root.span).unwrap();
        assert_eq!(found[0].span().of(text), br#""a" : [ 1 , "x,]" , {} ]"#);
        assert_eq!(found[1].name(text), b"b");
        let items = items(text, found[0].value.span).unwrap();
        let texts: Vec<&[u8]> = items.iter().map(|item| item.span.of(text)).collect();
        assert_eq!(texts, [&b"1"[..], b"\"x,]\"", b"{}"]);
        assert_eq!(get(text, &found, "b").map(|value| value.kind), Some(Kind::Null));
        assert_eq!(get(text, &found, "c"), None);
    }

    #[test]
    fn a_listing_equals_three_separate_scans() {
        for text in [
            r#" { "a" : 1 , "list" : [ 1 , {"list":[2]} , "x,]" ] , "b" : [ 3 ] } "#,
            r#"{"list":[]}"#,
            r#"{"list":{"a":1}}"#,
            r#"{"a":1}"#,
            r#"{"list":[1],"list":[2]}"#,
            r#"{"li\u0073t":[1]}"#,
            r#"{"list":[1}"#,
            r#"{"list":[1]} x"#,
            "[1]",
            "",
        ] {
            let text = text.as_bytes();
            let three = document(text).and_then(|root| members(text, root.span)).map(|members| {
                let list = get(text, &members, "list").filter(|value| value.kind == Kind::Array);
                Listing { items: list.map(|list| items(text, list.span).unwrap()), members }
            });
            assert_eq!(
                listing(text, "list", &mut |_, _| None).ok(),
                three.ok(),
                "{}",
                String::from_utf8_lossy(text)
            );
        }
    }

    /// What [`object`] does, in two passes.
    fn object_in_two(text: &[u8]) -> Result<(Value, Vec<Member>), ScanError> {
        let value = document(text)?;
        let members = if value.kind == Kind::Object { members(text, value.span)? } else { Vec::new() };
        Ok((value, members))
    }

    #[test]
    fn an_object_equals_two_separate_scans() {
        let nested = |depth: usize| "{\"a\":".repeat(depth) + "[]" + &"}".repeat(depth);
        let (deepest, too_deep) = (nested(MAX_DEPTH as usize - 1), nested(MAX_DEPTH as usize));
        for text in [
            r#" { "a" : [ 1 , {"a":2} ] , "b c, a long name with \" in it" : {"x":1,"x":2} } "#,
            "{ }",
            " [1] ",
            r#"{"a":1,"a":2}"#,
            r#"{"a":1,"a":2} x"#,
            r#"{"\u0061":1}"#,
            r#"{"a":1,}"#,
            r#"{"a" 1}"#,
            r#"{"a":[1}"#,
            r#"{"a":1"#,
            r#"{"a"#,
            "{} {}",
            "",
            &deepest,
            &too_deep,
        ] {
            assert_eq!(object(text.as_bytes()), object_in_two(text.as_bytes()), "{text}");
        }
        assert!(object(deepest.as_bytes()).is_ok());
        assert_eq!(object(too_deep.as_bytes()), Err(ScanError::TooDeep));
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<String>().prop_map(Into::into),
        ];
        leaf.prop_recursive(5, 48, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
                prop::collection::btree_map(any::<String>(), inner, 0..6)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn agrees_with_serde_json_on_valid_text(value in json(), pretty in any::<bool>()) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
            let root = document(text.as_bytes()).unwrap();
            prop_assert_eq!(root.span, Span::new(0, text.len()));
            if let serde_json::Value::Array(values) = &value {
                let found = items(text.as_bytes(), root.span).unwrap();
                prop_assert_eq!(found.len(), values.len());
                for (item, value) in found.iter().zip(values) {
                    let again: serde_json::Value = serde_json::from_slice(item.span.of(text.as_bytes())).unwrap();
                    prop_assert_eq!(&again, value);
                }
            }
        }

        #[test]
        fn agrees_with_serde_json_on_structure(text in "[\\[\\]{}:,\"\\\\ a1tnul.e-]{0,24}") {
            let ours = document(text.as_bytes()).is_ok();
            let theirs = serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok();
            // Escapes are left to decoding, so this scanner may accept a string that `serde_json` rejects; never the
            // reverse.
            if theirs { prop_assert!(ours); }
            if ours && !text.contains('\\') { prop_assert!(theirs); }
            prop_assert_eq!(object(text.as_bytes()), object_in_two(text.as_bytes()));
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(root) = document(&bytes) {
                let _ = members(&bytes, root.span);
                let _ = items(&bytes, root.span);
            }
        }
    }
}
