//! Reading the books from the command line, for which no gateway needs to run.

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::path::Path;

use super::table::{Align, cut, wrapped};
use super::{Failure, figures, say, say_document};
use crate::ledger::{Caching, Costs, Totals};
use crate::store::{Books, LedgerEntry, LedgerFilter, Order, StoreError, ledger};
use crate::usage::{Money, Tokens};

/// The width assumed if a terminal does not tell its own.
pub(super) const WIDTH: usize = 100;

/// The indentation of continuation lines.
const INDENT: &str = "  ";

/// The minimum length of a shortened id.
const SHORTEST: usize = 8;

/// The width that tables keep to: the terminal's. If the output is not a terminal, nothing is shortened.
pub(super) fn width() -> usize {
    let out = std::io::stdout();
    if !out.is_terminal() {
        return usize::MAX;
    }
    let columns = rustix::termios::tcgetwinsize(&out).map_or(0, |size| size.ws_col);
    if columns == 0 { WIDTH } else { columns.into() }
}

/// The maximum length of a list or path in a column; unlimited if the output is not a terminal.
pub(super) fn most(length: usize) -> usize {
    if width() == usize::MAX { usize::MAX } else { length }
}

/// The message that there are no records. It names the directory, for users who look in the wrong place.
pub(super) fn nothing(state: &Path) -> String {
    format!("nothing recorded yet in {}", state.display())
}

/// Prints that there are no records in the state directory, or none for the filter, and how many are missing.
pub(super) fn say_nothing(state: &Path, filter: LedgerFilter, missing_records: u64) {
    if filter == LedgerFilter::default() {
        say(&nothing(state));
    } else {
        say("nothing recorded in that time");
    }
    if let Some(note) = missing(missing_records) {
        say(&note);
    }
}

/// Calls `each` with the rows of the store in a directory; there are none if there is no store yet. Returns the number
/// of missing records.
pub(super) fn read(
    state: &Path,
    asked: (LedgerFilter, Order),
    each: &mut dyn FnMut(LedgerEntry<'_>),
) -> Result<u64, Failure> {
    at(state, |path| Books::read(path, asked, each))
}

/// The ids of all conversations. Ids are shortened to what is unique among all of them, so that `inspect` finds them.
pub(super) fn all_ids(state: &Path) -> Result<Vec<String>, Failure> {
    at(state, |path| Books::open(path)?.map_or_else(|| Ok(Vec::new()), |books| books.conversations("")))
}

/// Queries the store in a directory.
fn at<T>(state: &Path, ask: impl FnOnce(&Path) -> Result<T, StoreError>) -> Result<T, Failure> {
    let path = state.join(ledger::FILE_NAME);
    ask(&path).map_err(|error| Failure::Said(format!("{}: {error}", path.display())))
}

/// How sums are shown: in the columns that are always there, in one for what would have been saved if something was
/// only observed, and in one for the cost of the gateway's own calls if it made any.
pub(super) struct Sums {
    places: usize,
    is_observed: bool,
    has_overhead: bool,
}

impl Sums {
    /// The columns for the sums of a table.
    pub(super) fn of<'a>(all: impl Iterator<Item = &'a Totals> + Clone) -> Self {
        let is_observed = all.clone().any(|totals| totals.would_have_saved.net.is_some());
        let has_overhead = all.clone().any(|totals| totals.own_calls > 0);
        Self { places: places(all), is_observed, has_overhead }
    }

    /// The columns.
    pub(super) fn columns(&self) -> impl Iterator<Item = (&'static str, Align)> {
        let more = [self.is_observed.then_some(WOULD), self.has_overhead.then_some(OVERHEAD)];
        COLUMNS.into_iter().chain(more.into_iter().flatten()).map(|title| (title, Align::Right))
    }

    /// The cells for these columns.
    pub(super) fn cells(&self, totals: &Totals) -> Vec<String> {
        let mut all = cells(totals, self.places).to_vec();
        all.extend(self.is_observed.then(|| estimate(totals.would_have_saved.net, self.places)));
        all.extend(self.has_overhead.then(|| overhead(totals, self.places)));
        all
    }
}

/// The cost of the gateway's own calls: zero if there were none.
fn overhead(totals: &Totals, places: usize) -> String {
    match (totals.own_calls, &totals.overhead) {
        (0, _) => figures::dollars(Money::ZERO, places),
        (_, Some(costs)) => figures::dollars(costs.total, places),
        (_, None) => "–".to_owned(),
    }
}

