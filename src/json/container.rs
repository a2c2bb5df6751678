//! Changes to the items of an array or the members of an object, as edits.
//!
//! All handling of commas is here. The changes to a container are given together, because deletions of neighbours share
//! a comma.

use super::{Edit, Span};

/// The changes to the elements of a container.
#[derive(Debug, Clone, Default)]
pub struct Patch {
    /// Indices of elements to drop.
    pub drop: Vec<usize>,
    /// Elements to insert, each before the element with that index (at the end if it is the number of elements), as
    /// JSON text. Several at one index keep the given order.
    pub insert: Vec<(usize, String)>,
}

impl Patch {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.drop.is_empty() && self.insert.is_empty()
    }
}

/// The edits that apply `patch` to a container whose brackets are at the ends of `container` and whose elements (items,
/// or members from key to value) are at `elements`. Indices out of range are ignored.
pub fn edits(container: Span, elements: &[Span], patch: &Patch) -> Vec<Edit> {
    let mut dropped = vec![false; elements.len()];
    for index in &patch.drop {
        if let Some(flag) = dropped.get_mut(*index) {
            *flag = true;
        }
    }
    let mut out = insertions(container, elements, &dropped, &patch.insert);
    out.extend(deletions(elements, &dropped));
    out
}

/// Each maximal run of dropped elements is deleted with the comma before it or, at the front, the one after it.
fn deletions(elements: &[Span], dropped: &[bool]) -> Vec<Edit> {
    let mut out = Vec::new();
    let mut index = 0;
    while index < elements.len() {
        if !dropped[index] {
            index += 1;
            continue;
        }
        let first = index;
        while index < elements.len() && dropped[index] {
            index += 1;
        }
        let start = if first == 0 { elements[0].start } else { elements[first - 1].end };
        let end = match elements.get(index) {
            Some(next) if first == 0 => next.start,
            _ => elements[index - 1].end,
        };
        out.push(Edit::delete(Span { start, end }));
    }
    out
}

/// An insertion is anchored on the remaining element before it, otherwise on the one after it, otherwise on the
/// container itself.
fn insertions(
    container: Span,
    elements: &[Span],
    dropped: &[bool],
    inserts: &[(usize, String)],
) -> Vec<Edit> {
    let mut out = Vec::new();
    let mut unanchored = Vec::new();
    let mut ordered: Vec<&(usize, String)> = inserts.iter().collect();
    ordered.sort_by_key(|(index, _)| *index);
    for (index, text) in ordered {
        let index = (*index).min(elements.len());
        if let Some(before) = (0..index).rev().find(|at| !dropped[*at]) {
            out.push(Edit::insert(elements[before].end, format!(",{text}")));
        } else if let Some(after) = (index..elements.len()).find(|at| !dropped[*at]) {
            out.push(Edit::insert(elements[after].start, format!("{text},")));
        } else {
            unanchored.push(text.as_str());
        }
    }
    if !unanchored.is_empty() {
        let position = elements.first().map_or(container.start + 1, |first| first.start);
        out.push(Edit::insert(position, unanchored.join(",")));
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Edits, scan};
    use super::*;

    fn patched(text: &str, patch: &Patch) -> String {
        let root = scan::document(text.as_bytes()).unwrap();
        let elements: Vec<Span> =
            scan::items(text.as_bytes(), root.span).unwrap().iter().map(|item| item.span).collect();
        let edits = Edits::new(edits(root.span, &elements, patch)).unwrap();
        String::from_utf8(edits.apply(text.as_bytes())).unwrap()
    }

    #[test]
    fn patched_arrays() {
        for (text, drop, insert, expected) in [
            ("[1, 2, 3]", &[0][..], &[][..], "[2, 3]"),
            ("[1, 2, 3]", &[1], &[], "[1, 3]"),
            ("[1, 2, 3]", &[2], &[], "[1, 2]"),
            ("[1, 2, 3]", &[0, 1, 2], &[], "[]"),
            ("[ 1 , 2 ]", &[0, 1], &[(0, "9")], "[ 9 ]"),
            ("[1,2]", &[], &[(0, "a"), (0, "b")], "[a,b,1,2]"),
            ("[1,2]", &[], &[(2, "a"), (2, "b")], "[1,2,a,b]"),
            ("[1,2,3]", &[1], &[(1, "a"), (2, "b")], "[1,a,b,3]"),
            ("[]", &[], &[(0, "a"), (5, "b")], "[a,b]"),
            ("[1]", &[7], &[], "[1]"),
        ] {
            let patch = Patch {
                drop: drop.to_vec(),
                insert: insert.iter().map(|(index, text)| (*index, (*text).to_owned())).collect(),
            };
            assert_eq!(patched(text, &patch), expected, "{text} {patch:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        #[test]
        fn patches_equal_list_operations(
            count in 0_usize..8,
            gaps in prop::collection::vec("[ \n]{0,2}", 20),
            drop in prop::collection::vec(0_usize..8, 0..8),
            insert in prop::collection::vec((0_usize..9, 100_u32..200), 0..5),
        ) {
            let mut text = String::from("[");
            for index in 0..count {
                if index > 0 { text.push(','); }
                text.push_str(&gaps[index * 2]);
                text.push_str(&index.to_string());
                text.push_str(&gaps[index * 2 + 1]);
            }
            text.push(']');
            let patch = Patch {
                drop: drop.clone(),
                insert: insert.iter().map(|(index, value)| (*index, value.to_string())).collect(),
            };
            let mut expected: Vec<u32> = Vec::new();
            for index in 0..=count {
                for (at, value) in &insert {
                    if (*at).min(count) == index { expected.push(*value); }
                }
                if index < count && !drop.contains(&index) { expected.push(index as u32); }
            }
            // Insertions beyond the end come after those at the end only in the order of their indices.
            let got: Vec<u32> = serde_json::from_str(&patched(&text, &patch)).unwrap();
            let mut got_sorted = got.clone();
            let mut expected_sorted = expected.clone();
            got_sorted.sort_unstable();
            expected_sorted.sort_unstable();
            prop_assert_eq!(&got_sorted, &expected_sorted);
            if insert.iter().all(|(index, _)| *index <= count) { prop_assert_eq!(got, expected); }
        }
    }
}
