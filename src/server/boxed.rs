//! Boxing futures without copying them.

use std::pin::Pin;

/// Boxes the future that `make` returns. It is written to the heap directly: a future is large, and most of it is room
/// for later states, which need not be copied.
pub(super) fn boxed<F: Future>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::into_pin(Box::write(Box::new_uninit(), make()))
}
