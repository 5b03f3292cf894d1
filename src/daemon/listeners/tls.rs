//! Certificate and key files of an encrypted listener.

use super::stream::ListenerTls;
use crate::config::TlsFiles;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
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
            TlsError::InvalidKeyPair(error) => write!(f, "the certificate and the key cannot be used: {error}"),
        }
    }
}

impl std::error::Error for TlsError {}

/// Reads the files and makes the TLS configuration.
pub(crate) fn load(files: &TlsFiles) -> Result<ListenerTls, TlsError> {
    let unreadable = |path: &Path| {
        let path = path.to_owned();
        move |error| TlsError::File { path, error }
    };
    let certificates = CertificateDer::pem_file_iter(&files.certificates)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(unreadable(&files.certificates))?;
    if certificates.is_empty() {
        return Err(TlsError::NoCertificate(files.certificates.clone()));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(unreadable(&files.key))?;
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::InvalidKeyPair)?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .map_err(TlsError::InvalidKeyPair)?;
    Ok(ListenerTls { config: Arc::new(config), is_optional: files.is_optional })
}
