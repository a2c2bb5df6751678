//! The clock, and ids made from it: the only place that reads them.

use jiff::Timestamp;
use uuid::Uuid;

/// Milliseconds since 1970.
pub(super) fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

/// A time as RFC 3339 with milliseconds.
pub(super) fn rfc3339(at_ms: i64) -> String {
    Timestamp::from_millisecond(at_ms).map(|at| format!("{at:.3}")).unwrap_or_default()
}

/// A new id; ids sort by time.
pub(super) fn new_id() -> String {
    Uuid::now_v7().to_string()
}
