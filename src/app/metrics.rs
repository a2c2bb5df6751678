//! The counters, in Prometheus' text format.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use super::Core;
use crate::server::Stats;

/// Everything that is counted, one line each.
pub(super) fn text(core: &Core, stats: &Stats) -> String {
    let rows = [
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
        ("records_lost_total", "Records dropped because too many waited", core.lost.load(Ordering::Relaxed)),
    ];
    let mut text = String::new();
    for (name, help, value) in rows {
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        let _ = write!(
            text,
            "# HELP plimsoll_{name} {help}\n# TYPE plimsoll_{name} {kind}\nplimsoll_{name} {value}\n"
        );
    }
    text
}
