//! Named prefixes: what providers hold under a name and read before everything in the body, such as a cached prefix or
//! a stored prompt.
//!
//! The tokens of a named prefix are billed with the prompt, but no block in the body represents them. Without a block
//! of its own they would be spread over the body's blocks, and each block that is cut would seem to take a share of
//! them with it.

use std::ops::RangeInclusive;

use xxhash_rust::xxh3::Xxh3;

use crate::ledger::Record;
use crate::protocol::Prompt;
use crate::store::Recent;
use crate::usage::cache_model::Block;

/// How many named prefixes are remembered: the most recently used.
const MAX_PREFIXES: u64 = 1024;
/// How many pairs of a thread and a name are remembered: the most recently used.
const MAX_THREADS: u64 = 4096;
/// How many tokens shorter than another body one must be to show the size of the prefix better, or the density of the
/// text between the two.
const MIN_TOKENS_LESS: u64 = 1024;
/// The most that it may have of the other body's tokens, as a share.
const MAX_SHARE: f64 = 0.75;
/// The plausible densities of a text: the provider's tokens for each estimated token.
const PLAUSIBLE_DENSITY: RangeInclusive<f64> = 0.7..=2.0;

/// The sizes of named prefixes.
pub(super) struct Named {
    /// By the hash of its name and of whose it is.
    prefixes: Recent<u64, Prefix>,
    /// The longest body that a thread has sent with a name, by both.
    longest: Recent<u64, Body>,
}

/// The size of a named prefix.
#[derive(Clone, Copy)]
struct Prefix {
    tokens: u64,
    source: Source,
}

/// Where the size of a named prefix comes from.
#[derive(Clone, Copy)]
enum Source {
    /// The provider has stated it: it billed this much as read from a cache, or for an empty body.
    Stated,
    /// It is what was billed beyond a body of `tokens` estimated tokens, at that density.
    BeyondBody { tokens: u64, density: f64 },
}

/// The estimated tokens of a body, and the tokens that were billed for it and for the named prefix.
#[derive(Clone, Copy)]
struct Body {
    tokens: u64,
    billed: u64,
}

/// What a provider has billed for a prompt; 0: unknown.
#[derive(Clone, Copy)]
pub(super) struct Figure {
    /// All its tokens.
    pub(super) billed: u64,
    /// Those of them that were read from a cache, if names denote caches: at least all tokens of the named prefix.
    pub(super) read: u64,
}

impl Default for Named {
    fn default() -> Self {
        Self { prefixes: Recent::of_entries(MAX_PREFIXES), longest: Recent::of_entries(MAX_THREADS) }
    }
}

impl Named {
    /// The named prefix of the prompt that was `sent` and billed with this figure, as a block; `None` if the prompt
    /// names nothing. As long as no figure has shown its size it has no tokens, but the block is there, since entries
    /// of the cache begin with it. The size that the first figure shows is kept until another figure contradicts it,
    /// the provider states it, or a much shorter body shows it better. `hides`: the provider holds a part of the
    /// history as well, so that the figure does not show how large either is.
    pub(super) fn of(
        &self,
        record: &Record,
        scope: u64,
        sent: &Prompt,
        figure: Figure,
        hides: bool,
    ) -> Option<Block> {
        let name = key(record, scope, sent.named?);
        let is_told = figure.billed > 0 && !hides;
        let fits = |prefix: &Prefix| {
            let rest = figure.billed.saturating_sub(prefix.tokens);
            !is_told || (rest > 0 && sent.held(rest, false).1 == 0)
        };
        let known = self.prefixes.get(&name).filter(fits);
        let shown = if is_told { self.shown(record, name, sent, figure, known) } else { None };
        if let Some(prefix) = shown {
            self.prefixes.insert(name, prefix);
        }
        let tokens = shown.or(known).map_or(0, |prefix| prefix.tokens);
        Some(Block { key: name.into(), tokens, mark: None, bound: 0 })
    }

