//! The JSON documents of the books, which the command line and the admin listener share.
//!
//! Users write programs against them: fields may be added, but none may change its meaning.

use std::collections::BTreeSet;

use serde::Serialize;

use super::fill::Fill;
use super::history::{Entry, History, WrittenFile};
use super::record::{Calls, Record, Zone};
use super::report::{By, Conversation, Report};
use super::totals::Totals;
use super::{told, when};
use crate::store::{LedgerFilter, logs};

/// A list of conversations, with the number of all there are.
#[derive(Debug, Serialize)]
pub struct ConversationsDocument<L> {
    conversations: Vec<L>,
    of: usize,
    unreadable: u64,
    missing: u64,
}

/// A conversation in the list.
#[derive(Debug, Serialize)]
pub struct Listed<'a> {
    id: &'a str,
    log: String,
    started: String,
    last: String,
    clients: &'a BTreeSet<String>,
    models: &'a BTreeSet<String>,
    totals: &'a Totals,
}

/// A listed conversation, with the zone of its window at its last request.
#[derive(Debug, Serialize)]
pub struct ListedWithZone<'a> {
    #[serde(flatten)]
    listed: Listed<'a>,
    zone: Option<&'a Zone>,
}

impl<L: Serialize> ConversationsDocument<L> {
    /// A document of the listed conversations, out of `of` in all; `unreadable` records could not be read, and
    /// `missing` ones could not be written.
    pub fn new(conversations: Vec<L>, of: usize, unreadable: u64, missing: u64) -> Self {
        Self { conversations, of, unreadable, missing }
    }
}

impl<'a> Listed<'a> {
    /// The entry for `conversation`.
    pub fn of(conversation: &'a Conversation) -> Self {
        Self {
            id: &conversation.id,
            log: logs::file_name(&conversation.id),
            started: when::rfc3339(conversation.started_ms),
            last: when::rfc3339(conversation.last_ms),
            clients: &conversation.clients,
            models: &conversation.models,
            totals: &conversation.totals,
        }
    }
}

impl<'a> ListedWithZone<'a> {
    /// The entry for `conversation`.
    pub fn of(conversation: &'a Conversation) -> Self {
        Self { listed: Listed::of(conversation), zone: conversation.zone.as_ref() }
    }
}

/// Sums by group.
#[derive(Debug, Serialize)]
pub struct ReportDocument<'a> {
    by: By,
    time_zone: &'a str,
    since: Option<String>,
    until: Option<String>,
    groups: Vec<Group<'a>>,
    total: &'a Totals,
    unreadable: u64,
    missing: u64,
}

#[derive(Debug, Serialize)]
struct Group<'a> {
    name: Option<&'a str>,
    totals: &'a Totals,
}

impl<'a> ReportDocument<'a> {
    /// The document of `report`, for the rows that `filter` selects and days in the time zone called `time_zone`;
    /// `missing` records of that period could not be written.
    pub fn new(report: &'a Report, by: By, time_zone: &'a str, filter: LedgerFilter, missing: u64) -> Self {
        let groups = report.groups_by(by).into_iter();
        Self {
            by,
            time_zone,
            since: filter.since_ms.map(when::rfc3339),
            until: filter.until_ms.map(when::rfc3339),
            groups: groups.map(|(name, totals)| Group { name, totals }).collect(),
            total: &report.total,
            unreadable: report.unreadable,
            missing,
        }
    }
}

/// A conversation, request by request.
#[derive(Debug, Serialize)]
pub struct HistoryDocument<'a> {
    conversation: &'a str,
    log: String,
    requests: Vec<Request<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    of: Option<usize>,
    totals: &'a Totals,
    unreadable: u64,
    fill: Option<Fill>,
    calls: Option<Calls>,
    files: &'a [WrittenFile],
}

#[derive(Debug, Serialize)]
struct Request<'a> {
    n: Option<usize>,
    happened: Vec<String>,
    standing: Vec<String>,
    record: &'a Record,
}

impl<'a> HistoryDocument<'a> {
    /// The document of `history`. If it does not hold all records, it states how many there are.
    pub fn new(history: &'a History) -> Self {
        let requests = history.entries.iter();
        Self {
            conversation: &history.id,
            log: logs::file_name(&history.id),
            requests: requests.map(Request::of).collect(),
            of: (history.entries.len() < history.of).then_some(history.of),
            totals: &history.totals,
            unreadable: history.unreadable,
            fill: Fill::of(history),
            calls: history.calls(),
            files: &history.files,
        }
    }
}

impl<'a> Request<'a> {
    fn of(entry: &'a Entry) -> Self {
        let Entry { number, record, .. } = entry;
        Self {
            n: *number,
            happened: told::happened(record, *number == Some(1)),
            standing: told::still_applies(record),
            record,
        }
    }
}
