//! The cache mark after the frame, and the split of instructions into two texts, at the point up to which they are the
//! same in every conversation. The first, stable text then carries the mark.
//!
//! The split is decided with the first request of a conversation or never, stored under its first message, and applied
//! for as long as the instructions begin the same way. The model reads the same text as without it.

use std::sync::Arc;

use crate::conversation::{Conversation, Digest, Hold, Marks, PartId};
use crate::plan::Op;
use crate::strategy::system::Access;

use super::decision::{Applied, Cause, Decision};
use super::{Facts, Outcome, Past, Policy, Stable};

/// Part numbers from here on stand for parts of the frame, not of a message.
const FRAME_PARTS: u32 = 1 << 31;

/// Applies a stored split, or decides about one. A split that no longer fits is not applied.
pub(super) fn place(conversation: &Conversation, past: &Past<'_>, policy: &Policy, outcome: &mut Outcome) {
    if !outcome.applied.iter().any(|applied| applied.decision.is_split()) {
        decide(conversation, past, policy, outcome);
    }
    let known = outcome.applied.iter().filter(|applied| applied.decision.is_split());
    let fit = known.filter(|applied| fits(conversation, &applied.decision));
    outcome.split = fit.min_by_key(|applied| applied.part).map(|applied| Arc::clone(&applied.decision));
}

/// Whether the instructions still begin as they did.
fn fits(conversation: &Conversation, decision: &Decision) -> bool {
    let text = conversation.instructions();
    let halves = text.as_deref().and_then(|text| text.split_at_checked(decision.bytes_before as usize));
    halves.is_some_and(|(first, rest)| {
        !rest.trim().is_empty() && Digest::of(&[first.as_bytes()]) == decision.content
    })
}

/// Splits the instructions of a new conversation, if it is known where and the client sets no marks.
fn decide(conversation: &Conversation, past: &Past<'_>, policy: &Policy, outcome: &mut Outcome) {
    let is_unmarked = conversation.marks.as_ref().is_some_and(|marks| marks.free() == Marks::MOST);
    let is_wanted = policy.marks.split && policy.marks.marks;
    if !is_wanted || !is_unmarked || conversation.continues.is_some() || past.sent > 0 {
        return;
    }
    let Some(stable) = past.stable.and_then(|stable| stable.bytes) else { return };
    let text = conversation.instructions();
    let Some(first) = text.as_deref().and_then(|text| text.get(..stable as usize)) else { return };
    let content = Digest::of(&[first.as_bytes()]);
    let [a, b, c, d, ..] = content.0;
    let decision = Decision {
        cause: Cause::Split,
        leaves: Vec::new(),
        content,
        key: None,
        bytes_before: u64::from(stable),
        bytes_after: u64::from(stable),
        output: None,
    };
    // The number depends on the text, so that conversations with the same first message have separate decisions.
    let part = PartId { message: 0, part: FRAME_PARTS | u32::from_le_bytes([a, b, c, d]) };
    if fits(conversation, &decision) {
        outcome.applied.push(Applied { part, decision: decision.into() });
        outcome.fresh += 1;
    }
}

/// Sets the mark after the frame or between the two texts, if a mark is free and what precedes it is read from the
/// cache, or written anyway, or likely to be read soon.
pub(super) fn mark(
    conversation: &Conversation,
    sent: usize,
    stable: Option<Stable>,
    facts: &Facts,
    outcome: &mut Outcome,
) {
    let Some(marks) = &conversation.marks else { return };
    // If the instructions are split, the mark goes between the two texts or nowhere. Otherwise the frame must be stable
    // as a whole, since an unstable one was sent unsplit before. To carry a mark, a text becomes a list, which may
    // count as a changed prefix if reasoning is bound to it.
    let may_change = conversation.system.is_none() || facts.bound.is_none();
    let is_same = stable.is_some_and(|stable| stable.bytes.is_none());
    let is_whole = || is_same && may_change && conversation.frame_end.is_some();
    let has_place = outcome.split.is_some() || is_whole();
    let is_worth_it = match stable.and_then(|stable| stable.mark) {
        Some(Access::Read) => true,
        Some(Access::Write) if sent == 0 => true,
        _ => sent > 0 && !outcome.marks.parts().is_empty(),
    };
    let is_free = marks.free() > outcome.marks.parts().len();
    if has_place && is_worth_it && is_free {
        // Marks with the long time to live must come first: tools before this one, messages after it.
        let behind = marks.parts.iter().chain(outcome.marks.parts()).map(|(_, hold)| *hold);
        let hold = behind.chain(marks.end).max().unwrap_or_default();
        outcome.marks.frame = (hold == Hold::Short || !marks.frame_short).then_some(hold);
    }
}

