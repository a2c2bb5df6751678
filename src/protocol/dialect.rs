//! What a dialect is known by before anything of it is read, and how its requests differ from those of others, as rows of
//! a table.
//!
//! Every dialect has its own in its own folder. Whoever asks goes through all of them and names none.

use super::answer::{Cause, Stop};
use super::prompt::Layout;
use super::valid::Rules;

/// What a dialect is known by.
#[derive(Debug)]
pub struct Dialect {
    /// Its name, as users write it.
    pub name: &'static str,
    /// The member of a body that holds the messages. It tells dialects apart where a path does not.
    pub list: &'static str,
    /// The paths that it is read on.
    pub paths: &'static [Path],
    /// What its other paths begin with: they are not read, but have to find their way.
    pub places: &'static [Place],
    /// The paths on which an answer is asked for that another request has begun.
    pub later: &'static [Later],
    /// What first segments its paths have: an upstream of that name would swallow them.
    pub segments: &'static [&'static str],
    /// What tells its clients where the path does not.
    pub signs: &'static [Sign],
    /// Headers beside `authorization` that carry a credential, or say whose it is.
    pub credentials: &'static [&'static str],
    /// The words for an answer that was cut off, and by what. Any other ends it in some other way.
    pub cuts: &'static [(&'static str, Cause)],
    /// The providers' own servers.
    pub servers: &'static [Server],
    /// Hosts that are known to take a key of their cache; other servers may refuse one.
    pub keyed: &'static [&'static str],
    /// Where the beginning of a prompt stands, and its marks.
    pub(super) layout: Layout,
    /// What is known to be refused of a history.
    pub(super) rules: Rules,
}

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// An answer of the model.
    Generate,
    /// The history in a form that the client goes on from in its place.
    Compact,
    /// The length of the prompt.
    Count,
    /// Something that is no answer to messages, and is billed all the same: such a request leaves as it came.
    Other,
}

/// A kind of paths.
#[derive(Debug)]
pub struct Path {
    /// What is somewhere in them.
    within: &'static str,
    /// How they end.
    end: &'static str,
    /// What is asked for there.
    pub purpose: Purpose,
}

impl Path {
    /// Those that end so.
    pub(super) const fn new(end: &'static str, purpose: Purpose) -> Self {
        Self { within: "", end, purpose }
    }

    /// Those of them that have something in them.
    pub(super) const fn within(self, within: &'static str) -> Self {
        Self { within, ..self }
    }

    /// Whether a path is one of these. It has no slash at its end.
    pub fn fits(&self, path: &str) -> bool {
        path.ends_with(self.end) && path.contains(self.within)
    }

    /// How they end.
    pub fn end(&self) -> &'static str {
        self.end
    }
}

/// A kind of paths that are not read.
#[derive(Debug)]
pub struct Place {
    /// How they begin.
    pub start: &'static str,
    /// Which of the servers that speak the dialect they are for, if not the first.
    pub server: Option<&'static str>,
}

/// A kind of paths on which an answer is asked for that another request has begun. Its id stands in them.
#[derive(Debug)]
pub struct Later {
    /// What stands before the id.
    pub(super) before: &'static str,
    /// What stands behind it, to the end.
    pub(super) behind: &'static str,
}

impl Later {
    /// The id of the answer that a path asks for; `None` for other paths. It has no slash at its end.
    pub fn id<'p>(&self, path: &'p str) -> Option<&'p str> {
        let id = path.strip_suffix(self.behind)?.rsplit_once(self.before)?.1;
        (!id.is_empty() && !id.contains('/')).then_some(id)
    }
}

/// A header that tells whose client it is.
#[derive(Debug)]
pub struct Sign {
    /// How sure it is.
    pub kind: SignKind,
    /// Its name.
    pub header: &'static str,
    /// How its value begins, whatever the case.
    pub begins: &'static str,
}

/// How sure a sign is. The surest one holds; of equals, that of the dialect which comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignKind {
    /// A login of one provider's: it is not for another, in whatever header it stands.
    Login,
    /// The name of a provider's own client.
    Program,
    /// A header of the dialect's own.
    Own,
    /// A header that clients of others may have as well.
    Common,
}

impl SignKind {
    /// All of them, the surest first.
    pub const ALL: [Self; 4] = [Self::Login, Self::Program, Self::Own, Self::Common];
}

