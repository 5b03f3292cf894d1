//! The values of the keys about listeners: addresses, accounts, and encryption.

use super::choice::{ON_OFF, YES_NO};
use super::host_defaults::HostDefaults;
use super::quantity::DurationFormat;
use super::spelling::nearest;
use super::value_error::{ACCOUNT_FORMS, ACCOUNT_OPTIONS, ACCOUNTS_MAX, AccountError, ValueError};
use super::value_format::{ValueFormat, split_list};
use crate::listener::access::{Account, Credentials};
use crate::listener::nkey;
use crate::listener::permissions::{PATTERNS_MAX, Permissions, SubjectPermission};
use crate::subject::Pattern;
use crate::subject::pattern_set::PatternSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Address of a listener: `off`, `on` (loopback at the usual port), a port, an address, or both.
pub(super) struct ListenAddressFormat {
    /// Usual port of the protocol.
    pub port: u16,
}

impl ValueFormat for ListenAddressFormat {
    type Value = Option<SocketAddr>;

    fn parse(&self, text: &str, defaults: &HostDefaults) -> Result<Option<SocketAddr>, ValueError> {
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let at = |address, port| Ok(Some(SocketAddr::new(address, port)));
        match ON_OFF.parse(text, defaults) {
            Ok(false) => return Ok(None),
            Ok(true) => return at(loopback, self.port),
            Err(_) => {}
        }
        if let Ok(port) = text.parse() {
            return at(loopback, port);
        }
        if let Ok(address) = text.parse() {
            return at(address, self.port);
        }
        text.parse().map(Some).map_err(|_| ValueError::ListenAddress { port: self.port })
    }

    fn show(&self, value: &Option<SocketAddr>) -> String {
        value.map_or("off".into(), |address| address.to_string())
    }

    fn range(&self) -> String {
        format!("off, on (127.0.0.1:{}), a port, an address, or ADDRESS:PORT; port 0 takes any free one", self.port)
    }
}

/// Words of an account that stand before a secret.
const BEFORE_SECRETS: [&str; 2] = ["password", "token"];

/// The accounts that may connect: one or several with `;` between them.
pub(super) struct AccountsFormat;

impl ValueFormat for AccountsFormat {
    type Value = Vec<Account>;

    fn parse(&self, text: &str, _: &HostDefaults) -> Result<Vec<Account>, ValueError> {
        if text == "none" {
            return Ok(Vec::new());
        }
        let mut accounts: Vec<Account> = Vec::new();
        for words in split_list(text, &BEFORE_SECRETS)? {
            let account = account(&words).map_err(ValueError::Account)?;
            if accounts.iter().any(|other| is_same(&other.credentials, &account.credentials)) {
                return Err(ValueError::Account(AccountError::Twice(public(&account.credentials))));
            }
            accounts.push(account);
        }
        if ACCOUNTS_MAX < accounts.len() {
            return Err(ValueError::Account(AccountError::TooMany));
        }
        Ok(accounts)
    }

    /// Shows the accounts without their secrets.
    fn show(&self, accounts: &Vec<Account>) -> String {
        let show_account = |account: &Account| {
            let credentials = match &account.credentials {
                Credentials::User { name, .. } => format!("user {name} password ***"),
                Credentials::Token(_) => "token ***".to_owned(),
                Credentials::Nkey(key) => format!("nkey {}", nkey::encode(key)),
                Credentials::Certificate(name) => format!("certificate {name}"),
            };
            let headers = if account.headers { " headers" } else { "" };
            let Permissions { publish, subscribe } = &account.permissions;
            format!(
                "{credentials}{headers}{}{}",
                show_permission("publish", publish),
                show_permission("subscribe", subscribe)
            )
        };
        match accounts[..] {
            [] => "none".into(),
            _ => accounts.iter().map(show_account).collect::<Vec<String>>().join(" ; "),
        }
    }

    fn range(&self) -> String {
        let forms: Vec<&str> = ACCOUNT_FORMS.iter().map(|(_, form)| *form).collect();
        format!("none, or up to {ACCOUNTS_MAX} accounts: {}; each followed by {ACCOUNT_OPTIONS}", forms.join(", "))
    }

