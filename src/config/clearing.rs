//! `[clear]`, `[window]`, `[ladder]`, `[recover]` and `[cache]`: how old parts may be removed, and how full the window
//! may get.
//!
//! The defaults are those of the strategies' own `Settings`; nothing about clearing is decided here.

use crate::strategy::clear::{Arguments, Policy, Protect, Settings, Weights, Within};
use crate::strategy::estimate::Estimate;
use crate::strategy::gate::Reason;
use crate::strategy::{ladder, marks, window};

use super::Recover;
use super::section::Section;
use super::shaping::name_patterns;
use super::value::{MAX_TOKENS, Word};

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

/// The maximum for numbers of turns, requests or results, more than ever occur.
const MAX_COUNT: u32 = 1_000_000;

/// Reads `[clear]`; `target` is `window.target`, the share of the window that clearing frees down to.
pub(super) fn clear(section: &mut Section<'_, '_>, default: Settings, target: f64) -> Settings {
    let trigger = section.optional_within("trigger", 0.05..=1.0);
    if trigger.is_some_and(|trigger| trigger <= target) {
        section.problem("trigger", "must be above `window.target`");
    }
    let enabled = section.value("enabled", default.enabled);
    let policy = section.value("policy", default.policy);
    let gate = section.list("gate").unwrap_or(default.gate);
    let protect = section.section("protect_tokens", |section| protect(section, default.protect));
    Settings {
        enabled,
        policy,
        gate,
        protect: Protect {
            turns: section.count("protect_turns", 0..=MAX_COUNT, default.protect.turns),
            ..protect
        },
        protect_images: section.count("protect_images", 0..=MAX_COUNT, default.protect_images),
        protect_together: section.value("protect_together", default.protect_together),
        within_step: section.value("within_step", default.within_step),
        protected_texts: section.list("protected_texts").unwrap_or(default.protected_texts),
        protected_tools: name_patterns(section, "protected_tools", default.protected_tools),
        errors: section.value("errors", default.errors),
        reasoning: section.value("reasoning", default.reasoning),
        arguments: section.value("arguments", default.arguments),
        smallest: section.within("smallest", 0..=MAX_TOKENS, default.smallest),
        minimum_tokens: section.within("minimum_tokens", 0..=MAX_TOKENS, default.minimum_tokens),
        at_turns: section.value("at_turns", default.at_turns),
        trigger: trigger.or(default.trigger),
        settle: section.count("settle", 0..=MAX_COUNT, default.settle),
        patience: section.within("patience", 0.01..=100.0, default.patience),
        ttl_turns: section.count("ttl_turns", 0..=MAX_COUNT, default.ttl_turns),
        most_loss: section.within("most_loss", 0.0..=1.0, default.most_loss),
        regret_tokens: section.within("regret_tokens", 0..=MAX_TOKENS, default.regret_tokens),
        weights: section.section("weights", |section| weights(section, default.weights)),
    }
}

fn protect(section: &mut Section<'_, '_>, default: Protect) -> Protect {
    Protect {
        view_tokens: section.within("view", 0..=MAX_TOKENS, default.view_tokens),
        other_tokens: section.within("other", 0..=MAX_TOKENS, default.other_tokens),
        ..default
    }
}

fn weights(section: &mut Section<'_, '_>, default: Weights) -> Weights {
    let mut weight = |key: &'static str, default: f64| section.within(key, 0.0..=1.0, default);
    let weights = Weights {
        oldest: weight("oldest", default.oldest),
        lru: weight("lru", default.lru),
        priority: weight("priority", default.priority),
        type_ttl: weight("type_ttl", default.type_ttl),
        duplicate: weight("duplicate", default.duplicate),
    };
    let Weights { oldest, lru, priority, type_ttl, duplicate } = weights;
    let sum = oldest + lru + priority + type_ttl + duplicate;
    // What a profile leaves out is the file's, for which mistakes are reported there.
    if section.is_there() && (sum - 1.0).abs() > 1e-6 {
        section.problem_here(format!("the weights must add up to 1, got {sum:.3}"));
    }
    weights
}

pub(super) fn window(section: &mut Section<'_, '_>, default: window::Settings) -> window::Settings {
    let mut share = |key: &'static str, default: f64| section.within(key, 0.05..=1.0, default);
    let (trigger, target) = (share("trigger", default.trigger), share("target", default.target));
    if section.has("target") && target >= trigger {
        section.problem("target", "must be below `window.trigger`");
    } else if section.has("trigger") && target >= trigger {
        let message = format!("must be above `window.target`, which is {target}, got {trigger}");
        let is_default = (target - window::Settings::default().target).abs() < f64::EPSILON;
        let whose = if is_default { "that is the default" } else { "it is not set here" };
        section.problem_with_hint("trigger", message, format!("{whose}: set `window.target`, too"));
    }
    window::Settings {
        trigger,
        target,
        of: section.value("of", default.of),
        count: section.value("count", default.count),
        beyond: section.value("beyond", default.beyond),
        messages: messages(section, default.messages),
        size: section.optional_within("size", 4096..=MAX_TOKENS).or(default.size),
        guess: section.value("guess", default.guess),
        reserve_output: section.optional_within("reserve_output", 0..=MAX_TOKENS).or(default.reserve_output),
        most_reserve: section.optional_within("most_reserve", 0..=MAX_TOKENS).or(default.most_reserve),
        ..default
    }
}

pub(super) fn ladder(section: &mut Section<'_, '_>, default: ladder::Settings) -> ladder::Settings {
    ladder::Settings {
        enabled: section.value("enabled", default.enabled),
        keep_turns: section.count("keep_turns", 0..=MAX_COUNT, default.keep_turns),
        least: section.within("least", 0.0..=1.0, default.least),
        from: section.within("from", 0.0..=1.0, default.from),
        messages: messages(section, default.messages),
    }
}

pub(super) fn recover(section: &mut Section<'_, '_>) -> Recover {
    let default = Recover::default();
    Recover {
        enabled: section.value("enabled", default.enabled),
        max_attempts: section.count("max_attempts", 1..=10, default.max_attempts),
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

/// The maximum number of messages; `None` for no maximum.
fn messages(section: &mut Section<'_, '_>, default: Option<u32>) -> Option<u32> {
    section.optional_within("messages", 4..=u64::from(MAX_COUNT)).map(|most| most as u32).or(default)
}
