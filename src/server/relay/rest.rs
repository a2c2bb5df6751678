//! The rest of an answer whose client has left.
//!
//! Many clients leave as soon as they have read the mark that ends a stream, before the stream itself ends. Nothing is
//! left to cancel then: what still comes is read, so that figures behind the mark are booked, and the upstream sees its
//! answer taken and its connection kept.

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;

use super::{Next, Relay};

/// Bytes: more than ever follow the end mark of a stream.
const MAX_REST: usize = 64 * 1024;
/// How long the upstream may take for it.
const PATIENCE: Duration = Duration::from_secs(1);

/// Takes over what is left of an answer that nobody reads any more, if it has said that it is over.
#[expect(clippy::disallowed_methods, reason = "it ends by itself, and cut off it says what it has seen")]
pub(super) fn take_over(mut relay: Box<Relay>) {
    if !matches!(relay.next, Next::End)
        && relay.tap.is_over()
        && let Ok(runtime) = Handle::try_current()
    {
        runtime.spawn(tokio::time::timeout(PATIENCE, read(relay)));
    }
}

async fn read(mut relay: Box<Relay>) {
    let mut seen = 0;
    while seen < MAX_REST
        && let Some(Ok(frame)) = poll_fn(|cx| relay.poll(cx)).await
    {
        seen += frame.data_ref().map_or(0, Bytes::len);
    }
}
