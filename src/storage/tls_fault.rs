//! Reasons why a connection to a database server is not encrypted, with their remedies.

use std::fmt;
use std::path::PathBuf;

/// Name of the parameter of an address that names the file of trusted authorities, as PostgreSQL calls it.
pub(super) const AUTHORITIES_PARAMETER: &str = "sslrootcert";

/// Reason why there is no TLS connection to a server. The connection is then not used at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsFault {
    /// The file of trusted authorities cannot be used.
    AuthorityFile {
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        reason: String,
    },
    /// The system has no certificates of authorities.
    NoSystemAuthorities,
    /// The server's certificate comes from no trusted authority.
    UnknownAuthority,
    /// The server presents the certificate of an authority.
    AuthorityAsServer,
    /// The server's certificate is for other names.
    OtherName {
        /// Name of the server in its address.
        expected: String,
        /// Names in the certificate.
        presented: Vec<String>,
    },
    /// The server's certificate has expired.
    Expired,
    /// The server's certificate is not valid yet.
    NotYetValid,
    /// The server does not encrypt.
    NotOffered,
    /// The server requires a certificate of its clients.
    ClientCertificateRequired,
    /// Any other reason. Holds the text of the TLS library.
    Other(String),
}

impl fmt::Display for TlsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlsFault::AuthorityFile { path, reason } => {
                write!(f, "the file {} of {AUTHORITIES_PARAMETER} cannot be used: {reason}", path.display())
            }
            TlsFault::NoSystemAuthorities => write!(
                f,
                "this system has no certificates of authorities: install the package ca-certificates, or name a file with \
                 {AUTHORITIES_PARAMETER}=FILE.pem"
            ),
            TlsFault::UnknownAuthority => write!(
                f,
                "its certificate comes from an unknown authority: name the file with the certificate of its authority with \
                 {AUTHORITIES_PARAMETER}=FILE.pem"
            ),
            TlsFault::AuthorityAsServer => write!(
                f,
                "its certificate is that of an authority: give the server a certificate that the authority has signed \
                 (basicConstraints=CA:FALSE)"
            ),
            TlsFault::OtherName { expected, presented } if presented.is_empty() => {
                write!(f, "its certificate names no server, {expected} is needed: add it as subjectAltName")
            }
            TlsFault::OtherName { expected, presented } => write!(
                f,
                "its certificate is not for {expected}: write a name of the certificate in the address ({})",
                presented.join(", ")
            ),
            TlsFault::Expired => write!(f, "its certificate has expired: renew it, or correct the clock of this host"),
            TlsFault::NotYetValid => {
                write!(f, "its certificate is not valid yet: correct the clock of this host, or wait")
            }
            TlsFault::NotOffered => {
                write!(f, "it does not encrypt: switch TLS on at the server, or name the port at which it encrypts")
            }
            TlsFault::ClientCertificateRequired => write!(
                f,
                "it requires a certificate of its clients, which this program does not have: let the server require a password \
                 instead"
            ),
            TlsFault::Other(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for TlsFault {}
