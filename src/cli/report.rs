//! `plimsoll report`.

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};

use super::range::Range;
use super::table::{Align, Table, cut};
use super::{Failure, TimedOutput, books, figures, files, say_lines};
use crate::ledger::when;
use crate::ledger::{By, Record, Report, ReportDocument, Totals};
use crate::store::Order;

/// The explanation of the columns and the JSON, for `--help`.
const SCHEMA: &str = "\
The columns: the group, the number of requests, the tokens of prompts that were billed as plain input, read from
the provider's cache and written to it, the tokens of answers, the cost, and what the gateway saved, less what it cost;
`would save`, if something was only observed: what rewriting would have saved; `overhead`, if the gateway made calls of
its own, such as for summaries: what these cost, which the cost includes; `unpriced`, if there are any: the requests and
own calls whose cost is unknown, for want of a price or of usage figures, and which the cost lacks. `~` marks an
estimate, `≥` a lower bound, `–` an unknown figure.

JSON:
  {\"by\", \"time_zone\", \"since\", \"until\", \"groups\": [{\"name\", \"totals\"}], \"total\": TOTALS, \"unreadable\",
   \"missing\"}
  name        the group; null for requests that do not tell it, such as those without a model
  since, until  RFC 3339 or null
  unreadable  the number of damaged records; they are counted in total.requests and total.unknown_usage
  missing     the number of records that could not be written, of requests or own calls; they are counted nowhere else
  TOTALS
    requests, failed, edited, observed, broken_off, unpriced_charges, unknown_price, unknown_usage
            numbers of requests; if broken_off or unpriced_charges is not 0, cost is a lower bound; unknown_price and
            unknown_usage include own calls
    tokens  {input, cache_read, cache_write_5m, cache_write_1h, cache_write_12h, output, reasoning}
            no token is counted twice, except that output includes reasoning
    cost    null if no cost is known, otherwise {usd, input, cache_read, cache_write, output, searches, total}
            usd: an exact decimal number as a string; the others: integers, in units of 10^-12 dollars
    saved   {bytes, tokens_estimate, net, net_of, estimated}: bytes and tokens that were not sent, and what that saved
            net: the cost without the gateway minus the real cost, in 10^-12 dollars; negative if the gateway made
            them more expensive, null if unknown; net_of: the number of requests that it covers; estimated: of how
            many of these the cost without the gateway is an estimate
    would_have_saved  the same for requests that were only observed (`mode = \"observe\"`): an estimate of what rewriting
            would have saved, minus what it would have cost; contained in no other figure. net: null if unknown
    own_calls  the number of calls that the gateway made itself, for summaries; tokens, cost and net include them,
            requests does not
    overhead   the cost of these calls, with the fields of cost, which includes it; null if there were none or no cost
            is known
    own_unknown  the number of these calls that may have had an unknown cost; net does not include them
    cache   {hit_rate, read, written, prompt, saved, unknown}: what the provider's cache was worth, own calls included
            read, written, prompt: tokens; hit_rate: read / prompt, from 0 to 1, null if unknown
            saved: what the tokens read and written would have cost as plain input, minus what they did cost, in 10^-12
            dollars; negative if writes cost more than reads saved, null if unknown
            unknown: the number of requests not included in saved, for want of a price or of separate figures
  Fields may be added; none will change its meaning.";

/// The options of `plimsoll report`.
#[derive(Debug, Args)]
#[command(after_long_help = SCHEMA)]
pub(super) struct Options {
    /// How to group the requests
    #[arg(long, value_enum, default_value_t = By::Day)]
    by: By,
    #[command(flatten)]
    range: Range,
    #[command(flatten)]
    output: TimedOutput,
}

impl ValueEnum for By {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self {
            Self::Day => "The day on which they arrived",
            Self::Model => "The model that answered",
            Self::Client => "The client program",
            Self::Conversation => "The conversation",
        };
        Some(PossibleValue::new(self.as_str()).help(help))
    }
}

