//! How OpenAI Responses writes a talk, edits one, and what it accepts.

use crate::conversation::Role;
use crate::plan::LeafEdit;
use crate::protocol::{Protocol, openai_responses};

use super::rules::OpenCalls;
use super::talk::{Block, Call, Content, Said, Step, Talk};
use super::tree::Tree;
use super::write::{Dice, Node};
use super::{Subject, is_text};

pub(super) struct Responses;

/// A model whose reasoning is bound to the text before it.
const BOUND: &str = "gpt-6.2";

impl Subject for Responses {
    fn protocol(&self) -> &'static dyn Protocol {
        &openai_responses::OpenAiResponses
    }

    fn list(&self) -> &'static str {
        "input"
    }

    fn message(&self, said: &Said<'_>, dice: &mut Dice) -> Vec<Node> {
        match said {
            Said::User(turn) => vec![message("user", user(&turn.user, turn.media, dice), dice)],
            Said::Note(text) => vec![message("developer", texts("input_text", text, dice), dice)],
            Said::Calls(step, first) => calls(step, *first, dice),
            Said::Results(step, first) => results(step, *first, dice),
            Said::Answer(answer) => {
                let mut items = reasoning(answer.thinking);
                if answer.strange {
                    items.extend(strange(dice));
                }
                items.push(answered(&answer.text, dice));
                items
            }
        }
    }

    fn frame(&self, talk: &Talk, mut messages: Vec<Node>) -> Node {
        let mut dice = Dice(talk.seed);
        if dice.one_in(3) {
            let tools = Node::List(vec![Node::opaque([("type", Node::text("custom"))])]);
            let added = item("additional_tools", [("role", Node::text("developer")), ("tools", tools)]);
            messages.insert(0, added);
        }
        let kept = if dice.one_in(4) { Node::text("resp_0") } else { Node::raw("null") };
        Node::map([
            ("model", Node::text(if dice.one_in(3) { BOUND } else { "gpt-6" })),
            ("instructions", Node::text("You are an agent.")),
            ("previous_response_id", kept),
            ("input", Node::List(messages)),
            ("tools", Node::List(vec![Node::opaque([("type", Node::text("function"))])])),
            ("stream", Node::raw(if dice.one_in(2) { "true" } else { "false" })),
            ("prompt_cache_key", Node::text("0197-s")),
            ("client_metadata", Node::map([("x-codex-installation-id", Node::text("i"))])),
            ("x_unknown", Node::opaque([("input", Node::raw("[1e400, \"\\ud800\", {\"a\":1,\"a\":2}]"))])),
        ])
    }

    fn marks(&self) -> &'static [&'static str] {
        &["cache_control", "prompt_cache_breakpoint"]
    }

    /// On the last part of a message; a string becomes a part to carry it.
    fn mark(&self, message: &mut Node) {
        let Node::Map(members) = message else { return };
        let Some((_, content)) = members.iter_mut().find(|(key, _)| key == "content") else { return };
        if let Node::Text(text) = content {
            *content = Node::List(vec![item("input_text", [("text", Node::text(text.clone()))])]);
        }
        let Node::List(blocks) = content else { return };
        if let Some(Node::Map(members)) = blocks.last_mut() {
            members.push(("prompt_cache_breakpoint".to_owned(), Node::raw("true")));
        }
    }

    fn takes_results_twice(&self) -> bool {
        true
    }

    fn edit(&self, message: &mut Tree, part: usize, leaves: &[(u32, LeafEdit)]) {
        assert!(part == 0 && message.text_of("type").is_some_and(|kind| kind.ends_with("_call_output")));
        let output = message.get_mut("output").expect("a result with text has an output");
        match output {
            Tree::List(entries) if entries.iter().any(|entry| entry.get("outcome").is_some()) => {
                printed(entries, leaves);
            }
            Tree::List(blocks) => parts(blocks, leaves),
            text => {
                let [(0, LeafEdit::Replace(new))] = leaves else { panic!("a string is one leaf") };
                *text = Tree::Text(new.to_string());
            }
        }
    }

    fn arguments<'t>(&self, message: &'t mut Tree, _part: usize) -> Option<&'t mut Tree> {
        let name = match message.text_of("type")?.as_str() {
            "function_call" => "arguments",
            "custom_tool_call" => "input",
            _ => return None,
        };
        message.get_mut(name)
    }

    fn said(&self, role: Role, text: &str) -> Tree {
        let role = match role {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::System => "system",
            Role::Tool => panic!("no dialect inserts results"),
        };
        let members = [("type", "message"), ("role", role), ("content", text)];
        let member = |(key, value): (&str, &str)| (key.to_owned(), Tree::Text(value.to_owned()));
        Tree::Map(members.into_iter().map(member).collect())
    }

    fn results(&self, message: &Tree) -> Vec<(usize, Option<String>, Tree)> {
        let Some(output) = message.get("output") else { return Vec::new() };
        vec![(0, message.text_of("call_id"), output.clone())]
    }

    fn media<'t>(&self, message: &'t mut Tree, _part: usize) -> Option<&'t mut Tree> {
        message.get_mut("output")
    }

    fn is_image(&self, block: &Tree) -> bool {
        block.text_of("type").as_deref() == Some("input_image")
            && block.text_of("image_url").is_some_and(|url| url.starts_with("data:"))
    }

    fn text_block(&self, text: &str) -> Tree {
        let kind = ("type".to_owned(), Tree::Text("input_text".to_owned()));
        Tree::Map(vec![kind, ("text".to_owned(), Tree::Text(text.to_owned()))])
    }

    fn blank(&self, content: &Tree) -> Tree {
        let Tree::List(entries) = content else { return Tree::Text(String::new()) };
        let kept = entries.iter().filter(|entry| !is_text(entry)).cloned().map(|mut entry| {
            for channel in ["stdout", "stderr"] {
                if let Some(text) = entry.get_mut(channel) {
                    *text = Tree::Text(String::new());
                }
            }
            entry
        });
        Tree::List(kept.collect())
    }

    fn is_answer(&self, message: &Tree) -> bool {
        of_the_model(message)
    }

    fn says(&self, text: &str, whole: bool) -> String {
        let status = if whole { "completed" } else { "incomplete" };
        let details =
            if whole { serde_json::Value::Null } else { serde_json::json!({"reason": "max_output_tokens"}) };
        serde_json::json!({"id": "m", "model": "c", "status": status, "incomplete_details": details, "usage": {"input_tokens": 9, "output_tokens": 1},
            "output": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}]})
        .to_string()
    }

    fn validate(&self, messages: &[Tree]) -> Result<(), String> {
        validate(messages)
    }
}

