//! Delivery to the clients of listeners, and the accounting of their memory and of their losses.

use super::{ClientEntry, ClientTransport, Clients};
use crate::daemon::listeners::connection::ListenerConnection;
use crate::delivery::Deliveries;
use crate::listener::session_request::{ClientFacts, ReceiverCount};
use crate::message::{ClientId, Delivery, Publisher, Target};
use crate::subject::Subject;
use crate::time::ClockReading;

impl Clients {
    /// Returns the connection of a listener client.
    pub(crate) fn listener_connection(&mut self, id: ClientId) -> Option<&mut ListenerConnection> {
        match &mut self.map.get_mut(&id)?.kind {
            ClientTransport::Listener(connection) => Some(connection),
            _ => None,
        }
    }

    /// Updates the memory counted for a listener client after it was served, and schedules a write of its output.
    pub(crate) fn on_served(&mut self, id: ClientId) {
        let Some(client) = self.map.get_mut(&id) else { return };
        let ClientTransport::Listener(connection) = &mut client.kind else { return };
        self.listener_delivery.memory.update(connection);
        if connection.has_output() || connection.flow.is_closing {
            client.mark_dirty_answers(id, &mut self.dirty_answers);
        }
    }

    /// Writes the output of a listener client at once if the memory of all of them is scarce. The write at the end of
    /// the turn detects a broken connection.
    pub(crate) fn write_if_memory_is_scarce(&mut self, id: ClientId) {
        if let Some(ClientTransport::Listener(connection)) = self.map.get_mut(&id).map(|client| &mut client.kind) {
            self.listener_delivery.memory.update(connection);
            if self.listener_delivery.memory.is_scarce() {
                self.listener_delivery.write(id, connection);
            }
        }
    }

    /// Moves the listener clients that began to lose messages to `slow`.
    pub(crate) fn take_slow(&mut self, slow: &mut Vec<ClientId>) {
        slow.append(&mut self.listener_delivery.slow);
    }

    /// Returns the advisory about a listener client's losses and resets its drop counts; `None` as long as the client
    /// has no room for it.
    pub(crate) fn take_drop_advisory(&mut self, id: ClientId, me: &Publisher, scid: u16) -> Option<Delivery> {
        let clients = self.map.len();
        let ClientTransport::Listener(connection) = &mut self.map.get_mut(&id)?.kind else { return None };
        let has_share = self.listener_delivery.memory.has_share(connection, clients);
        if has_share { connection.take_drop_advisory(me, scid) } else { None }
    }

    /// Returns the facts about the clients of the listener with this index, or about one of them.
    pub(crate) fn listener_facts(
        &self,
        now: ClockReading,
        listener: usize,
        only: Option<ClientId>,
    ) -> Vec<ClientFacts> {
        let facts = |(id, client): (&ClientId, &ClientEntry)| {
            let connection = match &client.kind {
                ClientTransport::Listener(connection) if connection.listener == listener => connection,
                _ => return None,
            };
            Some(ClientFacts {
                id: id.0,
                from: connection.from,
                name: client.name.clone(),
                age_secs: now.instant.since(client.connected).as_secs(),
                resp: connection.session.resp_state(now.instant),
                account: connection.account.clone().unwrap_or_default(),
                unread_bytes: connection.parser.held_bytes(),
                queued_bytes: connection.unwritten.bytes(),
                lost: connection.session.lost(),
                dropped: connection.dropped,
            })
        };
        match only {
            Some(only) => self.map.get_key_value(&only).and_then(facts).into_iter().collect(),
            None => self.map.iter().filter_map(facts).collect(),
        }
    }

    /// Returns the listener clients with the bytes that each holds, in descending order.
    pub(crate) fn by_held_bytes(&self) -> Vec<(usize, ClientId)> {
        let held = |(id, client): (&ClientId, &ClientEntry)| match &client.kind {
            ClientTransport::Listener(connection) => Some((connection.held_bytes(), *id)),
            _ => None,
        };
        let mut rows: Vec<(usize, ClientId)> = self.map.iter().filter_map(held).collect();
        rows.sort_unstable_by(|a, b| b.cmp(a));
        rows
    }

    /// Delivers messages to a listener client.
    pub(super) fn deliver_at_listener(&mut self, now: ClockReading, group: &[Target], deliveries: &Deliveries) {
        let (id, clients) = (group[0].client, self.map.len());
        let Some(client) = self.map.get_mut(&id) else { return };
        self.subs.clear();
        self.subs.extend(group.iter().map(|target| target.sub));
        if let ClientTransport::Listener(connection) = &mut client.kind {
            let outcome = self.listener_delivery.deliver(id, connection, clients, &self.subs, deliveries);
            client.on_pushed(now, id, outcome, &mut self.dirty);
        }
    }

    /// Writes an advisory of this peer to the clients whose protocol has advisories of its own. Returns the targets of
    /// the other clients.
    pub(super) fn advise_at_listeners(&mut self, to: &[Target], advisory: &Delivery) -> Vec<Target> {
        let mut others = Vec::new();
        for group in to.chunk_by(|a, b| a.client == b.client) {
            let id = group[0].client;
            match self.listener_connection(id).is_some_and(|connection| connection.advise(advisory)) {
                true => self.schedule_write(id),
                false => others.extend_from_slice(group),
            }
        }
        others
    }

    /// Reports the receivers of a published message to the session of its client, which awaits an answer on `reply`.
    pub(crate) fn answer_published(&mut self, id: ClientId, reply: &Subject, receivers: ReceiverCount) {
        let Some(connection) = self.listener_connection(id) else { return };
        connection.answer(|session, out| session.on_published(Some(reply), receivers, out));
        self.schedule_write(id);
    }

    /// Resumes a client whose subscriptions are confirmed up to `version`, if it waits for no later one.
    pub(crate) fn resume_confirmed(&mut self, id: ClientId, version: u64) {
        let Some(connection) = self.listener_connection(id) else { return };
        if connection.awaited_version.take_if(|awaited| *awaited <= version).is_some() {
            self.schedule_write(id);
            self.listener_delivery.resumed.push(id);
        }
    }

    /// Begins to close the connection of a client: it may read its remaining output.
    pub(crate) fn begin_close(&mut self, id: ClientId) {
        let Some(connection) = self.listener_connection(id) else { return };
        connection.flow.is_closing = true;
        connection.awaited_version = None;
        self.schedule_write(id);
    }
}
