//! `CLIENT`: the name of a client, the list of clients, and closing the connections of clients.

use super::{PendingReply, RedisSession, ReplyMode};
use crate::listener::output_buffer::OutputBuffer;
use crate::listener::permissions::{Denial, DeniedAction};
use crate::listener::redis::client_filter::{ClientFilter, SYNTAX, is_subscriber};
use crate::listener::redis::command::RedisCommand;
use crate::listener::redis::command_table::CommandId;
use crate::listener::session_request::{ClientFacts, RespState, SessionRequest};
use std::fmt::Write;

/// Maximum length of a client's name, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// Returns the name that a client gives itself, or the error reply.
pub(super) fn client_name(text: &[u8]) -> Result<String, String> {
    if NAME_BYTES_MAX < text.len() {
        return Err(format!("ERR Client names have at most {NAME_BYTES_MAX} bytes."));
    }
    match String::from_utf8(text.to_vec()) {
        Ok(text) if text.bytes().all(|byte| (b'!'..=b'~').contains(&byte)) => Ok(text),
        _ => Err("ERR Client names cannot contain spaces, newlines or special characters.".into()),
    }
}

impl RedisSession {
    /// Runs a subcommand of `CLIENT`.
    pub(super) fn run_client(&mut self, id: CommandId, command: RedisCommand<'_>, out: &mut OutputBuffer) {
        match id {
            CommandId::ClientNumber => self.reply(out).integer(self.client.into()),
            CommandId::ClientGetname if self.name.is_empty() => self.reply(out).null(),
            CommandId::ClientGetname => self.reply(out).bulk(self.name.as_bytes()),
            CommandId::ClientSetname => match client_name(command.arg(2)) {
                Ok(name) => {
                    self.set_name(name);
                    self.reply(out).ok();
                }
                Err(error) => self.reply(out).error(error),
            },
            CommandId::ClientSetinfo => self.client_setinfo(command, out),
            CommandId::ClientSwitch => {
                let is_known = [&b"on"[..], b"off"].iter().any(|word| command.arg(2).eq_ignore_ascii_case(word));
                if is_known { self.reply(out).ok() } else { self.reply(out).error(SYNTAX) }
            }
            CommandId::ClientInfo => {
                self.pending = PendingReply::Clients(ClientFilter::default());
                self.requests.push_back(SessionRequest::Clients { only: Some(self.client) });
            }
            CommandId::ClientList => {
                self.request_clients(ClientFilter::parse_list(command).map(PendingReply::Clients), out)
            }
            _ if !self.permissions.are_unlimited() => {
                self.reply(out).error("NOPERM this user has no permissions to run the 'client|kill' command");
                let denial = Denial::new(DeniedAction::Command, "CLIENT KILL");
                self.requests.push_back(SessionRequest::Denied(denial));
            }
            _ => {
                let is_counted = command.len() != 3;
                self.request_clients(
                    ClientFilter::parse_kill(command).map(|filter| PendingReply::Kill(filter, is_counted)),
                    out,
                );
            }
        }
    }

    /// Checks the option and discards the library's name or version.
    fn client_setinfo(&self, command: RedisCommand<'_>, out: &mut OutputBuffer) {
        let option = command.arg(2);
        if !option.eq_ignore_ascii_case(b"LIB-NAME") && !option.eq_ignore_ascii_case(b"LIB-VER") {
            let option = &option[..option.len().min(128)];
            return self.reply(out).error([b"ERR Unrecognized option '", option, b"'"].concat());
        }
        self.reply(out).ok();
    }

    fn request_clients(&mut self, pending: Result<PendingReply, Vec<u8>>, out: &mut OutputBuffer) {
        match pending {
            Ok(pending) => {
                self.pending = pending;
                self.requests.push_back(SessionRequest::Clients { only: None });
            }
            Err(error) => self.reply(out).error(error),
        }
    }

    /// Returns the lines of the matching clients.
    pub(in crate::listener::redis) fn client_list(&self, clients: &[ClientFacts], filter: &ClientFilter) -> String {
        let matching = clients.iter().filter(|client| filter.matches(client, self.listen, self.client));
        matching.map(|client| self.line(client)).collect()
    }

    /// Returns the line of a client in `CLIENT LIST`: the fields of redis-server in its order, then those of this
    /// project. Sizes without a counterpart here are 0.
    fn line(&self, client: &ClientFacts) -> String {
        let RespState { last_command, idle_secs, version, subscriptions: [sub, psub, ssub] } = client.resp;
        let name = if client.id == self.client { &self.name } else { &client.name };
        let flags = if is_subscriber(client) { 'P' } else { 'N' };
        let (from, listen) = (client.from, self.listen);
        let mut line = format!("id={} addr={from} laddr={listen} fd=-1 name={name} ", client.id);
        let mut put = |text: std::fmt::Arguments<'_>| line.write_fmt(text).expect("a String takes any text");
        put(format_args!(
            "age={} idle={idle_secs} flags={flags} db=0 sub={sub} psub={psub} ssub={ssub} multi=-1 ",
            client.age_secs
        ));
        let (unread, queued) = (client.unread_bytes, client.queued_bytes);
        put(format_args!("qbuf={unread} qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem={queued} "));
        put(format_args!("tot-mem={} events=r cmd={} ", unread + queued, last_command.unwrap_or("NULL")));
        let account = if client.account.is_empty() { "default" } else { &client.account };
        put(format_args!("user={account} redir=-1 resp={version} "));
        put(format_args!("lost={} dropped={}\n", client.lost, client.dropped));
        line
    }

    /// Closes the connections of the matching clients. The reply is their number, or in the old form an error if no
    /// client matches.
    pub(super) fn kill(
        &mut self,
        clients: &[ClientFacts],
        filter: &ClientFilter,
        is_counted: bool,
        out: &mut OutputBuffer,
    ) {
        let (sender, listen, mut count) = (self.client, self.listen, 0);
        for client in clients.iter().filter(|client| filter.matches(client, listen, sender)) {
            count += 1;
            if client.id == sender {
                self.close();
            } else {
                self.requests.push_back(SessionRequest::Kill { client: client.id });
            }
        }
        let mut reply = self.reply(out);
        match (is_counted, count) {
            (true, count) => reply.integer(count),
            (false, 0) => reply.error("ERR No such client"),
            (false, _) => reply.ok(),
        }
    }

    /// Records the name that the client gave itself.
    pub(super) fn set_name(&mut self, name: String) {
        self.name.clone_from(&name);
        self.requests.push_back(SessionRequest::Named { name });
    }

    /// Sets the commands to which the session replies.
    pub(super) fn client_reply(&mut self, command: RedisCommand<'_>, out: &mut OutputBuffer) {
        let mode = command.arg(2).to_ascii_lowercase();
        match (&mode[..], self.answers) {
            (b"on", _) => {
                self.answers = ReplyMode::All;
                self.reply(out).ok();
            }
            (b"off", _) => self.answers = ReplyMode::None,
            (b"skip", ReplyMode::None) => {}
            (b"skip", _) => self.answers = ReplyMode::SkipNext,
            _ => self.reply(out).error("ERR syntax error"),
        }
    }
}
