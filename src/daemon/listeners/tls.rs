//! Certificate and key files of an encrypted listener.

use super::stream::ListenerTls;
use crate::config::{TlsClients, TlsFiles};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Reason why the files of an encrypted listener cannot be used.
#[derive(Debug)]
pub enum TlsError {
    /// A file cannot be read, or is no PEM.
    File {
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        error: pem::Error,
    },
    /// The file of certificates holds none.
    NoCertificate(PathBuf),
    /// A certificate of the authorities of clients cannot be used.
    Authority {
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        reason: String,
    },
    /// The certificate and the key do not match, or are of an unsupported kind.
    InvalidKeyPair(rustls::Error),
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlsError::File { path, error: pem::Error::NoItemsFound } => {
                write!(f, "{} holds no private key in PEM", path.display())
            }
            TlsError::File { path, error } => write!(f, "cannot read {}: {error}", path.display()),
            TlsError::NoCertificate(path) => write!(f, "{} holds no certificate in PEM", path.display()),
            TlsError::Authority { path, reason } => {
                write!(f, "{} holds a certificate that cannot verify those of clients: {reason}", path.display())
            }
            TlsError::InvalidKeyPair(error) => write!(f, "the certificate and the key cannot be used: {error}"),
        }
    }
}

impl std::error::Error for TlsError {}

/// Reads the files and makes the TLS configuration.
pub(crate) fn load(files: &TlsFiles) -> Result<ListenerTls, TlsError> {
    let certificates = read_certificates(&files.certificates)?;
    let key =
        PrivateKeyDer::from_pem_file(&files.key).map_err(|error| TlsError::File { path: files.key.clone(), error })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::InvalidKeyPair)?;
    let config = match &files.clients {
        TlsClients::Encrypted | TlsClients::Any => config.with_no_client_auth(),
        TlsClients::Certified(authorities) => config.with_client_cert_verifier(load_verifier(authorities, provider)?),
    };
    let config = config.with_single_cert(certificates, key).map_err(TlsError::InvalidKeyPair)?;
    Ok(ListenerTls { config: Arc::new(config), clients: files.clients.clone() })
}

/// Reads a file with at least one certificate.
fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| TlsError::File { path: path.to_owned(), error })?;
    if certificates.is_empty() { Err(TlsError::NoCertificate(path.to_owned())) } else { Ok(certificates) }
}

/// Makes the check that a client presents a certificate of an authority in the file.
fn load_verifier(path: &Path, provider: Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let invalid = |reason: String| TlsError::Authority { path: path.to_owned(), reason };
    let mut authorities = RootCertStore::empty();
    for certificate in read_certificates(path)? {
        authorities.add(certificate).map_err(|error| invalid(error.to_string()))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider).build();
    verifier.map_err(|error| invalid(error.to_string()))
}
