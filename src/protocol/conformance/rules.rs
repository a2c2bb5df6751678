//! The rules that all providers have for calls and results.

use std::collections::BTreeSet;

/// Calls that wait for their results.
#[derive(Debug, Default)]
pub(super) struct OpenCalls {
    open: Vec<String>,
    /// The ids so far, where none may be used again.
    seen: Option<BTreeSet<String>>,
    /// What the provider runs by itself.
    running: Vec<String>,
}

impl OpenCalls {
    /// Calls of a provider that takes no id twice.
    pub(super) fn of_unique_ids() -> Self {
        Self { seen: Some(BTreeSet::new()), ..Self::default() }
    }

    /// The model calls tools.
    pub(super) fn open(&mut self, ids: Vec<String>) -> Result<(), String> {
        self.expect_none_open("the model")?;
        for id in ids {
            if self.seen.as_mut().is_some_and(|seen| !seen.insert(id.clone())) {
                return Err(format!("id {id} is used twice"));
            }
            self.open.push(id);
        }
        Ok(())
    }

    /// A result comes: of a call that was made just before.
    pub(super) fn result(&mut self, id: &str) -> Result<(), String> {
        let at = self.open.iter().position(|open| open == id);
        at.map(|at| drop(self.open.remove(at)))
            .ok_or_else(|| format!("the result of {id} has no call before it"))
    }

    /// The provider calls a tool of its own.
    pub(super) fn provider_calls(&mut self, id: String) {
        self.running.push(id);
    }

    /// What came of it.
    pub(super) fn provider_ran(&mut self, id: &str) -> Result<(), String> {
        let at = self.running.iter().rposition(|running| running == id);
        at.map(|at| drop(self.running.remove(at))).ok_or_else(|| format!("{id} was not run"))
    }

    /// All that the provider ran came to an end.
    pub(super) fn expect_none_running(&self) -> Result<(), String> {
        if self.running.is_empty() { Ok(()) } else { Err(format!("{:?} came to nothing", self.running)) }
    }

    /// Something comes that may only follow all results.
    pub(super) fn expect_none_open(&self, what: &str) -> Result<(), String> {
        match self.open.first() {
            Some(id) => Err(format!("{what} comes before the result of {id}")),
            None => Ok(()),
        }
    }
}
