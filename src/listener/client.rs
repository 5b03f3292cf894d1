//! One client of the NATS, Redis, Hat or Rendezvous listener: the parser of its commands and the state of its session. FTN18 and
//! the local protocol are served elsewhere.

use crate::delivery::Deliveries;
use crate::listener::access::Access;
use crate::listener::client_command::ClientCommand;
use crate::listener::drop_report::DropReport;
use crate::listener::output_buffer::OutputBuffer;
use crate::listener::protocol::Protocol;
use crate::listener::session_request::{
    ClientFacts, ConnectionInfo, ListedSubscription, ReceiverCount, RespState, ServerFacts, SessionRequest,
};
use crate::listener::{hat, nats, redis, rv};
use crate::message::{Count, Delivery, Refusal, SubId};
use crate::subject::Subject;
use crate::time::Instant;
use std::fmt;
use std::sync::Arc;

/// Settings that all clients of one listener share.
#[derive(Clone, Debug)]
pub enum Settings {
    /// Settings of the NATS listener.
    Nats(Arc<nats::Settings>),
    /// Settings of the Redis listener.
    Redis(Arc<redis::Settings>),
    /// Settings of the Hat listener.
    Hat(Arc<hat::Settings>),
    /// Settings of the Rendezvous listener.
    Rv(Arc<rv::Settings>),
}

impl Settings {
    /// Returns the protocol of these settings.
    pub fn protocol(&self) -> Protocol {
        match self {
            Settings::Nats(_) => Protocol::Nats,
            Settings::Redis(_) => Protocol::Redis,
            Settings::Hat(_) => Protocol::Hat,
            Settings::Rv(_) => Protocol::Rv,
        }
    }

    /// Returns the accounts that may use the listener.
    pub fn access(&self) -> &Access {
        match self {
            Settings::Nats(settings) => &settings.access,
            Settings::Redis(settings) => &settings.access,
            Settings::Hat(settings) => &settings.access,
            Settings::Rv(settings) => &settings.access,
        }
    }

    /// Returns the reply to a client beyond the connection limit. It is `None` if the client expects other bytes
    /// first.
    pub fn overload_reply(&self) -> Option<&'static [u8]> {
        match self {
            Settings::Nats(_) => Some(b"-ERR 'maximum connections exceeded'\r\n"),
            Settings::Redis(settings) if settings.is_encrypted => None,
            Settings::Redis(_) => Some(b"-ERR max number of clients reached\r\n"),
            Settings::Hat(_) | Settings::Rv(_) => None,
        }
    }
}

/// Fault of a client that ends its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientFault {
    /// Fault of a NATS client.
    Nats(nats::NatsFault),
    /// Fault of a Redis client.
    Redis(redis::RedisFault),
    /// Fault of a Hat client.
    Hat(hat::HatFault),
    /// Fault of a Rendezvous client.
    Rv(rv::RvFault),
}

impl ClientFault {
    /// Returns the fault of a connection that is not encrypted but must be.
    pub fn not_encrypted(protocol: Protocol) -> ClientFault {
        match protocol {
            Protocol::Nats => ClientFault::Nats(nats::NatsFault::NotEncrypted),
            Protocol::Redis => ClientFault::Redis(redis::RedisFault::NotEncrypted),
            Protocol::Hat => ClientFault::Hat(hat::HatFault::NotEncrypted),
            Protocol::Rv => ClientFault::Rv(rv::RvFault::NotEncrypted),
        }
    }
}

