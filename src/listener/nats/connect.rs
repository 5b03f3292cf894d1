//! What a client says about itself, and whether that lets it in.

use super::{AuthenticationFailure, ConnectFault, nkey};
use crate::listener::access::{Access, Account, Credentials, is_equal};
use serde_json::Value;

/// Characters of a client's name for itself that are kept.
const NAME_CHARS_MAX: usize = 128;

/// What a client wants. What a further CONNECT does not name stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectOptions {
    /// Everything that is right is answered, too.
    pub(super) verbose: bool,
    /// What it publishes comes back to its own subscriptions.
    pub(super) echo: bool,
    /// It knows headers.
    pub(super) headers: bool,
    /// It is to be told when nobody can answer.
    pub(super) no_responders: bool,
    /// It takes INFO at any time.
    pub(super) takes_info: bool,
}

impl Default for ConnectOptions {
    fn default() -> ConnectOptions {
        ConnectOptions { verbose: true, echo: true, headers: false, no_responders: false, takes_info: false }
    }
}

/// What a client says once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    /// Its name for itself.
    pub(super) name: String,
    user: String,
    password: String,
    token: String,
    nkey: String,
    signature: String,
    has_jwt: bool,
}

/// Reads the object behind CONNECT. Members are known in upper and lower case, those that are null stay as they were, and those
/// that nobody knows are left alone, all as nats-server does it.
pub(super) fn read(json: &[u8], options: &mut ConnectOptions) -> Result<Identity, ConnectFault> {
    let text = String::from_utf8_lossy(json);
    let value: Value = serde_json::from_str(&text)
        .map_err(|error| ConnectFault::Json { line: error.line(), column: error.column() })?;
    let members = match value {
        Value::Object(members) => members,
        Value::Null => serde_json::Map::new(),
        _ => return Err(ConnectFault::NoObject),
    };
    let mut identity = Identity::default();
    for (name, value) in members.iter().filter(|(_, value)| !value.is_null()) {
        match name.to_ascii_lowercase().as_str() {
            "verbose" => options.verbose = switch("verbose", value)?,
            "pedantic" => _ = switch("pedantic", value)?,
            "echo" => options.echo = switch("echo", value)?,
            "headers" => options.headers = switch("headers", value)?,
            "no_responders" => options.no_responders = switch("no_responders", value)?,
            "tls_required" => _ = switch("tls_required", value)?,
            "protocol" => options.takes_info = protocol(value)?,
            "name" => identity.name = name_of(text_of("name", value)?),
            "lang" => _ = text_of("lang", value)?,
            "version" => _ = text_of("version", value)?,
            "user" => identity.user = text_of("user", value)?.to_owned(),
            "pass" => identity.password = text_of("pass", value)?.to_owned(),
            "auth_token" => identity.token = text_of("auth_token", value)?.to_owned(),
            "nkey" => identity.nkey = text_of("nkey", value)?.to_owned(),
            "sig" => identity.signature = text_of("sig", value)?.to_owned(),
            "jwt" => identity.has_jwt = !text_of("jwt", value)?.is_empty(),
            _ => {}
        }
    }
    if options.no_responders && !options.headers {
        return Err(ConnectFault::NoRespondersNeedHeaders);
    }
    Ok(identity)
}

fn switch(name: &'static str, value: &Value) -> Result<bool, ConnectFault> {
    value.as_bool().ok_or(ConnectFault::Member { name, wanted: "true or false" })
}

fn text_of<'a>(name: &'static str, value: &'a Value) -> Result<&'a str, ConnectFault> {
    value.as_str().ok_or(ConnectFault::Member { name, wanted: "text" })
}

fn protocol(value: &Value) -> Result<bool, ConnectFault> {
    match value.as_i64() {
        Some(0) => Ok(false),
        Some(1) => Ok(true),
        Some(_) => Err(ConnectFault::Protocol),
        None => Err(ConnectFault::Member { name: "protocol", wanted: "0 or 1" }),
    }
}

/// A name that does no harm where it is shown.
fn name_of(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(NAME_CHARS_MAX).collect()
}

/// Whether somebody may prove with a key who it is.
pub(super) fn has_nkeys(access: &Access) -> bool {
    access.accounts.iter().any(|account| matches!(account.credentials, Credentials::Nkey(_)))
}

/// The account that the client has proven to be. Every account is tried, so that the time says nothing about which there are.
pub(super) fn authenticate<'a>(
    access: &'a Access,
    identity: &Identity,
    nonce: &str,
) -> Result<&'a Account, AuthenticationFailure> {
    let proven = access.accounts.iter().fold(None, |proven, account| {
        if is_proven(&account.credentials, identity, nonce) { proven.or(Some(account)) } else { proven }
    });
    match proven {
        Some(account) => Ok(account),
        None if identity.has_jwt => Err(AuthenticationFailure::Jwt),
        None => Err(AuthenticationFailure::Wrong),
    }
}

fn is_proven(credentials: &Credentials, identity: &Identity, nonce: &str) -> bool {
    match credentials {
        Credentials::User { name, password } => {
            // Not `&&`: both are compared, whatever the first says.
            is_equal(name, identity.user.as_bytes()) & is_equal(password, identity.password.as_bytes())
        }
        Credentials::Token(token) => is_equal(token, identity.token.as_bytes()),
        Credentials::Nkey(key) => {
            let is_named = nkey::decode(&identity.nkey).is_ok_and(|named| named == *key);
            is_named && nkey::is_signed(key, nonce, &identity.signature)
        }
    }
}

/// What people are told about who a client is.
pub(super) fn account_label(account: &Account) -> String {
    match &account.credentials {
        Credentials::User { name, .. } => name.clone(),
        Credentials::Token(_) => "token".to_owned(),
        Credentials::Nkey(_) => "nkey".to_owned(),
    }
}
