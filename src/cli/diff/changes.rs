//! The changes of a request, from its bodies or from the store.

use bytes::Bytes;

use super::{CACHE_MARK, Change, Difference, Gone};
use crate::cli::Failure;
use crate::cli::history::{History, Standing};
use crate::conversation::{Conversation, NoMemo, Part, PartId, PartKind};
use crate::json::scan::Member;
use crate::ledger::{Made, Record, told};
use crate::plan::LeafEdit;
use crate::planner::Splice;
use crate::planner::decision::{ARGUMENTS, CLEAR, OPENING, REASONING};
use crate::protocol;
use crate::store::bodies::Form;
use crate::store::{Bodies, Outputs, Sought};

/// The note for when bodies would tell more.
const FROM_STORE: &str =
    "reconstructed from the store; with `ledger.record = \"full\"` whole bodies are compared";
/// The notes for what the parts do not show.
const MARKED: &str = "it is marked for the provider's cache";
const COUNT: &str = "the number of messages or parts differs: what has no counterpart is not shown";

/// The changes of the request at index `at` of the history.
pub(super) fn of(history: &History, at: usize) -> Result<Difference, Failure> {
    let record = &history.found.entries[at].record;
    let (is_edited, added) = (record.edits.were_sent(), &record.edits.added);
    if !is_edited && added.is_empty() {
        return Ok(Difference { from: "store", ..Difference::default() });
    }
    let standing = if is_edited { history.standing(at) } else { Vec::new() };
    let outputs = Outputs::new(&history.config.outputs.dir);
    if let Some(difference) = from_bodies(history, record, &standing, &outputs)? {
        return Ok(difference);
    }
    let splice = record.edits.splice.as_ref();
    let added = (!added.is_empty()).then(|| told::added(&record.edits));
    let stored = [(record.edits.marked, MARKED), (is_edited, FROM_STORE)];
    let stored = stored.into_iter().filter(|(is_so, _)| *is_so).map(|(_, note)| note.to_owned());
    let is_sent =
        |one: &&Standing<'_>| splice.is_none_or(|gone| !(gone.first..gone.end).contains(&one.made.message));
    let changes = standing.iter().filter(is_sent).map(|one| from_store(history, one, &outputs));
    Ok(Difference {
        from: "store",
        gone: gone(history, record, &outputs)?.map(|(gone, _)| gone),
        reasoning: record.edits.parts.get(REASONING).copied().filter(|_| is_edited).unwrap_or(0),
        changes: changes.collect::<Result<_, _>>()?,
        notes: added.into_iter().chain(stored).collect(),
    })
}

/// The messages that are not sent, and the splice that replaces them, if it is still stored.
fn gone(
    history: &History,
    record: &Record,
    outputs: &Outputs,
) -> Result<Option<(Gone, Option<Splice>)>, Failure> {
    let splice = record.edits.splice.as_ref().filter(|_| record.edits.were_sent());
    let Some(splice) = splice else { return Ok(None) };
    let (sizes, saved) = ((splice.before, splice.after), splice.output.as_deref());
    let stored = history.books.splice(&splice.rule, splice.end, sizes, saved);
    let stored = stored.map_err(|error| history.failed(&error))?;
    let gone = Gone {
        messages: splice.messages,
        first: splice.first,
        end: splice.end,
        rule: splice.rule.clone(),
        bytes_before: splice.before,
        bytes_after: splice.after,
        before: saved.and_then(|id| read(outputs, id)),
        text: stored.as_ref().map(|stored| stored.text.to_string()),
        output: splice.output.as_deref().and_then(|id| output(outputs, id)),
    };
    Ok(Some((gone, stored)))
}

/// The text of an output, if it is still stored.
fn read(outputs: &Outputs, id: &str) -> Option<String> {
    Some(String::from_utf8_lossy(&outputs.read(id).ok()??).into_owned())
}

/// The file of an output, if it still exists.
fn output(outputs: &Outputs, id: &str) -> Option<std::path::PathBuf> {
    Some(outputs.path(id)).filter(|path| path.exists())
}

fn from_store(history: &History, one: &Standing<'_>, outputs: &Outputs) -> Result<Change, Failure> {
    let made = one.made;
    let failed = |error| history.failed(&error);
    let decision = history.books.decision(&sought(made)).map_err(failed)?;
    let before = made.output.as_deref().and_then(|id| read(outputs, id));
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
        what: decided_about(made),
        rules: made.rules.clone(),
        decided_in: Some(one.request),
        decided_for: one.of.map(str::to_owned),
        bytes_before: made.before,
        bytes_after: made.after,
        before,
        after,
        output: made.output.as_deref().and_then(|id| output(outputs, id)),
    })
}

