//! Indexes request bodies.
//!
//! A tool result is an arbitrary JSON object in this dialect. Its texts are looked for where tools and frameworks put
//! them (see [`fill_leaves`]); everything else in it is data and is kept whole.

use super::dialect::DIALECT;
use super::pair::pair;
use crate::conversation::fingerprint::Hasher;
use crate::conversation::{
    Arguments, Call, Conversation, Leaf, Media, Memo, MessageIndex, Opaque, Part, PartData, Role, Slots,
    ToolResult,
};
use crate::json::ScanError;
use crate::json::scan::{self, Kind, Value};
use crate::protocol::Unread;
use crate::protocol::body::{Document, Object};
use crate::protocol::content::{feed, parts_of, seal_result, text_part, within};

/// Members that are left out of fingerprints: a signature does not change the content, and clients may respell it.
const MARKS: &[&str] = &["thoughtSignature", "thought_signature"];

pub(super) fn conversation(document: Document, memo: &dyn Memo) -> Result<Conversation, Unread> {
    let mut messages = document.messages(DIALECT.name, memo, &content)?;
    pair(&mut messages);
    let frame = document.object();
    let config = ["generationConfig", "generation_config"].iter().find_map(|name| frame.get(name));
    let config = config.and_then(|config| object(frame.bytes, config));
    let list = frame.get(DIALECT.list).ok_or(Unread::Shape)?;
    Ok(Conversation {
        session: frame.name("session_id"),
        max_output: config.and_then(|config| {
            ["maxOutputTokens", "max_output_tokens"].iter().find_map(|name| config.number(name))
        }),
        ..document.into_conversation(list.span, messages)
    })
}

fn content(raw: &[u8]) -> Result<MessageIndex, Unread> {
    let object = Object::of(raw)?;
    let role = match object.text("role").as_deref() {
        // Clients send results with the role of the user or of a tool, or with none.
        Some("user" | "function" | "tool" | "") => Role::User,
        None if object.given("role").is_none() => Role::User,
        Some("model") => Role::Assistant,
        _ => return Err(Unread::Shape),
    };
    let items = match object.get("parts") {
        Some(list) if list.kind == Kind::Array => scan::items(raw, list.span)?,
        // A list with one part may be written as the part alone, and an empty one may be left out.
        Some(part) if part.kind == Kind::Object => vec![part],
        None => Vec::new(),
        Some(none) if none.kind == Kind::Null => Vec::new(),
        Some(_) => return Err(Unread::Shape),
    };
    let mut hash = Hasher::default();
    hash.update(&[role as u8]);
    let (parts, stem) = parts_of(&items, &mut hash, |item, hash| part(raw, item, hash))?;
    Ok(MessageIndex::new(role, parts, hash.finish()).with_stem(stem))
}

/// An object whose members may be named in camel case or in snake case.
struct Either<'a>(Object<'a>);

impl Either<'_> {
    /// A member under either of its names; `None` if it is missing or null.
    ///
    /// # Errors
    /// If it is there under both names.
    fn get(&self, camel: &str, snake: &str) -> Result<Option<Value>, Unread> {
        match (self.0.get(camel), self.0.get(snake)) {
            (Some(_), Some(_)) => Err(ScanError::DuplicateKey.into()),
            (one, other) => Ok(one.or(other).filter(|value| value.kind != Kind::Null)),
        }
    }
}

fn part(raw: &[u8], item: Value, hash: &mut Hasher) -> Result<Part, Unread> {
    let part = Either(Object::read(raw, item)?);
    let is_signed = part.get("thoughtSignature", "thought_signature")?.is_some();
    if let Some(call) = part.get("functionCall", "function_call")? {
        return self::call(&Object::read(raw, call)?, item, is_signed, hash);
    }
    if let Some(response) = part.get("functionResponse", "function_response")? {
        return result(&Object::read(raw, response)?, item, is_signed, hash);
    }
    // Reasoning is not part of the fingerprint: clients and providers drop it from old turns.
    if part.0.is_true("thought") {
        return Ok(Part::new(PartData::Thinking(None), item.span));
    }
    if let Some(text) = part.0.of_kind("text", Kind::String) {
        return Ok(text_part(raw, text, item.span, hash));
    }
    let media = part.get("inlineData", "inline_data")?.or(part.get("fileData", "file_data")?);
    feed(raw, item, MARKS, hash)?;
    let opaque = || PartData::Opaque(Opaque::default());
    Ok(Part::new(media.map_or_else(opaque, |_| PartData::Media), item.span))
}

