//! TLS to database servers: the parameters of their addresses, the authorities that are trusted, and the faults.

use super::tls_fault::TlsFault;
use super::trusted_authorities::read_authority_file;
#[cfg(feature = "postgres")]
pub(super) use checks::{CertificateCheck, client_config};
use percent_encoding::percent_decode_str;
use rustls::{AlertDescription, CertificateError};
use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Maximum number of names of a certificate in an error.
const NAMES_MAX: usize = 8;

/// An address of a server without some of its parameters.
pub(super) struct AddressParameters<'a> {
    /// The address in front of the parameters.
    head: &'a str,
    /// The other parameters, `name=value` each.
    parameters: Vec<&'a str>,
}

impl<'a> AddressParameters<'a> {
    /// Splits an address. Its parameters follow a `?` behind the user and the password.
    pub(super) fn split(url: &'a str) -> AddressParameters<'a> {
        let server = url.find('@').map_or(0, |at| at + 1);
        match url[server..].find('?').map(|at| server + at) {
            Some(at) => AddressParameters { head: &url[..at], parameters: url[at + 1..].split('&').collect() },
            None => AddressParameters { head: url, parameters: Vec::new() },
        }
    }

    /// Removes a parameter and returns its value. Of several values the last one applies, as in libpq.
    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        let mut values = self.parameters.iter().filter_map(|parameter| value_of(parameter, name));
        let taken = values.next_back().map(|value| percent_decode_str(value).decode_utf8_lossy().into_owned());
        self.parameters.retain(|parameter| value_of(parameter, name).is_none());
        taken
    }

    /// Returns the address with the parameters that are left.
    pub(super) fn url(&self) -> String {
        if self.parameters.is_empty() {
            return self.head.to_owned();
        }
        format!("{}?{}", self.head, self.parameters.join("&"))
    }
}

/// Returns the value of a parameter if it has this name.
fn value_of<'a>(parameter: &'a str, name: &str) -> Option<&'a str> {
    parameter.split_once('=').filter(|(found, _)| *found == name).map(|(_, value)| value)
}

/// Reads a file with certificates of authorities in PEM. Returns its content.
pub(super) fn read_authorities(path: &Path) -> Result<Vec<u8>, TlsFault> {
    read_authority_file(path).map_err(|reason| file_fault(path, reason))
}

fn file_fault(path: &Path, reason: String) -> TlsFault {
    TlsFault::AuthorityFile { path: path.to_owned(), reason }
}

