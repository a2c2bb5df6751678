//! Notes below a table: what a reader needs to know to understand its sums.

use super::sums::total;
use crate::cli::figures;
use crate::ledger::{Caching, Saved, Totals};
use crate::usage::Money;

/// What a reader needs to know to understand the sums, one sentence each.
pub(in crate::cli) fn notes(totals: &Totals, unreadable: u64) -> Vec<String> {
    let (saved, would) = (&totals.saved, &totals.would_have_saved);
    let notes = [
        cost(totals),
        cached(&totals.cache),
        overhead(totals.own_calls),
        broken_off(totals.broken_off),
        unpriced(totals.unpriced_charges),
        if_any(totals.failed, |failed| format!("failed: {}", requests(failed))),
        // For some of them, only cache marks may have been set.
        if_any(totals.edited, |edited| format!("edited: {}", requests(edited))),
        text_spared("not sent", saved),
        saved.net.map(|_| net_saved(totals)),
        if_any(totals.observed, |observed| {
            format!("only observed: {} would have been shortened", requests(observed))
        }),
        text_spared("would not have been sent", would),
        would.net.map(|net| would_have_saved(net, would.net_of)),
        if_any(unreadable, |records| {
            format!("damaged: {} cannot be read", figures::counted(records, "record", "records"))
        }),
    ];
    notes.into_iter().flatten().collect()
}

/// A note about a figure, if that is not zero.
fn if_any(figure: u64, note: impl FnOnce(u64) -> String) -> Option<String> {
    (figure > 0).then(|| note(figure))
}

fn requests(figure: u64) -> String {
    figures::counted(figure, "request", "requests")
}

/// An amount, with as many decimal places as it needs.
fn dollars(amount: Money) -> String {
    figures::dollars(amount, figures::places([amount].into_iter()))
}

/// The known cost, and what it leaves out; `None` if it leaves out nothing.
fn cost(totals: &Totals) -> Option<String> {
    if totals.unknown() == 0 {
        return None;
    }
    let unknown = [(totals.unknown_price, "price"), (totals.unknown_usage, "usage")]
        .into_iter()
        .filter(|(figure, _)| *figure > 0)
        .map(|(figure, what)| format!("{} of unknown {what}", requests(figure)));
    let parts: Vec<String> = total(totals).map(dollars).into_iter().chain(unknown).collect();
    Some(format!("cost: {}", parts.join(" + ")))
}

fn overhead(own_calls: u64) -> Option<String> {
    if_any(own_calls, |calls| {
        let calls = figures::counted(calls, "call", "calls");
        format!("overhead: {calls} of the gateway's own, such as for summaries; they are in the cost")
    })
}

fn broken_off(answers: u64) -> Option<String> {
    if_any(answers, |answers| {
        let answers = figures::counted(answers, "answer", "answers");
        format!("≥ lower bound: {answers} broke off before the provider's last figures")
    })
}

fn unpriced(answers: u64) -> Option<String> {
    if_any(answers, |answers| {
        let show = if answers == 1 { "shows" } else { "show" };
        let answers = figures::counted(answers, "answer", "answers");
        format!("≥ lower bound: {answers} {show} charges besides tokens whose price is unknown")
    })
}

/// How much text was left out, or would have been.
fn text_spared(what: &str, saved: &Saved) -> Option<String> {
    if_any(saved.bytes, |bytes| {
        let (bytes, tokens) = (figures::count(bytes), figures::count(saved.tokens_estimate));
        format!("{what}: {bytes} bytes of text, ~{tokens} tokens (an estimate)")
    })
}

/// What the sum of what was saved is compared with, and what it leaves out.
fn net_saved(totals: &Totals) -> String {
    let own = |figure| figures::counted(figure, "call of the gateway's own", "calls of the gateway's own");
    let left_out = [if_any(totals.requests - totals.saved.net_of, requests), if_any(totals.own_unknown, own)];
    let left_out: Vec<String> = left_out.into_iter().flatten().collect();
    let (estimate, leaves_out) = match totals.saved.estimated {
        0 => ("", ", which leaves out "),
        _ => (", an estimate", " that leaves out "),
    };
    let leaves_out = if left_out.is_empty() { "" } else { leaves_out };
    let left_out = left_out.join(" and ");
    format!("saved: against the same requests without the gateway{estimate}{leaves_out}{left_out}")
}

