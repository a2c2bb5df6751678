//! Settings with little room: small windows, every rung of the ladder, summaries in all layouts.

use proptest::prelude::*;

use crate::app::laws::rig;
use crate::config::Summarize;
use crate::planner::{Layout, Policy};
use crate::shape;
use crate::strategy::gate::Reason;
use crate::strategy::{clear, ladder, marks, window};
use crate::summarizer::Limits;
use crate::usage::{Catalogue, Rate, Stated};

/// The settings of one gateway.
#[derive(Debug, Clone)]
pub(super) struct Wants {
    /// Tokens of the models' window.
    window: u64,
    /// The share at which room is made, and the share that it aims at.
    room: (f64, f64),
    shapes: bool,
    clears: bool,
    marks: bool,
    keep_turns: u32,
    /// The share that an event must free.
    least: f64,
    /// The share from which on a summary is written.
    early: f64,
    messages: Option<u32>,
    pub(super) layout: Layout,
}

pub(super) fn wants() -> impl Strategy<Value = Wants> {
    let window = prop_oneof![3 => Just(3_000_u64), 2 => Just(6_000), 1 => Just(12_000)];
    let room = prop_oneof![Just((0.9, 0.6)), Just((0.7, 0.4)), Just((0.95, 0.9))];
    let layout = prop_oneof![
        3 => Just(Layout::Answer),
        1 => Just(Layout::Appended),
        1 => Just(Layout::User),
        1 => Just(Layout::Acknowledged("Got it.".into())),
        1 => Just(Layout::Asked("What was it?".into())),
    ];
    let messages = prop::option::weighted(0.15, 6_u32..14);
    let some = prop::bool::weighted;
    let shares = prop_oneof![2 => Just((0.01, 0.6)), 1 => Just((0.15, 0.75)), 1 => Just((0.01, 0.3))];
    let choices = (some(0.4), some(0.5), any::<bool>());
    (window, room, choices, 1_u32..3, shares, messages, layout).prop_map(
        |(window, room, (shapes, clears, marks), keep_turns, (least, early), messages, layout)| Wants {
            window,
            room,
            shapes,
            clears,
            marks,
            keep_turns,
            least,
            early,
            messages,
            layout,
        },
    )
}

impl Wants {
    /// The same with so little room that it is needed soon, and made by summaries.
    pub(super) fn narrow(self) -> Self {
        Self { window: 4_000, room: (0.5, 0.3), clears: false, early: 0.1, ..self }
    }

    pub(super) fn policy(&self) -> Policy {
        let shape = if self.shapes { rig::policy(1).shape } else { plain() };
        let clear = clear::Settings {
            enabled: self.clears,
            gate: vec![Reason::Window],
            protect: clear::Protect { view_tokens: 0, other_tokens: 0, turns: 0 },
            ..rig::policy(0).clear
        };
        let (trigger, target) = self.room;
        Policy {
            shape,
            clear,
            window: window::Settings { trigger, target, ..window::Settings::default() },
            ladder: ladder::Settings {
                keep_turns: self.keep_turns,
                messages: self.messages,
                least: self.least,
                ..ladder::Settings::default()
            },
            marks: marks::Settings { marks: self.marks, anchors: self.marks, keys: true, split: false },
        }
    }

    pub(super) fn prices(&self) -> Catalogue {
        let rate = |picodollars| Some(Rate::from_picodollars(picodollars));
        let price = Stated {
            input: rate(1_000_000),
            output: rate(5_000_000),
            cache_read: rate(100_000),
            cache_write_5m: rate(1_250_000),
            context_window: Some(self.window),
            ..Stated::default()
        };
        Catalogue::with_overrides(vec![("*".to_owned(), price)]).unwrap()
    }

    /// Summaries are wanted early, and as short as possible.
    pub(super) fn summarize(&self) -> Summarize {
        let mut summarize = Summarize { layout: self.layout.clone(), ..Summarize::default() };
        let settings = &mut summarize.settings;
        (settings.trigger, settings.keep_tokens, settings.length, settings.minimum_gain) =
            (self.early, 50, 20, 1);
        summarize
    }

    /// Limits that leave room for every job.
    pub(super) fn limits() -> Limits {
        Limits { jobs: 64, per_hour: None, ..Limits::default() }
    }
}

/// Nothing newborn is shortened.
fn plain() -> shape::Settings {
    let mut settings = rig::policy(rig::QUIET).shape;
    settings.truncate.error_max_bytes = 1 << 20;
    (settings.fold, settings.minify, settings.base64) = (false, false, false);
    settings
}
