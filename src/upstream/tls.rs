//! Sets up TLS towards upstreams: which authorities are trusted, which versions of HTTP are offered.
//!
//! The platform's certificates are read when the first encrypted connection needs them, never at start.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once, OnceLock};
use std::{env, fs};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// The variable that names a PEM file of further authorities for agents that run on Node.
const EXTRA_VARIABLE: &str = "NODE_EXTRA_CA_CERTS";

/// The mark that some editors put before a text.
const BOM: &[u8] = b"\xef\xbb\xbf";

const HTTP_1: &[u8] = b"http/1.1";

/// Why no encrypted connection can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// The platform has no certificate authorities where they are looked for.
    #[error("no certificate authorities found on this system; install them or set `ca_file`")]
    NoRoots,
    /// The file cannot be used.
    #[error("cannot use `ca_file` {path}: {reason}")]
    CaFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The TLS library refused its own defaults.
    #[error("cannot set up TLS: {0}")]
    Library(String),
}

/// The versions of HTTP that are offered to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    /// HTTP/2 and HTTP/1.1.
    Both,
    /// HTTP/1.1 alone.
    Http1,
}

/// A configuration for unencrypted connections. It trusts nobody, and nothing is read for it.
pub(super) fn without_roots() -> Result<Arc<ClientConfig>, TlsError> {
    config(RootCertStore::empty())
}

/// A configuration that trusts the platform's authorities. All upstreams of the process share it.
pub(super) fn with_platform_roots() -> Result<Arc<ClientConfig>, TlsError> {
    static SHARED: OnceLock<Result<Arc<ClientConfig>, TlsError>> = OnceLock::new();
    let make = || {
        let roots = platform_roots();
        if roots.is_empty() { Err(TlsError::NoRoots) } else { config(roots) }
    };
    SHARED.get_or_init(make).clone()
}

/// A configuration that trusts the platform's authorities and those of a PEM file.
pub(super) fn with_extra_roots(file: &Path) -> Result<Arc<ClientConfig>, TlsError> {
    let mut roots = platform_roots();
    add_file(&mut roots, file)?;
    config(roots)
}

/// Checks that a PEM file of authorities can be used.
///
/// # Errors
/// [`TlsError::CaFile`] if it cannot.
pub fn check_ca_file(file: &Path) -> Result<(), TlsError> {
    add_file(&mut RootCertStore::empty(), file)
}

/// The same configuration with this offer.
pub(super) fn offering(offer: Offer, config: Arc<ClientConfig>) -> Arc<ClientConfig> {
    match offer {
        Offer::Both => config,
        Offer::Http1 => {
            let mut config = (*config).clone();
            config.alpn_protocols = vec![HTTP_1.to_vec()];
            Arc::new(config)
        }
    }
}

fn add_file(roots: &mut RootCertStore, file: &Path) -> Result<(), TlsError> {
    let unusable = |reason: String| TlsError::CaFile { path: file.to_owned(), reason };
    let certificates = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unusable(error.to_string()))?;
    if certificates.is_empty() {
        return Err(unusable("no certificate in it".to_owned()));
    }
    certificates
        .into_iter()
        .try_for_each(|certificate| roots.add(certificate).map_err(|error| unusable(error.to_string())))
}

fn platform_roots() -> RootCertStore {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "some of the platform's certificate authorities cannot be read");
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if let Some(file) = env::var_os(EXTRA_VARIABLE).filter(|file| !file.is_empty()) {
        add_extra(&mut roots, Path::new(&file));
    }
    roots
}

/// Adds the certificates of the file that [`EXTRA_VARIABLE`] names. It was not written for the gateway, so one that
/// cannot be used is not an error, but a warning, once. Those before a bad one are used, as Node does.
fn add_extra(roots: &mut RootCertStore, file: &Path) {
    static WARNED: Once = Once::new();
    if let Err(reason) = try_add_extra(roots, file) {
        WARNED.call_once(|| {
            tracing::warn!(file = %file.display(), %reason, "not all of `{EXTRA_VARIABLE}` can be used");
        });
    }
}

fn try_add_extra(roots: &mut RootCertStore, file: &Path) -> Result<(), Box<dyn Error>> {
    // Opening a pipe would block.
    if !file.metadata()?.is_file() {
        return Err("it is not a regular file".into());
    }
    let text = fs::read(file)?;
    let pem = text.strip_prefix(BOM).unwrap_or(&text);
    let before = roots.len();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        roots.add(certificate?)?;
    }
    if roots.len() == before { Err("no certificate in it".into()) } else { Ok(()) }
}

fn config(roots: RootCertStore) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Library(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), HTTP_1.to_vec()];
    Ok(Arc::new(config))
}
