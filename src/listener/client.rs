//! One client of a listener, whatever protocol it speaks: what cuts its bytes into commands, and where its conversation stands.

use crate::listener::access::Access;
use crate::listener::output_buffer::OutputBuffer;
use crate::listener::session_request::{
    ClientFacts, ConnectionInfo, ListedSubscription, ReceiverCount, RespState, ServerFacts, SessionRequest,
};
use crate::listener::{hat, nats, redis};
use crate::message::{Count, SubId};
use crate::proto::delivery::Deliveries;
use crate::proto::effect::Refusal;
use crate::subject::Subject;
use crate::time::Instant;
use std::fmt;
use std::sync::Arc;

/// The protocols that there are listeners for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// NATS clients.
    Nats,
    /// Redis clients.
    Redis,
    /// Clients of Hat Event Server.
    Hat,
}

impl Protocol {
    /// Its name, in configuration, logs and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Protocol::Nats => "nats",
            Protocol::Redis => "redis",
            Protocol::Hat => "hat",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What all clients of one listener have in common.
#[derive(Clone, Debug)]
pub enum Settings {
    /// Of the NATS listener.
    Nats(Arc<nats::Settings>),
    /// Of the Redis listener.
    Redis(Arc<redis::Settings>),
    /// Of the Hat listener.
    Hat(Arc<hat::Settings>),
}

impl Settings {
    /// Of which protocol.
    pub fn protocol(&self) -> Protocol {
        match self {
            Settings::Nats(_) => Protocol::Nats,
            Settings::Redis(_) => Protocol::Redis,
            Settings::Hat(_) => Protocol::Hat,
        }
    }

    /// Who may come in.
    pub fn access(&self) -> &Access {
        match self {
            Settings::Nats(settings) => &settings.access,
            Settings::Redis(settings) => &settings.access,
            Settings::Hat(settings) => &settings.access,
        }
    }

    /// What a client is told for which there is no place; none if it would expect something else first.
    pub fn overload_reply(&self) -> Option<&'static [u8]> {
        match self {
            Settings::Nats(_) => Some(b"-ERR 'maximum connections exceeded'\r\n"),
            Settings::Redis(settings) if settings.is_encrypted => None,
            Settings::Redis(_) => Some(b"-ERR max number of clients reached\r\n"),
            Settings::Hat(_) => None,
        }
    }
}

/// Why a conversation is over: the client is at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientFault {
    /// Of a NATS client.
    Nats(nats::NatsFault),
    /// Of a Redis client.
    Redis(redis::RedisFault),
    /// Of a Hat client.
    Hat(hat::HatFault),
}

impl ClientFault {
    /// The connection is not encrypted and must be.
    pub fn not_encrypted(protocol: Protocol) -> ClientFault {
        match protocol {
            Protocol::Nats => ClientFault::Nats(nats::NatsFault::NotEncrypted),
            Protocol::Redis => ClientFault::Redis(redis::RedisFault::NotEncrypted),
            Protocol::Hat => ClientFault::Hat(hat::HatFault::NotEncrypted),
        }
    }
}

