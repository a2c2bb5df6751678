//! Notes below a table: what a reader needs to know to understand its sums.

use super::sums::total;
use crate::cli::figures;
use crate::ledger::{Caching, Totals};

/// What a reader needs to know to understand the sums, one sentence each.
pub(in crate::cli) fn notes(totals: &Totals, unreadable: u64) -> Vec<String> {
    let requests = |figure| figures::counted(figure, "request", "requests");
    let mut notes = Vec::new();
    if totals.unknown() > 0 {
        let known = total(totals).map(|cost| figures::dollars(cost, figures::places([cost].into_iter())));
        let unknown = [(totals.unknown_price, "price"), (totals.unknown_usage, "usage")]
            .into_iter()
            .filter(|(figure, _)| *figure > 0)
            .map(|(figure, what)| format!("{} of unknown {what}", requests(figure)));
        let cost: Vec<String> = known.into_iter().chain(unknown).collect();
        notes.push(format!("cost: {}", cost.join(" + ")));
    }
    notes.extend(cached(&totals.cache));
    if totals.own_calls > 0 {
        let calls = figures::counted(totals.own_calls, "call", "calls");
        notes.push(format!(
            "overhead: {calls} of the gateway's own, such as for summaries; they are in the cost"
        ));
    }
    if totals.broken_off > 0 {
        let answers = figures::counted(totals.broken_off, "answer", "answers");
        notes.push(format!("≥ lower bound: {answers} broke off before the provider's last figures"));
    }
    if totals.unpriced_charges > 0 {
        let show = if totals.unpriced_charges == 1 { "shows" } else { "show" };
        let answers = figures::counted(totals.unpriced_charges, "answer", "answers");
        notes
            .push(format!("≥ lower bound: {answers} {show} charges beside tokens that no price is known of"));
    }
    if totals.failed > 0 {
        notes.push(format!("failed: {}", requests(totals.failed)));
    }
    // For some of them, only cache marks may have been set.
    if totals.edited > 0 {
        notes.push(format!("edited: {}", requests(totals.edited)));
    }
    if totals.saved.bytes > 0 {
        let (bytes, tokens) =
            (figures::count(totals.saved.bytes), figures::count(totals.saved.tokens_estimate));
        notes.push(format!("not sent: {bytes} bytes of text, ~{tokens} tokens (an estimate)"));
    }
    if totals.saved.net.is_some() {
        let own =
            |figure| figures::counted(figure, "call of the gateway's own", "calls of the gateway's own");
        let unknown = totals.requests - totals.saved.net_of;
        let left_out = [(unknown, requests(unknown)), (totals.own_unknown, own(totals.own_unknown))];
        let left_out: Vec<String> =
            left_out.into_iter().filter(|(figure, _)| *figure > 0).map(|(_, told)| told).collect();
        let that = if left_out.is_empty() { "" } else { " that leaves out " };
        notes.push(format!(
            "saved: against the same requests without the gateway, an estimate{that}{}",
            left_out.join(" and ")
        ));
    }
    if totals.observed > 0 {
        notes.push(format!("only observed: {} would have been shortened", requests(totals.observed)));
    }
    let would = &totals.would_have_saved;
    if would.bytes > 0 {
        let (bytes, tokens) = (figures::count(would.bytes), figures::count(would.tokens_estimate));
        notes
            .push(format!("would not have been sent: {bytes} bytes of text, ~{tokens} tokens (an estimate)"));
    }
    if let Some(net) = would.net {
        let net = figures::dollars(net, figures::places([net].into_iter()));
        let of = requests(would.net_of);
        notes.push(format!("would have saved: ~{net} of {of} that were only observed, an estimate"));
    }
    if unreadable > 0 {
        notes.push(format!("damaged: {} cannot be read", figures::counted(unreadable, "record", "records")));
    }
    notes
}

/// The effect of the provider's cache; `None` if it was neither read nor written.
fn cached(cache: &Caching) -> Option<String> {
    let is_used = cache.read > 0 || cache.written > 0;
    let share = is_used.then(|| figures::percent(cache.read.into(), cache.prompt.into()))?;
    let Some(saved) = cache.saved else {
        return Some(format!("cache: hit rate {share}, what that saved is not known"));
    };
    let saved = figures::dollars(saved, figures::places([saved].into_iter()));
    let left_out = match cache.unknown {
        0 => String::new(),
        unknown => format!(", which leaves out {}", figures::counted(unknown, "request", "requests")),
    };
    Some(format!("cache: hit rate {share}, {saved} saved against plain input{left_out}"))
}

/// The note about missing records; `None` if there are none.
pub(in crate::cli) fn missing(records: u64) -> Option<String> {
    let records = (records > 0).then(|| figures::counted(records, "record", "records"))?;
    Some(format!("missing: {records} could not be written and are in no sum"))
}

