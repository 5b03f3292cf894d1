//! Certificates made for a test.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Creates a self-signed certificate for 127.0.0.1, and its key.
pub fn certificate(directory: &Path, name: &str) -> [PathBuf; 2] {
    let files = ["cert", "key"].map(|part| directory.join(format!("{name}-{part}.pem")));
    let mut openssl = Command::new("openssl");
    openssl.args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test".split(' '));
    openssl.args(["-addext", "subjectAltName=IP:127.0.0.1", "-out"]).arg(&files[0]).arg("-keyout").arg(&files[1]);
    let made = openssl.output().expect("openssl is installed");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    files
}
