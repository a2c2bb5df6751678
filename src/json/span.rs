//! Byte ranges of a document.
//!
//! A span does not say which document it belongs to, nor from where it counts: [`Span::shift`] and
//! [`Span::relative_to`] move it.

use std::ops::Range;

/// A half-open byte range. Documents over 4 GiB are rejected before any span of them is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Span {
    /// The first byte.
    pub start: u32,
    /// One past the last byte; never below `start`.
    pub end: u32,
}

impl Span {
    /// A span from positions that are known to be ordered and below 4 GiB.
    pub fn new(start: usize, end: usize) -> Self {
        debug_assert!(start <= end && u32::try_from(end).is_ok());
        Self { start: start as u32, end: end as u32 }
    }

    /// The number of bytes.
    pub fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether it contains no byte.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// The same span, counted from a position `base` bytes earlier.
    #[must_use]
    pub fn shift(self, base: usize) -> Self {
        Self::new(self.start as usize + base, self.end as usize + base)
    }

    /// The same span, counted from a position `base` bytes later; `base` is at or before its start.
    #[must_use]
    pub fn relative_to(self, base: usize) -> Self {
        Self::new(self.start as usize - base, self.end as usize - base)
    }

    /// The span as an index for slices.
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// The bytes of `document` in the span; empty if it is out of range.
    pub fn of(self, document: &[u8]) -> &[u8] {
        document.get(self.range()).unwrap_or_default()
    }
}