    /// The size that a figure shows, if it shows it better than what is `known`: what the provider states, else what
    /// was billed beyond the body. The body is taken to be as dense as the text by which a longer one of its thread is
    /// longer.
    fn shown(
        &self,
        record: &Record,
        name: u64,
        sent: &Prompt,
        figure: Figure,
        known: Option<Prefix>,
    ) -> Option<Prefix> {
        let body = Body { tokens: sent.tokens(sent.scale(0)), billed: figure.billed };
        if let Some(stated) = stated(figure, body, known) {
            return Some(stated);
        }
        let longest = self.longer_body(record, name, body);
        let usual = match known.map(|known| known.source) {
            None => 1.0,
            Some(Source::BeyondBody { tokens, density }) if body.is_much_shorter_than(tokens) => density,
            Some(_) => return None,
        };
        let density = longest.and_then(|longest| longest.density_beyond(body)).unwrap_or(usual);
        let rest = body.billed.saturating_sub((body.tokens as f64 * density).round() as u64);
        let source = match body.tokens {
            0 => Source::Stated,
            tokens => Source::BeyondBody { tokens, density },
        };
        (rest > 0).then_some(Prefix { tokens: rest, source })
    }

    /// The longest body that the thread has sent with a name so far, if it is longer than this one. Otherwise this one
    /// is remembered as the longest.
    fn longer_body(&self, record: &Record, name: u64, body: Body) -> Option<Body> {
        let mut hash = Xxh3::new();
        hash.update(&name.to_le_bytes());
        hash.update(record.thread.as_deref().unwrap_or_default().as_bytes());
        let thread = hash.digest();
        let longest = self.longest.get(&thread).filter(|longest| longest.tokens > body.tokens);
        if longest.is_none() {
            self.longest.insert(thread, body);
        }
        longest
    }
}

/// All that was read from a cache, as the size of the prefix. `None` if nothing was read, if a size was stated before
/// that is no larger, or if this one does not leave a plausible figure for the body.
fn stated(figure: Figure, body: Body, known: Option<Prefix>) -> Option<Prefix> {
    let is_better = match known {
        Some(Prefix { tokens, source: Source::Stated }) => figure.read < tokens,
        _ => true,
    };
    let density_of_body = density(figure.billed.saturating_sub(figure.read), body.tokens);
    let is_stated = figure.read > 0 && is_better && PLAUSIBLE_DENSITY.contains(&density_of_body);
    is_stated.then_some(Prefix { tokens: figure.read, source: Source::Stated })
}

impl Body {
    fn is_much_shorter_than(&self, tokens: u64) -> bool {
        self.tokens.saturating_add(MIN_TOKENS_LESS) < tokens
            && (self.tokens as f64) < tokens as f64 * MAX_SHARE
    }

    /// The density of the text that this body has beyond a shorter one of its thread; `None` if there is too little of
    /// it, or if the two cannot be of one text.
    fn density_beyond(&self, shorter: Self) -> Option<f64> {
        let tokens = self.tokens - shorter.tokens;
        let density = density(self.billed.saturating_sub(shorter.billed), tokens);
        (tokens >= MIN_TOKENS_LESS && PLAUSIBLE_DENSITY.contains(&density)).then_some(density)
    }
}

/// The provider's tokens for each estimated token.
fn density(billed: u64, estimated: u64) -> f64 {
    billed as f64 / estimated.max(1) as f64
}

