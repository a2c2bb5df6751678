//! The parameters of a request that cache entries depend on besides the text before them.

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::Protocol;
use super::prompt::{self, Layout, Prompt};
use crate::conversation::{Conversation, Prelude, Role, Shows};
use crate::json::scan::{self, Kind, Value};

/// A member of the request that cache entries depend on although it is not in the prompt.
#[derive(Debug)]
pub(super) struct Bind {
    member: &'static str,
    /// The inner member that matters, if not all do.
    inner: Option<&'static str>,
    invalidates: Invalidated,
    /// Whether it matters only to providers that cache by marks.
    of_marks: bool,
}

/// The first part of a prompt that cannot be read from the cache if the member has changed. Everything after that part
/// cannot be read either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Invalidated {
    System,
    Messages,
}

impl Bind {
    /// A member that the entries which end in the instructions or in the messages depend on.
    pub(super) const fn system(member: &'static str) -> Self {
        Self { invalidates: Invalidated::System, ..Self::messages(member) }
    }

    /// A member that only the entries which end in the messages depend on.
    pub(super) const fn messages(member: &'static str) -> Self {
        Self { member, inner: None, invalidates: Invalidated::Messages, of_marks: false }
    }

    /// A member of the object `member` that only the entries which end in the messages depend on.
    pub(super) const fn within(member: &'static str, inner: &'static str) -> Self {
        Self { inner: Some(inner), ..Self::messages(member) }
    }

    /// Restricts this to providers that cache by marks.
    pub(super) const fn of_marks(self) -> Self {
        Self { of_marks: true, ..self }
    }

    fn value(&self, conversation: &Conversation) -> Option<Value> {
        if self.of_marks && conversation.marks.is_none() {
            return None;
        }
        let body = &*conversation.body;
        let outer = scan::get(body, &conversation.members, self.member);
        let value = match self.inner {
            None => outer,
            Some(inner) => outer
                .filter(|outer| outer.kind == Kind::Object)
                .and_then(|outer| scan::get(body, &scan::members_unchecked(body, outer.span).ok()?, inner)),
        };
        value.filter(|value| value.kind != Kind::Null)
    }
}

/// Hashes of everything that cache entries depend on besides the text before them. A hash is 0 if there is nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bound {
    /// For entries that end in the instructions.
    pub system: u64,
    /// For entries that end in the messages.
    pub messages: u64,
}

/// What the cache entries of a prompt depend on besides the text. `first` is the number of its first message.
pub(super) fn bound(conversation: &Conversation, layout: &Layout, first: usize) -> Bound {
    if layout.binds.is_empty() {
        return Bound::default();
    }
    let (mut system, mut messages) = (Vec::new(), Vec::new());
    let mut bind = |name: &str, value: &[u8], invalidated: Invalidated| {
        let append = |all: &mut Vec<u8>| {
            for bytes in [name.as_bytes(), value] {
                all.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
                all.extend_from_slice(bytes);
            }
        };
        append(&mut messages);
        if invalidated == Invalidated::System {
            append(&mut system);
        }
    };
    for row in layout.binds {
        if let Some(value) = row.value(conversation) {
            bind(row.inner.unwrap_or(row.member), value.span.of(&conversation.body), row.invalidates);
        }
    }
    let shown = conversation.messages.iter().skip(first).map(|message| message.index.shows);
    let Shows { images, cited } = shown.fold(Shows::default(), |all, one| all | one);
    if cited {
        bind("citations", b"", Invalidated::System);
    }
    if images {
        bind("image", b"", Invalidated::Messages);
    }
    let hash = |all: &[u8]| if all.is_empty() { 0 } else { xxh3_64(all) };
    Bound { system: hash(&system), messages: hash(&messages) }
}

