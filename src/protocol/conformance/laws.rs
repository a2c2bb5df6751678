//! The laws that need nothing but a dialect and a plan.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use proptest::prelude::*;

use crate::conversation::{Arguments, Carriers, Conversation, Memo, MessageIndex, NoMemo, PartKind, Trail};
use crate::json::{Edit, Span};
use crate::plan::{self, LeafEdit, Op, Plan};
use crate::protocol::{self, Protocol, Unread};

use super::plans::{Wish, plan, wishes};
use super::talk::{Talk, any_text, talks};
use super::tree::{Tree, planned};
use super::write::{Flaw, Sabotage, sabotaged, write};
use super::{Subject, fixtures, for_all, spellings};

/// Fixtures and generated bodies.
fn bodies(subject: &'static dyn Subject) -> BoxedStrategy<String> {
    let generated = (talks(any_text()), spellings())
        .prop_map(move |(talk, (spelling, seed))| write(&subject.node(&talk), spelling, seed));
    let shipped = fixtures::requests(subject.protocol().name());
    prop_oneof![1 => prop::sample::select(shipped), 8 => generated].boxed()
}

fn planned_bodies(subject: &'static dyn Subject) -> BoxedStrategy<(String, Vec<Wish>)> {
    (bodies(subject), wishes()).boxed()
}

/// The index of a body whose server passes cache marks on.
fn read(protocol: &dyn Protocol, body: &str) -> Conversation {
    let body = Bytes::copy_from_slice(body.as_bytes());
    let read = protocol.index(&body, &NoMemo).unwrap_or_else(|unread| panic!("{unread}"));
    protocol.with_marks(read, Carriers::Texts)
}

#[test]
fn law_01_identity() {
    for_all(128, bodies, |subject, body| {
        let protocol = subject.protocol();
        let conversation = read(protocol, &body);
        let edits = protocol.lower(&conversation, &Plan::default()).unwrap();
        prop_assert!(edits.is_empty());
        let same = protocol::apply_verified(protocol, &conversation, &Plan::default(), &NoMemo).unwrap().body;
        prop_assert_eq!(&same, &body);
        Ok(())
    });
}

#[test]
fn law_02_frame() {
    let carried_out = Cell::new(0);
    for_all(128, planned_bodies, |subject, (body, wishes)| {
        let conversation = read(subject.protocol(), &body);
        let plan = plan(&conversation, &wishes);
        let Ok(edits) = subject.protocol().lower(&conversation, &plan) else { return Ok(()) };
        carried_out.set(carried_out.get() + u32::from(!edits.is_empty()));
        let after = edits.apply(body.as_bytes());
        let (mut old, mut new) = (0, 0);
        for edit in &edits {
            prop_assert!(is_named(&conversation, &plan, edit), "{:?} of {:?}", edit, plan);
            let kept = &body.as_bytes()[old..edit.at.range().start];
            prop_assert_eq!(&after[new..new + kept.len()], kept);
            new += kept.len();
            prop_assert_eq!(&after[new..new + edit.text.len()], edit.text.as_bytes());
            new += edit.text.len();
            old = edit.at.range().end;
        }
        prop_assert_eq!(&after[new..], &body.as_bytes()[old..]);
        Ok(())
    });
    assert!(carried_out.get() > 10, "hardly a plan changes anything: {}", carried_out.get());
}

