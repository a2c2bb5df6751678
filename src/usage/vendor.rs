//! Who sells a model.
//!
//! The same model has different names and prices at different sellers; an upstream's host tells which one is
//! billing.

use serde::{Deserialize, Serialize};

/// A seller of model access with a section in the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Vendor {
    /// Anthropic's API.
    Anthropic,
    /// `OpenAI`'s API.
    OpenAi,
    /// Google's Gemini API.
    Gemini,
    /// `DeepSeek`'s API.
    DeepSeek,
    /// `xAI`'s API.
    Xai,
    /// Mistral's API.
    Mistral,
    /// Google Vertex AI.
    Vertex,
    /// Amazon Bedrock.
    Bedrock,
    /// Groq.
    Groq,
    /// `OpenRouter`.
    OpenRouter,
}

impl Vendor {
    /// Those who sell their own models; their names need no prefix.
    pub(super) const MAKERS: [Self; 6] =
        [Self::Anthropic, Self::OpenAi, Self::Gemini, Self::DeepSeek, Self::Xai, Self::Mistral];
    /// Those who sell the models of others.
    pub(super) const RESELLERS: [Self; 4] = [Self::Vertex, Self::Bedrock, Self::Groq, Self::OpenRouter];

    /// All of them, in their order.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        Self::MAKERS.into_iter().chain(Self::RESELLERS)
    }

    /// The vendor behind an API host, such as `api.anthropic.com`.
    pub fn of_host(host: &str) -> Option<Self> {
        let host = host.strip_suffix('.').unwrap_or(host);
        let within = |domain: &str| {
            let parts = host.len().checked_sub(domain.len()).and_then(|at| host.split_at_checked(at));
            parts.is_some_and(|(rest, end)| {
                end.eq_ignore_ascii_case(domain) && (rest.is_empty() || rest.ends_with(['.', '-']))
            })
        };
        let known = [
            ("anthropic.com", Self::Anthropic),
            ("openai.com", Self::OpenAi),
            ("chatgpt.com", Self::OpenAi),
            ("generativelanguage.googleapis.com", Self::Gemini),
            ("cloudcode-pa.googleapis.com", Self::Gemini),
            ("aiplatform.googleapis.com", Self::Vertex),
            ("deepseek.com", Self::DeepSeek),
            ("x.ai", Self::Xai),
            ("mistral.ai", Self::Mistral),
            ("groq.com", Self::Groq),
            ("openrouter.ai", Self::OpenRouter),
        ];
        let listed = known.into_iter().find(|(domain, _)| within(domain)).map(|(_, vendor)| vendor);
        listed.or_else(|| {
            let bedrock = within("amazonaws.com")
                && host.get(..7).is_some_and(|start| start.eq_ignore_ascii_case("bedrock"));
            bedrock.then_some(Self::Bedrock)
        })
    }

    /// Its name, as it precedes the names of models.
    pub fn as_str(self) -> &'static str {
        self.prefixes()[0]
    }

    /// Whether it always refuses a prompt that is too long with an error of its own, and does not charge for it. Some
    /// others shorten the prompt, pass on the errors of other providers, or fail in another way, as Google's servers do
    /// at times.
    pub const fn refuses_what_is_too_long(self) -> bool {
        !matches!(self, Self::Groq | Self::OpenRouter | Self::Gemini | Self::Vertex)
    }

    /// Whether it passes cache marks on to the provider of a model, even in a dialect that has no marks.
    pub fn passes_marks(self, model: &str) -> bool {
        let maker = model.strip_prefix('~').unwrap_or(model).split_once('/').map(|(maker, _)| maker);
        self == Self::OpenRouter && maker == Some("anthropic")
    }

    /// Whether it publishes no weights of this model of its own, so that all resellers pass its price on. This includes
    /// names that only its own API has.
    pub(super) fn sells_alone(self, model: &str) -> bool {
        /// Parts of the names of Mistral's models without published weights.
        const CLOSED: [&str; 4] = ["-medium", "mistral-code", "codestral", "mistral-vibe"];
        match self {
            Self::Anthropic | Self::Xai => true,
            Self::OpenAi => !model.starts_with("gpt-oss"),
            Self::Gemini => !model.contains("gemma"),
            Self::Mistral => CLOSED.iter().any(|name| model.contains(name)),
            Self::DeepSeek => matches!(model, "deepseek-chat" | "deepseek-reasoner"),
            _ => false,
        }
    }

    /// The vendor that a prefix of a model name denotes, as in `anthropic/claude-opus-5`.
    pub(super) fn of_prefix(prefix: &str) -> Option<Self> {
        Self::all().find(|vendor| vendor.prefixes().contains(&prefix))
    }

    /// The prefixes of model names that denote it.
    pub(super) fn prefixes(self) -> &'static [&'static str] {
        match self {
            Self::Anthropic => &["anthropic"],
            Self::OpenAi => &["openai"],
            Self::Gemini => &["gemini", "google"],
            Self::DeepSeek => &["deepseek"],
            Self::Xai => &["xai", "x-ai"],
            Self::Mistral => &["mistral", "mistralai"],
            Self::Vertex => &["vertex", "vertex_ai"],
            Self::Bedrock => &["bedrock"],
            Self::Groq => &["groq"],
            Self::OpenRouter => &["openrouter"],
        }
    }
}

