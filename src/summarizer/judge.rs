//! Asks a model, as a judge, one question after the other, while a person waits for the result.

use std::io;
use std::time::Duration;

use super::retry::{Attempts, Missed};
use super::transport::{Https, Lost, Question, Transport as _};
use super::{Call, Failure};
use crate::usage::{Catalogue, Money};

/// The limit for an answer in tokens, reasoning included.
const MAX_OUTPUT: u64 = 8_000;
/// The longest pause between attempts. If a longer one is needed, the question is given up.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// A model that judges.
pub struct Judge {
    runtime: tokio::runtime::Runtime,
    https: Https,
    call: Call,
    attempts: u32,
}

/// A judge's answer and its cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    /// The text.
    pub text: String,
    /// The cost; `None` if the price is unknown.
    pub cost: Option<Money>,
}

impl Judge {
    /// A judge that is given up after this many attempts at a question.
    ///
    /// # Errors
    /// If the system provides no event loop.
    pub fn new(call: Call, attempts: u32) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { runtime, https: Https::new(), call, attempts })
    }

    /// The longest text that one question may hold, in bytes.
    pub fn most_bytes(&self) -> usize {
        usize::try_from(self.call.window.saturating_sub(MAX_OUTPUT.min(self.call.window / 4)))
            .unwrap_or(usize::MAX)
            * 2
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// If no attempt brings a complete answer.
    pub fn ask(&self, text: &str, prices: &Catalogue) -> Result<Said, Failure> {
        self.runtime.block_on(async {
            let mut attempts = Attempts::of(self.attempts);
            loop {
                let attempted = tokio::time::timeout(TIMEOUT, self.attempt(text, prices)).await;
                match attempted.unwrap_or(Err(Missed::Retryable(Failure::TimedOut, None))) {
                    Ok(said) => return Ok(said),
                    Err(Missed::Overflow) => return Err(Failure::TooLong),
                    Err(Missed::Permanent(failure)) => return Err(failure),
                    Err(Missed::Retryable(failure, asked)) => {
                        tokio::time::sleep(attempts.next(asked, MAX_PAUSE).ok_or(failure)?).await;
                    }
                }
            }
        })
    }

    async fn attempt(&self, text: &str, prices: &Catalogue) -> Result<Said, Missed> {
        let Question { path, headers, body } = Question::new(&self.call, text, MAX_OUTPUT);
        let posted = self.https.post(&self.call.upstream, &path, &headers, body).await;
        let reply = posted.map_err(|lost| match lost {
            Lost::Unsent(why) | Lost::Unanswered(why) => Missed::Retryable(Failure::Call(why), None),
        })?;
        if !reply.is_good() {
            return Err(reply.refusal());
        }
        let text = self.call.protocol.text_of_answer(&reply.body);
        let text = text.ok_or(Missed::Retryable(Failure::Incomplete, None))?;
        Ok(Said { text, cost: reply.called(&self.call, prices).bill.map(|bill| bill.total) })
    }
}
