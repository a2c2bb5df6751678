//! A request as the provider's prompt cache sees it: blocks in the order of the prompt.
//!
//! It holds only hashes and lengths, because it is made twice for every request: for the original and for what was
//! sent. Each message is hashed and weighed once. Neither the key nor the weight of a block depends on its cache mark,
//! or on whether a text is a plain string or the only text of a block. What cannot be read still counts as a block, so
//! that nothing here fails.

use std::sync::LazyLock;

use memchr::memmem;
use xxhash_rust::xxh3::Xxh3;

use super::Protocol;
use super::blocks::{frame_block, part_block, part_key};
use super::marked::{hold, own_mark};
use super::prelude::{self, Bind, Bound};
use crate::conversation::{BlockKey, Conversation, Hold, PartId, Role};
use crate::json::scan::{self, Kind, Value};
use crate::json::{Span, string};
use crate::usage::cache_model::{self, PromptShape, Ttl};

/// A prompt as a sequence of blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prompt {
    /// The blocks: tools and instructions, then the messages, then late instructions.
    pub blocks: Vec<Block>,
    /// The mark that the provider itself puts on the last block, if it does.
    pub automatic: Option<Hold>,
    /// What cache entries depend on besides the text before them.
    pub bound: Bound,
    /// A hash of the names of what the provider holds and reads before the blocks, if the request names any.
    pub named: Option<u64>,
    /// Whether what is held under these names is billed as read from a cache.
    pub named_is_cached: bool,
    /// The number of blocks at the end that are instructions which the model reads after the messages. No cache keeps
    /// them.
    pub late: usize,
}

/// A block of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// A hash of its content without its cache mark.
    pub key: u128,
    /// The bytes of its text, as it is written in the body.
    pub bytes: u32,
    /// Its weight in bytes: its length without its cache mark and without the block around a text that could be a plain
    /// string, with runs that take few tokens counted for little.
    pub weight: u32,
    /// The tokens that a tokenizer counts in it, once that is known.
    pub counted: Option<u32>,
    /// Its place in the body.
    pub span: Span,
    /// The cache mark on it.
    pub mark: Option<Hold>,
    /// The part that it is, if it is in a message.
    pub part: Option<PartId>,
    /// What it belongs to.
    pub share: Share,
}

/// A reasoning block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thought {
    /// The key of its block.
    pub key: u128,
    /// A hash of everything before it except other reasoning.
    pub before: u64,
}

/// What a block belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// Tool definitions.
    Tools,
    /// Instructions.
    System,
    /// The user's text and media.
    User,
    /// The model's text and calls.
    Assistant,
    /// The model's reasoning.
    Reasoning,
    /// Tool results.
    Results,
}

impl Block {
    /// Its text as written in the body; `None` if it is not all text.
    pub fn text<'b>(&self, body: &'b [u8]) -> Option<&'b str> {
        let raw = body.get(self.span.range()).filter(|raw| raw.len() == self.bytes as usize)?;
        std::str::from_utf8(raw).ok()
    }

    /// Its tokens, at least one.
    fn tokens(&self, scale: Scale) -> u64 {
        let (size, unit) = match (scale, self.counted) {
            (Scale::Bytes(unit), _) => (f64::from(self.bytes), unit),
            (Scale::Weights(unit), _) => (f64::from(self.weight), unit),
            (Scale::Counts(unit), Some(counted)) => (f64::from(counted), unit),
            (Scale::Counts(unit), None) => (f64::from(self.weight) / DEFAULT_BYTES_PER_TOKEN, unit),
        };
        (size / unit).round().max(1.0) as u64
    }
}

/// The assumed bytes of weight per token, if nothing is known.
const DEFAULT_BYTES_PER_TOKEN: f64 = 4.0;
/// The fewest bytes of weight per billed token in a body that holds the whole prompt. If there are fewer, the provider
/// holds a part of the prompt.
const MIN_WEIGHT_PER_TOKEN: f64 = 1.5;
/// The same in counted tokens per billed token.
const MIN_COUNT_PER_TOKEN: f64 = 0.4;

