//! Byte edits and their application.
//!
//! Edits know nothing of JSON: whoever makes them knows what is in the document.

use super::Span;

/// A replacement: the bytes of `at` become `text`. An empty span is an insertion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// What is replaced.
    pub at: Span,
    /// What replaces it.
    pub text: String,
}

impl Edit {
    /// A replacement.
    pub fn replace(at: Span, text: impl Into<String>) -> Self {
        Self { at, text: text.into() }
    }

    /// An insertion before the byte at `position`.
    pub fn insert(position: u32, text: impl Into<String>) -> Self {
        Self { at: Span { start: position, end: position }, text: text.into() }
    }

    /// A deletion.
    pub fn delete(at: Span) -> Self {
        Self { at, text: String::new() }
    }
}

/// Edits of one document: sorted, disjoint. Insertions at the same place keep the order in which they were given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edits(Vec<Edit>);

/// Two edits affect the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("edits overlap at byte {0}")]
pub struct Overlap(u32);

impl Edits {
    /// Sorts edits and checks that they are disjoint.
    ///
    /// # Errors
    /// Returns [`Overlap`] with the position of the first conflict.
    pub fn new(mut edits: Vec<Edit>) -> Result<Self, Overlap> {
        edits.sort_by_key(|edit| (edit.at.start, edit.at.end));
        match edits.windows(2).find(|pair| pair[1].at.start < pair[0].at.end) {
            Some(pair) => Err(Overlap(pair[1].at.start)),
            None => Ok(Self(edits)),
        }
    }

    /// Whether there is nothing to change.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The edits in order of position.
    pub fn iter(&self) -> std::slice::Iter<'_, Edit> {
        self.0.iter()
    }

    /// The document after the edits. Edits that extend beyond its end are cut there.
    pub fn apply(&self, document: &[u8]) -> Vec<u8> {
        let added: usize = self.0.iter().map(|edit| edit.text.len()).sum();
        let removed: usize = self.0.iter().map(|edit| edit.at.len()).sum();
        let mut out = Vec::with_capacity((document.len() + added).saturating_sub(removed));
        let mut from = 0;
        for edit in &self.0 {
            let (start, end) =
                (edit.at.range().start.min(document.len()), edit.at.range().end.min(document.len()));
            out.extend_from_slice(&document[from..start]);
            out.extend_from_slice(edit.text.as_bytes());
            from = end;
        }
        out.extend_from_slice(&document[from..]);
        out
    }
}

impl<'a> IntoIterator for &'a Edits {
    type Item = &'a Edit;
    type IntoIter = std::slice::Iter<'a, Edit>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_applied_in_order() {
        let edits = Edits::new(vec![
            Edit::replace(Span::new(4, 5), "E"),
            Edit::insert(2, "x"),
            Edit::insert(2, "y"),
            Edit::delete(Span::new(2, 3)),
        ])
        .unwrap();
        assert_eq!(edits.apply(b"abcdef"), b"abxydEf");
        assert_eq!(Edits::default().apply(b"abc"), b"abc");
    }

    #[test]
    fn overlapping_edits_are_refused() {
        let overlap = Edits::new(vec![Edit::delete(Span::new(1, 4)), Edit::insert(3, "x")]);
        assert_eq!(overlap, Err(Overlap(3)));
        assert!(Edits::new(vec![Edit::delete(Span::new(1, 3)), Edit::insert(3, "x")]).is_ok());
    }
}
