//! Where to mark a request for the provider's cache.

use crate::conversation::{Conversation, Marks, PartId, Role};
use crate::strategy::debt::{Held, Staked, Write};
use crate::strategy::findings::{Expected, Outlook};
use crate::strategy::history::Item;
use crate::strategy::marks::{self, Chosen, Entries, Stake, Tried};

use super::old::Request;
use super::standing::Terms;
use super::{Facts, Outcome, Standing};

/// What the placement of marks depends on.
pub(super) struct Anchored<'a> {
    pub(super) request: &'a Request<'a>,
    /// Where an event cuts, or where the next one may.
    pub(super) cut: Option<PartId>,
    /// The cache entries of the previous request have expired.
    pub(super) after_pause: bool,
    /// What is written to the cache is likely to be read again. Otherwise only an entry that the provider has reported
    /// is marked.
    pub(super) may_write: bool,
}

/// The cache marks to add. If the client marks nothing in the history: the end of this prompt and of the previous one.
/// If the client's own marks would not find what they wrote before: the end of that. In addition, an anchor before the
/// present cut or the expected one, and the end of what was sent before if it must be written again.
pub(super) fn place(anchored: &Anchored<'_>, outcome: &Outcome, standing: &mut Standing) -> Chosen {
    let Anchored { request, cut, may_write, .. } = *anchored;
    let Request { conversation, policy, facts, sent, ending, .. } = *request;
    let stays = standing.stays(conversation.messages.len(), sent, ending);
    let mut chosen = Chosen::default();
    let gone = |message: usize| outcome.drops(message);
    let is_marked = conversation.is_marked();
    // The end of what is read or written anyway; the client's automatic mark comes after everything.
    let mut written = is_marked.then_some(PartId { message: u32::MAX, part: 0 });
    let free = conversation.marks.as_ref().map_or(0, Marks::free);
    if !is_marked && policy.marks.marks && free > 0 {
        let end = marks::in_front_of(conversation, stays);
        let behind = end.map(|end| PartId { part: end.part.saturating_add(1), ..end });
        let entry = behind.and_then(|part| standing.kept.entries.before(part, facts.clock()));
        let end = end.map(|end| if free > 1 { end } else { reached(conversation, entry, end, &gone) });
        let Reach { entry, end } = match end {
            Some(end) => within(anchored, entry, end, standing),
            None => Reach { entry, end },
        };
        written = end.max(entry);
        chosen.add(conversation, end, &gone);
        chosen.add(conversation, entry, &gone);
    }
    if !may_write {
        return chosen;
    }
    let entries = &standing.kept.entries;
    if is_marked && policy.marks.anchors && outcome.event.is_none() {
        let entry = out_of_reach(request, &gone, standing);
        chosen.add(conversation, entry, &gone);
    }
    if let Some(cut) = cut.filter(|_| policy.marks.anchors && (is_marked || policy.marks.marks)) {
        let entry = entries.before(cut, facts.clock());
        let before = marks::in_front_of(conversation, cut);
        // An event can only fall back to an existing entry, and no anchor is worth writing for its own sake.
        let before = before.filter(|before| written.is_some_and(|end| *before <= end));
        chosen.add(conversation, if outcome.event.is_some() { entry } else { before }, &gone);
        if is_marked && outcome.event.is_some() {
            chosen.add(conversation, forked(conversation, sent, cut), &gone);
        }
    }
    // A client that marks its history but nothing before it has nothing else to fall back to either.
    let is_bare = conversation.marks.as_ref().is_some_and(|marks| !marks.are_before_messages());
    if (!is_marked || is_bare) && policy.marks.anchors && outcome.split.is_none() {
        let added = chosen.parts().iter().map(|(part, _)| *part).max();
        let end = if is_marked { marks::of_client(conversation, &gone).max() } else { added };
        chosen.add(conversation, end.and_then(|end| base(request, end)), &gone);
    }
    chosen
}

/// The last part up to the end whose mark finds `entry` within the look-back of the provider, where no mark is left
/// for the entry itself.
fn reached(
    conversation: &Conversation,
    entry: Option<PartId>,
    end: PartId,
    gone: &dyn Fn(usize) -> bool,
) -> PartId {
    let Some(entry) = entry else { return end };
    behind(conversation, entry, end, gone).nth(marks::LOOKBACK - 2).unwrap_or(end)
}

