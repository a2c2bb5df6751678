//! The opening: text that is added below the user's first words.
//!
//! Like the form of a newborn result, it is decided with the first request, and sent with every later one.

use std::sync::Arc;

use crate::conversation::{Conversation, Digest, PartId, Role};
use crate::plan::{LeafEdit, Op};

use super::decision::{Applied, Cause, Decision};
use super::splice::last_text;

/// Whether the user says anything before the first answer, so that an opening can be added below it.
pub fn has_place(conversation: &Conversation) -> bool {
    place(conversation).is_some()
}

/// The user's last text before the first answer, even if both are an example.
fn place(conversation: &Conversation) -> Option<(PartId, u32)> {
    let messages = conversation.messages.iter();
    last_text(conversation, messages.take_while(|message| message.index.role != Role::Assistant).count())
}

/// The decision to add `text` as the opening of a conversation; `None` if the provider holds the beginning of the
/// conversation, or there is no place for the text.
pub(super) fn decide(conversation: &Conversation, text: &str) -> Option<Applied> {
    if conversation.continues.is_some() || text.trim().is_empty() {
        return None;
    }
    let (part, leaf) = place(conversation)?;
    let words = conversation.text(part, leaf as usize)?;
    let text = format!("\n\n{text}");
    let decision = Decision {
        cause: Cause::Opened,
        content: Digest::of(&[words.as_bytes()]),
        key: None,
        bytes_before: 0,
        bytes_after: text.len() as u64,
        output: None,
        leaves: vec![(leaf, LeafEdit::Replace(text.into()))],
    };
    Some(Applied { part, decision: decision.into() })
}

/// Whether the user's words that the text was added to are still the same.
pub(super) fn fits(conversation: &Conversation, applied: &Applied) -> bool {
    let words = of(&applied.decision).and_then(|(leaf, _)| conversation.text(applied.part, leaf as usize));
    words.is_some_and(|words| Digest::of(&[words.as_bytes()]) == applied.decision.content)
}

/// The leaf below which a decision adds an opening, and the text; `None` for any other decision.
pub(super) fn of(decision: &Decision) -> Option<(u32, Arc<str>)> {
    match decision.leaves.first() {
        Some((leaf, LeafEdit::Replace(text))) if decision.is_opening() => Some((*leaf, Arc::clone(text))),
        _ => None,
    }
}

/// Merges operations that append to the same text, in order: a summary may be appended there too.
pub(super) fn join(ops: &mut Vec<Op>) {
    let at = |op: &Op| if let Op::Append { part, leaf, .. } = op { Some((*part, *leaf)) } else { None };
    let Some(first) = ops.iter().position(|op| at(op).is_some()) else { return };
    let Some(second) = ops[first + 1..].iter().position(|op| at(op) == at(&ops[first])) else { return };
    let Op::Append { text: more, .. } = ops.remove(first + 1 + second) else { return };
    if let Op::Append { text, .. } = &mut ops[first] {
        *text = format!("{text}{more}").into();
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::conversation::NoMemo;
    use crate::planner::{Facts, Outcome, Past, Policy, plan};
    use crate::protocol;

    fn talk(messages: &str) -> Conversation {
        let body = format!(r#"{{"model":"m","max_tokens":9,"messages":[{messages}]}}"#);
        protocol::named("anthropic").unwrap().index(&Bytes::from(body), &NoMemo).unwrap()
    }

    fn planned(conversation: &Conversation, sent: usize, applied: &[Applied], text: Option<&str>) -> Outcome {
        let past = Past { sent, applied, opening: text, ..Past::nothing() };
        let mut policy = Policy::default();
        policy.marks.marks = false;
        plan(conversation, past, &policy, &Facts::default(), &|_| String::new())
    }

    fn sent(conversation: &Conversation, outcome: &Outcome) -> String {
        let protocol = protocol::named("anthropic").unwrap();
        let sent = protocol::apply_verified(protocol, conversation, &outcome.plan, &NoMemo).unwrap().body;
        String::from_utf8(sent.to_vec()).unwrap()
    }

    const ASKS: &str =
        r#"{"role":"user","content":[{"type":"text","text":"be brief"},{"type":"text","text":"go on"}]}"#;
    const SAYS: &str = r#"{"role":"assistant","content":"yes"},{"role":"user","content":"and now"}"#;

    #[test]
    fn an_opening_text_follows_the_first_user_text_and_is_kept() {
        let first = talk(ASKS);
        let outcome = planned(&first, 0, &[], Some("STATE"));
        assert_eq!((outcome.fresh, outcome.applied.len()), (1, 1));
        let begins = sent(&first, &outcome);
        assert!(begins.contains(r#""text":"go on\n\nSTATE""#), "{begins}");
        // The decision stays, whatever text is asked for later.
        let later = talk(&format!("{ASKS},{SAYS}"));
        for text in [None, Some("OTHER")] {
            let outcome = planned(&later, 1, &outcome.applied, text);
            assert_eq!(outcome.fresh, 0);
            let whole = sent(&later, &outcome);
            assert!(whole.starts_with(begins.trim_end_matches("]}")), "{whole}");
        }
        let changed = talk(&ASKS.replace("go on", "stop"));
        assert!(planned(&changed, 1, &outcome.applied, None).plan.is_empty());
    }

    #[test]
    fn an_opening_text_needs_a_user_text_to_follow() {
        let image = r#"{"role":"user","content":[{"type":"image","source":{"type":"url","url":"u"}}]}"#;
        let begun = r#"{"role":"assistant","content":"{"}"#;
        for (messages, below) in [
            (ASKS.to_owned(), Some("go on")),
            (format!("{ASKS},{begun}"), Some("go on")),
            // The conversation begins with examples.
            (format!("{ASKS},{SAYS}"), Some("go on")),
            (image.to_owned(), None),
            (format!("{image},{SAYS}"), None),
            (format!("{begun},{ASKS}"), None),
        ] {
            let conversation = talk(&messages);
            let outcome = planned(&conversation, 0, &[], Some("STATE"));
            assert_eq!((outcome.fresh == 1, has_place(&conversation)), (below.is_some(), below.is_some()));
            let whole = sent(&conversation, &outcome);
            let found = below.is_none_or(|below| whole.contains(&format!(r"{below}\n\nSTATE")));
            assert!(found && whole.matches("STATE").count() == outcome.fresh, "{whole}");
        }
        assert!(planned(&talk(ASKS), 0, &[], Some(" ")).plan.is_empty());
        assert!(planned(&talk(ASKS), 0, &[], None).plan.is_empty());
    }

    #[test]
    fn texts_appended_to_one_part_are_joined() {
        let part = crate::conversation::PartId { message: 0, part: 1 };
        let say = |text: &str| Op::Append { part, leaf: 0, text: text.into() };
        let mut ops = vec![say("a"), Op::Omit { part }, say("b")];
        join(&mut ops);
        assert_eq!(ops, [say("ab"), Op::Omit { part }]);
    }
}
