//! `[profile.NAME]`: settings for some conversations, by who sends the request and what it is for.
//!
//! The first profile of the file that matches applies. A profile without any condition is a mistake.

use glob::PatternError;
use http::{HeaderMap, HeaderName};
use toml::de::DeValue;

use super::section::Section;
use super::tuning::{Context, Layer, Tuning};
use super::upstream::Protocol;
use super::value::{Fault, FromValue, bad_pattern};
use super::{Preset, Upstreams};
use crate::shape::settings::NamePatterns;

/// Settings for some conversations.
#[derive(Debug, Clone)]
pub struct Profile {
    /// Its name in the file.
    pub name: String,
    /// Which requests it applies to.
    pub matcher: Matcher,
    /// The preset that its settings are based on; `None` for the file's settings.
    pub preset: Option<Preset>,
    /// Its settings.
    pub tuning: Tuning,
}

/// Which requests a profile applies to: those that meet all the given conditions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Matcher {
    client: Option<NamePatterns>,
    model: Option<NamePatterns>,
    upstream: Option<NamePatterns>,
    protocol: Option<NamePatterns>,
    headers: Vec<(HeaderName, NamePatterns)>,
}

/// The properties of a request that profiles can match.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The client program, as it names itself in the first word of `user-agent`.
    pub client: Option<&'a str>,
    /// The model that is asked for.
    pub model: Option<&'a str>,
    /// The name of the upstream.
    pub upstream: &'a str,
    /// The name of the protocol.
    pub protocol: &'a str,
    /// Its headers.
    pub headers: &'a HeaderMap,
}

impl Matcher {
    /// Whether `request` meets all conditions.
    pub fn matches(&self, request: &Request<'_>) -> bool {
        let is = |patterns: &Option<NamePatterns>, value: Option<&str>| {
            patterns.as_ref().is_none_or(|patterns| value.is_some_and(|value| patterns.matches(value)))
        };
        let has = |(name, patterns): &(HeaderName, NamePatterns)| {
            let mut values = request.headers.get_all(name).iter();
            values.any(|value| value.to_str().is_ok_and(|value| patterns.matches(value)))
        };
        is(&self.client, request.client)
            && is(&self.model, request.model)
            && is(&self.upstream, Some(request.upstream))
            && is(&self.protocol, Some(request.protocol))
            && self.headers.iter().all(has)
    }

    /// Whether it names an upstream and not another one.
    pub(super) fn is_for_upstream(&self, name: &str, other: &str) -> bool {
        self.upstream.as_ref().is_some_and(|patterns| patterns.matches(name) && !patterns.matches(other))
    }
}

/// Reads the profiles of a file. A key that a profile leaves out has the value of the preset that it names, or else of
/// the file.
pub(super) fn read(root: &mut Section<'_, '_>, file: &Layer, context: Context<'_>) -> Vec<Profile> {
    let mut seen: Vec<(String, Matcher)> = Vec::new();
    root.entries("profile", "NAME", |name, section| {
        if let Some(message) = missing_name(name, section) {
            section.problem_here_with_hint(message, "write `[profile.NAME]`, with a name of your own");
            if name == "match" {
                // Only so that its keys are known and not reported as well.
                matcher(section, context.upstreams);
            }
        } else {
            section.require("match", "missing; a profile needs to know which requests it is for");
        }
        let matcher = section.section("match", |section| matcher(section, context.upstreams));
        if let Some((first, _)) = seen.iter().find(|(_, known)| *known == matcher)
            && matcher != Matcher::default()
        {
            let message =
                format!("never applies: `profile.{first}` is for the same requests, and comes before it");
            section.problem("match", message);
        }
        seen.push((name.to_owned(), matcher.clone()));
        let preset = section.optional::<Preset>("preset");
        let base = preset.map(|preset| {
            let (mut layer, _) =
                preset.layer(section.environment(), Context { is_profile: false, ..context });
            layer.tuning.summarize.take_writer_and_limits(&file.tuning.summarize);
            layer
        });
        let Layer { tuning, .. } = Layer::read(section, base.as_ref().unwrap_or(file), context);
        Profile { name: name.to_owned(), matcher, preset, tuning }
    })
}

