//! One client of a listener, whatever protocol it speaks: what cuts its bytes into commands, and where its conversation stands.

use crate::listener::access::Access;
use crate::listener::ask::{Ask, ClientFacts, Hello, ListedSubscription, ReceiverCount, RespState, ServerFacts};
use crate::listener::out::OutputBuffer;
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
pub enum Fault {
    /// Of a NATS client.
    Nats(nats::Fault),
    /// Of a Redis client.
    Redis(redis::Fault),
    /// Of a Hat client.
    Hat(hat::Fault),
}

impl Fault {
    /// The connection is not encrypted and must be.
    pub fn not_encrypted(protocol: Protocol) -> Fault {
        match protocol {
            Protocol::Nats => Fault::Nats(nats::Fault::NotEncrypted),
            Protocol::Redis => Fault::Redis(redis::Fault::NotEncrypted),
            Protocol::Hat => Fault::Hat(hat::Fault::NotEncrypted),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Nats(fault) => fault.fmt(f),
            Fault::Redis(fault) => fault.fmt(f),
            Fault::Hat(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for Fault {}

/// A command, where it was read.
#[derive(Debug)]
pub enum Command<'a> {
    /// Of a NATS client.
    Nats(nats::Command<'a>),
    /// Of a Redis client.
    Redis(redis::Command<'a>),
    /// Of a Hat client.
    Hat(hat::Message<'a>),
}

impl Command<'_> {
    /// Whether it publishes, which may have to wait for room.
    pub fn is_publish(&self) -> bool {
        match self {
            Command::Nats(command) => command.is_publish(),
            Command::Redis(command) => command.is_publish(),
            // What it registers is published when it is stored.
            Command::Hat(_) => false,
        }
    }

    /// Whether it begins or ends subscriptions.
    pub fn is_subscribe(&self) -> bool {
        match self {
            Command::Nats(command) => command.is_subscribe(),
            Command::Redis(command) => command.is_subscribe(),
            Command::Hat(_) => false,
        }
    }
}

/// Cuts the bytes of a client into commands, however they were cut before.
#[derive(Debug)]
pub enum Parser {
    /// Of a NATS client.
    Nats(nats::Parser),
    /// Of a Redis client.
    Redis(redis::Parser),
    /// Of a Hat client.
    Hat(hat::Parser),
}

impl Parser {
    /// For a client that has just connected.
    pub fn new(settings: &Settings) -> Parser {
        match settings {
            Settings::Nats(settings) => Parser::Nats(nats::Parser::new(settings)),
            Settings::Redis(settings) => Parser::Redis(redis::Parser::new(settings)),
            Settings::Hat(settings) => Parser::Hat(hat::Parser::new(settings)),
        }
    }

    /// Bytes that are held.
    pub fn held_bytes(&self) -> usize {
        match self {
            Parser::Nats(parser) => parser.held_bytes(),
            Parser::Redis(parser) => parser.held_bytes(),
            Parser::Hat(parser) => parser.held_bytes(),
        }
    }

    /// Takes bytes as they came.
    pub fn push(&mut self, bytes: &[u8]) {
        match self {
            Parser::Nats(parser) => parser.push(bytes),
            Parser::Redis(parser) => parser.push(bytes),
            Parser::Hat(parser) => parser.push(bytes),
        }
    }

    /// The next whole command; `None` until more bytes come.
    ///
    /// # Errors
    /// The bytes mean nothing, or are too many.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "what is given is borrowed from the parser")]
    pub fn next(&mut self) -> Result<Option<Command<'_>>, Fault> {
        match self {
            Parser::Nats(parser) => parser.next().map(|next| next.map(Command::Nats)).map_err(Fault::Nats),
            Parser::Redis(parser) => parser.next().map(|next| next.map(Command::Redis)).map_err(Fault::Redis),
            Parser::Hat(parser) => parser.next().map(|next| next.map(Command::Hat)).map_err(Fault::Hat),
        }
    }

    /// The command just given is given once more.
    pub fn keep(&mut self) {
        match self {
            Parser::Nats(parser) => parser.keep(),
            Parser::Redis(parser) => parser.keep(),
            Parser::Hat(parser) => parser.keep(),
        }
    }

    /// The limits of strangers end.
    pub fn admit(&mut self) {
        match self {
            Parser::Nats(parser) => parser.admit(),
            Parser::Redis(parser) => parser.admit(),
            Parser::Hat(parser) => parser.admit(),
        }
    }
}

/// Where the conversation with a client stands.
#[derive(Debug)]
pub enum Session {
    /// With a NATS client.
    Nats(Box<nats::Session>),
    /// With a Redis client.
    Redis(Box<redis::Session>),
    /// With a Hat client.
    Hat(Box<hat::Client>),
}

/// The same call of whatever session it is; of a Hat client perhaps another one, because it asks less of the peer.
macro_rules! each {
    ($session:expr, $inner:ident => $call:expr) => {
        each!($session, $inner => $call, $inner => $call)
    };
    ($session:expr, $inner:ident => $call:expr, $hat:ident => $of_hat:expr) => {
        match $session {
            Session::Nats($inner) => $call,
            Session::Redis($inner) => $call,
            Session::Hat($hat) => $of_hat,
        }
    };
}

impl Session {
    /// With a client that has just connected.
    pub fn new(settings: &Settings, hello: &Hello, now: Instant) -> Session {
        match settings {
            Settings::Nats(settings) => Session::Nats(Box::new(nats::Session::new(Arc::clone(settings), hello, now))),
            Settings::Redis(settings) => {
                Session::Redis(Box::new(redis::Session::new(Arc::clone(settings), hello, now)))
            }
            Settings::Hat(settings) => Session::Hat(Box::new(hat::Client::new(Arc::clone(settings), now))),
        }
    }

    /// Says what is to be said first.
    pub fn on_open(&mut self, out: &mut OutputBuffer) {
        each!(self, session => session.on_open(out), _hat => ());
    }

    /// Answers a command, or gives what it asks of the peer; [`Session::poll_request`] gives the rest of that.
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
        command: Command<'a>,
        out: &mut OutputBuffer,
    ) -> Result<Option<Ask<'a>>, Fault> {
        match (self, command) {
            (Session::Nats(session), Command::Nats(command)) => {
                session.on_command(now, command, out).map_err(Fault::Nats)
            }
            (Session::Redis(session), Command::Redis(command)) => {
                session.on_command(now, command, out).map_err(Fault::Redis)
            }
            (Session::Hat(client), Command::Hat(message)) => {
                client.on_command(now, message, out).map(|()| None).map_err(Fault::Hat)
            }
            _ => unreachable!("a connection has the parser and the session of one protocol"),
        }
    }

    /// What else is asked of the peer; to be drained after each command and after deliveries, and when the client takes answers again.
    pub fn poll_request(&mut self, takes_answers: bool) -> Option<Ask<'static>> {
        each!(self, session => session.poll_request(), hat => hat.poll_request(takes_answers))
    }

    /// Tells the client what it did wrong, before its connection is closed.
    pub fn on_fault(&mut self, fault: &Fault, out: &mut OutputBuffer) {
        match (self, fault) {
            (Session::Nats(session), Fault::Nats(fault)) => session.on_fault(fault, out),
            (Session::Redis(session), Fault::Redis(fault)) => session.on_fault(fault, out),
            (Session::Hat(client), Fault::Hat(fault)) => client.on_fault(fault, out),
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

    /// The answer to [`Ask::Count`].
    pub fn on_counts(&mut self, counts: &[ReceiverCount], out: &mut OutputBuffer) {
        each!(self, session => session.on_counts(counts, out), _hat => ());
    }

    /// The answer to [`Ask::List`]. Gives the steps of matching that it took.
    pub fn on_subscription_list(&mut self, listed: &[ListedSubscription], out: &mut OutputBuffer) -> usize {
        each!(self, session => session.on_subscription_list(listed, out), _hat => 0)
    }

    /// The answer to [`Ask::ServerFacts`].
    pub fn on_server_facts(&mut self, facts: &ServerFacts, out: &mut OutputBuffer) {
        each!(self, session => session.on_server_facts(facts, out), _hat => ());
    }

    /// The answer to [`Ask::Clients`].
    pub fn on_clients(&mut self, clients: &[ClientFacts], out: &mut OutputBuffer) {
        each!(self, session => session.on_clients(clients, out), _hat => ());
    }

    /// Those of these subscriptions, at least one, for which messages that match them all are to be handed on: a Hat client is told of an
    /// event once.
    pub fn delivery_subs<'a>(&self, subs: &'a [SubId]) -> &'a [SubId] {
        each!(self, _session => subs, _hat => &subs[..1])
    }

    /// Messages for these subscriptions. Gives how many are written, now or by [`Session::flush_events`], over all of the subscriptions.
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

    /// When [`Session::on_deadline`] is to be called.
    pub fn deadline(&self) -> Option<Instant> {
        each!(self, session => session.deadline())
    }

    /// The time of the deadline has come, or not yet; `is_read` is false while nothing is read of the client.
    ///
    /// # Errors
    /// The client has taken too long.
    pub fn on_deadline(&mut self, now: Instant, is_read: bool, out: &mut OutputBuffer) -> Result<(), Fault> {
        match self {
            Session::Nats(session) => session.on_deadline(now, out).map_err(Fault::Nats),
            Session::Redis(session) => session.on_deadline(now, out).map_err(Fault::Redis),
            Session::Hat(client) => client.on_deadline(now, is_read, out).map_err(Fault::Hat),
        }
    }

    /// Whether the client has said who it is, if it has to.
    pub fn is_admitted(&self) -> bool {
        each!(self, session => session.is_admitted())
    }

    /// Returns what `CLIENT LIST` shows of a Redis connection; the default for other protocols.
    pub fn resp_state(&self, now: Instant) -> RespState {
        match self {
            Session::Redis(session) => session.resp_state(now),
            Session::Nats(_) | Session::Hat(_) => RespState::default(),
        }
    }

    /// Messages that were lost for the client, if it can be asked about that; a NATS client is told in headers, and a Hat client is closed.
    pub fn lost(&self) -> Count {
        match self {
            Session::Nats(_) | Session::Hat(_) => Count::Exact(0),
            Session::Redis(session) => session.lost(),
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
