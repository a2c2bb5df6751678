//! Clears first the results that are least likely to be needed again, in proportion to what keeping them costs.
//!
//! A *quote* is a later call that repeats text from a result. Every result has a rate, the expected number of its
//! quotes per request. The rate depends on what the result is, grows with its size, and falls with its age and with
//! the time since one of its files was named. A result may be cleared if sending it again with every request is
//! expected to cost more than losing it. Its *rent* is what it has cost so far beyond its worth. A result that is
//! worth about what it costs has hardly any rent, so it does not bring an event nearer.
//!
//! The rates were fitted to recorded sessions of many agents. To fit them anew, count the later calls that quote the
//! results of each kind, by size, age and idle time. In those sessions nearly all quotes come from views of files, a
//! tenth as many from views of files that were changed later, and hardly any from outputs of commands. A diff is like a
//! view of a file as long as the agent has changed nothing; afterwards it shows what the agent itself has written,
//! which is in its calls anyway. Parts of a file are useful while the agent works on that file. Results that show no
//! code are quoted soon or never.

use std::sync::LazyLock;

use super::settings::Settings;
use super::{BYTES_PER_TOKEN, frees, may_go};
use crate::strategy::gate::Rates;
use crate::strategy::{Action, Class, History, Item, ToolResult, View};

/// The rates of results of a thousand tokens at their first request, by what the result is.
const VIEW_RATE: f64 = 0.12;
const CHANGED_VIEW_RATE: f64 = 0.16;
const SUPERSEDED_RATE: f64 = 0.004;
const DIFF_RATE: f64 = 0.12;
const OWN_DIFF_RATE: f64 = 0.005;
const LISTING_RATE: f64 = 0.02;
const OTHER_RATE: f64 = 0.001;
/// Factor on the rate if the file had been changed before it was read.
const AFTER_CHANGE_FACTOR: f64 = 0.5;
/// Factors on the rate for views of a part of a file, by whether the file was changed since.
const PART_FACTOR: f64 = 0.5;
const CHANGED_PART_FACTOR: f64 = 0.25;
/// Factor on the rate of a part of a file that was changed in one of the last `RECENT_REQUESTS`, because the next
/// change is often close to it.
const RECENT_CHANGE_FACTOR: f64 = 3.0;
const RECENT_REQUESTS: u32 = 3;
/// Factors on the rate for documents and data, and for files that are not the project's own.
const DOCUMENT_FACTOR: f64 = 0.5;
const FOREIGN_FACTOR: f64 = 0.4;
/// Exponents by which the rate grows with size and falls with idle time and age.
const SIZE_EXPONENT: f64 = 0.8;
const IDLE_EXPONENT: f64 = -1.1;
const AGE_EXPONENT: f64 = -0.7;
/// The exponent by age for results that show no code.
const OTHER_AGE_EXPONENT: f64 = -1.0;
/// How many times cheaper losing a result must be than keeping it.
const KEEP_MARGIN: f64 = 1.3;

const DOCUMENT_EXTENSIONS: &[&str] =
    &["md", "mdx", "txt", "rst", "json", "yaml", "yml", "toml", "lock", "log", "csv"];
const FOREIGN_DIRECTORIES: &[&str] = &[
    "node_modules",
    "vendor",
    "site-packages",
    ".cargo",
    "mod",
    ".claude",
    ".codex",
    ".agents",
    "skills",
    "tmp",
];

/// The powers of the first integers with one exponent. Idle times and ages are whole numbers of requests.
struct Powers(Vec<f64>);

static IDLE_POWERS: LazyLock<Powers> = LazyLock::new(|| Powers::new(IDLE_EXPONENT));
static AGE_POWERS: LazyLock<Powers> = LazyLock::new(|| Powers::new(AGE_EXPONENT));
static OTHER_AGE_POWERS: LazyLock<Powers> = LazyLock::new(|| Powers::new(OTHER_AGE_EXPONENT));

impl Powers {
    const COUNT: usize = 2048;

    fn new(exponent: f64) -> Self {
        Self((0..Self::COUNT).map(|n| libm::pow(n.max(1) as f64, exponent)).collect())
    }

    /// The power of `n`, or of the largest integer in the table if `n` is larger.
    fn of(&self, n: u32) -> f64 {
        self.0[(n as usize).min(Self::COUNT - 1)]
    }
}

