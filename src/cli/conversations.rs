//! `plimsoll conversations`.

use std::collections::BTreeSet;

use clap::Args;
use jiff::tz::TimeZone;

use super::range::Range;
use super::table::{Align, Table, cut};
use super::{Failure, TimedOutput, books, figures, files, say};
use crate::ledger::{Conversation, Conversations, ConversationsDocument, Listed, when};
use crate::store::Order;

/// The longest list of names in a column.
const NAMES: usize = 24;

/// What the JSON says.
const SCHEMA: &str = "\
JSON:
  {\"conversations\": [{\"id\", \"log\", \"started\", \"last\", \"clients\": [], \"models\": [], \"totals\": TOTALS}],
   \"of\", \"unreadable\", \"missing\"}
  log            the file of its records in `ledger.dir`
  started, last  when the first and the last request came, RFC 3339 in UTC: of those that are asked for
  of             how many conversations there are with such requests; `--limit` bounds how many are listed
  unreadable     damaged records; they are in no conversation
  missing        records that could not be written; they are in no conversation
  TOTALS         as `plimsoll report --help` says
  Fields may be added; none will change its meaning.";

/// The options of `plimsoll conversations`.
#[derive(Debug, Args)]
#[command(after_long_help = SCHEMA)]
pub(super) struct Options {
    /// List at most this many
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
    let asked = (filter, Order::NewestFirst);
    let missing = books::read(&state, asked, &mut |entry| conversations.add(entry))?;
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
    for line in lines(&listed, &books::all_ids(&state)?, &zone) {
        say(&line);
    }
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

/// Two lines for each: who and when, and below it how much. `ids` are those of all conversations.
fn lines(listed: &[&Conversation], ids: &[String], zone: &TimeZone) -> Vec<String> {
    let width = books::id_width(ids);
    let columns = ["conversation", "started", "last", "client", "models"];
    let mut who = Table::new(&columns.map(|title| (title, Align::Left)));
    let mut columns = vec![("", Align::Left)];
    let sums = books::Sums::of(listed.iter().map(|one| &one.totals));
    columns.extend(sums.columns());
    let mut how_much = Table::new(&columns);
    for one in listed {
        who.row(&[
            cut(&one.id, width),
            when::minute(one.started_ms, zone),
            when::minute(one.last_ms, zone),
            names(&one.clients),
            names(&one.models),
        ]);
        let mut cells = vec![" ".repeat(2)];
        cells.extend(sums.cells(&one.totals));
        how_much.row(&cells);
    }
    who.lines().into_iter().zip(how_much.lines()).flat_map(|(who, how_much)| [who, how_much]).collect()
}

fn names(names: &BTreeSet<String>) -> String {
    let list: Vec<&str> = names.iter().map(String::as_str).collect();
    if list.is_empty() { "–".to_owned() } else { cut(&list.join(", "), books::most(NAMES)) }
}
