//! Does a job: has a model read a history chunk by chunk, and judges what it has written.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

use super::calls::Calls;
use super::purse::Purse;
use super::retry::{Attempts, Missed};
use super::transport::{Lost, Question, Reply, Transport};
use super::{Failure, Job, Limits, Task};
use crate::conversation::{PartId, PartKind};
use crate::protocol::{self, Refused};
use crate::store::Summary;
use crate::strategy::summary::prompt::{self, Material};
use crate::strategy::summary::transcript::{self, Entry};
use crate::strategy::summary::{Outline, fidelity, text};

/// Tokens of a prompt for the task and the rules, that is without the transcript and the memory so far.
const TASK_TOKENS: u64 = 4_000;
/// The fewest bytes of transcript that are worth a call.
const MIN_CHUNK_BYTES: usize = 2 << 10;
/// The share of the model's window that a prompt may fill. The rest is kept free because tokens are only estimated.
const MAX_FILL: f64 = 0.8;

/// Does a job within the limits. Its calls are recorded in `calls`. It makes no further call once `unwanted` is set.
pub(super) async fn run<T: Transport>(
    job: &Job,
    transport: &T,
    limits: &Limits,
    purse: &Purse,
    unwanted: &watch::Receiver<bool>,
    calls: &mut Calls<'_>,
) -> Result<Arc<Summary>, Failure> {
    let until = Instant::now() + limits.timeout;
    let mut run =
        JobRun { job, transport, limits, left: limits.calls, purse, unwanted, calls: &mut *calls, until };
    let made = tokio::time::timeout_at(until, run.make()).await;
    made.unwrap_or_else(|_| {
        calls.record_lost(Failure::TimedOut, job, purse);
        Err(Failure::TimedOut)
    })
}

/// A job under way.
struct JobRun<'a, 'r, T> {
    job: &'a Job,
    transport: &'a T,
    limits: &'a Limits,
    /// Calls that may still be made.
    left: usize,
    purse: &'a Purse,
    unwanted: &'a watch::Receiver<bool>,
    calls: &'a mut Calls<'r>,
    until: Instant,
}

impl<T: Transport> JobRun<'_, '_, T> {
    /// Has the summary written, from the original messages if that is due, else from the last summary on. If the
    /// history has grown too long to be read anew, it is continued from the last summary as well.
    async fn make(&mut self) -> Result<Arc<Summary>, Failure> {
        if self.job.task.settings.is_rebased(self.job.task.generation) {
            match self.make_from(None).await {
                Err(Failure::TooLong) if self.job.task.previous.is_some() => {}
                done => return done,
            }
        }
        self.make_from(self.job.task.previous.as_ref()).await
    }

    /// Has the memory written chunk by chunk, from the last summary on if there is one. If a chunk turns out to be too
    /// long, the part that was not read yet is divided into smaller chunks.
    async fn make_from(&mut self, previous: Option<&(String, usize)>) -> Result<Arc<Summary>, Failure> {
        let (goal, entries) = (self.goal(), self.entries(previous.map_or(0, |(_, end)| *end)));
        let mut memory = previous.map(|(outline, _)| outline.clone());
        let mut outline = Outline::default();
        let (mut budget, mut read) = (self.chunk_bytes(), 0);
        let mut chunks = VecDeque::from(transcript::chunks(&entries, budget));
        if chunks.is_empty() {
            return Err(Failure::TooLong);
        }
        while let Some(chunk) = chunks.front() {
            if chunks.len() > self.left {
                return Err(Failure::TooLong);
            }
            let material = Material { goal: &goal, previous: memory.as_deref(), transcript: chunk };
            let text = prompt::write(material, &self.job.task.settings);
            match self.ask(&text, chunks.len() - 1).await {
                Ok(written) => {
                    read += chunk.len();
                    memory = Some(written.to_text());
                    outline = written;
                    chunks.pop_front();
                }
                Err(Missed::Overflow) => {
                    budget /= 2;
                    // A chunk of the same size would be refused again.
                    while budget >= chunk.len() {
                        budget /= 2;
                    }
                    if budget < MIN_CHUNK_BYTES {
                        return Err(Failure::TooLong);
                    }
                    chunks = transcript::chunks(&transcript::behind(&entries, read), budget).into();
                }
                Err(Missed::Retryable(failure, _) | Missed::Permanent(failure)) => return Err(failure),
            }
        }
        self.judge(&outline).map(Arc::new)
    }

    /// The most bytes of transcript for one call.
    fn chunk_bytes(&self) -> usize {
        let (call, Task { settings, bytes_per_token, .. }) = (&self.job.call, &self.job.task);
        let reserved = self.limits.max_output.min(call.window / 4)
            + settings.length * 2
            + TASK_TOKENS.min(call.window / 4);
        let tokens = (call.window as f64 * MAX_FILL) as u64;
        let bytes = tokens.saturating_sub(reserved) as f64 * bytes_per_token.clamp(1.0, 4.0);
        (bytes as usize).max(MIN_CHUNK_BYTES)
    }

