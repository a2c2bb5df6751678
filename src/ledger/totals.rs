//! Sums over records.
//!
//! They are exact: token counts and pico-dollars are integers, and nothing is rounded here. Unknown figures are counted
//! and never enter a sum as zero; estimates are named as such.

use std::iter::Sum;
use std::ops::AddAssign;

use serde::{Serialize, Serializer};

use super::cost::Cost;
use super::record::Record;
use super::words::{Outcome, State};
use crate::usage::{Money, Tokens};

/// The sums over a set of requests. Each request counts once in `requests`, and in every other counter that applies to
/// it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// The number of requests.
    pub requests: u64,
    /// Requests that got no answer, or an error.
    pub failed: u64,
    /// Requests that were sent upstream in an edited form.
    pub edited: u64,
    /// Requests that would have been edited if the gateway had not only observed.
    pub observed: u64,
    /// Requests whose answer broke off: their output and cost are at least what is counted here.
    pub broken_off: u64,
    /// Requests with charges besides tokens for which no price is known: they cost at least what is counted here.
    pub unpriced_charges: u64,
    /// Requests of known tokens and unknown price, which are in `tokens` but not in `cost`. Includes calls of the
    /// gateway's own.
    pub unknown_price: u64,
    /// Requests whose tokens, or those of the prompt or the output, are unknown, and which may have cost something.
    /// Includes calls of the gateway's own.
    pub unknown_usage: u64,
    /// The provider's figures.
    pub tokens: Tokens,
    /// The known cost; `None` if nothing is known.
    pub cost: Option<Costs>,
    /// What the edits saved.
    pub saved: Saved,
    /// What edits would have saved that were not made because the gateway only observed: an estimate, and part of no
    /// other sum.
    pub would_have_saved: Saved,
    /// Calls of the gateway's own, such as for summaries. They do not count in `requests`, but do in `tokens` and
    /// `cost`, and their cost is subtracted from `saved.net`.
    pub own_calls: u64,
    /// The known cost of these calls, which is also part of `cost`; `None` if nothing is known.
    pub overhead: Option<Costs>,
    /// Those of these calls that may have cost an unknown amount. They also count in `unknown_price` or
    /// `unknown_usage`, and `saved.net` leaves them out.
    pub own_unknown: u64,
    /// The effect of the provider's cache, including the gateway's own calls.
    pub cache: Caching,
}

/// Cost by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Costs {
    /// The cost of uncached prompt tokens.
    pub input: Money,
    /// The cost of tokens read from the provider's cache.
    pub cache_read: Money,
    /// The cost of tokens written to the provider's cache.
    pub cache_write: Money,
    /// The cost of output tokens.
    pub output: Money,
    /// The cost of searches that the provider made.
    pub searches: Money,
    /// The sum of these, and of what providers state only as a total.
    pub total: Money,
}

/// The effect of a provider's cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Caching {
    /// Prompt tokens read from it.
    pub read: u64,
    /// Prompt tokens written to it.
    pub written: u64,
    /// All prompt tokens.
    pub prompt: u64,
    /// What it saved: the price of the cached tokens (read and written) as plain input, less what they cost; negative
    /// if writing cost more than reading saved. `None` if it is known of no request.
    pub saved: Option<Money>,
    /// Requests with tokens for which that is unknown; they are not in `saved`.
    pub unknown: u64,
}

/// What was not sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Saved {
    /// Bytes of text.
    pub bytes: u64,
    /// Tokens, an estimate.
    pub tokens_estimate: u64,
    /// What the requests would have cost without the gateway, less what they cost: negative if it made them more
    /// expensive. `None` if it is known of no request.
    pub net: Option<Money>,
    /// The number of requests that `net` covers.
    pub net_of: u64,
    /// The number of those of which it is an estimate.
    pub estimated: u64,
}