#[cfg(test)]
mod tests {
    use super::super::sums::tests::totals;
    use super::*;
    use crate::ledger::Saved;
    use crate::usage::Money;

    #[test]
    fn notes_say_what_the_sums_leave_out() {
        for (totals, unreadable, expected) in [
            (Totals { saved: Saved::default(), ..totals() }, 0, &[][..]),
            (
                Totals { unknown_price: 4, unknown_usage: 1, edited: 2, ..totals() },
                0,
                &[
                    "cost: $1.23 + 4 requests of unknown price + 1 request of unknown usage",
                    "edited: 2 requests",
                    "not sent: 4,100 bytes of text, ~1,025 tokens (an estimate)",
                ],
            ),
            (Totals { edited: 1, saved: Saved::default(), ..totals() }, 0, &["edited: 1 request"]),
            (
                Totals { own_calls: 2, ..Totals::default() },
                0,
                &["overhead: 2 calls of the gateway's own, such as for summaries; they are in the cost"],
            ),
            (
                Totals {
                    saved: Saved { net: Some(Money::ZERO), net_of: 1_040, ..Saved::default() },
                    ..totals()
                },
                0,
                &[
                    "saved: against the same requests without the gateway, an estimate that leaves out 2 requests",
                ],
            ),
            (
                Totals {
                    unknown_usage: 1,
                    own_calls: 2,
                    own_unknown: 1,
                    saved: Saved { net: Some(Money::ZERO), net_of: 1_042, ..Saved::default() },
                    ..totals()
                },
                0,
                &[
                    "cost: $1.23 + 1 request of unknown usage",
                    "overhead: 2 calls of the gateway's own, such as for summaries; they are in the cost",
                    "saved: against the same requests without the gateway, an estimate that leaves out 1 call of the \
                     gateway's own",
                ],
            ),
            (
                Totals {
                    unknown_price: 3,
                    own_calls: 2,
                    own_unknown: 2,
                    saved: Saved { net: Some(Money::ZERO), net_of: 1_041, ..Saved::default() },
                    ..totals()
                },
                0,
                &[
                    "cost: $1.23 + 3 requests of unknown price",
                    "overhead: 2 calls of the gateway's own, such as for summaries; they are in the cost",
                    "saved: against the same requests without the gateway, an estimate that leaves out 1 request and 2 \
                     calls of the gateway's own",
                ],
            ),
        ] {
            assert_eq!(notes(&totals, unreadable), expected);
        }
    }

    #[test]
    fn notes_count_what_is_special() {
        for (totals, unreadable, expected) in [
            (
                Totals { cost: None, unknown_price: 1, saved: Saved::default(), ..totals() },
                0,
                &["cost: 1 request of unknown price"][..],
            ),
            (
                Totals { broken_off: 1, failed: 2, observed: 3, saved: Saved::default(), ..totals() },
                1,
                &[
                    "≥ lower bound: 1 answer broke off before the provider's last figures",
                    "failed: 2 requests",
                    "only observed: 3 requests would have been shortened",
                    "damaged: 1 record cannot be read",
                ],
            ),
            (
                Totals {
                    observed: 3,
                    saved: Saved::default(),
                    would_have_saved: Saved {
                        bytes: 4_100,
                        tokens_estimate: 1_025,
                        net: Some(Money::from_usd_str("-0.5").unwrap()),
                        net_of: 4,
                    },
                    ..totals()
                },
                0,
                &[
                    "only observed: 3 requests would have been shortened",
                    "would not have been sent: 4,100 bytes of text, ~1,025 tokens (an estimate)",
                    "would have saved: ~-$0.50 of 4 requests that were only observed, an estimate",
                ],
            ),
            (
                Totals { unpriced_charges: 2, saved: Saved::default(), ..totals() },
                0,
                &["≥ lower bound: 2 answers show charges beside tokens that no price is known of"],
            ),
        ] {
            assert_eq!(notes(&totals, unreadable), expected);
        }
    }

    #[test]
    fn what_the_cache_saved_may_be_unknown_or_negative() {
        let cache = |read, written, usd: Option<&str>, unknown| Caching {
            read,
            written,
            prompt: 10,
            saved: usd.map(|usd| Money::from_usd_str(usd).unwrap()),
            unknown,
        };
        for (cache, expected) in [
            (cache(0, 0, Some("0"), 0), None),
            (cache(0, 10, None, 1), Some("0.0 %, what that saved is not known")),
            (cache(0, 5, Some("-0.0075"), 0), Some("0.0 %, -$0.0075 saved against plain input")),
            (
                cache(9, 0, Some("0.27"), 2),
                Some("90.0 %, $0.27 saved against plain input, which leaves out 2 requests"),
            ),
        ] {
            assert_eq!(
                cached(&cache).as_deref(),
                expected.map(|text| format!("cache: hit rate {text}")).as_deref()
            );
        }
    }
}
