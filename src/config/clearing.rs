//! `[clear]`, `[window]`, `[ladder]`, `[recover]` and `[cache]`: what may be done with what is old, and how full the
//! window may get.
//!
//! The defaults are those that the strategies' own `Settings` have; nothing about clearing is decided here.

use std::ops::RangeInclusive;

use crate::strategy::clear::{Arguments, Policy, Protect, Settings, Weights, Within};
use crate::strategy::estimate::Estimate;
use crate::strategy::gate::Reason;
use crate::strategy::{ladder, marks, window};

use super::Recover;
use super::section::Section;
use super::shaping::name_patterns;
use super::value::{Share, Word};

impl Word for Policy {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("worth", Self::Worth),
        ("oldest", Self::Oldest),
        ("lru", Self::Lru),
        ("priority", Self::Priority),
        ("type-ttl", Self::TypeTtl),
        ("duplicate", Self::Duplicate),
        ("hybrid", Self::Hybrid),
    ];
}

impl Word for Within {
    const WORDS: &'static [(&'static str, Self)] =
        &[("backward", Self::Backward), ("forward", Self::Forward)];
}

impl Word for Arguments {
    const WORDS: &'static [(&'static str, Self)] =
        &[("never", Self::Never), ("window", Self::Window), ("always", Self::Always)];
}

impl Word for Reason {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("window", Self::Window),
        ("cold", Self::Cold),
        ("uncached", Self::Uncached),
        ("break-even", Self::BreakEven),
        ("budget", Self::Budget),
        ("eager", Self::Eager),
    ];
}

impl Word for window::Whole {
    const WORDS: &'static [(&'static str, Self)] = &[("usable", Self::Usable), ("window", Self::Window)];
}

impl Word for Estimate {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("usage", Self::Usage),
        ("chars4-round", Self::Chars4Round),
        ("chars4-ceil", Self::Chars4Ceil),
        ("chars4-floor", Self::Chars4Floor),
        ("chars2-in-5", Self::Chars2In5),
        ("weighted", Self::Weighted),
        ("bytes4-ceil", Self::Bytes4Ceil),
    ];
}

/// More tokens than any window has.
const TOKENS: usize = 1_000_000_000;

/// `target` is what is come down to.
pub(super) fn clear(section: &mut Section<'_, '_>, default: Settings, target: f64) -> Settings {
    let trigger = share_if_set(section, "trigger", default.trigger);
    if section.has("trigger") && trigger.is_some_and(|trigger| trigger <= target) {
        section.problem("trigger", "must be above `window.target`", None);
    }
    let enabled = section.value("enabled", default.enabled);
    let policy = section.value("policy", default.policy);
    let gate = section.list("gate").unwrap_or(default.gate);
    let protect = section.section("protect_tokens", |section| protect(section, default.protect));
    Settings {
        enabled,
        policy,
        gate,
        protect: Protect { turns: number(section, "protect_turns", default.protect.turns), ..protect },
        protect_images: number(section, "protect_images", default.protect_images),
        protect_together: section.value("protect_together", default.protect_together),
        within_step: section.value("within_step", default.within_step),
        protected_texts: section.list("protected_texts").unwrap_or(default.protected_texts),
        protected_tools: name_patterns(section, "protected_tools", default.protected_tools),
        errors: section.value("errors", default.errors),
        reasoning: section.value("reasoning", default.reasoning),
        arguments: section.value("arguments", default.arguments),
        smallest: tokens(section, "smallest", default.smallest),
        minimum_tokens: tokens(section, "minimum_tokens", default.minimum_tokens),
        at_turns: section.value("at_turns", default.at_turns),
        trigger,
        settle: number(section, "settle", default.settle),
        patience: section.within("patience", Share(0.01)..=Share(100.0), Share(default.patience)).0,
        ttl_turns: number(section, "ttl_turns", default.ttl_turns),
        most_loss: section.within("most_loss", Share(0.0)..=Share(1.0), Share(default.most_loss)).0,
        regret_tokens: tokens(section, "regret_tokens", default.regret_tokens),
        weights: section.section("weights", |section| weights(section, default.weights)),
    }
}

fn protect(section: &mut Section<'_, '_>, default: Protect) -> Protect {
    Protect {
        view_tokens: tokens(section, "view", default.view_tokens),
        other_tokens: tokens(section, "other", default.other_tokens),
        ..default
    }
}

