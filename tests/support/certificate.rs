//! Certificates made for a test.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Arguments of `openssl req` for a fresh key.
const FRESH_KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

/// Creates a self-signed certificate for 127.0.0.1, and its key.
pub fn certificate(directory: &Path, name: &str) -> [PathBuf; 2] {
    let files = files(directory, name);
    let request = format!("req -x509 {FRESH_KEY} -days 2 -subj /CN=test -addext subjectAltName=IP:127.0.0.1 -out");
    openssl(Command::new("openssl").args(request.split(' ')).arg(&files[0]).arg("-keyout").arg(&files[1]));
    files
}

/// An authority that signs certificates.
pub struct Authority {
    directory: PathBuf,
    files: [PathBuf; 2],
}

impl Authority {
    /// Creates one whose files are in this directory.
    pub fn new(directory: &Path, name: &str) -> Authority {
        let files = files(directory, name);
        let request = format!("req -x509 {FRESH_KEY} -days 2 -subj /CN={name} -out");
        openssl(Command::new("openssl").args(request.split(' ')).arg(&files[0]).arg("-keyout").arg(&files[1]));
        Authority { directory: directory.to_owned(), files }
    }

    /// Returns the file with its own certificate.
    pub fn certificate(&self) -> &Path {
        &self.files[0]
    }

    /// Returns the file with its own key.
    pub fn key(&self) -> &Path {
        &self.files[1]
    }

    /// Signs a certificate with this subject and these alternative names, such as `DNS:localhost`. It is valid from now
    /// for this number of days, and expired if that is negative. Returns it and its key.
    pub fn sign(&self, name: &str, subject: &str, alternative_names: &str, days: i32) -> [PathBuf; 2] {
        let files = files(&self.directory, name);
        let request = self.directory.join(format!("{name}-request.pem"));
        let mut made = Command::new("openssl");
        made.args(format!("req -new {FRESH_KEY} -addext basicConstraints=CA:FALSE -subj").split(' ')).arg(subject);
        made.args(["-addext", &format!("subjectAltName={alternative_names}"), "-out"]).arg(&request);
        openssl(made.arg("-keyout").arg(&files[1]));
        let mut signed = Command::new("openssl");
        signed.args([
            "x509",
            "-req",
            "-copy_extensions",
            "copy",
            "-days",
            &days.to_string(),
            "-set_serial",
            "7",
            "-CA",
        ]);
        signed
            .arg(&self.files[0])
            .arg("-CAkey")
            .arg(&self.files[1])
            .arg("-in")
            .arg(&request)
            .arg("-out")
            .arg(&files[0]);
        openssl(&mut signed);
        files
    }
}

/// Returns the files of a certificate and of its key.
fn files(directory: &Path, name: &str) -> [PathBuf; 2] {
    ["cert", "key"].map(|part| directory.join(format!("{name}-{part}.pem")))
}

fn openssl(command: &mut Command) {
    let made = command.output().expect("openssl is installed");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}
