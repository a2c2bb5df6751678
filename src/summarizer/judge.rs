//! Questions to a judge, one after the other, for a person who waits.

use std::io;
use std::time::Duration;

use bytes::Bytes;

use super::line::{self, Https, Line as _, Lost};
use super::{Call, Failure, vendor};
use crate::protocol::{Ask, Framing};
use crate::usage::{self, Catalogue, Money};

/// Tokens that an answer may have, with what the model thinks before it.
const ANSWER: u64 = 8_000;
/// The first pause before a question is asked again; each is twice as long as the one before.
const PAUSE: Duration = Duration::from_millis(500);
/// The longest pause: who has to wait longer is told why.
const LONGEST: Duration = Duration::from_secs(60);
/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// A model that is asked.
pub struct Judge {
    runtime: tokio::runtime::Runtime,
    https: Https,
    call: Call,
    attempts: u32,
}

/// What a judge said, and what that cost: `None` where the price is not known.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    /// Its words.
    pub text: String,
    /// The bill.
    pub cost: Option<Money>,
}

impl Judge {
    /// A judge who is asked so often before it is given up.
    ///
    /// # Errors
    /// When the system gives no event loop.
    pub fn new(call: Call, attempts: u32) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { runtime, https: Https::new(), call, attempts })
    }

    /// Bytes of a text that one question may hold.
    pub fn most_bytes(&self) -> usize {
        usize::try_from(self.call.window.saturating_sub(ANSWER.min(self.call.window / 4)))
            .unwrap_or(usize::MAX)
            * 2
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// When there is none after all attempts, or it is not whole.
    pub fn ask(&self, text: &str, prices: &Catalogue) -> Result<Said, Failure> {
        self.runtime.block_on(async {
            let (mut attempt, mut pause) = (1, PAUSE);
            loop {
                let asked = tokio::time::timeout(TIMEOUT, self.attempt(text, prices)).await;
                match asked.unwrap_or(Err((Failure::TimedOut, Some(PAUSE)))) {
                    Err((_, Some(wait))) if attempt < self.attempts && wait <= LONGEST => {
                        tokio::time::sleep(pause.max(wait)).await;
                    }
                    done => return done.map_err(|(failure, _)| failure),
                }
                (attempt, pause) = (attempt + 1, pause * 2);
            }
        })
    }

    /// The answer; else why there is none, and after what time it may go better; `None`: never.
    async fn attempt(&self, text: &str, prices: &Catalogue) -> Result<Said, (Failure, Option<Duration>)> {
        let Call { upstream, protocol, model, like, headers, window } = &self.call;
        let max_tokens = ANSWER.min(window / 4).max(1);
        let asked = protocol.ask(&Ask { model, text, max_tokens, like: like.as_deref() });
        let headers = line::headers(headers, &asked);
        let posted = self.https.post(upstream, &asked.path, &headers, Bytes::from(asked.body)).await;
        let reply = posted.map_err(|lost| match lost {
            Lost::Unsent(why) | Lost::Unanswered(why) => (Failure::Call(why), Some(PAUSE)),
        })?;
        let (status, answer) = (reply.status, reply.body);
        if !(200..300).contains(&status) {
            let passes = matches!(status, 408 | 409 | 425 | 429 | 500..);
            let wait = reply.retry_after.unwrap_or(PAUSE);
            return Err((Failure::Call(format!("status {status}")), passes.then_some(wait)));
        }
        let mut reader = protocol.answer(Framing::Document);
        reader.push(&answer);
        let read = reader.finish();
        let billed = read.model.as_deref().unwrap_or(model);
        let usage = read.usage.map(|usage| usage.at(&asked.path));
        let bill = usage.and_then(|usage| usage::bill(prices, &usage, billed, vendor(&self.call)));
        let text = protocol.said(&answer).ok_or((Failure::Incomplete, Some(PAUSE)))?;
        Ok(Said { text, cost: bill.map(|bill| bill.total) })
    }
}
