//! Where histories are cut, what replaces the cut part, and that this stays so.

use std::cell::RefCell;
use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;

use super::super::cuts::cuts;
use super::super::room::turns_from;
use super::super::splice::{NOTE, SUMMARY};
use super::super::*;
use crate::conversation::NoMemo;
use crate::protocol;
use crate::protocol::conformance::talk::{any_text, talks};
use crate::protocol::conformance::write::write;
use crate::protocol::conformance::{Subject, for_all, spellings};
use crate::strategy::estimate::Estimate;
use crate::strategy::gate::Reason;
use crate::strategy::ladder::Rung;
use crate::usage::Binding;

mod notes;
mod threads;

/// A talk in short: `u` the user, `a` the model, `s` a note of the system's, `x` something that is not understood, `w1`
/// a search of the provider's own with what it found, `h1` one that has found nothing yet next to a call, `g1` what it
/// found and a call, `y1` the same next to something that is not understood, `c1` a call, `r1` its result, `t1` the
/// same call after reasoning, `T` nothing but reasoning, `R1` a result with tools that were found.
fn talk(short: &str) -> Conversation {
    let messages: Vec<String> = short.split_whitespace().map(message).collect();
    let body = format!(r#"{{"messages":[{}]}}"#, messages.join(","));
    protocol::named("anthropic").unwrap().index(&Bytes::from(body), &NoMemo).unwrap()
}

fn message(word: &str) -> String {
    let (kind, id) = word.split_at(1);
    let call = format!(r#"{{"type":"tool_use","id":"t{id}","name":"n","input":{{}}}}"#);
    match kind {
        "u" => r#"{"role":"user","content":"hello"}"#.to_owned(),
        "a" => r#"{"role":"assistant","content":"well"}"#.to_owned(),
        "s" => r#"{"role":"system","content":"note"}"#.to_owned(),
        "x" => r#"{"role":"assistant","content":[{"type":"new"}]}"#.to_owned(),
        "c" => format!(r#"{{"role":"assistant","content":[{call}]}}"#),
        "w" => format!(r#"{{"role":"assistant","content":[{},{}]}}"#, search(id), found(id)),
        "h" => format!(r#"{{"role":"assistant","content":[{},{call}]}}"#, search("0")),
        "g" => format!(r#"{{"role":"assistant","content":[{},{call}]}}"#, found("0")),
        "T" => {
            r#"{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"x"}]}"#.to_owned()
        }
        "t" => format!(
            r#"{{"role":"assistant","content":[{{"type":"thinking","thinking":"","signature":"x"}},{call}]}}"#
        ),
        "R" => format!(
            r#"{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t{id}","content":[{{"type":"text","text":"1"}},{{"type":"tool_reference","tool_name":"n"}}]}}]}}"#
        ),
        "y" => format!(r#"{{"role":"assistant","content":[{{"type":"new"}},{},{call}]}}"#, found("0")),
        _ => format!(
            r#"{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t{id}","content":"{}"}}]}}"#,
            "long ".repeat(200)
        ),
    }
}

fn search(id: &str) -> String {
    format!(r#"{{"type":"server_tool_use","id":"s{id}","name":"web_search","input":{{}}}}"#)
}

fn found(id: &str) -> String {
    format!(r#"{{"type":"web_search_tool_result","tool_use_id":"s{id}","content":[]}}"#)
}

/// What a request looks like with a plan: `N` the text, `[N]` the text at the end of another.
fn shown(conversation: &Conversation, plan: &Plan) -> String {
    let after = protocol::apply_verified(protocol::named("anthropic").unwrap(), conversation, plan, &NoMemo);
    let after = after.unwrap();
    protocol::named("anthropic").unwrap().valid(&after).unwrap();
    let word = |at: usize| {
        let body = std::str::from_utf8(after.messages[at].span.of(&after.body)).unwrap();
        match after.messages[at].index.role {
            _ if body.contains("THE TEXT") && body.contains("hello") => "u[N]",
            crate::conversation::Role::User if body.contains("THE TEXT") => "uN",
            _ if body.contains("THE TEXT") => "aN",
            _ if body.contains("tool_reference") => "R",
            _ if body.contains("tool_result") => "r",
            _ if body.contains("thinking") && body.contains("tool_use") => "t",
            _ if body.contains("thinking") => "T",
            _ if body.contains("tool_use") => "c",
            _ if body.contains("\"new\"") => "x",
            crate::conversation::Role::User => "u",
            crate::conversation::Role::System => "s",
            _ => "a",
        }
    };
    (0..after.messages.len()).map(word).collect::<Vec<_>>().join(" ")
}

/// A dropped image is subtracted once: with the messages of the splice, and not again as encoded data.
#[test]
fn images_dropped_by_a_splice_are_subtracted_once() {
    let image = format!(
        r#"{{"role":"user","content":[{{"type":"image","source":{{"type":"base64","data":"{}"}}}}]}}"#,
        "A".repeat(90_000)
    );
    let said = |text: &str| format!(r#"{{"role":"user","content":"{}"}}"#, text.repeat(1000));
    let answer = r#"{"role":"assistant","content":"well"}"#.to_owned();
    for (second, fourth) in [(&image, said("b")), (&said("b"), image.clone())] {
        let messages = [&said("a"), &answer, second, &answer, &fourth, &answer, &said("c")];
        let messages = messages.map(String::as_str).join(",");
        let body = Bytes::from(format!(r#"{{"model":"m","messages":[{messages}]}}"#));
        let talk = protocol::named("anthropic").unwrap().index(&body, &NoMemo).unwrap();
        let cuts = cuts(&talk, None, None, usize::MAX);
        let cut = cuts.iter().find(|cut| cut.messages().eq(1..4)).unwrap();
        let splice = Arc::new(cut.splice(&talk, NOTE, "note", &Layout::Answer).unwrap());
        let gone: usize = talk.messages[1..4].iter().map(|message| message.span.len()).sum();
        let sent = body.len() - gone + splice.bytes_after() as usize - talk.encoded(|message| message > 3);
        let past = Past { sent: 6, splice: Some(splice), ..Past::nothing() };
        let facts = Facts { bytes_per_token: 4.0, window: Some(100_000), ..Facts::default() };
        let outcome = plan(&talk, past, &Policy::default(), &facts, &|_| String::new());
        assert_eq!(outcome.level.unwrap().prompt_tokens, sent as u64 / 4);
    }
}

/// A splice at each cut of a talk, and what is then sent.
#[test]
fn messages_left_by_a_splice_at_each_cut() {
    for (short, sent, expected) in [
        ("u", 1, &[][..]),
        ("u a u", 3, &["2 u aN u"][..]),
        ("u a u a u", 5, &["2 u aN u a u", "4 u aN u"]),
        // Only what was sent before.
        ("u a u a u", 3, &["2 u aN u a u"]),
        // Within a turn: the step in progress stays, and the text is part of the user's first words.
        ("u c1 r1 c2 r2 c3 r3", 7, &["3 u[N] c r c r", "5 u[N] c r"]),
        ("u u c1 r1 c2 r2", 6, &["4 u u[N] c r"]),
        ("u t1 r1 t2 r2", 5, &["3 u[N] t r"]),
        // In a later turn, the newest words of the user stay too.
        ("u a u c1 r1 c2 r2", 7, &["2 u aN u c r c r", "5 u aN u c r"]),
        // Notes of the system's own stay.
        ("u a s u a u", 6, &["3 u s aN u a u", "5 u s aN u"]),
        // What is not understood stays, with all that belongs to it.
        ("u c1 r1 x u a u", 7, &["4 u[N] x u a u", "6 u[N] x u"]),
        // So does a result that defines tools, with its call.
        (
            "u c1 r1 c2 R2 c3 r3 a u",
            9,
            &["3 u[N] c R c r a u", "5 u[N] c R c r a u", "7 u[N] c R a u", "8 u c R aN u"],
        ),
        ("u c1 R1 c2 r2 c3 r3", 7, &["5 u[N] c R c r"]),
        // With the question, where two answers would otherwise follow each other.
        ("u x u c1 r1 x u a u", 9, &["6 u[N] x u x u a u", "8 u[N] x u x u"]),
        ("u x u a u c1 r1 x u a u", 11, &["4 u[N] x u c r x u a u", "8 u[N] x u x u a u", "10 u[N] x u x u"]),
        // With the message before a system note, where the user's message would otherwise follow the note.
        (
            "u a u s a u a u x u",
            10,
            &["2 u aN u s a u a u x u", "5 u s aN u a u x u", "7 u s aN u x u", "9 u[N] s a u x u"],
        ),
        // With the user's words before a note, where it would otherwise follow an answer.
        ("u x u s a u a u", 7, &["5 u x u s aN u a u", "7 u x u s aN u"]),
        (
            "u x u c1 r1 u s s c2 r2 u a u",
            12,
            &["5 u[N] x u s s c r u a u", "10 u x u s s aN u a u", "12 u x u s s aN u"],
        ),
        ("u s c1 r1 c2 r2 u x u", 9, &["6 u s aN u x u", "8 u[N] s c r u x u"]),
        // As little as possible of the answer to a note.
        ("u s c1 r1 a u x u", 8, &["5 u s aN u x u", "7 u[N] s a u x u"]),
        // Reasoning stays with what it led to.
        ("u s T c1 r1 T c2 c3 r2 r3 u x u", 13, &["10 u s aN u x u", "12 u[N] s T c r u x u"]),
        // Reasoning that led to nothing goes alone.
        ("u s T u c1 r1 u x u", 9, &["3 u s aN u c r u x u", "6 u s aN u x u", "8 u[N] s c r u x u"]),
        ("u c1 r1 c2 r2 u", 6, &["3 u[N] c r u"]),
        ("u a u c1 r1 c2 r2 u", 8, &["2 u aN u c r c r u", "5 u aN u c r u"]),
        // What the provider ran goes together with its results.
        ("u w1 u a u", 5, &["2 u aN u a u", "4 u aN u"]),
        ("u h1 r1 g2 r2 c3 r3", 7, &["5 u[N] c r"]),
        ("u h1 r1 g2 r2 u a u", 8, &["5 u aN u a u", "7 u aN u"]),
        ("u h1 r1 y2 r2 u a u", 8, &["7 u c r r r aN u"]),
        ("u h1 r1 c2 r2 u a u", 8, &["5 u c r aN u a u", "7 u c r aN u"]),
        // A call without a result prevents a cut.
        ("u c1 u a u", 5, &[]),
    ] {
        let conversation = talk(short);
        let splice = |cut: &Cut| {
            let splice = cut.splice(&conversation, NOTE, "THE TEXT", &Layout::Answer)?;
            assert_eq!((splice.end() <= cut.end, splice.bytes_after()), (true, 8));
            let plan = Plan { ops: splice.operations() };
            Some(format!("{} {}", cut.end, shown(&conversation, &plan)))
        };
        let found: Vec<String> = cuts(&conversation, None, None, sent).iter().filter_map(splice).collect();
        assert_eq!(found, expected, "{short}");
    }
}

/// A history in many pieces has fewer places, but always the last one.
#[test]
fn cut_positions_of_long_histories_are_thinned_out() {
    let ends = |turns: usize| {
        let conversation = talk(&format!("u a {} u", "u a s ".repeat(turns)));
        let all = cuts(&conversation, None, None, usize::MAX);
        (all.len(), all.last().unwrap().end)
    };
    assert_eq!(ends(1000), (1000, 2999));
    let (places, last) = ends(2000);
    assert!((500..1000).contains(&places) && last == 5999, "{places} {last}");
}

/// Nothing that a splice has dropped comes back: the text takes its place where one is needed. Messages needed
/// elsewhere stay.
#[test]
fn a_further_splice_restores_nothing_the_last_one_dropped() {
    for (short, end, expected) in [
        ("u a u s a u a u x u a u", 5, "u s aN u x u"),
        ("u c1 r1 s a u a u x u c2 r2 s a u a u", 7, "u s aN u x u s a u"),
        ("u c1 r1 s a u a u x u c2 r2 s a u c3 r3 c4 r4", 7, "u s aN u x u s a u c r"),
        // Two answers that stay, and the user's words between them.
        ("u a s u a u x u a u x u a u", 5, "u s aN u x u x u"),
        // One answer is dropped where another one remains, the next one where none does.
        ("u s c1 r1 a u s x u s a u s x u", 11, "u s a u s x u s aN u s x u"),
    ] {
        let conversation = talk(short);
        let splice = |cut: &Cut| cut.splice(&conversation, NOTE, "THE TEXT", &Layout::Answer);
        let all = cuts(&conversation, None, None, usize::MAX);
        let first = splice(all.iter().find(|cut| cut.end == end).unwrap()).unwrap();
        let next = splice(cuts(&conversation, Some(&first), None, usize::MAX).last().unwrap());
        let next = next.unwrap_or_else(|| panic!("{short}"));
        assert!((0..first.end()).all(|at| next.drops(at) || !first.drops(at)), "{next:?}");
        assert_eq!(shown(&conversation, &Plan { ops: next.operations() }), expected, "{short}");
    }
}

/// Of the answers to a system note, the one whose reasoning can be removed stays, even if it is longer: where reasoning
/// is bound, nothing before the other could be changed. If neither can be removed, both go, and the text takes their
/// place.
#[test]
fn of_answers_to_a_system_note_an_unbound_one_is_kept() {
    let user = r#"{"role":"user","content":"go"}"#;
    let note = r#"{"role":"system","content":"note"}"#;
    let unread = r#"{"role":"assistant","content":[{"type":"new"}]}"#;
    let step = |id: u8, thought: &str| {
        format!(
            r#"{{"role":"assistant","content":null,"tool_calls":[{{"id":"{id}","type":"function","function":{{"name":"n","arguments":"{{}}"}}}}]{thought}}},{{"role":"tool","tool_call_id":"{id}","content":"done"}}"#
        )
    };
    let sealed = r#","reasoning_content":"x""#;
    let open = r#","thinking_blocks":[{"type":"thinking","thinking":"so","signature":"s"}]"#;
    for (first, second, stays, bound) in [
        ("", "", vec![2, 3], vec![2, 3]),
        (sealed, "", vec![4, 5], vec![4, 5]),
        ("", sealed, vec![2, 3], vec![2, 3]),
        (sealed, open, vec![4, 5], vec![4, 5]),
        (open, sealed, vec![2, 3], vec![2, 3]),
        (sealed, sealed, vec![2, 3], vec![]),
    ] {
        let (first, second) = (step(1, first), step(2, second));
        let body = format!(r#"{{"messages":[{user},{note},{first},{second},{user},{unread},{user}]}}"#);
        let chat = protocol::named("openai-chat").unwrap();
        let conversation = chat.index(&Bytes::from(body), &NoMemo).unwrap();
        for (bound, stays) in [(None, &stays), (Some(Binding::Refused), &bound)] {
            let cut = cuts(&conversation, None, bound, usize::MAX).pop().unwrap();
            let left: Vec<usize> = (2..6).filter(|at| !cut.drops_all(&[*at])).collect();
            assert_eq!((cut.end, &left), (8, stays), "{first} {second}");
            let splice = cut.splice(&conversation, NOTE, "THE TEXT", &Layout::Answer).unwrap();
            // In place of what was done, before the user's next words; otherwise the text can only be placed at the
            // head.
            assert_eq!(splice.at.message, if left.is_empty() { 6 } else { 0 });
            let plan = Plan { ops: splice.operations() };
            assert!(protocol::apply_verified(chat, &conversation, &plan, &NoMemo).is_ok());
        }
    }
}

/// What answered a system note is already gone, and the text follows another note: an answer stays if the user would
/// speak next.
#[test]
fn an_answer_is_kept_between_a_system_note_and_a_user_message() {
    let words = "u a u s a u a u x u c1 r1 s c2 r2 c3 r3 a u a u";
    let words: Vec<&str> = words.split(' ').collect();
    let mut since = None;
    for (count, end, expected) in [
        (6, 5, "u s aN u"),
        (17, 15, "u s aN u x u s c r"),
        (19, 18, "u s aN u x u s a u"),
        (21, 20, "u s aN u x u s a u"),
    ] {
        let conversation = talk(&words[..count].join(" "));
        let all = cuts(&conversation, since.as_ref(), None, usize::MAX);
        let cut = all.iter().find(|cut| cut.end == end).unwrap();
        let splice = cut.splice(&conversation, NOTE, "THE TEXT", &Layout::Answer);
        let splice = splice.unwrap_or_else(|| panic!("{end}"));
        assert_eq!(shown(&conversation, &Plan { ops: splice.operations() }), expected, "{end}");
        since = Some(splice);
    }
}

#[test]
fn layouts_place_the_text_as_configured() {
    let (ack, question) = (Layout::Acknowledged("got it".into()), Layout::Asked("what was it?".into()));
    for (layout, short, expected) in [
        (&Layout::Answer, "u a u a u", "u aN u"),
        (&Layout::User, "u a u a u", "u uN u"),
        (&Layout::Appended, "u a u a u", "u[N] u"),
        (&ack, "u a u a u", "u uN a u"),
        (&question, "u a u a u", "u u aN u"),
        // Within a turn there is only one way.
        (&ack, "u c1 r1 c2 r2 c3 r3", "u[N] c r"),
    ] {
        let conversation = talk(short);
        let cut = cuts(&conversation, None, None, 9).pop().unwrap();
        let splice = cut.splice(&conversation, SUMMARY, "THE TEXT", layout).unwrap();
        assert_eq!(shown(&conversation, &Plan { ops: splice.operations() }), expected, "{layout:?}");
    }
}

/// A splice drops all that the one before it dropped, and is not made again.
#[test]
fn further_cuts_cover_all_of_the_last_splice() {
    let conversation = talk("u a u a u a u");
    let all = cuts(&conversation, None, None, 9);
    let first = all[0].splice(&conversation, NOTE, "x", &Layout::Answer).unwrap();
    let next = cuts(&conversation, Some(&first), None, 9);
    assert_eq!(next.iter().map(|cut| cut.end).collect::<Vec<_>>(), [4, 6]);
    assert!(
        next.iter().all(|cut| first.drops.iter().all(|drop| cut.messages().any(|at| at == drop.0 as usize)))
    );
}

/// In every dialect, wherever a history is cut and however the text is placed: the provider accepts it, and the user's
/// first and newest words are unchanged.
#[test]
fn spliced_histories_are_valid_in_every_dialect() {
    let tally: RefCell<BTreeMap<&str, (u32, u32)>> = RefCell::default();
    let bodies = |subject: &'static dyn Subject| {
        let body = (talks(any_text()), spellings())
            .prop_map(move |(talk, (spelling, seed))| write(&subject.node(&talk), spelling, seed));
        (body, 0..5_usize).boxed()
    };
    for_all(96, bodies, |subject, (body, layout)| {
        let protocol = subject.protocol();
        let conversation = protocol.index(&Bytes::from(body), &NoMemo).unwrap();
        if protocol.valid(&conversation).is_err() {
            return Ok(());
        }
        let layouts = [
            Layout::Answer,
            Layout::Appended,
            Layout::User,
            Layout::Acknowledged("fine".into()),
            Layout::Asked("so?".into()),
        ];
        for cut in cuts(&conversation, None, None, usize::MAX) {
            let splice = cut.splice(&conversation, NOTE, "\"gone\"\n", &layouts[layout]);
            let mut tally = tally.borrow_mut();
            let (made, refused) = tally.entry(protocol.name()).or_default();
            let Some(splice) = splice else {
                *refused += 1;
                continue;
            };
            *made += 1;
            let plan = Plan { ops: splice.operations() };
            let after = protocol::apply_verified(protocol, &conversation, &plan, &NoMemo);
            let after = after.map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(protocol.valid(&after), Ok(()), "{:?}", splice);
            let turns = |of: &Conversation| -> Vec<Bytes> {
                let all = of.messages.iter().filter(|message| message.index.starts_turn());
                all.map(|message| of.body.slice(message.span.range())).collect()
            };
            let (was, is) = (turns(&conversation), turns(&after));
            prop_assert!(splice.layout == Layout::Appended || was.first() == is.first());
            prop_assert!(splice.layout == Layout::Appended || was.last() == is.last());
        }
        Ok(())
    });
    for (name, (made, refused)) in tally.into_inner() {
        assert!(made > 4 * refused && made > 50, "{name}: {made} made, {refused} refused");
    }
}

const WORDS: &[&str] = &["u", "a", "s", "x", "w1", "h1 r1", "g1 r1", "h1 g1 r1", "c1 r1", "t1 r1", "T"];

/// What the model does, and what follows it.
const EXCHANGES: &[&str] = &["a u", "a u u", "x u", "w1 u", "c1 r1", "t1 r1", "s a u", "s c1 r1", "s x u"];

/// Image data is not text, even if a note replaces its message.
#[test]
fn images_in_cuts_count_as_images_not_as_text() {
    let image = format!(
        r#"{{"type":"image","source":{{"type":"base64","data":"{}"}}}}"#,
        "iVBORw0KGgoAAAANSUhEUgAB".repeat(4000)
    );
    let result = r#"{"type":"tool_result","tool_use_id":"t1","content":[IMAGE]}"#.replace("IMAGE", &image);
    for (short, block) in [("u a u a u", &image), ("u c1 u a u", &result)] {
        let mut messages: Vec<String> = short.split_whitespace().map(message).collect();
        messages[2] = format!(r#"{{"role":"user","content":[{block}]}}"#);
        let body = format!(r#"{{"messages":[{}]}}"#, messages.join(","));
        let conversation = protocol::named("anthropic").unwrap().index(&Bytes::from(body), &NoMemo).unwrap();
        let most = cuts(&conversation, None, None, usize::MAX).iter().map(Cut::bytes).max();
        assert!(most.is_some_and(|most| (6400..6900).contains(&most)), "{short}: {most:?}");
    }
}

proptest! {
    /// Counting all messages at once gives what counting them one by one gives.
    #[test]
    fn counts_of_cuts_equal_those_taken_message_by_message(
        words in prop::collection::vec(prop::sample::select(WORDS), 1..24),
        asked in prop::collection::vec(any::<bool>(), 80),
    ) {
        let conversation = talk(&format!("u {}", words.join(" ")));
        let count = conversation.messages.len();
        let starts = |at: usize| u32::from(conversation.messages[at].index.starts_turn());
        let turns: Vec<u32> = (0..=count).map(|from| (from..count).map(starts).sum()).collect();
        prop_assert_eq!(turns_from(&conversation), turns);
        let (mut open, mut pairs) = (Vec::new(), Vec::new());
        let parts = (0..count).flat_map(|message| conversation.parts_of(message));
        for (id, part) in parts.filter(|(_, part)| part.kind() == PartKind::Hosted) {
            let found = open.iter().rposition(|(call, _)| *call == part.call_id());
            match (part.tool(), found) {
                (Some(_), _) => open.push((part.call_id(), id.message)),
                (None, Some(at)) => pairs.push((open.remove(at).1, id.message)),
                (None, None) => {}
            }
        }
        for cut in cuts(&conversation, None, None, usize::MAX) {
            let gone: Vec<usize> = cut.messages().collect();
            prop_assert_eq!(cut.count(), gone.len());
            let before: Vec<u64> = (0..=count as u64).map(|at| at * (at + 1) / 2).collect();
            prop_assert_eq!(cut.total(&before), gone.iter().map(|at| *at as u64 + 1).sum::<u64>());
            let some: Vec<usize> = (0..count).filter(|at| asked[*at]).collect();
            let held: Vec<usize> = some.iter().copied().filter(|at| gone.contains(at)).collect();
            prop_assert_eq!(cut.drops_all(&some), held.len() == some.len());
            prop_assert!(cut.drops_all(&held));
            let end = cut.end as u32;
            prop_assert!(pairs.iter().all(|(call, result)| end <= *call || *result < end), "{pairs:?} {end}");
        }
    }

    /// Whatever a first splice dropped, each further one fits, drops all of that, and leaves what a provider accepts.
    #[test]
    fn each_further_splice_covers_the_last_and_stays_valid(
        words in prop::collection::vec(prop::sample::select(EXCHANGES), 1..12),
        at in any::<prop::sample::Index>(),
    ) {
        let words = words.iter().enumerate().map(|(at, word)| word.replace('1', &at.to_string()));
        let conversation = talk(&format!("u {}", words.collect::<Vec<_>>().join(" ")));
        let splice = |cut: &Cut| cut.splice(&conversation, NOTE, "THE TEXT", &Layout::Answer);
        let all: Vec<Splice> = cuts(&conversation, None, None, usize::MAX).iter().filter_map(splice).collect();
        if all.is_empty() {
            return Ok(());
        }
        let first = at.get(&all);
        for cut in cuts(&conversation, Some(first), None, usize::MAX) {
            let freed: usize = cut.messages().map(|message| conversation.messages[message].read_len()).sum();
            prop_assert_eq!(cut.bytes(), freed as u64);
            let next = splice(&cut).unwrap();
            prop_assert!((0..first.end()).all(|at| next.drops(at) || !first.drops(at)), "{next:?}");
            shown(&conversation, &Plan { ops: next.operations() });
        }
    }
}
