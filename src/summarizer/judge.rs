//! Questions to a judge, one after the other, for a person who waits.

use std::io;
use std::time::Duration;

use super::retry::{Attempts, Missed};
use super::transport::{Https, Lost, Question, Transport as _};
use super::{Call, Failure};
use crate::usage::{Catalogue, Money};

/// Tokens that an answer may have, with what the model thinks before it.
const ANSWER: u64 = 8_000;
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
            let mut attempts = Attempts::of(self.attempts);
            loop {
                let asked = tokio::time::timeout(TIMEOUT, self.attempt(text, prices)).await;
                match asked.unwrap_or(Err(Missed::Perhaps(Failure::TimedOut, None))) {
                    Ok(said) => return Ok(said),
                    Err(Missed::Overflow) => return Err(Failure::TooLong),
                    Err(Missed::Surely(failure)) => return Err(failure),
                    Err(Missed::Perhaps(failure, asked)) => {
                        tokio::time::sleep(attempts.next(asked, LONGEST).ok_or(failure)?).await;
                    }
                }
            }
        })
    }

    async fn attempt(&self, text: &str, prices: &Catalogue) -> Result<Said, Missed> {
        let Question { path, headers, body } = Question::new(&self.call, text, ANSWER);
        let posted = self.https.post(&self.call.upstream, &path, &headers, body).await;
        let reply = posted.map_err(|lost| match lost {
            Lost::Unsent(why) | Lost::Unanswered(why) => Missed::Perhaps(Failure::Call(why), None),
        })?;
        if !reply.is_good() {
            return Err(reply.refusal());
        }
        let said = self.call.protocol.said(&reply.body);
        let text = said.ok_or(Missed::Perhaps(Failure::Incomplete, None))?;
        Ok(Said { text, cost: reply.booked(&self.call, prices).bill.map(|bill| bill.total) })
    }
}