impl Totals {
    /// Adds a request.
    pub fn add(&mut self, record: &Record) {
        self.cache += Caching::of(record);
        if record.own.is_some() {
            self.add_own(record);
            return;
        }
        self.requests += 1;
        self.edited += u64::from(record.edits.were_sent());
        self.observed += u64::from(record.edits.state == State::Observed);
        self.failed += u64::from(has_failed(record));
        self.add_figures(record);
        self.saved += Saved {
            bytes: record.bytes.saved,
            tokens_estimate: record.bytes.saved_tokens_estimate,
            ..Saved::default()
        };
        let would_have_saved = record.would_have_saved_estimate;
        self.would_have_saved += Saved {
            bytes: record.bytes.would_have_saved,
            tokens_estimate: record.bytes.would_have_saved_tokens_estimate,
            net: would_have_saved.map(money),
            net_of: u64::from(would_have_saved.is_some()),
            estimated: u64::from(would_have_saved.is_some()),
        };
    }

    /// Adds the figures of a request that was added before without any. `was_added` says whether it was added to these
    /// totals, and so is counted in `unknown_usage` until now.
    pub fn add_late(&mut self, record: &Record, was_added: bool) {
        self.unknown_usage = self.unknown_usage.saturating_sub(u64::from(was_added));
        self.cache += Caching::of(record);
        self.add_figures(record);
    }

    fn add_figures(&mut self, record: &Record) {
        self.broken_off += u64::from(record.output_is_lower_bound);
        self.unpriced_charges += u64::from(!record.unpriced_charges.is_empty());
        if let Some(cost) = &record.cost {
            *self.cost.get_or_insert_default() += cost.into();
        }
        self.add_unknown(record);
        self.tokens += record.tokens.unwrap_or_default();
        let is_estimated = record.counterfactual.as_ref().is_some_and(|untouched| untouched.estimated);
        self.saved += Saved {
            net: record.net_saved.map(money),
            net_of: u64::from(record.net_saved.is_some()),
            estimated: u64::from(record.net_saved.is_some() && is_estimated),
            ..Saved::default()
        };
    }

    fn add_own(&mut self, record: &Record) {
        self.own_calls += 1;
        if let Some(cost) = &record.cost {
            *self.cost.get_or_insert_default() += cost.into();
            *self.overhead.get_or_insert_default() += cost.into();
        }
        self.own_unknown += u64::from(self.add_unknown(record));
        self.tokens += record.tokens.unwrap_or_default();
        let net = record.net_saved.map(money);
        self.saved += Saved { net, ..Saved::default() };
    }

    /// Counts a request or call that may have cost an unknown amount, and returns whether it is one.
    fn add_unknown(&mut self, record: &Record) -> bool {
        let count = match (&record.tokens, &record.cost) {
            (_, Some(_)) => return false,
            (None, None) if is_free(record) => return false,
            (Some(_), None) if !record.lacks_figures() => &mut self.unknown_price,
            (_, None) => &mut self.unknown_usage,
        };
        *count += 1;
        true
    }

    /// Adds a request whose record is unreadable.
    pub fn add_unreadable(&mut self) {
        self.requests += 1;
        self.unknown_usage += 1;
    }

    /// The number of requests and calls that may have cost something and that `cost` does not cover.
    pub fn unknown(&self) -> u64 {
        self.unknown_price + self.unknown_usage
    }
}

impl AddAssign<&Self> for Totals {
    fn add_assign(&mut self, other: &Self) {
        self.requests += other.requests;
        self.failed += other.failed;
        self.edited += other.edited;
        self.observed += other.observed;
        self.broken_off += other.broken_off;
        self.unpriced_charges += other.unpriced_charges;
        self.unknown_price += other.unknown_price;
        self.unknown_usage += other.unknown_usage;
        self.tokens += other.tokens;
        if let Some(cost) = &other.cost {
            *self.cost.get_or_insert_default() += *cost;
        }
        self.saved += other.saved;
        self.would_have_saved += other.would_have_saved;
        self.own_calls += other.own_calls;
        if let Some(overhead) = &other.overhead {
            *self.overhead.get_or_insert_default() += *overhead;
        }
        self.own_unknown += other.own_unknown;
        self.cache += other.cache;
    }
}

/// An amount as records have it.
fn money(picodollars: i64) -> Money {
    Money::from_picodollars(picodollars.into())
}

/// Whether the request got no answer, or an error.
fn has_failed(record: &Record) -> bool {
    is_free(record) || record.outcome == Outcome::UpstreamBroke && record.status.is_none()
}

/// Whether it never reached a provider, or was answered with an error, which providers do not charge for.
fn is_free(record: &Record) -> bool {
    record.outcome == Outcome::Failed || record.status.is_some_and(|status| status >= 400)
}

