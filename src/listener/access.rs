//! Who may use a listener: the accounts, and what each of them gets.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use std::fmt;

/// How a client proves that it is an account.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// A user name and a password.
    User {
        /// The name.
        name: String,
        /// The password.
        password: String,
    },
    /// A word that stands for both.
    Token(String),
    /// The public half of an Ed25519 key pair, in the form `U…` of NATS (nkey): the client signs a nonce.
    Nkey([u8; 32]),
}

impl fmt::Debug for Credentials {
    /// Without the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Credentials::User { name, .. } => write!(f, "User({name:?})"),
            Credentials::Token(_) => write!(f, "Token"),
            Credentials::Nkey(_) => write!(f, "Nkey"),
        }
    }
}

/// One account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// How it is proven.
    pub credentials: Credentials,
    /// Whether each message carries headers with what the bus knows about it.
    pub headers: bool,
}

/// Who may use a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Without any, everyone may.
    pub accounts: Vec<Account>,
    /// Whether each message carries headers with what the bus knows about it, for everyone.
    pub headers: bool,
}

impl Access {
    /// Whether clients have to say who they are.
    pub fn is_closed(&self) -> bool {
        !self.accounts.is_empty()
    }
}

/// Whether a client was told this secret, in a time that says nothing about it, not even how long it is. Nothing is no secret.
pub(crate) fn is_equal(secret: &str, told: &[u8]) -> bool {
    let digest = |bytes: &[u8]| digest(&SHA256, bytes);
    !secret.is_empty() && verify_slices_are_equal(digest(secret.as_bytes()).as_ref(), digest(told).as_ref()).is_ok()
}