/// Whether an edit stays within what some operation names.
fn is_named(conversation: &Conversation, plan: &Plan, edit: &Edit) -> bool {
    let within = |span: Span| span.start <= edit.at.start && edit.at.end <= span.end;
    let list = conversation.array;
    let inside = within(Span { start: list.start + 1, end: list.end - 1 });
    let dropped = |at: usize| {
        plan.ops.iter().any(|op| matches!(op, Op::Drop { first, end } if (*first..*end).contains(&at)))
    };
    plan.ops.iter().any(|op| match op {
        Op::Text { part, leaves } => {
            let Some(found) = conversation.part(*part) else { return false };
            let place = |span: Span| conversation.absolute(part.message, span);
            let media = found.media_list().map(|media| place(media.slots.array));
            if let Some(Arguments::Value(span) | Arguments::Encoded(span)) = found.arguments() {
                return within(place(span));
            }
            leaves.iter().any(|(leaf, change)| match (change, found.slots()) {
                (LeafEdit::Replace(_), slots) => match found.leaves().get(*leaf as usize) {
                    Some(leaf) => edit.at == place(leaf.span),
                    None => {
                        let media = &found.media()[*leaf as usize - found.leaves().len()];
                        let item = media.slot.and_then(|slot| slots?.items.get(slot as usize));
                        item.is_some_and(|item| edit.at == place(*item))
                    }
                },
                (LeafEdit::Remove, _) if *leaf as usize >= found.leaves().len() => {
                    edit.text.is_empty() && media.is_some_and(within)
                }
                (LeafEdit::Remove, Some(slots)) => edit.text.is_empty() && within(place(slots.array)),
                (LeafEdit::Remove, None) => false,
            })
        }
        Op::Mark { .. } => edit.at.is_empty() && inside,
        Op::Append { part, leaf, .. } => conversation.part(*part).is_some_and(|found| {
            let end = conversation.absolute(part.message, found.leaves()[*leaf as usize].span).end - 1;
            edit.at == Span { start: end, end }
        }),
        Op::Omit { part } => {
            let slots = conversation.part(*part).and_then(|part| part.slots());
            let list = slots.map(|slots| conversation.absolute(part.message, slots.array));
            edit.text.is_empty() && list.is_some_and(within)
        }
        Op::Split { .. } => edit.at.is_empty() && conversation.system.is_some_and(within),
        Op::MarkFrame { .. } => edit.at.is_empty() && conversation.frame_end.is_some_and(within),
        Op::Drop { .. } => {
            let mut messages = conversation.messages.iter().enumerate();
            edit.text.is_empty()
                && inside
                && messages.all(|(at, message)| {
                    dropped(at) || edit.at.end <= message.span.start || message.span.end <= edit.at.start
                })
        }
        // Next to dropped messages, an insertion may be anywhere between the nearest that stay.
        Op::Insert { .. } => {
            let mut messages = conversation.messages.iter();
            edit.at.is_empty()
                && inside
                && messages
                    .all(|message| edit.at.start <= message.span.start || message.span.end <= edit.at.start)
        }
    })
}

#[test]
fn law_03_commuting_square() {
    let (carried_out, abridged) = (Cell::new(0), Cell::new(0));
    let (blinded, described) = (Cell::new(0), Cell::new(0));
    for_all(256, planned_bodies, |subject, (body, wishes)| {
        let protocol = subject.protocol();
        let conversation = read(protocol, &body);
        let plan = plan(&conversation, &wishes);
        if plan::check(&conversation, &plan).is_err() {
            prop_assert!(protocol.lower(&conversation, &plan).is_err());
            return Ok(());
        }
        let untaken = |op: &Op| matches!(op, Op::Insert { role, .. } if !subject.takes(*role));
        if plan.ops.iter().any(untaken) {
            prop_assert!(protocol.lower(&conversation, &plan).is_err());
            return Ok(());
        }
        carried_out.set(carried_out.get() + u32::from(!plan.is_empty()));
        let is_call = |op: &Op| matches!(op, Op::Text { part, .. } if conversation.part(*part).is_some_and(|part| part.kind() == PartKind::ToolCall));
        abridged.set(abridged.get() + u32::from(plan.ops.iter().any(is_call)));
        let takes_images = |op: &Op| matches!(op, Op::Text { part, leaves } if conversation.part(*part).is_some_and(|part| leaves.iter().any(|(at, _)| *at as usize >= part.leaves().len()) && part.kind() == PartKind::ToolResult));
        blinded.set(blinded.get() + u32::from(plan.ops.iter().any(takes_images)));
        let describes = |op: &Op| matches!(op, Op::Text { part, leaves } if conversation.part(*part).is_some_and(|part| part.kind() == PartKind::ToolResult && leaves.iter().any(|(at, edit)| *at as usize >= part.leaves().len() && *edit != LeafEdit::Remove)));
        described.set(described.get() + u32::from(plan.ops.iter().any(describes)));
        let after = protocol::apply_verified(protocol, &conversation, &plan, &NoMemo);
        let after = after.map_err(|error| TestCaseError::fail(error.to_string()))?;
        let sent = std::str::from_utf8(&after.body).unwrap();
        prop_assert_eq!(&after, &read(protocol, sent), "what is not read again is as it would be read");
        let (after, expected) = (sent, planned(subject, &body, &plan));
        prop_assert!(expected.same(&Tree::parse(after)), "{:?}\nwanted {:?}\ngot {}", plan, expected, after);
        Ok(())
    });
    assert!(carried_out.get() > 100, "most plans are refused: {} are not", carried_out.get());
    assert!(abridged.get() > 20, "hardly a plan abridges a call: {}", abridged.get());
    assert!(blinded.get() > 3, "hardly a plan takes an image: {}", blinded.get());
    assert!(described.get() > 3, "hardly a plan has a text for an image: {}", described.get());
}

