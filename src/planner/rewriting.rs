//! The cost of a cut: how much the provider has to write to its cache again.
//!
//! An estimate, in bytes. A provider caches no prefix below a minimum size. A cut that leaves less than that in front
//! of it has the whole prompt paid anew; one that leaves less in total has it paid anew each time. If cache entries
//! depend on whether there are images, removing the last image has all messages written again.

use std::collections::HashSet;

use crate::conversation::PartKind;
use crate::strategy::gate::Candidate;

use super::PartId;
use super::event::{Before, Change};

/// The part before all others.
const FIRST: PartId = PartId { message: 0, part: 0 };

impl Before<'_> {
    /// The first item that the provider writes again after a cut before `item`; `None`: it writes the whole prompt.
    fn fallback(&self, item: usize) -> Option<usize> {
        if self.conversation.marks.is_none() {
            return Some(item);
        }
        let items = self.history().items();
        let (now, ttl) = (self.facts.now_ms, self.facts.ttl_ms);
        let entry = self.standing.kept.entries().before(items[item].part, now, ttl).filter(|_| self.anchored);
        let kept = entry.map(|entry| items.partition_point(|item| item.part <= entry));
        // Marked instructions among the messages are cached like those before them.
        let framed = || {
            let leading = self.conversation.leading_mark();
            let behind = leading.map_or(0, |mark| items.partition_point(|item| item.part <= mark));
            behind.min(items.len() - 1)
        };
        kept.or_else(|| self.keeps_frame.then(framed))
    }

    /// Bytes sent before that the provider writes again after a cut before `item`: what stands in front is read only
    /// if it is long enough to be cached.
    pub(super) fn written_again(&self, item: usize, tails: &[u64]) -> u64 {
        let whole = tails[0] + self.conversation.frame_bytes() as u64 + self.facts.hidden_bytes;
        let behind = self.fallback(item).map(|item| tails[item]);
        behind.filter(|behind| whole - behind >= self.least_bytes()).unwrap_or(whole)
    }

    /// The same after a cut that removes everything removable from `item` on. A cut at or before `images` removes the
    /// last image.
    pub(super) fn written_by(&self, item: usize, images: Option<usize>, tails: &[u64]) -> u64 {
        self.written_again(if images.is_some_and(|first| item <= first) { 0 } else { item }, tails)
    }

    /// The place of the first image that cache entries depend on, if all such images may be removed.
    pub(super) fn images_among(&self, candidates: &[Candidate]) -> Option<usize> {
        let may_go: HashSet<usize> = candidates.iter().map(|candidate| candidate.item).collect();
        let place = |image: &PartId| self.history().place(*image).filter(|at| may_go.contains(at));
        let images = self.images();
        let places: Option<Vec<usize>> = images.iter().map(place).collect();
        places.filter(|_| self.are_read(&images))?.into_iter().min()
    }

    /// Whether removing these parts leaves none of the images that cache entries depend on.
    pub(super) fn takes_images(&self, goes: impl Fn(PartId) -> bool) -> bool {
        let images = self.images();
        self.are_read(&images) && images.into_iter().all(goes)
    }

    /// Whether any of these images was sent before.
    fn are_read(&self, images: &[PartId]) -> bool {
        images.first().is_some_and(|first| (first.message as usize) < self.sent)
    }

    /// The parts with images among those that would be sent, in messages whose cache entries depend on images. A
    /// document beside an image counts as one.
    fn images(&self) -> Vec<PartId> {
        let is_sent = |at: &usize| !self.splice.is_some_and(|splice| splice.drops(*at));
        let messages = &self.conversation.messages;
        let shown = (0..messages.len()).filter(|at| messages[*at].index.shows.images && is_sent(at));
        let mut images: Vec<PartId> = shown
            .flat_map(|at| self.conversation.parts_of(at))
            .filter(|(_, part)| part.kind() == PartKind::Media || part.beside_texts().next().is_some())
            .map(|(id, _)| id)
            .collect();
        if !images.is_empty() {
            let cleared = self.applied.iter().filter(|applied| applied.decision.is_clearing());
            let cleared: HashSet<PartId> = cleared.map(|applied| applied.part).collect();
            images.retain(|image| !cleared.contains(image));
        }
        images
    }

    /// The part from which on nothing can be read from the provider's cache after a change. What must be written
    /// again because of that is added to the change's record.
    pub(super) fn read_until(&self, change: &mut Change) -> PartId {
        let cleared = change.decided.iter().filter(|applied| applied.decision.is_clearing());
        let cleared: HashSet<PartId> = cleared.map(|applied| applied.part).collect();
        let splice = change.splice.as_ref();
        let is_dropped = |image: PartId| splice.is_some_and(|splice| splice.drops(image.message as usize));
        if !self.takes_images(|image| cleared.contains(&image) || is_dropped(image)) {
            return change.first();
        }
        let event = &mut change.event;
        let written = self.rewritten_from(FIRST).saturating_sub(event.freed_bytes);
        event.rewritten_bytes = event.rewritten_bytes.max(written);
        FIRST
    }

    /// Tells whether a prompt shortened by so many bytes is still long enough to be cached, or else costs no more in
    /// full than it costs now.
    pub(super) fn stays_cached(&self) -> impl Fn(u64) -> bool {
        let late = self.conversation.late_bytes() as u64;
        let whole = (self.sent_bytes() + self.facts.hidden_bytes).saturating_sub(late);
        let (least, read) = (self.least_bytes(), self.rates.read * whole as f64);
        move |freed| {
            let left = whole.saturating_sub(freed);
            left >= least || left as f64 <= read
        }
    }

    /// The results that may be cleared: all of them, or as many as leave the prompt long enough to be cached, if it
    /// is now.
    pub(super) fn within_cache(&self, candidates: &[Candidate]) -> Vec<Candidate> {
        let all = candidates.iter().map(|candidate| u64::from(candidate.frees)).sum();
        let stays_cached = self.stays_cached();
        let is_enough = stays_cached(all) || !stays_cached(0);
        let mut freed = 0;
        let goes = |candidate: &&Candidate| {
            let with = freed + u64::from(candidate.frees);
            let goes = is_enough || stays_cached(with);
            freed = if goes { with } else { freed };
            goes
        };
        candidates.iter().filter(goes).copied().collect()
    }

    fn least_bytes(&self) -> u64 {
        (self.facts.min_prefix_tokens as f64 * self.facts.bytes_per_token) as u64
    }

    /// Bytes sent before that the provider writes again when this part changes.
    pub(super) fn rewritten_from(&self, part: PartId) -> u64 {
        let changed = self.history().items().partition_point(|item| item.part < part);
        let tails = self.tails(&self.cleared());
        if changed < tails.len() { self.written_again(changed, &tails) } else { 0 }
    }

    /// For each item, the bytes from its start to the end of what was sent before, as they were sent.
    pub(super) fn tails(&self, gone: &dyn Fn(usize) -> bool) -> Vec<u64> {
        let items = self.history().items();
        let (mut tails, mut sum) = (vec![0; items.len()], 0_u64);
        for (at, item) in items.iter().enumerate().rev() {
            let is_old = (item.part.message as usize) < self.sent;
            if is_old {
                let bytes = if gone(at) { item.bytes_gone() } else { item.bytes };
                sum += u64::from(bytes);
            }
            tails[at] = sum;
        }
        tails
    }
}