/// The key of a named prefix. Names belong to an account, and models count tokens differently.
fn key(record: &Record, scope: u64, named: u64) -> u64 {
    let mut hash = Xxh3::new();
    for text in [&record.upstream, record.model.as_deref().unwrap_or_default()] {
        hash.update(text.as_bytes());
        hash.update(&[0]);
    }
    hash.update(&scope.to_le_bytes());
    hash.update(&named.to_le_bytes());
    hash.digest()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::conversation::NoMemo;
    use crate::protocol;

    /// A prompt that is estimated at this many tokens.
    fn prompt(named: Option<u64>, tokens: u32) -> Prompt {
        let protocol = protocol::named("gemini").unwrap();
        let body = Bytes::from(r#"{"contents":[{"parts":[{"text":"a"}]}]}"#);
        let mut prompt = protocol.prompt(&protocol.index(&body, &NoMemo).unwrap());
        assert_eq!(prompt.blocks.len(), 1);
        prompt.blocks[0].counted = Some(tokens);
        Prompt { named, ..prompt }
    }

    #[test]
    fn named_content_keeps_its_size_until_figures_contradict_it() {
        let (known, record) = (Named::default(), Record::default());
        for (what, named, tokens, billed, hides, expected) in [
            ("nothing is named", None, 1000, 20_000, false, None),
            ("no figure", Some(1), 1000, 0, false, Some(0)),
            ("a figure that shows nothing", Some(1), 1000, 900, false, Some(0)),
            ("a history is held as well", Some(1), 1000, 20_000, true, Some(0)),
            ("the first figure that shows it", Some(1), 1000, 20_000, false, Some(19_000)),
            ("the body has grown, in denser text", Some(1), 5000, 26_000, false, Some(19_000)),
            ("the body was cut", Some(1), 500, 20_000, false, Some(19_000)),
            ("no figure, but a known name", Some(1), 500, 0, false, Some(19_000)),
            ("a history is held as well, by a known name", Some(1), 500, 50_000, true, Some(19_000)),
            ("another name", Some(2), 1000, 5000, false, Some(4000)),
            ("less than it is known to have", Some(1), 1000, 10_000, false, Some(9000)),
            ("more than it and the body can have", Some(1), 1000, 60_000, false, Some(59_000)),
            ("that from then on", Some(1), 2000, 61_000, false, Some(59_000)),
        ] {
            let figure = Figure { billed, read: 0 };
            let found = known.of(&record, 0, &prompt(named, tokens), figure, hides);
            assert_eq!(found.map(|block| block.tokens), expected, "{what}");
        }
        let sizes = |record: &Record, scope| {
            known.of(record, scope, &prompt(Some(2), 1000), Figure { billed: 0, read: 0 }, false)
        };
        let other = Record { model: Some("m".to_owned()), ..Record::default() };
        let all = [sizes(&record, 0), sizes(&record, 1), sizes(&other, 0)];
        assert_eq!(all.map(|block| block.map(|block| block.tokens)), [Some(4000), Some(0), Some(0)]);
    }

    #[test]
    fn shorter_bodies_refine_the_estimated_size_of_named_content() {
        let known = Named::default();
        let thread = |id: &str| Record { thread: Some(id.to_owned()), ..Record::default() };
        for (what, thread, tokens, billed, expected) in [
            ("first, in dense text", thread("a"), 40_000, 100_000, 60_000),
            ("grown", thread("a"), 42_000, 102_600, 60_000),
            ("not much shorter", thread("a"), 35_000, 93_500, 60_000),
            ("cut", thread("a"), 20_000, 74_000, 48_000),
            ("cut again, not much", thread("a"), 18_000, 71_000, 48_000),
            ("another thread begins", thread("b"), 5000, 54_600, 48_100),
            ("two bodies that cannot be of one text", thread("c"), 10_000, 68_000, 48_100),
            ("the shorter one", thread("c"), 2000, 50_800, 48_200),
        ] {
            let figure = Figure { billed, read: 0 };
            let found = known.of(&thread, 0, &prompt(Some(1), tokens), figure, false);
            assert_eq!(found.map(|block| block.tokens), Some(expected), "{what}");
        }
    }

    #[test]
    fn cache_reads_limit_the_estimated_size_of_named_content() {
        let (known, record) = (Named::default(), Record::default());
        for (what, name, tokens, (billed, read), expected) in [
            ("all that was cached", 1, 40_000, (100_000, 48_000), 48_000),
            ("the history too", 1, 42_000, (102_600, 98_000), 48_000),
            ("a much shorter body", 1, 10_000, (62_000, 48_000), 48_000),
            ("less", 1, 42_000, (102_600, 47_500), 47_500),
            ("nothing", 1, 42_000, (102_600, 0), 47_500),
            ("most of the body at once", 2, 40_000, (100_000, 80_000), 60_000),
            ("then only what is held", 2, 43_000, (103_900, 48_000), 48_000),
        ] {
            let figure = Figure { billed, read };
            let found = known.of(&record, 0, &prompt(Some(name), tokens), figure, false);
            assert_eq!(found.map(|block| block.tokens), Some(expected), "{what}");
        }
    }
}
