//! Learns up to where the part of a prompt before the messages (tools and instructions) is the same in every
//! conversation, and decides whether a cache mark there is worth it.
//!
//! It compares instructions line by line as they come. None of their text is kept, only the places of line ends and
//! hashes of what precedes them. The state is bounded and lost with the process; a few conversations teach it again.
//!
//! Writing to the provider's cache costs extra, and an entry can only be read once the answer to the request that
//! writes it has begun. So of requests that come at the same time only one writes, which must claim the write first
//! ([`Systems::claim_write`]). If entries are seldom read, no request may claim one.

use hashlink::LruCache;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::marks::CacheClock;
use crate::conversation::Digest;

/// How many senders are remembered.
const SENDERS: usize = 256;
/// How many kinds of instructions are remembered per sender: those of agents, of sub-agents, of title writers.
const KINDS: usize = 8;
/// How many line ends are remembered per kind.
const LINES: usize = 4096;
/// How many entries of the provider's cache are remembered.
const ENTRIES: usize = 4096;
/// How long a claim to write an entry lasts if its request is not answered, in milliseconds.
const CLAIM_MS: u64 = 60_000;
/// Milliseconds after which an answer has most likely begun.
const SOON_MS: u64 = 5_000;
/// The most writes that may be lost at a time, per kind of sender: written, neither read since nor made up for.
const MOST_LOST: u32 = 4;
/// Once this many entries in a row were missing that should have been there, entries are no longer assumed to be
/// there, nor unwritten ones to have been worth writing.
const MOST_MISSING: u32 = 2;
/// How many lost writes an entry makes up for that is read, or would have been read: reading saves nine tenths of the
/// price, and writing costs a quarter more.
const WORTH: u32 = 3;
/// Milliseconds after the last loss until one more is allowed: even a reliable provider drops an entry now and then.
const FORGIVEN_MS: u64 = 24 * 60 * 60 * 1_000;

/// Where instructions can be divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stable {
    /// The length in bytes of the part that is always the same, if what follows it is not; `None`: everything before
    /// the messages is the same.
    pub bytes: Option<u32>,
    /// What a mark after that part would do with the provider's entry. `None`: the entry would be written, but another
    /// request is writing it, or it is not likely to be read.
    pub mark: Option<Access>,
}

/// What a request does with the entry that ends at its mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The provider has the entry: it is read.
    Read,
    /// The entry is written, once the request has claimed that ([`Systems::claim_write`]).
    Write,
}

/// What the usage figures of an answer say about the provider's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheUse {
    /// Something was read from it.
    pub has_read: bool,
    /// Something was written to it.
    pub has_written: bool,
}

/// The part of a request before the messages.
#[derive(Clone, Copy)]
pub struct Frame<'a> {
    /// Everything but instructions that may be divided, in the order in which the model reads it, as raw bytes.
    pub rest: &'a [&'a [u8]],
    /// The instructions as raw bytes, if they may be divided; otherwise empty.
    pub instructions: &'a [u8],
    /// The decoded text of the instructions.
    pub text: &'a dyn Fn() -> Option<String>,
}

impl Frame<'_> {
    /// Its length.
    pub fn bytes(&self) -> usize {
        self.rest_bytes() + self.instructions.len()
    }

    fn rest_bytes(&self) -> usize {
        self.rest.iter().map(|bytes| bytes.len()).sum()
    }
}

/// Who sends a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Source {
    /// The kind of sender: the same for all with the same client, model and upstream, whatever their API keys.
    pub kind: Digest,
    /// The API key: nobody can read another account's cache.
    pub key: Digest,
}

/// An entry of the provider's cache: what precedes a mark, and whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EntryKey {
    source: Source,
    hash: u64,
}

/// What is known of all senders' instructions, and of the cache entries that end with them.
#[derive(Debug)]
pub struct Systems {
    /// The kinds of instructions of each sender.
    senders: LruCache<Source, Vec<Kind>>,
    entries: LruCache<EntryKey, Entry>,
    /// The results of writing entries, by kind of sender.
    outcomes: LruCache<Digest, Outcome>,
}

/// The results of writing entries.
#[derive(Debug, Clone, Copy, Default)]
struct Outcome {
    /// How many entries were written and neither read nor made up for by others; at most [`MOST_LOST`].
    lost: u32,
    /// How many times in a row an entry was missing that should have been there.
    missing: u32,
    /// When an entry was last written or missing, in milliseconds.
    lost_ms: u64,
}

