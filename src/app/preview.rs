//! Previews: the body by which a prompt is counted. A preview stores nothing and decides nothing.

use bytes::Bytes;

use super::Core;
use super::context::{Incoming, RequestContext};
use super::rewrite::Request;
use crate::protocol::{self, Protocol};

impl Core {
    /// The body that a prompt is counted by: with all stored decisions, and those that would be made now. `None` if the
    /// prompt is counted as it came.
    pub(super) fn preview(
        &self,
        protocol: &'static dyn Protocol,
        headers: &http::HeaderMap,
        body: &Bytes,
        context: RequestContext<'_>,
    ) -> Option<Bytes> {
        let request = Request::read(self, Incoming { protocol, headers, body, context }).ok()?;
        let place = request.place().ok()?;
        if place.thread.observe {
            return None;
        }
        let known = self.settings.tunings.known(&place.thread.id);
        let tuning = known.as_ref().unwrap_or(&request.tuning);
        let mut outcome = request.plan_by(&place, &tuning.counting, None, None);
        if self.observes() {
            outcome.forget_fresh();
        }
        if outcome.plan.is_empty() {
            return None;
        }
        protocol::apply_verified(request.protocol, &request.conversation, &outcome.plan, &self.memo)
            .ok()
            .map(|after| after.body)
    }
}
