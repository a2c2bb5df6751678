//! The whole demonstration, except for its output.

use std::collections::BTreeSet;

use super::*;
use crate::ledger::Cost;
use crate::shape::Rule;

fn demonstrate(home: &Home) -> (Outcome, Arc<Provider>) {
    let session = Arc::new(Session::new());
    let provider = Arc::new(Provider::new(Arc::clone(&session), MODEL, 512, Counter::new(home.path())));
    (play(home, &session, &provider).unwrap(), provider)
}

#[test]
fn the_demo_applies_every_rule_and_breaks_caches_only_in_events() {
    let home = Home::new(None).unwrap();
    let (outcome, provider) = demonstrate(&home);
    let (with, without) = sides(&outcome, &provider).unwrap();
    assert!(with.costs.total < without.costs.total);
    assert_eq!(outcome.records.len(), outcome.without.usage.len());

    let rules: BTreeSet<&str> =
        outcome.records.iter().flat_map(|record| record.edits.parts.keys().map(String::as_str)).collect();
    let shapers: BTreeSet<&str> = Rule::ALL.into_iter().map(Rule::as_str).collect();
    assert!(rules.is_superset(&shapers), "{rules:?}");

    // Once sent, tokens are read from the cache from then on, up to where an event changed them.
    let mut cached = 0;
    for record in &outcome.records {
        let tokens = record.tokens.unwrap();
        match record.edits.event {
            Some(_) => assert!(tokens.cache_read < cached),
            None => assert_eq!(tokens.cache_read, cached),
        }
        cached = tokens.cache_read + tokens.cache_write();
    }
}

#[test]
fn demo_figures_are_reproducible_and_checked_against_the_provider() {
    let (dir, home) = (tempfile::tempdir().unwrap(), Home::new(None).unwrap());
    let elsewhere = Home::new(Some(&dir.path().join("a/rather/long/path/to/keep/it/in"))).unwrap();
    let (outcome, provider) = demonstrate(&home);
    let (mut outcome_elsewhere, provider_elsewhere) = demonstrate(&elsewhere);
    for account in [WITH, WITHOUT] {
        assert_eq!(provider.served(account), provider_elsewhere.served(account));
    }
    assert_eq!(outcome.report.total.tokens, outcome_elsewhere.report.total.tokens);

    let too_much = Some(Cost { total: 1, ..Cost::default() });
    outcome_elsewhere.report.total.add(&Record { cost: too_much, ..Record::default() });
    let failure = sides(&outcome_elsewhere, &provider_elsewhere).unwrap_err().to_string();
    assert!(failure.starts_with("the books say $0.") && failure.contains(", the provider $0."), "{failure}");
}