impl Default for Systems {
    fn default() -> Self {
        Self {
            senders: LruCache::new(SENDERS),
            entries: LruCache::new(ENTRIES),
            outcomes: LruCache::new(SENDERS),
        }
    }
}

/// Instructions with the same beginning and the same rest before the messages.
#[derive(Debug)]
struct Kind {
    /// A hash of everything else before the messages ([`Frame::rest`]).
    rest: u64,
    /// A hash of the raw bytes of the newest instructions.
    raw: u64,
    /// The line ends up to which all of them are the same: offsets in bytes, each with a hash of what precedes it.
    ends: Vec<(u32, u64)>,
    /// Whether two of them differed.
    varies: bool,
    /// When any of them was last sent, in milliseconds; `None`: never before.
    seen_ms: Option<u64>,
}

/// What is known of an entry; times are in milliseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    /// When it was last written or read; `None`: it is not there, as far as is known.
    kept_at: Option<u64>,
    /// When its write was claimed by a request that has not been answered yet.
    claimed_at: Option<u64>,
    /// When it was first left unwritten because entries are seldom read.
    withheld_since: Option<u64>,
}

impl Entry {
    /// Whether a request that may still be answered is writing it.
    fn is_claimed(&self, now_ms: u64) -> bool {
        self.claimed_at.is_some_and(|at| now_ms < at + CLAIM_MS)
    }
}

impl Kind {
    /// The length in bytes of the part that is always the same, as in [`Stable::bytes`], and its hash; `None` if there
    /// is no such part.
    fn end(&self) -> Option<(Option<u32>, u64)> {
        if !self.varies {
            return Some((None, self.raw));
        }
        self.ends.last().map(|(bytes, hash)| (Some(*bytes), *hash))
    }
}

impl Systems {
    /// Learns from the part of a request before the messages. Returns where the unchanging part ends, and the key of
    /// its entry; `None` if there is no such part or if the whole has fewer than `least` bytes.
    pub fn learn(
        &mut self,
        source: Source,
        frame: Frame<'_>,
        least: usize,
        clock: CacheClock,
    ) -> Option<(Stable, EntryKey)> {
        let now_ms = clock.now_ms;
        if frame.bytes() < least {
            return None;
        }
        let mut rest = Xxh3::new();
        frame.rest.iter().for_each(|bytes| rest.update(bytes));
        let rest = rest.digest();
        let raw = xxh3_64(frame.instructions);
        let kinds = self.senders.entry(source).or_insert_with(Vec::new);
        let known = kinds.iter().position(|kind| (kind.rest, kind.raw) == (rest, raw));
        let at = known.unwrap_or_else(|| {
            let least = least.saturating_sub(frame.rest_bytes());
            let ends = (frame.text)().map(|text| line_ends(&text, least)).unwrap_or_default();
            kind_for(kinds, rest, raw, &ends)
        });
        let kind = &mut kinds[at];
        let is_fresh = |at: u64| clock.is_there(at);
        let is_warm = kind.seen_ms.is_some_and(is_fresh);
        kind.seen_ms = Some(now_ms);
        let (bytes, hash) = kind.end()?;
        let key = EntryKey { source, hash: hash ^ rest.rotate_left(1) };
        let mut entry = self.entries.get(&key).copied().unwrap_or_default();
        let withheld = entry.withheld_since;
        // If the entry had been written then, this request would now read it. What this request writes itself may never
        // be read by another one.
        let is_missed = withheld.is_some_and(|at| is_fresh(at) && at + SOON_MS <= now_ms);
        entry.withheld_since = withheld.filter(|at| is_fresh(*at) && !is_missed);
        if entry.withheld_since != withheld {
            self.entries.insert(key, entry);
        }
        let is_reliable = self.outcome(key, now_ms).missing < MOST_MISSING;
        if is_missed && is_reliable {
            self.make_up(key, WORTH, now_ms);
        }
        // Requests in the middle of conversations mark the entry too, and do not reveal whether it was there.
        let mark = if is_reliable && entry.kept_at.is_some_and(is_fresh) {
            Some(Access::Read)
        } else {
            (is_warm && !entry.is_claimed(now_ms) && !is_missed).then_some(Access::Write)
        };
        Some((Stable { bytes, mark }, key))
    }

