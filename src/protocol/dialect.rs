//! Tables that describe the dialects: what is known of each before any body is read, and how its requests differ from
//! those of the others.
//!
//! Each dialect has its table in its folder. The rest of the program goes through all tables and names no dialect.

use super::answer::{Cause, Stop};
use super::prompt::Layout;
use super::valid::Rules;

/// A dialect's table.
#[derive(Debug)]
pub struct Dialect {
    /// Its name, as users write it.
    pub name: &'static str,
    /// The member of a body that holds the messages. It identifies the dialect if the path does not.
    pub list: &'static str,
    /// The paths on which its requests are read.
    pub paths: &'static [Path],
    /// Prefixes of other paths that belong to its provider. These are not read, but must be routed.
    pub prefixes: &'static [PathPrefix],
    /// The paths that fetch an answer begun by an earlier request.
    pub later: &'static [Later],
    /// First segments of its paths. No upstream may have such a name, since it would hide those paths.
    pub segments: &'static [&'static str],
    /// Headers that identify its clients if the path does not.
    pub signs: &'static [Sign],
    /// Headers besides `authorization` that carry a credential or identify its owner.
    pub credentials: &'static [&'static str],
    /// The stop reasons of truncated answers, with their causes. Any other stop reason is [`Cause::Other`].
    pub cuts: &'static [(&'static str, Cause)],
    /// The providers' own servers.
    pub servers: &'static [Server],
    /// Hosts that are known to accept a cache key; other servers may refuse one.
    pub keyed: &'static [&'static str],
    /// The layout of its prompts, and its cache marks.
    pub(super) layout: Layout,
    /// The rules that a history must obey.
    pub(super) rules: Rules,
}

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// An answer of the model.
    Generate,
    /// A compacted history, from which the client continues in place of the full one.
    Compact,
    /// The length of the prompt.
    Count,
    /// Something billed that is not an answer to messages, such as an embedding. Such a request leaves as it came.
    Other,
}

/// A pattern of paths.
#[derive(Debug)]
pub struct Path {
    /// The text that a path must contain.
    within: &'static str,
    /// The end of the path.
    end: &'static str,
    /// What is asked for on such a path.
    pub purpose: Purpose,
}

impl Path {
    /// Paths with this end.
    pub(super) const fn new(end: &'static str, purpose: Purpose) -> Self {
        Self { within: "", end, purpose }
    }

    /// Restricts this to paths that also contain `within`.
    pub(super) const fn within(self, within: &'static str) -> Self {
        Self { within, ..self }
    }

    /// Whether a path, without a slash at its end, matches.
    pub fn fits(&self, path: &str) -> bool {
        path.ends_with(self.end) && path.contains(self.within)
    }

    /// The end of the paths.
    pub fn end(&self) -> &'static str {
        self.end
    }
}

/// A prefix of paths that are routed but not read.
#[derive(Debug)]
pub struct PathPrefix {
    /// The prefix.
    pub start: &'static str,
    /// The server that they belong to, if it is not the dialect's first.
    pub server: Option<&'static str>,
}

/// A pattern of paths that fetch an answer begun by an earlier request, with the answer's id.
#[derive(Debug)]
pub struct Later {
    /// The text before the id.
    pub(super) before: &'static str,
    /// The text after the id, up to the end of the path.
    pub(super) behind: &'static str,
}

impl Later {
    /// The id of the answer that a path fetches; `None` if it does not match. The path has no slash at its end.
    pub fn id<'p>(&self, path: &'p str) -> Option<&'p str> {
        let id = path.strip_suffix(self.behind)?.rsplit_once(self.before)?.1;
        (!id.is_empty() && !id.contains('/')).then_some(id)
    }
}

/// A header that identifies a dialect's client.
#[derive(Debug)]
pub struct Sign {
    /// How reliable it is.
    pub kind: SignKind,
    /// Its name.
    pub header: &'static str,
    /// The prefix of its value, in upper or lower case.
    pub begins: &'static str,
}

/// How reliable a sign is. The most reliable one decides; among equals, the dialect that comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignKind {
    /// A login that is valid for one provider only, in whatever header.
    Login,
    /// The name of a provider's own client program.
    Program,
    /// A header that only this dialect has.
    Own,
    /// A header that clients of other dialects may send as well.
    Common,
}

impl SignKind {
    /// All kinds, the most reliable first.
    pub const ALL: [Self; 4] = [Self::Login, Self::Program, Self::Own, Self::Common];
}

/// A provider's own server, available without configuration.
#[derive(Debug)]
pub struct Server {
    /// Its name. Dialects spoken at the same server use the same name.
    pub name: &'static str,
    /// Its base URL.
    pub base_url: &'static str,
    /// Its place among all servers: lower ranks come first, and among equals the dialect that comes first. Servers
    /// for the login of a single program come last.
    pub rank: u8,
    /// Environment variables in which agents look for its address, each with the path to append to the gateway's own.
    pub variables: &'static [(&'static str, &'static str)],
}

impl Dialect {
    /// Classifies a provider's stop reason. All dialects' words are known in each, since some servers pass on the words
    /// of others.
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

    /// The gateway's own requests use the paths that clients of the dialect use.
    #[test]
    fn own_call_paths_are_generate_paths_of_their_dialect() {
        for protocol in protocol::ALL {
            let ask = Ask { model: "m", text: "x", max_tokens: 9, like: None };
            let path = protocol.ask(&ask).path;
            let row = protocol.dialect().paths.iter().find(|row| row.fits(&path));
            assert_eq!(row.map(|row| row.purpose), Some(Purpose::Generate), "{path}");
        }
    }

    #[test]
    fn answer_ids_are_taken_from_paths() {
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
    fn stop_words_have_the_same_cause_in_every_dialect() {
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
    fn stop_causes_are_read_in_every_dialect() {
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
