//! Cache marks of the gateway: where they go, what is cached thanks to them, and what that may cost.
//!
//! A provider with marks writes a cache *entry* up to each mark, and reads one only if it ends at a mark or a few
//! blocks before one. Clients that set marks themselves mark the end of the prompt; after a cut further up, only the
//! instructions could be read. An *anchor*, a mark where the next event would cut, keeps an entry alive there. It costs
//! nothing, because what it marks is read anyway.
//!
//! If the client sets no marks, the gateway marks the history. Writing costs extra, and nobody knows whether another
//! request will come to read it, so what may be spent on this is limited:
//!
//! - the *stake* of a thread is what its marks have cost beyond plain input, less what reading has saved;
//! - a write is *held* if a request could have made it and, because of what its sender's threads have lost
//!   ([`super::debt`]), did not;
//! - a thread *rests*, that is writes nothing new for some requests, after entries were not found again
//!   ([`Findings`]).

use crate::conversation::{Conversation, Hold, Marks, Part, PartId, PartKind};

use super::debt::{Held, Shares};
use super::findings::{Expected, Findings, Found, Outlook};
use super::gate::{MOST_LOSS, Rates};

/// Which marks the gateway may set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Mark the history for clients that do not.
    pub marks: bool,
    /// Use free marks as anchors.
    pub anchors: bool,
    /// Add a cache key of the conversation's own to requests, if their upstream takes one.
    pub keys: bool,
    /// Send instructions as two texts, divided where they stop being the same in every conversation. Needs `marks`.
    pub split: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { marks: true, anchors: true, keys: true, split: true }
    }
}

/// How many blocks back from a mark, its own included, the provider looks for an entry.
pub const LOOKBACK: usize = 20;
/// The most entries that are remembered of a thread.
const MOST_ENTRIES: usize = 64;
/// How long before the end of its lifetime an entry is taken to have expired, in milliseconds.
const MARGIN_MS: u64 = 20_000;

/// When a request is sent, and how long the provider's cache keeps an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheClock {
    /// The time of the request, in milliseconds since 1970.
    pub now_ms: u64,
    /// How long an entry is kept that is not used, in milliseconds.
    pub ttl_ms: u64,
}

impl CacheClock {
    /// Whether an entry that was last used at this time, in milliseconds since 1970, has certainly not expired.
    pub fn is_there(self, at_ms: u64) -> bool {
        self.now_ms.saturating_sub(at_ms) + MARGIN_MS < self.ttl_ms
    }

    /// Whether such an entry may not have expired: without a margin.
    pub(super) fn may_be_there(self, at_ms: u64) -> bool {
        self.now_ms.saturating_sub(at_ms) < self.ttl_ms
    }
}

/// The entries that a thread has written to the provider's cache, as far as is known. An entry begins with a prelude
/// (tools and instructions), and can only be read by requests with the same one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entries {
    all: Vec<Entry>,
    /// The key of the present request's prelude.
    prelude: u64,
    /// The last part that the last request marked.
    last: Option<PartId>,
    /// What the next entry that is new will consist of.
    fresh: Shares,
    /// The key of a prelude, and the fewest tokens that were reported for a request with it.
    least: Option<(u64, u64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    /// Its last part.
    part: PartId,
    /// When it was last marked, in milliseconds since 1970.
    at_ms: u64,
    /// The key of the prelude that it begins with.
    prelude: u64,
    /// Its tokens, if the provider has reported them.
    tokens: Option<u64>,
    /// What the gateway has written of it, as far as is known.
    shares: Shares,
}

impl Entry {
    /// Whether it is the one with this prelude that ends with this part.
    fn is(&self, part: PartId, prelude: u64) -> bool {
        (self.part, self.prelude) == (part, prelude)
    }
}

impl Entries {
    /// Sets the prelude of the present request.
    pub fn behind(&mut self, prelude: u64) {
        self.prelude = prelude;
    }

    /// The end of the longest entry that ends before this part, begins with the present prelude and has not expired.
    pub fn before(&self, part: PartId, clock: CacheClock) -> Option<PartId> {
        let found = self.all.iter().filter(|entry| entry.prelude == self.prelude && entry.part < part);
        found.filter(|entry| clock.is_there(entry.at_ms)).map(|entry| entry.part).max()
    }

