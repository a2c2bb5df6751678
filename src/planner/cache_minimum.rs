//! Keeps prompts long enough for the provider's cache: shortening new results may make a prompt too short to be
//! cached.
//!
//! A provider caches no prompt below a minimum number of tokens. A prompt just above the minimum is read at a tenth of
//! the price with each later request; a shortened one below it is paid in full each time. Token counts are not known in
//! advance, so in doubt nothing is shortened: then the prompt costs as much as without the gateway.

use crate::conversation::{Conversation, Marks};

use super::Facts;
use super::decision::Applied;

/// The most and the fewest bytes per token that are assumed of text whose tokens have not been counted.
const MAX_BYTES_PER_TOKEN: f64 = 10.0;
const MIN_BYTES_PER_TOKEN: f64 = 2.0;
/// A prompt is expected to reach the minimum soon if this many times its length does.
const GROWTH_FACTOR: f64 = 2.0;
/// How many requests are assumed to pass before a shortened prompt reaches the minimum. Over these, shortening must
/// cost no more than caching.
const SHORT_REQUESTS: f64 = 20.0;

/// Whether the provider may cache the prompt as it came but not with the new results shortened, and the shortened one
/// is more expensive in the long run. The last `fresh` of the decisions that apply are about the new results.
pub(super) fn falls_short(
    conversation: &Conversation,
    applied: &[Applied],
    fresh: usize,
    facts: &Facts,
) -> bool {
    // Without marks nothing would be cached. The length of a history that the provider holds is not known.
    let is_kept = conversation.marks.as_ref().is_none_or(Marks::are_in_history);
    if facts.min_prefix_tokens == 0 || !is_kept || conversation.continues.is_some() {
        return false;
    }
    let (old, new) = applied.split_at(applied.len() - fresh);
    let spared = |decisions: &[Applied], from: usize| -> u64 {
        let behind = decisions.iter().filter(|applied| applied.part.message as usize >= from);
        behind.map(|applied| applied.bytes_spared_of(conversation)).sum()
    };
    let messages = &conversation.messages;
    // Instructions after the messages are billed with the prompt, but not cached.
    let late = conversation.late_bytes() as f64 / facts.bytes_per_token.max(0.5);
    let (counted, from) = match facts.measured.filter(|(count, _)| *count <= messages.len()) {
        Some((count, tokens)) => ((tokens as f64 - late).max(0.0), count),
        None => (0.0, 0),
    };
    let behind: u64 = messages[from..].iter().map(|message| message.read_len() as u64).sum();
    let frame = conversation.frame_bytes();
    let frame = if facts.measured.is_none() { frame as u64 + facts.hidden_bytes } else { 0 };
    let whole = (behind + frame).saturating_sub(spared(old, from));
    let shorter = whole.saturating_sub(spared(new, 0));
    // Without the gateway, results that were shortened earlier would have been longer, too.
    let untouched = whole + spared(old, 0);
    let least = facts.min_prefix_tokens as f64;
    let may_be_kept = GROWTH_FACTOR * (counted + untouched as f64 / MIN_BYTES_PER_TOKEN) >= least;
    let is_kept_still = counted + shorter as f64 / MAX_BYTES_PER_TOKEN >= least;
    if !may_be_kept || is_kept_still {
        return false;
    }
    let rates = facts.rates(true);
    let tokens = |bytes: u64| counted + bytes as f64 / facts.bytes_per_token.max(0.5);
    let uncached = tokens(shorter) * SHORT_REQUESTS;
    let cached = tokens(untouched) * (rates.write + (SHORT_REQUESTS - 1.0) * rates.read);
    uncached > cached
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::conversation::NoMemo;
    use crate::planner::{Past, Policy, plan};
    use crate::protocol;
    use crate::strategy::gate::Rates;

    /// What keeps a prompt in the cache.
    #[derive(Debug, Clone, Copy)]
    enum Kept {
        /// The client marks the end of it.
        ByMarks,
        /// The client marks nothing.
        NotAtAll,
        /// The provider, by itself.
        Always,
    }

    fn request(kept: Kept, result: &str) -> Conversation {
        let mark = if let Kept::ByMarks = kept { r#","cache_control":{"type":"ephemeral"}"# } else { "" };
        let (name, messages) = match kept {
            Kept::ByMarks | Kept::NotAtAll => (
                "anthropic",
                format!(
                    r#"{{"role":"assistant","content":[{{"type":"tool_use","id":"t","name":"Bash","input":{{}}}}]}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t","content":"{result}"{mark}}}]}}"#
                ),
            ),
            Kept::Always => (
                "openai-chat",
                format!(
                    r#"{{"role":"assistant","content":null,"tool_calls":[{{"id":"t","type":"function","function":{{"name":"Bash","arguments":"{{}}"}}}}]}},{{"role":"tool","tool_call_id":"t","content":"{result}"}}"#
                ),
            ),
        };
        let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"x"}},{messages}]}}"#);
        protocol::named(name).unwrap().index(&Bytes::from(body), &NoMemo).unwrap()
    }

    /// A new result whose equal lines are folded follows a prompt of `counted` tokens.
    #[test]
    fn prompts_are_not_shortened_below_the_cache_minimum_unless_cheaper() {
        for (kept, counted, lines, least, is_shortened) in [
            (Kept::ByMarks, Some(900), 60, 0, true),
            // It would be kept, or will soon be.
            (Kept::ByMarks, Some(900), 60, 1024, false),
            (Kept::Always, Some(900), 60, 1024, false),
            (Kept::ByMarks, Some(900), 60, 2048, false),
            (Kept::ByMarks, None, 60, 512, false),
            // It is not, whatever it says.
            (Kept::NotAtAll, Some(900), 60, 1024, true),
            // It will not be for long.
            (Kept::ByMarks, Some(900), 60, 4096, true),
            (Kept::ByMarks, None, 60, 4096, true),
            // It is kept all the same.
            (Kept::ByMarks, Some(1020), 60, 1024, true),
            (Kept::Always, Some(1020), 60, 1024, true),
            // What is left of it costs less in full than all of it from the cache.
            (Kept::ByMarks, Some(900), 3_000, 1024, true),
            (Kept::Always, Some(900), 3_000, 1024, true),
        ] {
            let talk = request(kept, &"building the crate\\n".repeat(lines));
            let facts = Facts {
                rates: Some(Rates { read: 0.1, write: 1.25 }),
                measured: counted.map(|tokens| (1, tokens)),
                min_prefix_tokens: least,
                ..Facts::default()
            };
            let past = Past { sent: 1, ..Past::nothing() };
            let outcome = plan(&talk, past, &Policy::default(), &facts, &|_| String::new());
            let case = format!("{kept:?} {counted:?} {lines} {least}");
            assert_eq!(outcome.fresh > 0, is_shortened, "{case}");
            assert_eq!(outcome.applied.is_empty(), outcome.fresh == 0, "{case}");
        }
    }
}
