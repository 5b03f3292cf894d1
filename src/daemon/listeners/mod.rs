//! The listeners of a peer: their sockets, their clients, and the order of service. This module holds the parts that
//! all protocols share: sockets, encryption, buffers, back-pressure, limits.

mod admission;
pub(crate) mod client_certificate;
pub(crate) mod connection;
pub(crate) mod delivery;
mod drops;
mod hat_events;
mod memory;
mod repeated_publishes;
mod rv_host;
mod service;
mod session_requests;
pub(crate) mod stream;
pub(crate) mod tls;
mod websocket_layer;

pub use tls::TlsError;

use crate::config::{
    Config, ConfigError, ConfigErrorKind, ConfigErrors, SlowClient, TlsClients, TlsFirst, ValueSource,
};
use crate::daemon::clients::Clients;
use crate::daemon::local_socket::find_group;
use crate::daemon::tokens::LISTENERS;
use crate::event::model::ServerId;
use crate::event::store::TYPES_MAX;
use crate::listener::access::Access;
use crate::listener::client::Settings;
use crate::listener::protocol::Protocol;
use crate::listener::rv::{RvHost, RvHostFacts};
use crate::listener::websocket::OriginPolicy;
use crate::listener::{hat, nats, redis};
use crate::message::{ClientId, Epoch};
use crate::subject::SUBJECT_BYTES_MAX;
use crate::subject::permitted_subjects::HostPermissions;
use crate::time::Instant;
use connection::HandshakeTiming;
use mio::net::TcpListener;
use mio::{Interest, Registry, Token};
use rv_host::RvInbox;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use stream::ListenerTls;

/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// Reason why a listener could not be opened. The text names the fix.
#[derive(Debug)]
pub enum ListenerError {
    /// The system refuses to listen at the address.
    Listen {
        /// Name of the listener, which is also its key in the configuration.
        listener: &'static str,
        /// Address at which it should listen.
        address: SocketAddr,
        /// Error that the system returned.
        error: io::Error,
    },
    /// Its certificates or its key cannot be used.
    Tls {
        /// Name of the listener, which is also its key in the configuration.
        listener: &'static str,
        /// Reason.
        error: TlsError,
    },
}

impl fmt::Display for ListenerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenerError::Listen { listener, address, error } if error.kind() == io::ErrorKind::AddrInUse => write!(
                f,
                "another program listens at {address}; stop it, or write another address for the {listener} listener, such as \
                 {listener}: {}",
                address.port().checked_add(10_000).unwrap_or(0)
            ),
            ListenerError::Listen { listener, address, error } => {
                write!(
                    f,
                    "the {listener} listener cannot listen at {address}: {error}; see {listener}: in the configuration"
                )
            }
            ListenerError::Tls { listener, error } => write!(f, "{listener}-tls: {error}"),
        }
    }
}

impl std::error::Error for ListenerError {}

/// Address of a listener, and how its protocol is carried there.
#[derive(Clone, Copy, Debug)]
struct ListenerAddress {
    protocol: Protocol,
    address: SocketAddr,
    /// True if each connection is a WebSocket.
    is_web_socket: bool,
}

impl ListenerAddress {
    /// Returns the name of the listener, which is also its key in the configuration.
    fn name(&self) -> &'static str {
        // No other protocol is carried in WebSockets by this listener.
        if self.is_web_socket { "nats-ws" } else { self.protocol.as_str() }
    }
}

/// Loads the TLS configuration of a listener, if it has one.
fn load_encryption(listen: &ListenerAddress, config: &Config) -> Result<Option<ListenerTls>, ListenerError> {
    let listener = listen.name();
    let files = match listen.protocol {
        Protocol::Nats if listen.is_web_socket => &config.nats_ws_tls,
        Protocol::Nats => &config.nats_tls,
        Protocol::Redis => &config.redis_tls,
        Protocol::Hat => &config.hat_tls,
        Protocol::Rv => &config.rv_tls,
    };
    files.as_ref().map(tls::load).transpose().map_err(|error| ListenerError::Tls { listener, error })
}

/// Returns the same configuration, if the TLS files that it names for listeners and the group of the local socket can
/// be used. They are only looked up.
///
/// # Errors
/// Returns an error for each key whose value cannot be used.
pub fn check_configured_files(config: Config) -> Result<Config, ConfigErrors> {
    let rows = config.show();
    let source = |key| rows.iter().find(|row| row.key == key).map_or(ValueSource::Default, |row| row.source.clone());
    let error = |(key, error): (&'static str, String)| ConfigError {
        source: source(key),
        key: key.to_owned(),
        reason: ConfigErrorKind::File(error),
        suggestion: None,
        excerpt: None,
    };
    let errors: Vec<ConfigError> = check_files(&config).into_iter().map(error).collect();
    if errors.is_empty() { Ok(config) } else { Err(ConfigErrors(errors)) }
}

