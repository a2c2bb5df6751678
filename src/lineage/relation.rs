//! How a request relates to what was sent before.

/// How a request relates to its thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// Nothing of it was seen before.
    New,
    /// It continues from the thread's newest request.
    Continue,
    /// The very same history was sent before.
    Retry,
    /// It begins a thread that branches from another one.
    Fork,
}

impl Relation {
    /// Its name in the books.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Continue => "continue",
            Self::Retry => "retry",
            Self::Fork => "fork",
        }
    }
}
