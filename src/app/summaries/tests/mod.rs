//! A summary replaces one history and no other.

mod bills;
mod outdated;

use std::path::Path;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::app::clock;
use crate::conversation::{Chain, NoMemo};
use crate::lineage::Relation;
use crate::planner::Cut;
use crate::store::{Batch, Outputs, Sqlite, Thread};
use crate::strategy::gate::Account;

/// A history in short form (`u` the user, `c` a call and its result); each message contains its number and what `said`
/// has for it.
fn talk(letters: &str, said: &[u8]) -> Conversation {
    let mut at = 0;
    let mut text = || {
        at += 1;
        format!("{at} {}", said.get(at - 1).copied().unwrap_or(0))
    };
    let message = |letter: char| match letter {
        'u' => format!(r#"{{"role":"user","content":"{}"}}"#, text()),
        _ => {
            let (asks, answers) = (text(), text());
            format!(
                r#"{{"role":"assistant","tool_calls":[{{"id":"{asks}","type":"function","function":{{"name":"run","arguments":"{{}}"}}}}]}},{{"role":"tool","tool_call_id":"{asks}","content":"{answers} {}"}}"#,
                "x".repeat(2000)
            )
        }
    };
    let messages: Vec<String> = letters.chars().map(message).collect();
    let body = format!(r#"{{"model":"m","messages":[{}]}}"#, messages.join(","));
    protocol::named("openai-chat").unwrap().index(&Bytes::from(body), &NoMemo).unwrap()
}

fn place(conversation: &Conversation, root: Chain) -> Place {
    let mut chains = vec![root];
    for message in &conversation.messages {
        chains.push(chains[chains.len() - 1].then(message.index.fingerprint));
    }
    let thread = Thread {
        id: "t".to_owned(),
        conversation: "c".to_owned(),
        session: None,
        parent: None,
        head: root,
        observe: false,
        refused: None,
        at_ms: 0,
    };
    Place {
        root,
        cache: root,
        thread,
        relation: Relation::Continue,
        sent: conversation.messages.len() - 1,
        left_out: None,
        chains,
        answered: 0,
        event: conversation.messages.len(),
        ends: Vec::new(),
        applied: Arc::default(),
        splice: None,
    }
}

fn summary_at(place: &Place, end: usize) -> Summary {
    Summary {
        chain: place.chains[end],
        end,
        thread: "t".to_owned(),
        conversation: "c".to_owned(),
        goal: "goal".to_owned(),
        text: "what was done".to_owned(),
        outline: "## Done\nall".to_owned(),
        model: "m".to_owned(),
        recipe: Digest::of(&[b"r"]),
        generation: 1,
        score: None,
        at_ms: 0,
    }
}

fn ends(cuts: &[Cut]) -> Vec<usize> {
    cuts.iter().map(|cut| cut.end).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the summary and whatever the conversation: it is only spliced where the history begins with exactly the
    /// messages that it was made of, and replaces nothing else.
    #[test]
    fn a_summary_is_spliced_only_into_the_history_it_was_made_of(
        letters in "u[uc]{2,10}c",
        here in prop::collection::vec(0..2_u8, 24),
        there in prop::collection::vec(0..2_u8, 24),
        roots in (0..2_u8, 0..2_u8),
        pick in any::<prop::sample::Index>(),
    ) {
        let root = |number: u8| Chain::root("openai-chat", &[number]);
        let made_of = talk(&letters, &here);
        let theirs = place(&made_of, root(roots.0));
        let all = cuts(&made_of, None, None, theirs.sent);
        if all.is_empty() {
            return Ok(());
        }
        let end = ends(&all)[pick.index(all.len())];
        let summary = summary_at(&theirs, end);

        let conversation = talk(&letters, &there);
        let ours = place(&conversation, root(roots.1));
        let splice = splice_of(&summary, &conversation, None, &ours, &Layout::Answer);
        let same = roots.0 == roots.1 && here[..end] == there[..end];
        prop_assert_eq!(splice.is_some(), same);
        if let Some(splice) = splice {
            prop_assert!(splice.end() <= end && splice.first() > 0);
            prop_assert_eq!(&*splice.text, "what was done");
            // A used summary is not used again.
            let used = Place { splice: Some(Arc::new(splice)), ..ours };
            prop_assert!(splice_of(&summary, &conversation, None, &used, &Layout::Answer).is_none());
        }
    }
}

#[test]
fn a_summary_of_a_longer_history_is_not_spliced() {
    let long = talk("ucccc", &[]);
    let summary = summary_at(&place(&long, Chain::root("x", b"")), 7);
    let short = talk("uc", &[]);
    let ours = place(&short, Chain::root("x", b""));
    assert!(splice_of(&summary, &short, None, &ours, &Layout::Answer).is_none());
}

/// No limits.
fn free(store: Arc<dyn Store>) -> Arc<Budget> {
    Arc::new(Budget::new(crate::config::Budget::default(), store))
}

/// The store of a home.
fn open(home: &Path) -> Arc<dyn Store> {
    let outputs = Outputs::new(home.join("outputs"));
    Arc::new(Sqlite::open(&home.join("db"), outputs, home.join("logs"), 16).unwrap())
}

/// A store of its own.
fn on_disk() -> (tempfile::TempDir, Arc<dyn Store>) {
    let home = tempfile::tempdir().unwrap();
    let store = open(home.path());
    (home, store)
}

/// A finished summary survives a restart, and is only used with the recipe that it was written by.
#[test]
fn a_ready_summary_survives_a_restart_with_the_same_recipe() {
    let home = tempfile::tempdir().unwrap();
    let store = || open(home.path());
    let conversation = talk("ucccc", &[]);
    let ours = place(&conversation, Chain::root("x", b""));
    let settings = summary::Settings::default();
    let made = Summary { recipe: summary::prompt::recipe(&settings), ..summary_at(&ours, 7) };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let batch = Batch { summaries: vec![made], ..Batch::default() };
    runtime.block_on(store().commit(batch)).unwrap();

    let ready = |settings: &summary::Settings, place: &Place| {
        let given = Summarize { settings: settings.clone(), ..Summarize::default() };
        let terms = Terms::new(&given, None, &Policy::default());
        let prices = Arc::new(Catalogue::with_overrides(Vec::new()).unwrap());
        let summaries =
            Summaries::start(Limits::default(), store(), prices, Arc::default(), free(store())).unwrap();
        summaries.ready(&terms, &conversation, place, None)
    };
    assert!(ready(&settings, &ours).is_some_and(|splice| splice.end() <= 7 && &*splice.rule == SUMMARY));
    let mut fork = ours.clone();
    (fork.thread.id, fork.thread.parent) = ("u".to_owned(), Some("t".to_owned()));
    assert!(ready(&settings, &fork).is_some(), "a fork carries what its parent carried");
    fork.thread.parent = None;
    assert!(ready(&settings, &fork).is_none(), "nobody else's is looked for");
    let other = summary::Settings { focus: "Keep the weather".to_owned(), ..settings };
    assert!(ready(&other, &ours).is_none());
}

fn summaries(store: &Arc<dyn Store>) -> Summaries {
    let prices = Arc::new(Catalogue::with_overrides(Vec::new()).unwrap());
    let (store, budget) = (Arc::clone(store), free(Arc::clone(store)));
    Summaries::start(Limits::default(), store, prices, Arc::default(), budget).unwrap()
}

fn terms(model: Option<&str>, policy: &Policy) -> Arc<Terms> {
    let settings =
        summary::Settings { keep_tokens: 500, minimum_gain: 100, most_loss: 1.0, ..Default::default() };
    let given = Summarize { settings, model: model.map(str::to_owned), ..Summarize::default() };
    Arc::new(Terms::new(&given, None, policy))
}

/// The summary that is due for a history whose prompt has passed the trigger, at four bytes per token.
fn due(
    summaries: &Summaries,
    conversation: &Conversation,
    place: &Place,
    terms: &Arc<Terms>,
    model: &str,
) -> Option<Prospect> {
    summaries.due(seen(conversation, place, terms, model))
}

fn seen<'a>(
    conversation: &'a Conversation,
    place: &'a Place,
    terms: &'a Arc<Terms>,
    model: &'a str,
) -> Seen<'a> {
    let gauge = window::Gauge { prompt: 4600, window: 6000, reserve: 1000, margin: 0 };
    let level = Level {
        prompt_tokens: gauge.prompt,
        gauge: Some(gauge),
        reading: None,
        growth: None,
        clearable_bytes: 0,
        messages: conversation.messages.len() as u32,
        defers: conversation.asks_for_edits,
        waits: false,
        can_wait: false,
        patient: true,
        account: Account::default(),
    };
    Seen {
        protocol: protocol::named("openai-chat").unwrap(),
        conversation,
        place,
        terms,
        applied: &[],
        splice: None,
        level,
        model: Some(model),
        price: None,
        vendor: None,
        bytes_per_token: 4.0,
        now_ms: 0,
    }
}

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

