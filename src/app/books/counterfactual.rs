//! What a request would have cost in another form: untouched, or as an observing gateway would have sent it.
//!
//! The models of the provider's cache say how each form would have been served ([`super::untouched`]). Here that is
//! applied to the provider's own figures, and priced.

use super::Ended;
use super::lacking::Lacking;
use crate::ledger::{Counterfactual, Record};
use crate::usage::cache_model::CacheUse;
use crate::usage::{self, Alike, Catalogue, OwnPrompt, Tokens, Usage};

/// How the caches would serve each form of the prompt.
pub(super) struct Uses {
    pub(super) original: CacheUse,
    pub(super) sent: CacheUse,
    pub(super) planned: Option<CacheUse>,
    /// What is billed alike for all of them, and in none of these.
    pub(super) alike: Alike,
    /// The share of the cached tokens of a prompt that the provider usually reads.
    pub(super) usually_read: f64,
}

impl Uses {
    /// What is missing from a history that ends with these prompts.
    pub(super) fn lacking(&self) -> Lacking {
        let prompt_tokens = |used: CacheUse| used.with_output(0).prompt();
        let [original, sent, planned] =
            [self.original, self.sent, self.planned.unwrap_or(self.sent)].map(prompt_tokens);
        Lacking { sent: original.saturating_sub(sent), planned: sent.saturating_sub(planned) }
    }

    /// What a form that was not sent would have been billed as.
    fn billed_as(&self, unsent: CacheUse, real: &Usage, is_event: bool) -> Tokens {
        usage::untouched(real.tokens, self.alike, self.sent, unsent, is_event, self.usually_read)
    }
}

/// What a request would have cost without the gateway; `None` if that is unknown. `is_cut`: the provider removed parts
/// of the prompt itself, or would have removed some of the original.
pub(super) fn counterfactual(
    ended: &Ended,
    real: &Usage,
    uses: &Uses,
    is_cut: bool,
    prices: &Catalogue,
) -> Option<Counterfactual> {
    if ended.asked_again {
        // The first answer would have been the only one.
        return Some(Counterfactual { tokens: Tokens::default(), cost: Some(0), estimated: false });
    }
    let is_event = ended.record.breaks_prefix();
    let tokens = uses.billed_as(uses.original, real, is_event);
    let estimated = tokens != real.tokens;
    // A summary that was requested alone is billed outside the prompt, which leaves no prompt to measure by.
    let is_all_beside = real.tokens.prompt() == 0 && uses.lacking().sent > 0;
    let untouched = with_tokens(real, tokens);
    if is_all_beside || (estimated && (is_cut || is_too_long(ended, real, &untouched, prices))) {
        return None;
    }
    let cost = cost_with(ended, real, &untouched, prices);
    Some(Counterfactual { tokens: untouched.billed_tokens(), cost, estimated })
}

/// How much less a request would have cost in the form that an observing gateway would have sent; `None` if the
/// gateway does not observe, or if either cost is unknown.
pub(super) fn would_have_saved(ended: &Ended, real: &Usage, uses: &Uses, prices: &Catalogue) -> Option<i64> {
    let planned = uses.billed_as(uses.planned?, real, false);
    let cost = cost_with(ended, real, &with_tokens(real, planned), prices)?;
    Some(ended.record.cost.as_ref()?.total.saturating_sub(cost))
}

/// Completes the record of a request that was sent as it came: without the gateway it would have cost the same.
pub(super) fn complete_as_it_came(record: &mut Record) {
    let cost = record.cost.as_ref().map(|cost| cost.total);
    let tokens = record.tokens.filter(|_| !record.prompt_is_unknown);
    record.counterfactual = tokens.map(|tokens| Counterfactual { tokens, cost, estimated: false });
    set_net_saved(record);
}

/// Withdraws the counterfactual of a request that was booked as it came, if something is missing from its history, or
/// may be.
pub(super) fn withdraw_if_lacking(record: &mut Record, lacking: Option<Lacking>) {
    if lacking.is_none_or(|lacking| lacking.sent > 0) {
        (record.counterfactual, record.net_saved) = (None, None);
    }
}

