//! What holds for every dialect and every body.

use bytes::Bytes;
use plimsoll::conversation::NoMemo;
use plimsoll::planner::{self, Applied, Facts, Past, Policy};
use plimsoll::protocol::{self, Protocol};
use plimsoll::shape::settings::{Keep, Settings, Tools, TruncateRule};
use plimsoll::strategy::clear;
use plimsoll::strategy::gate::Reason;

/// What cache marks may add.
const MARKS: usize = 4 * 64;

/// Limits that even small inputs exceed.
fn policy() -> Policy {
    let mut shape = Settings::default();
    let rule = TruncateRule { max_lines: 2, max_bytes: 40, keep: Keep::Both };
    shape.truncate.base = rule.clone();
    shape.truncate.tools =
        vec![(Tools::new(["b*"]).expect("a pattern"), TruncateRule { keep: Keep::Tail, ..rule })];
    shape.truncate.error_max_bytes = 60;
    shape.repeat_min_bytes = 8;
    let protect = clear::Protect { view_tokens: 0, other_tokens: 0, turns: 0 };
    let clear =
        clear::Settings { protect, smallest: 1, gate: vec![Reason::Eager], ..clear::Settings::default() };
    Policy { shape, clear, ..Policy::default() }
}

/// Reads, plans, rewrites: with nothing sent before, then with all but the last message. A panic is a find; so is
/// a plan that cannot be carried out.
pub(super) fn check(protocol: &dyn Protocol, body: &[u8]) {
    let body = Bytes::copy_from_slice(body);
    let Ok(conversation) = protocol.index(&body, &NoMemo) else { return };
    let recall = |id: &str| format!("full output: /{id}");
    let mut applied = Vec::new();
    for sent in [0, conversation.messages.len().saturating_sub(1)] {
        applied.retain(|applied: &Applied| (applied.part.message as usize) < sent);
        let past = || Past { sent, applied: &applied, ..Past::nothing() };
        let outcome = planner::plan(&conversation, past(), &policy(), &Facts::default(), &recall);
        let again = planner::plan(&conversation, past(), &policy(), &Facts::default(), &recall);
        assert_eq!(outcome.plan, again.plan, "plans are determined by their input");
        if !outcome.plan.is_empty() {
            let edited = protocol::rewrite(protocol, &conversation, &outcome.plan, &NoMemo)
                .expect("a plan can be carried out");
            assert!(
                edited.len() < body.len() + 64 * outcome.applied.len() + MARKS,
                "an edit does not inflate"
            );
            protocol.index(&edited, &NoMemo).expect("an edited body can be read");
        }
        applied = outcome.applied;
    }
}
