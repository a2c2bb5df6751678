//! What was changed about a request, from its bodies or from the store.

use bytes::Bytes;

use super::{Change, Difference};
use crate::cli::Failure;
use crate::cli::history::{History, Standing};
use crate::conversation::{Conversation, NoMemo, PartId, PartKind};
use crate::ledger::Record;
use crate::plan::LeafEdit;
use crate::protocol;
use crate::store::bodies::Form;
use crate::store::{Bodies, Outputs};

/// Said where bodies would tell more.
const FROM_STORE: &str =
    "put together from the store: with `ledger.record = \"full\"` whole bodies are compared";
/// Said where more than parts was changed.
const FRAME: &str = "the body differs outside of the messages too";
const COUNT: &str = "the number of messages or parts differs: what has no counterpart is not shown";

/// The changes of the request at a place of the history.
pub(super) fn of(history: &History, at: usize) -> Result<Difference, Failure> {
    let record = &history.requests[at].1;
    if record.edits.state != "edited" || record.edits.original_resent {
        return Ok(Difference { from: "store", ..Difference::default() });
    }
    let (standing, outputs) = (history.standing(at), Outputs::new(&history.config.outputs.dir));
    if let Some(difference) = from_bodies(history, record, &standing, &outputs)? {
        return Ok(difference);
    }
    let changes = standing.iter().map(|one| from_store(history, one, &outputs));
    Ok(Difference { from: "store", changes: changes.collect::<Result<_, _>>()?, notes: vec![FROM_STORE] })
}

/// The file of an output that is still there.
fn output(outputs: &Outputs, id: &str) -> Option<std::path::PathBuf> {
    Some(outputs.path(id)).filter(|path| path.exists())
}

fn from_store(history: &History, one: &Standing<'_>, outputs: &Outputs) -> Result<Change, Failure> {
    let made = one.made;
    let failed = |error| history.failed(&error);
    let decision = history.books.decision(&made.content, &made.rules).map_err(failed)?;
    let before = made.output.as_deref().and_then(|id| outputs.read(id).ok().flatten());
    let after = decision.map(|stored| {
        let texts = stored.decision.leaves.iter().filter_map(|(_, edit)| match edit {
            LeafEdit::Replace(text) => Some(&**text),
            LeafEdit::Remove => None,
        });
        texts.collect()
    });
    Ok(Change {
        message: made.message,
        part: made.part,
        what: "tool result".to_owned(),
        rules: made.rules.clone(),
        decided_in: Some(one.request),
        bytes_before: made.before,
        bytes_after: made.after,
        before: before.map(|text| String::from_utf8_lossy(&text).into_owned()),
        after,
        output: made.output.as_deref().and_then(|id| output(outputs, id)),
    })
}

/// `None`: they were not recorded, or have been swept.
fn from_bodies(
    history: &History,
    record: &Record,
    standing: &[Standing<'_>],
    outputs: &Outputs,
) -> Result<Option<Difference>, Failure> {
    let bodies = Bodies::below(&history.config.state.dir);
    let read = |form| {
        let path = bodies.path(&history.id, &record.id, form);
        let body = bodies.read(&history.id, &record.id, form);
        let body = body.map_err(|error| Failure::Said(format!("{}: {error}", path.display())))?;
        let Some(said) = protocol::named(&record.protocol) else { return Ok(None) };
        Ok(body.and_then(|body| protocol::read(said, &Bytes::from(body), &NoMemo).ok()))
    };
    let (Some((_, came)), Some((_, sent))) = (read(Form::Came)?, read(Form::Sent)?) else { return Ok(None) };
    let mut difference = Difference { from: "bodies", ..Difference::default() };
    for message in 0..came.messages.len() {
        for (id, _) in came.parts_of(message) {
            if let Some(mut change) = compare(&came, &sent, id) {
                attribute(&mut change, standing, outputs);
                difference.changes.push(change);
            }
        }
    }
    let parts = |of: &Conversation| -> Vec<usize> {
        of.messages.iter().map(|message| message.index.parts.len()).collect()
    };
    difference.notes.extend((parts(&came) != parts(&sent)).then_some(COUNT));
    difference.notes.extend((frame(&came) != frame(&sent)).then_some(FRAME));
    Ok(Some(difference))
}

/// What stands around the messages.
fn frame(conversation: &Conversation) -> [&[u8]; 2] {
    let list = conversation.array.range();
    [&conversation.body[..list.start], &conversation.body[list.end..]]
}

/// A part in both bodies, if it is not the same.
fn compare(came: &Conversation, sent: &Conversation, id: PartId) -> Option<Change> {
    let (one, other) = (came.part(id)?, sent.part(id)?);
    if came.bytes_of(id.message, one.span) == sent.bytes_of(id.message, other.span) {
        return None;
    }
    let (before, after) = (text(came, id), text(sent, id));
    let is_marked = before == after;
    let raw = |of: &Conversation, part: &crate::conversation::Part| part.span.len().min(of.body.len()) as u64;
    let bytes = |text: &Option<String>, raw: u64| text.as_ref().map_or(raw, |text| text.len() as u64);
    Some(Change {
        message: id.message,
        part: id.part,
        what: what(came, id),
        rules: if is_marked { "cache mark".to_owned() } else { String::new() },
        decided_in: None,
        bytes_before: bytes(&before, raw(came, one)),
        bytes_after: bytes(&after, raw(sent, other)),
        before,
        after,
        output: None,
    })
}

/// All that a part says; `None`: it says nothing, or nothing that can be read.
fn text(conversation: &Conversation, id: PartId) -> Option<String> {
    let leaves = conversation.part(id)?.leaves.len();
    (0..leaves).map(|leaf| conversation.text(id, leaf)).collect()
}

/// The tool that a result is of, or the kind of part.
fn what(conversation: &Conversation, id: PartId) -> String {
    let Some(part) = conversation.part(id) else { return String::new() };
    let call = || conversation.part(conversation.call_of(id)?)?.tool.as_deref();
    match part.kind {
        PartKind::ToolResult => match part.tool.as_deref().or_else(call) {
            Some(tool) => format!("result of {tool}"),
            None => "tool result".to_owned(),
        },
        PartKind::ToolCall => "tool call".to_owned(),
        PartKind::Text => "text".to_owned(),
        PartKind::Thinking => "reasoning".to_owned(),
        PartKind::Media => "media".to_owned(),
        PartKind::Opaque => "other".to_owned(),
    }
}

/// Says by which decision a part was changed.
fn attribute(change: &mut Change, standing: &[Standing<'_>], outputs: &Outputs) {
    let decided =
        standing.iter().find(|one| (one.made.message, one.made.part) == (change.message, change.part));
    let Some(one) = decided else {
        if change.rules.is_empty() {
            "not recorded".clone_into(&mut change.rules);
        }
        return;
    };
    change.rules.clone_from(&one.made.rules);
    change.decided_in = Some(one.request);
    change.output = one.made.output.as_deref().and_then(|id| output(outputs, id));
}
