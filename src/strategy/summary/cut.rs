//! Chooses where a history is cut for a summary, among the places where it can be.
//!
//! Turns are preferred to steps: a summary that ends where the user speaks is easier to continue from. Of the places
//! that free enough, the earliest is taken, so that the newest messages stay as they are.

use super::Settings;

/// A place where a history can be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CutPoint {
    /// The first message after the cut.
    pub end: usize,
    /// Whether the user speaks there; otherwise the model begins a step.
    pub is_turn: bool,
    /// The tokens of the messages before the cut.
    pub tokens: u64,
}

/// How much must be freed, and the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// Tokens that must be freed.
    pub wanted: u64,
    /// Tokens that a prompt may have.
    pub usable: u64,
    /// A summary that frees fewer tokens would not be used.
    pub least: u64,
}

impl Demand {
    /// Whether a summary that replaces this many tokens is worth its price.
    fn is_met(&self, tokens: u64, settings: &Settings) -> bool {
        tokens.saturating_sub(settings.length) >= self.least.max(settings.minimum_gain).max(1)
    }
}

/// At most the usable window divided by this is kept at the end, whatever the settings ask for.
const KEPT_DIVISOR: u64 = 5;

/// Chooses one of the places, which are in order: the earliest that frees what is wanted, at a turn if possible;
/// otherwise the last one allowed. `None` if the chosen place is not worth it, or none is allowed.
///
/// `tokens` are those of each message. The last turns and tokens stay as the settings say. A turn is cut into only if
/// dropping the turns before it is not enough.
pub fn choose(places: &[CutPoint], tokens: &[u64], demand: Demand, settings: &Settings) -> Option<usize> {
    let by_tokens = kept_by_tokens(tokens, demand, settings);
    let turns = places.iter().filter(|place| place.is_turn).map(|place| place.end);
    let nth = (settings.keep_turns as usize).checked_sub(1);
    let by_turns = nth.map_or(usize::MAX, |nth| turns.rev().nth(nth).unwrap_or(0));
    let allowed = |place: &CutPoint| place.end <= by_tokens && (!place.is_turn || place.end <= by_turns);
    let gain = |at: usize| places[at].tokens.saturating_sub(settings.length);
    let all: Vec<usize> = (0..places.len()).filter(|at| allowed(&places[*at])).collect();
    let enough = |is_turn: bool| {
        all.iter().copied().find(|at| places[*at].is_turn == is_turn && gain(*at) >= demand.wanted)
    };
    let best = enough(true).or_else(|| enough(false)).or_else(|| all.last().copied())?;
    demand.is_met(places[best].tokens, settings).then_some(best)
}

/// Chooses one of the places, which are in order, so that message `first` stays: the place at `first`, or else the
/// nearest one before it. `None` if there is none, or it is not worth it.
pub fn before(places: &[CutPoint], first: usize, demand: Demand, settings: &Settings) -> Option<usize> {
    let at = places.iter().rposition(|place| place.end <= first)?;
    demand.is_met(places[at].tokens, settings).then_some(at)
}