/// Returns the fault of TLS that caused an error, if one did.
pub(super) fn fault_behind(error: &(dyn Error + 'static)) -> Option<TlsFault> {
    let mut next = Some(error);
    while let Some(cause) = next {
        // The library for Redis shares its causes. The source of a shared error is that of the error itself.
        let shared = cause.downcast_ref::<Arc<dyn Error + Send + Sync>>();
        let cause: &(dyn Error + 'static) = shared.map_or(cause, |shared| &**shared);
        let inner = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let inner = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
        if let Some(error) = inner.or_else(|| cause.downcast_ref::<rustls::Error>()) {
            return Some(fault(error));
        }
        next = cause.source();
    }
    None
}

/// Converts an error of a handshake.
fn fault(error: &rustls::Error) -> TlsFault {
    let reason = match error {
        rustls::Error::InvalidCertificate(reason) => reason,
        // A server without TLS answers with text.
        rustls::Error::InvalidMessage(_) => return TlsFault::NotOffered,
        rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => {
            return TlsFault::ClientCertificateRequired;
        }
        error => return TlsFault::Other(error.to_string()),
    };
    match reason {
        CertificateError::UnknownIssuer => TlsFault::UnknownAuthority,
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => TlsFault::Expired,
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => TlsFault::NotYetValid,
        CertificateError::NotValidForNameContext { expected, presented } => {
            let presented = presented.iter().take(NAMES_MAX).map(|name| bare_name(name)).collect();
            TlsFault::OtherName { expected: expected.to_str().into_owned(), presented }
        }
        // The type of this reason belongs to a library that no other code here uses.
        CertificateError::Other(reason) if format!("{reason:?}").contains("CaUsedAsEndEntity") => {
            TlsFault::AuthorityAsServer
        }
        _ => TlsFault::Other(error.to_string()),
    }
}

/// Returns a name of a certificate, which the library writes as `DnsName("a.example")`.
fn bare_name(name: &str) -> String {
    let name = name.split_once('(').map_or(name, |(_, name)| name);
    name.trim_end_matches(')').trim_matches('"').to_owned()
}

/// Checks of server certificates that the library for Redis does not have.
#[cfg(feature = "postgres")]
mod checks {
    use super::{TlsFault, file_fault, read_authorities};
    use crate::storage::trusted_authorities::{parse_authorities, system_authorities};
    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    use rustls::client::verify_server_cert_signed_by_trust_anchor;
    use rustls::crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    use rustls::server::ParsedCertificate;
    use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
    use std::path::Path;
    use std::sync::Arc;

    /// Checks of the certificate that a server presents.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(in crate::storage) enum CertificateCheck {
        /// No check: the server may be any.
        None,
        /// The certificate comes from a trusted authority. It may be for any name.
        Authority,
        /// The certificate comes from a trusted authority, and is for the name of the server.
        AuthorityAndName,
    }

    /// Makes the configuration of connections that check certificates like this. Without a file the authorities of the
    /// system are trusted.
    pub(in crate::storage) fn client_config(
        check: CertificateCheck,
        authorities: Option<&Path>,
    ) -> Result<ClientConfig, TlsFault> {
        let authorities = match (check, authorities) {
            (CertificateCheck::None, _) => None,
            (_, Some(path)) => {
                let parsed = parse_authorities(&read_authorities(path)?);
                Some(parsed.map_err(|reason| file_fault(path, reason))?)
            }
            (_, None) => Some(system_authorities().ok_or(TlsFault::NoSystemAuthorities)?),
        };
        let provider = ring::default_provider();
        let algorithms = provider.signature_verification_algorithms;
        let config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsFault::Other(error.to_string()))?;
        let config = match (check, authorities) {
            (CertificateCheck::AuthorityAndName, Some(authorities)) => config.with_root_certificates(authorities),
            (_, authorities) => {
                let verifier = NamelessVerifier { authorities, algorithms };
                config.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
            }
        };
        Ok(config.with_no_client_auth())
    }

    /// Check of certificates that ignores the names in them.
    #[derive(Debug)]
    struct NamelessVerifier {
        /// Trusted authorities; `None` accepts any certificate.
        authorities: Option<RootCertStore>,
        algorithms: WebPkiSupportedAlgorithms,
    }

    impl ServerCertVerifier for NamelessVerifier {
        fn verify_server_cert(
            &self,
            certificate: &CertificateDer<'_>,
            intermediates: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            now: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
            if let Some(authorities) = &self.authorities {
                let certificate = ParsedCertificate::try_from(certificate)?;
                let algorithms = self.algorithms.all;
                verify_server_cert_signed_by_trust_anchor(&certificate, authorities, intermediates, now, algorithms)?;
            }
            Ok(ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls12_signature(message, certificate, signature, &self.algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls13_signature(message, certificate, signature, &self.algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.algorithms.supported_schemes()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_taken_from_an_address() {
        for (url, value, rest) in [
            ("redis://h/0", None, "redis://h/0"),
            ("redis://h/0?ca=/a%20b.pem", Some("/a b.pem"), "redis://h/0"),
            ("postgres://u:p?ca=1@h/db?x=1&ca=2&y=3&ca=4", Some("4"), "postgres://u:p?ca=1@h/db?x=1&y=3"),
            ("postgres://h?cat=1&ca", None, "postgres://h?cat=1&ca"),
        ] {
            let mut parameters = AddressParameters::split(url);
            assert_eq!(parameters.take("ca").as_deref(), value, "{url}");
            assert_eq!(parameters.url(), rest);
        }
    }
}