#[cfg(test)]
mod tests {
    use super::super::Facts;
    use super::super::tests::events::{Thread, policy, talk, words};
    use crate::conversation::NoMemo;
    use crate::protocol::{self, Protocol};
    use crate::strategy::gate::{Rates, Reason};

    fn chat() -> &'static dyn Protocol {
        protocol::named("openai-chat").expect("it is one of them")
    }

    /// What a thread of results of a thousand bytes costs, in which all may go, and what it costs untouched, in bytes
    /// of plain input, where no beginning is kept that is shorter than the least. For an event upon a pause there is
    /// one before each fourth request.
    fn bills(reason: Reason, facts: &Facts) -> (f64, f64) {
        let policy = policy(reason);
        let (mut thread, mut so_far) = (Thread::default(), words("u"));
        let mut paid = [0.0, 0.0];
        let mut before = [String::new(), String::new()];
        for request in 0..40 {
            let talk = talk(&so_far);
            let cold = reason == Reason::Cold && request % 4 == 3;
            let outcome = thread.send(&talk, &policy, &Facts { cold, ..*facts }, true);
            let sent = protocol::rewritten(chat(), &talk, &outcome.plan, &NoMemo).unwrap().body;
            for (at, body) in [&talk.body, &sent].into_iter().enumerate() {
                let body = String::from_utf8(body.to_vec()).unwrap();
                let same = body.bytes().zip(before[at].bytes()).take_while(|(a, b)| a == b).count();
                let kept = if !cold && same as u64 >= facts.min_prefix_tokens * 4 { same } else { 0 };
                paid[at] += (body.len() - kept) as f64 + 0.1 * kept as f64;
                before[at] = body;
            }
            so_far.push("1000".to_owned());
        }
        (paid[1], paid[0])
    }

    /// Instructions behind the messages are no beginning that the provider could keep.
    #[test]
    fn late_instructions_are_nothing_to_fall_back_to() {
        let facts = Facts { cold: true, min_prefix_tokens: 1024, ..Facts::default() };
        let rewritten = |model: &str| {
            let talk = |results: usize| {
                let result = |at: usize| {
                    let text = format!("{at} ").repeat(3000);
                    format!(
                        r#"{{"type":"function_call","call_id":"{at}","name":"run","arguments":"{{}}"}},{{"type":"function_call_output","call_id":"{at}","output":"{text}"}}"#
                    )
                };
                let results: Vec<String> = (0..results).map(result).collect();
                let (instructions, results) = ("be brief ".repeat(1000), results.join(","));
                let body = format!(
                    r#"{{"model":"{model}","instructions":"{instructions}","input":[{{"role":"user","content":"go"}},{results}]}}"#
                );
                protocol::named("openai-responses").unwrap().index(&body.into(), &NoMemo).unwrap()
            };
            let (mut thread, policy) = (Thread::default(), policy(Reason::Cold));
            thread.send(&talk(2), &policy, &facts, true);
            thread.send(&talk(3), &policy, &facts, true).event.expect("two results are old").rewritten_bytes
        };
        let (before, behind) = (rewritten("gpt-6.1"), rewritten("gpt-6.2"));
        assert!((before + 1..before + 500).contains(&behind), "{before} {behind}");
    }

    #[test]
    fn short_beginnings_are_not_kept() {
        let rates = Some(Rates { read: 0.1, write: 1.0 });
        for min_prefix_tokens in [0, 256, 1024, 2048, 4096, 6000, 8192] {
            for reason in [Reason::BreakEven, Reason::Cold] {
                let facts = Facts { min_prefix_tokens, rates, bytes_per_token: 4.0, ..Facts::default() };
                let (sent, direct) = bills(reason, &facts);
                assert!(sent <= 1.1 * direct, "{reason:?} {min_prefix_tokens}: {sent} {direct}");
            }
        }
    }
}