/// The message if a section of a profile is where a profile's name should be.
fn missing_name(name: &str, section: &Section<'_, '_>) -> Option<&'static str> {
    let is_section = name == "match" || SECTIONS.contains(&name);
    (is_section && !section.has("match")).then_some("a profile needs a name, and this is one of its sections")
}

/// The sections of a profile, besides `match`.
const SECTIONS: [&str; 7] = ["shape", "truncate", "clear", "window", "ladder", "cache", "summarize"];

/// The keys of a matcher.
const CONDITIONS: [&str; 5] = ["client", "model", "upstream", "protocol", "header"];

fn matcher(section: &mut Section<'_, '_>, upstreams: &Upstreams) -> Matcher {
    let matcher = Matcher {
        client: condition(section, "client"),
        model: condition(section, "model"),
        upstream: condition(section, "upstream"),
        protocol: condition(section, "protocol"),
        headers: section.pairs("header", |name, value, _| header(name, value)).unwrap_or_default(),
    };
    // A condition that is invalid is reported already.
    let says =
        |key: &&'static str| if *key == "header" { section.has_any("header") } else { section.has(key) };
    if section.is_there() && !CONDITIONS.iter().any(says) {
        section.problem_here_with_hint(
            "no condition is given",
            format!("conditions are `{}`", CONDITIONS.join("`, `")),
        );
    }
    let names: Vec<&str> = upstreams.as_slice().iter().map(|upstream| &*upstream.name).collect();
    check_names(section, "upstream", matcher.upstream.as_ref(), &names);
    let protocols: Vec<&str> = Protocol::all().map(Protocol::as_str).collect();
    check_names(section, "protocol", matcher.protocol.as_ref(), &protocols);
    check_reachable(section, &matcher, upstreams);
    matcher
}

/// Reports that none of the matching upstreams takes any of the matching protocols, unless there are no such upstreams
/// or no such protocols at all.
fn check_reachable(section: &mut Section<'_, '_>, matcher: &Matcher, upstreams: &Upstreams) {
    let fits = |patterns: &Option<NamePatterns>, name: &str| {
        patterns.as_ref().is_none_or(|patterns| patterns.matches(name))
    };
    let upstreams: Vec<_> =
        upstreams.as_slice().iter().filter(|upstream| fits(&matcher.upstream, &upstream.name)).collect();
    let protocols: Vec<_> =
        Protocol::all().filter(|protocol| fits(&matcher.protocol, protocol.as_str())).collect();
    if upstreams.is_empty() || protocols.is_empty() {
        return;
    }
    if !upstreams.iter().any(|upstream| protocols.iter().any(|protocol| upstream.reads(*protocol))) {
        let key = if matcher.protocol.is_some() { "protocol" } else { "upstream" };
        let names: Vec<&str> = upstreams.iter().map(|upstream| &*upstream.name).collect();
        let message =
            format!("never applies: the gateway reads no such requests to `{}`", names.join("`, `"));
        section.problem_with_hint(key, message, "`protocols` of an upstream lists what is read");
    }
}

/// Reports patterns that match none of the known names.
fn check_names(
    section: &mut Section<'_, '_>,
    key: &'static str,
    patterns: Option<&NamePatterns>,
    names: &[&str],
) {
    if patterns.is_some_and(|patterns| !names.iter().any(|name| patterns.matches(name))) {
        let hint = format!("there are `{}`", names.join("`, `"));
        section.problem_with_hint(key, format!("it matches no {key}"), hint);
    }
}

/// A list of patterns, separated by commas.
fn condition(section: &mut Section<'_, '_>, key: &'static str) -> Option<NamePatterns> {
    section.parse(key, || "a pattern, or several with commas between them".into(), |value, _| patterns(value))
}

