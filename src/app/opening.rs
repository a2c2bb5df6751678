//! Starts a new conversation from a checkpoint, if the client asks for one.

use std::borrow::Cow;
use std::io::ErrorKind;

use http::{HeaderMap, HeaderName};

use super::rewrite::Request;
use super::rewritten::{InForce, Rewritten};
use crate::conversation::Conversation;
use crate::ledger::words::State;
use crate::lineage::Place;
use crate::planner;
use crate::server::{Deadline, Fault};
use crate::store::Checkpoints;
use crate::strategy::summary::Checkpoint;

/// The header that holds the id of the conversation to continue.
static HEADER: HeaderName = HeaderName::from_static("x-plimsoll-checkpoint");

/// The checkpoint that a request names.
pub(super) fn asked(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    let name = headers.get(&HEADER)?.as_bytes().trim_ascii();
    Some(String::from_utf8_lossy(name)).filter(|name| !name.is_empty())
}

/// The text that a request's conversation begins with, or why it cannot; `None` if no checkpoint is asked for, or if
/// the conversation began earlier.
pub(super) fn of(
    checkpoints: &Checkpoints,
    headers: &HeaderMap,
    conversation: &Conversation,
    place: &Place,
) -> Option<Result<String, Fault>> {
    let name = asked(headers)?;
    if place.sent > 0 || conversation.continues.is_some() {
        return None;
    }
    Some(text(checkpoints, &name).and_then(|text| {
        if planner::has_place_for_opening(conversation) {
            Ok(text)
        } else {
            Err(fault(&name, "the request does not begin with words of the user's"))
        }
    }))
}

/// A fault of the client: to go on without the checkpoint would be to do other work than was asked for.
fn fault(name: &str, why: &str) -> Fault {
    let message = format!("`{HEADER}` names a checkpoint that cannot be used: `{name}`: {why}");
    Fault::client(http::StatusCode::BAD_REQUEST, message)
}

/// A fault of the gateway: the checkpoint cannot be stored.
fn unstored(why: &str) -> Fault {
    let message = format!("the checkpoint that `{HEADER}` names could not be put in: {why}; try again");
    Fault::gateway(http::StatusCode::SERVICE_UNAVAILABLE, message)
}

/// The text that a conversation from this checkpoint begins with.
///
/// # Errors
/// A fault of the client, if the checkpoint does not exist or cannot be used.
fn text(checkpoints: &Checkpoints, name: &str) -> Result<String, Fault> {
    let json = checkpoints.read(name).map_err(|error| match error.kind() {
        ErrorKind::NotFound => fault(name, "there is none; `plimsoll checkpoint CONVERSATION` writes one"),
        _ => fault(name, &error.to_string()),
    })?;
    let checkpoint = Checkpoint::from_json(&json).map_err(|unusable| fault(name, &unusable.to_string()))?;
    Ok(checkpoint.to_prompt())
}

impl Request<'_> {
    /// The text that the conversation begins with. An observing gateway begins nothing.
    pub(super) fn begins_with(&self, headers: &HeaderMap) -> Option<Result<String, Fault>> {
        asked(headers).filter(|_| !self.core.observes())?;
        match self.place() {
            Ok(place) => of(&self.core.checkpoints, headers, &self.conversation, &place),
            Err(error) => Some(Err(unstored(&error.to_string()))),
        }
    }

    /// The request as it came, not to be sent: its checkpoint is not available and was not stored earlier.
    pub(super) fn without_opening(&self) -> Option<Rewritten> {
        let Some(Err(fault)) = &self.opening else { return None };
        let facts = self.facts(self.place().ok(), State::Unchanged, None, InForce::default());
        Some(Rewritten { fault: Some(fault.clone()), ..Rewritten::of(facts) })
    }

    /// The same for a checkpoint that is available but could not be stored: a conversation that began without it
    /// would continue without it.
    pub(super) fn unopened(&self, why: Option<&str>) -> Option<Rewritten> {
        let has_left = self.asked.until.is_some_and(Deadline::has_left);
        let Some(Ok(_)) = self.opening.as_ref().filter(|_| !has_left) else { return None };
        let fault = unstored(why.unwrap_or("nothing was to be decided"));
        let facts = self.facts(None, State::Unchanged, None, InForce::default());
        Some(Rewritten { fault: Some(fault), ..Rewritten::of(facts) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_whatever_bytes_they_are() {
        for (value, expected) in [
            (&b" c1 "[..], Some("c1")),
            ("задача-1".as_bytes(), Some("задача-1")),
            (b"a\xffb", Some("a\u{fffd}b")),
            (b" ", None),
        ] {
            let headers =
                HeaderMap::from_iter([(HEADER.clone(), http::HeaderValue::from_bytes(value).unwrap())]);
            assert_eq!(asked(&headers).as_deref(), expected);
        }
        assert_eq!(asked(&HeaderMap::new()), None);
    }
}
