//! Compares what conversations and days have spent with their limits.
//!
//! Spending is summed up in memory as records are made. What is not in memory is read from the store. Without a limit
//! nothing is kept and nothing is read. A request of unknown cost counts with the least that it cost, if that is known.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::StatusCode;

use crate::config::{Budget as Settings, BudgetLimits as Limits, OnExceeded};
use crate::ledger::words::Used;
use crate::ledger::{self, Record};
use crate::server::Fault;
use crate::shape::thousands;
use crate::store::{Recent, Spent, Store};
use crate::usage::Money;

/// The most conversations whose spending is kept in memory.
const MAX_CONVERSATIONS: u64 = 4096;
/// The most models of unknown price that are remembered.
const MAX_MODELS: u64 = 256;
/// Milliseconds of a day. Days begin at midnight UTC.
const DAY_MS: i64 = 86_400_000;

/// The keys of the daily limits, in money and in tokens.
const DAY_KEYS: [&str; 2] = ["budget.day_usd", "budget.day_tokens"];
/// The keys of the limits of a conversation, in money and in tokens.
const CONVERSATION_KEYS: [&str; 2] = ["budget.conversation_usd", "budget.conversation_tokens"];

/// Spending and its limits.
pub(super) struct Budget {
    settings: Settings,
    store: Arc<dyn Store>,
    conversations: Recent<String, Arc<Mutex<Account>>>,
    today: Today,
    /// Models of unknown price that the log has already named.
    unpriced: Recent<String, ()>,
}

/// A day, in days since 1970, and what was spent on it.
#[derive(Default)]
struct Today(Mutex<Option<(i64, Account)>>);

/// What was spent, and how much of a limit that is, as far as the log has reported.
#[derive(Debug, Default)]
struct Account {
    spent: Spent,
    reported: Option<Used>,
}

/// A limit that is reached or nearly reached.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Reached {
    state: Used,
    /// The limit's key in the configuration.
    key: &'static str,
    share: f64,
    /// Spending and limit, formatted for people.
    shown: String,
}

impl Budget {
    pub(super) fn new(settings: Settings, store: Arc<dyn Store>) -> Self {
        let (conversations, unpriced) =
            (Recent::of_entries(MAX_CONVERSATIONS), Recent::of_entries(MAX_MODELS));
        Self { settings, store, conversations, today: Today::default(), unpriced }
    }

    /// Sums up the current day in advance, so that no request has to wait for it.
    pub(super) fn warm(&self, now_ms: i64) {
        if self.settings.day != Limits::default() {
            self.with_day(now_ms, |_| ());
        }
    }

    /// Whether requests over a limit are refused.
    pub(super) fn refuses(&self) -> bool {
        self.settings.on_exceeded == OnExceeded::Refuse && !self.is_idle()
    }

    fn is_idle(&self) -> bool {
        self.settings.day == Limits::default() && self.settings.conversation == Limits::default()
    }

    /// The most exhausted of the limits that apply to a conversation, if it is reached or nearly reached.
    pub(super) fn reached(&self, conversation: &str, now_ms: i64) -> Option<Reached> {
        let (day_limits, own_limits) = (self.settings.day, self.settings.conversation);
        let mut found = Vec::new();
        if day_limits != Limits::default() {
            let spent = self.with_day(now_ms, |account| account.spent);
            found.extend(self.judge(spent, day_limits, DAY_KEYS));
        }
        if own_limits != Limits::default() {
            let spent = self.with_conversation(conversation, |account| account.spent);
            found.extend(self.judge(spent, own_limits, CONVERSATION_KEYS));
        }
        found.into_iter().max_by(|one, other| one.share.total_cmp(&other.share))
    }

    /// Counts a record towards the limits, and logs once when one of them is reached.
    pub(super) fn book(&self, record: &Record, at_ms: i64) {
        self.count(record, |count| self.with_day(at_ms, count));
    }

    /// Counts a record whose figures were reported late, for a request of the time `at_ms`. If its day is not the one
    /// in memory, the figures count only in the store.
    pub(super) fn book_late(&self, record: &Record, at_ms: i64) {
        self.count(record, |count| self.today.with_known(at_ms.div_euclid(DAY_MS), count));
    }

    fn count(&self, record: &Record, on_day: impl FnOnce(&dyn Fn(&mut Account))) {
        if self.is_idle() {
            return;
        }
        let tokens = record.tokens.map_or(0, |tokens| tokens.prompt().saturating_add(tokens.output));
        let more = Spent { picodollars: record.known_cost().unwrap_or(0), tokens };
        if let Some(model) = self.newly_unpriced(record) {
            tracing::warn!(
                model,
                "the cost of a model's answer is not known: budgets in dollars count no more than its known part"
            );
        }
        if self.settings.day != Limits::default() {
            on_day(&|account| self.add(account, more, self.settings.day, DAY_KEYS, "today"));
        }
        if self.settings.conversation != Limits::default() {
            let limits = self.settings.conversation;
            self.with_conversation(&record.conversation, |account| {
                self.add(account, more, limits, CONVERSATION_KEYS, &record.conversation);
            });
        }
    }

