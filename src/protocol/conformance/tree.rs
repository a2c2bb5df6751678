//! A second reader of JSON, built on `serde_json` alone: an oracle for rewritten bodies that is independent of the code
//! that rewrites them.
//!
//! Order, duplicates and the spelling of scalars are kept, so that two trees are equal only if nothing but white space
//! between values was changed.

use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::conversation::Hold;
use crate::plan::{LeafEdit, Op, Plan};

use super::Subject;

/// A JSON value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Tree {
    /// A scalar as it is spelled.
    Raw(String),
    /// A string that the oracle put here: its spelling does not matter.
    Text(String),
    /// A string that holds JSON, with something in it that the oracle put there.
    Json(Box<Self>),
    /// An array.
    List(Vec<Self>),
    /// An object.
    Map(Vec<(String, Self)>),
}

impl Tree {
    /// Reads a value that is known to be JSON.
    pub(crate) fn parse(text: &str) -> Self {
        Self::read(serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}")))
    }

    fn read(raw: &RawValue) -> Self {
        match raw.get().as_bytes().first() {
            Some(b'{') => {
                let mut reader = serde_json::Deserializer::from_str(raw.get());
                Self::Map(reader.deserialize_map(Members).expect("an object"))
            }
            Some(b'[') => {
                let items: Vec<&RawValue> = serde_json::from_str(raw.get()).expect("an array");
                Self::List(items.into_iter().map(Self::read).collect())
            }
            _ => Self::Raw(raw.get().to_owned()),
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        let Self::Map(members) = self else { return None };
        members.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Self> {
        let Self::Map(members) = self else { return None };
        members.iter_mut().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// The items of an array; none for anything else.
    pub(crate) fn items(&self) -> &[Self] {
        if let Self::List(items) = self { items } else { &[] }
    }

    /// What a string says, if it is one and says anything.
    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Self::Raw(literal) => serde_json::from_str(literal).ok(),
            Self::Text(text) => Some(text.clone()),
            _ => None,
        }
    }

    /// What an object holds that is written in a string.
    fn held(&self) -> Option<Self> {
        let text = self.text()?;
        let is_object = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok()
            && text.trim_start().starts_with('{');
        is_object.then(|| Self::parse(&text))
    }

    /// The texts of a call's arguments, in order.
    pub(crate) fn argument_texts(&self) -> Vec<String> {
        let mut held = self.held().unwrap_or_else(|| self.clone());
        let mut texts = Vec::new();
        held.texts_mut(4, &mut texts);
        texts.into_iter().filter_map(|text| text.text()).collect()
    }

    /// Its texts in order, down to a depth of four lists and objects.
    fn texts_mut<'t>(&'t mut self, depth: usize, out: &mut Vec<&'t mut Self>) {
        let is_string = self.is_string();
        match self {
            text if is_string => out.push(text),
            Self::List(items) if depth > 0 => {
                for item in items {
                    item.texts_mut(depth - 1, out);
                }
            }
            Self::Map(members) if depth > 0 => {
                for (_, value) in members {
                    value.texts_mut(depth - 1, out);
                }
            }
            _ => {}
        }
    }

    /// The text of a member.
    pub(crate) fn text_of(&self, key: &str) -> Option<String> {
        self.get(key)?.text()
    }

    pub(crate) fn is_string(&self) -> bool {
        matches!(self, Self::Text(_)) || matches!(self, Self::Raw(literal) if literal.starts_with('"'))
    }

