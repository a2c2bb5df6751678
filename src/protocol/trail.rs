//! Recognises the messages of a list that an earlier request had too.
//!
//! Agents send their history again with every request. A message with the same position and the same bytes as in an
//! earlier request is neither scanned nor looked up again: its hash is compared with that of the message which an
//! earlier list, the trail, had at that position. A message that was changed in place, for instance by a cache mark
//! that moved, is read like a new one, and the messages after it are recognised again.

use bytes::Bytes;

use crate::conversation::{Memo, Step, Trail};
use crate::json::scan::Value;

/// The shortest list for which a trail is kept. Shorter ones are not worth it.
pub(super) const MIN_MESSAGES: usize = 8;
/// After more than this many changed messages in a row, the rest of the list is assumed to be different too.
const MAX_MISSES: u32 = 4;

/// Walks along a list of messages and, in parallel, along an earlier list with the same first message.
pub(super) struct Walk<'m> {
    body: &'m Bytes,
    dialect: &'m str,
    memo: &'m dyn Memo,
    /// The earlier list; `None` until the first message is known, or if there is no such list.
    trail: Option<Trail>,
    /// How many messages in a row were not those of the trail.
    misses: u32,
    /// For each message so far: the step of the trail, if it is the same message.
    steps: Vec<Option<Step>>,
}

impl<'m> Walk<'m> {
    pub(super) fn new(body: &'m Bytes, dialect: &'m str, memo: &'m dyn Memo) -> Self {
        Self { body, dialect, memo, trail: None, misses: 0, steps: Vec::new() }
    }

    /// The length of the message that begins at byte `at`, after the messages `before`. `None` if it is not the message
    /// that the trail has there, so that it must be scanned.
    pub(super) fn step(&mut self, before: &[Value], at: usize) -> Option<usize> {
        if let [first] = before {
            self.trail = self.memo.trail(self.memo.key(self.dialect, first.span.of(self.body)));
        }
        let found = self.trail.as_ref().and_then(|trail| trail.get(before.len()));
        let found = found.filter(|step| self.is_at(step, at)).cloned();
        let length = found.as_ref().map(|step| step.length as usize);
        self.misses = if found.is_some() { 0 } else { self.misses + 1 };
        self.trail.take_if(|_| self.misses > MAX_MISSES);
        self.steps.push(found);
        length
    }

    /// Whether the bytes from `at` on are those of a step of the trail.
    fn is_at(&self, step: &Step, at: usize) -> bool {
        let raw = self.body.get(at..at + step.length as usize);
        raw.is_some_and(|raw| raw.ends_with(b"}") && self.memo.key(self.dialect, raw) == step.key)
    }

    /// For each message of the list: the step of the trail, if it is the same message.
    pub(super) fn into_steps(self) -> Vec<Option<Step>> {
        self.steps
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::HashMap;
    use std::sync::Arc;

    use xxhash_rust::xxh3::xxh3_128;

    use super::*;
    use crate::conversation::{MessageIndex, NoMemo};
    use crate::protocol;

    /// A memo that remembers lists only, and counts the messages that had to be looked up.
    #[derive(Default)]
    struct Lists {
        trails: RefCell<HashMap<u128, Trail>>,
        looked_up: Cell<usize>,
    }

    impl Memo for Lists {
        fn key(&self, _: &str, raw: &[u8]) -> u128 {
            xxh3_128(raw)
        }

        fn get(&self, _: u128) -> Option<Arc<MessageIndex>> {
            self.looked_up.set(self.looked_up.get() + 1);
            None
        }

        fn put(&self, _: u128, _: &Arc<MessageIndex>) {}

        fn trail(&self, first: u128) -> Option<Trail> {
            self.trails.borrow().get(&first).cloned()
        }

        fn follow(&self, trail: Trail) {
            self.trails.borrow_mut().insert(trail[0].key, trail);
        }
    }

    /// A request: a message for each letter, with white space as told by `around`.
    fn body(letters: &str, around: &str) -> Bytes {
        let message = |letter: char| format!(r#"{{"role":"user","content":"{letter}}}\""}}"#);
        let messages: Vec<String> = letters.chars().map(message).collect();
        format!(r#"{{"model":"m{around}","messages":[{}],"stream":true}}"#, messages.join(around)).into()
    }

    /// How many messages of each list had to be looked up, after those before it.
    #[test]
    fn only_changed_or_moved_messages_are_looked_up_again() {
        for (lists, expected) in [
            (&["abcdefgh", "abcdefgh"][..], &[8, 1][..]),
            (&["abcdefgh", "abcdefghij", "abcdefghijk"], &[8, 3, 2]),
            // Short lists are not followed.
            (&["abcdefg", "abcdefg"], &[7, 7]),
            (&["abcdefgh", "abcd", "abcdefgh"], &[8, 1, 1]),
            // One or two messages are changed in place.
            (&["abcdefgh", "abcXefghi", "abcdefghi"], &[8, 3, 2]),
            (&["abcdefgh", "abXXefghi"], &[8, 4]),
            // Other messages from some place on, and then the former ones again.
            (&["abcdefgh", "abcUVWXYZ", "abcdefghi"], &[8, 7, 7]),
            // One was removed, so all later ones have moved.
            (&["abcdefghi", "abdefghi"], &[9, 7]),
            (&["abcdefgh", "Xbcdefgh"], &[8, 8]),
        ] {
            for around in [",", " , "] {
                let memo = Lists::default();
                let protocol = protocol::named("anthropic").unwrap();
                let looked_up = |list: &&str| {
                    let body = body(list, around);
                    memo.looked_up.set(0);
                    let read = protocol.index(&body, &memo).unwrap();
                    assert_eq!(read, protocol.index(&body, &NoMemo).unwrap(), "{list}");
                    memo.looked_up.get()
                };
                assert_eq!(lists.iter().map(looked_up).collect::<Vec<_>>(), expected, "{lists:?}");
            }
        }
    }

    /// A body that is broken after a known list is still found to be broken.
    #[test]
    fn a_broken_body_is_refused_despite_a_known_list() {
        let (memo, protocol) = (Lists::default(), protocol::named("anthropic").unwrap());
        let whole = String::from_utf8(body("abcdefgh", ",").to_vec()).unwrap();
        protocol.index(&Bytes::from(whole.clone()), &memo).unwrap();
        let letter = whole.find("\"h}").unwrap() + 1;
        for place in [0, letter, whole.len() - 2] {
            let mut broken = whole.clone().into_bytes();
            broken[place] = 0xff;
            let with = protocol.index(&Bytes::from(broken), &memo);
            assert_eq!(with, Err(protocol::Unread::NotText), "{place}");
        }
        for (from, to) in [
            ("],", ","),
            ("],", "]]"),
            ("true}", "true} x"),
            ("\"stream\"", "\"messages\""),
            ("\"h}", "h}"),
            ("],", ",{}],"),
            ("],", " x],"),
        ] {
            let broken = Bytes::from(whole.replacen(from, to, 1));
            assert_ne!(broken, whole);
            let (with, without) = (protocol.index(&broken, &memo), protocol.index(&broken, &NoMemo));
            assert!(with.is_err(), "{to}");
            assert_eq!(with, without, "{to}");
        }
    }
}
