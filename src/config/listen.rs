//! `[listen]`: where clients and the administrator connect.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::section::Section;
use super::shaping::name_patterns;
use super::value::{Fault, FromValue, address_hint};
use crate::shape::settings::NamePatterns;
use crate::upstream::{BaseUrl, Proxy};

/// Where clients and the administrator connect.
#[derive(Debug, Clone, PartialEq)]
pub struct Listen {
    /// The address for clients.
    pub address: SocketAddr,
    /// The address of the dashboard, the books as JSON, health, metrics and full outputs; `None` if they are off.
    pub admin: Option<SocketAddr>,
    /// Host names by which the books may be requested, besides those that nobody else can own.
    pub admin_names: NamePatterns,
    /// Origins of web pages whose requests may have headers of `upstream.NAME.headers` added, besides those of this
    /// machine.
    pub origins: NamePatterns,
}

impl Listen {
    /// All addresses that the gateway listens at.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        [Some(self.address), self.admin].into_iter().flatten().collect()
    }

    /// Whether a URL leads to the gateway.
    pub(super) fn is_at(&self, url: &BaseUrl) -> bool {
        self.addresses().into_iter().any(|address| url.leads_to(address))
    }

    /// Whether a proxy is the gateway.
    pub(super) fn is_proxy(&self, proxy: &Proxy) -> bool {
        self.addresses().into_iter().any(|address| proxy.leads_to(address))
    }
}

/// Parses an address of a command line.
///
/// # Errors
/// What is expected, with a hint if there is one.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let hint = || address_hint(text).map(|hint| format!("\n  hint: {hint}")).unwrap_or_default();
    text.parse().map_err(|_| format!("expected {}{}", SocketAddr::expected(), hint()))
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
        section.problem(key, "`listen.address` and `listen.admin` are the same address");
    }
    Listen { address, admin, admin_names: admin_names(section), origins: origins(section) }
}

fn admin_names(section: &mut Section<'_, '_>) -> NamePatterns {
    let names = name_patterns(section, "admin_names", NamePatterns::default());
    for pattern in names.patterns() {
        // Addresses are allowed anyway.
        if pattern.contains(['/', ':', '@']) || pattern.chars().any(char::is_uppercase) {
            let hint = "write the name of a host, in lower case and without a port: \"books.example.com\"";
            section.problem_with_hint("admin_names", format!("{pattern:?} matches no host name"), hint);
        }
    }
    names
}

fn origins(section: &mut Section<'_, '_>) -> NamePatterns {
    let origins = name_patterns(section, "origins", NamePatterns::default());
    for pattern in origins.patterns() {
        let can_match = match pattern.split_once("://") {
            Some((_, host)) => !host.contains('/'),
            None => pattern == "null" || pattern.starts_with('*'),
        };
        if !can_match {
            let hint =
                "an origin consists of a scheme, a host and optionally a port: \"https://app.example.com\"";
            section.problem_with_hint("origins", format!("{pattern:?} matches no origin"), hint);
        }
    }
    origins
}
