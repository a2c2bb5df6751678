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
    if let Some(name) = &upstream {
        match upstreams.named(name) {
            None => section.problem("upstream", format!("there is no upstream `{name}`"), None),
            Some(upstream) if upstream.protocols.is_empty() => {
                section.problem(
                    "upstream",
                    format!("`upstream.{name}.protocols` is empty: it cannot be asked"),
                    None,
                );
            }
            Some(_) => {}
        }
    }
    if upstream.is_some() != model.is_some() {
        section.problem("model", "is set where `fidelity.upstream` is, and nowhere else", None);
    }
    Fidelity { upstream, model }
}
