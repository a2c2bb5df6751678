//! Counts tokens with a public tokenizer. Its proportions are right for every model, its absolute figures only for
//! few: the scale is set by the provider's own figures.
//!
//! Counting is slow compared with everything else that is done with a request, so it happens on the thread that keeps
//! the books and every text is counted once. The tokenizer is loaded when it is first needed and dropped when nothing
//! has come for a while. It never sees more than a few kilobytes at a time: tokenizers crawl, and some panic, on
//! endless runs.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::panic::{AssertUnwindSafe, catch_unwind};

use flate2::read::DeflateDecoder;
use tiktoken_rs::{CoreBPE, O200K_BASE_PAT_STR};

use crate::conversation::boundary;
use crate::json::string;
use crate::protocol::Prompt;
use crate::usage::BYTES_PER_TOKEN;

/// The longest piece that is tokenized at once, in bytes.
const MAX_PIECE: usize = 4096;
/// How many bytes shorter a piece may be to end at white space.
const MAX_BACKTRACK: usize = 256;
/// The longest text that is counted whole, in bytes. Of longer ones, every [`SAMPLING_STEP`]th piece is counted.
const MAX_WHOLE: usize = 256 << 10;
const SAMPLING_STEP: usize = 8;
/// How many counts each of the two generations remembers.
const MAX_COUNTS: usize = 1 << 16;

/// The vocabulary, packed by `build.rs`.
static TOKENS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tokens.deflate"));

/// Counts tokens, and remembers the counts by the keys of the texts.
///
/// If the young generation is full, it replaces the old one. A count that is asked for in the old one moves to the
/// young one.
#[derive(Default)]
pub(super) struct Counter {
    tokenizer: Option<CoreBPE>,
    young: HashMap<u128, u32>,
    old: HashMap<u128, u32>,
}

impl Counter {
    /// Sets the `counted` tokens of all blocks of a prompt, which was read from `body`.
    pub(super) fn count(&mut self, prompt: &mut Prompt, body: &[u8]) {
        for block in &mut prompt.blocks {
            block.counted = Some(match block.text(body) {
                Some(text) => self.count_text(block.key, text),
                None => assumed(block.bytes),
            });
        }
    }

    /// Drops the tokenizer; it is loaded again when it is next needed.
    pub(super) fn drop_tokenizer(&mut self) {
        self.tokenizer = None;
    }

    fn count_text(&mut self, key: u128, text: &str) -> u32 {
        if let Some(known) = self.young.get(&key) {
            return *known;
        }
        let tokens = self.old.get(&key).copied().unwrap_or_else(|| self.tokenize(text));
        if self.young.len() >= MAX_COUNTS {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, tokens);
        tokens
    }

    fn tokenize(&mut self, text: &str) -> u32 {
        if self.tokenizer.is_none() {
            self.tokenizer = load_tokenizer();
        }
        let text = unescaped(text);
        let counted = self.tokenizer.as_ref().and_then(|tokenizer| count(tokenizer, &text));
        counted.unwrap_or_else(|| assumed(u32::try_from(text.len()).unwrap_or(u32::MAX))).max(1)
    }
}

/// The tokens assumed for this many bytes that are not counted, at least one.
fn assumed(bytes: u32) -> u32 {
    (bytes / BYTES_PER_TOKEN as u32).max(1)
}

/// Loads `tiktoken_rs::o200k_base`, without special tokens. The packed vocabulary is a list of the tokens' lengths,
/// which a zero ends, then the tokens, in the order of their ranks.
fn load_tokenizer() -> Option<CoreBPE> {
    let mut tokens = BufReader::new(DeflateDecoder::new(TOKENS));
    let mut lengths = Vec::new();
    tokens.read_until(0, &mut lengths).ok()?;
    lengths.pop();
    let mut ranks = HashMap::default();
    ranks.reserve(lengths.len());
    for (rank, length) in (0..).zip(lengths) {
        let mut token = vec![0; length.into()];
        tokens.read_exact(&mut token).ok()?;
        ranks.insert(token, rank);
    }
    CoreBPE::new(ranks, HashMap::default(), O200K_BASE_PAT_STR).ok()
}

