//! Detects instructions that change from one request of a thread to the next: the provider's cache of everything after
//! the change is lost.
//!
//! This is only reported. Each text is kept once, however many threads share it; the memory is bounded and lost with
//! the process.

use hashlink::LruCache;

use crate::conversation::Conversation;
use crate::protocol::Prompt;

/// How many bytes of instructions are remembered: the most recently sent.
const MAX_BYTES: usize = 8 << 20;
/// How many threads are remembered: the most recently seen.
const MAX_THREADS: usize = 4096;

/// The instructions of all threads.
pub(super) struct Instructions {
    /// The texts, by the keys of the instructions.
    texts: LruCache<u128, Box<str>>,
    /// The length of all texts together.
    bytes: usize,
    /// The key of the instructions in each thread's last request.
    threads: LruCache<String, u128>,
}

impl Default for Instructions {
    fn default() -> Self {
        Self { texts: LruCache::new_unbounded(), bytes: 0, threads: LruCache::new(MAX_THREADS) }
    }
}

/// Where a text begins to differ from the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Change {
    /// Offset of the first byte that differs.
    pub(super) byte: u64,
    /// The line of that byte, counted from 1.
    pub(super) line: u64,
}

impl Instructions {
    /// Remembers a request's instructions and returns their key; `None` if it has none.
    pub(super) fn read(&mut self, prompt: &Prompt, conversation: &Conversation) -> Option<u128> {
        let body = &conversation.body;
        let key = prompt.instructions_key(body)?;
        if self.texts.get(&key).is_none() {
            let text = prompt.instructions(body);
            if text.len() <= MAX_BYTES {
                self.bytes += text.len();
                self.texts.insert(key, text.into());
            }
            while self.bytes > MAX_BYTES
                && let Some((_, oldest)) = self.texts.remove_lru()
            {
                self.bytes -= oldest.len();
            }
        }
        Some(key)
    }

    /// Records the key of a thread's instructions in its newest request, and returns where they first differ from those
    /// of the request before; `None` if they do not, or if one of the two texts is not known. A thread that has just
    /// branched is compared with its parent.
    pub(super) fn change(&mut self, thread: &str, parent: Option<&str>, now: u128) -> Option<Change> {
        let parents = parent.and_then(|parent| self.threads.get(parent)).copied();
        let before = self.threads.insert(thread.to_owned(), now).or(parents)?;
        let (before, now) = (self.texts.peek(&before)?, self.texts.peek(&now)?);
        change(before, now)
    }
}