    /// Whether both are the same except for white space, and for the spelling of what the oracle wrote.
    pub(crate) fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Raw(a), Self::Raw(b)) => a == b,
            (Self::Json(held), other) | (other, Self::Json(held)) => {
                other.held().is_some_and(|other| held.same(&other))
            }
            (Self::Text(_), _) | (_, Self::Text(_)) => self.text().is_some() && self.text() == other.text(),
            (Self::List(a), Self::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.same(b)),
            (Self::Map(a), Self::Map(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.0 == b.0 && a.1.same(&b.1))
            }
            _ => false,
        }
    }

    /// What it says: no members named in `skip`, members in the order of their names, strings decoded.
    pub(crate) fn plain(&self, skip: &[&str]) -> Self {
        match self {
            Self::Raw(_) | Self::Text(_) => self.text().map_or_else(|| self.clone(), Self::Text),
            Self::Json(held) => held.plain(skip),
            Self::List(items) => Self::List(items.iter().map(|item| item.plain(skip)).collect()),
            Self::Map(members) => {
                let kept = members.iter().filter(|(key, _)| !skip.contains(&&**key));
                let mut kept: Vec<_> = kept.map(|(key, value)| (key.clone(), value.plain(skip))).collect();
                kept.sort_by(|a, b| a.0.cmp(&b.0));
                Self::Map(kept)
            }
        }
    }

    /// Every word of it, without its form: the values of its members in the order of their names, but for those
    /// in `skip`, for the types of blocks, and for what the model thought.
    pub(crate) fn words(&self, skip: &[&str]) -> Vec<String> {
        match self {
            Self::Raw(literal) if literal == "null" => Vec::new(),
            Self::Raw(literal) => vec![self.text().unwrap_or_else(|| literal.clone())],
            Self::Text(text) => vec![text.clone()],
            Self::Json(held) => held.words(skip),
            Self::List(items) => items.iter().flat_map(|item| item.words(skip)).collect(),
            Self::Map(_) if self.text_of("type").is_some_and(|name| is_thought(&name)) => Vec::new(),
            Self::Map(members) => {
                let said = |key: &str| key != "type" && !skip.contains(&key) && !is_thought(key);
                let mut kept: Vec<_> = members.iter().filter(|(key, _)| said(key)).collect();
                kept.sort_by(|a, b| a.0.cmp(&b.0));
                kept.into_iter().flat_map(|(_, value)| value.words(skip)).collect()
            }
        }
    }
}

/// Whether something named or typed so is what a model thought, which is not part of what was said.
fn is_thought(name: &str) -> bool {
    ["think", "thought", "reason"].iter().any(|part| name.contains(part))
}

/// Members in order, whatever their keys.
struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Vec<(String, Tree)>;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some((key, value)) = map.next_entry::<String, &RawValue>()? {
            members.push((key, Tree::read(value)));
        }
        Ok(members)
    }
}

/// The body with the plan carried out on the tree, the dialect's own way.
pub(crate) fn planned(subject: &dyn Subject, body: &str, plan: &Plan) -> Tree {
    let mut root = Tree::parse(body);
    // Without a plan there need not be a list.
    if plan.is_empty() {
        return root;
    }
    for op in &plan.ops {
        if let Op::Split { bytes, mark } = op {
            split(root.get_mut("system").expect("instructions"), *bytes as usize, *mark);
        }
        if let Op::MarkFrame { hold } = op {
            mark_frame(&mut root, *hold);
        }
    }
    let list = root.get_mut(subject.list()).expect("messages");
    if list.is_string() {
        *list = more_words(list, plan);
        return root;
    }
    let Tree::List(messages) = list else { panic!("no messages: {body}") };
    let gone: Vec<Tree> = plan
        .ops
        .iter()
        .filter_map(|op| if let Op::Drop { first, end } = op { Some(*first..*end) } else { None })
        .flat_map(|range| messages[range].to_vec())
        .collect();
    let mut dropped = vec![false; messages.len()];
    let mut inserted: Vec<Vec<Tree>> = vec![Vec::new(); messages.len() + 1];
    let mut omitted = Vec::new();
    for op in &plan.ops {
        match op {
            Op::Text { part, leaves } => {
                let message = &mut messages[part.message as usize];
                match subject.arguments(message, part.part as usize) {
                    Some(arguments) => abridge(arguments, leaves),
                    None => result(subject, message, part.part as usize, leaves),
                }
            }
            Op::Append { part, text, .. } => {
                append(&mut messages[part.message as usize], part.part as usize, text);
            }
            Op::Mark { part, hold } => {
                let message = &mut messages[part.message as usize];
                let block = subject.block_of(message, part.part as usize);
                mark(message, block, *hold);
            }
            Op::Omit { part } => omitted.push((part.message as usize, part.part as usize)),
            Op::Split { .. } | Op::MarkFrame { .. } => {}
            Op::Drop { first, end } => dropped[*first..*end].fill(true),
            Op::Insert { before, role, text } => inserted[*before].push(subject.said_for(&gone, *role, text)),
        }
    }
    omitted.sort_unstable();
    for (message, part) in omitted.into_iter().rev() {
        subject.omit(&mut messages[message], part);
    }
    let mut out = Vec::new();
    for (at, message) in std::mem::take(messages).into_iter().enumerate() {
        out.append(&mut inserted[at]);
        if !dropped[at] {
            out.push(message);
        }
    }
    out.extend(inserted.pop().unwrap_or_default());
    *messages = out;
    root
}