/// The tokens of a text, extrapolated from a sample if it is long; `None` if the tokenizer failed.
fn count(tokenizer: &CoreBPE, text: &str) -> Option<u32> {
    let step = if text.len() > MAX_WHOLE { SAMPLING_STEP } else { 1 };
    let (mut tokens, mut counted_bytes) = (0, 0);
    for piece in pieces(text).step_by(step) {
        tokens += catch_unwind(AssertUnwindSafe(|| tokenizer.count_ordinary(piece))).ok()?;
        counted_bytes += piece.len();
    }
    let all = tokens as f64 / counted_bytes.max(1) as f64 * text.len() as f64;
    Some(all.round() as u32)
}

/// Splits a text into pieces of at most [`MAX_PIECE`] bytes, before white space if there is some near the end.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (piece, more) = rest.split_at(end_of_piece(rest));
        rest = more;
        (!piece.is_empty()).then_some(piece)
    })
}

/// Where the first piece of a text ends.
fn end_of_piece(text: &str) -> usize {
    if text.len() <= MAX_PIECE {
        return text.len();
    }
    let bytes = text.as_bytes();
    let is_end = |at: &usize| bytes[*at].is_ascii_whitespace() && !bytes[at - 1].is_ascii_whitespace();
    let space = (MAX_PIECE - MAX_BACKTRACK..MAX_PIECE).rev().find(is_end);
    space.unwrap_or_else(|| boundary::floor(text, MAX_PIECE))
}

