//! What is known of models by their family and version: whether a reasoning block depends on the exact prompt before
//! it, whether reasoning of earlier turns is read again, whether instructions are read before or after the history, and
//! whether a prompt must leave room for the longest answer.

use std::borrow::Cow;
use std::iter::Peekable;

use memchr::memmem;

/// The version from which on the reasoning of each of Claude's families depends on the prompt before it.
const CLAUDE_BINDS_FROM: &[(&str, Version)] =
    &[("fable", (5, 1)), ("mythos", (5, 1)), ("opus", (5, 5)), ("sonnet", (5, 5)), ("haiku", (5, 5))];
/// The same for families of Claude that are not listed.
const CLAUDE_OTHER_BINDS_FROM: Version = (6, 0);
/// The same for GPT.
const GPT_BINDS_FROM: Version = (6, 2);

/// The version from which on GPT reads instructions in a member of their own after the history.
const GPT_READS_LAST_FROM: Version = (6, 2);

/// The version from which on each of Claude's families reads the reasoning of earlier turns again. Older versions leave
/// it out of the prompt, and it is not billed.
const CLAUDE_READS_FROM: &[(&str, Version)] = &[("opus", (4, 5)), ("sonnet", (4, 6)), ("haiku", (4, 6))];
/// The same for all other families of Claude.
const CLAUDE_OTHER_READS_FROM: Version = (5, 0);

/// The version from which on all of Claude's families take a prompt that leaves less room in the window than the answer
/// may have, and end the answer where the window ends.
const CLAUDE_OVERRUNS_FROM: Version = (4, 5);

/// What the names of all of Claude's models contain.
const CLAUDE: &str = "claude-";

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

/// What is known of a model by its name. Newer models of a known family are assumed to be like the newest known one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Habits {
    /// What the provider does with a reasoning block if something before it has changed; `None`: nothing.
    pub binding: Option<Binding>,
    /// Whether the reasoning of earlier turns is read again, and paid for, with every request that carries it, and
    /// whether the provider lets clients leave out all of it up to some turn.
    pub reads_old_reasoning: bool,
    /// Whether a prompt is refused if it leaves less room in the window than the answer may have. Newer Claudes end the
    /// answer where the window ends, and Gemini has a separate limit for answers.
    pub counts_output: bool,
}

/// Whether it is a Claude, whoever sells it.
pub fn is_claude(model: &str) -> bool {
    in_lower_case(model).contains(CLAUDE)
}

/// Whether it is a Gemini, whoever sells it.
pub fn is_gemini(model: &str) -> bool {
    in_lower_case(model).contains("gemini-")
}

/// What the model's provider does with a reasoning block if something before it has changed; as in
/// [`Habits::binding`].
pub fn binding(model: &str) -> Option<Binding> {
    Habits::of(model).binding
}

/// Whether the reasoning of earlier turns is read again; as in [`Habits::reads_old_reasoning`].
pub fn reads_old_reasoning(model: &str) -> bool {
    Habits::of(model).reads_old_reasoning
}

/// Whether the provider leaves the reasoning of earlier turns out of the prompt, and does not bill it.
pub fn drops_old_reasoning(model: &str) -> bool {
    Claude::of(&own_name(model)).is_some_and(|claude| !claude.reads_old_reasoning())
}

/// Whether a model reads instructions in a member of their own after the history. They are then paid in full with each
/// request, as nothing after a growing history is read from the cache.
pub fn reads_instructions_last(model: &str) -> bool {
    gpt_is(&own_name(model), GPT_READS_LAST_FROM)
}

impl Habits {
    /// Those of the model with this name.
    pub fn of(model: &str) -> Self {
        let name = own_name(model);
        let claude = Claude::of(&name);
        let binds = match &claude {
            Some(claude) => claude.is(CLAUDE_BINDS_FROM, CLAUDE_OTHER_BINDS_FROM),
            None => gpt_is(&name, GPT_BINDS_FROM),
        };
        let overruns = claude.as_ref().is_some_and(|claude| claude.is(&[], CLAUDE_OVERRUNS_FROM));
        Self {
            binding: binds.then(|| if is_claude(model) { Binding::Refused } else { Binding::Dropped }),
            reads_old_reasoning: claude.is_some_and(|claude| claude.reads_old_reasoning()),
            counts_output: !overruns && !is_gemini(model),
        }
    }
}

/// A model's name without the name of its seller, in lower case.
fn own_name(model: &str) -> Cow<'_, str> {
    in_lower_case(model.rsplit_once('/').map_or(model, |(_, name)| name))
}

/// A name in lower case, as nearly all are written.
fn in_lower_case(name: &str) -> Cow<'_, str> {
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        Cow::Borrowed(name)
    }
}