/// Instructions are marked at their end, or, where there are none, tools.
fn mark_frame(root: &mut Tree, hold: Hold) {
    let named = if root.get("system").is_some() { "system" } else { "tools" };
    let end = root.get_mut(named).expect("something before the messages");
    if end.is_string() {
        let kind = ("type".to_owned(), Tree::Raw("\"text\"".to_owned()));
        *end = Tree::List(vec![Tree::Map(vec![kind, ("text".to_owned(), end.clone())])]);
    }
    let Tree::List(blocks) = end else { panic!("neither a text nor a list") };
    let Some(Tree::Map(members)) = blocks.last_mut() else { panic!("no block") };
    members.push(("cache_control".to_owned(), cache_control(hold)));
}

/// Texts of a result get new words, and images, which are counted after these, go or give way to a text.
fn result(subject: &dyn Subject, message: &mut Tree, part: usize, leaves: &[(u32, LeafEdit)]) {
    let images = subject.take_images(&mut message.clone(), part, |_| true).len();
    let content =
        subject.results(message).into_iter().find(|(at, ..)| *at == part).map(|(.., content)| content);
    let texts = content.filter(|_| images > 0).map_or(usize::MAX, |content| subject.texts(&content));
    let (said, seen): (Vec<_>, Vec<_>) = leaves.iter().cloned().partition(|(at, _)| (*at as usize) < texts);
    if !said.is_empty() {
        subject.edit(message, part, &said);
    }
    let edit = |number: usize| seen.iter().find(|(at, _)| *at as usize == texts + number);
    if !seen.is_empty() {
        subject.edit_images(message, part, |number| edit(number).map(|(_, edit)| edit.clone()));
    }
}

/// Instructions become two texts.
fn split(system: &mut Tree, bytes: usize, mark: Option<Hold>) {
    let text = system.text().expect("a text");
    let block = |text: &str| {
        Tree::Map(vec![
            ("type".to_owned(), Tree::Raw("\"text\"".to_owned())),
            ("text".to_owned(), Tree::Text(text.to_owned())),
        ])
    };
    let mut first = block(&text[..bytes]);
    if let (Some(hold), Tree::Map(members)) = (mark, &mut first) {
        members.push(("cache_control".to_owned(), cache_control(hold)));
    }
    *system = Tree::List(vec![first, block(&text[bytes..])]);
}

fn cache_control(hold: Hold) -> Tree {
    Tree::parse(match hold {
        Hold::Short => r#"{"type":"ephemeral"}"#,
        Hold::Long => r#"{"type":"ephemeral","ttl":"1h"}"#,
    })
}

/// A prompt that is one string: all that a plan can do about it is to say more.
fn more_words(prompt: &Tree, plan: &Plan) -> Tree {
    let mut text = prompt.text().expect("a text").clone();
    for op in &plan.ops {
        match op {
            Op::Append { text: more, .. } => text.push_str(more),
            op => panic!("{op:?} of a string"),
        }
    }
    Tree::Text(text)
}

/// Appends to a text: to a string, or to a block's text, in a list or alone.
fn append(message: &mut Tree, part: usize, more: &str) {
    let list = ["content", "parts"].into_iter().find(|key| message.get(key).is_some()).expect("content");
    let content = message.get_mut(list).expect("content");
    let block = match content {
        Tree::List(blocks) => &mut blocks[part],
        single => single,
    };
    let text = if block.is_string() { block } else { block.get_mut("text").expect("a text") };
    *text = Tree::Text(format!("{}{more}", text.text().expect("a text")));
}

