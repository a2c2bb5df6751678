//! Truncation: a result that is too large keeps one end or both, and says how much was removed and where it is.
//!
//! All texts of a result are one sequence with one budget. What is kept never exceeds it; the marker comes on top, as
//! long as it can be recognised again. Nothing is cut because of the notice of an earlier cut.

use std::borrow::Cow;
use std::cell::LazyCell;

use memchr::memchr_iter;

use super::cut::{self, Lines, Offset, Size};
use super::estimate;
use super::marker::{GAP, Template};
use super::notice;
use super::settings::{Keep, Truncate};
use crate::plan::LeafEdit;

/// How a result is truncated.
#[derive(Clone, Copy)]
pub(super) struct Truncation<'a> {
    pub(super) budget: Size,
    pub(super) keep: Keep,
    pub(super) lines: Lines,
    pub(super) template: &'a Template<'a>,
    pub(super) recall: &'a str,
    /// Bytes of the result that are not part of the sequence and do not count against the budget.
    pub(super) beside: usize,
}

impl Truncation<'_> {
    /// What becomes of each text; `None` if all stay as they are.
    pub(super) fn apply(&self, texts: &[Cow<'_, str>]) -> Option<Vec<Option<LeafEdit>>> {
        let fit_with_notice = || self.fit(texts, self.budget_with_notice());
        if self.fit(texts, self.budget) || (fit_with_notice() && notice::is_cut_by_client(texts)) {
            return None;
        }
        let total = texts.iter().map(|text| text.len()).sum::<usize>() + self.beside;
        let cut = Cut::new(texts, self.marked_budget(total)?, self.keep, self.lines)?;
        let removed = cut.removed(texts).map(str::len).sum();
        let marker = self.template.fill(removed, total, self.recall);
        let added = format!("{GAP}{marker}{GAP}");
        let leaves = cut.leaves(texts, &marker);
        // A template may be blank, and the budget too small for anything else.
        let is_blank = |leaf: &LeafEdit| matches!(leaf, LeafEdit::Replace(text) if text.trim().is_empty());
        let has_blank = leaves.iter().flatten().any(is_blank);
        (estimate::worth(cut.removed(texts), &added) && !has_blank).then_some(leaves)
    }

    /// Whether the texts are a result of [`Self::apply`]: they contain a marker whose figures add up, and the rest is
    /// within the budget.
    pub(super) fn was_applied(&self, texts: &[Cow<'_, str>]) -> bool {
        if !self.template.is_recognisable() {
            return false;
        }
        let all = LazyCell::new(|| self.size(texts));
        texts.iter().any(|text| self.has_marker(text, &all))
    }

    /// Whether a text of the sequence, which has the size `all`, contains a marker whose figures are right.
    fn has_marker(&self, text: &str, all: &LazyCell<Size, impl FnOnce() -> Size>) -> bool {
        // Newlines are counted once, from marker to marker, and only if there is a marker.
        let own = LazyCell::new(|| self.lines.size(text).lines);
        let own_newlines = LazyCell::new(|| memchr_iter(b'\n', text.as_bytes()).count());
        let (mut newlines, mut counted) = (0, 0);
        self.template.find_in(text).any(|marker| {
            let head = &text[..marker.start.saturating_sub(GAP.len())];
            let tail = text.get(marker.end + GAP.len()..).unwrap_or_default();
            let gaps = text.len() - head.len() - tail.len() - (marker.end - marker.start);
            newlines += memchr_iter(b'\n', &text.as_bytes()[counted..head.len()]).count();
            counted = head.len();
            let after = *own_newlines - newlines - self.template.newlines - gaps;
            let kept = Size {
                lines: all.lines - *own + self.lines.of(newlines, head) + self.lines.of(after, tail),
                bytes: all.bytes - text.len() + head.len() + tail.len(),
            };
            let adds_up = |total| marker.removed.checked_add(kept.bytes + self.beside) == Some(total);
            kept.fits(self.budget) && marker.total.is_none_or(adds_up)
        })
    }

    fn size(&self, texts: &[Cow<'_, str>]) -> Size {
        let sizes = texts.iter().map(|text| self.lines.size(text));
        sizes.fold(Size { lines: 0, bytes: 0 }, Size::plus)
    }

    fn fit(&self, texts: &[Cow<'_, str>], budget: Size) -> bool {
        let bytes: usize = texts.iter().map(|text| text.len()).sum();
        // A text has at most one line more than bytes, so the lines of a short text need not be counted.
        bytes <= budget.bytes && (bytes + texts.len() <= budget.lines || self.size(texts).fits(budget))
    }

    /// The budget for a result that the client has cut, which contains the client's notice.
    const fn budget_with_notice(&self) -> Size {
        Size {
            lines: self.budget.lines.saturating_add(notice::NOTICE_SIZE.lines),
            bytes: self.budget.bytes.saturating_add(notice::NOTICE_SIZE.bytes),
        }
    }

    /// The budget for what is kept; `None` if not even the marker fits. A marker that cannot be recognised again is
    /// deducted from the budget, so that the result fits.
    fn marked_budget(&self, total: usize) -> Option<Size> {
        if self.template.is_recognisable() {
            return Some(self.budget);
        }
        let marker = self.template.fill(total, total, self.recall);
        let beside = Size { lines: self.template.newlines + 3, bytes: marker.len() + 2 * GAP.len() };
        if beside.fits(self.budget) {
            return Some(self.budget.minus(beside));
        }
        // The marker is used alone if there is room for nothing else.
        self.lines.size(&marker).fits(self.budget).then_some(Size { lines: 0, bytes: 0 })
    }
}

impl Truncate {
    /// The fewest lines and bytes that the marker takes, whatever it is filled with. Under lower limits nothing is cut.
    /// `None` if the marker is not counted against the limits.
    pub fn least_of_marker(&self) -> Option<(usize, usize)> {
        let template = Template::parse(&self.marker);
        let Size { lines, bytes } = self.lines().size(&template.fill(0, 0, ""));
        (!template.is_recognisable()).then_some((lines, bytes))
    }

    /// How lines are counted.
    pub(super) const fn lines(&self) -> Lines {
        if self.count_trailing_newline { Lines::CountTrailing } else { Lines::Plain }
    }
}

/// A cut removes everything from one place up to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cut {
    from: Offset,
    to: Offset,
}

impl Cut {
    /// The cut that leaves what fits the budget; `None` if nothing would be removed.
    fn new(texts: &[Cow<'_, str>], budget: Size, keep: Keep, lines: Lines) -> Option<Self> {
        let none = Size { lines: 0, bytes: 0 };
        let (head, tail) = match keep {
            Keep::Head => (budget, none),
            Keep::Tail => (none, budget),
            Keep::Both => (budget.part(500), budget),
            Keep::Parts(thousandths) => (budget.part(thousandths), budget),
        };
        let (from, used) =
            if head == none { (Offset { text: 0, at: 0 }, none) } else { cut::head(texts, head, lines) };
        let to = if tail == none {
            Offset { text: texts.len(), at: 0 }
        } else {
            // The end may use what the beginning has left of the budget.
            cut::tail(texts, tail.minus(used), lines)
        };
        let cut = Self { from, to };
        let to = if cut.leaves_blank_tail(texts) { Offset { text: to.text + 1, at: 0 } } else { to };
        (from < to).then_some(Self { from, to })
    }

    /// Whether the kept end would be a text of its own without a visible character: no provider accepts it.
    fn leaves_blank_tail(self, texts: &[Cow<'_, str>]) -> bool {
        let Offset { text, at } = self.to;
        at > 0 && self.marker_text() != text && texts[text][at..].trim().is_empty()
    }

    /// The text that gets the marker: the first one that is cut and survives, otherwise the first that is cut.
    const fn marker_text(self) -> usize {
        if self.from.at == 0 && self.to.at > 0 { self.to.text } else { self.from.text }
    }

    /// What the cut removes of each text.
    fn removed<'t>(self, texts: &'t [Cow<'_, str>]) -> impl Iterator<Item = &'t str> {
        texts.iter().enumerate().map(move |(index, text)| {
            let start = if index == self.from.text { self.from.at } else { 0 };
            let end = if index == self.to.text { self.to.at } else { text.len() };
            if (self.from.text..=self.to.text).contains(&index) { &text[start..end] } else { "" }
        })
    }

    /// What becomes of each text.
    fn leaves(self, texts: &[Cow<'_, str>], marker: &str) -> Vec<Option<LeafEdit>> {
        let leaf = |(index, text): (usize, &Cow<'_, str>)| {
            let head = if index == self.from.text { &text[..self.from.at] } else { "" };
            let tail = if index == self.to.text { &text[self.to.at..] } else { "" };
            let is_kept = index < self.from.text || index > self.to.text;
            let is_whole = is_kept || (index == self.to.text && self.to.at == 0);
            match (index == self.marker_text(), head, tail) {
                (true, ..) => Some(LeafEdit::Replace(marked(head, marker, tail).into())),
                _ if is_whole => None,
                (false, "", "") => Some(LeafEdit::Remove),
                // One of the two is empty, because a text with both has the marker.
                (false, ..) => Some(LeafEdit::Replace(format!("{head}{tail}").into())),
            }
        };
        texts.iter().enumerate().map(leaf).collect()
    }
}

/// The kept beginning and end, with the marker in between.
fn marked(head: &str, marker: &str, tail: &str) -> String {
    let present: Vec<&str> = [head, marker, tail].into_iter().filter(|piece| !piece.is_empty()).collect();
    present.join(GAP)
}
