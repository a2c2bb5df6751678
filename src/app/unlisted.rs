//! Requests without a list of messages. Nothing in them can be edited; they are booked with the conversation that
//! they continue.

use bytes::Bytes;
use http::HeaderMap;

use super::context::RequestContext;
use super::rewritten::{ProviderHistory, RequestFacts, Rewritten};
use super::sender::Sender;
use super::{Core, clock};
use crate::ledger::words::State;
use crate::protocol::{self, Protocol, Unlisted};

impl Core {
    /// The result for such a request; `None` for any other.
    pub(super) fn unlisted(
        &self,
        protocol: &dyn Protocol,
        headers: &HeaderMap,
        body: &Bytes,
        asked: RequestContext<'_>,
    ) -> Option<Rewritten> {
        let Unlisted { model, session, continues, is_kept } = protocol::unlisted(protocol, body)?;
        let Sender { root, caller, .. } = self.sender(protocol, headers, session.as_deref(), asked.query);
        // A history that cannot be looked up now counts as a conversation of its own.
        let found =
            self.lineage.thread_of_kept(root, &continues, &caller, &clock::new_id, (self.now_ms)()).ok();
        let thread = found.map(|(thread, fresh)| {
            if let Some(batch) = fresh {
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
            model: model.as_deref().or(asked.model).map(str::to_owned),
            state: State::Unchanged,
            compaction: asked.compaction,
            ..RequestFacts::default()
        }))
    }
}
