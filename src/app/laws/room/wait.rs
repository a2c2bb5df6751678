//! However long a summary takes to be written, a request waits for it no longer than allowed.

use std::cell::Cell;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use proptest::prelude::*;
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

use super::settings::{Wants, wants};
use super::{long_scripts, play};
use crate::app::Core;
use crate::app::context::RequestContext;
use crate::app::laws::client::{Client, Script};
use crate::app::laws::faulty::Faulty;
use crate::app::laws::keys;
use crate::app::laws::rig::{self, Rig, headers};
use crate::planner::{Overflow, Policy};
use crate::protocol::conformance::{Subject, for_all};
use crate::protocol::{self, Protocol};
use crate::store::{Batch, Store, Summary};
use crate::strategy::gate::Reason;
use crate::strategy::ladder::Rung;
use crate::strategy::{clear, ladder, window};
use crate::upstream::{self, Upstream};

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It goes through.
    Plain,
    /// Another gateway is always first to decide.
    Raced,
    /// The provider finds it too long this many times.
    Refused(u8),
}

impl Fate {
    const fn refusals(self) -> u8 {
        if let Self::Refused(times) = self { times } else { 0 }
    }
}

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let fate =
        prop_oneof![4 => Just(Fate::Plain), 2 => Just(Fate::Raced), 1 => (1_u8..3).prop_map(Fate::Refused)];
    prop::collection::vec(fate, 6..24)
}

/// A summary writer that accepts calls and never answers.
struct Silence {
    upstream: Arc<Upstream>,
    _listener: TcpListener,
}

impl Silence {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let upstream = Arc::new(Upstream::new(upstream::Settings::new("silent", base)));
        Self { upstream, _listener: listener }
    }
}

/// A gateway whose clock is paused while something is done.
struct Patience {
    runtime: Runtime,
    core: Core,
    silence: Silence,
}

impl Patience {
    /// Sends a request, again if the provider rejects it, and begins the summary that is due then. Returns how long it
    /// has waited in all.
    fn of(&self, protocol: &'static dyn Protocol, headers: &HeaderMap, body: &Bytes, fate: Fate) -> Duration {
        let model = Some("gemini-2.5-pro");
        let send = |overflow| {
            self.core.rewrite(
                protocol,
                headers,
                body,
                RequestContext { model, overflow, ..RequestContext::default() },
            )
        };
        self.runtime.block_on(async {
            let began = Instant::now();
            let mut sent = send(None).await;
            for _ in 0..fate.refusals() {
                sent = send(Some(Overflow::default())).await;
            }
            let waited = began.elapsed();
            self.core.store.commit(Batch::default()).await.unwrap();
            let summaries = self.core.summaries.as_ref().expect("they are on");
            let like = Some("/v1/any".to_owned());
            let job =
                sent.prospect.and_then(|due| summaries.job(*due, &self.silence.upstream, like, headers));
            if let Some(job) = job {
                summaries.begin(job);
            }
            waited
        })
    }
}

/// Whatever happens to a request while its summary is being written, it waits for it no longer than `max_wait`.
#[test]
fn requests_wait_for_summaries_no_longer_than_max_wait() {
    let (rig, key, waited) = (Rig::new(), keys(), Cell::new(0));
    let store = rig.store("laws.db");
    let strategy = |_| (long_scripts(), wants(), fates(), 1_u64..20).boxed();
    let law = |subject: &'static dyn Subject,
               (script, wants, fates, seconds): (Script, Wants, Vec<Fate>, u64)| {
        rig::set_clock(0);
        let (wants, most) = (wants.narrow(), Duration::from_secs(seconds));
        let (faulty, silence) = (Arc::new(Faulty::new(Arc::clone(&store))), Silence::new());
        let summarize = crate::config::Summarize { max_wait: most, ..wants.summarize() };
        let limits = Some(Wants::limits());
        let held = Arc::clone(&faulty) as Arc<dyn Store>;
        let core = rig.summarising(held, wants.policy(), wants.prices(), &summarize, limits);
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let patience = Patience { runtime, core, silence };
        let (mut client, headers) = (Client::new(subject, script, 0), headers(&key(), "s"));
        for fate in fates {
            if !client.advance() {
                break;
            }
            let body = client.body().expect("a request");
            faulty.fail(if fate == Fate::Raced { 5 } else { 0 });
            let took = patience.of(subject.protocol(), &headers, &body, fate);
            prop_assert!(took <= most, "{:?} waited {:?} of {:?}", fate, took, most);
            waited.set(waited.get() + u32::from(!took.is_zero()));
        }
        Ok(())
    };
    play(|| for_all(32, strategy, law), || waited.get() >= 3);
    assert!(waited.get() >= 3, "hardly a request has waited: {waited:?}");
}