/// The id of a call is not part of its fingerprint: it may be missing, and clients make up ids of their own.
fn call(call: &Object<'_>, item: Value, is_signed: bool, hash: &mut Hasher) -> Result<Part, Unread> {
    let (own_id, tool) = (call.text("id"), call.text("name"));
    let is_sealed = is_signed || own_id.is_none();
    let id = match own_id {
        Some(id) => id,
        None => id_from_content(tool.as_deref(), call)?,
    };
    let arguments = call.get("args").map(|args| Arguments::Value(args.span));
    for member in [call.given("name"), call.given("args")] {
        hash.update(&[u8::from(member.is_some())]);
        if let Some(value) = member {
            feed(call.bytes, value, MARKS, hash)?;
        }
    }
    let call = Call { id: Some(id), tool, arguments, is_sealed, is_for_code: false };
    Ok(Part::new(PartData::ToolCall(call), item.span))
}

/// An id that is made from the call alone, so that it does not change if the call's neighbours do.
fn id_from_content(tool: Option<&str>, call: &Object<'_>) -> Result<Box<str>, Unread> {
    let mut hash = Hasher::default();
    if let Some(args) = call.get("args") {
        feed(call.bytes, args, &[], &mut hash)?;
    }
    let digest = hash.finish().to_string();
    Ok(format!("{}#{}", tool.unwrap_or_default(), &digest[..8]).into())
}

fn result(response: &Object<'_>, item: Value, is_signed: bool, hash: &mut Hasher) -> Result<Part, Unread> {
    let mut result = ToolResult { tool: response.text("name"), ..ToolResult::default() };
    let mut digest = Hasher::default();
    // A signed result is never edited, so it must differ from the same result without a signature.
    digest.update(&[u8::from(is_signed)]);
    let mut has_failed = false;
    if let Some(output) = response.get("response") {
        if output.kind == Kind::Object {
            let output = Object::read(response.bytes, output)?;
            if !is_signed {
                let shows = response.given("parts").is_some();
                fill_leaves(&mut result, &output, shows)?;
            }
            let error = output.given("error");
            let has_error = error.is_some_and(|error| states_error(error.span.of(response.bytes)));
            let is_blank =
                |leaf: &&mut Leaf| error.is_some_and(|error| !has_error && error.span == leaf.span);
            if let Some(blank) = result.leaves.iter_mut().find(is_blank) {
                blank.stays_blank = true;
            }
            has_failed = result.is_error || has_error;
            // The fingerprint counts every `error` member as an error, so that decisions which older gateways have
            // stored are still found.
            result.is_error |= error.is_some();
        }
        feed(response.bytes, output, MARKS, &mut digest)?;
    }
    // Images of a result are next to its response.
    if let Some(media) = response.given("parts") {
        feed(response.bytes, media, MARKS, &mut digest)?;
        result.media = self::media(response.bytes, media)?.map(Box::new);
    }
    hash.update(result.tool.as_deref().unwrap_or_default().as_bytes());
    seal_result(&mut result, digest, hash);
    result.is_error = has_failed;
    // The id is not part of the fingerprint, just as with calls.
    result.call_id = response.text("id");
    Ok(Part::new(PartData::ToolResult(result), item.span))
}

