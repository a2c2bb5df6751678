//! Which jobs are begun: how many at a time, and what follows a failure.

use super::*;

/// A thread has one job at a time; no request waits longer than allowed, and all jobs end with the gateway.
#[test]
fn jobs_are_limited_per_thread_per_history_and_in_number() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", silent.local_addr().unwrap()).parse().unwrap();
    let upstream = Arc::new(Upstream::new(upstream::Settings::new("silent", base)));
    let prices = Arc::new(Catalogue::with_overrides(Vec::new()).unwrap());
    let summarizer = Summarizer::start(limits(), prices, Box::new(|_| {})).unwrap();
    let job = |thread: &str| {
        let chain = Chain::root(thread, b"");
        let mut job = with(job(20, 8_192), |task| (task.thread, task.chain) = (thread.to_owned(), chain));
        job.call.upstream = Arc::clone(&upstream);
        job
    };
    assert!(summarizer.takes("a") && summarizer.begin(job("a")) && summarizer.is_running("a"));
    assert!(!summarizer.begin(job("a")), "the thread has a job");
    assert!(
        !summarizer.begin(with(job("a"), |task| task.thread = "b".to_owned())),
        "the history is being summed up"
    );
    assert!(summarizer.begin(job("b")));
    assert!(!summarizer.begin(job("c")), "there are as many as there may be");
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let began = Instant::now();
        summarizer.wait("nobody", Duration::from_secs(5)).await;
        assert_eq!(began.elapsed(), Duration::ZERO);
        summarizer.wait("a", Duration::from_secs(5)).await;
        assert_eq!(began.elapsed().as_secs(), 5);
    });
    assert!(summarizer.is_running("a") && summarizer.ready("a").is_none());
}

