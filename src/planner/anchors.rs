//! Where a request is marked for the provider's cache.

use crate::conversation::{Conversation, PartId};
use crate::strategy::marks::{self, Chosen};

use super::{Facts, Outcome, Policy, Standing};

/// The cache marks to add: where a client sets none in the history, the end of the prompt and of the one before; and an
/// anchor in front of the cut that was made, or is to be expected.
pub(super) fn place(
    conversation: &Conversation,
    policy: &Policy,
    facts: &Facts,
    is_marked: bool,
    cut: Option<PartId>,
    outcome: &Outcome,
    standing: &Standing,
) -> Chosen {
    let mut chosen = Chosen::default();
    let gone = |message: usize| outcome.drops(message);
    let entries = standing.entries();
    if !is_marked && policy.marks.marks {
        let end =
            conversation.messages.len().checked_sub(1).and_then(|last| marks::end_of(conversation, last));
        chosen.add(conversation, end, &gone);
        let last = end.and_then(|end| entries.before(end, facts.now_ms, facts.lasts_ms));
        chosen.add(conversation, last, &gone);
    }
    if let Some(cut) = cut.filter(|_| policy.marks.anchors && (is_marked || policy.marks.marks)) {
        let entry = entries.before(cut, facts.now_ms, facts.lasts_ms);
        let fresh = PartId { message: cut.message, part: cut.part.wrapping_sub(1) };
        let before = if cut.part > 0 {
            Some(fresh)
        } else {
            (cut.message as usize).checked_sub(1).and_then(|message| marks::end_of(conversation, message))
        };
        // An event can only fall back to an entry that is there.
        chosen.add(conversation, if outcome.event.is_some() { entry } else { before }, &gone);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::conversation::NoMemo;
    use crate::planner::{Past, plan};
    use crate::protocol;

    const SHORT: &str = r#","cache_control":{"type":"ephemeral"}"#;
    const LONG: &str = r#","cache_control":{"type":"ephemeral","ttl":"1h"}"#;

    /// The messages that are marked by the gateway in the second request of a conversation and in the third.
    fn marked(tools: &str, system: &str, turn: &str, top: &str) -> [Vec<u32>; 2] {
        let mut standing = None;
        [3, 5].map(|count| {
            let message = |at: usize| {
                let role = ["user", "assistant"][at % 2];
                let mark = if at + 1 == count { turn } else { "" };
                format!(r#"{{"role":"{role}","content":[{{"type":"text","text":"{at}"{mark}}}]}}"#)
            };
            let messages: Vec<String> = (0..count).map(message).collect();
            let body = format!(
                r#"{{"model":"m","tools":[{{"name":"t","input_schema":{{}}{tools}}}],"system":[{{"type":"text","text":"s"{system}}}],"messages":[{}]{top}}}"#,
                messages.join(",")
            );
            let talk = protocol::named("anthropic").unwrap().index(&Bytes::from(body), &NoMemo).unwrap();
            let past = Past { sent: count - 2, standing: standing.take(), ..Past::nothing() };
            let facts = Facts { now_ms: 1_000, lasts_ms: 300_000, ..Facts::default() };
            let outcome = plan(&talk, past, &Policy::default(), &facts, &|_| String::new());
            standing = Some(outcome.standing.clone());
            outcome.marks.parts().iter().map(|(part, _)| part.message).collect()
        })
    }

    /// A client that marks its instructions alone has its history read as if it were new, time and again.
    #[test]
    fn histories_are_marked_where_clients_do_not() {
        let added = [vec![2], vec![4, 2]];
        for (tools, system, turn, top, expected) in [
            ("", "", "", "", added.clone()),
            ("", SHORT, "", "", added.clone()),
            ("", LONG, "", "", added.clone()),
            (SHORT, SHORT, "", "", added),
            ("", "", SHORT, "", [vec![], vec![]]),
            ("", SHORT, SHORT, "", [vec![], vec![]]),
            ("", SHORT, "", SHORT, [vec![], vec![]]),
            ("", "", "", SHORT, [vec![], vec![]]),
        ] {
            assert_eq!(marked(tools, system, turn, top), expected, "{tools} {system} {turn} {top}");
        }
    }
}
