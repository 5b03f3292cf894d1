//! `CLIENT`: the name of a client, the list of clients, and closing the connections of clients.

use super::command_table::CommandId;
use super::parser::{RedisCommand, number};
use super::session::{PendingReply, RedisSession};
use crate::listener::output_buffer::OutputBuffer;
use crate::listener::session_request::{ClientFacts, RespState, SessionRequest};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::SocketAddr;

/// Filter for clients. A client matches if all given conditions hold.
#[derive(Debug, Default)]
pub(super) struct ClientFilter {
    /// Numbers of the clients.
    ids: Option<BTreeSet<u32>>,
    /// Remote address of the clients, as text.
    from: Option<Vec<u8>>,
    /// Local address of the listener, as text.
    listen: Option<Vec<u8>>,
    /// True for clients with subscriptions, false for those without. The inner `None` is a type that no client here
    /// has.
    is_subscriber: Option<Option<bool>>,
    /// True to exclude the client that sent the command.
    is_other: bool,
}

impl ClientFilter {
    fn fits(&self, client: &ClientFacts, listen: SocketAddr, own: u32) -> bool {
        let is = |wanted: &Option<Vec<u8>>, address: SocketAddr| {
            wanted.as_ref().is_none_or(|wanted| address.to_string().as_bytes() == wanted)
        };
        self.ids.as_ref().is_none_or(|ids| ids.contains(&client.id))
            && is(&self.from, client.from)
            && is(&self.listen, listen)
            && self.is_subscriber.is_none_or(|wanted| wanted == Some(is_subscriber(client)))
            && !(self.is_other && client.id == own)
    }
}

fn is_subscriber(client: &ClientFacts) -> bool {
    client.resp.subscriptions != [0; 3]
}

/// Maximum length of a client's name, in bytes.
const NAME_BYTES_MAX: usize = 255;
const SYNTAX: &str = "ERR syntax error";

/// Returns the name that a client gives itself, or the error reply.
pub(super) fn name(text: &[u8]) -> Result<String, String> {
    if NAME_BYTES_MAX < text.len() {
        return Err(format!("ERR Client names have at most {NAME_BYTES_MAX} bytes."));
    }
    match String::from_utf8(text.to_vec()) {
        Ok(text) if text.bytes().all(|byte| (b'!'..=b'~').contains(&byte)) => Ok(text),
        _ => Err("ERR Client names cannot contain spaces, newlines or special characters.".into()),
    }
}

/// Parses a client type: false for `normal`, true for `pubsub`, and `None` for types that no client here has.
fn kind(text: &[u8]) -> Result<Option<bool>, Vec<u8>> {
    match &text.to_ascii_lowercase()[..] {
        b"normal" => Ok(Some(false)),
        b"pubsub" => Ok(Some(true)),
        b"master" | b"replica" | b"slave" => Ok(None),
        _ => Err([b"ERR Unknown client type '", &text[..text.len().min(128)], b"'"].concat()),
    }
}

fn id(text: &[u8]) -> Option<u32> {
    // A number that is too large for a client matches no client.
    number(text).filter(|id| 0 < *id).map(|id| u32::try_from(id).unwrap_or(u32::MAX))
}

