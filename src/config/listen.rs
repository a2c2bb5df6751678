//! `[listen]`: where clients and the administrator connect.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::section::Section;
use super::value::{Fault, FromValue};
use crate::upstream::BaseUrl;

/// Where clients and the administrator connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// The address for clients.
    pub address: SocketAddr,
    /// The address of the dashboard, the books as JSON, health, metrics and full outputs; `None`: they are off.
    pub admin: Option<SocketAddr>,
}

impl Listen {
    /// Whether a URL leads here.
    pub fn is_at(&self, url: &BaseUrl) -> bool {
        [Some(self.address), self.admin].into_iter().flatten().any(|address| url.leads_to(address))
    }
}

const fn local(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

pub(super) fn read(section: &mut Section<'_, '_>) -> Listen {
    let address = section.value("address", local(8787));
    let expected = || "an address such as \"127.0.0.1:8788\", or \"off\"".into();
    let admin = section.parse("admin", expected, |value, _| match value.as_str() {
        Some("off") => Ok(None),
        Some(_) => SocketAddr::from_value(value).map(Some),
        None => Err(Fault::UNEXPECTED),
    });
    let admin = admin.unwrap_or(Some(local(8788)));
    if admin == Some(address) && address.port() != 0 {
        let key = if section.has("admin") { "admin" } else { "address" };
        section.problem(key, "`listen.address` and `listen.admin` are the same address", None);
    }
    Listen { address, admin }
}