/// Verification finds any mistake in lowering: another text, order or number of messages than planned.
#[test]
fn law_03_lowering_mistakes_are_detected() {
    let mistakes = Cell::new(0);
    for_all(128, planned_bodies, |subject, (body, wishes)| {
        let protocol = subject.protocol();
        let conversation = read(protocol, &body);
        let plan = plan(&conversation, &wishes);
        let Ok(after) = protocol::apply_verified(protocol, &conversation, &plan, &NoMemo) else {
            return Ok(());
        };
        let after = read(protocol, std::str::from_utf8(&after.body).unwrap());
        for left_out in 0..plan.ops.len() {
            let mut other = plan.clone();
            other.ops.remove(left_out);
            let differs = !planned(subject, &body, &other).same(&planned(subject, &body, &plan));
            mistakes.set(mistakes.get() + u32::from(differs));
            prop_assert_eq!(plan::verify(&conversation, &other, &after).is_err(), differs, "{:?}", other);
        }
        Ok(())
    });
    assert!(mistakes.get() > 20, "hardly a mistake is made: {}", mistakes.get());
}

/// Remembers all messages, as the gateway does.
#[derive(Default)]
struct Remembering {
    messages: Mutex<HashMap<u128, Arc<MessageIndex>>>,
    trails: Mutex<HashMap<u128, Trail>>,
}

impl Memo for Remembering {
    fn key(&self, dialect: &str, raw: &[u8]) -> u128 {
        xxhash_rust::xxh3::xxh3_128_with_seed(raw, dialect.len() as u64)
    }

    fn get(&self, key: u128) -> Option<Arc<MessageIndex>> {
        self.messages.lock().unwrap().get(&key).cloned()
    }

    fn put(&self, key: u128, index: &Arc<MessageIndex>) {
        self.messages.lock().unwrap().insert(key, Arc::clone(index));
    }

    fn trail(&self, first: u128) -> Option<Trail> {
        self.trails.lock().unwrap().get(&first).cloned()
    }

    fn follow(&self, trail: Trail) {
        self.trails.lock().unwrap().insert(trail[0].key, trail);
    }
}

#[test]
fn law_04_determinism() {
    let (memo, carried_out) = (Remembering::default(), Cell::new(0));
    for_all(128, planned_bodies, |subject, (body, wishes)| {
        let protocol = subject.protocol();
        let first = read(protocol, &body);
        let plan = plan(&first, &wishes);
        let expected =
            protocol::apply_verified(protocol, &first, &plan, &NoMemo).ok().map(|after| after.body);
        let is_edited = expected.as_ref().is_some_and(|after| *after != body);
        carried_out.set(carried_out.get() + u32::from(is_edited));
        for _ in 0..2 {
            let again = protocol.index(&Bytes::from(body.clone()), &memo).unwrap();
            let again = protocol.with_marks(again, Carriers::Texts);
            let same = again
                .messages
                .iter()
                .zip(&first.messages)
                .all(|(a, b)| a.index == b.index && a.span == b.span);
            prop_assert!(same && again.messages.len() == first.messages.len());
            prop_assert_eq!(
                &protocol::apply_verified(protocol, &again, &plan, &memo).ok().map(|after| after.body),
                &expected
            );
        }
        Ok(())
    });
    assert!(carried_out.get() > 10, "hardly a plan changes anything: {}", carried_out.get());
}

