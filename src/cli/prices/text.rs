//! Prices as a table. What has no column follows below its row.

use super::{Detail, Quote, TIERS, long, usual};
use crate::cli::table::{Align, Table};
use crate::cli::{books, figures};
use crate::usage::{CATALOGUE_DATE, Listed, Money, PerMillion, Price, Priced, Rates, Source};

const COLUMNS: [(&str, Align); 8] = [
    ("model", Align::Left),
    ("input", Align::Right),
    ("read", Align::Right),
    ("write 5m", Align::Right),
    ("1h", Align::Right),
    ("output", Align::Right),
    ("window", Align::Right),
    ("", Align::Left),
];
/// The maximum length of a name whose figures are on the same line. A longer one has them on the next line, and is not
/// shortened.
const MAX_NAME: usize = 42;
/// The indentation of lines about the row above.
const INDENT: &str = "  ";

/// A row for each model with a price.
pub(super) fn lines(quotes: &[Quote]) -> Vec<String> {
    let known: Vec<(&Quote, &Priced)> =
        quotes.iter().filter_map(|quote| Some((quote, quote.priced.as_ref()?))).collect();
    if known.is_empty() {
        return Vec::new();
    }
    let mut table = Table::new(&COLUMNS);
    for (quote, priced) in &known {
        table.row(&cells(quote, priced));
    }
    let mut rows = table.lines_within(books::width()).into_iter();
    let mut lines: Vec<String> = rows.next().into_iter().collect();
    for ((quote, priced), row) in known.into_iter().zip(rows) {
        lines.extend(is_long(&quote.model).then(|| quote.model.clone()));
        lines.push(row);
        if quote.detail == Detail::Whole {
            let details = std::iter::once(origin(quote, priced)).chain(parts(&priced.price));
            lines.extend(details.map(|line| format!("{INDENT}{line}")));
        }
    }
    lines
}

/// The notes for reading the table.
pub(super) fn notes(quotes: &[Quote]) -> Vec<String> {
    let known = || quotes.iter().filter_map(|quote| Some((quote, quote.priced.as_ref()?)));
    if known().next().is_none() {
        return Vec::new();
    }
    let mut notes = vec!["US dollars for a million tokens; = billed as input".to_owned()];
    let short = || known().filter(|(quote, _)| quote.detail == Detail::Line);
    if short().any(|(_, priced)| !parts(&priced.price).is_empty()) {
        notes.push("+ has further rates; name the model, or use --json, to see them".to_owned());
    }
    let is_stated = |priced: &Priced| priced.source == Source::Config;
    let (stated, listed) =
        (short().any(|(_, priced)| is_stated(priced)), short().any(|(_, priced)| !is_stated(priced)));
    let listed = listed.then(|| Source::Embedded(CATALOGUE_DATE).to_string());
    let sources: Vec<String> =
        stated.then(|| format!("* {}", Source::Config)).into_iter().chain(listed).collect();
    if !sources.is_empty() {
        notes.push(format!("source: {}", sources.join(", else ")));
    }
    notes
}

fn is_long(model: &str) -> bool {
    model.chars().count() > MAX_NAME
}

fn cells(quote: &Quote, priced: &Priced) -> [String; 8] {
    let price = &priced.price;
    let name = if is_long(&quote.model) { String::new() } else { quote.model.clone() };
    let window = figures::or_unknown(price.context_window.map(figures::count));
    let marks = [("*", priced.source == Source::Config), ("+", !parts(price).is_empty())];
    let marks = marks.into_iter().filter(|(_, is_so)| *is_so && quote.detail == Detail::Line);
    let costs = usual(price);
    let cell = |listed: bool, cost: Money| {
        if listed || cost != costs.input { cost.usd() } else { "=".to_owned() }
    };
    let base = &price.base;
    [
        name,
        costs.input.usd(),
        cell(base.cache_read.is_some(), costs.cache_read),
        cell(base.cache_write_5m.is_some(), costs.cache_write_5m),
        cell(base.cache_write_1h.is_some(), costs.cache_write_1h),
        costs.output.usd(),
        window,
        marks.map(|(mark, _)| mark).collect(),
    ]
}

