//! What is handed to clients of listeners, and what comes of it.

use super::connection::ListenerConnection;
use super::memory::ListenerMemory;
use crate::daemon::outbox::PushOutcome;
use crate::listener::session_request::SessionRequest;
use crate::message::{ClientId, Count, SubId};
use crate::proto::delivery::Deliveries;
use std::collections::VecDeque;

/// What all clients of listeners have in common.
#[derive(Debug)]
pub(crate) struct ListenerDelivery {
    /// What they hold.
    pub(crate) memory: ListenerMemory,
    /// Messages that they did not get, since the start.
    pub(crate) dropped: u64,
    /// Those that began to lose messages.
    pub(crate) slow: Vec<ClientId>,
    /// What their sessions ask for because of what was delivered to them.
    pub(crate) deferred_asks: VecDeque<(ClientId, SessionRequest<'static>)>,
    /// Those that have taken the answers that kept them from being served.
    pub(crate) resumed: Vec<ClientId>,
}

impl ListenerDelivery {
    /// Without any, which may hold so many bytes together.
    pub(crate) fn new(memory: usize) -> ListenerDelivery {
        ListenerDelivery {
            memory: ListenerMemory::new(memory),
            dropped: 0,
            slow: Vec::new(),
            deferred_asks: VecDeque::new(),
            resumed: Vec::new(),
        }
    }

    /// Hands messages for these subscriptions to a client, one of so many.
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
        let pushed = connection.deliver(subs, deliveries, has_share);
        self.dropped += connection.dropped - before;
        if self.memory.is_scarce() {
            // What comes of it is seen when it is written again, in the same turn.
            self.write(id, connection);
        } else {
            self.memory.note(connection);
        }
        self.take_asks(id, connection);
        if pushed.begins_drops {
            self.slow.push(id);
        }
        pushed
    }

    /// Tells the session of a client that messages of these subscriptions are lost.
    pub(crate) fn report_loss(
        &mut self,
        id: ClientId,
        connection: &mut ListenerConnection,
        subs: &[SubId],
        lost: Count,
    ) {
        connection.session.on_lost(subs, lost);
        self.take_asks(id, connection);
    }

    fn take_asks(&mut self, id: ClientId, connection: &mut ListenerConnection) {
        while let Some(ask) = connection.poll_request() {
            self.deferred_asks.push_back((id, ask));
        }
    }

    /// Writes what waits for a client. False at the end of its connection.
    pub(crate) fn write(&mut self, id: ClientId, connection: &mut ListenerConnection) -> bool {
        let was_backpressured = connection.unwritten.is_backpressured();
        let goes_on = connection.write();
        self.memory.note(connection);
        if was_backpressured && !connection.unwritten.is_backpressured() {
            self.resumed.push(id);
        }
        goes_on
    }
}
