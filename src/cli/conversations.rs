//! `plimsoll conversations`.

use std::collections::BTreeSet;

use clap::Args;
use jiff::tz::TimeZone;

use super::range::Range;
use super::table::{Align, Table, cut};
use super::{Failure, TimedOutput, books, figures, files, say_lines};
use crate::ledger::{Conversation, Conversations, ConversationsDocument, Listed, when};
use crate::store::Order;

/// The maximum length of a list of names in a column.
const MAX_NAMES: usize = 24;
/// The same if there is little space.
const SHORT_MAX_NAMES: usize = 18;

/// The explanation of the columns and the JSON, for `--help`.
const SCHEMA: &str = "\
The columns, in two lines for each conversation: its id, as much of it as tells it apart, the times of its first and its
last request, the clients and the models. Below that: the number of requests, the tokens of prompts that were billed as
plain input, read from the provider's cache and written to it, the tokens of answers, the cost, and what the gateway
saved, less what it cost; `would save`, if something was only observed: what rewriting would have saved; `overhead`, if
the gateway made calls of its own, such as for summaries: what these cost, which the cost includes. `~` marks an
estimate, `≥` a lower bound, `–` an unknown figure.

JSON:
  {\"conversations\": [{\"id\", \"log\", \"started\", \"last\", \"clients\": [], \"models\": [], \"totals\": TOTALS}],
   \"of\", \"unreadable\", \"missing\"}
  log            the name of the file in `ledger.dir` that holds its records
  started, last  when the first and the last request arrived (within `--since` and `--until`), RFC 3339 in UTC
  of             the number of conversations with such requests; `--limit` bounds only how many are listed
  unreadable     the number of damaged records; they belong to no conversation
  missing        the number of records that could not be written; they belong to no conversation
  TOTALS         as described by `plimsoll report --help`
  Fields may be added; none will change its meaning.";

/// The options of `plimsoll conversations`.
#[derive(Debug, Args)]
#[command(after_long_help = SCHEMA)]
pub(super) struct Options {
    /// The maximum number of conversations to list
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = limit)]
    limit: usize,
    #[command(flatten)]
    range: Range,
    #[command(flatten)]
    output: TimedOutput,
}

fn limit(text: &str) -> Result<usize, &'static str> {
    text.parse().ok().filter(|limit| *limit > 0).ok_or("expected a whole number, 1 or more")
}

/// Lists the conversations.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let zone = when::zone(options.output.utc);
    let filter = options.range.filter(&zone)?;
    let state = files::load_to_read(&options.output.source)?.state.dir;
    let mut conversations = Conversations::newest(options.limit);
    let newest_first = Order::NewestFirst;
    let missing = books::read(&state, filter, newest_first, &mut |entry| conversations.add(entry))?;
    let unreadable = conversations.unreadable;
    let (listed, all) = (conversations.newest_first(), conversations.ids());
    if options.output.json {
        let listed = listed.into_iter().map(Listed::of).collect();
        return books::say_json(&ConversationsDocument::new(listed, all.len(), unreadable, missing));
    }
    if all.is_empty() && unreadable == 0 {
        books::say_nothing(&state, filter, missing);
        return Ok(());
    }
    say_lines(lines(&listed, &books::all_ids(&state)?, &zone, books::width()));
    let mut notes = books::notes(&listed.iter().map(|one| &one.totals).sum(), unreadable);
    notes.extend(books::missing(missing));
    if listed.len() < all.len() {
        notes.push(format!(
            "{} of {} conversations",
            figures::count(listed.len() as u64),
            figures::count(all.len() as u64)
        ));
    }
    books::say_notes(&notes);
    Ok(())
}

/// Two lines per conversation: who and when, and below that the sums. `ids` are the ids of all conversations.
fn lines(listed: &[&Conversation], ids: &[String], zone: &TimeZone, most: usize) -> Vec<String> {
    let id_width = books::id_width(ids);
    let sums = books::Sums::of(listed.iter().map(|one| &one.totals));
    let mut columns = vec![("", Align::Left)];
    columns.extend(sums.columns());
    let mut how_much = Table::new(&columns);
    for one in listed {
        how_much.row(&sums.row(" ".repeat(2), &one.totals));
    }
    let who = who(listed, id_width, zone, most);
    who.into_iter().zip(how_much.lines_within(most)).flat_map(|(who, how_much)| [who, how_much]).collect()
}

