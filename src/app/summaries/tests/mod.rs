//! A summary replaces one history and no other.

mod begun;
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
        summarised: false,
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

/// A summary that one gateway has paid for is not paid for again by another one on the same store, whatever that
/// gateway knew before. It uses the summary where there is no room left.
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

/// If the provider is asked to summarise, the gateway pays for no summary.
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

/// Of a thread's own summary and its parent's, the one that replaces more counts; the other is not awaited.
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
