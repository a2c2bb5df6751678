//! How much each policy wants to keep a result, as a score from 0 to 1. Ages and idle times are counted in turns.

use crate::strategy::history::History;

use super::settings::{Policy, Settings};

/// Turns in which the score of `oldest`, the weight of age in `priority` and the score of `lru` decay to 1/e.
const OLDEST_DECAY: f64 = 10.0;
const PRIORITY_DECAY: f64 = 15.0;
const LRU_DECAY: f64 = 5.0;
/// The score by `lru` of a result that was never named again.
const NEVER_NAMED: f64 = 0.3;
/// The weights of age, meaning (unknown, so one half), kind, references and flags in `priority`.
const PRIORITY_WEIGHTS: [f64; 5] = [0.30, 0.25, 0.20, 0.15, 0.10];
/// The importance of tool results as a kind.
const KIND_IMPORTANCE: f64 = 0.3;
/// References beyond this number no longer count.
const MAX_REFERENCES: f64 = 5.0;

/// The score of a result; the lowest goes first.
pub(super) fn keep(history: &History, at: usize, settings: &Settings) -> f64 {
    let item = &history.items()[at];
    let Some(result) = item.result.as_deref() else { return 1.0 };
    let age = f64::from(history.turn() - item.turn);
    let idle = f64::from(history.turn() - result.named_turn);
    let (references, ttl) = (f64::from(result.references), f64::from(settings.ttl_turns));
    match settings.policy {
        Policy::Oldest | Policy::Worth => at as f64 / history.items().len() as f64,
        Policy::Lru => lru(idle, references),
        Policy::Priority => priority(age, references),
        Policy::TypeTtl => type_ttl(age, ttl),
        Policy::Duplicate => duplicate(result.superseded),
        Policy::Hybrid => {
            let weights = settings.weights;
            weights.oldest * oldest(age)
                + weights.lru * lru(idle, references)
                + weights.priority * priority(age, references)
                + weights.type_ttl * type_ttl(age, ttl)
                + weights.duplicate * duplicate(result.superseded)
        }
    }
}

fn oldest(age: f64) -> f64 {
    libm::exp(-age / OLDEST_DECAY)
}

fn lru(idle: f64, references: f64) -> f64 {
    if references > 0.0 { libm::exp(-idle / LRU_DECAY) } else { NEVER_NAMED }
}

fn priority(age: f64, references: f64) -> f64 {
    let [by_age, meaning, kind, named, _] = PRIORITY_WEIGHTS;
    by_age * libm::exp(-age / PRIORITY_DECAY)
        + meaning * 0.5
        + kind * KIND_IMPORTANCE
        + named * (references / MAX_REFERENCES).min(1.0)
}

fn type_ttl(age: f64, ttl: f64) -> f64 {
    if age > ttl { 0.0 } else { 1.0 - age / ttl.max(1.0) }
}

fn duplicate(superseded: bool) -> f64 {
    f64::from(u8::from(!superseded))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, expected: f64) {
        assert!((value - expected).abs() < 5e-5, "{value} is not {expected}");
    }

    #[test]
    fn scores_match_their_formulas() {
        for (age, score) in [(0.0, 1.0), (10.0, 0.3679), (6.0, 0.5488)] {
            near(oldest(age), score);
        }
        for (idle, references, score) in [(1.0, 1.0, 0.8187), (20.0, 1.0, 0.0183), (1.0, 0.0, 0.3)] {
            near(lru(idle, references), score);
        }
        near(priority(6.0, 0.0), 0.3861);
        for (age, score) in [(8.0, 0.0), (9.0, 0.0), (6.0, 0.25)] {
            near(type_ttl(age, 8.0), score);
        }
        near(
            0.15 * oldest(6.0) + 0.15 * lru(6.0, 0.0) + 0.40 * priority(6.0, 0.0) + 0.30 * type_ttl(6.0, 8.0),
            0.3568,
        );
    }
}