/// Checks the TLS files that a configuration names for listeners, and the group of the local socket. Returns the key and
/// the error of each invalid entry.
fn check_files(config: &Config) -> Vec<(&'static str, String)> {
    let of_listeners = [
        ("nats-tls", &config.nats_tls),
        ("nats-ws-tls", &config.nats_ws_tls),
        ("redis-tls", &config.redis_tls),
        ("hat-tls", &config.hat_tls),
        ("rv-tls", &config.rv_tls),
        ("ftn18-tls", &config.ftn18_tls),
        ("http-tls", &config.http_tls),
    ];
    let check = |(key, files): (_, &Option<_>)| Some((key, tls::load(files.as_ref()?).err()?.to_string()));
    let group = config.socket_group.as_deref().and_then(|name| find_group(name).err());
    let of_socket = group.map(|error| ("socket-group", error.to_string()));
    of_socket.into_iter().chain(of_listeners.into_iter().filter_map(check)).collect()
}

/// One open listener.
#[derive(Debug)]
struct Listener {
    /// Name in the status and the log.
    name: &'static str,
    socket: TcpListener,
    address: SocketAddr,
    settings: Settings,
    /// Facts about the daemon that Rendezvous clients see.
    rv_facts: Option<RvHostFacts>,
    tls: Option<ListenerTls>,
    timing: HandshakeTiming,
    /// Pages that may connect, if each connection is a WebSocket.
    web_socket: Option<Arc<OriginPolicy>>,
    is_acceptable: bool,
    /// Number of clients connected now.
    clients: usize,
    counts: ListenerCounts,
}

/// Counters of a listener since the start.
#[derive(Clone, Debug, Default)]
struct ListenerCounts {
    accepted: u64,
    refused: u64,
    accept_failures: u64,
    unauthorized: u64,
    faults: u64,
    /// Number of refusals by kind, which is one of a fixed set.
    refusals: BTreeMap<&'static str, u64>,
    /// Number of actions that the accounts of clients did not permit.
    denied: u64,
    slow: u64,
    evicted: u64,
}

impl ListenerCounts {
    /// Counts a refusal of this kind. Returns the number of its kind if it should be logged: the first, second, fourth
    /// … of each.
    fn count_refusal(&mut self, kind: &'static str) -> Option<u64> {
        let refusals = self.refusals.entry(kind).or_default();
        *refusals += 1;
        Some(*refusals).filter(|refusals| refusals.is_power_of_two())
    }
}

/// All listeners.
#[derive(Debug)]
pub(crate) struct Listeners {
    listeners: Vec<Listener>,
    /// Clients to be served, in this order.
    ready: VecDeque<ClientId>,
    /// Clients that wait until publishers are no longer blocked, or until the subscriptions of other peers are known.
    publish_blocked: Vec<ClientId>,
    /// Times at which the deadlines of clients are checked, each with its client.
    wakes: BTreeSet<(Instant, ClientId)>,
    /// Clients with losses not yet reported to them.
    slow: Vec<ClientId>,
    /// Unauthenticated clients in the order of their connection. Some have departed or been authenticated since.
    unauthenticated: VecDeque<ClientId>,
    unauthenticated_count: usize,
    clients_max: usize,
    unauthenticated_max: usize,
    slow_client: SlowClient,
    /// Time until which the clients publish nothing, unless the peer knows all subscriptions earlier.
    discovery_end: Option<Instant>,
    /// Daemon that Rendezvous clients see, once one of them has begun a session.
    rv_host: Option<RvHost>,
    /// Inbox of that daemon.
    rv_inbox: RvInbox,
    /// Number of messages that the clients have published since the start.
    published: u64,
}

impl Listeners {
    /// Makes a set without listeners.
    pub(crate) fn closed(config: &Config) -> Listeners {
        Listeners {
            listeners: Vec::new(),
            ready: VecDeque::new(),
            publish_blocked: Vec::new(),
            wakes: BTreeSet::new(),
            slow: Vec::new(),
            unauthenticated: VecDeque::new(),
            unauthenticated_count: 0,
            clients_max: config.listener_client_max,
            unauthenticated_max: config.listener_unauthenticated_max,
            slow_client: config.slow_client,
            discovery_end: None,
            rv_host: None,
            rv_inbox: RvInbox::default(),
            published: 0,
        }
    }