/// How the size of a prompt is converted to tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scale {
    /// By length, with this many bytes per token.
    Bytes(f64),
    /// By weight, with this many bytes of weight per token.
    Weights(f64),
    /// By counted tokens, with this many per token of the provider's.
    Counts(f64),
}

impl Prompt {
    /// The scale by which the size of the prompt equals the `billed` tokens. `billed` is 0 if the provider reported
    /// none.
    pub fn scale(&self, billed: u64) -> Scale {
        let counted: Option<u64> = self.blocks.iter().map(|block| block.counted.map(u64::from)).sum();
        let unit = |size: u64| size.max(1) as f64 / billed.max(1) as f64;
        match counted.filter(|counted| *counted > 0) {
            Some(counted) => Scale::Counts(if billed > 0 { unit(counted) } else { 1.0 }),
            None => Scale::Weights(if billed > 0 { unit(self.weight()) } else { DEFAULT_BYTES_PER_TOKEN }),
        }
    }

    /// The scale for the part of a billed prompt that is in the body, and the tokens of the rest: a history, a document
    /// or a cached prefix that the provider holds. `hides` tells whether the provider is known to hold such a part; if
    /// not, it is assumed to hold one only if the body is much too short for the `billed` tokens.
    pub fn held(&self, billed: u64, hides: bool) -> (Scale, u64) {
        let (min_weight, min_count) =
            if hides { (DEFAULT_BYTES_PER_TOKEN, 1.0) } else { (MIN_WEIGHT_PER_TOKEN, MIN_COUNT_PER_TOKEN) };
        let scale = match self.scale(billed) {
            Scale::Weights(unit) if unit < min_weight => Scale::Weights(DEFAULT_BYTES_PER_TOKEN),
            Scale::Counts(unit) if unit < min_count => Scale::Counts(1.0),
            whole => return (whole, 0),
        };
        (scale, billed.saturating_sub(self.tokens(scale)))
    }

    /// The tokens of all blocks.
    pub fn tokens(&self, scale: Scale) -> u64 {
        self.blocks.iter().map(|block| block.tokens(scale)).sum()
    }

    /// The shape of the prompt, by which the cache model works. Every block has at least one token.
    pub fn shape(&self, scale: Scale) -> PromptShape {
        let (kept, late) = self.blocks.split_at(self.kept());
        let Bound { mut system, mut messages } = self.bound;
        let mut sized = |block: &Block| cache_model::Block {
            key: block.key,
            tokens: block.tokens(scale),
            mark: block.mark.map(ttl),
            bound: match (block.part, block.share) {
                (Some(_), _) => std::mem::take(&mut messages),
                (None, Share::System) => std::mem::take(&mut system),
                _ => 0,
            },
        };
        PromptShape {
            blocks: kept.iter().map(&mut sized).collect(),
            automatic: self.automatic.map(ttl),
            late: late.iter().map(sized).collect(),
        }
    }

    /// How many blocks a cache may keep: all but the late ones.
    fn kept(&self) -> usize {
        self.blocks.len().saturating_sub(self.late)
    }

    /// The bytes of all blocks.
    pub fn bytes(&self) -> u64 {
        self.blocks.iter().map(|block| u64::from(block.bytes)).sum()
    }

    /// The weight of all blocks, in bytes.
    fn weight(&self) -> u64 {
        self.blocks.iter().map(|block| u64::from(block.weight)).sum()
    }

    /// The tokens of all blocks that belong to `share`.
    pub fn tokens_of(&self, share: Share, scale: Scale) -> u64 {
        self.blocks.iter().filter(|block| block.share == share).map(|block| block.tokens(scale)).sum()
    }

    /// The key of the instructions before the messages. Equal keys mean equal instructions. `None` if there are none.
    pub fn instructions_key(&self, body: &[u8]) -> Option<u128> {
        let mut keys = self.instruction_blocks(body).map(|block| block.key).peekable();
        keys.peek()?;
        let mut hash = Xxh3::new();
        keys.for_each(|key| hash.update(&key.to_le_bytes()));
        Some(hash.digest128())
    }

    /// The text of these instructions, with one line for each text.
    pub fn instructions(&self, body: &[u8]) -> String {
        let mut texts = Vec::new();
        for block in self.instruction_blocks(body) {
            let raw = block.span.of(body);
            match scan::document(raw) {
                Ok(root) => texts_in(raw, root, &mut texts),
                Err(_) => texts.push(String::from_utf8_lossy(raw).into_owned()),
            }
        }
        texts.join("\n")
    }

