//! What providers hold under a name and read before everything in the body: a cached prefix, a stored prompt.
//!
//! Its tokens are billed with the prompt, but no block stands for them. Without a block of their own they would count
//! as the blocks', and less of them with each block that is cut.

use std::ops::RangeInclusive;

use xxhash_rust::xxh3::Xxh3;

use crate::ledger::Record;
use crate::protocol::Prompt;
use crate::store::Recent;
use crate::usage::cache_model::Block;

/// How many names are remembered, and how many threads that have them: the most recently used.
const NAMES: u64 = 1024;
const THREADS: u64 = 4096;
/// A body that is so much shorter than another, in tokens and in proportion, shows better what is not in it.
const LESS: u64 = 1024;
const SHORTER: f64 = 0.75;
/// Plausible tokens of the provider's for one that is estimated.
const PLAUSIBLE: RangeInclusive<f64> = 0.7..=2.0;

/// The tokens of what providers hold, by the hash of its name and of whose it is.
pub(super) struct Named {
    held: Recent<u64, Held>,
    /// The longest body that a thread has sent with a name.
    longest: Recent<u64, Body>,
}

/// The size of what is held under a name.
#[derive(Clone, Copy)]
struct Held {
    tokens: u64,
    /// The estimated tokens of the body that shows it; 0: the provider has stated it.
    body: u64,
    /// The provider's tokens for an estimated one of that body.
    density: f64,
}

/// The estimated tokens of a body, and those billed for it and for what is held.
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
    /// Those of them that were read from a cache, if that is what names stand for: at least all that is held.
    pub(super) read: u64,
}

impl Default for Named {
    fn default() -> Self {
        Self { held: Recent::of_entries(NAMES), longest: Recent::of_entries(THREADS) }
    }
}

impl Named {
    /// What the provider reads before a prompt with this figure, as a block; `None` if the prompt names nothing. As long as
    /// no figure has shown its size it has no tokens, but it is there: entries of the cache begin with it. It keeps the
    /// size that the first figure shows until one contradicts it, the provider states it, or a much shorter body shows it
    /// better. `hides`: the provider holds a part of the history as well, so that the figure says nothing about either.
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
        let fits = |held: &Held| {
            let rest = figure.billed.saturating_sub(held.tokens);
            !is_told || (rest > 0 && sent.held(rest, false).1 == 0)
        };
        let known = self.held.get(&name).filter(fits);
        let shown = if is_told { self.shown(record, name, sent, figure, known) } else { None };
        if let Some(held) = shown {
            self.held.insert(name, held);
        }
        let tokens = shown.or(known).map_or(0, |held| held.tokens);
        Some(Block { key: name.into(), tokens, mark: None, bound: 0 })
    }

    /// What a figure shows that is not known, or not as well.
    fn shown(
        &self,
        record: &Record,
        name: u64,
        sent: &Prompt,
        Figure { billed, read }: Figure,
        known: Option<Held>,
    ) -> Option<Held> {
        let tokens = sent.tokens(sent.scale(0));
        let density = |more: u64, tokens: u64| more as f64 / tokens.max(1) as f64;
        let stated = density(billed.saturating_sub(read), tokens);
        let is_less = known.is_none_or(|known| known.body > 0 || read < known.tokens);
        if read > 0 && is_less && PLAUSIBLE.contains(&stated) {
            return Some(Held { tokens: read, body: 0, density: stated });
        }
        let mut hash = Xxh3::new();
        hash.update(&name.to_le_bytes());
        hash.update(record.thread.as_deref().unwrap_or_default().as_bytes());
        let thread = hash.digest();
        let longest = self.longest.get(&thread).filter(|longest| longest.tokens > tokens);
        if longest.is_none() {
            self.longest.insert(thread, Body { tokens, billed });
        }
        let is_better = |known: Held| {
            tokens.saturating_add(LESS) < known.body && (tokens as f64) < known.body as f64 * SHORTER
        };
        if !known.is_none_or(is_better) {
            return None;
        }
        // Two bodies of a thread tell how dense its text is.
        let more = longest.filter(|longest| longest.tokens - tokens >= LESS);
        let told =
            more.map(|longest| density(longest.billed.saturating_sub(billed), longest.tokens - tokens));
        let usual = known.map_or(1.0, |known| known.density);
        let density = told.filter(|told| PLAUSIBLE.contains(told)).unwrap_or(usual);
        let rest = billed.saturating_sub((tokens as f64 * density).round() as u64);
        (rest > 0).then_some(Held { tokens: rest, body: tokens, density })
    }
}

/// Names are the account's, and models count their tokens differently.
fn key(record: &Record, scope: u64, named: u64) -> u64 {
    let mut hash = Xxh3::new();
    for said in [&record.upstream, record.model.as_deref().unwrap_or_default()] {
        hash.update(said.as_bytes());
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
    fn what_a_name_stands_for_keeps_its_size() {
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
    fn what_a_name_stands_for_is_what_shorter_bodies_leave() {
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
    fn what_was_read_from_caches_is_at_least_what_a_name_stands_for() {
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
