//! What providers hold under a name and read before everything in the body: a cached prefix, a stored prompt.
//!
//! Its tokens are billed with the prompt, but no block stands for them. Without a block of their own they would count
//! as the blocks', and less of them with each block that is cut.

use xxhash_rust::xxh3::Xxh3;

use crate::ledger::Record;
use crate::protocol::Prompt;
use crate::store::Recent;
use crate::usage::cache_model::Block;

/// How many names are remembered: the most recently used.
const NAMES: u64 = 1024;

/// The tokens of what providers hold, by the hash of its name and of whose it is.
pub(super) struct Named(Recent<u64, u64>);

impl Default for Named {
    fn default() -> Self {
        Self(Recent::of_entries(NAMES))
    }
}

impl Named {
    /// What the provider reads before a prompt that was billed for `billed` tokens (0: unknown), as a block; `None` if the
    /// prompt names nothing, or if no figure has shown its size. The first figure that does sizes it, and it keeps that
    /// size until a figure contradicts it. `hides`: the provider holds a part of the history as well, so that the figure
    /// says nothing about either.
    pub(super) fn of(
        &self,
        record: &Record,
        scope: u64,
        sent: &Prompt,
        billed: u64,
        hides: bool,
    ) -> Option<Block> {
        let name = key(record, scope, sent.named?);
        let is_told = billed > 0 && !hides;
        let fits = |held: &u64| !is_told || (*held < billed && sent.held(billed - held, false).1 == 0);
        let known = self.0.get(&name).filter(fits).or_else(|| {
            let (_, held) = sent.held(billed, true);
            let shown = (is_told && held > 0).then_some(held)?;
            self.0.insert(name, shown);
            Some(shown)
        });
        Some(Block { key: name.into(), tokens: known?, mark: None, bound: 0 })
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
            ("no figure", Some(1), 1000, 0, false, None),
            ("a figure that shows nothing", Some(1), 1000, 900, false, None),
            ("a history is held as well", Some(1), 1000, 20_000, true, None),
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
            let found = known.of(&record, 0, &prompt(named, tokens), billed, hides);
            assert_eq!(found.map(|block| block.tokens), expected, "{what}");
        }
        let sizes = |record: &Record, scope| known.of(record, scope, &prompt(Some(2), 1000), 0, false);
        let other = Record { model: Some("m".to_owned()), ..Record::default() };
        assert!(sizes(&record, 0).is_some() && sizes(&record, 1).is_none() && sizes(&other, 0).is_none());
    }
}