#[test]
fn law_05_pairing() {
    let carried_out = Cell::new(0);
    for_all(256, planned_bodies, |subject, (body, wishes)| {
        let before = Tree::parse(&body);
        if subject.validate(subject.messages_of(&before)).is_err() {
            return Ok(());
        }
        let conversation = read(subject.protocol(), &body);
        let plan = plan(&conversation, &wishes);
        let moved = plan.ops.iter().any(|op| !matches!(op, Op::Text { .. }));
        let Ok(after) = protocol::apply_verified(subject.protocol(), &conversation, &plan, &NoMemo) else {
            return Ok(());
        };
        carried_out.set(carried_out.get() + u32::from(moved));
        let after = Tree::parse(std::str::from_utf8(&after.body).unwrap());
        let accepted = subject.validate(subject.messages_of(&after));
        prop_assert!(accepted.is_ok(), "{:?}\n{:?}\n{:?}", accepted, plan, after);
        Ok(())
    });
    assert!(carried_out.get() > 20, "hardly any plan moves messages: {}", carried_out.get());
}

/// The provider accepts the bodies of all talks; otherwise the law above would prove nothing.
#[test]
fn law_05_generated_talks_are_valid() {
    for_all(
        64,
        |_| talks(any_text()).boxed(),
        |subject, talk| {
            let body = write(&subject.node(&talk), super::write::Spelling::Compact, 0);
            let accepted = subject.validate(subject.messages_of(&Tree::parse(&body)));
            prop_assert!(accepted.is_ok(), "{:?}\n{}", accepted, body);
            Ok(())
        },
    );
}

#[test]
fn law_06_protection() {
    for_all(256, planned_bodies, |subject, (body, wishes)| {
        let conversation = read(subject.protocol(), &body);
        let plan = plan(&conversation, &wishes);
        let Ok(after) = protocol::apply_verified(subject.protocol(), &conversation, &plan, &NoMemo) else {
            return Ok(());
        };
        let named = |at: usize, part: u32| {
            plan.ops.iter().any(
                |op| matches!(op, Op::Text { part: id, .. } | Op::Append { part: id, .. } | Op::Mark { part: id, .. } if (id.message as usize, id.part) == (at, part)),
            )
        };
        let after = read(subject.protocol(), std::str::from_utf8(&after.body).unwrap());
        let mut rest: &[crate::conversation::Message] = &after.messages;
        let ends = [
            conversation.messages.iter().position(|message| message.index.starts_turn()),
            conversation.messages.iter().rposition(|message| message.index.starts_turn()),
        ];
        for at in 0..conversation.messages.len() {
            let dropped = plan
                .ops
                .iter()
                .any(|op| matches!(op, Op::Drop { first, end } if (*first..*end).contains(&at)));
            let kinds = |kind| conversation.parts_of(at).any(|(_, part)| part.kind() == kind);
            if dropped {
                prop_assert!(!kinds(PartKind::Opaque) && !ends.contains(&Some(at)), "{:?}", plan);
                continue;
            }
            let kept: Vec<u32> = conversation
                .parts_of(at)
                .filter(|(id, _)| !plan.ops.contains(&Op::Omit { part: *id }))
                .map(|(id, _)| id.part)
                .collect();
            // What is left of the message's parts, each with its place in the original.
            let texts = |message: usize| -> Vec<Vec<u8>> {
                let parts = after.parts_of(message).zip(&kept).filter(|(_, place)| !named(at, **place));
                parts.map(|((id, part), _)| after.bytes_of(id.message, part.span).to_vec()).collect()
            };
            let left =
                conversation.parts_of(at).filter(|(id, _)| kept.contains(&id.part) && !named(at, id.part));
            let wanted: Vec<Vec<u8>> =
                left.map(|(id, part)| conversation.bytes_of(id.message, part.span).to_vec()).collect();
            // Messages may have been inserted before it.
            let skipped = rest.iter().position(|message| {
                let place = after.messages.iter().position(|other| other.span == message.span).unwrap();
                message.index.role == conversation.messages[at].index.role && texts(place) == wanted
            });
            prop_assert!(skipped.is_some(), "message {} of {:?}", at, plan);
            rest = &rest[skipped.unwrap_or_default() + 1..];
        }
        Ok(())
    });
}

