//! A simulated agent: it grows its history, retries, goes back, compacts, is interrupted, sometimes bypasses the
//! gateway, and moves its cache mark along.

use bytes::Bytes;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::protocol::conformance::Subject;
use crate::protocol::conformance::talk::{Said, Talk, Turn, talks};
use crate::protocol::conformance::write::{Dice, Node, Spelling, write};

/// Something that happens to an agent or to the gateways.
#[derive(Debug, Clone)]
pub(super) enum Event {
    /// The model answers and the agent continues through this gateway.
    Next(Way),
    /// The same body is sent again.
    Retry(Way),
    /// The agent goes back to an earlier request and continues from there with another script.
    Rewind(Index, u8),
    /// The agent replaces its history by a summary and the last messages.
    Compact(Index, Way),
    /// There is no answer, and the user says something.
    Interrupt(String, Way),
    /// One of the gateways restarts, with other settings.
    Restart(u8, u8),
    /// The other agent continues.
    Switch,
    /// Nothing happens for this many minutes.
    Pause(u8),
}

/// Where a request is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// To one of the gateways.
    Through(u8),
    /// Directly to the provider.
    Bypass,
}

pub(super) fn events() -> impl Strategy<Value = Vec<Event>> {
    let way = || prop_oneof![5 => Just(Way::Through(0)), 2 => Just(Way::Through(1)), 1 => Just(Way::Bypass)];
    let event = prop_oneof![
        10 => way().prop_map(Event::Next),
        2 => way().prop_map(Event::Retry),
        2 => (any::<Index>(), 0_u8..3).prop_map(|(moment, script)| Event::Rewind(moment, script)),
        1 => (any::<Index>(), way()).prop_map(|(from, way)| Event::Compact(from, way)),
        1 => ("[a-z]{1,9}", way()).prop_map(|(text, way)| Event::Interrupt(text, way)),
        2 => (0_u8..2, 0..super::rig::SETTINGS).prop_map(|(gateway, settings)| Event::Restart(gateway, settings)),
        1 => Just(Event::Switch),
        1 => (1_u8..240).prop_map(Event::Pause),
    ];
    prop::collection::vec(event, 4..18)
}

/// Agents that mostly just continue.
pub(super) fn quiet_events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        20 => Just(Event::Next(Way::Through(0))),
        1 => Just(Event::Retry(Way::Through(0))),
        1 => Just(Event::Next(Way::Through(1))),
        1 => (0_u8..2, 0..super::rig::SETTINGS).prop_map(|(gateway, settings)| Event::Restart(gateway, settings)),
        6 => (1_u8..240).prop_map(Event::Pause),
    ];
    prop::collection::vec(event, 6..28)
}

/// Results of all sizes that matter to shapers.
pub(super) fn outputs() -> impl Strategy<Value = String> + Clone {
    let lines = (1_usize..60, "[a-z ]{3,30}", any::<u16>()).prop_map(|(count, text, seed)| {
        let line = |at| format!("{} {text} {}\n", at * 7 + usize::from(seed), at % 3);
        (0..count).map(line).collect::<Vec<String>>().concat()
    });
    let json = (1_usize..25, "[a-z\u{e9}\"]{1,12}").prop_map(|(count, text)| {
        let row = |at: usize| serde_json::json!({"name": text, "at": at, "tags": [text, null, 1.5]});
        serde_json::to_string_pretty(&(0..count).map(row).collect::<Vec<_>>()).unwrap()
    });
    let colours = (1_usize..25, "[a-z]{1,12}").prop_map(|(count, text)| {
        let line = |at| format!("\u{1b}[3{}m{text}\u{1b}[0m {at}%\r{text} done\n", at % 8);
        (0..count).map(line).collect::<Vec<String>>().concat()
    });
    let again = (2_usize..60, "[a-z]{4,40}")
        .prop_map(|(count, text)| format!("head\n{}tail\n", format!("{text}\n").repeat(count)));
    let blob = (60_usize..900).prop_map(|count| {
        format!("data:image/png;base64,{}==\n", "iVBORw0KGgoAAAANSUhEUgAB".repeat(count / 24 + 1))
    });
    prop_oneof![
        3 => "[a-z \n\u{e9}\u{1F980}\"\\\\]{0,60}",
        5 => lines,
        2 => json,
        2 => colours,
        2 => again,
        1 => blob,
    ]
}

/// The cache mark that a client sets at the end of its prompts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    None,
    Short,
    Long,
}

