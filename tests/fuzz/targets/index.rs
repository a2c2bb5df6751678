//! What holds for every dialect and every body.

use bytes::Bytes;
use plimsoll::conversation::NoMemo;
use plimsoll::planner::{self, Past};
use plimsoll::protocol::{self, Protocol};
use plimsoll::shape::settings::{Keep, Settings, Tools, TruncateRule};

/// Limits that even small inputs exceed.
fn settings() -> Settings {
    let mut settings = Settings::default();
    let rule = TruncateRule { max_lines: 2, max_bytes: 40, keep: Keep::Both };
    settings.truncate.base = rule.clone();
    settings.truncate.tools = vec![(Tools::new(["b*"]).expect("a pattern"), TruncateRule { keep: Keep::Tail, ..rule })];
    settings.truncate.error_max_bytes = 60;
    settings.repeat_min_bytes = 8;
    settings
}

/// Reads, plans, rewrites. A panic is a find; so is a plan that cannot be carried out.
pub fn check(protocol: &dyn Protocol, body: &[u8]) {
    let body = Bytes::copy_from_slice(body);
    let Ok(conversation) = protocol.index(&body, &NoMemo) else { return };
    let past = Past { sent: 0, applied: &[], recover: &|_| None };
    let outcome = planner::plan(&conversation, &past, &settings(), &|id| format!("full output: /{id}"));
    let again = planner::plan(&conversation, &past, &settings(), &|id| format!("full output: /{id}"));
    assert_eq!(outcome.plan, again.plan, "plans are determined by their input");
    if outcome.plan.is_empty() {
        return;
    }
    let edited = protocol::rewrite(protocol, &conversation, &outcome.plan, &NoMemo).expect("a plan can be carried out");
    assert!(edited.len() < body.len() + 64 * outcome.applied.len(), "an edit does not inflate");
    let after = protocol.index(&edited, &NoMemo).expect("an edited body can be read");
    let settled = planner::plan(&after, &past, &settings(), &|id| format!("full output: /{id}"));
    drop(settled);
}
