//! `[fidelity]`: the model that judges how much of a history its rewritten form preserves.

use super::section::Section;
use super::upstream::Upstreams;

/// The judge.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fidelity {
    /// The name of the upstream; `None` for no judge.
    pub upstream: Option<String>,
    /// The model; set if and only if the upstream is.
    pub model: Option<String>,
}

pub(super) fn read(section: &mut Section<'_, '_>, upstreams: &Upstreams) -> Fidelity {
    let upstream = section.optional::<String>("upstream");
    let model = section.optional::<String>("model");
    // A value that is not a string is reported already.
    let is_wrong = |key, is_read: bool| section.has(key) && !is_read;
    let is_reported = is_wrong("upstream", upstream.is_some()) || is_wrong("model", model.is_some());
    let model = model.filter(|model| !model.trim().is_empty());
    if let Some(wrong) = upstream.as_deref().and_then(|name| upstreams.cannot_be_asked(name)) {
        section.problem("upstream", wrong);
    }
    match (&upstream, &model) {
        (Some(_), None) if !is_reported => {
            section.problem("model", "must be set if `fidelity.upstream` is");
        }
        (None, Some(_)) if !is_reported => {
            section.problem("model", "has no effect unless `fidelity.upstream` is set");
        }
        _ => {}
    }
    Fidelity { upstream, model }
}
