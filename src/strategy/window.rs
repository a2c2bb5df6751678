//! How full the model's window is, how fast it fills, and how much must be removed.

use super::estimate::Estimate;

/// How full the window is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Zone {
    /// Plenty of room.
    Green,
    /// Time to prepare.
    Yellow,
    /// Time to act.
    Orange,
    /// Room must be made now.
    Red,
}

impl Zone {
    /// Every zone, the emptiest first.
    const ALL: [Self; 4] = [Self::Green, Self::Yellow, Self::Orange, Self::Red];

    /// The zone with this name; `None` if there is none.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|zone| zone.as_str() == name)
    }

    /// Its name in the ledger.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Green => "green",
            Self::Yellow => "yellow",
            Self::Orange => "orange",
            Self::Red => "red",
        }
    }
}

/// What a share of the window is relative to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Whole {
    /// The tokens that a prompt may have.
    Usable,
    /// The whole window, but never more than a prompt may have.
    Window,
}

/// When to act on the window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// The share at which an event is due.
    pub trigger: f64,
    /// The share that an event aims at.
    pub target: f64,
    /// What these shares are relative to.
    pub of: Whole,
    /// How the tokens of the prompt are counted.
    pub count: Estimate,
    /// Whether an event is due only above the trigger, not at it.
    pub beyond: bool,
    /// The number of messages at which an existing summary is used, however full the window is.
    pub messages: Option<u32>,
    /// The most tokens that the window is taken to have, whatever the model accepts.
    pub size: Option<u64>,
    /// Whether an unknown window is assumed to be four times as large as the longest answer.
    pub guess: bool,
    /// Tokens reserved for the answer; `None`: as many as the request asks for.
    pub reserve_output: Option<u64>,
    /// The most tokens reserved for what the request asks for.
    pub most_reserve: Option<u64>,
    /// Where yellow, orange and red begin, as shares of the usable window.
    pub zones: [f64; 3],
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            trigger: 0.90,
            target: 0.60,
            of: Whole::Usable,
            count: Estimate::Usage,
            beyond: false,
            messages: None,
            size: None,
            guess: false,
            reserve_output: None,
            most_reserve: None,
            zones: [0.50, 0.75, 0.90],
        }
    }
}

impl Settings {
    /// The window in tokens, given the `known` one, if any; `None` if there is nothing to go by.
    pub fn window(&self, known: Option<u64>, max_output: Option<u64>) -> Option<u64> {
        let guess = || max_output.filter(|_| self.guess).map(guessed);
        match (known.or_else(guess), self.size) {
            (Some(window), Some(size)) => Some(window.min(size)),
            (window, size) => window.or(size),
        }
    }
}

/// The window to assume for a model if only the length of its longest answer is known, as in many configurations.
pub fn guessed(max_output: u64) -> u64 {
    max_output.saturating_mul(4).max(MIN_GUESSED_WINDOW)
}

/// The tokens of a window that are left for the history, given those that its other regions take.
pub fn history_budget(window: u64, taken: [u64; 4]) -> u64 {
    taken.into_iter().fold(window, u64::saturating_sub)
}

/// The smallest window that [`guessed`] assumes.
const MIN_GUESSED_WINDOW: u64 = 8192;
/// The fewest tokens that are reserved for an answer.
const MIN_RESERVE: u64 = 4096;
/// An answer is short if it has at most the tokens of the window divided by this.
const SHORT_ANSWER_DIVISOR: u64 = 8;
/// An estimate may be wrong by as much as the window divided by this.
const MARGIN_DIVISOR: u64 = 20;

/// A prompt in a model's window, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gauge {
    /// The tokens of the prompt.
    pub prompt: u64,
    /// The model's limit for prompt and answer together.
    pub window: u64,
    /// The tokens reserved for the answer.
    pub reserve: u64,
    /// The tokens kept free because the prompt is only estimated.
    pub margin: u64,
}

impl Gauge {
    /// The gauge of a request that asks for at most `max_output` tokens. At most half of the window is reserved.
    pub fn new(prompt: u64, window: u64, max_output: Option<u64>, settings: &Settings) -> Self {
        let asked = max_output.map(|asked| asked.min(settings.most_reserve.unwrap_or(u64::MAX)));
        let reserve = settings.reserve_output.or(asked).unwrap_or(0).max(MIN_RESERVE).min(window / 2);
        Self { prompt, window, reserve, margin: 0 }
    }

