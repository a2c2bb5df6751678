//! Decides which failed calls are made again, and after which pause.

use std::time::Duration;

use super::Failure;

/// The first pause before a call is made again. Each further one is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause, unless a server asks for a longer one.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Why an attempt failed.
pub(super) enum Missed {
    /// Another attempt may succeed, after this pause if the server states one.
    Retryable(Failure, Option<Duration>),
    /// No other attempt will succeed.
    Permanent(Failure),
    /// The prompt is too long for the model.
    Overflow,
}

/// The attempts of a call that are left.
pub(super) struct Attempts {
    left: u32,
    pause: Duration,
}

impl Attempts {
    /// This many attempts, including the first one, which is made in any case.
    pub(super) fn of(all: u32) -> Self {
        Self { left: all.saturating_sub(1), pause: FIRST_PAUSE }
    }

    /// The pause before the next attempt, which is at least as long as the server has `asked` for. `None` if no attempt
    /// is left, or if the pause would be longer than `max_pause`.
    pub(super) fn next(&mut self, asked: Option<Duration>, max_pause: Duration) -> Option<Duration> {
        self.left = self.left.checked_sub(1)?;
        let wait = asked.unwrap_or_default().max(self.pause);
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        (wait <= max_pause).then_some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_bound() {
        for (all, asked, expected) in [
            (0, &[0, 0][..], &[None, None][..]),
            (1, &[0], &[None]),
            (3, &[0, 0, 0], &[Some(1), Some(2), None]),
            (9, &[0, 0, 0, 0, 0, 0, 0], &[1, 2, 4, 8, 16, 30, 30].map(Some)),
            (4, &[60, 1, 9, 0], &[Some(60), Some(2), Some(9), None]),
            (4, &[100, 101, 0], &[Some(100), None, Some(4)]),
        ] {
            let mut attempts = Attempts::of(all);
            let mut next = |asked: &u64| {
                let asked = (*asked > 0).then(|| Duration::from_secs(*asked));
                attempts.next(asked, Duration::from_secs(100)).map(|wait| wait.as_secs())
            };
            assert_eq!(asked.iter().map(&mut next).collect::<Vec<_>>(), expected, "{all}: {asked:?}");
        }
    }
}