/// The source of a price.
fn origin(quote: &Quote, priced: &Priced) -> String {
    let at = quote.upstream.as_ref().map_or_else(String::new, |name| format!("at `upstream.{name}`: "));
    let row = priced.listed.map(|Listed { seller, name }| format!("{name} of {}", seller.as_str()));
    let source = priced.source;
    match (source, row) {
        (Source::Config, Some(row)) => {
            format!("{at}{source}; what it leaves out is from the catalogue: {row}")
        }
        (_, Some(row)) => format!("{at}{source}: {row}"),
        (_, None) => format!("{at}{source}"),
    }
}

/// The parts of a price that have no column.
fn parts(price: &Price) -> Vec<String> {
    let base = &price.base;
    let costs = usual(price);
    let mut parts = Vec::new();
    if base.cache_write_1h.is_none() && costs.cache_write_1h != costs.cache_write_5m {
        parts.push("1h is not listed: twice the input, as writes for 5m cost more than input".to_owned());
    }
    for (what, listed, cost) in [
        ("writes for 12h", base.cache_write_12h, costs.cache_write_12h),
        ("reasoning", base.reasoning, costs.reasoning),
    ] {
        parts.extend(listed.map(|_| format!("{what}: {}", cost.usd())));
    }
    parts.extend(base.audio.map(|rate| format!("audio input: {rate}")));
    for (above, costs) in long(price) {
        let prompts = format!("prompts above {} tokens", figures::count(above.gt));
        parts.push(format!("{prompts}: {}", all(&costs, &[base, &above.rates])));
    }
    for (name, tier) in TIERS {
        let listed = price.tier(tier).zip(PerMillion::of(price, tier, 0));
        parts.extend(listed.map(|(rates, costs)| format!("{name}: {}", all(&costs, &[base, rates]))));
    }
    for (what, factor) in
        [("bound to the US", price.us), ("in one region", price.region), ("fast mode", price.fast)]
    {
        parts.extend(factor.map(|factor| format!("{what}: times {factor}")));
    }
    parts.extend(price.web_search.map(|search| format!("web search: ${} each", search.usd())));
    parts
}

