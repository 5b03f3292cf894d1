//! The credentials with which a gateway connects to the cluster.

use async_nats::ConnectOptions;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Maximum size of the file in bytes.
const FILE_BYTES_MAX: usize = 64 << 10;
/// Length of the seed of a user's nkey, in base32 (RFC 4648): 36 bytes.
const SEED_BYTES: usize = 58;

/// Reason why a file of credentials cannot be used.
#[derive(Debug)]
pub enum CredentialsError {
    /// The file cannot be read.
    Read(PathBuf, io::Error),
    /// The file has none of the known forms.
    Form(PathBuf),
}

impl fmt::Display for CredentialsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CredentialsError::Read(path, error) => write!(f, "link-credentials: {}: {error}", path.display()),
            CredentialsError::Form(path) => write!(
                f,
                "link-credentials: {}: neither a .creds file nor the seed of a user nor a line user NAME password WORD",
                path.display()
            ),
        }
    }
}

impl std::error::Error for CredentialsError {}

/// The content of a file of credentials.
#[derive(Clone)]
pub(super) enum LinkCredentials {
    /// Anyone may connect.
    Nothing,
    /// The content of a `.creds` file: a JWT and a seed.
    Jwt(String),
    /// The seed of the nkey of a user.
    Seed(String),
    /// Name and password.
    User(String, String),
}

impl LinkCredentials {
    /// Reads a file of credentials, if one is configured.
    ///
    /// # Errors
    /// The file cannot be read, is too large or has another form.
    pub(super) fn read(path: Option<&Path>) -> Result<LinkCredentials, CredentialsError> {
        let Some(path) = path else { return Ok(LinkCredentials::Nothing) };
        let failed = |error| CredentialsError::Read(path.to_owned(), error);
        // A FIFO or a device could hold the peer up.
        if !fs::metadata(path).map_err(failed)?.is_file() {
            return Err(failed(io::Error::other("it is no file")));
        }
        let mut text = String::new();
        let file = File::open(path).map_err(failed)?;
        file.take(FILE_BYTES_MAX as u64 + 1).read_to_string(&mut text).map_err(failed)?;
        let known = if FILE_BYTES_MAX < text.len() { None } else { LinkCredentials::parse(&text) };
        known.ok_or_else(|| CredentialsError::Form(path.to_owned()))
    }

    /// Returns whether they are a password, which anyone on the way can read if the connection is not encrypted.
    pub(super) fn is_password(&self) -> bool {
        matches!(self, LinkCredentials::User(..))
    }

    fn parse(text: &str) -> Option<LinkCredentials> {
        if text.contains("BEGIN NATS USER JWT") {
            return ConnectOptions::with_credentials(text).is_ok().then(|| LinkCredentials::Jwt(text.to_owned()));
        }
        match text.split_whitespace().collect::<Vec<&str>>()[..] {
            [seed] if is_seed(seed) => Some(LinkCredentials::Seed(seed.to_owned())),
            ["user", name, "password", word] => Some(LinkCredentials::User(name.to_owned(), word.to_owned())),
            _ => None,
        }
    }

    /// Adds the credentials to the options of a connection.
    pub(super) fn add_to(&self, options: ConnectOptions) -> ConnectOptions {
        match self {
            LinkCredentials::Nothing => options,
            LinkCredentials::Jwt(text) => options.credentials(text).expect("the text was checked"),
            LinkCredentials::Seed(seed) => options.nkey(seed.clone()),
            LinkCredentials::User(name, word) => options.user_and_password(name.clone(), word.clone()),
        }
    }
}

/// Returns whether the text has the form of the seed of a user's nkey.
fn is_seed(text: &str) -> bool {
    let is_base32 = |byte: u8| byte.is_ascii_uppercase() || (b'2'..=b'7').contains(&byte);
    text.len() == SEED_BYTES && text.starts_with("SU") && text.bytes().all(is_base32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_have_one_of_three_forms() {
        let form = |text: &str| {
            LinkCredentials::parse(text).map(|credentials| match credentials {
                LinkCredentials::Nothing => "nothing",
                LinkCredentials::Jwt(_) => "jwt",
                LinkCredentials::Seed(_) => "seed",
                LinkCredentials::User(..) => "user",
            })
        };
        assert_eq!(form("SUAGC3DI7KBRQLQMSLMUVXYCPBVDCBBSUSIQTN3ZM6Y7IZ6OXGHJUGCL5I\n"), Some("seed"));
        assert_eq!(form("user a password b\n"), Some("user"));
        for text in ["", "SUA", "SUAGC3DI7KBRQLQMSLMUVXYCPBVDCBBSUSIQTN3ZM6Y7IZ6OXGHJUGCL51"] {
            assert_eq!(form(text), None, "{text}");
        }
        assert_eq!(form("user a"), None);
        assert_eq!(form("-----BEGIN NATS USER JWT-----\nx\n"), None);
    }
}