/// The lines of who and when. If there is little space, names are shortened, and the time of the last request omits
/// what it has in common with that of the first.
fn who(listed: &[&Conversation], id_width: usize, zone: &TimeZone, most: usize) -> Vec<String> {
    let columns =
        ["conversation|id", "started", "last", "client", "models"].map(|title| (title, Align::Left));
    let lines = |is_short: bool| {
        let mut table = Table::new(&columns);
        let length = match most {
            // The output is not a terminal.
            usize::MAX => most,
            _ if is_short => SHORT_MAX_NAMES,
            _ => MAX_NAMES,
        };
        for one in listed {
            let (started, last) = (when::minute(one.started_ms, zone), when::minute(one.last_ms, zone));
            let last = if is_short { after(&started, &last).to_owned() } else { last };
            let (clients, models) = (names(&one.clients, length), names(&one.models, length));
            table.row(&[cut(&one.id, id_width), started, last, clients, models]);
        }
        table.lines_within(most)
    };
    let long = lines(false);
    if long.iter().all(|line| line.chars().count() <= most) { long } else { lines(true) }
}

/// The part of a time (to the minute) that differs from an earlier one: only the time of day if the day is the same,
/// without the year if that is the same.
fn after<'a>(earlier: &str, time: &'a str) -> &'a str {
    let new = |mark| {
        let ((head, _), (same, new)) = (earlier.split_once(mark)?, time.split_once(mark)?);
        (head == same).then_some(new)
    };
    new(' ').or_else(|| new('-')).unwrap_or(time)
}

fn names(names: &BTreeSet<String>, length: usize) -> String {
    let list: Vec<&str> = names.iter().map(String::as_str).collect();
    if list.is_empty() { "–".to_owned() } else { cut(&list.join(", "), length) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Record;
    use crate::store::LedgerEntry;

    #[test]
    fn a_later_time_omits_the_date_it_shares() {
        for (time, expected) in [
            ("2026-11-26 22:36", "22:36"),
            ("2026-11-27 00:10", "11-27 00:10"),
            ("2027-01-01 00:10", "2027-01-01 00:10"),
            ("", ""),
        ] {
            assert_eq!(after("2026-11-26 19:49", time), expected);
        }
    }

    #[test]
    fn conversation_rows_fit_the_terminal_width() {
        let lines = |last_ms, most| {
            let mut all = Conversations::newest(1);
            for (at_ms, model) in [(0, "claude-haiku-4-5"), (last_ms, "claude-sonnet-4-5")] {
                let record = Record {
                    conversation: "0198f2c4-1a2b-7000-8000-3fd5fd49fc19".to_owned(),
                    client: Some("claude-cli/2.1.329".to_owned()),
                    model: Some(model.to_owned()),
                    ..Record::default()
                };
                all.add(LedgerEntry { at_ms, record: &serde_json::to_string(&record).unwrap() });
            }
            let ids = [all.newest_first()[0].id.clone(), "0298f2c4".to_owned()];
            lines(&all.newest_first(), &ids, &TimeZone::UTC, most)
        };
        for (last_ms, most, expected) in [
            (60_000, 80, "0198f2c4…     1970-01-01 00:00  00:01  claude-cli/2.1.329  claude-haiku-4-5,…"),
            (
                100_000_000,
                80,
                "0198f2c4…  1970-01-01 00:00  01-02 03:46  claude-cli/2.1.329  claude-haiku-4-5,…",
            ),
            (100_000_000, 79, "0198f2c4… 1970-01-01 00:00 01-02 03:46 claude-cli/2.1.329 claude-haiku-4-5,…"),
        ] {
            let lines = lines(last_ms, most);
            assert_eq!(lines[2], expected);
            assert!(lines.iter().all(|line| line.chars().count() <= most), "{lines:?}");
        }
        let whole = lines(60_000, usize::MAX);
        assert!(
            whole[2].ends_with("  1970-01-01 00:01  claude-cli/2.1.329  claude-haiku-4-5, claude-sonnet-4-5")
        );
    }
}
