//! What holds for every dialect and every body.

use bytes::Bytes;
use plimsoll::conversation::{Conversation, NoMemo};
use plimsoll::planner::cuts::cuts;
use plimsoll::planner::splice::SUMMARY;
use plimsoll::planner::{self, Applied, Facts, Layout, Overflow, Past, Policy, Splice};
use plimsoll::protocol::{self, Protocol};
use plimsoll::shape::settings::{Keep, NamePatterns, Settings, TruncateRule};
use plimsoll::strategy::clear;
use plimsoll::strategy::gate::Reason;
use plimsoll::usage::Binding;

/// The characters that cache marks may add.
const MARKS: usize = 4 * 64;
/// The characters that may be added around a summary.
const WORDS: usize = 512;

/// Limits that even small inputs exceed.
fn policy() -> Policy {
    let mut shape = Settings::default();
    let rule = TruncateRule { max_lines: 2, max_bytes: 40, keep: Keep::Both };
    shape.truncate.base = rule.clone();
    shape.truncate.tools =
        vec![(NamePatterns::new(["b*"]).expect("a pattern"), TruncateRule { keep: Keep::Tail, ..rule })];
    shape.truncate.error_max_bytes = 60;
    shape.repeat_min_bytes = 8;
    let protect = clear::Protect { view_tokens: 0, other_tokens: 0, turns: 0 };
    let clear =
        clear::Settings { protect, smallest: 1, gate: vec![Reason::Eager], ..clear::Settings::default() };
    Policy { shape, clear, ..Policy::default() }
}

/// The circumstances of a request, apart from its content.
struct Scene {
    policy: Policy,
    facts: Facts,
    opening: Option<&'static str>,
    /// The layout for a summary that is ready.
    layout: Option<Layout>,
}

/// Settings under which results are shortened and cleared, everything has to make room, and a summary replaces old
/// messages.
fn scenes(body: &[u8]) -> [Scene; 3] {
    const LAYOUTS: [fn() -> Layout; 5] = [
        || Layout::Answer,
        || Layout::Appended,
        || Layout::User,
        || Layout::Acknowledged("I see.".into()),
        || Layout::Asked("What was that?".into()),
    ];
    let full = Facts { window: Some(1), bound: Some(Binding::Dropped), ..Facts::default() };
    let refused = Facts { overflow: Some(Overflow::default()), ..full };
    let layout = LAYOUTS[body.len() % LAYOUTS.len()]();
    [
        Scene { policy: policy(), facts: Facts::default(), opening: None, layout: None },
        Scene { policy: policy(), facts: refused, opening: Some("Be brief."), layout: None },
        Scene { policy: Policy::default(), facts: full, opening: None, layout: Some(layout) },
    ]
}

/// Reads, plans and rewrites the input: first with nothing sent before, then with all but the last message sent. A
/// panic is a finding, and so is a plan that cannot be lowered, or that turns a valid request into an invalid one.
pub(super) fn check(protocol: &dyn Protocol, body: &[u8]) {
    let body = Bytes::copy_from_slice(body);
    if let Some(envelope) = protocol.envelope(&body) {
        assert_eq!(envelope.around(&envelope.request()), body, "what is around a request stays");
        return check(protocol, &envelope.request());
    }
    let Ok(conversation) = protocol.index(&body, &NoMemo) else { return };
    for scene in scenes(&body) {
        scene.play(protocol, &conversation);
    }
}

impl Scene {
    fn play(&self, protocol: &dyn Protocol, conversation: &Conversation) {
        let recall = |id: &str| format!("full output: /{id}");
        let (mut applied, mut splice) = (Vec::new(), None);
        for sent in [0, conversation.messages.len().saturating_sub(1)] {
            applied.retain(|applied: &Applied| (applied.part.message as usize) < sent);
            let ready = self.layout.as_ref().and_then(|layout| summary(conversation, layout));
            let past = || Past {
                sent,
                applied: &applied,
                splice: splice.clone(),
                ready: ready.clone(),
                opening: self.opening,
                ..Past::nothing()
            };
            let plan = || planner::plan(conversation, past(), &self.policy, &self.facts, &recall);
            let (outcome, again) = (plan(), plan());
            assert_eq!(outcome.plan, again.plan, "plans are determined by their input");
            if !outcome.plan.is_empty() {
                let edited = protocol::apply_verified(protocol, conversation, &outcome.plan, &NoMemo)
                    .expect("a plan can be carried out")
                    .body;
                let more = outcome.splice.as_ref().map_or(0, |splice| splice.bytes_after() as usize + WORDS);
                assert!(
                    edited.len() < conversation.body.len() + 64 * outcome.applied.len() + MARKS + more,
                    "an edit does not inflate"
                );
                let read = protocol.index(&edited, &NoMemo).expect("an edited body can be read");
                if protocol.valid(conversation).is_ok() {
                    assert_eq!(protocol.valid(&read), Ok(()), "what was accepted stays so");
                }
            }
            splice = outcome.splice.filter(|splice| splice.end() <= sent);
            applied = outcome.applied;
        }
    }
}

/// The splice for a summary of about half of the history.
fn summary(conversation: &Conversation, layout: &Layout) -> Option<Splice> {
    let cuts = cuts(conversation, None, None, usize::MAX);
    cuts.get(cuts.len() / 2)?.splice(conversation, SUMMARY, "This and that was done.", layout)
}