/// A hash of the names by which a request refers to what the provider holds and reads before the body. `None` if it
/// names nothing.
pub(super) fn named(conversation: &Conversation, layout: &Layout) -> Option<u64> {
    let names = layout.names.iter().filter_map(|row| Some((row, row.value(conversation)?)));
    let mut hash = Xxh3::new();
    let mut is_named = false;
    for (row, value) in names {
        is_named = true;
        for bytes in [row.inner.unwrap_or(row.member).as_bytes(), value.span.of(&conversation.body)] {
            hash.update(&(bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        }
    }
    is_named.then(|| hash.digest())
}

/// What precedes the messages of a prompt, as the provider's cache sees it. Instructions at the beginning of the
/// messages count as well. Also returns the prompt as far as it was read for that, for [`Protocol::prompt_after`].
pub(crate) fn prelude(protocol: &dyn Protocol, conversation: &Conversation) -> (Prelude, Prompt) {
    let layout = &protocol.dialect().layout;
    let body = &*conversation.body;
    let prompt = prompt::frame(conversation, layout);
    let mut hash = Xxh3::new();
    let read = prompt.blocks.iter().filter(|block| !prompt::is_billing_header(body, block));
    read.for_each(|block| hash.update(&block.key.to_le_bytes()));
    let messages = conversation.messages.iter().enumerate();
    for (at, _) in messages.take_while(|(_, message)| message.index.role == Role::System) {
        for block in prompt::keys_of(conversation, at, layout) {
            hash.update(&block.key.to_le_bytes());
        }
    }
    for bind in layout.binds {
        let value = bind.value(conversation).map(|value| value.span.of(body)).unwrap_or_default();
        hash.update(&(value.len() as u64).to_le_bytes());
        hash.update(value);
    }
    let unmarked = prompt.blocks.iter().rev().take_while(|block| block.mark.is_none());
    let unmarked = unmarked.map(|block| block.bytes as usize).sum();
    (Prelude { key: hash.digest(), unmarked }, prompt)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use crate::conversation::{Carriers, NoMemo};
    use crate::protocol::{self, Scale};

    /// What the provider's entries of the messages are bound to, and what the client's marks leave of it.
    #[test]
    fn prelude_keys_depend_only_on_what_the_model_reads() {
        const MARK: &str = r#","cache_control":{"type":"ephemeral"}"#;
        let protocol = protocol::named("anthropic").unwrap();
        let prelude = |members: &str| {
            let body = format!(r#"{{"model":"m",{members},"messages":[{{"role":"user","content":"a"}}]}}"#);
            super::prelude(protocol, &protocol.index(&Bytes::from(body), &NoMemo).unwrap()).0
        };
        let text = |text: &str, mark: &str| format!(r#"{{"type":"text","text":"{text}"{mark}}}"#);
        let members = |first: [&str; 2], second: [&str; 2], tool: &str, more: &str| {
            let system = [first, second].map(|[words, mark]| text(words, mark)).join(",");
            prelude(&format!(r#""tools":[{{"name":"t"{tool}}}],"system":[{system}]{more}"#))
        };
        let (one, two, tool) = (text("one", "").len(), text("two", "").len(), r#"{"name":"t"}"#.len());
        let plain = members(["one", ""], ["two", ""], "", "");
        for (other, is_same, unmarked) in [
            (members(["one", ""], ["two", ""], "", r#","max_tokens":9"#), true, tool + one + two),
            (members(["one", ""], ["two", ""], MARK, ""), true, one + two),
            (members(["one", MARK], ["two", ""], MARK, ""), true, two),
            (members(["one", ""], ["two", MARK], "", ""), true, 0),
            (members(["one", ""], ["too", ""], "", ""), false, tool + one + two),
            (members(["one", ""], ["two", ""], r#","x":1"#, ""), false, tool + r#","x":1"#.len() + one + two),
            (
                members(["one", ""], ["two", ""], "", r#","tool_choice":{"type":"any"}"#),
                false,
                tool + one + two,
            ),
        ] {
            assert_eq!((other.key == plain.key, other.unmarked), (is_same, unmarked), "{other:?}");
        }
        // Text that the provider removes from the instructions is not part of the key.
        let aside = |build: u32| {
            let header = text(&format!("x-anthropic-billing-header: cch={build};"), "");
            prelude(&format!(r#""system":[{header},{}]"#, text("one", MARK)))
        };
        assert_eq!(aside(1), aside(2));
        // Instructions among the messages are part of the key as well.
        let chat = protocol::named("openai-chat").unwrap();
        let key = |system: &str, user: &str| {
            let body = format!(
                r#"{{"messages":[{{"role":"system","content":{system}}},{{"role":"user","content":"{user}"}}]}}"#
            );
            let read = chat.with_marks(chat.index(&Bytes::from(body), &NoMemo).unwrap(), Carriers::Texts);
            super::prelude(chat, &read).0.key
        };
        let block = format!(r#"[{{"type":"text","text":"a"{MARK}}}]"#);
        assert_eq!(key(r#""a""#, "one"), key(&block, "two"));
        assert_ne!(key(r#""a""#, "one"), key(r#""b""#, "one"));
    }

    #[test]
    fn provider_held_prefixes_are_named_by_id_and_version() {
        let gemini = |member: &str| (r#""contents":[{"parts":[{"text":"a"}]}]"#, member.to_owned());
        let responses = |member: &str| (r#""input":"a""#, member.to_owned());
        let named = |dialect: &str, (body, member): (&str, String)| {
            let protocol = protocol::named(dialect).unwrap();
            let body = format!(r#"{{"model":"m",{body}{member}}}"#);
            protocol.prompt(&protocol.index(&Bytes::from(body), &NoMemo).unwrap()).named
        };
        let cached = named("gemini", gemini(r#","cachedContent":"cachedContents/a""#));
        let stored = named("openai-responses", responses(r#","prompt":{"id":"p","version":"2"}"#));
        for (what, dialect, body, known, is_same) in [
            ("nothing", "gemini", gemini(""), None, true),
            ("null", "gemini", gemini(r#","cachedContent":null"#), None, true),
            ("a prefix", "gemini", gemini(r#","cachedContent":"cachedContents/a""#), cached, true),
            ("another", "gemini", gemini(r#","cachedContent":"cachedContents/b""#), cached, false),
            ("no prompt", "openai-responses", responses(""), None, true),
            (
                "other variables",
                "openai-responses",
                responses(r#","prompt":{"version":"2","variables":{"a":"b"},"id":"p"}"#),
                stored,
                true,
            ),
            (
                "another version",
                "openai-responses",
                responses(r#","prompt":{"id":"p","version":"3"}"#),
                stored,
                false,
            ),
            ("the newest version", "openai-responses", responses(r#","prompt":{"id":"p"}"#), stored, false),
        ] {
            assert_eq!(named(dialect, body) == known, is_same, "{dialect}: {what}");
        }
        assert!(cached.is_some() && stored.is_some());
    }

    /// Parameters of a request, and the blocks (0: tools, then instructions and messages) whose cache entries depend on
    /// them.
    #[test]
    fn cache_entries_are_bound_to_parameters_of_the_request() {
        const IMAGE: &str = r#"{"type":"image","source":{"type":"url","url":"https://a/b.png"}}"#;
        let cited = |is: bool| {
            format!(
                r#"{{"type":"document","source":{{"type":"text","data":"d"}},"citations":{{"enabled":{is}}}}}"#
            )
        };
        let anthropic = |blocks: &[String]| {
            let blocks: Vec<String> = blocks.iter().map(|block| format!(",{block}")).collect();
            format!(
                r#""system":"s","messages":[{{"role":"user","content":[{{"type":"text","text":"a"}}{}]}}]"#,
                blocks.concat()
            )
        };
        let result =
            |block: &str| format!(r#"{{"type":"tool_result","tool_use_id":"t","content":[{block}]}}"#);
        let with = |member: &str| format!("{},{member}", anthropic(&[]));
        let summed = format!(
            r#""system":"s","messages":[{{"role":"user","content":[{IMAGE}]}},{{"role":"assistant","content":[{{"type":"compaction","content":"c"}}]}}]"#
        );
        let chat = |member: &str| format!(r#""messages":[{{"role":"user","content":"a"}}]{member}"#);
        let responses = |member: &str| format!(r#""instructions":"s","input":"a"{member}"#);
        let gemini = r#""contents":[{"parts":[{"text":"a"}]}],"generationConfig":{"temperature":1}"#;
        for (dialect, members, expected) in [
            ("anthropic", anthropic(&[]), vec![]),
            ("anthropic", with(r#""max_tokens":9,"metadata":{"user_id":"u"},"tool_choice":null"#), vec![]),
            ("anthropic", with(r#""tool_choice":{"type":"any"}"#), vec![2]),
            ("anthropic", with(r#""thinking":{"type":"adaptive"}"#), vec![2]),
            ("anthropic", with(r#""output_config":{"effort":"low"}"#), vec![2]),
            ("anthropic", with(r#""speed":"fast""#), vec![1, 2]),
            ("anthropic", anthropic(&[IMAGE.into()]), vec![2]),
            ("anthropic", anthropic(&[result(IMAGE)]), vec![2]),
            ("anthropic", anthropic(&[cited(false)]), vec![]),
            ("anthropic", anthropic(&[cited(true)]), vec![1, 2]),
            ("anthropic", anthropic(&[result(&cited(true))]), vec![1, 2]),
            // An image before the provider's own summary, which the provider does not read.
            ("anthropic", summed, vec![]),
            ("openai-chat", chat(r#","prompt_cache_key":"k""#), vec![]),
            ("openai-chat", chat(r#","reasoning_effort":"low""#), vec![1]),
            ("openai-chat", chat(r#","verbosity":"low""#), vec![1]),
            ("openai-chat", chat(r#","response_format":{"type":"json_object"}"#), vec![1]),
            ("openai-chat", chat(r#","service_tier":"flex""#), vec![1]),
            ("openai-responses", responses(r#","reasoning":{"summary":"auto"},"text":{}"#), vec![]),
            ("openai-responses", responses(r#","reasoning":{"effort":"low"}"#), vec![2]),
            ("openai-responses", responses(r#","text":{"verbosity":"low"}"#), vec![2]),
            ("openai-responses", responses(r#","text":{"format":{"type":"json_object"}}"#), vec![2]),
            ("openai-responses", responses(r#","service_tier":"flex""#), vec![2]),
            ("gemini", gemini.to_owned(), vec![]),
        ] {
            let protocol = protocol::named(dialect).unwrap();
            let body = format!(r#"{{"model":"m","tools":[{{"name":"t"}}],{members}}}"#);
            let prompt = protocol.prompt(&protocol.index(&Bytes::from(body), &NoMemo).unwrap());
            let shape = prompt.shape(Scale::Bytes(4.0));
            let bound = shape.blocks.iter().enumerate().filter(|(_, block)| block.bound != 0);
            let bound: Vec<usize> = bound.map(|(at, _)| at).collect();
            assert_eq!(bound, expected, "{dialect} {members}");
        }
    }
}
