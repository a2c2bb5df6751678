//! What became of a request, in a word for the books.

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum State {
    /// It could not be read.
    #[default]
    Unread,
    /// There was nothing to do.
    Unchanged,
    /// It was edited.
    Edited,
    /// It would have been edited.
    Observed,
    /// Its thread is left alone.
    SetAside,
}

impl State {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Unread => "unread",
            Self::Unchanged => "unchanged",
            Self::Edited => "edited",
            Self::Observed => "observed",
            Self::SetAside => "set_aside",
        }
    }
}