/// Factors on the rate of a result: one by its size, and one by what its first file is.
pub fn weight(bytes: u32, action: &Action) -> (f64, f64) {
    let size = libm::pow(f64::from(bytes) / BYTES_PER_TOKEN as f64 / 1000.0, SIZE_EXPONENT);
    let Some(view) = action.views.first() else { return (size, 1.0) };
    let extension = view.path.rsplit_once('.').map_or("", |(_, extension)| extension);
    let document = if DOCUMENT_EXTENSIONS.contains(&extension) { DOCUMENT_FACTOR } else { 1.0 };
    let mut components = view.path.split('/');
    let is_foreign = components.any(|component| FOREIGN_DIRECTORIES.contains(&component));
    (size, document * if is_foreign { FOREIGN_FACTOR } else { 1.0 })
}

/// What a result's rate depends on, apart from the request.
struct Rating {
    /// The rate up to request `recent_until`, as long as the last change of its file is recent.
    recent: f64,
    recent_until: u32,
    /// The rate after that.
    usual: f64,
    /// Whether the rate grows with the edits of the last requests.
    by_edits: bool,
    size: f64,
    /// The last request that it was of use to.
    last_used: u32,
    /// The last request that showed it.
    shown: u32,
    age_powers: &'static Powers,
}

impl Rating {
    fn of(result: &ToolResult) -> Self {
        let (class, shown) = (result.action.class, result.shown);
        let (size, file) = result.weight;
        let is_view = class == Class::View && !result.superseded;
        let is_changed = is_view && result.edited;
        let usual = match class {
            _ if result.superseded => SUPERSEDED_RATE,
            Class::View if is_changed => changed_view_rate(result, false),
            Class::View if is_part(result) => VIEW_RATE * PART_FACTOR * file,
            Class::View => VIEW_RATE * file,
            Class::Diff if result.of_edited => OWN_DIFF_RATE,
            Class::Diff => DIFF_RATE,
            Class::Search => LISTING_RATE,
            _ => OTHER_RATE,
        };
        let (recent, recent_until) = if is_changed {
            (changed_view_rate(result, true), result.changed.saturating_add(RECENT_REQUESTS))
        } else {
            (usual, 0)
        };
        let shows_code = matches!(class, Class::View | Class::Diff);
        Self {
            recent,
            recent_until,
            usual,
            by_edits: !result.superseded && !is_changed,
            size,
            last_used: if is_view { result.named.max(shown) } else { shown },
            shown,
            age_powers: if shows_code { &AGE_POWERS } else { &OTHER_AGE_POWERS },
        }
    }

    /// The rate at a request, and the number of requests since the result was last of use.
    ///
    /// `busy` grows with the edits of the last requests, because agents that edit also quote.
    fn at(&self, now: u32, busy: f64) -> (f64, u32) {
        let rate = if now <= self.recent_until { self.recent } else { self.usual };
        let rate = if self.by_edits { rate * busy } else { rate };
        let (idle, age) = (1 + now.saturating_sub(self.last_used), 1 + now.saturating_sub(self.shown));
        (rate * self.size * IDLE_POWERS.of(idle) * self.age_powers.of(age), idle)
    }
}

/// The rate of a view of a file that was changed since, apart from its size.
fn changed_view_rate(result: &ToolResult, is_recent: bool) -> f64 {
    let part = match is_part(result) {
        true if is_recent => CHANGED_PART_FACTOR * RECENT_CHANGE_FACTOR,
        true => CHANGED_PART_FACTOR,
        false => 1.0,
    };
    let after_change = if result.of_edited { AFTER_CHANGE_FACTOR } else { 1.0 };
    let (_, file) = result.weight;
    CHANGED_VIEW_RATE * part * after_change * file
}

/// Whether a result shows only a part of a file.
fn is_part(result: &ToolResult) -> bool {
    result.action.views.iter().any(View::is_range)
}

/// Factor on rates that grow with the edits of the last requests.
fn busy(history: &History) -> f64 {
    f64::from(1 + history.recent_edits()).sqrt()
}

/// The cost of a lost quote, in bytes of plain input; `regret_tokens` is stated for the usual rates.
fn regret(rates: Rates, settings: &Settings) -> f64 {
    (settings.regret_tokens.saturating_mul(BYTES_PER_TOKEN)) as f64 * rates.read / Rates::USUAL.read
}

/// What a past request contributes to the rents.
#[derive(Debug, Clone, Copy)]
pub struct Passed {
    step: u32,
    /// The cost of reading a byte.
    read: f64,
    /// The cost of a lost quote at that time, in bytes of plain input.
    regret: f64,
    busy: f64,
}

/// Records that a request has passed: the rent of each old result grows by what the request paid for it beyond its
/// worth. Many requests may pass at once, as in a history that was not seen before, so [`rent`] adds them up later,
/// result by result.
pub(super) fn step(history: &mut History, rates: Rates, settings: &Settings) {
    let (regret, busy) = (regret(rates, settings), busy(history));
    history.pass(Passed { step: history.step(), read: rates.read, regret, busy });
}