    /// Lets a request write an entry, unless another one is writing it or too many writes were wasted. Returns whether
    /// it may. The write counts as lost until the entry is read; if it may not, the request is remembered as one that
    /// could have written.
    pub fn claim_write(&mut self, key: EntryKey, now_ms: u64) -> bool {
        let mut entry = self.entries.get(&key).copied().unwrap_or_default();
        if entry.is_claimed(now_ms) {
            return false;
        }
        let outcome = self.outcome(key, now_ms);
        let may = outcome.lost < MOST_LOST;
        if may {
            (outcome.lost, outcome.lost_ms) = (outcome.lost + 1, now_ms);
            (entry.claimed_at, entry.withheld_since) = (Some(now_ms), None);
        } else {
            entry.withheld_since.get_or_insert(now_ms);
        }
        self.entries.insert(key, entry);
        may
    }

    /// Records that a request with a mark after this entry has ended: the provider answered it and so keeps the entry
    /// (`is_kept`), or it failed. This ends a claim.
    pub fn record_answer(&mut self, key: EntryKey, access: Access, is_kept: bool, now_ms: u64) {
        let mut entry = self.entries.get(&key).copied().unwrap_or_default();
        if is_kept {
            entry.kept_at = Some(now_ms);
        }
        if access == Access::Write {
            entry.claimed_at = None;
        }
        self.entries.insert(key, entry);
        if access == Access::Write && !is_kept {
            self.make_up(key, 1, now_ms);
        }
    }

    /// Records the usage of the first request of a conversation with a mark after this entry.
    pub fn record_usage(&mut self, key: EntryKey, access: Access, usage: CacheUse, now_ms: u64) {
        if usage.has_read {
            self.outcome(key, now_ms).missing = 0;
            return self.make_up(key, WORTH, now_ms);
        }
        match (access, usage.has_written) {
            // It is there now.
            (Access::Write, true) => return,
            // It is too short to be cached, so that the claimed write has cost nothing.
            (Access::Write, false) => self.make_up(key, 1, now_ms),
            // It was not there, and has been written again.
            (Access::Read, true) => {
                let outcome = self.outcome(key, now_ms);
                outcome.lost_ms = now_ms;
                outcome.lost = (outcome.lost + 1).min(MOST_LOST);
                outcome.missing = outcome.missing.saturating_add(1);
            }
            (Access::Read, false) => {}
        }
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.kept_at = None;
        }
    }

    /// Takes this many lost writes off the sum.
    fn make_up(&mut self, key: EntryKey, for_lost: u32, now_ms: u64) {
        let outcome = self.outcome(key, now_ms);
        outcome.lost = outcome.lost.saturating_sub(for_lost);
    }

    /// The results of the entry's kind of sender; after [`FORGIVEN_MS`] without a loss, one more loss is allowed.
    fn outcome(&mut self, key: EntryKey, now_ms: u64) -> &mut Outcome {
        let outcome = self.outcomes.entry(key.source.kind).or_insert_with(Outcome::default);
        if outcome.lost_ms + FORGIVEN_MS <= now_ms {
            outcome.lost = outcome.lost.min(MOST_LOST - 1);
            outcome.missing = outcome.missing.min(MOST_MISSING - 1);
        }
        outcome
    }
}

/// Adds new instructions to the kind with the longest beginning in common with them, if that is at least half of what
/// the kind itself has in common; otherwise they begin a new kind, in place of the oldest one if there are too many.
/// Returns the kind's index.
fn kind_for(kinds: &mut Vec<Kind>, rest: u64, raw: u64, ends: &[(u32, u64)]) -> usize {
    let common = |kind: &Kind| kind.ends.iter().zip(ends).take_while(|(a, b)| a == b).count();
    let bytes = |count: usize| count.checked_sub(1).map_or(0, |last| ends[last].0);
    let same = (0..kinds.len()).filter(|at| kinds[*at].rest == rest);
    let best = same.max_by_key(|at| common(&kinds[*at]));
    let alike = best.filter(|at| {
        let shared = bytes(common(&kinds[*at]));
        shared > 0 && kinds[*at].ends.last().is_some_and(|(all, _)| shared >= all / 2)
    });
    if let Some(at) = alike {
        let shared = common(&kinds[at]);
        let kind = &mut kinds[at];
        kind.ends.truncate(shared);
        (kind.raw, kind.varies) = (raw, true);
        return at;
    }
    if kinds.len() >= KINDS
        && let Some(oldest) = (0..kinds.len()).min_by_key(|at| kinds[*at].seen_ms)
    {
        kinds.swap_remove(oldest);
    }
    kinds.push(Kind { rest, raw, ends: ends.to_vec(), varies: false, seen_ms: None });
    kinds.len() - 1
}