/// What an agent may say and receive.
#[derive(Debug, Clone)]
pub(super) struct Script {
    pub(super) talks: Vec<Talk>,
    pub(super) mark: Mark,
    pub(super) spelling: Spelling,
    /// Whether each request ends with a word that the next one leaves out.
    pub(super) reminds: bool,
    /// Whether the first result of each step is given twice.
    pub(super) repeats: bool,
}

pub(super) fn scripts() -> impl Strategy<Value = Script> {
    scripts_of(outputs())
}

/// Agents whose tools have these outputs.
pub(super) fn scripts_of(
    outputs: impl Strategy<Value = String> + Clone + 'static,
) -> impl Strategy<Value = Script> {
    scripts_for(outputs, 3)
}

/// Agents that never go back, and how many requests they make at most.
pub(super) fn sittings() -> impl Strategy<Value = (Script, usize)> {
    (scripts_for(outputs(), 1), 4_usize..18)
}

fn scripts_for(
    outputs: impl Strategy<Value = String> + Clone + 'static,
    talks: usize,
) -> impl Strategy<Value = Script> {
    let spelling =
        prop_oneof![2 => Just(Spelling::Compact), 1 => Just(Spelling::Python), 1 => Just(Spelling::Wild)];
    let mark = prop_oneof![2 => Just(Mark::None), 2 => Just(Mark::Short), 1 => Just(Mark::Long)];
    let reminds = prop_oneof![3 => Just(false), 1 => Just(true)];
    let repeats = prop_oneof![7 => Just(false), 1 => Just(true)];
    (prop::collection::vec(self::talks(outputs), talks), mark, spelling, reminds, repeats).prop_map(
        |(talks, mark, spelling, reminds, repeats)| Script { talks, mark, spelling, reminds, repeats },
    )
}

/// A message, or several that belong together, and whether a request may end there.
#[derive(Clone)]
struct Entry {
    messages: Vec<Node>,
    ends: bool,
    /// Whether the model speaks next.
    answers: bool,
    /// Whether it begins with a result.
    is_of_tools: bool,
}

/// An agent at work.
#[derive(Clone)]
pub(super) struct Client {
    subject: &'static dyn Subject,
    script: Script,
    scripts: Vec<Vec<Entry>>,
    history: Vec<Entry>,
    ahead: Vec<Entry>,
    interruptions: u32,
}

impl Client {
    /// An agent whose calls have different ids than those of other agents, if they have ids at all.
    pub(super) fn new(subject: &'static dyn Subject, script: Script, number: usize) -> Self {
        let entries = |(at, talk): (usize, &Talk)| entries(subject, talk, (number * 3 + at) * 1000);
        let mut scripts: Vec<Vec<Entry>> = script.talks.iter().enumerate().map(entries).collect();
        if script.repeats && subject.takes_results_twice() {
            for results in scripts.iter_mut().flatten().filter(|entry| entry.is_of_tools) {
                let first = results.messages[0].clone();
                results.messages.insert(0, first);
            }
        }
        let ahead = scripts[0].clone();
        Self { subject, script, scripts, history: Vec::new(), ahead, interruptions: 0 }
    }

    /// Continues to the next request; `false` if there is nothing left to say.
    pub(super) fn advance(&mut self) -> bool {
        let Some(end) = self.ahead.iter().position(|entry| entry.ends) else { return false };
        self.history.extend(self.ahead.drain(..=end));
        true
    }

    /// The next requests, at most `most`.
    pub(super) fn requests(&mut self, most: usize) -> impl Iterator<Item = Bytes> {
        (0..most).map_while(|_| self.advance().then(|| self.body().expect("a request")))
    }

    /// Forgets what came after an earlier request, and continues with another script.
    pub(super) fn rewind(&mut self, moment: Index, script: u8) {
        let ends: Vec<usize> = (0..self.history.len()).filter(|at| self.history[*at].ends).collect();
        if ends.is_empty() {
            return;
        }
        self.history.truncate(moment.get(&ends) + 1);
        let other = &self.scripts[usize::from(script) % self.scripts.len()];
        self.ahead = continuation(other, &self.history);
    }

