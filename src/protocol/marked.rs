//! Finds cache marks within blocks: their positions and lifetimes.

use memchr::memmem;

use crate::conversation::Hold;
use crate::json::container::{self, Patch};
use crate::json::scan::{self, Kind, Value};
use crate::json::{Span, string};

/// The spans of the marks of a block and of the blocks in its content, each with the comma that goes with it, in order;
/// and the lifetime of the first. `marks` are the names of the members that are marks.
pub(super) fn marks_in(raw: &[u8], marks: &[&str]) -> (Vec<Span>, Option<Hold>) {
    let mut found = Found { raw, marks, spans: Vec::new(), first: None };
    if marks.iter().any(|name| memmem::find(raw, name.as_bytes()).is_some())
        && let Ok(root) = scan::document(raw)
    {
        found.search(root);
    }
    found.spans.sort_unstable();
    (found.spans, found.first)
}

/// The marks that were found in a block so far.
struct Found<'a> {
    raw: &'a [u8],
    marks: &'a [&'a str],
    spans: Vec<Span>,
    first: Option<Hold>,
}

impl Found<'_> {
    /// Finds the marks of a block and of the blocks in its content.
    fn search(&mut self, block: Value) {
        let Ok(members) = scan::members_unchecked(self.raw, block.span) else { return };
        let mut drop = Vec::new();
        for (at, member) in members.iter().enumerate() {
            let key = member.name(self.raw);
            if is_mark(key, self.marks) {
                drop.push(at);
                self.first = self.first.or_else(|| hold(self.raw, member.value));
            } else if key == b"content" && member.value.kind == Kind::Array {
                for item in scan::items(self.raw, member.value.span).unwrap_or_default() {
                    self.search(item);
                }
            }
        }
        let elements: Vec<Span> = members.iter().map(|member| member.span()).collect();
        let patch = Patch { drop, ..Patch::default() };
        self.spans.extend(container::edits(block.span, &elements, &patch).into_iter().map(|edit| edit.at));
    }
}

/// The lifetime of an object's own mark. Marks of objects within it do not count.
pub(super) fn own_mark(raw: &[u8], marks: &[&str]) -> Option<Hold> {
    let members = scan::members_unchecked(raw, scan::document(raw).ok()?.span).ok()?;
    let mut own = members.iter().filter(|member| is_mark(member.name(raw), marks));
    own.find_map(|member| hold(raw, member.value))
}

/// Whether a member of this name is a mark.
pub(super) fn is_mark(name: &[u8], marks: &[&str]) -> bool {
    marks.iter().any(|mark| mark.as_bytes() == name)
}

/// The lifetime that a mark asks for; `None` if the mark is `null`.
pub(super) fn hold(bytes: &[u8], mark: Value) -> Option<Hold> {
    let members = scan::members_unchecked(bytes, mark.span).ok()?;
    let stated = scan::get(bytes, &members, "ttl").and_then(|ttl| string::decode(ttl.span.of(bytes)));
    Some(if stated.as_deref() == Some("1h") { Hold::Long } else { Hold::Short })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{Edit, Edits};

    #[test]
    fn removing_marks_leaves_a_block_as_if_unmarked() {
        const MARKS: &[&str] = &["cache_control", "prompt_cache_breakpoint"];
        for (block, expected) in [
            (r#"{"text":"cache_control"}"#, r#"{"text":"cache_control"}"#),
            (r#"{"cache_control":{},"text":"a"}"#, r#"{"text":"a"}"#),
            (r#"{"text":"a" , "cache_control":{} }"#, r#"{"text":"a" }"#),
            (r#"{"a":1,"cache_control":{},"text":"a"}"#, r#"{"a":1,"text":"a"}"#),
            (r#"{"cache_control":{}}"#, "{}"),
            (r#"{"cache_control":{} ,  "prompt_cache_breakpoint":{},"text":"a"}"#, r#"{"text":"a"}"#),
            (r#"{"cache_control":{},"text":"a","prompt_cache_breakpoint":{}}"#, r#"{"text":"a"}"#),
            (r#"{"text":"a","cache_control":{},"prompt_cache_breakpoint":{}}"#, r#"{"text":"a"}"#),
            (r#"{"cache_control":{} ,  "prompt_cache_breakpoint":{}}"#, "{}"),
            (
                r#"{"content":[{"text":"a","cache_control":{}},1],"cache_control":{}}"#,
                r#"{"content":[{"text":"a"},1]}"#,
            ),
        ] {
            let (cuts, _) = marks_in(block.as_bytes(), MARKS);
            let cuts = Edits::new(cuts.into_iter().map(Edit::delete).collect());
            let left = cuts.map(|cuts| String::from_utf8(cuts.apply(block.as_bytes())).unwrap());
            assert_eq!(left.as_deref(), Ok(expected), "{block}");
        }
    }
}
