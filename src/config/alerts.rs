//! `[alerts]`: what the log reports about conversations, once for each occurrence.

use super::section::Section;
use super::value::Word;
use crate::strategy::window::Zone;

/// What is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alerts {
    /// The zone of the window from which a conversation is reported; `None` for never.
    pub zone: Option<Zone>,
    /// Whether a prompt that grows much faster than usual is reported.
    pub spikes: bool,
    /// Whether repetitions of the same call with the same result are reported.
    pub doom_loops: bool,
}

impl Default for Alerts {
    fn default() -> Self {
        Self { zone: None, spikes: false, doom_loops: true }
    }
}

impl Word for Option<Zone> {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("off", None),
        (Zone::Yellow.as_str(), Some(Zone::Yellow)),
        (Zone::Orange.as_str(), Some(Zone::Orange)),
        (Zone::Red.as_str(), Some(Zone::Red)),
    ];
}

pub(super) fn read(section: &mut Section<'_, '_>) -> Alerts {
    let default = Alerts::default();
    Alerts {
        zone: section.value("zone", default.zone),
        spikes: section.value("spikes", default.spikes),
        doom_loops: section.value("doom_loops", default.doom_loops),
    }
}
