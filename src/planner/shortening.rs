//! Cutting the middle out of new results, where nothing else makes enough room.

use std::collections::HashMap;

use crate::conversation::{PartId, PartKind};
use crate::plan::LeafEdit;
use crate::shape::settings::{Keep, NamePatterns, TruncateRule};
use crate::shape::{self, Subject};
use crate::strategy::ladder;

use super::decision::{self, Applied, Decision, PartKey, Save};
use super::event::{Before, Change};
use super::{Policy, Recall};

/// The shortest that a new result is cut to, in bytes.
const FLOOR: u64 = 2048;
/// Approximate bytes of a marker.
const MARK: u64 = 256;

impl Before<'_> {
    /// Results with text that were not sent before, each with the bytes that would be sent: those of earlier steps
    /// that the client adds, and those of the step in progress.
    pub(super) fn newborn(&self, sent: &HashMap<PartId, u64>) -> [Vec<(PartId, u64)>; 2] {
        let tail = self.conversation.tail();
        [self.sent.min(tail)..tail, tail..self.conversation.messages.len()].map(|messages| {
            let parts = messages.flat_map(|message| self.conversation.parts_of(message));
            let results =
                parts.filter(|(_, part)| part.kind == PartKind::ToolResult && !part.leaves.is_empty());
            results.map(|(id, _)| (id, self.size(id, sent))).collect()
        })
    }

    /// Cuts the middle out of the largest of these results, so that `missing` bytes are saved.
    pub(super) fn shorten_all(
        &self,
        results: Vec<(PartId, u64)>,
        missing: u64,
        policy: &Policy,
        recall: Recall<'_>,
        change: &mut Change,
    ) {
        let sizes: Vec<u64> = results.iter().map(|(_, size)| *size).collect();
        let shares = ladder::shares(&sizes, missing, FLOOR);
        for ((part, size), share) in results.into_iter().zip(shares).filter(|((_, size), share)| share < size)
        {
            let short = self.shorten((part, size), share.saturating_sub(MARK), policy, recall);
            let Some((applied, save)) = short else { continue };
            change.event.freed_bytes += size.saturating_sub(applied.decision.bytes_after);
            change.event.cut += 1;
            change.decided.push(applied);
            change.saves.push(save);
        }
    }

    /// Bytes of a result's text as it would be sent; `sent` are those left by decisions.
    pub(super) fn size(&self, id: PartId, sent: &HashMap<PartId, u64>) -> u64 {
        let leaves = self.conversation.part(id).map_or(0, |part| part.leaves.len());
        let text = |leaf| self.conversation.text(id, leaf).map_or(0, |text| text.len() as u64);
        sent.get(&id).copied().unwrap_or_else(|| (0..leaves).map(text).sum())
    }

    /// Cuts the middle out of a result that would be sent with so many bytes, whatever its tool.
    fn shorten(
        &self,
        (id, size): (PartId, u64),
        max_bytes: u64,
        policy: &Policy,
        recall: Recall<'_>,
    ) -> Option<(Applied, Save)> {
        let part = self.conversation.part(id)?;
        let content = part.content?;
        let texts = self.conversation.texts(id)?;
        let output = decision::output_id(&texts);
        let recall = recall(&output);
        let max_bytes = max_bytes as usize;
        let mut settings = policy.shape.clone();
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
        let shaped = shape::shape(&subject, &settings)?;
        let leaves: Vec<(u32, LeafEdit)> = super::newborn::leaf_edits(shaped.leaves, part, &texts);
        let decision = Decision {
            rules: shape::Rule::Truncate.as_str().into(),
            content,
            key: PartKey::of(part.call_id.as_deref(), content),
            bytes_before: shaped.bytes_before as u64,
            bytes_after: super::newborn::sent(&leaves, &texts) as u64,
            output: Some(output),
            leaves,
        };
        let is_shorter = !decision.leaves.is_empty() && decision.bytes_after < size;
        is_shorter.then(|| (Applied { part: id, decision: decision.into() }, Save::of(&texts)))
    }
}
