//! Clients that compact their own history: recognises the request for a summary, and a history that begins with one.
//!
//! Both are recognised by phrases from the clients' own prompts, searched for at the beginnings and ends of texts. That
//! is precise enough, because a false alarm only delays an event by a request.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind, Match, MatchKind};

use crate::conversation::{Conversation, PartKind, Role};

/// What a client does to compact its history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compaction {
    /// It asks the model to summarise the history.
    Asked,
    /// The history begins with such a summary.
    Continued,
}

impl Compaction {
    /// Its name in the ledger.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Continued => "continued",
        }
    }
}

/// Words in the names of agents that compact their own history when the window is nearly full.
const COMPACTING_AGENTS: &[&str] = &["claude", "codex", "opencode", "qwen", "qwencode"];

/// Whether a client compacts its own history, judging by the name it gives itself: command-line agents do.
pub fn is_done_by(client: &str) -> bool {
    let name = client.split('/').next().unwrap_or_default().to_ascii_lowercase();
    name.split(['-', '_']).any(|word| word.ends_with("cli") || COMPACTING_AGENTS.contains(&word))
}

/// Phrases from requests for a summary. Where they can, they begin within a sentence, and so always with the same
/// letter; and with few different letters, which makes them fast to search for.
const ASKED: &[&str] = &[
    FORM,
    "Respond with TEXT ONLY",
    "CONTEXT CHECKPOINT COMPACTION",
    "summarizes a conversation",
    "prompt for continuing our conversation above",
    "anchored summary",
    "detailed summary of the conversation so far",
    "detailed summary of our conversation above",
    "detailed summary of this conversation",
    "handoff summary for",
    "a continuation summary",
    "concise summary of our conversation so far",
    "summarize this conversation.",
    "session for continuation",
    "summary in markdown format",
    "Summarize the conversation history so far",
    "must be compacted now",
    "summary of our entire conversation",
    "summary of the conversation above",
    "summary by taking into account the new messages above",
    "automated summarization request",
];

/// The form of some agents' summaries, which is a request for one only together with words before or after it.
const FORM: &str = "<state_snapshot>";
const BEFORE_FORM: &[&str] =
    &["generate a new ", "generate the ", "generate the updated ", "produce the ", "final, improved "];
const BEHIND_FORM: &str = " you just generated";

/// Phrases that summaries begin with.
const CONTINUED: &[&str] = &[
    "This session is being continued from a previous conversation",
    "Another language model started to solve this problem and produced a summary",
    "<state_snapshot>",
    "What did we do so far?",
    "been compacted to free up context",
    "been summarized to free up context",
    "A previous instance of Droid has summarized",
    "Here is a summary of the conversation to date",
];

// Built once, because building costs more than searching.
static ASKS: LazyLock<AhoCorasick> = LazyLock::new(|| finder(ASKED));
static CONTINUES: LazyLock<AhoCorasick> = LazyLock::new(|| finder(CONTINUED));

/// A search for several phrases at once. Which of them is found does not matter, but only searches for the leftmost
/// one use vector instructions.
fn finder(phrases: &[&str]) -> AhoCorasick {
    let finder = AhoCorasick::builder()
        .match_kind(MatchKind::LeftmostFirst)
        .kind(Some(AhoCorasickKind::ContiguousNFA))
        .build(phrases);
    finder.expect("an automaton can hold so few phrases")
}

/// How many bytes are searched at either end of a text.
const SEARCHED: usize = 400;

/// What the client does to compact its history with this request, if anything.
pub fn of(conversation: &Conversation) -> Option<Compaction> {
    let messages = &conversation.messages;
    let newest = messages.len().checked_sub(1)?;
    if conversation.asks_for_summary || says(conversation, newest, |text| asks(conversation, text)) {
        return Some(Compaction::Asked);
    }
    let first_answer = messages.iter().position(|message| message.index.role == Role::Assistant);
    let mut head = 0..first_answer.unwrap_or(messages.len());
    head.any(|at| says(conversation, at, |text| CONTINUES.is_match(text))).then_some(Compaction::Continued)
}

