//! The results of jobs without the jobs, for the laws, which decide when a summary is ready and what it says.

use std::sync::Arc;

use super::{Prospect, Summaries};
use crate::store::Summary;

impl Prospect {
    /// The thread that it is for.
    pub(in crate::app) fn thread(&self) -> &str {
        &self.task.thread
    }

    /// The approximate number of bytes that its writer reads.
    pub(in crate::app) fn bytes(&self) -> u64 {
        self.task.bytes
    }

    /// The summary that a job would make of it, if the model wrote `text`; `None` if that would free nothing.
    pub(in crate::app) fn written(&self, text: &str) -> Option<Summary> {
        let task = &self.task;
        let made = Summary {
            chain: task.chain,
            end: task.end,
            thread: task.thread.clone(),
            conversation: task.conversation_id.clone(),
            goal: String::new(),
            text: text.to_owned(),
            outline: text.to_owned(),
            model: "m".to_owned(),
            recipe: self.terms.recipe,
            generation: task.generation,
            score: None,
            at_ms: task.now_ms,
        };
        ((text.len() as u64) < task.bytes).then_some(made)
    }
}

impl Summaries {
    /// Records that a summary is paid for, although none is ready.
    pub(in crate::app) fn pay(&self, prospect: &Prospect) {
        self.spending.book_expected(&prospect.task.thread, prospect.task.expected);
    }

    /// Makes a summary available.
    pub(in crate::app) fn file(&self, summary: Summary) {
        let thread = summary.thread.clone();
        self.summarizer.remember(&thread, Arc::new(summary));
    }
}