/// The columns of all sums: requests, tokens, money.
const COLUMNS: [&str; 7] =
    ["requests|reqs", "input", "cache read|cached", "cache write|written", "output", "cost", "saved"];

/// The column of what would have been saved if the gateway had not only observed.
pub(super) const WOULD: &str = "would save|would";

/// The column of the cost of the gateway's own calls.
const OVERHEAD: &str = "overhead|own";

/// The cells of these columns. `≥` marks a lower bound, because an answer broke off or a charge has no price, `~` an
/// estimate, `–` an unknown figure.
fn cells(totals: &Totals, places: usize) -> [String; 7] {
    let tokens = &totals.tokens;
    // If nothing is known, that is not zero.
    let is_known = totals.unknown_usage == 0 || *tokens != Tokens::default();
    let count = |figure| if is_known { figures::count(figure) } else { "–".to_owned() };
    let at_least = |is_lower_bound| if is_lower_bound { "≥ " } else { "" };
    let is_lower_bound = totals.broken_off + totals.unpriced_charges > 0;
    let cost = total(totals).map_or_else(
        || "–".to_owned(),
        |cost| at_least(is_lower_bound).to_owned() + &figures::dollars(cost, places),
    );
    [
        figures::count(totals.requests),
        count(tokens.input),
        count(tokens.cache_read),
        count(tokens.cache_write()),
        at_least(is_known && totals.broken_off > 0).to_owned() + &count(tokens.output),
        cost,
        estimate(totals.saved.net, places),
    ]
}

fn estimate(net: Option<Money>, places: usize) -> String {
    net.map_or_else(|| "–".to_owned(), |net| format!("~{}", figures::dollars(net, places)))
}

/// The number of decimal places that a column of costs needs.
fn places<'a>(all: impl Iterator<Item = &'a Totals>) -> usize {
    let own = |totals: &Totals| totals.overhead.as_ref().map(|costs| costs.total);
    figures::places(all.flat_map(|totals| [total(totals), own(totals)]).flatten())
}

fn total(totals: &Totals) -> Option<Money> {
    totals.cost.as_ref().map(|costs: &Costs| costs.total)
}

/// The number of characters that makes all ids distinct, including the ellipsis.
pub(super) fn id_width<S: AsRef<str>>(ids: &[S]) -> usize {
    let longest = ids.iter().map(|id| id.as_ref().chars().count()).max().unwrap_or(0);
    let tells_apart = |width: &usize| {
        let mut seen = BTreeSet::new();
        ids.iter().all(|id| seen.insert(cut(id.as_ref(), *width)))
    };
    (SHORTEST + 1..longest).find(tells_apart).unwrap_or(longest)
}

/// What a reader needs to know to understand the sums, one sentence each.
pub(super) fn notes(totals: &Totals, unreadable: u64) -> Vec<String> {
    let requests = |figure| figures::counted(figure, "request", "requests");
    let mut notes = Vec::new();
    if totals.unknown() > 0 {
        let known = total(totals).map(|cost| figures::dollars(cost, figures::places([cost].into_iter())));
        let unknown = [(totals.unknown_price, "price"), (totals.unknown_usage, "usage")]
            .into_iter()
            .filter(|(figure, _)| *figure > 0)
            .map(|(figure, what)| format!("{} of unknown {what}", requests(figure)));
        let cost: Vec<String> = known.into_iter().chain(unknown).collect();
        notes.push(format!("cost: {}", cost.join(" + ")));
    }
    notes.extend(cached(&totals.cache));
    if totals.own_calls > 0 {
        let calls = figures::counted(totals.own_calls, "call", "calls");
        notes.push(format!(
            "overhead: {calls} of the gateway's own, such as for summaries; they are in the cost"
        ));
    }
    if totals.broken_off > 0 {
        let answers = figures::counted(totals.broken_off, "answer", "answers");
        notes.push(format!("≥ lower bound: {answers} broke off before the provider's last figures"));
    }
    if totals.unpriced_charges > 0 {
        let show = if totals.unpriced_charges == 1 { "shows" } else { "show" };
        let answers = figures::counted(totals.unpriced_charges, "answer", "answers");
        notes
            .push(format!("≥ lower bound: {answers} {show} charges beside tokens that no price is known of"));
    }
    if totals.failed > 0 {
        notes.push(format!("failed: {}", requests(totals.failed)));
    }
    // For some of them, only cache marks may have been set.
    if totals.edited > 0 {
        notes.push(format!("edited: {}", requests(totals.edited)));
    }
    if totals.saved.bytes > 0 {
        let (bytes, tokens) =
            (figures::count(totals.saved.bytes), figures::count(totals.saved.tokens_estimate));
        notes.push(format!("not sent: {bytes} bytes of text, ~{tokens} tokens (an estimate)"));
    }
    if totals.saved.net.is_some() {
        let own =
            |figure| figures::counted(figure, "call of the gateway's own", "calls of the gateway's own");
        let unknown = totals.requests - totals.saved.net_of;
        let left_out = [(unknown, requests(unknown)), (totals.own_unknown, own(totals.own_unknown))];
        let left_out: Vec<String> =
            left_out.into_iter().filter(|(figure, _)| *figure > 0).map(|(_, told)| told).collect();
        let that = if left_out.is_empty() { "" } else { " that leaves out " };
        notes.push(format!(
            "saved: against the same requests without the gateway, an estimate{that}{}",
            left_out.join(" and ")
        ));
    }
    if totals.observed > 0 {
        notes.push(format!("only observed: {} would have been shortened", requests(totals.observed)));
    }
    let would = &totals.would_have_saved;
    if would.bytes > 0 {
        let (bytes, tokens) = (figures::count(would.bytes), figures::count(would.tokens_estimate));
        notes
            .push(format!("would not have been sent: {bytes} bytes of text, ~{tokens} tokens (an estimate)"));
    }
    if let Some(net) = would.net {
        let net = figures::dollars(net, figures::places([net].into_iter()));
        let of = requests(would.net_of);
        notes.push(format!("would have saved: ~{net} of {of} that were only observed, an estimate"));
    }
    if unreadable > 0 {
        notes.push(format!("damaged: {} cannot be read", figures::counted(unreadable, "record", "records")));
    }
    notes
}

