//! Models whose reasoning is bound to what stands before it.

/// Beginnings of their names, without what a reseller puts before them.
const BOUND: &[&str] = &[
    "claude-fable-5-1",
    "claude-fable-5-2",
    "claude-opus-5-5",
    "claude-sonnet-5-5",
    "claude-haiku-5-5",
    "claude-mythos-5-1",
    "claude-mythos-5-2",
    "gpt-6.2",
];

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
    let name = name.find("claude-").map_or(name.as_str(), |at| &name[at..]).replace("5.", "5-");
    BOUND.iter().any(|bound| name.starts_with(bound)) || is_newer(&name)
}

/// Claude 6 and later, GPT 6.3 and later.
fn is_newer(name: &str) -> bool {
    let number = |text: &str| -> Option<u32> {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        text[..end].parse().ok()
    };
    if let Some(rest) = name.strip_prefix("gpt-") {
        let minor = rest.split_once('.').and_then(|(_, minor)| number(minor)).unwrap_or(0);
        return number(rest).is_some_and(|major| major > 6 && major < 100 || major == 6 && minor > 2);
    }
    let Some(rest) = name.strip_prefix("claude-") else { return false };
    let version = rest.split('-').nth(1).and_then(number);
    version.is_some_and(|major| (6..100).contains(&major))
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
            ("claude-opus-6", true),
            ("gpt-6.2", true),
            ("gpt-6.2-codex", true),
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