/// Where a text first differs from the one before; `None` if both are the same.
fn change(before: &str, now: &str) -> Option<Change> {
    let same = before.bytes().zip(now.bytes()).take_while(|(one, other)| one == other).count();
    let line = memchr::memchr_iter(b'\n', &now.as_bytes()[..same]).count() as u64 + 1;
    (same < before.len().max(now.len())).then_some(Change { byte: same as u64, line })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::conversation::NoMemo;
    use crate::protocol;

    /// A thread, its parent, a request of it, and where its instructions change.
    type Case<'a> = (&'a str, Option<&'a str>, String, Option<(u64, u64)>);

    fn check(dialect: &str, requests: &[Case<'_>]) {
        let mut known = Instructions::default();
        for (thread, parent, frame, expected) in requests {
            let protocol = protocol::named(dialect).unwrap();
            let conversation = protocol.index(&Bytes::from(frame.clone()), &NoMemo).unwrap();
            let key = known.read(&protocol.prompt(&conversation), &conversation);
            let found = key.and_then(|key| known.change(thread, *parent, key));
            assert_eq!(found.map(|found| (found.byte, found.line)), *expected, "{dialect} {frame}");
        }
    }

    #[test]
    fn changed_instructions_are_located_by_offset_and_line() {
        let text = |tail: &str| format!("{}{tail}", "a rule\n".repeat(571));
        let plain = |text: &str| {
            let text = serde_json::json!(text);
            format!(r#"{{"system":{text},"messages":[{{"role":"user","content":"hi"}}]}}"#)
        };
        // The first byte that is another is the 4,000th, counted from 0.
        check(
            "anthropic",
            &[
                ("t", None, plain(&text("at 1, by me")), None),
                ("t", None, plain(&text("at 1, by me")), None),
                ("t", None, plain(&text("at 2, by me")), Some((4000, 572))),
                ("t", None, plain(&text("at 3, by me")), Some((4000, 572))),
                ("t", None, plain(&text("at 3, by me")), None),
                ("t", None, plain(&text("at 3, by me!")), Some((4008, 572))),
                ("t", None, plain("a"), Some((1, 1))),
                // Another thread's are its own, a fork's its parent's.
                ("u", None, plain("b"), None),
                ("t", None, plain("a"), None),
                ("v", Some("t"), plain("ac"), Some((1, 1))),
                ("t", None, plain("a"), None),
            ],
        );
    }

    #[test]
    fn changed_instructions_are_found_in_every_dialect() {
        let blocks = |build: &str, date: &str| {
            format!(
                r#"{{"tools":[{{"name":"{date}"}}],"system":[{{"type":"text","text":"x-anthropic-billing-header: cch={build};"}},{{"type":"text","text":"be\nbrief","cache_control":{{"type":"ephemeral"}}}},{{"type":"text","text":"on {date}"}}],"messages":[{{"role":"user","content":"{date}"}}]}}"#
            )
        };
        check(
            "anthropic",
            &[
                ("t", None, blocks("1", "1"), None),
                // Text that the provider removes itself, tools and messages are not instructions.
                ("t", None, blocks("2", "1"), None),
                ("t", None, blocks("2", "2"), Some((12, 3))),
            ],
        );
        let chat = |date: &str| {
            format!(
                r#"{{"messages":[{{"role":"system","content":"be brief"}},{{"role":"developer","content":[{{"type":"text","text":"on {date}"}}]}},{{"role":"user","content":"{date}"}},{{"role":"system","content":"{date}"}}]}}"#
            )
        };
        check("openai-chat", &[("t", None, chat("1"), None), ("t", None, chat("2"), Some((12, 2)))]);
        let responses = |date: &str| format!(r#"{{"instructions":"on {date}","input":"{date}"}}"#);
        check(
            "openai-responses",
            &[("t", None, responses("1"), None), ("t", None, responses("2"), Some((3, 1)))],
        );
        let gemini = |date: &str| {
            format!(
                r#"{{"systemInstruction":{{"parts":[{{"text":"be brief"}},{{"text":"on {date}"}}]}},"contents":[]}}"#
            )
        };
        check("gemini", &[("t", None, gemini("1"), None), ("t", None, gemini("2"), Some((12, 2)))]);
        let none = || r#"{"messages":[{"role":"user","content":"hi"}]}"#.to_owned();
        check("openai-chat", &[("t", None, none(), None), ("t", None, none(), None)]);
    }

    #[test]
    fn remembered_instructions_are_bounded_in_bytes_and_threads() {
        let mut known = Instructions::default();
        let protocol = protocol::named("openai-responses").unwrap();
        let read = |known: &mut Instructions, at: u32| {
            let frame = format!(r#"{{"instructions":"{at}{}","input":"hi"}}"#, "x".repeat(1 << 20));
            let conversation = protocol.index(&Bytes::from(frame), &NoMemo).unwrap();
            known.read(&protocol.prompt(&conversation), &conversation).unwrap()
        };
        let first = read(&mut known, 0);
        for at in 1..20 {
            let key = read(&mut known, at);
            assert_eq!(read(&mut known, 0), first);
            assert!(
                known.bytes <= MAX_BYTES
                    && known.texts.contains_key(&first)
                    && known.texts.contains_key(&key)
            );
        }
        assert_eq!(known.texts.len(), 7, "of a little more than a MiB each");
        (0..=MAX_THREADS).for_each(|at| assert_eq!(known.change(&at.to_string(), None, first), None));
        assert!(known.threads.len() == MAX_THREADS && known.threads.contains_key("1"));
    }
}
