//! Plans of every kind for any conversation, most of them good, some of them nonsense.

use proptest::prelude::*;
use proptest::sample::Index;

use crate::conversation::{Conversation, Hold, PartId, PartKind, Role};
use crate::plan::{LeafEdit, Op, Plan};

/// A wish for an operation, made before the conversation is known.
#[derive(Debug, Clone)]
pub(crate) enum Wish {
    /// New text for a result: which one, what becomes of its leaves, and whether its images go.
    Shorten(Index, Vec<LeafWish>, bool),
    /// A text for the first of a result that has images, which go.
    Blind(Index, String),
    /// What becomes of a result's images: they stay, go, or give way to a text.
    Describe(Index, Vec<LeafWish>),
    /// New text for the first text of a call's arguments.
    Abridge(Index, String),
    /// New text for any part, whether that makes sense or not.
    Scribble(u8, u8, Vec<LeafWish>),
    /// The first blocks of reasoning go.
    Forget(u8),
    /// The instructions become two texts, with a mark or without.
    Split(Index, Option<Hold>),
    /// What precedes the messages is marked at its end.
    MarkFrame(Hold),
    /// A part is marked.
    Mark(Index, Hold),
    /// A step, with its calls and results, goes.
    DropStep(Index),
    /// Some messages go.
    Drop(Index, u8),
    /// A message comes.
    Insert(Index, Role, String),
    /// Something more is said at the end of a part's text.
    Append(Index, u8, String),
}

/// What becomes of a leaf.
#[derive(Debug, Clone)]
pub(crate) enum LeafWish {
    Keep,
    Remove,
    Replace(String),
}

pub(crate) fn wishes() -> impl Strategy<Value = Vec<Wish>> {
    let sensible = prop_oneof![
        4 => shorten(good_text()),
        2 => any::<Index>().prop_map(Wish::DropStep),
        2 => (1_u8..6).prop_map(Wish::Forget),
        2 => abridge("[a-z.]".boxed()),
        5 => (any::<Index>(), good_text()).prop_map(|(which, text)| Wish::Blind(which, text)),
        5 => (any::<Index>(), leaves(good_text())).prop_map(|(which, images)| Wish::Describe(which, images)),
        1 => (any::<Index>(), prop::option::of(hold())).prop_map(|(at, mark)| Wish::Split(at, mark)),
        1 => hold().prop_map(Wish::MarkFrame),
        2 => (any::<Index>(), hold()).prop_map(|(which, hold)| Wish::Mark(which, hold)),
        2 => insert(prop_oneof![Just(Role::User), Just(Role::Assistant)], good_text()),
        1 => append(good_text()),
    ];
    let any_role = prop::sample::select(&[Role::User, Role::Assistant, Role::System, Role::Tool][..]);
    let wild = prop_oneof![
        2 => shorten(bad_text()),
        1 => (0_u8..12, 0_u8..4, leaves(bad_text())).prop_map(|(message, part, leaves)| Wish::Scribble(message, part, leaves)),
        2 => (any::<Index>(), 0_u8..4).prop_map(|(first, count)| Wish::Drop(first, count)),
        2 => insert(any_role, bad_text()),
        1 => append(bad_text()),
        1 => abridge(bad_text()),
    ];
    prop_oneof![
        3 => prop::collection::vec(sensible, 1..5),
        1 => prop::collection::vec(wild, 1..4),
    ]
}

fn good_text() -> BoxedStrategy<String> {
    prop_oneof![3 => "[a-z]{1,12}", 1 => Just("\"\\\n\u{0}\u{1F980}\u{2028}".to_owned())].boxed()
}

fn bad_text() -> BoxedStrategy<String> {
    prop_oneof![good_text(), any::<String>(), Just(" ".to_owned()), Just(String::new())].boxed()
}

fn leaves(text: BoxedStrategy<String>) -> impl Strategy<Value = Vec<LeafWish>> {
    let leaf = prop_oneof![
        4 => text.prop_map(LeafWish::Replace),
        1 => Just(LeafWish::Keep),
        1 => Just(LeafWish::Remove),
    ];
    prop::collection::vec(leaf, 1..4)
}

fn shorten(text: BoxedStrategy<String>) -> impl Strategy<Value = Wish> {
    let wish = (any::<Index>(), leaves(text), any::<bool>());
    wish.prop_map(|(which, leaves, all)| Wish::Shorten(which, leaves, all))
}

fn abridge(text: BoxedStrategy<String>) -> impl Strategy<Value = Wish> {
    (any::<Index>(), text).prop_map(|(which, text)| Wish::Abridge(which, text))
}

fn insert(role: impl Strategy<Value = Role>, text: BoxedStrategy<String>) -> impl Strategy<Value = Wish> {
    (any::<Index>(), role, text).prop_map(|(at, role, text)| Wish::Insert(at, role, text))
}

fn append(text: BoxedStrategy<String>) -> impl Strategy<Value = Wish> {
    (any::<Index>(), 0_u8..3, text).prop_map(|(which, part, text)| Wish::Append(which, part, text))
}

fn hold() -> impl Strategy<Value = Hold> {
    any::<bool>().prop_map(|is_long| if is_long { Hold::Long } else { Hold::Short })
}

/// The plan that wishes make for a conversation.
pub(crate) fn plan(conversation: &Conversation, wishes: &[Wish]) -> Plan {
    let ops = wishes.iter().flat_map(|wish| match wish {
        Wish::Forget(count) => forget(conversation, *count),
        other => operation(conversation, other).into_iter().collect(),
    });
    Plan { ops: ops.collect() }
}

