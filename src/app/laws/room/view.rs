//! What was sent compared with what was received: which of the messages are sent, and what was inserted between them.

use proptest::prelude::*;

use crate::app::laws::witness::plain;
use crate::planner::{Layout, Splice};
use crate::protocol::conformance::Subject;
use crate::protocol::conformance::tree::Tree;

/// The messages that are sent.
pub(super) struct View {
    /// Their indices among the request's messages, ascending.
    pub(super) kept: Vec<usize>,
    /// The messages as received.
    pub(super) messages: Vec<Tree>,
    /// The messages as sent, without a text that was appended.
    pub(super) wire: Vec<Tree>,
    /// Where the replacement of the others begins among the messages sent.
    at: usize,
    /// The messages of the replacement.
    inserted: Vec<Tree>,
}

impl View {
    /// Separates what the splice inserted from what the client said, and checks that all of the replacement is there.
    pub(super) fn of(
        subject: &dyn Subject,
        messages: &[Tree],
        wire: &[Tree],
        splice: Option<&Splice>,
    ) -> Result<Self, TestCaseError> {
        let is_kept = |at: &usize| !splice.is_some_and(|splice| splice.drops(*at));
        let kept: Vec<usize> = (0..messages.len()).filter(is_kept).collect();
        let mut view = Self {
            messages: kept.iter().map(|at| messages[*at].clone()).collect(),
            wire: wire.to_vec(),
            at: 0,
            inserted: Vec::new(),
            kept,
        };
        if let Some(splice) = splice {
            view.take_out(subject, splice)?;
        }
        prop_assert_eq!(view.wire.len(), view.messages.len(), "not as many messages as there should be");
        Ok(view)
    }

    /// Which of the request's messages was sent at a place; `None`: the gateway's own.
    pub(super) fn origin(&self, place: usize) -> Option<usize> {
        let behind = place.checked_sub(self.at + self.inserted.len());
        let kept = behind.map_or_else(|| (place < self.at).then_some(place), |behind| Some(self.at + behind));
        kept.map(|kept| self.kept[kept])
    }

    fn take_out(&mut self, subject: &dyn Subject, splice: &Splice) -> Result<(), TestCaseError> {
        let said = &*splice.text;
        prop_assert!(splice.dropped() > 0 && splice.first() > 0, "{:?}", splice);
        let at = self.kept.partition_point(|kept| *kept < splice.at.message as usize);
        if splice.layout == Layout::Appended {
            prop_assert_eq!(self.kept.get(at).copied(), Some(splice.at.message as usize));
            let appended = self.wire.get_mut(at).is_some_and(|wire| shorten(wire, &format!("\n\n{said}")));
            prop_assert!(appended, "nothing is appended: {:?}", self.wire.get(at));
            return Ok(());
        }
        let count = splice.inserted() as usize;
        prop_assert!(at > 0 && at + count <= self.wire.len(), "{:?}", splice);
        (self.at, self.inserted) = (at, self.wire.drain(at..at + count).collect());
        let words = |tree: &Tree| plain(subject, tree).words(&[]);
        let is_said = |tree: &Tree| words(tree).iter().any(|word| word == said);
        prop_assert!(self.inserted.iter().any(is_said), "{:?} does not say {:?}", self.inserted, said);
        Ok(())
    }
}

/// Removes `end` from the end of the only string that ends with it.
fn shorten(tree: &mut Tree, end: &str) -> bool {
    if let Some(text) = tree.text() {
        let rest = text.strip_suffix(end).map(|rest| Tree::Text(rest.to_owned()));
        return rest.map(|rest| *tree = rest).is_some();
    }
    match tree {
        Tree::List(items) => items.iter_mut().rev().any(|item| shorten(item, end)),
        Tree::Map(members) => members.iter_mut().rev().any(|(_, value)| shorten(value, end)),
        Tree::Raw(_) | Tree::Text(_) | Tree::Json(_) => false,
    }
}
