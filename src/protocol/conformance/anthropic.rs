//! How Anthropic Messages writes a talk, edits one, and what it accepts.

use crate::conversation::Role;
use crate::plan::LeafEdit;
use crate::protocol::{Protocol, anthropic};

use super::Subject;
use super::rules::OpenCalls;
use super::talk::{Block, Call, Content, Ids, Said, Step, Talk};
use super::tree::{Tree, edit_content};
use super::write::{Dice, Node};

pub(super) struct Messages;

/// A model whose reasoning is bound to the text before it.
const BOUND: &str = "claude-opus-5-5";

impl Subject for Messages {
    fn protocol(&self) -> &'static dyn Protocol {
        &anthropic::Anthropic
    }

    fn list(&self) -> &'static str {
        "messages"
    }

    fn message(&self, said: &Said<'_>, dice: &mut Dice) -> Vec<Node> {
        match said {
            Said::User(turn) => vec![message("user", user(turn.user.as_str(), turn.media, dice))],
            Said::Note(text) => {
                let effort = Node::opaque([("effort", Node::text("low"))]);
                vec![message("system", texts(text, dice)).with("output_config", effort)]
            }
            Said::Calls(step, first) => vec![message("assistant", Node::List(calls(step, *first, dice)))],
            Said::Results(step, first) => results(step, *first, dice),
            Said::Answer(answer) => {
                let mut blocks = thinking(answer.thinking, dice);
                if !blocks.is_empty() && dice.one_in(12) {
                    // Some send each block in a message of its own.
                    let said = message("assistant", Node::text(&answer.text));
                    return vec![message("assistant", Node::List(blocks)), said];
                }
                if answer.strange {
                    blocks.extend(strange(dice));
                }
                blocks.push(block("text", [("text", Node::text(&answer.text))]));
                let plain = blocks.len() == 1 && dice.one_in(2);
                vec![message("assistant", if plain { Node::text(&answer.text) } else { Node::List(blocks) })]
            }
        }
    }

    fn frame(&self, talk: &Talk, messages: Vec<Node>) -> Node {
        let mut dice = Dice(talk.seed);
        // Some mark their instructions, whether they mark the history or not.
        let rules = if dice.one_in(2) { marked_text } else { opaque_text };
        let system = Node::List(vec![
            opaque_text("x-anthropic-billing-header: cc_version=1.2.3; cc_entrypoint=cli;"),
            rules("You are an agent."),
        ]);
        let session = "{\"device_id\":\"d\",\"account_uuid\":\"\",\"session_id\":\"0197-s\"}";
        let session = if dice.one_in(2) { session } else { "user_ab_account_cd_session_0197-s" };
        Node::map([
            ("model", Node::text(if dice.one_in(3) { BOUND } else { "claude-opus-4-5" })),
            ("max_tokens", Node::raw("64000")),
            ("system", if dice.one_in(3) { Node::text("You are an agent.") } else { system }),
            ("tools", Node::List(vec![Node::opaque([("name", Node::text("Bash"))])])),
            ("metadata", Node::map([("user_id", Node::text(session))])),
            ("messages", Node::List(messages)),
            ("stream", Node::raw(if dice.one_in(2) { "true" } else { "false" })),
            ("context_management", Node::map([("edits", edits(&mut dice))])),
            (
                "thinking",
                Node::map([("type", Node::text(if dice.one_in(8) { "disabled" } else { "adaptive" }))]),
            ),
            ("x_unknown", Node::opaque([("messages", Node::raw("[1e400, \"\\ud800\", {\"a\":1,\"a\":2}]"))])),
        ])
    }

    fn marks(&self) -> &'static [&'static str] {
        &["cache_control"]
    }

    /// On the last block, as most clients do; a string becomes a block to carry it, and reasoning carries none.
    fn mark(&self, message: &mut Node) {
        let Node::Map(members) = message else { return };
        let Some((_, content)) = members.iter_mut().find(|(key, _)| key == "content") else { return };
        if let Node::Text(text) = content {
            *content = Node::List(vec![block("text", [("text", Node::text(text.clone()))])]);
        }
        let Node::List(blocks) = content else { return };
        if let Some(Node::Map(members)) = blocks.last_mut()
            && !members.iter().any(|(key, _)| key == "signature" || key == "data")
        {
            let mark = Node::opaque([("type", Node::text("ephemeral"))]);
            members.push(("cache_control".to_owned(), mark));
        }
    }

    /// The provider takes no id twice.
    fn ids(&self, _talk: &Talk) -> Ids {
        Ids::Own
    }

    fn edit(&self, message: &mut Tree, part: usize, leaves: &[(u32, LeafEdit)]) {
        let Some(Tree::List(blocks)) = message.get_mut("content") else { panic!("no blocks") };
        assert_eq!(blocks[part].text_of("type").as_deref(), Some("tool_result"));
        edit_content(blocks[part].get_mut("content").expect("a result with text has content"), leaves);
    }

    fn arguments<'t>(&self, message: &'t mut Tree, part: usize) -> Option<&'t mut Tree> {
        let Some(Tree::List(blocks)) = message.get_mut("content") else { return None };
        let block =
            blocks.get_mut(part).filter(|block| block.text_of("type").as_deref() == Some("tool_use"))?;
        block.get_mut("input")
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
        let blocks = message.get("content").map(Tree::items).unwrap_or_default().iter().enumerate();
        let results = blocks.filter(|(_, block)| block.text_of("type").as_deref() == Some("tool_result"));
        let content = |block: &Tree| block.get("content").cloned().unwrap_or(Tree::List(Vec::new()));
        results.map(|(at, block)| (at, block.text_of("tool_use_id"), content(block))).collect()
    }

    fn media<'t>(&self, message: &'t mut Tree, part: usize) -> Option<&'t mut Tree> {
        let Some(Tree::List(blocks)) = message.get_mut("content") else { return None };
        blocks[part].get_mut("content")
    }

    fn is_image(&self, block: &Tree) -> bool {
        let source = block.get("source").and_then(|source| source.text_of("type"));
        block.text_of("type").as_deref() == Some("image") && source.as_deref() == Some("base64")
    }

    fn says(&self, text: &str, whole: bool) -> String {
        let stop = if whole { "end_turn" } else { "max_tokens" };
        serde_json::json!({"id": "m", "model": "c", "stop_reason": stop, "usage": {"input_tokens": 9, "output_tokens": 1},
            "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": text}]})
        .to_string()
    }

    fn validate(&self, messages: &[Tree]) -> Result<(), String> {
        validate(messages)
    }
}

