//! What is found out about a request when it has left: its prompt as the provider's cache sees it, as it came
//! and as it was sent.

use super::count::Counter;
use super::instructions::Instructions;
use super::{Planned, Reading};
use crate::conversation::{Conversation, PartId, PartKind, Role};
use crate::ledger::Shares;
use crate::protocol::{Prompt, Scale, Share};
use crate::strategy::doom::{self, DoomLoop};

/// Results whose tools are looked for.
const RESULTS: usize = 64;

/// What is known then.
pub(in crate::app) struct Measured {
    /// Tells accounts apart.
    pub(super) scope: u64,
    /// The prompt as it came.
    pub(super) original: Prompt,
    /// The prompt as it was sent, where that is another.
    pub(super) sent: Option<Prompt>,
    /// The prompt as an observing gateway would have sent it, where that is known.
    pub(super) planned: Option<Prompt>,
    /// Which of the user's turns it belongs to, from 1.
    pub(super) turn: u32,
    /// Which of that turn's requests it is, from 1.
    pub(super) step: u32,
    /// Messages that an earlier request carried.
    pub(super) prior: u32,
    /// The calls that it goes round in, if it does.
    pub(super) doom_loop: Option<DoomLoop>,
    /// The name of its instructions, if it has any.
    pub(super) instructions: Option<u128>,
    /// The tools whose results came with it.
    pub(super) tools: Vec<(PartId, Box<str>)>,
}

/// Reads the prompts, and counts them where that is wanted.
pub(super) fn measure(
    reading: &Reading,
    counter: Option<&mut Counter>,
    known: &mut Instructions,
) -> Measured {
    let Reading { protocol, conversation, edited, root, prior, planned } = reading;
    let scope = root.0.0.first_chunk().copied().map_or(0, u64::from_le_bytes);
    let (turn, step) = place(conversation);
    let doom_loop = doom::of(conversation);
    let (mut original, prior) = (protocol.prompt(conversation), *prior as u32);
    let instructions = known.read(&original, conversation);
    let mut sent = edited.as_ref().map(|edited| protocol.prompt(edited));
    let form = planned.as_ref().and_then(Planned::edited);
    let mut would = form.map(|form| protocol.prompt(form));
    if let Some(counter) = counter {
        counter.count(&mut original, &conversation.body);
        if let (Some(sent), Some(edited)) = (&mut sent, edited) {
            counter.count(sent, &edited.body);
        }
        if let (Some(would), Some(form)) = (&mut would, form) {
            counter.count(would, &form.body);
        }
    }
    let planned = would.or_else(|| planned.as_ref().map(|_| original.clone()));
    let tools = tools(conversation);
    Measured { scope, original, sent, planned, turn, step, prior, doom_loop, instructions, tools }
}

/// The tools whose results are new with a request. Results without a call cost a look at the whole history, so there are
/// bounds.
fn tools(conversation: &Conversation) -> Vec<(PartId, Box<str>)> {
    let new = (conversation.tail()..conversation.messages.len()).flat_map(|at| conversation.parts_of(at));
    let results = new.filter(|(_, part)| part.kind == PartKind::ToolResult).take(RESULTS);
    results.filter_map(|(id, _)| Some((id, conversation.tool_of(id)?.into()))).collect()
}

/// The turn and the step in it that a request is. What the model said at a stretch is one step.
fn place(conversation: &Conversation) -> (u32, u32) {
    let (mut turn, mut step, mut answering) = (0, 1, false);
    for message in &conversation.messages {
        let is_answer = message.index.role == Role::Assistant;
        if is_answer && !answering {
            step += 1;
        } else if message.index.starts_turn() && (answering || turn == 0) {
            turn += 1;
            step = 1;
        }
        answering = is_answer;
    }
    (turn, step)
}

/// What a prompt is made of.
pub(super) fn shares(prompt: &Prompt, scale: Scale) -> Shares {
    let tokens = |share| prompt.tokens_of(share, scale);
    Shares {
        tools: tokens(Share::Tools),
        system: tokens(Share::System),
        user: tokens(Share::User),
        assistant: tokens(Share::Assistant),
        reasoning: tokens(Share::Reasoning),
        results: tokens(Share::Results),
        ..Shares::default()
    }
}
