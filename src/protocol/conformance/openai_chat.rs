//! How OpenAI Chat Completions writes a talk, edits one, and what it accepts.

use crate::conversation::Role;
use crate::plan::LeafEdit;
use crate::protocol::{Protocol, openai_chat};

use super::Subject;
use super::rules::OpenCalls;
use super::talk::{Block, Call, Content, ONE, Said, Step, Talk};
use super::tree::{Tree, edit_content};
use super::write::{Dice, Node};

pub(super) struct Completions;

/// A model whose reasoning is bound to the text before it, reached through a router.
const BOUND: &str = "anthropic/claude-opus-5.5";

/// Names that servers and routers give to reasoning outside the content.
pub(crate) const THOUGHTS: &[&str] = &[
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "thinking_blocks",
    "reasoning_text",
    "reasoning_opaque",
];

/// The names of a message's reasoning outside its content. Empty members are none.
fn thoughts(message: &Tree) -> Vec<&'static str> {
    let is_empty = |value: &Tree| match value {
        Tree::Raw(raw) => matches!(raw.as_str(), "null" | r#""""#),
        Tree::List(items) => items.is_empty(),
        Tree::Text(_) | Tree::Json(_) | Tree::Map(_) => false,
    };
    let has = |name: &&str| message.get(name).is_some_and(|value| !is_empty(value));
    THOUGHTS.iter().copied().filter(has).collect()
}