/// Sets what the counterfactual costs more than the request.
pub(super) fn set_net_saved(record: &mut Record) {
    let untouched = record.counterfactual.as_ref().and_then(|one| one.cost);
    let cost = record.cost.as_ref().map(|cost| cost.total);
    record.net_saved = untouched.zip(cost).map(|(untouched, cost)| untouched.saturating_sub(cost));
}

/// What a request would have cost with the usage `other` in place of its `real` one: its cost plus the difference
/// between the two at list prices, in proportion if the provider states a cost of its own.
fn cost_with(ended: &Ended, real: &Usage, other: &Usage, prices: &Catalogue) -> Option<i64> {
    let cost = ended.record.cost.as_ref()?.total;
    // What the provider did not charge for, it would not have charged for either.
    if other.tokens == real.tokens || (real.provider_cost.is_some() && cost == 0) {
        return Some(cost);
    }
    let model = ended.record.model.as_deref().unwrap_or_default();
    let list_price = |usage: &Usage| -> Option<i128> {
        let total = match usage.provider_cost {
            None => usage::bill(prices, usage, model, ended.vendor)?.total,
            // For a proportion it matters little whose price list it is.
            Some(_) => usage::cost(usage, &prices.in_proportion(model, ended.vendor)?.price)?.total(),
        };
        Some(total.picodollars())
    };
    let (of_real, of_other) = (list_price(real)?, list_price(other)?);
    let more = match real.provider_cost {
        None => of_other - of_real,
        Some(_) => (of_other - of_real).checked_mul(i128::from(cost))?.checked_div(of_real)?,
    };
    i64::try_from(more).ok().map(|more| cost.saturating_add(more))
}

/// Whether the original is longer than the model's window: the provider would have refused it, and what the client
/// would have done then is unknown. If even what was sent is longer, the catalogue is wrong about the window. If the
/// provider refused a shorter form of it, the original is certainly too long.
fn is_too_long(ended: &Ended, real: &Usage, untouched: &Usage, prices: &Catalogue) -> bool {
    let model = ended.record.model.as_deref().unwrap_or_default();
    let listed = || prices.find(model, ended.vendor).and_then(|priced| priced.price.context_window);
    let window = ended.window.or_else(listed);
    let prompt = |usage: &Usage| usage.largest_prompt().unwrap_or_else(|| usage.tokens.prompt());
    let is_longer = |window| (prompt(real)..prompt(untouched)).contains(&window);
    ended.record.attempt > 0 || window.is_some_and(is_longer)
}

/// The usage as it would have been with these tokens.
fn with_tokens(real: &Usage, tokens: Tokens) -> Usage {
    let share = tokens.prompt() as f64 / real.tokens.prompt().max(1) as f64;
    let scaled = |prompt: u64| (prompt as f64 * share).round() as u64;
    let (last_prompt, largest_prompt) = (real.last_prompt.map(scaled), real.largest_prompt.map(scaled));
    let own = match real.own {
        OwnPrompt::Some(prompt) => OwnPrompt::Some(scaled(prompt)),
        own => own,
    };
    Usage { tokens, last_prompt, largest_prompt, own, ..real.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the single calls of an answer have read, as far as that is known.
    #[test]
    fn prompts_of_single_calls_grow_with_their_sum() {
        let tokens = |input| Tokens { input, output: 9, ..Tokens::default() };
        for (own, expected) in [
            (OwnPrompt::Some(100), OwnPrompt::Some(150)),
            (OwnPrompt::All, OwnPrompt::All),
            (OwnPrompt::Unknown, OwnPrompt::Unknown),
        ] {
            let (last_prompt, largest_prompt) = (Some(200), Some(300));
            let real = Usage { tokens: tokens(600), own, last_prompt, largest_prompt, ..Usage::default() };
            let other = with_tokens(&real, tokens(900));
            assert_eq!((other.own, other.tokens), (expected, tokens(900)));
            assert_eq!((other.last_prompt, other.largest_prompt), (Some(300), Some(450)));
        }
    }
}