/// What the provider is to do with old reasoning: some have it keep all, and some only the newest.
fn edits(dice: &mut Dice) -> Node {
    let clear = |keep: Node| {
        let kind = Node::text("clear_thinking_20251015");
        Node::List(vec![Node::map([("type", kind), ("keep", keep)])])
    };
    match dice.one_in(2) {
        true if dice.one_in(4) => {
            clear(Node::opaque([("type", Node::text("thinking_turns")), ("value", Node::raw("2"))]))
        }
        true => clear(Node::text("all")),
        false => Node::List(Vec::new()),
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

/// In the frame, blocks are not read.
fn opaque_text(text: &str) -> Node {
    Node::opaque([("type", Node::text("text")), ("text", Node::text(text))])
}

/// One with a long-lived mark, which may precede any other.
fn marked_text(text: &str) -> Node {
    let mark = Node::opaque([("type", Node::text("ephemeral")), ("ttl", Node::text("1h"))]);
    Node::opaque([("type", Node::text("text")), ("text", Node::text(text)), ("cache_control", mark)])
}

fn user(text: &str, media: bool, dice: &mut Dice) -> Node {
    if !media {
        return texts(text, dice);
    }
    let source =
        Node::opaque([("type", Node::text("url")), ("url", Node::text("https://example.com/a.png"))]);
    Node::List(vec![block("image", [("source", source)]), block("text", [("text", Node::text(text))])])
}

fn texts(text: &str, dice: &mut Dice) -> Node {
    if dice.one_in(2) {
        return Node::text(text);
    }
    Node::List(vec![block("text", [("text", Node::text(text))])])
}

fn thinking(present: bool, dice: &mut Dice) -> Vec<Node> {
    if !present {
        return Vec::new();
    }
    let mut blocks = vec![thought(dice)];
    if dice.one_in(4) {
        blocks.push(thought(dice));
    }
    blocks
}

/// A few words, or enough to weigh more than results.
fn thought(dice: &mut Dice) -> Node {
    let seal = "ErUBCkYIBxgC".repeat(if dice.one_in(3) { 150 } else { 1 });
    if dice.one_in(3) {
        return block("redacted_thinking", [("data", Node::text(seal))]);
    }
    let said = if dice.one_in(3) { "hm" } else { "" };
    block("thinking", [("thinking", Node::text(said)), ("signature", Node::text(seal))])
}

/// A call that the provider runs itself, with its result, and perhaps a block from the future.
fn strange(dice: &mut Dice) -> Vec<Node> {
    let query = Node::opaque([("query", Node::text("x"))]);
    let found = Node::List(vec![Node::opaque([("encrypted_content", Node::text("…"))])]);
    let mut blocks = vec![
        block(
            "server_tool_use",
            [("id", Node::text("srvtoolu_1")), ("name", Node::text("web_search")), ("input", query)],
        ),
        block("web_search_tool_result", [("tool_use_id", Node::text("srvtoolu_1")), ("content", found)]),
    ];
    if dice.one_in(2) {
        blocks.push(block("from_the_future", [("data", Node::raw("[{\"a\":1,\"a\":\"\\udfff\"}]"))]));
    }
    blocks
}

fn calls(step: &Step, first: usize, dice: &mut Dice) -> Vec<Node> {
    let mut blocks = thinking(step.thinking, dice);
    blocks.extend(step.text.as_ref().map(|text| block("text", [("text", Node::text(text))])));
    for (at, call) in step.calls.iter().enumerate() {
        if at > 0 && step.thinking && dice.one_in(4) {
            blocks.push(thought(dice));
        }
        let input = Node::opaque([("command", Node::text(&call.argument)), ("n", Node::raw("-0.50e+1"))]);
        blocks.push(block(
            "tool_use",
            [("id", Node::text(id(first + at))), ("name", Node::text(call.tool)), ("input", input)],
        ));
    }
    blocks
}

/// Results come first, then what the user says; some clients use a message for each.
fn results(step: &Step, first: usize, dice: &mut Dice) -> Vec<Node> {
    let mut blocks: Vec<Node> =
        step.calls.iter().enumerate().map(|(at, call)| result(call, first + at, dice)).collect();
    blocks.extend(step.aside.as_ref().map(|text| block("text", [("text", Node::text(text))])));
    if dice.one_in(6) {
        return blocks.into_iter().map(|block| message("user", Node::List(vec![block]))).collect();
    }
    vec![message("user", Node::List(blocks))]
}

fn result(call: &Call, number: usize, dice: &mut Dice) -> Node {
    let mut node = block("tool_result", [("tool_use_id", Node::text(id(number)))]);
    node = match &call.result {
        Content::Missing | Content::Again(_) => node,
        Content::Text(text) => node.with("content", Node::text(text)),
        Content::Broken => node.with("content", Node::raw("\"x\\ud83e\"")),
        Content::Blocks(blocks) => node.with("content", Node::List(blocks.iter().map(inner).collect())),
    };
    if call.is_error {
        return node.with("is_error", Node::raw("true"));
    }
    if dice.one_in(3) { node.with("is_error", Node::raw("false")) } else { node }
}

fn inner(of: &Block) -> Node {
    let source = |data: &str| {
        [("type", Node::text("base64")), ("media_type", Node::text("image/png")), ("data", Node::text(data))]
    };
    let url = [("type", Node::text("url")), ("url", Node::text("https://example.com/a.png"))];
    match of {
        Block::Text(text) => block("text", [("text", Node::text(text))]),
        Block::Image(data) => block("image", [("source", Node::opaque(source(data)))]),
        Block::Linked => block("image", [("source", Node::opaque(url))]),
        Block::Strange => block("tool_reference", [("tool_name", Node::text("x")), ("text", Node::raw("7"))]),
    }
}

fn id(number: usize) -> String {
    format!("toolu_{number:04}")
}

/// What the provider checks, as far as edits could break it.
fn validate(messages: &[Tree]) -> Result<(), String> {
    let role = |message: &Tree| message.text_of("role").unwrap_or_default();
    let (Some(first), Some(last)) = (messages.first(), messages.last()) else { return Err("empty".into()) };
    if role(first) != "user" {
        return Err("the first message is not the user's".into());
    }
    if role(last) == "assistant" {
        return Err("the last message is the model's".into());
    }
    let mut calls = OpenCalls::of_unique_ids();
    for (at, message) in messages.iter().enumerate() {
        let next = messages.get(at + 1).map(role);
        if role(message) == "system" {
            calls.expect_none_open("a system message")?;
            if next.is_some_and(|next| next != "assistant" && next != "system") {
                return Err(format!("message {at}: a system message before a user's"));
            }
            if at > 0 && role(&messages[at - 1]) == "assistant" && !ends_with_a_find(&messages[at - 1]) {
                return Err(format!("message {at}: a system message behind the model's"));
            }
        }
        let merged = at > 0 && role(&messages[at - 1]) == role(message);
        if merged && role(message) == "assistant" && [at - 1, at].iter().all(|at| thinks(&messages[*at])) {
            return Err(format!("message {at}: thinking of two answers runs together"));
        }
        blocks(message, &role(message), &mut calls).map_err(|error| format!("message {at}: {error}"))?;
    }
    calls.expect_none_running()?;
    calls.expect_none_open("the end")
}

/// Whether an answer ends with what a tool of the provider's own has found.
fn ends_with_a_find(message: &Tree) -> bool {
    let kind = message.get("content").and_then(|content| content.items().last()?.text_of("type"));
    kind.is_some_and(|kind| kind != "tool_result" && kind.ends_with("_tool_result"))
}

fn thinks(message: &Tree) -> bool {
    let blocks = message.get("content").map(Tree::items).unwrap_or_default();
    blocks.iter().any(|block| block.text_of("type").is_some_and(|kind| kind.ends_with("thinking")))
}

fn blocks(message: &Tree, role: &str, calls: &mut OpenCalls) -> Result<(), String> {
    let content = message.get("content").ok_or("no content")?;
    if content.is_string() {
        if content.text().is_some_and(|text| text.trim().is_empty()) {
            return Err("blank text".into());
        }
        return calls.expect_none_open("text");
    }
    let mut opened = Vec::new();
    for block in content.items() {
        match block.text_of("type").as_deref().unwrap_or_default() {
            "server_tool_use" => calls.provider_calls(block.text_of("id").unwrap_or_default()),
            "web_search_tool_result" => {
                calls.provider_ran(&block.text_of("tool_use_id").unwrap_or_default())?;
            }
            "tool_use" => opened.push(block.text_of("id").unwrap_or_default()),
            "tool_result" => {
                calls.result(&block.text_of("tool_use_id").unwrap_or_default())?;
                let inner = block.get("content").map(Tree::items).unwrap_or_default();
                if inner.iter().any(|block| block.text_of("text").is_some_and(|text| text.is_empty())) {
                    return Err("an empty text in a result".into());
                }
            }
            "text" => {
                if block.text_of("text").is_some_and(|text| text.trim().is_empty()) {
                    return Err("blank text".into());
                }
                if role != "assistant" {
                    calls.expect_none_open("text")?;
                }
            }
            _ if role != "assistant" => calls.expect_none_open("a block")?,
            _ => {}
        }
    }
    if role == "assistant" { calls.open(opened) } else { Ok(()) }
}
