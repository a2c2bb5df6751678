//! How a model gets at the full text of what was cut, and the sentence that says so.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::config;
use crate::store::Outputs;

/// How a model gets at the full text of what was cut.
#[derive(Debug, Clone)]
pub enum Recall {
    /// From a file.
    Path,
    /// From the admin listener, whose base URL this is.
    Http(String),
    /// Not at all.
    None,
}

impl Recall {
    /// What is configured, with the admin listener's address. A URL that nobody serves would mislead the model: without
    /// a listener nothing is promised.
    pub fn new(configured: config::Recall, admin: Option<SocketAddr>) -> Self {
        match (configured, admin) {
            (config::Recall::Path, _) => Self::Path,
            (config::Recall::Http, Some(address)) => Self::Http(format!("http://{}", reached(address))),
            (config::Recall::Http, None) | (config::Recall::None, _) => Self::None,
        }
    }

    /// The sentence that tells where the full text is.
    pub fn sentence(&self, outputs: &Outputs, id: &str) -> String {
        match self {
            Self::Path => format!("full output: {}", outputs.path(id).display()),
            Self::Http(base) => format!("full output: {base}/outputs/{id}"),
            Self::None => "run the tool again for the rest".to_owned(),
        }
    }
}

/// Where a listener is reached from its own machine: to listen on all addresses is to have none to be asked at.
pub(super) fn reached(address: SocketAddr) -> SocketAddr {
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
    fn sentences_lead_to_what_is_there() {
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
