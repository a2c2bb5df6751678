//! What is least likely to be needed again for what it costs.
//!
//! Every result has a rate at which agents quote it in later calls: it depends on what the result is, and falls
//! with its age and with the time since one of its files was named. A result may go when reading it on and on
//! costs more than losing it is expected to. Its rent is what it has cost beyond its worth so far, so that
//! results that are doubtful to clear do not push for an event.
//!
//! The rates were fitted to recorded sessions of many agents: views of files make nearly all quotes, those of
//! files that were changed since a tenth as many, and outputs of commands next to none. A diff is a view of code
//! that somebody else wrote, as long as nothing was changed; afterwards it shows what the agent itself has written,
//! and that stands in its calls. Parts of a file are of use while the agent is at work on that file. What shows no
//! code is quoted soon or never.

use std::sync::LazyLock;

use super::settings::Settings;
use super::{BYTES_PER_TOKEN, PLACEHOLDER, may_go};
use crate::strategy::gate::Rates;
use crate::strategy::history::{Class, Deed, History, Outcome};

/// Quotes a request of a result of a thousand tokens, at its first request.
const VIEW: f64 = 0.12;
const VIEW_OF_CHANGED: f64 = 0.16;
const SUPERSEDED: f64 = 0.004;
const DIFF: f64 = 0.12;
const DIFF_OF_OWN: f64 = 0.005;
const LISTING: f64 = 0.02;
const REST: f64 = 0.001;
/// What is left of the rate where the file had been changed before it was read.
const AFTER_CHANGE: f64 = 0.5;
/// What is left of the rate for views of a part of a file.
const PART: f64 = 0.5;
const PART_OF_CHANGED: f64 = 0.25;
/// How much likelier it is that a part of a file is quoted when the file was changed in so many of the last
/// requests: what comes next is often next to it.
const OF_LATE: f64 = 3.0;
const LATE: u32 = 3;
/// What is left of it for documents, data, and files that are not the project's own.
const DOCUMENT: f64 = 0.5;
const FOREIGN: f64 = 0.4;
/// How the rate grows with size, and falls with idle time and age.
const BY_SIZE: f64 = 0.8;
const BY_IDLE: f64 = -1.1;
const BY_AGE: f64 = -0.7;
/// The same for what shows no code: it is quoted soon or never.
const BY_AGE_OF_REST: f64 = -1.0;
/// A thread is expected to go on for as many requests as it has had, within bounds.
const HORIZON: (f64, f64) = (5.0, 60.0);
/// Losing a result must be this much cheaper than keeping it.
const MARGIN: f64 = 1.3;
/// The read rate that `regret_tokens` is stated for.
const USUAL_READ: f64 = 0.1;