    /// What a request that marks this part reads of what the gateway has written, if the provider keeps entries to the
    /// end of their lifetime.
    pub fn read_at(&self, part: PartId, clock: CacheClock) -> Shares {
        let of_prelude = self.all.iter().filter(|entry| entry.prelude == self.prelude);
        let found = of_prelude.filter(|entry| entry.part <= part && clock.may_be_there(entry.at_ms));
        found.max_by_key(|entry| entry.part).map(|entry| entry.shares).unwrap_or_default()
    }

    /// What the gateway has written of the entry that ends with this part, as far as is known.
    pub fn shares(&self, part: PartId) -> Shares {
        let found = self.all.iter().find(|entry| entry.is(part, self.prelude));
        found.map(|entry| entry.shares).unwrap_or_default()
    }

    /// Sets what the last mark of the present request writes together with what it reads, if it makes an entry.
    pub fn writes(&mut self, shares: Shares) {
        self.fresh = shares;
    }

    /// Records that a request with these marks was sent.
    pub fn sent(&mut self, marks: impl Iterator<Item = PartId>, now_ms: u64) {
        let marks: Vec<PartId> = marks.collect();
        self.last = marks.iter().copied().max();
        let fresh = std::mem::take(&mut self.fresh);
        for part in marks {
            let known = self.all.iter().position(|entry| entry.is(part, self.prelude));
            let known = known.map(|at| self.all.remove(at));
            let shares = if Some(part) == self.last { fresh } else { Shares::default() };
            let made = Entry { part, at_ms: now_ms, prelude: self.prelude, tokens: None, shares };
            self.all.push(known.map_or(made, |known| Entry { at_ms: now_ms, ..known }));
        }
        if let Some(excess) = self.all.len().checked_sub(MOST_ENTRIES) {
            self.all.drain(..excess);
        }
    }

    /// Records how many tokens the provider reported as read and as written with the last request. Their sum is the
    /// size of the entry at its last mark.
    pub fn told(&mut self, read: u64, written: u64) {
        let tokens = read.saturating_add(written);
        let Some(last) = self.last.filter(|_| tokens > 0) else { return };
        for entry in self.all.iter_mut().filter(|entry| entry.is(last, self.prelude)) {
            entry.tokens = Some(tokens);
        }
        // If the provider reports no writes, it may have read only instructions.
        if written > 0 {
            self.least = Some((self.prelude, self.least().map_or(tokens, |least| least.min(tokens))));
        }
    }

    /// The fewest tokens that a request with the present prelude reads if the provider has cached any of the history;
    /// `None` if that is not known.
    pub fn least(&self) -> Option<u64> {
        self.least.filter(|(prelude, _)| *prelude == self.prelude).map(|(_, tokens)| tokens)
    }

    /// The tokens of the entry that ends with this part, if the provider has reported them.
    pub fn tokens(&self, part: PartId) -> Option<u64> {
        self.all.iter().find(|entry| entry.is(part, self.prelude))?.tokens
    }

    /// Records that everything from this part on has changed: entries that end there or later are useless.
    pub fn cut(&mut self, part: PartId) {
        self.all.retain(|entry| entry.part < part);
        // From now on the frame alone may have as many tokens.
        self.least = self.least.filter(|_| !self.all.is_empty());
    }

    /// Records that the last request found none of the entries. It has written those that it marked, unless the
    /// provider keeps nothing (`is_kept` is false).
    pub fn missed(&mut self, is_kept: bool) {
        let last = self.all.iter().map(|entry| entry.at_ms).max();
        self.all.retain(|entry| is_kept && Some(entry.at_ms) == last);
    }
}