/// Messages stay for a summary that waits because it is dear, or may be begun as soon as room is wanted. What held for
/// one request holds for no other: where none can be begun, they stay for none.
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
    assert!(due(&costly, early, 2.0 * expected).is_some());
    costly.spending.book_expected("t");
    let call = bills::called(&prices, "gpt-4", Some((3.0 * expected / 4.0) as u64));
    let (job, outcome) = (Arc::new(bills::job(talk("ucc", &[]))), Err(Failure::NoGain));
    costly.spending.book_actual(&Done { job, calls: vec![call], outcome });
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

/// Has a summary written by a server that gives one answer of no use.
fn fail(summaries: &Summaries, prospect: Prospect) {
    use std::io::{Read, Write};

    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", server.local_addr().unwrap()).parse().unwrap();
    let upstream = Arc::new(Upstream::new(crate::upstream::Settings::new("u", base)));
    let like = Some("/v1/chat/completions".to_owned());
    let job = summaries.job(prospect, &upstream, like, &HeaderMap::new()).unwrap();
    summaries.begin(job);
    let (mut connection, _) = server.accept().unwrap();
    assert!(connection.read(&mut [0; 1024]).unwrap() > 0);
    connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(summaries.summarizer.wait("t", Duration::from_secs(60)));
}