fn item<const N: usize>(kind: &str, members: [(&str, Node); N]) -> Node {
    let Node::Map(mut all) = Node::map(members) else { return Node::raw("null") };
    all.insert(0, ("type".to_owned(), Node::text(kind)));
    Node::Map(all)
}

/// A message may do without its type.
fn message(role: &str, content: Node, dice: &mut Dice) -> Node {
    let plain = Node::map([("role", Node::text(role)), ("content", content)]);
    if dice.one_in(2) { plain } else { plain.with("type", Node::text("message")) }
}

fn answered(text: &str, dice: &mut Dice) -> Node {
    let said = message("assistant", texts("output_text", text, dice), dice);
    said.with("id", Node::text("msg_1")).with("phase", Node::text("commentary"))
}

fn user(text: &str, media: bool, dice: &mut Dice) -> Node {
    if !media {
        return texts("input_text", text, dice);
    }
    let image = item("input_image", [("image_url", Node::text("https://example.com/a.png"))]);
    Node::List(vec![item("input_text", [("text", Node::text(text))]), image])
}

fn texts(kind: &str, text: &str, dice: &mut Dice) -> Node {
    if dice.one_in(2) {
        return Node::text(text);
    }
    Node::List(vec![item(kind, [("text", Node::text(text))])])
}

fn reasoning(present: bool) -> Vec<Node> {
    let summary = Node::List(vec![Node::opaque([("type", Node::text("summary_text"))])]);
    let item = item(
        "reasoning",
        [("id", Node::text("rs_1")), ("summary", summary), ("encrypted_content", Node::text("gAAAA"))],
    );
    if present { vec![item] } else { Vec::new() }
}

/// What the provider does by itself, and an item from the future.
fn strange(dice: &mut Dice) -> Vec<Node> {
    let action = Node::opaque([("query", Node::text("x"))]);
    let search = item("web_search_call", [("id", Node::text("ws_1")), ("action", action)]);
    if dice.one_in(2) {
        return vec![search];
    }
    vec![
        search,
        item(
            "program",
            [("code", Node::text("text(await tools.f({}))")), ("fingerprint", Node::text("gAAAA"))],
        ),
        item("item_reference", [("id", Node::text("msg_0"))]),
        item("message", [("role", Node::text("critic")), ("content", Node::raw("[[7]]"))]),
        item("from_the_future", [("data", Node::raw("[{\"a\":1,\"a\":\"\\udfff\"}]"))]),
    ]
}

/// How a call is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Function,
    Custom,
    Shell,
}

fn form(call: &Call, number: usize) -> Form {
    match (number % 4, &call.result) {
        (0, _) => Form::Custom,
        (1, Content::Text(_) | Content::Missing | Content::Broken) => Form::Shell,
        _ => Form::Function,
    }
}

fn calls(step: &Step, first: usize, dice: &mut Dice) -> Vec<Node> {
    let mut items = reasoning(step.thinking);
    items.extend(step.text.as_ref().map(|text| answered(text, dice)));
    items.extend(step.calls.iter().enumerate().map(|(at, call)| {
        let id = ("call_id", Node::text(id(first + at)));
        let own = ("id", Node::text("fc_1"));
        let name = ("name", Node::text(call.tool));
        let arguments = format!("{{\"command\": {}}}", serde_json::Value::from(call.argument.as_str()));
        match form(call, first + at) {
            Form::Function => item("function_call", [id, own, name, ("arguments", Node::text(arguments))]),
            Form::Custom => item("custom_tool_call", [id, own, name, ("input", Node::text(&call.argument))]),
            Form::Shell => {
                let commands = Node::List(vec![Node::text(&call.argument)]);
                item("shell_call", [id, own, ("action", Node::opaque([("commands", commands)]))])
            }
        }
    }));
    items
}

