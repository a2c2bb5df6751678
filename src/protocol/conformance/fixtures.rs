//! Requests and answers as clients and providers write them, cut down to what is peculiar about each.
//!
//! `fixtures/DIALECT/CASE/` holds one of:
//!
//! - `request.json` and `index.txt`, its index. With `plan.json`, a plan to apply, also `expected.json`: the resulting
//!   request, without its envelope, compared byte by byte.
//! - `response.sse` or `response.json`, and `usage.json`, what is read from it.
//!
//! With `UPDATE_FIXTURES=1`, the expected files are written anew: review the difference.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde_json::{Value, json};

use super::tree::{Tree, planned};
use super::{SUBJECTS, Subject};
use crate::conversation::{Arguments, Carriers, Conversation, Hold, NoMemo, Part, PartId, Role};
use crate::plan::{LeafEdit, Op, Plan};
use crate::protocol::{self, Answer, Framing, Protocol, Stop};

#[test]
fn recorded_requests_and_answers_are_read_as_expected() {
    let mut wrong = Vec::new();
    for subject in SUBJECTS {
        for case in cases(subject.protocol().name()) {
            if let Some(body) = text(&case, "request.json") {
                request(*subject, &case, &body, &mut wrong);
            }
            for (name, framing) in [("response.sse", Framing::Events), ("response.json", Framing::Document)] {
                if let Some(body) = text(&case, name) {
                    let learned = answer(subject.protocol(), framing, &body);
                    check(&case, "usage.json", &learned, &mut wrong);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The request bodies of a dialect that are read.
pub(super) fn requests(dialect: &str) -> Vec<String> {
    let protocol = protocol::named(dialect).expect("a dialect");
    let bodies = cases(dialect).into_iter().filter_map(|case| text(&case, "request.json"));
    bodies.filter(|body| protocol.index(&Bytes::from(body.clone()), &NoMemo).is_ok()).collect()
}

/// The streams that a dialect answers with: the data of their events.
pub(super) fn streams(dialect: &str) -> Vec<Vec<String>> {
    let bodies = cases(dialect).into_iter().filter_map(|case| text(&case, "response.sse"));
    let data = |event: &str| {
        let lines = event.lines().filter_map(|line| line.strip_prefix("data:"));
        lines.map(str::trim_start).collect::<Vec<_>>().join("\n")
    };
    let events = |body: String| {
        let body = body.replace("\r\n", "\n");
        body.split("\n\n").map(data).filter(|event| !event.is_empty()).collect::<Vec<_>>()
    };
    bodies.map(events).filter(|events| !events.is_empty()).collect()
}

/// The folders of a dialect's cases.
fn cases(dialect: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(dialect);
    let entries = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

fn text(case: &Path, name: &str) -> Option<String> {
    fs::read_to_string(case.join(name)).ok()
}

/// Compares a file with what it should hold, or writes it.
fn check(case: &Path, name: &str, got: &str, wrong: &mut Vec<String>) {
    let path = case.join(name);
    if std::env::var_os("UPDATE_FIXTURES").is_some() {
        fs::write(&path, got).unwrap();
    } else if fs::read_to_string(&path).ok().as_deref() != Some(got) {
        wrong.push(format!("{} should hold:\n{got}", path.display()));
    }
}

fn request(subject: &dyn Subject, case: &Path, body: &str, wrong: &mut Vec<String>) {
    let protocol = subject.protocol();
    let body = Bytes::copy_from_slice(body.as_bytes());
    let body = protocol.envelope(&body).map_or(body, |envelope| envelope.request());
    let conversation = match protocol.index(&body, &NoMemo) {
        Ok(conversation) => conversation,
        Err(unread) => return check(case, "index.txt", &format!("unread: {unread}\n"), wrong),
    };
    check(case, "index.txt", &describe(&conversation), wrong);
    let Some(wanted) = text(case, "plan.json") else { return };
    let plan = plan(&wanted);
    // A plan with marks is for a server that passes marks on.
    let marks = plan.ops.iter().any(|op| matches!(op, Op::Mark { .. }));
    let conversation = if marks { protocol.with_marks(conversation, Carriers::Texts) } else { conversation };
    let after = protocol::apply_verified(protocol, &conversation, &plan, &NoMemo);
    let after = after.unwrap_or_else(|error| panic!("{}: {error}", case.display()));
    let after = std::str::from_utf8(&after.body).unwrap();
    let body = std::str::from_utf8(&body).unwrap();
    assert!(planned(subject, body, &plan).same(&Tree::parse(after)), "{}: {after}", case.display());
    check(case, "expected.json", after, wrong);
}

/// What was read, a line for each message and part.
fn describe(conversation: &Conversation) -> String {
    let mut out = format!(
        "model {:?}, session {:?}, stream {}, continues {}\n",
        conversation.model,
        conversation.session,
        conversation.stream,
        conversation.continues.is_some()
    );
    for (at, message) in conversation.messages.iter().enumerate() {
        let _ = writeln!(out, "{at} {:?}", message.index.role);
        for (id, part) in conversation.parts_of(at) {
            let _ = writeln!(out, "  {} {:?}{}", id.part, part.kind(), details(conversation, id, part));
        }
    }
    out
}

fn details(conversation: &Conversation, id: PartId, part: &Part) -> String {
    let mut out = String::new();
    for (name, value) in [("id", part.call_id()), ("tool", part.tool())] {
        if let Some(value) = value {
            let _ = write!(out, " {name}={value}");
        }
    }
    if let Some(arguments) = part.arguments() {
        let form = if matches!(arguments, Arguments::Encoded(_)) { "encoded" } else { "value" };
        let _ = write!(out, " {form}={}", conversation.arguments(id).as_deref().unwrap_or("?"));
    }
    for (at, leaf) in part.leaves().iter().enumerate() {
        let slot = leaf.slot.map_or_else(String::new, |slot| format!("@{slot}"));
        let text = conversation.text(id, at);
        let _ =
            write!(out, " text{slot}={}", text.map_or_else(|| "?".to_owned(), |text| format!("{text:?}")));
    }
    for media in part.media() {
        let _ = write!(out, " media@{}", media.slot.unwrap_or_default());
    }
    if part.is_error() {
        out.push_str(" error");
    }
    if part.is_sealed() {
        out.push_str(" sealed");
    }
    if part.is_for_code() {
        out.push_str(" code");
    }
    out
}

/// Operations as a list: `{"text":[message,part],"leaves":{"0":"new","1":null}}`, `{"drop":[first,end]}`,
/// `{"insert":before,"role":"user","text":"…"}`, `{"mark":[message,part],"long":true}`.
fn plan(text: &str) -> Plan {
    let ops: Vec<Value> = serde_json::from_str(text).unwrap();
    Plan { ops: ops.iter().map(operation).collect() }
}

fn operation(op: &Value) -> Op {
    let number = |value: &Value| value.as_u64().unwrap();
    let pair = |value: &Value| (number(&value[0]), number(&value[1]));
    if let Some(leaves) = op["leaves"].as_object() {
        let (message, part) = pair(&op["text"]);
        let edit = |(leaf, text): (&String, &Value)| {
            let edit = text.as_str().map_or(LeafEdit::Remove, |text| LeafEdit::Replace(text.into()));
            (leaf.parse().unwrap(), edit)
        };
        let part = PartId { message: message as u32, part: part as u32 };
        return Op::Text { part, leaves: leaves.iter().map(edit).collect() };
    }
    if !op["mark"].is_null() {
        let (message, part) = pair(&op["mark"]);
        let part = PartId { message: message as u32, part: part as u32 };
        let hold = if op["long"] == true { Hold::Long } else { Hold::Short };
        return Op::Mark { part, hold };
    }
    if !op["drop"].is_null() {
        let (first, end) = pair(&op["drop"]);
        return Op::Drop { first: first as usize, end: end as usize };
    }
    let role = match op["role"].as_str().unwrap() {
        "assistant" => Role::Assistant,
        "user" => Role::User,
        other => panic!("{other}"),
    };
    let text = op["text"].as_str().unwrap().into();
    Op::Insert { before: number(&op["insert"]) as usize, role, text }
}

/// What was read from an answer, however it is split into reads.
fn answer(protocol: &dyn Protocol, framing: Framing, body: &str) -> String {
    let read = |size: usize| {
        let mut reader = protocol.answer(framing);
        body.as_bytes().chunks(size).for_each(|bytes| reader.push(bytes));
        reader.finish()
    };
    let whole = read(body.len());
    for size in [1, 7, 64] {
        assert_eq!(read(size), whole, "in pieces of {size} bytes: {body}");
    }
    let Answer {
        id,
        model,
        stop,
        usage,
        complete,
        pending,
        error,
        error_words: _,
        seals: _,
        reasoning_dropped,
        reasoning_unbound: _,
    } = whole;
    let stop = stop.as_ref().map(Stop::word);
    let learned = json!({
        "id": id, "model": model, "stop": stop, "complete": complete, "pending": pending,
        "error": error, "reasoning_dropped": reasoning_dropped, "usage": usage,
    });
    serde_json::to_string_pretty(&learned).unwrap() + "\n"
}
