//! The shapers together: order, truncation, fixed points.
