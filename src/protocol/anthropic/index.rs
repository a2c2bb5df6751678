//! Indexes request bodies.
//!
//! Only blocks of a known form may be edited; any other is opaque. A request with a message of unknown form is not
//! read.

use memchr::memmem;

use super::dialect::DIALECT;
use super::summary;
use crate::conversation::fingerprint::Hasher;
use crate::conversation::{
    Arguments, Call, Conversation, Hosted, Marks, Memo, MessageIndex, Opaque, Part, PartData, Role, Shows,
    Slots, ToolResult,
};
use crate::json::scan::{self, Kind, Value};
use crate::json::{Span, string};
use crate::protocol::body::{Document, Object};
use crate::protocol::content::{Blocks, feed, fill_result, is_of_code, parts_of, text_part, within};
use crate::protocol::{Unread, request_marks};
use crate::usage::cache_model::Ttl;

/// Members that are left out of fingerprints: cache marks do not change the content.
pub(super) const MARKS: &[&str] = &["cache_control"];

/// The blocks of results.
const RESULT: Blocks = Blocks { texts: &["text"], media, marks: MARKS };

/// The tools that the provider runs by itself.
const HOSTED: &[&str] =
    &["web_search", "web_fetch", "code_execution", "bash_code_execution", "text_editor_code_execution"];
/// The types of the blocks that hold results of such tools.
const HOSTED_RESULTS: &[&str] = &[
    "web_search_tool_result",
    "web_fetch_tool_result",
    "code_execution_tool_result",
    "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result",
    "mcp_tool_result",
];

pub(super) fn conversation(document: Document, memo: &dyn Memo) -> Result<Conversation, Unread> {
    let messages = document.messages(DIALECT.name, memo, &message)?;
    let frame = document.object();
    let list = frame.get(DIALECT.list).ok_or(Unread::Shape)?;
    let marks = request_marks::read(&frame, list.span, &messages);
    let conversation = Conversation {
        model: frame.name("model"),
        session: frame.inner_text("metadata", "user_id")?.and_then(|id| session_of(&id)),
        stream: frame.is_true("stream"),
        max_output: frame.number("max_tokens"),
        requested_ttl_ms: marks.are_long_in_history().then(|| Ttl::OneHour.millis()),
        continues: continues(&frame)?,
        is_kept: frame.given("thread").is_some(),
        asks_for_summary: frame
            .inner_text("compaction", "type")
            .is_ok_and(|kind| kind.as_deref() == Some("summarize")),
        asks_for_edits: asks_for_edits(&frame)?,
        hides_results: frame.lists_type(edits(&frame)?, &["clear_tool_uses"])?,
        forgets_reasoning: forgets_reasoning(&frame)?,
        system: frame.of_kind("system", Kind::String).map(|system| system.span),
        frame_end: if marks.free() == Marks::MOST { frame_end(&frame).ok().flatten() } else { None },
        marks: Some(marks),
        ..document.into_conversation(list.span, messages)
    };
    let seals = summary::beginning(&conversation);
    Ok(Conversation { seals, ..conversation })
}

/// The last block before the messages, if it may have a cache mark: the last block of the instructions or, if there are
/// none, the last tool. The provider accepts no mark on a blank text, nor on a tool that is loaded later.
fn frame_end(frame: &Object<'_>) -> Result<Option<Span>, Unread> {
    let is_text = |block: &Object<'_>| {
        block.text("type").as_deref() == Some("text")
            && block.text("text").is_some_and(|text| !text.trim().is_empty())
    };
    let is_tool = |tool: &Object<'_>| tool.get("name").is_some() && tool.get("defer_loading").is_none();
    let (list, may_be_marked): (_, &dyn Fn(&Object<'_>) -> bool) = match frame.get("system") {
        Some(system) if system.kind == Kind::String => {
            let text = string::decode(system.span.of(frame.bytes));
            return Ok(text.filter(|text| !text.trim().is_empty()).map(|_| system.span));
        }
        Some(system) => (system, &is_text),
        None => match frame.get("tools") {
            Some(tools) => (tools, &is_tool),
            None => return Ok(None),
        },
    };
    if list.kind != Kind::Array {
        return Ok(None);
    }
    let last = scan::items(frame.bytes, list.span)?.pop();
    let Some(last) = last.filter(|last| last.kind == Kind::Object) else { return Ok(None) };
    let block = Object::read(frame.bytes, last)?;
    Ok(may_be_marked(&block).then_some(last.span))
}