/// The media next to a response; `None` if there are none. They can only be removed together, and only if the response
/// cannot refer to any of them by name. No text can take their place.
fn media(bytes: &[u8], beside: Value) -> Result<Option<Media>, Unread> {
    let list = if beside.kind == Kind::Array { scan::items(bytes, beside.span)? } else { vec![beside] };
    let block = |(slot, item): (usize, &Value)| {
        let encoding = unnamed_data(bytes, *item).filter(|_| beside.kind == Kind::Array)?;
        Some(Leaf::in_slot(encoding.span, slot as u32))
    };
    let blocks: Option<Box<[Leaf]>> = list.iter().enumerate().map(block).collect();
    let slots = Slots { array: beside.span, items: list.iter().map(|item| item.span).collect() };
    Ok((!list.is_empty()).then(|| Media { slots, blocks: blocks.unwrap_or_default(), text: None }))
}

/// The encoded data of a part that consists of nothing else and has no name.
fn unnamed_data(bytes: &[u8], part: Value) -> Option<Value> {
    let part = object(bytes, part).filter(|part| part.values().count() == 1)?;
    let data = ["inlineData", "inline_data"].into_iter().find_map(|name| within(&part, name))?;
    let is_named = ["displayName", "display_name"].iter().any(|name| data.get(name).is_some());
    data.of_kind("data", Kind::String).filter(|_| !is_named)
}

/// Whether the value of an `error` member states an error. Many tools always have the member, and leave it empty or
/// false if nothing went wrong.
fn states_error(error: &[u8]) -> bool {
    let value: Vec<u8> = error.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).take(6).collect();
    !matches!(&*value, b"false" | b"0" | br#""""# | b"[]" | b"{}")
}

/// Members of a response in which frameworks put a list of text blocks, as MCP does, or a whole result of MCP.
const BLOCK_MEMBERS: [&str; 4] = ["content", "output", "result", "error"];

/// Whether the provider itself reads this member of a result of its browser tool. It reads the user's permission and,
/// if there is a screenshot (`shows`), the browser's URL.
fn is_read_by_provider(response: &Object<'_>, value: Value, shows: bool) -> bool {
    let is_at = |name: &str| response.get(name).is_some_and(|member| member.span == value.span);
    ["safety_acknowledgement", "safetyAcknowledgement"].into_iter().any(is_at) || shows && is_at("url")
}

/// Finds the texts of a response, in the first of these places that has any:
///
/// 1. its own members,
/// 2. the first list of nothing but strings,
/// 3. the text blocks of MCP, or of frameworks that imitate it, in a member of [`BLOCK_MEMBERS`],
/// 4. the same in an MCP result that is the value of such a member.
///
/// Texts elsewhere are data, which make no sense when they are truncated.
fn fill_leaves(result: &mut ToolResult, response: &Object<'_>, shows: bool) -> Result<(), Unread> {
    // If there is a list of blocks, MCP's `resultType` is not a text of the result.
    let kind = response.get("resultType").or_else(|| response.get("result_type"));
    let kind = response.of_kind("content", Kind::Array).and(kind).map(|kind| kind.span);
    let is_text = |value: &Value| {
        value.kind == Kind::String
            && Some(value.span) != kind
            && !is_read_by_provider(response, *value, shows)
    };
    result.leaves = response.values().filter(is_text).map(|value| Leaf::alone(value.span)).collect();
    if !result.leaves.is_empty() {
        return Ok(());
    }
    for list in response.values().filter(|value| value.kind == Kind::Array) {
        let items = scan::items(response.bytes, list.span)?;
        if items.iter().all(|item| item.kind == Kind::String) && fill_from(result, list, &items, &items) {
            return Ok(());
        }
    }
    let inner = || BLOCK_MEMBERS.iter().find_map(|name| object(response.bytes, response.get(name)?));
    if !fill_from_blocks(result, response)?
        && let Some(inner) = inner()
    {
        fill_from_blocks(result, &inner)?;
    }
    Ok(())
}

