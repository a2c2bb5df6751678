//! Marks for the provider's cache within blocks: where they stand, and what they say.

use memchr::memmem;

use crate::json::scan::{self, Kind, Value};
use crate::json::{Span, string};
use crate::usage::cache_model::Ttl;

/// The marks of a block and of the blocks in its content, in order, and what the first of them says.
pub(super) fn marks_in(raw: &[u8], marks: &[&str]) -> (Vec<Span>, Option<Ttl>) {
    let (mut cuts, mut found) = (Vec::new(), None);
    if marks.iter().any(|name| memmem::find(raw, name.as_bytes()).is_some())
        && let Ok(root) = scan::document(raw)
    {
        cut_marks(raw, root, marks, &mut cuts, &mut found);
    }
    cuts.sort_unstable();
    (cuts, found)
}

/// Finds the marks of a block and of the blocks in its content, each with the comma that comes with it.
fn cut_marks(raw: &[u8], value: Value, marks: &[&str], cuts: &mut Vec<Span>, found: &mut Option<Ttl>) {
    let Ok(members) = scan::members_unchecked(raw, value.span) else { return };
    for (at, member) in members.iter().enumerate() {
        let key = member.name(raw);
        if is_mark(key, marks) {
            let cut = match (at.checked_sub(1).map(|before| members[before]), members.get(at + 1)) {
                (Some(before), _) => Span { start: before.value.span.end, end: member.value.span.end },
                (None, Some(behind)) => Span { start: member.key.start, end: behind.key.start },
                (None, None) => member.span(),
            };
            cuts.push(cut);
            *found = found.or_else(|| ttl(raw, member.value));
        } else if key == b"content" && member.value.kind == Kind::Array {
            for item in scan::items(raw, member.value.span).unwrap_or_default() {
                cut_marks(raw, item, marks, cuts, found);
            }
        }
    }
}

/// Whether a member of this name is a mark.
pub(super) fn is_mark(name: &[u8], marks: &[&str]) -> bool {
    marks.iter().any(|mark| mark.as_bytes() == name)
}

/// What a mark says; `None` for `null`.
pub(super) fn ttl(bytes: &[u8], mark: Value) -> Option<Ttl> {
    let members = scan::members_unchecked(bytes, mark.span).ok()?;
    let said = scan::get(bytes, &members, "ttl").and_then(|ttl| string::decode(ttl.span.of(bytes)));
    Some(if said.as_deref() == Some("1h") { Ttl::OneHour } else { Ttl::FiveMinutes })
}