    fn is_list(&self) -> bool {
        true
    }
}

fn is_same(a: &Credentials, b: &Credentials) -> bool {
    match (a, b) {
        (Credentials::User { name, .. }, Credentials::User { name: other, .. }) => name == other,
        _ => a == b,
    }
}

/// Returns the part of the credentials that is not secret.
fn public(credentials: &Credentials) -> Option<String> {
    match credentials {
        Credentials::User { name, .. } => Some(format!("user {name}")),
        Credentials::Token(_) => None,
        Credentials::Nkey(key) => Some(format!("nkey {}", nkey::encode(key))),
        Credentials::Certificate(name) => Some(format!("certificate {name}")),
    }
}

fn account(words: &[&str]) -> Result<Account, AccountError> {
    let (kind, rest) = words.split_first().ok_or(AccountError::Empty)?;
    let intended_kind = || nearest(kind, ACCOUNT_FORMS.iter().map(|(kind, _)| *kind));
    let (_, form) = *ACCOUNT_FORMS
        .iter()
        .find(|(name, _)| name == kind)
        .ok_or_else(|| AccountError::UnknownKind(intended_kind()))?;
    let (credentials, options) = match (*kind, rest) {
        ("user", [name, "password", password, options @ ..]) => {
            (Credentials::User { name: (*name).to_owned(), password: (*password).to_owned() }, options)
        }
        ("token", [token, options @ ..]) => (Credentials::Token((*token).to_owned()), options),
        ("nkey", [text, options @ ..]) => (Credentials::Nkey(nkey::decode(text).map_err(AccountError::Nkey)?), options),
        ("certificate", [name, options @ ..]) => (Credentials::Certificate((*name).to_owned()), options),
        _ => return Err(AccountError::Form(form)),
    };
    let (headers, permissions) = account_options(form, options)?;
    Ok(Account { credentials, headers, permissions })
}

/// Reads the options of an account: whether it has headers, and its permissions.
fn account_options(form: &'static str, mut words: &[&str]) -> Result<(bool, Permissions), AccountError> {
    let (mut headers, mut publish, mut subscribe) = (false, None, None);
    while !words.is_empty() {
        words = match words {
            ["headers", rest @ ..] if !std::mem::replace(&mut headers, true) => rest,
            ["publish", patterns, rest @ ..] if publish.is_none() => {
                publish = Some(permission("publish", patterns)?);
                rest
            }
            ["subscribe", patterns, rest @ ..] if subscribe.is_none() => {
                subscribe = Some(permission("subscribe", patterns)?);
                rest
            }
            _ => return Err(AccountError::Form(form)),
        };
    }
    // An account with one list has nothing in the other one, so that a forgotten list permits too little, not too much.
    let omitted = match (&publish, &subscribe) {
        (None, None) => SubjectPermission::All,
        _ => SubjectPermission::Only(PatternSet::default()),
    };
    let permissions =
        Permissions { publish: publish.unwrap_or_else(|| omitted.clone()), subscribe: subscribe.unwrap_or(omitted) };
    Ok((headers, permissions))
}

/// Reads the patterns behind the word `list`.
fn permission(list: &'static str, text: &str) -> Result<SubjectPermission, AccountError> {
    if text == "none" {
        return Ok(SubjectPermission::Nothing);
    }
    if PATTERNS_MAX < text.split(',').count() {
        return Err(AccountError::TooManyPatterns(list));
    }
    let pattern = |(index, text): (usize, &str)| {
        text.parse::<Pattern>().map_err(|error| AccountError::Pattern { list, number: index + 1, error })
    };
    text.split(',').enumerate().map(pattern).collect::<Result<_, _>>().map(SubjectPermission::Only)
}