/// The id of the message that a request continues a thread after; empty if it states none. `None` if it continues no
/// thread.
fn continues(frame: &Object<'_>) -> Result<Option<Box<str>>, Unread> {
    if frame.inner_text("thread", "type")?.as_deref() != Some("continue") {
        return Ok(None);
    }
    Ok(Some(frame.inner_text("thread", "previous_message_id")?.unwrap_or_default()))
}

/// Whether the provider is asked to clear old results or to compact the history. Being asked to clear old reasoning
/// does not count: that does not interfere with the clearing of results.
fn asks_for_edits(frame: &Object<'_>) -> Result<bool, Unread> {
    frame.lists_type(edits(frame)?, &["clear_tool_uses", "compact"])
}

/// Whether the provider drops old reasoning, or all of it, from the prompt: reasoning that it drops is not billed.
fn forgets_reasoning(frame: &Object<'_>) -> Result<bool, Unread> {
    if frame.inner_text("thinking", "type")?.as_deref() == Some("disabled") {
        return Ok(true);
    }
    let Some(edits) = edits(frame)?.filter(|edits| edits.kind == Kind::Array) else { return Ok(false) };
    for edit in scan::items(frame.bytes, edits.span)?.into_iter().filter(|edit| edit.kind == Kind::Object) {
        let edit = Object::read(frame.bytes, edit)?;
        let clears_reasoning = edit.text("type").is_some_and(|kind| kind.starts_with("clear_thinking"));
        if clears_reasoning && !edit.says("keep", "all") {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The edits of the history that the provider is asked for.
fn edits(frame: &Object<'_>) -> Result<Option<Value>, Unread> {
    match frame.of_kind("context_management", Kind::Object) {
        Some(management) => Ok(Object::read(frame.bytes, management)?.get("edits")),
        None => Ok(None),
    }
}

/// The session inside `metadata.user_id`: a JSON object with `session_id`, `…_session_<id>` or `session_<id>`.
fn session_of(user: &str) -> Option<Box<str>> {
    if let Ok(object) = Object::of(user.as_bytes()) {
        return object.text("session_id").filter(|id| !id.is_empty());
    }
    let id = user.rsplit_once("_session_").map(|(_, id)| id).or_else(|| user.strip_prefix("session_"));
    id.filter(|id| !id.is_empty()).map(Box::from)
}

fn message(raw: &[u8]) -> Result<MessageIndex, Unread> {
    let object = Object::of(raw)?;
    let role = match object.text("role").as_deref() {
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some("system") => Role::System,
        _ => return Err(Unread::Shape),
    };
    let mut hash = Hasher::default();
    hash.update(&[role as u8]);
    let mut shows = Shows::default();
    let (parts, stem) = match object.get("content") {
        Some(value) if value.kind == Kind::String => {
            (vec![text_part(raw, value, value.span, &mut hash)], None)
        }
        Some(value) if value.kind == Kind::Array => {
            let items = scan::items(raw, value.span)?;
            let read = |item, hash: &mut Hasher| block(raw, item, hash, &mut shows);
            let (mut parts, stem) = parts_of(&items, &mut hash, read)?;
            for part in &mut parts {
                if let PartData::Thinking(slots) = &mut part.data {
                    let items = items.iter().map(|item| item.span).collect();
                    *slots = Some(Slots { array: value.span, items });
                }
            }
            (parts, stem)
        }
        _ => return Err(Unread::Shape),
    };
    let index = MessageIndex::new(role, parts, hash.finish()).with_stem(stem);
    Ok(index.marked(request_marks::may_be_in(raw)).showing(shows))
}

fn block(raw: &[u8], item: Value, hash: &mut Hasher, shows: &mut Shows) -> Result<Part, Unread> {
    let block = Object::read(raw, item)?;
    let kind = block.text("type");
    let data = match kind.as_deref() {
        Some("text") => match block.of_kind("text", Kind::String) {
            Some(text) => return Ok(text_part(raw, text, item.span, hash)),
            None => PartData::Opaque(Opaque::default()),
        },
        Some("tool_result") => return tool_result(&block, hash, shows),
        // Reasoning is not part of the fingerprint: clients and providers drop it from old turns.
        Some("thinking" | "redacted_thinking") => return Ok(Part::new(PartData::Thinking(None), item.span)),
        Some("tool_use") => PartData::ToolCall(call(&block)),
        Some("server_tool_use" | "mcp_tool_use") if is_hosted(&block) => PartData::Hosted(hosted(&block)),
        Some(kind) if HOSTED_RESULTS.contains(&kind) => PartData::Hosted(hosted(&block)),
        Some("image" | "document") => PartData::Media,
        other => PartData::Opaque(Opaque { is_summary: other == Some(summary::KIND), call: None }),
    };
    feed(raw, item, MARKS, hash)?;
    *shows = *shows | shown(&block);
    Ok(Part::new(data, item.span))
}

fn call(block: &Object<'_>) -> Call {
    let is_for_code = is_of_code(block);
    Call {
        id: block.text("id"),
        tool: block.text("name"),
        arguments: block.get("input").map(|input| Arguments::Value(input.span)),
        // The provider holds the arguments of a call that its own code made.
        is_sealed: is_for_code,
        is_for_code,
    }
}

/// A call of one of the provider's own tools, or its result.
fn hosted(block: &Object<'_>) -> Hosted {
    if block.get("tool_use_id").is_some() {
        return Hosted { id: block.text("tool_use_id"), tool: None };
    }
    Hosted { id: block.text("id"), tool: block.text("name") }
}

/// Whether a block is a call of one of the provider's own tools whose results nothing later depends on. That excludes
/// its tool search, whose results define tools, and its advisor.
fn is_hosted(block: &Object<'_>) -> bool {
    let is_known = |name: &str| HOSTED.contains(&name);
    block.text("id").is_some_and(|id| !id.is_empty())
        && (block.says("type", "mcp_tool_use") || block.text("name").is_some_and(|name| is_known(&name)))
}

fn tool_result(block: &Object<'_>, hash: &mut Hasher, shows: &mut Shows) -> Result<Part, Unread> {
    let mut result = ToolResult {
        call_id: block.text("tool_use_id"),
        is_error: block.is_true("is_error"),
        has_tools: has_tools(block)?,
        ..ToolResult::default()
    };
    fill_result(&mut result, block.bytes, block.get("content"), &RESULT, hash)?;
    let part = Part::new(PartData::ToolResult(result), block.value.span);
    for span in part.beside_texts() {
        let item = Value { kind: Kind::Object, span };
        *shows =
            *shows | Object::read(block.bytes, item).map_or_else(|_| Shows::default(), |item| shown(&item));
    }
    Ok(part)
}

/// What a block shows.
fn shown(block: &Object<'_>) -> Shows {
    let cited = within(block, "citations").is_some_and(|citations| citations.is_true("enabled"));
    Shows { images: block.says("type", "image"), cited }
}

/// Whether a result refers to tools, which the provider then defines at this position.
fn has_tools(result: &Object<'_>) -> Result<bool, Unread> {
    const NAME: &str = "tool_reference";
    let list = result.of_kind("content", Kind::Array);
    let Some(list) = list.filter(|list| memmem::find(list.span.of(result.bytes), NAME.as_bytes()).is_some())
    else {
        return Ok(false);
    };
    let items = scan::items(result.bytes, list.span)?.into_iter();
    let mut blocks = items.filter_map(|item| Object::read(result.bytes, item).ok());
    Ok(blocks.any(|block| block.says("type", NAME)))
}

/// The base64 data of an image or a document. `None` for one with citations, which refer to it by its number and would
/// be wrong without it.
fn media(block: &Object<'_>) -> Option<Value> {
    let source = within(block, "source").filter(|source| source.says("type", "base64"))?;
    let is_removable = block.is_one_of(&["image", "document"]) && block.get("citations").is_none();
    source.of_kind("data", Kind::String).filter(|_| is_removable)
}
