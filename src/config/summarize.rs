//! `[summarize]`: summaries that replace old messages, who writes them, and what they may cost.
//!
//! The defaults are those of the strategy and of the summariser.

use std::borrow::Cow;
use std::time::Duration;

use toml::de::DeValue;

use super::period::SECOND;
use super::section::Section;
use super::size::ByteSize;
use super::tuning::Context;
use super::value::{Fault, FromValue, MAX_TOKENS, Word, alternatives, chosen, number};
use crate::planner::Layout;
use crate::strategy::summary::{Settings, Split, Template};
use crate::summarizer::Limits;
use crate::usage::Money;

/// The configuration of summaries.
#[derive(Debug, Clone, PartialEq)]
pub struct Summarize {
    /// When they are made, and of what.
    pub settings: Settings,
    /// The limits on making them.
    pub limits: Limits,
    /// The name of the upstream that writes them; `None` for the request's own.
    pub upstream: Option<String>,
    /// The model that writes them; `None` for the request's own.
    pub model: Option<String>,
    /// How they are placed in the history.
    pub layout: Layout,
    /// How long a request may wait for one that is in progress.
    pub max_wait: Duration,
}

impl Default for Summarize {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            limits: Limits::default(),
            upstream: None,
            model: None,
            layout: Layout::Answer,
            max_wait: Duration::ZERO,
        }
    }
}

impl Summarize {
    /// Takes the writer and the limits of `other`.
    pub(super) fn take_writer_and_limits(&mut self, other: &Self) {
        (self.limits, self.max_wait) = (other.limits, other.max_wait);
        (self.upstream, self.model) = (other.upstream.clone(), other.model.clone());
    }
}

impl FromValue for Layout {
    fn expected() -> Cow<'static, str> {
        alternatives(&layouts().map(|(word, _)| word)).into()
    }

    fn from_value(value: &DeValue<'_>) -> Result<Self, Fault> {
        chosen(value, layouts())
    }
}

fn layouts() -> [(&'static str, Layout); 5] {
    [
        ("answer", Layout::Answer),
        ("appended", Layout::Appended),
        ("user", Layout::User),
        ("acknowledged", Layout::Acknowledged(ACKNOWLEDGED.into())),
        ("asked", Layout::Asked(ASKED.into())),
    ]
}

impl Word for Split {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("enough", Self::Enough),
        ("turns", Self::Turns),
        ("share", Self::Share),
        ("messages", Self::Messages),
        ("budget", Self::Budget),
    ];
}

impl Word for Template {
    const WORDS: &'static [(&'static str, Self)] = &[
        (Self::Default.as_str(), Self::Default),
        (Self::CodeReview.as_str(), Self::CodeReview),
        (Self::Debugging.as_str(), Self::Debugging),
        (Self::Research.as_str(), Self::Research),
        (Self::Implementation.as_str(), Self::Implementation),
        (Self::Operations.as_str(), Self::Operations),
    ];
}

/// The model's supposed answer to a summary.
const ACKNOWLEDGED: &str = "Got it. Thanks for the context!";
/// The user's supposed request for a summary.
const ASKED: &str = "What did we do so far?";

/// Reads the section, on top of `base`.
pub(super) fn read(section: &mut Section<'_, '_>, base: &Summarize, context: Context<'_>) -> Summarize {
    let settings = settings(section, base.settings.clone());
    let upstream = section.optional::<String>("upstream");
    if let Some(wrong) = upstream.as_deref().and_then(|name| context.upstreams.cannot_be_asked(name)) {
        section.problem("upstream", wrong);
    }
    let upstream = upstream.or_else(|| base.upstream.clone());
    let own = section.optional::<String>("model");
    // A value that is not a string is reported already.
    let is_wrong = section.has("model") && own.is_none();
    let model = own.or_else(|| base.model.clone());
    let model = model.filter(|model| !model.trim().is_empty());
    let is_here = section.has("upstream") || section.has("model");
    if is_here && !is_wrong && upstream.is_some() && model.is_none() {
        section.problem("model", "must be set if `summarize.upstream` is");
    }
    let layout = section.value("layout", base.layout.clone());
    let max_wait = section.within("max_wait", Duration::ZERO..=60 * SECOND, base.max_wait);
    // What a profile leaves out is the file's, for which mistakes are reported there.
    let is_here = !context.is_profile || section.has("max_wait");
    if is_here && max_wait >= context.rewrite_timeout {
        section.problem("max_wait", "must be below `limits.rewrite_timeout`");
    }
    let limits = if context.is_profile { base.limits } else { limits(section, base.limits) };
    Summarize { settings, limits, upstream, model, layout, max_wait }
}

fn settings(section: &mut Section<'_, '_>, default: Settings) -> Settings {
    let size = |section: &mut Section<'_, '_>, key: &'static str, default: usize| {
        section.within(key, ByteSize::new(256)..=ByteSize::new(1 << 20), ByteSize::new(default)).bytes()
    };
    let trigger = section.within("trigger", 0.05..=1.0, default.trigger);
    // If the user sets another share, summaries begin there whatever they lose.
    let is_usual = (trigger - default.trigger).abs() < f64::EPSILON;
    let most_loss = if is_usual { default.most_loss } else { 1.0 };
    Settings {
        enabled: section.value("enabled", default.enabled),
        trigger,
        most_loss: section.within("most_loss", 0.0..=1.0, most_loss),
        split: section.value("split", default.split),
        keep_share: section.within("keep_share", 0.0..=0.95, default.keep_share),
        keep_messages: section.count("keep_messages", 1..=1000, default.keep_messages),
        keep_turns: section.count("keep_turns", 0..=1000, default.keep_turns),
        keep_tokens: section.within("keep_tokens", 0..=MAX_TOKENS, default.keep_tokens),
        length: section.within("length", 200..=50_000, default.length),
        minimum_gain: section.within("minimum_gain", 0..=MAX_TOKENS, default.minimum_gain),
        rebase: section.count("rebase", 0..=1000, default.rebase),
        template: section.value("template", default.template),
        focus: section.value("focus", default.focus),
        result_bytes: size(section, "result_bytes", default.result_bytes),
        user_bytes: size(section, "user_bytes", default.user_bytes),
    }
}

/// The limits on making them, which are the same for all profiles.
fn limits(section: &mut Section<'_, '_>, default: Limits) -> Limits {
    let expected = || "an amount of US dollars such as 10.00, or \"any\"".into();
    let per_hour = section.parse("per_hour", expected, |value, _| dollars(value));
    Limits {
        jobs: section.within("jobs", 1..=64, default.jobs),
        attempts: section.count("max_attempts", 1..=10, default.attempts),
        timeout: section.within("timeout", SECOND..=3600 * SECOND, default.timeout),
        calls: section.within("max_calls", 1..=256, default.calls),
        max_output: section.within("max_output", 256..=128_000, default.max_output),
        per_hour: per_hour.unwrap_or(default.per_hour),
        rest: section.within("rest", SECOND..=3600 * SECOND, default.rest),
    }
}

/// An amount in dollars; `None` for `"any"`.
fn dollars(value: &DeValue<'_>) -> Result<Option<Money>, Fault> {
    if value.as_str() == Some("any") {
        return Ok(None);
    }
    let text = number(value).ok_or(Fault::UNEXPECTED)?;
    let amount = Money::from_usd_str(text).ok().filter(|amount| *amount >= Money::ZERO);
    amount.map(Some).ok_or(Fault::UNEXPECTED)
}