    /// The same, with a margin because the tokens of the prompt are estimated from its bytes.
    #[must_use]
    pub fn estimated(self) -> Self {
        Self { margin: self.window / MARGIN_DIVISOR, ..self }
    }

    /// The tokens that a prompt may have.
    pub fn usable(&self) -> u64 {
        self.window.saturating_sub(self.reserve + self.margin)
    }

    /// Whether the prompt leaves no room for a short answer (a few thousand tokens, or fewer if fewer are `asked` for),
    /// or will be refused by a provider that adds `counted_output` tokens of the answer to it.
    pub fn leaves_no_room(&self, asked: Option<u64>, counted_output: u64) -> bool {
        let short = asked.unwrap_or(u64::MAX).min(MIN_RESERVE).min(self.window / SHORT_ANSWER_DIVISOR);
        (self.prompt + self.margin).saturating_add(counted_output.max(short)) > self.window
    }

    /// The share of the usable window that is used.
    pub fn utilisation(&self) -> f64 {
        self.prompt as f64 / (self.usable().max(1)) as f64
    }

    /// The zone; a bound belongs to the zone above it.
    pub fn zone(&self, settings: &Settings) -> Zone {
        let used = self.utilisation();
        let [yellow, orange, red] = settings.zones;
        match used {
            _ if used >= red => Zone::Red,
            _ if used >= orange => Zone::Orange,
            _ if used >= yellow => Zone::Yellow,
            _ => Zone::Green,
        }
    }

    /// Converts a share to tokens.
    pub fn share(&self, share: f64, settings: &Settings) -> f64 {
        let usable = self.usable() as f64;
        match settings.of {
            Whole::Usable => share * usable,
            Whole::Window => (share * self.window as f64).min(usable),
        }
    }

    /// Whether the prompt has reached a share, or exceeded it if `beyond` is set.
    pub fn reaches(&self, share: f64, settings: &Settings) -> bool {
        let (prompt, bound) = (self.prompt as f64, self.share(share, settings));
        if settings.beyond { prompt > bound } else { prompt >= bound }
    }

    /// The tokens that an event aims at.
    pub fn target(&self, settings: &Settings) -> u64 {
        self.share(settings.target, settings) as u64
    }

    /// The tokens that must be removed to get down to the target if the trigger is reached; otherwise 0.
    pub fn excess(&self, settings: &Settings) -> u64 {
        self.excess_from(settings.trigger, settings)
    }

    /// The same for another share than the trigger.
    pub fn excess_from(&self, share: f64, settings: &Settings) -> u64 {
        let excess = self.prompt.saturating_sub(self.target(settings));
        if self.reaches(share, settings) { excess } else { 0 }
    }

    /// Steps until red at `velocity` tokens per step; `None` if the prompt does not grow.
    pub fn steps_until_red(&self, velocity: f64, settings: &Settings) -> Option<f64> {
        self.steps_until((self.usable() as f64 * settings.zones[2]).floor(), velocity)
    }

    /// Whether the prompt may reach the trigger so soon that preparations must begin now.
    pub fn nears_trigger(&self, growth: Growth, settings: &Settings) -> bool {
        let trigger = self.share(settings.trigger, settings);
        let reaches_within =
            |steps, velocity| self.steps_until(trigger, velocity).is_some_and(|left| left <= steps);
        reaches_within(USUAL_STEPS, growth.velocity)
            || reaches_within(LARGE_STEPS, growth.largest as f64)
            || reaches_within(1.0, self.usable() as f64 * SUDDEN_STEP_SHARE)
    }

    /// Steps until the prompt has this many tokens; `None` if it does not grow.
    fn steps_until(&self, tokens: f64, velocity: f64) -> Option<f64> {
        (velocity > 0.0).then(|| ((tokens - self.prompt as f64) / velocity).max(0.0))
    }
}

