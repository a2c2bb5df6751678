//! Sums over the books.
