//! Jobs against a scripted server, on a clock that does not wait.

mod begun;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use serde_json::json;
use tokio::time::Instant;

use super::transport::{Lost, Transport};
use super::*;
use crate::conversation::{Digest, NoMemo};
use crate::protocol;
use crate::upstream;

/// What the server does with a call.
#[derive(Clone)]
enum Reply {
    Says(&'static str),
    Status(u16, &'static str),
    CutOff,
    /// Has too much to do, and says for how many seconds.
    Asks(u64),
    Breaks,
    Closed,
    Hangs,
    /// Says nothing of use, and the client sums up by itself meanwhile.
    Late,
}

const GOOD: &str = "<summary>\n## Done\n- the parser\n## Next\n- the printer\n</summary>";
const OTHER: &str = "<summary>\n## Done\n- the parser, the printer\n## Next\n- tests\n</summary>";
const OVERFLOW: &str = r#"{"error":{"message":"too long","code":"context_length_exceeded"}}"#;

/// Answers by its script, repeating the last line forever, and remembers what it was asked.
struct Script {
    replies: Mutex<VecDeque<Reply>>,
    prompts: Mutex<Vec<String>>,
    unwanted: watch::Sender<bool>,
}

impl Script {
    fn new(replies: &[Reply]) -> Self {
        Self {
            replies: Mutex::new(replies.iter().cloned().collect()),
            prompts: Mutex::default(),
            unwanted: watch::Sender::default(),
        }
    }

    fn prompts(&self) -> Vec<String> {
        self.prompts.lock().unwrap().clone()
    }
}

fn answered(status: u16, body: String, retry_after: Option<Duration>) -> transport::Reply {
    transport::Reply { status, body: body.into(), retry_after }
}

impl Transport for Script {
    async fn post(
        &self,
        _: &Upstream,
        path: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<transport::Reply, Lost> {
        assert_eq!((path, headers.len()), ("/v1/chat/completions", 1));
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        self.prompts.lock().unwrap().push(body["messages"][0]["content"].as_str().unwrap().to_owned());
        let reply = {
            let mut replies = self.replies.lock().unwrap();
            if replies.len() > 1 { replies.pop_front().unwrap() } else { replies[0].clone() }
        };
        let answer = |text: &str, stop: &str| {
            let answer = json!({"id": "a", "model": "gpt-4", "usage": {"prompt_tokens": 1000, "completion_tokens": 100},
                "choices": [{"finish_reason": stop, "message": {"role": "assistant", "content": text}}]});
            Ok(answered(200, answer.to_string(), None))
        };
        match reply {
            Reply::Says(text) => answer(text, "stop"),
            Reply::CutOff => answer(GOOD, "length"),
            Reply::Status(status, body) => Ok(answered(status, body.to_owned(), None)),
            Reply::Asks(seconds) => Ok(answered(429, "{}".to_owned(), Some(Duration::from_secs(seconds)))),
            Reply::Breaks => Err(Lost::Unanswered("the connection broke".to_owned())),
            Reply::Closed => Err(Lost::Unsent("nobody is there".to_owned())),
            Reply::Hangs => std::future::pending().await,
            Reply::Late => {
                self.unwanted.send_replace(true);
                answer("I would rather not.", "stop")
            }
        }
    }
}

/// A history of this many steps, each with a result of 400 bytes.
fn talk(steps: usize) -> Conversation {
    let mut messages = vec![json!({"role": "user", "content": "Write a parser"})];
    for step in 0..steps {
        messages
            .push(json!({"role": "assistant", "tool_calls": [{"id": format!("t{step}"), "type": "function",
            "function": {"name": "run", "arguments": "{}"}}]}));
        messages.push(json!({"role": "tool", "tool_call_id": format!("t{step}"),
            "content": format!("[step {step}]{}", "x".repeat(390))}));
    }
    let body = json!({"model": "gpt-4", "messages": messages}).to_string();
    protocol::named("openai-chat").unwrap().index(&Bytes::from(body), &NoMemo).unwrap()
}

fn job(steps: usize, window: u64) -> Job {
    let conversation = talk(steps + 1);
    let messages: Vec<usize> = (1..=2 * steps).collect();
    let bytes = messages.iter().map(|at| conversation.messages[*at].span.len() as u64).sum();
    let base = "http://127.0.0.1:9".parse().unwrap();
    let headers = [(http::header::AUTHORIZATION, "Bearer secret".parse().unwrap())].into_iter().collect();
    let task = Task {
        thread: "t".to_owned(),
        conversation_id: "c".to_owned(),
        chain: Chain(Digest::of(&[b"history"])),
        end: 2 * steps + 1,
        conversation,
        messages,
        sent: HashMap::new(),
        previous: None,
        generation: 1,
        bytes,
        bytes_per_token: 4.0,
        settings: Arc::new(summary::Settings { minimum_gain: 100, length: 500, ..Default::default() }),
        allowance: None,
        expected: None,
        now_ms: 5,
    };
    Job {
        task,
        call: Call {
            upstream: Arc::new(Upstream::new(upstream::Settings::new("test", base))),
            protocol: protocol::named("openai-chat").unwrap(),
            model: "gpt-4".to_owned(),
            like: None,
            headers,
            window,
        },
        is_doubted: false,
    }
}

/// The same with another task.
fn with(job: Job, change: impl FnOnce(&mut Task)) -> Job {
    let mut job = job;
    change(&mut job.task);
    job
}

fn limits() -> Limits {
    Limits { timeout: Duration::from_secs(100), max_output: 1000, ..Limits::default() }
}

/// Does a job by a script: how it ended, and after how many seconds.
fn play(job: Job, limits: &Limits, script: &Script) -> (Done, u64) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let prices = Arc::new(Catalogue::with_overrides(Vec::new()).unwrap());
        let report: Report = Box::new(|_| ());
        let (began, mut calls, purse) =
            (Instant::now(), Calls::new(&report), Purse::new(prices, limits.per_hour));
        let outcome = work::run(&job, script, limits, &purse, &script.unwanted.subscribe(), &mut calls).await;
        let done = calls.done(Arc::new(job), outcome);
        (done, began.elapsed().as_secs())
    })
}

