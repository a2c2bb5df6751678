//! How Gemini writes a talk, edits one, and what it accepts.

use crate::conversation::Role;
use crate::plan::LeafEdit;
use crate::protocol::{Protocol, gemini};

use super::Subject;
use super::talk::{Block, Call, Content, Said, Step, Talk};
use super::tree::Tree;
use super::write::{Dice, Node};

pub(super) struct Contents;

impl Subject for Contents {
    fn protocol(&self) -> &'static dyn Protocol {
        &gemini::Gemini
    }

    fn list(&self) -> &'static str {
        "contents"
    }

    fn message(&self, said: &Said<'_>, dice: &mut Dice) -> Vec<Node> {
        match said {
            Said::User(turn) => {
                let media =
                    Node::map([(case(dice, "inlineData"), Node::opaque([("data", Node::text("aGk="))]))]);
                let mut parts = if turn.media { vec![media] } else { Vec::new() };
                parts.push(text(&turn.user));
                vec![from_user(parts, dice)]
            }
            Said::Note(note) => vec![from_user(vec![text(note)], dice)],
            Said::Calls(step, first) => calls(step, *first, dice),
            Said::Results(step, first) => results(step, *first, dice),
            Said::Answer(answer) => {
                let mut parts = thought(answer.thinking);
                if answer.strange {
                    parts.extend(strange());
                }
                parts.push(text(&answer.text));
                vec![content("model", parts)]
            }
        }
    }

    fn frame(&self, talk: &Talk, messages: Vec<Node>) -> Node {
        let mut dice = Dice(talk.seed);
        let system = Node::opaque([("text", Node::text("You are an agent."))]);
        let tools = Node::opaque([("functionDeclarations", Node::raw("[]"))]);
        Node::map([
            ("contents", Node::List(messages)),
            (case(&mut dice, "systemInstruction"), Node::opaque([("parts", Node::List(vec![system]))])),
            ("tools", Node::List(vec![tools])),
            ("generationConfig", Node::opaque([("temperature", Node::raw("1"))])),
            ("x_unknown", Node::opaque([("contents", Node::raw("[1e400, \"\\ud800\", {\"a\":1,\"a\":2}]"))])),
        ])
    }

    fn marks(&self) -> &'static [&'static str] {
        &["thoughtSignature", "thought_signature"]
    }

    /// There are none; here, signatures next to parts take their role. Results have none.
    fn mark(&self, message: &mut Node) {
        let Node::Map(members) = message else { return };
        let Some((_, Node::List(parts))) = members.iter_mut().find(|(key, _)| key == "parts") else { return };
        let is_free = |key: &String| {
            !self.marks().contains(&key.as_str()) && key != "functionResponse" && key != "function_response"
        };
        if let Some(Node::Map(members)) = parts.last_mut()
            && members.iter().all(|(key, _)| is_free(key))
        {
            members.push(("thoughtSignature".to_owned(), Node::text("c2ln")));
        }
    }

    fn edit(&self, message: &mut Tree, part: usize, leaves: &[(u32, LeafEdit)]) {
        let parts = match message.get_mut("parts") {
            Some(Tree::List(parts)) => &mut parts[..],
            Some(single) => std::slice::from_mut(single),
            None => panic!("no parts"),
        };
        let name = if parts[part].get("functionResponse").is_some() {
            "functionResponse"
        } else {
            "function_response"
        };
        let result = parts[part].get_mut(name).expect("a result");
        let Some(Tree::Map(members)) = result.get_mut("response") else { panic!("no response") };
        let texts = members.iter().any(|(key, value)| value.is_string() && !is_kind(key));
        if !texts && let Some(blocks) = blocks(members) {
            // From the end, so that places stay what they are.
            for (leaf, edit) in leaves.iter().rev() {
                match edit {
                    LeafEdit::Remove => drop(blocks.remove(*leaf as usize)),
                    LeafEdit::Replace(text) => {
                        let said = blocks[*leaf as usize].get_mut("text").expect("a block of text");
                        *said = Tree::Text(text.to_string());
                    }
                }
            }
            return;
        }
        let mut first = 0;
        let mut in_order: Vec<&mut (String, Tree)> = members.iter_mut().collect();
        in_order.sort_by(|one, other| one.0.cmp(&other.0));
        for (key, value) in in_order {
            let is_said = value.is_string() && !is_kind(key);
            let count = if texts { usize::from(is_said) } else { value.items().len() };
            let own = leaves.iter().filter(|(leaf, _)| (first..first + count).contains(&(*leaf as usize)));
            // From the end, so that places stay what they are.
            for (leaf, edit) in own.rev() {
                let at = *leaf as usize - first;
                match (&mut *value, edit) {
                    (Tree::List(lines), LeafEdit::Remove) => drop(lines.remove(at)),
                    (Tree::List(lines), LeafEdit::Replace(text)) => lines[at] = Tree::Text(text.to_string()),
                    (value, LeafEdit::Replace(text)) => *value = Tree::Text(text.to_string()),
                    _ => panic!("a member cannot be removed"),
                }
            }
            first += count;
        }
    }

    fn arguments<'t>(&self, message: &'t mut Tree, part: usize) -> Option<&'t mut Tree> {
        let part = match message.get_mut("parts")? {
            Tree::List(parts) => parts.get_mut(part)?,
            single => single,
        };
        let name = ["functionCall", "function_call"].into_iter().find(|name| part.get(name).is_some())?;
        part.get_mut(name)?.get_mut("args")
    }

    fn said(&self, role: Role, text: &str) -> Tree {
        let role = if role == Role::Assistant { "model" } else { "user" };
        let words = |text: &str| Tree::Text(text.to_owned());
        let part = Tree::Map(vec![("text".to_owned(), words(text))]);
        Tree::Map(vec![("role".to_owned(), words(role)), ("parts".to_owned(), Tree::List(vec![part]))])
    }

    fn takes(&self, role: Role) -> bool {
        role != Role::System
    }

    fn results(&self, message: &Tree) -> Vec<(usize, Option<String>, Tree)> {
        let parts = message.get("parts").map(Tree::items).unwrap_or_default().iter().enumerate();
        let results = parts.filter_map(|(at, part)| Some((at, either(part, "functionResponse")?)));
        let said = |result: &Tree| result.get("response").cloned().unwrap_or(Tree::Map(Vec::new()));
        results.map(|(at, result)| (at, result.text_of("id"), said(result))).collect()
    }

    fn media<'t>(&self, message: &'t mut Tree, part: usize) -> Option<&'t mut Tree> {
        let part = match message.get_mut("parts")? {
            Tree::List(parts) => parts.get_mut(part)?,
            single => single,
        };
        let name = ["functionResponse", "function_response"].into_iter();
        let name = name.into_iter().find(|name| part.get(name).is_some())?;
        part.get_mut(name)?.get_mut("parts")
    }

    fn is_image(&self, block: &Tree) -> bool {
        let Tree::Map(members) = block else { return false };
        let [(name, data)] = &members[..] else { return false };
        let is_named = data.get("displayName").or_else(|| data.get("display_name")).is_some();
        (name == "inlineData" || name == "inline_data")
            && data.get("data").is_some_and(Tree::is_string)
            && !is_named
    }

    fn text_block(&self, text: &str) -> Tree {
        panic!("no text stands among images: {text}")
    }

    fn texts(&self, content: &Tree) -> usize {
        let Tree::Map(mut members) = content.clone() else { return 0 };
        let said = members.iter().filter(|(key, value)| value.is_string() && !is_kind(key)).count();
        if said > 0 {
            return said;
        }
        if let Some(blocks) = blocks(&mut members) {
            return blocks.len();
        }
        let lines = |value: &Tree| value.items().iter().all(Tree::is_string).then(|| value.items().len());
        members.iter().filter_map(|(_, value)| lines(value)).find(|count| *count > 0).unwrap_or(0)
    }

    fn blank(&self, content: &Tree) -> Tree {
        let Tree::Map(members) = content else { return content.clone() };
        let blank = |(key, value): &(String, Tree)| match value {
            Tree::List(lines) if lines.iter().all(|line| line.is_string() || is_block(line)) => {
                (key.clone(), Tree::List(Vec::new()))
            }
            kind if is_kind(key) => (key.clone(), kind.clone()),
            passed_on @ Tree::Map(_) if is_passed_on(key) => (key.clone(), self.blank(passed_on)),
            text if text.is_string() => (key.clone(), Tree::Text(String::new())),
            other => (key.clone(), other.clone()),
        };
        Tree::Map(members.iter().map(blank).collect())
    }

    fn is_answer(&self, message: &Tree) -> bool {
        message.text_of("role").as_deref() == Some("model")
    }

    fn says(&self, text: &str, whole: bool) -> String {
        let stop = if whole { "STOP" } else { "MAX_TOKENS" };
        serde_json::json!({"responseId": "m", "modelVersion": "c",
            "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 1},
            "candidates": [{"finishReason": stop, "content": {"role": "model",
                "parts": [{"thought": true, "text": "hm"}, {"text": text}]}}]})
        .to_string()
    }

    fn validate(&self, messages: &[Tree]) -> Result<(), String> {
        validate(messages)
    }
}

