//! What is done when the window is in reach, one rung after the other.

/// How room is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rung {
    /// Old results are cleared.
    Clear,
    /// A prepared text takes the place of old messages.
    Ready,
}

impl Rung {
    /// Its name in the books.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Clear => "clear",
            Self::Ready => "ready",
        }
    }
}