/// Whether a text of the newest message asks for a summary.
fn asks(conversation: &Conversation, text: &[u8]) -> bool {
    let is_asked = |found: Match| ASKED[found.pattern()] != FORM || asks_for_form(conversation, text, found);
    ASKS.is_match(text) && ASKS.find_iter(text).any(is_asked)
}

/// Whether a text asks for the form that it names.
fn asks_for_form(conversation: &Conversation, text: &[u8], form: Match) -> bool {
    let (before, behind) = (&text[..form.start()], &text[form.end()..]);
    let ends_with = |words: &&str| {
        let at = before.len().checked_sub(words.len());
        at.is_some_and(|at| before[at..].eq_ignore_ascii_case(words.as_bytes()))
    };
    // The next version may use other words. An agent that works on such prompts has tools.
    conversation.lacks_tools()
        || behind.starts_with(BEHIND_FORM.as_bytes())
        || BEFORE_FORM.iter().any(ends_with)
}

/// Whether a message is not the model's and one of its texts says something near its beginning or end.
fn says(conversation: &Conversation, message: usize, says: impl Fn(&[u8]) -> bool) -> bool {
    if !matches!(conversation.messages[message].index.role, Role::User | Role::System) {
        return false;
    }
    let texts = conversation.parts_of(message).filter(|(_, part)| part.kind() == PartKind::Text);
    let mut leaves = texts.flat_map(|(id, part)| part.leaves().iter().map(move |leaf| (id, leaf.span)));
    leaves.any(|(id, span)| {
        let raw = conversation.bytes_of(id.message, span);
        let length = raw.len().min(SEARCHED);
        says(&raw[..length]) || (raw.len() > SEARCHED && says(&raw[raw.len() - SEARCHED..]))
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::conversation::NoMemo;
    use crate::protocol;

    /// A conversation that used a tool, with these newest words of the user.
    fn history(newest: &str, has_tools: bool) -> Conversation {
        let tools = if has_tools { serde_json::json!([{"type": "function"}]) } else { serde_json::json!([]) };
        let call =
            serde_json::json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
        let body = serde_json::json!({"tools": tools, "messages": [
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "Then, produce the <state_snapshot> XML."},
            {"role": "user", "content": newest},
        ]});
        protocol::named("openai-chat").unwrap().index(&body.to_string().into(), &NoMemo).unwrap()
    }

    /// What agents ask for a summary with (`fixtures/compactions.tsv`), and what users say who do not. Three dots stand
    /// for a long text. The names of the agents are recognised too.
    #[test]
    fn agents_that_ask_for_summaries_are_recognised() {
        for row in include_str!("../../fixtures/compactions.tsv").lines().skip(1) {
            let cells: Vec<&str> = row.split('\t').collect();
            let [_, _, client, tools, asked, words] = cells[..] else { panic!("six cells: {row}") };
            let words = words.replace("\\n", "\n").replace('…', &" and so on".repeat(SEARCHED));
            let expected = (asked == "asked").then_some(Compaction::Asked);
            assert_eq!(of(&history(&words, tools == "yes")), expected, "{row}");
            let is_library = ["Anthropic/JS", "OpenAI/JS", "OpenAI/Python"].contains(&client);
            assert_eq!(is_done_by(client), !is_library, "{client}");
        }
    }

    /// A tool result means nothing, whatever it says, and the form of a summary only if there are no tools.
    #[test]
    fn requests_of_agents_that_work_on_such_prompts_are_none() {
        let asks = "generate the <state_snapshot>";
        let mut result = history(asks, true);
        assert_eq!(of(&result), Some(Compaction::Asked));
        result.messages.pop();
        assert_eq!(of(&result), None);
        result.has_tools = false;
        assert_eq!(of(&result), None);
        let names = "See <state_snapshot>";
        for (has_tools, expected) in [(true, None), (false, Some(Compaction::Asked))] {
            assert_eq!(of(&history(names, has_tools)), expected, "{has_tools}");
        }
        let mut talk = history(names, false);
        talk.messages.remove(2);
        assert_eq!(of(&talk), None, "nothing was done with tools");
    }

    #[test]
    fn known_summary_prompts_are_recognised() {
        for asked in [
            "Your urgent task is to create a comprehensive detailed summary of the conversation so far, paying",
            "Provide a detailed summary of our conversation above.",
            "Generate a detailed summary of this conversation. Include:",
            "You are about to run out of context. Create a handoff summary for the\nmodel that will resume this",
            "You have been working on the task described above but have not yet completed it. Write a continuation summary that",
            "Please provide a concise summary of our conversation so far, capturing the key context",
            "Please summarize this conversation.",
            "Summarize the conversation history so far, paying special attention to the most recent agent commands",
            "The conversation has grown too large for the context window and must be compacted now.",
            "Create a comprehensive summary of our entire conversation that will serve as complete context",
            "Create a summary of the conversation above:",
            "This is summary of the conversation to date: x\n\nExtend the summary by taking into account the new messages above:",
            "[SYSTEM NOTE: This is an automated summarization request, not from the user]",
        ] {
            let message = |role: &str, text: &str| serde_json::json!({"role": role, "content": text});
            let messages = [message("user", "hello"), message("assistant", "well"), message("user", asked)];
            let body = serde_json::json!({"messages": messages}).to_string();
            let read = protocol::named("openai-chat").unwrap().index(&body.into(), &NoMemo).unwrap();
            assert_eq!(of(&read), Some(Compaction::Asked), "{asked}");
        }
    }

    #[test]
    fn known_summary_openings_are_recognised() {
        for begins in [
            "The conversation so far has been compacted to free up context. What follows is your own working summary",
            "(Earlier messages in this conversation have been compacted to free up context, summarized below)",
            "Some of the conversation history has been summarized to free up context.",
            "A previous instance of Droid has summarized the conversation thus far as follows:",
            "Here is a summary of the conversation to date:\n\nx",
        ] {
            let message = |role: &str, text: &str| serde_json::json!({"role": role, "content": text});
            let messages = [message("user", begins), message("assistant", "well"), message("user", "go on")];
            let body = serde_json::json!({"messages": messages}).to_string();
            let read = protocol::named("openai-chat").unwrap().index(&body.into(), &NoMemo).unwrap();
            assert_eq!(of(&read), Some(Compaction::Continued), "{begins}");
        }
    }

    #[test]
    fn compactions_are_recognised_by_client_prompts() {
        let user = |text: &str| format!(r#"{{"role":"user","content":{}}}"#, serde_json::json!(text));
        let answer = r#"{"role":"assistant","content":"well"}"#;
        let far = "x ".repeat(SEARCHED);
        for (messages, expected) in [
            (vec![user("hello")], None),
            (vec![user("hello"), answer.to_owned(), user("go on")], None),
            (
                vec![
                    user("hello"),
                    answer.to_owned(),
                    user("CRITICAL: Respond with TEXT ONLY. Do NOT call any tools."),
                ],
                Some(Compaction::Asked),
            ),
            (
                vec![
                    user("hello"),
                    answer.to_owned(),
                    user("You are performing a CONTEXT CHECKPOINT COMPACTION. Create"),
                ],
                Some(Compaction::Asked),
            ),
            (
                vec![
                    user("hello"),
                    answer.to_owned(),
                    user("First, reason in your scratchpad. Then, generate the <state_snapshot>."),
                ],
                Some(Compaction::Asked),
            ),
            (
                vec![
                    user("hello"),
                    answer.to_owned(),
                    user("Provide a detailed prompt for continuing our conversation above.\nFocus"),
                ],
                Some(Compaction::Asked),
            ),
            (
                vec![
                    user(
                        "This session is being continued from a previous conversation that ran out of context.",
                    ),
                    answer.to_owned(),
                    user("go on"),
                ],
                Some(Compaction::Continued),
            ),
            (
                vec![
                    user("rules"),
                    user(
                        "Another language model started to solve this problem and produced a summary of its thinking",
                    ),
                    answer.to_owned(),
                ],
                Some(Compaction::Continued),
            ),
            (
                vec![user("<state_snapshot>\n<overall_goal>x"), answer.to_owned(), user("go on")],
                Some(Compaction::Continued),
            ),
            (
                vec![user("What did we do so far?"), answer.to_owned(), user("go on")],
                Some(Compaction::Continued),
            ),
            // A mere announcement of compaction is not one.
            (vec![user("The history may be summarized to free up context."), answer.to_owned()], None),
            // A phrase that is quoted deep inside of something, or said by the model, means nothing.
            (vec![user(&format!("{far}CONTEXT CHECKPOINT COMPACTION{far}"))], None),
            (vec![user("hello"), answer.replace("well", "anchored summary")], None),
            (
                vec![
                    user("a"),
                    answer.to_owned(),
                    user("This session is being continued from a previous conversation"),
                ],
                None,
            ),
        ] {
            let body = format!(r#"{{"messages":[{}]}}"#, messages.join(","));
            let protocol = protocol::named("openai-chat").unwrap();
            let conversation = protocol.index(&Bytes::from(body.clone()), &NoMemo).unwrap();
            assert_eq!(of(&conversation), expected, "{body}");
        }
    }

    #[test]
    fn all_phrases_are_found() {
        let far = "anchor <state ".repeat(30);
        for (words, finder) in [(ASKED, &ASKS), (CONTINUED, &CONTINUES)] {
            for word in words {
                for text in [(*word).to_owned(), format!("{far}{word}"), format!("{word}{far}")] {
                    assert!(finder.is_match(&text), "{text}");
                    assert!(!finder.is_match(&text.replace(word, &word[1..])), "{text}");
                }
            }
        }
        for word in BEFORE_FORM.iter().flat_map(|word| [(*word).to_owned(), word.to_uppercase()]) {
            assert_eq!(
                of(&history(&format!("See {FORM}. {word}{FORM}."), true)),
                Some(Compaction::Asked),
                "{word}"
            );
            assert_eq!(of(&history(&format!("{}{FORM}.", &word[1..]), true)), None, "{word}");
        }
    }

    #[test]
    fn compaction_requests_to_providers_are_recognised() {
        let talk = r#"{"role":"user","content":"a"},{"role":"assistant","content":"b"}"#;
        for (dialect, body, expected) in [
            (
                "openai-responses",
                format!(r#"{{"input":[{talk},{{"type":"compaction_trigger"}}]}}"#),
                Some(Compaction::Asked),
            ),
            (
                "openai-responses",
                format!(
                    r#"{{"input":[{talk},{{"type":"compaction_trigger"}},{{"role":"user","content":"c"}}]}}"#
                ),
                None,
            ),
            (
                "openai-responses",
                format!(r#"{{"input":[{talk},{{"role":"user","content":"\"compaction_trigger\""}}]}}"#),
                None,
            ),
            ("openai-responses", r#"{"input":"compaction_trigger"}"#.to_owned(), None),
            (
                "anthropic",
                format!(r#"{{"messages":[{talk}],"compaction":{{"type":"summarize"}}}}"#),
                Some(Compaction::Asked),
            ),
            ("anthropic", format!(r#"{{"messages":[{talk}],"compaction":{{"type":"other"}}}}"#), None),
            ("anthropic", format!(r#"{{"messages":[{talk}],"compaction":null}}"#), None),
        ] {
            let protocol = protocol::named(dialect).unwrap();
            let conversation = protocol.index(&Bytes::from(body.clone()), &NoMemo).unwrap();
            assert_eq!(of(&conversation), expected, "{body}");
        }
    }

    #[test]
    fn clients_that_compact_are_recognised() {
        for client in
            ["claude-cli/2.1.197", "codex_cli_rs/0.50", "opencode/1.0", "SomeCLI/0.56", "qwen-code/1"]
        {
            assert!(is_done_by(client), "{client}");
        }
        for client in ["", "OpenAI/Python", "Anthropic/JS", "mini-swe-agent/1", "curl/8", "http-client/1"] {
            assert!(!is_done_by(client), "{client}");
        }
    }
}
