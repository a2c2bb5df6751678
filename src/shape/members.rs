//! Results whose texts are named members: what a short one says (a status, where the next page begins) is nowhere in
//! the long ones. The short ones stay, next to the sequence of the others, and are deducted from its budget.

use std::borrow::Cow;

use super::Leaf;
use super::cut::Size;
use super::truncate::Truncation;

/// Replaces a text that cannot be removed.
pub const GONE: &str = "…";

/// The most that all short members together may take, and no more than a quarter of the budget.
const MOST: Size = Size { lines: 16, bytes: 1 << 10 };

/// [`Truncation::apply`] for members.
pub(super) fn apply(truncation: Truncation<'_>, texts: &[Cow<'_, str>]) -> Option<Vec<Leaf>> {
    let Divided { stream, is_short, within } = divide(truncation, texts);
    let mut cut = within.apply(&stream)?.into_iter();
    Some(
        is_short
            .iter()
            .map(|is_short| if *is_short { Leaf::Keep } else { cut.next().unwrap_or(Leaf::Keep) })
            .collect(),
    )
}

/// [`Truncation::was_applied`] for members.
pub(super) fn was_applied(truncation: Truncation<'_>, texts: &[Cow<'_, str>]) -> bool {
    let Divided { stream, within, .. } = divide(truncation, texts);
    within.was_applied(&stream)
}

struct Divided<'t> {
    /// The texts that are not short.
    stream: Vec<Cow<'t, str>>,
    /// Whether each text is short.
    is_short: Vec<bool>,
    /// How the others are truncated.
    within: Truncation<'t>,
}

/// A text with a marker belongs to what was cut, and an already removed text takes no room: a result that was truncated
/// is divided in such a way that it is left alone.
fn divide<'t>(truncation: Truncation<'t>, texts: &'t [Cow<'_, str>]) -> Divided<'t> {
    let Truncation { budget, lines, template, .. } = truncation;
    let most = Size { lines: MOST.lines.min(budget.lines / 4), bytes: MOST.bytes.min(budget.bytes / 4) };
    let is_marked = |text: &str| template.is_recognisable() && template.find_in(text).next().is_some();
    let mut taken = Size { lines: 0, bytes: 0 };
    let mut is_short = |text: &str| {
        if text == GONE {
            return true;
        }
        if taken.bytes + text.len() > most.bytes || is_marked(text) {
            return false;
        }
        let with = taken.plus(lines.size(text));
        let fits = with.fits(most);
        taken = if fits { with } else { taken };
        fits
    };
    let is_short: Vec<bool> = texts.iter().map(|text| is_short(text)).collect();
    let stream = texts.iter().zip(&is_short).filter(|(_, is_short)| !**is_short);
    let stream = stream.map(|(text, _)| Cow::Borrowed(&**text)).collect();
    let within = Truncation { budget: budget.minus(taken), beside: taken.bytes, ..truncation };
    Divided { stream, is_short, within }
}