/// The rent of a result of `bytes` bytes, including the `passed` requests that are not yet part of it.
pub fn rent(result: &ToolResult, bytes: u32, passed: &[Passed]) -> f64 {
    let frees = frees(bytes, result);
    let Some(passed) = passed.get(result.settled..).filter(|_| frees > 0) else {
        return result.rent;
    };
    let (beyond, rating) = (f64::from(frees), Rating::of(result));
    let old = passed.iter().filter(|now| result.shown < now.step);
    old.fold(result.rent, |rent, now| {
        let (quotes, _) = rating.at(now.step, now.busy);
        rent + (now.read * beyond - now.regret * quotes).max(0.0)
    })
}

/// The places of the results that are cheaper to lose than to keep, in order.
pub(super) fn open(history: &History, rates: Rates, settings: &Settings) -> Vec<usize> {
    let (now, regret, busy) = (history.step(), regret(rates, settings), busy(history));
    let horizon = history.expected_rest();
    let is_open = |item: &Item, result: &ToolResult| {
        let (rate, idle) = Rating::of(result).at(now, busy);
        let idle = f64::from(idle);
        // The rate, integrated over the horizon.
        let quotes = rate * idle / 0.25 * (1.0 - (idle / (idle + horizon)).sqrt().sqrt());
        let frees = f64::from(frees(item.bytes, result));
        frees * (rates.read * horizon + rates.rewrite()) > KEEP_MARGIN * regret * quotes
    };
    let old = history.items().iter().enumerate().filter_map(|(at, item)| {
        let result = item.result.as_deref()?;
        let due = result.shown < now && may_go(item.bytes, result, settings) && is_open(item, result);
        due.then_some(at)
    });
    old.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy::View;
    use std::sync::Arc;

    /// A result of request 10, of a thousand tokens.
    fn result(class: Class, views: &[(&str, u32, u32)]) -> ToolResult {
        let view = |&(path, first, last): &(&str, u32, u32)| View::of(path.into(), (first, last));
        let action = Action { class, views: views.iter().map(view).collect(), ..Action::default() };
        let weight = weight(4000, &action);
        ToolResult {
            weight,
            action: Arc::new(action),
            shown: 10,
            named: 10,
            clearable: true,
            ..ToolResult::default()
        }
    }

    /// From the results that are quoted most to those that are quoted least, thirty requests later.
    #[test]
    fn results_are_rated_by_their_likelihood_of_being_quoted() {
        const ALL: (&str, u32, u32) = ("a.rs", 1, u32::MAX);
        const PART: (&str, u32, u32) = ("a.rs", 5, 90);
        let at = |changed, views: &[_]| {
            let named = changed;
            ToolResult { edited: true, changed, named, ..result(Class::View, views) }
        };
        let of_late = |class| ToolResult { named: 40, ..result(class, &[ALL]) };
        let rows = [
            ("named recently", of_late(Class::View)),
            ("changed recently", at(38, &[ALL])),
            ("a part, changed recently", at(38, &[PART])),
            ("a part, changed before", at(30, &[PART])),
            ("a view", result(Class::View, &[ALL])),
            ("a document", result(Class::View, &[("a.md", 1, u32::MAX)])),
            ("a listing", result(Class::Search, &[])),
            ("a diff of own changes", ToolResult { of_edited: true, ..result(Class::Diff, &[]) }),
            ("a run", of_late(Class::Run)),
        ];
        let rates = rows.map(|(name, result)| (name, Rating::of(&result).at(40, 1.0).0));
        for pair in rates.windows(2) {
            assert!(pair[0].1 > pair[1].1, "{rates:?}");
        }
        let diff = Rating::of(&result(Class::Diff, &[])).at(40, 1.0).0;
        assert!((diff / rates[4].1 - 1.0).abs() < 0.01, "a diff is a view: {diff}, {rates:?}");
    }

    /// What happens in a thread: the model answers and calls a tool, and a result comes, or a pointer to an earlier
    /// one.
    #[derive(Debug, Clone)]
    struct Happens {
        class: Class,
        path: &'static str,
        first: u32,
        bytes: u32,
        content: u128,
        points: bool,
        answers: bool,
    }

    const CLASSES: &[Class] = &[Class::View, Class::Edit, Class::Search, Class::Diff, Class::Run];

    fn anything() -> impl proptest::strategy::Strategy<Value = Happens> {
        use proptest::prelude::*;
        let kinds = (prop::sample::select(CLASSES), prop::sample::select(&["a.rs", "b.md", "src/a.rs"][..]));
        let sizes = (1..3_u32, prop::sample::select(&[90_u32, 160, 161, 900, 40_000][..]), 0..6_u128);
        (kinds, sizes, any::<bool>(), any::<bool>()).prop_map(
            |((class, path), (first, bytes, content), points, answers)| Happens {
                class,
                path,
                first,
                bytes,
                content,
                points,
                answers,
            },
        )
    }

    fn happen(history: &mut History, at: usize, what: &Happens) {
        let view = View::of(what.path.into(), (what.first, u32::MAX));
        let shown = (what.class == Class::View).then_some(view);
        let edited = (what.class == Class::Edit).then(|| what.path.into());
        let action = Action {
            class: what.class,
            views: shown.into_iter().collect(),
            edits: edited.into_iter().collect(),
            mentions: [what.path.into()].into(),
            all_or_nothing: true,
            call: u64::from(what.first) << 8 | what.class as u64,
        };
        let action = Arc::new(action);
        history.record_call(&action);
        history.record_changes(&action, false);
        let part = crate::conversation::PartId { message: at as u32, part: 0 };
        if what.points {
            return history.add_pointer(part, 50, what.content);
        }
        let (content, weight) = (what.content, weight(what.bytes, &action));
        let result = ToolResult { action, content, weight, clearable: true, ..ToolResult::default() };
        history.add_result(part, what.bytes, result);
    }

    /// The rate of quotes of a result at a request, written out.
    fn rate(result: &ToolResult, now: u32, busy: f64) -> f64 {
        let (size, file) = result.weight;
        let first = match result.action.class {
            _ if result.superseded => SUPERSEDED_RATE,
            Class::View if result.edited => {
                let part = match is_part(result) {
                    true if now.saturating_sub(result.changed) <= RECENT_REQUESTS => {
                        CHANGED_PART_FACTOR * RECENT_CHANGE_FACTOR
                    }
                    true => CHANGED_PART_FACTOR,
                    false => 1.0,
                };
                CHANGED_VIEW_RATE * part * if result.of_edited { AFTER_CHANGE_FACTOR } else { 1.0 } * file
            }
            Class::View if is_part(result) => VIEW_RATE * PART_FACTOR * file * busy,
            Class::View => VIEW_RATE * file * busy,
            Class::Diff if result.of_edited => OWN_DIFF_RATE * busy,
            Class::Diff => DIFF_RATE * busy,
            Class::Search => LISTING_RATE * busy,
            _ => OTHER_RATE * busy,
        };
        let named = result.action.class == Class::View && !result.superseded;
        let last = if named { result.named.max(result.shown) } else { result.shown };
        let code = matches!(result.action.class, Class::View | Class::Diff);
        let by_age = if code { &AGE_POWERS } else { &OTHER_AGE_POWERS };
        first * size * IDLE_POWERS.of(1 + now - last) * by_age.of(1 + now - result.shown)
    }

    /// What one more request adds to the rent of a result in its present state.
    fn added(history: &History, at: usize, rates: Rates, settings: &Settings) -> f64 {
        let item = &history.items()[at];
        let Some(result) = item.result.as_deref() else { return 0.0 };
        let frees = frees(item.bytes, result);
        if result.shown >= history.step() || frees == 0 {
            return 0.0;
        }
        let quotes = rate(result, history.step(), busy(history));
        (rates.read * f64::from(frees) - regret(rates, settings) * quotes).max(0.0)
    }

    proptest::proptest! {
        /// Rents are exactly the same as if each were computed at every request, whenever they are settled.
        #[test]
        fn lazily_settled_rents_equal_those_added_per_request(
            all in proptest::collection::vec(anything(), 1..60),
            settled in 1..20_usize,
        ) {
            let settings = Settings { regret_tokens: 2_000, ..Settings::default() };
            let rates = Rates { read: 0.1, write: 1.25 };
            let (mut history, mut expected) = (History::default(), Vec::new());
            for (at, what) in all.iter().enumerate() {
                if what.answers {
                    history.begin_step();
                    step(&mut history, rates, &settings);
                    for (at, rent) in expected.iter_mut().enumerate() {
                        *rent += added(&history, at, rates, &settings);
                    }
                }
                happen(&mut history, at, what);
                expected.resize(history.items().len(), 0.0_f64);
                if at % settled == 0 {
                    history.settle();
                }
                for (at, item) in history.items().iter().enumerate() {
                    let rent = item.result.as_ref().map(|_| expected[at].to_bits());
                    proptest::prop_assert_eq!(history.rent(at).map(f64::to_bits), rent);
                }
            }
        }
    }
}
