//! Learns context windows from the providers' refusals: how many tokens a model takes, and which conversations have
//! filled it.
//!
//! All of it is bounded. A learned window is believed for a limited time, since servers may be restarted with larger
//! ones. It is stored, so that the next process knows it; the rest is learned again from the next refusal.

use std::sync::Arc;

use super::Core;
use super::learned::PerModel;
use crate::conversation::{Chain, Hashed};
use crate::store::{Batch, Recent, StoredWindow, WINDOW_BELIEVED};
use crate::upstream::Upstream;

/// The longest model name that is stored, in bytes.
const MAX_NAME_BYTES: usize = 256;
/// The most histories that are remembered as having filled the window, and as having been too long for it.
const MAX_HISTORIES: u64 = 1024;
/// The most upstreams that are remembered as not reporting overflows as such.
const MAX_UNCLEAR_UPSTREAMS: u64 = 64;
/// The smallest plausible window, as a share of the longest prompt that was answered. A smaller figure was misread.
const MIN_PLAUSIBLE_SHARE: f64 = 0.05;

/// Context windows as they turned out to be.
pub(super) struct Windows {
    learned: PerModel<ModelWindow>,
    /// Histories whose answers ended because the window was full.
    full: Recent<Chain, (), Hashed>,
    /// The size of the shortest refused form of each history, in bytes.
    refused: Recent<Chain, u64, Hashed>,
    /// Upstreams where a prompt that may have been too long failed with an unrelated error.
    unclear: Recent<String, ()>,
    /// The locks that are held while room is made for a history.
    rooms: Recent<Chain, Arc<tokio::sync::Mutex<()>>, Hashed>,
}

/// A window that a provider has stated.
#[derive(Debug, Clone, Copy)]
struct Limit {
    tokens: u64,
    /// When it was stated, in milliseconds since 1970.
    at_ms: i64,
}

/// What is known of a model's window at one upstream.
#[derive(Debug, Clone, Copy, Default)]
struct ModelWindow {
    /// The window that the provider has stated last, if any.
    limit: Option<Limit>,
    /// The longest prompt that was answered, in tokens.
    answered: u64,
    /// Whether a prompt that seemed far from the window was reported as too long inside its answer.
    surprises: bool,
}

impl Windows {
    pub(super) fn new() -> Self {
        Self {
            learned: PerModel::new(),
            full: Recent::of_entries(MAX_HISTORIES),
            refused: Recent::of_entries(MAX_HISTORIES),
            unclear: Recent::of_entries(MAX_UNCLEAR_UPSTREAMS),
            rooms: Recent::of_entries(MAX_HISTORIES),
        }
    }

    /// The stored windows of upstreams that still have the same name and base URL.
    pub(super) fn stored(windows: &[StoredWindow], served: &[(&str, String)]) -> Self {
        let known = Self::new();
        for StoredWindow { upstream, model, tokens, at_ms } in windows {
            let limit = tokens.map(|tokens| Limit { tokens, at_ms: *at_ms });
            for (name, _) in served.iter().filter(|(_, url)| url == upstream) {
                known.update(name, Some(model), |learned| learned.limit = limit);
            }
        }
        known
    }

    /// Records a window that a provider stated at this time. Returns whether it is believed.
    fn learn(&self, upstream: &str, model: Option<&str>, limit: Limit) -> bool {
        self.update(upstream, model, |learned| {
            if (limit.tokens as f64) < learned.answered as f64 * MIN_PLAUSIBLE_SHARE {
                return false;
            }
            (learned.limit, learned.surprises) = (Some(limit), false);
            true
        })
    }

    /// Records that a prompt which seemed far from the window was reported as too long inside its answer.
    pub(super) fn record_surprise(&self, upstream: &str, model: Option<&str>) {
        self.update(upstream, model, |learned| learned.surprises = true);
    }

    /// Whether any answer may report an overflow, at a time in milliseconds since 1970: because of an earlier surprise,
    /// or because the provider has stated a window that is no longer believed but may still apply.
    pub(super) fn may_surprise(&self, upstream: &str, model: Option<&str>, now_ms: i64) -> bool {
        let learned = self.known(upstream, model);
        learned.surprises || learned.limit.is_some_and(|limit| !limit.is_believed(now_ms))
    }

    /// Records that a prompt of `tokens` tokens was answered. If the known window is smaller, it is forgotten. Returns
    /// whether that was so.
    fn record_answered(&self, upstream: &str, model: Option<&str>, tokens: u64) -> bool {
        self.update(upstream, model, |learned| {
            learned.answered = learned.answered.max(tokens);
            learned.limit.take_if(|limit| limit.tokens < tokens).is_some()
        })
    }