fn weights(section: &mut Section<'_, '_>, default: Weights) -> Weights {
    let mut weight =
        |key: &'static str, default: f64| section.within(key, Share(0.0)..=Share(1.0), Share(default)).0;
    let weights = Weights {
        oldest: weight("oldest", default.oldest),
        lru: weight("lru", default.lru),
        priority: weight("priority", default.priority),
        type_ttl: weight("type_ttl", default.type_ttl),
        duplicate: weight("duplicate", default.duplicate),
    };
    let Weights { oldest, lru, priority, type_ttl, duplicate } = weights;
    let sum = oldest + lru + priority + type_ttl + duplicate;
    // What a profile leaves out is the file's, where it is reported.
    if section.is_there() && (sum - 1.0).abs() > 1e-6 {
        section.problem_here(format!("the weights must add up to 1, got {sum:.3}"), None);
    }
    weights
}

pub(super) fn window(section: &mut Section<'_, '_>, default: window::Settings) -> window::Settings {
    let mut share =
        |key: &'static str, default: f64| section.within(key, Share(0.05)..=Share(1.0), Share(default)).0;
    let (trigger, target) = (share("trigger", default.trigger), share("target", default.target));
    if section.has("target") && target >= trigger {
        section.problem("target", "must be below `window.trigger`", None);
    } else if section.has("trigger") && target >= trigger {
        let message = format!("must be above `window.target`, which is {target}, got {trigger}");
        let is_default = (target - window::Settings::default().target).abs() < f64::EPSILON;
        let whose = if is_default { "that is the default" } else { "it is not set here" };
        section.problem("trigger", message, Some(format!("{whose}: set `window.target`, too")));
    }
    window::Settings {
        trigger,
        target,
        of: section.value("of", default.of),
        count: section.value("count", default.count),
        beyond: section.value("beyond", default.beyond),
        messages: most(section, "messages", 4..=1_000_000, default.messages),
        size: most(section, "size", 4096..=TOKENS, default.size),
        guess: section.value("guess", default.guess),
        reserve_output: most(section, "reserve_output", 0..=TOKENS, default.reserve_output),
        most_reserve: most(section, "most_reserve", 0..=TOKENS, default.most_reserve),
        ..default
    }
}

pub(super) fn ladder(section: &mut Section<'_, '_>, default: ladder::Settings) -> ladder::Settings {
    ladder::Settings {
        enabled: section.value("enabled", default.enabled),
        keep_turns: number(section, "keep_turns", default.keep_turns),
        least: section.within("least", Share(0.0)..=Share(1.0), Share(default.least)).0,
        from: section.within("from", Share(0.0)..=Share(1.0), Share(default.from)).0,
        messages: most(section, "messages", 4..=1_000_000, default.messages),
    }
}

pub(super) fn recover(section: &mut Section<'_, '_>) -> Recover {
    let default = Recover::default();
    Recover {
        enabled: section.value("enabled", default.enabled),
        max_attempts: section.within("max_attempts", 1..=10, default.max_attempts as usize) as u32,
    }
}

pub(super) fn marks(section: &mut Section<'_, '_>, default: marks::Settings) -> marks::Settings {
    marks::Settings {
        marks: section.value("marks", default.marks),
        anchors: section.value("anchors", default.anchors),
        keys: section.value("keys", default.keys),
        split: section.value("split", default.split),
    }
}

/// A bound, if there is one.
fn most<N: TryFrom<usize>>(
    section: &mut Section<'_, '_>,
    key: &'static str,
    range: RangeInclusive<usize>,
    default: Option<N>,
) -> Option<N> {
    let low = *range.start();
    let is_set = section.has(key);
    let number = section.within(key, range, low);
    if is_set { N::try_from(number).ok() } else { default }
}

/// A share of the window, if there is one.
fn share_if_set(section: &mut Section<'_, '_>, key: &'static str, default: Option<f64>) -> Option<f64> {
    let is_set = section.has(key);
    let share = section.within(key, Share(0.05)..=Share(1.0), Share(1.0)).0;
    if is_set { Some(share) } else { default }
}

fn tokens(section: &mut Section<'_, '_>, key: &'static str, default: u64) -> u64 {
    section.within(key, 0..=TOKENS, default as usize) as u64
}

fn number(section: &mut Section<'_, '_>, key: &'static str, default: u32) -> u32 {
    section.within(key, 0..=1_000_000, default as usize) as u32
}