fn would_have_saved(net: Money, observed: u64) -> String {
    let (net, observed) = (dollars(net), requests(observed));
    format!("would have saved: ~{net} of {observed} that were only observed, an estimate")
}

/// The effect of the provider's cache; `None` if it was neither read nor written.
fn cached(cache: &Caching) -> Option<String> {
    let is_used = cache.read > 0 || cache.written > 0;
    let share = is_used.then(|| figures::percent(cache.read.into(), cache.prompt.into()))?;
    let Some(saved) = cache.saved else {
        return Some(format!("cache: hit rate {share}, what that saved is not known"));
    };
    let saved = dollars(saved);
    let left_out = match cache.unknown {
        0 => String::new(),
        unknown => format!(", which leaves out {}", requests(unknown)),
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

    #[test]
    fn notes_count_requests_left_out_of_sums() {
        for (name, totals, unreadable, expected) in [
            ("nothing is left out", Totals { saved: Saved::default(), ..totals() }, 0, &[][..]),
            (
                "unknown price and usage",
                Totals { unknown_price: 4, unknown_usage: 1, edited: 2, ..totals() },
                0,
                &[
                    "cost: $1.23 + 4 requests of unknown price + 1 request of unknown usage",
                    "edited: 2 requests",
                    "not sent: 4,100 bytes of text, ~1,025 tokens (an estimate)",
                ],
            ),
            (
                "one edited request",
                Totals { edited: 1, saved: Saved::default(), ..totals() },
                0,
                &["edited: 1 request"],
            ),
            (
                "calls of the gateway's own",
                Totals { own_calls: 2, ..Totals::default() },
                0,
                &["overhead: 2 calls of the gateway's own, such as for summaries; they are in the cost"],
            ),
            (
                "two requests are left out",
                Totals {
                    saved: Saved { net: Some(Money::ZERO), net_of: 1_040, estimated: 1, ..Saved::default() },
                    ..totals()
                },
                0,
                &[
                    "saved: against the same requests without the gateway, an estimate that leaves out 2 requests",
                ],
            ),
            (
                "nothing was changed",
                Totals {
                    saved: Saved { net: Some(Money::ZERO), net_of: 1_042, ..Saved::default() },
                    ..totals()
                },
                0,
                &["saved: against the same requests without the gateway"],
            ),
            (
                "nothing was changed, and one request is left out",
                Totals {
                    saved: Saved { net: Some(Money::ZERO), net_of: 1_041, ..Saved::default() },
                    ..totals()
                },
                0,
                &["saved: against the same requests without the gateway, which leaves out 1 request"],
            ),
            (
                "one own call is left out",
                Totals {
                    unknown_usage: 1,
                    own_calls: 2,
                    own_unknown: 1,
                    saved: Saved { net: Some(Money::ZERO), net_of: 1_042, estimated: 1, ..Saved::default() },
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
                "requests and own calls are left out",
                Totals {
                    unknown_price: 3,
                    own_calls: 2,
                    own_unknown: 2,
                    saved: Saved { net: Some(Money::ZERO), net_of: 1_041, estimated: 1, ..Saved::default() },
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
            assert_eq!(notes(&totals, unreadable), expected, "{name}");
        }
    }

    #[test]
    fn notes_count_unusual_requests() {
        for (name, totals, unreadable, expected) in [
            (
                "unknown cost",
                Totals { cost: None, unknown_price: 1, saved: Saved::default(), ..totals() },
                0,
                &["cost: 1 request of unknown price"][..],
            ),
            (
                "broken off and damaged",
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
                "observed",
                Totals {
                    observed: 3,
                    saved: Saved::default(),
                    would_have_saved: Saved {
                        bytes: 4_100,
                        tokens_estimate: 1_025,
                        net: Some(Money::from_usd_str("-0.5").unwrap()),
                        net_of: 4,
                        estimated: 4,
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
                "unpriced charges",
                Totals { unpriced_charges: 2, saved: Saved::default(), ..totals() },
                0,
                &["≥ lower bound: 2 answers show charges besides tokens whose price is unknown"],
            ),
        ] {
            assert_eq!(notes(&totals, unreadable), expected, "{name}");
        }
    }

    #[test]
    fn cache_savings_may_be_unknown_or_negative() {
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