    /// The transcript of the messages from number `from` on.
    fn entries(&self, from: usize) -> Vec<Entry> {
        let Task { conversation, messages, settings, sent, .. } = &self.job.task;
        let new: Vec<usize> = messages.iter().copied().filter(|message| *message >= from).collect();
        let sent = |id: PartId| sent.get(&id).map(Vec::as_slice);
        transcript::render(conversation, &new, &sent, settings.result_bytes)
    }

    /// The user's first words: the texts of the turns before the summarised messages.
    fn goal(&self) -> String {
        let conversation = &self.job.task.conversation;
        let first = self.job.task.messages.first().copied().unwrap_or(0).min(conversation.messages.len());
        let mut goal = String::new();
        for message in (0..first).filter(|at| conversation.messages[*at].index.starts_turn()) {
            for (id, part) in conversation.parts_of(message).filter(|(_, part)| part.kind() == PartKind::Text)
            {
                for leaf in 0..part.leaves().len() {
                    goal.push_str(&conversation.text(id, leaf).unwrap_or_default());
                    goal.push('\n');
                }
            }
        }
        goal
    }

    /// Asks until there is an outline, or until another attempt is hopeless or costs more than the job may. Leaves at
    /// least `reserved` calls, and their cost, for the chunks that are still to be read.
    async fn ask(&mut self, text: &str, reserved: usize) -> Result<Outline, Missed> {
        let mut attempts = Attempts::of(self.limits.attempts);
        loop {
            if *self.unwanted.borrow() {
                return Err(Missed::Permanent(Failure::Unwanted));
            }
            if self.purse.is_exhausted() {
                return Err(Missed::Permanent(Failure::Spent));
            }
            self.left = self.left.saturating_sub(1);
            match self.attempt(text).await {
                Err(Missed::Retryable(failure, asked)) => {
                    let time_left = self.until.saturating_duration_since(Instant::now());
                    let may_ask =
                        self.left > reserved && self.job.affords_another(self.calls.made(), reserved);
                    let wait = attempts.next(asked, time_left).filter(|_| may_ask);
                    let wait = wait.ok_or(Missed::Permanent(failure))?;
                    self.calls.report_ended(self.job);
                    tokio::time::sleep(wait).await;
                }
                done => return done,
            }
        }
    }

    /// Asks once.
    async fn attempt(&mut self, text: &str) -> Result<Outline, Missed> {
        let call = &self.job.call;
        let Question { path, headers, body } = Question::new(call, text, self.limits.max_output);
        self.calls.begin(self.job, body.len() as u64);
        let posted = self.transport.post(&call.upstream, &path, &headers, body).await;
        let reply = posted.map_err(|lost| self.record_lost(lost))?;
        self.calls.record_answer(&reply, self.job, self.purse);
        let read = self.read(&reply);
        if let Err(missed) = &read {
            self.calls.record_missed(missed);
        }
        read
    }

    /// The outline that an answer holds.
    fn read(&self, reply: &Reply) -> Result<Outline, Missed> {
        if !reply.is_good() {
            return Err(match protocol::refused(reply.status, &reply.body) {
                Refused::Overflow { .. } | Refused::Answer => Missed::Overflow,
                Refused::Malformed | Refused::Unanswered | Refused::Other => reply.refusal(),
            });
        }
        let written = self
            .job
            .call
            .protocol
            .text_of_answer(&reply.body)
            .ok_or(Missed::Retryable(Failure::Incomplete, None))?;
        let max_bytes = prompt::most_bytes(&self.job.task.settings);
        Outline::parse(&written, max_bytes).map_err(|useless| Missed::Retryable(useless.into(), None))
    }

    /// Records that the call in progress has no answer.
    fn record_lost(&mut self, lost: Lost) -> Missed {
        let failure = match lost {
            Lost::Unsent(why) => {
                self.calls.forget();
                Failure::Call(why)
            }
            Lost::Unanswered(why) => {
                let failure = Failure::Call(why);
                self.calls.record_lost(failure.clone(), self.job, self.purse);
                failure
            }
        };
        Missed::Retryable(failure, None)
    }

    /// The summary with this outline.
    ///
    /// # Errors
    /// [`Failure::NoGain`] if it is hardly shorter than what it replaces.
    fn judge(&self, outline: &Outline) -> Result<Summary, Failure> {
        let task = &self.job.task;
        let Task { conversation, messages, settings, .. } = task;
        let text = text::compose(conversation, messages, outline, settings.user_bytes);
        if !settings.gains(task.bytes, text.len() as u64, task.bytes_per_token) {
            return Err(Failure::NoGain);
        }
        let score = fidelity::score(conversation, messages, &text);
        Ok(Summary {
            chain: task.chain,
            end: task.end,
            thread: task.thread.clone(),
            conversation: task.conversation_id.clone(),
            goal: self.goal(),
            outline: outline.to_text(),
            text,
            model: self.job.call.model.clone(),
            recipe: prompt::recipe(settings),
            generation: task.generation,
            score,
            at_ms: task.now_ms,
        })
    }
}
