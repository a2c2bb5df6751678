//! The output of the demonstration: the session call by call, and the bill with and without the gateway.

use std::collections::BTreeMap;

use super::session::{Call, Session};
use crate::cli::figures;
use crate::cli::table::{Align, Table, cut};
use crate::ledger::{Costs, Record, Totals};
use crate::usage::{Money, Tokens, Usage};

/// The maximum length of a description of what is new in a prompt.
const MAX_NEWS: usize = 44;

/// One side of the bill.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Side {
    pub(super) tokens: Tokens,
    pub(super) costs: Costs,
}

impl Side {
    /// The gateway's side, from its books; `None` if they do not know all of it.
    pub(super) fn of_books(totals: &Totals) -> Option<Self> {
        let costs = totals.cost.filter(|_| totals.unknown() == 0)?;
        Some(Self { tokens: totals.tokens, costs })
    }
}

/// The lines of the session: what was new, how long the prompt was, how much of it was cached, and what was shortened.
pub(super) fn steps(session: &Session, without: &[Usage], with: &[Record]) -> Table {
    let mut table = Table::new(&[
        ("call", Align::Right),
        ("new in the prompt", Align::Left),
        ("prompt", Align::Right),
        ("sent as", Align::Right),
        ("cached", Align::Right),
        ("shortened by", Align::Left),
    ])
    .shrinking(1);
    let mut before = BTreeMap::new();
    for (at, (without, with)) in without.iter().zip(with).enumerate() {
        let tokens = with.tokens.unwrap_or_default();
        let (plain, sent) = (without.tokens.prompt(), tokens.prompt());
        table.row(&[
            (at + 1).to_string(),
            cut(&news(session, at), MAX_NEWS),
            figures::count(plain),
            if sent == plain { String::new() } else { figures::count(sent) },
            figures::percent(tokens.cache_read.into(), sent.into()),
            new_rules(&before, &with.edits.parts),
        ]);
        before.clone_from(&with.edits.parts);
    }
    table
}

/// What is new in the request, compared with the previous one.
fn news(session: &Session, at: usize) -> String {
    let Some(step) = at.checked_sub(1).and_then(|before| session.steps.get(before)) else {
        return "the task".to_owned();
    };
    let titles: Vec<String> = step.calls.iter().map(Call::title).collect();
    titles.join(", ")
}

/// The rules that apply to more parts than before.
fn new_rules(before: &BTreeMap<String, u32>, now: &BTreeMap<String, u32>) -> String {
    let is_new = |(rule, parts): &(&String, &u32)| *parts > before.get(*rule).unwrap_or(&0);
    now.iter().filter(is_new).map(|(rule, _)| rule.as_str()).collect::<Vec<_>>().join(", ")
}

/// The bill of both sides; the last line is the total.
pub(super) fn bill(without: &Side, with: &Side) -> Table {
    let kinds = |side: &Side| {
        let Side { tokens, costs } = side;
        [
            ("input", tokens.input, costs.input),
            ("cache read", tokens.cache_read, costs.cache_read),
            ("cache write", tokens.cache_write(), costs.cache_write),
            ("output", tokens.output, costs.output),
            ("total", tokens.total(), costs.total),
        ]
    };
    let (left, right) = (kinds(without), kinds(with));
    let places = figures::places(left.iter().chain(&right).map(|(_, _, cost)| *cost)).max(4);
    let mut table = Table::new(&[
        ("", Align::Left),
        ("tokens", Align::Right),
        ("without", Align::Right),
        ("tokens", Align::Right),
        ("with Plimsoll", Align::Right),
        ("saved", Align::Right),
        ("", Align::Right),
    ]);
    for ((kind, plain_tokens, plain), (_, tokens, cost)) in left.into_iter().zip(right) {
        table.row(&[
            kind.to_owned(),
            figures::count(plain_tokens),
            figures::dollars(plain, places),
            figures::count(tokens),
            figures::dollars(cost, places),
            figures::dollars(plain - cost, places),
            share(plain - cost, plain),
        ]);
    }
    table
}

fn share(part: Money, whole: Money) -> String {
    figures::percent(part.picodollars(), whole.picodollars())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(input: u64, read: u64, picodollars: i128) -> Side {
        let tokens = Tokens { input, cache_read: read, ..Tokens::default() };
        let total = Money::from_picodollars(picodollars);
        Side { tokens, costs: Costs { input: total, total, ..Costs::default() } }
    }

    #[test]
    fn the_bill_ends_with_the_total() {
        let lines = bill(&side(2_000, 10, 400_000_000_000), &side(500, 10, 100_000_000_000)).lines();
        assert_eq!(
            [lines[0].as_str(), lines[1].as_str(), lines[5].as_str()],
            [
                "             tokens  without  tokens  with Plimsoll    saved",
                "input         2,000  $0.4000     500        $0.1000  $0.3000  75.0 %",
                "total         2,010  $0.4000     510        $0.1000  $0.3000  75.0 %",
            ]
        );
    }

    #[test]
    fn a_loss_is_shown_as_negative_savings() {
        let lines = bill(&side(1, 0, 100_000_000_000), &side(1, 0, 150_000_000_000)).lines();
        assert!(lines[5].ends_with("-$0.0500  -50.0 %"), "{}", lines[5]);
    }

    #[test]
    fn only_newly_applied_rules_are_named() {
        let parts = |parts: &[(&str, u32)]| -> BTreeMap<String, u32> {
            parts.iter().map(|(rule, count)| ((*rule).to_owned(), *count)).collect()
        };
        for (before, now, expected) in [
            (&[][..], &[][..], ""),
            (&[], &[("fold", 1), ("escapes", 1)], "escapes, fold"),
            (&[("fold", 1)], &[("fold", 2), ("truncate", 1)], "fold, truncate"),
            (&[("fold", 1)], &[("fold", 1)], ""),
        ] {
            assert_eq!(new_rules(&parts(before), &parts(now)), expected);
        }
    }
}
