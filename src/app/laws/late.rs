//! Requests that run out of time while they are read, or that the gateway fails to prepare.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, StatusCode};

use super::rig::{self, QUIET, Rig, headers, policy, prices};
use crate::app::context::RequestContext;
use crate::app::{Sidecar, metrics};
use crate::planner::Policy;
use crate::protocol;
use crate::server::{Deadline, End, Form, Gateway, Inbound, Prepared, Rejection, Remedy, Stats, Unprepared};
use crate::store::Batch;
use crate::strategy::summary::Checkpoint;
use crate::strategy::{ladder, window};
use crate::upstream::{Settings, Upstream};

/// A refusal of a prompt.
const TOO_LONG: &[u8] = br#"{"error":{"message":"too long","code":"context_length_exceeded"}}"#;
/// How often the metrics are read, at most, until both requests are booked: for a minute or more.
const MAX_POLLS: usize = 1_000_000;
/// The marker of a cut.
const CUT: &str = "bytes removed here";

/// A conversation in which a tool has returned these results.
fn talk(results: &[String]) -> Bytes {
    let called = |(at, result): (usize, &String)| {
        format!(
            r#",{{"role":"assistant","tool_calls":[{{"id":"c{at}","type":"function","function":{{"name":"run","arguments":"{{}}"}}}}]}},{{"role":"tool","tool_call_id":"c{at}","content":"{result}"}}"#
        )
    };
    let called: String = results.iter().enumerate().map(called).collect();
    format!(r#"{{"model":"m","messages":[{{"role":"user","content":"Go on"}}{called}]}}"#).into()
}

/// What was sent in edited form before is sent in that form again, however late that is known; what is new is sent as
/// received, and stays so.
#[test]
fn late_requests_are_sent_with_their_former_edits_only() {
    let protocol = protocol::named("openai-chat").unwrap();
    let short = |at: usize| format!("{at}");
    let long = |at: usize| {
        (0..60).map(|line| format!(r"{at}, line {}\n", line * 7 % 61)).collect::<Vec<_>>().concat()
    };
    let wants = || Policy { clear: policy(QUIET).clear, ..policy(0) };
    for (number, (before, late, cuts)) in [
        // A history that was edited before, one that was not, and none.
        (vec![long(0)], vec![long(0), short(1)], 1),
        (vec![short(0)], vec![short(0), long(1)], 0),
        (vec![], vec![long(0)], 0),
    ]
    .into_iter()
    .enumerate()
    {
        rig::set_clock(0);
        let rig = Rig::new();
        let core = rig.core(rig.store(&format!("{number}.db")), wants(), prices(0));
        let headers = headers("key", "s");
        let after = [late.clone(), vec![short(9)]].concat();
        let left = |results: &[String], is_late: bool| {
            let body = talk(results);
            let until = Deadline::new(Instant::now(), Duration::from_secs(9));
            assert!(!is_late || !until.leave(), "it is still read");
            let asked = RequestContext { until: Some(&until), ..RequestContext::default() };
            let sent = rig.within(async {
                let sent = core.rewrite(protocol, &headers, &body, asked).await;
                core.store.commit(Batch::default()).await.unwrap();
                sent
            });
            // A request that has left by now was sent as received.
            let wire = sent.body.filter(|_| !until.has_left()).unwrap_or(body);
            let cuts = std::str::from_utf8(&wire).unwrap().matches(CUT).count();
            (cuts, until.has_left())
        };
        if !before.is_empty() {
            assert!(!left(&before, false).1);
        }
        assert_eq!(left(&late, true), (cuts, cuts == 0), "{number}");
        assert_eq!(left(&after, false), (cuts, false), "{number}: what left whole stays so");
    }
}

/// Gateway time does not include uploads, nor attempts that the provider has refused.
#[test]
fn gateway_time_excludes_uploads_and_refused_attempts() {
    const LONG: Duration = Duration::from_secs(60);
    rig::set_clock(0);
    let rig = Rig::new();
    let wants = Policy {
        window: window::Settings { size: Some(8_000), ..window::Settings::default() },
        ladder: ladder::Settings::default(),
        ..policy(QUIET)
    };
    let core = Arc::new(rig.core(rig.store("a.db"), wants, prices(QUIET)));
    let sidecar = Sidecar { core: Arc::clone(&core) };
    let until = || Deadline::new(Instant::now(), LONG);
    let inbound = |body: Bytes, has_uploaded: bool| {
        let (mut head, ()) = Request::post("/v1/chat/completions").body(()).unwrap().into_parts();
        head.headers = headers("key", "s");
        let upstream = Arc::new(Upstream::new(Settings::new("u", "http://127.0.0.1:9".parse().unwrap())));
        let (now, received_at) = (Instant::now(), Instant::now().checked_sub(LONG).unwrap());
        let read_at = if has_uploaded { now } else { received_at };
        Inbound { head: Arc::new(head), body, upstream, received_at, read_at }
    };
    let uploaded = rig.within(sidecar.prepare(inbound(talk(&[]), true), until()));
    let rejection = Rejection { status: StatusCode::BAD_REQUEST, body: Bytes::from_static(TOO_LONG) };
    let long: Vec<String> = (0..9).map(|at| format!("{at} {}", "many words ".repeat(900))).collect();
    let again = rig.within(sidecar.again(inbound(talk(&long), false), rejection, 1, until()));
    for Prepared { exchange, .. } in [uploaded, again.unwrap()] {
        let mut exchange = exchange.unwrap();
        exchange.sent(Form::Edited);
        exchange.response(StatusCode::OK, &HeaderMap::new());
        exchange.data(br#"{"choices":[]}"#);
        exchange.end(End::Complete);
    }
    let shown = || metrics::text(&*core.store, &core.tally, &Stats::default());
    let mut polls = (0..MAX_POLLS).map(|_| {
        rig.within(tokio::task::yield_now());
        shown()
    });
    let shown =
        polls.find(|shown| shown.contains("plimsoll_gateway_seconds_count 2\n")).expect("both are booked");
    let sum = shown.lines().find_map(|line| line.strip_prefix("plimsoll_gateway_seconds_sum ")).unwrap();
    assert!(sum.parse::<f64>().unwrap() < LONG.as_secs_f64(), "{sum}");
}

/// A request that could not be rewritten in time is shortened like any other if the provider finds it too long,
/// provided that it can be read then.
#[test]
fn a_late_request_refused_as_too_long_is_shortened_and_resent() {
    let long = |at: usize| format!("{at} {}", "many words ".repeat(900));
    let results: Vec<String> = (0..9).map(long).collect();
    let unread = Bytes::from_static(b"no request");
    let upstream = Arc::new(Upstream::new(Settings::new("u", "http://127.0.0.1:9".parse().unwrap())));
    for (number, (before, body, is_recovered)) in
        [(Some(8), talk(&results), true), (None, talk(&results), true), (None, unread, false)]
            .into_iter()
            .enumerate()
    {
        rig::set_clock(0);
        let rig = Rig::new();
        let wants = Policy {
            window: window::Settings { size: Some(8_000), ..window::Settings::default() },
            ladder: ladder::Settings::default(),
            ..policy(QUIET)
        };
        let core = rig.core(rig.store(&format!("{number}.db")), wants, prices(QUIET));
        let sidecar = Sidecar { core: Arc::new(core) };
        let inbound = |body: Bytes| {
            let (mut head, ()) = Request::post("/v1/chat/completions").body(()).unwrap().into_parts();
            head.headers = headers("key", "s");
            let (upstream, received_at) = (Arc::clone(&upstream), Instant::now());
            Inbound { head: Arc::new(head), body, upstream, received_at, read_at: received_at }
        };
        let until = || Deadline::new(Instant::now(), Duration::from_secs(9));
        if let Some(before) = before {
            let before = inbound(talk(&results[..before]));
            assert!(rig.within(sidecar.prepare(before, until())).refusal.is_none());
        }
        let late = inbound(body.clone());
        let left = sidecar.unprepared(late.clone(), Unprepared::TimedOut);
        let mut left = left.exchange.expect("it is followed");
        let rejection = Rejection { status: StatusCode::BAD_REQUEST, body: Bytes::from_static(TOO_LONG) };
        let remedy = left.rejected(rejection.status, &HeaderMap::new(), &rejection.body);
        assert_eq!(remedy, Remedy::Again);
        let again = rig.within(sidecar.again(late, rejection, 1, until()));
        let sent = again.and_then(|again| again.body);
        assert_eq!(sent.is_some(), is_recovered, "{number}");
        assert!(sent.is_none_or(|sent| sent.len() < body.len() * 3 / 4), "{number}");
    }
}

/// A conversation does not begin without its checkpoint because the gateway fails; one that goes on, goes on.
#[test]
fn a_first_request_that_was_not_prepared_is_refused_if_it_names_a_checkpoint() {
    rig::set_clock(0);
    let rig = Rig::new();
    let core = rig.core(rig.store("a.db"), policy(QUIET), prices(QUIET));
    let text = Checkpoint { version: 1, goal: "goal".to_owned(), ..Checkpoint::default() }.to_json();
    core.checkpoints.write("there", "json", &text).unwrap();
    let sidecar = Sidecar { core: Arc::new(core) };
    let upstream = Arc::new(Upstream::new(Settings::new("u", "http://127.0.0.1:9".parse().unwrap())));
    let inbound = |checkpoint: Option<&'static str>| {
        let (mut head, ()) = Request::post("/v1/chat/completions").body(()).unwrap().into_parts();
        head.headers = headers("key", "s");
        if let Some(checkpoint) = checkpoint {
            head.headers.insert("x-plimsoll-checkpoint", HeaderValue::from_static(checkpoint));
        }
        let (upstream, received_at) = (Arc::clone(&upstream), Instant::now());
        Inbound { head: Arc::new(head), body: talk(&[]), upstream, received_at, read_at: received_at }
    };
    let refused = |checkpoint| {
        let left = sidecar.unprepared(inbound(checkpoint), Unprepared::Panicked);
        assert!(left.exchange.is_some());
        left.refusal.map(|fault| fault.status.as_u16())
    };
    for (checkpoint, expected) in [(None, None), (Some("there"), Some(503)), (Some("none"), Some(400))] {
        assert_eq!(refused(checkpoint), expected, "{checkpoint:?}");
    }
    let until = Deadline::new(Instant::now(), Duration::from_secs(9));
    assert!(rig.within(sidecar.prepare(inbound(Some("there")), until)).body.is_some());
    assert_eq!(refused(Some("there")), None);
}
