//! Indexes request bodies.
//!
//! The roles of items decide what is newborn: the client has added everything after the model's last item. So items
//! that clients add (results, instructions, settings) never count as the model's, and an item of an unknown type always
//! does. At worst, newborn results before it then count as old, and are not shortened.

use super::dialect::DIALECT;
use crate::conversation::fingerprint::Hasher;
use crate::conversation::{
    Arguments, Call, Conversation, Hosted, Leaf, Memo, Message, MessageIndex, Opaque, Part, PartData,
    PartKind, Role, Stem, ToolResult, encodings,
};
use crate::json::Span;
use crate::json::scan::{self, Kind, Value};
use crate::protocol::body::{Document, Object};
use crate::protocol::content::{
    Blocks, arguments, data_url, feed, fill_result, is_of_code, parts_of, seal_result, text_part,
};
use crate::protocol::{Unlisted, Unread, openai};
use crate::usage;

/// Members that are left out of fingerprints: cache marks do not change the content.
pub(super) const MARKS: &[&str] = &["prompt_cache_breakpoint", "cache_control"];

/// Types of parts with text.
const TEXTS: &[&str] = &["input_text", "output_text", "text"];

/// The longest item, in bytes, that may be a mere reference.
const MAX_REFERENCE_BYTES: usize = 1024;

/// The blocks of results.
const RESULT: Blocks = Blocks { texts: TEXTS, media, marks: MARKS };