/// The last message before which a cut may lie, so that the last tokens stay.
fn kept_by_tokens(tokens: &[u64], demand: Demand, settings: &Settings) -> usize {
    let keep = settings.keep_tokens.min(demand.usable / KEPT_DIVISOR);
    let (mut sum, mut at) = (0_u64, tokens.len());
    while at > 0 && sum < keep {
        at -= 1;
        sum = sum.saturating_add(tokens[at]);
    }
    at
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Places in short form, each after two messages of 1,000 tokens: `t` a turn, `s` a step. The head is one message.
    fn places(letters: &str) -> (Vec<CutPoint>, Vec<u64>) {
        let place = |(at, letter): (usize, char)| CutPoint {
            end: 2 * at + 3,
            is_turn: letter == 't',
            tokens: 2_000 * (at as u64 + 1),
        };
        let places: Vec<CutPoint> = letters.chars().enumerate().map(place).collect();
        let messages = places.last().map_or(1, |last| last.end + 1);
        (places, vec![1_000; messages])
    }

    #[test]
    fn the_earliest_sufficient_cut_at_a_turn_is_preferred() {
        let settings = |keep_turns, keep_tokens| Settings {
            keep_turns,
            keep_tokens,
            length: 1_000,
            minimum_gain: 1_000,
            ..Settings::default()
        };
        for (letters, wanted, settings, expected) in [
            ("", 1_000, settings(1, 0), None),
            // Turns before steps, the earliest that frees enough.
            ("stst", 1_000, settings(1, 0), Some(1)),
            ("stst", 3_001, settings(1, 0), Some(3)),
            ("stst", 99_000, settings(1, 0), Some(3)),
            // A turn that is to stay is only cut into if the turns before it are not enough.
            ("ststs", 3_000, settings(2, 0), Some(1)),
            ("ststs", 5_000, settings(2, 0), Some(2)),
            ("ssss", 5_000, settings(1, 0), Some(2)),
            ("ssss", 99_000, settings(1, 0), Some(3)),
            // The last tokens stay.
            ("ssss", 99_000, settings(1, 3_000), Some(2)),
            ("stst", 99_000, settings(1, 3_000), Some(2)),
            // No more than a fifth of the window is kept, whatever is asked for.
            ("ssss", 99_000, settings(1, 90_000), Some(1)),
            // Not worth it.
            ("s", 1_000, Settings { minimum_gain: 1_001, ..settings(1, 0) }, None),
            ("s", 1_000, Settings { length: 2_000, minimum_gain: 0, ..settings(1, 0) }, None),
        ] {
            let (places, tokens) = places(letters);
            let found = choose(&places, &tokens, Demand { wanted, usable: 25_000, least: 0 }, &settings);
            assert_eq!(found, expected, "{letters} {wanted}");
        }
    }

    #[test]
    fn the_last_place_at_or_before_a_message_is_found() {
        let settings = |minimum_gain| Settings { length: 1_000, minimum_gain, ..Settings::default() };
        let (places, _) = places("ttss");
        for (first, minimum_gain, least, expected) in [
            (2, 1, 0, None),
            (3, 1, 0, Some(0)),
            (4, 1, 0, Some(0)),
            (5, 1, 0, Some(1)),
            (99, 1, 0, Some(3)),
            (3, 1_000, 1_000, Some(0)),
            (3, 1_001, 0, None),
            (3, 1, 1_001, None),
        ] {
            let demand = Demand { wanted: 0, usable: 0, least };
            let found = before(&places, first, demand, &settings(minimum_gain));
            assert_eq!(found, expected, "{first} {minimum_gain} {least}");
        }
    }

    /// A summary that would not be used is not made, whatever else is worth it.
    #[test]
    fn a_cut_that_frees_too_little_is_not_chosen() {
        let settings = Settings {
            keep_turns: 1,
            keep_tokens: 0,
            length: 1_000,
            minimum_gain: 1_000,
            ..Settings::default()
        };
        let (places, tokens) = places("ss");
        for (least, expected) in [(0, Some(1)), (3_000, Some(1)), (3_001, None)] {
            let demand = Demand { wanted: 9_000, usable: 25_000, least };
            assert_eq!(choose(&places, &tokens, demand, &settings), expected, "{least}");
        }
    }

    proptest! {
        /// The chosen place frees what it must, unless none does, and leaves what is to stay.
        #[test]
        fn chosen_cuts_respect_their_limits(letters in "[ts]{0,20}", wanted in 0..50_000_u64, turns in 0..4_u32, keep in 0..9_000_u64) {
            let settings =
                Settings { keep_turns: turns, keep_tokens: keep, length: 500, minimum_gain: 1, ..Settings::default() };
            let (places, tokens) = places(&letters);
            let demand = Demand { wanted, usable: 100_000, least: 0 };
            let Some(taken) = choose(&places, &tokens, demand, &settings) else { return Ok(()) };
            let left: u64 = tokens[places[taken].end..].iter().sum();
            prop_assert!(left >= keep);
            if places[taken].is_turn {
                let later = places[taken..].iter().filter(|place| place.is_turn).count();
                prop_assert!(later >= turns as usize);
            }
            if places[taken].tokens < wanted + 500 {
                let better = places.iter().filter(|place| !place.is_turn).any(|place| {
                    let left: u64 = tokens[place.end..].iter().sum();
                    left >= keep && place.tokens >= wanted + 500
                });
                prop_assert!(!better);
            }
        }
    }
}
