//! Encryption of the connection to the cluster, and the reason for which a certificate is refused.

use crate::storage::trusted_authorities::{parse_authorities, read_authority_file, system_authorities};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Reason why the authorities of the cluster's certificates cannot be used.
#[derive(Debug)]
pub enum HubTlsError {
    /// The file cannot be used, for this reason.
    File(PathBuf, String),
    /// The system has no authorities.
    NoSystemAuthorities,
    /// The library refuses the authorities.
    Refused(String),
}

impl fmt::Display for HubTlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HubTlsError::File(path, reason) => write!(f, "link-tls-ca: {}: {reason}", path.display()),
            HubTlsError::NoSystemAuthorities => f.write_str(
                "this system has no certificates of authorities: install the package ca-certificates, or name a file with link-tls-ca",
            ),
            HubTlsError::Refused(reason) => write!(f, "the authorities of link-tls-ca cannot be used: {reason}"),
        }
    }
}

impl std::error::Error for HubTlsError {}

/// The reason for which the last certificate was refused.
#[derive(Clone, Debug, Default)]
pub(super) struct CertificateRefusal(Arc<Mutex<Option<String>>>);

impl CertificateRefusal {
    /// Removes and returns the reason, if a certificate was refused since.
    pub(super) fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn set(&self, reason: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
    }
}

/// Makes the configuration of encrypted connections. The authorities are those of the file, or those of the system.
///
/// # Errors
/// The file cannot be read or holds no certificate, or the system has no authorities.
pub(super) fn client_config(file: Option<&Path>) -> Result<(ClientConfig, CertificateRefusal), HubTlsError> {
    let authorities = Arc::new(match file {
        Some(path) => {
            let authorities = read_authority_file(path).and_then(|pem| parse_authorities(&pem));
            authorities.map_err(|reason| HubTlsError::File(path.to_owned(), reason))?
        }
        None => system_authorities().ok_or(HubTlsError::NoSystemAuthorities)?,
    });
    let provider = Arc::new(ring::default_provider());
    let refused = |error: &dyn ToString| HubTlsError::Refused(error.to_string());
    let verifier = WebPkiServerVerifier::builder_with_provider(authorities, Arc::clone(&provider));
    let verifier = verifier.build().map_err(|error| refused(&error))?;
    let refusal = CertificateRefusal::default();
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(&error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(HubVerifier { verifier, refusal: refusal.clone() }))
        .with_no_client_auth();
    Ok((config, refusal))
}

/// The check of certificates by their authorities and names, which notes why it refuses one. The client of the cluster
/// reports an error of input and output only.
#[derive(Debug)]
struct HubVerifier {
    verifier: Arc<WebPkiServerVerifier>,
    refusal: CertificateRefusal,
}

impl ServerCertVerifier for HubVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server: &ServerName<'_>,
        status: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.verifier.verify_server_cert(certificate, intermediates, server, status, now);
        verified.inspect_err(|error| {
            let reason = match error {
                Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
                    "it comes from an unknown authority; link-tls-ca names the file of the authorities".to_owned()
                }
                error => error.to_string(),
            };
            self.refusal.set(format!("the certificate of {} is refused: {reason}", server.to_str()));
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}
