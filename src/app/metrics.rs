//! The counters, in Prometheus' text format.
//!
//! They count what this process has done, and begin with 0. Costs are the known ones; what is of unknown cost is
//! counted separately.

use std::fmt::{Display, Write as _};

use super::tally::{Cuts, EventSums, HIT_RATE_PROMPTS, Sums, Tally};
use crate::server::Stats;
use crate::store::Store;

/// Everything that is counted.
pub(super) fn text(store: &dyn Store, tally: &Tally, stats: &Stats) -> String {
    let mut page = Page::default();
    page.served(stats, store.lost(), store.failed_reads());
    page.booked(&tally.sums());
    page.text
}

/// The type of a metric that is a histogram.
const HISTOGRAM: &str = "histogram";

/// A label's value, escaped for use in quotes. Values from the configuration may hold any characters.
fn escaped(word: &str) -> String {
    word.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// A page of metrics.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    /// The counters of the server and the store.
    fn served(&mut self, stats: &Stats, lost: u64, failed_reads: u64) {
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
            (
                "records_lost_total",
                "Records dropped because too many waited, the store failed, or the gateway itself did",
                lost,
            ),
            (
                "store_read_failures_total",
                "Reads of the store that failed, for which a request may have left as it came",
                failed_reads,
            ),
        ] {
            self.plain(name, help, value);
        }
    }

    /// The sums of the records.
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
        self.plain(
            "cost_unknown_total",
            "Requests, and calls of the gateway's own, of unknown cost",
            totals.unknown(),
        );
        self.cache(sums);
        let net = totals.saved.net.unwrap_or_default();
        let help = "What the gateway saved, an estimate: negative where it made requests more expensive";
        self.plain("net_saved_dollars", help, net.usd());
        self.plain(
            "saved_tokens_total",
            "Tokens that were not sent, an estimate",
            totals.saved.tokens_estimate,
        );
        let would = &totals.would_have_saved;
        self.plain("observed_total", "Requests that rewriting would have shortened", totals.observed);
        let help = "Tokens that rewriting would not have sent, an estimate";
        self.plain("would_have_saved_tokens_total", help, would.tokens_estimate);
        let help = "Bytes of text that rewriting would not have sent";
        self.plain("would_have_saved_bytes_total", help, would.bytes);
        let help = "What rewriting would have saved, an estimate: negative where it would have cost more";
        self.plain("would_have_saved_dollars", help, would.net.unwrap_or_default().usd());
        self.events(sums);
        self.prompts(sums);
        self.own_calls(sums);
        self.sizes(sums);
    }

    /// What the provider's cache was worth.
    fn cache(&mut self, sums: &Sums) {
        let help = format!(
            "The share of the last {HIT_RATE_PROMPTS} prompts that was read from the provider's cache, 0 to 1"
        );
        match sums.cache_hit_rate() {
            Some(rate) => self.plain("cache_hit_rate", &help, rate),
            // Without any tokens there is no rate.
            None => self.head("cache_hit_rate", &help),
        }
        let cache = &sums.totals.cache;
        let help = "What is known of what the provider's cache saved against plain input: negative where writing to it cost \
                    more than reading from it spared";
        self.plain("cache_saved_dollars", help, cache.saved.unwrap_or_default().usd());
        let help = "Requests of which it is not known what the provider's cache saved";
        self.plain("cache_saved_unknown_total", help, cache.unknown);
    }

    /// The changes to old parts by events, and the cuts in new results.
    fn events(&mut self, sums: &Sums) {
        let events =
            |of: fn(&EventSums) -> u64| sums.events.iter().map(move |(reason, all)| (&**reason, of(all)));
        for (name, help, of) in [
            (
                "events_total",
                "Changes to what had been sent before, by reason",
                (|all| all.count) as fn(&EventSums) -> u64,
            ),
            ("results_cleared_total", "Results that these cleared", |all| all.cleared),
            ("events_freed_tokens_total", "Tokens that later requests are spared, an estimate", |all| {
                all.freed
            }),
            (
                "cache_tokens_invalidated_total",
                "Tokens that were in the provider's cache and are written to it again, an estimate",
                |all| all.rewritten,
            ),
        ] {
            self.labelled(name, help, "reason", events(of));
        }
        let cuts = |of: fn(&Cuts) -> u64| sums.truncations.iter().map(move |(tool, all)| (&**tool, of(all)));
        let help = "New results that were cut, by the tools that [truncate.tool] names";
        self.labelled("truncations_total", help, "tool", cuts(|all| all.count));
        let help = "Bytes that these were made shorter by";
        self.labelled("truncated_bytes_total", help, "tool", cuts(|all| all.bytes));
        self.plain("overflows_total", "Prompts that the provider refused as too long", sums.overflows);
    }

    /// How prompts fill the window, and what they are made of.
    fn prompts(&mut self, sums: &Sums) {
        let zones = sums.zones.iter().map(|(zone, count)| (&**zone, *count));
        self.labelled("prompts_total", "Prompts by how full the model's window was", "zone", zones);
        self.head("zone_transitions_total", "How often a thread came from one zone of the window to another");
        for ((from, to), count) in &sums.transitions {
            let labels = format!("from=\"{}\",to=\"{}\"", escaped(from), escaped(to));
            let _ = writeln!(self.text, "plimsoll_zone_transitions_total{{{labels}}} {count}");
        }
        let alerts = sums.alerts.iter().map(|(alert, count)| (*alert, *count));
        self.labelled("alerts_total", "Alerts logged about conversations", "alert", alerts);
        self.plain("spikes_total", "Prompts that grew much faster than was usual", sums.spikes);
        let shares = &sums.shares;
        let by_share = [
            ("tools", shares.tools),
            ("system", shares.system),
            ("user", shares.user),
            ("assistant", shares.assistant),
            ("reasoning", shares.reasoning),
            ("results", shares.results),
        ];
        let help = "Tokens of prompts by what they are made of, an estimate";
        self.labelled("prompt_tokens_total", help, "of", by_share);
        let changed = "Requests whose instructions were other than those of their thread before";
        self.plain("volatile_instructions_total", changed, sums.volatile);
        let loops = sums.doom_loops.iter().map(|(results, count)| (*results, *count));
        let help =
            "Requests whose turn ends in the same call three times or more, by how the results compare";
        self.labelled("doom_loops_total", help, "results", loops);
    }

    /// The gateway's own calls. The tokens and the cost of all requests include them.
    fn own_calls(&mut self, sums: &Sums) {
        let own = &sums.own;
        self.plain("summaries_total", "Summaries that were made", own.summaries);
        self.plain("own_seconds_total", "How long the gateway's own calls took", own.millis as f64 / 1e3);
        let tokens = [("input", own.tokens.prompt()), ("output", own.tokens.output)];
        self.labelled("own_tokens_total", "Tokens of the gateway's own calls", "kind", tokens);
        let cost = sums.totals.overhead.map(|cost| cost.total).unwrap_or_default();
        self.plain(
            "own_cost_dollars_total",
            "What is known of the cost of the gateway's own calls",
            cost.usd(),
        );
    }

    /// The histograms, each with one value for each request.
    fn sizes(&mut self, sums: &Sums) {
        let sizes = &sums.sizes;
        self.begin(
            "conversation_tokens",
            "Tokens of a conversation's request, as the provider counts them",
            HISTOGRAM,
        );
        for (kind, values) in [("input", &sizes.input), ("output", &sizes.output), ("total", &sizes.total)] {
            let labels = format!("kind=\"{kind}\"");
            values.write("plimsoll_conversation_tokens", &labels, &mut self.text);
        }
        for (name, help, values) in [
            ("conversation_messages", "Messages of a conversation's request", &sizes.messages),
            ("conversation_turns", "The turn of a conversation that a request belongs to", &sizes.turns),
            ("window_utilisation", "The prompt as a share of what it may have", &sizes.utilisation),
            ("prompt_growth_tokens", "Tokens that prompts grow by from request to request", &sizes.growth),
            ("results_share", "What tools answered as a share of the prompt, an estimate", &sizes.results),
            ("tools_share", "Definitions of tools as a share of the prompt, an estimate", &sizes.tools),
            ("compression_ratio", "Bytes of messages to a byte of what stands for them", &sizes.ratio),
            ("summary_fidelity", "The share of what can be looked for that a summary keeps", &sizes.fidelity),
            ("gateway_seconds", "How long requests were in the gateway before they left", &sizes.gateway),
        ] {
            self.begin(name, help, HISTOGRAM);
            values.write(&format!("plimsoll_{name}"), "", &mut self.text);
        }
    }

    /// A metric with one value.
    fn plain(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, help);
        let _ = writeln!(self.text, "plimsoll_{name} {value}");
    }

    /// A metric with one value for each of some words. No client chooses these words.
    fn labelled<'a>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'a str, u64)>,
    ) {
        self.head(name, help);
        for (word, value) in values {
            let _ = writeln!(self.text, "plimsoll_{name}{{{label}=\"{}\"}} {value}", escaped(word));
        }
    }

    fn head(&mut self, name: &str, help: &str) {
        self.begin(name, help, if name.ends_with("_total") { "counter" } else { "gauge" });
    }

    fn begin(&mut self, name: &str, help: &str, kind: &str) {
        let _ = write!(self.text, "# HELP plimsoll_{name} {help}\n# TYPE plimsoll_{name} {kind}\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::tally::Tally;
    use crate::ledger::words::State;
    use crate::ledger::{BodySizes, Cost, DoomLoop, Edits, Event, Made, Record, Shares, Window};
    use crate::usage::Tokens;

    /// Names chosen by the user may contain any characters.
    #[test]
    fn labels_are_escaped() {
        let mut page = Page::default();
        page.labelled("x", "y", "tool", [("a\"b\\c\nd", 1)]);
        assert_eq!(page.text.lines().last(), Some(r#"plimsoll_x{tool="a\"b\\c\nd"} 1"#));
    }

    /// Two requests of a thread.
    fn booked() -> Sums {
        let tally = Tally::default();
        let event = Event {
            reason: "break-even".into(),
            cleared: 2,
            freed_bytes: 800,
            rewritten_bytes: 400,
            ..Event::default()
        };
        let made = Made { rules: "truncate".to_owned(), before: 90, after: 20, ..Made::default() };
        let edits =
            Edits { state: State::Edited.into(), event: Some(event), made: vec![made], ..Edits::default() };
        let window = |zone: &'static str| Some(Window { zone_sent: Some(zone.into()), ..Window::default() });
        let thread = || Some("t".to_owned());
        tally.book(&Record {
            status: Some(200),
            tokens: Some(Tokens { input: 7, cache_read: 900, output: 5, ..Tokens::default() }),
            cost: Some(Cost {
                total: 1_500_000_000_000,
                cache_saved: Some(-7_500_000_000),
                ..Cost::default()
            }),
            net_saved: Some(-250_000_000_000),
            edits,
            thread: thread(),
            window: window("green"),
            prompt: Some(Shares { results: 30, volatile_at: Some(4_000), ..Shares::default() }),
            doom_loop: Some(DoomLoop { same_results: Some(true), ..DoomLoop::default() }),
            ..Record::default()
        });
        tally.book(&Record {
            status: Some(200),
            overflow: true,
            thread: thread(),
            window: window("red"),
            would_have_saved_estimate: Some(-125_000_000_000),
            bytes: BodySizes {
                would_have_saved: 90,
                would_have_saved_tokens_estimate: 20,
                ..BodySizes::default()
            },
            edits: Edits { state: State::Observed.into(), ..Edits::default() },
            ..Record::default()
        });
        tally.sums()
    }

    /// Each by its own name.
    #[test]
    fn every_counter_is_exported_by_its_own_name() {
        let stats = Stats::default();
        let counters = [
            (&stats.connections, "connections_total"),
            (&stats.open_connections, "connections_open"),
            (&stats.requests, "requests_total"),
            (&stats.refusals, "refusals_total"),
            (&stats.unread_bodies, "bodies_unread_total"),
            (&stats.edited, "requests_edited_total"),
            (&stats.originals_resent, "originals_resent_total"),
            (&stats.sent_again, "sent_again_total"),
            (&stats.prepare_timeouts, "rewrite_timeouts_total"),
            (&stats.panics, "panics_total"),
            (&stats.undecodable, "answers_undecodable_total"),
            (&stats.upstream_failures, "upstream_failures_total"),
            (&stats.upstream_breaks, "upstream_breaks_total"),
            (&stats.upstream_stalls, "upstream_stalls_total"),
        ];
        let names =
            counters.iter().map(|(_, name)| *name).chain(["records_lost_total", "store_read_failures_total"]);
        let expected: Vec<String> =
            (1..).zip(names).map(|(value, name)| format!("plimsoll_{name} {value}")).collect();
        (1..).zip(counters).for_each(|(value, (counter, _))| counter.add(value));
        let mut page = Page::default();
        page.served(&stats, 15, 16);
        let shown: Vec<&str> = page.text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(shown, expected);
    }

    #[test]
    fn booked_sums_are_exported() {
        let mut page = Page::default();
        page.booked(&booked());
        let is_of_a_histogram = |line: &str| {
            ["_bucket{", "_sum{", "_sum ", "_count{", "_count "].iter().any(|part| line.contains(part))
        };
        let lines = || page.text.lines().filter(|line| !line.starts_with('#'));
        let values: Vec<&str> = lines().filter(|line| !is_of_a_histogram(line)).collect();
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
                "plimsoll_cache_hit_rate 0.9922822491730982",
                "plimsoll_cache_saved_dollars -0.0075",
                "plimsoll_cache_saved_unknown_total 0",
                "plimsoll_net_saved_dollars -0.25",
                "plimsoll_saved_tokens_total 0",
                "plimsoll_observed_total 1",
                "plimsoll_would_have_saved_tokens_total 20",
                "plimsoll_would_have_saved_bytes_total 90",
                "plimsoll_would_have_saved_dollars -0.125",
                "plimsoll_events_total{reason=\"break-even\"} 1",
                "plimsoll_results_cleared_total{reason=\"break-even\"} 2",
                "plimsoll_events_freed_tokens_total{reason=\"break-even\"} 200",
                "plimsoll_cache_tokens_invalidated_total{reason=\"break-even\"} 100",
                "plimsoll_truncations_total{tool=\"other\"} 1",
                "plimsoll_truncated_bytes_total{tool=\"other\"} 70",
                "plimsoll_overflows_total 1",
                "plimsoll_prompts_total{zone=\"green\"} 1",
                "plimsoll_prompts_total{zone=\"red\"} 1",
                "plimsoll_zone_transitions_total{from=\"green\",to=\"red\"} 1",
                "plimsoll_alerts_total{alert=\"doom_loop\"} 1",
                "plimsoll_spikes_total 0",
                "plimsoll_prompt_tokens_total{of=\"tools\"} 0",
                "plimsoll_prompt_tokens_total{of=\"system\"} 0",
                "plimsoll_prompt_tokens_total{of=\"user\"} 0",
                "plimsoll_prompt_tokens_total{of=\"assistant\"} 0",
                "plimsoll_prompt_tokens_total{of=\"reasoning\"} 0",
                "plimsoll_prompt_tokens_total{of=\"results\"} 30",
                "plimsoll_volatile_instructions_total 1",
                "plimsoll_doom_loops_total{results=\"same\"} 1",
                "plimsoll_summaries_total 0",
                "plimsoll_own_seconds_total 0",
                "plimsoll_own_tokens_total{kind=\"input\"} 0",
                "plimsoll_own_tokens_total{kind=\"output\"} 0",
                "plimsoll_own_cost_dollars_total 0",
            ]
        );
        let said = |what: &str| page.text.contains(what);
        assert!(said("# TYPE plimsoll_cost_dollars_total counter\n"), "{}", page.text);
        for gauge in ["net_saved_dollars", "cache_hit_rate", "cache_saved_dollars"] {
            assert!(said(&format!("# TYPE plimsoll_{gauge} gauge\n")), "{}", page.text);
        }
        let mut page = Page::default();
        page.booked(&Sums::default());
        assert!(!page.text.contains("\nplimsoll_cache_hit_rate "), "{}", page.text);
        assert!(page.text.contains("\nplimsoll_cache_saved_dollars 0\n"), "{}", page.text);
    }

    #[test]
    fn sizes_are_shown_as_histograms() {
        let mut page = Page::default();
        page.booked(&booked());
        let lines = || page.text.lines().filter(|line| !line.starts_with('#'));
        let counts: Vec<&str> =
            lines().filter(|line| line.contains("_count{") || line.contains("_count ")).collect();
        assert_eq!(
            counts,
            [
                "plimsoll_conversation_tokens_count{kind=\"input\"} 1",
                "plimsoll_conversation_tokens_count{kind=\"output\"} 1",
                "plimsoll_conversation_tokens_count{kind=\"total\"} 1",
                "plimsoll_conversation_messages_count 0",
                "plimsoll_conversation_turns_count 0",
                "plimsoll_window_utilisation_count 0",
                "plimsoll_prompt_growth_tokens_count 0",
                "plimsoll_results_share_count 1",
                "plimsoll_tools_share_count 1",
                "plimsoll_compression_ratio_count 0",
                "plimsoll_summary_fidelity_count 0",
                "plimsoll_gateway_seconds_count 2",
            ]
        );
        let said = |what: &str| page.text.contains(what);
        assert!(said("# TYPE plimsoll_conversation_tokens histogram\n"), "{}", page.text);
        assert!(said("plimsoll_conversation_tokens_bucket{kind=\"total\",le=\"1000\"} 1\n"), "{}", page.text);
    }
}
