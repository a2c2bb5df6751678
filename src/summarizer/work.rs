//! What a job does: read, ask, judge.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::line::{self, Line};
use super::purse::Purse;
use super::{Answered, Done, Failure, Job, Limits, vendor};
use crate::conversation::{PartId, PartKind};
use crate::protocol::{Ask, Framing, Refused};
use crate::store::Summary;
use crate::strategy::summary::prompt::{self, Material};
use crate::strategy::summary::{Fidelity, Outline, text, transcript};
use crate::usage::{self, Catalogue};

/// Tokens of a prompt beside the transcript, on top of the memory so far: the task, the rules.
const FRAME: u64 = 4_000;
/// The fewest bytes of transcript that a call is worth.
const LEAST: usize = 2 << 10;
/// The share of a window that is used: tokens are only estimated.
const USED: f64 = 0.8;
/// The first pause before a call is made again.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(30);

/// Does a job, within the limits.
pub(super) async fn run<L: Line>(
    job: Job,
    line: &L,
    limits: &Limits,
    (purse, prices): (&Purse, &Catalogue),
    unwanted: &AtomicBool,
) -> Done {
    let mut errand = Errand { job: &job, line, limits, purse, prices, unwanted, answered: Vec::new() };
    let outcome = tokio::time::timeout(limits.timeout, errand.make()).await;
    let outcome = outcome.unwrap_or(Err(Failure::TimedOut));
    let answered = errand.answered;
    Done { job, answered, outcome }
}

/// A job under way.
struct Errand<'a, L> {
    job: &'a Job,
    line: &'a L,
    limits: &'a Limits,
    purse: &'a Purse,
    prices: &'a Catalogue,
    unwanted: &'a AtomicBool,
    answered: Vec<Answered>,
}

/// Why an attempt failed.
enum Missed {
    /// It may go better another time.
    Perhaps(Failure),
    /// It will not.
    Surely(Failure),
    /// The prompt is too long for the model.
    Overflow,
}

