//! The sections that may differ from profile to profile: `[shape]`, `[truncate]`, `[clear]`, `[window]`, `[ladder]`,
//! `[cache]` and `[summarize]`.
//!
//! They are read the same way wherever they stand (a file, a preset, a profile), and what is left out has the value of
//! what they are put on top of.

use std::time::Duration;

use super::section::Section;
use super::{Summarize, Upstreams, clearing, shaping, summarize};
use crate::planner::Policy;

/// What is done to conversations.
#[derive(Debug, Clone, Default)]
pub struct Tuning {
    /// What is done to tool results and messages, new and old.
    pub policy: Policy,
    /// Texts that stand for old messages. Its limits are the file's, whatever a profile says.
    pub summarize: Summarize,
}

/// The sections as they were read, for others to be put on top of.
#[derive(Debug, Clone, Default)]
pub(super) struct Layer {
    pub(super) tuning: Tuning,
    limits: shaping::Limits,
}

/// What the sections refer to.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    pub(super) upstreams: &'a Upstreams,
    pub(super) rewrite_timeout: Duration,
    /// It is a profile: the bounds that are the same for all do not stand there.
    pub(super) is_profile: bool,
}

impl Layer {
    /// The sections of a table, on top of `base`.
    pub(super) fn read(section: &mut Section<'_, '_>, base: &Self, around: Around<'_>) -> Self {
        let Policy { shape, clear, window, ladder, marks } = base.tuning.policy.clone();
        let mut shape = section.section("shape", |section| shaping::shape(section, shape));
        let (truncate, limits) =
            section.section("truncate", |section| shaping::truncate(section, shape.truncate, &base.limits));
        shape.truncate = truncate;
        let window = section.section("window", |section| clearing::window(section, window));
        let clear = section.section("clear", |section| clearing::clear(section, clear, window.target));
        // Where both stand, what is wrong is said of the trigger.
        let is_raised = section.has_in("window", "target") && !section.has_in("clear", "trigger");
        if let Some(trigger) = clear.trigger.filter(|trigger| is_raised && *trigger <= window.target)
            && clear.enabled
        {
            let message = format!("must be below `clear.trigger`, which is {trigger}, got {}", window.target);
            section.problem_in("window", "target", message);
        }
        let ladder = section.section("ladder", |section| clearing::ladder(section, ladder));
        let marks = section.section("cache", |section| clearing::marks(section, marks));
        let policy = Policy { shape, clear, window, ladder, marks };
        let below = &base.tuning.summarize;
        let summarize = section.section("summarize", |section| summarize::read(section, below, around));
        Self { tuning: Tuning { policy, summarize }, limits }
    }
}