/// In any order, followed by what the user says.
fn results(step: &Step, first: usize, dice: &mut Dice) -> Vec<Node> {
    let mut items: Vec<Node> =
        step.calls.iter().enumerate().map(|(at, call)| result(call, first + at)).collect();
    if dice.one_in(4) {
        items.reverse();
    }
    items.extend(step.aside.as_ref().map(|text| message("user", texts("input_text", text, dice), dice)));
    items
}

fn result(call: &Call, number: usize) -> Node {
    let text = match &call.result {
        Content::Missing | Content::Again(_) => Node::text(""),
        Content::Text(text) => Node::text(text),
        Content::Broken => Node::raw("\"x\\ud83e\""),
        Content::Blocks(blocks) => Node::List(blocks.iter().map(inner).collect()),
    };
    let (kind, output) = match form(call, number) {
        Form::Function => ("function_call_output", text),
        Form::Custom => ("custom_tool_call_output", text),
        Form::Shell => {
            let outcome = Node::opaque([("type", Node::text("exit")), ("exit_code", Node::raw("0"))]);
            let entry = [("stdout", text), ("stderr", Node::text("warning")), ("outcome", outcome)];
            ("shell_call_output", Node::List(vec![Node::map(entry)]))
        }
    };
    item(kind, [("call_id", Node::text(id(number))), ("output", output)])
}

fn inner(of: &Block) -> Node {
    match of {
        Block::Text(text) => item("input_text", [("text", Node::text(text))]),
        Block::Image(data) => {
            item("input_image", [("image_url", Node::text(format!("data:image/png;base64,{data}")))])
        }
        Block::Linked => item("input_image", [("image_url", Node::text("https://example.com/a.png"))]),
        Block::Strange => item("from_the_future", [("text", Node::raw("7"))]),
    }
}

fn id(number: usize) -> String {
    format!("call_{number:04}")
}

fn parts(blocks: &mut Vec<Tree>, leaves: &[(u32, LeafEdit)]) {
    let is_text = |block: &Tree| block.text_of("type").as_deref() == Some("input_text");
    let places: Vec<usize> = (0..blocks.len()).filter(|at| is_text(&blocks[*at])).collect();
    for (leaf, edit) in leaves.iter().rev() {
        let place = places[*leaf as usize];
        match edit {
            LeafEdit::Replace(text) => {
                *blocks[place].get_mut("text").expect("a leaf has text") = Tree::Text(text.to_string());
            }
            LeafEdit::Remove => drop(blocks.remove(place)),
        }
    }
}

fn printed(entries: &mut [Tree], leaves: &[(u32, LeafEdit)]) {
    for (leaf, edit) in leaves {
        let LeafEdit::Replace(text) = edit else { panic!("a channel cannot be removed") };
        let channel = if leaf % 2 == 0 { "stdout" } else { "stderr" };
        let channel = entries[*leaf as usize / 2].get_mut(channel).expect("both channels are there");
        *channel = Tree::Text(text.to_string());
    }
}

fn of_the_model(item: &Tree) -> bool {
    let made =
        |kind: String| kind != "message" && kind != "additional_tools" && !kind.ends_with("_call_output");
    item.text_of("role").as_deref() == Some("assistant") || item.text_of("type").is_some_and(made)
}

/// What the provider checks, as far as edits could break it.
fn validate(messages: &[Tree]) -> Result<(), String> {
    if messages.is_empty() {
        return Err("empty".into());
    }
    let kind = |item: &Tree| item.text_of("type").unwrap_or_else(|| "message".to_owned());
    let mut calls = OpenCalls::default();
    let mut opened = Vec::new();
    for (at, item) in messages.iter().enumerate() {
        let kind = kind(item);
        if matches!(kind.as_str(), "function_call" | "custom_tool_call" | "shell_call") {
            opened.push(item.text_of("call_id").unwrap_or_default());
            continue;
        }
        if !opened.is_empty() {
            calls.open(std::mem::take(&mut opened))?;
        }
        let done = match kind.strip_suffix("_call_output") {
            Some(_) => calls.result(&item.text_of("call_id").unwrap_or_default()),
            None => calls.expect_none_open(&kind),
        };
        done.map_err(|error| format!("item {at}: {error}"))?;
        if kind == "reasoning" && !messages.get(at + 1).is_some_and(of_the_model) {
            return Err(format!("item {at}: reasoning without what it led to"));
        }
        let list = item.get("content").or_else(|| item.get("output"));
        if matches!(list, Some(Tree::List(parts)) if parts.is_empty()) {
            return Err(format!("item {at}: an empty list"));
        }
    }
    if !opened.is_empty() {
        calls.open(opened)?;
    }
    calls.expect_none_open("the end")
}