impl Subject for Completions {
    fn protocol(&self) -> &'static dyn Protocol {
        &openai_chat::OpenAiChat
    }

    fn list(&self) -> &'static str {
        "messages"
    }

    fn message(&self, said: &Said<'_>, dice: &mut Dice) -> Vec<Node> {
        match said {
            Said::User(turn) => vec![message("user", user(&turn.user, turn.media, dice))],
            Said::Note(text) => vec![message("developer", texts(text, dice))],
            Said::Calls(step, first) => vec![calls(step, *first, dice)],
            Said::Results(step, first) => results(step, *first, dice),
            Said::Answer(answer) => {
                let said = message("assistant", texts(&answer.text, dice));
                let said = thinking(said, answer.thinking, &answer.text, dice);
                match answer.strange {
                    true if dice.one_in(4) => vec![message("critic", Node::raw("[[7]]")), said],
                    true => vec![strange(said, dice)],
                    false => vec![said],
                }
            }
        }
    }

    fn frame(&self, talk: &Talk, mut messages: Vec<Node>) -> Node {
        let mut dice = Dice(talk.seed);
        if !dice.one_in(4) {
            messages.insert(0, message("system", texts("You are an agent.", &mut dice)));
        }
        Node::map([
            ("model", Node::text(if dice.one_in(3) { BOUND } else { "gpt-5" })),
            ("messages", Node::List(messages)),
            ("tools", Node::List(vec![Node::opaque([("type", Node::text("function"))])])),
            ("stream", Node::raw(if dice.one_in(2) { "true" } else { "false" })),
            ("stream_options", Node::opaque([("include_usage", Node::raw("true"))])),
            ("prompt_cache_key", Node::text("ses_1")),
            ("x_unknown", Node::opaque([("messages", Node::raw("[1e400, \"\\ud800\", {\"a\":1,\"a\":2}]"))])),
        ])
    }

    fn marks(&self) -> &'static [&'static str] {
        &["cache_control", "prompt_cache_breakpoint"]
    }

    /// On the last part of the content; a string becomes a part to carry it.
    fn mark(&self, message: &mut Node) {
        let Node::Map(members) = message else { return };
        let Some((_, content)) = members.iter_mut().find(|(key, _)| key == "content") else { return };
        if let Node::Text(text) = content {
            *content = Node::List(vec![block("text", [("text", Node::text(text.clone()))])]);
        }
        let Node::List(blocks) = content else { return };
        if let Some(Node::Map(members)) = blocks.last_mut() {
            let mark = Node::opaque([("type", Node::text("ephemeral"))]);
            members.push(("cache_control".to_owned(), mark));
        }
    }

    /// What was thought comes before the content, and a result is all of its message.
    fn block_of(&self, message: &Tree, part: usize) -> usize {
        part - thoughts(message).len()
    }

    fn takes_results_twice(&self) -> bool {
        true
    }

    fn edit(&self, message: &mut Tree, part: usize, leaves: &[(u32, LeafEdit)]) {
        assert!(matches!(message.text_of("role").as_deref(), Some("tool" | "function")) && part == 0);
        edit_content(message.get_mut("content").expect("a result with text has content"), leaves);
    }

    /// Reasoning comes first, then the text, then the calls.
    fn arguments<'t>(&self, message: &'t mut Tree, part: usize) -> Option<&'t mut Tree> {
        let thoughts = thoughts(message).len();
        let said = match message.get("content") {
            Some(Tree::List(blocks)) => blocks.len(),
            Some(content) => usize::from(content.is_string()),
            None => 0,
        };
        if message.get("function_call").is_some() {
            let call = message.get_mut("function_call").filter(|_| part == thoughts + said);
            return call.and_then(|call| call.get_mut("arguments"));
        }
        let Some(Tree::List(calls)) = message.get_mut("tool_calls") else { return None };
        let call = calls.get_mut(part.checked_sub(thoughts + said)?)?;
        let (name, arguments) =
            if call.get("custom").is_some() { ("custom", "input") } else { ("function", "arguments") };
        call.get_mut(name)?.get_mut(arguments)
    }

    fn omit(&self, message: &mut Tree, part: usize) {
        let beside = thoughts(message);
        if let (Some(name), Tree::Map(members)) = (beside.get(part), &mut *message) {
            members.retain(|(other, _)| other != name);
        } else if let Some(Tree::List(blocks)) = message.get_mut("content") {
            blocks.remove(part - beside.len());
        }
    }

    fn said_for(&self, others: &[Tree], role: Role, text: &str) -> Tree {
        let is_answer = |message: &Tree| message.text_of("role").as_deref() == Some("assistant");
        let reasons = |message: &Tree| is_answer(message) && message.get("reasoning_content").is_some();
        let mut said = self.said(role, text);
        if let (Role::Assistant, true, Tree::Map(members)) = (role, others.iter().any(reasons), &mut said) {
            members.push(("reasoning_content".to_owned(), Tree::Text(String::new())));
        }
        said
    }

    fn said(&self, role: Role, text: &str) -> Tree {
        let role = match role {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::System => "system",
            Role::Tool => panic!("no dialect inserts results"),
        };
        let text_of = |text: &str| Tree::Text(text.to_owned());
        Tree::Map(vec![("role".to_owned(), text_of(role)), ("content".to_owned(), text_of(text))])
    }

    fn results(&self, message: &Tree) -> Vec<(usize, Option<String>, Tree)> {
        if !matches!(message.text_of("role").as_deref(), Some("tool" | "function")) {
            return Vec::new();
        }
        let content = message.get("content").cloned().unwrap_or(Tree::List(Vec::new()));
        vec![(0, message.text_of("tool_call_id"), content)]
    }

    fn media<'t>(&self, message: &'t mut Tree, _part: usize) -> Option<&'t mut Tree> {
        message.get_mut("content")
    }

    fn is_image(&self, block: &Tree) -> bool {
        let url = block.get("image_url").and_then(|image| image.text_of("url"));
        block.text_of("type").as_deref() == Some("image_url")
            && url.is_some_and(|url| url.starts_with("data:"))
    }

    fn says(&self, text: &str, whole: bool) -> String {
        let stop = if whole { "stop" } else { "length" };
        serde_json::json!({"id": "m", "model": "c", "usage": {"prompt_tokens": 9, "completion_tokens": 1},
            "choices": [{"finish_reason": stop, "message": {"role": "assistant", "reasoning": "hm", "content": text}}]})
        .to_string()
    }

    fn validate(&self, messages: &[Tree]) -> Result<(), String> {
        validate(messages)
    }
}

fn message(role: &str, content: Node) -> Node {
    Node::map([("role", Node::text(role)), ("content", content)])
}

fn block<const N: usize>(kind: &str, members: [(&str, Node); N]) -> Node {
    let Node::Map(mut all) = Node::map(members) else { return Node::raw("null") };
    all.insert(0, ("type".to_owned(), Node::text(kind)));
    Node::Map(all)
}

