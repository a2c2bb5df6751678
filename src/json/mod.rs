//! Lossless reading and splicing of raw JSON.
//!
//! A document is never turned into a tree and printed again: [`scan`] finds where values stand, [`string`]
//! decodes and encodes one literal, [`container`] turns changes of an array or object into [`edit`]s, and the
//! edits are applied to the original bytes. What is odd (duplicate keys, escapes in keys, deep nesting,
//! malformed text) is refused here with [`Odd`], which callers take as "pass it through unread".
//!
//! Knows nothing of protocols.

pub mod canonical;
pub mod container;
pub mod edit;
pub mod scan;
pub mod span;
pub mod string;

pub use edit::{Edit, Edits};
pub use scan::{Kind, Member, Odd, Value};
pub use span::Span;
