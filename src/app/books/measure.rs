//! Measures a request once it has left: its prompt as the provider's cache sees it, in the form that came and in the
//! form that was sent.

use std::collections::HashSet;

use super::count::Counter;
use super::instructions::Instructions;
use super::{Planned, Reading};
use crate::conversation::files::is_path;
use crate::conversation::{Conversation, Part, PartId, PartKind, Role};
use crate::ledger::{Calls, Shares};
use crate::planner;
use crate::protocol::{Prompt, Protocol, Scale, Share};
use crate::strategy::doom::{self, DoomLoop};
use crate::usage;

/// How many new results are matched with their tools.
const MAX_RESULTS: usize = 64;
/// How many files a record lists.
const MAX_FILES: usize = 32;

/// What was measured of a request.
pub(in crate::app) struct Measured {
    /// Hash of the account: caches are not shared between accounts.
    pub(super) scope: u64,
    /// The prompt as it came.
    pub(super) original: Prompt,
    /// The prompt as it was sent, if that differs.
    pub(super) sent: Option<Prompt>,
    /// The prompt as an observing gateway would have sent it, if that is known.
    pub(super) planned: Option<Prompt>,
    /// Whether the provider honours cache marks.
    pub(super) reads_marks: bool,
    /// The prompt size in tokens from which the client asked the provider to remove parts of the history itself.
    pub(super) edits_from: Option<u64>,
    /// Whether the provider holds a part of the history that is not in the body.
    pub(super) hides: bool,
    /// Whether some of that part belongs between messages of the body.
    pub(super) refers: bool,
    /// The user's turn that the request belongs to, from 1.
    pub(super) turn: u32,
    /// The step within that turn, from 1.
    pub(super) step: u32,
    /// Messages that an earlier request carried.
    pub(super) prior: u32,
    /// The call that is repeated over and over, if there is one.
    pub(super) doom_loop: Option<DoomLoop>,
    /// The key of its instructions, if it has any.
    pub(super) instructions: Option<u128>,
    /// The tools of new results, and of results and calls that were decided about with this request.
    pub(super) tools: Vec<(PartId, Box<str>)>,
    /// The states of its tool calls, as they came.
    pub(super) calls: Calls,
    /// The states of its tool calls as they were sent, if they differ.
    pub(super) calls_sent: Option<Calls>,
    /// Files written by calls that are new with this request.
    pub(super) files: Vec<String>,
}

/// Reads the prompts and, if wanted, counts their tokens.
pub(super) fn measure(
    reading: &Reading,
    counter: Option<&mut Counter>,
    known: &mut Instructions,
) -> Measured {
    let Reading { protocol, conversation, frame, edited, root, prior, planned, .. } = reading;
    let scope = root.0.0.first_chunk().copied().map_or(0, u64::from_le_bytes);
    let (turn, step) = turn_and_step(conversation);
    let doom_loop = doom::of(conversation);
    let (mut original, prior) = (prompt(*protocol, conversation, frame.clone()), *prior as u32);
    let instructions = known.read(&original, conversation);
    let mut sent = edited.as_ref().map(|edited| prompt(*protocol, edited, None));
    let edited_plan = planned.as_ref().and_then(Planned::edited);
    let mut planned_prompt = edited_plan.map(|edited| prompt(*protocol, edited, None));
    if let Some(counter) = counter {
        counter.count(&mut original, &conversation.body);
        if let (Some(sent), Some(edited)) = (&mut sent, edited) {
            counter.count(sent, &edited.body);
        }
        if let (Some(planned), Some(edited)) = (&mut planned_prompt, edited_plan) {
            counter.count(planned, &edited.body);
        }
    }
    let planned = planned_prompt.or_else(|| planned.as_ref().map(|_| original.clone()));
    let paired = conversation.calls();
    let mut tools = tools_of_new_results(conversation);
    tools.extend(tools_of(conversation, &paired, &old_parts_decided(reading)));
    let files = written_files(conversation, &paired, prior);
    let calls = count_states(conversation, &paired, |_| true, &HashSet::new());
    let calls_sent = edited.as_ref().map(|_| count_states_sent(reading, &paired));
    Measured {
        scope,
        original,
        sent,
        planned,
        reads_marks: conversation.marks.is_some(),
        edits_from: protocol.edits_from(conversation),
        hides: conversation.is_held_elsewhere(),
        refers: conversation.refers,
        turn,
        step,
        prior,
        doom_loop,
        instructions,
        tools,
        calls,
        calls_sent,
        files,
    }
}