/// Returns the option of an account for a permission, with a space before it; empty for an omitted option.
fn show_permission(list: &str, permission: &SubjectPermission) -> String {
    let patterns = match permission {
        SubjectPermission::All => return String::new(),
        SubjectPermission::Only(set) if set.patterns().is_empty() => return String::new(),
        SubjectPermission::Only(set) => set.patterns().iter().map(Pattern::as_str).collect::<Vec<&str>>().join(","),
        SubjectPermission::Nothing => "none".to_owned(),
    };
    format!(" {list} {patterns}")
}

/// Files for encrypted connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate and its chain, in PEM.
    pub certificates: PathBuf,
    /// The private key, in PEM.
    pub key: PathBuf,
    /// Policy for clients without encryption or without a certificate.
    pub clients: TlsClients,
}

/// Clients that a listener with encryption admits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsClients {
    /// Clients that encrypt.
    Encrypted,
    /// Clients that encrypt, and others.
    Any,
    /// Clients that encrypt and present a certificate of an authority in this file, in PEM.
    Certified(PathBuf),
}

impl TlsClients {
    /// Returns the policy as reports show it.
    pub fn as_str(&self) -> &'static str {
        match self {
            TlsClients::Encrypted => "required",
            TlsClients::Any => "optional",
            TlsClients::Certified(_) => "verify",
        }
    }
}

/// `none`, or the two files, optionally followed by `optional`, or by `verify` and the file of authorities.
pub(super) struct TlsFilesFormat;

impl ValueFormat for TlsFilesFormat {
    type Value = Option<TlsFiles>;

    fn parse(&self, text: &str, _: &HostDefaults) -> Result<Option<TlsFiles>, ValueError> {
        if text.contains('\0') {
            return Err(ValueError::PathNul);
        }
        let files = |certificates: &str, key: &str, clients| {
            Ok(Some(TlsFiles { certificates: certificates.into(), key: key.into(), clients }))
        };
        match text.split_whitespace().collect::<Vec<&str>>()[..] {
            ["none"] => Ok(None),
            [certificates, key] => files(certificates, key, TlsClients::Encrypted),
            [certificates, key, "optional"] => files(certificates, key, TlsClients::Any),
            [certificates, key, "verify", authorities] => {
                files(certificates, key, TlsClients::Certified(authorities.into()))
            }
            _ => Err(ValueError::TlsFiles),
        }
    }

    fn show(&self, value: &Option<TlsFiles>) -> String {
        value.as_ref().map_or("none".into(), |TlsFiles { certificates, key, clients }| {
            let clients = match clients {
                TlsClients::Encrypted => String::new(),
                TlsClients::Any => " optional".into(),
                TlsClients::Certified(authorities) => format!(" verify {}", authorities.display()),
            };
            format!("{} {}{clients}", certificates.display(), key.display())
        })
    }

    fn range(&self) -> String {
        "none, or CERTIFICATES.pem KEY.pem, followed by optional to admit unencrypted clients, or by verify CA.pem to \
         require certificates of the clients"
            .into()
    }
}

/// Order of the TLS handshake and INFO at the NATS listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFirst {
    /// INFO comes first, unencrypted.
    Never,
    /// The handshake comes first. INFO is encrypted.
    Always,
    /// The handshake comes first if it begins within this time. After it, INFO comes first.
    Within(Duration),
}

/// Time for which `auto` waits, as in nats-server.
const TLS_FIRST_AUTO: Duration = Duration::from_millis(50);
/// Times that can be written in place of `auto`.
const TLS_FIRST_TIME: DurationFormat =
    DurationFormat { min: Duration::from_millis(1), max: Duration::from_secs(10), reason: "" };

/// `no`, `yes`, `auto`, or a time.
pub(super) struct TlsFirstFormat;

impl ValueFormat for TlsFirstFormat {
    type Value = TlsFirst;

    fn parse(&self, text: &str, defaults: &HostDefaults) -> Result<TlsFirst, ValueError> {
        match YES_NO.parse(text, defaults) {
            Ok(true) => Ok(TlsFirst::Always),
            Ok(false) => Ok(TlsFirst::Never),
            Err(_) if text == "auto" => Ok(TlsFirst::Within(TLS_FIRST_AUTO)),
            Err(error) if text.starts_with(|first: char| first.is_ascii_alphabetic()) => Err(error),
            Err(_) => TLS_FIRST_TIME.parse(text, defaults).map(TlsFirst::Within),
        }
    }