/// What one gateway has had made, another one on the same store does not pay for again, whatever it knew before, and
/// uses where there is no room left.
#[test]
fn summaries_made_by_another_gateway_are_used_and_not_repeated() {
    let (_home, store) = on_disk();
    let [one, other, full] = [(); 3].map(|()| summaries(&store));
    let conversation = talk("ucccccccc", &[]);
    let ours = place(&conversation, Chain::root("x", b""));
    let terms = terms(None, &Policy::default());
    let due = |summaries: &Summaries| due(summaries, &conversation, &ours, &terms, "m");
    let ready = |summaries: &Summaries| summaries.ready(&terms, &conversation, &ours, None).is_some();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let waited = |summaries: &Summaries| runtime.block_on(summaries.wait(&terms, &ours, true, Duration::MAX));
    assert!(!ready(&other) && !ready(&full) && !waited(&full), "there is none yet");
    let made = due(&one).and_then(|prospect| prospect.written("what was done")).unwrap();
    runtime
        .block_on(store.commit(crate::store::Batch { summaries: vec![made], ..Default::default() }))
        .unwrap();
    assert!(due(&other).is_none(), "it is there");
    assert!(ready(&other));
    assert!(!ready(&full) && waited(&full) && ready(&full));
    assert!(!waited(&full), "there is no other");
}

/// If the provider is asked to summarise, nobody else is paid for it.
#[test]
fn no_summary_is_made_if_the_provider_is_asked_for_one() {
    let (_home, store) = on_disk();
    let terms = terms(None, &Policy::default());
    for (asks_for_edits, expected) in [(false, true), (true, false)] {
        let conversation = Conversation { asks_for_edits, ..talk("ucccccccc", &[]) };
        let ours = place(&conversation, Chain::root("x", b""));
        let made = due(&summaries(&store), &conversation, &ours, &terms, "m");
        assert_eq!(made.is_some(), expected, "{asks_for_edits}");
    }
}

/// Of a thread's own summary and its parent's, the one that replaces more counts: the other is not waited for.
#[test]
fn a_fork_continues_from_the_longer_of_its_own_and_parent_summary() {
    let conversation = talk("ucccccccc", &[]);
    let mut ours = place(&conversation, Chain::root("x", b""));
    (ours.thread.id, ours.thread.parent) = ("fork".to_owned(), Some("t".to_owned()));
    let terms = terms(None, &Policy::default());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for (own, parents, expected) in [(3, 5, 5), (5, 3, 5), (5, 5, 5)] {
        let (_home, store) = on_disk();
        let made = |thread: &str, end| Summary {
            recipe: terms.recipe,
            thread: thread.to_owned(),
            ..summary_at(&ours, end)
        };
        let made = vec![made("fork", own), made("t", parents)];
        runtime
            .block_on(store.commit(crate::store::Batch { summaries: made, ..Default::default() }))
            .unwrap();
        let prospect = due(&summaries(&store), &conversation, &ours, &terms, "m");
        let previous = prospect.and_then(|prospect| prospect.task.previous).map(|(_, end)| end);
        assert_eq!(previous, Some(expected), "{own} {parents}");
    }
}

