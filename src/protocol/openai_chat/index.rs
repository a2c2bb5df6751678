//! Indexes request bodies.
//!
//! Some servers have roles of their own. A message with an unknown role is kept whole, and counts as the model's. At
//! worst, newborn results before it then count as old, and are not shortened.

use super::dialect::DIALECT;
use super::single_call;
use memchr::memmem;

use crate::conversation::fingerprint::Hasher;
use crate::conversation::{
    Arguments, Call, Carriers, Conversation, Marks, Memo, Message, MessageIndex, Opaque, Part, PartData,
    PartKind, Role, Slots, Stem, ToolResult,
};
use crate::json::scan::{self, Kind, Value};
use crate::plan::{Op, Plan};
use crate::protocol::body::{Document, Object};
use crate::protocol::content::{Blocks, arguments, data_url, feed, fill_result, parts_of, text_part, within};
use crate::protocol::{Unread, openai, request_marks};
use crate::usage::cache_model::Ttl;

/// Members that are left out of fingerprints: cache marks, which some servers pass on to other providers.
pub(super) const MARKS: &[&str] = &["cache_control", "prompt_cache_breakpoint"];

/// The blocks of results.
const RESULT: Blocks = Blocks { texts: &["text"], media, marks: MARKS };

/// Members of an assistant message that carry reasoning, whatever the server calls it.
const REASONING: &[&str] = &[
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "thinking_blocks",
    "reasoning_text",
    "reasoning_opaque",
];

/// Those members of [`REASONING`] that may hold the signatures of calls.
const SIGNATURES: &[&str] = &["reasoning_details", "thinking_blocks", "reasoning_opaque"];

pub(super) fn conversation(document: Document, memo: &dyn Memo) -> Result<Conversation, Unread> {
    let mut messages = document.messages(DIALECT.name, memo, &message)?;
    single_call::pair(&mut messages);
    let frame = document.object();
    let list = frame.get(DIALECT.list).ok_or(Unread::Shape)?;
    Ok(Conversation {
        model: frame.name("model"),
        session: frame
            .text("prompt_cache_key")
            .or_else(|| frame.text("session_id"))
            .filter(|id| !id.is_empty()),
        stream: frame.is_true("stream"),
        max_output: frame.number("max_completion_tokens").or_else(|| frame.number("max_tokens")),
        requested_ttl_ms: openai::requested_ttl_ms(&frame),
        ..document.into_conversation(list.span, messages)
    })
}

/// Adds the cache marks of blocks and of the body itself, as a router passes them on to Claude's provider. If the first
/// messages are instructions, the router moves them before the messages, with their marks.
pub(super) fn with_marks(conversation: Conversation, carriers: Carriers) -> Conversation {
    let Conversation { body, members, array, messages, .. } = &conversation;
    let marks = request_marks::read(&Object::outermost(body, members), *array, messages);
    let is_instruction = |message: &&Message| message.index.role == Role::System;
    let first = messages.iter().take_while(is_instruction).count();
    let leading = marks.parts.partition_point(|(part, _)| (part.message as usize) < first);
    // Some servers move later instructions up to the first ones, so that each new one changes everything after those.
    let has_late = messages.iter().skip(first).any(|message| is_instruction(&message));
    let carriers = if has_late { Carriers::Nothing } else { carriers };
    let marks = Marks { leading, carriers, ..marks };
    Conversation {
        requested_ttl_ms: marks.are_long_in_history().then(|| Ttl::OneHour.millis()),
        marks: Some(marks),
        ..conversation
    }
}

