//! A request as the demonstration's provider sees it: whether it is valid, how many tokens each block has, and which
//! blocks are marked for the cache.

use std::path::Path;

use serde_json::Value;
use xxhash_rust::xxh3::xxh3_128;

use crate::usage::cache_model::{Block, PromptShape, Ttl};

/// Bytes per token, for this provider.
const BYTES_PER_TOKEN: u64 = 4;

/// The usual directory of the gateway's state. Paths in what the gateway sends are counted as if they were there, so
/// that the figures are the same on every machine.
const USUAL_HOME: &str = "/home/you/.local/state/plimsoll";

/// A valid request.
#[derive(Debug)]
pub(super) struct Prompt {
    /// Its blocks, in the order of the cache.
    pub(super) shape: PromptShape,
    /// The number of answers of the model in it.
    pub(super) turn: usize,
}

/// Counts tokens.
#[derive(Debug, Clone)]
pub(super) struct Counter {
    home: String,
}

impl Prompt {
    /// Reads a request.
    ///
    /// # Errors
    /// What is wrong with it, in the provider's words.
    pub(super) fn read(body: &[u8], counter: &Counter) -> Result<Self, String> {
        let body: Value = serde_json::from_slice(body).map_err(|error| format!("invalid JSON: {error}"))?;
        let messages = body.get("messages").and_then(Value::as_array).ok_or("messages: Field required")?;
        check_pairs(messages)?;
        let blocks = list(body.get("tools"))
            .chain(list(body.get("system")))
            .chain(messages.iter().flat_map(|message| list(message.get("content"))));
        let blocks: Vec<Block> = blocks.map(|block| counter.block(block)).collect();
        let marks = blocks.iter().filter(|block| block.mark.is_some()).count();
        if marks > 4 {
            return Err(format!("A maximum of 4 blocks with cache_control may be provided. Found {marks}."));
        }
        let turn = messages.iter().filter(|message| is_role(message, "assistant")).count();
        Ok(Self { shape: PromptShape { blocks, ..PromptShape::default() }, turn })
    }
}

impl Counter {
    /// A counter that knows where the gateway keeps its state.
    pub(super) fn new(home: &Path) -> Self {
        Self { home: home.display().to_string() }
    }

    /// The tokens of a value.
    pub(super) fn tokens(&self, value: &Value) -> u64 {
        self.bytes(value).div_ceil(BYTES_PER_TOKEN)
    }

    /// The size of all texts in bytes, including names of fields.
    fn bytes(&self, value: &Value) -> u64 {
        match value {
            Value::String(text) => {
                let homes = text.matches(&self.home).count() as u64;
                text.len() as u64 + homes * USUAL_HOME.len() as u64 - homes * self.home.len() as u64
            }
            Value::Array(items) => items.iter().map(|item| self.bytes(item)).sum(),
            Value::Object(fields) => {
                fields.iter().map(|(name, value)| name.len() as u64 + self.bytes(value)).sum()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => 4,
        }
    }

    fn block(&self, block: &Value) -> Block {
        let mut bare = block.clone();
        let mark = bare.as_object_mut().and_then(|fields| fields.remove("cache_control"));
        let ttl = |mark: Value| match mark.get("ttl").and_then(Value::as_str) {
            Some("1h") => Ttl::OneHour,
            _ => Ttl::FiveMinutes,
        };
        let key = xxh3_128(bare.to_string().as_bytes());
        Block { key, tokens: self.tokens(&bare), mark: mark.map(ttl), bound: 0 }
    }
}

/// The blocks of a list; a plain text is one block.
fn list(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    match value {
        Some(Value::Array(items)) => items.as_slice(),
        Some(text) => std::slice::from_ref(text),
        None => &[],
    }
    .iter()
}

fn is_role(message: &Value, role: &str) -> bool {
    message.get("role").and_then(Value::as_str) == Some(role)
}

/// Checks that each call is answered in the next message, and that there are no other results.
fn check_pairs(messages: &[Value]) -> Result<(), String> {
    let mut open: Vec<&str> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let answered = ids(message, "tool_result", "tool_use_id");
        if let Some(id) = open.iter().find(|id| !answered.contains(id)) {
            return Err(format!(
                "messages.{}: `tool_use` ids were found without `tool_result` blocks immediately after: {id}",
                at - 1
            ));
        }
        if let Some(id) = answered.iter().find(|id| !open.contains(id)) {
            return Err(format!(
                "messages.{at}: unexpected `tool_use_id` found in `tool_result` blocks: {id}"
            ));
        }
        open = ids(message, "tool_use", "id");
    }
    match open.first() {
        Some(id) => Err(format!("`tool_use` ids were found without `tool_result` blocks: {id}")),
        None => Ok(()),
    }
}

fn ids<'a>(message: &'a Value, kind: &str, field: &str) -> Vec<&'a str> {
    list(message.get("content"))
        .filter(|block| block.get("type").and_then(Value::as_str) == Some(kind))
        .filter_map(|block| block.get(field)?.as_str())
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(body: &Value) -> Result<Prompt, String> {
        Prompt::read(body.to_string().as_bytes(), &Counter::new(Path::new("/tmp/x")))
    }

    #[test]
    fn unpaired_calls_and_results_are_rejected() {
        let task = json!({ "role": "user", "content": "x" });
        let call = |id: &str| json!({ "role": "assistant", "content": [{ "type": "tool_use", "id": id }] });
        let result =
            |id: &str| json!({ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": id }] });
        for (messages, expected) in [
            (vec![task.clone(), call("a"), result("a"), call("b"), result("b")], Ok(2)),
            (vec![task.clone(), call("a")], Err("`tool_use` ids were found without")),
            (vec![task.clone(), call("a"), result("b")], Err("messages.1: `tool_use` ids")),
            (vec![task.clone(), result("b")], Err("messages.1: unexpected `tool_use_id`")),
        ] {
            let read = read(&json!({ "messages": messages })).map(|prompt| prompt.turn);
            match (&read, expected) {
                (Ok(turn), Ok(expected)) => assert_eq!(*turn, expected),
                (Err(error), Err(expected)) => assert!(error.starts_with(expected), "{error}"),
                _ => panic!("{read:?} instead of {expected:?}"),
            }
        }
    }

    #[test]
    fn a_cache_mark_does_not_change_a_block_key() {
        let body = |mark: &Value| {
            let mut block = json!({ "type": "text", "text": "full output: /tmp/x/outputs/1.txt" });
            if !mark.is_null() {
                block["cache_control"] = mark.clone();
            }
            json!({ "system": [block], "messages": [{ "role": "user", "content": "y" }] })
        };
        let shapes: Vec<PromptShape> = [Value::Null, json!({ "type": "ephemeral" }), json!({ "ttl": "1h" })]
            .iter()
            .map(|mark| read(&body(mark)).unwrap().shape)
            .collect();
        let marks: Vec<Option<Ttl>> = shapes.iter().map(|shape| shape.blocks[0].mark).collect();
        assert_eq!(marks, [None, Some(Ttl::FiveMinutes), Some(Ttl::OneHour)]);
        assert!(shapes.iter().all(|shape| shape.blocks[0].key == shapes[0].blocks[0].key));
        let length = "typetexttextfull output: /outputs/1.txt".len() + USUAL_HOME.len();
        assert_eq!(shapes[0].blocks[0].tokens, length.div_ceil(4) as u64);
    }
}
