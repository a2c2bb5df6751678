//! How a model can read the full text of what was cut, and the sentence that says so.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::config;
use crate::lineage::NotedUses;
use crate::store::Outputs;

/// How a model can read the full text of what was cut.
#[derive(Debug, Clone)]
pub enum Recall {
    /// As a file.
    Path,
    /// From the admin listener, at this base URL.
    Http(String),
    /// Not at all.
    None,
}

impl Recall {
    /// Combines the configured way with the address of the admin listener. Without a listener there is no URL, since a
    /// URL that nobody serves would mislead the model.
    pub fn new(configured: config::Recall, admin: Option<SocketAddr>) -> Self {
        match (configured, admin) {
            (config::Recall::Path, _) => Self::Path,
            (config::Recall::Http, Some(address)) => {
                Self::Http(format!("http://{}", reachable_address(address)))
            }
            (config::Recall::Http, None) | (config::Recall::None, _) => Self::None,
        }
    }

    /// The sentence that tells where the full text with this id is, or what to do where it cannot be read.
    pub fn sentence(&self, outputs: &Outputs, id: &str) -> String {
        match self {
            Self::Path => format!("full output: {}", outputs.path(id).display()),
            Self::Http(base) => format!("full output: {base}/outputs/{id}"),
            Self::None => "run the tool again for the rest".to_owned(),
        }
    }
}

/// The full texts of what was cut.
pub(super) struct FullTexts {
    /// The files that they are kept in.
    pub(super) outputs: Outputs,
    pub(super) recall: Recall,
    /// When each thread last reported that they are in use.
    pub(super) uses: NotedUses,
}

impl FullTexts {
    /// The sentence that tells the model where the full text with this id is.
    pub(super) fn sentence(&self, id: &str) -> String {
        self.recall.sentence(&self.outputs, id)
    }

    /// Whether full texts are kept. They are not if a model has no way to read them.
    pub(super) fn are_kept(&self) -> bool {
        !matches!(self.recall, Recall::None)
    }
}

/// The address at which a listener is reached from its own machine: one that listens on all addresses is reached at
/// the loopback address.
pub(super) fn reachable_address(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recall_hints_name_a_file_a_url_or_a_rerun() {
        let outputs = Outputs::new("/o");
        let at = |address: &str| Some(address.parse().unwrap());
        let admin = at("127.0.0.1:8788");
        let again = "run the tool again for the rest";
        let file = format!("full output: {}", outputs.path("0a").display());
        for (configured, admin, expected) in [
            (config::Recall::Path, admin, &*file),
            (config::Recall::Path, None, &file),
            (config::Recall::Http, admin, "full output: http://127.0.0.1:8788/outputs/0a"),
            (config::Recall::Http, at("0.0.0.0:90"), "full output: http://127.0.0.1:90/outputs/0a"),
            (config::Recall::Http, at("[::]:90"), "full output: http://[::1]:90/outputs/0a"),
            (config::Recall::Http, at("10.1.2.3:90"), "full output: http://10.1.2.3:90/outputs/0a"),
            (config::Recall::Http, None, again),
            (config::Recall::None, admin, again),
        ] {
            assert_eq!(Recall::new(configured, admin).sentence(&outputs, "0a"), expected);
        }
    }
}
