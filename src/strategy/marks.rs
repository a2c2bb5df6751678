//! Where the gateway marks a prompt for the provider's cache.
//!
//! A provider with marks reads from the cache only up to a mark, or to an entry a few blocks before one. A client
//! marks the end of the prompt; a cut further up would then fall back to the instructions. An anchor, a mark where
//! the next event would cut, keeps an entry alive there, and costs nothing: what it marks is read anyway.

use crate::conversation::{Conversation, PartId, PartKind};

use super::gate::Rates;

/// What the gateway may do about marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Mark the history for clients that do not.
    pub marks: bool,
    /// Use free marks as anchors.
    pub anchors: bool,
    /// Give requests a key of their conversation's own, where their upstream wants one.
    pub keys: bool,
    /// Send instructions as two texts where they stop being the same from conversation to conversation.
    pub split: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { marks: true, anchors: true, keys: true, split: true }
    }
}

/// Entries that are remembered of a thread.
const MOST: usize = 64;
/// An entry this much younger than the provider's time is taken to be there still, in milliseconds.
const MARGIN_MS: u64 = 20_000;

/// Entries of the provider's cache that a thread has written, as far as is known: the last part of each, and
/// when it was marked last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entries(Vec<(PartId, u64)>);

impl Entries {
    /// The longest entry before a part that is still there.
    pub fn before(&self, part: PartId, now_ms: u64, ttl_ms: u64) -> Option<PartId> {
        let fresh = |at: u64| now_ms.saturating_sub(at) + MARGIN_MS < ttl_ms;
        let found = self.0.iter().filter(|(entry, at)| *entry < part && fresh(*at));
        found.map(|(entry, _)| *entry).max()
    }

    /// A request with these marks was sent.
    pub fn sent(&mut self, marks: impl Iterator<Item = PartId>, now_ms: u64) {
        for part in marks {
            self.0.retain(|(entry, _)| *entry != part);
            self.0.push((part, now_ms));
        }
        if let Some(excess) = self.0.len().checked_sub(MOST) {
            self.0.drain(..excess);
        }
    }

    /// What stands at a part and behind it has changed.
    pub fn cut(&mut self, part: PartId) {
        self.0.retain(|(entry, _)| *entry < part);
    }
}

/// How much dearer, at most, a thread may be than without the gateway, whichever request is its last: a share. Enough for
/// the second and third request of an agent to be written to the cache as a whole; without it, it would be up to a quarter.
const LOSS: f64 = 0.15;

/// What has become of a thread's first stake, which is lost where it is not gone on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wager {
    /// It is made.
    Placed,
    /// What was written is read, or would be.
    Won,
}

/// What marking a history has cost a thread whose client does not, in bytes of plain input. What is written to the
/// cache costs more than what is not, and nobody knows whether there will be a next request that reads it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stake {
    /// What its requests would have cost so far as they came, at least, with nothing cached that the client does not mark.
    pub plain: f64,
    /// What marks have cost beyond that; what they have saved is taken off.
    pub spent: f64,
    /// When nothing was written because threads seldom go on, in milliseconds since 1970.
    pub held_ms: Option<u64>,
}

impl Stake {
    /// How many bytes may be written to the cache with this request, which reads so many, should it be the last one.
    pub fn allows(&self, read: f64, rates: Rates) -> f64 {
        let premium = (rates.write - 1.0).max(0.0);
        let most = (LOSS * self.plain - self.spent + (1.0 - rates.read) * read).max(0.0);
        if premium > 0.0 { most / premium } else { f64::INFINITY }
    }

    /// The same for requests of which no more is known than that they were sent, and cost so much at most.
    #[must_use]
    pub fn at_most(self, plain: f64) -> Self {
        Self { plain: self.plain.min(plain), spent: self.spent.max(0.0), ..self }
    }

    /// Whether the thread has neither written nor read anything because of marks.
    pub fn is_untouched(&self) -> bool {
        self.spent == 0.0
    }

