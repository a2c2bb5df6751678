//! The books, read: sums over all requests, by whatever a reader groups them, and by conversation.
//!
//! Records come one at a time and are not kept. A record that cannot be read is counted, since leaving it out
//! would make the sums look complete.

use std::collections::{BTreeMap, BTreeSet};

use super::record::Record;
use super::totals::Totals;
use crate::store::LedgerEntry;

/// Sums by group. A group without a name is of the requests that do not say.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Sums of the groups.
    pub groups: BTreeMap<Option<String>, Totals>,
    /// Their sum.
    pub total: Totals,
    /// Records that could not be read; they are in `total` alone.
    pub unreadable: u64,
}

impl Report {
    /// Adds a row of the ledger; `group` names the group of its record, given when the request came.
    pub fn add(&mut self, entry: LedgerEntry<'_>, group: impl Fn(i64, &Record) -> Option<String>) {
        match serde_json::from_str::<Record>(entry.record) {
            Ok(record) => {
                self.groups.entry(group(entry.at_ms, &record)).or_default().add(&record);
                self.total.add(&record);
            }
            Err(_) => {
                self.total.add_unreadable();
                self.unreadable += 1;
            }
        }
    }

    /// The groups, the dearest first; those of unknown cost come last.
    pub fn dearest_first(&self) -> Vec<(&Option<String>, &Totals)> {
        let mut groups: Vec<_> = self.groups.iter().collect();
        groups.sort_by_key(|(_, totals)| std::cmp::Reverse(totals.cost.map(|cost| cost.total)));
        groups
    }
}

/// All conversations.
#[derive(Debug, Clone, Default)]
pub struct Conversations {
    by_id: BTreeMap<String, Conversation>,
    /// Records that could not be read; they are in no conversation.
    pub unreadable: u64,
}

/// What a conversation came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conversation {
    /// Its id.
    pub id: String,
    /// When its first request came, in milliseconds since 1970.
    pub started_ms: i64,
    /// When its last request came.
    pub last_ms: i64,
    /// The clients that sent them.
    pub clients: BTreeSet<String>,
    /// The models that answered.
    pub models: BTreeSet<String>,
    /// The sums.
    pub totals: Totals,
}

impl Conversations {
    /// Adds a row of the ledger.
    pub fn add(&mut self, entry: LedgerEntry<'_>) {
        let Ok(record) = serde_json::from_str::<Record>(entry.record) else {
            self.unreadable += 1;
            return;
        };
        let conversation = self.by_id.entry(record.conversation.clone()).or_insert_with(|| Conversation {
            id: record.conversation.clone(),
            started_ms: entry.at_ms,
            last_ms: entry.at_ms,
            clients: BTreeSet::new(),
            models: BTreeSet::new(),
            totals: Totals::default(),
        });
        conversation.started_ms = conversation.started_ms.min(entry.at_ms);
        conversation.last_ms = conversation.last_ms.max(entry.at_ms);
        conversation.totals.add(&record);
        conversation.clients.extend(record.client);
        conversation.models.extend(record.model.or(record.model_asked));
    }

    /// The conversations, the one with the newest request first.
    pub fn newest_first(self) -> Vec<Conversation> {
        let mut all: Vec<Conversation> = self.by_id.into_values().collect();
        all.sort_by_key(|conversation| std::cmp::Reverse(conversation.last_ms));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Cost;
    use crate::usage::Money;

    fn record(conversation: &str, model: Option<&str>, total: Option<i64>) -> Record {
        Record {
            conversation: conversation.to_owned(),
            model: model.map(str::to_owned),
            cost: total.map(|total| Cost { total, ..Cost::default() }),
            ..Record::default()
        }
    }

    fn rows() -> Vec<(i64, String)> {
        let records = [
            (20, record("b", Some("small"), Some(5))),
            (10, record("a", Some("large"), Some(7))),
            (30, record("a", None, None)),
            (40, record("b", Some("large"), Some(1))),
        ];
        let mut rows: Vec<_> =
            records.iter().map(|(at, record)| (*at, serde_json::to_string(record).unwrap())).collect();
        rows.push((50, "{".to_owned()));
        rows
    }

    #[test]
    fn groups_add_up() {
        let mut report = Report::default();
        for (at_ms, record) in &rows() {
            report.add(LedgerEntry { at_ms: *at_ms, record }, |_, record| record.model.clone());
        }
        let dearest: Vec<_> = report
            .dearest_first()
            .into_iter()
            .map(|(name, totals)| {
                (name.as_deref(), totals.cost.map(|cost| cost.total.picodollars()), totals.requests)
            })
            .collect();
        assert_eq!(dearest, [(Some("large"), Some(8), 2), (Some("small"), Some(5), 1), (None, None, 1)]);
        assert_eq!(report.total.cost.map(|cost| cost.total), Some(Money::from_picodollars(13)));
        assert_eq!((report.total.requests, report.unreadable), (5, 1));
    }

    #[test]
    fn conversations_come_newest_first() {
        let mut conversations = Conversations::default();
        for (at_ms, record) in &rows() {
            conversations.add(LedgerEntry { at_ms: *at_ms, record });
        }
        assert_eq!(conversations.unreadable, 1);
        let all = conversations.newest_first();
        let summary: Vec<_> = all
            .iter()
            .map(|one| (one.id.as_str(), one.started_ms, one.last_ms, one.models.len(), one.totals.requests))
            .collect();
        assert_eq!(summary, [("b", 20, 40, 2, 2), ("a", 10, 30, 1, 2)]);
    }
}
