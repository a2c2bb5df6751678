//! Applies the decisions of one lineage to a place that another one has found.

use crate::conversation::Conversation;
use crate::store::StoreError;

use super::memory::Decided;
use super::{Lineage, Place};

impl Lineage {
    /// A place that another lineage has found, with the decisions that are in force by this one's memory and store.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn decided_at(&self, conversation: &Conversation, place: &Place) -> Result<Place, StoreError> {
        let Decided { applied, splice } = self.decided(conversation, &place.chains, place.sent)?;
        Ok(Place { applied, splice, ..place.clone() })
    }
}
