//! Lossless reading and splicing of raw JSON.
//!
//! A document is never turned into a tree and printed again: [`scan`] locates values, [`string`] decodes and encodes a
//! literal, [`container`] turns changes to an array or object into [`edit`]s, and the edits are applied to the original
//! bytes. Duplicate keys, escapes in keys, deep nesting and malformed text are rejected here with [`ScanError`], which
//! callers take to mean "pass it through unread".
//!
//! Knows nothing of protocols.

pub mod canonical;
pub mod container;
pub mod edit;
pub mod scan;
pub mod span;
pub mod string;

pub use edit::{Edit, Edits};
pub use scan::{Kind, ScanError};
pub use span::Span;
