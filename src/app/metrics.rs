//! The counters, in Prometheus' text format.
//!
//! All of this process: it begins with 0. Costs are those that are known; what they say nothing about is counted
//! beside.

use std::fmt::{Display, Write as _};

use super::Core;
use super::tally::Sums;
use crate::server::Stats;

/// Everything that is counted.
pub(super) fn text(core: &Core, stats: &Stats) -> String {
    let mut page = Page::default();
    for (name, help, value) in [
        ("connections_total", "Connections accepted", stats.connections.value()),
        ("connections_open", "Connections open now", stats.open_connections.value()),
        ("requests_total", "Requests received", stats.requests.value()),
        ("refusals_total", "Answers that the gateway gave itself", stats.refusals.value()),
        ("bodies_unread_total", "Request bodies that went through unread", stats.unread_bodies.value()),
        ("requests_edited_total", "Requests that went out edited", stats.edited.value()),
        (
            "originals_resent_total",
            "Edited requests refused and sent again as they came",
            stats.originals_resent.value(),
        ),
        (
            "sent_again_total",
            "Requests refused because their prompt was too long, and sent again with a shorter one",
            stats.sent_again.value(),
        ),
        (
            "rewrite_timeouts_total",
            "Requests sent as they came because rewriting took too long",
            stats.prepare_timeouts.value(),
        ),
        ("panics_total", "Panics that were contained", stats.panics.value()),
        (
            "answers_undecodable_total",
            "Answers whose body could not be decoded for the books",
            stats.undecodable.value(),
        ),
        (
            "upstream_failures_total",
            "Requests without an answer from upstream",
            stats.upstream_failures.value(),
        ),
        ("upstream_breaks_total", "Answers that the upstream broke off", stats.upstream_breaks.value()),
        (
            "upstream_stalls_total",
            "Answers ended because the upstream fell silent",
            stats.upstream_stalls.value(),
        ),
        ("records_lost_total", "Records dropped because too many waited", core.tally.lost()),
    ] {
        page.plain(name, help, value);
    }
    page.booked(&core.tally.sums());
    page.text
}

/// A page of metrics.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    /// What was booked.
    fn booked(&mut self, sums: &Sums) {
        let (totals, tokens) = (&sums.totals, &sums.totals.tokens);
        self.plain("records_total", "Requests that were booked", totals.requests);
        self.plain("own_calls_total", "Calls of the gateway's own, such as for summaries", totals.own_calls);
        let by_kind = [
            ("input", tokens.input),
            ("cache_read", tokens.cache_read),
            ("cache_write_5m", tokens.cache_write_5m),
            ("cache_write_1h", tokens.cache_write_1h),
            ("cache_write_12h", tokens.cache_write_12h),
            ("output", tokens.output),
        ];
        self.labelled("tokens_total", "Tokens as the provider counts them", "kind", by_kind);
        let cost = totals.cost.map(|cost| cost.total).unwrap_or_default();
        self.plain("cost_dollars_total", "What is known of the cost", cost.usd());
        self.plain("cost_unknown_total", "Requests of unknown cost", totals.unknown());
        let net = totals.saved.net.unwrap_or_default();
        let help = "What the gateway saved, an estimate: negative where it made requests dearer";
        self.plain("net_saved_dollars", help, net.usd());
        self.plain(
            "saved_tokens_total",
            "Tokens that were not sent, an estimate",
            totals.saved.tokens_estimate,
        );
        let events = sums.events.iter().map(|(reason, count)| (&**reason, *count));
        self.labelled("events_total", "Changes to what had been sent before, by reason", "reason", events);
        let zones = sums.zones.iter().map(|(zone, count)| (&**zone, *count));
        self.labelled("prompts_total", "Prompts by how full the model's window was", "zone", zones);
        self.plain("spikes_total", "Prompts that grew much faster than was usual", sums.spikes);
        let loops = sums.doom_loops.iter().map(|(results, count)| (*results, *count));
        let help =
            "Requests whose turn ends in the same call three times or more, by how the results compare";
        let changed = "Requests whose instructions were other than those of their thread before";
        self.plain("volatile_instructions_total", changed, sums.volatile);
        self.labelled("doom_loops_total", help, "results", loops);
    }

    /// A metric with one value.
    fn plain(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, help);
        let _ = writeln!(self.text, "plimsoll_{name} {value}");
    }

    /// A metric with a value for each of some words, none of them chosen by a client.
    fn labelled<'a>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'a str, u64)>,
    ) {
        self.head(name, help);
        for (word, value) in values {
            let _ = writeln!(self.text, "plimsoll_{name}{{{label}=\"{word}\"}} {value}");
        }
    }

    fn head(&mut self, name: &str, help: &str) {
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        let _ = write!(self.text, "# HELP plimsoll_{name} {help}\n# TYPE plimsoll_{name} {kind}\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::tally::Tally;
    use crate::ledger::{Cost, DoomLoop, Edits, Event, Record, Shares, Window};
    use crate::usage::Tokens;

    #[test]
    fn what_was_booked_is_shown() {
        let tally = Tally::default();
        let event = Some(Event { reason: "break-even".into(), ..Event::default() });
        tally.book(&Record {
            status: Some(200),
            tokens: Some(Tokens { input: 7, cache_read: 900, output: 5, ..Tokens::default() }),
            cost: Some(Cost { total: 1_500_000_000_000, ..Cost::default() }),
            net_saved: Some(-250_000_000_000),
            edits: Edits { state: "edited".into(), event, ..Edits::default() },
            window: Some(Window { zone_sent: Some("green".into()), ..Window::default() }),
            prompt: Some(Shares { volatile_at: Some(4_000), ..Shares::default() }),
            doom_loop: Some(DoomLoop { same_results: Some(true), ..DoomLoop::default() }),
            ..Record::default()
        });
        tally.book(&Record { status: Some(200), ..Record::default() });
        let mut page = Page::default();
        page.booked(&tally.sums());
        let values: Vec<&str> = page.text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            values,
            [
                "plimsoll_records_total 2",
                "plimsoll_own_calls_total 0",
                "plimsoll_tokens_total{kind=\"input\"} 7",
                "plimsoll_tokens_total{kind=\"cache_read\"} 900",
                "plimsoll_tokens_total{kind=\"cache_write_5m\"} 0",
                "plimsoll_tokens_total{kind=\"cache_write_1h\"} 0",
                "plimsoll_tokens_total{kind=\"cache_write_12h\"} 0",
                "plimsoll_tokens_total{kind=\"output\"} 5",
                "plimsoll_cost_dollars_total 1.5",
                "plimsoll_cost_unknown_total 1",
                "plimsoll_net_saved_dollars -0.25",
                "plimsoll_saved_tokens_total 0",
                "plimsoll_events_total{reason=\"break-even\"} 1",
                "plimsoll_prompts_total{zone=\"green\"} 1",
                "plimsoll_spikes_total 0",
                "plimsoll_volatile_instructions_total 1",
                "plimsoll_doom_loops_total{results=\"same\"} 1",
            ]
        );
        let said = |what: &str| page.text.contains(what);
        assert!(said("# TYPE plimsoll_cost_dollars_total counter\n"), "{}", page.text);
        assert!(said("# TYPE plimsoll_net_saved_dollars gauge\n"), "{}", page.text);
    }
}