/// What an item is.
#[derive(Clone, Copy)]
enum Item {
    /// A message.
    Message,
    /// Reasoning, readable or not.
    Reasoning,
    /// The model's call of a tool that the client runs, and the member with its arguments.
    Call(&'static str),
    /// The result of a tool: a text, a list of parts, or something else.
    Output,
    /// The output of shell commands, with stdout and stderr of each.
    Printed,
    /// A result in a form of its own, which is opaque, and the member that holds it.
    Sealed(&'static str),
    /// An opaque item that the client adds.
    Aside,
    /// A call of a tool that the provider itself ran, with its result.
    Hosted,
    /// Anything else.
    Unknown,
}

/// The known types of items.
const ITEMS: &[(&str, Item)] = &[
    ("message", Item::Message),
    ("reasoning", Item::Reasoning),
    ("function_call", Item::Call("arguments")),
    ("function_call_output", Item::Output),
    ("custom_tool_call", Item::Call("input")),
    ("custom_tool_call_output", Item::Output),
    ("shell_call", Item::Call("action")),
    ("shell_call_output", Item::Printed),
    // Its output is a JSON document in a string, which would be invalid if it were truncated.
    ("local_shell_call", Item::Call("action")),
    ("local_shell_call_output", Item::Sealed("output")),
    ("apply_patch_call", Item::Call("operation")),
    ("apply_patch_call_output", Item::Output),
    ("computer_call", Item::Call("action")),
    ("computer_call_output", Item::Output),
    ("tool_search_call", Item::Call("arguments")),
    ("tool_search_output", Item::Sealed("tools")),
    ("web_search_call", Item::Hosted),
    ("file_search_call", Item::Hosted),
    ("code_interpreter_call", Item::Hosted),
    ("image_generation_call", Item::Hosted),
    ("mcp_call", Item::Hosted),
    ("additional_tools", Item::Aside),
    ("agent_message", Item::Aside),
    ("compaction_trigger", Item::Aside),
    ("configuration_update", Item::Aside),
    ("mcp_approval_response", Item::Aside),
];

/// Types of items that are the provider's own summary of everything before them.
const SUMMARIES: &[&str] = &["compaction", "compaction_summary", "context_compaction"];

pub(super) fn conversation(document: Document, memo: &dyn Memo) -> Result<Conversation, Unread> {
    let frame = document.object();
    let input = frame.get(DIALECT.list).ok_or(Unread::Shape)?;
    let messages = if input.kind == Kind::String {
        vec![document.message(input.span, "openai-responses text", memo, &prompt)?]
    } else {
        document.messages(DIALECT.name, memo, &item)?
    };
    let newest = messages.last().filter(|message| message.index.role == Role::System);
    let asks_for_summary = newest.is_some_and(|message| is_trigger(message.span.of(frame.bytes)));
    let is_reference = |message: &Message| is_reference(&message.index, message.span.of(frame.bytes));
    let refers = messages.iter().any(is_reference);
    Ok(Conversation {
        model: frame.name("model"),
        session: session(&frame)?,
        stream: frame.is_true("stream"),
        max_output: frame.number("max_output_tokens"),
        requested_ttl_ms: openai::requested_ttl_ms(&frame),
        continues: continues(&frame)?,
        grows: frame.given("conversation").is_some(),
        is_kept: is_kept(&frame),
        completion_window: completion_window(&frame)?,
        refers,
        asks_for_summary,
        asks_for_edits: asks_for_edits(&frame)?,
        hides_results: truncates(&frame),
        late: late(&frame),
        ..document.into_conversation(input.span, messages)
    })
}

/// A request without items, if it continues a history that it names.
pub(super) fn unlisted(frame: &Object<'_>) -> Option<Unlisted> {
    let continues = continues(frame).ok()?.filter(|name| !name.is_empty())?;
    let (session, completion_window) = (session(frame).ok()?, completion_window(frame).ok()?);
    let (model, is_kept) = (frame.name("model"), is_kept(frame));
    Some(Unlisted { model, session, continues, is_kept, completion_window })
}

/// Whether the provider keeps the answer, which is its default.
fn is_kept(frame: &Object<'_>) -> bool {
    !frame.is_false("store")
}

/// The instructions, if the model reads them after the items.
fn late(frame: &Object<'_>) -> Option<Span> {
    let is_late = frame.name("model").is_some_and(|model| usage::reads_instructions_last(&model));
    Some(frame.given("instructions").filter(|_| is_late)?.span)
}

fn continues(frame: &Object<'_>) -> Result<Option<Box<str>>, Unread> {
    if frame.given("previous_response_id").is_none() && frame.given("conversation").is_none() {
        return Ok(None);
    }
    let named = [
        frame.text("previous_response_id"),
        frame.text("conversation"),
        frame.inner_text("conversation", "id")?,
    ];
    Ok(Some(named.into_iter().flatten().next().unwrap_or_default()))
}

/// The window in which a background request is to be completed, unless it is the usual one.
fn completion_window(frame: &Object<'_>) -> Result<Option<Box<str>>, Unread> {
    let window = frame.inner_text("background_options", "completion_window")?;
    Ok(window.filter(|window| **window != *"soonest"))
}

/// Whether the provider is asked to compact the history, or to drop its oldest items.
fn asks_for_edits(frame: &Object<'_>) -> Result<bool, Unread> {
    Ok(truncates(frame) || frame.lists_type(frame.get("context_management"), &["compact"])?)
}

/// Whether the provider is asked to drop the oldest items of a history that is too long.
fn truncates(frame: &Object<'_>) -> bool {
    frame.text("truncation").as_deref() == Some("auto")
}

/// The prompt size in tokens from which the provider is asked to compact the history; 0 if the request states none.
pub(super) fn edits_from(conversation: &Conversation) -> Option<u64> {
    let body = &*conversation.body;
    let management = scan::get(body, &conversation.members, "context_management")?;
    let management: serde_json::Value = serde_json::from_slice(management.span.of(body)).ok()?;
    let is_compaction =
        |edit: &&serde_json::Value| edit["type"].as_str().is_some_and(|kind| kind.starts_with("compact"));
    let edits = management.as_array()?.iter().filter(is_compaction);
    edits.map(|edit| edit["compact_threshold"].as_u64().unwrap_or(0)).min()
}

/// Whether an item asks the provider to compact everything before it.
fn is_trigger(item: &[u8]) -> bool {
    Object::of(item).is_ok_and(|object| object.says("type", "compaction_trigger"))
}

/// Whether an item is a mere reference to a stored one. If its type is left out, the id is all that it has.
fn is_reference(index: &MessageIndex, item: &[u8]) -> bool {
    if item.len() > MAX_REFERENCE_BYTES || !matches!(&*index.parts, [part] if part.kind() == PartKind::Opaque)
    {
        return false;
    }
    Object::of(item).is_ok_and(|object| {
        let is_untyped = object.given("type").is_none();
        let is_bare = is_untyped && object.get("role").is_none() && object.get("content").is_none();
        object.text("id").is_some() && (is_bare || object.says("type", "item_reference"))
    })
}

/// The session id. Members called a session have priority over the cache key, which several sessions may share.
fn session(frame: &Object<'_>) -> Result<Option<Box<str>>, Unread> {
    let candidates = [
        frame.inner_text("client_metadata", "session_id")?,
        frame.inner_text("metadata", "session_id")?,
        frame.text("prompt_cache_key"),
    ];
    Ok(candidates.into_iter().flatten().find(|id| !id.is_empty()))
}

/// A history that is a single text, which equals one message of the user.
fn prompt(raw: &[u8]) -> Result<MessageIndex, Unread> {
    let text = scan::document(raw)?;
    let mut hash = Hasher::default();
    hash.update(&[Role::User as u8]);
    let part = text_part(raw, text, text.span, &mut hash);
    Ok(MessageIndex::new(Role::User, vec![part], hash.finish()))
}

fn item(raw: &[u8]) -> Result<MessageIndex, Unread> {
    let object = Object::of(raw)?;
    let kind = object.text("type");
    let kind = kind.as_deref().unwrap_or("message");
    let known = ITEMS.iter().find(|(name, _)| *name == kind);
    let item = match known.map_or(Item::Unknown, |(_, item)| *item) {
        Item::Message if speaker(&object).is_none() => Item::Unknown,
        item => item,
    };
    let role = role(&object, kind, item);
    let mut hash = Hasher::default();
    hash.update(&[role as u8]);
    let mut stem = None;
    let parts = match item {
        Item::Message => {
            let (parts, before) = message(&object, &mut hash)?;
            stem = before;
            parts
        }
        // Reasoning is not part of the fingerprint: clients and providers drop it from old turns.
        Item::Reasoning => vec![Part::new(PartData::Thinking(None), object.value.span)],
        Item::Call(arguments) => vec![call(&object, kind, arguments, &mut hash)?],
        _ if role == Role::Tool => vec![result(&object, item, &mut hash)?],
        Item::Hosted => vec![whole(&object, PartData::Hosted(Hosted::default()), &mut hash)?],
        _ => vec![opaque(&object, SUMMARIES.contains(&kind), &mut hash)?],
    };
    Ok(MessageIndex::new(role, parts, hash.finish()).with_stem(stem))
}

/// The role that an item states. `None` if it states none or an unknown one; the item then counts as one of an unknown
/// type.
fn speaker(object: &Object<'_>) -> Option<Role> {
    match object.text("role")?.as_ref() {
        "user" => Some(Role::User),
        "assistant" => Some(Role::Assistant),
        "system" | "developer" | "latest_reminder" => Some(Role::System),
        _ => None,
    }
}

fn role(object: &Object<'_>, kind: &str, item: Item) -> Role {
    match item {
        Item::Message => speaker(object).unwrap_or(Role::Assistant),
        // A call that the provider ran itself belongs to the model's message, with its result.
        Item::Output | Item::Printed | Item::Sealed(_) if object.says("execution", "server") => {
            Role::Assistant
        }
        Item::Output | Item::Printed | Item::Sealed(_) if call_id(object).is_some() => Role::Tool,
        Item::Aside => Role::System,
        Item::Unknown if kind.ends_with("_call_output") => Role::System,
        _ => Role::Assistant,
    }
}

fn message(object: &Object<'_>, hash: &mut Hasher) -> Result<(Vec<Part>, Option<Stem>), Unread> {
    match object.get("content") {
        Some(value) if value.kind == Kind::String => {
            Ok((vec![text_part(object.bytes, value, value.span, hash)], None))
        }
        Some(value) if value.kind == Kind::Array => {
            let items = scan::items(object.bytes, value.span)?;
            parts_of(&items, hash, |item, hash| block(object.bytes, item, hash))
        }
        _ => Ok((vec![opaque(object, false, hash)?], None)),
    }
}

fn block(raw: &[u8], item: Value, hash: &mut Hasher) -> Result<Part, Unread> {
    let block = Object::read(raw, item)?;
    if let Some(text) = block.of_kind("text", Kind::String).filter(|_| block.is_one_of(TEXTS)) {
        return Ok(text_part(raw, text, item.span, hash));
    }
    let media = block.is_one_of(&["input_image", "input_file", "input_audio"]);
    feed(raw, item, MARKS, hash)?;
    let data = if media { PartData::Media } else { PartData::Opaque(Opaque::default()) };
    Ok(Part::new(data, item.span))
}

/// A call. Its id and its status are not part of the fingerprint: clients that store nothing with the provider leave
/// them out.
fn call(object: &Object<'_>, kind: &str, member: &str, hash: &mut Hasher) -> Result<Part, Unread> {
    let arguments = arguments(object, member);
    let is_for_code = is_of_code(object);
    let call = Call {
        id: call_id(object),
        tool: object.text("name").or_else(|| kind.strip_suffix("_call").map(Box::from)),
        arguments,
        // Arguments other than a string belong to one of the provider's own tools and have a fixed form.
        is_sealed: is_for_code || !matches!(arguments, Some(Arguments::Encoded(_))),
        is_for_code,
    };
    hash.update(kind.as_bytes());
    for value in ["call_id", "namespace", "name", member].map(|name| object.given(name)) {
        hash.update(&[u8::from(value.is_some())]);
        if let Some(value) = value {
            feed(object.bytes, value, MARKS, hash)?;
        }
    }
    Ok(Part::new(PartData::ToolCall(call), object.value.span))
}

fn call_id(object: &Object<'_>) -> Option<Box<str>> {
    let item_id = || object.text("id").filter(|_| object.says("type", "local_shell_call_output"));
    object.text("call_id").or_else(item_id)
}

fn result(object: &Object<'_>, item: Item, hash: &mut Hasher) -> Result<Part, Unread> {
    let mut result = ToolResult {
        call_id: call_id(object),
        tool: object.text("name"),
        has_tools: object.says("type", "tool_search_output"),
        is_error: object.says("type", "apply_patch_call_output") && object.says("status", "failed"),
        ..ToolResult::default()
    };
    let mut encoded = 0;
    let output = object.get("output");
    match item {
        Item::Output => {
            // A screenshot is an object of its own form.
            if let Some(shot) = output.filter(|output| output.kind == Kind::Object) {
                encoded = encodings::excess(shot.span.of(object.bytes)) as u32;
            }
            fill_result(&mut result, object.bytes, output, &RESULT, hash)?;
        }
        Item::Sealed(member) => seal(&mut result, object, object.get(member), hash)?,
        _ => {
            result.leaves = printed(object, output)?.into();
            seal(&mut result, object, output, hash)?;
        }
    }
    if is_of_code(object) {
        result.leave_to_code();
    }
    Ok(Part { encoded, ..Part::new(PartData::ToolResult(result), object.value.span) })
}

/// The encoded data of an image or a file in a part of an output.
fn media(part: &Object<'_>) -> Option<Value> {
    match &*part.text("type")? {
        "input_image" => data_url(part, "image_url"),
        "input_file" => data_url(part, "file_data"),
        _ => None,
    }
}

fn seal(
    result: &mut ToolResult,
    object: &Object<'_>,
    said: Option<Value>,
    hash: &mut Hasher,
) -> Result<(), Unread> {
    let mut digest = Hasher::default();
    if let Some(value) = said {
        feed(object.bytes, value, MARKS, &mut digest)?;
    }
    seal_result(result, digest, hash);
    Ok(())
}

/// The texts that shell commands printed.
fn printed(object: &Object<'_>, output: Option<Value>) -> Result<Vec<Leaf>, Unread> {
    let mut leaves = Vec::new();
    let Some(list) = output.filter(|value| value.kind == Kind::Array) else { return Ok(leaves) };
    for entry in scan::items(object.bytes, list.span)? {
        let entry = Object::read(object.bytes, entry)?;
        let channels = ["stdout", "stderr"].into_iter().filter_map(|name| entry.of_kind(name, Kind::String));
        leaves.extend(channels.map(|text| Leaf::alone(text.span)));
    }
    Ok(leaves)
}

fn opaque(object: &Object<'_>, is_summary: bool, hash: &mut Hasher) -> Result<Part, Unread> {
    whole(object, PartData::Opaque(Opaque { is_summary, call: None }), hash)
}

/// A part whose identity is all its bytes.
fn whole(object: &Object<'_>, data: PartData, hash: &mut Hasher) -> Result<Part, Unread> {
    feed(object.bytes, object.value, MARKS, hash)?;
    Ok(Part::new(data, object.value.span))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::NoMemo;
    use crate::protocol::Protocol as _;

    fn read(items: &[&str]) -> Conversation {
        let body = format!(r#"{{"input":[{}]}}"#, items.join(","));
        super::super::OpenAiResponses.index(&body.into(), &NoMemo).unwrap()
    }

    #[test]
    fn item_references_are_recognised_with_or_without_a_type() {
        for (item, expected) in [
            (r#"{"type":"item_reference","id":"msg_1"}"#, true),
            (r#"{"id":"msg_1"}"#, true),
            (r#"{"type":null,"id":"msg_1"}"#, true),
            (r#"{"type":"item_reference"}"#, false),
            (r#"{"type":"message","id":"msg_1"}"#, false),
            (r#"{"id":"msg_1","role":"narrator","content":"x"}"#, false),
            (r#"{"type":"compaction","id":"cmp_1","encrypted_content":"x"}"#, false),
            (r#"{"role":"user","content":"{\"type\":\"item_reference\"}"}"#, false),
        ] {
            let conversation = read(&[r#"{"role":"user","content":"hi"}"#, item]);
            assert_eq!((conversation.refers, conversation.is_whole()), (expected, !expected), "{item}");
        }
    }

    /// Everything after the model's last item was added by the client, whatever its type.
    #[test]
    fn items_after_the_models_last_one_are_newborn() {
        let before = r#"{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}"#;
        for added in [
            r#"{"type":"function_call_output","call_id":"c","output":"x"}"#,
            r#"{"type":"custom_tool_call_output","call_id":"c","output":[]}"#,
            r#"{"type":"shell_call_output","call_id":"c","output":[]}"#,
            r#"{"type":"local_shell_call_output","id":"c","output":"{}"}"#,
            r#"{"type":"computer_call_output","call_id":"c","output":{}}"#,
            r#"{"type":"apply_patch_call_output","call_id":"c","status":"completed"}"#,
            r#"{"type":"tool_search_output","call_id":"c","tools":[]}"#,
            r#"{"type":"future_call_output","call_id":"c"}"#,
            r#"{"role":"user","content":"x"}"#,
            r#"{"role":"developer","content":"x"}"#,
            r#"{"role":"system","content":"x"}"#,
            r#"{"type":"configuration_update"}"#,
            r#"{"type":"additional_tools","tools":[]}"#,
            r#"{"type":"agent_message"}"#,
            r#"{"type":"mcp_approval_response"}"#,
            r#"{"type":"compaction_trigger"}"#,
        ] {
            assert_eq!(read(&[before, added]).tail(), 1, "{added}");
        }
        for made in [
            r#"{"type":"reasoning","summary":[]}"#,
            r#"{"role":"assistant","content":"x"}"#,
            r#"{"type":"web_search_call"}"#,
            r#"{"type":"tool_search_output","call_id":null,"execution":"server","tools":[]}"#,
            r#"{"type":"program_output","call_id":"p"}"#,
            r#"{"type":"compaction","encrypted_content":"x"}"#,
            r#"{"type":"item_reference","id":"x"}"#,
            r#"{"type":"mcp_approval_request"}"#,
            r#"{"type":"from_the_future"}"#,
        ] {
            assert_eq!(read(&[before, made]).tail(), 2, "{made}");
        }
    }

    /// The result of a client's own tool search defines the tools of later calls.
    #[test]
    fn client_tool_search_results_define_tools() {
        for (item, expected) in [
            (r#"{"type":"tool_search_output","call_id":"c","execution":"client","tools":[{}]}"#, true),
            (r#"{"type":"function_call_output","call_id":"c","output":"tool_search_output"}"#, false),
        ] {
            assert_eq!(read(&[item]).messages[0].index.parts[0].has_tools(), expected, "{item}");
        }
    }

    /// Neither an item's id and status nor the form of a text is part of the fingerprint.
    #[test]
    fn fingerprints_ignore_item_ids_statuses_and_text_forms() {
        let of = |item: &str| read(&[item]).messages[0].index.fingerprint;
        let same: &[&[&str]] = &[
            &[
                r#"{"role":"user","content":"x"}"#,
                r#"{"type":"message","id":"msg_1","role":"user","content":[{"type":"input_text","text":"x"}]}"#,
            ],
            &[
                r#"{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}"#,
                r#"{"type":"function_call","id":"fc_1","status":"completed","call_id":"c","name":"f","arguments":"{}"}"#,
                r#"{"type":"function_call","namespace":null,"call_id":"c","name":"f","arguments":"{}"}"#,
            ],
            &[r#"{"type":"custom_tool_call","call_id":"c","name":"f","input":"{}"}"#],
            &[r#"{"type":"function_call","call_id":"c","name":"f","namespace":"n","arguments":"{}"}"#],
            &[
                r#"{"type":"function_call_output","call_id":"c","output":"x"}"#,
                r#"{"type":"function_call_output","id":"fco_1","call_id":"c","output":[{"type":"input_text","text":"x"}]}"#,
            ],
            &[r#"{"type":"function_call_output","call_id":"d","output":"x"}"#],
            &[
                r#"{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"x"}"#,
                r#"{"type":"reasoning","summary":[{"text":"hm"}]}"#,
            ],
            &[r#"{"type":"item_reference","id":"a"}"#],
            &[r#"{"type":"item_reference","id":"b"}"#],
        ];
        let all: Vec<_> =
            same.iter().map(|items| items.iter().map(|item| of(item)).collect::<Vec<_>>()).collect();
        for (at, group) in all.iter().enumerate() {
            assert!(group.iter().all(|one| *one == group[0]), "{:?}", same[at]);
            assert!(all[..at].iter().all(|other| other[0] != group[0]), "{:?}", same[at]);
        }
        let text = super::super::OpenAiResponses.index(&r#"{"input":"x"}"#.into(), &NoMemo).unwrap();
        assert_eq!(text.messages[0].index.fingerprint, of(same[0][0]));
    }
}
