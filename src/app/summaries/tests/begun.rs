//! When a summary is begun, and what it may cost then.

use super::*;

/// A summary is begun from its share of the window on, here 75,000 tokens, and not before room may be needed soon, at
/// 90,000.
#[test]
fn summaries_are_begun_when_room_may_be_needed_soon() {
    let grows = |velocity, largest| Some(window::Growth { velocity, largest });
    let usual = window::Settings::default();
    let crowded = window::Settings { messages: Some(9), ..usual };
    let at_once = window::Settings { trigger: 0.75, ..usual };
    for (window, growth, first) in [
        // The growth is unknown.
        (usual, None, 75_000),
        // However little a request adds, a long result may come.
        (usual, grows(0.0, 0), 80_000),
        (usual, grows(500.0, 3_000), 80_000),
        // A few more like those before.
        (usual, grows(2_400.0, 3_000), 78_000),
        (usual, grows(500.0, 4_000), 78_000),
        // Not before its share, however fast the prompt grows.
        (usual, grows(9_000.0, 12_000), 75_000),
        (usual, grows(500.0, 20_000), 75_000),
        // If room is made at the same share, there is nothing to wait for.
        (at_once, grows(0.0, 0), 75_000),
        // The limit on messages applies as before.
        (crowded, grows(0.0, 0), 0),
    ] {
        let terms = terms(None, &Policy { window, ..Policy::default() });
        let is_due = |prompt| {
            let gauge = Some(Gauge { prompt, window: 100_000, reserve: 0, margin: 0 });
            terms.is_due(Level {
                prompt_tokens: prompt,
                gauge,
                reading: None,
                growth,
                clearable_bytes: 0,
                messages: 9,
                defers: false,
                waits: false,
                can_wait: false,
                summarised: false,
                patient: true,
                account: Account::default(),
            })
        };
        let is_early = first > 0 && is_due(first - 1);
        assert!(is_due(first) && !is_early && is_due(90_000), "{window:?} {growth:?} {first}");
    }
}

/// A summary that is begun before room is needed may cost no more than the loss limit leaves, with all its attempts.
#[test]
fn only_early_summaries_have_an_allowance() {
    let (_home, store) = on_disk();
    let conversation = talk("ucccccccc", &[]);
    let place = place(&conversation, Chain::root("x", b""));
    let account = Account { paid: 1e6, direct: 1e6 };
    for (prompt, most_loss, patient, expected) in [
        (4_300, 0.15, true, Some(150_000)),
        // Room is needed.
        (4_600, 0.15, true, None),
        // There is no limit.
        (4_300, 1.0, true, None),
        (4_300, 0.15, false, None),
    ] {
        let settings =
            summary::Settings { keep_tokens: 500, minimum_gain: 100, most_loss, ..Default::default() };
        let given = Summarize { settings, ..Summarize::default() };
        let terms = Arc::new(Terms::new(&given, None, &Policy::default()));
        let seen = seen(&conversation, &place, &terms, "m");
        let gauge = seen.level.gauge.map(|gauge| Gauge { prompt, ..gauge });
        let level = Level { gauge, prompt_tokens: prompt, patient, account, ..seen.level };
        let prospect = summaries(&store).due(Seen { level, ..seen }).unwrap();
        let most = prospect.task.allowance.map(|allowance| allowance.most.round() as u64);
        assert_eq!(most, expected, "{prompt} {most_loss} {patient}");
    }
}

/// Messages stay for a summary that waits because it is expensive, or may be begun as soon as room is wanted. What held
/// for one request holds for no other: where none can be begun, they stay for none.
#[test]
fn messages_are_kept_only_for_summaries_that_may_be_begun() {
    let (_home, store) = on_disk();
    let (short, conversation) = (talk("ucc", &[]), talk("ucccccccc", &[]));
    let all = [&short, &conversation].map(|one| (one, place(one, Chain::root("x", b""))));
    let [short, long] = &all;
    let settings =
        summary::Settings { keep_tokens: 500, minimum_gain: 100, most_loss: 0.0, ..Default::default() };
    let given = Summarize { settings, ..Summarize::default() };
    let terms = Arc::new(Terms::new(&given, None, &Policy::default()));
    let (waits, clears, falls) = ((long, 4_300, 0), (long, 4_300, 9_000), (short, 1_000, 0));
    for (requests, expected) in [
        (&[][..], true),
        (&[&waits][..], true),
        (&[&clears], false),
        (&[&waits, &clears], false),
        (&[&waits, &clears, &waits], true),
        (&[&clears, &falls], true),
    ] {
        let summaries = summaries(&store);
        for ((conversation, place), prompt, clearable_bytes) in requests {
            let seen = seen(conversation, place, &terms, "m");
            let gauge = seen.level.gauge.map(|gauge| Gauge { prompt: *prompt, ..gauge });
            let level =
                Level { gauge, prompt_tokens: *prompt, clearable_bytes: *clearable_bytes, ..seen.level };
            assert!(summaries.due(Seen { level, ..seen }).is_none(), "it is dear");
        }
        let prompts: Vec<_> = requests.iter().map(|(_, prompt, clearable)| (prompt, clearable)).collect();
        assert_eq!(summaries.of_thread(&terms, "t").1, expected, "{prompts:?}");
    }
}