impl<L: Line> Errand<'_, L> {
    async fn make(&mut self) -> Result<Arc<Summary>, Failure> {
        let mut budget = self.budget();
        let outline = loop {
            match self.write(budget).await {
                Err(Missed::Overflow) if budget / 2 >= LEAST => budget /= 2,
                Err(Missed::Overflow) => return Err(Failure::TooLong),
                Err(Missed::Perhaps(failure) | Missed::Surely(failure)) => return Err(failure),
                Ok(outline) => break outline,
            }
        };
        self.judge(&outline).map(Arc::new)
    }

    /// Bytes of transcript for one call.
    fn budget(&self) -> usize {
        let Job { call, settings, bytes_per_token, .. } = self.job;
        let reserved =
            self.limits.max_output.min(call.window / 4) + settings.length * 2 + FRAME.min(call.window / 4);
        let tokens = (call.window as f64 * USED) as u64;
        let bytes = tokens.saturating_sub(reserved) as f64 * bytes_per_token.clamp(1.0, 4.0);
        (bytes as usize).max(LEAST)
    }

    /// Has the memory written, chunk by chunk.
    async fn write(&mut self, budget: usize) -> Result<Outline, Missed> {
        let chunks = self.chunks(budget);
        if chunks.is_empty() || chunks.len() > self.limits.calls {
            return Err(Missed::Surely(Failure::TooLong));
        }
        let goal = self.goal();
        let mut memory = self.job.previous.as_ref().map(|(outline, _)| outline.clone());
        let mut outline = Outline::default();
        for chunk in &chunks {
            let material = Material { goal: &goal, previous: memory.as_deref(), transcript: chunk };
            outline = self.ask(&prompt::write(material, &self.job.settings)).await?;
            memory = Some(outline.to_text());
        }
        Ok(outline)
    }

    /// What is new since the last summary, in pieces of a bearable length.
    fn chunks(&self, budget: usize) -> Vec<String> {
        let Job { conversation, messages, previous, settings, sent, .. } = self.job;
        let from = previous.as_ref().map_or(0, |(_, end)| *end);
        let new: Vec<usize> = messages.iter().copied().filter(|message| *message >= from).collect();
        let sent = |id: PartId| sent.get(&id).map(Vec::as_slice);
        let entries = transcript::render(conversation, &new, &sent, settings.result_bytes);
        transcript::chunks(&entries, budget)
    }

    /// What the user said first.
    fn goal(&self) -> String {
        let conversation = &self.job.conversation;
        let first = self.job.messages.first().copied().unwrap_or(0).min(conversation.messages.len());
        let mut goal = String::new();
        for message in (0..first).filter(|at| conversation.messages[*at].index.starts_turn()) {
            for (id, part) in conversation.parts_of(message).filter(|(_, part)| part.kind == PartKind::Text) {
                for leaf in 0..part.leaves.len() {
                    goal.push_str(&conversation.text(id, leaf).unwrap_or_default());
                    goal.push('\n');
                }
            }
        }
        goal
    }

    /// Asks until there is a summary, or no hope.
    async fn ask(&mut self, text: &str) -> Result<Outline, Missed> {
        let (mut attempt, mut pause) = (0, PAUSE);
        loop {
            if self.unwanted.load(Ordering::Relaxed) {
                return Err(Missed::Surely(Failure::Unwanted));
            }
            if self.purse.is_empty() {
                return Err(Missed::Surely(Failure::Spent));
            }
            attempt += 1;
            match self.attempt(text).await {
                Err(Missed::Perhaps(_)) if attempt < self.limits.attempts => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST);
                }
                done => return done,
            }
        }
    }

    async fn attempt(&mut self, text: &str) -> Result<Outline, Missed> {
        let call = &self.job.call;
        let like = call.like.as_deref();
        let max_tokens = self.limits.max_output.min(call.window / 4).max(1);
        let asked = call.protocol.ask(&Ask { model: &call.model, text, max_tokens, like });
        let (bytes, began) = (asked.body.len() as u64, Instant::now());
        let headers = line::headers(&call.headers, &asked);
        let posted = self.line.post(&call.upstream, &asked.path, &headers, Bytes::from(asked.body)).await;
        let (status, answer) = posted.map_err(|error| Missed::Perhaps(Failure::Call(error)))?;
        self.book(status, &answer, began.elapsed(), bytes);
        if !(200..300).contains(&status) {
            return Err(match call.protocol.refused(status, &answer) {
                Refused::Overflow { .. } | Refused::Answer => Missed::Overflow,
                Refused::Other => {
                    let failure = Failure::Call(format!("status {status}"));
                    let passes = matches!(status, 408 | 409 | 425 | 429 | 500..);
                    if passes { Missed::Perhaps(failure) } else { Missed::Surely(failure) }
                }
            });
        }
        let written = call.protocol.said(&answer).ok_or(Missed::Perhaps(Failure::Incomplete))?;
        let most = prompt::most_bytes(&self.job.settings);
        Outline::parse(&written, most).map_err(|useless| Missed::Perhaps(useless.into()))
    }

    /// Notes what an answer cost.
    fn book(&mut self, status: u16, answer: &[u8], took: Duration, bytes: u64) {
        let call = &self.job.call;
        let mut reader = call.protocol.answer(Framing::Document);
        reader.push(answer);
        let mut answer = reader.finish();
        answer.usage = answer.usage.map(|usage| usage.at(call.like.as_deref().unwrap_or_default()));
        let model = answer.model.clone();
        let billed = model.as_deref().unwrap_or(&call.model);
        let bill = answer.usage.as_ref();
        let bill = bill.and_then(|usage| usage::bill(self.prices, usage, billed, vendor(call)));
        if let Some(bill) = &bill {
            self.purse.spend(bill.total);
        }
        self.answered.push(Answered { model, status, usage: answer.usage, bill, took, bytes });
    }

    fn judge(&self, outline: &Outline) -> Result<Summary, Failure> {
        let Job { conversation, messages, settings, .. } = self.job;
        let text = text::compose(conversation, messages, outline, settings.user_bytes);
        if !settings.gains(self.job.bytes, text.len() as u64, self.job.bytes_per_token) {
            return Err(Failure::NoGain);
        }
        let score = Fidelity::of(conversation, messages, &text).score();
        Ok(Summary {
            chain: self.job.chain,
            end: self.job.end,
            thread: self.job.thread.clone(),
            conversation: self.job.conversation_id.clone(),
            goal: self.goal(),
            outline: outline.to_text(),
            text,
            model: self.job.call.model.clone(),
            recipe: self.job.recipe(),
            generation: self.job.generation,
            score,
            at_ms: self.job.now_ms,
        })
    }
}
