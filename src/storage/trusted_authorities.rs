//! The authorities whose certificates of servers are trusted: those of a file, or those of the system.

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Maximum size of a file of authorities, in bytes. Those of systems have about 0.3 MB.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Reads a file with certificates of authorities in PEM. Returns its content.
///
/// # Errors
/// The file cannot be read, is too large, or holds no certificate. The error is the reason.
pub(crate) fn read_authority_file(path: &Path) -> Result<Vec<u8>, String> {
    let mut pem = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut pem));
    read.map_err(|error| error.to_string())?;
    if FILE_BYTES_MAX < pem.len() as u64 {
        return Err("it is too large for a file of certificates".to_owned());
    }
    parse_authorities(&pem)?;
    Ok(pem)
}

/// Parses the content of a file with certificates of authorities in PEM.
///
/// # Errors
/// A certificate cannot be used, or there is none. The error is the reason.
pub(crate) fn parse_authorities(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut authorities = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        authorities.add(certificate).map_err(|error| error.to_string())?;
    }
    if authorities.is_empty() {
        return Err("it holds no certificate in PEM".to_owned());
    }
    Ok(authorities)
}

/// Returns the authorities that the system trusts, without those that cannot be read; `None` if there are none.
#[cfg(any(feature = "links", feature = "postgres"))]
pub(crate) fn system_authorities() -> Option<RootCertStore> {
    let mut authorities = RootCertStore::empty();
    authorities.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    (!authorities.is_empty()).then_some(authorities)
}
