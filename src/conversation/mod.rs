//! The neutral, read-only index of a request.
//!
//! A protocol folder fills it from the body; planners and shapers read it. It holds positions, kinds and identities,
//! and decodes text on demand. Nothing is ever serialised from it, and it knows no wire format.

mod arguments;
pub mod boundary;
mod code;
pub mod encodings;
pub mod files;
pub mod fingerprint;
mod marks;
pub mod media;
mod memo;
pub mod model;
mod name_patterns;
mod pairs;
pub mod part;

pub use arguments::{MIN_ABRIDGED, Texts};
pub use fingerprint::{Chain, Digest, Fingerprint, Hashed};
pub use marks::{Carriers, Hold, Marks, Prelude, Shows};
pub use media::{MEDIA, Media};
pub use memo::{Memo, NoMemo, Step, Trail};
pub use model::{BlockKey, Conversation, Message, MessageIndex, PartId, Role, Stem};
pub use name_patterns::NamePatterns;
pub use part::{Arguments, Call, Hosted, Leaf, Opaque, Part, PartData, PartKind, Slots, ToolResult};
