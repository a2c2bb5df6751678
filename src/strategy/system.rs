//! Where the instructions of a client stop being the same from conversation to conversation.
//!
//! Learned by comparing them line by line as they come. Nothing of their text is kept: only where lines end, and
//! hashes of what stands before. Bounded, and lost with the process: a few conversations teach it again.

use hashlink::LruCache;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::conversation::Digest;

/// Senders that are remembered, the newest.
const SENDERS: usize = 256;
/// Kinds of instructions that are remembered of one: agents, sub-agents, writers of titles.
const KINDS: usize = 8;
/// Ends of lines that are remembered of one kind.
const LINES: usize = 4096;
/// An entry this much younger than the provider's time is taken to be there still, in milliseconds.
const MARGIN_MS: u64 = 20_000;

/// Where instructions can be divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stable {
    /// Bytes of the text that are always the same.
    pub bytes: u32,
    /// They were sent a moment ago, so that they are likely to be sent again soon.
    pub warm: bool,
}

/// The instructions of all senders.
#[derive(Debug)]
pub struct Systems(LruCache<Digest, Vec<Kind>>);

impl Default for Systems {
    fn default() -> Self {
        Self(LruCache::new(SENDERS))
    }
}

/// Instructions that begin alike.
#[derive(Debug)]
struct Kind {
    /// A hash of the newest, as it was written.
    raw: u64,
    /// Ends of lines up to which all of them are the same, each with a hash of what stands before.
    ends: Vec<(u32, u64)>,
    /// There were different ones.
    varies: bool,
    seen_ms: u64,
}

impl Kind {
    fn stable(&self, now_ms: u64, ttl_ms: u64) -> Option<Stable> {
        let warm = now_ms.saturating_sub(self.seen_ms) + MARGIN_MS < ttl_ms;
        let (bytes, _) = self.ends.last().filter(|_| self.varies)?;
        Some(Stable { bytes: *bytes, warm })
    }
}

impl Systems {
    /// Learns from the instructions of a request, as they are written and as a text, and tells where they can be
    /// divided: behind at least `least` bytes. `ttl_ms` is how long the provider keeps what is not used.
    pub fn see(
        &mut self,
        sender: Digest,
        (literal, text): (&[u8], &dyn Fn() -> Option<String>),
        least: usize,
        (now_ms, ttl_ms): (u64, u64),
    ) -> Option<Stable> {
        if literal.len() < least {
            return None;
        }
        let raw = xxh3_64(literal);
        let kinds = self.0.entry(sender).or_insert_with(Vec::new);
        let at = match kinds.iter().position(|kind| kind.raw == raw) {
            Some(at) => at,
            None => place(kinds, raw, &ends(&text()?, least), now_ms),
        };
        let kind = &mut kinds[at];
        let stable = kind.stable(now_ms, ttl_ms);
        kind.seen_ms = now_ms;
        stable
    }
}

/// Where instructions belong that were not seen before: to those that share most of their beginning with them, if
/// that is at least half of what these have in common.
fn place(kinds: &mut Vec<Kind>, raw: u64, ends: &[(u32, u64)], now_ms: u64) -> usize {
    let common = |kind: &Kind| kind.ends.iter().zip(ends).take_while(|(a, b)| a == b).count();
    let bytes = |count: usize| count.checked_sub(1).map_or(0, |last| ends[last].0);
    let best = (0..kinds.len()).max_by_key(|at| common(&kinds[*at]));
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
    kinds.push(Kind { raw, ends: ends.to_vec(), varies: false, seen_ms: now_ms });
    kinds.len() - 1
}

/// The ends of a text's lines behind its first `least` bytes, the end of the text aside.
fn ends(text: &str, least: usize) -> Vec<(u32, u64)> {
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

    fn see(systems: &mut Systems, sender: &[u8], text: &str, now_ms: u64) -> Option<Stable> {
        let decoded = || Some(text.to_owned());
        systems.see(Digest::of(&[sender]), (text.as_bytes(), &decoded), 400, (now_ms, 300_000))
    }

    /// The instructions that come one after another, and what is known with the last of them.
    #[test]
    fn boundaries_are_learned() {
        let rules = "one rule\n".repeat(100);
        let text = |tail: &str| format!("{rules}{tail}");
        for (seen, expected) in [
            (vec![text("date: 1")], None),
            (vec![text("date: 1"), text("date: 1")], None),
            (vec![text("date: 1"), text("date: 2")], Some(900)),
            (vec![text("date: 1\nx"), text("date: 1\ny")], Some(908)),
            (vec![text("date: 1\nx"), text("date: 1\ny"), text("date: 2\ny")], Some(900)),
            (vec![text("date: 1\nx"), text("date: 2\ny"), text("date: 2\nz")], Some(900)),
            // Others' instructions change nothing.
            (vec![text("date: 1"), format!("title\n{rules}"), text("date: 2")], Some(900)),
            (vec![text("date: 1"), format!("title\n{rules}")], None),
            (vec!["short\n1".to_owned(), "short\n2".to_owned()], None),
            (vec!["x".repeat(2000), "x".repeat(2001)], None),
            // Nothing stands behind.
            (vec![text(""), text(" ")], Some(891)),
        ] {
            let mut systems = Systems::default();
            let found = seen.iter().map(|text| see(&mut systems, b"a", text, 0)).last().flatten();
            assert_eq!(found.map(|stable| stable.bytes), expected, "{seen:?}");
            assert_eq!(see(&mut systems, b"b", &seen[0], 0), None);
        }
    }

    #[test]
    fn what_was_sent_long_ago_is_cold() {
        let mut systems = Systems::default();
        let text = |tail: u32| format!("{}{tail}", "a rule\n".repeat(100));
        let mut see = |tail, now_ms| see(&mut systems, b"a", &text(tail), now_ms);
        assert_eq!(see(1, 0), None);
        for (now_ms, warm) in [(1_000, true), (290_000, false), (300_000, true), (900_000, false)] {
            assert_eq!(see(now_ms as u32, now_ms), Some(Stable { bytes: 700, warm }), "{now_ms}");
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut systems = Systems::default();
        for at in 0..1000_u32 {
            let text = format!("{at}\n{}", "a rule\n".repeat(100));
            see(&mut systems, &(at % 300).to_le_bytes(), &text, 0);
        }
        // The newest may be one more.
        assert!(systems.0.len() <= SENDERS + 1 && systems.0.iter().all(|(_, kinds)| kinds.len() <= KINDS));
    }
}
