//! The texts in the arguments of a call.

use std::borrow::Cow;

use super::fingerprint::Hasher;
use super::{Arguments, Conversation, Digest, PartId};
use crate::json::scan::{self, Kind, Value};
use crate::json::{self, Edit, Edits, Span, string};

/// Arguments of fewer bytes are never abridged. However a call is spelled, it is not shorter than its texts.
pub const MIN_ABRIDGED: usize = 1024;

/// Texts in more nested lists and objects than this, the outermost object included, are not looked for.
const MAX_DEPTH: usize = 4;

/// The arguments of a call: JSON, or one text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Texts<'a> {
    /// The JSON or the text.
    source: Cow<'a, str>,
    /// The string literals of its texts, in order; `None` if it is not JSON but one text.
    literals: Option<Vec<Span>>,
}

impl Conversation {
    /// The arguments of a call as text: the JSON of a value, or the content of a string.
    pub fn arguments(&self, id: PartId) -> Option<Cow<'_, str>> {
        match self.part(id)?.arguments()? {
            Arguments::Value(span) => {
                std::str::from_utf8(self.bytes_of(id.message, span)).ok().map(Cow::Borrowed)
            }
            Arguments::Encoded(span) => json::string::decode(self.bytes_of(id.message, span)),
        }
    }

    /// A digest of a call's tool and arguments, whatever the spelling of the arguments. `None` if the call has no name.
    pub fn call_digest(&self, id: PartId) -> Option<Digest> {
        let tool = self.part(id)?.tool()?;
        let arguments = self.arguments(id).unwrap_or_default();
        let mut hash = Hasher::default();
        json::canonical::text_piece(tool, &mut |bytes| hash.update(bytes));
        let root = json::scan::document(arguments.as_bytes());
        let fed = root.and_then(|root| {
            json::canonical::feed(arguments.as_bytes(), root, &[], &mut |bytes| hash.update(bytes))
        });
        if fed.is_err() {
            hash.update(arguments.as_bytes());
        }
        Some(hash.finish())
    }

    /// The texts in the arguments of a call; `None` if there are no arguments, or if they are neither an object nor a
    /// text. Arguments that look like JSON but cannot be read as an object do not count as a text, because a less
    /// strict parser may read them.
    pub fn argument_texts(&self, id: PartId) -> Option<Texts<'_>> {
        let source = self.arguments(id)?;
        let object = scan::document(source.as_bytes()).ok().filter(|root| root.kind == Kind::Object);
        if let Some(root) = object {
            let mut literals = Vec::new();
            let is_readable = gather(source.as_bytes(), root, MAX_DEPTH, &mut literals);
            return is_readable.then_some(Texts { source, literals: Some(literals) });
        }
        let is_text =
            matches!(self.part(id)?.arguments()?, Arguments::Encoded(_)) && !looks_like_json(&source);
        is_text.then_some(Texts { source, literals: None })
    }
}

fn looks_like_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '[', '"'])
}

/// Collects the literals of all texts in a value; `false` if it cannot be read.
fn gather(document: &[u8], value: Value, depth: usize, found: &mut Vec<Span>) -> bool {
    match value.kind {
        Kind::String => {
            found.push(value.span);
            true
        }
        Kind::Object if depth > 0 => scan::members_unchecked(document, value.span).is_ok_and(|members| {
            members.into_iter().all(|member| gather(document, member.value, depth - 1, found))
        }),
        Kind::Array if depth > 0 => scan::items(document, value.span)
            .is_ok_and(|items| items.into_iter().all(|item| gather(document, item, depth - 1, found))),
        _ => true,
    }
}