/// Threads of one conversation with the same beginning pay for one summary of it.
#[test]
fn summaries_of_another_thread_with_the_same_history_are_reused() {
    let conversation = talk("ucccccccc", &[]);
    let ours = place(&conversation, Chain::root("x", b""));
    let terms = terms(None, &Policy::default());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for (of, root, expected) in [("c", "x", true), ("c", "y", false), ("d", "x", false)] {
        let (_home, store) = on_disk();
        let end = due(&summaries(&store), &conversation, &ours, &terms, "m").unwrap().task.end;
        let made = Summary {
            recipe: terms.recipe,
            thread: "other".to_owned(),
            conversation: of.to_owned(),
            ..summary_at(&place(&conversation, Chain::root(root, b"")), end)
        };
        runtime.block_on(store.commit(Batch { summaries: vec![made], ..Batch::default() })).unwrap();
        let summaries = summaries(&store);
        assert!(summaries.ready(&terms, &conversation, &ours, None).is_none());
        let prospect = due(&summaries, &conversation, &ours, &terms, "m");
        assert_eq!(prospect.is_none(), expected, "{of} {root}");
        assert_eq!(summaries.ready(&terms, &conversation, &ours, None).is_some(), expected, "{of} {root}");
    }
}

/// A summary that would free less than the ladder asks for is not written if the ladder would pass it over.
#[test]
fn summaries_the_ladder_would_skip_are_not_made() {
    let (_home, store) = on_disk();
    let summaries = summaries(&store);
    let usual = Policy::default;
    let ladder =
        |enabled, least| Policy { ladder: ladder::Settings { enabled, least, ..usual().ladder }, ..usual() };
    let crowded = Policy { window: window::Settings { messages: Some(9), ..usual().window }, ..usual() };
    for (letters, policy, expected) in [
        ("ucccccccc", usual(), true),
        ("uccccccc", usual(), false),
        ("uccccccc", ladder(true, 0.1), true),
        ("ucccccccc", ladder(true, 0.3), false),
        ("uccccccc", ladder(false, 0.15), true),
        ("uccccccc", crowded, true),
    ] {
        let conversation = talk(letters, &[]);
        let ours = place(&conversation, Chain::root("x", b""));
        let terms = terms(None, &policy);
        let found = due(&summaries, &conversation, &ours, &terms, "m");
        assert_eq!(found.is_some(), expected, "{letters} {:?} {:?}", policy.ladder, policy.window);
    }
}

/// The window set for the conversation applies to its own model; for another one it is better than nothing.
#[test]
fn the_summary_model_uses_its_known_or_the_configured_window() {
    const KNOWN: &str = "claude-haiku-4-5";
    let (_home, store) = on_disk();
    let summaries = summaries(&store);
    let conversation = talk("ucccccccc", &[]);
    let ours = place(&conversation, Chain::root("x", b""));
    let upstream = crate::upstream::Settings::new("u", "http://127.0.0.1:9".parse().unwrap());
    let upstream = Arc::new(Upstream::new(upstream));
    for (own, writer, size, expected) in [
        ("m", None, None, DEFAULT_WINDOW),
        ("m", None, Some(8_000), 8_000),
        ("m", None, Some(100_000), 100_000),
        (KNOWN, None, None, 200_000),
        (KNOWN, None, Some(8_000), 8_000),
        (KNOWN, None, Some(1_000_000), 200_000),
        (KNOWN, Some("m"), None, DEFAULT_WINDOW),
        (KNOWN, Some("m"), Some(100_000), 100_000),
        ("m", Some(KNOWN), Some(8_000), 200_000),
    ] {
        let window = window::Settings { size, ..window::Settings::default() };
        let terms = terms(writer, &Policy { window, ..Policy::default() });
        let prospect = due(&summaries, &conversation, &ours, &terms, own).unwrap();
        let call = |like| summaries.call(&prospect, &upstream, like, &HeaderMap::new());
        let window = call(Some("/v1/messages".to_owned())).map(|call| call.window);
        assert_eq!(window, Some(expected), "{own} {writer:?} {size:?}");
        assert!(call(None).is_none(), "what a client's own request is not like");
    }
}
