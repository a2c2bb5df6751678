//! Laws about prompts as the cache sees them, and about histories as providers accept them.

use bytes::Bytes;
use proptest::prelude::*;

use crate::conversation::{Conversation, NoMemo};
use crate::protocol::{Prompt, Protocol, Scale};

use super::talk::{any_text, talks};
use super::write::{Spelling, write};
use super::{for_all, spellings};

fn read(protocol: &dyn Protocol, body: String) -> Conversation {
    protocol.index(&Bytes::from(body), &NoMemo).unwrap_or_else(|unread| panic!("{unread}"))
}

fn keys(prompt: &Prompt) -> Vec<u128> {
    prompt.blocks.iter().map(|block| block.key).collect()
}

/// Those of what a cache may keep.
fn kept(prompt: &Prompt) -> Vec<u128> {
    prompt.shape(Scale::Bytes(4.0)).blocks.iter().map(|block| block.key).collect()
}

fn weights(prompt: &Prompt) -> Vec<u32> {
    prompt.blocks.iter().map(|block| block.weight).collect()
}

#[test]
fn every_part_is_a_block_and_marks_change_neither_key_nor_weight() {
    let strategy = |_| (talks(any_text()), spellings()).boxed();
    for_all(64, strategy, |subject, (talk, (spelling, seed))| {
        let protocol = subject.protocol();
        let mut messages: Vec<_> = subject.messages(&talk).into_iter().flatten().collect();
        let plain = read(protocol, write(&subject.frame(&talk, messages.clone()), Spelling::Compact, 0));
        let prompt = protocol.prompt(&plain);
        let parts: usize = plain.messages.iter().map(|message| message.index.parts.len()).sum();
        prop_assert_eq!(prompt.blocks.len(), prompt.frame() + parts + prompt.late);
        prop_assert!(prompt.frame() > 0);
        prop_assert!(prompt.bytes() <= plain.body.len() as u64);

        for message in &mut messages {
            subject.mark(message);
        }
        let marked = read(protocol, write(&subject.frame(&talk, messages), Spelling::Compact, 0));
        // Where nothing marks the cache, content is used in place of a mark.
        let has_marks = protocol.name() != "gemini";
        let marked = protocol.prompt(&marked);
        prop_assert!(!has_marks || keys(&marked) == keys(&prompt));
        prop_assert!(!has_marks || weights(&marked) == weights(&prompt));

        // Whatever the spelling, it can be read.
        let spelled = protocol.prompt(&read(protocol, write(&subject.node(&talk), spelling, seed)));
        prop_assert_eq!(spelled.blocks.len(), prompt.blocks.len());
        Ok(())
    });
}

#[test]
fn blocks_of_a_longer_history_extend_those_of_a_shorter_one() {
    let strategy = |_| (talks(any_text()), any::<prop::sample::Index>()).boxed();
    for_all(64, strategy, |subject, (talk, cut)| {
        let protocol = subject.protocol();
        let messages: Vec<_> = subject.messages(&talk).into_iter().flatten().collect();
        let count = cut.index(messages.len());
        let of = |count: usize| {
            let body = write(&subject.frame(&talk, messages[..count].to_vec()), Spelling::Compact, 0);
            kept(&protocol.prompt(&read(protocol, body)))
        };
        prop_assert!(of(messages.len()).starts_with(&of(count)));
        Ok(())
    });
}

#[test]
fn generated_talks_are_valid() {
    let strategy = |_| (talks(any_text()), spellings()).boxed();
    for_all(64, strategy, |subject, (talk, (spelling, seed))| {
        let protocol = subject.protocol();
        let conversation = read(protocol, write(&subject.node(&talk), spelling, seed));
        prop_assert_eq!(protocol.valid(&conversation), Ok(()));
        Ok(())
    });
}