/// Prints the sums of the books.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let zone = when::zone(options.output.utc);
    let filter = options.range.filter(&zone)?;
    let state = files::load_to_read(&options.output.source)?.state.dir;
    let mut report = Report::default();
    let group = |at_ms: i64, record: &Record| options.by.group(at_ms, record, &zone);
    let oldest_first = Order::OldestFirst;
    let missing = books::read(&state, filter, oldest_first, &mut |entry| report.add(entry, group))?;
    if options.output.json {
        let time_zone = when::zone_name(&zone);
        return books::say_json(&ReportDocument::new(&report, options.by, time_zone, filter, missing));
    }
    if report.total.requests == 0 {
        books::say_nothing(&state, filter, missing);
        return Ok(());
    }
    let ids = if options.by == By::Conversation { books::all_ids(&state)? } else { Vec::new() };
    say_lines(table(options.by, &report, &ids).lines_within(books::width()));
    let mut notes = books::notes(&report.total, report.unreadable);
    notes.extend(books::missing(missing));
    if options.by == By::Day {
        notes.push(format!("days: {}", when::zone_name(&zone)));
    }
    books::say_notes(&notes);
    Ok(())
}

/// The groups and their total. Requests of unknown cost have a column of their own, if there are any. `ids` are the ids
/// of all conversations, if these are the groups.
fn table(by: By, report: &Report, ids: &[String]) -> Table {
    let groups = report.groups_by(by);
    let sums = books::Sums::of(groups.iter().map(|(_, totals)| *totals).chain([&report.total]));
    let id_width = books::id_width(ids);
    let has_unknown = report.total.unknown() > 0;
    let mut columns = vec![(by.as_str(), Align::Left)];
    columns.extend(sums.columns());
    if has_unknown {
        columns.push(("unpriced", Align::Right));
    }
    let mut table = Table::new(&columns);
    let mut add = |name: String, totals: &Totals| {
        let mut cells = sums.row(name, totals);
        if has_unknown {
            cells.push(figures::count(totals.unknown()));
        }
        table.row(&cells);
    };
    for (name, totals) in groups {
        let name = name.unwrap_or("(not said)");
        add(if by == By::Conversation { cut(name, id_width) } else { name.to_owned() }, totals);
    }
    add("total".to_owned(), &report.total);
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Cost;
    use crate::store::LedgerEntry;
    use crate::usage::Tokens;

    fn report(requests: &[(Option<&str>, Option<i64>)]) -> Report {
        let mut report = Report::default();
        for (model, total) in requests {
            let record = Record {
                model: model.map(str::to_owned),
                tokens: Some(Tokens { input: 1_000, ..Tokens::default() }),
                cost: total.map(|total| Cost { total, ..Cost::default() }),
                ..Record::default()
            };
            let record = serde_json::to_string(&record).unwrap();
            report.add(LedgerEntry { at_ms: 0, record: &record }, |_, record| record.model.clone());
        }
        report
    }

    #[test]
    fn requests_of_unknown_cost_have_an_unpriced_column() {
        let known = (Some("known"), Some(1_230_000_000_000));
        for (requests, expected) in [
            (
                &[known][..],
                &[
                    "model  requests  input  cache read  cache write  output   cost  saved",
                    "known         1  1,000           0            0       0  $1.23      –",
                    "total         1  1,000           0            0       0  $1.23      –",
                ][..],
            ),
            (
                &[known, (None, None), (Some("x"), None)],
                &[
                    "model       requests  input  cache read  cache write  output   cost  saved  unpriced",
                    "known              1  1,000           0            0       0  $1.23      –         0",
                    "(not said)         1  1,000           0            0       0      –      –         1",
                    "x                  1  1,000           0            0       0      –      –         1",
                    "total              3  3,000           0            0       0  $1.23      –         2",
                ],
            ),
        ] {
            assert_eq!(table(By::Model, &report(requests), &[]).lines(), expected);
        }
    }
}