/// The line ends of a text after its first `least` bytes, except the end of the text: offsets in bytes, each with a
/// hash of what precedes it. At most [`LINES`].
fn line_ends(text: &str, least: usize) -> Vec<(u32, u64)> {
    let (mut hash, mut from, mut ends) = (Xxh3::new(), 0, Vec::new());
    for end in memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| at + 1) {
        if end < least {
            continue;
        }
        if ends.len() >= LINES || text[end..].trim().is_empty() {
            break;
        }
        hash.update(&text.as_bytes()[from..end]);
        from = end;
        ends.extend(u32::try_from(end).ok().map(|end| (end, hash.digest())));
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL_MS: u64 = 300_000;
    const READS: Option<Access> = Some(Access::Read);
    const WRITES: Option<Access> = Some(Access::Write);

    fn see(systems: &mut Systems, sender: &[u8], text: &str, now_ms: u64) -> Option<(Stable, EntryKey)> {
        let decoded = || Some(text.to_owned());
        let frame = Frame { rest: &[], instructions: text.as_bytes(), text: &decoded };
        systems.learn(source(sender), frame, 400, CacheClock { now_ms, ttl_ms: TTL_MS })
    }

    fn source(sender: &[u8]) -> Source {
        Source { kind: Digest::of(&[b"client"]), key: Digest::of(&[sender]) }
    }

    /// Sees instructions one after another, and returns what is known with the last of them.
    #[test]
    fn the_stable_part_of_instructions_is_learned() {
        let rules = "one rule\n".repeat(100);
        let text = |tail: &str| format!("{rules}{tail}");
        let whole = Some(None);
        for (name, seen, expected) in [
            ("the first", vec![text("date: 1")], whole),
            ("the same again", vec![text("date: 1"), text("date: 1")], whole),
            ("another last line", vec![text("date: 1"), text("date: 2")], Some(Some(900))),
            ("the last line of two", vec![text("date: 1\nx"), text("date: 1\ny")], Some(Some(908))),
            (
                "then both lines",
                vec![text("date: 1\nx"), text("date: 1\ny"), text("date: 2\ny")],
                Some(Some(900)),
            ),
            (
                "both lines, then the last",
                vec![text("date: 1\nx"), text("date: 2\ny"), text("date: 2\nz")],
                Some(Some(900)),
            ),
            (
                "another kind of instructions in between",
                vec![text("date: 1"), format!("title\n{rules}"), text("date: 2")],
                Some(Some(900)),
            ),
            ("only another kind", vec![text("date: 1"), format!("title\n{rules}")], whole),
            ("too short", vec!["short\n1".to_owned(), "short\n2".to_owned()], None),
            ("a single line", vec!["x".repeat(2000), "x".repeat(2001)], whole),
            ("nothing follows", vec![text(""), text(" ")], Some(Some(891))),
        ] {
            let mut systems = Systems::default();
            let found = seen.iter().map(|text| see(&mut systems, b"a", text, 0)).last().flatten();
            assert_eq!(found.map(|(stable, _)| stable.bytes), expected, "{name}");
            let others = see(&mut systems, b"b", &seen[0], 0).map(|(stable, _)| stable);
            assert!(
                others.is_none_or(|stable| (stable.bytes, stable.mark) == (None, None)),
                "{name}: another sender"
            );
        }
    }

    /// What precedes the instructions is part of what the provider caches.
    #[test]
    fn instructions_after_other_tools_are_another_cache_entry() {
        let mut systems = Systems::default();
        let text = "a rule\n".repeat(100);
        let mut see = |rest: &[&[u8]], text: &str, now_ms| {
            let decoded = || (!text.is_empty()).then(|| text.to_owned());
            let frame = Frame { rest, instructions: text.as_bytes(), text: &decoded };
            systems.learn(source(b"a"), frame, 400, CacheClock { now_ms, ttl_ms: TTL_MS })
        };
        let (tools, long) = (&b"[1]"[..], &[b'x'; 400][..]);
        let key = |found: Option<(Stable, EntryKey)>| found.map(|(_, key)| key);
        let first = key(see(&[tools], &text, 0));
        assert!(first.is_some() && first == key(see(&[tools], &text, 1)));
        assert_ne!(first, key(see(&[b"[2]"], &text, 2)));
        // Tools alone are enough, and so is a list of blocks.
        let (stable, alone) = see(&[long], "", 3).unwrap();
        assert_eq!((stable.bytes, stable.mark), (None, None));
        let again = see(&[long], "", 4).unwrap();
        assert_eq!((again.0.mark, again.1), (WRITES, alone));
        assert_eq!(see(&[tools], "", 5), None);
    }

    /// What happens to one text; in [`Steps`], at a time in seconds.
    #[derive(Debug, Clone, Copy)]
    enum Step {
        /// A request has it, and this is expected; `Taken` if it may be written and is.
        Sees(Option<Access>),
        Taken,
        Refused,
        /// A request in the middle of a conversation, which is marked anyway, was answered.
        Beside,
        /// The marked request was answered, or has failed.
        Kept,
        Failed,
        /// The answer to the first request of a conversation shows that it was read, or was written.
        Read,
        Written,
        /// The request that was allowed to write was answered, and nothing was cached: it is too short.
        Short,
    }

    type Steps = Vec<(u64, Step)>;

    /// The first request with a text, and a second one that is allowed to write.
    fn written(at: u64) -> Steps {
        [&[(at, Step::Sees(None))], &writes(at + 1)[..]].concat()
    }

    /// A request that would write, and may.
    fn writes(at: u64) -> [(u64, Step); 2] {
        [(at, Step::Sees(WRITES)), (at, Step::Taken)]
    }

    /// A request that would write, but may not.
    fn refused(at: u64) -> [(u64, Step); 2] {
        [(at, Step::Sees(WRITES)), (at, Step::Refused)]
    }

    /// The same, preceded by a request with the same text.
    fn refused_second(at: u64) -> Steps {
        [&[(at, Step::Sees(None))], &refused(at + 1)[..]].concat()
    }

    /// This many entries are written and never read.
    fn lost(times: u64) -> Steps {
        (0..times).flat_map(|at| [written(at * 1_000), vec![(at * 1_000 + 2, Step::Kept)]].concat()).collect()
    }

    fn later(steps: Steps, seconds: u64) -> Steps {
        steps.into_iter().map(|(at, step)| (at + seconds, step)).collect()
    }

    fn check(name: &str, steps: Steps) {
        let mut systems = Systems::default();
        let text = "a rule\n".repeat(100);
        let mut key = see(&mut systems, b"b", &text, 0).unwrap().1;
        for (at, step) in steps {
            let now_ms = at * 1_000;
            match &step {
                Step::Sees(expected) => {
                    let (stable, found) = see(&mut systems, b"a", &text, now_ms).unwrap();
                    assert_eq!((stable.mark, stable.bytes), (*expected, None), "{name}: {at} s");
                    key = found;
                }
                Step::Taken | Step::Refused => {
                    let may = systems.claim_write(key, now_ms);
                    assert_eq!(may, matches!(step, Step::Taken), "{name}: {at} s");
                }
                Step::Kept | Step::Failed => {
                    systems.record_answer(key, Access::Write, matches!(step, Step::Kept), now_ms);
                }
                Step::Read | Step::Written => {
                    let has_read = matches!(step, Step::Read);
                    let usage = CacheUse { has_read, has_written: !has_read };
                    systems.record_usage(key, Access::Read, usage, now_ms);
                }
                Step::Beside => systems.record_answer(key, Access::Read, true, now_ms),
                Step::Short => {
                    systems.record_answer(key, Access::Write, true, now_ms);
                    let nothing = CacheUse { has_read: false, has_written: false };
                    systems.record_usage(key, Access::Write, nothing, now_ms);
                }
            }
        }
    }

    #[test]
    fn one_request_writes_instructions_and_later_ones_read() {
        use Step::{Failed, Kept, Refused, Sees, Taken};
        let after_write = |steps: &[(u64, Step)]| [&written(0), steps].concat();
        for (name, steps) in [
            (
                "the second request writes, the third one reads",
                after_write(&[(2, Kept), (3, Sees(READS)), (270, Sees(READS)), (283, Sees(WRITES))]),
            ),
            (
                "of many requests at once, one writes",
                vec![
                    (0, Sees(None)),
                    (0, Sees(WRITES)),
                    (0, Sees(WRITES)),
                    (0, Taken),
                    (0, Refused),
                    (0, Sees(None)),
                    (9, Kept),
                    (9, Sees(READS)),
                ],
            ),
            (
                "after a failed write, the next request writes",
                [after_write(&[(2, Failed)]), writes(2).to_vec()].concat(),
            ),
            (
                "a missing answer is awaited for a minute",
                [after_write(&[(60, Sees(None))]), writes(61).to_vec()].concat(),
            ),
            (
                "a text that comes seldom is not written",
                vec![(0, Sees(None)), (280, Sees(None)), (600, Sees(None))],
            ),
        ] {
            check(name, steps);
        }
    }

    /// A sender whose writes are wasted writes no more entries until one would have been read.
    #[test]
    fn a_sender_whose_writes_are_not_read_stops_writing() {
        use Step::{Failed, Kept, Read, Sees, Short};
        let held = || [lost(4), refused_second(4_000)].concat();
        let costs_nothing = |at: u64| {
            let end = if at.is_multiple_of(2) { Failed } else { Short };
            [written(at * 1_000), vec![(at * 1_000 + 2, end)]].concat()
        };
        for (name, steps) in [
            (
                "after four lost writes, the request after one that would have read writes again",
                [held(), written(4_007), vec![(4_009, Kept), (4_010, Sees(READS))]].concat(),
            ),
            (
                "the same if requests come shortly after each other",
                [
                    held(),
                    refused(4_003).to_vec(),
                    refused(4_005).to_vec(),
                    vec![(4_006, Sees(None))],
                    writes(4_007).to_vec(),
                ]
                .concat(),
            ),
            ("but not if they come much later", [held(), refused_second(4_900)].concat()),
            (
                "a read makes up for lost writes",
                [lost(3), written(3_000), vec![(3_002, Kept), (3_003, Read)], later(lost(3), 10_000)]
                    .concat(),
            ),
            ("failed writes and short texts are not lost", (0..9).flat_map(costs_nothing).collect()),
        ] {
            check(name, steps);
        }
    }

    /// A provider that caches nothing is found out, and tried again a day later.
    #[test]
    fn a_provider_that_keeps_nothing_is_tried_again_a_day_later() {
        use Step::{Beside, Kept, Read, Sees, Written};
        for (name, steps) in [
            (
                "a provider that keeps nothing gets no more marks until a day later",
                [
                    written(0),
                    vec![(2, Kept), (3, Sees(READS)), (3, Kept), (4, Written)],
                    writes(5).to_vec(),
                    vec![(6, Kept), (7, Sees(READS)), (7, Written)],
                    refused(8).to_vec(),
                    refused_second(20),
                    refused_second(86_000),
                    written(86_500),
                    vec![(86_502, Kept), (86_503, Sees(READS)), (86_504, Written)],
                    refused(86_505).to_vec(),
                ]
                .concat(),
            ),
            (
                "if the provider keeps entries again, they are written as before",
                [lost(4), written(90_000), vec![(90_002, Kept), (90_003, Read)], later(lost(3), 100_000)]
                    .concat(),
            ),
            (
                "continuing conversations do not hide that",
                [
                    written(0),
                    vec![(2, Kept), (3, Sees(READS)), (3, Written), (4, Beside)],
                    vec![(5, Sees(READS)), (5, Written), (6, Beside)],
                    writes(7).to_vec(),
                    vec![(8, Kept), (9, Beside)],
                    refused(10).to_vec(),
                ]
                .concat(),
            ),
        ] {
            check(name, steps);
        }
    }

    #[test]
    fn remembered_senders_and_entries_are_bounded() {
        let mut systems = Systems::default();
        for at in 0..6000_u32 {
            let text = format!("{at}\n{}", "a rule\n".repeat(100));
            let (_, key) = see(&mut systems, &(at % 300).to_le_bytes(), &text, 0).unwrap();
            systems.record_answer(key, Access::Write, true, 0);
        }
        // The newest may exceed that by one.
        assert!(systems.senders.len() <= SENDERS + 1 && systems.entries.len() <= ENTRIES);
        assert!(systems.senders.iter().all(|(_, kinds)| kinds.len() <= KINDS));
    }
}
