//! Chooses the settings of a conversation: those of the file, or of the first profile that matches its first request.
//!
//! The choice is remembered by thread, in bounded memory. If it is lost, the thread's next request chooses again;
//! earlier decisions are repeated in any case. Without profiles nothing is looked up.

use std::sync::Arc;

use super::summaries::Terms;
use crate::config::{self, Matcher, Preset};
use crate::planner::Policy;
use crate::store::Recent;
use crate::strategy::{clear, ladder, marks};

/// The most threads whose settings are remembered.
const MAX_THREADS: u64 = 65_536;

/// The settings of a conversation.
pub(super) struct Tuning {
    /// The name of the profile; `None` for the settings of the file itself.
    pub(super) profile: Option<String>,
    /// The preset that they are based on.
    pub(super) preset: Preset,
    pub(super) policy: Policy,
    /// The same without events and cache marks: the policy that prompts are counted by.
    pub(super) counting: Policy,
    /// The settings for summaries.
    pub(super) terms: Arc<Terms>,
}

/// The settings of all conversations.
pub(super) struct Tunings {
    file: Arc<Tuning>,
    profiles: Vec<(Matcher, Arc<Tuning>)>,
    chosen: Recent<String, Arc<Tuning>>,
}

impl Tuning {
    pub(super) fn new(profile: Option<String>, preset: Preset, policy: Policy, terms: Terms) -> Self {
        let counting = Policy {
            clear: clear::Settings { enabled: false, ..policy.clear.clone() },
            marks: marks::Settings { marks: false, anchors: false, ..policy.marks },
            ladder: ladder::Settings { enabled: false, ..policy.ladder },
            ..policy.clone()
        };
        Self { profile, preset, policy, counting, terms: Arc::new(terms) }
    }
}

impl Tunings {
    pub(super) fn new(file: Tuning, profiles: Vec<(Matcher, Tuning)>) -> Self {
        let profiles = profiles.into_iter().map(|(matcher, tuning)| (matcher, Arc::new(tuning))).collect();
        Self { file: Arc::new(file), profiles, chosen: Recent::of_entries(MAX_THREADS) }
    }

    /// The settings of the file, without profiles.
    pub(super) const fn file(&self) -> &Arc<Tuning> {
        &self.file
    }

    /// The settings that match a request, whatever its thread has.
    pub(super) fn of(&self, request: &config::Request<'_>) -> Arc<Tuning> {
        let matches = |(matcher, _): &&(Matcher, Arc<Tuning>)| matcher.matches(request);
        let found = self.profiles.iter().find(matches);
        Arc::clone(found.map_or(&self.file, |(_, tuning)| tuning))
    }

    /// The settings of a thread: those that were chosen at its first request, else `own`, which are chosen now.
    pub(super) fn of_thread(&self, thread: &str, own: &Arc<Tuning>) -> Arc<Tuning> {
        if self.profiles.is_empty() {
            return Arc::clone(own);
        }
        self.chosen.get_or_insert(thread.to_owned(), Arc::clone(own))
    }

    /// The settings chosen for a thread, if any were.
    pub(super) fn known(&self, thread: &str) -> Option<Arc<Tuning>> {
        if self.profiles.is_empty() { None } else { self.chosen.get(thread) }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;
    use crate::config::Config;

    const PROFILES: &str = "[profile.cheap]\nmatch.model = '*haiku*'\n[profile.review]\nmatch.client = 'review*'\n\
                            [profile.late]\nmatch.model = '*'";

    fn tunings(text: &str) -> Tunings {
        let home = |name: &str| (name == "HOME").then(|| "/home/me".to_owned());
        let config = Config::from_toml(text, &home).unwrap();
        let tuning = |name: Option<&str>| {
            let terms = Terms::new(&config::Summarize::default(), None, &Policy::default());
            Tuning::new(name.map(str::to_owned), Preset::Default, Policy::default(), terms)
        };
        let profiles = config.profiles.iter();
        let profiles = profiles.map(|profile| (profile.matcher.clone(), tuning(Some(&profile.name))));
        Tunings::new(tuning(None), profiles.collect())
    }

    fn own(tunings: &Tunings, client: &str, model: Option<&str>) -> Arc<Tuning> {
        let headers = HeaderMap::new();
        let (client, upstream, protocol) = (Some(client), "local", "anthropic");
        tunings.of(&config::Request { client, model, upstream, protocol, headers: &headers })
    }

    #[test]
    fn the_first_matching_profile_applies() {
        let tunings = tunings(PROFILES);
        for (client, model, expected) in [
            ("review/1", Some("opus"), Some("review")),
            ("review/1", Some("claude-haiku-4"), Some("cheap")),
            ("codex", Some("gpt"), Some("late")),
            ("codex", None, None),
        ] {
            assert_eq!(own(&tunings, client, model).profile.as_deref(), expected, "{client} {model:?}");
        }
    }

    /// A thread keeps the profile chosen at its first request, whatever model is asked later.
    #[test]
    fn a_thread_keeps_its_profile() {
        let all = tunings(PROFILES);
        let name = |tuning: Arc<Tuning>| tuning.profile.clone();
        assert!(all.known("t").is_none());
        for (thread, model, expected) in
            [("t", "haiku", "cheap"), ("t", "opus", "cheap"), ("u", "opus", "late"), ("u", "haiku", "late")]
        {
            let own = own(&all, "x", Some(model));
            assert_eq!(name(all.of_thread(thread, &own)).as_deref(), Some(expected), "{thread} {model}");
        }
        assert_eq!(all.known("t").and_then(name).as_deref(), Some("cheap"));
        let none = tunings("");
        none.of_thread("t", none.file());
        assert!(none.known("t").is_none(), "nothing is looked up without profiles");
    }
}