    /// Replaces the beginning by a summary; `false` if there is nothing to compact.
    pub(super) fn compact(&mut self, from: Index) -> bool {
        let answers: Vec<usize> = (0..self.history.len()).filter(|at| self.history[*at].answers).collect();
        if answers.is_empty() {
            return false;
        }
        let kept = self.history.split_off(*from.get(&answers));
        self.interruptions += 1;
        let summary = format!("This session is being continued: {}", self.interruptions);
        self.history = vec![self.user(&summary)];
        self.history.extend(kept);
        true
    }

    /// The user says something without having had an answer; `false` if nothing was asked yet.
    pub(super) fn interrupt(&mut self, text: &str) -> bool {
        if self.history.is_empty() {
            return false;
        }
        self.interruptions += 1;
        let text = format!("{text} {}", self.interruptions);
        let said = self.user(&text);
        self.history.push(said);
        true
    }

    /// Edits the history: inserts a message of the user after an earlier request, and leaves everything else. `false`
    /// if there is no such request.
    pub(super) fn alter(&mut self, moment: Index) -> bool {
        let before = self.history.len().saturating_sub(1);
        let ends: Vec<usize> = (0..before).filter(|at| self.history[*at].ends).collect();
        if ends.is_empty() {
            return false;
        }
        self.interruptions += 1;
        let said = self.user(&format!("by the way {}", self.interruptions));
        self.history.insert(moment.get(&ends) + 1, said);
        true
    }

    fn user(&self, text: &str) -> Entry {
        let answer = self.script.talks[0].turns[0].answer.clone();
        let turn = Turn { user: text.to_owned(), media: false, note: None, steps: Vec::new(), answer };
        let messages = self.subject.message(&Said::User(&turn), &mut Dice(0));
        Entry { messages, ends: true, answers: false, is_of_tools: false }
    }

    /// The request's body; `None` before the first one.
    pub(super) fn body(&self) -> Option<Bytes> {
        self.history.last()?;
        let reminder = self.script.reminds.then(|| self.user(&format!("state {}", self.history.len())));
        let history: Vec<&Entry> = self.history.iter().chain(&reminder).collect();
        let (last, before) = history.split_last()?;
        let mut messages: Vec<Node> = before.iter().flat_map(|entry| entry.messages.clone()).collect();
        let mut newest = last.messages.clone();
        if self.script.mark != Mark::None
            && let Some(message) = newest.last_mut()
        {
            self.subject.mark(message);
            if self.script.mark == Mark::Long {
                lengthen(message);
            }
        }
        messages.extend(newest);
        // A client spells a message the same way in every request.
        let spelled = messages.iter().map(|node| Node::Raw(write(node, self.script.spelling, 7))).collect();
        let frame = self.subject.frame(&self.script.talks[0], spelled);
        Some(Bytes::from(write(&frame, self.script.spelling, 7)))
    }
}

/// Gives the marks of a message the long lifetime.
fn lengthen(node: &mut Node) {
    match node {
        Node::List(items) => items.iter_mut().for_each(lengthen),
        Node::Map(members) => {
            for (key, value) in members {
                match value {
                    Node::Opaque(mark) if key == "cache_control" => {
                        mark.push(("ttl".to_owned(), Node::text("1h")));
                    }
                    other => lengthen(other),
                }
            }
        }
        Node::Raw(_) | Node::Text(_) | Node::Opaque(_) => {}
    }
}

fn entries(subject: &'static dyn Subject, talk: &Talk, first: usize) -> Vec<Entry> {
    let said = talk.messages(subject.ids(talk), first);
    let is_answer = |at: usize| matches!(said.get(at), None | Some(Said::Calls(..) | Said::Answer(_)));
    let entry = |(at, said): (usize, &Said<'_>)| {
        let mut dice = Dice(talk.seed ^ at as u64);
        let ends = is_answer(at + 1) && !matches!(said, Said::Calls(..) | Said::Answer(_));
        let is_of_tools = matches!(said, Said::Results(..));
        Entry { messages: subject.message(said, &mut dice), ends, answers: is_answer(at), is_of_tools }
    };
    said.iter().enumerate().map(entry).collect()
}

/// What another script says after its first request; calls that were already made are not made again.
fn continuation(script: &[Entry], history: &[Entry]) -> Vec<Entry> {
    let made = |entry: &Entry| history.iter().any(|earlier| earlier.messages == entry.messages);
    let from = script.iter().rposition(|entry| entry.answers && made(entry)).map_or(0, |at| at + 1);
    let start = script.iter().enumerate().position(|(at, entry)| at >= from && entry.answers);
    start.map(|start| script[start..].to_vec()).unwrap_or_default()
}