    /// Opens the configured listeners for the peer in this epoch. `server` is the server of its events, which the Hat
    /// listener needs; `host` are the permissions of this host.
    pub(crate) fn open(
        config: &Config,
        epoch: Epoch,
        server: Option<ServerId>,
        host: &HostPermissions,
    ) -> Result<Listeners, ListenerError> {
        let mut listeners = Listeners::closed(config);
        let addresses = [
            (Protocol::Nats, config.nats),
            (Protocol::Redis, config.redis),
            (Protocol::Hat, config.hat),
            (Protocol::Rv, config.rv),
        ];
        for (protocol, address) in addresses {
            if let Some(address) = address {
                let listen = ListenerAddress { protocol, address, is_web_socket: false };
                listeners.add(listen, config, epoch, server, host)?;
            }
        }
        if let Some(address) = config.nats_ws {
            let listen = ListenerAddress { protocol: Protocol::Nats, address, is_web_socket: true };
            listeners.add(listen, config, epoch, server, host)?;
        }
        Ok(listeners)
    }

    /// Registers the listeners for incoming connections.
    pub(crate) fn register(&mut self, registry: &Registry) -> io::Result<()> {
        for (index, listener) in self.listeners.iter_mut().enumerate() {
            registry.register(&mut listener.socket, Token(LISTENERS + index), Interest::READABLE)?;
        }
        Ok(())
    }

    /// Sets the time until which the clients publish nothing, unless the peer knows all subscriptions earlier.
    pub(crate) fn begin_discovery(&mut self, until: Instant) {
        self.discovery_end = Some(until);
    }

    /// Records that clients wait to be accepted at the listener with this index.
    pub(crate) fn on_connection(&mut self, index: usize) {
        self.listeners[index].is_acceptable = true;
    }

    fn add(
        &mut self,
        listen: ListenerAddress,
        config: &Config,
        epoch: Epoch,
        server: Option<ServerId>,
        host: &HostPermissions,
    ) -> Result<(), ListenerError> {
        let tls = load_encryption(&listen, config)?;
        let (name, ListenerAddress { protocol, address, is_web_socket }) = (listen.name(), listen);
        let listen = || {
            let socket = socket2::Socket::new(
                socket2::Domain::for_address(address),
                socket2::Type::STREAM.nonblocking(),
                Some(socket2::Protocol::TCP),
            )?;
            // A restarted peer need not wait until the system has forgotten the connections of the previous one.
            socket.set_reuse_address(true)?;
            socket.bind(&address.into())?;
            socket.listen(BACKLOG)?;
            let socket = TcpListener::from_std(socket.into());
            let address = socket.local_addr()?;
            Ok((socket, address))
        };
        let (socket, address) = listen().map_err(|error| ListenerError::Listen { listener: name, address, error })?;
        // A WebSocket is encrypted below the protocol, which announces no encryption of its own then.
        let announced = tls.as_ref().filter(|_| !is_web_socket);
        let settings = settings(protocol, config, epoch, server, host, announced);
        let (may_be_open, tls_first) = match protocol {
            // The greeting follows the opening handshake.
            Protocol::Nats if is_web_socket => (config.nats_ws_open, TlsFirst::Always),
            Protocol::Nats => (config.nats_open, config.nats_tls_first),
            Protocol::Redis => (config.redis_open, TlsFirst::Never),
            Protocol::Hat => (config.hat_open, TlsFirst::Never),
            Protocol::Rv => (config.rv_open, rv_host::tls_first(tls.as_ref())),
        };
        tracing::info!(listener = name, %address, tls = tls.is_some(), accounts = settings.access().accounts.len(), "listener open");
        let is_certified = tls.as_ref().is_some_and(|tls| matches!(tls.clients, TlsClients::Certified(_)));
        if may_be_open && settings.access().accounts.is_empty() && !address.ip().is_loopback() && !is_certified {
            tracing::warn!(listener = name, %address, "anyone who reaches this listener can use it");
        }
        let is_guarded = is_certified || !settings.access().accounts.is_empty();
        let web_socket = is_web_socket.then(|| Arc::new(origin_policy(config, is_guarded)));
        self.listeners.push(Listener {
            name,
            socket,
            address,
            rv_facts: match &settings {
                Settings::Rv(settings) => Some(rv_host::facts(settings, config.name.as_str(), address.port())),
                _ => None,
            },
            settings,
            tls,
            timing: HandshakeTiming { timeout: config.tls_timeout, tls_first },
            web_socket,
            is_acceptable: true,
            clients: 0,
            counts: ListenerCounts::default(),
        });
        Ok(())
    }

    /// Schedules a listener client if it may have input to process.
    pub(crate) fn schedule_if_input(&mut self, clients: &mut Clients, id: ClientId) {
        let Some(connection) = clients.listener_connection(id) else { return };
        if connection.has_input() && !std::mem::replace(&mut connection.is_scheduled, true) {
            self.ready.push_back(id);
        }
    }

