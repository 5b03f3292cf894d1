//! Certificates of listener clients: the names in them, and the reasons why handshakes fail.

use rustls::{CertificateError, Error};
use std::fmt;
use std::io;
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::der::asn1::Ia5String;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// Maximum number of names of a certificate that are compared with accounts.
const NAMES_MAX: usize = 64;

/// Returns the names in a certificate in the order in which accounts are searched for them: the e-mail addresses, DNS
/// names and URIs of the subject alternative name, then the common name of the subject. A certificate that cannot be
/// read has none.
pub(super) fn certificate_names(der: &[u8]) -> Vec<String> {
    let Ok(certificate) = Certificate::from_der(der) else { return Vec::new() };
    let certificate = certificate.tbs_certificate();
    let alternative = match certificate.get_extension::<SubjectAltName>() {
        Ok(Some((_, names))) => names.0,
        Ok(None) | Err(_) => Vec::new(),
    };
    let of_kind = |name_of: fn(&GeneralName) -> Option<&Ia5String>| alternative.iter().filter_map(name_of);
    let emails = of_kind(|name| match name {
        GeneralName::Rfc822Name(name) => Some(name),
        _ => None,
    });
    let dns_names = of_kind(|name| match name {
        GeneralName::DnsName(name) => Some(name),
        _ => None,
    });
    let uris = of_kind(|name| match name {
        GeneralName::UniformResourceIdentifier(name) => Some(name),
        _ => None,
    });
    let names = emails.chain(dns_names).chain(uris).map(ToString::to_string);
    let common_name = certificate.subject().common_name().ok().flatten();
    names.chain(common_name.map(String::from)).take(NAMES_MAX).collect()
}

/// Reason why the TLS handshake of a client failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeFault {
    /// The client presented no certificate although one is required.
    NoCertificate,
    /// The certificate comes from another authority.
    ForeignCertificate,
    /// The certificate has expired, or is not valid yet.
    OutdatedCertificate,
    /// Any other reason. Holds the text of the TLS library.
    Other(String),
}

impl HandshakeFault {
    /// Returns the fault of TLS in an error of a stream; `None` if the stream failed for another reason.
    pub(crate) fn of(error: &io::Error) -> Option<HandshakeFault> {
        let error = error.get_ref()?.downcast_ref::<Error>()?;
        Some(match error {
            Error::NoCertificatesPresented => HandshakeFault::NoCertificate,
            Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
                HandshakeFault::ForeignCertificate
            }
            Error::InvalidCertificate(
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. },
            ) => HandshakeFault::OutdatedCertificate,
            error => HandshakeFault::Other(error.to_string()),
        })
    }

    /// Returns the kind of fault, for counters.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            HandshakeFault::NoCertificate => "no client certificate",
            HandshakeFault::ForeignCertificate => "foreign client certificate",
            HandshakeFault::OutdatedCertificate => "outdated client certificate",
            HandshakeFault::Other(_) => "TLS handshake",
        }
    }
}

impl fmt::Display for HandshakeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HandshakeFault::NoCertificate => "the client has no certificate, which this listener requires",
            HandshakeFault::ForeignCertificate => "the certificate of the client comes from another authority",
            HandshakeFault::OutdatedCertificate => "the certificate of the client has expired, or is not valid yet",
            HandshakeFault::Other(reason) => reason,
        })
    }
}
