//! Parsing of CONNECT and authentication of the client.

use super::fault::{AuthenticationFailure, ConnectFault};
use crate::listener::access::{Access, Account, Credentials, is_equal};
use crate::listener::nkey;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{ED25519, UnparsedPublicKey};
use serde_json::Value;

/// Maximum number of characters of a client's name; the rest is cut off.
const NAME_CHARS_MAX: usize = 128;

/// Options of a client. A further CONNECT leaves options that it does not name unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectOptions {
    /// True if the client wants a `+OK` for each successful operation.
    pub(super) verbose: bool,
    /// True if the client's messages are delivered to its own subscriptions.
    pub(super) echo: bool,
    /// True if the client supports headers.
    pub(super) headers: bool,
    /// True if the client wants a notification if a request has no receivers.
    pub(super) no_responders: bool,
    /// True if the client accepts INFO at any time.
    pub(super) takes_info: bool,
}

impl Default for ConnectOptions {
    fn default() -> ConnectOptions {
        ConnectOptions { verbose: true, echo: true, headers: false, no_responders: false, takes_info: false }
    }
}

/// Identity and credentials in one CONNECT.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    /// Name that the client gave itself.
    pub(super) name: String,
    user: String,
    password: String,
    token: String,
    nkey: String,
    signature: String,
    has_jwt: bool,
}

impl Identity {
    /// Returns whether CONNECT has credentials of any kind.
    pub(super) fn has_credentials(&self) -> bool {
        let texts = [&self.user, &self.password, &self.token, &self.nkey, &self.signature];
        self.has_jwt || texts.into_iter().any(|text| !text.is_empty())
    }
}

/// Reads the object after CONNECT. As in nats-server, the case of names is ignored, null members leave the option
/// unchanged, and unknown members are ignored.
pub(super) fn read(json: &[u8], options: &mut ConnectOptions) -> Result<Identity, ConnectFault> {
    let json = String::from_utf8_lossy(json);
    let value: Value = serde_json::from_str(&json)
        .map_err(|error| ConnectFault::Json { line: error.line(), column: error.column() })?;
    let members = match value {
        Value::Object(members) => members,
        Value::Null => serde_json::Map::new(),
        _ => return Err(ConnectFault::NoObject),
    };
    let mut identity = Identity::default();
    for (name, value) in members.iter().filter(|(_, value)| !value.is_null()) {
        match name.to_ascii_lowercase().as_str() {
            "verbose" => options.verbose = boolean("verbose", value)?,
            "pedantic" => _ = boolean("pedantic", value)?,
            "echo" => options.echo = boolean("echo", value)?,
            "headers" => options.headers = boolean("headers", value)?,
            "no_responders" => options.no_responders = boolean("no_responders", value)?,
            "tls_required" => _ = boolean("tls_required", value)?,
            "protocol" => options.takes_info = protocol(value)?,
            "name" => identity.name = sanitize_name(text("name", value)?),
            "lang" => _ = text("lang", value)?,
            "version" => _ = text("version", value)?,
            "user" => identity.user = text("user", value)?.to_owned(),
            "pass" => identity.password = text("pass", value)?.to_owned(),
            "auth_token" => identity.token = text("auth_token", value)?.to_owned(),
            "nkey" => identity.nkey = text("nkey", value)?.to_owned(),
            "sig" => identity.signature = text("sig", value)?.to_owned(),
            "jwt" => identity.has_jwt = !text("jwt", value)?.is_empty(),
            _ => {}
        }
    }
    if options.no_responders && !options.headers {
        return Err(ConnectFault::NoRespondersNeedHeaders);
    }
    Ok(identity)
}

fn boolean(name: &'static str, value: &Value) -> Result<bool, ConnectFault> {
    value.as_bool().ok_or(ConnectFault::Member { name, wanted: "true or false" })
}

fn text<'a>(name: &'static str, value: &'a Value) -> Result<&'a str, ConnectFault> {
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

/// Returns the name without control characters, cut to the maximum length.
fn sanitize_name(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(NAME_CHARS_MAX).collect()
}

/// Returns whether an account authenticates with a key.
pub(super) fn has_nkeys(access: &Access) -> bool {
    access.accounts.iter().any(|account| matches!(account.credentials, Credentials::Nkey(_)))
}

/// Returns the account whose credentials the client has proven. Checks every account, so that the time does not reveal
/// which account matches.
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
            // The operator is not `&&`, so that both comparisons always run.
            is_equal(name, identity.user.as_bytes()) & is_equal(password, identity.password.as_bytes())
        }
        Credentials::Token(token) => is_equal(token, identity.token.as_bytes()),
        Credentials::Nkey(key) => {
            let is_named = nkey::decode(&identity.nkey).is_ok_and(|named| named == *key);
            is_named && is_signed(key, nonce, &identity.signature)
        }
        Credentials::Certificate(_) => false,
    }
}

/// Returns whether `signature` is a valid signature of `text` by this key. Both base 64 alphabets are accepted.
fn is_signed(key: &[u8; 32], text: &str, signature: &str) -> bool {
    let signature: String = signature
        .trim_end_matches('=')
        .chars()
        .map(|c| match c {
            '+' => '-',
            '/' => '_',
            c => c,
        })
        .collect();
    let Ok(signature) = URL_SAFE_NO_PAD.decode(signature) else { return false };
    UnparsedPublicKey::new(&ED25519, key).verify(text.as_bytes(), &signature).is_ok()
}
