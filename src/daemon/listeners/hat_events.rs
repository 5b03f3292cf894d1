//! Events for Hat clients: what they subscribe to, and the answers to their requests.

use super::Listeners;
use super::connection::ListenerConnection;
use crate::daemon::engine_core::EngineCore;
use crate::daemon::event_report::ListenerRequest;
use crate::event::model::Event;
use crate::listener::client::ClientSession;
use crate::listener::hat::HatClient;
use crate::listener::output_buffer::OutputBuffer;
use crate::listener::protocol::Protocol;
use crate::message::ClientId;
use crate::time::ClockReading;
use std::collections::BTreeMap;

impl Listeners {
    /// Delivers stored events to the clients that subscribe to them, and then acknowledges them to the client that
    /// registered them.
    pub(super) fn on_registered(
        &mut self,
        core: &mut EngineCore,
        now: ClockReading,
        registrant: Option<ListenerRequest>,
        events: Vec<Event>,
    ) {
        self.deliver_events(core, now, &events);
        if let Some((id, number)) = registrant {
            self.with_hat_session(core, now, id, |session, out| session.on_registered(number, events, out));
        }
    }

    /// Delivers the events of a session together to the Hat clients that subscribe to them.
    fn deliver_events(&mut self, core: &mut EngineCore, now: ClockReading, events: &[Event]) {
        if !self.has_clients(Protocol::Hat) {
            return;
        }
        let mut events_of_client: BTreeMap<ClientId, Vec<&Event>> = BTreeMap::new();
        for event in events {
            let targets = core.peer.targets(event.event_type.subject());
            for target in targets.iter().flat_map(|to| to.iter()) {
                let connection = core.clients.listener_connection(target.client);
                if connection.is_some_and(|it| matches!(it.session, ClientSession::Hat(_))) {
                    let events = events_of_client.entry(target.client).or_default();
                    if events.last().is_none_or(|last| last.id != event.id) {
                        events.push(event);
                    }
                }
            }
        }
        for (id, events) in events_of_client {
            self.with_client(core, now, id, |connection| {
                let has_room = connection.has_room();
                let ClientSession::Hat(session) = &mut connection.session else { return };
                match has_room {
                    true => {
                        let taken = session.on_events(&events, &mut connection.unwritten.out);
                        connection.unwritten.count_events(taken);
                    }
                    false => session.on_lost(),
                }
            });
        }
    }

    /// Lets the session of a Hat client write an answer to one of its requests.
    pub(super) fn with_hat_session(
        &mut self,
        core: &mut EngineCore,
        now: ClockReading,
        id: ClientId,
        write: impl FnOnce(&mut HatClient, &mut OutputBuffer),
    ) {
        self.with_client(core, now, id, |connection| {
            let ClientSession::Hat(session) = &mut connection.session else {
                unreachable!("only Hat clients request events")
            };
            write(session, &mut connection.unwritten.out);
            connection.unwritten.count_answers();
        });
    }

    /// Calls `pass` with the connection of a client, then serves the requests of its session that result.
    fn with_client(
        &mut self,
        core: &mut EngineCore,
        now: ClockReading,
        id: ClientId,
        pass: impl FnOnce(&mut ListenerConnection),
    ) {
        let Some(connection) = core.clients.listener_connection(id) else { return };
        pass(connection);
        self.drain_requests(core, now, id);
        // An answer, or the events of a session, may be large, and a turn may have one for each of many clients.
        core.clients.write_if_memory_is_scarce(id);
        core.clients.on_served(id);
        self.schedule_if_input(&mut core.clients, id);
        self.schedule_wake(core, now, id);
        self.evict(core, now);
    }
}