impl Caching {
    /// The cache's effect on a request. If tokens were neither read from it nor written to it, it saved nothing,
    /// whatever the price.
    pub fn of(record: &Record) -> Self {
        let prompt = record.tokens.filter(|_| !record.prompt_is_unknown);
        let is_unused = prompt.is_some_and(|tokens| tokens.cache_read == 0 && tokens.cache_write() == 0);
        let saved = record.cost.as_ref().and_then(|cost| cost.cache_saved).or_else(|| is_unused.then_some(0));
        let tokens = prompt.unwrap_or_default();
        Self {
            read: tokens.cache_read,
            written: tokens.cache_write(),
            prompt: tokens.prompt(),
            saved: saved.map(money),
            unknown: u64::from(record.tokens.is_some() && saved.is_none()),
        }
    }

    /// The share of prompt tokens that were read from the cache, from 0 to 1; `None` if no prompt is known.
    pub fn hit_rate(&self) -> Option<f64> {
        (self.prompt > 0).then(|| self.read as f64 / self.prompt as f64)
    }
}

impl AddAssign for Caching {
    fn add_assign(&mut self, other: Self) {
        self.read = self.read.saturating_add(other.read);
        self.written = self.written.saturating_add(other.written);
        self.prompt = self.prompt.saturating_add(other.prompt);
        if let Some(saved) = other.saved {
            *self.saved.get_or_insert_default() += saved;
        }
        self.unknown += other.unknown;
    }
}

impl<'a> Sum<&'a Self> for Totals {
    fn sum<I: Iterator<Item = &'a Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, totals| {
            sum += totals;
            sum
        })
    }
}

impl From<&Cost> for Costs {
    fn from(cost: &Cost) -> Self {
        Self {
            input: money(cost.input),
            cache_read: money(cost.cache_read),
            cache_write: money(cost.cache_write),
            output: money(cost.output),
            searches: money(cost.searches),
            total: money(cost.total),
        }
    }
}

impl AddAssign for Costs {
    fn add_assign(&mut self, other: Self) {
        self.input += other.input;
        self.cache_read += other.cache_read;
        self.cache_write += other.cache_write;
        self.output += other.output;
        self.searches += other.searches;
        self.total += other.total;
    }
}

impl AddAssign for Saved {
    fn add_assign(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.tokens_estimate = self.tokens_estimate.saturating_add(other.tokens_estimate);
        if let Some(net) = other.net {
            *self.net.get_or_insert_default() += net;
        }
        self.net_of += other.net_of;
        self.estimated += other.estimated;
    }
}

/// In the form of a record's cost: pico-dollars, and the total in dollars as text, both exact.
impl Serialize for Costs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;

        let mut cost = serializer.serialize_struct("Costs", 7)?;
        cost.serialize_field("usd", &self.total.usd())?;
        cost.serialize_field("input", &self.input)?;
        cost.serialize_field("cache_read", &self.cache_read)?;
        cost.serialize_field("cache_write", &self.cache_write)?;
        cost.serialize_field("output", &self.output)?;
        cost.serialize_field("searches", &self.searches)?;
        cost.serialize_field("total", &self.total)?;
        cost.end()
    }
}

/// With the hit rate, to four decimal places.
impl Serialize for Caching {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;

        let mut cache = serializer.serialize_struct("Caching", 6)?;
        cache.serialize_field("hit_rate", &self.hit_rate().map(|rate| (rate * 1e4).round() / 1e4))?;
        cache.serialize_field("read", &self.read)?;
        cache.serialize_field("written", &self.written)?;
        cache.serialize_field("prompt", &self.prompt)?;
        cache.serialize_field("saved", &self.saved)?;
        cache.serialize_field("unknown", &self.unknown)?;
        cache.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{BodySizes, Counterfactual, Edits};

    /// The record of a request that ended with `outcome` and `status`; `priced` is its cost in pico-dollars, `output`
    /// its output tokens.
    fn record(outcome: Outcome, status: Option<u16>, output: Option<u64>, priced: Option<i64>) -> Record {
        Record {
            outcome: outcome.into(),
            status,
            tokens: output.map(|output| Tokens { output, ..Tokens::default() }),
            cost: priced.map(|total| Cost { output: total, total, ..Cost::default() }),
            ..Record::default()
        }
    }

