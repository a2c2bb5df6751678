//! Which call a result answers.
//!
//! Servers reuse ids: some number the calls of each answer from the start, some give all calls the same id. A result
//! answers a call of the nearest answer before it that contains a call with its id. If several calls of that answer
//! have the id, the first result answers the first of them, and so on.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::{Conversation, Part, PartId, PartKind, Role};

/// The calls of one answer that have the same id. An answer is a run of consecutive messages of the model.
struct Named {
    /// The number of the answer.
    answer: usize,
    /// The place of the first one among all calls.
    first: usize,
    /// The places of the others. Mostly empty, because few servers give two calls of an answer the same id.
    others: Vec<usize>,
    /// The number of results so far.
    results: usize,
}

impl Named {
    /// The call that the next result answers.
    fn next(&self) -> usize {
        match self.results.checked_sub(1) {
            None => self.first,
            Some(other) => {
                self.others.get(other).or_else(|| self.others.last()).copied().unwrap_or(self.first)
            }
        }
    }
}

impl Conversation {
    /// All calls in order, each with its result if it has one: the same as [`Self::result_of`] for each, in one pass.
    pub fn calls(&self) -> Vec<(PartId, Option<PartId>)> {
        let (mut all, mut named) = (Vec::new(), HashMap::<&str, Named>::with_capacity(self.messages.len()));
        let (mut answer, mut answering) = (0, false);
        for (at, message) in self.messages.iter().enumerate() {
            let is_answer = message.index.role == Role::Assistant;
            answer += usize::from(is_answer && !answering);
            answering = is_answer;
            for found in self.parts_of(at) {
                let (part, id) = (found.0, found.1.call_id());
                if is_call(&found) {
                    all.push((part, None));
                    let call = all.len() - 1;
                    let fresh = || Named { answer, first: call, others: Vec::new(), results: 0 };
                    match id.map(|id| named.entry(id)) {
                        None => {}
                        Some(Entry::Occupied(mut same)) if same.get().answer == answer => {
                            same.get_mut().others.push(call);
                        }
                        Some(entry) => drop(entry.insert_entry(fresh())),
                    }
                } else if is_result(&found)
                    && let Some(same) = id.and_then(|id| named.get_mut(id))
                {
                    let (_, result) = &mut all[same.next()];
                    result.get_or_insert(part);
                    same.results += 1;
                }
            }
        }
        all
    }

    /// The call that a result answers. If there are more results than calls, the last call is answered by the rest. For
    /// a dialect without ids, the index contains made-up ones.
    pub fn call_of(&self, result: PartId) -> Option<PartId> {
        let id = self.part(result)?.call_id()?;
        let (mut answered, mut last) = (0, None);
        for message in (0..=result.message as usize).rev() {
            let same = || self.named(message, id).filter(|(part, _)| *part < result);
            last = same().filter(is_call).last();
            if last.is_some() {
                break;
            }
            answered += same().filter(is_result).count();
        }
        let (last, _) = last?;
        let begin = self.answer_with(last.message as usize);
        let calls = (begin..=last.message as usize).flat_map(|message| self.named(message, id));
        Some(calls.filter(is_call).map(|(call, _)| call).nth(answered).unwrap_or(last))
    }

    /// The result of a call, if it has one.
    pub fn result_of(&self, call: PartId) -> Option<PartId> {
        let id = self.part(call)?.call_id()?;
        let begin = self.answer_with(call.message as usize);
        let messages = &self.messages[begin..];
        let end = begin + messages.iter().take_while(|message| message.index.role == Role::Assistant).count();
        let calls = (begin..end).flat_map(|message| self.named(message, id));
        let before = calls.take_while(|(other, _)| *other < call).filter(is_call).count();
        let behind = (end..self.messages.len()).flat_map(|message| self.named(message, id));
        let results = behind.take_while(|found| !is_call(found)).filter(is_result);
        results.map(|(result, _)| result).nth(before)
    }

