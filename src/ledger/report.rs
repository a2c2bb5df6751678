//! Reading the books: sums over all requests, by a chosen grouping, and by conversation.
//!
//! Records are read one at a time and not kept. An unreadable record is counted, since leaving it out would make the
//! sums look complete.

use std::collections::{BTreeMap, BTreeSet};

use jiff::tz::TimeZone;
use serde::Serialize;

use super::record::{Record, Zone};
use super::totals::Totals;
use super::when;
use crate::store::LedgerEntry;

/// How requests are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// By the day they arrived.
    Day,
    /// By the model that answered.
    Model,
    /// By the client program.
    Client,
    /// By the conversation.
    Conversation,
}

impl By {
    /// All groupings.
    pub const ALL: [Self; 4] = [Self::Day, Self::Model, Self::Client, Self::Conversation];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Model => "model",
            Self::Client => "client",
            Self::Conversation => "conversation",
        }
    }

    /// The name of a record's group, with days in time zone `zone`; `None` if the record does not tell.
    pub fn group(self, at_ms: i64, record: &Record, zone: &TimeZone) -> Option<String> {
        match self {
            Self::Day => Some(when::day(at_ms, zone)),
            Self::Model => record.model.clone().or_else(|| record.model_asked.clone()),
            Self::Client => record.client.clone(),
            Self::Conversation => Some(record.conversation.clone()),
        }
    }
}

/// Sums by group. The group without a name holds the requests that do not tell theirs.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The sums of each group.
    pub groups: BTreeMap<Option<String>, Totals>,
    /// The sums over all groups.
    pub total: Totals,
    /// The number of unreadable records, which are counted only in `total`.
    pub unreadable: u64,
}

impl Report {
    /// Adds a row of the ledger; `group` returns the group of a record, given the time when the request arrived.
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

    /// The groups: days in order of time, all others by descending cost, those of unknown cost last.
    pub fn groups_by(&self, by: By) -> Vec<(Option<&str>, &Totals)> {
        let groups = self.groups.iter();
        let mut groups: Vec<_> = groups.map(|(name, totals)| (name.as_deref(), totals)).collect();
        if by != By::Day {
            groups.sort_by_key(|(_, totals)| std::cmp::Reverse(totals.cost.map(|cost| cost.total)));
        }
        groups
    }
}

/// All conversations: sums for the newest ones, and only the ids of the others.
#[derive(Debug, Clone)]
pub struct Conversations {
    most: usize,
    by_id: BTreeMap<String, Conversation>,
    others: BTreeSet<String>,
    /// When the last request of the oldest summed conversation arrived.
    edge_ms: Option<i64>,
    /// The number of unreadable records, which belong to no conversation.
    pub unreadable: u64,
}

/// A conversation's sums.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conversation {
    /// Its id.
    pub id: String,
    /// When its first request arrived, in milliseconds since 1970.
    pub started_ms: i64,
    /// When its last request arrived, in milliseconds since 1970.
    pub last_ms: i64,
    /// The clients that sent its requests.
    pub clients: BTreeSet<String>,
    /// The models that answered.
    pub models: BTreeSet<String>,
    /// The sums.
    pub totals: Totals,
    /// How full the window was at the client's last request; `None` if that is unknown.
    pub zone: Option<Zone>,
    /// When that request arrived.
    zone_ms: Option<i64>,
}

impl Conversations {
    /// An empty collection that sums the newest `most` conversations.
    pub fn newest(most: usize) -> Self {
        Self { most, by_id: BTreeMap::new(), others: BTreeSet::new(), edge_ms: None, unreadable: 0 }
    }

    /// Adds a row of the ledger. Rows must come newest first, so a conversation that first appears after `most` others
    /// is not among the newest.
    pub fn add(&mut self, entry: LedgerEntry<'_>) {
        let Ok(record) = serde_json::from_str::<Record>(entry.record) else {
            self.unreadable += 1;
            return;
        };
        if let Some(conversation) = self.by_id.get_mut(&record.conversation) {
            conversation.add(entry.at_ms, record);
        } else if !self.others.contains(&record.conversation) && self.is_among_newest(entry.at_ms) {
            self.edge_ms = Some(entry.at_ms);
            let mut conversation = Conversation::new(&record.conversation, entry.at_ms);
            conversation.add(entry.at_ms, record);
            self.by_id.insert(conversation.id.clone(), conversation);
        } else {
            self.others.insert(record.conversation);
        }
    }

    /// Whether a conversation whose last request arrived at `last_ms` is among the newest.
    fn is_among_newest(&self, last_ms: i64) -> bool {
        self.by_id.len() < self.most || self.edge_ms == Some(last_ms)
    }

