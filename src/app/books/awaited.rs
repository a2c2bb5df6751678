//! Requests that were booked without usage, because their provider reports it only in the answer to a later request.
//!
//! The newest of them that this process has seen are in memory; any other is looked up in the store.

use hashlink::LruCache;
use xxhash_rust::xxh3::Xxh3;

use super::{Told, counterfactual};
use crate::ledger::Record;
use crate::ledger::words::Outcome;
use crate::protocol;
use crate::store::Store;
use crate::usage::{self, Catalogue};

/// How many requests are remembered: the newest. A record takes two or three kilobytes.
const MAX_RECORDS: usize = 512;
/// Of how many requests it is remembered that this process has booked them: the newest, less than a megabyte.
const MAX_BOOKED: usize = 16 * 1024;

/// The upstream and the id of an answer.
type Key = (String, String);

/// The requests that wait for their usage.
pub(super) struct Awaited {
    /// Their records. `None`: it no longer waits. The entry keeps it from being looked up in the store again, and from
    /// being booked twice before the store has it.
    records: LruCache<Key, Option<Waiting>>,
    /// Hashes of the keys of records that this process has booked, which may be only in the store by now.
    booked: LruCache<u64, ()>,
}

/// A record that waits for its usage.
#[derive(Clone)]
pub(super) struct Waiting {
    pub(super) record: Box<Record>,
    /// When its request came, in milliseconds since 1970.
    pub(super) at_ms: i64,
    /// Whether this process is known to have booked it before.
    pub(super) was_booked_here: bool,
}

impl Default for Awaited {
    fn default() -> Self {
        Self { records: LruCache::new(MAX_RECORDS), booked: LruCache::new(MAX_BOOKED) }
    }
}

impl Awaited {
    /// Remembers a booked record whose usage may still be reported.
    pub(super) fn remember(&mut self, record: &Record, at_ms: i64) {
        if let Some(id) = record.answer.as_ref().filter(|_| is_awaited(record)) {
            let waiting = Waiting { record: Box::new(record.clone()), at_ms, was_booked_here: true };
            let key = (record.upstream.clone(), id.clone());
            self.booked.insert(hash(&key), ());
            self.records.insert(key, Some(waiting));
        }
    }

    /// Completes the record that `told` is about, and returns it to be booked in place of the incomplete one. `None` if
    /// no such record is waiting, or if `told` adds nothing to it.
    pub(super) fn complete(&mut self, told: &Told, prices: &Catalogue, store: &dyn Store) -> Option<Waiting> {
        let key = (told.upstream.clone(), told.id.clone());
        let known = match self.records.remove(&key) {
            Some(known) => known,
            None => {
                let was_booked_here = self.booked.contains_key(&hash(&key));
                Some(Waiting { was_booked_here, ..stored(told, store)? })
            }
        };
        let Some(mut waiting) = known.filter(|waiting| is_awaited(&waiting.record)) else {
            self.records.insert(key, None);
            return None;
        };
        let outcome_before = waiting.record.outcome.clone();
        complete(&mut waiting.record, told, prices);
        let has_usage = told.answer.usage.is_some();
        let has_changed = has_usage || waiting.record.outcome != outcome_before;
        // Without usage, it still waits for it.
        let was_booked_here = waiting.was_booked_here || has_changed;
        self.records.insert(key, (!has_usage).then(|| Waiting { was_booked_here, ..waiting.clone() }));
        has_changed.then_some(waiting)
    }
}

fn hash((upstream, id): &Key) -> u64 {
    let mut hash = Xxh3::new();
    for text in [upstream, id] {
        hash.update(text.as_bytes());
        hash.update(&[0]);
    }
    hash.digest()
}

/// Whether the usage of a record may still be reported.
fn is_awaited(record: &Record) -> bool {
    let is_taken = record.status.is_some_and(|status| (200..300).contains(&status));
    let is_told_later =
        || protocol::named(&record.protocol).is_some_and(|one| !one.dialect().later.is_empty());
    is_taken && record.tokens.is_none() && is_told_later()
}

/// The record as stored: another process has booked it, or this one has forgotten that it did.
fn stored(told: &Told, store: &dyn Store) -> Option<Waiting> {
    let (record, at_ms) = store.record(told.conversation.as_deref()?, &told.id).ok()??;
    let record: Box<Record> = serde_json::from_str(&record).ok()?;
    (record.upstream == told.upstream).then_some(Waiting { record, at_ms, was_booked_here: false })
}

