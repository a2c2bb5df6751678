//! The ways a model's name is written.
//!
//! Only decorations that cannot change the model are taken off: paths, dates of snapshots, `-latest`.
//! Whatever else differs is a different model.

use std::borrow::Cow;

/// The name with escaped colons and slashes decoded, since it may have been part of a URL's path.
pub(super) fn decoded(model: &str) -> Cow<'_, str> {
    let mut name = Cow::Borrowed(model);
    if !model.contains('%') {
        return name;
    }
    for (escape, character) in [("%3A", ":"), ("%3a", ":"), ("%2F", "/"), ("%2f", "/")] {
        if name.contains(escape) {
            name = Cow::Owned(name.replace(escape, character));
        }
    }
    name
}

/// The name without the path that an API puts before it (`models/`, a Vertex publisher, a Bedrock ARN).
pub(super) fn without_path(model: &str) -> &str {
    if let Some(name) = model.strip_prefix("models/") {
        return name;
    }
    if is_of_vertex(model) {
        return model.rsplit_once("/models/").map_or(model, |(_, name)| name);
    }
    if model.starts_with("arn:aws") {
        let resources = [":inference-profile/", ":foundation-model/"];
        return resources.iter().find_map(|kind| model.split_once(kind)).map_or(model, |(_, name)| name);
    }
    model.strip_prefix("bedrock/converse/").unwrap_or(model)
}

/// Whether the name has a path that only Vertex writes.
pub(super) fn is_of_vertex(model: &str) -> bool {
    model.starts_with("publishers/") || model.starts_with("projects/")
}

/// Suffixes of names at OpenRouter that choose among the sellers of a model, and change nothing else.
const CHOICES: [&str; 3] = [":nitro", ":floor", ":exacto"];

/// A model's name without such a suffix; `None` if it has none, or if it does not name the model's maker, as
/// OpenRouter's names do.
pub(super) fn without_choice(model: &str) -> Option<&str> {
    let name = CHOICES.iter().find_map(|word| model.strip_suffix(word))?;
    name.contains('/').then_some(name)
}

/// Whether OpenRouter offers the model for nothing. `routed`: OpenRouter sells it; otherwise its name must say so.
pub(super) fn is_free(model: &str, routed: bool) -> bool {
    model.ends_with(":free") && (routed || model.starts_with("openrouter/"))
}

/// The number that the name of a snapshot has after the name of its model; `None` if it has anything else there.
pub(super) fn number_behind<'n>(model: &str, name: &'n str) -> Option<&'n str> {
    let number = name.strip_prefix(model)?.strip_prefix('-')?;
    number.bytes().all(|byte| byte.is_ascii_digit()).then_some(number)
}

/// The name of a Claude with the version after the family, also if it precedes it: `claude-sonnet-4.5` for
/// `claude-4.5-sonnet`. `None` if it is not such a name; after the family, the version must have dots.
pub(super) fn family_first(name: &str) -> Option<String> {
    let rest = name.strip_prefix("claude-")?;
    match rest.split_once('-') {
        Some((version, family)) if version.starts_with(|first: char| first.is_ascii_digit()) => {
            let is_family = family.bytes().all(|byte| byte.is_ascii_lowercase());
            is_family.then(|| format!("claude-{family}-{version}"))
        }
        Some(_) if rest.contains('.') => Some(name.to_owned()),
        _ => None,
    }
}

/// The name as it is, then with one decoration less at a time.
pub(super) fn forms(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name), |form| stripped(form))
}

/// The name with one decoration less; `None` if it has none.
fn stripped(name: &str) -> Option<&str> {
    if let Some(tuned) = name.strip_prefix("ft:") {
        // `ft:BASE:ORGANISATION:NAME:ID` is billed as `ft:BASE`, never as `BASE`.
        return tuned.find(':').map(|end| &name[.."ft:".len() + end]);
    }
    let rest = without_version(name)
        .or_else(|| without_date(name))
        .or_else(|| name.strip_suffix("@default"))
        .or_else(|| name.strip_suffix("-latest"));
    rest.filter(|rest| !rest.is_empty())
}