/// The parts after an entry that are sent, up to `end`.
fn behind(
    conversation: &Conversation,
    entry: PartId,
    end: PartId,
    gone: &dyn Fn(usize) -> bool,
) -> impl Iterator<Item = PartId> {
    let messages = (entry.message as usize..=end.message as usize).filter(|message| !gone(*message));
    let parts = messages.flat_map(|message| conversation.parts_of(message)).map(|(id, _)| id);
    parts.filter(move |id| entry < *id && *id <= end)
}

/// The end of what an event writes again that other requests may continue from as well: whoever asks something else
/// about the same history has the same event, and would write all of it again. It is written anyway, before the
/// client's own mark.
fn forked(conversation: &Conversation, sent: usize, cut: PartId) -> Option<PartId> {
    marks::end_of(conversation, sent.checked_sub(1)?).filter(|end| *end > cut)
}

/// The entry that the client's last mark would read if it were not too many blocks away from that mark and all others.
/// Otherwise everything after it, and all that was read so far, would be written again.
fn out_of_reach(request: &Request<'_>, gone: &dyn Fn(usize) -> bool, standing: &Standing) -> Option<PartId> {
    let Request { conversation, facts, .. } = *request;
    let end = marks::of_client(conversation, gone).max()?;
    let entry = standing.kept.entries.before(end, facts.clock())?;
    let behind: Vec<PartId> = behind(conversation, entry, end, gone).collect();
    let reaches =
        |mark: PartId| entry <= mark && behind.iter().filter(|id| **id <= mark).count() < marks::LOOKBACK;
    (!marks::of_client(conversation, gone).any(reaches)).then_some(entry)
}

/// What an event that changes the whole history can fall back to: the instructions and the first message, written
/// together with what follows them and is marked, up to `end`.
fn base(request: &Request<'_>, end: PartId) -> Option<PartId> {
    let Request { conversation, facts, .. } = *request;
    let messages = &conversation.messages;
    let last = messages.iter().position(|message| message.index.role != Role::System)?;
    let bytes: usize = messages[..=last].iter().map(|message| message.span.len()).sum();
    let frame = conversation.body.len() - conversation.array.len();
    let first = marks::end_of(conversation, last).filter(|_| facts.may_be_kept(frame + bytes))?;
    (first < end).then_some(first)
}

/// What is read from the cache and what is written after it.
struct Reach {
    /// The end of the entry to read.
    entry: Option<PartId>,
    /// The end of what is written.
    end: Option<PartId>,
}

/// Extends the entry `known` by what may be written up to `end`, provided that this costs no more than the thread may
/// lose. The cost is booked. A request that may not write and has nothing to read leaves no trace: it says nothing
/// about what writing would bring.
fn within(anchored: &Anchored<'_>, known: Option<PartId>, end: PartId, standing: &mut Standing) -> Reach {
    let Anchored { request, after_pause, may_write, .. } = *anchored;
    let Request { conversation, facts, terms: Terms { rates, .. }, sent, .. } = *request;
    let gone_on = sent < conversation.messages.len();
    let clock = facts.clock();
    let mut stake = standing.kept.stake;
    stake.goes_to(facts.cache, facts.outlook);
    if gone_on {
        stake.goes_on(facts.prelude.key, clock, rates);
    }
    stake.held = stake.held.and_then(|held| held.read(facts.prelude.key, clock));

    let sizes = Sizes::of(conversation, facts, standing);
    let by_client = sizes.by_client;
    let readable = known.filter(|entry| sizes.is_counted(*entry));
    let readable_bytes = readable.map(|entry| sizes.up_to(entry));
    let mut allowed = allowance(anchored, &stake, readable_bytes);
    if !may_write {
        // Other entries may be too short for the provider to keep.
        let is_reported = readable.is_some_and(|entry| standing.kept.entries.tokens(entry).is_some());
        if allowed.is_none() || !is_reported {
            return Reach { entry: None, end: None };
        }
        allowed = Some(0.0);
    }
    let waits = allowed.is_none();
    // A request that may write nothing does not mark the entry either.
    let (known, entry) = if waits && readable.is_some() { (None, None) } else { (known, readable) };
    let read = entry.and(readable_bytes).unwrap_or(0.0);
    let mut written = sizes.written(entry, end, allowed.unwrap_or(0.0));
    let end = written.end;
    let before = stake.held;
    let staked = staked(request, before.as_ref(), known, &written, &standing.kept.entries);
    if let Some((write, end)) = staked.written.zip(end) {
        stake.held = write.is_held.then(|| Held::after(before, write, end, facts.prelude.key, facts.now_ms));
        if write.is_held {
            written = Written { bytes: 0.0, end: None };
        } else {
            let read = entry.map(|entry| standing.kept.entries.shares(entry)).unwrap_or_default();
            standing.kept.entries.writes(read.with(write));
        }
    }

    stake.book(read, written.bytes, rates);
    if gone_on {
        stake.note(Tried {
            at_ms: facts.now_ms,
            prelude: facts.prelude.key,
            after_pause,
            is_whole: entry.is_none() && (waits || end.is_some()),
        });
    }
    standing.kept.stake = stake;
    standing.kept.staked = Some(staked);
    let entries = &standing.kept.entries;
    let tokens = entry.and_then(|entry| entries.tokens(entry));
    let expected = Expected { bytes: read, before: by_client, tokens, least: entries.least(), rates };
    standing.kept.expected = Some(expected).filter(|_| read > 0.0);
    Reach { entry: known, end: written.end }
}