/// Makes the texts of a list of text blocks, in one of [`BLOCK_MEMBERS`], the leaves of a result. Returns `false` if
/// there is no such list.
fn fill_from_blocks(result: &mut ToolResult, response: &Object<'_>) -> Result<bool, Unread> {
    for list in BLOCK_MEMBERS.iter().filter_map(|name| response.of_kind(name, Kind::Array)) {
        let items = scan::items(response.bytes, list.span)?;
        let texts: Option<Vec<Value>> = items.iter().map(|item| text(response.bytes, *item)).collect();
        if texts.is_some_and(|texts| fill_from(result, list, &items, &texts)) {
            result.is_error |= response.is_true("isError") || response.is_true("is_error");
            return Ok(true);
        }
    }
    Ok(false)
}

/// Makes the texts of a list's items the leaves of a result. Returns `false` if there are none.
fn fill_from(result: &mut ToolResult, list: Value, items: &[Value], texts: &[Value]) -> bool {
    if texts.is_empty() {
        return false;
    }
    let leaf = |(slot, text): (usize, &Value)| Leaf::in_slot(text.span, slot as u32);
    result.leaves = texts.iter().enumerate().map(leaf).collect();
    result.slots = Some(Slots { array: list.span, items: items.iter().map(|item| item.span).collect() });
    true
}

/// The text of a block that is of type `text` or has no other member.
fn text(bytes: &[u8], item: Value) -> Option<Value> {
    let block = object(bytes, item)?;
    let is_text = block.is_one_of(&["text"]) || block.values().count() == 1;
    block.of_kind("text", Kind::String).filter(|_| is_text)
}