/// The text of JSON as a model reads it: with all escapes undone, in strings or not.
fn unescaped(json: &str) -> Cow<'_, str> {
    let Some(first) = memchr::memchr(b'\\', json.as_bytes()) else { return Cow::Borrowed(json) };
    let mut text = String::with_capacity(json.len());
    let mut rest = &json[first..];
    text.push_str(&json[..first]);
    while let Some(escape) = rest.strip_prefix('\\') {
        let tail = string::escape(escape, &mut text).unwrap_or_else(|| {
            text.push('\\');
            escape
        });
        let next = memchr::memchr(b'\\', tail.as_bytes()).unwrap_or(tail.len());
        text.push_str(&tail[..next]);
        rest = &tail[next..];
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::conversation::NoMemo;
    use crate::protocol::{self, Scale};

    #[test]
    fn token_counts_are_close_to_known_ones() {
        let mut counter = Counter::default();
        for (at, (text, tokens)) in [
            ("hello world", 2),
            (r"hello\nworld", 3),
            ("你好世界", 2),
            (r"\u4f60\u597d\u4e16\u754c", 2),
            (r"\ud83d\ude00", 1),
            (r"C:\users", 4),
            ("", 1),
            // Endless runs, which tokenizers cannot take whole.
            (&" ".repeat(1 << 20), 9_000),
            (&"a".repeat(100_000), 13_000),
        ]
        .into_iter()
        .enumerate()
        {
            let found = counter.count_text(at as u128, text);
            let near = found.abs_diff(tokens) <= tokens / 3;
            assert!(near, "{}: {found} is not {tokens}", &text[..text.len().min(20)]);
            assert_eq!(counter.count_text(at as u128, "something else"), found, "counted once");
        }
        counter.drop_tokenizer();
        assert_eq!(counter.count_text(99, "hello world"), 2);
    }

    #[test]
    fn the_embedded_vocabulary_equals_o200k_base() {
        let (ours, theirs) = (load_tokenizer().unwrap(), tiktoken_rs::o200k_base().unwrap());
        let tokens =
            |of: &CoreBPE| (0..199_999).map(|rank| of.decode_bytes(&[rank]).ok()).collect::<Vec<_>>();
        assert!(tokens(&ours) == tokens(&theirs));
        let text = include_str!("count.rs");
        assert_eq!(ours.encode_ordinary(text), theirs.encode_ordinary(text));
    }

    #[test]
    fn token_counts_not_used_lately_are_evicted() {
        let mut counter = Counter::default();
        let last = MAX_COUNTS as u128 * 3;
        for key in 0..=last {
            counter.count_text(key, "");
        }
        assert!(counter.young.len() + counter.old.len() <= 2 * MAX_COUNTS);
        let knows = |key| counter.young.contains_key(&key) || counter.old.contains_key(&key);
        assert_eq!([0, last - MAX_COUNTS as u128, last].map(knows), [false, true, true]);
    }

    /// The prompt of a request with some ordinary text and a result.
    fn prompt(result: &str) -> (Prompt, bytes::Bytes) {
        let source = include_str!("untouched.rs");
        let body = serde_json::json!({"model": "m", "max_tokens": 9, "messages": [
            {"role": "user", "content": source},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "Read", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": result}]}]});
        let (body, protocol) = (bytes::Bytes::from(body.to_string()), protocol::named("anthropic").unwrap());
        let read = protocol.index(&body, &NoMemo).unwrap();
        (protocol.prompt(&read), body)
    }

    /// A document as tools print it.
    fn document(depth: usize) -> serde_json::Value {
        let record = |at: usize| {
            serde_json::json!({"name": format!("item_{at}"), "path": format!("/usr/lib/module_{at}.py"),
                "enabled": at > 7, "size": at * 977, "note": "the first of them that was found"})
        };
        let records = serde_json::Value::from((0..40).map(record).collect::<Vec<_>>());
        (0..depth).fold(records, |inner, at| serde_json::json!({format!("level_{at}"): inner}))
    }

    /// Where nothing is counted, removed text must not seem larger than it was.
    #[test]
    fn estimates_of_removed_text_are_close_to_counted_tokens() {
        let indented = |width: usize, depth| {
            let mut text = Vec::new();
            let indent = " ".repeat(width);
            let pretty = serde_json::ser::PrettyFormatter::with_indent(indent.as_bytes());
            let mut writer = serde_json::Serializer::with_formatter(&mut text, pretty);
            serde::Serialize::serialize(&document(depth), &mut writer).unwrap();
            (String::from_utf8(text).unwrap(), document(depth).to_string())
        };
        let mut counter = Counter::default();
        let ruler = format!("{}\n", "-".repeat(80));
        for (what, (before, after), expected) in [
            ("JSON indented by two", indented(2, 0), 0.5..=1.05),
            ("by four", indented(4, 1), 0.6..=1.05),
            ("by four, deeper", indented(4, 4), 0.6..=1.05),
            ("by eight", indented(8, 2), 0.6..=1.05),
            ("repeated rulers", (ruler.repeat(300), ruler.clone()), 0.5..=2.0),
            (
                "repeated lines",
                ("warning: unused variable in other_name\n".repeat(300), String::from("x")),
                0.7..=1.3,
            ),
            (
                "a progress bar",
                (
                    (0..=100)
                        .map(|at| format!("[{:40}] {at}%\r", "=".repeat(at * 2 / 5)))
                        .collect::<Vec<_>>()
                        .concat(),
                    String::from("100%"),
                ),
                0.5..=1.1,
            ),
        ] {
            let mut tokens = |(mut prompt, body): (Prompt, bytes::Bytes)| {
                let bare = prompt.clone();
                counter.count(&mut prompt, &body);
                (prompt.tokens(Scale::Counts(1.0)), bare)
            };
            let ((whole, original), (billed, sent)) = (tokens(prompt(&before)), tokens(prompt(&after)));
            let scale = sent.scale(billed);
            assert!(sent.tokens(scale).abs_diff(billed) <= 2, "{what}");
            let (real, estimate) = (whole - billed, original.tokens(scale) - sent.tokens(scale));
            let share = estimate as f64 / real as f64;
            assert!(expected.contains(&share), "{what}: {estimate} is not {real}");
        }
    }

    proptest! {
        #[test]
        fn pieces_are_bounded_and_concatenate_to_the_text(text in "([a-z ]{0,20}|é{0,3000}|\\s{0,5000}|x{0,5000}){0,4}") {
            let all: Vec<&str> = pieces(&text).collect();
            prop_assert_eq!(all.concat(), text.as_str());
            prop_assert!(all.iter().all(|piece| !piece.is_empty() && piece.len() <= MAX_PIECE));
        }

        #[test]
        fn json_escapes_are_decoded(text in "[a-z\\n\\t\"\\\\/é]{0,64}") {
            let literal = crate::json::string::encode(&text);
            prop_assert_eq!(unescaped(&literal[1..literal.len() - 1]), text);
        }
    }
}
