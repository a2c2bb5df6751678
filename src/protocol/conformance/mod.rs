//! The laws that every dialect must obey, whatever its wire format, tested over fixtures and over generated bodies.
//!
//! A dialect joins with one line in [`SUBJECTS`] and one file that writes talks (generated conversations), edits them
//! in a slow and obvious way, and knows what its provider accepts. Expected results must never come from the code under
//! test.

mod anthropic;
mod asks;
mod dressed;
mod fixtures;
mod gemini;
mod laws;
mod members;
pub(crate) mod openai_chat;
mod openai_responses;
pub(crate) mod plans;
mod prompts;
mod rules;
pub(crate) mod talk;
pub(crate) mod tree;
pub(crate) mod write;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::Protocol;
use crate::conversation::Role;
use crate::plan::LeafEdit;

use talk::{Ids, Said, Talk};
use tree::Tree;
use write::{Dice, Node, Spelling};

/// The dialects that are judged.
pub(crate) const SUBJECTS: &[&dyn Subject] =
    &[&anthropic::Messages, &openai_chat::Completions, &openai_responses::Responses, &gemini::Contents];

/// A dialect, seen from outside.
pub(crate) trait Subject: Sync {
    /// Who is judged.
    fn protocol(&self) -> &'static dyn Protocol;

    /// The name of the list of messages in the body.
    fn list(&self) -> &'static str;

    /// What somebody says, as messages on the wire. Whatever is free is drawn.
    fn message(&self, said: &Said<'_>, dice: &mut Dice) -> Vec<Node>;

    /// A body around messages.
    fn frame(&self, talk: &Talk, messages: Vec<Node>) -> Node;

    /// The names of cache marks.
    fn marks(&self) -> &'static [&'static str];

    /// Puts a cache mark on a message, as clients do on the last one.
    fn mark(&self, message: &mut Node);

    /// The block of a message's content that carries a mark of a part.
    fn block_of(&self, _message: &Tree, part: usize) -> usize {
        part
    }

    /// Gives leaves of a part new text.
    fn edit(&self, message: &mut Tree, part: usize, leaves: &[(u32, LeafEdit)]);

    /// The arguments of the call that is a part of a message; `None` if that is no call.
    fn arguments<'t>(&self, message: &'t mut Tree, part: usize) -> Option<&'t mut Tree>;

    /// Takes reasoning out of a message that is a part of it, and leaves the parts before it where they are.
    fn omit(&self, message: &mut Tree, part: usize) {
        let Some(Tree::List(blocks)) = message.get_mut("content") else { panic!("no blocks") };
        blocks.remove(part);
    }

    /// A message with one text.
    fn said(&self, role: Role, text: &str) -> Tree;

    /// The same in place of others.
    fn said_for(&self, _others: &[Tree], role: Role, text: &str) -> Tree {
        self.said(role, text)
    }

    /// The ids of the calls of a talk, as far as the provider accepts them.
    fn ids(&self, talk: &Talk) -> Ids {
        talk.ids
    }

    /// Whether each result is a message, and there are servers that take one twice.
    fn takes_results_twice(&self) -> bool {
        false
    }

    /// Whether a message of this role can be in the list.
    fn takes(&self, _role: Role) -> bool {
        true
    }

    /// The tool results of a message: which part, of which call, saying what.
    fn results(&self, message: &Tree) -> Vec<(usize, Option<String>, Tree)>;

    /// The list that the images of a result are in; `None` if there is none.
    fn media<'t>(&self, message: &'t mut Tree, part: usize) -> Option<&'t mut Tree>;

    /// Whether a block of it is an image with its data.
    fn is_image(&self, block: &Tree) -> bool;

    /// A block with a text, as it replaces an image.
    fn text_block(&self, text: &str) -> Tree {
        let kind = ("type".to_owned(), Tree::Text("text".to_owned()));
        Tree::Map(vec![kind, ("text".to_owned(), Tree::Text(text.to_owned()))])
    }

    /// How many of the texts in a result's content can be replaced if there are images among them.
    fn texts(&self, content: &Tree) -> usize {
        content.items().iter().filter(|block| is_text(block)).count()
    }

    /// What is left of a result's content without its texts.
    fn blank(&self, content: &Tree) -> Tree {
        match content {
            Tree::List(blocks) => {
                Tree::List(blocks.iter().filter(|block| !is_text(block)).cloned().collect())
            }
            _ => Tree::Text(String::new()),
        }
    }

    /// Whether the model says it.
    fn is_answer(&self, message: &Tree) -> bool {
        message.text_of("role").as_deref() == Some("assistant")
    }

    /// An answer that is one text, with its usage; cut off at the length that was allowed if it is not `whole`.
    fn says(&self, text: &str, whole: bool) -> String;

    /// Whether the provider would accept these messages.
    fn validate(&self, messages: &[Tree]) -> Result<(), String>;
}