const DOCUMENTS: &[&str] = &["md", "mdx", "txt", "rst", "json", "yaml", "yml", "toml", "lock", "log", "csv"];
const FOREIGN_PLACES: &[&str] = &[
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

/// Powers of the whole numbers that idle times and ages are.
struct Powers(Vec<f64>);

static IDLE: LazyLock<Powers> = LazyLock::new(|| Powers::new(BY_IDLE));
static AGE: LazyLock<Powers> = LazyLock::new(|| Powers::new(BY_AGE));
static AGE_OF_REST: LazyLock<Powers> = LazyLock::new(|| Powers::new(BY_AGE_OF_REST));

impl Powers {
    const MOST: usize = 2048;

    fn new(exponent: f64) -> Self {
        Self((0..Self::MOST).map(|n| (n.max(1) as f64).powf(exponent)).collect())
    }

    fn of(&self, n: u32) -> f64 {
        self.0[(n as usize).min(Self::MOST - 1)]
    }
}

/// How much of a result can be quoted: by its size, and, apart, by what its file is.
pub fn weight(bytes: u32, deed: &Deed) -> (f64, f64) {
    let size = (f64::from(bytes) / BYTES_PER_TOKEN as f64 / 1000.0).powf(BY_SIZE);
    let Some(view) = deed.views.first() else { return (size, 1.0) };
    let ending = view.path.rsplit_once('.').map_or("", |(_, ending)| ending);
    let document = if DOCUMENTS.contains(&ending) { DOCUMENT } else { 1.0 };
    let mut places = view.path.split('/');
    let foreign = if places.any(|place| FOREIGN_PLACES.contains(&place)) { FOREIGN } else { 1.0 };
    (size, document * foreign)
}

/// A result's rate of quotes now, and the requests since it was last of use.
///
/// `busy` grows with the edits of the last requests: an agent that edits quotes.
fn rate(result: &Outcome, now: u32, busy: f64) -> (f64, u32) {
    let (class, born) = (result.deed.class, result.shown);
    let (size, file) = result.weight;
    let first = match class {
        _ if result.superseded => SUPERSEDED,
        Class::View if result.edited => of_changed(result, now) * file,
        Class::View if is_part(result) => VIEW * PART * file * busy,
        Class::View => VIEW * file * busy,
        Class::Diff if result.of_edited => DIFF_OF_OWN * busy,
        Class::Diff => DIFF * busy,
        Class::Search => LISTING * busy,
        _ => REST * busy,
    };
    let is_view = class == Class::View && !result.superseded;
    let last = if is_view { result.named.max(born) } else { born };
    let (idle, age) = (1 + now.saturating_sub(last), 1 + now.saturating_sub(born));
    let shows_code = matches!(class, Class::View | Class::Diff);
    let by_age = if shows_code { &AGE } else { &AGE_OF_REST };
    (first * size * IDLE.of(idle) * by_age.of(age), idle)
}

/// The rate for a view of a file that was changed since.
fn of_changed(result: &Outcome, now: u32) -> f64 {
    let again = if result.of_edited { AFTER_CHANGE } else { 1.0 };
    let part = match is_part(result) {
        true if now.saturating_sub(result.changed) <= LATE => PART_OF_CHANGED * OF_LATE,
        true => PART_OF_CHANGED,
        false => 1.0,
    };
    VIEW_OF_CHANGED * part * again
}

fn is_part(result: &Outcome) -> bool {
    result.deed.views.iter().any(super::super::View::is_range)
}

fn busy(history: &History) -> f64 {
    f64::from(1 + history.recent_edits()).sqrt()
}

/// What a lost quote costs, in bytes of plain input.
fn regret(rates: Rates, settings: &Settings) -> f64 {
    (settings.regret_tokens.saturating_mul(BYTES_PER_TOKEN)) as f64 * rates.read / USUAL_READ
}

/// Adds to every old result's rent what this request paid for it beyond its worth.
pub(super) fn step(history: &mut History, rates: Rates, settings: &Settings) {
    let (now, regret, busy) = (history.step(), regret(rates, settings), busy(history));
    for (_, _, bytes, result) in history.results_mut() {
        if result.shown < now && bytes > PLACEHOLDER {
            let (rate, _) = rate(result, now, busy);
            let paid = rates.read * f64::from(bytes - PLACEHOLDER);
            result.rent += (paid - regret * rate).max(0.0);
        }
    }
}

/// The places of the results that are cheaper to lose than to keep, in order.
pub(super) fn open(history: &History, rates: Rates, settings: &Settings) -> Vec<usize> {
    let (now, regret, busy) = (history.step(), regret(rates, settings), busy(history));
    let horizon = f64::from(now).clamp(HORIZON.0, HORIZON.1);
    let is_open = |item: &super::super::Item, result: &Outcome| {
        let (rate, idle) = rate(result, now, busy);
        let idle = f64::from(idle);
        // The rate, summed up over the horizon.
        let quotes = rate * idle / 0.25 * (1.0 - (idle / (idle + horizon)).sqrt().sqrt());
        let frees = f64::from(item.bytes.saturating_sub(PLACEHOLDER));
        frees * (rates.read * horizon + rates.rewrite()) > MARGIN * regret * quotes
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

    /// A result of the request 10, of a thousand tokens.
    fn result(class: Class, views: &[(&str, u32, u32)]) -> Outcome {
        let view = |&(path, first, last): &(&str, u32, u32)| View { path: path.into(), first, last };
        let deed = Deed { class, views: views.iter().map(view).collect(), ..Deed::default() };
        let weight = weight(4000, &deed);
        Outcome { weight, deed: Arc::new(deed), shown: 10, named: 10, clearable: true, ..Outcome::default() }
    }

    /// From the results that are quoted most to those that are quoted least, thirty requests later.
    #[test]
    fn what_is_likelier_to_be_quoted() {
        const ALL: (&str, u32, u32) = ("a.rs", 1, u32::MAX);
        const PART: (&str, u32, u32) = ("a.rs", 5, 90);
        let at = |changed, views: &[_]| {
            let named = changed;
            Outcome { edited: true, changed, named, ..result(Class::View, views) }
        };
        let of_late = |class| Outcome { named: 40, ..result(class, &[ALL]) };
        let rows = [
            ("named of late", of_late(Class::View)),
            ("changed of late", at(38, &[ALL])),
            ("a part, changed of late", at(38, &[PART])),
            ("a part, changed before", at(30, &[PART])),
            ("a view", result(Class::View, &[ALL])),
            ("a document", result(Class::View, &[("a.md", 1, u32::MAX)])),
            ("a listing", result(Class::Search, &[])),
            ("a diff of own changes", Outcome { of_edited: true, ..result(Class::Diff, &[]) }),
            ("a run", of_late(Class::Run)),
        ];
        let rates = rows.map(|(name, result)| (name, rate(&result, 40, 1.0).0));
        for pair in rates.windows(2) {
            assert!(pair[0].1 > pair[1].1, "{rates:?}");
        }
        let diff = rate(&result(Class::Diff, &[]), 40, 1.0).0;
        assert!((diff / rates[4].1 - 1.0).abs() < 0.01, "a diff is a view: {diff}, {rates:?}");
    }
}
