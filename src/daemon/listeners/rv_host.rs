//! The daemon that Rendezvous clients see: it publishes the announcements of their sessions and listens.

use super::Listeners;
use crate::daemon::engine_core::EngineCore;
use crate::listener::rv::request::RvRequest;
use crate::listener::rv::{RvHost, RvHostFacts, RvTraffic, Settings};
use crate::message::{ClientId, Delivery, Message, Refusal, Verdict};
use crate::proto::stats::LossRow;
use crate::time::ClockReading;

/// Number of the peer as a client of its own. Clients begin at 1.
const OWN_CLIENT: ClientId = ClientId(0);

impl Listeners {
    /// Serves a request of a Rendezvous session.
    pub(super) fn on_rv_request(&mut self, core: &mut EngineCore, now: ClockReading, id: ClientId, request: RvRequest) {
        if let RvRequest::PublishLocal(message) = request {
            // Messages that the client has published before come first.
            core.deliver_published(now);
            return deliver_locally(core, now, message);
        }
        let Some(index) = core.clients.listener_connection(id).map(|connection| connection.listener) else { return };
        let facts = self.listeners[index].rv_facts.clone().expect("a session of Rendezvous has a Rendezvous listener");
        self.rv_host.get_or_insert_with(|| RvHost::new(facts, now)).on_request(now, id.0, request);
        self.publish_rv_messages(core, now);
    }

    /// Announces the end of a client's session, if it had one.
    pub(super) fn on_rv_departure(&mut self, core: &mut EngineCore, now: ClockReading, id: ClientId) {
        if let Some(host) = &mut self.rv_host {
            host.on_departure(now, id.0);
            self.publish_rv_messages(core, now);
        }
    }

    /// Announces the state of the host if that is due, and publishes waiting announcements.
    pub(super) fn serve_rv_host(&mut self, core: &mut EngineCore, now: ClockReading) {
        let Some(host) = &mut self.rv_host else { return };
        if host.deadline().is_some_and(|deadline| deadline <= now.instant) {
            host.on_deadline(now, traffic(core));
        }
        self.publish_rv_messages(core, now);
    }

    /// Publishes waiting announcements, as long as the peer can publish.
    fn publish_rv_messages(&mut self, core: &mut EngineCore, now: ClockReading) {
        let Some(host) = self.rv_host.as_mut().filter(|_| self.discovery_end.is_none()) else { return };
        while let Some(message) = host.poll_message() {
            if !core.ensure_send_capacity() {
                return host.defer(message);
            }
            // Without a monitor on the LAN, announcements of many listens would only fill the network.
            if matches!(core.peer.receivers(OWN_CLIENT, &message.subject), (0, true)) {
                continue;
            }
            let published = core.peer.publish(now, OWN_CLIENT, &message);
            core.on_published(now, OWN_CLIENT, Ok(()));
            // The certificate of the host may not permit advisories. Its own clients still get them.
            if matches!(published, Err(Refusal::PublishDenied(_))) {
                deliver_locally(core, now, message);
            }
        }
    }
}

/// Returns the facts about the daemon of a listener.
pub(super) fn facts(settings: &Settings, name: &str, port: u16) -> RvHostFacts {
    RvHostFacts {
        host: settings.host,
        name: name.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        port,
        service: settings.service,
        network: format!(";{}", settings.group),
    }
}

/// Delivers a message of the daemon to the clients of this peer.
fn deliver_locally(core: &mut EngineCore, now: ClockReading, message: Message) {
    if let Some(to) = core.peer.targets(&message.subject) {
        let delivery = Delivery::new(message, core.me(), None, Verdict::Direct);
        core.clients.deliver(now, &to, delivery.into());
    }
}

/// Returns the traffic of the peer.
fn traffic(core: &EngineCore) -> RvTraffic {
    let counters = core.peer.counters();
    let rows = core.peer.loss_rows();
    let sum = |count: fn(&LossRow) -> u64| rows.iter().map(count).sum();
    RvTraffic {
        messages: [counters.messages_published, counters.messages_delivered],
        bytes: [counters.bytes_out, counters.bytes_in],
        datagrams: [counters.datagrams_multicast + counters.datagrams_unicast, counters.datagrams_in],
        repairs: [counters.resends, sum(|row| row.datagrams.missing())],
        losses: [
            sum(|row| row.msg_loss.count.saturating_add(row.ibx_loss.count)),
            core.peer.outbound_rows().iter().map(|row| row.report.lost_min).sum(),
        ],
    }
}