    /// Returns whether clients of this protocol are connected.
    fn has_clients(&self, protocol: Protocol) -> bool {
        self.listeners.iter().any(|listener| listener.settings.protocol() == protocol && 0 < listener.clients)
    }

    /// Returns whether the peer announces with events when its Hat listener starts and stops registering events.
    pub(crate) fn announces_events(&self) -> bool {
        let announces = |settings: &Settings| matches!(settings, Settings::Hat(settings) if settings.announces);
        self.listeners.iter().any(|listener| announces(&listener.settings))
    }

    /// Returns the listeners' part of `show status`.
    fn status(&self) -> Value {
        let [sessions, dropped] = self.rv_host.as_ref().map(RvHost::counts).unwrap_or_default();
        let listener = |listener: &Listener| {
            let mut status = json!({
                "listener": listener.name,
                "address": listener.address.to_string(),
                "tls": listener.tls.as_ref().map(|tls| tls.clients.as_str()),
                "accounts": listener.settings.access().accounts.len(),
                "clients": listener.clients,
                "accepted": listener.counts.accepted,
                "refused": listener.counts.refused,
                "accept_failures": listener.counts.accept_failures,
                "unauthorized": listener.counts.unauthorized,
                "faults": listener.counts.faults,
                "refusals": listener.counts.refusals.values().sum::<u64>(),
                "refusals_by_kind": listener.counts.refusals,
                "denied": listener.counts.denied,
                "slow": listener.counts.slow,
                "evicted": listener.counts.evicted,
            });
            if listener.rv_facts.is_some() {
                status["sessions"] = json!(sessions);
                status["announcements_dropped"] = json!(dropped);
            }
            status
        };
        self.listeners.iter().map(listener).collect()
    }
}

/// Returns the pages that may open WebSockets. `is_guarded` says whether clients need an account or a certificate.
fn origin_policy(config: &Config, is_guarded: bool) -> OriginPolicy {
    let host_name = || nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned();
    OriginPolicy { origins: config.nats_ws_origins.clone(), host_name: (!is_guarded).then(host_name) }
}

/// Returns the maximum bytes of headers and payload of a NATS client, for any reply subject: NATS clients know only
/// this limit.
fn nats_payload_bytes_max(message_size: usize) -> usize {
    match message_size.checked_sub(SUBJECT_BYTES_MAX) {
        None | Some(0) => message_size,
        Some(bytes) => bytes,
    }
}

/// Returns the settings shared by all clients of a listener.
fn settings(
    protocol: Protocol,
    config: &Config,
    epoch: Epoch,
    server: Option<ServerId>,
    host: &HostPermissions,
    tls: Option<&ListenerTls>,
) -> Settings {
    let access = |headers| Access::new(&config.accounts, host, headers);
    match protocol {
        Protocol::Nats => Settings::Nats(Arc::new(nats::Settings {
            access: access(config.nats_headers),
            tls: match tls {
                None => nats::Tls::None,
                Some(tls) => match tls.clients {
                    TlsClients::Any => nats::Tls::Available,
                    TlsClients::Encrypted => nats::Tls::Required,
                    TlsClients::Certified(_) => nats::Tls::Certified,
                },
            },
            payload_bytes_max: nats_payload_bytes_max(config.message_size),
            subscriptions_max: config.client_subscriptions_max,
            ..nats::Settings::new(config.name.clone(), epoch)
        })),
        Protocol::Redis => Settings::Redis(Arc::new(redis::Settings {
            access: access(false),
            payload_bytes_max: config.message_size,
            // The limit includes names and separators in addition to the content.
            command_bytes_max: config.message_size + (1 << 20),
            subscriptions_max: config.client_subscriptions_max,
            is_encrypted: tls.is_some_and(|tls| !tls.is_optional()),
            ..redis::Settings::default()
        })),
        Protocol::Hat => Settings::Hat(Arc::new(hat::Settings {
            access: access(false),
            server: server.expect("the journal is open before a listener to it"),
            announces: config.hat_events,
            // A frame holds several events and their separators.
            frame_bytes_max: 2 * config.message_size + (1 << 20),
            message_bytes_max: config.message_size,
            types_max: config.client_subscriptions_max.min(TYPES_MAX),
            ..hat::Settings::default()
        })),
        Protocol::Rv => Settings::Rv(Arc::new(rv_host::settings(config, epoch, host, tls))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_refusal_of_each_kind_is_logged() {
        let mut counts = ListenerCounts::default();
        let logged: Vec<Option<u64>> = (0..5).map(|_| counts.count_refusal("JSON")).collect();
        assert_eq!(logged, [Some(1), Some(2), None, Some(4), None]);
        assert_eq!(counts.count_refusal("JSON depth"), Some(1));
        assert_eq!(counts.refusals, BTreeMap::from([("JSON", 5), ("JSON depth", 1)]));
    }
}