fn user(text: &str, media: bool, dice: &mut Dice) -> Node {
    if !media {
        return texts(text, dice);
    }
    let url = Node::opaque([("url", Node::text("https://example.com/a.png")), ("detail", Node::text("low"))]);
    Node::List(vec![block("text", [("text", Node::text(text))]), block("image_url", [("image_url", url)])])
}

fn texts(text: &str, dice: &mut Dice) -> Node {
    if dice.one_in(2) {
        return Node::text(text);
    }
    Node::List(vec![block("text", [("text", Node::text(text))])])
}

/// Every server has its own name for it, and some have two. A client that says the same again has it from the same
/// server.
fn thinking(message: Node, present: bool, says: &str, dice: &mut Dice) -> Node {
    if !present {
        return message;
    }
    let list = |of: Node| Node::List(vec![of]);
    match Dice(says.bytes().map(u64::from).sum()).below(7) {
        0 => message.with("reasoning_content", Node::text("hm")),
        1 => message.with("reasoning", Node::text("hm")),
        2 => {
            let members = [("type", Node::text("reasoning.encrypted")), ("data", Node::text("x"))];
            message.with("reasoning_details", list(Node::opaque(members)))
        }
        6 => {
            let members = [("format", Node::text("anthropic-claude-v1")), ("text", Node::text("hm"))];
            let message = message.with("reasoning_details", list(Node::opaque(members)));
            message.with("reasoning", Node::text("hm"))
        }
        3 => message.with("reasoning_text", Node::text("hm")).with("reasoning_opaque", Node::text("x")),
        4 => {
            let Node::Map(members) = thought(dice) else { return message };
            let message = message.with("thinking_blocks", list(Node::Opaque(members)));
            message.with("reasoning_content", Node::text("hm"))
        }
        _ => thinks_aloud(message, dice),
    }
}

/// A block of reasoning as its first provider writes it.
fn thought(dice: &mut Dice) -> Node {
    if dice.one_in(3) {
        return block("redacted_thinking", [("data", Node::text("x"))]);
    }
    block("thinking", [("thinking", Node::text("hm")), ("signature", Node::text("x"))])
}

/// Reasoning before the text, in one list.
fn thinks_aloud(mut message: Node, dice: &mut Dice) -> Node {
    let Node::Map(members) = &mut message else { return message };
    if let Some((_, content)) = members.iter_mut().find(|(key, _)| key == "content") {
        let said = match std::mem::replace(content, Node::raw("null")) {
            Node::Text(text) => vec![block("text", [("text", Node::text(text))])],
            Node::List(blocks) => blocks,
            _ => Vec::new(),
        };
        *content = Node::List([vec![thought(dice)], said].concat());
    }
    message
}

fn strange(message: Node, dice: &mut Dice) -> Node {
    match dice.below(3) {
        0 => message.with("refusal", Node::text("no")),
        1 => message.with("audio", Node::opaque([("id", Node::text("audio_1"))])),
        _ => {
            let call = [("name", Node::text("old")), ("arguments", Node::text("{}"))];
            message.with("function_call", Node::map(call))
        }
    }
}

fn calls(step: &Step, first: usize, dice: &mut Dice) -> Node {
    let content = match &step.text {
        Some(text) => texts(text, dice),
        None => Node::raw("null"),
    };
    let arguments =
        |call: &Call| format!("{{\"command\": {}}}", serde_json::Value::from(call.argument.as_str()));
    if let Some(call) = single(step) {
        let function = [("name", Node::text(call.tool)), ("arguments", Node::text(arguments(call)))];
        let said = message("assistant", content).with("function_call", Node::map(function));
        return thinking(said, step.thinking, &call.argument, dice);
    }
    let list = step.calls.iter().enumerate().map(|(at, call)| {
        let id = ("id", Node::text(id(first + at)));
        if dice.one_in(5) {
            let custom = [("name", Node::text(call.tool)), ("input", Node::text(&call.argument))];
            return block("custom", [id, ("custom", Node::map(custom))]);
        }
        let function = [("name", Node::text(call.tool)), ("arguments", Node::text(arguments(call)))];
        block("function", [id, ("function", Node::map(function))])
    });
    let list = Node::List(list.collect());
    let said = message("assistant", content).with("tool_calls", list);
    thinking(said, step.thinking, &step.calls[0].argument, dice)
}

