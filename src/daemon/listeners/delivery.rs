//! Delivery to listener clients, with the accounting of their memory and of their drops.

use super::connection::ListenerConnection;
use super::memory::ListenerMemory;
use crate::daemon::outbox::PushOutcome;
use crate::delivery::Deliveries;
use crate::listener::session_request::SessionRequest;
use crate::message::{ClientId, Count, SubId};
use std::collections::VecDeque;

/// Delivery state shared by all listener clients.
#[derive(Debug)]
pub(crate) struct ListenerDelivery {
    /// Number of listener clients.
    pub(crate) clients: usize,
    /// Memory that they hold.
    pub(crate) memory: ListenerMemory,
    /// Number of messages dropped for all of them since the start.
    pub(crate) dropped: u64,
    /// Clients that began to lose messages.
    pub(crate) slow: Vec<ClientId>,
    /// Requests of their sessions that result from deliveries.
    pub(crate) deferred_requests: VecDeque<(ClientId, SessionRequest<'static>)>,
    /// Clients that may have input to process again: they have read their answers, or their subscriptions are
    /// confirmed.
    pub(crate) resumed: Vec<ClientId>,
}

impl ListenerDelivery {
    /// Makes the state without clients. `memory` is the maximum of bytes that they may hold together.
    pub(crate) fn new(memory: usize) -> ListenerDelivery {
        ListenerDelivery {
            clients: 0,
            memory: ListenerMemory::new(memory),
            dropped: 0,
            slow: Vec::new(),
            deferred_requests: VecDeque::new(),
            resumed: Vec::new(),
        }
    }

    /// Delivers messages for these subscriptions to a client, one of `clients`.
    pub(crate) fn deliver(
        &mut self,
        id: ClientId,
        connection: &mut ListenerConnection,
        clients: usize,
        subs: &[SubId],
        deliveries: &Deliveries,
    ) -> PushOutcome {
        let before = connection.dropped;
        let has_share = self.memory.has_share(connection, clients);
        let outcome = connection.deliver(subs, deliveries, has_share);
        self.dropped += connection.dropped - before;
        if self.memory.is_scarce() {
            // The result is ignored: the write at the end of the turn detects a broken connection too.
            self.write(id, connection);
        } else {
            self.memory.update(connection);
        }
        self.take_requests(id, connection);
        if outcome.begins_drops {
            self.slow.push(id);
        }
        outcome
    }

    /// Reports to the session of a client that messages of these subscriptions are lost.
    pub(crate) fn report_loss(
        &mut self,
        id: ClientId,
        connection: &mut ListenerConnection,
        subs: &[SubId],
        lost: Count,
    ) {
        connection.session.on_lost(subs, lost);
        self.take_requests(id, connection);
    }

    fn take_requests(&mut self, id: ClientId, connection: &mut ListenerConnection) {
        while let Some(request) = connection.poll_request() {
            self.deferred_requests.push_back((id, request));
        }
    }

    /// Writes pending output to a client. Returns false at the end of its connection.
    pub(crate) fn write(&mut self, id: ClientId, connection: &mut ListenerConnection) -> bool {
        let was_backpressured = connection.unwritten.is_backpressured();
        let is_open = connection.write();
        self.memory.update(connection);
        if was_backpressured && !connection.unwritten.is_backpressured() {
            self.resumed.push(id);
        }
        is_open
    }
}