    /// What becomes of the first stake with a request that reads something, or not, and makes it `now`; one that has
    /// `gone_on` was not made before.
    pub fn wager(
        &self,
        reads: bool,
        gone_on: bool,
        now: &Self,
        (now_ms, ttl_ms): (u64, u64),
    ) -> Option<Wager> {
        let would_read = self.held_ms.is_some_and(|at| now_ms.saturating_sub(at) < ttl_ms) && gone_on;
        if would_read || (reads && self.spent > 0.0) {
            return Some(Wager::Won);
        }
        (self.is_untouched() && now.spent > 0.0).then_some(Wager::Placed)
    }

    /// So many bytes are read, and so many written.
    pub fn book(&mut self, read: f64, written: f64, rates: Rates) {
        self.spent += (rates.write - 1.0) * written - (1.0 - rates.read) * read;
    }
}

/// Marks to add to a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chosen {
    parts: Vec<(PartId, bool)>,
    /// One behind what stands before the messages, or between its two texts, and whether it is to last for long.
    pub frame: Option<bool>,
}

impl Chosen {
    /// The parts, and whether a mark is to last for long.
    pub fn parts(&self) -> &[(PartId, bool)] {
        &self.parts
    }

    /// Marks a part if it, or one before it, can carry a mark, and there is room for one more. `gone` tells which
    /// messages are not sent.
    pub fn add(&mut self, conversation: &Conversation, part: Option<PartId>, gone: &dyn Fn(usize) -> bool) {
        let Some(marks) = &conversation.marks else { return };
        let Some(part) = part.and_then(|part| markable(conversation, part, gone)) else { return };
        let taken = marks.parts.iter().chain(&self.parts).any(|(other, _)| *other == part);
        // Marks that last for long come first: one before such a mark must be one itself, and none can be that behind
        // another.
        let long = marks.end == Some(true) || marks.parts.iter().any(|(other, long)| *other > part && *long);
        let may_be_long =
            !marks.frame_short && marks.parts.iter().all(|(other, long)| *other > part || *long);
        if !taken && self.parts.len() < marks.free() && (!long || may_be_long) {
            self.parts.push((part, long));
        }
    }
}

/// The part itself or the nearest one before it that can carry a mark.
fn markable(conversation: &Conversation, part: PartId, gone: &dyn Fn(usize) -> bool) -> Option<PartId> {
    let parts = (0..=part.message as usize).rev().filter(|message| !gone(*message)).flat_map(|message| {
        let parts: Vec<_> = conversation.parts_of(message).collect();
        parts.into_iter().rev()
    });
    let mut before = parts.skip_while(|(id, _)| *id > part);
    let found = before.find(|(id, part)| match part.kind {
        PartKind::Thinking | PartKind::Hosted | PartKind::Opaque => false,
        PartKind::Text => conversation.says_something(*id, 0),
        PartKind::ToolCall | PartKind::ToolResult | PartKind::Media => true,
    });
    found.map(|(id, _)| id)
}

/// The last part of a message, or of one before it.
pub fn end_of(conversation: &Conversation, message: usize) -> Option<PartId> {
    (0..=message).rev().find_map(|message| conversation.parts_of(message).last().map(|(id, _)| id))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(message: u32) -> PartId {
        PartId { message, part: 0 }
    }

    #[test]
    fn entries_live_as_long_as_they_are_marked() {
        let mut entries = Entries::default();
        entries.sent([at(1), at(5)].into_iter(), 0);
        entries.sent([at(9)].into_iter(), 100_000);
        for (part, now, expected) in [
            (at(20), 100_000, Some(at(9))),
            (at(9), 100_000, Some(at(5))),
            (at(1), 100_000, None),
            (at(9), 290_000, None),
            (at(20), 290_000, Some(at(9))),
            (at(20), 390_000, None),
        ] {
            assert_eq!(entries.before(part, now, 300_000), expected, "{part:?} {now}");
        }
        entries.sent([at(1)].into_iter(), 290_000);
        assert_eq!(entries.before(at(9), 290_000, 300_000), Some(at(1)));
        entries.cut(at(5));
        assert_eq!(entries.before(at(20), 290_000, 300_000), Some(at(1)));
    }

    #[test]
    fn entries_are_bounded() {
        let mut entries = Entries::default();
        entries.sent((0..200).map(at), 0);
        assert_eq!((entries.0.len(), entries.before(at(300), 0, 300_000)), (MOST, Some(at(199))));
    }
}