/// The call of a step that is written in the old way.
fn single(step: &Step) -> Option<&Call> {
    let [call] = &*step.calls else { return None };
    call.argument.len().is_multiple_of(4).then_some(call)
}

/// A message for each, in any order.
fn results(step: &Step, first: usize, dice: &mut Dice) -> Vec<Node> {
    let mut messages: Vec<Node> =
        step.calls.iter().enumerate().map(|(at, call)| result(call, first + at, dice)).collect();
    if let (Some(call), [Node::Map(members)]) = (single(step), &mut *messages) {
        members.retain(|(key, _)| key == "content");
        let old = [("role", Node::text("function")), ("name", Node::text(call.tool))];
        members.splice(0..0, old.map(|(key, value)| (key.to_owned(), value)));
    }
    if dice.one_in(4) {
        messages.reverse();
    }
    messages.extend(step.aside.as_ref().map(|text| message("user", texts(text, dice))));
    messages
}

fn result(call: &Call, number: usize, dice: &mut Dice) -> Node {
    let id = Node::text(id(number));
    let node = Node::map([("role", Node::text("tool")), ("tool_call_id", id)]);
    let node = if dice.one_in(3) { node.with("name", Node::text(call.tool)) } else { node };
    match &call.result {
        Content::Missing | Content::Again(_) => node.with("content", Node::text("")),
        Content::Text(text) => node.with("content", Node::text(text)),
        Content::Broken => node.with("content", Node::raw("\"x\\ud83e\"")),
        Content::Blocks(blocks) => node.with("content", Node::List(blocks.iter().map(inner).collect())),
    }
}

fn inner(of: &Block) -> Node {
    let url = |url: &str| Node::opaque([("url", Node::text(url))]);
    match of {
        Block::Text(text) => block("text", [("text", Node::text(text))]),
        Block::Image(data) => {
            block("image_url", [("image_url", url(&format!("data:image/png;base64,{data}")))])
        }
        Block::Linked => block("image_url", [("image_url", url("https://example.com/a.png"))]),
        Block::Strange => block("from_the_future", [("text", Node::raw("7"))]),
    }
}

/// Some servers name no call.
fn id(number: usize) -> String {
    if number >= ONE {
        return String::new();
    }
    format!("call_{number:04}")
}

/// What the provider checks, as far as edits could break it.
fn validate(messages: &[Tree]) -> Result<(), String> {
    if messages.is_empty() {
        return Err("empty".into());
    }
    let mut calls = OpenCalls::default();
    for (at, message) in messages.iter().enumerate() {
        let role = message.text_of("role").unwrap_or_default();
        let done = match role.as_str() {
            "tool" => calls.result(&message.text_of("tool_call_id").unwrap_or_default()),
            "function" => calls.result(&message.text_of("name").unwrap_or_default()),
            _ => calls.expect_none_open(&role),
        };
        done.map_err(|error| format!("message {at}: {error}"))?;
        let list = message.get("tool_calls").map(Tree::items).unwrap_or_default();
        if role == "assistant" {
            let single = message.get("function_call").and_then(|call| call.text_of("name"));
            let ids = list.iter().map(|call| call.text_of("id").unwrap_or_default());
            // One that nothing was made of.
            calls.open(ids.chain(single.filter(|name| name != "old")).collect())?;
        }
        let content = message.get("content").ok_or("no content")?;
        if let Tree::List(parts) = content
            && (parts.is_empty()
                || parts.iter().any(|part| part.text_of("text").is_some_and(|text| text.is_empty())))
        {
            return Err(format!("message {at}: empty content"));
        }
        if *content == Tree::Raw("null".to_owned())
            && list.is_empty()
            && message.get("function_call").is_none()
        {
            return Err(format!("message {at}: no content"));
        }
    }
    calls.expect_none_open("the end")
}
