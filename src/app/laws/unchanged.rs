//! What a request keeps, whatever is decided about it: everything but the texts of results and calls, and what may be
//! removed with them.

use std::collections::HashMap;

use bytes::Bytes;
use proptest::prelude::*;

use super::witness::{find, texts, thoughts, without_thoughts};
use crate::conversation::{Conversation, NoMemo};
use crate::protocol::conformance::Subject;
use crate::protocol::conformance::tree::Tree;

/// Everything outside of the messages stays as it is.
pub(super) fn frame_is_kept(subject: &dyn Subject, body: &Bytes, bare: &Tree) -> Result<(), TestCaseError> {
    let frame = |mut root: Tree| {
        *root.get_mut(subject.list()).expect("a list of messages") = Tree::List(Vec::new());
        root
    };
    prop_assert!(frame(Tree::parse(super::text(body))).same(&frame(bare.clone())));
    Ok(())
}

/// What the provider would have accepted, it still accepts.
pub(super) fn rules_are_kept(
    subject: &dyn Subject,
    conversation: &Conversation,
    wire: &Bytes,
) -> Result<(), TestCaseError> {
    let protocol = subject.protocol();
    if protocol.valid(conversation).is_ok() {
        let wire = protocol.index(wire, &NoMemo).expect("what is sent can be read");
        prop_assert_eq!(protocol.valid(&wire), Ok(()));
    }
    Ok(())
}

/// The same, checked without knowledge of the gateway's own rules.
pub(super) fn pairs_are_kept(
    subject: &dyn Subject,
    messages: &[Tree],
    wire: &[Tree],
) -> Result<(), TestCaseError> {
    if subject.validate(messages).is_ok() {
        prop_assert_eq!(subject.validate(wire), Ok(()));
    }
    Ok(())
}

/// Laws 6 and 8: only the texts of results and of calls differ, and images of cleared results, and what differs is
/// shorter.
pub(super) fn only_results_change(
    subject: &dyn Subject,
    messages: &[Tree],
    wire: &[Tree],
) -> Result<(), TestCaseError> {
    let mut thinks = false;
    for (message, wired) in messages.iter().zip(wire) {
        let (before, after) = (thoughts(message), thoughts(wired));
        prop_assert!(after == before || (after == 0 && !thinks), "reasoning behind a gap: {:?}", wired);
        thinks |= after > 0;
        if message.same(wired) {
            continue;
        }
        let mut message = message.clone();
        let lost = lost_images(subject, &mut message, wired)?;
        let (mut old_contents, mut new_contents) = (Vec::new(), Vec::new());
        for (part, _, content) in subject.results(&message) {
            let (_, _, after) = find(subject, wired, part);
            let (old, new) = (texts(&content), texts(&after));
            let lost = lost.get(&part).copied().unwrap_or_default();
            if old != new {
                let (old, new) = (old.concat(), new.concat());
                prop_assert!(new.len() < old.len() + lost, "not shorter: {:?} {:?}", old, new);
                prop_assert!(tokens(&new) <= tokens(&old) + lost / 4, "more tokens: {:?} {:?}", old, new);
                prop_assert!(!new.trim().is_empty(), "nothing left of {:?}", old);
            }
            old_contents.push(content);
            new_contents.push(after);
        }
        if after < before {
            without_thoughts(&mut message);
        }
        let was = without(subject, &message, old_contents);
        let is = without(subject, &with_whole_calls(subject, &message, wired)?, new_contents);
        prop_assert!(was.same(&is), "{:?}\n{:?}", was, is);
    }
    Ok(())
}

/// Removes the images that were not sent from a message, and returns the weight of those of each result: if any image
/// of a result is missing, all of them are, and a placeholder says so.
fn lost_images(
    subject: &dyn Subject,
    message: &mut Tree,
    wired: &Tree,
) -> Result<HashMap<usize, usize>, TestCaseError> {
    let mut lost = HashMap::new();
    for (part, ..) in subject.results(message) {
        let left = subject.take_images(&mut wired.clone(), part, |_| true);
        let came = subject.take_images(&mut message.clone(), part, |_| true);
        if left.len() == came.len() {
            continue;
        }
        let (_, _, after) = find(subject, wired, part);
        let said = texts(&after).concat();
        let is_told = said.contains(" cleared (") && said.contains(" not kept); ");
        prop_assert!(left.is_empty() && is_told, "{:?} for {:?}", wired, message);
        subject.take_images(message, part, |_| true);
        lost.insert(part, came.iter().map(weight).sum());
    }
    Ok(lost)
}

/// What an image counts as: its bytes, at most the equivalent of some 1,600 tokens.
pub(super) fn weight(image: &Tree) -> usize {
    texts(image).concat().len().min(6400)
}

/// The message as sent, with the arguments of its calls as received: at most the ends of long texts in them were
/// removed.
fn with_whole_calls(subject: &dyn Subject, message: &Tree, wired: &Tree) -> Result<Tree, TestCaseError> {
    const MOST: usize = 16;
    let (mut message, mut wired) = (message.clone(), wired.clone());
    let mut came = Vec::new();
    came.extend((0..MOST).filter_map(|part| subject.arguments(&mut message, part).cloned()));
    let mut came = came.into_iter();
    for part in 0..MOST {
        let Some(arguments) = subject.arguments(&mut wired, part) else { continue };
        let Some(whole) = came.next().filter(|whole| !whole.same(arguments)) else { continue };
        let (old, new) = (whole.argument_texts(), arguments.argument_texts());
        let is_abridged = |(old, new): (&String, &String)| {
            let head = new
                .split_once("\n\n[plimsoll: ")
                .filter(|(_, line)| line.contains(" of this argument removed here; "));
            old == new || head.is_some_and(|(head, _)| old.starts_with(head) && new.len() < old.len())
        };
        prop_assert!(old.len() == new.len() && old.iter().zip(&new).all(is_abridged), "{:?} {:?}", old, new);
        *arguments = whole;
    }
    Ok(wired)
}

/// A message without the contents of its results. One of these may be a piece of another, so the largest is removed
/// first.
fn without(subject: &dyn Subject, message: &Tree, mut contents: Vec<Tree>) -> Tree {
    let mut left = message.clone();
    contents.sort_by_key(|content| std::cmp::Reverse(format!("{content:?}").len()));
    for content in &contents {
        blank(&mut left, content, &subject.blank(content));
    }
    left
}

/// Replaces some content by what is left of it, wherever it occurs.
fn blank(tree: &mut Tree, content: &Tree, left: &Tree) {
    if tree == content {
        *tree = left.clone();
        return;
    }
    match tree {
        Tree::List(items) => items.iter_mut().for_each(|item| blank(item, content, left)),
        Tree::Map(members) => members.iter_mut().for_each(|(_, value)| blank(value, content, left)),
        Tree::Raw(_) | Tree::Text(_) | Tree::Json(_) => {}
    }
}

/// A simple estimate: four bytes per token.
fn tokens(text: &str) -> usize {
    text.len().div_ceil(4)
}