/// What marking the history has cost a thread whose client does not mark it. Amounts are in bytes of plain input, that
/// is in what sending one byte without any cache costs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stake {
    /// The least that its requests so far would have cost untouched, with only the client's own marks.
    pub plain: f64,
    /// What marks have cost beyond that, less what they have saved.
    pub spent: f64,
    /// What was done with the last requests, the newest first.
    pub tried: [Option<Tried>; TRIED],
    /// The recent gain of writing the whole history, or what it would have been, in units of the extra cost of one
    /// write: first for requests that came soon after the one before, then for those that came after a pause.
    pub brought: [f64; 2],
    /// The price of plain input at which these bytes are counted; 0 if unknown.
    pub price: f64,
    /// The cache that the last request went to.
    pub cache: u64,
    /// Whether what should have been read was found in that cache.
    pub findings: Findings,
    /// The cache in which most of what the last request should have read was missing, if any.
    pub missing_in: Option<u64>,
    /// The writes that were held back.
    pub held: Option<Held>,
}

/// How many requests are remembered: a client that alternates between two or three sets of tools continues from one
/// before the last.
const TRIED: usize = 4;

/// What was done with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tried {
    /// When it was sent, in milliseconds since 1970.
    pub at_ms: u64,
    /// The key of its prelude.
    pub prelude: u64,
    /// Whether the request before it was too long ago for any entry to be left.
    pub after_pause: bool,
    /// Whether none of the history could be read, so that all of it was written, or nothing.
    pub is_whole: bool,
}

/// After a rest a thread tries twice: if the provider has several caches, the second try may reach the one that the
/// first has written to.
const TRIES: u32 = 2;
/// The limit of [`Stake::brought`] in either direction: if a client has changed its ways, what it did before must soon
/// stop counting, but a few requests that read nothing do not show that it has.
const MOST_BROUGHT: f64 = 2.0;

/// What one read saves, in units of the extra cost of the write. At least two, so that one more wasted write is allowed
/// after a read: a history that is read once is mostly read again.
fn worth_of_reading(rates: Rates) -> f64 {
    let premium = (rates.write - 1.0).max(f64::EPSILON);
    ((1.0 - rates.read) / premium).max(2.0)
}

impl Stake {
    /// How many bytes this request may write for the thread to stay within [`MOST_LOSS`] even if it is the last one.
    /// It should read `read` bytes. If that is doubtful, these may have to be written again as well; `None` if that
    /// alone would cost too much.
    pub fn allows(&self, read: f64, is_doubtful: bool, rates: Rates) -> Option<f64> {
        let premium = (rates.write - 1.0).max(0.0);
        let left = MOST_LOSS * self.plain - self.spent;
        if premium == 0.0 {
            return Some(f64::INFINITY);
        }
        if (is_doubtful || self.is_missing()) && read > 0.0 {
            return Some(left / premium - read).filter(|most| *most >= 0.0);
        }
        Some((left + (1.0 - rates.read) * read).max(0.0) / premium)
    }

    /// The stake to assume if the outcome of its requests is unknown, and they would have cost at most `plain`
    /// untouched: what may have been saved does not count.
    #[must_use]
    pub fn at_most(self, plain: f64) -> Self {
        Self { plain: self.plain.min(plain), spent: self.spent.max(0.0), ..self }
    }

    /// Converts earlier amounts to the price of plain input of the model that the next request goes to, if it is known.
    pub fn goes_at(&mut self, price: Option<f64>) {
        let Some(price) = price.filter(|price| *price > 0.0) else { return };
        let before = std::mem::replace(&mut self.price, price);
        if before > 0.0 {
            (self.plain, self.spent) = (self.plain * before / price, self.spent * before / price);
        }
    }

    /// Notes the cache that the next request goes to, and the outlook there. If it is another one than before, the
    /// findings begin anew: what another cache has dropped says nothing about it.
    pub fn goes_to(&mut self, cache: u64, outlook: Outlook) {
        if self.cache != cache {
            (self.cache, self.findings) = (cache, Findings::first(outlook));
        }
    }