#[test]
fn server_failures_are_retried_split_or_reported() {
    use Reply::{Asks, Breaks, Closed, CutOff, Hangs, Late, Says, Status};
    let garbage = Says("I would rather not.");
    let failed = |why: &str| Err(why.to_owned());
    for (script, expected, calls, seconds) in [
        (vec![Says(GOOD)], Ok(()), 1, 0),
        (vec![Status(503, "{}"), Status(429, "{}"), Says(GOOD)], Ok(()), 3, 3),
        (vec![Breaks, Says(GOOD)], Ok(()), 2, 1),
        (vec![Closed, Says(GOOD)], Ok(()), 2, 1),
        (vec![Asks(60), Says(GOOD)], Ok(()), 2, 60),
        // Not before the time is up.
        (vec![Asks(101)], failed("status 429"), 1, 0),
        (vec![Asks(60)], failed("status 429"), 2, 60),
        (vec![garbage.clone(), Says(GOOD)], Ok(()), 2, 1),
        (vec![Status(500, "")], failed("status 500"), 3, 3),
        (vec![Status(401, "{}")], failed("status 401"), 1, 0),
        (vec![Status(400, r#"{"error":{"message":"no"}}"#)], failed("status 400"), 1, 0),
        (vec![CutOff], failed("the answer is not whole"), 3, 3),
        (vec![Breaks], failed("the connection broke"), 3, 3),
        (vec![Hangs], failed("not done in time"), 1, 100),
        (vec![garbage], failed("what the model wrote is no summary: no summary between its tags"), 3, 3),
        // The answered calls are on the bill, and no more calls are made.
        (vec![Late], failed("the client made a summary of its own"), 1, 1),
        // Then in two halves.
        (vec![Status(400, OVERFLOW), Says(GOOD)], Ok(()), 3, 0),
        (vec![Status(400, OVERFLOW)], failed("the history is too long for the summariser"), 3, 0),
    ] {
        let unsent = script.iter().filter(|reply| matches!(reply, Closed)).count();
        let script = Script::new(&script);
        let (done, took) = play(job(20, 8_192), &limits(), &script);
        let outcome = done.outcome.as_ref().map(|_| ()).map_err(ToString::to_string);
        assert_eq!((outcome, script.prompts().len(), took), (expected, calls, seconds));
        let costs = done.calls.iter().filter(|call| call.bill.is_some()).count();
        assert_eq!(costs, done.calls.iter().filter(|call| call.usage.is_some()).count());
        assert!(done.calls.iter().all(|call| (call.answer.as_deref() == Some("a")) == call.usage.is_some()));
        // What the server may have worked on is noted, and whether the gateway itself gave it up.
        assert_eq!(done.calls.len(), calls - unsent);
        let gives_up = done.outcome == Err(Failure::TimedOut);
        assert!(done.calls.iter().all(|call| gives_up == (call.lost == Some(Failure::TimedOut))));
        assert!(done.calls.iter().all(|call| call.lost.is_some() == call.status.is_none()));
        // And which answers were of use.
        let is_of_use = done.calls.iter().any(|call| call.lost.is_none() && call.missed.is_none());
        assert_eq!(is_of_use, done.outcome.is_ok());
        let missed = done.calls.iter().filter(|call| call.missed.is_some()).count();
        assert!(missed + 2 >= calls - unsent || done.outcome.is_err());
    }
}

#[test]
fn a_finished_job_returns_a_summary_of_the_removed_messages() {
    let script = Script::new(&[Reply::Says(GOOD)]);
    let (done, _) = play(job(20, 100_000), &limits(), &script);
    let made = done.outcome.unwrap();
    assert_eq!((made.chain, made.end, &*made.thread, made.generation), (done.job.task.chain, 41, "t", 1));
    assert!(made.text.contains("- the printer") && made.text.starts_with("[plimsoll: "), "{}", made.text);
    assert_eq!(made.outline, "## Next\n- the printer\n\n## Done\n- the parser");
    assert_eq!(made.recipe, summary::prompt::recipe(&done.job.task.settings));
    let prompts = script.prompts();
    assert!(prompts[0].contains("Write a parser") && prompts[0].contains("[step 19]"));
    assert!(!prompts[0].contains("[step 20]"), "what stays is not summarised");
    assert!(!prompts[0].contains("secret"));
}

#[test]
fn a_long_history_is_summarised_in_chunks() {
    let script = Script::new(&[Reply::Says(GOOD), Reply::Says(OTHER)]);
    let (done, _) = play(job(60, 8_192), &limits(), &script);
    assert!(done.outcome.is_ok());
    let prompts = script.prompts();
    assert!((2..=16).contains(&prompts.len()), "{}", prompts.len());
    let all: String = prompts.concat();
    assert!((0..60).all(|step| all.matches(&format!("[step {step}]")).count() == 1), "each is read once");
    assert!(!prompts[0].contains("The memory so far") && prompts[1].contains("- the printer"));
    assert!(prompts.iter().all(|prompt| prompt.len() < 8_192 * 4));
    let few = Limits { calls: 1, ..limits() };
    let (done, _) = play(job(60, 8_192), &few, &script);
    assert_eq!(done.outcome.map(|_| ()), Err(Failure::TooLong));
}

/// Repeated calls count, and none is made that cannot lead to a whole summary.
#[test]
fn calls_including_retries_are_limited() {
    use Reply::{Says, Status};
    let busy = || Status(503, "{}");
    let failed = |why: &str| Err(why.to_owned());
    let (too_long, status) = ("the history is too long for the summariser", "status 503");
    // Three pieces.
    for (most, script, expected, calls) in [
        (3, vec![Says(GOOD)], Ok(()), 3),
        (2, vec![Says(GOOD)], failed(too_long), 0),
        (4, vec![Says(GOOD), busy(), Says(GOOD)], Ok(()), 4),
        (5, vec![busy(), Says(GOOD), busy(), Says(GOOD)], Ok(()), 5),
        (4, vec![busy(), Says(GOOD), busy(), Says(GOOD)], failed(status), 3),
        (4, vec![busy()], failed(status), 2),
        (9, vec![busy()], failed(status), 3),
        (3, vec![busy()], failed(status), 1),
        // The second and the third piece in two halves each.
        (6, vec![Says(GOOD), Status(400, OVERFLOW), Says(GOOD)], Ok(()), 6),
        (5, vec![Says(GOOD), Status(400, OVERFLOW), Says(GOOD)], failed(too_long), 2),
    ] {
        let script = Script::new(&script);
        let (done, _) = play(job(60, 8_192), &Limits { calls: most, ..limits() }, &script);
        let outcome = done.outcome.map(|_| ()).map_err(|failure| failure.to_string());
        assert_eq!((outcome, script.prompts().len()), (expected, calls), "at most {most}");
    }
}

/// After a useless answer, another one is requested only if the job may cost that much. Calls that cost nothing are
/// tried as before.
#[test]
fn retries_of_paid_calls_are_limited_by_the_jobs_allowance() {
    use Reply::{Breaks, CutOff, Says, Status};
    let garbage = || Says("I would rather not.");
    let busy = || Status(503, "{}");
    // What an answer of the script costs.
    let (done, _) = play(job(20, 100_000), &limits(), &Script::new(&[garbage()]));
    let answer = done.calls[0].bill.as_ref().unwrap().total.picodollars() as f64;
    for (steps, window, most, script, calls) in [
        (20, 100_000, None, vec![garbage()], 3),
        (20, 100_000, Some(1.5), vec![garbage()], 1),
        (20, 100_000, Some(2.5), vec![garbage()], 2),
        (20, 100_000, Some(9.0), vec![garbage()], 3),
        (20, 100_000, Some(1.5), vec![CutOff], 1),
        (20, 100_000, Some(1.5), vec![busy(), garbage()], 2),
        (20, 100_000, Some(2.5), vec![garbage(), busy(), garbage()], 3),
        (20, 100_000, Some(1.5), vec![busy()], 3),
        (20, 100_000, Some(1.5), vec![Breaks], 3),
        // The other two pieces must be read as well.
        (60, 8_192, Some(3.5), vec![garbage(), Says(GOOD)], 1),
        (60, 8_192, Some(4.5), vec![garbage(), Says(GOOD)], 4),
    ] {
        for per_picodollar in [Some(1.0), Some(1.0 / answer), None] {
            let unit = per_picodollar.map_or(7.0, |per_picodollar| answer * per_picodollar);
            let allowance = most.map(|most| Allowance { most: most * unit, expected: unit, per_picodollar });
            let script = Script::new(&script);
            play(with(job(steps, window), |task| task.allowance = allowance), &limits(), &script);
            assert_eq!(script.prompts().len(), calls, "{most:?} {steps} {per_picodollar:?}");
        }
    }
}

/// Pieces that were read before one turned out to be too long are not paid for again.
#[test]
fn chunks_already_read_are_not_read_again_after_an_overflow() {
    use Reply::{Says, Status};
    let script = Script::new(&[Says(GOOD), Status(400, OVERFLOW), Says(OTHER)]);
    let (done, _) = play(job(60, 8_192), &limits(), &script);
    assert!(done.outcome.is_ok());
    let mut prompts = script.prompts();
    let refused = prompts.remove(1);
    assert!(prompts[1].contains("- the printer"), "it goes on from what was read");
    assert!(prompts[1..].iter().all(|prompt| prompt.len() < refused.len()));
    let all = prompts.concat();
    assert!((0..60).all(|step| all.matches(&format!("[step {step}]")).count() == 1), "each is read once");
    // The third piece is short, and is not requested again as it is.
    let script = Script::new(&[Says(GOOD), Says(GOOD), Status(400, OVERFLOW)]);
    let (done, _) = play(job(45, 8_192), &limits(), &script);
    assert_eq!((done.outcome.map(|_| ()), script.prompts().len()), (Err(Failure::TooLong), 3));
}

#[test]
fn the_next_summary_continues_from_the_last() {
    let script = Script::new(&[Reply::Says(OTHER)]);
    let job = with(job(20, 100_000), |task| {
        (task.previous, task.generation) = (Some(("## Done\n- the parser".to_owned(), 21)), 2);
    });
    let (done, _) = play(job, &limits(), &script);
    assert_eq!(done.outcome.unwrap().generation, 2);
    let prompt = &script.prompts()[0];
    assert!(prompt.contains("- the parser") && prompt.contains("The memory so far"));
    assert!(!prompt.contains("[step 9]") && prompt.contains("[step 10]"));
}

/// Every few summaries, one is made from the originals, as long as the permitted calls suffice to read them.
#[test]
fn a_history_too_long_to_reread_continues_from_the_last_summary() {
    for (steps, window, generation, from_originals) in [
        (20, 100_000, 5, true),
        (20, 100_000, 6, false),
        // Three pieces.
        (45, 8_192, 5, true),
        (400, 8_192, 5, false),
        (400, 8_192, 6, false),
    ] {
        let script = Script::new(&[Reply::Says(GOOD)]);
        let previous = Some(("## Done\n- the parser".to_owned(), 2 * steps - 19));
        let job = with(job(steps, window), |task| (task.previous, task.generation) = (previous, generation));
        let (done, _) = play(job, &limits(), &script);
        assert_eq!(done.outcome.unwrap().generation, generation);
        let prompt = &script.prompts()[0];
        let found = (prompt.contains("[step 0]"), prompt.contains("- the parser"));
        assert_eq!(found, (from_originals, !from_originals), "{steps} {window} {generation}");
        let step = format!("[step {}]", steps - 10);
        assert!(from_originals || prompt.contains(&step), "{steps}");
    }
}

#[test]
fn a_summary_without_enough_gain_is_discarded() {
    let script = Script::new(&[Reply::Says(GOOD)]);
    let gains = |minimum_gain, bytes| {
        let settings = summary::Settings { minimum_gain, ..Default::default() };
        let job = with(job(20, 100_000), |task| (task.settings, task.bytes) = (settings.into(), bytes));
        play(job, &limits(), &script).0.outcome.is_ok()
    };
    assert!(gains(1, 1_000) && !gains(0, 100) && !gains(1_000, 4_000) && gains(900, 4_000));
}

#[test]
fn calls_stop_at_the_spend_limit() {
    // Three cents for a thousand tokens in, six for a thousand out.
    let script = Script::new(&[Reply::Says("no")]);
    let limits = |usd: &str| Limits { per_hour: Money::from_usd_str(usd).ok(), attempts: 5, ..limits() };
    for (usd, calls) in [("0", 0), ("0.03", 1), ("0.05", 2), ("100", 5)] {
        let before = script.prompts().len();
        let (done, _) = play(job(20, 100_000), &limits(usd), &script);
        assert_eq!(script.prompts().len() - before, calls, "{usd}");
        assert_eq!(done.outcome.is_err_and(|failure| failure == Failure::Spent), calls < 5, "{usd}");
    }
}

/// A call whose answer is lost counts by its prompt.
#[test]
fn lost_calls_count_towards_the_spend_limit() {
    let script = Script::new(&[Reply::Breaks]);
    // Some 17 KB of prompt: more than ten cents at three cents for a thousand tokens.
    let limits = Limits { per_hour: Money::from_usd_str("0.05").ok(), attempts: 5, ..limits() };
    let (done, _) = play(job(20, 100_000), &limits, &script);
    assert_eq!((script.prompts().len(), done.outcome.map(|_| ())), (1, Err(Failure::Spent)));
}

/// A job reports each call before it waits or asks again, and what it has asked if it is cut short.
#[test]
fn calls_are_reported_before_their_job_ends() {
    let (told, tells) = std::sync::mpsc::channel();
    let report: Report = {
        let told = Mutex::new(told);
        Box::new(move |progress: Progress<'_>| {
            let (calls, failure) = match progress {
                Progress::Called(_, call) => (std::slice::from_ref(call), None),
                Progress::Done(done) => (done.unreported(), done.outcome.as_ref().err().cloned()),
            };
            let calls: Vec<_> = calls.iter().map(|call| (call.status, call.lost.clone())).collect();
            told.lock().unwrap().send((calls, failure)).unwrap();
        })
    };
    let prices = Arc::new(Catalogue::with_overrides(Vec::new()).unwrap());
    let shared = Shared::new(limits(), prices, report);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let answered = (vec![(Some(200), None)], None);
    let lost = (vec![(None, Some(Failure::Stopped))], Some(Failure::Stopped));
    // Asked again after a wait, or about the next part.
    for (window, replies) in
        [(100_000, &[Reply::Says("no"), Reply::Hangs][..]), (8_192, &[Reply::Says(GOOD), Reply::Hangs])]
    {
        runtime.block_on(async {
            let script = Script::new(replies);
            let mut work = UnderWay::new(&shared, job(60, window), script.unwanted.subscribe());
            let calls = &mut work.calls;
            let run = work::run(&work.job, &script, &shared.limits, &shared.purse, &work.unwanted, calls);
            assert!(tokio::time::timeout(Duration::from_secs(10), run).await.is_err());
            assert_eq!(tells.try_recv().as_ref(), Ok(&answered), "under way");
        });
        assert_eq!(tells.try_recv().as_ref(), Ok(&lost));
    }
    assert!(tells.try_recv().is_err());
}