/// The region in a path of Google's APIs: `…/locations/REGION/…`. `None` if there is none, or if it is `global`.
pub(super) fn region_of_path(path: &str) -> Option<&str> {
    let (_, rest) = path.split_once("/locations/")?;
    let (region, _) = rest.split_once('/')?;
    (!region.is_empty() && region != "global").then_some(region)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_region_is_read_from_a_path() {
        for (path, expected) in [
            ("/v1/projects/p/locations/us-east5/publishers/anthropic/models/m:rawPredict", Some("us-east5")),
            ("/v1/projects/p/locations/us/publishers/anthropic/models/m:rawPredict", Some("us")),
            ("/v1/projects/p/locations/global/publishers/anthropic/models/m:rawPredict", None),
            ("/v1/projects/p/locations/us-east5", None),
            ("/v1/projects/p/locations//publishers", None),
            ("/v1/messages", None),
        ] {
            assert_eq!(region_of_path(path), expected, "{path}");
        }
    }

    #[test]
    fn only_routers_pass_marks_on_to_claude() {
        for (vendor, model, expected) in [
            (Vendor::OpenRouter, "anthropic/claude-sonnet-4.5", true),
            (Vendor::OpenRouter, "anthropic/claude-3.7-sonnet:thinking", true),
            (Vendor::OpenRouter, "~anthropic/claude-sonnet-latest", true),
            (Vendor::OpenRouter, "google/gemini-3-pro", false),
            (Vendor::OpenRouter, "claude-sonnet-4.5", false),
            (Vendor::OpenRouter, "someone/anthropic/claude", false),
            (Vendor::OpenRouter, "openrouter/auto", false),
            (Vendor::OpenAi, "anthropic/claude-sonnet-4.5", false),
            (Vendor::Groq, "anthropic/claude-sonnet-4.5", false),
        ] {
            assert_eq!(vendor.passes_marks(model), expected, "{vendor:?} {model}");
        }
    }

    #[test]
    fn vendors_are_recognised_by_host() {
        for (host, expected) in [
            ("api.anthropic.com", Some(Vendor::Anthropic)),
            ("API.OpenAI.com.", Some(Vendor::OpenAi)),
            ("generativelanguage.googleapis.com", Some(Vendor::Gemini)),
            ("us-east5-aiplatform.googleapis.com", Some(Vendor::Vertex)),
            ("bedrock-runtime.us-east-1.amazonaws.com", Some(Vendor::Bedrock)),
            ("s3.us-east-1.amazonaws.com", None),
            ("api.x.ai", Some(Vendor::Xai)),
            ("proxy.ai", None),
            ("max.ai", None),
            ("openrouter.ai", Some(Vendor::OpenRouter)),
            ("notopenai.com", None),
            ("cloudcode-pa.googleapis.com", Some(Vendor::Gemini)),
            ("localhost", None),
            ("", None),
        ] {
            assert_eq!(Vendor::of_host(host), expected, "{host}");
        }
    }
}
