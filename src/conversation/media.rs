//! Images and documents in tool results: what they count as, and which of them may be removed.
//!
//! The size of one is known if its encoding is in the request. One that is only referred to has no known size, and
//! stays.

use super::{Leaf, Part, Slots};
use crate::json::Span;

/// The most that an image or a document counts as, in bytes of text: about 1,600 tokens, whatever its encoding.
pub const MEDIA: usize = 6400;

/// The images and documents of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Media {
    /// The list that they are in: that of the texts, or one next to it.
    pub slots: Slots,
    /// The encodings of those that may be removed, in order: among the texts, or by themselves. Empty if something in
    /// the list is unknown or has no known size.
    pub blocks: Box<[Leaf]>,
    /// The type of a text block that may replace one; `None`: nothing may.
    pub text: Option<&'static str>,
}

impl Media {
    /// The approximate memory that it takes, in bytes.
    pub(super) fn weight(&self) -> usize {
        std::mem::size_of::<Self>()
            + std::mem::size_of_val(&*self.slots.items)
            + std::mem::size_of_val(&*self.blocks)
    }
}

impl Part {
    /// Bytes of a result that are read as text: images do not count by their encoding.
    pub(super) fn result_len(&self) -> usize {
        self.span.len() - self.beside_texts().map(|item| item.len().saturating_sub(MEDIA)).sum::<usize>()
    }

    /// The items of a result's lists that are not replaceable texts, each of which counts as [`MEDIA`] at most.
    pub fn beside_texts(&self) -> impl Iterator<Item = Span> {
        let (leaves, slots, media) = (self.leaves(), self.slots(), self.media_list());
        let items = slots.into_iter().flat_map(|slots| slots.items.iter().enumerate());
        let is_text =
            move |slot: usize| leaves.binary_search_by_key(&Some(slot as u32), |leaf| leaf.slot).is_ok();
        let own = items.filter(move |(slot, _)| !is_text(*slot)).map(|(_, item)| item);
        let beside = media.map(|media| &media.slots);
        let beside = beside.filter(|list| slots.is_none_or(|own| own.array != list.array));
        own.chain(beside.into_iter().flat_map(|list| &*list.items)).copied()
    }

    /// The images and documents of a result.
    pub fn media_list(&self) -> Option<&Media> {
        self.result()?.media.as_deref()
    }

    /// The encodings of a result's images and documents that may be removed.
    pub fn media(&self) -> &[Leaf] {
        self.media_list().map(|media| &*media.blocks).unwrap_or_default()
    }

    /// What these count as, in bytes.
    pub fn media_len(&self) -> usize {
        self.media().iter().map(|block| block.span.len().min(MEDIA)).sum()
    }

    /// The type of a text block that may replace an image or a document; `None`: nothing may.
    pub fn text_for_media(&self) -> Option<&'static str> {
        self.media_list().and_then(|media| media.text)
    }

    /// A leaf or, with indices after those of the leaves, an image or a document that may be removed; and the list that
    /// it is in.
    pub fn block(&self, at: usize) -> Option<(&Leaf, Option<&Slots>)> {
        match at.checked_sub(self.leaves().len()) {
            None => self.leaves().get(at).map(|leaf| (leaf, self.slots())),
            Some(at) => {
                let media = self.media_list()?;
                media.blocks.get(at).map(|block| (block, Some(&media.slots)))
            }
        }
    }
}