/// Whether a name is that of a GPT of at least this version.
fn gpt_is(name: &str, least: Version) -> bool {
    let version = name.strip_prefix("gpt-").and_then(|rest| version(&mut rest.split('.').peekable()));
    version.is_some_and(|version| version >= least)
}

/// A Claude by its name.
struct Claude<'n> {
    family: &'n str,
    version: Option<Version>,
}

impl<'n> Claude<'n> {
    /// The Claude with this name, in lower case. `claude-` is followed by family and version; in older names, and with
    /// some sellers, the version comes first.
    fn of(name: &'n str) -> Option<Self> {
        let behind = &name[memmem::find(name.as_bytes(), CLAUDE.as_bytes())? + CLAUDE.len()..];
        let mut words = behind.split(['-', '.', '@']).peekable();
        let first = version(&mut words);
        let family = words.next().unwrap_or_default();
        Some(Self { family, version: first.or_else(|| version(&mut words)) })
    }

    /// Whether it is of at least the version listed for its family, or of at least `other` if its family is not listed.
    fn is(&self, families: &[(&str, Version)], other: Version) -> bool {
        let least = families.iter().find(|(known, _)| *known == self.family);
        let least = least.map_or(other, |(_, least)| *least);
        self.version.is_some_and(|version| version >= least)
    }

    fn reads_old_reasoning(&self) -> bool {
        self.is(CLAUDE_READS_FROM, CLAUDE_OTHER_READS_FROM)
    }
}

/// The version that these words begin with. A date is not a version.
fn version<'a>(words: &mut Peekable<impl Iterator<Item = &'a str>>) -> Option<Version> {
    let mut next = || {
        let number = number(words.peek()?)?;
        words.next();
        Some(number)
    };
    let major = next()?;
    Some((major, next().unwrap_or(0)))
}

/// The number that a word begins with, unless letters follow it.
fn number(word: &str) -> Option<u32> {
    let digits = word.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = word.split_at(digits);
    let is_word = rest.starts_with(|c: char| c.is_alphanumeric());
    digits.parse().ok().filter(|number| *number < 100 && !is_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_that_bind_reasoning_are_known_by_name() {
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
            assert_eq!(binding(model).is_some(), bound, "{model}");
        }
    }

    #[test]
    fn models_that_read_instructions_last_are_known_by_name() {
        for (model, last) in [
            ("gpt-6.2-sol", true),
            ("openai/GPT-6.2", true),
            ("gpt-7", true),
            ("gpt-6.1-sol", false),
            ("gpt-5.5", false),
            ("claude-opus-6", false),
            ("", false),
        ] {
            assert_eq!(reads_instructions_last(model), last, "{model}");
        }
    }

    #[test]
    fn models_whose_output_counts_towards_the_window_are_known_by_name() {
        for (model, counts) in [
            ("claude-sonnet-4-5-20250929", false),
            ("claude-haiku-4-5", false),
            ("us.anthropic.claude-opus-4-5-20251101-v1:0", false),
            ("anthropic--claude-4.5-sonnet", false),
            ("claude-fable-5", false),
            ("claude-opus-4-1-20250805", true),
            ("claude-sonnet-4-20250514", true),
            ("claude-3-7-sonnet-20250219", true),
            ("gemini-2.5-pro", false),
            ("google/gemini-3-flash", false),
            ("gpt-4o", true),
            ("qwen3-coder", true),
            ("", true),
        ] {
            assert_eq!(Habits::of(model).counts_output, counts, "{model}");
        }
    }

    #[test]
    fn models_that_read_old_reasoning_are_known_by_name() {
        for (model, reads) in [
            ("claude-opus-4-1-20250805", false),
            ("claude-opus-4-5-20251101", true),
            ("anthropic/claude-opus-4.8", true),
            ("us.anthropic.claude-opus-5-5-v1:0", true),
            ("claude-sonnet-4-5-20250929", false),
            ("claude-sonnet-4-20250514", false),
            ("claude-sonnet-4-6", true),
            ("claude-haiku-4-5-20251001", false),
            ("claude-haiku-5-5", true),
            ("claude-3-7-sonnet-20250219", false),
            ("anthropic--claude-4.5-opus", true),
            ("claude-fable-5", true),
            ("claude-mythos-5-1", true),
            ("claude-saga-4", false),
            ("gpt-6.2", false),
            ("deepseek-v4", false),
            ("kimi-k3", false),
            ("", false),
        ] {
            assert_eq!(reads_old_reasoning(model), reads, "{model}");
            let drops = model.contains("claude") && !reads;
            assert_eq!(drops_old_reasoning(model), drops, "{model}");
        }
    }
}