    /// Notes that the next request, with this prelude, continues the last one. It shows what an earlier write was
    /// worth: the request reads it, or would have read it had it been made, or the write was wasted.
    pub fn goes_on(&mut self, prelude: u64, clock: CacheClock, rates: Rates) {
        let is_same = |tried: &Tried| tried.prelude == prelude && clock.may_be_there(tried.at_ms);
        let read = self.tried.into_iter().flatten().find(is_same);
        let judged = read.or(self.tried[0]).filter(|tried| tried.is_whole);
        if let Some(judged) = judged {
            let brought = &mut self.brought[usize::from(judged.after_pause)];
            let more = if read.is_some() { worth_of_reading(rates) } else { 0.0 };
            // If a client pauses for longer than entries live, it mostly does so again, however much was read before.
            let is_late = read.is_none() && judged.prelude == prelude;
            let before = if is_late { brought.min(0.0) } else { *brought };
            *brought = (before + more - 1.0).clamp(-MOST_BROUGHT, MOST_BROUGHT);
        }
        self.findings = self.findings.rested().unwrap_or(self.findings);
    }

    /// Records what was done with a request.
    pub fn note(&mut self, tried: Tried) {
        self.tried.rotate_right(1);
        self.tried[0] = Some(tried);
    }

    /// Whether writing the whole history now would most likely be wasted; `after_pause`: the request before was too
    /// long ago for any entry to be left.
    pub fn is_vain(&self, after_pause: bool) -> bool {
        self.findings.rests() || self.brought[usize::from(after_pause)] < 0.0
    }

    /// Records what the last request found of what it should have read (`expected`): `missing` bytes of it were not
    /// there and had to be written again.
    pub fn missed(&mut self, missing: f64, expected: &Expected, found: Found) {
        self.spent += (expected.rates.write - expected.rates.read) * missing;
        if !expected.is_there(missing) {
            self.missing_in = Some(self.cache);
        } else if self.is_missing() {
            self.missing_in = None;
        }
        self.findings = self.findings.found(found, TRIES);
        if found == Found::Nothing && self.findings.rests() {
            self.brought = [-MOST_BROUGHT; 2];
        }
    }

    /// Whether the cache of the last request is the one in which most of what should have been read last was missing.
    pub fn is_missing(&self) -> bool {
        self.missing_in == Some(self.cache)
    }

    /// Whether the provider seems to keep entries at all. It drops few by chance, so a thread that rests shows that it
    /// does not.
    pub fn may_be_kept(&self) -> bool {
        !self.findings.rests()
    }

    /// Everything from this part on has changed: nothing would have read what was held up to there or farther.
    pub fn cut(&mut self, part: PartId) {
        self.held = self.held.filter(|held| held.is_before(part));
    }

    /// Books the bytes that a request reads and writes.
    pub fn book(&mut self, read: f64, written: f64, rates: Rates) {
        self.spent += (rates.write - 1.0) * written - (1.0 - rates.read) * read;
    }
}

/// Marks to add to a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chosen {
    parts: Vec<(PartId, Hold)>,
    /// The mark at the end of the instructions, or between their two texts.
    pub frame: Option<Hold>,
}

impl Chosen {
    /// The parts that are marked.
    pub fn parts(&self) -> &[(PartId, Hold)] {
        &self.parts
    }

    /// Marks a part, or the nearest one before it that can carry a mark, if the provider takes one more mark. `gone`
    /// tells which messages are not sent.
    pub fn add(&mut self, conversation: &Conversation, part: Option<PartId>, gone: &dyn Fn(usize) -> bool) {
        let Some(marks) = &conversation.marks else { return };
        let has_place = |id: PartId| conversation.mark_place(id).is_some();
        let part = part.and_then(|part| markable(conversation, part, gone, &has_place));
        let Some(part) = part else { return };
        let taken = marks.parts.iter().chain(&self.parts).any(|(other, _)| *other == part);
        // Providers want long-lived marks before the others: a mark that precedes a long-lived one must be long-lived
        // itself, and a mark that follows a short-lived one cannot be.
        let behind = marks.parts.iter().filter(|(other, _)| *other > part).map(|(_, hold)| *hold);
        let hold = behind.chain(marks.end).max().unwrap_or_default();
        let is_long = |hold: Hold| hold == Hold::Long;
        let may_be_long =
            !marks.frame_short && marks.parts.iter().all(|(other, hold)| *other > part || is_long(*hold));
        if !taken && self.parts.len() < marks.free() && (!is_long(hold) || may_be_long) {
            self.parts.push((part, hold));
        }
    }
}