    /// The ids of all conversations.
    pub fn ids(&self) -> Vec<&str> {
        self.by_id.keys().chain(&self.others).map(String::as_str).collect()
    }

    /// The newest conversations, by their last requests, newest first.
    pub fn newest_first(&self) -> Vec<&Conversation> {
        let mut newest: Vec<_> = self.by_id.values().collect();
        newest.sort_by_key(|conversation| std::cmp::Reverse(conversation.last_ms));
        newest.truncate(self.most);
        newest
    }
}

impl Conversation {
    fn new(id: &str, at_ms: i64) -> Self {
        Self {
            id: id.to_owned(),
            started_ms: at_ms,
            last_ms: at_ms,
            clients: BTreeSet::new(),
            models: BTreeSet::new(),
            totals: Totals::default(),
            zone: None,
            zone_ms: None,
        }
    }

    fn add(&mut self, at_ms: i64, record: Record) {
        self.started_ms = self.started_ms.min(at_ms);
        self.last_ms = self.last_ms.max(at_ms);
        self.totals.add(&record);
        if record.own.is_none() && self.zone_ms.is_none_or(|last_ms| last_ms < at_ms) {
            (self.zone, self.zone_ms) = (record.zone(), Some(at_ms));
        }
        self.clients.extend(record.client);
        self.models.extend(record.model.or(record.model_asked));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Cost, OwnCall, Window};
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
    fn groups_are_summed_by_name_and_by_cost() {
        let mut report = Report::default();
        for (at_ms, record) in &rows() {
            report.add(LedgerEntry { at_ms: *at_ms, record }, |_, record| record.model.clone());
        }
        let groups = |by| -> Vec<_> {
            let groups = report.groups_by(by).into_iter();
            groups
                .map(|(name, totals)| {
                    (name, totals.cost.map(|cost| cost.total.picodollars()), totals.requests)
                })
                .collect()
        };
        let (large, small, unknown) =
            ((Some("large"), Some(8), 2), (Some("small"), Some(5), 1), (None, None, 1));
        assert_eq!(groups(By::Model), [large, small, unknown]);
        assert_eq!(groups(By::Day), [unknown, large, small], "by name");
        assert_eq!(report.total.cost.map(|cost| cost.total), Some(Money::from_picodollars(13)));
        assert_eq!((report.total.requests, report.unreadable), (5, 1));
    }

    /// The last request shows how full the window is; calls of the gateway's own do not.
    #[test]
    fn the_zone_of_a_conversation_is_that_of_its_last_request() {
        let zone = |name: &'static str| Some(Window { zone_sent: Some(name.into()), ..Window::default() });
        let red = Record { window: zone("red"), ..record("a", None, None) };
        let green = Record { window: zone("green"), ..record("a", None, None) };
        let own = Record { own: Some(OwnCall::default()), ..record("a", None, None) };
        for (newest_first, expected) in [
            (&[&red, &green][..], Some("red")),
            (&[&own, &green, &red], Some("green")),
            (&[&record("a", None, None), &red], None),
            (&[&own], None),
        ] {
            let mut conversations = Conversations::newest(1);
            for (at_ms, record) in (0..9).rev().zip(newest_first) {
                let record = serde_json::to_string(record).unwrap();
                conversations.add(LedgerEntry { at_ms, record: &record });
            }
            let zone = conversations.newest_first()[0].zone.as_ref().map(|zone| &*zone.name);
            assert_eq!(zone, expected, "{newest_first:?}");
        }
    }

    #[test]
    fn conversations_come_newest_first() {
        let mut rows = rows();
        rows.push((40, serde_json::to_string(&record("c", None, None)).unwrap()));
        rows.sort_by_key(|(at_ms, _)| std::cmp::Reverse(*at_ms));
        let (b, c, a) = (("b", 20, 40, 2, 2), ("c", 40, 40, 0, 1), ("a", 10, 30, 1, 2));
        for (most, expected) in [(9, &[b, c, a][..]), (3, &[b, c, a]), (2, &[b, c]), (1, &[b]), (0, &[])] {
            let mut conversations = Conversations::newest(most);
            for (at_ms, record) in &rows {
                conversations.add(LedgerEntry { at_ms: *at_ms, record });
            }
            assert_eq!(conversations.unreadable, 1);
            let mut ids = conversations.ids();
            ids.sort_unstable();
            assert_eq!(ids, ["a", "b", "c"], "{most}");
            let newest = conversations.newest_first().into_iter();
            let summary: Vec<_> = newest
                .map(|one| {
                    (one.id.as_str(), one.started_ms, one.last_ms, one.models.len(), one.totals.requests)
                })
                .collect();
            assert_eq!(summary, expected, "{most}");
        }
    }
}