/// The prompt of a request as its model reads it. `frame`: what was read of it already.
fn prompt(protocol: &dyn Protocol, conversation: &Conversation, frame: Option<Prompt>) -> Prompt {
    let mut prompt = match frame {
        Some(frame) => protocol.prompt_after(frame, conversation),
        None => protocol.prompt(conversation),
    };
    if prompt.has_thoughts() && conversation.model.as_deref().is_some_and(usage::drops_old_reasoning) {
        prompt.forget_reasoning(planner::turn_in_progress(conversation));
    }
    prompt
}

/// Calls, each with its result if there is one.
type Paired = [(PartId, Option<PartId>)];

/// Counts the states of the calls in the form that was sent.
fn count_states_sent(reading: &Reading, calls: &Paired) -> Calls {
    let cleared = reading.applied.iter().filter(|applied| applied.decision.is_clearing());
    let cleared = cleared.map(|applied| applied.part).collect();
    let is_sent =
        |call: PartId| !reading.splice.as_ref().is_some_and(|splice| splice.drops(call.message as usize));
    count_states(&reading.conversation, calls, is_sent, &cleared)
}

/// Counts the states of those calls for which `is_sent` holds. `cleared`: the results that are cleared.
fn count_states(
    conversation: &Conversation,
    calls: &Paired,
    is_sent: impl Fn(PartId) -> bool,
    cleared: &HashSet<PartId>,
) -> Calls {
    let mut states = Calls::default();
    for (_, result) in calls.iter().filter(|(call, _)| is_sent(*call)) {
        let count = match result {
            None => &mut states.pending,
            Some(result) if cleared.contains(result) => &mut states.cleared,
            Some(result) if is_error(conversation, *result) => &mut states.error,
            Some(_) => &mut states.completed,
        };
        *count += 1;
    }
    states
}

fn is_error(conversation: &Conversation, result: PartId) -> bool {
    conversation.part(result).is_some_and(Part::is_error)
}

/// The files written by calls after the first `prior` messages, each once; failed calls are left out.
fn written_files(conversation: &Conversation, calls: &Paired, prior: u32) -> Vec<String> {
    let new = calls.iter().skip(calls.partition_point(|(call, _)| call.message < prior));
    let done = new.filter(|(_, result)| !result.is_some_and(|result| is_error(conversation, result)));
    let mut all: Vec<String> = Vec::new();
    for (call, _) in done {
        let tool = conversation.part(*call).and_then(|part| part.tool()).unwrap_or_default();
        let arguments = conversation.arguments(*call).unwrap_or_default();
        for path in planner::written_files(tool, &arguments) {
            if is_path(&path) && !all.contains(&path) {
                all.push(path);
            }
        }
        if all.len() >= MAX_FILES {
            break;
        }
    }
    all.truncate(MAX_FILES);
    all
}

/// The tools of results that are new with a request. A result without a call costs a scan of the whole history, so
/// the number of results is bounded.
fn tools_of_new_results(conversation: &Conversation) -> Vec<(PartId, Box<str>)> {
    let new = (conversation.tail()..conversation.messages.len()).flat_map(|at| conversation.parts_of(at));
    let results = new.filter(|(_, part)| part.kind() == PartKind::ToolResult).take(MAX_RESULTS);
    results.filter_map(|(id, _)| Some((id, conversation.tool_of(id)?.into()))).collect()
}

/// The old results and calls that were decided about with a request.
fn old_parts_decided(reading: &Reading) -> HashSet<PartId> {
    let Reading { conversation, applied, fresh, .. } = reading;
    let tail = conversation.tail();
    let parts = applied.iter().rev().take(*fresh).map(|applied| applied.part);
    parts.filter(|part| (part.message as usize) < tail).collect()
}

/// The tools of the given results and calls.
fn tools_of(
    conversation: &Conversation,
    paired: &Paired,
    parts: &HashSet<PartId>,
) -> Vec<(PartId, Box<str>)> {
    if parts.is_empty() {
        return Vec::new();
    }
    let halves = paired.iter().flat_map(|(call, result)| [(*call, Some(*call)), (*call, *result)]);
    let wanted = halves.filter_map(|(call, half)| Some((half.filter(|half| parts.contains(half))?, call)));
    wanted.filter_map(|(half, call)| Some((half, conversation.part(call)?.tool()?.into()))).collect()
}

