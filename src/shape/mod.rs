//! Shapers: how a newborn tool result is shortened.
//!
//! Each shaper is one file and a pure function of the text. [`shape`] runs them in a fixed order. Nothing here knows a
//! protocol, a store or a clock. The same input and settings always give the same output, which is shorter than the
//! input. If an output comes back as the result of another call, it is left alone.

mod base64;
pub mod command;
mod cut;
mod escapes;
mod estimate;
mod fold;
mod marker;
mod members;
mod minify;
mod notice;
mod overwritten;
mod repeat;
mod rules;
pub mod settings;
pub mod tools;
mod truncate;
mod view;

use std::borrow::Cow;

use crate::plan::LeafEdit;

pub use members::GONE;
pub use repeat::{pointer, points_to};
pub use rules::{Rule, Rules};
pub use settings::Settings;
pub use view::is_view;

use cut::Size;
use marker::Template;
pub use marker::thousands;
use settings::{Keep, TruncateRule};
use truncate::Truncation;

/// A tool result as the shapers see it.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Its texts in order, decoded. There may be several, with images between them.
    pub leaves: &'a [Cow<'a, str>],
    /// Whether these are the values of named members, none of which can be removed.
    pub members: bool,
    /// The name of the tool that was called.
    pub tool: Option<&'a str>,
    /// The arguments of the call as sent: usually JSON, but any text is possible.
    pub arguments: Option<&'a str>,
    /// Whether the result reports an error.
    pub is_error: bool,
    /// A phrase that says where the full text can be found: `full output: /path`, `re-run the tool for the rest`.
    pub recall: &'a str,
}

/// A shortened result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shaped {
    /// What becomes of each text of the subject; `None`: it stays as it is. What replaces a text is never blank. If a
    /// text is removed, another one of the same result says so.
    pub leaves: Vec<Option<LeafEdit>>,
    /// The shapers that were applied.
    pub rules: Rules,
}

/// The fewest bytes that a result must shrink by. A smaller gain is not worth storing a decision, nor hiding what is
/// stripped from an agent that may be working on it.
const MIN_GAIN: usize = 64;
/// How many times the shapers may enable one another before a text is left as it is.
const MAX_PASSES: usize = 4;

/// Shortens a result; `None` leaves it as it is.
///
/// Views of files are only truncated, because their text is quoted in edits. So are errors, with a limit of their own
/// and both ends kept. Exempt tools are left alone.
pub fn shape(subject: &Subject<'_>, settings: &Settings) -> Option<Shaped> {
    if subject.tool.is_some_and(|tool| settings.truncate.exempt.matches(tool)) {
        return None;
    }
    let is_verbatim = subject.is_error || is_view(subject.tool, subject.arguments, settings);
    let mut rules = Rules::NONE;
    let mut texts: Vec<Cow<'_, str>> = subject.leaves.iter().map(|leaf| Cow::Borrowed(&**leaf)).collect();
    if !is_verbatim {
        for text in &mut texts {
            if let Some((shorter, done)) = condense(text, settings, subject.recall) {
                *text = Cow::Owned(shorter);
                rules.extend(done);
            }
        }
    }
    let template = Template::parse(&settings.truncate.marker);
    let rule = rule(subject, settings);
    let truncation = Truncation {
        budget: Size { lines: rule.max_lines, bytes: rule.max_bytes },
        keep: rule.keep,
        lines: settings.truncate.lines(),
        template: &template,
        recall: subject.recall,
        beside: 0,
    };
    let cut_with = |recall: &str| {
        let truncation = Truncation { recall, ..truncation };
        if subject.members { members::apply(truncation, &texts) } else { truncation.apply(&texts) }
    };
    // A marker that also tells the size before condensing is longer, so the cut may not be worth it. Then the plain
    // marker is tried, with which the condensed text would be cut if it came back in a later request.
    let cut = recall_of_condensed(subject, rules).and_then(|recall| cut_with(&recall));
    let cut = cut.or_else(|| cut_with(subject.recall));
    let was_cut = || {
        if subject.members {
            members::was_applied(truncation, subject.leaves)
        } else {
            truncation.was_applied(subject.leaves)
        }
    };
    if rules.is_empty() && cut.is_none() || was_cut() {
        return None;
    }
    if cut.is_some() {
        rules.insert(Rule::Truncate);
    }
    let leaves = leaves(texts, cut);
    // The output may come back, and must then be left alone. If the user's own marker cannot be recognised again, it is
    // used only if the other shapers do not change the text that contains it.
    let is_settled = |leaf: &Option<LeafEdit>| match leaf {
        Some(LeafEdit::Replace(text)) => condense(text, settings, subject.recall).is_none(),
        Some(LeafEdit::Remove) | None => true,
    };
    if !is_verbatim && !template.is_recognisable() && !leaves.iter().all(is_settled) {
        return None;
    }
    is_worth_it(subject, &leaves).then_some(Shaped { leaves, rules })
}

