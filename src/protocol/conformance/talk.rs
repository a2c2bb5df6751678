//! Generated conversations, independent of any dialect: who says what, which tools are called, what they return.
//! Providers accept every talk.

use proptest::prelude::*;
use proptest::sample::Index;

/// A conversation that waits for the model.
#[derive(Debug, Clone)]
pub(crate) struct Talk {
    /// Its turns; there is at least one. The last one is not answered yet.
    pub(crate) turns: Vec<Turn>,
    pub(crate) ids: Ids,
    /// Draws what the dialect is free to choose.
    pub(crate) seed: u64,
}

/// How calls get their ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ids {
    /// Each call has an id of its own.
    Own,
    /// Each step begins with the first id again, as with servers that count the calls of an answer.
    Again,
    /// All calls have one, where the dialect's clients have such servers; else as above.
    One,
}

/// From here on, numbers denote calls that all have one id.
pub(crate) const ONE: usize = 1 << 32;

/// From a message of the user's own to the next.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub(crate) user: String,
    pub(crate) media: bool,
    /// A message of the system's own after the user's.
    pub(crate) note: Option<String>,
    pub(crate) steps: Vec<Step>,
    /// What the model says at the end.
    pub(crate) answer: Answer,
}

/// What the model says.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) thinking: bool,
    pub(crate) text: String,
    /// Something in it is of an unknown kind.
    pub(crate) strange: bool,
}

/// A model call that ends in tool calls, and their results.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) thinking: bool,
    pub(crate) text: Option<String>,
    pub(crate) calls: Vec<Call>,
    /// What the user says along with the results.
    pub(crate) aside: Option<String>,
    /// A message of the system's own after the results.
    pub(crate) note: Option<String>,
}

/// A call and its result.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) tool: &'static str,
    pub(crate) argument: String,
    pub(crate) is_error: bool,
    pub(crate) result: Content,
}

/// What a tool answers.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    /// The member is left out.
    Missing,
    /// A string, which may be empty.
    Text(String),
    /// A string that cannot be decoded.
    Broken,
    /// Blocks.
    Blocks(Vec<Block>),
    /// The same as an earlier result of the talk, if there is one.
    Again(Index),
}

/// A block of a result.
#[derive(Debug, Clone)]
pub(crate) enum Block {
    Text(String),
    /// An image with its data: the encoding.
    Image(String),
    /// An image that is stored elsewhere.
    Linked,
    /// Of an unknown kind.
    Strange,
}