    #[test]
    fn unknown_costs_are_counted_and_not_taken_for_zero() {
        let nothing = Totals { requests: 1, ..Totals::default() };
        for (record, expected) in [
            (
                record(Outcome::Complete, Some(200), Some(3), None),
                Totals { unknown_price: 1, ..nothing.clone() },
            ),
            (
                record(Outcome::Complete, Some(200), None, None),
                Totals { unknown_usage: 1, ..nothing.clone() },
            ),
            (
                Record { prompt_is_unknown: true, ..record(Outcome::Complete, Some(200), Some(3), None) },
                Totals { unknown_usage: 1, ..nothing.clone() },
            ),
            (
                Record { output_is_unknown: true, ..record(Outcome::Complete, Some(200), Some(3), None) },
                Totals { unknown_usage: 1, ..nothing.clone() },
            ),
            (record(Outcome::ClientGone, None, None, None), Totals { unknown_usage: 1, ..nothing.clone() }),
            (record(Outcome::Complete, Some(429), None, None), Totals { failed: 1, ..nothing.clone() }),
            (record(Outcome::Failed, None, None, None), Totals { failed: 1, ..nothing.clone() }),
        ] {
            let mut totals = Totals::default();
            totals.add(&record);
            assert_eq!(totals.cost, None);
            let rest = Totals { tokens: Tokens::default(), cache: Caching::default(), ..totals };
            assert_eq!(rest, expected, "{record:?}");
        }
        for (status, failed, unknown_usage) in [(None, 1, 1), (Some(200), 0, 1), (Some(500), 1, 0)] {
            let mut totals = Totals::default();
            totals.add(&record(Outcome::UpstreamBroke, status, None, None));
            assert_eq!(totals, Totals { failed, unknown_usage, ..nothing.clone() }, "{status:?}");
        }
    }

    #[test]
    fn late_figures_are_counted_like_immediate_ones() {
        let edits = Edits { state: State::Edited.into(), ..Edits::default() };
        let bytes = BodySizes { saved: 100, saved_tokens_estimate: 25, ..BodySizes::default() };
        let pending = Record { bytes, edits, ..record(Outcome::Pending, Some(200), None, None) };
        let told = Record { net_saved: Some(4), ..record(Outcome::Complete, Some(200), Some(7), Some(3)) };
        for told in [told, record(Outcome::Complete, Some(200), None, None)] {
            let told = Record { edits: pending.edits.clone(), bytes, ..told };
            let (mut late, mut once) = (Totals::default(), Totals::default());
            late.add(&pending);
            late.add_late(&told, true);
            once.add(&told);
            assert_eq!(late, once, "{told:?}");
            // One that was booked elsewhere does not reduce the unknown ones here.
            let mut other = Totals::default();
            other.add(&pending);
            other.add_late(&told, false);
            assert_eq!((other.requests, other.unknown_usage), (1, 1 + once.unknown_usage), "{told:?}");
        }
    }

    #[test]
    fn sums_are_exact() {
        let mut totals = Totals::default();
        totals.add(&record(Outcome::Complete, Some(200), Some(7), Some(i64::MAX)));
        totals.add(&record(Outcome::Complete, Some(200), Some(5), Some(i64::MAX)));
        totals.add(&Record {
            output_is_lower_bound: true,
            bytes: BodySizes { saved: 100, saved_tokens_estimate: 25, ..BodySizes::default() },
            edits: Edits { state: State::Edited.into(), ..Edits::default() },
            net_saved: Some(-3),
            ..record(Outcome::UpstreamBroke, Some(200), Some(1), Some(1))
        });
        let twice = 2 * i128::from(i64::MAX) + 1;
        assert_eq!(totals.cost.map(|cost| cost.total), Some(Money::from_picodollars(twice)));
        assert_eq!((totals.tokens.output, totals.broken_off, totals.edited), (13, 1, 1));
        let net = Some(Money::from_picodollars(-3));
        assert_eq!(totals.saved, Saved { bytes: 100, tokens_estimate: 25, net, net_of: 1, estimated: 0 });
        let mut doubled: Totals = [&totals, &Totals::default(), &totals].into_iter().sum();
        assert_eq!(doubled.cost.map(|cost| cost.total), Some(Money::from_picodollars(2 * twice)));
        assert_eq!((doubled.requests, doubled.tokens.output, doubled.saved.bytes), (6, 26, 200));
        assert_eq!(doubled.saved.net, Some(Money::from_picodollars(-6)));
        doubled.add_unreadable();
        assert_eq!(doubled.unknown_usage, 1);
        totals.add_unreadable();
        assert_eq!((totals.requests, totals.unknown()), (4, 1));
        let json = serde_json::to_value(&totals).unwrap();
        assert_eq!(json["cost"]["usd"], "18446744.073709551615");
        assert_eq!(json["cost"]["total"].to_string(), twice.to_string());
    }