/// An object; `None` if the value is something else, or an object with duplicate keys: then it is data.
fn object(bytes: &[u8], value: Value) -> Option<Object<'_>> {
    Object::read(bytes, value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{NoMemo, PartId};
    use crate::protocol::Protocol as _;

    fn read(part: &str) -> Conversation {
        let body = format!(r#"{{"contents":[{{"parts":[{part}]}}]}}"#);
        super::super::Gemini.index(&body.into(), &NoMemo).unwrap()
    }

    /// A decision names leaves by number: two parts with the same digest must have the same leaves.
    #[test]
    fn leaves_do_not_depend_on_the_order_of_members() {
        const FIRST: PartId = PartId { message: 0, part: 0 };
        for (one, other, expected) in [
            (r#""output":"a","error":"b""#, r#""error":"b","output":"a""#, &["b", "a"][..]),
            (r#""x":["a","b"],"n":["c"]"#, r#""n":["c"],"x":["a","b"]"#, &["c"]),
        ] {
            let [one, other] = [one, other].map(|members| {
                read(&format!(r#"{{"functionResponse":{{"name":"f","response":{{{members}}}}}}}"#))
            });
            for conversation in [&one, &other] {
                let leaves = conversation.part(FIRST).unwrap().leaves().len();
                let texts: Vec<_> = (0..leaves).map(|leaf| conversation.text(FIRST, leaf).unwrap()).collect();
                assert_eq!(texts, expected);
            }
            assert_eq!(one.messages[0].index.fingerprint, other.messages[0].index.fingerprint);
        }
    }

    /// A response without an `error`, or with an empty one, is no error.
    #[test]
    fn only_a_non_empty_error_member_marks_a_failed_result() {
        const FIRST: PartId = PartId { message: 0, part: 0 };
        let answer = |error: &str| {
            read(&format!(r#"{{"functionResponse":{{"name":"f","response":{{"output":"a"{error}}}}}}}"#))
        };
        for (error, expected) in [
            ("", false),
            (r#","error":null"#, false),
            (r#","error":"""#, false),
            (r#","error":" ""#, false),
            (r#","error":false"#, false),
            (r#","error":0"#, false),
            (r#","error":[ ]"#, false),
            (r#","error":{}"#, false),
            (r#","error":"no such file""#, true),
            (r#","error":{"code":1}"#, true),
            (r#","error":true"#, true),
            (r#","error":1"#, true),
        ] {
            let answer = answer(error);
            let part = answer.part(FIRST).unwrap();
            assert_eq!(part.is_error(), expected, "{error}");
            // A blank error stays blank, and is one of the leaves all the same.
            let is_text = error.ends_with('"');
            assert_eq!(part.leaves().len(), 1 + usize::from(is_text), "{error}");
            assert_eq!(part.leaves()[0].stays_blank, is_text && !expected, "{error}");
        }
    }

    /// Members of a browser's results that the provider itself reads are not edited.
    #[test]
    fn url_and_safety_members_of_browser_results_are_not_editable() {
        const FIRST: PartId = PartId { message: 0, part: 0 };
        let picture = r#","parts":[{"inlineData":{"mimeType":"image/png","data":"aaaa"}}]"#;
        for (response, beside, expected) in [
            (r#""url":"u""#, picture, &[][..]),
            (r#""url":"u","page":"a""#, picture, &["a"]),
            (r#""url":"u","safety_acknowledgement":"true""#, picture, &[]),
            (r#""safetyAcknowledgement":"true","page":"a""#, "", &["a"]),
            // In a result of another tool it is a text like any other.
            (r#""url":"u","page":"a""#, "", &["a", "u"]),
            (r#""url":"u""#, r#","parts":null"#, &["u"]),
        ] {
            let part = format!(r#"{{"functionResponse":{{"name":"f","response":{{{response}}}{beside}}}}}"#);
            let read = read(&part);
            let leaves = read.part(FIRST).unwrap().leaves().len();
            let texts: Vec<_> = (0..leaves).map(|leaf| read.text(FIRST, leaf).unwrap()).collect();
            assert_eq!(texts, expected, "{part}");
        }
    }

    /// Where the texts of a response are looked for, and what is data.
    #[test]
    fn texts_of_response_lists_are_editable_unless_they_are_data() {
        const FIRST: PartId = PartId { message: 0, part: 0 };
        for (response, expected) in [
            (r#""output":["a","b"]"#, &["a", "b"][..]),
            (r#""output":[{"text":"a"},{"text":"b"}]"#, &["a", "b"]),
            (r#""content":[{"type":"text","text":"a","annotations":null}],"isError":false"#, &["a"]),
            (r#""result":{"meta":null,"content":[{"type":"text","text":"a"}]}"#, &["a"]),
            (r#""data":{"content":[]},"result":{"content":[{"text":"a"}]}"#, &["a"]),
            (r#""error":{"content":[{"type":"text","text":"a"}],"isError":true}"#, &["a"]),
            (r#""content":[{"type":"text","text":"a"}],"resultType":"complete""#, &["a"]),
            (r#""content":[{"type":"text","text":"a"}],"result_type":"complete""#, &["a"]),
            (r#""output":"o","content":[{"text":"a"}]"#, &["o"]),
            (r#""output":"o","resultType":"r","content":[{"text":"a"}]"#, &["o"]),
            (r#""output":"o","resultType":"r","content":[{"text":"a","text":"b"}]"#, &["o"]),
            (r#""content":[{"text":"a","text":"b"}],"resultType":"complete""#, &[]),
            (r#""resultType":"o","rows":[]"#, &["o"]),
            (r#""resultType":"complete","content":[{"type":"image","data":"x"}]"#, &[]),
            (r#""output":[{"text":"a"},{"json":{}}]"#, &[]),
            (r#""output":[{"text":"a","user":"u"}]"#, &[]),
            (r#""output":[{"text":1}]"#, &[]),
            (r#""content":[{"type":"text","text":"a"},{"type":"image","data":"x"}]"#, &[]),
            (r#""output":[{"text":"a","text":"b"}]"#, &[]),
            (r#""output":[{"text":"a"},{"type":"text","text":"b","text":"b"}]"#, &[]),
            (r#""content":[{"type":"text","type":"image","text":"a"}]"#, &[]),
            (r#""content":[{"\u0074ype":"text","text":"a"}]"#, &[]),
            (r#""error":{"content":[{"text":"a","text":"b"}]}"#, &[]),
            (r#""rows":[{"text":"a"}]"#, &[]),
            (r#""result":{"rows":[{"text":"a"}]}"#, &[]),
            (r#""result":{"content":[{"text":"a"}],"content":[]}"#, &[]),
            (r#""data":{"content":[{"text":"a"}]}"#, &[]),
            (r#""result":{"content":{"text":"a"}}"#, &[]),
            (r#""output":[]"#, &[]),
        ] {
            let read = read(&format!(r#"{{"functionResponse":{{"name":"f","response":{{{response}}}}}}}"#));
            let part = read.part(FIRST).unwrap();
            let texts: Vec<_> =
                (0..part.leaves().len()).map(|leaf| read.text(FIRST, leaf).unwrap()).collect();
            assert_eq!(texts, expected, "{response}");
            assert_eq!(
                part.slots().map_or(0, |slots| slots.items.len()),
                if response.contains(r#""o""#) { 0 } else { expected.len() },
                "{response}"
            );
        }
    }

    /// Calls and results are the same with an id and without, and a content without a role is the user's.
    #[test]
    fn fingerprints_ignore_ids_nulls_and_the_default_role() {
        let of = |content: &str| {
            let body = format!(r#"{{"contents":[{content}]}}"#);
            super::super::Gemini.index(&body.into(), &NoMemo).unwrap().messages[0].index.fingerprint
        };
        let call = |call: &str| format!(r#"{{"role":"model","parts":[{{"functionCall":{{{call}}}}}]}}"#);
        let result =
            |result: &str| format!(r#"{{"role":"user","parts":[{{"functionResponse":{{{result}}}}}]}}"#);
        let same = [
            vec![
                result(r#""name":"f","response":{"output":"a"}"#),
                result(r#""id":"c","name":"f","response":{"output":"a"}"#),
                result(r#""id":null,"name":"f","parts":null,"response":{"output":"a"}"#),
            ],
            vec![result(r#""name":"f","response":{"output":"b"}"#)],
            vec![result(r#""name":"g","response":{"output":"a"}"#)],
            vec![
                call(r#""name":"f","args":{"a":1}"#),
                call(r#""args":{"a":1},"name":"f","id":null"#),
                call(r#""id":"c","name":"f","args":{ "a": 1 }"#),
            ],
            vec![call(r#""name":"f","args":{"a":1,"id":"x"}"#)],
            vec![call(r#""name":"f","args":{"a":1,"id":"y"}"#)],
            vec![call(r#""name":"g","args":{"a":1}"#)],
            vec![call(r#""name":"f""#), call(r#""name":"f","args":null"#)],
            vec![
                r#"{"parts":[{"text":"x"}]}"#.to_owned(),
                r#"{"role":null,"parts":[{"text":"x"}]}"#.to_owned(),
                r#"{"role":"user","parts":[{"text":"x"}]}"#.to_owned(),
            ],
        ];
        for (at, group) in same.iter().enumerate() {
            assert!(group.iter().all(|one| of(one) == of(&group[0])), "{group:?}");
            assert!(same[..at].iter().all(|other| of(&other[0]) != of(&group[0])), "{group:?}");
        }
    }

    /// A signed result is not edited, so decisions about the same result without a signature do not apply to it.
    #[test]
    fn signed_results_are_not_editable_and_have_their_own_digest() {
        let result = r#""functionResponse":{"name":"f","response":{"output":"a"}}"#;
        let [plain, signed] = [format!("{{{result}}}"), format!(r#"{{{result},"thoughtSignature":"c2ln"}}"#)]
            .map(|part| read(&part).messages[0].index.clone());
        assert_eq!((plain.parts[0].leaves().len(), signed.parts[0].leaves().len()), (1, 0));
        assert_ne!(plain.parts[0].content(), signed.parts[0].content());
        assert_ne!(plain.fingerprint, signed.fingerprint);
    }
}
