//! Access of HTTP clients: the names under which a browser may reach the peer, the pages that may send requests, and the
//! accounts. A page of another site must neither read the peer's reports nor publish, although it runs in a browser
//! of this host.

use crate::listener::access::{Access, Account, Credentials, is_equal};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use std::net::{IpAddr, Ipv6Addr};

/// User name with which a browser sends a token as the password.
const TOKEN_USER: &str = "token";

/// Returns whether a Host header names this host by an address, as `localhost`, or by `host_name`. Any other name may be
/// one that a foreign site resolves to an address of this host (DNS rebinding).
pub fn is_own_host(host: &str, host_name: &str) -> bool {
    if let Some(address) = host.strip_prefix('[') {
        let Some((address, port)) = address.split_once(']') else { return false };
        return address.parse::<Ipv6Addr>().is_ok() && (port.is_empty() || port.starts_with(':'));
    }
    let name = host.split_once(':').map_or(host, |(name, _)| name);
    let is_name = |own: &str| !own.is_empty() && name.eq_ignore_ascii_case(own);
    name.parse::<IpAddr>().is_ok() || is_name("localhost") || is_name(host_name)
}

/// Returns whether the page of an Origin header came from the same host and port as the request.
pub fn is_own_origin(origin: &str, host: &str) -> bool {
    let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

/// Returns the account of an Authorization header: Basic with a user and a password, Basic with the user `token` and a
/// token, or Bearer with a token. `None` if no account fits.
pub fn authenticate<'a>(access: &'a Access, authorization: &str) -> Option<&'a Account> {
    let (scheme, credentials) = authorization.split_once(' ')?;
    let (user, secret) = if scheme.eq_ignore_ascii_case("bearer") {
        (TOKEN_USER.to_owned(), credentials.trim().as_bytes().to_vec())
    } else if scheme.eq_ignore_ascii_case("basic") {
        let decoded = BASE64_STANDARD.decode(credentials.trim()).ok()?;
        let colon = decoded.iter().position(|byte| *byte == b':')?;
        (String::from_utf8(decoded[..colon].to_vec()).ok()?, decoded[colon + 1..].to_vec())
    } else {
        return None;
    };
    let is_account = |account: &&Account| match &account.credentials {
        Credentials::User { name, password } => is_equal(name, user.as_bytes()) & is_equal(password, &secret),
        Credentials::Token(token) => (user == TOKEN_USER) & is_equal(token, &secret),
        Credentials::Nkey(_) | Credentials::Certificate(_) => false,
    };
    access.accounts.iter().find(is_account)
}

/// Returns the public name of an account: its user, or `token`.
pub fn account_name(account: &Account) -> &str {
    match &account.credentials {
        Credentials::User { name, .. } => name,
        Credentials::Token(_) | Credentials::Nkey(_) | Credentials::Certificate(_) => TOKEN_USER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_an_address_or_own_name() {
        for (host, expected) in [
            ("127.0.0.1:7580", true),
            ("10.0.0.7", true),
            ("[::1]:7580", true),
            ("[fe80::1]", true),
            ("localhost:7580", true),
            ("LOCALHOST", true),
            ("plant-7:7580", true),
            ("evil.example:7580", false),
            ("127.0.0.1.evil.example", false),
            ("localhost.evil.example", false),
            ("[::1", false),
            ("[evil]", false),
            ("[::1]x", false),
            ("", false),
            (":7580", false),
        ] {
            assert_eq!(is_own_host(host, "plant-7"), expected, "{host}");
        }
        assert!(!is_own_host("", "") && !is_own_host(":80", ""));
    }

    #[test]
    fn origin_has_the_host_of_the_request() {
        for (origin, expected) in [
            ("http://127.0.0.1:7580", true),
            ("https://127.0.0.1:7580", true),
            ("http://127.0.0.1:7581", false),
            ("http://127.0.0.1:7580.evil.example", false),
            ("null", false),
            ("", false),
        ] {
            assert_eq!(is_own_origin(origin, "127.0.0.1:7580"), expected, "{origin}");
        }
    }

    #[test]
    fn accounts_authenticate_by_basic_and_bearer() {
        let user = Credentials::User { name: "alice".into(), password: "s3:cret".into() };
        let accounts = vec![user, Credentials::Token("t0ken".into()), Credentials::Nkey([7; 32])]
            .into_iter()
            .map(Account::new)
            .collect();
        let access = Access { accounts, ..Access::default() };
        let basic = |text: &str| format!("Basic {}", BASE64_STANDARD.encode(text));
        for (authorization, expected) in [
            (basic("alice:s3:cret"), Some("alice")),
            (basic("alice:s3"), None),
            (basic("bob:s3:cret"), None),
            (basic("token:t0ken"), Some("token")),
            (basic("alice:t0ken"), None),
            (basic("token:"), None),
            ("bearer t0ken".to_owned(), Some("token")),
            ("Bearer alice".to_owned(), None),
            ("Basic %".to_owned(), None),
            (basic("alice"), None),
            ("Digest x".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(authenticate(&access, &authorization).map(account_name), expected, "{authorization}");
        }
    }
}