fn message(raw: &[u8]) -> Result<MessageIndex, Unread> {
    let object = Object::of(raw)?;
    let role = match object.text("role").as_deref() {
        Some("system" | "developer" | "latest_reminder") => Role::System,
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some("tool" | "function") => Role::Tool,
        Some(_) => return unknown_role(&object),
        None => return Err(Unread::Shape),
    };
    let mut hash = Hasher::default();
    hash.update(&[role as u8]);
    let (parts, stem) = if role == Role::Tool {
        (vec![tool_result(&object, &mut hash)?], None)
    } else {
        let mut parts = reasoning(&object)?;
        let (content, stem) = content(&object, &mut hash)?;
        let count = content.len();
        parts.extend(content);
        parts.extend(calls(&object, &mut hash)?);
        // A message has a stem only if it has nothing but content.
        let stem = stem.filter(|_| parts.len() == count);
        (parts, stem)
    };
    let index = MessageIndex::new(role, parts, hash.finish()).with_stem(stem);
    Ok(index.marked(request_marks::may_be_in(raw)))
}

/// Whether a plan drops answers with a `reasoning_content`. Some servers require that member in every answer, and
/// accept an empty one. Only the dropped answers are searched, because they are old: a client that removes the member
/// from old answers has removed it from them.
pub(super) fn drops_reasoning_content(conversation: &Conversation, plan: &Plan) -> bool {
    let has_reasoning = |message: &Message| {
        let raw = message.span.of(&conversation.body);
        message.index.role == Role::Assistant && memmem::find(raw, b"\"reasoning_content\"").is_some()
    };
    plan.ops.iter().any(|op| match op {
        Op::Drop { first, end } => conversation.messages[*first..*end].iter().any(has_reasoning),
        _ => false,
    })
}

/// A message with an unknown role.
fn unknown_role(object: &Object<'_>) -> Result<MessageIndex, Unread> {
    let mut hash = Hasher::default();
    hash.update(&[Role::Assistant as u8]);
    let part = opaque(object.bytes, object.value, &mut hash)?;
    Ok(MessageIndex::new(Role::Assistant, vec![part], hash.finish())
        .marked(request_marks::may_be_in(object.bytes)))
}

fn opaque(raw: &[u8], value: Value, hash: &mut Hasher) -> Result<Part, Unread> {
    feed(raw, value, MARKS, hash)?;
    Ok(Part::new(PartData::Opaque(Opaque::default()), value.span))
}

/// Reasoning is not part of the fingerprint, since clients drop it from old turns. Only Claude's can be removed: other
/// providers refuse answers without their reasoning, or sign calls in it.
fn reasoning(object: &Object<'_>) -> Result<Vec<Part>, Unread> {
    let mut found = REASONING.iter().filter_map(|key| says(object, key)).peekable();
    let is_removable = found.peek().is_some() && is_from_claude(object)?;
    let slots = || is_removable.then(|| object.slots());
    Ok(found.map(|value| Part::new(PartData::Thinking(slots()), value.span)).collect())
}

/// A member, if it is not null or empty.
fn says(object: &Object<'_>, key: &str) -> Option<Value> {
    let is_empty =
        |value: &Value| value.kind == Kind::Null || matches!(value.span.of(object.bytes), b"\"\"" | b"[]");
    object.get(key).filter(|value| !is_empty(value))
}

