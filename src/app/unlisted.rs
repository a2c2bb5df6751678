//! Requests without a list of messages. Nothing in them can be edited; they are booked with the conversation that
//! they continue.

use super::context::Incoming;
use super::rewritten::{ProviderHistory, RequestFacts, Rewritten};
use super::sender::Sender;
use super::{Core, clock};
use crate::ledger::words::State;
use crate::protocol::{self, Unlisted};

impl Core {
    /// The result for a request without a list of messages; `None` if it is any other request.
    pub(super) fn unlisted(&self, incoming: Incoming<'_>) -> Option<Rewritten> {
        let Incoming { protocol, headers, body, context } = incoming;
        let Unlisted { model, session, continues, is_kept, completion_window } =
            protocol::unlisted(protocol, body)?;
        let Sender { root, caller, .. } = self.sender(protocol, headers, session.as_deref(), context.query);
        let found = self.lineage.thread_of_kept(root, &continues, &caller, &clock::new_id, (self.now_ms)());
        // A request whose history cannot be looked up is booked on a conversation of its own.
        let thread = found.ok().map(|(thread, batch)| {
            if let Some(batch) = batch {
                self.tally.stored(self.store.later(batch));
            }
            thread
        });
        Some(Rewritten::of(RequestFacts {
            caller,
            history: ProviderHistory {
                continues: Some(continues),
                goes_on_in: thread.map(|thread| (root, thread)),
                is_kept,
                ..ProviderHistory::default()
            },
            model: model.as_deref().or(context.model).map(str::to_owned),
            completion_window,
            state: State::Unchanged,
            compaction: context.compaction,
            ..RequestFacts::default()
        }))
    }
}
