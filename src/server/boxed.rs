//! Futures in places of their own.

use std::pin::Pin;

/// A future that is made in its place, and not moved there: most of what it holds is room for what it does later.
pub(super) fn boxed<F: Future>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::into_pin(Box::write(Box::new_uninit(), make()))
}
