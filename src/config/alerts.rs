//! `[alerts]`: what the log tells of conversations, once each time that it comes about.

use super::section::Section;
use super::value::Word;
use crate::strategy::window::Zone;

/// What is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alerts {
    /// A conversation that reaches this zone of the window; `None`: none.
    pub zone: Option<Zone>,
    /// A prompt that grows much faster than was usual.
    pub spikes: bool,
    /// The same call made again and again, with the same result.
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
