//! Admission of clients to the listeners, and the end of their connections.

use super::Listeners;
use super::connection::ListenerConnection;
use super::stream::Stream;
use crate::clock::random_u64;
use crate::daemon::client_origin::ClientOrigin;
use crate::daemon::clients::ClientTransport;
use crate::daemon::engine_core::{DetachedClient, EngineCore};
use crate::daemon::event_request::{EventRequester, EventServiceCommand};
use crate::daemon::internal_command::InternalCommand;
use crate::daemon::tokens::client_token;
use crate::listener::client::ClientSession;
use crate::listener::event::EventRequest;
use crate::listener::session_request::ConnectionInfo;
use crate::listener::websocket::OVERLOAD_RESPONSE;
use crate::message::ClientId;
use crate::time::ClockReading;
use mio::Interest;
use mio::net::TcpStream;
use std::io::{self, Write};
use std::net::SocketAddr;

/// Maximum number of clients accepted at one listener in one turn. Others wait in the system's queue, so that a flood
/// of them does not keep the peer from its work.
const ACCEPTS_MAX: usize = 64;
/// Number of departed or authenticated clients that the list of unauthenticated ones may still contain.
const UNAUTHENTICATED_SLACK: usize = 64;

impl Listeners {
    /// Accepts new clients of the listeners.
    pub(super) fn accept(&mut self, core: &mut EngineCore, now: ClockReading) {
        for index in 0..self.listeners.len() {
            let mut left = ACCEPTS_MAX;
            while 0 < left && self.listeners[index].is_acceptable && core.is_running() {
                left -= 1;
                match self.listeners[index].socket.accept() {
                    Ok((stream, from)) => self.admit(core, now, index, stream, from),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.listeners[index].is_acceptable = false;
                    }
                    Err(error) if is_of_one_connection(&error) => {}
                    Err(error) => {
                        // Usually the process has no file descriptor left. The listener accepts again after a client
                        // departs or another one connects.
                        let listener = &mut self.listeners[index];
                        listener.is_acceptable = false;
                        listener.counts.accept_failures += 1;
                        if listener.counts.accept_failures.is_power_of_two() {
                            let times = listener.counts.accept_failures;
                            tracing::warn!(%error, listener = listener.name, times, "client not accepted");
                        }
                    }
                }
            }
        }
    }

    fn admit(
        &mut self,
        core: &mut EngineCore,
        now: ClockReading,
        index: usize,
        mut stream: TcpStream,
        from: SocketAddr,
    ) {
        self.listeners[index].counts.accepted += 1;
        if self.clients_max <= core.clients.listener_delivery.clients {
            return self.reject_connection(index, &stream, "listener-client-max", self.clients_max);
        }
        if self.unauthenticated_max <= self.unauthenticated_count && !self.evict_unauthenticated(core, now) {
            return self.reject_connection(index, &stream, "listener-unauthenticated-max", self.unauthenticated_max);
        }
        let id = core.clients.peek_next();
        let registered =
            core.poll.registry().register(&mut stream, client_token(id), Interest::READABLE | Interest::WRITABLE);
        if let Err(error) = registered.and_then(|()| stream.set_nodelay(true)) {
            tracing::debug!(%error, "client not accepted");
            return;
        }
        let listener = &mut self.listeners[index];
        listener.clients += 1;
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&random_u64().to_be_bytes());
        nonce[8..].copy_from_slice(&random_u64().to_be_bytes());
        let hello =
            ConnectionInfo { client: id.0, from, listen: listener.address, nonce, is_secure: listener.tls.is_some() };
        let stream = Stream::new(stream, listener.tls.as_ref(), listener.web_socket.as_ref());
        let limits = core.clients.limits();
        let mut connection =
            ListenerConnection::new(stream, &listener.settings, &hello, index, limits, listener.timing, now.instant);
        connection.is_scheduled = true;
        if connection.session.is_admitted() {
            connection.parser.admit();
            connection.account = Some(String::new());
        }
        connection.write();
        connection.is_unauthenticated = !connection.is_authenticated();
        let is_unauthenticated = connection.is_unauthenticated;
        let origin = ClientOrigin { listener: listener.name, protocol: listener.settings.protocol(), address: from };
        core.clients.add(now, String::new(), ClientTransport::Listener(Box::new(connection)));
        if let Some(client) = core.clients.client(id) {
            client.origin = Some(origin);
        }
        self.ready.push_back(id);
        if is_unauthenticated {
            self.unauthenticated_count += 1;
            self.unauthenticated.push_back(id);
            self.prune_authenticated(core);
        }
        self.drain_requests(core, now, id);
        core.clients.on_served(id);
        self.schedule_wake(core, now, id);
    }

    /// Rejects a connection because a client limit is reached.
    fn reject_connection(&mut self, index: usize, mut stream: &TcpStream, key: &str, max: usize) {
        let listener = &mut self.listeners[index];
        listener.counts.refused += 1;
        let reply = match (&listener.web_socket, &listener.tls) {
            (None, _) => listener.settings.overload_reply(),
            (Some(_), None) => Some(OVERLOAD_RESPONSE),
            (Some(_), Some(_)) => None,
        };
        if let Some(text) = reply {
            // An empty socket takes these few bytes; a client that has departed does not need them.
            let _ = stream.write(text);
        }
        if listener.counts.refused.is_power_of_two() {
            tracing::warn!(
                listener = listener.name,
                refused = listener.counts.refused,
                max,
                "client refused: see {key}"
            );
        }
    }

    /// Removes departed and authenticated clients from the list of unauthenticated ones when they are the majority.
    fn prune_authenticated(&mut self, core: &mut EngineCore) {
        if self.unauthenticated.len() <= 2 * self.unauthenticated_count + UNAUTHENTICATED_SLACK {
            return;
        }
        let clients = &mut core.clients;
        let mut is_unauthenticated =
            |id: &ClientId| clients.listener_connection(*id).is_some_and(|client| client.is_unauthenticated);
        self.unauthenticated.retain(|id| is_unauthenticated(id));
    }

    /// Evicts the oldest unauthenticated client. Returns false if there is none.
    fn evict_unauthenticated(&mut self, core: &mut EngineCore, now: ClockReading) -> bool {
        while let Some(id) = self.unauthenticated.pop_front() {
            if core.clients.listener_connection(id).is_some_and(|connection| connection.is_unauthenticated) {
                self.detach(core, now, id);
                return true;
            }
        }
        false
    }

    /// Removes a client of a listener, and releases its state in the listeners.
    pub(super) fn detach(&mut self, core: &mut EngineCore, now: ClockReading, id: ClientId) {
        core.detach(now, id);
        if let Some(mut client) = core.detached.pop_back() {
            if client.id == id {
                self.release(core, now, &mut client);
            }
            core.detached.push_back(client);
        }
    }

    /// Releases the state of a departed client in the listeners, if it was a client of a listener.
    pub(super) fn release(&mut self, core: &mut EngineCore, now: ClockReading, client: &mut DetachedClient) {
        let id = client.id;
        let is_own = |transport: &mut ClientTransport| matches!(transport, ClientTransport::Listener(_));
        let Some(ClientTransport::Listener(mut connection)) = client.transport.take_if(is_own) else { return };
        connection.stream.close();
        if let ClientSession::Hat(session) = &mut connection.session {
            for registrations in session.take_final_registrations() {
                let (requester, request) = (EventRequester::Internal, EventRequest::Register(registrations));
                core.queue_command(InternalCommand::Events(EventServiceCommand::Request { requester, request }));
            }
        }
        if let Err(error) = core.poll.registry().deregister(&mut connection.stream.socket) {
            tracing::debug!(%error, client = id.0, "deregister");
        }
        let listener = &mut self.listeners[connection.listener];
        listener.clients -= 1;
        self.unauthenticated_count -= usize::from(connection.is_unauthenticated);
        listener.counts.unauthorized += u64::from(connection.account.is_none());
        if let Some(wake) = connection.wake.take() {
            self.wakes.remove(&(wake, id));
        }
        for listener in &mut self.listeners {
            listener.is_acceptable = true;
        }
        if let ClientSession::Rv(_) = &connection.session {
            self.on_rv_departure(core, now, id);
        }
    }

    /// Evicts the clients that hold most memory, as long as listener clients together exceed their limit.
    pub(super) fn evict(&mut self, core: &mut EngineCore, now: ClockReading) {
        if !core.clients.listener_delivery.memory.is_full() {
            return;
        }
        for (bytes, id) in core.clients.by_held_bytes() {
            if !core.clients.listener_delivery.memory.is_full() {
                return;
            }
            if let Some(connection) = core.clients.listener_connection(id) {
                let (listener, from) = (&mut self.listeners[connection.listener], connection.from);
                listener.counts.evicted += 1;
                if listener.counts.evicted.is_power_of_two() {
                    let (name, evicted) = (listener.name, listener.counts.evicted);
                    tracing::warn!(client = id.0, listener = name, %from, bytes, evicted, "client evicted that held the most memory: see listener-memory");
                }
            }
            self.detach(core, now, id);
        }
    }
}

/// Returns whether an accept error concerns only the connection to be accepted, not all connections.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}