    /// The blocks of the instructions before the messages.
    fn instruction_blocks<'p>(&'p self, body: &'p [u8]) -> impl Iterator<Item = &'p Block> {
        let head = self.blocks[..self.kept()]
            .iter()
            .take_while(|block| matches!(block.share, Share::Tools | Share::System));
        head.filter(move |block| block.share == Share::System && !is_billing_header(body, block))
    }

    /// Removes the reasoning in messages before number `before`.
    pub fn forget_reasoning(&mut self, before: usize) {
        let is_old = |block: &Block| block.part.is_some_and(|part| (part.message as usize) < before);
        self.blocks.retain(|block| block.share != Share::Reasoning || !is_old(block));
    }

    /// Whether there are reasoning blocks.
    pub fn has_thoughts(&self) -> bool {
        self.blocks.iter().any(|block| block.share == Share::Reasoning)
    }

    /// The reasoning blocks.
    pub fn thoughts(&self) -> Vec<Thought> {
        let (mut before, mut thoughts) = (Xxh3::new(), Vec::new());
        for block in &self.blocks {
            match block.share {
                Share::Reasoning => thoughts.push(Thought { key: block.key, before: before.digest() }),
                _ => before.update(&block.key.to_le_bytes()),
            }
        }
        thoughts
    }

    /// Keeps only the first `first` reasoning blocks.
    pub fn keep_thoughts(&mut self, first: usize) {
        let mut thoughts = 0;
        self.blocks.retain(|block| {
            thoughts += usize::from(block.share == Share::Reasoning);
            block.share != Share::Reasoning || thoughts <= first
        });
    }

    /// The number of the block before the messages of `whole` that is two blocks in this prompt. `None` if there is
    /// none, or if anything else before the messages differs.
    pub fn splits(&self, whole: &Self) -> Option<usize> {
        let keys = |prompt: &Self| -> Vec<u128> {
            prompt.blocks[..prompt.frame()].iter().map(|block| block.key).collect()
        };
        let (ours, whole) = (keys(self), keys(whole));
        let at = ours.iter().zip(&whole).take_while(|(ours, whole)| ours == whole).count();
        (at < whole.len() && ours.get(at + 2..)? == &whole[at + 1..]).then_some(at)
    }

    /// How many blocks that a cache may keep are before this message.
    pub fn kept_before(&self, message: u32) -> usize {
        let is_before = |block: &&Block| block.part.is_none_or(|part| part.message < message);
        self.blocks[..self.kept()].iter().take_while(is_before).count()
    }

    /// The number of messages, as far as they have blocks.
    pub fn messages(&self) -> u32 {
        let parts = self.blocks.iter().filter_map(|block| block.part);
        parts.map(|part| part.message + 1).max().unwrap_or(0)
    }

    /// The number of blocks before the messages.
    pub fn frame(&self) -> usize {
        self.blocks.iter().take_while(|block| block.part.is_none()).count()
    }
}

/// How long the cache model keeps what such a mark is on.
const fn ttl(hold: Hold) -> Ttl {
    match hold {
        Hold::Short => Ttl::FiveMinutes,
        Hold::Long => Ttl::OneHour,
    }
}

/// The beginning of a block in Claude Code's instructions that the provider removes before it reads the prompt.
static BILLING_HEADER: LazyLock<memmem::Finder<'static>> =
    LazyLock::new(|| memmem::Finder::new(b"x-anthropic-billing-header:"));
/// How many bytes at the beginning of a block are searched for it.
const BILLING_HEADER_WITHIN: usize = 100;