/// The operation on the frame: a split, a mark or both.
pub(super) fn operation(decision: Option<&Decision>, mark: Option<Hold>) -> Option<Op> {
    let bytes = |decision: &Decision| u32::try_from(decision.bytes_before).unwrap_or(u32::MAX);
    match decision {
        Some(decision) => Some(Op::Split { bytes: bytes(decision), mark }),
        None => mark.map(|hold| Op::MarkFrame { hold }),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::conversation::NoMemo;
    use crate::plan::{self, Plan};
    use crate::protocol;
    use crate::usage::Binding;

    const SHORT: &str = r#","cache_control":{"type":"ephemeral"}"#;
    const LONG: &str = r#","cache_control":{"type":"ephemeral","ttl":"1h"}"#;

    /// The mark lies between those of the tools and those of the messages: no long-lived mark may follow a short-lived
    /// one.
    #[test]
    fn the_mark_of_instructions_lasts_as_long_as_later_marks() {
        for (tools, message, automatic, expected) in [
            ("", "", "", Some(Hold::Short)),
            ("", SHORT, "", Some(Hold::Short)),
            ("", LONG, "", Some(Hold::Long)),
            ("", "", SHORT, Some(Hold::Short)),
            ("", "", LONG, Some(Hold::Long)),
            (SHORT, "", "", Some(Hold::Short)),
            (SHORT, SHORT, SHORT, Some(Hold::Short)),
            (SHORT, LONG, "", None),
            (SHORT, "", LONG, None),
            (LONG, "", "", Some(Hold::Short)),
            (LONG, SHORT, "", Some(Hold::Short)),
            (LONG, LONG, SHORT, Some(Hold::Long)),
        ] {
            let body = format!(
                r#"{{"tools":[{{"name":"t"{tools}}}],"system":"same other","messages":[{{"role":"user","content":[{{"type":"text","text":"a"{message}}}]}}]{automatic}}}"#
            );
            let talk =
                protocol::named("anthropic").unwrap().index(&Bytes::from(body.clone()), &NoMemo).unwrap();
            let mut outcome = Outcome::default();
            decide_at(5, &talk, &mut outcome);
            let stable = Some(Stable { bytes: Some(5), mark: Some(Access::Read) });
            mark(&talk, 1, stable, &Facts::default(), &mut outcome);
            assert_eq!(outcome.marks.frame, expected, "{body}");
            for mark in [None, Some(Hold::Short), Some(Hold::Long)] {
                let op = Op::Split { bytes: 5, mark };
                let is_fine = plan::check(&talk, &Plan { ops: vec![op] }).is_ok();
                let is_short_again =
                    mark == Some(Hold::Long) && expected == Some(Hold::Short) && !tools.contains(SHORT);
                assert_eq!(is_fine, mark.is_none() || mark == expected || is_short_again, "{body} {mark:?}");
            }
        }
    }

    /// A model whose reasoning is bound to its prefix may bind it to the form of a text, too.
    #[test]
    fn a_plain_text_is_not_made_a_marked_block_if_reasoning_is_bound() {
        for (system, bound, expected) in [
            (r#""same""#, None, Some(Hold::Short)),
            (r#""same""#, Some(Binding::Dropped), None),
            (r#""same""#, Some(Binding::Refused), None),
            (r#"[{"type":"text","text":"same"}]"#, Some(Binding::Refused), Some(Hold::Short)),
        ] {
            let body = format!(r#"{{"system":{system},"messages":[{{"role":"user","content":"a"}}]}}"#);
            let talk = protocol::named("anthropic").unwrap().index(&Bytes::from(body), &NoMemo).unwrap();
            let (mut outcome, facts) = (Outcome::default(), Facts { bound, ..Facts::default() });
            let stable = Some(Stable { bytes: None, mark: Some(Access::Read) });
            mark(&talk, 0, stable, &facts, &mut outcome);
            assert_eq!(outcome.marks.frame, expected, "{system} {bound:?}");
        }
    }

    fn decide_at(bytes: u32, conversation: &Conversation, outcome: &mut Outcome) {
        let past =
            Past { stable: Some(Stable { bytes: Some(bytes), mark: Some(Access::Read) }), ..Past::nothing() };
        let mut unmarked = conversation.clone();
        unmarked.marks = Some(Marks::default());
        place(&unmarked, &past, &Policy::default(), outcome);
    }
}
