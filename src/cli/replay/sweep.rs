//! `plimsoll replay --sweep`: the trade-off between cost and lost quotes, over a grid of settings.
//!
//! Each row differs from the configuration only in what its name says.

use serde::Serialize;

use super::report::{Report, Total};
use crate::cli::figures;
use crate::cli::table::{Align, Table};
use crate::planner::Policy;
use crate::strategy::clear::{self, Protect};
use crate::strategy::gate::Reason;

/// A setting and its results.
#[derive(Serialize)]
pub(super) struct Row {
    pub(super) setting: String,
    #[serde(skip)]
    pub(super) policy: Policy,
    #[serde(serialize_with = "total")]
    pub(super) total: Report,
}

/// The grid of settings around a configuration.
pub(super) fn grid(configured: &Policy) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |setting: String, change: &dyn Fn(&mut clear::Settings)| {
        let mut policy = configured.clone();
        change(&mut policy.clear);
        rows.push(Row { setting, policy, total: Report::default() });
    };
    add("clear.enabled = false".to_owned(), &|clear| clear.enabled = false);
    add("as configured".to_owned(), &|_| {});
    for (name, policy) in POLICIES {
        add(format!("clear.policy = \"{name}\""), &|clear| clear.policy = *policy);
    }
    for reason in GATES {
        add(format!("clear.gate = [\"{}\"]", reason.as_str()), &|clear| clear.gate = vec![*reason]);
    }
    for tokens in REGRETS {
        add(format!("clear.regret_tokens = {tokens}"), &|clear| clear.regret_tokens = *tokens);
    }
    for patience in PATIENCE {
        add(format!("clear.patience = {patience}"), &|clear| clear.patience = *patience);
    }
    for (view_tokens, other_tokens) in PROTECTED {
        let setting = format!("oldest, protect_tokens = {{ view = {view_tokens}, other = {other_tokens} }}");
        add(setting, &|clear| {
            let turns = clear.protect.turns;
            clear.policy = clear::Policy::Oldest;
            clear.protect = Protect { view_tokens: *view_tokens, other_tokens: *other_tokens, turns };
        });
    }
    rows
}

const POLICIES: &[(&str, clear::Policy)] = &[
    ("worth", clear::Policy::Worth),
    ("oldest", clear::Policy::Oldest),
    ("lru", clear::Policy::Lru),
    ("priority", clear::Policy::Priority),
    ("type-ttl", clear::Policy::TypeTtl),
    ("duplicate", clear::Policy::Duplicate),
    ("hybrid", clear::Policy::Hybrid),
];
const GATES: &[Reason] = &[Reason::Window, Reason::Cold, Reason::Uncached, Reason::BreakEven];
const REGRETS: &[u64] = &[0, 45_000, 90_000, 360_000];
const PATIENCE: &[f64] = &[0.5, 2.0];
const PROTECTED: &[(u64, u64)] = &[(8_000, 1_000), (12_000, 1_000), (30_000, 1_000), (40_000, 2_000)];

fn total<S: serde::Serializer>(report: &Report, serializer: S) -> Result<S::Ok, S::Error> {
    report.total.serialize(serializer)
}

/// The table for human readers.
pub(super) fn table(rows: &[Row]) -> Table {
    let titles = ["ratio", "worst", "lost quotes", "again", "events"];
    let mut columns = vec![("setting", Align::Left)];
    columns.extend(titles.map(|title| (title, Align::Right)));
    let mut table = Table::new(&columns);
    for row in rows {
        let Total { figures, worst_ratio, .. } = &row.total.total;
        let ratio = |ratio: Option<f64>| figures::or_unknown(ratio.map(|ratio| format!("{ratio:.3}")));
        table.row(&[
            row.setting.clone(),
            ratio(figures.ratio),
            ratio(*worst_ratio),
            figures::percent(figures.counts.lost.into(), figures.counts.calls.into()),
            figures::count(figures.counts.recalls),
            figures::count(figures.events.values().sum()),
        ]);
    }
    table
}