/// Collects the texts in a value: the value itself, or members called `text`, also those below `parts` or `content`. If
/// there are none, takes the value as it is written.
fn texts_in(raw: &[u8], value: Value, texts: &mut Vec<String>) {
    let known = texts.len();
    match value.kind {
        Kind::String => texts.extend(string::decode(value.span.of(raw)).map(Into::into)),
        Kind::Array => {
            for item in scan::items(raw, value.span).unwrap_or_default() {
                texts_in(raw, item, texts);
            }
        }
        Kind::Object => {
            let members = scan::members_unchecked(raw, value.span).unwrap_or_default();
            let inner = ["text", "parts", "content"].iter().find_map(|name| scan::get(raw, &members, name));
            if let Some(inner) = inner {
                texts_in(raw, inner, texts);
            }
        }
        _ => {}
    }
    if texts.len() == known {
        texts.push(String::from_utf8_lossy(value.span.of(raw)).into_owned());
    }
}

/// How a dialect's prompts are laid out, and what its marks are called.
#[derive(Debug)]
pub(super) struct Layout {
    /// Members that the provider puts before the messages, in this order, unless the model reads them after the
    /// messages.
    pub(super) before: &'static [&'static str],
    /// Members that cache entries depend on although they are not in the prompt.
    pub(super) binds: &'static [Bind],
    /// Members that name something which the provider holds and reads before everything in the body.
    pub(super) names: &'static [Bind],
    /// Whether these name caches, so that what is held under them is billed as read from a cache.
    pub(super) names_caches: bool,
    /// Members that mark a block or, in the outermost object, the end of the prompt.
    pub(super) marks: &'static [&'static str],
    /// Whether reasoning is encrypted.
    pub(super) sealed: bool,
    /// Whether the model may still read user messages before one of the provider's own summaries: they may have been
    /// kept on purpose.
    pub(super) keeps_users: bool,
}

/// The whole prompt of a request, of which the [`frame`] was read before.
pub(super) fn completed(mut prompt: Prompt, conversation: &Conversation, layout: &Layout) -> Prompt {
    let first = conversation.beginning();
    prompt.bound = prelude::bound(conversation, layout, first.message as usize);
    prompt.named = prelude::named(conversation, layout);
    prompt.named_is_cached = prompt.named.is_some() && layout.names_caches;
    for at in 0..conversation.messages.len() {
        let index = &conversation.messages[at].index;
        // Whether the model reads the message even before the beginning, where the provider's own summary is.
        let is_kept = layout.keeps_users && matches!(index.role, Role::User | Role::System);
        if at < first.message as usize && !is_kept {
            continue;
        }
        let keys = keys_of(conversation, at, layout);
        for ((id, part), key) in conversation.parts_of(at).zip(keys) {
            if is_kept || id >= first {
                prompt.blocks.push(part_block(conversation, id, index.role, part, key, layout));
            }
        }
    }
    let late = around_messages(conversation, layout, true);
    prompt.late = late.len();
    prompt.blocks.extend(late);
    prompt
}

/// The keys of the parts of a message.
pub(super) fn keys_of<'c>(conversation: &'c Conversation, at: usize, layout: &Layout) -> &'c [BlockKey] {
    let index = &conversation.messages[at].index;
    let key = |(id, part)| part_key(conversation, id, index.role, part, layout);
    index.blocks(|| {
        let mut keys: Vec<BlockKey> = conversation.parts_of(at).map(key).collect();
        // A mark on a message counts as one on its last part.
        if let Some(last) = keys.last_mut().filter(|last| index.is_marked && last.mark.is_none()) {
            last.mark = own_mark(conversation.messages[at].span.of(&conversation.body), layout.marks);
        }
        keys.into()
    })
}

/// The values before the messages of a prompt, in the provider's order.
pub(crate) fn before_messages(protocol: &dyn Protocol, conversation: &Conversation) -> Vec<Span> {
    let (body, members) = (&*conversation.body, &*conversation.members);
    let found = protocol.dialect().layout.before.iter().filter_map(|name| scan::get(body, members, name));
    found.map(|value| value.span).filter(|span| conversation.late != Some(*span)).collect()
}

/// Whether the provider removes a block before it reads the prompt.
pub(super) fn is_billing_header(body: &[u8], block: &Block) -> bool {
    let raw = block.span.of(body);
    BILLING_HEADER.find(&raw[..raw.len().min(BILLING_HEADER_WITHIN)]).is_some()
}

