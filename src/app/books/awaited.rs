//! Requests that were booked without figures, as their provider tells these to a later request alone.
//!
//! In memory, and bounded: what is told after a restart, or of one of too many, is not booked.

use hashlink::LruCache;

use super::{Told, untouched};
use crate::ledger::Record;
use crate::ledger::words::Outcome;
use crate::protocol;
use crate::usage::{self, Catalogue};

/// Requests that are waited for; beyond that the oldest go. A record takes two or three kilobytes.
const MOST: usize = 512;

/// Their records with the times of their requests, by upstream and by the id of what was begun.
pub(super) struct Awaited(LruCache<(String, String), (Box<Record>, i64)>);

impl Default for Awaited {
    fn default() -> Self {
        Self(LruCache::new(MOST))
    }
}

impl Awaited {
    /// Remembers a record that is booked, if its figures may still be told.
    pub(super) fn remember(&mut self, record: &Record, at_ms: i64) {
        let is_taken = record.status.is_some_and(|status| (200..300).contains(&status));
        let is_told_later =
            || protocol::named(&record.protocol).is_some_and(|one| !one.dialect().later.is_empty());
        let Some(id) = record.answer.as_ref().filter(|_| is_taken && record.tokens.is_none()) else { return };
        if is_told_later() {
            self.0.insert((record.upstream.clone(), id.clone()), (Box::new(record.clone()), at_ms));
        }
    }

    /// The record with what was told, to be booked in place of the one that is; `None` where that says as much.
    pub(super) fn complete(&mut self, told: &Told, prices: &Catalogue) -> Option<(Box<Record>, i64)> {
        let key = (told.upstream.clone(), told.id.clone());
        let (mut record, at_ms) = self.0.remove(&key)?;
        let before = record.outcome.clone();
        complete(&mut record, told, prices);
        let has_ended = before != record.outcome;
        if told.answer.usage.is_none() {
            // It may still be told.
            self.0.insert(key, (record.clone(), at_ms));
        }
        (has_ended || told.answer.usage.is_some()).then_some((record, at_ms))
    }
}

fn complete(record: &mut Record, told: &Told, prices: &Catalogue) {
    let answer = &told.answer;
    record.outcome = Outcome::Complete.into();
    record.stop = answer.stop.as_ref().map(|stop| stop.word().to_owned());
    record.error.clone_from(&answer.error);
    record.edits.reasoning_dropped = answer.reasoning_dropped;
    let Some(usage) = &answer.usage else { return };
    let asked = record.model_asked.as_deref();
    let billed = prices.billed_name(asked, answer.model.as_deref(), told.vendor).map(str::to_owned);
    let bill = usage::bill(prices, usage, billed.as_deref().unwrap_or_default(), told.vendor);
    record.model = billed;
    record.put_usage(usage, bill.as_ref(), answer.complete);
    // What was sent in another form went through the provider's cache before its figures were known.
    if !record.edits.were_sent() && !record.breaks_prefix() {
        untouched::as_it_came(record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Framing;

    fn record(id: &str) -> Record {
        Record {
            protocol: "openai-responses".into(),
            upstream: "openai".to_owned(),
            answer: Some(id.to_owned()),
            status: Some(200),
            model_asked: Some("gpt-5".to_owned()),
            outcome: Outcome::Pending.into(),
            ..Record::default()
        }
    }

    fn told(id: &str, answer: &str) -> Told {
        let mut reader = protocol::named("openai-responses").unwrap().answer(Framing::Document);
        reader.push(answer.as_bytes());
        let (upstream, id, answer) = ("openai".to_owned(), id.to_owned(), reader.finish());
        Told { upstream, id, answer, vendor: None }
    }

    const DONE: &str = r#"{"status":"completed","model":"gpt-5","usage":{"input_tokens":1000,"output_tokens":100,"total_tokens":1100}}"#;
    const GONE: &str = r#"{"status":"cancelled","usage":null}"#;

    /// The outcomes, tokens and costs that are booked.
    fn check(records: &[Record], told: &[Told], expected: &[(&str, Option<u64>, Option<i64>)]) {
        let (mut awaited, prices) = (Awaited::default(), Catalogue::embedded());
        for record in records {
            awaited.remember(record, 1000);
        }
        let booked: Vec<_> = told.iter().filter_map(|told| awaited.complete(told, &prices)).collect();
        let said = |(record, at_ms): &(Box<Record>, i64)| {
            assert_eq!(*at_ms, 1000);
            let cost = record.cost.as_ref().map(|cost| cost.total);
            (record.stop.clone().unwrap(), record.prompt_tokens(), cost, record.net_saved)
        };
        let expected: Vec<_> = expected
            .iter()
            .map(|(stop, tokens, cost)| ((*stop).to_owned(), *tokens, *cost, cost.map(|_| 0)))
            .collect();
        assert_eq!(booked.iter().map(said).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn each_is_booked_once() {
        let done = ("completed", Some(1000), Some(2_250_000_000));
        check(&[record("a")], &[told("a", DONE), told("a", DONE)], &[done]);
        check(&[record("a")], &[told("b", DONE)], &[]);
        check(&[record("a")], &[told("a", GONE), told("a", GONE)], &[("cancelled", None, None)]);
        check(&[record("a")], &[told("a", GONE), told("a", DONE)], &[("cancelled", None, None), done]);
        let known = Record { tokens: Some(usage::Tokens::default()), ..record("a") };
        let refused = Record { status: Some(400), ..record("a") };
        let other = Record { upstream: "other".to_owned(), ..record("a") };
        let never = Record { protocol: "anthropic".into(), ..record("a") };
        check(&[known, refused, other, never], &[told("a", DONE)], &[]);
    }

    #[test]
    fn the_oldest_of_too_many_are_given_up() {
        let records: Vec<_> = (0..=MOST).map(|at| record(&at.to_string())).collect();
        let told = [told("0", DONE), told("1", DONE)];
        check(&records, &told, &[("completed", Some(1000), Some(2_250_000_000))]);
    }
}
