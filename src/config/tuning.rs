//! The sections that profiles can override: `[shape]`, `[truncate]`, `[clear]`, `[window]`, `[ladder]`, `[cache]` and
//! `[summarize]`.
//!
//! They are read in the same way in a file, a preset and a profile; a key that is left out has the value of the layer
//! below.

use std::time::Duration;

use super::section::Section;
use super::{Summarize, Upstreams, clearing, shaping, summarize};
use crate::planner::Policy;
use crate::shape::Settings;

/// How conversations are edited.
#[derive(Debug, Clone, Default)]
pub struct Tuning {
    /// How tool results and messages are edited, new and old.
    pub policy: Policy,
    /// The summaries that replace old messages. Their limits are the file's, in all profiles.
    pub summarize: Summarize,
}

/// The sections as read, on top of which others can be read.
#[derive(Debug, Clone, Default)]
pub(super) struct Layer {
    pub(super) tuning: Tuning,
    limits: shaping::Limits,
    /// Notes of keys that have no effect.
    pub(super) without_effect: Vec<String>,
}

/// What the sections depend on besides their own keys.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) upstreams: &'a Upstreams,
    pub(super) rewrite_timeout: Duration,
    /// Whether this is a profile, which cannot set the limits that are the same for all.
    pub(super) is_profile: bool,
}

impl Layer {
    /// Reads the sections of a table, on top of `base`.
    pub(super) fn read(section: &mut Section<'_, '_>, base: &Self, context: Context<'_>) -> Self {
        let Policy { shape, clear, window, ladder, marks } = base.tuning.policy.clone();
        let mut shape = section.section("shape", |section| shaping::shape(section, shape));
        let (truncate, limits) =
            section.section("truncate", |section| shaping::truncate(section, shape.truncate, &base.limits));
        shape.truncate = truncate;
        let mut without_effect = limits.without_effect();
        without_effect.extend(unshaped(section, &shape));
        let window = section.section("window", |section| clearing::window(section, window));
        let clear = section.section("clear", |section| clearing::clear(section, clear, window.target));
        // If the section sets both, the problem is reported for the trigger.
        let sets_only_target = section.has_in("window", "target") && !section.has_in("clear", "trigger");
        if let Some(trigger) = clear.trigger.filter(|trigger| sets_only_target && *trigger <= window.target)
            && clear.enabled
        {
            let message = format!("must be below `clear.trigger`, which is {trigger}, got {}", window.target);
            section.problem_in("window", "target", message);
        }
        let ladder = section.section("ladder", |section| clearing::ladder(section, ladder));
        let marks = section.section("cache", |section| clearing::marks(section, marks));
        let policy = Policy { shape, clear, window, ladder, marks };
        let below = &base.tuning.summarize;
        let summarize = section.section("summarize", |section| summarize::read(section, below, context));
        Self { tuning: Tuning { policy, summarize }, limits, without_effect }
    }
}

/// A note if the section shapes results, and the layer below it exempts those of all tools.
fn unshaped(section: &Section<'_, '_>, shape: &Settings) -> Option<String> {
    let exempts_all = shape.truncate.exempt.patterns().iter().any(|pattern| pattern == "*");
    let keys: Vec<&str> = ["shape", "truncate"].into_iter().filter(|key| section.has_any(key)).collect();
    (exempts_all && !keys.is_empty() && !section.has_in("truncate", "exempt")).then(|| {
        let keys = keys.join("]`, `[");
        format!("`[{keys}]`: no effect, as the preset exempts all tools; `truncate.exempt = []` changes that")
    })
}