/// The trigger is near if this many steps of the average size reach it, because a preparation takes several steps.
const USUAL_STEPS: f64 = 5.0;
/// The trigger is near if this many steps of the largest size so far reach it, because large steps come in a row.
const LARGE_STEPS: f64 = 3.0;
/// The share of the usable window that a single step may add without precedent: a long result, a pasted document.
const SUDDEN_STEP_SHARE: f64 = 0.1;

/// The number of steps over which the velocity is averaged.
const STEPS: usize = 5;
/// The fewest readings that give a velocity.
const MIN_READINGS: usize = 3;
/// A step is a spike if it exceeds the usual velocity by this factor, and so does the velocity that it leads to.
const SPIKE_FACTOR: f64 = 3.0;
/// The weight of the newest velocity in the usual one, which is an exponential moving average.
const NEWEST_WEIGHT: f64 = 0.3;

/// How fast a thread grows, from the tokens of its prompts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Velocity {
    /// The tokens of the last prompt.
    last: Option<u64>,
    /// The tokens that each of the last steps added. A step after which the prompt is shorter is left out: room was
    /// made, and how much the step added is unknown.
    steps: Vec<u64>,
    usual: Option<f64>,
    count: usize,
    /// The largest step after the second prompt, in tokens: the first prompt is only estimated, so the step from it may
    /// be a mere error.
    largest: u64,
}

/// The result of a reading.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// Tokens per step, over the last readings; 0 until there are enough.
    pub velocity: f64,
    /// Whether both the velocity and the newest step are several times the usual velocity.
    pub spike: bool,
}

/// What a thread's steps add to its prompt, in tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Growth {
    /// The mean of the last steps.
    pub velocity: f64,
    /// The largest known step after the thread's second prompt.
    pub largest: u64,
}

impl Velocity {
    /// Records the tokens of the next prompt.
    pub fn read(&mut self, tokens: u64) -> Reading {
        let step = self.last.and_then(|last| tokens.checked_sub(last));
        if let Some(step) = step {
            if self.steps.len() == STEPS {
                self.steps.remove(0);
            }
            self.steps.push(step);
            if self.count > 1 {
                self.largest = self.largest.max(step);
            }
        }
        self.last = Some(tokens);
        self.count += 1;
        if self.count < MIN_READINGS {
            return Reading { velocity: 0.0, spike: false };
        }
        let velocity = self.mean();
        // A large step stays in the mean for the steps that follow it.
        let least = step.map_or(0.0, |step| velocity.min(step as f64));
        let spike = self.usual.is_some_and(|usual| usual > 0.0 && least > SPIKE_FACTOR * usual);
        let follow = |usual| NEWEST_WEIGHT * velocity + (1.0 - NEWEST_WEIGHT) * usual;
        self.usual = Some(self.usual.map_or(velocity, follow));
        Reading { velocity, spike }
    }

    /// How the thread grows; `None` until it is known what as many steps added as are averaged.
    pub fn growth(&self) -> Option<Growth> {
        (self.steps.len() == STEPS).then(|| Growth { velocity: self.mean(), largest: self.largest })
    }