/// The prompt without its messages and without what follows them.
pub(super) fn frame(conversation: &Conversation, layout: &Layout) -> Prompt {
    let (body, members) = (&*conversation.body, &*conversation.members);
    let automatic = layout.marks.iter().find_map(|name| hold(body, scan::get(body, members, name)?));
    Prompt { blocks: around_messages(conversation, layout, false), automatic, ..Prompt::default() }
}

/// The blocks of the members before the messages or, if `late`, of those that are read after them.
fn around_messages(conversation: &Conversation, layout: &Layout, late: bool) -> Vec<Block> {
    let (body, members) = (&*conversation.body, &*conversation.members);
    let mut blocks = Vec::new();
    for name in layout.before {
        let Some(value) = scan::get(body, members, name) else { continue };
        let share = if *name == "tools" { Share::Tools } else { Share::System };
        match value.kind {
            _ if (conversation.late == Some(value.span)) != late => {}
            Kind::Null => {}
            Kind::Array => {
                let items = scan::items(body, value.span).unwrap_or_default();
                blocks.extend(items.into_iter().map(|item| frame_block(body, item, share, layout)));
            }
            _ => blocks.push(frame_block(body, value, share, layout)),
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use crate::conversation::{Carriers, NoMemo};
    use crate::protocol;

    #[test]
    fn billed_tokens_beyond_the_body_are_held_by_the_provider() {
        use super::Scale;
        let protocol = protocol::named("openai-responses").unwrap();
        let body = format!(r#"{{"model":"m","input":"{}"}}"#, "word ".repeat(800));
        let mut prompt = protocol.prompt(&protocol.index(&Bytes::from(body), &NoMemo).unwrap());
        let whole = prompt.tokens(Scale::Weights(4.0));
        for (counted, billed, hides, expected) in [
            (false, 2 * whole, false, 0),
            (false, 2 * whole, true, whole),
            (false, 3 * whole, false, 2 * whole),
            (false, whole / 2, true, 0),
            (true, 1600, false, 0),
            (true, 1600, true, 800),
            (true, 700, true, 0),
            (true, 0, true, 0),
        ] {
            prompt.blocks[0].counted = counted.then_some(800);
            let (scale, hidden) = prompt.held(billed, hides);
            assert_eq!(hidden, expected, "{counted} {billed} {hides}");
            assert!(billed == 0 || (prompt.tokens(scale) + hidden).abs_diff(billed) <= 1, "{billed}");
        }
    }

    /// Where messages can be marked as well, the mark of a message is a mark on its last part.
    #[test]
    fn a_mark_on_a_message_is_on_its_last_part() {
        use crate::conversation::Hold::{Long, Short};
        const SHORT: &str = r#""cache_control":{"type":"ephemeral"}"#;
        const LONG: &str = r#""cache_control":{"type":"ephemeral","ttl":"1h"}"#;
        let protocol = protocol::named("openai-chat").unwrap();
        let texts = |mark: &str| {
            format!(r#"[{{"type":"text","text":"a"{mark}}},{{"type":"text","text":"the cache_control"}}]"#)
        };
        for (message, expected) in [
            (r#"{"role":"user","content":"the cache_control"}"#.to_owned(), vec![None]),
            (format!(r#"{{"role":"user","content":"a",{SHORT}}}"#), vec![Some(Short)]),
            (format!(r#"{{{LONG},"role":"system","content":"a"}}"#), vec![Some(Long)]),
            (format!(r#"{{"role":"user",{SHORT},"content":{}}}"#, texts("")), vec![None, Some(Short)]),
            (
                format!(r#"{{"role":"user","content":{}}}"#, texts(&format!(",{LONG}"))),
                vec![Some(Long), None],
            ),
            (r#"{"role":"user","content":"a","cache_control":null}"#.to_owned(), vec![None]),
            (format!(r#"{{"role":"tool","tool_call_id":"c","content":"a",{SHORT}}}"#), vec![Some(Short)]),
            (
                format!(
                    r#"{{"role":"assistant",{SHORT},"content":"a","tool_calls":[{{"id":"c","type":"function","function":{{"name":"f","arguments":"{{}}"}}}}]}}"#
                ),
                vec![None, Some(Short)],
            ),
        ] {
            let body = Bytes::from(format!(r#"{{"model":"m","messages":[{message}]}}"#));
            let read = protocol.with_marks(protocol.index(&body, &NoMemo).unwrap(), Carriers::Texts);
            let found: Vec<_> = protocol.prompt(&read).blocks.iter().map(|block| block.mark).collect();
            assert_eq!(found, expected, "{message}");
            let marked = read.marks.unwrap().parts.into_iter().map(|(id, _)| id.part as usize);
            let expected = expected.iter().enumerate().filter_map(|(part, mark)| mark.map(|_| part));
            if !message.contains("null") {
                assert_eq!(marked.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{message}");
            }
        }
    }

    /// The key is the same whether instructions are a string or a list, marked or not; tools with the same text have
    /// another.
    #[test]
    fn instructions_have_one_key_as_a_text_or_a_block() {
        let protocol = protocol::named("anthropic").unwrap();
        let prompt = |frame: &str| {
            let body = format!(r#"{{"model":"m",{frame},"messages":[{{"role":"user","content":"hi"}}]}}"#);
            protocol.prompt(&protocol.index(&Bytes::from(body), &NoMemo).unwrap())
        };
        let alone = prompt(r#""system":"be \"brief\"""#);
        for (frame, expected) in [
            (r#""system":[{"type":"text","text":"be \"brief\""}]"#, true),
            (
                r#""system":[{"text":"be \"brief\"", "cache_control":{"type":"ephemeral"},"type":"text"}]"#,
                true,
            ),
            (r#""system":[{"type":"text","text":"be \"brief\"","citations":null}]"#, false),
            (r#""system":[{"type":"other","text":"be \"brief\""}]"#, false),
            (r#""system":[{"type":"text","text":["be \"brief\""]}]"#, false),
            (r#""tools":[{"type":"text","text":"be \"brief\""}]"#, false),
        ] {
            let (one, other) = (&alone.blocks[0], &prompt(frame).blocks[0]);
            assert_eq!((one.key, one.weight) == (other.key, other.weight), expected, "{frame}");
        }
    }

    /// Instructions that are marked where they stop being the same are sent in two.
    #[test]
    fn a_block_sent_in_two_parts_is_recognised() {
        let protocol = protocol::named("anthropic").unwrap();
        let prompt = |system: &[&str], said: &str| {
            let texts: Vec<_> =
                system.iter().map(|text| serde_json::json!({"type": "text", "text": text})).collect();
            let body = serde_json::json!({"model": "m", "system": texts, "tools": [{"name": "f"}],
                "messages": [{"role": "user", "content": said}, {"role": "user", "content": "on"}]});
            protocol.prompt(&protocol.index(&Bytes::from(body.to_string()), &NoMemo).unwrap())
        };
        for (sent, whole, said, expected) in [
            (&["ab", "cd"][..], &["abcd"][..], "hi", Some(1)),
            (&["x", "ab", "cd"], &["x", "abcd"], "ho", Some(2)),
            (&["ab", "cd", "x"], &["abcd", "x"], "hi", Some(1)),
            (&["abcd"], &["abcd"], "hi", None),
            (&["abcd"], &["ab"], "hi", None),
            (&["ab", "cd", "x"], &["abcd", "y"], "hi", None),
            (&["ab"], &["ab", "cd"], "hi", None),
        ] {
            assert_eq!(prompt(sent, said).splits(&prompt(whole, "hi")), expected, "{sent:?} {whole:?}");
        }
    }

    /// Newer models of one family read the instructions after the messages, and the provider keeps nothing of them.
    #[test]
    fn instructions_of_newer_models_are_late_blocks() {
        const INPUT: &str = r#"[{"role":"developer","content":"d"},{"role":"user","content":"hi"}]"#;
        let protocol = protocol::named("openai-responses").unwrap();
        for (model, instructions, order, late, named) in [
            ("gpt-6.1-sol", r#""be brief""#, "TSPP", 0, "\"be brief\"\nd"),
            ("gpt-6.2-sol", r#""be brief""#, "TPPS", 1, "d"),
            ("gpt-6.2-sol", r#"[{"role":"developer","content":"be brief"}]"#, "TPPS", 1, "d"),
            ("gpt-6.2-sol", "null", "TPP", 0, "d"),
        ] {
            let body = format!(
                r#"{{"model":"{model}","tools":[{{"type":"function","name":"f"}}],"instructions":{instructions},"input":{INPUT}}}"#
            );
            let body = Bytes::from(body);
            let read = protocol.index(&body, &NoMemo).unwrap();
            let prompt = protocol.prompt(&read);
            let letter = |block: &super::Block| match (block.part, block.share) {
                (Some(_), _) => 'P',
                (None, super::Share::Tools) => 'T',
                (None, _) => 'S',
            };
            let found: String = prompt.blocks.iter().map(letter).collect();
            assert_eq!((&*found, prompt.late), (order, late), "{body:?}");
            let (scale, shape) = (super::Scale::Bytes(1.0), prompt.shape(super::Scale::Bytes(1.0)));
            let all: u64 = shape.blocks.iter().chain(&shape.late).map(|block| block.tokens).sum();
            assert_eq!((shape.blocks.len() + late, shape.late.len()), (order.len(), late));
            assert_eq!(all, prompt.tokens(scale));
            assert_eq!(read.late_bytes(), if late > 0 { instructions.len() } else { 0 });
            let before = protocol::before_messages(protocol, &read).len();
            assert_eq!(before, 2 - late, "{body:?}");
            assert_eq!(prompt.instructions(&body), named.replace('"', ""), "{body:?}");
        }
    }

    /// What precedes a summary of the provider's own is no longer part of the prompt; tools and instructions are.
    #[test]
    fn a_prompt_begins_with_the_providers_own_summary() {
        let user = |text: &str| format!(r#"{{"role":"user","content":"{text}"}}"#);
        let summary = r#"{"role":"assistant","content":[{"type":"text","text":"so"},{"type":"compaction","content":"sum"},{"type":"text","text":"on"}]}"#;
        let unknown = r#"{"role":"assistant","content":[{"type":"new","content":"compaction"}]}"#;
        for (messages, expected) in [
            (vec![user("a"), unknown.into(), user("b")], vec![(0, 0), (1, 0), (2, 0)]),
            (vec![user("a"), summary.into(), user("b")], vec![(1, 1), (1, 2), (2, 0)]),
            (vec![user("a"), summary.into(), user("b"), summary.into()], vec![(3, 1), (3, 2)]),
        ] {
            let body = format!(r#"{{"model":"m","system":"be brief","messages":[{}]}}"#, messages.join(","));
            let protocol = protocol::named("anthropic").unwrap();
            let prompt = protocol.prompt(&protocol.index(&Bytes::from(body), &NoMemo).unwrap());
            let parts = prompt.blocks.iter().filter_map(|block| block.part);
            let parts: Vec<(u32, u32)> = parts.map(|id| (id.message, id.part)).collect();
            assert_eq!((prompt.frame(), parts), (1, expected));
        }
    }

    /// What users said before it may be there because the client kept it when it asked for the summary.
    #[test]
    fn user_messages_before_a_summary_stay_in_the_prompt() {
        const RESULT: &str = r#"{"type":"function_call_output","call_id":"c","output":"x"}"#;
        const CALL: &str = r#"{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}"#;
        const USER: &str = r#"{"role":"user","content":"a"}"#;
        const SUMMARY: &str = r#"{"type":"compaction","encrypted_content":"x"}"#;
        for (items, expected) in [
            (&[USER, CALL, RESULT][..], &[0, 1, 2][..]),
            (&[USER, CALL, RESULT, SUMMARY, USER, CALL, RESULT], &[0, 3, 4, 5, 6]),
            (&[USER, SUMMARY, CALL, RESULT, SUMMARY], &[0, 4]),
            (&[USER, CALL, RESULT, r#"{"type":"compaction_trigger"}"#], &[0, 1, 2, 3]),
        ] {
            let body = Bytes::from(format!(r#"{{"model":"m","input":[{}]}}"#, items.join(",")));
            let protocol = protocol::named("openai-responses").unwrap();
            let prompt = protocol.prompt(&protocol.index(&body, &NoMemo).unwrap());
            let found: Vec<u32> =
                prompt.blocks.iter().filter_map(|block| Some(block.part?.message)).collect();
            assert_eq!(found, expected, "{body:?}");
        }
    }
}