/// The effect of the provider's cache; `None` if it was neither read nor written.
fn cached(cache: &Caching) -> Option<String> {
    let is_used = cache.read > 0 || cache.written > 0;
    let share = is_used.then(|| figures::percent(cache.read.into(), cache.prompt.into()))?;
    let Some(saved) = cache.saved else {
        return Some(format!("cache: hit rate {share}, what that saved is not known"));
    };
    let saved = figures::dollars(saved, figures::places([saved].into_iter()));
    let left_out = match cache.unknown {
        0 => String::new(),
        unknown => format!(", which leaves out {}", figures::counted(unknown, "request", "requests")),
    };
    Some(format!("cache: hit rate {share}, {saved} saved against plain input{left_out}"))
}

/// The note about missing records; `None` if there are none.
pub(super) fn missing(records: u64) -> Option<String> {
    let records = (records > 0).then(|| figures::counted(records, "record", "records"))?;
    Some(format!("missing: {records} could not be written and are in no sum"))
}

/// Prints notes below the table that they are about.
pub(super) fn say_notes(notes: &[String]) {
    if !notes.is_empty() {
        say("");
    }
    let most = width().saturating_sub(INDENT.len());
    for note in notes {
        for (at, line) in wrapped(note, most).into_iter().enumerate() {
            say(&if at == 0 { line } else { INDENT.to_owned() + &line });
        }
    }
}

