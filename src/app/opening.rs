//! Starts a new conversation from a checkpoint, if the client asks for one.

use std::borrow::Cow;
use std::io::ErrorKind;

use http::{HeaderMap, HeaderName};

use super::Core;
use super::context::Incoming;
use super::enveloped::Enveloped;
use super::rewrite::Request;
use super::rewritten::Rewritten;
use crate::planner;
use crate::server::{Deadline, Fault, Inbound};
use crate::store::Checkpoints;
use crate::strategy::summary::Checkpoint;

/// The header that holds the id of the conversation to continue.
static HEADER: HeaderName = HeaderName::from_static("x-plimsoll-checkpoint");

/// The name of the checkpoint that a request asks for.
pub(super) fn checkpoint_name(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    let name = headers.get(&HEADER)?.as_bytes().trim_ascii();
    Some(String::from_utf8_lossy(name)).filter(|name| !name.is_empty())
}

/// The client's fault if the checkpoint cannot be used. The request must not be sent without it: the agent would do
/// other work than it was asked for.
fn fault(name: &str, why: &str) -> Fault {
    let message = format!("`{HEADER}` names a checkpoint that cannot be used: `{name}`: {why}");
    Fault::client(http::StatusCode::BAD_REQUEST, message)
}

/// The gateway's fault if the checkpoint could not be stored as part of the conversation.
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

impl Core {
    /// Why a request leaves unread. If it names a checkpoint, it leaves without that too: whether it is the first of
    /// its conversation cannot be told, and a later one is not refused because of a header.
    pub(super) fn unread_because(&self, headers: &HeaderMap, why: String) -> String {
        match checkpoint_name(headers).filter(|_| !self.observes()) {
            Some(_) => format!("{why}; the checkpoint that `{HEADER}` names is not put in"),
            None => why,
        }
    }

    /// The fault to refuse a request with that can be read but was not prepared, if it was to begin with a checkpoint.
    pub(super) fn unprepared_opening(&self, enveloped: &Enveloped) -> Option<Fault> {
        let Inbound { head, body, .. } = &enveloped.inbound;
        // The request is read again only if it names a checkpoint.
        checkpoint_name(&head.headers)?;
        let (protocol, context) = (enveloped.protocol, enveloped.context());
        let request =
            Request::read(self, Incoming { protocol, headers: &head.headers, body, context }).ok()?;
        Some(request.opening?.err().unwrap_or_else(|| unstored("a fault of the gateway's own")))
    }
}

impl Request<'_> {
    /// The text of the checkpoint that the conversation begins with, or why it cannot; `None` if no checkpoint is asked
    /// for, or if the conversation began earlier. An observing gateway puts in no checkpoint.
    pub(super) fn find_opening(&self, headers: &HeaderMap) -> Option<Result<String, Fault>> {
        let name = checkpoint_name(headers).filter(|_| !self.core.observes())?;
        let place = match self.place() {
            Ok(place) => place,
            Err(error) => return Some(Err(unstored(&error.to_string()))),
        };
        if place.sent > 0 || self.conversation.continues.is_some() {
            return None;
        }
        Some(text(&self.core.checkpoints, &name).and_then(|text| {
            if planner::has_place_for_opening(&self.conversation) {
                Ok(text)
            } else {
                Err(fault(&name, "the request does not begin with words of the user's"))
            }
        }))
    }

    /// The request as it came, not to be sent, if its checkpoint cannot be used; `None` otherwise.
    pub(super) fn refuse_missing_opening(&self) -> Option<Rewritten> {
        let Some(Err(fault)) = &self.opening else { return None };
        Some(self.not_sent(self.place().ok(), fault.clone()))
    }

    /// The request as it came, not to be sent, if it was to begin with a checkpoint: nothing new is decided about it,
    /// so the checkpoint was not stored, and a conversation that begins without it would go on without it. `None` if
    /// there is no checkpoint, or if the request has left already.
    pub(super) fn refuse_unstored_opening(&self, why: Option<&str>) -> Option<Rewritten> {
        let has_left = self.context.until.is_some_and(Deadline::has_left);
        let Some(Ok(_)) = self.opening.as_ref().filter(|_| !has_left) else { return None };
        Some(self.not_sent(None, unstored(why.unwrap_or("nothing was to be decided"))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoint_names_may_hold_any_bytes() {
        for (value, expected) in [
            (&b" c1 "[..], Some("c1")),
            ("задача-1".as_bytes(), Some("задача-1")),
            (b"a\xffb", Some("a\u{fffd}b")),
            (b" ", None),
        ] {
            let headers =
                HeaderMap::from_iter([(HEADER.clone(), http::HeaderValue::from_bytes(value).unwrap())]);
            assert_eq!(checkpoint_name(&headers).as_deref(), expected);
        }
        assert_eq!(checkpoint_name(&HeaderMap::new()), None);
    }
}