impl fmt::Display for ClientFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientFault::Nats(fault) => fault.fmt(f),
            ClientFault::Redis(fault) => fault.fmt(f),
            ClientFault::Hat(fault) => fault.fmt(f),
            ClientFault::Rv(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for ClientFault {}

/// Splits the bytes of a client into commands, for any segmentation of the stream.
#[derive(Debug)]
pub enum ClientParser {
    /// Parser for a NATS client.
    Nats(nats::NatsParser),
    /// Parser for a Redis client.
    Redis(redis::RedisParser),
    /// Parser for a Hat client.
    Hat(hat::ChatterParser),
    /// Parser for a Rendezvous client.
    Rv(rv::RvParser),
}

impl ClientParser {
    /// Creates the parser for a new connection.
    pub fn new(settings: &Settings) -> ClientParser {
        match settings {
            Settings::Nats(settings) => ClientParser::Nats(nats::NatsParser::new(settings)),
            Settings::Redis(settings) => ClientParser::Redis(redis::RedisParser::new(settings)),
            Settings::Hat(settings) => ClientParser::Hat(hat::ChatterParser::new(settings)),
            Settings::Rv(settings) => ClientParser::Rv(rv::RvParser::new(settings)),
        }
    }

    /// Returns the number of buffered bytes.
    pub fn held_bytes(&self) -> usize {
        match self {
            ClientParser::Nats(parser) => parser.held_bytes(),
            ClientParser::Redis(parser) => parser.held_bytes(),
            ClientParser::Hat(parser) => parser.held_bytes(),
            ClientParser::Rv(parser) => parser.held_bytes(),
        }
    }

    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        match self {
            ClientParser::Nats(parser) => parser.push(bytes),
            ClientParser::Redis(parser) => parser.push(bytes),
            ClientParser::Hat(parser) => parser.push(bytes),
            ClientParser::Rv(parser) => parser.push(bytes),
        }
    }

    /// Returns the next complete command, or `None` until more bytes arrive.
    ///
    /// # Errors
    /// The bytes are no valid command, or exceed a limit.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "the command borrows from the parser")]
    pub fn next(&mut self) -> Result<Option<ClientCommand<'_>>, ClientFault> {
        match self {
            ClientParser::Nats(parser) => {
                parser.next().map(|next| next.map(ClientCommand::Nats)).map_err(ClientFault::Nats)
            }
            ClientParser::Redis(parser) => {
                parser.next().map(|next| next.map(ClientCommand::Redis)).map_err(ClientFault::Redis)
            }
            ClientParser::Hat(parser) => {
                parser.next().map(|next| next.map(ClientCommand::Hat)).map_err(ClientFault::Hat)
            }
            ClientParser::Rv(parser) => parser.next().map(|next| next.map(ClientCommand::Rv)).map_err(ClientFault::Rv),
        }
    }

    /// Returns the payload of the next command if it differs from the last one, a publish, in the bytes of the payload
    /// only. Otherwise it changes nothing. The parsers of NATS and Redis recognise such commands.
    #[inline]
    pub fn next_repeated(&mut self) -> Option<&[u8]> {
        match self {
            ClientParser::Nats(parser) => parser.next_repeated(),
            ClientParser::Redis(parser) => parser.next_repeated(),
            ClientParser::Hat(_) | ClientParser::Rv(_) => None,
        }
    }

    /// Makes the parser return the last command once more.
    pub fn repeat_last(&mut self) {
        match self {
            ClientParser::Nats(parser) => parser.repeat_last(),
            ClientParser::Redis(parser) => parser.repeat_last(),
            ClientParser::Hat(parser) => parser.repeat_last(),
            ClientParser::Rv(parser) => parser.repeat_last(),
        }
    }

    /// Lifts the limits of unauthenticated clients.
    pub fn admit(&mut self) {
        match self {
            ClientParser::Nats(parser) => parser.admit(),
            ClientParser::Redis(parser) => parser.admit(),
            ClientParser::Hat(parser) => parser.admit(),
            ClientParser::Rv(parser) => parser.admit(),
        }
    }
}

/// State of the session with a client.
#[derive(Debug)]
pub enum ClientSession {
    /// Session with a NATS client.
    Nats(Box<nats::NatsSession>),
    /// Session with a Redis client.
    Redis(Box<redis::RedisSession>),
    /// Session with a Hat client.
    Hat(Box<hat::HatClient>),
    /// Session with a Rendezvous client.
    Rv(Box<rv::RvSession>),
}

/// Calls the same method on the session of any protocol. A third argument replaces the call for Hat and Rendezvous
/// clients, which send fewer kinds of requests to the peer; a fourth one replaces it for Rendezvous clients alone.
macro_rules! each {
    ($session:expr, $inner:ident => $call:expr) => {
        each!($session, $inner => $call, $inner => $call)
    };
    ($session:expr, $inner:ident => $call:expr, $other:ident => $other_call:expr) => {
        each!($session, $inner => $call, $other => $other_call, $other => $other_call)
    };
    ($session:expr, $inner:ident => $call:expr, $hat:ident => $hat_call:expr, $rv:ident => $rv_call:expr) => {
        match $session {
            ClientSession::Nats($inner) => $call,
            ClientSession::Redis($inner) => $call,
            ClientSession::Hat($hat) => $hat_call,
            ClientSession::Rv($rv) => $rv_call,
        }
    };
}