/// Adds what `told` reports to a record.
fn complete(record: &mut Record, told: &Told, prices: &Catalogue) {
    let answer = &told.answer;
    record.outcome = Outcome::Complete.into();
    record.stop = answer.stop.as_ref().map(|stop| stop.word().to_owned());
    record.error.clone_from(&answer.error);
    record.edits.reasoning_dropped = answer.reasoning_dropped;
    let Some(mut usage) = answer.usage.clone() else { return };
    if record.completion_window.is_some() {
        usage = usage.without_price();
    }
    let asked = record.model_asked.as_deref();
    let billed = prices.billed_name(asked, answer.model.as_deref(), told.vendor).map(str::to_owned);
    let model = billed.as_deref().unwrap_or_default();
    let bill = usage::bill(prices, &usage, model, told.vendor);
    let min_cost = usage::min_cost(prices, &usage, model, told.vendor);
    record.put_usage(&usage, bill.as_ref(), min_cost, answer.complete);
    record.model = billed;
    // An edited prompt went through the cache model before its usage was known: its counterfactual stays unknown.
    if !record.edits.were_sent() && !record.breaks_prefix() {
        counterfactual::complete_as_it_came(record);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::protocol::Framing;
    use crate::store::{Batch, Outputs, Sqlite};

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
        Told { upstream, id, conversation: Some("c".to_owned()), answer, vendor: None }
    }

    fn store(home: &Path, records: &[Record]) -> Sqlite {
        let at = |name: &str| home.join(name);
        let store = Sqlite::open(&at("db"), Outputs::new(at("outputs")), at("logs"), 8).unwrap();
        let rows = records.iter().enumerate().map(|(at, record)| {
            let named = Record { id: at.to_string(), conversation: "c".to_owned(), ..record.clone() };
            Box::new(named).into_row(1000)
        });
        let committed = store.commit(Batch { ledger: rows.collect(), ..Batch::default() });
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(committed).unwrap();
        store
    }

    const DONE: &str = r#"{"status":"completed","model":"gpt-5","usage":{"input_tokens":1000,"output_tokens":100,"total_tokens":1100}}"#;
    const GONE: &str = r#"{"status":"cancelled","usage":null}"#;

    /// A record that may be only in the store by now still counts as known to this process if it was booked here.
    #[test]
    fn what_was_booked_here_is_known_after_its_record_is_forgotten() {
        let home = tempfile::tempdir().unwrap();
        let store = store(home.path(), &[record("ours"), record("theirs")]);
        let mut awaited = Awaited::default();
        awaited.remember(&record("ours"), 1000);
        for at in 0..MAX_RECORDS {
            awaited.remember(&record(&at.to_string()), 1000);
        }
        for (id, expected) in [("ours", true), ("theirs", false)] {
            let found = awaited.complete(&told(id, DONE), &Catalogue::embedded(), &store);
            assert_eq!(found.map(|waiting| waiting.was_booked_here), Some(expected), "{id}");
        }
    }

    /// The outcomes, tokens and costs that are booked, by the process that has seen what was begun and by another.
    fn check(records: &[Record], told: &[Told], expected: &[(&str, Option<u64>, Option<i64>)]) {
        let home = tempfile::tempdir().unwrap();
        let mut awaited = Awaited::default();
        for record in records {
            awaited.remember(record, 1000);
        }
        check_with(awaited, &store(&home.path().join("none"), &[]), told, expected);
        check_with(Awaited::default(), &store(&home.path().join("all"), records), told, expected);
    }

    fn check_with(
        mut awaited: Awaited,
        store: &dyn Store,
        told: &[Told],
        expected: &[(&str, Option<u64>, Option<i64>)],
    ) {
        let prices = Catalogue::embedded();
        let booked: Vec<_> = told.iter().filter_map(|told| awaited.complete(told, &prices, store)).collect();
        let said = |Waiting { record, at_ms, .. }: &Waiting| {
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
    fn an_awaited_answer_is_booked_once_per_outcome() {
        let done = ("completed", Some(1000), Some(2_250_000_000));
        check(&[record("a")], &[told("a", DONE), told("a", DONE)], &[done]);
        check(&[record("a")], &[told("b", DONE)], &[]);
        check(&[record("a")], &[told("a", GONE), told("a", GONE)], &[("cancelled", None, None)]);
        check(&[record("a")], &[told("a", GONE), told("a", DONE)], &[("cancelled", None, None), done]);
        let known = Record { tokens: Some(usage::Tokens::default()), ..record("a") };
        let refused = Record { status: Some(400), ..record("a") };
        let other = Record { upstream: "other".to_owned(), ..record("a") };
        let discounted = Record { completion_window: Some("8h".to_owned()), ..record("a") };
        check(&[discounted], &[told("a", DONE)], &[("completed", Some(1000), None)]);
        let never = Record { protocol: "anthropic".into(), ..record("a") };
        check(&[known, refused, other, never], &[told("a", DONE)], &[]);
    }

    /// An answer that is not known to have been begun here is not found by its id alone.
    #[test]
    fn answers_begun_elsewhere_are_not_found_by_id_alone() {
        let home = tempfile::tempdir().unwrap();
        let store = store(home.path(), &[record("a")]);
        for conversation in [None, Some("d".to_owned())] {
            let told = Told { conversation, ..told("a", DONE) };
            check_with(Awaited::default(), &store, &[told], &[]);
        }
    }

    #[test]
    fn the_oldest_awaited_answer_is_dropped_over_the_limit() {
        let home = tempfile::tempdir().unwrap();
        let mut awaited = Awaited::default();
        for at in 0..=MAX_RECORDS {
            awaited.remember(&record(&at.to_string()), 1000);
        }
        let told = [told("0", DONE), told("1", DONE)];
        let expected = [("completed", Some(1000), Some(2_250_000_000))];
        check_with(awaited, &store(home.path(), &[]), &told, &expected);
    }
}
