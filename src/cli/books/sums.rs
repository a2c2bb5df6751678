//! Sums of the books as cells of a table.

use crate::cli::figures;
use crate::cli::table::Align;
use crate::ledger::{Costs, Saved, Totals};
use crate::usage::{Money, Tokens};

/// How sums are shown: in the columns that are always there, in one for what would have been saved if something was
/// only observed, and in one for the cost of the gateway's own calls if it made any.
pub(in crate::cli) struct Sums {
    places: usize,
    is_observed: bool,
    has_overhead: bool,
}

impl Sums {
    /// The columns for the sums of a table.
    pub(in crate::cli) fn of<'a>(all: impl Iterator<Item = &'a Totals> + Clone) -> Self {
        let is_observed = all.clone().any(|totals| totals.would_have_saved.net.is_some());
        let has_overhead = all.clone().any(|totals| totals.own_calls > 0);
        Self { places: places(all), is_observed, has_overhead }
    }

    /// The columns.
    pub(in crate::cli) fn columns(&self) -> impl Iterator<Item = (&'static str, Align)> {
        let more = [self.is_observed.then_some(WOULD), self.has_overhead.then_some(OVERHEAD)];
        COLUMNS.into_iter().chain(more.into_iter().flatten()).map(|title| (title, Align::Right))
    }

    /// A row with a name before these cells.
    pub(in crate::cli) fn row(&self, name: String, totals: &Totals) -> Vec<String> {
        [vec![name], self.cells(totals)].concat()
    }

    /// The cells for these columns.
    pub(in crate::cli) fn cells(&self, totals: &Totals) -> Vec<String> {
        let mut all = cells(totals, self.places).to_vec();
        all.extend(self.is_observed.then(|| estimate(totals.would_have_saved.net, self.places)));
        all.extend(self.has_overhead.then(|| overhead(totals, self.places)));
        all
    }
}

/// The cost of the gateway's own calls; nothing if there were none.
fn overhead(totals: &Totals, places: usize) -> String {
    match totals.own_calls {
        0 => String::new(),
        _ => figures::or_unknown(overhead_total(totals).map(|total| figures::dollars(total, places))),
    }
}

/// The columns of all sums: requests, tokens, money.
const COLUMNS: [&str; 7] =
    ["requests|reqs", "input", "cache read|cached", "cache write|written", "output", "cost", "saved"];

/// The column of what would have been saved if the gateway had not only observed.
pub(in crate::cli) const WOULD: &str = "would save|would";

/// The column of the cost of the gateway's own calls.
const OVERHEAD: &str = "overhead|own";

/// The cells of these columns. `≥` marks a lower bound, because an answer broke off or a charge has no price, `~` an
/// estimate, `–` an unknown figure.
fn cells(totals: &Totals, places: usize) -> [String; 7] {
    let tokens = &totals.tokens;
    // If nothing is known, that is not zero.
    let is_known = totals.unknown_usage == 0 || *tokens != Tokens::default();
    let count = |figure| figures::or_unknown(is_known.then(|| figures::count(figure)));
    let at_least = |is_lower_bound| if is_lower_bound { "≥ " } else { "" };
    let is_lower_bound = totals.broken_off + totals.unpriced_charges > 0;
    let cost =
        total(totals).map(|cost| at_least(is_lower_bound).to_owned() + &figures::dollars(cost, places));
    [
        figures::count(totals.requests),
        count(tokens.input),
        count(tokens.cache_read),
        count(tokens.cache_write()),
        at_least(is_known && totals.broken_off > 0).to_owned() + &count(tokens.output),
        figures::or_unknown(cost),
        saved(&totals.saved, places),
    ]
}

/// What was saved, which is exact if nothing was changed.
fn saved(saved: &Saved, places: usize) -> String {
    match saved.estimated {
        0 => figures::or_unknown(saved.net.map(|net| figures::dollars(net, places))),
        _ => estimate(saved.net, places),
    }
}

/// An estimated amount.
pub(in crate::cli) fn estimate(net: Option<Money>, places: usize) -> String {
    figures::or_unknown(net.map(|net| format!("~{}", figures::dollars(net, places))))
}

/// The number of decimal places that a column of costs needs.
fn places<'a>(all: impl Iterator<Item = &'a Totals>) -> usize {
    figures::places(all.flat_map(|totals| [total(totals), overhead_total(totals)]).flatten())
}

/// The known cost of all requests and calls.
pub(super) fn total(totals: &Totals) -> Option<Money> {
    totals.cost.as_ref().map(|costs: &Costs| costs.total)
}

fn overhead_total(totals: &Totals) -> Option<Money> {
    totals.overhead.as_ref().map(|costs| costs.total)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::cli::table::Table;

    pub(in crate::cli::books) fn totals() -> Totals {
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
    fn inexact_cells_are_marked() {
        let exact = ["1,042", "5", "0", "3", "1,000,000", "$1.23", "–"];
        assert_eq!(cells(&totals(), 2), exact);
        let net = Some(Money::from_usd_str("-0.21").unwrap());
        for (estimated, expected) in [(1, "~-$0.21"), (0, "-$0.21")] {
            let saved = Saved { net, net_of: 2, estimated, ..Saved::default() };
            assert_eq!(cells(&Totals { saved, ..totals() }, 2)[5..], ["$1.23", expected]);
        }
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
    fn own_calls_have_a_cost_column_if_there_are_any() {
        let cost = |usd: &str| Some(Costs { total: Money::from_usd_str(usd).unwrap(), ..Costs::default() });
        let own = |own_calls, overhead| Totals { own_calls, overhead, ..totals() };
        for (all, expected) in [
            (vec![totals()], [None, None]),
            (vec![totals(), own(1, cost("0.12"))], [Some(""), Some("$0.12")]),
            (vec![totals(), own(1, cost("0.0034"))], [Some(""), Some("$0.0034")]),
            (vec![own(2, None), totals()], [Some("–"), Some("")]),
        ] {
            let sums = Sums::of(all.iter());
            let titles: Vec<&str> = sums.columns().map(|(title, _)| title).collect();
            for (totals, expected) in all.iter().zip(expected) {
                let cells = sums.cells(totals);
                assert_eq!((cells.len(), cells.get(7).map(String::as_str)), (titles.len(), expected));
            }
            assert_eq!(titles.contains(&OVERHEAD), expected[0].is_some());
        }
    }

    #[test]
    fn all_columns_fit_a_terminal_of_80_columns() {
        let cost = |usd: &str| Some(Costs { total: Money::from_usd_str(usd).unwrap(), ..Costs::default() });
        let tokens = Tokens { input: 411_750, cache_read: 1_215_488, output: 52_326, ..Tokens::default() };
        let net = Some(Money::from_usd_str("0.8236").unwrap());
        let saved = Saved { net, net_of: 1, estimated: 1, ..Saved::default() };
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
    fn observed_savings_have_a_column_if_there_are_any() {
        let net = |usd| Some(Money::from_usd_str(usd).unwrap());
        let observed = |usd| Totals {
            would_have_saved: Saved { net: net(usd), net_of: 1, estimated: 1, ..Saved::default() },
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
}