/// Prints a document.
pub(super) fn say_json(document: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(document).map_err(Failure::said)?;
    say_document(&text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::table::Table;
    use crate::ledger::Saved;

    fn totals() -> Totals {
        let total = Money::from_usd_str("1.23").unwrap();
        Totals {
            requests: 1042,
            tokens: Tokens {
                input: 5,
                cache_write_5m: 1,
                cache_write_1h: 2,
                output: 1_000_000,
                ..Tokens::default()
            },
            cost: Some(Costs { total, ..Costs::default() }),
            saved: Saved { bytes: 4_100, tokens_estimate: 1_025, ..Saved::default() },
            ..Totals::default()
        }
    }

    #[test]
    fn cells_mark_what_is_not_exact() {
        let exact = ["1,042", "5", "0", "3", "1,000,000", "$1.23", "–"];
        assert_eq!(cells(&totals(), 2), exact);
        let net = Some(Money::from_usd_str("-0.21").unwrap());
        let dearer = Totals { saved: Saved { net, net_of: 1, ..Saved::default() }, ..totals() };
        assert_eq!(cells(&dearer, 2)[5..], ["$1.23", "~-$0.21"]);
        let broken_off = Totals { broken_off: 1, ..totals() };
        assert_eq!(cells(&broken_off, 4)[4..], ["≥ 1,000,000", "≥ $1.2300", "–"]);
        let charged = Totals { unpriced_charges: 1, ..totals() };
        assert_eq!(cells(&charged, 4)[4..], ["1,000,000", "≥ $1.2300", "–"]);
        let unknown = Totals { cost: None, unknown_price: 1042, ..totals() };
        assert_eq!(cells(&unknown, 2)[5], "–");
        let untold =
            |unknown_usage| Totals { requests: 3, unknown_usage, broken_off: 1, ..Totals::default() };
        assert_eq!(cells(&untold(2), 2), ["3", "–", "–", "–", "–", "–", "–"]);
        assert_eq!(cells(&untold(0), 2), ["3", "0", "0", "0", "≥ 0", "–", "–"]);
    }

    /// It has a column of its own, if there is any.
    #[test]
    fn what_the_gateways_own_calls_cost_stands_apart() {
        let cost = |usd: &str| Some(Costs { total: Money::from_usd_str(usd).unwrap(), ..Costs::default() });
        let own = |own_calls, overhead| Totals { own_calls, overhead, ..totals() };
        for (all, expected) in [
            (vec![totals()], [None, None]),
            (vec![totals(), own(1, cost("0.12"))], [Some("$0.00"), Some("$0.12")]),
            (vec![totals(), own(1, cost("0.0034"))], [Some("$0.0000"), Some("$0.0034")]),
            (vec![own(2, None), totals()], [Some("–"), Some("$0.00")]),
        ] {
            let sums = Sums::of(all.iter());
            let titles: Vec<&str> = sums.columns().map(|(title, _)| title).collect();
            for (totals, expected) in all.iter().zip(expected) {
                let cells = sums.cells(totals);
                assert_eq!((cells.len(), cells.get(7).map(String::as_str)), (titles.len(), expected));
            }
            assert_eq!(titles.contains(&OVERHEAD), expected[0].is_some());
        }
        let notes = notes(&Totals { own_calls: 2, ..Totals::default() }, 0);
        assert_eq!(
            notes,
            ["overhead: 2 calls of the gateway's own, such as for summaries; they are in the cost"]
        );
    }

    #[test]
    fn a_terminal_of_80_columns_is_wide_enough_for_all_columns() {
        let cost = |usd: &str| Some(Costs { total: Money::from_usd_str(usd).unwrap(), ..Costs::default() });
        let tokens = Tokens { input: 411_750, cache_read: 1_215_488, output: 52_326, ..Tokens::default() };
        let net = Some(Money::from_usd_str("0.8236").unwrap());
        let saved = Saved { net, net_of: 1, ..Saved::default() };
        let totals = Totals { requests: 80, tokens, cost: cost("0.5962"), saved, ..Totals::default() };
        let totals = Totals { own_calls: 1, overhead: cost("0.0063"), ..totals };
        let sums = Sums::of(std::iter::once(&totals));
        let columns: Vec<_> = std::iter::once(("model", Align::Left)).chain(sums.columns()).collect();
        let mut table = Table::new(&columns);
        table.row(&[vec!["gemini-3.6-flash".to_owned()], sums.cells(&totals)].concat());
        assert_eq!(
            table.lines_within(80),
            [
                "model            reqs   input    cached written output    cost    saved     own",
                "gemini-3.6-flash   80 411,750 1,215,488       0 52,326 $0.5962 ~$0.8236 $0.0063",
            ]
        );
    }

    #[test]
    fn what_was_only_observed_has_a_column_of_its_own() {
        let net = |usd| Some(Money::from_usd_str(usd).unwrap());
        let observed = |usd| Totals {
            would_have_saved: Saved { net: net(usd), net_of: 1, ..Saved::default() },
            ..totals()
        };
        for (all, titles, one, other) in [
            (totals(), 7, "–", "–"),
            (observed("0.5"), 8, "~$0.50", "–"),
            (observed("-0.25"), 8, "~-$0.25", "–"),
        ] {
            let sums = Sums::of([&all, &totals()].into_iter());
            assert_eq!(sums.columns().count(), titles);
            for (totals, expected) in [(&all, one), (&totals(), other)] {
                let cells = sums.cells(totals);
                assert_eq!((cells.len(), cells.last().map(String::as_str)), (titles, Some(expected)));
            }
        }
    }

    #[test]
    fn notes_say_what_the_sums_leave_out() {
        for (totals, unreadable, expected) in [
            (Totals { saved: Saved::default(), ..totals() }, 0, &[][..]),
            (
                Totals { unknown_price: 4, unknown_usage: 1, edited: 2, ..totals() },
                0,
                &[
                    "cost: $1.23 + 4 requests of unknown price + 1 request of unknown usage",
                    "edited: 2 requests",
                    "not sent: 4,100 bytes of text, ~1,025 tokens (an estimate)",
                ],
            ),
            (Totals { edited: 1, saved: Saved::default(), ..totals() }, 0, &["edited: 1 request"]),
            (
                Totals {
                    saved: Saved { net: Some(Money::ZERO), net_of: 1_040, ..Saved::default() },
                    ..totals()
                },
                0,
                &[
                    "saved: against the same requests without the gateway, an estimate that leaves out 2 requests",
                ],
            ),
            (
                Totals {
                    unknown_usage: 1,
                    own_calls: 2,
                    own_unknown: 1,
                    saved: Saved { net: Some(Money::ZERO), net_of: 1_042, ..Saved::default() },
                    ..totals()
                },
                0,
                &[
                    "cost: $1.23 + 1 request of unknown usage",
                    "overhead: 2 calls of the gateway's own, such as for summaries; they are in the cost",
                    "saved: against the same requests without the gateway, an estimate that leaves out 1 call of the \
                     gateway's own",
                ],
            ),
            (
                Totals {
                    unknown_price: 3,
                    own_calls: 2,
                    own_unknown: 2,
                    saved: Saved { net: Some(Money::ZERO), net_of: 1_041, ..Saved::default() },
                    ..totals()
                },
                0,
                &[
                    "cost: $1.23 + 3 requests of unknown price",
                    "overhead: 2 calls of the gateway's own, such as for summaries; they are in the cost",
                    "saved: against the same requests without the gateway, an estimate that leaves out 1 request and 2 \
                     calls of the gateway's own",
                ],
            ),
            (
                Totals { cost: None, unknown_price: 1, saved: Saved::default(), ..totals() },
                0,
                &["cost: 1 request of unknown price"],
            ),
            (
                Totals { broken_off: 1, failed: 2, observed: 3, saved: Saved::default(), ..totals() },
                1,
                &[
                    "≥ lower bound: 1 answer broke off before the provider's last figures",
                    "failed: 2 requests",
                    "only observed: 3 requests would have been shortened",
                    "damaged: 1 record cannot be read",
                ],
            ),
            (
                Totals {
                    observed: 3,
                    saved: Saved::default(),
                    would_have_saved: Saved {
                        bytes: 4_100,
                        tokens_estimate: 1_025,
                        net: Some(Money::from_usd_str("-0.5").unwrap()),
                        net_of: 4,
                    },
                    ..totals()
                },
                0,
                &[
                    "only observed: 3 requests would have been shortened",
                    "would not have been sent: 4,100 bytes of text, ~1,025 tokens (an estimate)",
                    "would have saved: ~-$0.50 of 4 requests that were only observed, an estimate",
                ],
            ),
            (
                Totals { unpriced_charges: 2, saved: Saved::default(), ..totals() },
                0,
                &["≥ lower bound: 2 answers show charges beside tokens that no price is known of"],
            ),
        ] {
            assert_eq!(notes(&totals, unreadable), expected);
        }
    }

    #[test]
    fn what_the_cache_saved_may_be_unknown_or_negative() {
        let cache = |read, written, usd: Option<&str>, unknown| Caching {
            read,
            written,
            prompt: 10,
            saved: usd.map(|usd| Money::from_usd_str(usd).unwrap()),
            unknown,
        };
        for (cache, expected) in [
            (cache(0, 0, Some("0"), 0), None),
            (cache(0, 10, None, 1), Some("0.0 %, what that saved is not known")),
            (cache(0, 5, Some("-0.0075"), 0), Some("0.0 %, -$0.0075 saved against plain input")),
            (
                cache(9, 0, Some("0.27"), 2),
                Some("90.0 %, $0.27 saved against plain input, which leaves out 2 requests"),
            ),
        ] {
            assert_eq!(
                cached(&cache).as_deref(),
                expected.map(|text| format!("cache: hit rate {text}")).as_deref()
            );
        }
    }

    #[test]
    fn ids_are_cut_where_they_differ() {
        for (ids, expected) in [
            (&["0198f2c4-1a2b-7000", "0298f2c4-1a2b-7000"][..], 9),
            (&["0198f2c4-1a2b-7000", "0198f2c4-1a2c-7000"], 14),
            (&["demo", "x"], 4),
            (&["0198f2c4-1", "0198f2c4-2"], 10),
            (&[], 0),
        ] {
            assert_eq!(id_width(ids), expected, "{ids:?}");
        }
    }
}