/// What a request that marks `known` and wants to write `wanted` does to its sender's debt. It would read what its
/// thread has `held` back.
fn staked(
    request: &Request<'_>,
    held: Option<&Held>,
    known: Option<PartId>,
    wanted: &Written,
    entries: &Entries,
) -> Staked {
    let Request { facts, terms: Terms { rates, .. }, .. } = *request;
    let clock = facts.clock();
    let read_at = |end: Option<PartId>| end.map(|end| entries.read_at(end, clock)).unwrap_or_default();
    let missed = held.map(Held::shares).unwrap_or_default();
    let written = Write::of(wanted.bytes, held);
    let staked = Staked { read: read_at(known.max(wanted.end)), missed, written, rates };
    if facts.debt.holds(&staked) {
        return Staked { read: read_at(known), written: written.map(|write| write.held(held)), ..staked };
    }
    staked
}

/// How many bytes a request may write, given the size of the entry that it can read. `None`: it should write nothing,
/// because the write would most likely be wasted or cost too much.
fn allowance(anchored: &Anchored<'_>, stake: &Stake, entry_bytes: Option<f64>) -> Option<f64> {
    let Anchored { request, after_pause, .. } = *anchored;
    let Request { facts, terms: Terms { rates, .. }, .. } = *request;
    let is_doubtful = facts.outlook == Outlook::SeldomKept;
    let is_vain = is_doubtful || stake.is_vain(after_pause);
    // An entry that was missing before, for this thread and for others, is most likely still missing.
    let is_missing = entry_bytes.is_none() || (is_doubtful && stake.missing_in.is_some());
    if is_vain && is_missing && rates.write > 1.0 {
        return None;
    }
    stake.allows(entry_bytes.unwrap_or(0.0), is_doubtful, rates)
}

/// The sizes of what the gateway's marks read and write, in bytes. What the client has cached is left out: it is
/// neither written nor read because of these marks.
struct Sizes<'a> {
    /// What is not the history.
    frame: f64,
    /// What the client has cached.
    by_client: f64,
    /// The last part that the client has cached.
    kept: Option<PartId>,
    items: &'a [Item],
}

/// What a request writes to the cache.
struct Written {
    bytes: f64,
    /// The last part of it; `None` if nothing is written.
    end: Option<PartId>,
}

impl<'a> Sizes<'a> {
    fn of(conversation: &Conversation, facts: &Facts, standing: &'a Standing) -> Self {
        let by_client = conversation.kept_bytes(facts.prelude) as f64;
        let frame = (conversation.body.len() - conversation.array.len()) as f64;
        Self {
            frame: (frame - by_client).max(0.0),
            by_client,
            kept: conversation.kept_mark(),
            items: standing.history().items(),
        }
    }