    /// Where the cost without the gateway is the provider's figure, what was saved is no estimate.
    #[test]
    fn savings_that_are_estimates_are_counted() {
        let mut totals = Totals::default();
        for (net_saved, estimated) in [(Some(0), false), (Some(5), true), (None, true)] {
            let counterfactual = Some(Counterfactual { estimated, ..Counterfactual::default() });
            totals.add(&Record { counterfactual, net_saved, ..Record::default() });
        }
        assert_eq!((totals.saved.net_of, totals.saved.estimated), (2, 1));
        let twice: Totals = [&totals, &totals].into_iter().sum();
        assert_eq!(twice.saved.estimated, 2);
    }

    #[test]
    fn own_calls_count_as_cost_but_not_as_requests() {
        let mut totals = Totals::default();
        totals
            .add(&Record { net_saved: Some(50), ..record(Outcome::Complete, Some(200), Some(7), Some(100)) });
        let own = Some(crate::ledger::OwnCall::default());
        totals.add(&Record {
            own: own.clone(),
            net_saved: Some(-20),
            ..record(Outcome::Complete, Some(200), Some(5), Some(20))
        });
        totals.add(&Record { own, ..record(Outcome::Complete, Some(500), None, None) });
        assert_eq!((totals.requests, totals.own_calls, totals.failed, totals.tokens.output), (1, 2, 0, 12));
        assert_eq!(totals.cost.map(|cost| cost.total), Some(Money::from_picodollars(120)));
        assert_eq!(totals.overhead.map(|cost| cost.total), Some(Money::from_picodollars(20)));
        let twice: Totals = [&totals, &Totals::default(), &totals].into_iter().sum();
        assert_eq!(twice.overhead.map(|cost| cost.total), Some(Money::from_picodollars(40)));
        assert_eq!((totals.saved.net, totals.saved.net_of), (Some(Money::from_picodollars(30)), 1));
    }

    /// A call that was sent and has no bill may have cost something, so its cost is unknown.
    #[test]
    fn own_calls_without_a_bill_have_an_unknown_cost() {
        let none = Totals { own_calls: 1, ..Totals::default() };
        let usage = Totals { unknown_usage: 1, own_unknown: 1, ..none.clone() };
        let price = Totals { unknown_price: 1, own_unknown: 1, ..none.clone() };
        let lacks = Record { output_is_unknown: true, ..record(Outcome::Complete, Some(200), Some(3), None) };
        for (record, expected) in [
            (record(Outcome::Complete, Some(200), Some(3), None), &price),
            (lacks, &usage),
            (record(Outcome::Complete, Some(200), None, None), &usage),
            (record(Outcome::UpstreamBroke, None, None, None), &usage),
            (record(Outcome::ClientGone, None, None, None), &usage),
            (record(Outcome::Stopped, None, None, None), &usage),
            (record(Outcome::Complete, Some(529), None, None), &none),
        ] {
            let mut totals = Totals::default();
            totals.add(&Record { own: Some(crate::ledger::OwnCall::default()), ..record.clone() });
            let twice: Totals = [&totals, &totals].into_iter().sum();
            assert_eq!(
                (twice.own_unknown, twice.unknown()),
                (2 * expected.own_unknown, 2 * expected.unknown())
            );
            let rest = Totals { tokens: Tokens::default(), cache: Caching::default(), ..totals };
            assert_eq!(rest, *expected, "{record:?}");
        }
    }