/// Of simultaneous requests, one begins the job of their thread, and there are never more jobs than allowed.
#[test]
fn simultaneous_requests_begin_one_job_per_thread() {
    const ROUNDS: usize = 10_000;
    let prices = Arc::new(Catalogue::with_overrides(Vec::new()).unwrap());
    let limits = Limits { jobs: ROUNDS, ..limits() };
    // Nobody does the jobs: none of them ends.
    let (jobs, _inbox) = mpsc::channel(2 * ROUNDS);
    let shared = Arc::new(Shared::new(limits, prices, Box::new(|_| {})));
    let summarizer = Summarizer { shared, jobs: Some(jobs), thread: None };
    let model = job(1, 8_192);
    let job = |thread: usize| {
        let task = Task {
            thread: thread.to_string(),
            chain: Chain::root(&thread.to_string(), b""),
            conversation_id: String::new(),
            conversation: model.task.conversation.clone(),
            messages: model.task.messages.clone(),
            sent: HashMap::new(),
            previous: None,
            settings: Arc::clone(&model.task.settings),
            ..model.task
        };
        Job { task, call: model.call.clone(), is_doubted: false }
    };
    let (here, begun) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for round in 0..=ROUNDS {
                    let job = job(round);
                    here.fetch_add(1, Ordering::AcqRel);
                    // A sleeping task would wake too late to meet the other one.
                    while here.load(Ordering::Acquire) < 2 * (round + 1) {
                        (0..100).for_each(|_| std::hint::spin_loop());
                        std::thread::yield_now();
                    }
                    begun.fetch_add(usize::from(summarizer.begin(job)), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(begun.into_inner(), ROUNDS);
}

/// A job that failed is not begun again at once.
#[test]
fn a_thread_rests_after_a_failed_job() {
    let refusing = {
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", closed.local_addr().unwrap()).parse().unwrap()
    };
    let upstream = Arc::new(Upstream::new(upstream::Settings::new("closed", refusing)));
    let prices = Arc::new(Catalogue::with_overrides(Vec::new()).unwrap());
    let (told, ends) = std::sync::mpsc::channel();
    let report: Report = {
        let told = Mutex::new(told);
        Box::new(move |progress| {
            let Progress::Done(done) = progress else { panic!("no call was made") };
            told.lock().unwrap().send(done.outcome.is_ok()).unwrap();
        })
    };
    let once = Limits { attempts: 1, ..limits() };
    let summarizer = Summarizer::start(once, prices, report).unwrap();
    let mut job = job(20, 8_192);
    job.call.upstream = upstream;
    assert!(summarizer.begin(job));
    assert_eq!(ends.recv(), Ok(false));
    assert!(!summarizer.takes("t") && summarizer.takes("u"));
}

/// It may be begun again as soon as room is needed, where no limit holds.
#[test]
fn a_thread_does_not_rest_after_a_job_that_could_not_afford_another_attempt() {
    let prices = || Arc::new(Catalogue::with_overrides(Vec::new()).unwrap());
    for (most, expected) in [(None, false), (Some(1.0), true), (Some(9.0), false)] {
        let allowance = most.map(|most| Allowance { most, expected: 0.5, per_picodollar: None });
        let script = Script::new(&[Reply::Says("I would rather not.")]);
        let (done, _) = play(with(job(20, 100_000), |task| task.allowance = allowance), &limits(), &script);
        let shared = Shared::new(limits(), prices(), Box::new(|_| ()));
        shared.end(&done);
        assert_eq!(shared.takes(&shared.running(), "t"), expected, "{most:?}");
    }
}

/// The thread rests for a job with an allowance. What is asked is whether a whole job could be paid for again.
#[test]
fn only_jobs_without_an_allowance_skip_the_rest_after_a_job_that_could_not_be_repeated() {
    use Reply::{Says, Status};
    let garbage = || Says("I would rather not.");
    let prices = || Arc::new(Catalogue::with_overrides(Vec::new()).unwrap());
    for (steps, window, most, script, takes) in [
        (20, 100_000, 1.5, vec![garbage()], true),
        (20, 100_000, 9.0, vec![garbage()], false),
        // What costs nothing can be repeated.
        (20, 100_000, 0.5, vec![Status(503, "{}")], false),
        // Three pieces, the last of which is asked for three times: another call could be paid for.
        (60, 8_192, 6.0, vec![Says(GOOD), Says(GOOD), garbage()], true),
        (60, 8_192, 10.0, vec![Says(GOOD), Says(GOOD), garbage()], false),
        // The first piece alone has failed, but all are needed.
        (60, 8_192, 3.5, vec![garbage()], true),
        (60, 8_192, 6.0, vec![garbage()], false),
    ] {
        // The unit is the cost of an answer.
        let (done, _) = play(job(20, 100_000), &limits(), &Script::new(&[garbage()]));
        let answer = done.calls[0].bill.as_ref().unwrap().total.picodollars() as f64;
        let expected = if steps == 60 { 3.0 } else { 1.0 };
        let allowance = Some(Allowance { most, expected, per_picodollar: Some(1.0 / answer) });
        let (done, _) = play(
            with(job(steps, window), |task| task.allowance = allowance),
            &limits(),
            &Script::new(&script),
        );
        let shared = Arc::new(Shared::new(limits(), prices(), Box::new(|_| ())));
        shared.end(&done);
        assert_eq!(shared.resting.get("t").map(|rest| rest.failures), Some(1), "{steps} {most}");
        let (jobs, _inbox) = mpsc::channel(1);
        let summarizer = Summarizer { shared, jobs: Some(jobs), thread: None };
        assert_eq!((summarizer.takes("t"), summarizer.rests("t")), (takes, true), "{steps} {most}");
        assert!(
            !summarizer.begin(with(job(20, 100_000), |task| task.allowance = allowance)),
            "{steps} {most}"
        );
        assert_eq!(summarizer.begin(job(20, 100_000)), takes, "{steps} {most}");
    }
}

/// A writer whose last answer was useless is not asked again, unless an allowance says how often. Calls that cost
/// nothing are tried as before.
#[test]
fn a_doubted_writer_is_asked_once() {
    use Reply::{Breaks, CutOff, Says, Status};
    let garbage = || Says("I would rather not.");
    let busy = || Status(503, "{}");
    for (steps, window, most, script, calls) in [
        (20, 100_000, None, vec![garbage()], 1),
        (20, 100_000, None, vec![CutOff], 1),
        (20, 100_000, None, vec![busy(), garbage()], 2),
        (20, 100_000, None, vec![busy()], 3),
        (20, 100_000, None, vec![Breaks], 3),
        (20, 100_000, None, vec![Breaks, busy(), Says(GOOD)], 3),
        (60, 8_192, None, vec![Says(GOOD), garbage()], 2),
        (60, 8_192, None, vec![Says(GOOD)], 3),
        // An allowance says it.
        (20, 100_000, Some(9.0), vec![garbage()], 3),
    ] {
        let allowance = most.map(|most| Allowance { most, expected: 1.0, per_picodollar: None });
        let script = Script::new(&script);
        let job = with(job(steps, window), |task| task.allowance = allowance);
        play(Job { is_doubted: true, ..job }, &limits(), &script);
        assert_eq!(script.prompts().len(), calls, "{most:?} {steps}");
    }
}

/// Its last answer counts, of whichever job, until there is a summary.
#[test]
fn writers_are_doubted_after_a_useless_answer() {
    use Reply::{Breaks, Says, Status};
    let (garbage, good) = (&[Says("I would rather not.")][..], &[Says(GOOD)][..]);
    let busy = &[Status(503, "{}")][..];
    let dull = summary::Settings { minimum_gain: 100_000, ..Default::default() };
    let normal = job(20, 100_000).task.settings;
    for (scripts, settings, expected) in [
        (&[garbage][..], &normal, true),
        (&[busy], &normal, false),
        (&[&[Breaks]], &normal, false),
        (&[garbage, busy], &normal, true),
        (&[busy, garbage], &normal, true),
        (&[garbage, good], &normal, false),
        (&[good], &Arc::new(dull), true),
    ] {
        let prices = Arc::new(Catalogue::with_overrides(Vec::new()).unwrap());
        // Nobody waits for the end of a rest.
        let limits = Limits { rest: Duration::ZERO, ..limits() };
        let shared = Arc::new(Shared::new(limits, prices, Box::new(|_| ())));
        for script in scripts {
            let job = with(job(20, 100_000), |task| task.settings = Arc::clone(settings));
            shared.end(&play(job, &limits, &Script::new(script)).0);
        }
        let (jobs, mut inbox) = mpsc::channel(1);
        let summarizer = Summarizer { shared, jobs: Some(jobs), thread: None };
        assert!(summarizer.begin(job(20, 100_000)));
        assert_eq!(
            inbox.try_recv().ok().map(|begun| begun.job.is_doubted),
            Some(expected),
            "{}",
            scripts.len()
        );
    }
}
