//! The settings for summaries.

use super::Split;

/// The kind of work that is summarised, which determines the facts that the writer is told to look for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Template {
    /// Any work of an agent.
    Default,
    /// Reviewing a change.
    CodeReview,
    /// Looking for the cause of a fault.
    Debugging,
    /// Research and comparison.
    Research,
    /// Writing code to a plan.
    Implementation,
    /// Running and repairing systems.
    Operations,
}

impl Template {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Default,
        Self::CodeReview,
        Self::Debugging,
        Self::Research,
        Self::Implementation,
        Self::Operations,
    ];

    /// Its name in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::CodeReview => "code-review",
            Self::Debugging => "debugging",
            Self::Research => "research",
            Self::Implementation => "implementation",
            Self::Operations => "operations",
        }
    }

    /// What matters most in such work, for the writer's prompt.
    pub(super) const fn focus(self) -> &'static str {
        match self {
            Self::Default => "",
            Self::CodeReview => {
                "This was a review of code. Keep every finding with its file and line, how severe it is and whether \
                 it was confirmed; which files were read to the end and which were not; what was found to be fine."
            }
            Self::Debugging => {
                "This was a search for the cause of a fault. Keep the symptom with its exact messages; how it is \
                 reproduced; every hypothesis and whether it was ruled out, and by what; what was changed and \
                 whether it helped."
            }
            Self::Research => {
                "This was research. Keep every finding with its source (address, file, author, date); figures with \
                 their units; what sources disagree about; which questions are answered and which are open."
            }
            Self::Implementation => {
                "This was the writing of code. Keep the interfaces that were agreed on, with their exact names and \
                 signatures; which tests exist and whether they pass; the conventions that the user asked for; what \
                 of the plan is done and what is not."
            }
            Self::Operations => {
                "This was work on running systems. Keep hosts, services, versions and ports; every command that \
                 changed something, and its outcome; what must be undone; credentials only by where they are kept, \
                 never their values."
            }
        }
    }
}

/// All settings for summaries that need no clock and no network.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Whether summaries are written.
    pub enabled: bool,
    /// The share of the usable window from which on a summary is prepared.
    pub trigger: f64,
    /// How much more the conversation may cost because of a summary before room is needed, as a share of its cost; 1 is
    /// no limit.
    pub most_loss: f64,
    /// How the place to cut is chosen.
    pub split: Split,
    /// The share of the bytes that stays, for [`Split::Share`].
    pub keep_share: f64,
    /// The number of messages that stay, for [`Split::Messages`].
    pub keep_messages: u32,
    /// The fewest turns that stay as they are, the present one included.
    pub keep_turns: u32,
    /// The fewest tokens at the end that stay as they are, but never more than a fifth of the usable window.
    pub keep_tokens: u64,
    /// The length that the writer is asked for, in tokens.
    pub length: u64,
    /// The fewest tokens that a summary must free.
    pub minimum_gain: u64,
    /// One in this many summaries of a thread is written from the original messages instead of from the last summary;
    /// 0: all of them.
    pub rebase: u32,
    /// The kind of work.
    pub template: Template,
    /// What else the writer is told to keep.
    pub focus: String,
    /// The most bytes of a tool result that the writer is shown.
    pub result_bytes: usize,
    /// The most bytes of the user's own words that are carried over verbatim.
    pub user_bytes: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            enabled: true,
            trigger: 0.75,
            most_loss: 0.15,
            split: Split::Enough,
            keep_share: 0.3,
            keep_messages: 4,
            keep_turns: 1,
            keep_tokens: 8_000,
            length: 2_500,
            minimum_gain: 4_000,
            rebase: 4,
            template: Template::Default,
            focus: String::new(),
            result_bytes: 4 << 10,
            user_bytes: 16 << 10,
        }
    }
}

impl Settings {
    /// Whether the summary with this number, counted from 1, is written from the original messages: the first one, and
    /// every `rebase`-th after it.
    pub fn is_rebased(&self, generation: u32) -> bool {
        generation <= 1 || self.rebase == 0 || (generation - 1).is_multiple_of(self.rebase)
    }

    /// Whether a text of `after` bytes in place of `before` bytes frees enough, at `bytes_per_token`. A summary that is
    /// not shorter than what it replaces is useless whatever the settings say.
    pub fn gains(&self, before: u64, after: u64, bytes_per_token: f64) -> bool {
        let freed = before.saturating_sub(after) as f64 / bytes_per_token.max(0.5);
        after < before && freed >= self.minimum_gain as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fourth_summary_is_made_from_the_originals() {
        let settings = Settings::default();
        let rebased: Vec<u32> = (1..=10).filter(|generation| settings.is_rebased(*generation)).collect();
        assert_eq!(rebased, [1, 5, 9]);
        assert!((1..9).all(|generation| Settings { rebase: 0, ..settings.clone() }.is_rebased(generation)));
    }

    #[test]
    fn a_gain_must_reach_the_minimum() {
        let settings = Settings { minimum_gain: 100, ..Settings::default() };
        for (before, after, expected) in
            [(1000, 600, true), (1000, 601, false), (1000, 1000, false), (10, 1000, false), (0, 0, false)]
        {
            assert_eq!(settings.gains(before, after, 4.0), expected, "{before} {after}");
        }
        let any = Settings { minimum_gain: 0, ..settings };
        assert!(any.gains(10, 9, 4.0) && !any.gains(10, 10, 4.0));
    }

    #[test]
    fn templates_have_distinct_names_and_a_focus() {
        let mut names: Vec<&str> = Template::ALL.iter().map(|template| template.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Template::ALL.len());
        for template in &Template::ALL[1..] {
            assert!(template.focus().contains("Keep"), "{template:?}");
        }
    }
}