impl fmt::Display for ClientFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientFault::Nats(fault) => fault.fmt(f),
            ClientFault::Redis(fault) => fault.fmt(f),
            ClientFault::Hat(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for ClientFault {}

/// A command, where it was read.
#[derive(Debug)]
pub enum ClientCommand<'a> {
    /// Of a NATS client.
    Nats(nats::NatsCommand<'a>),
    /// Of a Redis client.
    Redis(redis::RedisCommand<'a>),
    /// Of a Hat client.
    Hat(hat::ChatterMessage<'a>),
}

impl ClientCommand<'_> {
    /// Whether it publishes, which may have to wait for room.
    pub fn is_publish(&self) -> bool {
        match self {
            ClientCommand::Nats(command) => command.is_publish(),
            ClientCommand::Redis(command) => command.is_publish(),
            // What it registers is published when it is stored.
            ClientCommand::Hat(_) => false,
        }
    }

    /// Whether it begins or ends subscriptions.
    pub fn is_subscribe(&self) -> bool {
        match self {
            ClientCommand::Nats(command) => command.is_subscribe(),
            ClientCommand::Redis(command) => command.is_subscribe(),
            ClientCommand::Hat(_) => false,
        }
    }
}

/// Cuts the bytes of a client into commands, however they were cut before.
#[derive(Debug)]
pub enum ClientParser {
    /// Of a NATS client.
    Nats(nats::NatsParser),
    /// Of a Redis client.
    Redis(redis::RedisParser),
    /// Of a Hat client.
    Hat(hat::ChatterParser),
}

impl ClientParser {
    /// For a client that has just connected.
    pub fn new(settings: &Settings) -> ClientParser {
        match settings {
            Settings::Nats(settings) => ClientParser::Nats(nats::NatsParser::new(settings)),
            Settings::Redis(settings) => ClientParser::Redis(redis::RedisParser::new(settings)),
            Settings::Hat(settings) => ClientParser::Hat(hat::ChatterParser::new(settings)),
        }
    }

    /// Bytes that are held.
    pub fn held_bytes(&self) -> usize {
        match self {
            ClientParser::Nats(parser) => parser.held_bytes(),
            ClientParser::Redis(parser) => parser.held_bytes(),
            ClientParser::Hat(parser) => parser.held_bytes(),
        }
    }

    /// Takes bytes as they came.
    pub fn push(&mut self, bytes: &[u8]) {
        match self {
            ClientParser::Nats(parser) => parser.push(bytes),
            ClientParser::Redis(parser) => parser.push(bytes),
            ClientParser::Hat(parser) => parser.push(bytes),
        }
    }

    /// The next whole command; `None` until more bytes come.
    ///
    /// # Errors
    /// The bytes mean nothing, or are too many.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "what is given is borrowed from the parser")]
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
        }
    }

    /// The command just given is given once more.
    pub fn keep(&mut self) {
        match self {
            ClientParser::Nats(parser) => parser.keep(),
            ClientParser::Redis(parser) => parser.keep(),
            ClientParser::Hat(parser) => parser.keep(),
        }
    }

    /// The limits of strangers end.
    pub fn admit(&mut self) {
        match self {
            ClientParser::Nats(parser) => parser.admit(),
            ClientParser::Redis(parser) => parser.admit(),
            ClientParser::Hat(parser) => parser.admit(),
        }
    }
}

/// Where the conversation with a client stands.
#[derive(Debug)]
pub enum ClientSession {
    /// With a NATS client.
    Nats(Box<nats::NatsSession>),
    /// With a Redis client.
    Redis(Box<redis::RedisSession>),
    /// With a Hat client.
    Hat(Box<hat::HatClient>),
}

/// The same call of whatever session it is; of a Hat client perhaps another one, because it asks less of the peer.
macro_rules! each {
    ($session:expr, $inner:ident => $call:expr) => {
        each!($session, $inner => $call, $inner => $call)
    };
    ($session:expr, $inner:ident => $call:expr, $hat:ident => $of_hat:expr) => {
        match $session {
            ClientSession::Nats($inner) => $call,
            ClientSession::Redis($inner) => $call,
            ClientSession::Hat($hat) => $of_hat,
        }
    };
}

impl ClientSession {
    /// With a client that has just connected.
    pub fn new(settings: &Settings, hello: &ConnectionInfo, now: Instant) -> ClientSession {
        match settings {
            Settings::Nats(settings) => {
                ClientSession::Nats(Box::new(nats::NatsSession::new(Arc::clone(settings), hello, now)))
            }
            Settings::Redis(settings) => {
                ClientSession::Redis(Box::new(redis::RedisSession::new(Arc::clone(settings), hello, now)))
            }
            Settings::Hat(settings) => ClientSession::Hat(Box::new(hat::HatClient::new(Arc::clone(settings), now))),
        }
    }

    /// Says what is to be said first.
    pub fn on_open(&mut self, out: &mut OutputBuffer) {
        each!(self, session => session.on_open(out), _hat => ());
    }