    /// The name of the tool that a result comes from, as given by the result itself, or else by its call.
    pub fn tool_of(&self, result: PartId) -> Option<&str> {
        let own = self.part(result)?.tool();
        own.or_else(|| self.part(self.call_of(result)?)?.tool())
    }

    /// The parts of a message with this id.
    fn named<'c>(&'c self, message: usize, id: &'c str) -> impl Iterator<Item = (PartId, &'c Part)> {
        self.parts_of(message).filter(move |(_, part)| part.call_id() == Some(id))
    }

    /// The first message of the answer that this one belongs to.
    fn answer_with(&self, message: usize) -> usize {
        let before = self.messages[..message].iter().rev();
        message - before.take_while(|message| message.index.role == Role::Assistant).count()
    }
}

fn is_call((_, part): &(PartId, &Part)) -> bool {
    part.kind() == PartKind::ToolCall
}

fn is_result((_, part): &(PartId, &Part)) -> bool {
    part.kind() == PartKind::ToolResult
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::conversation::NoMemo;
    use crate::protocol;

    /// `u` the user, `a` the model; `c1` a call with an id, `r1` a result with it.
    fn history(words: &str) -> Conversation {
        let message = |word: &str| match word.split_at(1) {
            ("c", id) => {
                format!(r#"{{"type":"function_call","call_id":"{id}","name":"f","arguments":"{{}}"}}"#)
            }
            ("r", id) => format!(r#"{{"type":"function_call_output","call_id":"{id}","output":"x"}}"#),
            ("u", _) => r#"{"role":"user","content":"x"}"#.to_owned(),
            _ => r#"{"role":"assistant","content":"x"}"#.to_owned(),
        };
        let messages: Vec<String> = words.split(' ').map(message).collect();
        let body = Bytes::from(format!(r#"{{"input":[{}]}}"#, messages.join(",")));
        protocol::named("openai-responses").unwrap().index(&body, &NoMemo).unwrap()
    }

    #[test]
    fn results_are_paired_with_calls_though_ids_are_reused() {
        // The indices of the calls that the results belong to, and of the results of the calls.
        for (words, calls, results) in [
            ("u c1 c2 r2 r1", "2 1", "4 3"),
            ("u c1 r1 c1 r1", "1 3", "2 4"),
            ("u c1 c1 r1 r1", "1 2", "3 4"),
            ("u c1 a c1 r1 r1 u c1 r1", "1 3 7", "4 5 8"),
            // A call that was never answered, results that are given twice, and one without a call.
            ("u c1 u c1 r1", "3", "- 4"),
            ("u c1 c1 u c1 r1 r1", "4 4", "- - 5"),
            ("u c1 r1 r1 u r1", "1 1 1", "2"),
            ("u c1 c1 r1 r1 r1", "1 2 2", "3 4"),
            ("u c1 c1 r1 c1 r1", "1 4", "3 - 5"),
            ("u r1 c2", "-", "-"),
        ] {
            let history = history(words);
            let all = |kind: PartKind, other: &dyn Fn(PartId) -> Option<PartId>| {
                let parts = (0..history.messages.len()).flat_map(|at| history.parts_of(at));
                let parts = parts.filter(|(_, part)| part.kind() == kind);
                let place = |id: PartId| id.message.to_string();
                let places = parts.map(|(id, _)| other(id).map_or_else(|| "-".to_owned(), place));
                places.collect::<Vec<_>>().join(" ")
            };
            assert_eq!(all(PartKind::ToolResult, &|id| history.call_of(id)), calls, "{words}");
            assert_eq!(all(PartKind::ToolCall, &|id| history.result_of(id)), results, "{words}");
            let paired = history.calls().into_iter();
            assert!(
                paired.clone().is_sorted()
                    && paired.clone().all(|(id, result)| result == history.result_of(id))
            );
            assert_eq!(paired.count(), words.matches('c').count(), "{words}");
        }
    }
}