/// A name in one of its two spellings.
fn case(dice: &mut Dice, camel: &'static str) -> &'static str {
    if dice.one_in(2) { camel } else { snake(camel) }
}

fn snake(camel: &'static str) -> &'static str {
    match camel {
        "functionCall" => "function_call",
        "functionResponse" => "function_response",
        "inlineData" => "inline_data",
        "systemInstruction" => "system_instruction",
        "thoughtSignature" => "thought_signature",
        other => other,
    }
}

fn either<'t>(part: &'t Tree, camel: &'static str) -> Option<&'t Tree> {
    part.get(camel).or_else(|| part.get(snake(camel)))
}

fn content(role: &str, parts: Vec<Node>) -> Node {
    Node::map([("role", Node::text(role)), ("parts", Node::List(parts))])
}

/// The user needs no name.
fn from_user(parts: Vec<Node>, dice: &mut Dice) -> Node {
    if dice.one_in(3) { Node::map([("parts", Node::List(parts))]) } else { content("user", parts) }
}

fn text(text: &str) -> Node {
    Node::map([("text", Node::text(text))])
}

fn thought(present: bool) -> Vec<Node> {
    if present { vec![text("hm").with("thought", Node::raw("true"))] } else { Vec::new() }
}

/// What the provider ran by itself, and a part from the future.
fn strange() -> Vec<Node> {
    let code = Node::opaque([("language", Node::text("PYTHON")), ("code", Node::text("1"))]);
    vec![
        Node::map([("executableCode", code)]),
        Node::map([("codeExecutionResult", Node::opaque([("output", Node::text("1"))]))]),
        Node::map([("fromTheFuture", Node::raw("[{\"a\":1,\"a\":\"\\udfff\"}]"))]),
    ]
}

/// Some clients have ids, some do without, some have them in calls only.
fn has_id(first: usize, is_call: bool) -> bool {
    match first % 3 {
        0 => true,
        1 => is_call,
        _ => false,
    }
}

/// In one content, or, as streams arrive, in one for each part.
fn calls(step: &Step, first: usize, dice: &mut Dice) -> Vec<Node> {
    let mut parts = thought(step.thinking);
    parts.extend(step.text.as_ref().map(|words| text(words)));
    for (at, call) in step.calls.iter().enumerate() {
        let args = Node::opaque([("command", Node::text(&call.argument)), ("n", Node::raw("-0.50e+1"))]);
        let mut function = Node::map([("name", Node::text(call.tool)), ("args", args)]);
        if has_id(first, true) {
            function = function.with("id", Node::text(id(first + at)));
        }
        let part = Node::map([(case(dice, "functionCall"), function)]);
        let signature = case(dice, "thoughtSignature");
        parts.push(if at == 0 { part.with(signature, Node::text("c2lnbmF0dXJl")) } else { part });
    }
    if dice.one_in(4) {
        return parts.into_iter().map(|part| content("model", vec![part])).collect();
    }
    vec![content("model", parts)]
}

fn is_block(item: &Tree) -> bool {
    item.text_of("text").is_some()
}

/// MCP's word for the kind of a result.
fn is_kind(key: &str) -> bool {
    key == "resultType" || key == "result_type"
}

/// Where a client passes on a result of MCP.
fn is_passed_on(key: &str) -> bool {
    key == "result" || key == "error"
}

/// The blocks of a response, or of the one that it passes on.
fn blocks(response: &mut [(String, Tree)]) -> Option<&mut Vec<Tree>> {
    let at = response
        .iter()
        .position(|(_, value)| !value.items().is_empty() && value.items().iter().all(is_block));
    if let Some(at) = at {
        let (_, Tree::List(blocks)) = &mut response[at] else { return None };
        return Some(blocks);
    }
    response.iter_mut().find_map(|(key, value)| match value {
        Tree::Map(members) if is_passed_on(key) => blocks(members),
        _ => None,
    })
}

fn results(step: &Step, first: usize, dice: &mut Dice) -> Vec<Node> {
    let role = if dice.one_in(4) { "function" } else { "user" };
    let mut parts: Vec<Node> =
        step.calls.iter().enumerate().map(|(at, call)| result(call, first, at, dice)).collect();
    parts.extend(step.aside.as_ref().map(|words| text(words)));
    vec![content(role, parts)]
}

fn result(call: &Call, first: usize, at: usize, dice: &mut Dice) -> Node {
    let key = if call.is_error { "error" } else { ["output", "result", "content"][dice.below(3)] };
    let response = match &call.result {
        Content::Missing | Content::Again(_) => Node::map([("code", Node::raw("0"))]),
        Content::Text(text) => Node::map([(key, Node::text(text)), ("code", Node::raw("0"))]),
        Content::Broken => Node::map([(key, Node::raw("\"x\\ud83e\""))]),
        Content::Blocks(blocks) => {
            let texts = blocks.iter().filter_map(|block| match block {
                Block::Text(text) => Some(Node::text(text)),
                _ => None,
            });
            let texts: Vec<Node> = texts.collect();
            // One of these that can be read in two ways is data, and stays whole.
            let bare = |text| Node::opaque([("text", text)]);
            let block = |text| Node::opaque([("type", Node::text("text")), ("text", text)]);
            let of_mcp = |texts: Vec<Node>| {
                [
                    ("content", Node::List(texts.into_iter().map(block).collect())),
                    ("isError", Node::raw(if call.is_error { "true" } else { "false" })),
                ]
            };
            match dice.below(5) {
                0 => Node::map([("output", Node::List(texts.into_iter().map(bare).collect()))]),
                1 => {
                    let kind = ["resultType", "result_type"][dice.below(2)];
                    let result = Node::map(of_mcp(texts));
                    if dice.one_in(2) { result.with(kind, Node::text("complete")) } else { result }
                }
                2 => {
                    let passed_on = if call.is_error { "error" } else { "result" };
                    Node::map([(passed_on, Node::opaque(of_mcp(texts)))])
                }
                3 => Node::map([("lines", Node::List(texts)), ("stderr", Node::text("warning"))]),
                _ => Node::map([("lines", Node::List(texts))]),
            }
        }
    };
    let strange = Node::opaque([("output", Node::text("deeper")), ("a", Node::raw("1"))]);
    let response = if dice.one_in(4) { response.with("data", strange) } else { response };
    let mut function = Node::map([("name", Node::text(call.tool)), ("response", response)]);
    if has_id(first, false) {
        function = function.with("id", Node::text(id(first + at)));
    }
    if let Content::Blocks(blocks) = &call.result {
        let data = |data: &str| Node::opaque([("data", Node::text(data))]);
        let beside = blocks.iter().filter_map(|block| match block {
            Block::Text(_) => None,
            Block::Image(image) => Some((case(dice, "inlineData"), data(image))),
            Block::Linked => Some(("fileData", Node::opaque([("fileUri", Node::text("https://a/b"))]))),
            Block::Strange if dice.one_in(2) => Some(("fromTheFuture", data("aGk="))),
            Block::Strange => Some(("inlineData", data("aGk=").with("displayName", Node::text("a.png")))),
        });
        let beside: Vec<Node> = beside.map(|part| Node::opaque([part])).collect();
        if !beside.is_empty() {
            function = function.with("parts", Node::List(beside));
        }
    }
    Node::map([(case(dice, "functionResponse"), function)])
}

fn id(number: usize) -> String {
    format!("mk{number:04}")
}

/// What the provider checks, as far as edits could break it. Contents of one speaker in a row are one.
fn validate(messages: &[Tree]) -> Result<(), String> {
    let role = |message: &Tree| {
        if message.text_of("role").as_deref() == Some("model") { "model" } else { "user" }
    };
    let mut turns: Vec<(&str, Vec<&Tree>)> = Vec::new();
    for message in messages {
        let parts = message.get("parts").map(Tree::items).unwrap_or_default();
        if parts.is_empty() {
            return Err("no parts".into());
        }
        match turns.last_mut() {
            Some((last, all)) if *last == role(message) => all.extend(parts),
            _ => turns.push((role(message), parts.iter().collect())),
        }
    }
    if turns.first().is_none_or(|(role, _)| *role != "user")
        || turns.last().is_some_and(|(role, _)| *role == "model")
    {
        return Err("the user is not first and last".into());
    }
    let mut open: Vec<&Tree> = Vec::new();
    for (role, parts) in turns {
        let results: Vec<&Tree> = parts.iter().filter_map(|part| either(part, "functionResponse")).collect();
        let names = |all: &[&Tree]| {
            let mut names: Vec<_> = all.iter().map(|one| one.text_of("name")).collect();
            names.sort();
            names
        };
        if names(&open) != names(&results) {
            return Err(format!("the {role}'s results do not answer the calls before"));
        }
        open = parts.iter().filter_map(|part| either(part, "functionCall")).collect();
        if !open.is_empty() && role != "model" {
            return Err("the user calls".into());
        }
    }
    if open.is_empty() { Ok(()) } else { Err("calls without results".into()) }
}