    /// Answers a command, or gives what it asks of the peer; [`ClientSession::poll_request`] gives the rest of that.
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
            _ => unreachable!("a connection has the parser and the session of one protocol"),
        }
    }

    /// What else is asked of the peer; to be drained after each command and after deliveries, and when the client takes answers again.
    pub fn poll_request(&mut self, takes_answers: bool) -> Option<SessionRequest<'static>> {
        each!(self, session => session.poll_request(), hat => hat.poll_request(takes_answers))
    }

    /// Tells the client what it did wrong, before its connection is closed.
    pub fn on_fault(&mut self, fault: &ClientFault, out: &mut OutputBuffer) {
        match (self, fault) {
            (ClientSession::Nats(session), ClientFault::Nats(fault)) => session.on_fault(fault, out),
            (ClientSession::Redis(session), ClientFault::Redis(fault)) => session.on_fault(fault, out),
            (ClientSession::Hat(client), ClientFault::Hat(fault)) => client.on_fault(fault, out),
            _ => unreachable!("a connection has the parser and the session of one protocol"),
        }
    }

    /// The peer refused a subscription, which is not there then, or a message.
    pub fn on_refused(&mut self, sub: Option<SubId>, refusal: &Refusal, out: &mut OutputBuffer) {
        each!(self, session => session.on_refused(sub, refusal, out), hat => hat.on_refused(refusal));
    }

    /// A message was published whose receivers the session wanted to know.
    pub fn on_published(&mut self, reply: Option<&Subject>, receivers: ReceiverCount, out: &mut OutputBuffer) {
        each!(self, session => session.on_published(reply, receivers, out), _hat => ());
    }

    /// The answer to [`SessionRequest::Count`].
    pub fn on_counts(&mut self, counts: &[ReceiverCount], out: &mut OutputBuffer) {
        each!(self, session => session.on_counts(counts, out), _hat => ());
    }

    /// The answer to [`SessionRequest::List`]. Gives the steps of matching that it took.
    pub fn on_subscription_list(&mut self, listed: &[ListedSubscription], out: &mut OutputBuffer) -> usize {
        each!(self, session => session.on_subscription_list(listed, out), _hat => 0)
    }

    /// The answer to [`SessionRequest::ServerFacts`].
    pub fn on_server_facts(&mut self, facts: &ServerFacts, out: &mut OutputBuffer) {
        each!(self, session => session.on_server_facts(facts, out), _hat => ());
    }

    /// The answer to [`SessionRequest::Clients`].
    pub fn on_clients(&mut self, clients: &[ClientFacts], out: &mut OutputBuffer) {
        each!(self, session => session.on_clients(clients, out), _hat => ());
    }

    /// Those of these subscriptions, at least one, for which messages that match them all are to be handed on: a Hat client is told of an
    /// event once.
    pub fn delivery_subs<'a>(&self, subs: &'a [SubId]) -> &'a [SubId] {
        each!(self, _session => subs, _hat => &subs[..1])
    }

    /// Messages for these subscriptions. Gives how many are written, now or by [`ClientSession::flush_events`], over all of the subscriptions.
    pub fn on_deliveries(&mut self, subs: &[SubId], deliveries: &Deliveries, out: &mut OutputBuffer) -> usize {
        each!(self, session => session.on_deliveries(subs, deliveries, out), hat => hat.on_deliveries(deliveries, out))
    }

    /// Says what was kept back of messages, to be said together with others. To be called before anything is written.
    pub fn flush_events(&mut self, out: &mut OutputBuffer) {
        each!(self, _session => (), hat => hat.flush_events(out));
    }

    /// Messages of these subscriptions are lost, before any that are delivered from now on.
    pub fn on_lost(&mut self, subs: &[SubId], lost: Count) {
        each!(self, session => session.on_lost(subs, lost), hat => hat.on_lost());
    }

    /// The peer is about to stop.
    pub fn on_stop(&mut self, out: &mut OutputBuffer) {
        each!(self, session => session.on_stop(out));
    }

    /// When [`ClientSession::on_deadline`] is to be called.
    pub fn deadline(&self) -> Option<Instant> {
        each!(self, session => session.deadline())
    }

    /// The time of the deadline has come, or not yet; `is_read` is false while nothing is read of the client.
    ///
    /// # Errors
    /// The client has taken too long.
    pub fn on_deadline(&mut self, now: Instant, is_read: bool, out: &mut OutputBuffer) -> Result<(), ClientFault> {
        match self {
            ClientSession::Nats(session) => session.on_deadline(now, out).map_err(ClientFault::Nats),
            ClientSession::Redis(session) => session.on_deadline(now, out).map_err(ClientFault::Redis),
            ClientSession::Hat(client) => client.on_deadline(now, is_read, out).map_err(ClientFault::Hat),
        }
    }

    /// Whether the client has said who it is, if it has to.
    pub fn is_admitted(&self) -> bool {
        each!(self, session => session.is_admitted())
    }

    /// Returns what `CLIENT LIST` shows of a Redis connection; the default for other protocols.
    pub fn resp_state(&self, now: Instant) -> RespState {
        match self {
            ClientSession::Redis(session) => session.resp_state(now),
            ClientSession::Nats(_) | ClientSession::Hat(_) => RespState::default(),
        }
    }

    /// Messages that were lost for the client, if it can be asked about that; a NATS client is told in headers, and a Hat client is closed.
    pub fn lost(&self) -> Count {
        match self {
            ClientSession::Nats(_) | ClientSession::Hat(_) => Count::Exact(0),
            ClientSession::Redis(session) => session.lost(),
        }
    }

    /// Whether this is one of them.
    pub fn has_subscription(&self, sub: SubId) -> bool {
        each!(self, session => session.has_subscription(sub))
    }

    /// Whether nothing more may be taken of the client before something is answered.
    pub fn is_full(&self) -> bool {
        each!(self, _session => false, hat => hat.is_full())
    }

    /// Bytes of what the client asked and has no answer to.
    pub fn held_bytes(&self) -> usize {
        each!(self, _session => 0, hat => hat.held_bytes())
    }
}