/// A provider's own server, which is there without being configured.
#[derive(Debug)]
pub struct Server {
    /// Its name. Dialects that are spoken at the same server name the same one.
    pub name: &'static str,
    /// Where it is.
    pub base_url: &'static str,
    /// Its place among all: lower ones come first, and among equals that of the dialect which comes first. What is for
    /// the login of one program comes behind what is for everyone.
    pub rank: u8,
    /// The variables in which agents look for its address, and what stands behind the gateway's own in them.
    pub variables: &'static [(&'static str, &'static str)],
}

impl Dialect {
    /// What a provider's word for the end of an answer means. Servers in front of others pass on the others' words.
    pub(super) fn stop(&self, word: String) -> Stop {
        let others = super::ALL.iter().map(|protocol| protocol.dialect());
        let mut known = std::iter::once(self).chain(others).flat_map(|dialect| dialect.cuts);
        let cause = known.find(|(cut, _)| *cut == word).map_or(Cause::Other, |(_, cause)| *cause);
        Stop { word, cause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{self, Ask, Framing};

    /// What the gateway itself asks goes where clients of the dialect ask.
    #[test]
    fn every_dialect_is_read_where_it_is_spoken() {
        for protocol in protocol::ALL {
            let ask = Ask { model: "m", text: "x", max_tokens: 9, like: None };
            let path = protocol.ask(&ask).path;
            let row = protocol.dialect().paths.iter().find(|row| row.fits(&path));
            assert_eq!(row.map(|row| row.purpose), Some(Purpose::Generate), "{path}");
        }
    }

    #[test]
    fn answers_are_asked_for_by_their_ids() {
        for (path, expected) in [
            ("/v1/responses/resp_1", Some("resp_1")),
            ("/openai/v1/responses/resp_1", Some("resp_1")),
            ("/responses/resp_1/cancel", Some("resp_1")),
            ("/v1/responses/resp_1/input_items", None),
            ("/v1/responses", None),
            ("/v1/responses/", None),
            ("/v1/responses//cancel", None),
            ("/v1/chat/completions/chatcmpl-1", None),
        ] {
            let mut rows = protocol::ALL.iter().flat_map(|protocol| protocol.dialect().later);
            assert_eq!(rows.find_map(|row| row.id(path)), expected, "{path}");
        }
    }

    #[test]
    fn words_mean_the_same_in_front_of_others() {
        for (word, expected) in [
            ("max_tokens", Cause::Length),
            ("length", Cause::Length),
            ("max_output_tokens", Cause::Length),
            ("MAX_TOKENS", Cause::Length),
            ("model_context_window_exceeded", Cause::Window),
            ("end_turn", Cause::Other),
            ("stop", Cause::Other),
            ("content_filter", Cause::Other),
            ("Length", Cause::Other),
            ("", Cause::Other),
        ] {
            for protocol in protocol::ALL {
                let stop = protocol.dialect().stop(word.to_owned());
                assert_eq!((stop.word(), stop.cause()), (word, expected), "{}", protocol.name());
            }
        }
    }

    #[test]
    fn answers_say_why_they_ended() {
        for (dialect, framing, answer, expected) in [
            ("anthropic", Framing::Document, r#"{"stop_reason":"max_tokens"}"#, Cause::Length),
            (
                "anthropic",
                Framing::Events,
                "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"model_context_window_exceeded\"}}\n\n",
                Cause::Window,
            ),
            ("openai-chat", Framing::Document, r#"{"choices":[{"finish_reason":"length"}]}"#, Cause::Length),
            (
                "openai-responses",
                Framing::Document,
                r#"{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}"#,
                Cause::Length,
            ),
            ("openai-responses", Framing::Document, r#"{"status":"failed"}"#, Cause::Other),
            ("gemini", Framing::Document, r#"{"candidates":[{"finishReason":"MAX_TOKENS"}]}"#, Cause::Length),
            ("gemini", Framing::Document, r#"{"promptFeedback":{"blockReason":"SAFETY"}}"#, Cause::Other),
        ] {
            let mut reader = protocol::named(dialect).unwrap().answer(framing);
            reader.push(answer.as_bytes());
            assert_eq!(reader.finish().stop.map(|stop| stop.cause()), Some(expected), "{answer}");
        }
    }
}