impl dyn Subject + '_ {
    /// The messages of a talk. What one looks like depends on its place and the talk's seed only.
    pub(crate) fn messages(&self, talk: &Talk) -> Vec<Vec<Node>> {
        let write = |(at, said): (usize, &Said<'_>)| {
            let mut dice = Dice(talk.seed ^ (at as u64 + 1).wrapping_mul(0x9e37_79b9));
            self.message(said, &mut dice)
        };
        talk.messages(self.ids(talk), 0).iter().enumerate().map(write).collect()
    }

    /// Takes images out of a result, by their number among its images. If anything besides texts is next to them, takes
    /// none.
    pub(crate) fn take_images(
        &self,
        message: &mut Tree,
        part: usize,
        goes: impl Fn(usize) -> bool,
    ) -> Vec<Tree> {
        let Some(Tree::List(blocks)) = self.media(message, part) else { return Vec::new() };
        if !blocks.iter().all(|block| is_text(block) || self.is_image(block)) {
            return Vec::new();
        }
        let mut number = 0;
        let is_taken = |block: &mut Tree| {
            let is_image = self.is_image(block);
            number += usize::from(is_image);
            is_image && goes(number - 1)
        };
        blocks.extract_if(.., is_taken).collect()
    }

    /// Images of a result, by their number among those of it, give way to a text, or go.
    pub(crate) fn edit_images(
        &self,
        message: &mut Tree,
        part: usize,
        edit: impl Fn(usize) -> Option<LeafEdit>,
    ) {
        let Some(Tree::List(blocks)) = self.media(message, part) else { return };
        let mut number = 0;
        blocks.retain_mut(|block| {
            if !self.is_image(block) {
                return true;
            }
            number += 1;
            match edit(number - 1) {
                Some(LeafEdit::Remove) => return false,
                Some(LeafEdit::Replace(text)) => *block = self.text_block(&text),
                None => {}
            }
            true
        });
    }

    /// The body of a talk.
    pub(crate) fn node(&self, talk: &Talk) -> Node {
        self.frame(talk, self.messages(talk).into_iter().flatten().collect())
    }

    /// The messages of a body.
    pub(crate) fn messages_of<'t>(&self, root: &'t Tree) -> &'t [Tree] {
        root.get(self.list()).map(Tree::items).unwrap_or_default()
    }
}

/// Whether a block is nothing but text.
pub(crate) fn is_text(block: &Tree) -> bool {
    let is_named_so = block.text_of("type").is_some_and(|kind| kind == "text" || kind.ends_with("put_text"));
    is_named_so && block.get("text").is_some_and(Tree::is_string)
}

/// How many cases a test takes: what the environment says, else `usual`.
pub(crate) fn cases(usual: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(usual);
    ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 20_000, ..ProptestConfig::default() }
}

/// Checks a property for every dialect, or for the one that `LAWS_OF` names.
pub(crate) fn for_all<T: std::fmt::Debug>(
    usual: u32,
    strategy: impl Fn(&'static dyn Subject) -> BoxedStrategy<T>,
    check: impl Fn(&'static dyn Subject, T) -> Result<(), TestCaseError>,
) {
    let only = std::env::var("LAWS_OF").ok();
    let is_judged =
        |subject: &&&dyn Subject| only.as_ref().is_none_or(|only| subject.protocol().name() == only);
    for subject in SUBJECTS.iter().filter(is_judged) {
        let outcome = TestRunner::new(cases(usual)).run(&strategy(*subject), |case| check(*subject, case));
        outcome.unwrap_or_else(|error| panic!("{}: {error}", subject.protocol().name()));
    }
}

/// A spelling and its seed.
pub(crate) fn spellings() -> impl Strategy<Value = (Spelling, u64)> {
    let spelling =
        prop_oneof![1 => Just(Spelling::Compact), 1 => Just(Spelling::Python), 3 => Just(Spelling::Wild)];
    (spelling, any::<u64>())
}

#[test]
fn every_dialect_has_a_conformance_subject() {
    let judged: Vec<&str> = SUBJECTS.iter().map(|subject| subject.protocol().name()).collect();
    let all: Vec<&str> = super::ALL.iter().map(|protocol| protocol.name()).collect();
    assert_eq!(judged, all);
}
