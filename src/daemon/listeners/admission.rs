//! Admission of clients to the listeners, and the end of their connections.

use super::Listeners;
use super::connection::ListenerConnection;
use super::stream::Stream;
use crate::clock::random_u64;
use crate::daemon::clients::ClientTransport;
use crate::daemon::engine_core::{DetachedClient, EngineCore};
use crate::daemon::event_request::{EventRequester, EventServiceCommand};
use crate::daemon::internal_command::InternalCommand;
use crate::daemon::tokens::client_token;
use crate::listener::client::ClientSession;
use crate::listener::event::EventRequest;
use crate::listener::session_request::ConnectionInfo;
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
        for listener in 0..self.open.len() {
            let mut left = ACCEPTS_MAX;
            while 0 < left && self.open[listener].is_acceptable && core.is_running() {
                left -= 1;
                match self.open[listener].socket.accept() {
                    Ok((stream, from)) => self.admit(core, now, listener, stream, from),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.open[listener].is_acceptable = false;
                    }
                    Err(error) if is_of_one_connection(&error) => {}
                    Err(error) => {
                        // Usually the process is out of files: the listener accepts again when a client departs or
                        // another one connects.
                        let open = &mut self.open[listener];
                        open.is_acceptable = false;
                        open.counts.accept_failures += 1;
                        if open.counts.accept_failures.is_power_of_two() {
                            let (protocol, times) = (open.settings.protocol(), open.counts.accept_failures);
                            tracing::warn!(%error, listener = %protocol, times, "client not accepted");
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
        listener: usize,
        mut stream: TcpStream,
        from: SocketAddr,
    ) {
        self.open[listener].counts.accepted += 1;
        if self.clients_max <= core.clients.listener_delivery.clients {
            return self.reject_connection(listener, &stream, "listener-client-max", self.clients_max);
        }
        if self.unauthenticated_max <= self.unauthenticated_count && !self.evict_unauthenticated(core, now) {
            return self.reject_connection(listener, &stream, "listener-unauthenticated-max", self.unauthenticated_max);
        }
        let id = core.clients.peek_next();
        let registered =
            core.poll.registry().register(&mut stream, client_token(id), Interest::READABLE | Interest::WRITABLE);
        if let Err(error) = registered.and_then(|()| stream.set_nodelay(true)) {
            tracing::debug!(%error, "client not accepted");
            return;
        }
        let open = &mut self.open[listener];
        open.clients += 1;
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&random_u64().to_be_bytes());
        nonce[8..].copy_from_slice(&random_u64().to_be_bytes());
        let hello = ConnectionInfo { client: id.0, from, listen: open.address, nonce, is_secure: open.tls.is_some() };
        let stream = Stream::new(stream, open.tls.as_ref());
        let limits = core.clients.limits();
        let mut connection = ListenerConnection::new(stream, &open.settings, &hello, listener, limits, now.instant);
        connection.is_scheduled = true;
        if connection.session.is_admitted() {
            connection.parser.admit();
            connection.account = Some(String::new());
        }
        connection.write();
        connection.is_unauthenticated = !connection.is_authenticated();
        let is_unauthenticated = connection.is_unauthenticated;
        let protocol = open.settings.protocol();
        core.clients.add(now, String::new(), ClientTransport::Listener(Box::new(connection)));
        if let Some(client) = core.clients.client(id) {
            client.origin = Some((protocol, from));
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
    fn reject_connection(&mut self, listener: usize, mut stream: &TcpStream, key: &str, max: usize) {
        let open = &mut self.open[listener];
        open.counts.refused += 1;
        if let Some(text) = open.settings.overload_reply() {
            // An empty socket takes these few bytes; a departed client no longer needs them.
            let _ = stream.write(text);
        }
        if open.counts.refused.is_power_of_two() {
            let protocol = open.settings.protocol();
            tracing::warn!(listener = %protocol, refused = open.counts.refused, max, "no place for a client: see {key}");
        }
    }

    /// Removes departed and authenticated clients from the list of unauthenticated ones when they are the majority.
    fn prune_authenticated(&mut self, core: &mut EngineCore) {
        if self.unauthenticated.len() <= 2 * self.unauthenticated_count + UNAUTHENTICATED_SLACK {
            return;
        }
        let clients = &mut core.clients;
        let mut is_unauthenticated =
            |id: &ClientId| clients.listener(*id).is_some_and(|client| client.is_unauthenticated);
        self.unauthenticated.retain(|id| is_unauthenticated(id));
    }

    /// Evicts the oldest unauthenticated client. Returns false if there is none.
    fn evict_unauthenticated(&mut self, core: &mut EngineCore, now: ClockReading) -> bool {
        while let Some(id) = self.unauthenticated.pop_front() {
            if core.clients.listener(id).is_some_and(|connection| connection.is_unauthenticated) {
                self.detach(core, now, id);
                return true;
            }
        }
        false
    }

    /// Removes a client of a listener, and releases what belongs to it.
    pub(super) fn detach(&mut self, core: &mut EngineCore, now: ClockReading, id: ClientId) {
        core.detach(now, id);
        if let Some(mut client) = core.detached.pop_back() {
            if client.id == id {
                self.release(core, &mut client);
            }
            core.detached.push_back(client);
        }
    }

    /// Releases what belongs to a departed client, if it was a client of a listener.
    pub(super) fn release(&mut self, core: &mut EngineCore, client: &mut DetachedClient) {
        let id = client.id;
        let is_own = |transport: &mut ClientTransport| matches!(transport, ClientTransport::Listener(_));
        let Some(ClientTransport::Listener(mut connection)) = client.transport.take_if(is_own) else { return };
        connection.stream.close();
        if let ClientSession::Hat(session) = &mut connection.session {
            for registrations in session.take_final_registrations() {
                let (requester, request) = (EventRequester::Internal, EventRequest::Register(registrations));
                core.leave(InternalCommand::Events(EventServiceCommand::Request { requester, request }));
            }
        }
        if let Err(error) = core.poll.registry().deregister(&mut connection.stream.socket) {
            tracing::debug!(%error, client = id.0, "deregister");
        }
        let open = &mut self.open[connection.listener];
        open.clients -= 1;
        self.unauthenticated_count -= usize::from(connection.is_unauthenticated);
        open.counts.unauthorized += u64::from(connection.account.is_none());
        if let Some(wake) = connection.wake.take() {
            self.wakes.remove(&(wake, id));
        }
        for open in &mut self.open {
            open.is_acceptable = true;
        }
    }

    /// Evicts the clients that hold most, as long as listener clients together exceed their memory limit.
    pub(super) fn evict(&mut self, core: &mut EngineCore, now: ClockReading) {
        if !core.clients.listener_delivery.memory.is_full() {
            return;
        }
        for (bytes, id) in core.clients.by_held_bytes() {
            if !core.clients.listener_delivery.memory.is_full() {
                return;
            }
            if let Some(connection) = core.clients.listener(id) {
                let (open, from) = (&mut self.open[connection.listener], connection.from);
                open.counts.evicted += 1;
                if open.counts.evicted.is_power_of_two() {
                    let (protocol, evicted) = (open.settings.protocol(), open.counts.evicted);
                    tracing::warn!(client = id.0, listener = %protocol, %from, bytes, evicted, "client closed that held most: see listener-memory");
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
