//! When each thread's texts were last reported to be in use.

use crate::store::Recent;

/// How often a thread reports, in milliseconds. Far below any sensible retention.
const INTERVAL_MS: i64 = 3_600_000;

/// A bounded memory of reports.
pub(super) struct Touched(Recent<String, i64>);

impl Touched {
    pub(super) fn new() -> Self {
        Self(Recent::of_entries(4096))
    }

    /// Whether a thread should report now; if so, it is taken to have done it.
    pub(super) fn is_due(&self, thread: &str, now_ms: i64) -> bool {
        let due = self.0.get(thread).is_none_or(|last| now_ms - last >= INTERVAL_MS);
        if due {
            self.0.insert(thread.to_owned(), now_ms);
        }
        due
    }
}