/// The turn and the step of a request. Consecutive messages of the model are one step.
fn turn_and_step(conversation: &Conversation) -> (u32, u32) {
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

/// Splits `tokens` by what the prompt is made of; if they are 0, its blocks' own sum. The shares add up to the total,
/// so the overhead around blocks is spread over them.
pub(super) fn shares(prompt: &Prompt, scale: Scale, tokens: u64) -> Shares {
    const ALL: [Share; 6] =
        [Share::Tools, Share::System, Share::User, Share::Assistant, Share::Reasoning, Share::Results];
    let parts = ALL.map(|share| prompt.tokens_of(share, scale));
    let all: u64 = parts.iter().sum();
    let tokens = if tokens > 0 { tokens } else { all };
    // The running sum is rounded, not each share, so no token is lost.
    let (mut sum, mut assigned) = (0, 0);
    let [tools, system, user, assistant, reasoning, results] = parts.map(|part| {
        sum += part;
        let end = (u128::from(tokens) * u128::from(sum) / u128::from(all.max(1))) as u64;
        let share = end - assigned;
        assigned = end;
        share
    });
    Shares { tools, system, user, assistant, reasoning, results, ..Shares::default() }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::{Value, json};

    use super::*;
    use crate::conversation::NoMemo;
    use crate::conversation::files::MAX_PATH;
    use crate::protocol;

    /// Calls of a tool that writes these files, one message each, with the results of all but the last.
    fn conversation(paths: &[String]) -> Conversation {
        let mut input: Vec<Value> = Vec::new();
        for (at, path) in paths.iter().enumerate() {
            let (id, arguments) = (at.to_string(), json!({"file_path": path}).to_string());
            let call =
                json!({"type": "function_call", "call_id": id, "name": "Write", "arguments": arguments});
            let result = json!({"type": "function_call_output", "call_id": id, "output": "ok"});
            input.extend([call, result]);
        }
        input.pop();
        let body = Bytes::from(json!({"input": input}).to_string());
        protocol::named("openai-responses").unwrap().index(&body, &NoMemo).unwrap()
    }

    /// The files in the `prior` messages are in another record.
    #[test]
    fn files_of_a_record_are_limited_and_from_new_messages() {
        let many: Vec<String> = (0..2 * MAX_FILES).map(|at| format!("{at}.rs")).collect();
        let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let (long, longest) = ("x".repeat(MAX_PATH + 1), "x".repeat(MAX_PATH));
        for (paths, prior, expected) in [
            (named(&["b", "a", "b"]), 0, named(&["b", "a"])),
            (named(&["b", "a", "b"]), 1, named(&["a", "b"])),
            (named(&["b", "a", "b"]), 5, named(&[])),
            (named(&[&long, " ", &longest]), 0, named(&[&longest])),
            (many.clone(), 0, many[..MAX_FILES].to_vec()),
        ] {
            let conversation = conversation(&paths);
            assert_eq!(
                written_files(&conversation, &conversation.calls(), prior),
                expected,
                "{paths:?} {prior}"
            );
        }
    }

    #[test]
    fn calls_and_results_are_named_by_their_tool() {
        let conversation = conversation(&["a", "b"].map(str::to_owned));
        let calls = conversation.calls();
        let (call, result) = (calls[0].0, calls[0].1.unwrap());
        for (parts, expected) in
            [(vec![], 0), (vec![result], 1), (vec![call], 1), (vec![call, result, calls[1].0], 3)]
        {
            let parts: HashSet<PartId> = parts.into_iter().collect();
            let named = tools_of(&conversation, &calls, &parts);
            assert!(named.iter().all(|(part, tool)| parts.contains(part) && &**tool == "Write"));
            assert_eq!(named.len(), expected);
        }
    }

    #[test]
    fn calls_are_counted_as_pending_completed_or_cleared() {
        let conversation = conversation(&["a", "b", "c"].map(str::to_owned));
        let calls = conversation.calls();
        let cleared = calls.iter().take(1).filter_map(|(_, result)| *result).collect();
        let all = count_states(&conversation, &calls, |_| true, &cleared);
        assert_eq!(all, Calls { pending: 1, completed: 1, cleared: 1, ..Calls::default() });
        let rest = count_states(&conversation, &calls, |call| call.message > 0, &HashSet::new());
        assert_eq!(rest, Calls { pending: 1, completed: 1, ..Calls::default() });
    }

    #[test]
    fn reasoning_of_earlier_turns_counts_only_for_models_that_read_it() {
        let talk = json!([
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "tool_use", "id": "t", "name": "f", "input": {}}
            ]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "b"}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "so", "signature": "s"},
                {"type": "text", "text": "c"}
            ]},
            {"role": "user", "content": "d"}
        ]);
        let anthropic = protocol::named("anthropic").unwrap();
        for (model, messages, expected) in [
            ("claude-opus-4-8", 5, 2),
            ("claude-sonnet-4-5", 5, 0),
            // The turn continues.
            ("claude-sonnet-4-5", 3, 1),
            ("glm-5", 5, 2),
        ] {
            let messages = &talk.as_array().unwrap()[..messages];
            let body = Bytes::from(json!({"model": model, "messages": messages}).to_string());
            let prompt = prompt(anthropic, &anthropic.index(&body, &NoMemo).unwrap(), None);
            let thoughts = prompt.blocks.iter().filter(|block| block.share == Share::Reasoning);
            assert_eq!(thoughts.count(), expected, "{model}");
        }
    }
}