fn forget(conversation: &Conversation, count: u8) -> Vec<Op> {
    let parts = (0..conversation.messages.len()).flat_map(|at| conversation.parts_of(at));
    let thoughts = parts.filter(|(_, part)| part.kind() == PartKind::Thinking);
    thoughts.take(count.into()).map(|(part, _)| Op::Omit { part }).collect()
}

fn operation(conversation: &Conversation, wish: &Wish) -> Option<Op> {
    let count = conversation.messages.len();
    match wish {
        Wish::Shorten(which, leaves, all) => {
            let results: Vec<PartId> = (0..count)
                .flat_map(|message| conversation.parts_of(message))
                .filter(|(_, part)| part.kind() == PartKind::ToolResult && !part.leaves().is_empty())
                .map(|(id, _)| id)
                .collect();
            let part = *(!results.is_empty()).then(|| which.get(&results))?;
            let (have, images) =
                (conversation.part(part)?.leaves().len(), conversation.part(part)?.media().len());
            let mut leaves = leaf_edits(&leaves[..leaves.len().min(have)]);
            let images = have..have + if *all { images } else { 0 };
            leaves.extend(images.map(|at| (at as u32, LeafEdit::Remove)));
            (!leaves.is_empty()).then_some(Op::Text { part, leaves })
        }
        Wish::Blind(which, text) => {
            let results = pictured(conversation, |texts| texts > 0);
            let (part, texts, images) = *(!results.is_empty()).then(|| which.get(&results))?;
            let images = (texts..texts + images).map(|at| (at as u32, LeafEdit::Remove));
            let text = (0, LeafEdit::Replace(text.as_str().into()));
            Some(Op::Text { part, leaves: std::iter::once(text).chain(images).collect() })
        }
        Wish::Describe(which, wishes) => {
            let results = pictured(conversation, |_| true);
            let (part, texts, images) = *(!results.is_empty()).then(|| which.get(&results))?;
            let edits = leaf_edits(&wishes[..wishes.len().min(images)]).into_iter();
            let leaves: Vec<_> = edits.map(|(at, edit)| (at + texts as u32, edit)).collect();
            (!leaves.is_empty()).then_some(Op::Text { part, leaves })
        }
        Wish::Abridge(which, text) => {
            let calls: Vec<PartId> = (0..count)
                .flat_map(|message| conversation.parts_of(message))
                .filter(|(_, part)| part.kind() == PartKind::ToolCall)
                .map(|(id, _)| id)
                .collect();
            let part = *(!calls.is_empty()).then(|| which.get(&calls))?;
            Some(Op::Text { part, leaves: vec![(0, LeafEdit::Replace(text.as_str().into()))] })
        }
        Wish::Scribble(message, part, leaves) => {
            let part = PartId { message: u32::from(*message), part: u32::from(*part) };
            Some(Op::Text { part, leaves: leaf_edits(leaves) })
        }
        Wish::Forget(_) => None,
        Wish::Split(at, mark) => {
            let text = conversation.instructions()?;
            let bytes = at.index(text.len().max(1)) as u32;
            Some(Op::Split { bytes, mark: *mark })
        }
        Wish::MarkFrame(hold) => conversation.frame_end.map(|_| Op::MarkFrame { hold: *hold }),
        Wish::Mark(which, hold) => {
            let parts = (0..count).flat_map(|message| conversation.parts_of(message)).map(|(id, _)| id);
            let parts: Vec<PartId> = parts.filter(|id| conversation.mark_place(*id).is_some()).collect();
            let part = *(!parts.is_empty()).then(|| which.get(&parts))?;
            Some(Op::Mark { part, hold: *hold })
        }
        Wish::DropStep(which) => {
            let calls: Vec<usize> = (0..count).filter(|message| has_calls(conversation, *message)).collect();
            let first = *(!calls.is_empty()).then(|| which.get(&calls))?;
            let results = (first + 1..count)
                .take_while(|message| conversation.messages[*message].index.has_results())
                .count();
            Some(Op::Drop { first, end: first + 1 + results })
        }
        Wish::Drop(first, length) => {
            let first = first.index(count + 1);
            Some(Op::Drop { first, end: first + usize::from(*length) })
        }
        Wish::Append(which, part, text) => {
            let users: Vec<usize> =
                (0..count).filter(|message| conversation.messages[*message].index.starts_turn()).collect();
            let message = *(!users.is_empty()).then(|| which.get(&users))?;
            let part = PartId { message: message as u32, part: u32::from(*part) };
            Some(Op::Append { part, leaf: 0, text: text.as_str().into() })
        }
        Wish::Insert(at, role, text) => {
            Some(Op::Insert { before: at.index(count + 1), role: *role, text: text.as_str().into() })
        }
    }
}

/// The results that have images, and how many texts and images each has.
fn pictured(conversation: &Conversation, may: impl Fn(usize) -> bool) -> Vec<(PartId, usize, usize)> {
    (0..conversation.messages.len())
        .flat_map(|message| conversation.parts_of(message))
        .map(|(id, part)| (id, part.leaves().len(), part.media().len()))
        .filter(|(_, texts, images)| may(*texts) && *images > 0)
        .collect()
}

fn has_calls(conversation: &Conversation, message: usize) -> bool {
    conversation.parts_of(message).any(|(_, part)| part.kind() == PartKind::ToolCall)
}

fn leaf_edits(wishes: &[LeafWish]) -> Vec<(u32, LeafEdit)> {
    let edits = wishes.iter().enumerate().filter_map(|(at, wish)| match wish {
        LeafWish::Keep => None,
        LeafWish::Remove => Some((at as u32, LeafEdit::Remove)),
        LeafWish::Replace(text) => Some((at as u32, LeafEdit::Replace(text.as_str().into()))),
    });
    edits.collect()
}
