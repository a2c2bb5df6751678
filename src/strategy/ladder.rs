//! How room is made when the window is nearly full: the rungs are tried one after the other until one frees enough.
//!
//! Old results are cleared, if that alone reaches the target; otherwise a prepared text replaces old messages;
//! otherwise as many results as possible are cleared, and long texts in the arguments of old calls abridged; otherwise
//! the oldest turns are dropped; otherwise the oldest messages, even within one long turn; otherwise the middle of the
//! largest new results is cut. An event that frees too little is not made: each one breaks the provider's cache, and
//! the next would follow at once.

/// How room is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rung {
    /// A prepared text replaces old messages.
    Summary,
    /// Old results are cleared.
    Clear,
    /// Long texts in the arguments of old calls are abridged too.
    Arguments,
    /// The oldest turns are dropped.
    Turns,
    /// The oldest messages are dropped, within a turn if necessary.
    Messages,
    /// The middle of the largest results that are new in this request is cut.
    Cut,
}

impl Rung {
    /// Its name in the ledger.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Summary => "ready",
            Self::Clear => "clear",
            Self::Arguments => "arguments",
            Self::Turns => "turns",
            Self::Messages => "half",
            Self::Cut => "cut",
        }
    }
}

/// The settings for dropping messages and cutting results.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Whether messages are ever dropped and new results ever cut.
    pub enabled: bool,
    /// How many of the newest turns, the present one included, are kept as long as dropping the others is enough.
    pub keep_turns: u32,
    /// The share of the usable window that an event must free, unless the prompt already exceeds that window.
    pub least: f64,
    /// The size of the prompt from which on messages may be dropped, as a share of the window (of its
    /// [`Whole`](super::window::Whole)).
    pub from: f64,
    /// The most messages that may be sent, if limited. Beyond it the oldest are dropped.
    pub messages: Option<u32>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { enabled: true, keep_turns: 3, least: 0.15, from: 0.0, messages: None }
    }
}

impl Settings {
    /// The tokens that an event must free, given the `usable` tokens of a prompt.
    pub fn least_of(&self, usable: u64) -> u64 {
        (usable as f64 * self.least) as u64
    }
}

/// How much room is needed, in bytes of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// The bytes to free to reach the target.
    pub wanted: u64,
    /// An event that frees fewer bytes is not worth its price.
    pub least: u64,
    /// The bytes that an event must free to be made even if it is not worth its price; `None` if the request can be
    /// sent without an event.
    pub helps: Option<u64>,
}

impl Need {
    /// Whether the prompt is longer than allowed, or was rejected for its length.
    pub fn is_urgent(&self) -> bool {
        self.helps.is_some()
    }

    /// The bytes that count as reaching the target.
    pub fn enough(&self) -> u64 {
        nearly(self.wanted).max(self.least)
    }
}

/// Nine tenths of `bytes`, which counts as all of them: the bytes freed by an event are an estimate.
pub fn nearly(bytes: u64) -> u64 {
    bytes / 10 * 9
}

/// A place where the history may be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutPoint {
    /// Bytes freed by a cut here.
    pub frees: u64,
    /// The number of the user's turns kept whole after the cut; `None` within a turn.
    pub turns: Option<u32>,
}

/// Where to cut, for a rung that drops messages: the first place that frees enough, otherwise the one that frees most.
pub fn cut(places: &[CutPoint], rung: Rung, need: &Need, settings: &Settings) -> Option<usize> {
    let may = |place: &CutPoint| match rung {
        Rung::Turns => place.turns.is_some_and(|turns| turns >= settings.keep_turns),
        _ => true,
    };
    let enough = places.iter().position(|place| may(place) && place.frees >= need.wanted);
    // A later place may free less: the user's question stays, and so does what has to follow it.
    let best = || {
        let allowed = places.iter().enumerate().filter(|(_, place)| may(place));
        allowed.max_by_key(|(_, place)| place.frees).map(|(at, _)| at)
    };
    enough.or_else(best)
}

/// How many bytes of each text to keep so that `wanted` bytes are removed: the largest are shortened first, down to the
/// size of the next, and none to less than `floor`.
pub fn shares(sizes: &[u64], wanted: u64, floor: u64) -> Vec<u64> {
    let total = |level: u64| -> u64 { sizes.iter().map(|size| size.saturating_sub(level.max(floor))).sum() };
    let (mut low, mut high) = (0, sizes.iter().copied().max().unwrap_or(0));
    // The highest level at which enough is removed.
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if total(middle) >= wanted {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    sizes.iter().map(|size| (*size).min(low.max(floor))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_sufficient_cut_else_the_largest_is_chosen() {
        let place = |frees, turns| CutPoint { frees, turns };
        let places = [
            place(100, Some(4)),
            place(200, Some(3)),
            place(300, Some(2)),
            place(400, Some(1)),
            place(450, None),
            place(500, None),
        ];
        let settings = Settings { keep_turns: 2, ..Settings::default() };
        for (rung, wanted, expected) in [
            (Rung::Turns, 50, Some(0)),
            (Rung::Turns, 150, Some(1)),
            (Rung::Turns, 300, Some(2)),
            (Rung::Turns, 350, Some(2)),
            (Rung::Messages, 350, Some(3)),
            (Rung::Messages, 401, Some(4)),
            (Rung::Messages, 900, Some(5)),
        ] {
            let need = Need { wanted, least: 1, helps: None };
            assert_eq!(cut(&places, rung, &need, &settings), expected, "{rung:?} {wanted}");
        }
        // The last place is not the one that frees most.
        let uneven = [place(100, Some(3)), place(900, None), place(220, Some(2))];
        for (rung, wanted, expected) in
            [(Rung::Turns, 1000, Some(2)), (Rung::Messages, 150, Some(1)), (Rung::Messages, 1000, Some(1))]
        {
            let need = Need { wanted, least: 1, helps: Some(1) };
            assert_eq!(cut(&uneven, rung, &need, &settings), expected, "{rung:?} {wanted}");
        }
        let need = Need { wanted: 1, least: 1, helps: None };
        assert_eq!(cut(&places[4..], Rung::Turns, &need, &settings), None);
        assert_eq!(cut(&[], Rung::Messages, &need, &settings), None);
    }

    #[test]
    fn the_largest_sizes_are_reduced_first() {
        for (sizes, wanted, floor, expected) in [
            (&[100, 50, 10][..], 20, 10, &[80, 50, 10][..]),
            (&[100, 50, 10], 60, 10, &[45, 45, 10]),
            (&[100, 50, 10], 1000, 10, &[10, 10, 10]),
            (&[100, 50, 10], 1000, 20, &[20, 20, 10]),
            (&[100, 50, 10], 0, 20, &[100, 50, 10]),
            (&[], 5, 5, &[]),
        ] {
            assert_eq!(shares(sizes, wanted, floor), expected, "{sizes:?} {wanted}");
        }
    }
}
