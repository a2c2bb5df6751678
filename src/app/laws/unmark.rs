//! Removes the cache marks that a gateway has added, and judges them.

use crate::protocol::conformance::Subject;
use crate::protocol::conformance::tree::Tree;

/// The member that marks a block, in the dialects in which the gateway sets marks.
const MARK: &str = "cache_control";
/// Blocks that must not be marked.
const UNMARKABLE: &[&str] = &[
    "thinking",
    "redacted_thinking",
    "server_tool_use",
    "web_search_tool_result",
    "from_the_future",
    "image_url",
];
/// The most marks that a request may have.
const MOST: usize = 4;

/// What was sent without the marks that the client did not set, and the number of these.
///
/// # Panics
/// Panics if a mark is where the provider accepts none, if there are too many, or if their lifetimes are in the wrong
/// order.
pub(super) fn unmarked(subject: &dyn Subject, body: &str, wire: &str) -> (Tree, usize) {
    let (body, wire) = (Tree::parse(body), Tree::parse(wire));
    let mut bare = wire.clone();
    if !may_mark(subject, &body) {
        return (bare, 0);
    }
    let mut added = 0;
    if let Some(Tree::List(messages)) = bare.get_mut(subject.list()) {
        for (message, wired) in subject.messages_of(&body).iter().zip(messages) {
            added += unmark(message, wired);
        }
    }
    if added > 0 {
        judge(subject, &wire);
    }
    (bare, added)
}

/// Whether the gateway may mark a body: in the OpenAI dialect only those that a router passes on to Claude.
pub(super) fn may_mark(subject: &dyn Subject, body: &Tree) -> bool {
    match subject.protocol().name() {
        "anthropic" => true,
        "openai-chat" => body.text_of("model").is_some_and(|model| model.starts_with("anthropic/")),
        _ => false,
    }
}

/// The number of cache marks of a body.
///
/// # Panics
/// Panics if there are too many, or if their lifetimes are in the wrong order.
pub(super) fn judge(subject: &dyn Subject, wire: &Tree) -> usize {
    let members = ["tools", "system", subject.list()];
    let marks: Vec<bool> = members.iter().filter_map(|member| wire.get(member)).flat_map(marks_of).collect();
    assert!(marks.len() <= MOST, "{} marks", marks.len());
    assert!(!marks.windows(2).any(|pair| !pair[0] && pair[1]), "a long mark behind a short one: {marks:?}");
    marks.len()
}

/// Removes the marks from a message that were not there when it was received, and returns their number.
pub(super) fn unmark(message: &Tree, wired: &mut Tree) -> usize {
    let (Some(was), Some(is)) = (message.get("content"), wired.get_mut("content")) else { return 0 };
    if was.is_string() {
        let Tree::List(blocks) = &*is else { return 0 };
        let [block] = &blocks[..] else { panic!("a string became {} blocks", blocks.len()) };
        assert!(block.get(MARK).is_some() && block.text_of("type").as_deref() == Some("text"), "{block:?}");
        *is = judged(block).get("text").expect("a text").clone();
        return 1;
    }
    let Tree::List(blocks) = is else { return 0 };
    // Blocks of a result that is a message may be removed: one with several blocks carries no mark but the client's.
    if matches!(message.text_of("role").as_deref(), Some("tool" | "function"))
        && blocks.len() != was.items().len()
    {
        return 0;
    }
    let mut added = 0;
    for (was, is) in was.items().iter().zip(blocks) {
        if is.get(MARK).is_some() && was.get(MARK).is_none() {
            judged(is);
            let Tree::Map(members) = is else { continue };
            members.retain(|(key, _)| key != MARK);
            added += 1;
        }
    }
    added
}

/// Checks that a block may be marked, and returns it.
fn judged(block: &Tree) -> &Tree {
    let kind = block.text_of("type").unwrap_or_default();
    assert!(!UNMARKABLE.contains(&&*kind), "a mark on {kind}");
    assert!(kind != "text" || block.text_of("text").is_some_and(|text| !text.trim().is_empty()), "{block:?}");
    block
}

/// The marks in a tree, in order: whether each has the long lifetime.
fn marks_of(tree: &Tree) -> Vec<bool> {
    match tree {
        Tree::List(items) => items.iter().flat_map(marks_of).collect(),
        Tree::Map(members) => {
            let own = tree.get(MARK).map(|mark| mark.text_of("ttl").as_deref() == Some("1h"));
            let inner =
                members.iter().filter(|(key, _)| key == "content").flat_map(|(_, value)| marks_of(value));
            inner.chain(own).collect()
        }
        Tree::Raw(_) | Tree::Text(_) | Tree::Json(_) => Vec::new(),
    }
}
