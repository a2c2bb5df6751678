//! `preset`: named sets of defaults, modelled on what known agents and gateways do with their own history.
//!
//! A preset is a fragment of a configuration file (`presets/NAME.toml`), whose comments say what it is taken from and
//! what differs here. Keys of the file override it.

use toml::de::{DeTable, DeValue};

use super::document::{Document, Source, join};
use super::environment::Environment;
use super::problem::Problem;
use super::reader::Reader;
use super::section::Section;
use super::tuning::{Context, Layer};
use super::value::Word;

/// A set of defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preset {
    /// The gateway's own defaults.
    Default,
    /// Requests are left unchanged; the books are kept.
    Passthrough,
    /// opencode, as its architecture is described.
    Opencode,
    /// opencode, as it is now.
    Opencode2026,
    /// A window manager with zones, eviction and compaction.
    WindowManager,
    /// pulse-coder, as its architecture is described.
    Pulse,
    /// pulse-coder, as it is now.
    Pulse2026,
    /// Gemini CLI.
    Gemini,
    /// Temporal's agent.
    Temporal,
    /// Dyad.
    Dyad,
    /// `OpenManus`.
    Openmanus,
    /// Open Interpreter.
    OpenInterpreter,
    /// Codex.
    Codex,
    /// picoclaw.
    Picoclaw,
}

impl Word for Preset {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("default", Self::Default),
        ("passthrough", Self::Passthrough),
        ("opencode", Self::Opencode),
        ("opencode-2026", Self::Opencode2026),
        ("window-manager", Self::WindowManager),
        ("cwm", Self::WindowManager),
        ("pulse", Self::Pulse),
        ("pulse-2026", Self::Pulse2026),
        ("gemini", Self::Gemini),
        ("gemini-cli", Self::Gemini),
        ("temporal", Self::Temporal),
        ("dyad", Self::Dyad),
        ("openmanus", Self::Openmanus),
        ("open-interpreter", Self::OpenInterpreter),
        ("codex", Self::Codex),
        ("picoclaw", Self::Picoclaw),
    ];
}

impl Preset {
    /// Its name in the configuration.
    pub fn as_str(self) -> &'static str {
        Self::WORDS.iter().find(|(_, preset)| *preset == self).map_or("default", |(name, _)| name)
    }

    /// The text of its fragment.
    pub const fn fragment(self) -> &'static str {
        match self {
            Self::Default => "",
            Self::Passthrough => include_str!("presets/passthrough.toml"),
            Self::Opencode => include_str!("presets/opencode.toml"),
            Self::Opencode2026 => include_str!("presets/opencode-2026.toml"),
            Self::WindowManager => include_str!("presets/window-manager.toml"),
            Self::Pulse => include_str!("presets/pulse.toml"),
            Self::Pulse2026 => include_str!("presets/pulse-2026.toml"),
            Self::Gemini => include_str!("presets/gemini.toml"),
            Self::Temporal => include_str!("presets/temporal.toml"),
            Self::Dyad => include_str!("presets/dyad.toml"),
            Self::Openmanus => include_str!("presets/openmanus.toml"),
            Self::OpenInterpreter => include_str!("presets/open-interpreter.toml"),
            Self::Codex => include_str!("presets/codex.toml"),
            Self::Picoclaw => include_str!("presets/picoclaw.toml"),
        }
    }

    /// The values that it sets on top of the defaults, and the mistakes in it.
    pub(super) fn layer(self, environment: &dyn Environment, context: Context<'_>) -> (Layer, Vec<Problem>) {
        let source = Source::new(self.fragment());
        let document = Document::parse(&source);
        let base = Layer::default();
        Reader::read(&document, environment, |root| Layer::read(root, &base, context))
    }

    /// A note if the file leaves little of the preset, as a copy of the shipped file does.
    pub(super) fn overridden(self, file: &Section<'_, '_>) -> Option<String> {
        let source = Source::new(self.fragment());
        let mut overridden = Vec::new();
        let all = compare(&Document::parse(&source).table, file.as_table(), "", &mut overridden);
        (overridden.len() * 2 > all).then(|| {
            format!(
                "`preset`: the file itself sets {} of the {all} keys that this preset sets, to other values; remove \
                 them (`{}`), or the preset has little effect",
                overridden.len(),
                overridden.join("`, `")
            )
        })
    }
}

/// Counts the keys of a preset, and collects the paths of those that the file sets to another value.
fn compare(
    preset: &DeTable<'_>,
    file: Option<&DeTable<'_>>,
    path: &str,
    overridden: &mut Vec<String>,
) -> usize {
    let mut keys = 0;
    for (name, value) in preset {
        let path = join(path, name.get_ref());
        let own = file.and_then(|file| file.get(name)).map(toml::Spanned::get_ref);
        if let DeValue::Table(inner) = value.get_ref() {
            keys += compare(inner, own.and_then(DeValue::as_table), &path, overridden);
        } else {
            keys += 1;
            if own.is_some_and(|own| !is_same(own, value.get_ref())) {
                overridden.push(path);
            }
        }
    }
    keys
}

/// Whether two values are written alike.
fn is_same(one: &DeValue<'_>, other: &DeValue<'_>) -> bool {
    match (one, other) {
        (DeValue::String(one), DeValue::String(other)) => one == other,
        (DeValue::Integer(one), DeValue::Integer(other)) => one.to_string() == other.to_string(),
        (DeValue::Float(one), DeValue::Float(other)) => one.to_string() == other.to_string(),
        (DeValue::Boolean(one), DeValue::Boolean(other)) => one == other,
        (DeValue::Array(one), DeValue::Array(other)) => {
            one.len() == other.len()
                && one.iter().zip(other.iter()).all(|(one, other)| is_same(one.get_ref(), other.get_ref()))
        }
        _ => false,
    }
}
