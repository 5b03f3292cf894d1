//! Access control of a listener: its accounts and their credentials.

use super::permissions::Permissions;
#[cfg(feature = "listeners")]
use aws_lc_rs::constant_time::verify_slices_are_equal;
#[cfg(feature = "listeners")]
use aws_lc_rs::digest::{SHA256, digest};
use std::fmt;

/// Credentials by which a client authenticates as an account.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// A user name and a password.
    User {
        /// The name.
        name: String,
        /// The password.
        password: String,
    },
    /// A token, without a user name.
    Token(String),
    /// The public half of an Ed25519 key pair, in the form `U…` of NATS (nkey): the client signs a nonce.
    Nkey([u8; 32]),
}

impl fmt::Debug for Credentials {
    /// Formats the credentials without secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Credentials::User { name, .. } => write!(f, "User({name:?})"),
            Credentials::Token(_) => write!(f, "Token"),
            Credentials::Nkey(_) => write!(f, "Nkey"),
        }
    }
}

/// An account of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Credentials of the account.
    pub credentials: Credentials,
    /// True if each message to a client of the account carries headers with the metadata of the bus.
    pub headers: bool,
    /// Subjects that its clients may use.
    pub permissions: Permissions,
}

impl Account {
    /// Creates an account that may do everything, without headers of the bus.
    pub fn new(credentials: Credentials) -> Account {
        Account { credentials, headers: false, permissions: Permissions::default() }
    }
}

/// Access rules of a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Accounts. Without accounts, every client has access.
    pub accounts: Vec<Account>,
    /// True if each message to any client carries headers with the metadata of the bus.
    pub headers: bool,
}

impl Access {
    /// Returns whether clients must authenticate.
    pub fn requires_authentication(&self) -> bool {
        !self.accounts.is_empty()
    }
}

/// Returns whether the received bytes equal the secret. The comparison takes constant time and does not reveal the
/// length of the secret. An empty secret equals no bytes.
#[cfg(feature = "listeners")]
pub(crate) fn is_equal(secret: &str, received: &[u8]) -> bool {
    let digest = |bytes: &[u8]| digest(&SHA256, bytes);
    !secret.is_empty() && verify_slices_are_equal(digest(secret.as_bytes()).as_ref(), digest(received).as_ref()).is_ok()
}
