//! Images and documents that stand in tool results: what they count for, and which of them may go.
//!
//! One says how large it is where its encoding stands in the request. What is only referred to does not, and stays.

use super::{Leaf, Part, Slots};
use crate::json::Span;

/// What an image or a document counts at most, in bytes of text: about 1,600 tokens, whatever its encoding.
pub const MEDIA: usize = 6400;

/// Images and documents of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Media {
    /// The list that they stand in: that of the texts, or one beside what is said.
    pub slots: Slots,
    /// The encodings of those that may go, in order: with the texts, or by themselves; none where something in the list is
    /// not known, or does not say how large it is.
    pub blocks: Box<[Leaf]>,
    /// The type of a block with text that may stand in place of one; `None`: nothing may.
    pub text: Option<&'static str>,
}

impl Media {
    /// Roughly the memory it takes, in bytes.
    pub(super) fn weight(&self) -> usize {
        std::mem::size_of::<Self>()
            + std::mem::size_of_val(&*self.slots.items)
            + std::mem::size_of_val(&*self.blocks)
    }
}

impl Part {
    /// Bytes of a result as far as they are read as text: no image counts by its encoding.
    pub(super) fn result_len(&self) -> usize {
        self.span.len() - self.beside_texts().map(|item| item.len().saturating_sub(MEDIA)).sum::<usize>()
    }

    /// What stands in a result's lists and is no text that can be replaced, each of which counts for [`MEDIA`] at most.
    pub fn beside_texts(&self) -> impl Iterator<Item = Span> {
        let slots = self.slots.iter().flat_map(|slots| slots.items.iter().enumerate());
        let is_text =
            move |slot: usize| self.leaves.binary_search_by_key(&Some(slot as u32), |leaf| leaf.slot).is_ok();
        let own = slots.filter(move |(slot, _)| !is_text(*slot)).map(|(_, item)| item);
        let beside = self.media.as_ref().map(|media| &media.slots);
        let beside = beside.filter(|list| self.slots.as_ref().is_none_or(|own| own.array != list.array));
        own.chain(beside.into_iter().flat_map(|list| &*list.items)).copied()
    }

    /// The images and documents of a result that may go, each by its encoding.
    pub fn media(&self) -> &[Leaf] {
        self.media.as_ref().map(|media| &*media.blocks).unwrap_or_default()
    }

    /// Bytes of these as they count.
    pub fn media_len(&self) -> usize {
        self.media().iter().map(|block| block.span.len().min(MEDIA)).sum()
    }

    /// The type of a block with text that may stand in place of an image or a document; `None`: nothing may.
    pub fn text_for_media(&self) -> Option<&'static str> {
        self.media.as_ref().and_then(|media| media.text)
    }

    /// A leaf, or, counted behind these, an image or a document that may go; and the list that it stands in.
    pub fn block(&self, at: usize) -> Option<(&Leaf, Option<&Slots>)> {
        match at.checked_sub(self.leaves.len()) {
            None => self.leaves.get(at).map(|leaf| (leaf, self.slots.as_ref())),
            Some(at) => {
                let media = self.media.as_deref()?;
                media.blocks.get(at).map(|block| (block, Some(&media.slots)))
            }
        }
    }
}