/// The phrase in a marker that says where the full text is, extended by the size of that text, since the other figures
/// in the marker are those of the condensed text. `None` if nothing was condensed.
fn recall_of_condensed(subject: &Subject<'_>, rules: Rules) -> Option<String> {
    let bytes = || thousands(subject.leaves.iter().map(|leaf| leaf.len()).sum());
    (!rules.is_empty()).then(|| format!("condensed from {} bytes; {}", bytes(), subject.recall))
}

/// The rule by which a result is truncated: that of its tool, or the one for errors.
fn rule(subject: &Subject<'_>, settings: &Settings) -> TruncateRule {
    let truncate = &settings.truncate;
    if subject.is_error {
        return TruncateRule { max_lines: usize::MAX, max_bytes: truncate.error_max_bytes, keep: Keep::Both };
    }
    let named = |tool| truncate.tools.iter().find(|(tools, _)| tools.matches(tool)).map(|(_, rule)| rule);
    subject.tool.and_then(named).unwrap_or(&truncate.base).clone()
}

/// Applies everything but truncation until nothing changes any more; `None` if nothing changes at all, or if no visible
/// character would be left.
fn condense(text: &str, settings: &Settings, recall: &str) -> Option<(String, Rules)> {
    let (mut shorter, mut rules) = pass(text, settings, recall)?;
    for _ in 1..MAX_PASSES {
        match pass(&shorter, settings, recall) {
            None => return (!shorter.trim().is_empty()).then_some((shorter, rules)),
            Some((next, done)) => {
                shorter = next;
                rules.extend(done);
            }
        }
    }
    None
}

/// Applies every shaper but truncation once; `None` if nothing changes.
fn pass(text: &str, settings: &Settings, recall: &str) -> Option<(String, Rules)> {
    let mut rules = Rules::NONE;
    let mut current = Cow::Borrowed(text);
    let mut apply = |rule, enabled: bool, shaper: &dyn Fn(&str) -> Option<String>| {
        if let Some(shorter) = if enabled { shaper(&current) } else { None } {
            debug_assert!(shorter.len() < current.len());
            current = Cow::Owned(shorter);
            rules.insert(rule);
        }
    };
    apply(Rule::Escapes, settings.escapes, &escapes::strip);
    // Documents are minified before lines are folded, because a document with folded lines is no longer valid, and a
    // minified one has no lines to fold.
    apply(Rule::Minify, settings.minify, &minify::minify);
    apply(Rule::Fold, settings.fold, &fold::fold);
    apply(Rule::Base64, settings.base64, &|text| base64::elide(text, recall));
    match current {
        Cow::Owned(shorter) => Some((shorter, rules)),
        Cow::Borrowed(_) => None,
    }
}

/// What becomes of each text: the cut decides, and texts that it keeps are sent condensed.
fn leaves(texts: Vec<Cow<'_, str>>, cut: Option<Vec<Option<LeafEdit>>>) -> Vec<Option<LeafEdit>> {
    let condensed = |text: Cow<'_, str>| match text {
        Cow::Borrowed(_) => None,
        Cow::Owned(text) => Some(LeafEdit::Replace(text.into())),
    };
    let cut = cut.unwrap_or_else(|| vec![None; texts.len()]);
    texts.into_iter().zip(cut).map(|(text, leaf)| leaf.or_else(|| condensed(text))).collect()
}

/// How many of the first bytes match.
fn count(bytes: &[u8], matches: impl Fn(u8) -> bool) -> usize {
    bytes.iter().position(|&byte| !matches(byte)).unwrap_or(bytes.len())
}

/// Whether a result becomes at least [`MIN_GAIN`] bytes shorter.
fn is_worth_it(subject: &Subject<'_>, leaves: &[Option<LeafEdit>]) -> bool {
    let before: usize = subject.leaves.iter().map(|leaf| leaf.len()).sum();
    let after = subject.leaves.iter().zip(leaves).map(|(before, leaf)| match leaf {
        None => before.len(),
        Some(LeafEdit::Replace(text)) => text.len(),
        Some(LeafEdit::Remove) => 0,
    });
    before >= after.sum::<usize>() + MIN_GAIN
}

#[cfg(test)]
mod tests;
