//! Filters of `CLIENT LIST` and `CLIENT KILL`.

use super::command::{RedisCommand, number};
use crate::listener::session_request::ClientFacts;
use std::collections::BTreeSet;
use std::net::SocketAddr;

pub(super) const SYNTAX: &str = "ERR syntax error";

/// Filter for clients. A client matches if all given conditions hold.
#[derive(Debug, Default)]
pub(super) struct ClientFilter {
    /// Numbers of the clients.
    ids: Option<BTreeSet<u32>>,
    /// Remote address of the clients, as text.
    from: Option<Vec<u8>>,
    /// Local address of the listener, as text.
    listen: Option<Vec<u8>>,
    /// True for clients with subscriptions, false for those without. The inner `None` is a type that no client of this
    /// listener has.
    is_subscriber: Option<Option<bool>>,
    /// True to exclude the client that sent the command.
    skips_sender: bool,
}

impl ClientFilter {
    /// Parses the arguments of `CLIENT LIST`, or returns the error reply.
    pub(super) fn parse_list(command: RedisCommand<'_>) -> Result<ClientFilter, Vec<u8>> {
        let mut filter = ClientFilter::default();
        match command.len() {
            2 => {}
            4 if command.arg(2).eq_ignore_ascii_case(b"TYPE") => {
                filter.is_subscriber = Some(client_type(command.arg(3))?)
            }
            4.. if command.arg(2).eq_ignore_ascii_case(b"ID") => {
                let ids = command.args(3).map(|text| client_id(text).ok_or_else(|| b"ERR Invalid client ID".to_vec()));
                filter.ids = Some(ids.collect::<Result<_, _>>()?);
            }
            _ => return Err(SYNTAX.into()),
        }
        Ok(filter)
    }

    /// Parses the arguments of `CLIENT KILL`, or returns the error reply.
    pub(super) fn parse_kill(command: RedisCommand<'_>) -> Result<ClientFilter, Vec<u8>> {
        // The old form names an address and includes the connection of the sender.
        if command.len() == 3 {
            return Ok(ClientFilter { from: Some(command.arg(2).to_vec()), ..ClientFilter::default() });
        }
        let mut filter = ClientFilter { skips_sender: true, ..ClientFilter::default() };
        if !command.len().is_multiple_of(2) {
            return Err(SYNTAX.into());
        }
        for at in (2..command.len()).step_by(2) {
            let (option, value) = (command.arg(at).to_ascii_lowercase(), command.arg(at + 1));
            match &option[..] {
                b"id" => {
                    let id = client_id(value).ok_or_else(|| b"ERR client-id should be greater than 0".to_vec())?;
                    filter.ids = Some([id].into());
                }
                b"addr" => filter.from = Some(value.to_vec()),
                b"laddr" => filter.listen = Some(value.to_vec()),
                b"type" => filter.is_subscriber = Some(client_type(value)?),
                b"skipme" if value.eq_ignore_ascii_case(b"yes") => filter.skips_sender = true,
                b"skipme" if value.eq_ignore_ascii_case(b"no") => filter.skips_sender = false,
                _ => return Err(SYNTAX.into()),
            }
        }
        Ok(filter)
    }

    /// Returns whether the client matches. `listen` is the local address, and `sender` the number of the client that
    /// sent the command.
    pub(super) fn matches(&self, client: &ClientFacts, listen: SocketAddr, sender: u32) -> bool {
        let is = |wanted: &Option<Vec<u8>>, address: SocketAddr| {
            wanted.as_ref().is_none_or(|wanted| address.to_string().as_bytes() == wanted)
        };
        self.ids.as_ref().is_none_or(|ids| ids.contains(&client.id))
            && is(&self.from, client.from)
            && is(&self.listen, listen)
            && self.is_subscriber.is_none_or(|wanted| wanted == Some(is_subscriber(client)))
            && !(self.skips_sender && client.id == sender)
    }
}

/// Returns whether the client has subscriptions.
pub(super) fn is_subscriber(client: &ClientFacts) -> bool {
    client.resp.subscriptions != [0; 3]
}

/// Parses a client type: false for `normal`, true for `pubsub`, and `None` for types that no client of this
/// listener has.
fn client_type(text: &[u8]) -> Result<Option<bool>, Vec<u8>> {
    match &text.to_ascii_lowercase()[..] {
        b"normal" => Ok(Some(false)),
        b"pubsub" => Ok(Some(true)),
        b"master" | b"replica" | b"slave" => Ok(None),
        _ => Err([b"ERR Unknown client type '", &text[..text.len().min(128)], b"'"].concat()),
    }
}

fn client_id(text: &[u8]) -> Option<u32> {
    // A number that is too large for a client matches no client.
    number(text).filter(|id| 0 < *id).map(|id| u32::try_from(id).unwrap_or(u32::MAX))
}