impl Texts<'_> {
    /// The number of texts.
    pub fn len(&self) -> usize {
        self.literals.as_ref().map_or(1, Vec::len)
    }

    /// Whether there are no texts.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A text; `None` if there is none with this index, or if its literal is not valid text.
    pub fn get(&self, at: usize) -> Option<Cow<'_, str>> {
        match &self.literals {
            Some(literals) => string::decode(literals.get(at)?.of(self.source.as_bytes())),
            None => (at == 0).then_some(Cow::Borrowed(&*self.source)),
        }
    }

    /// Whether one of the texts could be replaced by this one and still be read as a text.
    pub fn takes(&self, text: &str) -> bool {
        self.literals.is_some() || !looks_like_json(text)
    }

    /// Everything around the texts, piece by piece; nothing if the arguments are not JSON but one text.
    pub fn beside(&self) -> Vec<&str> {
        let (mut pieces, mut from) = (Vec::new(), 0);
        for literal in self.literals.iter().flatten() {
            pieces.push(self.source.get(from..literal.range().start).unwrap_or_default());
            from = literal.range().end;
        }
        pieces.extend(self.literals.is_some().then(|| self.source.get(from..).unwrap_or_default()));
        pieces
    }

    /// The edits that replace these texts; `None` if one of them does not exist.
    pub fn edits<'t>(&self, texts: impl IntoIterator<Item = (usize, &'t str)>) -> Option<Vec<Edit>> {
        let whole = Span::new(0, self.source.len());
        let edit = |(at, text): (usize, &str)| match &self.literals {
            Some(literals) => Some(Edit::replace(*literals.get(at)?, string::encode(text))),
            None => (at == 0).then(|| Edit::replace(whole, text)),
        };
        texts.into_iter().map(edit).collect()
    }

    /// The arguments with these texts replaced; `None` if one of them does not exist or is given twice.
    pub fn with<'t>(&self, texts: impl IntoIterator<Item = (usize, &'t str)>) -> Option<String> {
        let edits = Edits::new(self.edits(texts)?).ok()?;
        String::from_utf8(edits.apply(self.source.as_bytes())).ok()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::conversation::NoMemo;
    use crate::protocol;

    fn conversation(dialect: &str, body: &str) -> Conversation {
        protocol::named(dialect).unwrap().index(&Bytes::from(body.to_owned()), &NoMemo).unwrap()
    }

    #[test]
    fn texts_of_arguments_are_found_and_replaced() {
        const FIRST: PartId = PartId { message: 0, part: 0 };
        let anthropic = |input: &str| {
            format!(
                r#"{{"messages":[{{"role":"assistant","content":[{{"type":"tool_use","id":"a","name":"f","input":{input}}}]}}]}}"#
            )
        };
        let chat = |arguments: &str| {
            let literal = string::encode(arguments);
            format!(
                r#"{{"messages":[{{"role":"assistant","tool_calls":[{{"id":"a","type":"function","function":{{"name":"f","arguments":{literal}}}}}]}}]}}"#
            )
        };
        for (arguments, texts, with) in [
            (
                r#"{"a":"x","b":1,"c":["y",{"d":"z"}]}"#,
                Some(&["x", "y", "z"][..]),
                r#"{"a":"N","b":1,"c":["y",{"d":"z"}]}"#,
            ),
            (r#"{ "a" : "\u0041\n" }"#, Some(&["A\n"][..]), r#"{ "a" : "N" }"#),
            (
                r#"{"a":{"b":{"c":{"d":"deep"}}},"e":"x"}"#,
                Some(&["deep", "x"][..]),
                r#"{"a":{"b":{"c":{"d":"N"}}},"e":"x"}"#,
            ),
            (
                r#"{"a":{"b":{"c":{"d":{"e":"deeper"}}}},"f":"x"}"#,
                Some(&["x"][..]),
                r#"{"a":{"b":{"c":{"d":{"e":"deeper"}}}},"f":"N"}"#,
            ),
            ("{}", Some(&[][..]), "{}"),
        ] {
            for (dialect, body) in [("anthropic", anthropic(arguments)), ("openai-chat", chat(arguments))] {
                let conversation = conversation(dialect, &body);
                let found = conversation.argument_texts(FIRST);
                let said = found
                    .as_ref()
                    .map(|found| (0..found.len()).map(|at| found.get(at).unwrap()).collect::<Vec<_>>());
                assert_eq!(
                    said.as_deref(),
                    texts
                        .map(|texts| texts.iter().map(|text| Cow::Borrowed(*text)).collect::<Vec<_>>())
                        .as_deref(),
                    "{arguments}"
                );
                let found = found.unwrap();
                let changed = found.with((!found.is_empty()).then_some((0, "N")));
                assert_eq!(changed.as_deref(), Some(with), "{arguments}");
                assert_eq!(found.with([(9, "N")]), None);
            }
        }
        let patch = conversation("openai-chat", &chat("*** Begin Patch"));
        let texts = patch.argument_texts(FIRST).unwrap();
        assert_eq!((texts.len(), texts.get(0).as_deref()), (1, Some("*** Begin Patch")));
        assert_eq!(texts.with([(0, "*")]).as_deref(), Some("*"));
        assert_eq!(["*", " {", "[1]", "\""].map(|text| texts.takes(text)), [true, false, false, false]);
        assert_eq!(texts.beside(), Vec::<&str>::new());
        for not_read in [r#"{"a":NaN,"b":"text"}"#, r#"["a text"]"#, r#" "a text""#, r#"{"a":"cut o"#] {
            let read = conversation("openai-chat", &chat(not_read));
            assert_eq!(read.argument_texts(FIRST), None, "{not_read}");
        }
        for no_object in ["[1]", "7", r#""words""#, "null"] {
            let read = conversation("anthropic", &anthropic(no_object));
            assert_eq!(read.argument_texts(FIRST), None, "{no_object}");
        }
    }
}