    /// Without a price, the cache's saving is known only if nothing was cached. The gateway's own calls count, failed
    /// requests do not.
    #[test]
    fn cache_savings_are_summed_and_unknown_without_a_price() {
        let record = |tokens: Option<(u64, u64, u64)>, saved: Option<i64>| Record {
            tokens: tokens.map(|(input, cache_read, cache_write_5m)| Tokens {
                input,
                cache_read,
                cache_write_5m,
                output: 9,
                ..Tokens::default()
            }),
            cost: saved.map(|saved| Cost { cache_saved: Some(saved), ..Cost::default() }),
            ..Record::default()
        };
        let caching = |(read, written), prompt, saved: Option<i128>, unknown| Caching {
            read,
            written,
            prompt,
            saved: saved.map(Money::from_picodollars),
            unknown,
        };
        let own = Some(crate::ledger::OwnCall::default());
        let (mut totals, mut all) = (Totals::default(), Totals::default());
        for (record, expected) in [
            (record(None, None), caching((0, 0), 0, None, 0)),
            (record(Some((0, 5, 0)), None), caching((5, 0), 5, None, 1)),
            (record(Some((2_000, 0, 10_000)), Some(-75)), caching((5, 10_000), 12_005, Some(-75), 1)),
            (record(Some((2_000, 10_000, 0)), Some(270)), caching((10_005, 10_000), 24_005, Some(195), 1)),
            (record(Some((995, 0, 0)), None), caching((10_005, 10_000), 25_000, Some(195), 1)),
            (
                Record { prompt_is_unknown: true, ..record(Some((0, 0, 0)), None) },
                caching((10_005, 10_000), 25_000, Some(195), 2),
            ),
            (
                Record { own, ..record(Some((0, 0, 5_000)), Some(-5)) },
                caching((10_005, 15_000), 30_000, Some(190), 2),
            ),
        ] {
            totals.add(&record);
            assert_eq!(totals.cache, expected, "{record:?}");
            let mut one = Totals::default();
            one.add(&record);
            all += &one;
        }
        assert_eq!(all.cache, totals.cache);
        let expected =
            r#"{"hit_rate":0.3335,"read":10005,"written":15000,"prompt":30000,"saved":190,"unknown":2}"#;
        assert_eq!(serde_json::to_string(&totals.cache).unwrap(), expected);
        let nothing = r#"{"hit_rate":null,"read":0,"written":0,"prompt":0,"saved":null,"unknown":0}"#;
        assert_eq!(serde_json::to_string(&Caching::default()).unwrap(), nothing);
    }

    /// What would have been saved is part of no other sum; a record from before the figures were kept has none.
    #[test]
    fn would_be_savings_are_counted_apart_from_savings() {
        let record = |bytes: &str, estimate: &str| -> Record {
            let text = format!(r#"{{"edits":{{"state":"observed"}},"bytes":{{{bytes}}}{estimate}}}"#);
            serde_json::from_str(&text).unwrap()
        };
        let mut totals = Totals::default();
        for record in [
            record(
                r#""would_have_saved":900,"would_have_saved_tokens_estimate":200"#,
                r#","would_have_saved_estimate":70"#,
            ),
            record("", r#","would_have_saved_estimate":-90"#),
            record("", ""),
        ] {
            totals.add(&record);
        }
        let net = Some(Money::from_picodollars(-20));
        let expected = Saved { bytes: 900, tokens_estimate: 200, net, net_of: 2, estimated: 2 };
        assert_eq!((totals.would_have_saved, totals.saved), (expected, Saved::default()));
        totals += &totals.clone();
        assert_eq!(
            (totals.would_have_saved.bytes, totals.would_have_saved.net_of, totals.observed),
            (1800, 4, 6)
        );
        let json = serde_json::to_value(&totals).unwrap();
        assert_eq!(json["would_have_saved"]["net"], -40);
    }

    #[test]
    fn an_edit_withdrawn_for_the_original_is_not_counted() {
        let mut totals = Totals::default();
        for (state, original_resent) in
            [(State::Edited, true), (State::Observed, false), (State::Unchanged, false)]
        {
            let edits = Edits { state: state.into(), original_resent, ..Edits::default() };
            totals.add(&Record { edits, ..Record::default() });
        }
        assert_eq!((totals.edited, totals.observed), (0, 1));
    }
}