/// The costs for all kinds of tokens that any of `lists` has a rate for.
fn all(costs: &PerMillion, lists: &[&Rates]) -> String {
    let has = |rate: fn(&Rates) -> bool| lists.iter().any(|rates| rate(rates));
    let kinds = [
        (true, "input", costs.input),
        (has(|rates| rates.cache_read.is_some()), "read", costs.cache_read),
        (has(|rates| rates.cache_write_5m.is_some()), "write 5m", costs.cache_write_5m),
        (has(|rates| rates.cache_write_1h.is_some()), "1h", costs.cache_write_1h),
        (has(|rates| rates.cache_write_12h.is_some()), "12h", costs.cache_write_12h),
        (true, "output", costs.output),
        (has(|rates| rates.reasoning.is_some()), "reasoning", costs.reasoning),
    ];
    let told = kinds.into_iter().filter(|(is_listed, ..)| *is_listed);
    told.map(|(_, kind, cost)| format!("{kind} {}", cost.usd())).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::{Catalogue, Rate, Stated, Vendor};

    fn quote(catalogue: &Catalogue, model: &str, upstream: Option<(&str, Vendor)>, detail: Detail) -> Quote {
        Quote {
            model: model.to_owned(),
            upstream: upstream.map(|(name, _)| name.to_owned()),
            detail,
            priced: catalogue.billed(model, upstream.map(|(_, vendor)| vendor)),
        }
    }

    fn stated() -> Catalogue {
        let rate = |usd| Rate::from_usd_per_million_str(usd).ok();
        let both = Stated { input: rate("0.000001"), output: rate("0.3"), ..Stated::default() };
        let read = Stated { cache_read: rate("0.7"), ..Stated::default() };
        let stated = [("own", both), ("gpt-5.5*", read)].map(|(name, stated)| (name.to_owned(), stated));
        Catalogue::with_overrides(stated.to_vec()).unwrap()
    }

    /// A model, where it is asked for, and the lines about it.
    type Case<'a> = (&'a Catalogue, &'a str, Option<(&'a str, Vendor)>, &'a [&'a str]);

    #[test]
    fn rates_without_a_column_are_shown_below_their_row() {
        let (listed, stated) = (Catalogue::embedded(), stated());
        let cases: [Case<'_>; 6] = [
            (
                &stated,
                "gpt-5.5",
                None,
                &[
                    "model    input  read  write 5m  1h  output     window",
                    "gpt-5.5      5   0.7         =   =      30  1,050,000",
                    "  configuration; what it leaves out is from the catalogue: gpt-5.5 of openai",
                    "  prompts above 272,000 tokens: input 10, read 1.4, output 45",
                    "  batch: input 2.5, read 0.35, output 15",
                    "  priority: input 12.5, read 1.75, output 75",
                    "  flex: input 2.5, read 0.35, output 15",
                    "  web search: $0.01 each",
                ],
            ),
            (
                &stated,
                "own",
                None,
                &[
                    "model     input  read  write 5m  1h  output  window",
                    "own    0.000001     =         =   =     0.3       –",
                    "  configuration",
                ],
            ),
            (
                &listed,
                "gpt-5.6-cyber",
                None,
                &[
                    "model          input  read  write 5m  1h  output   window",
                    "gpt-5.6-cyber   12.5  1.25    15.625  25      75  400,000",
                    "  catalogue 2026-11-21: gpt-5.6-cyber of openai",
                    "  1h is not listed: twice the input, as writes for 5m cost more than input",
                    "  writes for 12h: 31.25",
                    "  prompts above 272,000 tokens: input 25, read 2.5, write 5m 31.25, 12h 62.5, output 112.5",
                ],
            ),
            (
                &listed,
                "claude-opus-5-20260801",
                Some(("gcp", Vendor::Vertex)),
                &[
                    "model                   input  read  write 5m  1h  output     window",
                    "claude-opus-5-20260801      5   0.5      6.25  10      25  1,000,000",
                    "  at `upstream.gcp`: catalogue 2026-11-21: claude-opus-5 of vertex",
                    "  batch: input 2.5, read 0.25, write 5m 3.125, 1h 5, output 12.5",
                    "  in one region: times 1.1",
                    "  web search: $0.01 each",
                ],
            ),
            (
                &listed,
                "bedrock_mantle/us-gov-west-1/anthropic.claude-sonnet-5-5",
                None,
                &[
                    "model  input  read  write 5m   1h  output     window",
                    "bedrock_mantle/us-gov-west-1/anthropic.claude-sonnet-5-5",
                    "         2.4  0.12         3  4.8      12  1,000,000",
                    "  catalogue 2026-11-21: bedrock_mantle/us-gov-west-1/anthropic.claude-sonnet-5-5 of bedrock",
                ],
            ),
            (&listed, "nobodys", None, &[]),
        ];
        for (catalogue, model, upstream, expected) in cases {
            let lines = lines(&[quote(catalogue, model, upstream, Detail::Whole)]);
            assert_eq!(lines, expected, "{model}");
        }
    }

    /// Models, the ends of their rows, and the notes.
    type List<'a> = (&'a Catalogue, &'a [&'a str], &'a [&'a str], &'a [&'a str]);

    #[test]
    fn price_lists_have_a_row_per_model_and_explain_their_marks() {
        let (listed, stated) = (Catalogue::embedded(), stated());
        let dollars = "US dollars for a million tokens; = billed as input";
        let more = "+ has further rates; name the model, or use --json, to see them";
        let cases: [List<'_>; 4] = [
            (&stated, &["gpt-5.5", "own"], &["*+", "*"], &[dollars, more, "source: * configuration"]),
            (&stated, &["own"], &["*"], &[dollars, "source: * configuration"]),
            (
                &stated,
                &["own", "gpt-4o"],
                &["*", "+"],
                &[dollars, more, "source: * configuration, else catalogue 2026-11-21"],
            ),
            (&listed, &["x-ai/grok-4", "own"], &["0"], &[dollars, "source: catalogue 2026-11-21"]),
        ];
        for (catalogue, models, ends, expected) in cases {
            let quotes: Vec<Quote> =
                models.iter().map(|model| quote(catalogue, model, None, Detail::Line)).collect();
            let rows = lines(&quotes);
            assert_eq!(rows.len(), ends.len() + 1, "{models:?} {rows:?}");
            for (row, end) in rows.iter().skip(1).zip(ends) {
                assert!(row.ends_with(end), "{row:?} {end}");
            }
            assert_eq!(notes(&quotes), expected, "{models:?}");
        }
    }
}
