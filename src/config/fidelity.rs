//! `[fidelity]`: who says how much of a history its rewritten form still tells.

use super::section::Section;
use super::upstream::Upstreams;

/// Who judges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fidelity {
    /// The name of the upstream; `None`: nobody.
    pub upstream: Option<String>,
    /// The model, which is set where the upstream is.
    pub model: Option<String>,
}

pub(super) fn read(section: &mut Section<'_, '_>, upstreams: &Upstreams) -> Fidelity {
    let upstream = section.optional::<String>("upstream");
    let model = section.optional::<String>("model").filter(|model| !model.trim().is_empty());
    if let Some(wrong) = upstream.as_deref().and_then(|name| upstreams.cannot_be_asked(name)) {
        section.problem("upstream", wrong, None);
    }
    if upstream.is_some() != model.is_some() {
        section.problem("model", "is set where `fidelity.upstream` is, and nowhere else", None);
    }
    Fidelity { upstream, model }
}