/// An early summary that has failed is not begun again before the thread has rested, nor before it may cost as much.
/// Messages stay for it until room is needed; then it is begun.
#[test]
fn a_failed_early_summary_is_begun_again_when_room_is_needed() {
    use crate::summarizer::{Done, Failure};

    let (_home, store) = on_disk();
    let conversation = talk("ucccccccc", &[]);
    let ours = place(&conversation, Chain::root("x", b""));
    let settings =
        summary::Settings { keep_tokens: 500, minimum_gain: 100, most_loss: 0.1, ..Default::default() };
    let given = Summarize { settings, ..Summarize::default() };
    let terms = Arc::new(Terms::new(&given, None, &Policy::default()));
    let prices = Catalogue::with_overrides(Vec::new()).unwrap();
    let price = Price::clone(&prices.find("gpt-4", None).unwrap().price);
    let due = |summaries: &Summaries, prompt, most: f64| {
        let seen = Seen { price: Some(&price), ..seen(&conversation, &ours, &terms, "gpt-4") };
        let gauge = seen.level.gauge.map(|gauge| Gauge { prompt, ..gauge });
        let account = Account { paid: 10.0 * most, direct: 10.0 * most };
        summaries.due(Seen { level: Level { gauge, prompt_tokens: prompt, account, ..seen.level }, ..seen })
    };
    let expected = due(&summaries(&store), 4_300, 1e6).unwrap().task.allowance.unwrap().expected;

    // What it has cost: three times what was expected.
    let costly = summaries(&store);
    let (early, late) = (4_300, 4_600);
    let task = due(&costly, early, 2.0 * expected).unwrap().task;
    costly.spending.book_expected("t", task.expected);
    let call = bills::called(&prices, "gpt-4", Some((3.0 * expected / 4.0) as u64));
    let (job, outcome) = (Arc::new(Job { task, ..bills::job(talk("ucc", &[])) }), Err(Failure::NoGain));
    costly.spending.book_actual(&Done { job, calls: vec![call], reported: 0, outcome });
    for (prompt, most, is_begun) in [(early, 2.0, false), (early, 4.0, true), (late, 2.0, true)] {
        let prospect = due(&costly, prompt, most * expected);
        assert_eq!(prospect.is_some(), is_begun, "{prompt} {most}");
        assert!(is_begun || costly.of_thread(&terms, "t").1, "it may be begun later");
    }

    // The thread rests after an answer of no use.
    let resting = summaries(&store);
    let prospect = due(&resting, early, 1.5 * expected).unwrap();
    fail(&resting, prospect);
    assert!(due(&resting, early, 1.5 * expected).is_none());
    assert!(resting.of_thread(&terms, "t").1, "it may be begun later");
    assert!(due(&resting, late, 1.5 * expected).is_some_and(|prospect| prospect.task.allowance.is_none()));
}

/// Two copies of a request are sent before either is answered. One of them begins the summary; that the other does not
/// changes nothing about what it costs.
#[test]
fn copies_of_a_request_pay_for_one_summary() {
    let (_home, store) = on_disk();
    let conversation = talk("ucccccccc", &[]);
    let ours = place(&conversation, Chain::root("x", b""));
    // With its allowance, a job is not begun again at once.
    let settings =
        summary::Settings { keep_tokens: 500, minimum_gain: 100, most_loss: 0.1, ..Default::default() };
    let given = Summarize { settings, ..Summarize::default() };
    let terms = Arc::new(Terms::new(&given, None, &Policy::default()));
    let prices = Catalogue::with_overrides(Vec::new()).unwrap();
    let price = Price::clone(&prices.find("gpt-4", None).unwrap().price);
    let summaries = summaries(&store);
    let seen = Seen { price: Some(&price), ..seen(&conversation, &ours, &terms, "gpt-4") };
    let gauge = seen.level.gauge.map(|gauge| Gauge { prompt: 4_300, ..gauge });
    let account = Account { paid: 5e5, direct: 5e5 };
    let seen = Seen { level: Level { gauge, prompt_tokens: 4_300, account, ..seen.level }, ..seen };
    let [first, copy] = [(); 2].map(|()| summaries.due(seen).unwrap());
    fail_one(&summaries, vec![first, copy]);
    let (spent, failed) = (summaries.spending.spent("t"), summaries.spending.failed("t"));
    assert!(failed > 0.0 && (spent - failed).abs() < 1e-6, "{spent} {failed}");
}

/// Has a summary written by a server that gives one answer of no use.
fn fail(summaries: &Summaries, prospect: Prospect) {
    fail_one(summaries, vec![prospect]);
}

/// The same for the first of some prospects, which is being written when the others are to begin.
fn fail_one(summaries: &Summaries, prospects: Vec<Prospect>) {
    use std::io::{Read, Write};

    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", server.local_addr().unwrap()).parse().unwrap();
    let upstream = Arc::new(Upstream::new(crate::upstream::Settings::new("u", base)));
    for prospect in prospects {
        let like = Some("/v1/chat/completions".to_owned());
        summaries.begin(summaries.job(prospect, &upstream, like, &HeaderMap::new()).unwrap());
    }
    let (mut connection, _) = server.accept().unwrap();
    assert!(connection.read(&mut [0; 1024]).unwrap() > 0);
    connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(summaries.summarizer.wait("t", Duration::from_secs(60)));
}