/// Whether the reasoning is Claude's: in LiteLLM's blocks, or in OpenRouter's blocks that say so.
fn is_from_claude(object: &Object<'_>) -> Result<bool, Unread> {
    if says(object, "thinking_blocks").is_some() {
        return Ok(true);
    }
    let Some(details) = says(object, "reasoning_details").filter(|details| details.kind == Kind::Array)
    else {
        return Ok(false);
    };
    for item in scan::items(object.bytes, details.span)? {
        let Ok(item) = Object::read(object.bytes, item) else { return Ok(false) };
        if !item.text("format").is_some_and(|format| format.starts_with("anthropic")) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn content(object: &Object<'_>, hash: &mut Hasher) -> Result<(Vec<Part>, Option<Stem>), Unread> {
    let Some(value) = object.get("content") else { return Ok((Vec::new(), None)) };
    match value.kind {
        Kind::Null => Ok((Vec::new(), None)),
        Kind::String => Ok((vec![text_part(object.bytes, value, value.span, hash)], None)),
        Kind::Array => {
            let items = scan::items(object.bytes, value.span)?;
            let (mut parts, stem) = parts_of(&items, hash, |item, hash| block(object.bytes, item, hash))?;
            let list = || Slots { array: value.span, items: items.iter().map(|item| item.span).collect() };
            // The list must not become empty.
            if parts.iter().any(|part| part.kind() != PartKind::Thinking) {
                for (part, item) in parts.iter_mut().zip(&items) {
                    if let PartData::Thinking(slots) = &mut part.data
                        && is_signed_thought(object.bytes, *item)?
                    {
                        *slots = Some(list());
                    }
                }
            }
            Ok((parts, stem))
        }
        _ => Ok((vec![opaque(object.bytes, value, hash)?], None)),
    }
}

/// Whether a block of reasoning has a signature or encrypted data.
fn is_signed_thought(raw: &[u8], item: Value) -> Result<bool, Unread> {
    let block = Object::read(raw, item)?;
    Ok(["signature", "data"].iter().any(|key| says(&block, key).is_some()))
}

fn block(raw: &[u8], item: Value, hash: &mut Hasher) -> Result<Part, Unread> {
    match item.kind {
        Kind::Object => {}
        // Some servers accept bare strings.
        Kind::String => return Ok(text_part(raw, item, item.span, hash)),
        _ => return opaque(raw, item, hash),
    }
    let block = Object::read(raw, item)?;
    match block.text("type").as_deref() {
        Some("text") => match block.of_kind("text", Kind::String) {
            Some(text) => Ok(text_part(raw, text, item.span, hash)),
            None => opaque(raw, item, hash),
        },
        Some("image_url" | "input_audio" | "file") => {
            feed(raw, item, MARKS, hash)?;
            Ok(Part::new(PartData::Media, item.span))
        }
        // Some servers keep reasoning in the list of content.
        Some("thinking" | "redacted_thinking" | "reasoning") => {
            Ok(Part::new(PartData::Thinking(None), item.span))
        }
        _ => opaque(raw, item, hash),
    }
}

fn calls(object: &Object<'_>, hash: &mut Hasher) -> Result<Vec<Part>, Unread> {
    let mut parts = Vec::new();
    let is_signed_beside = SIGNATURES.iter().any(|key| says(object, key).is_some());
    if let Some(list) = object.of_kind("tool_calls", Kind::Array) {
        for item in scan::items(object.bytes, list.span)? {
            feed(object.bytes, item, MARKS, hash)?;
            let mut call = call(&Object::read(object.bytes, item)?)?;
            call.is_sealed |= is_signed_beside;
            parts.push(Part::new(PartData::ToolCall(call), item.span));
        }
    }
    // These are kept as they are: a single call of the old form (until its result is seen), a refusal, audio.
    for key in ["function_call", "refusal", "audio"] {
        if let Some(value) = object.given(key) {
            feed(object.bytes, value, MARKS, hash)?;
            let call = if key == "function_call" && value.kind == Kind::Object && parts.is_empty() {
                let call = Object::read(object.bytes, value)?;
                single_call::read(&call, is_signed_beside || is_signed(&call))
            } else {
                None
            };
            let opaque = Opaque { call, ..Opaque::default() };
            parts.push(Part::new(PartData::Opaque(opaque), value.span));
        }
    }
    Ok(parts)
}

/// Whether a call comes with another provider's signature, next to the call or, through some gateways, in its id.
fn is_signed(item: &Object<'_>) -> bool {
    let beside = ["extra_content", "provider_specific_fields", "thought_signature"];
    beside.iter().any(|key| item.get(key).is_some())
        || item.text("id").is_some_and(|id| id.contains("__thought__"))
}

fn call(item: &Object<'_>) -> Result<Call, Unread> {
    let mut call = Call { id: item.text("id"), ..Call::default() };
    for (key, member) in [("function", "arguments"), ("custom", "input")] {
        if let Some(inner) = item.of_kind(key, Kind::Object) {
            let inner = Object::read(item.bytes, inner)?;
            call.tool = inner.text("name");
            call.arguments = arguments(&inner, member);
        }
    }
    call.is_sealed = !matches!(call.arguments, Some(Arguments::Encoded(_))) || is_signed(item);
    Ok(call)
}

fn tool_result(object: &Object<'_>, hash: &mut Hasher) -> Result<Part, Unread> {
    let call_id = object.text("tool_call_id").or_else(|| single_call::id_of_result(object));
    let mut result = ToolResult { call_id, tool: object.text("name"), ..ToolResult::default() };
    fill_result(&mut result, object.bytes, object.get("content"), &RESULT, hash)?;
    Ok(Part::new(PartData::ToolResult(result), object.value.span))
}

/// The encoded data of an image, a sound or a file in a block.
fn media(block: &Object<'_>) -> Option<Value> {
    let kind = block.text("type")?;
    let inner = within(block, &kind)?;
    match &*kind {
        "image_url" => data_url(&inner, "url"),
        "input_audio" => inner.of_kind("data", Kind::String),
        "file" => data_url(&inner, "file_data"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::Hold;

    /// Signatures within the reasoning may be those of the calls next to it.
    #[test]
    fn reasoning_is_recognised_under_all_its_names() {
        const CALL: &str =
            r#""tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]"#;
        for (member, thoughts, is_sealed) in [
            (r#""content":null"#, 0, false),
            (r#""reasoning_content":"hm""#, 1, false),
            (r#""reasoning_content":null,"thinking_blocks":null"#, 0, false),
            (r#""reasoning_content":"","thinking_blocks":[],"reasoning_details":[]"#, 0, false),
            (r#""reasoning_details":[{"type":"reasoning.encrypted","data":"x"}]"#, 1, true),
            (
                r#""reasoning_content":"hm","thinking_blocks":[{"type":"redacted_thinking","data":"x"}]"#,
                2,
                true,
            ),
            (r#""reasoning_text":"hm","reasoning_opaque":"x""#, 2, true),
            (r#""reasoning_text":"hm""#, 1, false),
            (r#""content":[{"type":"thinking","thinking":"hm","signature":"x"}]"#, 1, false),
            (r#""content":[{"type":"redacted_thinking","data":"x"}]"#, 1, false),
        ] {
            let read = message(format!(r#"{{"role":"assistant",{member},{CALL}}}"#).as_bytes()).unwrap();
            let of = |kind: PartKind| read.parts.iter().filter(move |part| part.kind() == kind);
            assert_eq!(of(PartKind::Thinking).count(), thoughts, "{member}");
            assert!(of(PartKind::ToolCall).all(|part| part.is_sealed() == is_sealed), "{member}");
            // Reasoning is not part of the fingerprint.
            assert_eq!(
                read.fingerprint,
                message(format!(r#"{{"role":"assistant",{CALL}}}"#).as_bytes()).unwrap().fingerprint
            );
        }
    }

    /// Marks of blocks, of messages and of the body itself, if a router passes them on.
    #[test]
    fn marks_are_read_only_if_a_router_passes_them_on() {
        const SHORT: &str = r#""cache_control":{"type":"ephemeral"}"#;
        const LONG: &str = r#""cache_control":{"type":"ephemeral","ttl":"1h"}"#;
        let protocol = crate::protocol::named("openai-chat").unwrap();
        let part = |message, part| crate::conversation::PartId { message, part };
        let text = |mark: &str| format!(r#"[{{"type":"text","text":"a",{mark}}}]"#);
        let thoughts = r#""reasoning":"hm","tool_calls":[{"id":"c"}]"#;
        for (messages, rest, frame, parts, end, ttl) in [
            (r#"{"role":"user","content":"a"}"#.to_owned(), String::new(), 0, vec![], None, false),
            (
                format!(r#"{{"role":"system","content":{}}},{{"role":"user","content":"a"}}"#, text(LONG)),
                String::new(),
                0,
                vec![(part(0, 0), Hold::Long)],
                None,
                false,
            ),
            (
                format!(r#"{{"role":"system","content":{0}}},{{"role":"user","content":{0}}}"#, text(LONG)),
                String::new(),
                0,
                vec![(part(0, 0), Hold::Long), (part(1, 0), Hold::Long)],
                None,
                true,
            ),
            // The order of members is not that of the parts.
            (
                format!(r#"{{"role":"assistant",{thoughts},"content":{}}}"#, text(SHORT)),
                String::new(),
                0,
                vec![(part(0, 1), Hold::Short)],
                None,
                false,
            ),
            (
                format!(r#"{{"role":"assistant",{SHORT},"content":"a",{thoughts}}}"#),
                String::new(),
                0,
                vec![(part(0, 2), Hold::Short)],
                None,
                false,
            ),
            (
                format!(r#"{{"role":"tool","tool_call_id":"c","content":{}}}"#, text(SHORT)),
                format!(r#","tools":[{{"type":"function",{LONG}}}],{SHORT}"#),
                2,
                vec![(part(0, 0), Hold::Short)],
                Some(Hold::Short),
                false,
            ),
        ] {
            let body = format!(r#"{{"model":"m","messages":[{messages}]{rest}}}"#);
            let read = protocol.index(&body.clone().into(), &crate::conversation::NoMemo).unwrap();
            assert_eq!(read.marks, None, "{body}");
            let read = protocol.with_marks(read, Carriers::Texts);
            let marks = read.marks.unwrap();
            assert_eq!((marks.frame, &marks.parts, marks.end), (frame, &parts, end), "{body}");
            assert_eq!(read.requested_ttl_ms.is_some(), ttl, "{body}");
        }
    }

    /// Marks are put on texts only, and not on empty ones, nor on those whose form may matter.
    #[test]
    fn only_plain_texts_can_be_marked() {
        let protocol = crate::protocol::named("openai-chat").unwrap();
        for (message, expected) in [
            (
                r#"{"role":"user","content" : "a"}"#,
                Some(r#"{"role":"user","content" : [{"type":"text","text":"a"MARK}]}"#),
            ),
            (
                r#"{"role":"assistant","content":"a","refusal":"no"}"#,
                Some(r#"{"role":"assistant","content":[{"type":"text","text":"a"MARK}],"refusal":"no"}"#),
            ),
            (
                r#"{"role":"system","content":[{"type":"text","text":"a"}]}"#,
                Some(r#"{"role":"system","content":[{"type":"text","text":"a"MARK}]}"#),
            ),
            (
                r#"{"role":"tool","content":"a","tool_call_id":"c"}"#,
                Some(r#"{"role":"tool","content":[{"type":"text","text":"a"MARK}],"tool_call_id":"c"}"#),
            ),
            (
                r#"{"role":"tool","tool_call_id":"c","content":[{"text":"a","type":"text"}]}"#,
                Some(r#"{"role":"tool","tool_call_id":"c","content":[{"text":"a","type":"text"MARK}]}"#),
            ),
            (r#"{"role":"system","content":"a"}"#, None),
            (r#"{"role":"user","content":["a"]}"#, None),
            (r#"{"role":"user","content":" "}"#, None),
            (r#"{"role":"user","content":[{"type":"image_url","image_url":{"url":"a"}}]}"#, None),
            (r#"{"role":"tool","tool_call_id":"c","content":""}"#, None),
            (r#"{"role":"tool","tool_call_id":"c","content":"x\ud83e"}"#, None),
            (
                r#"{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}"#,
                None,
            ),
            (
                r#"{"role":"tool","tool_call_id":"c","content":[{"type":"image_url","image_url":{"url":"a"}}]}"#,
                None,
            ),
            (
                r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}"#,
                None,
            ),
        ] {
            let body = |message: &str| format!(r#"{{"model":"m","messages":[{message}]}}"#);
            let read = protocol.index(&body(message).into(), &crate::conversation::NoMemo).unwrap();
            let part = crate::conversation::PartId { message: 0, part: 0 };
            let plan = crate::plan::Plan { ops: vec![crate::plan::Op::Mark { part, hold: Hold::Short }] };
            assert!(protocol.lower(&read, &plan).is_err(), "marked where none is passed on: {message}");
            let read = protocol.with_marks(read, Carriers::Texts);
            let sent = crate::protocol::apply_verified(protocol, &read, &plan, &crate::conversation::NoMemo)
                .ok()
                .map(|after| after.body);
            let sent = sent.map(|sent| String::from_utf8(sent.to_vec()).unwrap());
            let mark = r#","cache_control":{"type":"ephemeral"}"#;
            assert_eq!(sent, expected.map(|message| body(&message.replace("MARK", mark))), "{message}");
        }
    }

    /// The results of Moonshot's tools are encrypted, so they have no text to edit. Their digests differ all the same.
    #[test]
    fn encrypted_results_are_not_editable() {
        let read =
            |content: &str| message(format!(r#"{{"role":"tool","content":{content}}}"#).as_bytes()).unwrap();
        let text = |middle: &str| {
            format!(r#""----MOONSHOT ENCRYPTED BEGIN----{middle}----MOONSHOT ENCRYPTED END----""#)
        };
        let (one, other) = (text("YQ=="), text("Yg=="));
        let list = |text: &str| format!(r#"[{{"type":"text","text":{text}}}]"#);
        assert_eq!(read(&one).parts[0].leaves().len(), 0);
        assert_eq!(read(&list(&one)).parts[0].leaves().len(), 0);
        assert_eq!(read(r#""no ENCRYPTED text""#).parts[0].leaves().len(), 1);
        assert!(read(&one).fingerprint != read(&other).fingerprint);
        assert_eq!(read(&one).fingerprint, read(&list(&one)).fingerprint);
    }

    /// DeepSeek refuses an answer without `reasoning_content` if others have it, and accepts an empty one.
    #[test]
    fn an_inserted_answer_has_empty_reasoning_content_if_replaced_ones_had() {
        let protocol = crate::protocol::named("openai-chat").unwrap();
        let said = r#"{"role":"assistant","content":"SO FAR""#;
        for (member, expected) in [
            ("", format!("{said}}}")),
            (r#","reasoning_content":"hm""#, format!(r#"{said},"reasoning_content":""}}"#)),
            (r#","reasoning_content":"""#, format!(r#"{said},"reasoning_content":""}}"#)),
            (r#","reasoning":"hm""#, format!("{said}}}")),
            (r#","name":"\"reasoning_content\"""#, format!("{said}}}")),
        ] {
            let user = r#"{"role":"user","content":"go"}"#;
            let old = format!(r#"{{"role":"assistant","content":"a"{member}}}"#);
            // The answers that are kept do not count: clients may remove their reasoning later.
            let new = r#"{"role":"assistant","content":"b","reasoning_content":"hm"}"#;
            let body = format!(r#"{{"messages":[{user},{old},{user},{new},{user}]}}"#);
            let read = protocol.index(&body.into(), &crate::conversation::NoMemo).unwrap();
            let insert = |role| Op::Insert { before: 2, role, text: "SO FAR".into() };
            let plan = Plan { ops: vec![Op::Drop { first: 1, end: 2 }, insert(Role::Assistant)] };
            let sent = crate::protocol::apply_verified(protocol, &read, &plan, &crate::conversation::NoMemo)
                .unwrap()
                .body;
            let whole = format!(r#"{{"messages":[{user},{expected},{user},{new},{user}]}}"#);
            assert_eq!(std::str::from_utf8(&sent).unwrap(), whole);
        }
    }

    /// The mark is put on the message, not on its content, whatever the form of the content.
    #[test]
    fn results_are_marked_on_the_message_if_supported() {
        let protocol = crate::protocol::named("openai-chat").unwrap();
        for (message, expected) in [
            (
                r#"{"role":"tool","tool_call_id":"c","content":"a"}"#,
                Some(r#"{"role":"tool","tool_call_id":"c","content":"a"MARK}"#),
            ),
            (
                r#"{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"a"}]}"#,
                Some(r#"{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"a"}]MARK}"#),
            ),
            (r#"{"role":"tool","tool_call_id":"c","content":""}"#, None),
            (
                r#"{"role":"user","content":"a"}"#,
                Some(r#"{"role":"user","content":[{"type":"text","text":"a"MARK}]}"#),
            ),
        ] {
            let body = |message: &str| format!(r#"{{"model":"m","messages":[{message}]}}"#);
            let read = protocol.index(&body(message).into(), &crate::conversation::NoMemo).unwrap();
            let read = protocol.with_marks(read, Carriers::TextsAndResults);
            let part = crate::conversation::PartId { message: 0, part: 0 };
            let plan = crate::plan::Plan { ops: vec![crate::plan::Op::Mark { part, hold: Hold::Short }] };
            let sent = crate::protocol::apply_verified(protocol, &read, &plan, &crate::conversation::NoMemo)
                .ok()
                .map(|after| after.body);
            let sent = sent.map(|sent| String::from_utf8(sent.to_vec()).unwrap());
            let mark = r#","cache_control":{"type":"ephemeral"}"#;
            assert_eq!(sent, expected.map(|message| body(&message.replace("MARK", mark))), "{message}");
        }
    }

    /// A message without its reasoning, which may be in several places.
    #[test]
    fn reasoning_of_claude_is_removed_from_all_its_places() {
        const THOUGHT: &str = r#"{"type":"thinking","thinking":"hm","signature":"x"}"#;
        const SAID: &str = r#"{"type":"text","text":"a"}"#;
        const DETAILS: &str = r#""reasoning_details":[{"format":"anthropic-claude-v1","text":"hm"}]"#;
        const OTHERS: &str = r#""reasoning_details":[{"format":"google-gemini-v1","data":"x"}]"#;
        let protocol = crate::protocol::named("openai-chat").unwrap();
        let said = r#""role":"assistant","content":"a""#;
        for (before, after) in [
            (format!(r#"{said},"reasoning":"hm",{DETAILS}"#), Some(said.to_owned())),
            (format!(r#""reasoning":"hm", {DETAILS}, {said}"#), Some(said.to_owned())),
            (format!(r#""role":"assistant",{DETAILS},"content":"a""#), Some(said.to_owned())),
            (
                format!(r#"{said},"thinking_blocks":[{THOUGHT}],"reasoning_content":"hm""#),
                Some(said.to_owned()),
            ),
            (
                format!(r#""role":"assistant","content":[{THOUGHT},{SAID}],"thinking_blocks":[{THOUGHT}]"#),
                Some(format!(r#""role":"assistant","content":[{SAID}]"#)),
            ),
            // The list, or the message, would become empty.
            (format!(r#""role":"assistant","content":[{THOUGHT}],"refusal":"no""#), None),
            (format!(r#""role":"assistant","content":null,{DETAILS}"#), None),
            // The model is unknown, or not Claude: other models require their reasoning.
            (format!(r#"{said},"reasoning_content":"hm""#), None),
            (format!(r#"{said},"reasoning":"hm",{OTHERS}"#), None),
            (format!(r#"{said},"reasoning_details":[{{"type":"reasoning.text","text":"hm"}}]"#), None),
            (format!(r#"{said},"reasoning_text":"hm","reasoning_opaque":"x""#), None),
            (format!(r#""role":"assistant","content":[{{"type":"thinking","thinking":[]}},{SAID}]"#), None),
        ] {
            let body = |message: &str| {
                format!(
                    r#"{{"model":"m","messages":[{{"role":"user","content":"b"}},{{{message}}},{{"role":"user","content":"c"}}]}}"#
                )
            };
            let read = protocol.index(&body(&before).into(), &crate::conversation::NoMemo).unwrap();
            let thoughts = read.parts_of(1).filter(|(_, part)| part.kind() == PartKind::Thinking);
            let ops = thoughts.map(|(part, _)| crate::plan::Op::Omit { part }).collect();
            let edits = protocol.lower(&read, &crate::plan::Plan { ops });
            let left = edits.ok().map(|edits| String::from_utf8(edits.apply(&read.body)).unwrap());
            assert_eq!(left, after.as_deref().map(body), "{before}");
        }
    }
}
