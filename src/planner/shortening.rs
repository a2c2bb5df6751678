//! Cutting the middle out of new results, where nothing else makes enough room.

use std::collections::HashMap;

use crate::conversation::{PartId, PartKind};
use crate::shape::settings::{Keep, NamePatterns, TruncateRule};
use crate::shape::{self, Rule, Shaped, Subject};
use crate::strategy::ladder;

use super::decision::{self, Applied, Save};
use super::event::Before;
use super::newborn::decision_of;

/// New results are not cut to fewer bytes than this.
const MIN_RESULT: u64 = 2048;
/// Approximate bytes of the marker in a cut result.
const MARKER: u64 = 256;

/// A result that was not sent before.
pub(super) struct NewResult {
    pub(super) part: PartId,
    /// Bytes of its text as it would be sent.
    pub(super) size: u64,
}

/// A new result without its middle.
pub(super) struct Shortened {
    pub(super) applied: Applied,
    pub(super) save: Save,
    /// Bytes that this saves.
    pub(super) freed: u64,
}

impl Before<'_> {
    /// The results with text that were not sent before: first those in earlier steps, which the client has added, then
    /// those of the step in progress.
    pub(super) fn new_results(&self) -> [Vec<NewResult>; 2] {
        let (tail, sent) = (self.conversation.tail(), self.sent_sizes());
        [self.sent.min(tail)..tail, tail..self.conversation.messages.len()].map(|messages| {
            let parts = messages.flat_map(|message| self.conversation.parts_of(message));
            let results =
                parts.filter(|(_, part)| part.kind() == PartKind::ToolResult && !part.leaves().is_empty());
            results.map(|(part, _)| NewResult { part, size: self.size(part, &sent) }).collect()
        })
    }

    /// Cuts the middle out of the largest of these results, so that `missing` bytes are saved if possible.
    pub(super) fn shorten_all(&self, results: &[NewResult], missing: u64) -> Vec<Shortened> {
        let sizes: Vec<u64> = results.iter().map(|result| result.size).collect();
        let shares = ladder::shares(&sizes, missing, MIN_RESULT);
        let larger = results.iter().zip(shares).filter(|(result, share)| *share < result.size);
        larger.filter_map(|(result, share)| self.shorten(result, share.saturating_sub(MARKER))).collect()
    }

    /// Bytes of a result's text as it would be sent; `sent` are the bytes that decisions leave of their parts.
    pub(super) fn size(&self, id: PartId, sent: &HashMap<PartId, u64>) -> u64 {
        let leaves = self.conversation.part(id).map_or(0, |part| part.leaves().len());
        let text = |leaf| self.conversation.text(id, leaf).map_or(0, |text| text.len() as u64);
        sent.get(&id).copied().unwrap_or_else(|| (0..leaves).map(text).sum())
    }

    /// Cuts the middle out of a result, whatever its tool, so that about `max_bytes` of it stay; `None` if that does
    /// not make it shorter.
    fn shorten(&self, result: &NewResult, max_bytes: u64) -> Option<Shortened> {
        let NewResult { part: id, size } = *result;
        let part = self.conversation.part(id)?;
        let content = part.content()?;
        let texts = self.conversation.texts(id)?;
        let output = decision::output_id(&texts);
        let recall = (self.recall)(&output);
        let max_bytes = max_bytes as usize;
        let mut settings = self.policy.shape.clone();
        settings.truncate.base = TruncateRule { max_lines: usize::MAX, max_bytes, keep: Keep::Both };
        settings.truncate.tools = Vec::new();
        settings.truncate.exempt = NamePatterns::default();
        settings.truncate.error_max_bytes = max_bytes;
        let subject = Subject {
            leaves: &texts,
            members: false,
            tool: None,
            arguments: None,
            is_error: true,
            recall: &recall,
        };
        let shaped = Shaped { rules: Rule::Truncate.into(), ..shape::shape(&subject, &settings)? };
        let decision = decision_of(shaped, part, content, &texts, output)?;
        let freed = size.checked_sub(decision.bytes_after).filter(|freed| *freed > 0)?;
        let applied = Applied { part: id, decision: decision.into() };
        Some(Shortened { applied, save: Save::of(&texts), freed })
    }
}