    /// The window that a provider has stated, in tokens, if it is still believed at a time in milliseconds since
    /// 1970.
    pub(super) fn of(&self, upstream: &str, model: Option<&str>, now_ms: i64) -> Option<u64> {
        let limit = self.known(upstream, model).limit?;
        limit.is_believed(now_ms).then_some(limit.tokens)
    }

    /// What is known of a model's window at an upstream.
    fn known(&self, upstream: &str, model: Option<&str>) -> ModelWindow {
        model.map(|model| self.learned.get(upstream, model)).unwrap_or_default()
    }

    /// Updates what is known of a model's window at an upstream. Returns what `then` returns, or its default if no
    /// model is named.
    fn update<T: Default>(
        &self,
        upstream: &str,
        model: Option<&str>,
        then: impl FnOnce(&mut ModelWindow) -> T,
    ) -> T {
        model.map(|model| self.learned.update(upstream, model, then)).unwrap_or_default()
    }

    /// Records that the answer to this history ended because the window was full.
    pub(super) fn record_full(&self, head: Chain) {
        self.full.insert(head, ());
    }

    /// Whether the answer to this history ended because the window was full.
    pub(super) fn is_full(&self, head: Chain) -> bool {
        self.full.get(&head).is_some()
    }

    /// Records that this history was refused as too long in a form of `bytes` bytes.
    pub(super) fn record_refused(&self, head: Chain, bytes: u64) {
        self.refused.update(&head, |shortest| {
            // No refused form is empty: 0 is the default.
            *shortest = if *shortest == 0 { bytes } else { bytes.min(*shortest) };
        });
    }

    /// The size of the shortest refused form of a history, in bytes.
    pub(super) fn shortest_refused(&self, head: Chain) -> Option<u64> {
        self.refused.get(&head)
    }

    /// Records that a prompt which may have been too long failed with an unrelated error.
    pub(super) fn record_unclear_failure(&self, upstream: &str) {
        self.unclear.insert(upstream.to_owned(), ());
    }

    /// Whether an upstream reports overflows as such, as far as is known.
    pub(super) fn reports_overflows(&self, upstream: &str) -> bool {
        self.unclear.get(upstream).is_none()
    }

    /// Waits until no other request is making room for this history, and locks it.
    pub(super) async fn lock_room(&self, head: Chain) -> tokio::sync::OwnedMutexGuard<()> {
        self.rooms.get_or_insert(head, Arc::default()).lock_owned().await
    }
}

impl Limit {
    /// Whether it is still believed at this time, in milliseconds since 1970.
    const fn is_believed(self, now_ms: i64) -> bool {
        now_ms.saturating_sub(self.at_ms) <= WINDOW_BELIEVED.as_millis() as i64
    }
}

impl Core {
    /// Records the window that a provider stated, in tokens. Returns whether it is believed.
    pub(super) fn learn_window(&self, upstream: &Upstream, model: Option<&str>, limit: u64) -> bool {
        let now_ms = (self.now_ms)();
        let is_believed =
            self.learned.windows.learn(upstream.name(), model, Limit { tokens: limit, at_ms: now_ms });
        if is_believed {
            self.store_window(upstream, model, Some(limit), now_ms);
        }
        is_believed
    }

    /// Records that a prompt of `tokens` tokens was answered.
    pub(super) fn record_fitting_prompt(&self, upstream: &Upstream, model: Option<&str>, tokens: u64) {
        if self.learned.windows.record_answered(upstream.name(), model, tokens) {
            self.store_window(upstream, model, None, (self.now_ms)());
        }
    }

