//! Results that have images, with or without texts: what is cleared of them, and what stays.

use bytes::Bytes;

use super::super::*;
use super::events::Thread;
use crate::conversation::NoMemo;
use crate::plan::LeafEdit;
use crate::protocol;
use crate::strategy::gate::Reason;

const RESULT: PartId = PartId { message: 2, part: 0 };

/// A talk of results with these contents, each of a call of its own, and what was asked since.
fn talk(dialect: &str, contents: &[&str]) -> Conversation {
    let (list, user, model) = match dialect {
        "gemini" => (
            "contents",
            r#"{"role":"user","parts":[{"text":"go on"}]}"#,
            r#"{"role":"model","parts":[{"text":"done"}]}"#,
        ),
        "openai-responses" => {
            ("input", r#"{"role":"user","content":"go on"}"#, r#"{"role":"assistant","content":"done"}"#)
        }
        _ => ("messages", r#"{"role":"user","content":"go on"}"#, r#"{"role":"assistant","content":"done"}"#),
    };
    let step = |(at, content): (usize, &&str)| match dialect {
        "anthropic" => format!(
            r#"{{"role":"assistant","content":[{{"type":"tool_use","id":"t{at}","name":"look","input":{{"n":{at}}}}}]}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t{at}","content":{content}}}]}}"#
        ),
        "openai-chat" => format!(
            r#"{{"role":"assistant","tool_calls":[{{"id":"t{at}","type":"function","function":{{"name":"look","arguments":"{{\"n\":{at}}}"}}}}]}},{{"role":"tool","tool_call_id":"t{at}","content":{content}}}"#
        ),
        "openai-responses" => format!(
            r#"{{"type":"function_call","call_id":"t{at}","name":"look","arguments":"{{\"n\":{at}}}"}},{{"type":"function_call_output","call_id":"t{at}","output":{content}}}"#
        ),
        _ => format!(
            r#"{{"role":"model","parts":[{{"functionCall":{{"id":"t{at}","name":"look","args":{{"n":{at}}}}}}}]}},{{"role":"user","parts":[{{"functionResponse":{{"id":"t{at}","name":"look",{content}}}}}]}}"#
        ),
    };
    let steps: Vec<String> = contents.iter().enumerate().map(step).collect();
    let body = format!(r#"{{"model":"m","{list}":[{user},{},{model},{user}]}}"#, steps.join(","));
    protocol::named(dialect).unwrap().index(&Bytes::from(body), &NoMemo).unwrap()
}

/// Clears whatever is old, marks nothing.
fn policy() -> Policy {
    let mut policy = super::events::policy(Reason::Eager);
    policy.marks.marks = false;
    policy.clear.protect_images = 0;
    policy
}

/// What is decided when all that is old is to go, and was sent before.
fn cleared(talk: &Conversation, policy: &Policy, memory: bool) -> Outcome {
    let mut thread = Thread::default();
    if memory {
        let mut before = talk.clone();
        before.messages.truncate(talk.messages.len() - 2);
        thread.send(&before, policy, &Facts::default(), true);
    }
    thread.sent = talk.messages.len() - 2;
    thread.send(talk, policy, &Facts::default(), memory)
}

/// A text of 400 bytes, in ten lines.
fn words() -> String {
    (0..10).map(|at| format!(r"{at}: words of a page in some browser.....\n")).collect::<Vec<_>>().concat()
}

/// An image that counts for as much as one may.
fn image() -> String {
    "iVBORw0KGgoAAAANSUhEUgAB".repeat(400)
}

const LINE: &str =
    "[plimsoll: result of look cleared (10 lines; an image or file is not kept); full output: /o]";

const SEEN: &str =
    "[plimsoll: result of look cleared (an image or file is not kept); run the tool again for a new one]";

/// Content, and what it is sent as; `None`: as it came.
const CASES: &[(&str, &str, Option<&str>)] = &[
    (
        "anthropic",
        r#"[{"type":"text","text":"WORDS"}, {"type":"image","source":{"type":"base64","media_type":"image/png","data":"IMAGE"}}]"#,
        Some(r#"[{"type":"text","text":"LINE"}]"#),
    ),
    (
        "anthropic",
        r#"[ {"source":{"data":"IMAGE","type":"base64"},"type":"image"} , {"type":"text","text":"WORDS"},{"type":"text","text":""}]"#,
        Some(r#"[ {"type":"text","text":"LINE"}]"#),
    ),
    (
        "anthropic",
        r#"[{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"IMAGE"}},{"type":"text","text":"WORDS"}]"#,
        Some(r#"[{"type":"text","text":"LINE"}]"#),
    ),
    // For a short text with a large image, the image makes it worthwhile.
    (
        "anthropic",
        r#"[{"type":"text","text":"ok"},{"type":"image","source":{"type":"base64","data":"IMAGE"}}]"#,
        Some(
            r#"[{"type":"text","text":"[plimsoll: result of look cleared (1 line; an image or file is not kept); full output: /o]"}]"#,
        ),
    ),
    (
        "anthropic",
        r#"[{"type":"text","text":"ok"},{"type":"image","source":{"type":"base64","data":"iVBORw0KGgo="}}]"#,
        None,
    ),
    // The size of an image that is stored elsewhere is unknown.
    (
        "anthropic",
        r#"[{"type":"text","text":"WORDS"},{"type":"image","source":{"type":"url","url":"https://a/b.png"}}]"#,
        None,
    ),
    (
        "anthropic",
        r#"[{"type":"text","text":"WORDS"},{"type":"image","source":{"type":"file","file_id":"f"}},{"type":"image","source":{"type":"base64","data":"IMAGE"}}]"#,
        None,
    ),
    // A document that is text, and one that is cited by its place among all.
    (
        "anthropic",
        r#"[{"type":"text","text":"WORDS"},{"type":"document","source":{"type":"text","data":"IMAGE"}}]"#,
        None,
    ),
    (
        "anthropic",
        r#"[{"type":"text","text":"WORDS"},{"type":"document","citations":{"enabled":true},"source":{"type":"base64","data":"IMAGE"}}]"#,
        None,
    ),
    (
        "anthropic",
        r#"[{"type":"text","text":"WORDS"},{"type":"image","source":{"type":"base64","data":"IMAGE"}},{"type":"tool_reference","tool_name":"x"}]"#,
        None,
    ),
    // A mark would go with the image.
    (
        "anthropic",
        r#"[{"type":"text","text":"WORDS"},{"type":"image","source":{"type":"base64","data":"IMAGE"},"cache_control":{"type":"ephemeral"}}]"#,
        None,
    ),
    // Read in two ways.
    (
        "anthropic",
        r#"[{"type":"text","text":"WORDS"},{"type":"image","source":{"type":"base64","data":"IMAGE","data":""}}]"#,
        None,
    ),
    // Nothing is saved of a result without a text: a text replaces its first image.
    (
        "anthropic",
        r#"[ {"type":"image","source":{"type":"base64","data":"IMAGE"}} ]"#,
        Some(r#"[ {"type":"text","text":"SEEN"} ]"#),
    ),
    (
        "anthropic",
        r#"[{"type":"image","source":{"type":"base64","data":"IMAGE"}},{"type":"document","source":{"type":"base64","data":"IMAGE"}}]"#,
        Some(
            r#"[{"type":"text","text":"[plimsoll: result of look cleared (2 images or files are not kept); run the tool again for new ones]"}]"#,
        ),
    ),
    (
        "anthropic",
        r#"[{"type":"image","source":{"type":"base64","data":"IMAGE"}},{"type":"text","text":""}]"#,
        Some(r#"[{"type":"text","text":"SEEN"}]"#),
    ),
    ("anthropic", r#"[{"type":"image","source":{"type":"base64","data":"iVBORw0KGgo="}}]"#, None),
    ("anthropic", r#"[{"type":"image","source":{"type":"url","url":"https://a/b.png"}}]"#, None),
    (
        "anthropic",
        r#"[{"type":"image","source":{"type":"base64","data":"IMAGE"}},{"type":"image","source":{"type":"file","file_id":"f"}}]"#,
        None,
    ),
    (
        "anthropic",
        r#"[{"type":"image","source":{"type":"base64","data":"IMAGE"},"cache_control":{"type":"ephemeral"}}]"#,
        None,
    ),
    (
        "anthropic",
        r#"[{"type":"image","source":{"type":"base64","data":"IMAGE"}},{"type":"tool_reference","tool_name":"x"}]"#,
        None,
    ),
    ("anthropic", "[]", None),
    (
        "openai-chat",
        r#"[{"type":"image_url","image_url":{"url":"data:image/png;base64,IMAGE"}}]"#,
        Some(r#"[{"type":"text","text":"SEEN"}]"#),
    ),
    // However its type is spelled.
    (
        "openai-chat",
        r#"[{"type":"image_url","image_url":{"url":"dat\u0061:image\/png;base64,IMAGE"}}]"#,
        Some(r#"[{"type":"text","text":"SEEN"}]"#),
    ),
    (
        "openai-chat",
        r#"[{"type":"text","text":"WORDS"},{"type":"file","file":{"file_data":"data:text\/plain;base64,IMAGE"}}]"#,
        None,
    ),
    // And however long a spelling makes it.
    (
        "openai-chat",
        r#"[{"type":"image_url","image_url":{"url":"\u0064\u0061\u0074\u0061\u003a\u0069\u006d\u0061\u0067\u0065\u002f\u0070\u006e\u0067\u003b\u0062\u0061\u0073\u0065\u0036\u0034\u002c\u0041\u0041\u0041\u0041"}}]"#,
        None,
    ),
    ("openai-chat", r#"[{"type":"image_url","image_url":{"url":"https://a/b.png"}}]"#, None),
    (
        "openai-responses",
        r#"[{"type":"input_image","image_url":"data:image/png;base64,IMAGE"}]"#,
        Some(r#"[{"type":"input_text","text":"SEEN"}]"#),
    ),
    ("openai-responses", r#"[{"type":"input_image","file_id":"f"}]"#, None),
    // A response is an object, and there is no text besides it.
    ("gemini", r#""response":{"ok":true},"parts":[{"inlineData":{"data":"IMAGE"}}]"#, None),
    (
        "openai-chat",
        r#"[{"type":"text","text":"WORDS"},{"type":"image_url","image_url":{"url":"data:image/png;base64,IMAGE","detail":"low"}}]"#,
        Some(r#"[{"type":"text","text":"LINE"}]"#),
    ),
    (
        "openai-chat",
        r#"[{"type":"input_audio","input_audio":{"data":"IMAGE","format":"wav"}},{"type":"text","text":"WORDS"}]"#,
        Some(r#"[{"type":"text","text":"LINE"}]"#),
    ),
    (
        "openai-chat",
        r#"[{"type":"text","text":"WORDS"},{"type":"image_url","image_url":{"url":"https://a/b.png"}}]"#,
        None,
    ),
    (
        "openai-chat",
        r#"[{"type":"text","text":"WORDS"},{"type":"file","file":{"file_data":"data:text/plain;base64,IMAGE"}}]"#,
        None,
    ),
    (
        "openai-responses",
        r#"[{"type":"input_text","text":"WORDS"},{"type":"input_image","image_url":"data:image/png;base64,IMAGE"}]"#,
        Some(r#"[{"type":"input_text","text":"LINE"}]"#),
    ),
    (
        "openai-responses",
        r#"[{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,IMAGE"},{"type":"input_text","text":"WORDS"}]"#,
        Some(r#"[{"type":"input_text","text":"LINE"}]"#),
    ),
    (
        "openai-responses",
        r#"[{"type":"input_text","text":"WORDS"},{"type":"input_image","file_id":"f"}]"#,
        None,
    ),
    (
        "gemini",
        r#""response":{"output":"WORDS"},"parts":[{"inlineData":{"mimeType":"image/png","data":"IMAGE"}}]"#,
        Some(r#""response":{"output":"LINE"},"parts":[]"#),
    ),
    (
        "gemini",
        r#""parts":[ {"inline_data":{"data":"IMAGE"}} ],"response":{"content":[{"text":"WORDS"},{"text":"x"}]}"#,
        Some(
            r#""parts":[  ],"response":{"content":[{"text":"[plimsoll: result of look cleared (11 lines; an image or file is not kept); full output: /o]"}]}"#,
        ),
    ),
    (
        "gemini",
        r#""response":{"output":"WORDS"},"parts":[{"fileData":{"fileUri":"gs://a"}},{"inlineData":{"data":"IMAGE"}}]"#,
        None,
    ),
    // A response may refer to what has a name.
    (
        "gemini",
        r#""response":{"output":"WORDS","shot":{"$ref":"a.png"}},"parts":[{"inlineData":{"displayName":"a.png","data":"IMAGE"}}]"#,
        None,
    ),
    // A word in an empty `error` member would turn the result into an error.
    (
        "gemini",
        r#""response":{"error":"","output":"WORDS","stderr":""}"#,
        Some(r#""response":{"error":"","output":"GONE","stderr":""}"#),
    ),
    ("gemini", r#""response":{"error":" "},"parts":[{"inlineData":{"data":"IMAGE"}}]"#, None),
    (
        "gemini",
        r#""response":{"output":"WORDS"},"parts":[]"#,
        Some(r#""response":{"output":"GONE"},"parts":[]"#),
    ),
];

#[test]
fn text_and_media_of_a_result_are_cleared_together_or_not_at_all() {
    let lines = |text: &str| {
        let (words, image) = (words(), image());
        let text = text.replace("SEEN", SEEN).replace("LINE", LINE);
        text.replace("WORDS", &words).replace("IMAGE", &image)
    };
    for (dialect, came, expected) in CASES {
        for memory in [true, false] {
            let talk = talk(dialect, &[&lines(came)]);
            let outcome = cleared(&talk, &policy(), memory);
            let protocol = protocol::named(dialect).unwrap();
            let after = protocol::apply_verified(protocol, &talk, &outcome.plan, &NoMemo).unwrap().body;
            let gone = "[plimsoll: result of look cleared (10 lines); full output: /o]";
            let wanted = expected.map_or_else(|| lines(came), |text| lines(&text.replace("GONE", gone)));
            let after = String::from_utf8(after.to_vec()).unwrap();
            assert!(after.contains(&wanted), "{dialect} {memory}: {came}\n{after}");
            assert_eq!(outcome.event.is_some(), expected.is_some(), "{dialect} {memory}: {came}");
        }
    }
}

/// Images count as everywhere else, and the full text consists of the texts alone.
#[test]
fn a_cleared_result_with_images_saves_only_its_texts() {
    let content = format!(
        r#"[{{"type":"text","text":"{}end"}},{{"type":"image","source":{{"type":"base64","data":"{}"}}}},{{"type":"text","text":"more"}}]"#,
        words(),
        image()
    );
    let talk = talk("anthropic", &[&content]);
    let outcome = cleared(&talk, &policy(), true);
    let [applied] = &outcome.applied[..] else { panic!("{:?}", outcome.applied) };
    let (texts, images) = (400 + 3 + 4, 6400);
    assert_eq!(applied.decision.bytes_before, texts + images);
    let [save] = &outcome.saves[..] else { panic!("{:?}", outcome.saves) };
    assert_eq!(save.text, format!("{}end\nmore", words().replace("\\n", "\n")));
    assert_eq!(full_text(&talk, applied).as_ref(), Some(&save.text));
    let part = talk.part(RESULT).unwrap();
    let freed = outcome.event.unwrap().freed_bytes;
    assert_eq!(freed, part.read_len() as u64 - u64::from(clear::PLACEHOLDER));
    assert!((6800..7100).contains(&part.read_len()), "{}", part.read_len());
    // If a client marks the image later, the same is sent.
    let body = String::from_utf8(talk.body.to_vec()).unwrap();
    let body = body.replace(
        r#"}},{"type":"text","text":"more""#,
        r#"},"cache_control":{"type":"ephemeral"}},{"type":"text","text":"more""#,
    );
    let anthropic = protocol::named("anthropic").unwrap();
    let marked = anthropic.index(&Bytes::from(body), &NoMemo).unwrap();
    assert!(marked.part(RESULT).unwrap().media()[0].is_marked);
    let past = Past { sent: marked.messages.len(), applied: &outcome.applied, ..Past::nothing() };
    let again = plan(&marked, past, &policy(), &Facts::default(), &|_| "full output: /o".to_owned());
    assert_eq!(again.plan, outcome.plan);
    assert!(protocol::apply_verified(anthropic, &marked, &again.plan, &NoMemo).is_ok());
}

/// Nothing of a screenshot is saved; it is a result like any other, and repeating its call is a recall.
#[test]
fn a_cleared_screenshot_saves_no_text_and_counts_recalls() {
    let content = format!(r#"[{{"type":"image","source":{{"type":"base64","data":"{}"}}}}]"#, image());
    let talk = talk("anthropic", &[&content]);
    let policy = policy();
    let mut before = talk.clone();
    before.messages.truncate(talk.messages.len() - 2);
    let mut thread = Thread::default();
    thread.send(&before, &policy, &Facts::default(), true);
    thread.sent = talk.messages.len() - 2;
    let outcome = thread.send(&talk, &policy, &Facts::default(), true);
    let [applied] = &outcome.applied[..] else { panic!("{:?}", outcome.applied) };
    let decision = &applied.decision;
    assert_eq!((decision.bytes_before, decision.bytes_after), (6400, SEEN.len() as u64));
    assert_eq!((&decision.output, outcome.saves.len()), (&None, 0));
    assert_eq!(decision.leaves, [(0, LeafEdit::Replace(SEEN.into()))]);
    let said = transcript::whole(&talk, std::iter::once(2), &outcome.applied);
    assert!(said.contains(SEEN), "{said}");
    let body = String::from_utf8(talk.body.to_vec()).unwrap();
    let call = &body[talk.messages[1].span.range()];
    let result = &body[talk.messages[2].span.range()];
    let more = format!("{},{call},{result}]}}", body.strip_suffix("]}").unwrap());
    let more = protocol::named("anthropic").unwrap().index(&Bytes::from(more), &NoMemo).unwrap();
    let outcome = thread.send(&more, &policy, &Facts::default(), true);
    assert_eq!(outcome.standing.unwrap().recalls(), 1);
    assert_eq!(outcome.applied.len(), 1, "the new one stays");
}

/// The newest results are protected up to a number of tokens, including images: one is some 1,600, and one with its
/// text some 1,700.
#[test]
fn the_newest_results_are_protected_including_their_images() {
    let (words, image) = (words(), image());
    let image = format!(r#"{{"type":"image","source":{{"type":"base64","data":"{image}"}}}}"#);
    let with = |at: usize| format!(r#"[{{"type":"text","text":"{at}: {words}"}},{image}]"#);
    let alone = |_: usize| format!("[{image}]");
    let contents: [&dyn Fn(usize) -> String; 2] = [&with, &alone];
    for (content, limits) in contents.into_iter().zip([[1_800, 3_500], [1_650, 3_300]]) {
        let contents: Vec<String> = (0..3).map(content).collect();
        let talk = talk("anthropic", &contents.iter().map(|content| &**content).collect::<Vec<_>>());
        for (other_tokens, expected) in
            [(0, &[2, 4, 6][..]), (1_590, &[2, 4, 6]), (limits[0], &[2, 4]), (limits[1], &[2]), (6_000, &[])]
        {
            let mut policy = policy();
            policy.clear.protect.other_tokens = other_tokens;
            let outcome = cleared(&talk, &policy, true);
            let messages: Vec<u32> = outcome.applied.iter().map(|applied| applied.part.message).collect();
            assert_eq!(messages, expected, "{other_tokens}: {}", contents[0]);
        }
    }
}

/// The bytes written again because an image is cleared, after what stays: if it was the last image, all messages are.
#[test]
fn clearing_the_last_image_rewrites_all_messages() {
    let image = format!(r#"{{"type":"image","source":{{"type":"base64","data":"{}"}}}}"#, image());
    let words = words();
    let document =
        format!(r#"{{"type":"document","source":{{"type":"text","data":"{}"}}}}"#, words.repeat(10));
    let stays = format!("[{document}]");
    let shows =
        format!(r#"[{document},{{"type":"image","source":{{"type":"url","url":"https://a/b.png"}}}}]"#);
    let seen = format!("[{image}]");
    let said = r#"{"role":"user","content":"go on"}]}"#;
    let looked = format!(r#"{{"role":"user","content":[{{"type":"text","text":"go on"}},{image}]}}]}}"#);
    for (contents, last, expected) in [
        ([&stays, &seen], said, true),
        // Another image stays, is new, or is no longer there; or there was none.
        ([&shows, &seen], said, false),
        ([&stays, &seen], &looked, false),
        ([&seen, &seen], said, true),
        ([&stays, &format!(r#""{}""#, words.repeat(16))], said, false),
    ] {
        let talk = talk("anthropic", &contents.map(|content| &**content));
        let body = String::from_utf8(talk.body.to_vec()).unwrap();
        let body = body.strip_suffix(said).unwrap().to_owned() + last;
        let talk = protocol::named("anthropic").unwrap().index(&Bytes::from(body), &NoMemo).unwrap();
        let policy = Policy { marks: marks::Settings::default(), ..policy() };
        let facts = Facts { now_ms: 1_000, ..Facts::default() };
        let mut thread = Thread::default();
        for messages in [3, 5] {
            let mut before = talk.clone();
            before.messages.truncate(messages);
            thread.send(&before, &policy, &facts, true);
        }
        let outcome = thread.send(&talk, &policy, &facts, true);
        let (event, applied) = (outcome.event.unwrap(), outcome.applied);
        let messages = &talk.messages[..talk.messages.len() - 2];
        let all = messages.iter().map(|message| message.read_len() as u64).sum::<u64>()
            - applied.iter().map(|applied| applied.decision.bytes_spared()).sum::<u64>();
        let is_all = event.rewritten_bytes * 3 > all * 2;
        assert_eq!(is_all, expected, "{event:?} of {all}: {} {}", contents[0].len(), last.len());
    }
}

/// The last image stays until it has cost what all messages do; one of several goes sooner.
#[test]
fn the_last_image_is_cleared_only_once_it_pays() {
    let image = format!(r#"{{"type":"image","source":{{"type":"base64","data":"{}"}}}}"#, image());
    let document =
        format!(r#"{{"type":"document","source":{{"type":"text","data":"{}"}}}}"#, words().repeat(20));
    let shows =
        format!(r#"[{document},{{"type":"image","source":{{"type":"url","url":"https://a/b.png"}}}}]"#);
    let [last, other] = [format!("[{document}]"), shows].map(|first| {
        let mut contents = vec![first, format!("[{image}]")];
        contents.extend((0..60).map(|at| format!(r#""{at}""#)));
        let whole = talk("anthropic", &contents.iter().map(|content| &**content).collect::<Vec<_>>());
        let mut policy = super::events::policy(Reason::BreakEven);
        (policy.clear.protect_images, policy.clear.most_loss) = (0, 1.0);
        let mut thread = Thread::default();
        (1..60).find(|steps| {
            let mut talk = whole.clone();
            talk.messages.truncate(1 + 2 * steps);
            let facts = Facts { now_ms: 1_000, ..Facts::default() };
            thread.send(&talk, &policy, &facts, true).event.is_some()
        })
    });
    assert!(other < Some(6) && last > Some(10) && last < Some(30), "{other:?} {last:?}");
}
