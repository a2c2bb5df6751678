//! Models whose reasoning is bound to what stands before it.

use std::iter::Peekable;

/// From which version on Claude's families bind it.
const CLAUDE: &[(&str, Version)] =
    &[("fable", (5, 1)), ("mythos", (5, 1)), ("opus", (5, 5)), ("sonnet", (5, 5)), ("haiku", (5, 5))];
/// The same of families that nobody knows.
const CLAUDE_OTHER: Version = (6, 0);
/// The same of GPT.
const GPT: Version = (6, 2);

/// Major and minor.
type Version = (u32, u32);

/// What happens to reasoning when something before it has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// The provider leaves it out.
    Dropped,
    /// The provider refuses the request.
    Refused,
}

/// What a change before a reasoning block makes the model's provider do; `None`: nothing.
/// Newer models of a known family are taken to be like the newest known.
pub fn binding(model: &str) -> Option<Binding> {
    let is_claude = model.to_ascii_lowercase().contains("claude-");
    binds_reasoning(model).then_some(if is_claude { Binding::Refused } else { Binding::Dropped })
}

fn binds_reasoning(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
    if let Some(at) = name.find("claude-") {
        return claude_binds(&name[at + "claude-".len()..]);
    }
    let version = name.strip_prefix("gpt-").and_then(|rest| version(&mut rest.split('.').peekable()));
    version.is_some_and(|version| version >= GPT)
}

/// What a name says behind `claude-`: family and version, or in older names, and with some sellers, the version first.
fn claude_binds(name: &str) -> bool {
    let mut words = name.split(['-', '.', '@']).peekable();
    let first = version(&mut words);
    let family = words.next().unwrap_or_default();
    let least = CLAUDE.iter().find(|(known, _)| *known == family).map_or(CLAUDE_OTHER, |(_, least)| *least);
    first.or_else(|| version(&mut words)).is_some_and(|version| version >= least)
}

/// The version that words begin with. A date is none.
fn version<'a>(words: &mut Peekable<impl Iterator<Item = &'a str>>) -> Option<Version> {
    let mut next = || words.next_if(|word| number(word).is_some()).and_then(number);
    let major = next()?;
    Some((major, next().unwrap_or(0)))
}

/// The number that a word begins with, unless it goes on as a word.
fn number(word: &str) -> Option<u32> {
    let (digits, rest) = word.split_at(word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len()));
    let is_word = rest.starts_with(|c: char| c.is_alphanumeric());
    digits.parse().ok().filter(|number| *number < 100 && !is_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_name() {
        for (model, bound) in [
            ("claude-sonnet-5-5", true),
            ("claude-sonnet-5-5-20260915", true),
            ("anthropic/claude-opus-5.5", true),
            ("us.anthropic.claude-fable-5-2-v1:0", true),
            ("claude-sonnet-5", false),
            ("claude-sonnet-4-5-20250929", false),
            ("claude-3-5-sonnet-20241022", false),
            ("claude-3-7-sonnet-20250219", false),
            ("claude-3-7-sonnet@20250219", false),
            ("us.anthropic.claude-3-7-sonnet-20250219-v1:0", false),
            ("claude-2.1", false),
            ("claude-instant-1.2", false),
            ("anthropic--claude-4.5-opus", false),
            ("anthropic--claude-5.5-opus", true),
            ("claude-fable-5", false),
            ("claude-fable-5-20260609", false),
            ("claude-fable-5@20260609", false),
            ("anthropic.claude-fable-5-v1:0", false),
            ("claude-fable-5-1", true),
            ("claude-fable-5-3", true),
            ("claude-mythos-preview", false),
            ("claude-mythos-5", false),
            ("claude-mythos-5-3", true),
            ("claude-opus-5", false),
            ("claude-opus-5@default", false),
            ("claude-opus-5-20260801", false),
            ("claude-opus-5-4", false),
            ("claude-opus-5-5[1m]", true),
            ("claude-opus-5-5@default", true),
            ("claude-opus-5-6", true),
            ("claude-opus-5.6", true),
            ("claude-opus-5-6-20261201", true),
            ("claude-opus-5-6@20261201", true),
            ("us.anthropic.claude-opus-5-6-v1:0", true),
            ("us.anthropic.claude-opus-5-6-20261201-v1:0", true),
            ("claude-haiku-5-10", true),
            ("claude-opus-6", true),
            ("claude-opus-6@20270301", true),
            ("claude-sonnet-6", true),
            ("claude-sonnet-6-20270301", true),
            ("claude-haiku-6-1", true),
            ("claude-saga-5", false),
            ("claude-saga-6", true),
            ("gpt-6.2", true),
            ("gpt-6.2-codex", true),
            ("openai/gpt-6.2-sol", true),
            ("gpt-6-sol", false),
            ("gpt-6.1", false),
            ("gpt-6.3", true),
            ("gpt-7", true),
            ("gpt-5.1-codex", false),
            ("gpt-4o", false),
            ("gpt-oss-120b", false),
            ("llama", false),
            ("", false),
        ] {
            assert_eq!(binds_reasoning(model), bound, "{model}");
        }
    }
}