fn header(name: &str, value: &DeValue<'_>) -> Result<(HeaderName, NamePatterns), Fault> {
    let name = name.parse().map_err(|_| Fault::Message("this is not a valid header name".to_owned()))?;
    Ok((name, patterns(value)?))
}

fn patterns(value: &DeValue<'_>) -> Result<NamePatterns, Fault> {
    let text = String::from_value(value)?;
    let bad = |error: PatternError| Fault::Message(bad_pattern(&text, &error));
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    let patterns = NamePatterns::new(names).map_err(bad)?;
    if patterns.patterns().is_empty() { Err(Fault::UNEXPECTED) } else { Ok(patterns) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn config(text: &str) -> Config {
        let home = |name: &str| (name == "HOME").then(|| "/home/me".to_owned());
        Config::from_toml(text, &home).unwrap_or_else(|problems| panic!("{text}\n{problems}"))
    }

    #[test]
    fn a_profile_matches_if_all_its_patterns_do() {
        let mut headers = HeaderMap::new();
        headers.append("x-team", "infra".parse().unwrap());
        headers.append("x-team", "web-shop".parse().unwrap());
        let request = Request {
            client: Some("claude-cli/2.1"),
            model: Some("claude-opus-4-1"),
            upstream: "anthropic",
            protocol: "anthropic",
            headers: &headers,
        };
        for (text, expected) in [
            ("client = 'claude-cli*'", true),
            ("client = 'Claude-CLI/*'", true),
            ("client = 'claude'", false),
            ("client = 'codex*, claude*'", true),
            ("client = 'claude*', model = '*haiku*'", false),
            ("client = 'claude*', model = '*opus*', upstream = 'anthropic'", true),
            ("client = 'claude*', upstream = 'none, anthropic'", true),
            ("protocol = 'openai-*'", false),
            ("header = { x-team = 'web*' }", true),
            ("header = { x-team = 'web' }", false),
            ("header = { X-Team = '*', x-other = '*' }", false),
        ] {
            let config = config(&format!("[profile.p]\nmatch = {{ {text} }}"));
            assert_eq!(config.profiles[0].matcher.matches(&request), expected, "{text}");
        }
        let nobody = Request { client: None, model: None, ..request };
        assert!(!config("profile.p.match.model = '*'").profiles[0].matcher.matches(&nobody));
    }

    /// A key that a profile leaves out has the file's value; with a preset, the preset's, except for who writes
    /// summaries.
    #[test]
    fn keys_a_profile_leaves_out_come_from_its_preset_or_the_file() {
        let config = config(
            "preset = 'codex'\n[truncate]\nmax_lines = 77\n[summarize]\nmodel = 'cheap'\nmax_wait = '1s'\nper_hour = 5\n\
             [profile.b]\nmatch.model = 'b'\nclear.enabled = false\n\
             [profile.a]\nmatch.model = 'a'\npreset = 'opencode'\ntruncate.max_bytes = 9\nsummarize.length = 999",
        );
        let file = &config.tuning;
        let [b, a] = &config.profiles[..] else { panic!("{:?}", config.profiles) };
        assert_eq!((&*b.name, &*a.name), ("b", "a"), "in the order of the file");
        let limits = |tuning: &Tuning| {
            let base = &tuning.policy.shape.truncate.base;
            (base.max_lines, base.max_bytes)
        };
        assert_eq!(
            (limits(file), limits(&b.tuning), limits(&a.tuning)),
            ((77, 12_000), (77, 12_000), (2000, 9))
        );
        assert_eq!(
            (file.policy.clear.enabled, b.tuning.policy.clear.enabled, a.tuning.policy.clear.enabled),
            (false, false, true)
        );
        assert_eq!(a.tuning.summarize.settings.length, 999);
        for tuning in [&b.tuning, &a.tuning] {
            let (own, files) = (&tuning.summarize, &file.summarize);
            assert_eq!((&own.model, own.max_wait, own.limits), (&files.model, files.max_wait, files.limits));
        }
    }
}