/// The criteria by which the store finds the decision that a record describes.
fn sought(made: &Made) -> Sought<'_> {
    Sought {
        chain: made.chain.as_deref(),
        part: made.part,
        content: &made.content,
        rules: &made.rules,
        bytes_after: made.after,
        output: made.output.as_deref(),
    }
}

/// The tool whose result a decision is about, or else the kind of part.
fn decided_about(made: &Made) -> String {
    match (&*made.rules, &made.tool) {
        (ARGUMENTS, _) => "arguments of a call".to_owned(),
        (OPENING, _) => "text".to_owned(),
        (_, Some(tool)) => format!("result of {tool}"),
        (_, None) => "tool result".to_owned(),
    }
}

/// The changes by comparing bodies; `None` if these were not recorded, or have been removed.
fn from_bodies(
    history: &History,
    record: &Record,
    standing: &[Standing<'_>],
    outputs: &Outputs,
) -> Result<Option<Difference>, Failure> {
    let bodies = Bodies::below(&history.config.state.dir);
    let read = |form| {
        let path = bodies.path(&history.found.id, &record.id, form);
        let body = bodies.read(&history.found.id, &record.id, form);
        let body = body.map_err(|error| Failure::about(&path, error))?;
        let Some(said) = protocol::named(&record.protocol) else { return Ok(None) };
        Ok(body.and_then(|body| protocol::read(said, &Bytes::from(body), &NoMemo).ok()))
    };
    let (Some((_, came)), Some((_, sent))) = (read(Form::Came)?, read(Form::Sent)?) else { return Ok(None) };
    let mut difference = Difference { from: "bodies", ..Difference::default() };
    let mut places = Places::default();
    if let Some((mut gone, splice)) = gone(history, record, outputs)? {
        places = Places::of(&gone, splice.as_ref());
        let dropped = (0..came.messages.len()).filter(|message| !places.is_sent(*message));
        let texts = dropped.flat_map(|message| came.parts_of(message)).filter_map(|(id, _)| text(&came, id));
        gone.before = Some(texts.collect::<Vec<_>>().join("\n"));
        difference.gone = Some(gone);
    }
    for message in (0..came.messages.len()).filter(|message| places.is_sent(*message)) {
        let (changes, reasoning) = of_message(&came, &sent, message, &places);
        difference.reasoning += reasoning;
        for mut change in changes {
            let id = PartId { message: change.message, part: change.part };
            match places.appended.as_ref().filter(|(part, _)| *part == id) {
                Some((_, rule)) => change.rules.clone_from(rule),
                None => attribute(&mut change, standing, outputs),
            }
            difference.changes.push(change);
        }
    }
    let count =
        |of: &Conversation| of.messages.iter().map(|message| message.index.parts.len()).collect::<Vec<_>>();
    let is_plain = difference.gone.is_none() && difference.reasoning == 0;
    difference.notes.extend((is_plain && count(&came) != count(&sent)).then(|| COUNT.to_owned()));
    let members = members(&came, &sent);
    let beside = (!members.is_empty()).then(|| format!("beside the messages: {}", members.join(", ")));
    difference.notes.extend(beside);
    Ok(Some(difference))
}

/// The parts of a message that were sent in another form, and the number of its reasoning blocks that were not sent.
fn of_message(
    came: &Conversation,
    sent: &Conversation,
    message: usize,
    places: &Places,
) -> (Vec<Change>, u32) {
    let at = places.of_message(message);
    let Some(other) = sent.messages.get(at) else { return (Vec::new(), 0) };
    // Reasoning is removed from a message as a whole.
    let thinks = |part: &Part| part.kind() == PartKind::Thinking;
    let forgets = !other.index.parts.iter().any(thinks);
    let (gone, stays): (Vec<_>, Vec<_>) =
        came.parts_of(message).partition(|(_, part)| forgets && thinks(part));
    let counterparts = (0..).map(|part| PartId { message: at as u32, part });
    let pairs = stays.into_iter().zip(counterparts);
    let changes = pairs.filter_map(|((id, _), counterpart)| compare(came, sent, id, counterpart));
    (changes.collect(), gone.len() as u32)
}

/// The positions of messages in what is sent, if some are not.
#[derive(Default)]
struct Places {
    /// The ranges of messages that are not sent.
    drops: Vec<(u32, u32)>,
    /// The number of messages that the gateway inserted.
    inserted: usize,
    /// The message before which it inserted them.
    inserted_before: usize,
    /// The part that something was appended to, and why.
    appended: Option<(PartId, String)>,
}

impl Places {
    /// The positions if messages are gone. Without the splice, only the range of these messages is known.
    fn of(gone: &Gone, splice: Option<&Splice>) -> Self {
        let Some(splice) = splice else {
            return Self {
                drops: vec![(gone.first, gone.end)],
                inserted: 1,
                inserted_before: gone.first as usize,
                appended: None,
            };
        };
        let count = splice.inserted() as usize;
        Self {
            drops: splice.drops.to_vec(),
            inserted: count,
            inserted_before: splice.at.message as usize,
            appended: (count == 0).then(|| (splice.at, gone.rule.clone())),
        }
    }

    fn is_sent(&self, message: usize) -> bool {
        !self.drops.iter().any(|(first, end)| (*first as usize..*end as usize).contains(&message))
    }

    /// The position of a message that is sent.
    fn of_message(&self, message: usize) -> usize {
        let before = |(first, end): &(u32, u32)| (*end as usize).min(message).saturating_sub(*first as usize);
        let gone: usize = self.drops.iter().map(before).sum();
        message - gone + if message >= self.inserted_before { self.inserted } else { 0 }
    }
}

/// The members outside the messages that differ between both bodies.
fn members(came: &Conversation, sent: &Conversation) -> Vec<String> {
    let beside = |of: &Conversation| {
        let is_beside = |one: &&Member| !one.value.span.range().contains(&of.array.range().start);
        of.members.iter().filter(is_beside).map(|one| one.name(&of.body).to_vec()).collect::<Vec<_>>()
    };
    let value = |of: &Conversation, name: &[u8]| {
        let found = of.members.iter().find(|one| one.name(&of.body) == name)?;
        Some(found.value.span.of(&of.body).to_vec())
    };
    let (old, new) = (beside(came), beside(sent));
    let fresh = new.iter().filter(|name| !old.contains(name));
    let told = old.iter().chain(fresh).filter_map(|name| {
        let what = match (value(came, name), value(sent, name)) {
            (before, after) if before == after => return None,
            (None, _) => "added",
            (_, None) => "left out",
            (Some(_), Some(_)) => "changed",
        };
        Some(format!("{} {what}", String::from_utf8_lossy(name)))
    });
    told.collect()
}

/// The change of a part, if it differs between both bodies.
fn compare(came: &Conversation, sent: &Conversation, id: PartId, counterpart: PartId) -> Option<Change> {
    let (one, other) = (came.part(id)?, sent.part(counterpart)?);
    if came.bytes_of(id.message, one.span) == sent.bytes_of(counterpart.message, other.span) {
        return None;
    }
    let (before, after) = (text(came, id), text(sent, counterpart));
    let is_marked = before == after;
    let raw = |of: &Conversation, part: &Part| part.span.len().min(of.body.len()) as u64;
    let bytes = |text: &Option<String>, raw: u64| text.as_ref().map_or(raw, |text| text.len() as u64);
    Some(Change {
        message: id.message,
        part: id.part,
        what: what(came, id),
        rules: if is_marked { CACHE_MARK.to_owned() } else { String::new() },
        decided_in: None,
        decided_for: None,
        bytes_before: bytes(&before, raw(came, one)),
        bytes_after: bytes(&after, raw(sent, other)),
        before,
        after,
        output: None,
    })
}

/// The whole text of a part; `None` if it has none, or none that can be read.
fn text(conversation: &Conversation, id: PartId) -> Option<String> {
    if conversation.part(id)?.kind() == PartKind::ToolCall {
        return conversation.arguments(id).map(Into::into);
    }
    // Images have no text.
    let says_images = |part: &Part| part.leaves().is_empty() && !part.media().is_empty();
    if conversation.part(id).is_some_and(says_images) {
        return None;
    }
    Some(conversation.texts(id)?.concat())
}

/// The tool whose result it is, or else the kind of part.
fn what(conversation: &Conversation, id: PartId) -> String {
    let Some(part) = conversation.part(id) else { return String::new() };
    match part.kind() {
        PartKind::ToolResult => match conversation.tool_of(id) {
            Some(tool) => format!("result of {tool}"),
            None => "tool result".to_owned(),
        },
        PartKind::ToolCall => "tool call".to_owned(),
        PartKind::Text => "text".to_owned(),
        PartKind::Thinking => "reasoning".to_owned(),
        PartKind::Media => "media".to_owned(),
        PartKind::Hosted => "tool of the provider's".to_owned(),
        PartKind::Opaque => "other".to_owned(),
    }
}

/// Sets the decision by which a part was changed.
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
    (change.decided_in, change.decided_for) = (Some(one.request), one.of.map(str::to_owned));
    if one.made.rules == CLEAR {
        // Removed images count, but not by their encoding.
        (change.bytes_before, change.bytes_after) = (one.made.before, one.made.after);
    }
    change.output = one.made.output.as_deref().and_then(|id| output(outputs, id));
}
