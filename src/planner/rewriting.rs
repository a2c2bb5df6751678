//! The cost of a cut: an estimate of how many bytes the provider has to write to its cache again.
//!
//! A provider caches no prefix below a minimum size. If a cut leaves less than that before it, the whole prompt is
//! written again; if it leaves less in total, the whole prompt is paid in full with every later request. If cache
//! entries depend on whether the prompt has images, all messages are written again after the last image is removed.

use std::collections::HashSet;

use crate::conversation::PartKind;
use crate::strategy::gate::Candidate;

use super::PartId;
use super::decision::{Decision, parts};
use super::event::{Before, Change};

/// The part before all others.
const FIRST_PART: PartId = PartId { message: 0, part: 0 };

impl Before<'_> {
    /// The first item that the provider writes again after a cut before `item`; `None` if it writes the whole prompt.
    fn fallback(&self, item: usize) -> Option<usize> {
        if self.conversation.marks.is_none() {
            return Some(item);
        }
        let items = self.history().items();
        let first_behind = |part: PartId| items.partition_point(|item| item.part <= part);
        if self.anchored
            && let Some(entry) = self.standing.kept.entries.before(items[item].part, self.facts.clock())
        {
            return Some(first_behind(entry));
        }
        // Marked instructions among the messages are cached like those before them.
        let leading = self.conversation.leading_mark();
        self.keeps_frame.then(|| leading.map_or(0, first_behind).min(items.len() - 1))
    }

    /// How many of the bytes that were sent before the provider writes again after a cut before `item`. It reads what
    /// is in front only if that is long enough to be cached. `tails` is as returned by [`Self::tails`].
    pub(super) fn written_again(&self, item: usize, tails: &[u64]) -> u64 {
        let whole = tails[0] + self.conversation.frame_bytes() as u64 + self.facts.hidden_bytes;
        let behind = self.fallback(item).map(|item| tails[item]);
        behind.filter(|behind| whole - behind >= self.least_bytes()).unwrap_or(whole)
    }

    /// The same for an event that clears all candidates from `item` on. If it clears the item at `images` too, no image
    /// remains: see [`Self::images_among`].
    pub(super) fn written_by(&self, item: usize, images: Option<usize>, tails: &[u64]) -> u64 {
        self.written_again(if images.is_some_and(|first| item <= first) { 0 } else { item }, tails)
    }

    /// The place of the first image that cache entries depend on, if all such images are among the candidates.
    pub(super) fn images_among(&self, candidates: &[Candidate]) -> Option<usize> {
        let may_go: HashSet<usize> = candidates.iter().map(|candidate| candidate.item).collect();
        let place = |image: &PartId| self.history().place(*image).filter(|at| may_go.contains(at));
        let images = self.images();
        let places: Option<Vec<usize>> = images.iter().map(place).collect();
        places.filter(|_| self.any_was_sent(&images))?.into_iter().min()
    }

    /// Whether none of the images that cache entries depend on is left after the parts are removed for which `goes`
    /// holds.
    pub(super) fn takes_images(&self, goes: impl Fn(PartId) -> bool) -> bool {
        let images = self.images();
        self.any_was_sent(&images) && images.into_iter().all(goes)
    }

    /// Whether any of these images, in order, was sent before.
    fn any_was_sent(&self, images: &[PartId]) -> bool {
        images.first().is_some_and(|first| (first.message as usize) < self.sent)
    }

    /// The parts with images that would be sent, in messages whose cache entries depend on images. Documents in such
    /// messages count as images.
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
            let cleared = parts(self.applied, Decision::is_clearing);
            images.retain(|image| !cleared.contains(image));
        }
        images
    }

    /// The first part that can no longer be read from the provider's cache after a change. What must be written again
    /// because of that is added to the record of the change.
    pub(super) fn uncached_from(&self, change: &mut Change) -> PartId {
        let cleared = parts(&change.decided, Decision::is_clearing);
        let splice = change.splice.as_ref();
        let is_dropped = |image: PartId| splice.is_some_and(|splice| splice.drops(image.message as usize));
        if !self.takes_images(|image| cleared.contains(&image) || is_dropped(image)) {
            return change.first();
        }
        let written = self.rewritten_from(FIRST_PART).saturating_sub(change.freed_bytes);
        change.rewritten_bytes = change.rewritten_bytes.max(written);
        FIRST_PART
    }

    /// A predicate for the bytes by which the prompt may be shortened: it is still long enough to be cached, or else
    /// costs no more in full than it costs now.
    pub(super) fn stays_cached(&self) -> impl Fn(u64) -> bool {
        let late = self.conversation.late_bytes() as u64;
        let whole = (self.sent_bytes() + self.facts.hidden_bytes).saturating_sub(late);
        let (least, read) = (self.least_bytes(), self.rates.read * whole as f64);
        move |freed| {
            let left = whole.saturating_sub(freed);
            left >= least || left as f64 <= read
        }
    }

    /// The candidates that may be cleared: all of them or, if the prompt would then be too short to be cached and is
    /// not now, as many as leave it long enough.
    pub(super) fn within_cache(&self, candidates: &[Candidate]) -> Vec<Candidate> {
        let all = candidates.iter().map(|candidate| u64::from(candidate.frees)).sum();
        let stays_cached = self.stays_cached();
        if stays_cached(all) || !stays_cached(0) {
            return candidates.to_vec();
        }
        let (mut chosen, mut freed) = (Vec::new(), 0);
        for candidate in candidates {
            let with = freed + u64::from(candidate.frees);
            if stays_cached(with) {
                freed = with;
                chosen.push(*candidate);
            }
        }
        chosen
    }

    /// The fewest bytes of a prefix that the provider caches.
    fn least_bytes(&self) -> u64 {
        (self.facts.min_prefix_tokens as f64 * self.facts.bytes_per_token) as u64
    }

    /// How many of the bytes that were sent before the provider writes again if this part changes.
    pub(super) fn rewritten_from(&self, part: PartId) -> u64 {
        let changed = self.history().items().partition_point(|item| item.part < part);
        let tails = self.tails();
        if changed < tails.len() { self.written_again(changed, tails) } else { 0 }
    }

    /// For each item, the bytes from its start to the end of what was sent before, as they were sent.
    pub(super) fn tails(&self) -> &[u64] {
        self.derived.tails.get_or_init(|| self.tails_without(&self.cleared()))
    }

    /// The same if exactly the items were cleared for which `gone` holds.
    pub(super) fn tails_without(&self, gone: &dyn Fn(usize) -> bool) -> Vec<u64> {
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
    /// of plain input, where no prefix below the minimum is cached. For an event after a pause, there is a pause before
    /// every fourth request.
    fn bills(reason: Reason, facts: &Facts) -> (f64, f64) {
        let policy = policy(reason);
        let (mut thread, mut so_far) = (Thread::default(), words("u"));
        let mut paid = [0.0, 0.0];
        let mut before = [String::new(), String::new()];
        for request in 0..40 {
            let talk = talk(&so_far);
            let cold = reason == Reason::Cold && request % 4 == 3;
            let outcome = thread.send(&talk, &policy, &Facts { cold, ..*facts }, true);
            let sent = protocol::apply_verified(chat(), &talk, &outcome.plan, &NoMemo).unwrap().body;
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

    /// Instructions after the messages are not part of the prefix that the provider can cache.
    #[test]
    fn late_instructions_do_not_count_as_a_cached_prefix() {
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
    fn events_stay_within_the_loss_limit_for_any_cache_minimum() {
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
