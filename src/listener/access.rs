//! Access control of a listener: its accounts and their credentials.

use super::permissions::Permissions;
use crate::subject::permitted_subjects::HostPermissions;
#[cfg(feature = "listeners")]
use ring::digest::{SHA256, digest};
use std::fmt;
#[cfg(feature = "listeners")]
use subtle::ConstantTimeEq;

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
    /// A name in the certificate that the client presents: an alternative name or the common name of its subject.
    Certificate(String),
}

impl Credentials {
    /// Returns the name of the account for people, without secrets: a user, a name in a certificate, or the kind of
    /// credentials.
    pub fn public_name(&self) -> &str {
        match self {
            Credentials::User { name, .. } | Credentials::Certificate(name) => name,
            Credentials::Token(_) => "token",
            Credentials::Nkey(_) => "nkey",
        }
    }
}

impl fmt::Debug for Credentials {
    /// Formats the credentials without secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Credentials::User { name, .. } => write!(f, "User({name:?})"),
            Credentials::Token(_) => write!(f, "Token"),
            Credentials::Nkey(_) => write!(f, "Nkey"),
            Credentials::Certificate(name) => write!(f, "Certificate({name:?})"),
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
    /// Subjects that clients may use if there are no accounts.
    pub permissions: Permissions,
}

impl Access {
    /// Returns the access rules with these accounts on a host whose certificate has these permissions.
    pub fn new(accounts: &[Account], host: &HostPermissions, headers: bool) -> Access {
        let account = |account: &Account| Account { permissions: account.permissions.within(host), ..account.clone() };
        let accounts = accounts.iter().map(account).collect();
        Access { accounts, headers, permissions: Permissions::default().within(host) }
    }

    /// Returns the permissions of a client with this account, if it needs one.
    pub fn permissions_of<'a>(&'a self, account: Option<&'a Account>) -> &'a Permissions {
        account.map_or(&self.permissions, |account| &account.permissions)
    }

    /// Returns whether clients must authenticate.
    pub fn requires_authentication(&self) -> bool {
        !self.accounts.is_empty()
    }

    /// Returns the account of a client whose verified certificate has these names. The first name that is one of an
    /// account decides.
    pub fn account_of_certificate(&self, names: &[String]) -> Option<&Account> {
        let account = |name: &String| {
            let is_named =
                |account: &&Account| matches!(&account.credentials, Credentials::Certificate(of) if of == name);
            self.accounts.iter().find(is_named)
        };
        names.iter().find_map(account)
    }
}

/// Returns whether the received bytes equal the secret. The comparison takes constant time and does not reveal the
/// length of the secret. An empty secret equals no bytes.
#[cfg(feature = "listeners")]
pub(crate) fn is_equal(secret: &str, received: &[u8]) -> bool {
    let digest = |bytes: &[u8]| digest(&SHA256, bytes);
    !secret.is_empty() && digest(secret.as_bytes()).as_ref().ct_eq(digest(received).as_ref()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_known_name_of_a_certificate_decides() {
        let accounts = vec![
            Account::new(Credentials::User { name: "bob".into(), password: "bob".into() }),
            Account::new(Credentials::Certificate("device-7".into())),
            Account::new(Credentials::Certificate("a@b.example".into())),
        ];
        let access = Access { accounts, ..Access::default() };
        for (names, expected) in [
            (&["a@b.example", "device-7"][..], Some("a@b.example")),
            (&["other", "device-7", "a@b.example"], Some("device-7")),
            (&["bob", "Device-7", "device-7.example"], None),
            (&[], None),
        ] {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let account = access.account_of_certificate(&names);
            assert_eq!(account.map(|account| account.credentials.public_name()), expected, "{names:?}");
        }
    }
}