impl ClientSession {
    /// Creates the session for a new connection.
    pub fn new(settings: &Settings, connection: &ConnectionInfo, now: Instant) -> ClientSession {
        match settings {
            Settings::Nats(settings) => {
                ClientSession::Nats(Box::new(nats::NatsSession::new(Arc::clone(settings), connection, now)))
            }
            Settings::Redis(settings) => {
                ClientSession::Redis(Box::new(redis::RedisSession::new(Arc::clone(settings), connection, now)))
            }
            Settings::Hat(settings) => ClientSession::Hat(Box::new(hat::HatClient::new(Arc::clone(settings), now))),
            Settings::Rv(settings) => {
                ClientSession::Rv(Box::new(rv::RvSession::new(Arc::clone(settings), connection, now)))
            }
        }
    }

    /// Writes the greeting of the protocol, if it has one.
    pub fn on_open(&mut self, out: &mut OutputBuffer) {
        each!(self, session => session.on_open(out), _hat => (), rv => rv.on_open(out));
    }

    /// Handles the names in the client's certificate, which the shell has verified, in the order in which accounts are
    /// searched for them.
    pub fn on_certificate(&mut self, names: &[String]) {
        each!(self, session => session.on_certificate(names));
    }

    /// Answers a command, or returns its request to the peer. [`ClientSession::poll_request`] returns further
    /// requests.
    ///
    /// # Errors
    /// The command ends the conversation.
    ///
    /// # Panics
    /// If the command comes from another protocol's parser.
    #[inline]
    pub fn on_command<'a>(
        &mut self,
        now: Instant,
        command: ClientCommand<'a>,
        out: &mut OutputBuffer,
    ) -> Result<Option<SessionRequest<'a>>, ClientFault> {
        match (self, command) {
            (ClientSession::Nats(session), ClientCommand::Nats(command)) => {
                session.on_command(now, command, out).map_err(ClientFault::Nats)
            }
            (ClientSession::Redis(session), ClientCommand::Redis(command)) => {
                session.on_command(now, command, out).map_err(ClientFault::Redis)
            }
            (ClientSession::Hat(client), ClientCommand::Hat(message)) => {
                client.on_command(now, message, out).map(|()| None).map_err(ClientFault::Hat)
            }
            (ClientSession::Rv(session), ClientCommand::Rv(command)) => {
                session.on_command(now, command, out).map_err(ClientFault::Rv)
            }
            _ => unreachable!("a connection has the parser and the session of one protocol"),
        }
    }

    /// Returns whether the client may publish messages of [`ClientParser::next_repeated`] without a call of
    /// [`ClientSession::on_command`] for each.
    pub fn may_repeat_publishes(&self) -> bool {
        match self {
            ClientSession::Nats(session) => !session.confirms_publishes(),
            ClientSession::Redis(session) => session.may_repeat_publishes(),
            ClientSession::Hat(_) | ClientSession::Rv(_) => false,
        }
    }

    /// Handles the receiver count of a message of [`ClientParser::next_repeated`], if the session requested the count of
    /// the publish that is repeated.
    #[inline]
    pub fn on_repeated_publish(&mut self, receivers: ReceiverCount, out: &mut OutputBuffer) {
        if let ClientSession::Redis(session) = self {
            session.on_repeated_publish(receivers, out);
        }
    }

    /// Returns a further request to the peer. The caller polls until `None` after each command, after deliveries, and
    /// when the client accepts answers again.
    pub fn poll_request(&mut self, takes_answers: bool) -> Option<SessionRequest<'static>> {
        each!(self, session => session.poll_request(), hat => hat.poll_request(takes_answers), rv => rv.poll_request())
    }

    /// Reports a fault to the client before its connection closes.
    pub fn on_fault(&mut self, fault: &ClientFault, out: &mut OutputBuffer) {
        match (self, fault) {
            (ClientSession::Nats(session), ClientFault::Nats(fault)) => session.on_fault(fault, out),
            (ClientSession::Redis(session), ClientFault::Redis(fault)) => session.on_fault(fault, out),
            (ClientSession::Hat(client), ClientFault::Hat(fault)) => client.on_fault(fault, out),
            (ClientSession::Rv(session), ClientFault::Rv(fault)) => session.on_fault(fault, out),
            _ => unreachable!("a connection has the parser and the session of one protocol"),
        }
    }

    /// Handles the peer's refusal of a subscription or of a message. A refused subscription does not exist.
    pub fn on_refused(&mut self, sub: Option<SubId>, refusal: &Refusal, out: &mut OutputBuffer) {
        each!(self, session => session.on_refused(sub, refusal, out), hat => hat.on_refused(refusal), rv => rv.on_refused(sub, refusal, out));
    }

    /// Handles the receiver count of a published message, if the session requested it.
    pub fn on_published(&mut self, reply: Option<&Subject>, receivers: ReceiverCount, out: &mut OutputBuffer) {
        each!(self, session => session.on_published(reply, receivers, out), _other => ());
    }

    /// Handles the answer to [`SessionRequest::Count`].
    pub fn on_counts(&mut self, counts: &[ReceiverCount], out: &mut OutputBuffer) {
        each!(self, session => session.on_counts(counts, out), _other => ());
    }

    /// Handles the answer to [`SessionRequest::List`]. Returns the number of matching steps that were used.
    pub fn on_subscription_list(&mut self, listed: &[ListedSubscription], out: &mut OutputBuffer) -> usize {
        each!(self, session => session.on_subscription_list(listed, out), _other => 0)
    }

    /// Handles the answer to [`SessionRequest::ServerFacts`].
    pub fn on_server_facts(&mut self, facts: &ServerFacts, out: &mut OutputBuffer) {
        each!(self, session => session.on_server_facts(facts, out), _other => ());
    }

    /// Handles the answer to [`SessionRequest::Clients`].
    pub fn on_clients(&mut self, clients: &[ClientFacts], out: &mut OutputBuffer) {
        each!(self, session => session.on_clients(clients, out), _other => ());
    }

    /// Returns the subscriptions to which a message that matches all of `subs` is delivered. `subs` has at least one
    /// entry. Hat and Rendezvous clients get each message only once.
    pub fn delivery_subs<'a>(&self, subs: &'a [SubId], subject: Option<&Subject>) -> &'a [SubId] {
        each!(self, _session => subs, _hat => &subs[..1], rv => subject.map_or(&[], |subject| rv.delivery_subs(subs, subject)))
    }

    /// Writes messages for these subscriptions, now or with [`ClientSession::flush_events`]. Returns the total number
    /// of messages for all of them.
    pub fn on_deliveries(&mut self, subs: &[SubId], deliveries: &Deliveries, out: &mut OutputBuffer) -> usize {
        each!(
            self,
            session => session.on_deliveries(subs, deliveries, out),
            hat => hat.on_deliveries(deliveries, out),
            rv => rv.on_deliveries(subs, deliveries, out)
        )
    }

    /// Writes the events that the session has buffered to send them together. The caller calls it before it writes
    /// output.
    pub fn flush_events(&mut self, out: &mut OutputBuffer) {
        each!(self, _session => (), hat => hat.flush_events(out), _rv => ());
    }

    /// Returns whether the protocol has advisories of its own. In others an advisory is a message like any other.
    pub fn has_advisories(&self) -> bool {
        each!(self, _session => false, _hat => false, _rv => true)
    }

    /// Writes an advisory that the peer itself has made, if the protocol has advisories of its own.
    pub fn on_advisory(&mut self, advisory: &Delivery, out: &mut OutputBuffer) {
        each!(self, _session => (), _hat => (), rv => rv.on_advisory(advisory, out));
    }

    /// Returns whether the report of drops goes ahead of the output that waits. In other protocols it stands where the
    /// messages are missing.
    pub fn reports_drops_ahead(&self) -> bool {
        each!(self, _session => false, _hat => false, _rv => true)
    }

    /// Returns the report of drops that goes ahead of the output that waits; `None` in protocols without one.
    pub fn drop_report(&self, report: &DropReport) -> Option<Vec<u8>> {
        each!(self, _session => None, _hat => None, _rv => rv::slow_consumer(report).and_then(|report| report.frame()))
    }

    /// Records that messages of these subscriptions are lost before the next delivery. Rendezvous clients get
    /// advisories instead.
    pub fn on_lost(&mut self, subs: &[SubId], lost: Count) {
        each!(self, session => session.on_lost(subs, lost), hat => hat.on_lost(), _rv => ());
    }

    /// Reports to the client that the peer is about to stop, if its protocol can.
    pub fn on_stop(&mut self, out: &mut OutputBuffer) {
        each!(self, session => session.on_stop(out), hat => hat.on_stop(out), _rv => ());
    }

    /// Begins the time limits of a new connection again, because the client could not use the protocol before.
    pub fn restart_deadlines(&mut self, now: Instant) {
        each!(self, session => session.restart_deadlines(now));
    }

    /// Returns the time at which the caller must call [`ClientSession::on_deadline`].
    pub fn deadline(&self) -> Option<Instant> {
        each!(self, session => session.deadline())
    }

    /// Handles the deadline if it has passed. `is_read` is false while the listener does not read from the client.
    ///
    /// # Errors
    /// The client exceeded a time limit.
    pub fn on_deadline(&mut self, now: Instant, is_read: bool, out: &mut OutputBuffer) -> Result<(), ClientFault> {
        match self {
            ClientSession::Nats(session) => session.on_deadline(now, out).map_err(ClientFault::Nats),
            ClientSession::Redis(session) => session.on_deadline(now, out).map_err(ClientFault::Redis),
            ClientSession::Hat(client) => client.on_deadline(now, is_read, out).map_err(ClientFault::Hat),
            ClientSession::Rv(session) => session.on_deadline(now, out).map_err(ClientFault::Rv),
        }
    }

    /// Returns whether the client is authenticated, or needs no authentication.
    pub fn is_admitted(&self) -> bool {
        each!(self, session => session.is_admitted())
    }

    /// Returns the state of a Redis connection for `CLIENT LIST`; the default for other protocols.
    pub fn resp_state(&self, now: Instant) -> RespState {
        match self {
            ClientSession::Redis(session) => session.resp_state(now),
            ClientSession::Nats(_) | ClientSession::Hat(_) | ClientSession::Rv(_) => RespState::default(),
        }
    }

    /// Returns the number of lost messages, if the client can query it; otherwise 0. A NATS client gets the number in
    /// headers, a Rendezvous client in advisories, and the connection of a Hat client is closed.
    pub fn lost(&self) -> Count {
        match self {
            ClientSession::Nats(_) | ClientSession::Hat(_) | ClientSession::Rv(_) => Count::Exact(0),
            ClientSession::Redis(session) => session.lost(),
        }
    }

    /// Returns whether the session has this subscription.
    pub fn has_subscription(&self, sub: SubId) -> bool {
        each!(self, session => session.has_subscription(sub))
    }

    /// Returns whether the listener must stop reading from the client until a request is answered.
    pub fn is_full(&self) -> bool {
        each!(self, _session => false, hat => hat.is_full(), _rv => false)
    }

    /// Returns the number of bytes held for requests: those of a Hat client that are not answered yet, and those that a
    /// NATS client has received and may answer.
    pub fn held_bytes(&self) -> usize {
        match self {
            ClientSession::Nats(session) => session.held_bytes(),
            ClientSession::Redis(_) => 0,
            ClientSession::Hat(client) => client.held_bytes(),
            ClientSession::Rv(session) => session.held_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Epoch;

    #[test]
    fn parsers_of_nats_and_redis_recognise_repeats() {
        let redis = |payload: &str| format!("*3\r\n$7\r\nPUBLISH\r\n$1\r\na\r\n$1\r\n{payload}\r\n");
        let nats = |payload: &str| format!("PUB a 1\r\n{payload}\r\n");
        let settings = nats::Settings::new("A.test".parse().unwrap(), Epoch::new(7).unwrap());
        let parsers = [
            (ClientParser::Nats(nats::NatsParser::new(&settings)), ["x", "y"].map(nats)),
            (ClientParser::Redis(redis::RedisParser::new(&redis::Settings::default())), ["x", "y"].map(redis)),
        ];
        for (mut parser, publishes) in parsers {
            parser.admit();
            parser.push(publishes.concat().as_bytes());
            assert!(parser.next().unwrap().is_some_and(|command| command.is_publish()));
            assert_eq!(parser.next_repeated(), Some(&b"y"[..]));
            assert_eq!(parser.next_repeated(), None);
        }
    }
}