/// The part itself, or the nearest one before it, that is of a kind that can carry a mark and has a place for one
/// (`has_place`). `gone` tells which messages are not sent.
fn markable(
    conversation: &Conversation,
    part: PartId,
    gone: &dyn Fn(usize) -> bool,
    has_place: &dyn Fn(PartId) -> bool,
) -> Option<PartId> {
    let parts = (0..=part.message as usize).rev().filter(|message| !gone(*message)).flat_map(|message| {
        let parts: Vec<_> = conversation.parts_of(message).collect();
        parts.into_iter().rev()
    });
    let mut before = parts.skip_while(|(id, _)| *id > part);
    let may = |id: PartId, part: &Part| match part.kind() {
        PartKind::Thinking | PartKind::Hosted | PartKind::Opaque => false,
        PartKind::Text => conversation.says_something(id, 0),
        // What the provider's own code reads is sent as it came, and is not part of the prompt.
        PartKind::ToolCall | PartKind::ToolResult | PartKind::Media => !part.is_for_code(),
    };
    let found = before.find(|(id, part)| may(*id, part) && has_place(*id));
    found.map(|(id, _)| id)
}

/// The parts of the history up to which the client's own marks have the provider cache it, without marks on the
/// instructions. `gone` tells which messages are not sent.
pub fn of_client(conversation: &Conversation, gone: &dyn Fn(usize) -> bool) -> impl Iterator<Item = PartId> {
    let marks = conversation.marks.iter();
    let parts = marks.clone().flat_map(Marks::in_history).map(|(part, _)| *part);
    let parts = parts.filter(|part| !gone(part.message as usize));
    let last = marks.filter(|marks| marks.end.is_some()).filter_map(|_| {
        let end = end_of(conversation, conversation.messages.len().checked_sub(1)?)?;
        // The provider chooses where its own mark goes.
        markable(conversation, end, gone, &|_| true)
    });
    parts.chain(last)
}

/// The part before another one; `None` if that is the first.
pub fn in_front_of(conversation: &Conversation, part: PartId) -> Option<PartId> {
    match part.part.checked_sub(1) {
        Some(before) => Some(PartId { part: before, ..part }),
        None => end_of(conversation, (part.message as usize).checked_sub(1)?),
    }
}