    /// Tokens per step, over the last steps. Steps before an event that made room count as well, because the event
    /// changes only the size of the prompt, not how fast it grows.
    fn mean(&self) -> f64 {
        self.steps.iter().sum::<u64>() as f64 / self.steps.len().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gauge(prompt: u64, window: u64) -> Gauge {
        Gauge { prompt, window, reserve: 0, margin: 0 }
    }

    #[test]
    fn zones_begin_at_their_bounds() {
        for (prompt, zone) in [
            (63_999, Zone::Green),
            (64_000, Zone::Yellow),
            (96_000, Zone::Orange),
            (115_199, Zone::Orange),
            (115_200, Zone::Red),
            (200_000, Zone::Red),
        ] {
            assert_eq!(gauge(prompt, 128_000).zone(&Settings::default()), zone, "{prompt}");
        }
    }

    #[test]
    fn output_and_estimate_reserves_reduce_the_usable_window() {
        for (max_output, own, usable) in [
            (None, None, 195_904),
            (Some(1_000), None, 195_904),
            (Some(64_000), None, 136_000),
            (Some(190_000), None, 100_000),
            (Some(64_000), Some(20_000), 180_000),
            (Some(64_000), Some(32_000), 168_000),
        ] {
            let settings = Settings { reserve_output: own, ..Settings::default() };
            assert_eq!(Gauge::new(0, 200_000, max_output, &settings).usable(), usable, "{max_output:?}");
        }
        let small = Settings { reserve_output: Some(32_000), ..Settings::default() };
        assert_eq!(Gauge::new(0, 65_536, None, &small).usable(), 33_536);
        assert_eq!(Gauge::new(0, 200_000, None, &Settings::default()).estimated().usable(), 185_904);
        // An answer needs its room even if the request asks for less.
        let full = Gauge::new(125_000, 128_000, Some(1_000), &Settings::default());
        assert!(full.zone(&Settings::default()) == Zone::Red && full.excess(&Settings::default()) > 0);
    }

    #[test]
    fn the_excess_is_what_exceeds_the_target_once_triggered() {
        let settings = Settings { trigger: 0.75, ..Settings::default() };
        assert_eq!(gauge(95_999, 128_000).excess(&settings), 0);
        assert_eq!(gauge(100_000, 128_000).excess(&settings), 23_200);
    }

    /// Windows as far as known from the catalogue, the request and the user.
    #[test]
    fn the_window_is_the_smaller_of_known_and_configured_or_guessed() {
        for (known, max_output, size, guess, expected) in [
            (Some(200_000), None, None, false, Some(200_000)),
            (Some(200_000), Some(32_768), Some(64_000), true, Some(64_000)),
            (Some(32_000), None, Some(64_000), false, Some(32_000)),
            (None, Some(32_768), None, true, Some(131_072)),
            (None, Some(1_000), None, true, Some(8_192)),
            (None, Some(32_768), Some(64_000), true, Some(64_000)),
            (None, Some(32_768), None, false, None),
            (None, None, None, true, None),
            (None, None, Some(64_000), false, Some(64_000)),
        ] {
            let settings = Settings { size, guess, ..Settings::default() };
            assert_eq!(
                settings.window(known, max_output),
                expected,
                "{known:?} {max_output:?} {size:?} {guess}"
            );
        }
    }

    #[test]
    fn the_history_budget_is_the_window_less_the_other_regions() {
        for (window, others, expected) in [
            (200_000, [8_000, 2_000, 12_000, 32_000], 146_000),
            (200_000, [0; 4], 200_000),
            (10_000, [8_000, 2_000, 12_000, 32_000], 0),
        ] {
            let [system, summary, tools, answer] = others;
            let budget = history_budget(window, [system, summary, tools, answer]);
            assert_eq!(budget, expected, "{window} {others:?}");
            assert!(
                budget == 0 || budget + others.iter().sum::<u64>() == window,
                "the regions make up the window"
            );
        }
    }

    /// The first prompt at which an event is due, and what it aims at.
    #[test]
    fn triggers_and_targets_follow_the_settings() {
        let usual = Settings { trigger: 0.75, target: 0.5, ..Settings::default() };
        let of_window = Settings { of: Whole::Window, ..usual };
        let sized = Settings { size: Some(64_000), ..of_window };
        let (half, most) = (Settings { trigger: 0.5, ..of_window }, Settings { trigger: 0.7, ..of_window });
        let nine = Settings { trigger: 0.9, reserve_output: Some(13_600), ..of_window };
        let capped = Settings { trigger: 1.0, most_reserve: Some(32_000), ..usual };
        let beyond = Settings { beyond: true, ..capped };
        let spare = |size| Settings { trigger: 1.0, reserve_output: Some(25_000), size: Some(size), ..usual };
        for (settings, window, max_output, first, target) in [
            (usual, 128_000, None, 92_928, 61_952),
            (sized, 200_000, Some(8_000), 48_000, 32_000),
            (half, 1_048_576, Some(65_536), 524_288, 524_288),
            (most, 1_048_576, Some(65_536), 734_004, 524_288),
            // Never more than a prompt may have.
            (most, 1_048_576, Some(400_000), 648_576, 524_288),
            (nine, 272_000, Some(128_000), 244_800, 136_000),
            (capped, 200_000, Some(64_000), 168_000, 84_000),
            (beyond, 200_000, Some(64_000), 168_001, 84_000),
            (capped, 65_536, Some(32_000), 33_536, 16_768),
            (spare(275_000), 200_000, None, 175_000, 87_500),
            (spare(275_000), 1_000_000, None, 250_000, 125_000),
            (spare(245_000), 400_000, None, 220_000, 110_000),
            (spare(215_000), 1_000_000, None, 190_000, 95_000),
            (spare(275_000), 128_000, None, 103_000, 51_500),
            (spare(275_000), 20_000, None, 10_000, 5_000),
        ] {
            let window = settings.window(Some(window), max_output).unwrap();
            let is_due = |prompt| Gauge::new(prompt, window, max_output, &settings).excess(&settings) > 0;
            let gauge = Gauge::new(first, window, max_output, &settings);
            assert_eq!(gauge.target(&settings), target, "{settings:?} {window}");
            assert!(
                gauge.reaches(settings.trigger, &settings) && !is_due(first - 1),
                "{settings:?} {window}"
            );
        }
    }

    #[test]
    fn velocity_and_steps_until_red() {
        use Zone::{Green, Orange, Red, Yellow};
        let mut velocity = Velocity::default();
        for (tokens, expected, until, zone) in [
            (5000, 0.0, None, Green),
            (8000, 0.0, None, Green),
            (12_000, 3500.0, Some(29.5), Green),
            (18_000, 4333.3, Some(22.4), Green),
            (28_000, 5750.0, Some(15.2), Green),
            (45_000, 8000.0, Some(8.8), Green),
            (68_000, 12_000.0, Some(3.93), Yellow),
            (90_000, 15_600.0, Some(1.62), Yellow),
            (105_000, 17_400.0, Some(0.59), Orange),
            (118_000, 18_000.0, Some(0.0), Red),
        ] {
            let reading = velocity.read(tokens);
            assert!((reading.velocity - expected).abs() < 0.1 && !reading.spike, "{tokens}: {reading:?}");
            let gauge = gauge(tokens, 128_000);
            let steps = gauge.steps_until_red(reading.velocity, &Settings::default());
            assert_eq!(steps.is_some(), until.is_some(), "{tokens}");
            assert!((steps.unwrap_or(0.0) - until.unwrap_or(0.0)).abs() < 0.06, "{tokens}: {steps:?}");
            assert_eq!(gauge.zone(&Settings::default()), zone, "{tokens}");
        }
        let until = gauge(45_000, 128_000).steps_until_red(8000.0, &Settings::default());
        assert!((until.unwrap() - 8.775).abs() < 0.01, "{until:?}");
        assert_eq!(gauge(45_000, 128_000).steps_until_red(0.0, &Settings::default()), None);
        assert_eq!(gauge(120_000, 128_000).steps_until_red(1.0, &Settings::default()), Some(0.0));
    }

    #[test]
    fn a_step_far_above_the_usual_is_a_spike() {
        let mut velocity = Velocity::default();
        for (tokens, expected, spike) in [
            (2000, 0.0, false),
            (4000, 0.0, false),
            (6000, 2000.0, false),
            (8000, 2000.0, false),
            (60_000, 14_500.0, true),
        ] {
            assert_eq!(velocity.read(tokens), Reading { velocity: expected, spike }, "{tokens}");
        }
    }

    /// The velocity stays high for the steps after a large one. They are no spikes, but another large one is.
    #[test]
    fn a_large_step_is_one_spike() {
        let usual = (0..8).map(|at| (1000 + at * 100, false));
        for then in [
            &[(23_700, true), (23_800, false), (23_900, false), (90_000, true), (90_100, false)][..],
            // Room was made.
            &[(23_700, true), (9_000, false), (9_100, false)],
        ] {
            let mut velocity = Velocity::default();
            for (tokens, spike) in usual.clone().chain(then.iter().copied()) {
                let reading = velocity.read(tokens);
                assert_eq!(reading.spike, spike, "{tokens}: {reading:?}");
            }
        }
    }

    /// When room was made the level drops, and the thread grows as before.
    #[test]
    fn making_room_does_not_count_as_growth() {
        let mut velocity = Velocity::default();
        for (tokens, expected) in [
            (10_000, 0.0),
            (11_000, 0.0),
            (12_000, 1000.0),
            (5_000, 1000.0),
            (6_000, 1000.0),
            (8_000, 1250.0),
            (3_000, 1250.0),
            (4_000, 1200.0),
        ] {
            let expected = Reading { velocity: expected, spike: false };
            assert_eq!(velocity.read(tokens), expected, "{tokens}");
        }
    }

    /// The growth is known after five steps, not counting those that make the prompt shorter.
    #[test]
    fn growth_is_known_after_five_growing_steps() {
        let known = |velocity, largest| Some(Growth { velocity, largest });
        for (prompts, expected) in [
            (&[][..], None),
            (&[9_000], None),
            (&[1_000, 2_000, 3_000, 4_000, 5_000], None),
            (&[1_000, 2_000, 3_000, 4_000, 5_000, 6_000], known(1_000.0, 1_000)),
            (&[1_000, 1_000, 1_000, 1_000, 1_000, 1_000], known(0.0, 0)),
            // The velocity is that of the last steps, the largest that of all.
            (&[1_000, 2_000, 22_000, 23_000, 24_000, 25_000, 26_000, 27_000], known(1_000.0, 20_000)),
            (&[1_000, 2_000, 3_000, 4_000, 5_000, 25_000], known(4_800.0, 20_000)),
            // The first prompt is only estimated.
            (&[1_000, 21_000, 22_000, 23_000, 24_000, 25_000], known(4_800.0, 1_000)),
            // Room was made.
            (&[1_000, 21_000, 22_000, 23_000, 24_000, 25_000, 9_000], known(4_800.0, 1_000)),
            (&[1_000, 5_000, 9_000, 13_000, 17_000, 21_000, 25_000, 9_000, 13_000], known(4_000.0, 4_000)),
            (&[1_000, 2_000, 22_000, 9_000, 10_000, 11_000], None),
            (&[1_000, 2_000, 22_000, 9_000, 10_000, 11_000, 12_000], known(4_800.0, 20_000)),
            (&[1_000, 2_000, 22_000, 9_000, 10_000, 11_000, 12_000, 13_000, 14_000], known(1_000.0, 20_000)),
            (&[9_000, 8_000, 7_000, 6_000, 5_000, 4_000, 3_000], None),
        ] {
            let mut velocity = Velocity::default();
            for tokens in prompts {
                velocity.read(*tokens);
            }
            assert_eq!(velocity.growth(), expected, "{prompts:?}");
        }
    }

    /// The first prompt from which on the trigger is near: five steps of the usual size, three of the largest, or a
    /// tenth of what a prompt may have.
    #[test]
    fn the_trigger_is_near_by_growth_or_a_tenth_of_the_prompt_limit() {
        let usual = Settings::default();
        let (late, of_window) = (Settings { trigger: 1.0, ..usual }, Settings { of: Whole::Window, ..usual });
        for (settings, window, velocity, largest, first) in [
            (usual, 100_000, 0.0, 0, 80_000),
            (usual, 100_000, 500.0, 2_000, 80_000),
            (usual, 100_000, 2_001.0, 2_001, 79_995),
            (usual, 100_000, 2_500.0, 3_000, 77_500),
            (usual, 100_000, 500.0, 4_000, 78_000),
            (usual, 100_000, 500.0, 20_000, 30_000),
            (usual, 100_000, 20_000.0, 30_000, 0),
            (usual, 1_000_000, 500.0, 20_000, 800_000),
            (usual, 1_000_000, 500.0, 40_000, 780_000),
            (late, 100_000, 500.0, 2_000, 90_000),
            (of_window, 100_000, 500.0, 2_000, 80_000),
        ] {
            let growth = Growth { velocity, largest };
            let is_near = |prompt| gauge(prompt, window).nears_trigger(growth, &settings);
            let is_far = first == 0 || !is_near(first - 1);
            assert!(is_near(first) && is_far, "{settings:?} {window} {growth:?} {first}");
            assert!(is_near(window), "what is past it is near");
        }
    }
}