impl RedisSession {
    pub(super) fn client(&mut self, what: CommandId, command: RedisCommand<'_>, out: &mut OutputBuffer) {
        match what {
            CommandId::ClientNumber => self.reply(out).integer(self.client.into()),
            CommandId::ClientGetname if self.name.is_empty() => self.reply(out).null(),
            CommandId::ClientGetname => self.reply(out).bulk(self.name.as_bytes()),
            CommandId::ClientSetname => match name(command.arg(2)) {
                Ok(name) => {
                    self.be_named(name);
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
                self.asks.push_back(SessionRequest::Clients { only: Some(self.client) });
            }
            CommandId::ClientList => self.ask_for_clients(list_filter(command).map(PendingReply::Clients), out),
            _ => {
                let is_counted = command.len() != 3;
                self.ask_for_clients(kill_filter(command).map(|filter| PendingReply::Kill(filter, is_counted)), out);
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

    fn ask_for_clients(&mut self, pending: Result<PendingReply, Vec<u8>>, out: &mut OutputBuffer) {
        match pending {
            Ok(pending) => {
                self.pending = pending;
                self.asks.push_back(SessionRequest::Clients { only: None });
            }
            Err(error) => self.reply(out).error(error),
        }
    }

    pub(super) fn client_list(&self, clients: &[ClientFacts], filter: &ClientFilter) -> String {
        let fitting = clients.iter().filter(|client| filter.fits(client, self.listen, self.client));
        fitting.map(|client| self.line(client)).collect()
    }

    /// Returns the line of a client in `CLIENT LIST`: the fields of redis-server in its order, then those of this
    /// project. Sizes without a counterpart here are 0.
    fn line(&self, client: &ClientFacts) -> String {
        let RespState { last_command, idle_secs, version, subscriptions: [sub, psub, ssub] } = client.resp;
        let name = if client.id == self.client { &self.name } else { &client.name };
        let flags = if is_subscriber(client) { 'P' } else { 'N' };
        let (from, listen) = (client.from, self.listen);
        let mut line = format!("id={} addr={from} laddr={listen} fd=-1 name={name} ", client.id);
        let mut put = |text: std::fmt::Arguments<'_>| line.write_fmt(text).expect("memory is no file");
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

    /// Closes the connections of the matching clients. The reply is their number, or whether there was one.
    pub(super) fn kill(
        &mut self,
        clients: &[ClientFacts],
        filter: &ClientFilter,
        is_counted: bool,
        out: &mut OutputBuffer,
    ) {
        let (own, listen, mut count) = (self.client, self.listen, 0);
        for client in clients.iter().filter(|client| filter.fits(client, listen, own)) {
            count += 1;
            if client.id == own {
                self.close();
            } else {
                self.asks.push_back(SessionRequest::Kill { client: client.id });
            }
        }
        let mut reply = self.reply(out);
        match (is_counted, count) {
            (true, count) => reply.integer(count),
            (false, 0) => reply.error("ERR No such client"),
            (false, _) => reply.ok(),
        }
    }
}

fn list_filter(command: RedisCommand<'_>) -> Result<ClientFilter, Vec<u8>> {
    let mut filter = ClientFilter::default();
    match command.len() {
        2 => {}
        4 if command.arg(2).eq_ignore_ascii_case(b"TYPE") => filter.is_subscriber = Some(kind(command.arg(3))?),
        4.. if command.arg(2).eq_ignore_ascii_case(b"ID") => {
            let ids = command.args(3).map(|text| id(text).ok_or_else(|| b"ERR Invalid client ID".to_vec()));
            filter.ids = Some(ids.collect::<Result<_, _>>()?);
        }
        _ => return Err(SYNTAX.into()),
    }
    Ok(filter)
}

fn kill_filter(command: RedisCommand<'_>) -> Result<ClientFilter, Vec<u8>> {
    // The old form names an address and includes the caller's own connection.
    if command.len() == 3 {
        return Ok(ClientFilter { from: Some(command.arg(2).to_vec()), ..ClientFilter::default() });
    }
    let mut filter = ClientFilter { is_other: true, ..ClientFilter::default() };
    if !command.len().is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    for at in (2..command.len()).step_by(2) {
        let (option, value) = (command.arg(at).to_ascii_lowercase(), command.arg(at + 1));
        match &option[..] {
            b"id" => {
                let id = id(value).ok_or_else(|| b"ERR client-id should be greater than 0".to_vec())?;
                filter.ids = Some([id].into());
            }
            b"addr" => filter.from = Some(value.to_vec()),
            b"laddr" => filter.listen = Some(value.to_vec()),
            b"type" => filter.is_subscriber = Some(kind(value)?),
            b"skipme" if value.eq_ignore_ascii_case(b"yes") => filter.is_other = true,
            b"skipme" if value.eq_ignore_ascii_case(b"no") => filter.is_other = false,
            _ => return Err(SYNTAX.into()),
        }
    }
    Ok(filter)
}
