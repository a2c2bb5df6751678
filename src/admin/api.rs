//! The books as JSON: the documents of `conversations`, `inspect` and `report`, over HTTP.
//!
//! Reading blocks, and takes long if much was recorded. Rows are read one at a time, and what is kept of them is
//! bounded by limits on the parameters, however many rows there are.

use std::fmt::Display;
use std::path::Path;

use http::StatusCode;
use jiff::tz::TimeZone;
use serde::Serialize;

use super::query::{Query, Wrong};
use crate::ledger::history::CONVERSATION;
use crate::ledger::when::{self, NoRange};
use crate::ledger::{
    By, Conversations, ConversationsDocument, History, HistoryDocument, ListedWithZone, NoHistory, NoId,
    Report, ReportDocument,
};
use crate::store::{Books, LedgerFilter, Order, StoreError};
use crate::url::unescaped;

/// The default and the maximum number of listed conversations.
const CONVERSATIONS: Limit = Limit { usual: 20, most: 500 };
/// The default and the maximum number of a conversation's records.
const RECORDS: Limit = Limit { usual: 200, most: 1_000 };
/// The maximum number of groups in a report.
const MAX_GROUPS: usize = 10_000;
/// The maximum number of ids that an error lists if a prefix is ambiguous.
const MAX_LISTED: usize = 10;

/// The paths that exist, for messages.
pub(super) const PATHS: &str = "/api/conversations, /api/conversations/ID, /api/report";

/// A parsed request.
#[derive(Debug)]
pub(super) enum Question {
    Conversations { filter: LedgerFilter, limit: usize },
    Conversation { id: String, limit: usize },
    Report { by: By, zone: TimeZone, filter: LedgerFilter },
}

/// Why a request gets no document.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    message: String,
    parameter: Option<String>,
    conversations: Vec<String>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, message: impl Display) -> Self {
        Self { status, message: message.to_string(), parameter: None, conversations: Vec::new() }
    }

    /// `{"error": {"message", "parameter", "conversations"}}`, without the last two if they do not apply.
    pub(super) fn to_json(&self) -> Vec<u8> {
        #[derive(Serialize)]
        struct Document<'a> {
            error: Error<'a>,
        }
        #[derive(Serialize)]
        struct Error<'a> {
            message: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            parameter: Option<&'a str>,
            #[serde(skip_serializing_if = "<[_]>::is_empty")]
            conversations: &'a [String],
        }
        let Self { message, parameter, conversations, .. } = self;
        json(&Document { error: Error { message, parameter: parameter.as_deref(), conversations } })
            .unwrap_or_default()
    }
}

impl From<Wrong> for Refusal {
    fn from(wrong: Wrong) -> Self {
        let Wrong { parameter, message } = wrong;
        let refusal = Self::new(StatusCode::BAD_REQUEST, format!("`{parameter}`: {message}"));
        Self { parameter: Some(parameter), ..refusal }
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        tracing::warn!(%error, "the books could not be read");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, format!("the books cannot be read: {error}"))
    }
}

impl From<NoHistory> for Refusal {
    fn from(none: NoHistory) -> Self {
        let message = none.to_string();
        match none {
            NoHistory::Store(error) => error.into(),
            NoHistory::Id(NoId::None { .. }) => Self::new(StatusCode::NOT_FOUND, message),
            NoHistory::Id(NoId::Several { mut found, .. }) => {
                found.truncate(MAX_LISTED);
                Self { conversations: found, ..Self::new(StatusCode::CONFLICT, message) }
            }
        }
    }
}

impl Question {
    /// Parses a path below `/api/` and its parameters.
    pub(super) fn new(path: &str, query: &str) -> Result<Self, Refusal> {
        let mut query = Query::new(query)?;
        let question = match path.split_once('/').unwrap_or((path, "")) {
            // Browsers take the ids "." and ".." for steps, and never send them in a path.
            ("conversations", "") => match query.take("id")? {
                Some(id) => Self::Conversation { id, limit: limit(&mut query, RECORDS)? },
                None => Self::Conversations {
                    filter: filter(&mut query)?.0,
                    limit: limit(&mut query, CONVERSATIONS)?,
                },
            },
            ("conversations", id) => Self::Conversation {
                id: unescaped(id)
                    .ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, "the id's escapes are not UTF-8"))?,
                limit: limit(&mut query, RECORDS)?,
            },
            ("report", "") => {
                let by = by(&mut query)?;
                let (filter, zone) = filter(&mut query)?;
                Self::Report { by, zone, filter }
            }
            _ => {
                return Err(Refusal::new(StatusCode::NOT_FOUND, format!("not found; there are {PATHS}")));
            }
        };
        query.end()?;
        Ok(question)
    }

    /// The document that answers the request, from the books in the database `books`.
    pub(super) fn answer(&self, books: &Path) -> Result<Vec<u8>, Refusal> {
        match self {
            Self::Conversations { filter, limit } => {
                let mut conversations = Conversations::newest(*limit);
                let order = Order::NewestFirst;
                let missing = Books::read(books, *filter, order, &mut |entry| conversations.add(entry))?;
                let (listed, of) = (conversations.newest_first(), conversations.ids().len());
                let listed = listed.into_iter().map(ListedWithZone::of).collect();
                json(&ConversationsDocument::new(listed, of, conversations.unreadable, missing))
            }
            Self::Conversation { id, limit } => {
                let Some(books) = Books::open(books)? else {
                    return Err(NoHistory::from(NoId::None { kind: CONVERSATION, start: id.clone() }).into());
                };
                json(&HistoryDocument::new(&History::read(&books, id, *limit)?))
            }
            Self::Report { by, zone, filter } => report(books, *by, zone, *filter),
        }
    }
}