/// The last part of a message, or of the nearest one before it that has any.
pub fn end_of(conversation: &Conversation, message: usize) -> Option<PartId> {
    (0..=message).rev().find_map(|message| conversation.parts_of(message).last().map(|(id, _)| id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::NoMemo;

    const fn at(message: u32) -> PartId {
        PartId { message, part: 0 }
    }

    const fn clock(now_ms: u64) -> CacheClock {
        CacheClock { now_ms, ttl_ms: 300_000 }
    }

    /// The provider's own mark is on the last block that can carry a mark, of those that are sent.
    #[test]
    fn client_marks_are_found_on_blocks_and_the_request() {
        const MARK: &str = r#","cache_control":{"type":"ephemeral"}"#;
        let text = |mark: &str| format!(r#"{{"type":"text","text":"a"{mark}}}"#);
        let thinking = r#"{"type":"thinking","thinking":"t","signature":"s"}"#;
        for (name, last, top, dropped, expected) in [
            ("no mark", format!("[{},{}]", text(""), text("")), "", None, vec![]),
            ("a block", format!("[{},{}]", text(MARK), text("")), "", None, vec![(2, 0)]),
            ("the request", format!("[{},{}]", text(""), text("")), MARK, None, vec![(2, 1)]),
            ("both", format!("[{},{}]", text(MARK), text("")), MARK, None, vec![(2, 0), (2, 1)]),
            ("reasoning at the end", format!("[{},{thinking}]", text("")), MARK, None, vec![(2, 0)]),
            ("nothing but reasoning", format!("[{thinking}]"), MARK, None, vec![(1, 0)]),
            ("the last message is dropped", format!("[{}]", text(MARK)), MARK, Some(2), vec![(1, 0)]),
        ] {
            let body = format!(
                r#"{{"model":"m","messages":[{{"role":"user","content":[{}]}},{{"role":"assistant","content":[{}]}},{{"role":"user","content":{last}}}]{top}}}"#,
                text(""),
                text("")
            );
            let body = bytes::Bytes::from(body);
            let talk = crate::protocol::named("anthropic").unwrap().index(&body, &NoMemo).unwrap();
            let found: Vec<_> = of_client(&talk, &|message| Some(message) == dropped)
                .map(|id| (id.message, id.part))
                .collect();
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn cache_entries_expire_unless_marked_again() {
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
            assert_eq!(entries.before(part, clock(now)), expected, "{part:?} {now}");
        }
        entries.sent([at(1)].into_iter(), 290_000);
        assert_eq!(entries.before(at(9), clock(290_000)), Some(at(1)));
        entries.cut(at(5));
        assert_eq!(entries.before(at(20), clock(290_000)), Some(at(1)));
    }

    /// Requests by what precedes their messages, each a second after the one before it, or ten minutes after it if a
    /// `.` lies between; and what becomes of the history with each: it is written (`w`), it is not (`-`), or what was
    /// written is there to be read (`r`).
    #[test]
    fn histories_are_marked_if_recent_writes_were_read() {
        for (requests, expected) in [
            ("AAAAAA", "wrrrrr"),
            ("ABCDEFGH", "w-------"),
            // Tools that come with every other request are there with the next one, too.
            ("AABBCCDDEEFF", "wrwrwrwrwrwr"),
            ("ABBCCDDEEFF", "w-wwrwrwrwr"),
            ("ABBBCCCDDD", "w-wrwrrwrr"),
            // It also pays with every third request, even if the first writes were wasted.
            ("ABCCDEEFGGHIIJKKLMMNOO", "w--w--ww-ww-wwwrwwrwwr"),
            ("ABABABAB", "w-rwrrrr"),
            // A client that changes its behaviour.
            ("AABBCCDEFGHI", "wrwrwrwww---"),
            ("ABCDEFFFFF", "w-----wrrr"),
            ("AA.AA.AA", "wrwrwr"),
            ("AA.A.A.A", "wrw--"),
            ("AA.AA.A.A.A.AA.A", "wrwrw---ww"),
        ] {
            let (mut stake, mut found, mut written) = (Stake::default(), String::new(), Vec::new());
            let (mut now_ms, mut after_pause) = (0, false);
            for prelude in requests.bytes().map(u64::from) {
                if prelude == u64::from(b'.') {
                    after_pause = true;
                    continue;
                }
                now_ms += if after_pause { 600_000 } else { 1_000 };
                stake.goes_on(prelude, clock(now_ms), Rates::USUAL);
                let reads = written.iter().any(|(other, at)| *other == prelude && now_ms - at < 300_000);
                let held = stake.is_vain(after_pause) && !reads;
                stake.note(Tried { at_ms: now_ms, prelude, after_pause, is_whole: !reads });
                found.push(if reads {
                    'r'
                } else if held {
                    '-'
                } else {
                    'w'
                });
                written.extend((!held).then_some((prelude, now_ms)));
                after_pause = false;
            }
            assert_eq!(found, expected, "{requests}");
        }
    }

    /// What a cheap model's requests have cost is little at an expensive model's price; where no price is known, it
    /// stays as it is.
    #[test]
    fn stakes_are_converted_to_the_price_of_the_requested_model() {
        let mut stake = Stake { plain: 1_000.0, spent: 100.0, ..Stake::default() };
        for (name, price, plain, spent) in [
            ("no price yet", None, 1_000.0, 100.0),
            ("the first price", Some(1.0), 1_000.0, 100.0),
            ("a more expensive model", Some(5.0), 200.0, 20.0),
            ("an unknown price", None, 200.0, 20.0),
            ("a free model", Some(0.0), 200.0, 20.0),
            ("a cheaper model", Some(2.0), 500.0, 50.0),
        ] {
            stake.goes_at(price);
            let off = (stake.plain - plain).abs() + (stake.spent - spent).abs();
            assert!(off < 1e-6, "{name}: {stake:?}");
        }
    }

    /// What is reported about a request's last mark shows how much of it is still there later, whatever else is read.
    #[test]
    fn missing_bytes_are_derived_from_reported_reads() {
        let mut entries = Entries::default();
        let marked = |entries: &mut Entries, parts: &[u32]| entries.sent(parts.iter().copied().map(at), 0);
        marked(&mut entries, &[3, 1]);
        entries.told(0, 900);
        marked(&mut entries, &[3, 5]);
        assert_eq!([1, 3, 5].map(|part| entries.tokens(at(part))), [None, Some(900), None]);
        entries.told(0, 0);
        assert_eq!(entries.tokens(at(5)), None);
        marked(&mut entries, &[]);
        entries.told(0, 700);
        assert_eq!([1, 3, 5].map(|part| entries.tokens(at(part))), [None, Some(900), None]);
        // Of 2,000 bytes, after as many that the client has marked itself.
        for (name, tokens, read, written, expected) in [
            ("all is read", Some(1_000), 1_000, 9, 0.0),
            ("more is read", Some(1_000), 1_200, 0, 0.0),
            ("a part is missing", Some(1_000), 900, 109, 400.0),
            ("only what is in front is read", Some(1_000), 500, 509, 2_000.0),
            ("nothing is read", Some(1_000), 0, 0, 2_000.0),
            ("of unknown size, something is read", None, 1, 999, 0.0),
            ("of unknown size, all is written", None, 0, 999, 2_000.0),
            ("nothing is reported, so it may have been read", None, 0, 0, 0.0),
        ] {
            let to_read =
                Expected { bytes: 2_000.0, before: 2_000.0, tokens, least: None, rates: Rates::USUAL };
            let found = to_read.missing(read, written);
            assert!((found - expected).abs() < 1e-6, "{name}: {found}");
        }
    }

    /// A request that reads as much as was ever reported for one has some of the history. A request that reads less may
    /// have no more than what precedes the history, and so may one whose provider does not report writes.
    #[test]
    fn reads_of_the_history_are_distinguished_from_reads_of_instructions() {
        let mut entries = Entries::default();
        for (name, prelude, read, written, expected) in [
            ("no writes reported", 1, 700, 0, None),
            ("read and written", 1, 700, 200, Some(900)),
            ("a larger sum", 1, 700, 300, Some(900)),
            ("other instructions, nothing reported", 2, 0, 0, None),
            ("all is written", 2, 0, 800, Some(800)),
            ("a smaller sum", 2, 700, 50, Some(750)),
            ("the first instructions again", 1, 0, 990, Some(990)),
        ] {
            entries.behind(prelude);
            entries.sent([at(1)].into_iter(), 0);
            entries.told(read, written);
            assert_eq!(entries.least(), expected, "{name}");
        }
        for (name, least, missing, read, expected) in [
            ("all is there", None, 0.0, 2_000, Found::Most),
            ("most is missing, nothing known", None, 600.0, 2_000, Found::Nothing),
            ("most is missing, less is read than ever before", Some(900), 600.0, 899, Found::Nothing),
            ("little is missing", Some(900), 400.0, 899, Found::Most),
            ("most is missing, as much is read as before", Some(900), 600.0, 900, Found::History),
        ] {
            let to_read =
                Expected { bytes: 1_000.0, before: 0.0, tokens: Some(2_000), least, rates: Rates::USUAL };
            assert_eq!(to_read.found(missing, read), expected, "{name}");
        }
    }

    /// Entries are found only with the prelude that they were written with, so a clock in the instructions makes them
    /// useless.
    #[test]
    fn cache_entries_are_kept_per_prelude() {
        let mut entries = Entries::default();
        for (prelude, expected) in [(1, None), (2, None), (1, Some(at(3))), (3, None), (2, Some(at(3)))] {
            entries.behind(prelude);
            assert_eq!(entries.before(at(9), clock(0)), expected, "{prelude}");
            entries.sent([at(3)].into_iter(), 0);
        }
        entries.cut(at(3));
        assert_eq!(entries.all, []);
    }

    #[test]
    fn cache_entries_are_bounded() {
        let mut entries = Entries::default();
        entries.sent((0..200).map(at), 0);
        assert_eq!((entries.all.len(), entries.before(at(300), clock(0))), (MOST_ENTRIES, Some(at(199))));
    }
}
