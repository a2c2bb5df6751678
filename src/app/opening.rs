//! The checkpoint that a new conversation starts from, if its client asks for one.

use http::HeaderMap;

use crate::server::Fault;
use crate::store::Checkpoints;
use crate::strategy::summary::Checkpoint;

/// The header whose value is the id of the conversation to go on from.
const HEADER: &str = "x-plimsoll-checkpoint";

/// The checkpoint that a request names.
pub(super) fn asked(headers: &HeaderMap) -> Option<&str> {
    headers.get(HEADER)?.to_str().ok().map(str::trim).filter(|name| !name.is_empty())
}

/// What a conversation that starts from a checkpoint begins with.
///
/// # Errors
/// The client's fault: it names none that can be used. To go on without would be to do other work than was asked for.
pub(super) fn text(checkpoints: &Checkpoints, name: &str) -> Result<String, Fault> {
    let fault = |why: String| {
        let message = format!("`{HEADER}` names a checkpoint that cannot be used: `{name}`: {why}");
        Fault::client(http::StatusCode::BAD_REQUEST, message)
    };
    let json = checkpoints.read(name).map_err(|error| fault(error.to_string()))?;
    let checkpoint = Checkpoint::from_json(&json).map_err(|unusable| fault(unusable.to_string()))?;
    Ok(checkpoint.to_prompt())
}
