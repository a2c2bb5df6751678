//! Gathers what the planner needs to know besides the request itself: prices, the window, reported prompt sizes, the
//! provider's cache.

use super::rewrite::Request;
use super::summaries::Summaries;
use crate::lineage::{Place, Relation};
use crate::planner::{self, Overflow};
use crate::strategy::compaction::Compaction;
use crate::strategy::gate::Rates;
use crate::usage::{Price, Vendor};

impl Request<'_> {
    /// The facts by which a request is planned.
    pub(super) fn planner_facts(&self, place: &Place) -> planner::Facts {
        let (model, price) = (self.model(), self.price());
        let kind = self.cache();
        let windows = &self.core.learned.windows;
        let learned = windows.of(self.context.upstream, model, self.now_ms);
        let head = place.chains[place.sent];
        let report = self.track.meter.report(head);
        // An answer that ended because the window was full counts as a refusal.
        let filled = self.core.recovers() && place.relation != Relation::Retry && windows.is_full(head);
        // An observing gateway plans as if it rewrote.
        let refuses = self.core.settings.recover.enabled
            && self.context.vendor.is_some_and(Vendor::refuses_what_is_too_long)
            && windows.reports_overflows(self.context.upstream)
            && !report.is_nothing();
        let end_ttl_ms = self.conversation.end_ttl_ms();
        let of_thread = |made: &Summaries| made.of_thread(&self.tuning(place).terms, &place.thread.id);
        let (spent, awaits_summary) = self.core.summaries.as_ref().map_or((0.0, false), of_thread);
        planner::Facts {
            spent,
            awaits_summary,
            rates: price
                .and_then(|price| price.shares(end_ttl_ms))
                .map(|(read, write)| Rates { read, write }),
            price: price.map(|price| price.base.input.picodollars() as f64),
            cold: self.is_cold(place),
            window: learned.or_else(|| price.and_then(|price| price.context_window)),
            overflow: self.context.overflow.or_else(|| filled.then(Overflow::default)),
            measured: report.figure().map(|figure| (figure.messages, figure.tokens)),
            measured_elsewhere: report.is_of_another(model),
            refuses,
            bytes_per_token: self.track.meter.bytes_per_token(model),
            now_ms: self.now_unix_ms(),
            ttl_ms: kind.ttl_ms(end_ttl_ms).unwrap_or(0),
            prelude: self.prelude_for(kind, place),
            cache: place.cache.0.half(),
            min_prefix_tokens: kind.min_prefix_tokens(),
            caches_without_marks: kind.is_automatic(),
            outlook: self.track.lineage.outlook(place.cache),
            debt: self.track.lineage.debt(place.cache),
            keeps_outputs: self.core.full_texts.are_kept(),
            max_output: Price::most_output(price, self.conversation.max_output),
            counted_output: self
                .conversation
                .max_output
                .filter(|_| self.habits.is_none_or(|habits| habits.counts_output))
                .unwrap_or(0),
            over_budget: self.core.budget.reached(&place.thread.conversation, self.now_ms).is_some(),
            compacting: self.compaction == Some(Compaction::Asked),
            had_tools: !self.conversation.has_tools && self.track.lineage.had_tools(place),
            bound: self.binding(),
            reads_reasoning: self.habits.is_some_and(|habits| habits.reads_old_reasoning)
                && !self.conversation.forgets_reasoning,
            ..planner::Facts::default()
        }
    }
}
