//! Authentication: `AUTH`, `HELLO` and `RESET`.

use super::client_commands::client_name;
use super::{RedisSession, ReplyMode};
use crate::listener::access::{Account, Credentials, is_equal};
use crate::listener::output_buffer::OutputBuffer;
use crate::listener::permissions::Permissions;
use crate::listener::redis::command::{RedisCommand, number};
use crate::listener::redis::fault::RedisFault;
use crate::listener::redis::info;
use crate::listener::session_request::SessionRequest;
use crate::time::Instant;

/// User name that an `AUTH` with only a password implies.
pub(super) const DEFAULT_USER: &str = "default";
pub(super) const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const HELLO_FIRST: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> \
                           <pass> option can be used to authenticate the client and select the RESP protocol version at the \
                           same time";

impl RedisSession {
    pub(super) fn auth(&mut self, command: RedisCommand<'_>, out: &mut OutputBuffer) -> Result<(), RedisFault> {
        let (name, password) = match command.len() {
            2 if !self.settings.access.requires_authentication() => {
                self.reply(out).error(
                    "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
                     configuration is correct?",
                );
                return Ok(());
            }
            2 => (DEFAULT_USER.as_bytes(), command.arg(1)),
            3 => (command.arg(1), command.arg(2)),
            _ => {
                self.reply(out).error("ERR syntax error");
                return Ok(());
            }
        };
        if self.log_in(name, password)? {
            self.reply(out).ok();
        } else {
            self.reply(out).error(WRONG_PASSWORD);
        }
        Ok(())
    }

    /// Authenticates a client whose verified certificate has these names, if one of them is that of an account.
    pub fn on_certificate(&mut self, names: &[String]) {
        self.certificate_names = names.to_vec();
        self.admit_by_certificate();
    }

    /// Authenticates the client by its certificate, if that names an account. Returns whether it does.
    fn admit_by_certificate(&mut self) -> bool {
        let account = self.settings.access.account_of_certificate(&self.certificate_names);
        let Some(Account { credentials, permissions, .. }) = account else { return false };
        let (account, permissions) = (credentials.public_name().to_owned(), permissions.clone());
        self.admit(account, permissions);
        true
    }

    /// Admits the client as an account with these permissions.
    fn admit(&mut self, account: String, permissions: Permissions) {
        self.permissions = permissions;
        self.account = Some(account.clone());
        self.requests.push_back(SessionRequest::Admitted { account });
    }

    /// Authenticates the client by name and password. Returns whether an account has them.
    fn log_in(&mut self, name: &[u8], password: &[u8]) -> Result<bool, RedisFault> {
        let access = &self.settings.access;
        // Every account is checked, so that the time does not reveal which account matched.
        let matches = |account: &Account| match &account.credentials {
            Credentials::User { name: user, password: secret } => is_equal(user, name) & is_equal(secret, password),
            Credentials::Token(secret) => (name == DEFAULT_USER.as_bytes()) & is_equal(secret, password),
            Credentials::Nkey(_) | Credentials::Certificate(_) => false,
        };
        let proven =
            access.accounts.iter().fold(
                None,
                |proven: Option<&Account>, account| {
                    if matches(account) { proven.or(Some(account)) } else { proven }
                },
            );
        if proven.is_some() || !access.requires_authentication() && name == DEFAULT_USER.as_bytes() {
            let permissions = access.permissions_of(proven).clone();
            self.admit(String::from_utf8_lossy(name).into_owned(), permissions);
            return Ok(true);
        }
        self.wrong_passwords += 1;
        if self.settings.auth_attempts_max <= self.wrong_passwords { Err(RedisFault::Passwords) } else { Ok(false) }
    }

    pub(super) fn hello(&mut self, command: RedisCommand<'_>, out: &mut OutputBuffer) -> Result<(), RedisFault> {
        let mut is_resp3 = self.is_resp3;
        if 1 < command.len() {
            let Some(version) = number(command.arg(1)) else {
                self.reply(out).error("ERR Protocol version is not an integer or out of range");
                return Ok(());
            };
            if !(2..=3).contains(&version) {
                self.reply(out).error("NOPROTO unsupported protocol version");
                return Ok(());
            }
            is_resp3 = version == 3;
        }
        let (mut login, mut name) = (None, None);
        let mut at = 2;
        while at < command.len() {
            let (option, more) = (command.arg(at), command.len() - at - 1);
            if option.eq_ignore_ascii_case(b"AUTH") && 2 <= more {
                login = Some((command.arg(at + 1), command.arg(at + 2)));
                at += 3;
            } else if option.eq_ignore_ascii_case(b"SETNAME") && 1 <= more {
                match client_name(command.arg(at + 1)) {
                    Ok(text) => name = Some(text),
                    Err(error) => {
                        self.reply(out).error(error);
                        return Ok(());
                    }
                }
                at += 2;
            } else {
                let option = &option[..option.len().min(128)];
                self.reply(out).error([b"ERR Syntax error in HELLO option '", option, b"'"].concat());
                return Ok(());
            }
        }
        if let Some((user, password)) = login
            && !self.log_in(user, password)?
        {
            self.reply(out).error(WRONG_PASSWORD);
            return Ok(());
        }
        if !self.is_admitted() {
            self.reply(out).error(HELLO_FIRST);
            return Ok(());
        }
        if let Some(name) = name {
            self.set_name(name);
        }
        self.is_resp3 = is_resp3;
        info::hello(self.client, is_resp3, &mut self.reply(out));
        Ok(())
    }

    pub(super) fn reset(&mut self, now: Instant, out: &mut OutputBuffer) {
        let ended = self.subs.clear().map(|sub| SessionRequest::Unsubscribe { sub });
        self.requests.extend(ended);
        if !self.name.is_empty() {
            self.set_name(String::new());
        }
        self.answers = ReplyMode::All;
        self.is_resp3 = false;
        // A RESET does not extend the deadline of an unauthenticated client.
        let is_reset = self.settings.access.requires_authentication() && self.account.take().is_some();
        if is_reset && !self.admit_by_certificate() {
            self.auth_deadline = now + self.settings.auth_time;
        }
        self.reply(out).simple("RESET");
    }
}