/// Marks a block, by its number in the content.
fn mark(message: &mut Tree, at: usize, hold: Hold) {
    let content = message.get_mut("content").expect("marks stand in the content");
    if content.is_string() {
        let block =
            vec![("type".to_owned(), Tree::Raw("\"text\"".to_owned())), ("text".to_owned(), content.clone())];
        *content = Tree::List(vec![Tree::Map(block)]);
    }
    let Tree::List(blocks) = content else { panic!("no blocks") };
    let Tree::Map(block) = &mut blocks[at] else { panic!("no block") };
    block.push(("cache_control".to_owned(), cache_control(hold)));
}

/// Gives texts of a call's arguments new words: in an object, in one that a string holds, or of a string as a whole.
fn abridge(arguments: &mut Tree, leaves: &[(u32, LeafEdit)]) {
    if let Some(mut held) = arguments.held() {
        abridge(&mut held, leaves);
        *arguments = Tree::Json(Box::new(held));
        return;
    }
    let mut texts = Vec::new();
    arguments.texts_mut(4, &mut texts);
    for (at, edit) in leaves {
        let LeafEdit::Replace(text) = edit else { panic!("texts of arguments stay") };
        *texts[*at as usize] = Tree::Text(text.to_string());
    }
}

/// Edits content that is a string or a list of blocks of which those with text are leaves.
pub(crate) fn edit_content(content: &mut Tree, leaves: &[(u32, LeafEdit)]) {
    if let Tree::List(blocks) = content {
        let is_text = |block: &Tree| {
            block.text_of("type").as_deref() == Some("text") && block.get("text").is_some_and(Tree::is_string)
        };
        let places: Vec<usize> = (0..blocks.len()).filter(|at| is_text(&blocks[*at])).collect();
        let mut gone = Vec::new();
        for (leaf, edit) in leaves {
            let place = places[*leaf as usize];
            match edit {
                LeafEdit::Replace(text) => {
                    *blocks[place].get_mut("text").expect("a leaf has text") = Tree::Text(text.to_string());
                }
                LeafEdit::Remove => gone.push(place),
            }
        }
        let mut at = 0;
        blocks.retain(|_| {
            at += 1;
            !gone.contains(&(at - 1))
        });
        return;
    }
    for (leaf, edit) in leaves {
        let LeafEdit::Replace(text) = edit else { panic!("a string cannot be removed") };
        assert!(*leaf == 0 && content.is_string(), "a string is one leaf");
        *content = Tree::Text(text.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_distinguish_what_json_values_conflate() {
        let tree = Tree::parse(r#" { "a" : 1e400 , "a" : "\ud800" , "b" : [ 1.0 , "\u0061" ] } "#);
        assert!(tree.same(&Tree::parse(r#"{"a":1e400,"a":"\ud800","b":[1.0,"\u0061"]}"#)));
        for other in [
            r#"{"a":1e400,"a":"\ud800","b":[1,"\u0061"]}"#,
            r#"{"a":1e400,"a":"\ud800","b":[1.0,"a"]}"#,
            r#"{"a":1e400,"b":[1.0,"\u0061"]}"#,
            r#"{"a":1e400,"b":[1.0,"\u0061"],"a":"\ud800"}"#,
        ] {
            assert!(!tree.same(&Tree::parse(other)), "{other}");
        }
        assert!(Tree::Text("a".to_owned()).same(&Tree::parse(r#""\u0061""#)));
    }

    #[test]
    fn appended_texts_extend_a_string_prompt() {
        let op = |text: &str| Op::Append {
            part: crate::conversation::PartId { message: 0, part: 0 },
            leaf: 0,
            text: text.into(),
        };
        let plan = Plan { ops: vec![op(" there"), op("!")] };
        let said = more_words(&Tree::parse("\"hi\""), &plan);
        assert!(said.same(&Tree::parse("\"hi there!\"")), "{said:?}");
    }
}