    /// The model of a record that cannot count in full towards a limit in dollars because its price is unknown, or
    /// which of its prices applies. Returns each model once, then `None`.
    fn newly_unpriced<'r>(&self, record: &'r Record) -> Option<&'r str> {
        let in_dollars =
            [self.settings.day, self.settings.conversation].iter().any(|limits| limits.usd.is_some());
        let is_unpriced = record.tokens.is_some() && record.cost.is_none() && !record.lacks_figures();
        if !is_unpriced || !in_dollars || !self.refuses() {
            return None;
        }
        let model = record.model.as_deref().or(record.model_asked.as_deref())?;
        let is_known = self.unpriced.get(model).is_some();
        self.unpriced.get_or_insert(model.to_owned(), ());
        (!is_known).then_some(model)
    }

    fn add(&self, account: &mut Account, more: Spent, limits: Limits, keys: [&'static str; 2], of: &str) {
        account.spent += more;
        let reached = self.judge(account.spent, limits, keys).max_by_key(|reached| reached.state);
        if let Some(reached) = reached.filter(|reached| account.reported < Some(reached.state)) {
            account.reported = Some(reached.state);
            let what = if reached.state == Used::Near { "nearly spent" } else { "spent" };
            tracing::warn!(of, limit = reached.key, used = reached.shown, "a budget is {what}");
        }
    }

    /// Those of the limits that are reached or nearly reached.
    fn judge(
        &self,
        spent: Spent,
        limits: Limits,
        [usd_key, tokens_key]: [&'static str; 2],
    ) -> impl Iterator<Item = Reached> {
        let near = self.settings.near;
        let reached = |key, share: f64, shown| {
            let state = if share >= 1.0 { Used::Spent } else { Used::Near };
            (share >= near).then_some(Reached { state, key, share, shown })
        };
        let money = limits.usd.and_then(|limit| {
            let used = Money::from_picodollars(spent.picodollars.into());
            let share = used.picodollars() as f64 / limit.picodollars() as f64;
            reached(usd_key, share, format!("{used} of {limit}"))
        });
        let tokens = limits.tokens.and_then(|limit| {
            let share = spent.tokens as f64 / limit as f64;
            let [used, limit] =
                [spent.tokens, limit].map(|tokens| thousands(usize::try_from(tokens).unwrap_or(usize::MAX)));
            reached(tokens_key, share, format!("{used} of {limit} tokens"))
        });
        money.into_iter().chain(tokens)
    }

    fn with_day<T>(&self, now_ms: i64, then: impl FnOnce(&mut Account) -> T) -> T {
        let day = now_ms.div_euclid(DAY_MS);
        // Records of later days come from a clock that ran ahead, and are not counted.
        let read = || self.read(None, day * DAY_MS..(day + 1) * DAY_MS);
        self.today.with(day, read, then)
    }

    fn with_conversation<T>(&self, conversation: &str, then: impl FnOnce(&mut Account) -> T) -> T {
        let account = self.conversations.get(conversation).unwrap_or_else(|| {
            let read = Arc::new(Mutex::new(self.read(Some(conversation), i64::MIN..i64::MAX)));
            self.conversations.get_or_insert(conversation.to_owned(), read)
        });
        let mut account = account.lock().unwrap_or_else(PoisonError::into_inner);
        then(&mut account)
    }

    /// Spending according to the store. It counts as nothing if the store cannot be read: a broken store must not stop
    /// requests.
    fn read(&self, conversation: Option<&str>, within_ms: Range<i64>) -> Account {
        let spent = self.store.spent(conversation, within_ms).unwrap_or_else(|error| {
            tracing::warn!(%error, "what was spent cannot be read: counted from now on");
            Spent::default()
        });
        Account { spent, reported: None }
    }
}

impl Today {
    /// Runs `then` on the account of a day, which is read first if it is not in memory. Nothing is locked while it is
    /// read. If several threads read it at the same time, the account of the first to finish is used.
    fn with<T>(&self, day: i64, read: impl Fn() -> Account, then: impl FnOnce(&mut Account) -> T) -> T {
        // A request that began before midnight and ended after it counts towards the new day. If the day in memory is
        // further ahead, the clock was set back.
        let covers = |known: i64| known == day || known == day + 1;
        let (mut today, mut account_read) = (self.lock(), None);
        if !today.as_ref().is_some_and(|(known, _)| covers(*known)) {
            drop(today);
            account_read = Some(read());
            today = self.lock();
        }
        match &mut *today {
            Some((known, account)) if covers(*known) => then(account),
            other => then(&mut other.insert((day, account_read.unwrap_or_else(read))).1),
        }
    }

    /// Runs `then` on the account of a day if it is the one in memory.
    fn with_known(&self, day: i64, then: impl FnOnce(&mut Account)) {
        if let Some((_, account)) = self.lock().as_mut().filter(|(known, _)| *known == day) {
            then(account);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<(i64, Account)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reached {
    /// The fault that a request is refused with, if the limit is reached.
    pub(super) fn refusal(&self) -> Option<Fault> {
        (self.state == Used::Spent).then(|| {
            let instead = if DAY_KEYS.contains(&self.key) {
                "wait for midnight UTC"
            } else {
                "begin another conversation"
            };
            let Self { shown, key, .. } = self;
            let message = format!("the gateway's own budget is spent: {shown}; raise `{key}` or {instead}");
            Fault::gateway(StatusCode::PAYMENT_REQUIRED, message)
        })
    }

    /// The limit as a record shows it.
    pub(super) fn record(&self) -> ledger::Budget {
        ledger::Budget { state: self.state.into(), limit: self.key.to_owned(), used: self.shown.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Cost;
    use crate::store::{Batch, Outputs, Sqlite};
    use crate::usage::Tokens;

    const DOLLAR: i64 = 1_000_000_000_000;

    fn record(conversation: &str, dollars: Option<i64>, tokens: u64) -> Record {
        Record {
            id: format!("{conversation}-{tokens}"),
            conversation: conversation.to_owned(),
            cost: dollars.map(|dollars| Cost { total: dollars * DOLLAR, ..Cost::default() }),
            tokens: Some(Tokens { cache_read: tokens / 2, output: tokens - tokens / 2, ..Tokens::default() }),
            ..Record::default()
        }
    }

    /// A record whose cost is unknown, but for what it was at least.
    fn at_least(conversation: &str, dollars: i64) -> Record {
        Record { min_cost: Some(dollars * DOLLAR), ..record(conversation, None, 9) }
    }

    fn settings(conversation: Limits, day: Limits) -> Settings {
        Settings { conversation, day, near: 0.9, on_exceeded: OnExceeded::Refuse }
    }

    fn usd(dollars: i64) -> Limits {
        Limits { usd: Some(Money::from_picodollars(i128::from(dollars * DOLLAR))), tokens: None }
    }

    fn store(home: &std::path::Path) -> Arc<dyn Store> {
        let (outputs, logs) = (Outputs::new(home.join("outputs")), home.join("logs"));
        Arc::new(Sqlite::open(&home.join("x.db"), outputs, logs, 8).unwrap())
    }

    #[test]
    fn limits_are_reached_by_booked_dollars_and_tokens() {
        let home = tempfile::tempdir().unwrap();
        let tokens = Limits { usd: None, tokens: Some(1000) };
        for (own, day, booked, expected) in [
            (Limits::default(), Limits::default(), vec![record("a", Some(99), 9)], None),
            (usd(10), Limits::default(), vec![record("a", Some(8), 9)], None),
            (usd(10), Limits::default(), vec![record("a", Some(9), 9)], Some("near $9.00 of $10.00")),
            (usd(10), Limits::default(), vec![record("b", Some(99), 9)], None),
            (usd(10), Limits::default(), vec![record("a", None, 9)], None),
            (usd(10), Limits::default(), vec![at_least("a", 9)], Some("near $9.00 of $10.00")),
            (usd(10), tokens, vec![record("a", None, 950)], Some("near 950 of 1,000 tokens")),
            (Limits::default(), usd(10), vec![record("b", Some(10), 9)], Some("spent $10.00 of $10.00")),
            (
                usd(10),
                usd(10),
                vec![record("a", Some(9), 9), record("b", Some(3), 9)],
                Some("spent $12.00 of $10.00"),
            ),
        ] {
            let budget = Budget::new(settings(own, day), store(home.path()));
            for record in &booked {
                budget.book(record, 0);
            }
            let reached = budget.reached("a", 0);
            let found = reached.as_ref().map(Reached::record);
            let found = found.map(|record| format!("{} {}", record.state, record.used));
            assert_eq!(found.as_deref(), expected);
            let refused = reached.and_then(|reached| reached.refusal());
            let spent = expected.and_then(|text| text.strip_prefix("spent "));
            let says = spent.map(|spent| format!("the gateway's own budget is spent: {spent}; raise `budget.day_usd` or wait for midnight UTC"));
            assert_eq!(refused.map(|fault| fault.message.into_owned()), says);
        }
    }

    #[test]
    fn unpriced_models_are_named_once_if_a_dollar_limit_refuses() {
        let home = tempfile::tempdir().unwrap();
        let tokens = Limits { usd: None, tokens: Some(1000) };
        for (own, on_exceeded, expected) in [
            (usd(10), OnExceeded::Refuse, vec!["m", "n"]),
            (usd(10), OnExceeded::Record, vec![]),
            (tokens, OnExceeded::Refuse, vec![]),
            (Limits::default(), OnExceeded::Refuse, vec![]),
        ] {
            let settings = Settings { on_exceeded, ..settings(own, Limits::default()) };
            let budget = Budget::new(settings, store(home.path()));
            let of =
                |model: &str, dollars| Record { model: Some(model.to_owned()), ..record("a", dollars, 9) };
            let lacking = Record { prompt_is_unknown: true, ..of("o", None) };
            let asked = Record { model: None, model_asked: Some("n".to_owned()), ..of("", None) };
            let records = [of("p", Some(1)), of("m", None), lacking, asked, of("m", None), of("n", None)];
            let named: Vec<_> = records.iter().filter_map(|record| budget.newly_unpriced(record)).collect();
            assert_eq!(named, expected);
        }
    }

    #[test]
    fn a_day_is_read_from_the_store_without_holding_the_lock() {
        let today = Today::default();
        let tokens = |tokens| Account { spent: Spent { tokens, ..Spent::default() }, reported: None };
        let read = |day: i64| {
            today.with(
                day,
                || {
                    assert!(today.0.try_lock().is_ok(), "held");
                    tokens(day as u64)
                },
                |account| account.spent.tokens,
            )
        };
        assert_eq!([read(3), read(3), read(2), read(4), read(3), read(1)], [3, 3, 3, 4, 4, 1]);
        // Another one has read it meanwhile, and booked.
        let booked = || {
            today.with(7, || tokens(20), |account| account.spent.tokens += 1);
            tokens(30)
        };
        assert_eq!(today.with(7, booked, |account| account.spent.tokens), 21);
    }

    /// A new day begins with nothing; the sums in a store are read once, and what is booked is not read again.
    #[test]
    fn budget_sums_start_from_the_store_and_restart_each_day() {
        let home = tempfile::tempdir().unwrap();
        let store = store(home.path());
        let stored = [
            (record("a", Some(4), 10), 5),
            (Record { min_cost: Some(3 * DOLLAR), ..record("a", None, 20) }, DAY_MS + 5),
            (record("b", Some(2), 30), DAY_MS + 6),
            // By a clock that was ahead.
            (record("b", Some(5), 40), 5 * DAY_MS),
        ];
        let ledger = stored.iter().map(|(record, at_ms)| Box::new(record.clone()).into_row(*at_ms)).collect();
        let committed = store.commit(Batch { ledger, ..Batch::default() });
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(committed).unwrap();
        let budget = Budget::new(settings(usd(1000), usd(1000)), store);
        let spent = |now_ms| {
            let own = budget.with_conversation("a", |account| account.spent);
            let day = budget.with_day(now_ms, |account| account.spent);
            [
                own.picodollars / DOLLAR,
                day.picodollars / DOLLAR,
                own.tokens.cast_signed(),
                day.tokens.cast_signed(),
            ]
        };
        assert_eq!(spent(DAY_MS + 9), [7, 5, 30, 50]);
        budget.book(&record("a", Some(1), 7), DAY_MS + 9);
        assert_eq!(spent(DAY_MS + 9), [8, 6, 37, 57]);
        assert_eq!(spent(2 * DAY_MS), [8, 0, 37, 0]);
        // A request that began before midnight.
        assert_eq!(spent(2 * DAY_MS - 1), [8, 0, 37, 0]);
        // The figures of a request of an earlier day: the newest day stays in memory.
        assert_eq!(spent(2 * DAY_MS), [8, 0, 37, 0]);
        budget.book_late(&record("c", Some(1), 7), DAY_MS + 9);
        let today = || budget.today.lock().as_ref().map(|(day, account)| (*day, account.spent.tokens));
        assert_eq!(today(), Some((2, 0)));
        budget.book_late(&record("c", Some(1), 7), 2 * DAY_MS + 9);
        assert_eq!(today(), Some((2, 7)));
        // A clock that was far ahead keeps no later day for today.
        budget.book(&record("b", Some(6), 8), 9 * DAY_MS);
        assert_eq!((spent(9 * DAY_MS), spent(3 * DAY_MS)), ([8, 6, 37, 8], [8, 0, 37, 0]));
    }
}