/// Whether a model costs more in a seller's regions than at its global endpoint: Claude from version 4.5 on.
pub(super) fn is_dearer_in_regions(name: &str) -> bool {
    // Up to the third generation, the number came before the family.
    let named = name.strip_prefix("claude-").and_then(|rest| rest.split_once('-'));
    let Some((_, version)) = named.filter(|(family, _)| family.parse::<u32>().is_err()) else {
        return false;
    };
    let version = version.split('@').next().unwrap_or_default();
    let mut numbers = version.split('-').map(|number| number.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), minor) => (major, minor.unwrap_or(0)) >= (4, 5),
        (None, _) => false,
    }
}

/// Without Bedrock's `-v1:0`.
fn without_version(name: &str) -> Option<&str> {
    let (name, minor) = name.rsplit_once(':')?;
    let (rest, major) = name.rsplit_once("-v")?;
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (number(major) && number(minor)).then_some(rest)
}

/// Without the date of a snapshot: `-20251001`, `@20251001`, `-2025-10-01`.
fn without_date(name: &str) -> Option<&str> {
    let dashed = name.len().checked_sub("-2025-10-01".len()).and_then(|at| name.split_at_checked(at));
    if let Some((rest, date)) = dashed
        && let [b'-', y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = *date.as_bytes()
        && is_date([y1, y2, y3, y4, m1, m2, d1, d2])
    {
        return Some(rest);
    }
    let (rest, date) = name.len().checked_sub("-20251001".len()).and_then(|at| name.split_at_checked(at))?;
    match *date.as_bytes() {
        [b'-' | b'@', y1, y2, y3, y4, m1, m2, d1, d2] => {
            is_date([y1, y2, y3, y4, m1, m2, d1, d2]).then_some(rest)
        }
        _ => None,
    }
}

/// Whether `YYYYMMDD` is a day of this century.
fn is_date(digits: [u8; 8]) -> bool {
    let two = |high: u8, low: u8| (high.wrapping_sub(b'0')) * 10 + low.wrapping_sub(b'0');
    let [y1, y2, _, _, m1, m2, d1, d2] = digits;
    digits.iter().all(u8::is_ascii_digit)
        && [y1, y2] == *b"20"
        && (1..=12).contains(&two(m1, m2))
        && (1..=31).contains(&two(d1, d2))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn path_prefixes_are_stripped() {
        for (model, expected) in [
            ("claude-opus-5", "claude-opus-5"),
            ("models/gemini-2.5-pro", "gemini-2.5-pro"),
            ("publishers/anthropic/models/claude-opus-5@default", "claude-opus-5@default"),
            ("projects/p/locations/l/publishers/google/models/gemini-2.5-pro", "gemini-2.5-pro"),
            (
                "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-opus-5",
                "us.anthropic.claude-opus-5",
            ),
            (
                "arn:aws:bedrock:us-east-1::foundation-model/anthropic.claude-opus-5",
                "anthropic.claude-opus-5",
            ),
            ("bedrock/converse/anthropic.claude-opus-5", "anthropic.claude-opus-5"),
            ("bedrock/anthropic.claude-opus-5", "bedrock/anthropic.claude-opus-5"),
            // Another seller's path is part of the name.
            ("accounts/fireworks/models/deepseek-v3", "accounts/fireworks/models/deepseek-v3"),
            ("converse/x", "converse/x"),
        ] {
            assert_eq!(without_path(model), expected);
        }
    }

    #[test]
    fn regional_surcharges_apply_from_claude_4_5_on() {
        for (name, expected) in [
            ("claude-sonnet-4-5@20250929", true),
            ("claude-haiku-4-5", true),
            ("claude-opus-4-6@default", true),
            ("claude-opus-5", true),
            ("claude-fable-5-1@default", true),
            ("claude-sonnet-4@20250514", false),
            ("claude-sonnet-4", false),
            ("claude-opus-4-1@20250805", false),
            ("claude-3-5-sonnet@20240620", false),
            ("claude-3-haiku", false),
            ("claude-", false),
            ("gemini-3-pro", false),
        ] {
            assert_eq!(is_dearer_in_regions(name), expected, "{name}");
        }
    }

    #[test]
    fn names_of_routers_are_normalised() {
        for (name, expected) in [
            ("openai/gpt-5:nitro", Some("openai/gpt-5")),
            ("openai/gpt-5:floor", Some("openai/gpt-5")),
            ("openrouter/openai/gpt-5:exacto", Some("openrouter/openai/gpt-5")),
            // `online` is billed for searches too, other variants are other models, and tags mean something else.
            ("openai/gpt-5:online", None),
            ("openai/gpt-5:free", None),
            ("openai/gpt-5:extended", None),
            ("qwen3:nitro", None),
            ("openai/gpt-5", None),
        ] {
            assert_eq!(without_choice(name), expected, "{name}");
        }
        for (name, expected) in [
            ("claude-4.5-sonnet", Some("claude-sonnet-4.5")),
            ("claude-4-opus", Some("claude-opus-4")),
            ("claude-opus-5.5", Some("claude-opus-5.5")),
            ("claude-opus-5-5", None),
            ("claude-3-5-haiku", None),
            ("claude-4.5-sonnet:thinking", None),
            ("claude-sonnet", None),
            ("gpt-5.5", None),
        ] {
            assert_eq!(family_first(name).as_deref(), expected, "{name}");
        }
        for (model, name, expected) in [
            ("m/k2.5", "m/k2.5-0127", Some("0127")),
            ("m/k2.5", "m/k2.5-20260127", Some("20260127")),
            ("m/k2.5", "m/k2.5", None),
            ("m/k2.5", "m/k2.5-thinking", None),
            ("m/k2.5", "m/k2.5-2026-01-27", None),
            ("m/k2.5", "m/k2.50127", None),
            ("m/k2.5", "m/k2", None),
        ] {
            assert_eq!(number_behind(model, name), expected, "{model} {name}");
        }
    }

    #[test]
    fn name_suffixes_are_stripped_one_by_one() {
        for (name, expected) in [
            ("gpt-5.5", &["gpt-5.5"][..]),
            ("gpt-5.5-2026-04-23", &["gpt-5.5-2026-04-23", "gpt-5.5"]),
            ("claude-opus-5-20260801", &["claude-opus-5-20260801", "claude-opus-5"]),
            ("claude-opus-5@20260801", &["claude-opus-5@20260801", "claude-opus-5"]),
            ("claude-opus-5@default", &["claude-opus-5@default", "claude-opus-5"]),
            ("gpt-4o-latest", &["gpt-4o-latest", "gpt-4o"]),
            (
                "us.anthropic.claude-opus-5-20260801-v1:0",
                &[
                    "us.anthropic.claude-opus-5-20260801-v1:0",
                    "us.anthropic.claude-opus-5-20260801",
                    "us.anthropic.claude-opus-5",
                ],
            ),
            ("ft:gpt-4o-2024-08-06:org::id", &["ft:gpt-4o-2024-08-06:org::id", "ft:gpt-4o-2024-08-06"]),
            ("ft:gpt-4o-2024-08-06", &["ft:gpt-4o-2024-08-06"]),
            // No days: sizes, builds, other suffixes.
            ("gpt-4-0613", &["gpt-4-0613"]),
            ("x-20251301", &["x-20251301"]),
            ("x-20250100", &["x-20250100"]),
            ("x-2025-1-001", &["x-2025-1-001"]),
            ("x-19991231", &["x-19991231"]),
            ("x-v2", &["x-v2"]),
            ("x-v2-v1:0", &["x-v2-v1:0", "x-v2"]),
            ("x-v1:0:0", &["x-v1:0:0"]),
            ("x:0-v1", &["x:0-v1"]),
            ("x:free", &["x:free"]),
            ("-20251001", &["-20251001"]),
            ("é20251001", &["é20251001"]),
            ("", &[""]),
        ] {
            assert_eq!(forms(name).collect::<Vec<_>>(), expected);
        }
    }

    proptest! {
        #[test]
        fn every_name_has_finitely_many_forms(name in ".{0,60}") {
            prop_assert!(forms(without_path(&name)).count() < 100);
        }
    }
}