/// A message, as far as it does not depend on the dialect.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Said<'a> {
    User(&'a Turn),
    Note(&'a str),
    /// Calls of tools; the number counts the calls before them that have other ids.
    Calls(&'a Step, usize),
    /// Their results.
    Results(&'a Step, usize),
    Answer(&'a Answer),
}

impl Talk {
    /// Its messages in order. Calls are counted from `first` on, if they have ids of their own.
    pub(crate) fn messages(&self, ids: Ids, first: usize) -> Vec<Said<'_>> {
        let mut out = Vec::new();
        let mut calls = match ids {
            Ids::Own => first,
            Ids::Again => 0,
            Ids::One => ONE,
        };
        for (at, turn) in self.turns.iter().enumerate() {
            out.push(Said::User(turn));
            out.extend(turn.note.as_deref().map(Said::Note));
            for step in &turn.steps {
                out.push(Said::Calls(step, calls));
                out.push(Said::Results(step, calls));
                out.extend(step.note.as_deref().map(Said::Note));
                calls += if ids == Ids::Own { step.calls.len() } else { 0 };
            }
            if at + 1 < self.turns.len() {
                out.push(Said::Answer(&turn.answer));
            }
        }
        out
    }

    /// Puts an earlier result in every place that asks for one.
    fn with_repeats(mut self) -> Self {
        let mut seen: Vec<Content> = Vec::new();
        let steps = self.turns.iter_mut().flat_map(|turn| &mut turn.steps);
        for call in steps.flat_map(|step| &mut step.calls) {
            if let Content::Again(index) = &call.result {
                let earlier = (!seen.is_empty()).then(|| index.get(&seen).clone());
                call.result = earlier.unwrap_or(Content::Missing);
            } else {
                seen.push(call.result.clone());
            }
        }
        self
    }
}

/// Any talk, with texts of the given kind as results.
pub(crate) fn talks(result: impl Strategy<Value = String> + Clone + 'static) -> impl Strategy<Value = Talk> {
    let turn =
        (short(), prop::bool::weighted(0.1), note(), prop::collection::vec(step(result), 0..4), answer())
            .prop_map(|(user, media, note, steps, answer)| Turn { user, media, note, steps, answer });
    let ids = prop_oneof![5 => Just(Ids::Own), 2 => Just(Ids::Again), 1 => Just(Ids::One)];
    (prop::collection::vec(turn, 1..4), ids, any::<u64>())
        .prop_map(|(turns, ids, seed)| Talk { turns, ids, seed }.with_repeats())
}

fn step(result: impl Strategy<Value = String> + Clone + 'static) -> impl Strategy<Value = Step> {
    let aside = prop::option::weighted(0.2, short());
    let text = prop::option::weighted(0.3, short());
    let calls = prop::collection::vec(call(result), 1..4);
    (prop::bool::weighted(0.3), text, calls, aside, note())
        .prop_map(|(thinking, text, calls, aside, note)| Step { thinking, text, calls, aside, note })
}

fn note() -> impl Strategy<Value = Option<String>> {
    prop::option::weighted(0.1, short())
}

fn answer() -> impl Strategy<Value = Answer> {
    (prop::bool::weighted(0.3), short(), prop::bool::weighted(0.1))
        .prop_map(|(thinking, text, strange)| Answer { thinking, text, strange })
}

/// Names of tools, usual and unusual.
const TOOLS: &[&str] = &["Bash", "Read", "grep", "mcp__fs__read_file", "run_shell_command", "x\"y\\z", "é"];

fn call(result: impl Strategy<Value = String> + Clone + 'static) -> impl Strategy<Value = Call> {
    let argument = prop_oneof![3 => short(), 1 => Just("cat src/a.rs".to_owned())];
    (prop::sample::select(TOOLS), argument, prop::bool::weighted(0.1), content(result))
        .prop_map(|(tool, argument, is_error, result)| Call { tool, argument, is_error, result })
}

fn content(result: impl Strategy<Value = String> + Clone + 'static) -> impl Strategy<Value = Content> {
    let block = prop_oneof![
        18 => result.clone().prop_map(|text| Block::Text(visible(text))),
        4 => encoding().prop_map(Block::Image),
        1 => Just(Block::Linked),
        1 => Just(Block::Strange),
    ];
    prop_oneof![
        1 => Just(Content::Missing),
        1 => Just(Content::Text(String::new())),
        1 => Just(Content::Broken),
        8 => result.prop_map(Content::Text),
        5 => prop::collection::vec(block, 1..4).prop_map(Content::Blocks),
        1 => prop::collection::vec(encoding().prop_map(Block::Image), 1..3).prop_map(Content::Blocks),
        3 => any::<Index>().prop_map(Content::Again),
    ]
}

/// What encodes an image, a tiny one or one that weighs more than results do.
fn encoding() -> impl Strategy<Value = String> {
    let repeated = |times: usize| "iVBORw0KGgoAAAANSUhEUgAB".repeat(times);
    prop_oneof![Just("iVBORw0KGgo=".to_owned()), (1_usize..400).prop_map(repeated)]
}

/// A few words, never blank.
pub(crate) fn short() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z]{1,8}( [a-z]{1,8}){0,4}",
        1 => any::<String>().prop_map(visible),
        1 => Just("\u{1F980} \"quoted\" \\ /slash/ \t\u{7f}\u{2028}".to_owned()),
    ]
}

/// Any text, as a result that is not worth a change, or may be.
pub(crate) fn any_text() -> impl Strategy<Value = String> + Clone {
    prop_oneof!["[a-z \n]{0,40}", any::<String>(), "[\"\\\\/\u{e9}\u{1F980}\u{0}-\u{1f}]{0,20}",]
}

fn visible(text: String) -> String {
    if text.trim().is_empty() { format!("{text}.") } else { text }
}