/// A conversation of this many short turns.
fn talk(turns: usize) -> Bytes {
    let says = |role: &str, at: usize| {
        let text = format!("{at} of the turns {}", "and a word ".repeat(20));
        format!(r#"{{"role":"{role}","content":"{text}"}}"#)
    };
    let turn = |at: usize| format!("{},{},", says("user", at), says("assistant", at));
    let said: String = (0..turns).map(turn).collect();
    format!(r#"{{"model":"m","messages":[{said}{}]}}"#, says("user", turns)).into()
}

/// The same, followed by this many results, and by another message if `more` is not empty.
fn working_talk(turns: usize, results: usize, more: &str) -> Bytes {
    let said = String::from_utf8(talk(turns).to_vec()).unwrap();
    let step = |at: usize| {
        let line = |line: usize| format!("{line} of result {at} is this\\n");
        let text: String = (0..300).map(line).collect();
        format!(
            r#",{{"role":"assistant","content":null,"tool_calls":[{{"id":"t{at}","type":"function","function":{{"name":"run","arguments":"{{}}"}}}}]}},{{"role":"tool","tool_call_id":"t{at}","content":"{text}"}}"#
        )
    };
    let steps: String = (0..results).map(step).collect();
    let more = if more.is_empty() {
        String::new()
    } else {
        format!(r#",{{"role":"assistant","content":"done"}},{{"role":"user","content":"{more}"}}"#)
    };
    format!("{}{steps}{more}]}}", said.strip_suffix("]}").unwrap()).into()
}

/// A gateway that makes room at half of a small window, only by dropping messages unless `change` sets its policy
/// otherwise.
fn making_room(rig: &Rig, name: &str, most: Duration, change: &dyn Fn(&mut Policy)) -> Core {
    let rig_policy = rig::policy(rig::QUIET);
    let mut policy = Policy {
        clear: clear::Settings { enabled: false, gate: vec![Reason::Window], ..rig_policy.clear },
        window: window::Settings {
            trigger: 0.5,
            target: 0.3,
            size: Some(16_000),
            ..window::Settings::default()
        },
        ladder: ladder::Settings { keep_turns: 1, least: 0.01, ..ladder::Settings::default() },
        ..rig_policy
    };
    change(&mut policy);
    let mut summarize = crate::config::Summarize { max_wait: most, ..crate::config::Summarize::default() };
    let settings = &mut summarize.settings;
    (settings.trigger, settings.keep_tokens, settings.length, settings.minimum_gain) = (0.05, 50, 20, 1);
    // What is stored later is handed over outside of the runtime: its clock would advance with the work that
    // accumulates there.
    let store = Arc::new(Faulty::new(rig.store(name)));
    rig.summarising(store, policy, rig::prices(rig::QUIET), &summarize, Some(Wants::limits()))
}

/// If messages would be dropped for a note, a summary that is being written is waited for, and used if it becomes
/// ready.
#[test]
fn dropping_for_a_note_waits_for_a_pending_summary() {
    let (rig, most) = (Rig::new(), Duration::from_secs(9));
    let protocol = protocol::named("openai-chat").unwrap();
    let mut number = 0;
    for messages in [None, Some(70)] {
        for (begins, gets_ready, waits, rung) in [
            (true, true, true, Rung::Summary),
            (true, false, true, Rung::Turns),
            (false, false, false, Rung::Turns),
        ] {
            number += 1;
            rig::set_clock(0);
            let core = making_room(&rig, &format!("{number}.db"), most, &|policy| {
                policy.ladder.messages = messages;
                policy.window.trigger = if messages.is_some() { 1.0 } else { 0.5 };
            });
            let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            let (silence, headers) = (Silence::new(), headers("key", "s"));
            let asked = RequestContext::default();
            let summaries = core.summaries.as_ref().expect("they are on");
            let (short, long) = (talk(30), talk(45));
            let (took, sent) = runtime.block_on(async {
                let first = core.rewrite(protocol, &headers, &short, asked).await;
                assert!(first.facts.event.is_none(), "there is room");
                core.store.commit(Batch::default()).await.unwrap();
                let prospect = *first.prospect.expect("a summary is due");
                let made: Option<Summary> = prospect.written("what was done");
                let like = Some("/v1/any".to_owned());
                let job = summaries.job(prospect, &silence.upstream, like, &headers).expect("it may be made");
                if begins {
                    summaries.begin(job);
                }
                let began = Instant::now();
                let in_the_meantime = async {
                    summaries.file(made.filter(|_| gets_ready)?);
                    Some(())
                };
                // The request comes first: the summary becomes ready while the request waits.
                let (sent, _) = tokio::join!(core.rewrite(protocol, &headers, &long, asked), in_the_meantime);
                (began.elapsed(), sent)
            });
            let event = sent.facts.event.expect("room is made");
            assert!(event.dropped > 0);
            let waited = if waits { most } else { Duration::ZERO };
            assert_eq!((event.rung, took), (rung, waited), "{messages:?} {begins}");
        }
    }
}

/// If clearing makes the room, nothing is lost without the summary that is being written, so no request waits for it.
/// Nor does one that fits although it is longer than it should be.
#[test]
fn requests_that_fit_without_a_summary_do_not_wait_for_one() {
    let (rig, most) = (Rig::new(), Duration::from_secs(9));
    let protocol = protocol::named("openai-chat").unwrap();
    let more = "and a word ".repeat(500);
    for (clears, drops, results, expected, waits) in [
        (true, true, 2, Some(Rung::Clear), false),
        (false, true, 2, Some(Rung::Turns), true),
        (false, false, 2, None, false),
        // Longer than the window, and nothing helps.
        (false, false, 6, None, true),
    ] {
        let case = format!("{clears}-{drops}-{results}");
        rig::set_clock(0);
        let core = making_room(&rig, &format!("{case}.db"), most, &|policy| {
            (policy.clear.enabled, policy.ladder.enabled) = (clears, drops);
        });
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let (silence, headers) = (Silence::new(), headers("key", "s"));
        let asked = RequestContext::default();
        let summaries = core.summaries.as_ref().expect("they are on");
        let (took, sent) = runtime.block_on(async {
            let first = core.rewrite(protocol, &headers, &working_talk(12, 0, ""), asked).await;
            core.store.commit(Batch::default()).await.unwrap();
            let prospect = *first.prospect.expect("a summary is due");
            let like = Some("/v1/any".to_owned());
            summaries
                .begin(summaries.job(prospect, &silence.upstream, like, &headers).expect("it may be made"));
            let second = core.rewrite(protocol, &headers, &working_talk(12, results, ""), asked).await;
            assert!(second.facts.event.is_none(), "{case}: {:?}", second.facts.event);
            core.store.commit(Batch::default()).await.unwrap();
            let began = Instant::now();
            let sent = core.rewrite(protocol, &headers, &working_talk(12, results, &more), asked).await;
            (began.elapsed(), sent)
        });
        let rung = sent.facts.event.map(|event| event.rung);
        assert_eq!((rung, took), (expected, if waits { most } else { Duration::ZERO }), "{case}");
    }
}