#[test]
fn law_10_one_view() {
    let strategy = |_| {
        let flaw = prop_oneof![Just(Flaw::Twice), Just(Flaw::Escaped)];
        (talks(any_text()), spellings(), any::<bool>(), any::<prop::sample::Index>(), flaw).boxed()
    };
    for_all(256, strategy, |subject, (talk, (spelling, seed), read, place, flaw)| {
        let node = subject.node(&talk);
        let count = node.objects(read);
        let flaw = Sabotage { read, object: place.index(count.max(1)), flaw };
        let body = Bytes::from(sabotaged(&node, spelling, seed, Some(flaw)));
        let indexed = subject.protocol().index(&body, &NoMemo);
        if read {
            prop_assert!(matches!(indexed, Err(Unread::Json(_))), "{:?} was read: {:?}", flaw, body);
            return Ok(());
        }
        // A flaw where nothing is read does not change the index, or makes the value data, which is kept whole.
        prop_assert!(indexed.is_ok(), "{:?}: {:?}", indexed.err(), body);
        let (flawed, plain) =
            (indexed.unwrap(), self::read(subject.protocol(), &write(&node, spelling, seed)));
        for (id, part) in (0..plain.messages.len()).flat_map(|at| plain.parts_of(at)) {
            let is_data = flawed.part(id).is_some_and(|part| part.leaves().is_empty());
            prop_assert!(
                flawed.texts(id) == plain.texts(id) || (is_data && part.kind() == PartKind::ToolResult),
                "{:?} is half read: {:?}",
                id,
                body
            );
        }
        Ok(())
    });
}

/// Bodies with the same content have the same fingerprints, and different talks have different ones.
#[test]
fn fingerprints_depend_only_on_content() {
    let strategy = |_| (talks(any_text()), talks(any_text()), spellings()).boxed();
    for_all(128, strategy, |subject, (talk, other, (spelling, seed))| {
        let of = |body: String| -> Vec<_> {
            let conversation = read(subject.protocol(), &body);
            conversation.messages.iter().map(|message| message.index.fingerprint).collect()
        };
        let told = |body: &str| {
            let root = Tree::parse(body);
            let of = |message: &Tree| (message.plain(subject.marks()), message.words(subject.marks()));
            subject.messages_of(&root).iter().map(of).unzip::<_, _, Vec<_>, Vec<_>>()
        };
        let compact = write(&subject.node(&talk), super::write::Spelling::Compact, 0);
        let mut marked: Vec<_> = subject.messages(&talk).into_iter().flatten().collect();
        for message in &mut marked {
            subject.mark(message);
        }
        let marked = write(&subject.frame(&talk, marked), spelling, seed);
        prop_assert_eq!(of(compact.clone()), of(marked));
        // With the same seed, so that free choices of form do not differ.
        let other = Talk { seed: talk.seed, ..other };
        let other = write(&subject.node(&other), super::write::Spelling::Compact, 0);
        let (one, another) = (told(&compact), told(&other));
        let same = of(compact) == of(other);
        // What is neither the same nor said in other words is a matter of form: a string or one block.
        prop_assert!(same || one.0 != another.0);
        prop_assert!(!same || one.1 == another.1, "{:?}\n{:?}", one.1, another.1);
        Ok(())
    });
}

/// The stem of a message is what it says once the texts at its end are taken out.
#[test]
fn stems_equal_messages_without_their_last_texts() {
    let found = Cell::new(0);
    let is_stem = |subject: &dyn Subject, body: &str| {
        let conversation = read(subject.protocol(), body);
        for (at, message) in conversation.messages.iter().enumerate() {
            let parts = &message.index.parts;
            let Some(stem) = message.index.stem else { continue };
            let kept =
                parts.iter().rposition(|part| part.kind() != PartKind::Text).map_or(1, |last| last + 1);
            prop_assert_eq!(stem.parts as usize, kept);
            let end = |part: usize| message.span.range().start + parts[part].span.range().end;
            let without = format!("{}{}", &body[..end(kept - 1)], &body[end(parts.len() - 1)..]);
            let without = read(subject.protocol(), &without);
            prop_assert_eq!(without.messages[at].index.fingerprint, stem.fingerprint);
            prop_assert_eq!(without.messages[at].index.stem, None);
            found.set(found.get() + 1);
        }
        Ok(())
    };
    for_all(128, bodies, |subject, body| is_stem(subject, &body));
    assert!(found.get() > 100, "hardly any message ends with texts");
    // What the others say is generated.
    let said = r#"{"type":"input_text","text":"x"}"#;
    let body = format!(r#"{{"input":[{{"role":"user","content":[{said}, {said} ,{said}]}}]}}"#);
    let before = found.get();
    let mut subjects = super::SUBJECTS.iter();
    let responses = subjects.find(|subject| subject.protocol().name() == "openai-responses");
    is_stem(*responses.expect("a dialect"), &body).expect("a stem");
    assert_eq!(found.get(), before + 1);
}