    fn show(&self, value: &TlsFirst) -> String {
        match value {
            TlsFirst::Never => "no".into(),
            TlsFirst::Always => "yes".into(),
            TlsFirst::Within(time) => TLS_FIRST_TIME.show(time),
        }
    }

    fn range(&self) -> String {
        format!("no, yes, auto ({}), or {}", TLS_FIRST_TIME.show(&TLS_FIRST_AUTO), TLS_FIRST_TIME.range())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaults() -> HostDefaults {
        HostDefaults { host: "h".into(), runtime_dir: None, state_dir: None, uid: 1 }
    }

    #[test]
    fn listen_addresses_are_read_back_or_refused() {
        let listen = ListenAddressFormat { port: 4222 };
        for (text, expected) in [
            ("off", "off"),
            ("no", "off"),
            ("on", "127.0.0.1:4222"),
            ("true", "127.0.0.1:4222"),
            ("4333", "127.0.0.1:4333"),
            ("0.0.0.0", "0.0.0.0:4222"),
            ("::1", "[::1]:4222"),
            ("192.0.2.7:1", "192.0.2.7:1"),
            ("[::]:7", "[::]:7"),
        ] {
            let value = listen.parse(text, &defaults()).unwrap();
            assert_eq!(listen.show(&value), expected, "{text}");
            assert_eq!(listen.parse(expected, &defaults()).unwrap(), value);
        }
        for text in ["localhost", "70000", "1.2.3.4:", ":4222"] {
            assert_eq!(listen.parse(text, &defaults()), Err(ValueError::ListenAddress { port: 4222 }), "{text}");
        }
    }

    #[test]
    fn accounts_are_read_and_secrets_hidden() {
        let key = "UAAACAQDAQCQMBYIBEFAWDANBYHRAEISCMKBKFQXDAMRUGY4DUPB63NN";
        let text = format!("user alice password s3cret ; token t0ken headers ; nkey {key} ; certificate a@b.example");
        let accounts = AccountsFormat.parse(&text, &defaults()).unwrap();
        let shown = AccountsFormat.show(&accounts);
        let expected = format!("user alice password *** ; token *** headers ; nkey {key} ; certificate a@b.example");
        assert_eq!(shown, expected);
        assert!(!format!("{accounts:?}").contains("s3cret") && !format!("{accounts:?}").contains("t0ken"));
        let refused = |text: &str| match AccountsFormat.parse(text, &defaults()) {
            Err(ValueError::Account(error)) => error,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(refused("user a password b ;"), AccountError::Empty);
        assert_eq!(refused("usr a"), AccountError::UnknownKind(Some("user")));
        // A user who omits the word writes the secret first.
        for text in ["t0ken", "t0ken headers"] {
            let error = refused(text);
            assert!(!format!("{error} {error:?} {:?}", error.suggestion()).contains("t0ken"));
        }
        assert_eq!(refused("user a"), AccountError::Form(ACCOUNT_FORMS[0].1));
        assert_eq!(refused("user a password b header"), AccountError::Form(ACCOUNT_FORMS[0].1));
        assert_eq!(refused("token headers headers headers"), AccountError::Form(ACCOUNT_FORMS[1].1));
        assert_eq!(refused("user a password b ; user a password c"), AccountError::Twice(Some("user a".into())));
        assert_eq!(refused("token t0ken ; token t0ken headers"), AccountError::Twice(None));
        assert!(matches!(refused("nkey UAAA"), AccountError::Nkey(_)));
        assert_eq!(refused("certificate a ; certificate a"), AccountError::Twice(Some("certificate a".into())));
        assert!(!refused("user a b s3cret").to_string().contains("s3cret"));
    }

    #[test]
    fn permissions_of_accounts_are_read_back() {
        let only = |texts: &[&str]| SubjectPermission::Only(texts.iter().map(|text| text.parse().unwrap()).collect());
        for (options, publish, subscribe) in [
            ("", SubjectPermission::All, SubjectPermission::All),
            (" headers publish a.>,b.* subscribe c", only(&["a.>", "b.*"]), only(&["c"])),
            (" publish a", only(&["a"]), only(&[])),
            (" subscribe a", only(&[]), only(&["a"])),
            (" publish none subscribe >", SubjectPermission::Nothing, only(&[">"])),
        ] {
            let text = format!("user u password ***{options}");
            let accounts = AccountsFormat.parse(&text, &defaults()).unwrap();
            assert_eq!(accounts[0].permissions, Permissions { publish, subscribe }, "{text}");
            assert_eq!(AccountsFormat.show(&accounts), text);
        }
        let certificate = "certificate device-7 headers publish a.> subscribe none";
        assert_eq!(AccountsFormat.show(&AccountsFormat.parse(certificate, &defaults()).unwrap()), certificate);
        let swapped = AccountsFormat.parse("token t subscribe c headers publish a", &defaults()).unwrap();
        assert_eq!(AccountsFormat.show(&swapped), "token *** headers publish a subscribe c");
    }

    #[test]
    fn invalid_permissions_are_refused() {
        let refused = |options: &str| match AccountsFormat.parse(&format!("token t {options}"), &defaults()) {
            Err(ValueError::Account(error)) => error,
            other => panic!("{options}: {other:?}"),
        };
        for options in ["publish", "publish a publish b", "publish a b", "publish a subscribe", "headers headers", "x"]
        {
            assert_eq!(refused(options), AccountError::Form(ACCOUNT_FORMS[1].1), "{options}");
        }
        for (options, list, number) in [
            ("publish a,", "publish", 2),
            ("subscribe a,b..c,d", "subscribe", 2),
            ("publish >.a", "publish", 1),
            ("publish a,,b", "publish", 2),
        ] {
            let error = refused(options);
            let is_expected =
                matches!(error, AccountError::Pattern { list: l, number: n, .. } if (l, n) == (list, number));
            assert!(is_expected, "{options}: {error:?}");
        }
        let many = vec!["a"; PATTERNS_MAX + 1].join(",");
        assert_eq!(refused(&format!("subscribe {many}")), AccountError::TooManyPatterns("subscribe"));
    }

    #[test]
    fn tls_files_are_read_back_or_refused() {
        for text in ["none", "a.pem b.pem", "a.pem b.pem optional", "a.pem b.pem verify ca.pem"] {
            assert_eq!(TlsFilesFormat.show(&TlsFilesFormat.parse(text, &defaults()).unwrap()), text);
        }
        for text in ["a.pem", "a b c", "a b optional d", "a b verify", "a b verify c optional"] {
            assert_eq!(TlsFilesFormat.parse(text, &defaults()), Err(ValueError::TlsFiles), "{text}");
        }
    }

    #[test]
    fn tls_first_is_read_back_or_refused() {
        for (text, expected, shown) in [
            ("off", TlsFirst::Never, "no"),
            ("yes", TlsFirst::Always, "yes"),
            ("auto", TlsFirst::Within(Duration::from_millis(50)), "50 ms"),
            ("2 sec", TlsFirst::Within(Duration::from_secs(2)), "2 sec"),
        ] {
            assert_eq!(TlsFirstFormat.parse(text, &defaults()), Ok(expected), "{text}");
            assert_eq!(TlsFirstFormat.show(&expected), shown);
            assert_eq!(TlsFirstFormat.parse(shown, &defaults()), Ok(expected));
        }
        assert_eq!(TlsFirstFormat.parse("50", &defaults()), Err(ValueError::DurationUnit("50".into())));
        assert!(matches!(TlsFirstFormat.parse("automatic", &defaults()), Err(ValueError::NotOneOf(_))));
        assert!(matches!(TlsFirstFormat.parse("1 min", &defaults()), Err(ValueError::AboveMax { .. })));
    }
}