    /// Whether anything up to this part is not cached by the client.
    fn is_counted(&self, part: PartId) -> bool {
        self.kept.is_none_or(|kept| part > kept)
    }

    /// The parts that are not cached by the client.
    fn items(&self) -> impl Iterator<Item = &Item> {
        self.items.iter().skip_while(|item| !self.is_counted(item.part))
    }

    /// The size of the entry that ends with this part.
    fn up_to(&self, entry: PartId) -> f64 {
        let before = self.items().take_while(|item| item.part <= entry);
        self.frame + before.map(|item| f64::from(item.bytes)).sum::<f64>()
    }

    /// What is written after an entry, up to `end` and at most `most` bytes.
    fn written(&self, entry: Option<PartId>, end: PartId, most: f64) -> Written {
        let behind = self.items().skip_while(|item| entry.is_some_and(|entry| item.part <= entry));
        let (mut bytes, mut last) = (if entry.is_none() { self.frame } else { 0.0 }, None);
        for item in behind.take_while(|item| item.part <= end) {
            let longer = bytes + f64::from(item.bytes);
            if longer > most {
                break;
            }
            (bytes, last) = (longer, Some(item.part));
        }
        Written { bytes: if last.is_some() { bytes } else { 0.0 }, end: last }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::conversation::{Carriers, NoMemo};
    use crate::planner::{Past, Policy, plan};
    use crate::protocol;
    use crate::strategy::gate::{Rates, Reason};

    const SHORT: &str = r#","cache_control":{"type":"ephemeral"}"#;
    const LONG: &str = r#","cache_control":{"type":"ephemeral","ttl":"1h"}"#;

    /// The messages that are marked by the gateway in the second request of a conversation and in the third.
    fn marked(dialect: &str, [tools, system, first, turn, top]: [&str; 5]) -> [Vec<u32>; 2] {
        let mut standing = None;
        let instructions = format!(r#"[{{"type":"text","text":"s"{system}}}]"#);
        // Instructions are a message there.
        let leads = dialect == "openai-chat";
        let (before, leading) = if leads {
            (String::new(), vec![format!(r#"{{"role":"system","content":{instructions}}}"#)])
        } else {
            (format!(r#","system":{instructions}"#), Vec::new())
        };
        let protocol = protocol::named(dialect).unwrap();
        [3, 5].map(|count| {
            let message = |at: usize| {
                let role = ["user", "assistant"][at % 2];
                let mark = match at {
                    0 => first,
                    at if at + 1 == count => turn,
                    _ => "",
                };
                // What goes before is long, so that little is at stake.
                let text = format!("{at}").repeat(if at == 0 { 1_000 } else { 1 });
                format!(r#"{{"role":"{role}","content":[{{"type":"text","text":"{text}"{mark}}}]}}"#)
            };
            let messages: Vec<String> = leading.iter().cloned().chain((0..count).map(message)).collect();
            let body = format!(
                r#"{{"model":"m","tools":[{{"name":"t","input_schema":{{}}{tools}}}]{before},"messages":[{}]{top}}}"#,
                messages.join(",")
            );
            let talk = protocol.with_marks(protocol.index(&Bytes::from(body), &NoMemo).unwrap(), Carriers::Texts);
            let sent = count - 2 + leading.len();
            let past = Past { sent, standing: standing.take(), ..Past::nothing() };
            let facts = Facts { now_ms: 1_000, ttl_ms: 300_000, ..Facts::default() };
            let outcome = plan(&talk, past, &Policy::default(), &facts, &|_| String::new());
            standing = outcome.standing.clone();
            outcome.marks.parts().iter().map(|(part, _)| part.message - leading.len() as u32).collect()
        })
    }

    /// If a client marks only its instructions or its first message, its history would be billed as new with each
    /// request.
    #[test]
    fn histories_are_marked_unless_the_client_does() {
        let added = [vec![2, 0], vec![4, 2, 0]];
        for (name, marks, expected) in [
            ("nothing", ["", "", "", "", ""], added.clone()),
            ("instructions", ["", SHORT, "", "", ""], added.clone()),
            ("instructions, for long", ["", LONG, "", "", ""], added.clone()),
            // What is left of the four, and what the client has marked before the history.
            ("tools and instructions", [SHORT, SHORT, "", "", ""], [vec![2, 0], vec![4, 2]]),
            ("first message", ["", "", SHORT, "", ""], [vec![2], vec![4, 2]]),
            ("instructions, for long, and first message", ["", LONG, SHORT, "", ""], [vec![2], vec![4, 2]]),
            ("tools, instructions and first message", [SHORT, SHORT, SHORT, "", ""], [vec![2], vec![4]]),
            // The first message, where nothing else is marked that an event leaves alone.
            ("last message", ["", "", "", SHORT, ""], [vec![0], vec![0]]),
            ("first and last message", ["", "", SHORT, SHORT, ""], [vec![], vec![]]),
            ("instructions and last message", ["", SHORT, "", SHORT, ""], [vec![], vec![]]),
            ("instructions and request", ["", SHORT, "", "", SHORT], [vec![], vec![]]),
            ("request", ["", "", "", "", SHORT], [vec![0], vec![0]]),
            ("last message, for long", ["", "", "", LONG, ""], [vec![0], vec![0]]),
            ("tools and request", [SHORT, "", "", "", SHORT], [vec![], vec![]]),
        ] {
            for dialect in ["anthropic", "openai-chat"] {
                assert_eq!(marked(dialect, marks), expected, "{dialect}, marked by the client: {name}");
            }
        }
    }

    /// A request that brings more than one step reads what an earlier one has written, and writes nothing itself: its
    /// client may send something else each time.
    #[test]
    fn a_request_with_several_new_steps_marks_only_what_was_written() {
        let one_by_one = [(3, 1), (5, 3)];
        for (name, written, then, expected) in [
            ("one step", 900, [(7, 5), (9, 7)], [vec![6, 4, 0], vec![8, 6, 0]]),
            ("two steps", 900, [(9, 5), (11, 9)], [vec![4], vec![10, 4, 0]]),
            ("twice two steps", 900, [(9, 5), (13, 9)], [vec![4], vec![4]]),
            ("a step that departs", 900, [(5, 3), (9, 3)], [vec![4, 2, 0], vec![2]]),
            ("all but the first message", 900, [(7, 1), (9, 1)], [vec![], vec![]]),
            ("one step, nothing reported", 0, [(7, 5), (9, 7)], [vec![6, 4, 0], vec![8, 6, 0]]),
            ("two steps, nothing reported", 0, [(9, 5), (11, 9)], [vec![], vec![10, 4, 0]]),
        ] {
            let mut standing: Option<Box<Standing>> = None;
            let added = one_by_one.into_iter().chain(then).map(|(count, sent)| {
                let message = |at: usize| {
                    // What goes before is long, so that little is at stake.
                    let text = format!("{at}").repeat(if at == 0 { 1_000 } else { 1 });
                    let role = ["user", "assistant"][at % 2];
                    format!(r#"{{"role":"{role}","content":[{{"type":"text","text":"{text}"}}]}}"#)
                };
                let messages: Vec<String> = (0..count).map(message).collect();
                let body = format!(r#"{{"model":"m","messages":[{}]}}"#, messages.join(","));
                let talk = protocol::named("anthropic").unwrap().index(&Bytes::from(body), &NoMemo).unwrap();
                let before = standing.take();
                let is_known = before.as_ref().is_none_or(|before| before.messages() <= sent);
                let part = PartId { message: sent as u32, part: 0 };
                let before = if is_known { before } else { before.map(|it| Box::new(it.departed(part))) };
                let past = Past { sent, standing: before, ..Past::nothing() };
                let facts = Facts { now_ms: 1_000, ttl_ms: 300_000, ..Facts::default() };
                let outcome = plan(&talk, past, &Policy::default(), &facts, &|_| String::new());
                standing = outcome.standing.clone();
                let entries = &mut standing.as_mut().unwrap().kept.entries;
                entries.told(0, if outcome.marks.parts().is_empty() { 0 } else { written });
                outcome.marks.parts().iter().map(|(part, _)| part.message).collect::<Vec<_>>()
            });
            let added: Vec<_> = added.skip(2).collect();
            assert_eq!(added, expected, "{name}");
        }
    }

    /// If a server moves all instructions to the front, each new one changes everything after them: nothing is marked,
    /// and nothing is staked.
    #[test]
    fn nothing_is_marked_if_instructions_follow_the_users_first_message() {
        const SAID: [&str; 5] = ["user", "assistant", "user", "assistant", "user"];
        let protocol = protocol::named("openai-chat").unwrap();
        for (name, late, mark, expected, is_staked) in [
            ("none", None, "", [2, 3], true),
            ("after the first", Some((1, "system")), "", [2, 3], true),
            ("after the user", Some((2, "system")), "", [0, 0], false),
            ("a developer's", Some((2, "developer")), "", [0, 0], false),
            ("at the end", Some((9, "system")), "", [0, 0], false),
            ("at the end, the first marked", Some((9, "system")), SHORT, [0, 0], false),
        ] {
            let mut standing = None;
            let added = [3, 5].map(|count| {
                let said = |role: &&str| {
                    let text = "a".repeat(1_000);
                    format!(r#"{{"role":"{role}","content":[{{"type":"text","text":"{text}"}}]}}"#)
                };
                let mut messages: Vec<String> = SAID[..count].iter().map(said).collect();
                messages.insert(
                    0,
                    format!(r#"{{"role":"system","content":[{{"type":"text","text":"s"{mark}}}]}}"#),
                );
                if let Some((at, role)) = late {
                    let late = format!(r#"{{"role":"{role}","content":[{{"type":"text","text":"now"}}]}}"#);
                    messages.insert(at.min(messages.len()), late);
                }
                let sent = count - 1 + usize::from(late.is_some_and(|(at, _)| at < count));
                let body = format!(r#"{{"model":"m","messages":[{}]}}"#, messages.join(","));
                let talk = protocol
                    .with_marks(protocol.index(&Bytes::from(body), &NoMemo).unwrap(), Carriers::Texts);
                let past = Past { sent, standing: standing.take(), ..Past::nothing() };
                let facts = Facts { now_ms: 1_000, ttl_ms: 300_000, ..Facts::default() };
                let outcome = plan(&talk, past, &Policy::default(), &facts, &|_| String::new());
                standing = outcome.standing.clone();
                outcome.marks.parts().len()
            });
            assert_eq!(added, expected, "{name}");
            let stake = standing.unwrap().kept.stake;
            assert_eq!(stake.spent == 0.0, !is_staked, "{name}: {stake:?}");
        }
    }

    /// The provider searches only a limited number of blocks before a mark for a cache entry.
    #[test]
    fn a_mark_is_added_beyond_the_lookback_of_the_clients_marks() {
        let ends = |calls: usize, middle: usize| {
            let mut standing = None;
            let mark = |at: bool| if at { SHORT } else { "" };
            let first = |is_last| {
                format!(r#"{{"role":"user","content":[{{"type":"text","text":"go"{}}}]}}"#, mark(is_last))
            };
            let called: Vec<String> = (0..calls)
                .map(|call| format!(r#"{{"type":"tool_use","id":"c{call}","name":"t","input":{{}}}}"#))
                .collect();
            let results: Vec<String> = (0..calls)
                .map(|call| {
                    let mark = mark(call + 1 == calls || call + 1 == middle);
                    format!(r#"{{"type":"tool_result","tool_use_id":"c{call}","content":"r"{mark}}}"#)
                })
                .collect();
            let step = format!(
                r#"{{"role":"assistant","content":[{}]}},{{"role":"user","content":[{}]}}"#,
                called.join(","),
                results.join(",")
            );
            let histories = [(1, first(true)), (3, format!("{},{step}", first(false)))];
            let added = histories.map(|(count, messages)| {
                let body = format!(
                    r#"{{"model":"m","system":[{{"type":"text","text":"s"{SHORT}}}],"messages":[{messages}]}}"#
                );
                let talk = protocol::named("anthropic").unwrap().index(&Bytes::from(body), &NoMemo).unwrap();
                let sent = usize::from(count > 1);
                let past = Past { sent, standing: standing.take(), ..Past::nothing() };
                let facts = Facts { now_ms: 1_000, ttl_ms: 300_000, ..Facts::default() };
                let outcome = plan(&talk, past, &Policy::default(), &facts, &|_| String::new());
                standing = outcome.standing.clone();
                outcome.marks.parts().iter().map(|(part, _)| part.message).collect::<Vec<_>>()
            });
            added[1].clone()
        };
        for (name, calls, middle, expected) in [
            ("one call", 1, 0, vec![]),
            ("as many as are reached", 9, 0, vec![]),
            ("one more", 10, 0, vec![0]),
            ("one more, the last but one marked", 10, 9, vec![]),
            ("a mark that is reached does not reach the first", 15, 5, vec![0]),
            ("a mark that is reached reaches the first", 15, 4, vec![]),
        ] {
            assert_eq!(ends(calls, middle), expected, "{name}");
        }
    }

    /// The only spare mark is placed where it reads what the previous one wrote, even if a step has many calls.
    #[test]
    fn a_single_spare_mark_reaches_the_previous_one() {
        let step = |at: usize| {
            let calls: Vec<String> = (0..12)
                .map(|call| format!(r#"{{"type":"tool_use","id":"c{at}_{call}","name":"t","input":{{}}}}"#))
                .collect();
            let results: Vec<String> = (0..12)
                .map(|call| format!(r#"{{"type":"tool_result","tool_use_id":"c{at}_{call}","content":"r"}}"#))
                .collect();
            format!(
                r#"{{"role":"assistant","content":[{}]}},{{"role":"user","content":[{}]}}"#,
                calls.join(","),
                results.join(",")
            )
        };
        // Where the gateway's marks are, besides the client's.
        for (name, system, expected) in [
            ("one is left", SHORT, [vec![(2, 11)], vec![(4, 6)], vec![(6, 1)]]),
            ("two are left", "", [vec![(2, 11)], vec![(4, 11), (2, 11)], vec![(6, 11), (4, 11)]]),
        ] {
            let mut standing = None;
            let added = [1, 2, 3].map(|steps| {
                let history: Vec<String> = (0..steps).map(step).collect();
                let long = "go ".repeat(10_000);
                let body = format!(
                    r#"{{"model":"m","tools":[{{"name":"t","input_schema":{{}}{SHORT}}}],"system":[{{"type":"text","text":"s"{system}}}],"messages":[{{"role":"user","content":[{{"type":"text","text":"{long}"{SHORT}}}]}},{}]}}"#,
                    history.join(",")
                );
                let talk = protocol::named("anthropic").unwrap().index(&Bytes::from(body), &NoMemo).unwrap();
                let past = Past { sent: 2 * steps - 1, standing: standing.take(), ..Past::nothing() };
                let facts = Facts { now_ms: 1_000, ttl_ms: 300_000, ..Facts::default() };
                let outcome = plan(&talk, past, &Policy::default(), &facts, &|_| String::new());
                standing = outcome.standing.clone();
                let mut parts: Vec<_> =
                    outcome.marks.parts().iter().map(|(id, _)| (id.message, id.part)).collect();
                parts.truncate(2);
                parts
            });
            assert_eq!(added, expected, "{name}");
        }
    }

    /// A fork of a history that an event has changed finds the part that both share.
    #[test]
    fn an_event_also_marks_the_prefix_that_forks_would_read() {
        let step = |at: usize| {
            let output = format!("{at} ").repeat(4_000);
            format!(
                r#"{{"role":"assistant","content":[{{"type":"tool_use","id":"c{at}","name":"t","input":{{}}}}]}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"c{at}","content":"{output}"}}]}}"#
            )
        };
        let said = |role: &str, mark: &str| {
            format!(r#"{{"role":"{role}","content":[{{"type":"text","text":"go on"{mark}}}]}}"#)
        };
        for (name, top, mark, also, expected) in [
            ("the client marks the last message", "", SHORT, "", vec![8]),
            ("the client marks the request", SHORT, "", "", vec![8]),
            ("the client marks that message as well", "", SHORT, SHORT, vec![]),
        ] {
            let mut standing = None;
            let added = [9, 11].map(|count| {
                let steps = [step(1), step(2), step(3)].join(",");
                let mut messages = vec![said("user", ""), steps, said("assistant", ""), said("user", also)];
                if count == 11 {
                    messages.extend([said("assistant", ""), said("user", mark)]);
                }
                let body = format!(
                    r#"{{"model":"m","system":[{{"type":"text","text":"s"{SHORT}}}],"messages":[{}]{top}}}"#,
                    messages.join(",")
                );
                let talk = protocol::named("anthropic").unwrap().index(&Bytes::from(body), &NoMemo).unwrap();
                assert_eq!(talk.messages.len(), count);
                let sent = if count == 11 { 9 } else { 0 };
                let past = Past { sent, standing: standing.take(), ..Past::nothing() };
                let facts = Facts { now_ms: 1_000, ttl_ms: 300_000, cold: count == 11, ..Facts::default() };
                let policy = crate::planner::tests::events::policy(Reason::Cold);
                let outcome = plan(&talk, past, &policy, &facts, &|_| String::new());
                standing = outcome.standing.clone();
                let added: Vec<u32> = outcome.marks.parts().iter().map(|(part, _)| part.message).collect();
                (outcome.event.is_some(), added)
            });
            assert_eq!(added[1], (true, expected), "{name}");
        }
    }

    /// Where a provider caches nothing, whatever is marked, no marks are added; nor where it caches without marks.
    #[test]
    fn marks_without_effect_are_not_added() {
        let text = "go on ".repeat(100);
        let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{text}"}}]}}"#);
        let talk = protocol::named("anthropic").unwrap().index(&Bytes::from(body), &NoMemo).unwrap();
        let half = talk.body.len() as u64 / 2;
        for (name, min_prefix_tokens, hidden_bytes, caches_without_marks, is_marked) in [
            ("no least length", 0, 0, false, true),
            ("long enough", half, 0, false, true),
            ("too short", half + 1, 0, false, false),
            ("long enough with what is held elsewhere", half + 1, 2, false, true),
            ("cached without marks", 0, 0, true, false),
        ] {
            let past = Past { sent: 1, ..Past::nothing() };
            let rates = Some(Rates { read: 0.1, write: 1.0 });
            let facts =
                Facts { rates, hidden_bytes, min_prefix_tokens, caches_without_marks, ..Facts::default() };
            let outcome = plan(&talk, past, &Policy::default(), &facts, &|_| String::new());
            assert_eq!(!outcome.marks.parts().is_empty(), is_marked, "{name}");
        }
    }

    /// A retried request is not a continuation as long as nothing of its thread was billed.
    #[test]
    fn a_thread_with_only_refusals_is_marked_like_a_new_one() {
        use crate::planner::Fate::{Billed, Refused, Unknown};
        let text = "example ".repeat(1_000);
        // A request with examples, and its continuation.
        let read = |count: usize| {
            let said = |at: usize| {
                let role = ["user", "assistant"][at % 2];
                format!(r#"{{"role":"{role}","content":[{{"type":"text","text":"{at} {text}"}}]}}"#)
            };
            let messages: Vec<String> = (0..count).map(said).collect();
            let body = format!(r#"{{"model":"m","messages":[{}]}}"#, messages.join(","));
            protocol::named("anthropic").unwrap().index(&Bytes::from(body), &NoMemo).unwrap()
        };
        for (name, requests) in [
            ("once", &[(5, Refused, false)][..]),
            ("tried again", &[(5, Refused, false), (5, Refused, false), (5, Billed, false)]),
            ("goes on", &[(5, Refused, false), (5, Billed, false), (7, Billed, true)]),
            ("refused later", &[(5, Billed, false), (7, Refused, true), (7, Billed, true)]),
            ("may have been read", &[(5, Unknown, false), (5, Billed, true)]),
            (
                "may have been read, and refused",
                &[(5, Unknown, false), (5, Refused, true), (5, Billed, true)],
            ),
        ] {
            let (mut sent, mut standing) = (0, None);
            for (request, &(count, fate, is_marked)) in requests.iter().enumerate() {
                let (talk, past) = (read(count), Past { sent, standing, ..Past::nothing() });
                let now_ms = 1_000 * (request as u64 + 1);
                let facts = Facts { now_ms, ttl_ms: 300_000, ..Facts::default() };
                let outcome = plan(&talk, past, &Policy::default(), &facts, &|_| String::new());
                assert_eq!(!outcome.marks.parts().is_empty(), is_marked, "{name}, {request}");
                standing = outcome.standing;
                standing.as_mut().unwrap().ended(fate);
                sent = count;
            }
        }
    }
}