    fn store_window(&self, upstream: &Upstream, model: Option<&str>, tokens: Option<u64>, at_ms: i64) {
        let Some(model) = model.filter(|model| model.len() <= MAX_NAME_BYTES) else { return };
        let upstream = upstream.base_url().to_string();
        let window = StoredWindow { upstream, model: model.to_owned(), tokens, at_ms };
        let batch = Batch { windows: vec![window], at_ms, ..Batch::default() };
        self.tally.stored(self.store.later(batch));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(tokens: u64, at_ms: i64) -> Limit {
        Limit { tokens, at_ms }
    }

    #[test]
    fn a_learned_window_holds_until_a_longer_prompt_fits() {
        let windows = Windows::new();
        windows.learn("a", Some("m"), limit(1000, 0));
        windows.learn("a", None, limit(5, 0));
        for (upstream, model, expected) in
            [("a", Some("m"), Some(1000)), ("b", Some("m"), None), ("a", Some("n"), None), ("a", None, None)]
        {
            assert_eq!(windows.of(upstream, model, 0), expected, "{upstream} {model:?}");
        }
        windows.record_answered("a", Some("m"), 1000);
        assert_eq!(windows.of("a", Some("m"), 0), Some(1000));
        windows.record_answered("a", Some("m"), 1001);
        assert_eq!(windows.of("a", Some("m"), 0), None);
        // A window that is only a small part of a prompt that was answered is not believed.
        assert!(!windows.learn("a", Some("m"), limit(12, 0)));
        assert_eq!(windows.of("a", Some("m"), 0), None);
        assert!(windows.learn("a", Some("m"), limit(500, 0)));
        assert_eq!(windows.of("a", Some("m"), 0), Some(500));
    }

    /// The server may have been restarted with a larger window.
    #[test]
    fn a_learned_window_expires_after_a_day() {
        const DAY: i64 = 24 * 3_600_000;
        let windows = Windows::new();
        windows.learn("a", Some("m"), limit(1000, 10));
        let known = |now_ms| windows.of("a", Some("m"), now_ms);
        assert_eq!([0, 10, DAY + 10, DAY + 11].map(known), [Some(1000), Some(1000), Some(1000), None]);
        // An expired window may still be right: until it is reported again, any answer may be a surprise.
        let surprises = |now_ms| windows.may_surprise("a", Some("m"), now_ms);
        assert_eq!([DAY + 10, DAY + 11].map(surprises), [false, true]);
        windows.learn("a", Some("m"), limit(2000, DAY + 11));
        assert_eq!((known(DAY + 11), surprises(DAY + 11)), (Some(2000), false));
        windows.record_answered("a", Some("m"), 2001);
        assert!(!surprises(3 * DAY), "nothing is known of it");
        // A window learned by another process keeps the age that it had there.
        let stored = StoredWindow { upstream: "u".into(), model: "m".into(), tokens: Some(1), at_ms: 10 };
        let windows = Windows::stored(&[stored], &[("a", "u".to_owned())]);
        assert_eq!([DAY + 10, DAY + 11].map(|now_ms| windows.of("a", Some("m"), now_ms)), [Some(1), None]);
    }

    /// They apply as long as the upstream is the same, whatever it is called.
    #[test]
    fn stored_windows_apply_to_upstreams_with_the_same_url() {
        let stored = |upstream: &str, model: &str, tokens| StoredWindow {
            upstream: upstream.to_owned(),
            model: model.to_owned(),
            tokens: Some(tokens),
            at_ms: 0,
        };
        let served =
            [("a", "http://x".to_owned()), ("b", "http://y".to_owned()), ("c", "http://x".to_owned())];
        let windows = Windows::stored(
            &[stored("http://x", "m", 1000), stored("http://x", "n", 2000), stored("http://z", "o", 3000)],
            &served,
        );
        for (upstream, model, expected) in [
            ("a", "m", Some(1000)),
            ("c", "m", Some(1000)),
            ("a", "n", Some(2000)),
            ("b", "m", None),
            ("a", "o", None),
        ] {
            assert_eq!(windows.of(upstream, Some(model), 0), expected, "{upstream} {model}");
        }
        assert!(
            !windows.record_answered("a", Some("m"), 1000) && windows.record_answered("a", Some("m"), 1001)
        );
        assert_eq!((windows.of("a", Some("m"), 0), windows.of("c", Some("m"), 0)), (None, Some(1000)));
    }

    #[test]
    fn the_shortest_refused_form_is_kept_whichever_is_refused_first() {
        const TIMES: u32 = 20_000;
        let (windows, both) = (Windows::new(), std::sync::Barrier::new(2));
        let refuse = |bytes| {
            for history in 0..TIMES {
                let head = Chain::root("x", &history.to_le_bytes());
                both.wait();
                windows.record_refused(head, bytes);
                both.wait();
                assert_eq!(windows.shortest_refused(head), Some(1), "{history}");
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| refuse(2));
            refuse(1);
        });
    }

    #[test]
    fn overflows_within_answers_are_expected_until_a_window_is_learned() {
        let windows = Windows::new();
        windows.record_surprise("a", Some("m"));
        windows.record_surprise("a", Some("n"));
        // The window of this model is known by now.
        windows.learn("a", Some("n"), limit(1000, 0));
        for (upstream, model, expected) in [
            ("a", Some("m"), (true, None)),
            ("a", Some("n"), (false, Some(1000))),
            ("b", Some("m"), (false, None)),
            ("a", None, (false, None)),
        ] {
            let found = (windows.may_surprise(upstream, model, 0), windows.of(upstream, model, 0));
            assert_eq!(found, expected, "{upstream} {model:?}");
        }
    }

    #[test]
    fn an_upstream_that_refuses_unclearly_is_remembered() {
        let windows = Windows::new();
        windows.record_unclear_failure("a");
        assert_eq!(["a", "b"].map(|upstream| windows.reports_overflows(upstream)), [false, true]);
    }

    #[test]
    fn a_history_that_filled_its_window_is_remembered() {
        let (windows, head) = (Windows::new(), Chain::root("x", b""));
        assert!(!windows.is_full(head));
        windows.record_full(head);
        assert!(windows.is_full(head) && !windows.is_full(Chain::root("y", b"")));
    }
}
