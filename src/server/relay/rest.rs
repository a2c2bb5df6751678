//! The rest of an answer whose client has left.
//!
//! Many clients disconnect as soon as they have read the event that ends a stream, before the stream itself ends. There
//! is nothing to cancel then, so the rest is read: usage figures after that event are booked, and the connection to the
//! upstream can be kept.

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;

use super::{Next, Relay};

/// The most bytes that are read: more than ever follow the last event of a stream.
const MAX_BYTES: usize = 64 * 1024;
/// How long the upstream may take to send the rest.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Reads the rest of an answer whose client has left, in a task of its own, if the answer has announced its end.
#[expect(
    clippy::disallowed_methods,
    reason = "it ends by itself, and reports what it has seen if it is cut off"
)]
pub(super) fn take_over(mut relay: Box<Relay>) {
    if !matches!(relay.next, Next::End)
        && relay.tap.is_over()
        && let Ok(runtime) = Handle::try_current()
    {
        runtime.spawn(tokio::time::timeout(TIMEOUT, read(relay)));
    }
}

async fn read(mut relay: Box<Relay>) {
    let mut seen = 0;
    while seen < MAX_BYTES
        && let Some(Ok(frame)) = poll_fn(|cx| relay.poll(cx)).await
    {
        seen += frame.data_ref().map_or(0, Bytes::len);
    }
}
