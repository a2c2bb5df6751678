//! Results whose texts are the values of named members. A short one may say something that none of the long ones does,
//! such as a status or where the next page begins. Short members therefore stay, and their size is deducted from the
//! budget for the sequence of the others.

use std::borrow::Cow;

use super::cut::Size;
use super::truncate::Truncation;
use crate::plan::LeafEdit;

/// Replaces a text that cannot be removed.
pub const GONE: &str = "…";

/// The most that all short members together may take. A quarter of the budget is a limit as well.
const MAX_SHORT: Size = Size { lines: 16, bytes: 1 << 10 };

/// [`Truncation::apply`] for members.
pub(super) fn apply(truncation: Truncation<'_>, texts: &[Cow<'_, str>]) -> Option<Vec<Option<LeafEdit>>> {
    let Divided { long, is_short, truncation } = divide(truncation, texts);
    let mut cut = truncation.apply(&long)?.into_iter();
    let leaf = |is_short: bool| if is_short { None } else { cut.next().flatten() };
    Some(is_short.into_iter().map(leaf).collect())
}

/// [`Truncation::was_applied`] for members.
pub(super) fn was_applied(truncation: Truncation<'_>, texts: &[Cow<'_, str>]) -> bool {
    let Divided { long, truncation, .. } = divide(truncation, texts);
    truncation.was_applied(&long)
}

/// The texts of a result, divided into short members and others.
struct Divided<'t> {
    /// The texts that are not short.
    long: Vec<Cow<'t, str>>,
    /// Whether each text is short.
    is_short: Vec<bool>,
    /// How the texts that are not short are truncated.
    truncation: Truncation<'t>,
}

/// Divides the texts of a result. A result that was truncated before is divided as it was then, so that it is left
/// alone: a text with a marker is not short, and a removed text takes no room.
fn divide<'t>(truncation: Truncation<'t>, texts: &'t [Cow<'_, str>]) -> Divided<'t> {
    let Truncation { budget, lines, template, .. } = truncation;
    let most =
        Size { lines: MAX_SHORT.lines.min(budget.lines / 4), bytes: MAX_SHORT.bytes.min(budget.bytes / 4) };
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
    let long = texts.iter().zip(&is_short).filter(|(_, is_short)| !**is_short);
    let long = long.map(|(text, _)| Cow::Borrowed(&**text)).collect();
    let truncation = Truncation { budget: budget.minus(taken), beside: taken.bytes, ..truncation };
    Divided { long, is_short, truncation }
}