fn report(books: &Path, by: By, zone: &TimeZone, filter: LedgerFilter) -> Result<Vec<u8>, Refusal> {
    let mut report = Report::default();
    let missing = Books::read(books, filter, Order::OldestFirst, &mut |entry| {
        if report.groups.len() <= MAX_GROUPS {
            report.add(entry, |at_ms, record| by.group(at_ms, record, zone));
        }
    })?;
    if report.groups.len() > MAX_GROUPS {
        let message =
            format!("there are more than {MAX_GROUPS} groups; ask for less time with `since` and `until`");
        return Err(Wrong::new("by", message).into());
    }
    json(&ReportDocument::new(&report, by, when::zone_name(zone), filter, missing))
}

/// Which rows are meant, and the time zone for days.
fn filter(query: &mut Query) -> Result<(LedgerFilter, TimeZone), Wrong> {
    let zone = when::zone(match query.take("utc")?.as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(other) => return Err(Wrong::new("utc", format!("expected true or false, got {other:?}"))),
    });
    let (since, until) = (query.take("since")?, query.take("until")?);
    let wrong = |name, text: Option<&str>| {
        Wrong::new(name, format!("{}; got {:?}", when::EXPECTED, text.unwrap_or_default()))
    };
    let (since, until) = (since.as_deref(), until.as_deref());
    let filter = when::filter(since, until, &zone).map_err(|no_range| match no_range {
        NoRange::Since => wrong("since", since),
        NoRange::Until => wrong("until", until),
        NoRange::Reversed => Wrong::new("since", "it is later than `until`"),
    })?;
    Ok((filter, zone))
}

/// The number of items to list, if the client gives none, and at most.
#[derive(Clone, Copy)]
struct Limit {
    usual: usize,
    most: usize,
}

fn limit(query: &mut Query, Limit { usual, most }: Limit) -> Result<usize, Wrong> {
    let Some(text) = query.take("limit")? else { return Ok(usual) };
    let limit = text.parse().ok().filter(|limit| (1..=most).contains(limit));
    limit
        .ok_or_else(|| Wrong::new("limit", format!("expected a whole number from 1 to {most}, got {text:?}")))
}

fn by(query: &mut Query) -> Result<By, Wrong> {
    let Some(text) = query.take("by")? else { return Ok(By::Day) };
    By::ALL.into_iter().find(|by| by.as_str() == text).ok_or_else(|| {
        let all = By::ALL.map(By::as_str).join(", ");
        Wrong::new("by", format!("expected one of {all}, got {text:?}"))
    })
}

fn json(document: &impl Serialize) -> Result<Vec<u8>, Refusal> {
    let mut text = serde_json::to_vec(document)
        .map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error))?;
    text.push(b'\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Record;
    use crate::store::{Batch, LedgerRow, Outputs, Sqlite, Store, ledger};

    /// This many conversations of one request each.
    fn rows(count: usize) -> Vec<LedgerRow> {
        let id = |at: usize| format!("c{at}");
        let record = |at| Record { id: id(at), conversation: id(at), ..Record::default() };
        (0..).zip(0..count).map(|(at_ms, at)| Box::new(record(at)).into_row(at_ms)).collect()
    }

    #[test]
    fn reports_over_the_group_limit_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(ledger::FILE_NAME);
        let store =
            Sqlite::open(&path, Outputs::new(home.path().join("o")), home.path().join("l"), 8).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let keep = |ledger| runtime.block_on(store.commit(Batch { ledger, ..Batch::default() })).unwrap();
        let ask = |by: &str| Question::new("report", by).unwrap().answer(&path).map_err(|no| no.to_json());
        let mut rows = rows(MAX_GROUPS + 1);
        let last = rows.pop();
        keep(rows);
        assert!(ask("by=conversation").is_ok());
        keep(last.into_iter().collect());
        let refused = String::from_utf8(ask("by=conversation").unwrap_err()).unwrap();
        let message = "`by`: there are more than 10000 groups; ask for less time with `since` and `until`";
        assert_eq!(refused, format!("{{\"error\":{{\"message\":\"{message}\",\"parameter\":\"by\"}}}}\n"));
        assert!(ask("by=client").is_ok());
    }
}
