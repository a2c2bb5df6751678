//! What the provider's entries of a prompt's messages are bound to: what stands before these.

use xxhash_rust::xxh3::Xxh3;

use super::Protocol;
use super::prompt::{self, Prompt};
use crate::conversation::{Conversation, Prelude};
use crate::json::scan;

/// What stands before the messages, for the provider's cache.
pub(crate) fn prelude(protocol: &dyn Protocol, conversation: &Conversation) -> Prelude {
    let layout = &protocol.dialect().layout;
    let (body, members) = (&*conversation.body, &*conversation.members);
    let mut prompt = Prompt::default();
    prompt::frame(conversation, layout, &mut prompt);
    let mut hash = Xxh3::new();
    let read = prompt.blocks.iter().filter(|block| !prompt::is_aside(body, block));
    read.for_each(|block| hash.update(&block.key.to_le_bytes()));
    for name in layout.binds {
        let said = scan::get(body, members, name).map(|value| value.span.of(body)).unwrap_or_default();
        hash.update(&(said.len() as u64).to_le_bytes());
        hash.update(said);
    }
    let unmarked = prompt.blocks.iter().rev().take_while(|block| block.mark.is_none());
    Prelude { key: hash.digest(), unmarked: unmarked.map(|block| block.bytes as usize).sum() }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use crate::conversation::NoMemo;
    use crate::protocol;

    /// What the provider's entries of the messages are bound to, and what the client's marks leave of it.
    #[test]
    fn preludes_are_named_by_what_is_read() {
        const MARK: &str = r#","cache_control":{"type":"ephemeral"}"#;
        let protocol = protocol::named("anthropic").unwrap();
        let prelude = |members: &str| {
            let body = format!(r#"{{"model":"m",{members},"messages":[{{"role":"user","content":"a"}}]}}"#);
            super::prelude(protocol, &protocol.index(&Bytes::from(body), &NoMemo).unwrap())
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
        // What the provider takes out of the instructions names nothing.
        let aside = |build: u32| {
            let header = text(&format!("x-anthropic-billing-header: cch={build};"), "");
            prelude(&format!(r#""system":[{header},{}]"#, text("one", MARK)))
        };
        assert_eq!(aside(1), aside(2));
    }
}
