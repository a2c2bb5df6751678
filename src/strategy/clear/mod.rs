//! Which old tool results may be cleared, and in what order.
//!
//! A policy never decides that a result is cleared; it says which results may be cleared, and in what order. It always
//! protects results that the model has not answered yet, and tools and results that a setting names. Most policies
//! also protect the newest results of each kind, up to a number of tokens.

use super::gate::{Candidate, Rates, Reason};
use super::history::{Class, History, Item, ToolResult};

mod placeholder;
mod score;
mod settings;
mod worth;

pub use placeholder::{Cleared, placeholder};
pub use settings::{Arguments, Policy, Protect, Settings, Weights, Within};
pub use worth::{Passed, rent, weight};

/// Bytes of text assumed per token where policies compare sizes or settings give lengths in tokens.
pub const BYTES_PER_TOKEN: u64 = 4;
/// Approximate size of a placeholder in bytes.
pub const PLACEHOLDER: u32 = 160;

/// Bytes saved by clearing a result of `bytes` bytes.
fn frees(bytes: u32, result: &ToolResult) -> u32 {
    bytes.saturating_sub(PLACEHOLDER).saturating_sub(result.stays)
}

/// Records that a request has passed: it has paid once more for reading each result that could be cleared by now.
///
/// Called once for every request of the thread, in order. What events clear in the meantime makes no difference.
pub fn step(history: &mut History, rates: Rates, settings: &Settings) {
    if settings.policy == Policy::Worth {
        return worth::step(history, rates, settings);
    }
    for at in open(history, &|_| false, settings) {
        if let Some((bytes, result)) = history.result_mut(at) {
            result.rent += rates.read * f64::from(frees(bytes, result));
        }
    }
}

/// The results that may be cleared now, in order of position. `gone` tells which were cleared already.
pub fn candidates(
    history: &History,
    gone: &dyn Fn(usize) -> bool,
    rates: Rates,
    settings: &Settings,
) -> Vec<Candidate> {
    let open = match settings.policy {
        Policy::Worth => worth::open(history, rates, settings),
        _ => open(history, gone, settings),
    };
    let candidate = |at: usize| {
        let (item, rent) = (&history.items()[at], history.rent(at)?);
        let result = item.result.as_deref().filter(|_| !gone(at))?;
        Some(Candidate { item: at, frees: frees(item.bytes, result), rent })
    };
    let images = newest_images(history, gone, settings);
    let stays =
        |at: &usize| is_in_protected_turn(history, &history.items()[*at], settings) || images.contains(at);
    open.into_iter().filter(|at| !stays(at)).filter_map(candidate).collect()
}

/// Whether a result belongs to one of the newest turns, whose results stay.
fn is_in_protected_turn(history: &History, item: &Item, settings: &Settings) -> bool {
    history.turn().saturating_sub(item.turn) < settings.protect.turns
}

/// The places of the newest results with images that are still sent. They stay, because an agent that looks at a screen
/// compares it with the one before.
fn newest_images(history: &History, gone: &dyn Fn(usize) -> bool, settings: &Settings) -> Vec<usize> {
    let has_media =
        |at: &usize| history.items()[*at].result.as_deref().is_some_and(|result| result.has_media);
    let newest = history.results().iter().rev().copied().filter(has_media).filter(|at| !gone(*at));
    newest.take(settings.protect_images as usize).collect()
}

/// The results that may be cleared when the window is nearly full, in the order in which they go: all but those that a
/// setting protects and those of the step in progress.
pub fn order(history: &History, gone: &dyn Fn(usize) -> bool, settings: &Settings) -> Vec<Candidate> {
    let mut all: Vec<(f64, Candidate)> = Vec::new();
    for (at, item) in history.items().iter().enumerate() {
        let Some(result) = item.result.as_deref() else { continue };
        if result.shown < history.step() && may_go(item.bytes, result, settings) && !gone(at) {
            let frees = frees(item.bytes, result);
            let keep = score::keep(history, at, settings);
            all.push((keep, Candidate { item: at, frees, rent: history.rent(at).unwrap_or_default() }));
        }
    }
    // Among results worth the same: older first, then larger.
    all.sort_by(|(a, one), (b, other)| {
        a.total_cmp(b).then(one.item.cmp(&other.item)).then(other.frees.cmp(&one.frees))
    });
    all.into_iter().map(|(_, candidate)| candidate).collect()
}

/// Whether an event may happen for this reason.
pub fn allows(settings: &Settings, reason: Reason) -> bool {
    settings.enabled && settings.gate.contains(&reason)
}

/// Whether a result of `bytes` bytes may be cleared once it is old enough.
fn may_go(bytes: u32, result: &ToolResult, settings: &Settings) -> bool {
    result.clearable
        && bytes.saturating_sub(result.stays) > settings.smallest_bytes()
        && (!result.is_error || result.superseded || settings.errors)
}

/// The places of the results that are not protected, in order. Cleared results do not count among the newest.
fn open(history: &History, gone: &dyn Fn(usize) -> bool, settings: &Settings) -> Vec<usize> {
    let (mut views, mut others) = (0_u64, 0_u64);
    let protect = settings.protect;
    let mut out = Vec::new();
    for at in newest_first(history, settings.within_step) {
        let item = &history.items()[at];
        let Some(result) = item.result.as_deref() else { continue };
        let is_protected = is_in_protected_turn(history, item, settings);
        if is_protected || gone(at) || !may_go(item.bytes, result, settings) {
            continue;
        }
        let (sum, limit) = match result.action.class {
            Class::View if settings.protect_together => (&mut others, protect.view_tokens),
            Class::View => (&mut views, protect.view_tokens),
            _ => (&mut others, protect.other_tokens),
        };
        *sum += u64::from(result.tokens);
        let beyond = *sum > limit;
        let due = match settings.policy {
            Policy::Duplicate => result.superseded,
            Policy::TypeTtl => history.turn() - item.turn > settings.ttl_turns,
            _ => beyond,
        };
        if due && result.shown < history.step() {
            out.push(at);
        }
    }
    out.sort_unstable();
    out
}

/// The places of all results, the newest first. `within` orders those of the same request.
fn newest_first(history: &History, within: Within) -> Vec<usize> {
    let items = history.items();
    let mut places: Vec<usize> = history.results().iter().rev().copied().collect();
    if within == Within::Forward {
        places.sort_by_key(|at| (std::cmp::Reverse(items[*at].step), *at));
    }
    places
}

#[cfg(test)]
pub(crate) mod tests;
