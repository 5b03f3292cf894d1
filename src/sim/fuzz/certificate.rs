//! Target `certificate`: bytes to a certificate and back, and text to a line of the set-up and back.

use crate::security::realm::{CERTIFICATE_BYTES_MAX, Certificate, SetupLine, Trust, TrustAnchor};
use crate::time::WallTime;

/// Decodes a certificate, checks it, and reads a line. Whatever is read is written in the same way.
pub fn certificate(bytes: &[u8]) {
    if let Ok(certificate) = Certificate::decode(bytes) {
        assert!(bytes.len() <= CERTIFICATE_BYTES_MAX);
        assert_eq!(certificate.encode(), bytes);
        let keys = certificate.fields().keys;
        let trust = Trust::new(certificate.fields().realm.clone(), TrustAnchor::OwnKey);
        let checked = trust.check(bytes, &keys.static_key, WallTime::EPOCH);
        assert!(checked.is_err() || certificate.is_own() && certificate.is_intact());
        check_line(&SetupLine::Certificate(certificate).text());
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(line) = SetupLine::parse(text)
    {
        check_line(&line.text());
    }
}

/// Reads a line that was written.
fn check_line(text: &str) {
    let line = SetupLine::parse(text).expect("a line that was written can be read");
    assert_eq!(*line.text(), *text);
}
